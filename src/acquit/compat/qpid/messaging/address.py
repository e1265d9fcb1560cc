r"""Address strings: ``name[/subject][; {options}]``, read and written.

Theory of operation. A text is cut into tokens, and a recursive descent reads these::

    address = name [ "/" subject ] [ ";" map ]
    name    = ( part | STRING | ESC )+              parts: all tokens but "/" and ";"
    subject = ( part | STRING | ESC | "/" )*
    map     = "{" [ key ":" value ( "," key ":" value )* [ "," ] ] "}"
    list    = "[" [ value ( "," value )* [ "," ] ] "]"
    key     = ID | NUMBER | STRING
    value   = ID | NUMBER | STRING | map | list

White space between tokens means nothing, also in a name: ``my queue`` is ``myqueue``. What would end a name stands
behind a backslash or between quotes: ``a\/b``, ``'a;b'``. Behind a backslash, ``\xHH`` and ``\uHHHH`` are characters by
their number. Of the words, ``True``, ``true``, ``False``, ``false`` and ``None`` are values, all others are strings.

Nothing is evaluated, nesting is bounded, and any text is read in a time that grows with its length.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias

Value: TypeAlias = "str | int | float | bool | dict[object, Value] | list[Value] | None"
Options: TypeAlias = "dict[object, Value]"

DEPTH_MAX: Final = 32
"""Greatest depth of maps and lists in each other."""
DIGITS_MAX: Final = 400
"""Digits that a number may have: nobody means more, and to convert many is slow."""


class LexError(Exception):
    """A character that begins no token."""


class ParseError(Exception):
    """A token that may not stand there."""


@dataclass(frozen=True, slots=True)
class Token:
    """A piece of the text: its kind, its characters, and where it is."""

    kind: str
    text: str
    position: int


_TOKENS: Final = re.compile(
    r"""
      (?P<LBRACE>\{) | (?P<RBRACE>\}) | (?P<LBRACK>\[) | (?P<RBRACK>\])
    | (?P<COLON>:) | (?P<SEMI>;) | (?P<SLASH>/) | (?P<COMMA>,)
    | (?P<NUMBER>[+-]?[0-9]*\.?[0-9]+)
    | (?P<ID>[a-zA-Z_](?:[a-zA-Z0-9_-]*[a-zA-Z0-9_])?)
    | (?P<STRING>"(?:[^\\"]|\\.)*"|'(?:[^\\']|\\.)*')
    | (?P<ESC>\\x[0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}|\\[^ux])
    | (?P<SYM>[.\#*%@$^!+-])
    | (?P<WSPACE>[ \n\r\t]+)
    """,
    re.VERBOSE,
)
_SHOWN: Final = {
    "LBRACE": "'{'",
    "RBRACE": "'}'",
    "LBRACK": "'['",
    "RBRACK": "']'",
    "COLON": "':'",
    "SEMI": "';'",
    "SLASH": "'/'",
    "COMMA": "','",
    "NUMBER": "a number",
    "ID": "a word",
    "STRING": "a string",
    "END": "the end",
}
_WORDS: Final[dict[str, bool | None]] = {"True": True, "true": True, "False": False, "false": False, "None": None}
_KEYS: Final = ("ID", "NUMBER", "STRING")
_VALUES: Final = (*_KEYS, "LBRACE", "LBRACK")
_ESCAPE: Final = re.compile(r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|(.))", re.DOTALL)
_CONTROLS: Final = {"n": "\n", "r": "\r", "t": "\t", "a": "\a", "b": "\b", "f": "\f", "v": "\v", "\n": ""}
_UNQUOTED: Final = re.compile(r"[^A-Za-z0-9_.#*%@$^!+:,{}\[\]-]")


def _where(text: str, position: int) -> str:
    line = text.count("\n", 0, position) + 1
    column = position - text.rfind("\n", 0, position)
    return f"line {line}, column {column}"


def lex(text: str) -> Iterator[Token]:
    """The tokens of a text, white space included, ending with END. Raises LexError."""
    position = 0
    while position < len(text):
        match = _TOKENS.match(text, position)
        if match is None:
            raise LexError(f"{_where(text, position)}: nothing can begin with {text[position]!r}")
        assert match.lastgroup is not None
        yield Token(match.lastgroup, match.group(), position)
        position = match.end()
    yield Token("END", "", position)


class _Parser:
    """A parser, for one reading of one text."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = [token for token in lex(text) if token.kind != "WSPACE"]
        self._next = 0

    def address(self) -> tuple[str, str | None, Options | None]:
        name = self._words("SLASH", "SEMI")
        if name is None:
            raise self._unexpected("a name")
        subject = self._words("SEMI") if self._took("SLASH") else None
        options = self._map(1) if self._took("SEMI") else None
        self._take("END")
        return name, subject, options

    @property
    def _kind(self) -> str:
        return self._tokens[self._next].kind

    def _take(self, *kinds: str) -> Token:
        if self._kind not in kinds:
            raise self._unexpected(" or ".join(_SHOWN[kind] for kind in kinds))
        token = self._tokens[self._next]
        self._next += 1
        return token

    def _took(self, kind: str) -> bool:
        if self._kind != kind:
            return False
        self._next += 1
        return True

    def _unexpected(self, wanted: str) -> ParseError:
        token = self._tokens[self._next]
        found = _SHOWN["END"] if token.kind == "END" else f"{token.text!r:.60}"
        return ParseError(f"{_where(self._text, token.position)}: expected {wanted}, found {found}")

    def _words(self, *ends: str) -> str | None:
        """All tokens up to one of `ends`, as the text they mean; None where there are none."""
        first = self._next
        while self._kind not in (*ends, "END"):
            self._next += 1
        return "".join(_meant(token) for token in self._tokens[first : self._next]) or None

    def _map(self, depth: int) -> Options:
        self._take("LBRACE")
        found: Options = {}
        while not self._took("RBRACE"):
            if self._kind not in _KEYS:
                raise self._unexpected("a key or '}'")
            key = self._scalar()
            self._take("COLON")
            found[key] = self._value(depth)
            if self._take("COMMA", "RBRACE").kind == "RBRACE":
                break
        return found

    def _list(self, depth: int) -> list[Value]:
        self._take("LBRACK")
        found: list[Value] = []
        while not self._took("RBRACK"):
            found.append(self._value(depth))
            if self._take("COMMA", "RBRACK").kind == "RBRACK":
                break
        return found

    def _value(self, depth: int) -> Value:
        inside: dict[str, Callable[[int], Value]] = {"LBRACE": self._map, "LBRACK": self._list}
        if self._kind not in inside:
            return self._scalar()
        if depth >= DEPTH_MAX:
            raise self._unexpected(f"at most {DEPTH_MAX} maps and lists in each other")
        return inside[self._kind](depth + 1)

    def _scalar(self) -> str | int | float | bool | None:
        if self._kind not in _KEYS:
            raise self._unexpected("a value")
        token = self._tokens[self._next]
        if token.kind == "NUMBER" and len(token.text) > DIGITS_MAX:
            raise self._unexpected(f"a number of at most {DIGITS_MAX} digits")
        self._next += 1
        if token.kind == "NUMBER":
            return float(token.text) if "." in token.text else int(token.text)
        if token.kind == "ID":
            return _WORDS.get(token.text, token.text)
        return _meant(token)


def _meant(token: Token) -> str:
    """The text that a token stands for."""
    if token.kind == "STRING":
        return _ESCAPE.sub(_in_string, token.text[1:-1])
    if token.kind == "ESC":
        return _ESCAPE.sub(lambda match: _by_number(match) or match[3], token.text)
    return token.text


def _by_number(match: re.Match[str]) -> str | None:
    number = match[1] or match[2]
    return chr(int(number, 16)) if number else None


def _in_string(match: re.Match[str]) -> str:
    # A backslash that begins nothing stands for itself, as in Python.
    named = match[3] if match[3] and match[3] in "\\'\"" else _CONTROLS.get(match[3], match[0])
    return _by_number(match) or named


def parse(address: str) -> tuple[str, str | None, Options | None]:
    """Name, subject and options of an address; None for what is not there. Raises LexError and ParseError, with one
    line that says where, what was expected and what is there."""
    return _Parser(address).address()


def quote(name: str) -> str:
    """An address that means the node of exactly this name (which must not be empty)."""
    quoted = _UNQUOTED.sub(r"\\\g<0>", name)
    return f"\\{quoted}" if quoted.startswith("#") else quoted


__all__ = ["LexError", "ParseError", "lex", "parse", "quote"]
