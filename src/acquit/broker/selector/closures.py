"""A tree to closures: each node a function of the message's fields that returns its value, or None for *unknown*.

The rules are those of JMS 2.0, 3.8.1.2-3: what is compared or calculated with a null is unknown; AND, OR and NOT know
three values; values of different types are not equal and not unequal, the comparison is false. Numbers are one type:
two exact ones are compared and calculated as longs, others as doubles. What has no result is unknown: dividing by
zero, exceeding a long, calculating with what is no number.

The plainest and most frequent nodes, a name against a constant, have functions of their own.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

from acquit.broker.selector.fields import Fields, literal_for
from acquit.broker.selector.lexer import LONG_MAX, LONG_MIN
from acquit.broker.selector.like import ONE, PIECES_CHARACTERS, TEXT_MAX, pattern_matcher
from acquit.broker.selector.syntax import (
    And,
    Arithmetic,
    Between,
    Comparison,
    In,
    IsNull,
    Like,
    Literal,
    Name,
    Node,
    Not,
    Or,
    Signed,
)

Reader: TypeAlias = Callable[[Fields], object]
"""A node's value."""
Test: TypeAlias = Callable[[Fields], bool | None]
"""A condition's truth."""

Calculation: TypeAlias = Callable[[Any, Any], Any]
"""An operator of two numbers of one kind: of integers it makes an integer, of floats a float. Typed as what it is, the
native build would count in floats throughout, as it takes `int | float` for one."""

_EXACT_IN_DOUBLE_MAX: Final = 1 << 53


def compile_test(node: Node) -> Test:
    """The truth of a condition."""
    match node:
        case And(operands):
            return _all([compile_test(operand) for operand in operands])
        case Or(operands):
            return _any([compile_test(operand) for operand in operands])
        case Not(operand):
            return _not(compile_test(operand))
        case Comparison(symbol, left, right):
            return _comparison(symbol, left, right)
        case Between(value, low, high, negated):
            if negated:
                return _any([_comparison("<", value, low), _comparison(">", value, high)])
            return _all([_comparison(">=", value, low), _comparison("<=", value, high)])
        case In(value, choices, negated):
            if isinstance(value, Name):
                choices = tuple(c if not isinstance(c, str) else literal_for(value.name, c) for c in choices)
            return _maybe_not(_in(_read(value), choices), negated)
        case Like(value, pattern, negated):
            return _maybe_not(_like(_read(value), pattern), negated)
        case IsNull(value, negated):
            return _is_null(_read(value), negated)
        case Literal() | Name() | Arithmetic() | Signed():
            return _as_condition(_read(node))


def _read(node: Node) -> Reader:
    """The value of an operand."""
    match node:
        case Literal(value):
            return _constant(value)
        case Name(name):
            return operator.itemgetter(name)
        case Signed(sign, operand):
            return _folded(_signed(sign, _read(operand)), [operand])
        case Arithmetic(first, rest):
            read = _arithmetic(_read(first), [(_CALCULATIONS[symbol], _read(operand)) for symbol, operand in rest])
            return _folded(read, [first, *(operand for _, operand in rest)])
        case _:
            return compile_test(node)


# -- logic ------------------------------------------------------------------------------------------------------------


def _all(tests: list[Test]) -> Test:
    def test(fields: Fields) -> bool | None:
        truth: bool | None = True
        for each in tests:
            found = each(fields)
            if found is False:
                return False
            if found is None:
                truth = None
        return truth

    return test


def _any(tests: list[Test]) -> Test:
    def test(fields: Fields) -> bool | None:
        truth: bool | None = False
        for each in tests:
            found = each(fields)
            if found:
                return True
            if found is None:
                truth = None
        return truth

    return test


def _not(inner: Test) -> Test:
    def test(fields: Fields) -> bool | None:
        truth = inner(fields)
        return None if truth is None else not truth

    return test


def _maybe_not(inner: Test, negated: bool) -> Test:
    return _not(inner) if negated else inner


def _as_condition(read: Reader) -> Test:
    """A value where a condition must stand: what is no boolean is not true."""

    def test(fields: Fields) -> bool | None:
        value = read(fields)
        return None if value is None else value is True

    return test


def _is_null(read: Reader, negated: bool) -> Test:
    if negated:
        return lambda fields: read(fields) is not None
    return lambda fields: read(fields) is None


# -- comparisons ------------------------------------------------------------------------------------------------------

_COMPARISONS: Final[dict[str, Callable[[object, object], bool]]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,  # type: ignore[dict-item]  # only ever given two numbers
    "<=": operator.le,  # type: ignore[dict-item]
    ">": operator.gt,  # type: ignore[dict-item]
    ">=": operator.ge,  # type: ignore[dict-item]
}
_MIRRORED: Final = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_NUMBERS: Final = frozenset((int, float))
_EQUATED: Final = frozenset((int, float, str, bool))


