"""A selector's text as tokens (JMS 2.0, 3.8.1.1).

Literals are Java's: integers in decimal, hexadecimal, octal and binary with an optional L, floating-point numbers with
exponent and an optional f or d, also hexadecimal ones. Identifiers are Java's, with dots inside, and anything at all
between double quotes. In a name that begins with ``m.`` (a message annotation) hyphens belong to the name, as such
annotations are called ``x-opt-...``.

One pass, each character looked at a bounded number of times; a text longer than `TEXT_MAX` is not looked at.
"""

from __future__ import annotations

import math
import re
from typing import Final, NamedTuple
from unicodedata import category

from acquit.errors import SelectorError

TEXT_MAX: Final = 65_536
"""Characters that a selector may have."""

LONG_MAX: Final = (1 << 63) - 1
LONG_MIN: Final = -(1 << 63)

NAME, STRING, NUMBER, WORD, SIGN, END = "name", "string", "number", "word", "sign", "end"
"""Kinds of tokens: `WORD` is a reserved word in capitals, `SIGN` an operator or punctuation."""

RESERVED: Final = frozenset("AND BETWEEN ESCAPE FALSE IN IS LIKE NOT NULL OR TRUE".split())


class SelectorToken(NamedTuple):
    """A word of the selector. `value` is what it means, `start` where it begins."""

    kind: str
    value: str | int | float
    start: int
    text: str


_DIGITS: Final = r"[0-9](?:[0-9_]*[0-9])?"
_HEX: Final = r"[0-9a-fA-F](?:[0-9a-fA-F_]*[0-9a-fA-F])?"
_EXPONENT: Final = rf"[eE][+-]?{_DIGITS}"
_LEXEMES: Final = re.compile(
    rf"""
      (?P<space>   [ \t\r\n\f]+ )
    | (?P<string>  '(?:[^']|'')*+' )
    | (?P<quoted>  "(?:[^"]|"")*+" )
    | (?P<hexfloat> 0[xX](?:{_HEX}\.?(?:{_HEX})?|\.{_HEX})[pP][+-]?{_DIGITS}[fFdD]? )
    | (?P<hex>     0[xX]{_HEX}[lL]? )
    | (?P<binary>  0[bB][01](?:[01_]*[01])?[lL]? )
    | (?P<float>   (?:{_DIGITS}\.(?:{_DIGITS})?|\.{_DIGITS})(?:{_EXPONENT})?[fFdD]?
                 | {_DIGITS}(?:{_EXPONENT}[fFdD]?|[fFdD]) )
    | (?P<integer> {_DIGITS}[lL]? )
    | (?P<sign>    <> | <= | >= | [-=<>+*/%(),] )
    """,
    re.VERBOSE,
).match

_START_KINDS: Final = frozenset(("Lu", "Ll", "Lt", "Lm", "Lo", "Nl", "Sc", "Pc"))
_PART_KINDS: Final = _START_KINDS | {"Mn", "Mc", "Nd"}


def tokens_of(text: str) -> list[SelectorToken]:
    """All tokens, the last of kind END. Raises SelectorError."""
    length = len(text)
    if length > TEXT_MAX:
        raise SelectorError(f"selector: {length:,} characters, at most {TEXT_MAX:,} are taken")
    found: list[SelectorToken] = []
    at = 0
    while at < length:
        match = _LEXEMES(text, at)
        if match is None:
            token = _name(text, at)
            at += len(token.text)
        else:
            lexeme, kind = match[0], match.lastgroup
            start, at = at, match.end()
            if kind == "space":
                continue
            assert kind is not None
            if kind == "sign":
                token = SelectorToken(SIGN, lexeme, start, lexeme)
            elif kind == "string":
                token = SelectorToken(STRING, lexeme[1:-1].replace("''", "'"), start, lexeme)
            elif kind == "quoted":
                token = SelectorToken(NAME, lexeme[1:-1].replace('""', '"'), start, lexeme)
                if not token.value:
                    raise unexpected('""', start, "a name between the quotes")
            else:
                if at < length and _is_part(text[at]):
                    raise unexpected(f"{text[start : at + 1]!r:.40}", start, "a number or a name")
                token = SelectorToken(NUMBER, _number(kind, lexeme, start), start, lexeme)
        found.append(token)
    found.append(SelectorToken(END, "", length, ""))
    return found


def unexpected(found: str, position: int, expected: str) -> SelectorError:
    """The error of a selector that stops to make sense at an index."""
    return SelectorError(f"selector, character {position + 1}: found {found}, expected {expected}", position=position)


# -- names ------------------------------------------------------------------------------------------------------------


def _is_start(character: str) -> bool:
    return (character.isascii() and character.isalpha()) or category(character) in _START_KINDS


def _is_part(character: str) -> bool:
    return (character.isascii() and character.isalnum()) or category(character) in _PART_KINDS


def _name(text: str, start: int) -> SelectorToken:
    if not _is_start(text[start]):
        quote = text[start]
        if quote in "'\"":
            raise unexpected(f"{text[start : start + 20]!r}", start, f"a closing {quote} for this one")
        raise unexpected(repr(quote), start, "a name, a literal or an operator")
    length = len(text)
    end = start + 1
    annotation = text.startswith("m.", start)
    while end < length:
        character = text[end]
        if not (_is_part(character) or character == "."):
            follows = text[end + 1 : end + 2]
            if not (annotation and character == "-" and follows and _is_part(follows)):
                break
        end += 1
    name = text[start:end]
    word = name.upper()
    return SelectorToken(WORD, word, start, name) if word in RESERVED else SelectorToken(NAME, name, start, name)


# -- numbers ----------------------------------------------------------------------------------------------------------


def _number(kind: str, lexeme: str, start: int) -> int | float:
    digits = lexeme.replace("_", "")
    if kind in ("float", "hexfloat"):
        digits = digits.rstrip("fFdD")  # every approximate number is a double here
        try:
            number = float.fromhex(digits) if kind == "hexfloat" else float(digits)
        except OverflowError:
            number = math.inf
        if math.isinf(number):
            raise unexpected(f"{lexeme:.40}", start, "a number within the range of a double")
        return number
    digits = digits.rstrip("lL")
    base = {"hex": 16, "binary": 2}.get(kind, 10)
    if base != 10:
        digits = digits[2:]
    elif digits[0] == "0" and len(digits) > 1:
        base = 8
        if not set(digits) <= set("01234567"):
            raise unexpected(f"{lexeme:.40}", start, "the digits 0 to 7, as a number that begins with 0 is octal")
    digits = digits.lstrip("0") or "0"
    # One more than the largest long may stand behind a minus; the parser sees to that.
    integer = int(digits, base) if len(digits) <= 64 else LONG_MAX + 2
    if integer > LONG_MAX + 1:
        raise unexpected(f"{lexeme:.40}", start, "an integer of at most 64 bits")
    return integer
