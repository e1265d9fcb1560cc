"""Tokens to a tree (JMS 2.0, 3.8.1.1), by recursive descent::

    disjunction = conjunction { OR conjunction }
    conjunction = negation { AND negation }
    negation    = { NOT } predicate
    predicate   = sum [ ( = | <> | < | <= | > | >= ) sum
                      | [NOT] BETWEEN sum AND sum
                      | [NOT] IN ( literal { , literal } )
                      | [NOT] LIKE string [ ESCAPE string ]
                      | IS [NOT] NULL ]
    sum         = product { ( + | - ) product }
    product     = operand { ( * | / | % ) operand }
    operand     = { + | - } ( name | literal | TRUE | FALSE | "(" disjunction ")" )

What cannot be true of any message because of its types alone, such as adding to a string or ordering strings, is an
error here and not a surprise later. Parentheses, signs and NOTs nest to `DEPTH_MAX`, names and literals are at most
`TERMS_MAX`: so the stack and the time for a message are bounded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from acquit.broker.selector import like
from acquit.broker.selector.lexer import (
    END,
    LONG_MAX,
    NAME,
    NUMBER,
    SIGN,
    STRING,
    WORD,
    SelectorToken,
    tokens_of,
    unexpected,
)
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
    ValueKind,
    kind_of,
)
from acquit.errors import SelectorError

DEPTH_MAX: Final = 40
"""Levels that parentheses, signs and NOTs may nest."""

TERMS_MAX: Final = 512
"""Names and literals that a selector may have, without the lists behind IN."""

AUTOMATON_TERMS: Final = 16
"""Terms that a pattern with ``_`` counts for: an automaton matches it, with a step for each character."""

_EQUALITIES: Final = ("=", "<>")
_ORDERS: Final = ("<", "<=", ">", ">=")


def parse(text: str) -> Node:
    """The tree of a selector. Raises SelectorError."""
    return _SelectorParser(tokens_of(text)).selector()


def _shown(token: SelectorToken) -> str:
    """A token as an error shows it."""
    if token.kind == END:
        return "the end"
    text = str(token.value) if token.kind == STRING else token.text
    return repr(text[:40])


class _SelectorParser:
    """A parse of one selector."""

    def __init__(self, tokens: list[SelectorToken]) -> None:
        self._tokens = tokens
        self._at = 0
        self._depth = 0
        self._terms = 0

    # -- tokens -------------------------------------------------------------------------------------------------------

    def _next(self) -> SelectorToken:
        return self._tokens[self._at]

    def _take(self, kind: str, *values: str) -> str:
        """The next token's value, if it is one of these; else "" and it stays."""
        token = self._tokens[self._at]
        if token.kind != kind or token.value not in values:
            return ""
        self._at += 1
        return str(token.value)

    def _need(self, kind: str, value: str, expected: str) -> None:
        if not self._take(kind, value):
            raise self._unexpected(expected)

    def _unexpected(self, expected: str) -> SelectorError:
        token = self._next()
        return unexpected(_shown(token), token.start, expected)

    def _enter(self) -> None:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise unexpected("a deeper level", self._next().start, f"at most {DEPTH_MAX} levels of nesting")

    def _checked(self, node: Node, first: SelectorToken, *kinds: ValueKind) -> Node:
        """The node that began at `first`, if it can be of one of these kinds."""
        kind = kind_of(node)
        if kind is ValueKind.ANY or kind in kinds:
            return node
        raise unexpected(kind.value, first.start, " or ".join(each.value for each in (*kinds, ValueKind.ANY)))

    # -- conditions ---------------------------------------------------------------------------------------------------

    def selector(self) -> Node:
        first = self._next()
        node = self._checked(self._disjunction(), first, ValueKind.CONDITION)
        if self._next().kind != END:
            raise self._unexpected("an operator, AND, OR or the end")
        return node

    def _disjunction(self) -> Node:
        first = self._next()
        node = self._conjunction()
        if not self._take(WORD, "OR"):
            return node
        operands = [self._checked(node, first, ValueKind.CONDITION)]
        while True:
            first = self._next()
            operands.append(self._checked(self._conjunction(), first, ValueKind.CONDITION))
            if not self._take(WORD, "OR"):
                return Or(tuple(operands))

    def _conjunction(self) -> Node:
        first = self._next()
        node = self._negation()
        if not self._take(WORD, "AND"):
            return node
        operands = [self._checked(node, first, ValueKind.CONDITION)]
        while True:
            first = self._next()
            operands.append(self._checked(self._negation(), first, ValueKind.CONDITION))
            if not self._take(WORD, "AND"):
                return And(tuple(operands))

    def _negation(self) -> Node:
        count = 0
        while self._take(WORD, "NOT"):
            count += 1
            self._enter()
        first = self._next()
        node = self._predicate()
        if count:
            node = self._checked(node, first, ValueKind.CONDITION)
            for _ in range(count):
                node = Not(node)
            self._depth -= count
        return node

    def _predicate(self) -> Node:
        first = self._next()
        left = self._sum()
        if operator := self._take(SIGN, *_EQUALITIES):
            return Comparison(operator, left, self._sum())
        if operator := self._take(SIGN, *_ORDERS):
            return Comparison(operator, self._checked(left, first, ValueKind.NUMBER), self._number())
        if self._take(WORD, "IS"):
            negated = bool(self._take(WORD, "NOT"))
            self._need(WORD, "NULL", "NULL" if negated else "NULL or NOT NULL")
            return IsNull(left, negated)
        negated = bool(self._take(WORD, "NOT"))
        if self._take(WORD, "BETWEEN"):
            value = self._checked(left, first, ValueKind.NUMBER)
            low = self._number()
            self._need(WORD, "AND", "AND and the upper bound")
            return Between(value, low, self._number(), negated)
        if self._take(WORD, "IN"):
            return In(self._checked(left, first, ValueKind.STRING, ValueKind.NUMBER), self._choices(), negated)
        if self._take(WORD, "LIKE"):
            return Like(self._checked(left, first, ValueKind.STRING), self._pattern(), negated)
        if negated:
            raise self._unexpected("BETWEEN, IN or LIKE")
        return left

    def _choices(self) -> tuple[str | int | float, ...]:
        self._need(SIGN, "(", "( and a list of literals")
        choices: list[str | int | float] = []
        while True:
            sign = self._take(SIGN, "-", "+")
            token = self._next()
            if token.kind == NUMBER:
                choices.append(self._literal(negative=sign == "-"))
            elif token.kind == STRING and not sign:
                choices.append(token.value)
                self._at += 1
            else:
                raise self._unexpected("a number" if sign else "a string or a number")
            if self._take(SIGN, ")"):
                return tuple(choices)
            self._need(SIGN, ",", "a comma or )")

    def _pattern(self) -> tuple[str | None, ...]:
        token = self._string("a pattern in single quotes")
        pattern = str(token.value)
        if len(pattern) > like.PATTERN_MAX:
            raise unexpected(
                f"a pattern of {len(pattern):,} characters", token.start, f"at most {like.PATTERN_MAX:,} of them"
            )
        escape = ""
        if self._take(WORD, "ESCAPE"):
            after = self._string("one character in single quotes")
            escape = str(after.value)
            if len(escape) != 1:
                raise unexpected(_shown(after), after.start, "one character in single quotes")
        items: list[str | None] = []
        characters = iter(pattern)
        for character in characters:
            if character == escape:
                character = next(characters, "")
                if character not in ("%", "_", escape):
                    raise unexpected(
                        f"{escape!r} before {character!r}" if character else f"{escape!r} at the end of the pattern",
                        token.start,
                        f"%, _ or {escape} behind the escape character",
                    )
                items.append(character)
            else:
                items.append({"%": like.ANY, "_": like.ONE}.get(character, character))
        for _ in range(AUTOMATON_TERMS if like.ONE in items else 0):
            self._count(token)
        return tuple(items)

    def _string(self, expected: str) -> SelectorToken:
        token = self._next()
        if token.kind != STRING:
            raise self._unexpected(expected)
        self._at += 1
        return token

    # -- values -------------------------------------------------------------------------------------------------------

    def _number(self) -> Node:
        first = self._next()
        return self._checked(self._sum(), first, ValueKind.NUMBER)

    def _sum(self) -> Node:
        return self._chain(self._product, ("+", "-"))

    def _product(self) -> Node:
        return self._chain(self._operand, ("*", "/", "%"))

    def _chain(self, operand: Callable[[], Node], operators: tuple[str, ...]) -> Node:
        first = self._next()
        node = operand()
        operator = self._take(SIGN, *operators)
        if not operator:
            return node
        node = self._checked(node, first, ValueKind.NUMBER)
        rest: list[tuple[str, Node]] = []
        while operator:
            first = self._next()
            rest.append((operator, self._checked(operand(), first, ValueKind.NUMBER)))
            operator = self._take(SIGN, *operators)
        return Arithmetic(node, tuple(rest))

    def _operand(self) -> Node:
        signs: list[str] = []
        while sign := self._take(SIGN, "+", "-"):
            signs.append(sign)
            self._enter()
        levels = len(signs)
        first = self._next()
        if signs and first.kind == NUMBER:
            node: Node = Literal(self._literal(negative=signs.pop() == "-"))
            self._count(first)
        else:
            node = self._primary()
        if signs:
            self._checked(node, first, ValueKind.NUMBER)
        for sign in reversed(signs):
            node = Signed(sign, node)
        self._depth -= levels
        return node

    def _primary(self) -> Node:
        token = self._next()
        if token.kind == SIGN and token.value == "(":
            self._at += 1
            self._enter()
            node = self._disjunction()
            self._depth -= 1
            self._need(SIGN, ")", "an operator, AND, OR or )")
            return node
        self._count(token)
        if token.kind == NUMBER:
            return Literal(self._literal(negative=False))
        if token.kind == NAME:
            node = Name(str(token.value))
        elif token.kind == STRING:
            node = Literal(token.value)
        elif token.kind == WORD and token.value in ("TRUE", "FALSE"):
            node = Literal(token.value == "TRUE")
        elif token.kind == WORD and token.value == "NULL":
            raise self._unexpected("a name or a literal (IS NULL tells whether there is a value)")
        else:
            raise self._unexpected("a name, a literal or (")
        self._at += 1
        return node

    def _count(self, token: SelectorToken) -> None:
        self._terms += 1
        if self._terms > TERMS_MAX:
            raise unexpected("one more name or literal", token.start, f"at most {TERMS_MAX} of them")

    def _literal(self, *, negative: bool) -> int | float:
        """The number that stands here. One more than the largest long is there behind a minus only."""
        token = self._next()
        number = token.value
        assert not isinstance(number, str)
        if number == LONG_MAX + 1 and isinstance(number, int) and not negative:
            raise unexpected(f"{token.text:.40}", token.start, "an integer of at most 64 bits")
        self._at += 1
        return -number if negative else number
