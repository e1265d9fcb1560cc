"""Address strings: what they mean, and what is wrong with those that mean nothing."""

from __future__ import annotations

import pytest

from acquit.compat.qpid.messaging.address import DEPTH_MAX, LexError, ParseError, lex, parse, quote


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ("foo-bar", "ID"),
        ("foo-3", "ID"),
        ("foo - bar", "ID WSPACE SYM WSPACE ID"),
        ("foo - 3", "ID WSPACE SYM WSPACE NUMBER"),
        ("-foo", "SYM ID"),
        ("foo-", "ID SYM"),
        ("-3", "NUMBER"),
        ("id1", "ID"),
        ("a/b;{c:'d'}", "ID SLASH ID SEMI LBRACE ID COLON STRING RBRACE"),
        (r"\/\x41é"[:-1], "ESC ESC"),
    ],
)
def test_tokens(text: str, kinds: str) -> None:
    assert [token.kind for token in lex(text)] == [*kinds.split(), "END"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("queue", ("queue", None, None)),
        ("a.b-c_1", ("a.b-c_1", None, None)),
        ("news/sport.#", ("news", "sport.#", None)),
        ("news/sport.*/x", ("news", "sport.*/x", None)),
        ("amq:x{y,z/a:b,c", ("amq:x{y,z", "a:b,c", None)),
        (" my queue ", ("myqueue", None, None)),
        ("q; {}", ("q", None, {})),
        ("q/s; {key: value}", ("q", "s", {"key": "value"})),
        ("q; {key: value,}", ("q", None, {"key": "value"})),
        ("q; {key: None}", ("q", None, {"key": None})),
        ("q; {a: True, b: true, c: False, d: false}", ("q", None, {"a": True, "b": True, "c": False, "d": False})),
        ("q; {'a.b': 1, 2: x}", ("q", None, {"a.b": 1, 2: "x"})),
        ("q; {a: -1, b: +2, c: .5, d: 10.25, e: 007}", ("q", None, {"a": -1, "b": 2, "c": 0.5, "d": 10.25, "e": 7})),
        ("q; {a: [], b: [1, [2, 'x'], {c: d}]}", ("q", None, {"a": [], "b": [1, [2, "x"], {"c": "d"}]})),
        ("q/'a;b'; {k: v}", ("q", "a;b", {"k": "v"})),
        ('"a/b"', ("a/b", None, None)),
        (r"a\/b", ("a/b", None, None)),
        (r"a\;b\\c\'d", ("a;b\\c'd", None, None)),
        (r"a\x00b\xfF\u1234\uFFFF", ("a\x00b\xff\u1234\uffff", None, None)),
        (r"q; {a: 'it\'s', b: 'x\ny\q\x41\u0042'}", ("q", None, {"a": "it's", "b": "x\ny\\qAB"})),
        ("q/", ("q", None, None)),
    ],
)
def test_addresses(text: str, expected: object) -> None:
    assert parse(text) == expected


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "line 1, column 1: expected a name, found the end"),
        ("; {key: value}", "line 1, column 1: expected a name, found ';'"),
        ("/subject", "line 1, column 1: expected a name, found '/'"),
        ("''", "line 1, column 3: expected a name, found the end"),
        ("q; ", "line 1, column 4: expected '{', found the end"),
        ("q; {", "line 1, column 5: expected a key or '}', found the end"),
        ("q; { 3", "line 1, column 7: expected ':', found the end"),
        ("q; { key:", "line 1, column 10: expected a value, found the end"),
        ("q; { key: value", "line 1, column 16: expected ',' or '}', found the end"),
        ("q; { key: value asdf", "line 1, column 17: expected ',' or '}', found 'asdf'"),
        ("q; { key: value,", "line 1, column 17: expected a key or '}', found the end"),
        ("q; { key: value } asdf", "line 1, column 19: expected the end, found 'asdf'"),
        ("q; {\n key: [ }", "line 2, column 9: expected a value, found '}'"),
        ("q; {key: [ 1 }", "line 1, column 14: expected ',' or ']', found '}'"),
        ("q; {key: [ 1 2 ]}", "line 1, column 14: expected ',' or ']', found '2'"),
        ("q; {{}: 1}", "line 1, column 5: expected a key or '}', found '{'"),
        ("q; {a: " + "9" * 500 + "}", "line 1, column 8: expected a number of at most 400 digits"),
        ("q; {a: " + "[" * 40, f"expected at most {DEPTH_MAX} maps and lists in each other"),
    ],
)
def test_what_is_wrong_is_said(text: str, complaint: str) -> None:
    with pytest.raises(ParseError) as caught:
        parse(text)
    assert complaint in str(caught.value)


@pytest.mark.parametrize("text", ["a\x00b", "'a", "a\\", r"\x1", r"\u12", "é", '"a\\'])
def test_what_begins_nothing_is_said(text: str) -> None:
    with pytest.raises(LexError, match=r"line 1, column \d+: nothing can begin with"):
        parse(text)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("orders", "orders"),
        ("a/b;c", r"a\/b\;c"),
        ("#x", r"\#x"),
        ("x#", "x#"),
        ("ä b", r"\ä\ b"),
        ("$management", "$management"),
    ],
)
def test_a_quoted_name_is_that_name(name: str, text: str) -> None:
    assert quote(name) == text
    assert parse(text) == (name, None, None)