def _comparison(symbol: str, left: Node, right: Node) -> Test:
    if isinstance(left, Literal):
        symbol, left, right = _MIRRORED[symbol], right, left
    if isinstance(left, Name) and isinstance(right, Literal):
        constant = right.value
        if isinstance(constant, str):
            return _string_test(symbol, left.name, literal_for(left.name, constant))
        if not isinstance(constant, bool) and abs(constant) < _EXACT_IN_DOUBLE_MAX:
            return _number_test(symbol, left.name, constant)
    return _values_test(symbol, _read(left), _read(right))


def _string_test(symbol: str, name: str, constant: str) -> Test:
    wanted = symbol == "="

    def test(fields: Fields) -> bool | None:
        value = fields[name]
        if type(value) is str:
            return (value == constant) is wanted
        return None if value is None else False

    return test


def _number_test(symbol: str, name: str, constant: int | float) -> Test:
    """Against a number that a double holds exactly, Python's own comparison gives what Java's promotion does."""
    compare = _COMPARISONS[symbol]

    def test(fields: Fields) -> bool | None:
        value = fields[name]
        if type(value) in _NUMBERS:
            return compare(value, constant)
        return None if value is None else False

    return test


def _values_test(symbol: str, left: Reader, right: Reader) -> Test:
    compare = _COMPARISONS[symbol]
    alike = _EQUATED if symbol in ("=", "<>") else _NUMBERS

    def test(fields: Fields) -> bool | None:
        a, b = left(fields), right(fields)
        if a is None or b is None:
            return None
        kind = type(a)
        if kind is type(b):
            return kind in alike and compare(a, b)
        if kind in _NUMBERS and type(b) in _NUMBERS:
            return compare(float(a), float(b))  # type: ignore[arg-type]  # a long promoted, as in Java
        return False

    return test


def _in(read: Reader, choices: tuple[str | int | float, ...]) -> Test:
    strings = frozenset(choice for choice in choices if isinstance(choice, str))
    numbers = [choice for choice in choices if not isinstance(choice, str)]

    def test(fields: Fields) -> bool | None:
        value = read(fields)
        if type(value) is str:
            return value in strings
        if value is None:
            return None
        return type(value) in _NUMBERS and any(_equal_numbers(value, number) for number in numbers)

    return test


def _equal_numbers(a: object, b: int | float) -> bool:
    return a == b if type(a) is type(b) else float(a) == float(b)  # type: ignore[arg-type]


def _like(read: Reader, pattern: Sequence[str | None]) -> Test:
    fits = pattern_matcher(pattern)
    characters = 1 if ONE in pattern else PIECES_CHARACTERS

    def test(fields: Fields) -> bool | None:
        value = read(fields)
        if type(value) is str:
            fields.steps_left -= len(value) // characters
            return fits(value) if len(value) <= TEXT_MAX and fields.steps_left >= 0 else None
        return None if value is None else False

    return test


# -- arithmetic -------------------------------------------------------------------------------------------------------


def _constant(value: object) -> Reader:
    return lambda fields: value


def _folded(read: Reader, operands: list[Node]) -> Reader:
    """Return a constant in place of an expression that is calculated from constants alone."""
    if all(isinstance(operand, Literal) for operand in operands):
        return _constant(read(Fields()))
    return read


def _signed(sign: str, read: Reader) -> Reader:
    calculate = _CALCULATIONS[sign]

    def value(fields: Fields) -> object:
        operand = read(fields)
        if type(operand) is int:
            return _as_long(calculate(0, operand))
        if type(operand) is float:
            return calculate(-0.0, operand)  # not 0.0: the sign of a zero counts
        return None

    return value


def _arithmetic(first: Reader, rest: list[tuple[Calculation, Reader]]) -> Reader:
    def value(fields: Fields) -> object:
        a = first(fields)
        for calculate, read in rest:
            b = read(fields)
            try:
                if type(a) is int and type(b) is int:
                    a = _as_long(calculate(a, b))
                elif type(a) in _NUMBERS and type(b) in _NUMBERS:
                    a = calculate(float(a), float(b))  # type: ignore[arg-type]
                else:
                    return None
            except (ArithmeticError, ValueError):
                return None
        return a

    return value


def _as_long(number: Any) -> Any:
    return number if LONG_MIN <= number <= LONG_MAX else None


def _divide(a: Any, b: Any) -> Any:
    """Java's: between integers, towards zero."""
    if type(a) is float:
        return a / b
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) is (b < 0) else -quotient


def _remainder(a: Any, b: Any) -> Any:
    """Java's: the sign is that of the dividend."""
    if type(a) is float:
        return math.fmod(a, b)
    rest = abs(a) % abs(b)
    return rest if a >= 0 else -rest


_CALCULATIONS: Final[dict[str, Calculation]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": _divide,
    "%": _remainder,
}
