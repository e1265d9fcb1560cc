"""Address strings of qpid.messaging: what is written is read.

Addresses are written here by a second, simpler writer, with random white space and any of the ways to quote; the parser
must give back what was written.
"""

from __future__ import annotations

import contextlib
import string
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from acquit.compat.qpid.messaging.address import LexError, Token, lex, parse, quote

words = st.from_regex(r"[a-zA-Z_]([a-zA-Z0-9_-]*[a-zA-Z0-9_])?", fullmatch=True).filter(
    lambda word: word.lower() not in ("true", "false", "none")
)
texts = st.one_of(words, st.text(max_size=8))
numbers = st.one_of(st.integers(-(10**20), 10**20), st.floats(-1e6, 1e6).map(lambda x: round(x, 3) + 0.0))
scalars = st.one_of(texts, numbers, st.booleans(), st.none())
values = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(texts, inner, max_size=4)),
    max_leaves=12,
)
options = st.dictionaries(texts, values, max_size=5)
space = st.text(" \n\t\r", max_size=2)


def written_string(draw: Any, text: str) -> str:
    mark = draw(st.sampled_from("\"'"))
    signs = []
    for sign in text:
        if sign in ("\\", mark):
            signs.append("\\" + sign)
        elif ord(sign) < 0x100 and draw(st.booleans()):
            signs.append(f"\\x{ord(sign):02x}")
        elif ord(sign) < 0x10000 and draw(st.booleans()):
            signs.append(f"\\u{ord(sign):04X}")
        else:
            signs.append(sign)
    return mark + "".join(signs) + mark


def written(draw: Any, value: object) -> str:
    def spaced(text: str) -> str:
        return f"{draw(space)}{text}{draw(space)}"

    if isinstance(value, dict):
        pairs = [f"{spaced(written(draw, key))}:{written(draw, item)}" for key, item in value.items()]
        return spaced("{" + ",".join(pairs) + draw(st.sampled_from(["", ","]) if pairs else space) + "}")
    if isinstance(value, list):
        items = [written(draw, item) for item in value]
        return spaced("[" + ",".join(items) + draw(st.sampled_from(["", ","]) if items else space) + "]")
    if isinstance(value, bool):
        return spaced(draw(st.sampled_from([str(value), str(value).lower()])))
    if isinstance(value, str):
        plain = value.isascii() and value.isidentifier() and value not in ("True", "true", "False", "false", "None")
        return spaced(value if plain and draw(st.booleans()) else written_string(draw, value))
    return spaced(f"{value:.3f}" if isinstance(value, float) else str(value))


@given(st.data(), st.text(min_size=1, max_size=12), st.one_of(st.none(), st.text(min_size=1, max_size=8)), options)
def test_what_is_written_is_read(data: st.DataObject, name: str, subject: str | None, given_options: dict) -> None:  # type: ignore[type-arg]
    def token(text: str) -> str:
        return written_string(data.draw, text) if data.draw(st.booleans()) else quote(text)

    address = token(name) + ("" if subject is None else "/" + token(subject)) + ";" + written(data.draw, given_options)
    assert parse(address) == (name, subject, given_options)


@given(st.text(min_size=1))
def test_a_quoted_name_is_that_name_and_no_dynamic_node(name: str) -> None:
    quoted = quote(name)
    assert parse(quoted) == (name, None, None)
    assert not quoted.startswith("#")


@given(st.text(string.ascii_letters + string.digits + ".#*%@$^!+-_:,{}[]", min_size=1))
def test_plain_names_need_no_quotes(name: str) -> None:
    assert parse(name) == (name, None, None)
    assert quote(name).removeprefix("\\") == name


@given(st.text(string.printable))
def test_tokens_leave_nothing_out(text: str) -> None:
    tokens: list[Token] = []
    with contextlib.suppress(LexError):
        tokens.extend(lex(text))  # as far as they go
    assert "".join(token.text for token in tokens) == text[: sum(len(token.text) for token in tokens)]
    assert all(text.startswith(token.text, token.position) for token in tokens)
