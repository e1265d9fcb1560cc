"""Selectors against a second reading of the same rules: a slow interpreter of trees, which never sees their text.

Random trees are written as text, with no more parentheses than precedence asks for, or with more, and with random blank
space and capitals. What the compiled text says of a message must be what the interpreter says of the tree. The
interpreter knows three values and Java's numbers, and none of the product's code.
"""

from __future__ import annotations

import math
import random
from fractions import Fraction
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from acquit.broker.selector import Fields, compile_selector
from tests.support.examples import examples

Tree = tuple[Any, ...]
Found = bool | int | float | str | None

NAMES = ["a", "b", "c", "colour", "JMSPriority", "x.y", "$z"]
LONGS = range(-(2**63), 2**63)

# -- trees ------------------------------------------------------------------------------------------------------------

numbers = st.one_of(
    st.integers(0, 5),
    st.sampled_from([2**31, 2**53 - 1, 2**53, 2**53 + 1, 2**62, 2**63 - 1]),
    st.sampled_from([0.0, 0.5, 1.0, 2.0, 1e300, 9007199254740992.0]),
)
strings = st.sampled_from(["", "a", "ab", "it's", "%", "a_b", "100%", "é\n"])
names = st.sampled_from(NAMES).map(lambda name: ("name", name))
number_leaves = st.one_of(names, numbers.map(lambda number: ("literal", number)))


def arithmetic(inner: st.SearchStrategy[Tree]) -> st.SearchStrategy[Tree]:
    return st.one_of(
        st.tuples(st.just("calc"), st.sampled_from("+-*/%"), inner, inner),
        st.tuples(st.just("sign"), st.sampled_from("+-"), inner),
    )


sums = st.recursive(number_leaves, arithmetic, max_leaves=6)
string_leaves = st.one_of(names, strings.map(lambda text: ("literal", text)))
patterns = st.lists(st.sampled_from(["a", "b", "_", "%", "'", "!_", "!%", "!!"]), max_size=5).map(tuple)
predicates = st.one_of(
    names,
    st.booleans().map(lambda value: ("literal", value)),
    st.tuples(st.just("compare"), st.sampled_from(["=", "<>", "<", "<=", ">", ">="]), sums, sums),
    st.tuples(st.just("compare"), st.sampled_from(["=", "<>"]), string_leaves, string_leaves),
    st.tuples(st.just("compare"), st.sampled_from(["=", "<>"]), names, st.booleans().map(lambda v: ("literal", v))),
    st.tuples(st.just("between"), st.booleans(), sums, sums, sums),
    st.tuples(st.just("in"), st.booleans(), names, st.lists(st.one_of(strings, numbers), min_size=1, max_size=4)),
    st.tuples(st.just("like"), st.booleans(), string_leaves, patterns),
    st.tuples(st.just("null"), st.booleans(), st.one_of(names, sums)),
)


def logic(inner: st.SearchStrategy[Tree]) -> st.SearchStrategy[Tree]:
    return st.one_of(
        st.tuples(st.just("and"), inner, inner),
        st.tuples(st.just("or"), inner, inner),
        st.tuples(st.just("not"), inner),
    )


conditions = st.recursive(predicates, logic, max_leaves=8)
values = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 6),
    st.sampled_from([2**31, 2**53 + 1, 2**63 - 1, -(2**63), 2**64 - 1]),
    st.sampled_from([0.0, -0.5, 0.5, 1.0, 2.0, 1e300, math.inf, math.nan, 9007199254740992.0]),
    strings,
)
messages = st.fixed_dictionaries(dict.fromkeys(NAMES, values))

# -- writing them -----------------------------------------------------------------------------------------------------

LEVELS = {"or": 0, "and": 1, "not": 2, "compare": 3, "between": 3, "in": 3, "like": 3, "null": 3, "sign": 6}
OPERAND = 7


def level_of(tree: Tree) -> int:
    if tree[0] == "calc":
        return 4 if tree[1] in "+-" else 5
    return LEVELS.get(tree[0], OPERAND)


