"""A selector as a tree, and what the parser and the compiler know of its nodes.

Chains are flat (``a AND b AND c`` is one node, so is ``1 + 2 - 3``): a tree is as deep as its parentheses, not as long
as its text.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant; its Python type is its type: bool, int (exact), float (approximate), str."""

    value: bool | int | float | str


@dataclass(frozen=True, slots=True)
class Name:
    """An identifier."""

    name: str


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """A sum or product: the first operand, then operators (``+ - * / %``) with theirs, from left to right."""

    first: Node
    rest: tuple[tuple[str, Node], ...]


@dataclass(frozen=True, slots=True)
class Signed:
    """``+`` or ``-`` before an operand."""

    sign: str
    operand: Node


@dataclass(frozen=True, slots=True)
class Comparison:
    """``= <> < <= > >=``."""

    operator: str
    left: Node
    right: Node


@dataclass(frozen=True, slots=True)
class Between:
    """``value [NOT] BETWEEN low AND high``."""

    value: Node
    low: Node
    high: Node
    negated: bool


@dataclass(frozen=True, slots=True)
class In:
    """``value [NOT] IN (literal, ...)``."""

    value: Node
    choices: tuple[str | int | float, ...]
    negated: bool


@dataclass(frozen=True, slots=True)
class Like:
    """``value [NOT] LIKE pattern [ESCAPE character]``: the pattern as characters, `like.ANY` and `like.ONE`."""

    value: Node
    pattern: tuple[str | None, ...]
    negated: bool


@dataclass(frozen=True, slots=True)
class IsNull:
    """``value IS [NOT] NULL``."""

    value: Node
    negated: bool


@dataclass(frozen=True, slots=True)
class Not:
    """``NOT condition``."""

    operand: Node


@dataclass(frozen=True, slots=True)
class And:
    """Conditions joined by AND."""

    operands: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """Conditions joined by OR."""

    operands: tuple[Node, ...]


Node: TypeAlias = Literal | Name | Arithmetic | Signed | Comparison | Between | In | Like | IsNull | Not | And | Or


class ValueKind(Enum):
    """The kind of a node's value, as far as it is known before any message is seen."""

    ANY = "a name"
    CONDITION = "a condition"
    NUMBER = "a number"
    STRING = "a string"


def kind_of(node: Node) -> ValueKind:
    """A name can be anything; everything else shows what it is."""
    match node:
        case Name():
            return ValueKind.ANY
        case Literal(bool()):
            return ValueKind.CONDITION
        case Literal(str()):
            return ValueKind.STRING
        case Literal() | Arithmetic() | Signed():
            return ValueKind.NUMBER
        case _:
            return ValueKind.CONDITION


def names_in(node: Node) -> Iterator[str]:
    """All identifiers, each as often as it stands there."""
    pending: list[Node] = [node]
    while pending:
        match pending.pop():
            case Name(name):
                yield name
            case Arithmetic(first, rest):
                pending.append(first)
                pending.extend(operand for _, operand in rest)
            case Comparison(_, left, right):
                pending += (left, right)
            case Between(value, low, high, _):
                pending += (value, low, high)
            case And(operands) | Or(operands):
                pending.extend(operands)
            case In(value) | Like(value) | IsNull(value) | Not(value) | Signed(_, value):
                pending.append(value)
            case Literal():
                pass