class Writer:
    """Writes a tree, with more blanks and parentheses than needed as a random source says."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)

    def word(self, text: str) -> str:
        blank = self.rng.choice((" ", "  ", "\t", "\n"))
        return blank + self.rng.choice((text, text.lower(), text.capitalize())) + blank

    def sign(self, text: str) -> str:
        return self.rng.choice((text, f" {text} "))

    def literal(self, value: Found) -> str:
        if isinstance(value, bool):
            return self.word(str(value).upper())
        if isinstance(value, str):
            return "'" + value.replace("'", "''") + "'"
        if isinstance(value, int):
            return self.rng.choice((str(value), f"{value}L", hex(value), f"0{value:o}"))
        assert value is not None
        return self.rng.choice((repr(value), f"{value:.17e}", value.hex()))

    def write(self, tree: Tree, level: int = 0) -> str:
        text = self._write(tree)
        if level_of(tree) < level or self.rng.random() < 0.1:
            return f"({text})"
        return text

    def _write(self, tree: Tree) -> str:
        kind, own = tree[0], level_of(tree)
        if kind == "name":
            return self.rng.choice((str(tree[1]), f'"{tree[1]}"'))
        if kind == "literal":
            return self.literal(tree[1])
        if kind == "sign":
            return tree[1] + self.rng.choice(("", " ")) + self.write(tree[2], own)
        if kind in ("and", "or"):
            return self.write(tree[1], own) + self.word(kind.upper()) + self.write(tree[2], own + 1)
        if kind == "not":
            return self.word("NOT") + self.write(tree[1], own)
        if kind == "calc":
            return self.write(tree[2], own) + self.sign(tree[1]) + self.write(tree[3], own + 1)
        if kind == "compare":
            return self.write(tree[2], 4) + self.sign(tree[1]) + self.write(tree[3], 4)
        negation = self.word("NOT") if tree[1] else ""
        value = self.write(tree[2], 4)
        if kind == "null":
            return value + self.word("IS") + negation + self.word("NULL")
        if kind == "between":
            bounds = self.write(tree[3], 4) + self.word("AND") + self.write(tree[4], 4)
            return value + negation + self.word("BETWEEN") + bounds
        if kind == "in":
            return value + negation + self.word("IN") + "(" + ",".join(map(self.literal, tree[3])) + ")"
        pattern = self.literal("".join(tree[3]))
        return value + negation + self.word("LIKE") + pattern + self.word("ESCAPE") + "'!'"


# -- reading them slowly ----------------------------------------------------------------------------------------------


def evaluate(tree: Tree, message: dict[str, Found]) -> Found:
    kind = tree[0]
    if kind == "name":
        return message[tree[1]]
    if kind == "literal":
        return tree[1]
    if kind == "sign":
        operand = evaluate(tree[2], message)
        return calculate("*", -1 if tree[1] == "-" else 1, operand)
    if kind == "calc":
        return calculate(tree[1], evaluate(tree[2], message), evaluate(tree[3], message))
    if kind in ("and", "or"):
        # SQL's own definition: false < unknown < true; AND is the least of them, OR the greatest.
        ranks = [RANKS[condition(operand, message)] for operand in tree[1:]]
        return TRUTHS[min(ranks) if kind == "and" else max(ranks)]
    if kind == "not":
        return TRUTHS[2 - RANKS[condition(tree[1], message)]]
    if kind == "compare":
        return compare(tree[1], evaluate(tree[2], message), evaluate(tree[3], message))
    if kind == "null":
        return (evaluate(tree[2], message) is None) is not tree[1]
    if kind == "between":
        low = ("compare", "<" if tree[1] else ">=", tree[2], tree[3])
        high = ("compare", ">" if tree[1] else "<=", tree[2], tree[4])
        return evaluate(("or" if tree[1] else "and", low, high), message)
    value = evaluate(tree[2], message)
    if kind == "in":
        found = None if value is None else any(compare("=", value, choice) for choice in tree[3])
    elif value is None:
        found = None
    else:
        found = isinstance(value, str) and like(list(tree[3]), value)
    return TRUTHS[2 - RANKS[found]] if tree[1] else found


RANKS = {False: 0, None: 1, True: 2}
TRUTHS = {0: False, 1: None, 2: True}


def condition(tree: Tree, message: dict[str, Found]) -> bool | None:
    value = evaluate(tree, message)
    return None if value is None else value is True


def is_number(value: Found) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def calculate(operator: str, a: Found, b: Found) -> Found:
    if not is_number(a) or not is_number(b):
        return None
    assert isinstance(a, int | float) and isinstance(b, int | float)
    if isinstance(a, float) or isinstance(b, float):
        x, y = float(a), float(b)
        if operator in "/%" and y == 0:
            return None
        if operator == "%":
            return None if math.isinf(x) else math.fmod(x, y)
        return {"+": lambda: x + y, "-": lambda: x - y, "*": lambda: x * y, "/": lambda: x / y}[operator]()
    if operator in "/%" and b == 0:
        return None
    quotient = math.trunc(Fraction(a, b)) if operator in "/%" else 0
    result = {"+": a + b, "-": a - b, "*": a * b, "/": quotient, "%": a - quotient * b}[operator]
    return result if result in LONGS else None


def compare(operator: str, a: Found, b: Found) -> bool | None:
    if a is None or b is None:
        return None
    if is_number(a) and is_number(b):
        if isinstance(a, float) or isinstance(b, float):
            a, b = float(a), float(b)
        assert isinstance(a, int | float) and isinstance(b, int | float)
        return {"=": a == b, "<>": a != b, "<": a < b, "<=": a <= b, ">": a > b, ">=": a >= b}[operator]
    if operator not in ("=", "<>") or type(a) is not type(b):
        return False
    return (a == b) is (operator == "=")


def like(pattern: list[str], text: str) -> bool:
    if not pattern:
        return not text
    if pattern[0] == "%":
        return any(like(pattern[1:], text[start:]) for start in range(len(text) + 1))
    return bool(text) and pattern[0] in ("_", text[0], "!" + text[0]) and like(pattern[1:], text[1:])


# -- both -------------------------------------------------------------------------------------------------------------


@examples(500)
@given(conditions, st.lists(messages, min_size=1, max_size=4), st.integers(0, 2**32))
def test_a_selector_means_what_the_slow_interpreter_says(tree: Tree, found: list[dict[str, Found]], seed: int) -> None:
    text = Writer(seed).write(tree)
    selector = compile_selector(text)
    opposite = compile_selector(f"NOT ({text})")
    for message in found:
        fields = Fields({name: value for name, value in message.items() if value is not None})
        expected = condition(tree, message)
        assert selector.matches(fields) is (expected is True), text
        assert opposite.matches(fields) is (expected is False), text


@examples(100)
@given(conditions, st.integers(0, 2**32))
def test_a_selector_knows_the_names_it_asks_for(tree: Tree, seed: int) -> None:
    asked: set[str] = set()

    class Watched(Fields):
        def __missing__(self, name: str) -> object:
            asked.add(name)
            return None

    selector = compile_selector(Writer(seed).write(tree))
    selector.matches(Watched())
    assert asked <= selector.identifiers
