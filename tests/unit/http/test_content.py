"""What is in a message, as people are shown it."""

from __future__ import annotations

import json
from struct import pack
from typing import Any

import pytest

from acquit.http.content import NESTED_MAX, READ_BYTES_MAX, SHOWN_BYTES_MAX, content_of
from acquit.protocol.jsonform import Json
from acquit.protocol.message import AmqpSequence, AmqpValue, Body, Message
from acquit.protocol.types import Array, Described


def test_each_section_is_told_by_its_name_and_empty_ones_are_not() -> None:
    message = Message(
        "one",
        durable=True,
        message_id="m",
        application_properties={"colour": "red"},
        annotations={"x-opt-here": 1},
        footer={"x-opt-sum": 2},
    )
    found = content_of(message.encode())
    assert list(found) == [
        "header",
        "annotations",
        "properties",
        "application_properties",
        "body",
        "body_type",
        "footer",
    ]
    assert found["properties"] == {"message_id": "m"}
    assert found["application_properties"] == {"colour": "red"}
    assert (found["annotations"], found["footer"]) == ({"x-opt-here": 1}, {"x-opt-sum": 2})


@pytest.mark.parametrize(
    ("body", "shown", "kind"),
    [
        ("text", "text", "value: string"),
        (b"plain", "plain", "data"),
        (b'{"a": [1]}', {"a": [1]}, "data"),
        (b"{not json", "{not json", "data"),
        (b"\xff\x00A", "00000000  ff 00 41                                         ..A", "data"),
        (AmqpValue(b"octets"), "octets", "value: binary"),
        ({"order": 7}, {"order": 7}, "value"),
        (AmqpSequence([[1, 2]]), [[1, 2]], "sequence"),
        (None, None, "value"),
    ],
)
def test_a_body_is_shown_as_what_it_is(body: Body, shown: Json, kind: str) -> None:
    found = content_of(Message(body).encode())
    assert (found.get("body"), found["body_type"]) == (shown, kind)


def test_what_is_shown_is_bounded() -> None:
    text = content_of(Message("x" * (SHOWN_BYTES_MAX + 5)).encode())["body"]
    assert isinstance(text, str) and text.endswith("\n... and 5 characters more")
    json = content_of(Message(b"[" + b" " * SHOWN_BYTES_MAX + b"]").encode())["body"]
    assert isinstance(json, str) and json.endswith("more")
    octets = content_of(Message(b"\xff" * (SHOWN_BYTES_MAX // 16 + 3)).encode())["body"]
    assert isinstance(octets, str) and octets.endswith("\n... and 3 octets more")


def test_malformed_sections_are_told_in_their_place() -> None:
    assert "malformed" in content_of(b"\x00\x53\x99nonsense")
    broken = Message("x", message_id="m").encode().replace(b"\xa1\x01m", b"\xa1\x01\xff")
    found = content_of(broken)
    assert str(found["properties"]).startswith("malformed: ")
    assert found["body"] == "x"


@pytest.mark.parametrize(
    "text", ['{"a": NaN}', "[Infinity]", "[-Infinity, 1]", "[1e999]", r'{"a": "\ud800"}', r'{"\udfff": 1}', "[" * 9_000]
)
def test_what_only_looks_like_json_is_text(text: str) -> None:
    """Python reads it, but what it makes of it cannot be written as JSON."""
    for body in (text.encode(), text):
        assert content_of(Message(body).encode())["body"] == text


@pytest.mark.parametrize(
    "text",
    [
        '{"id": 9007199254740993}',
        "[-18446744073709551615]",
        "[0.1234567890123456789012]",
        "[1e-400]",
        "[1e-99999999999999999999]",
        '{"a": 1, "a": 2}',
        '[{"b": {"a": 1, "c": 2, "a": 3}}]',
    ],
)
def test_json_that_would_be_told_as_another_is_text(text: str) -> None:
    """A number is rounded by a reader, or one of two values is left out: an operator would copy a wrong id."""
    assert content_of(Message(text.encode()).encode())["body"] == text


def test_json_that_is_told_as_it_is_written_is_json() -> None:
    body = b'[9007199254740991, -9007199254740991, 0.1, 1.0, -0.0, 2.5e3, 1e300, {"a": {"a": 1}, "b": {"a": 2}}]'
    assert content_of(Message(body).encode())["body"] == json.loads(body)


@pytest.mark.parametrize(("head", "tail"), [("[", "]"), ('{"a":', "}")])
@pytest.mark.parametrize("depth", [NESTED_MAX, NESTED_MAX + 1, 900])
def test_what_is_nested_too_deeply_to_be_shown_as_json_is_text(head: str, tail: str, depth: int) -> None:
    text = head * depth + "1" + tail * depth
    shown = content_of(Message(text.encode()).encode())["body"]
    assert isinstance(shown, str) == (depth > NESTED_MAX)
    assert shown == text or depth == NESTED_MAX


def test_of_a_large_json_the_beginning_is_shown_as_text() -> None:
    text = "[" + "0," * SHOWN_BYTES_MAX + "0]"
    shown = content_of(Message(text.encode()).encode())["body"]
    assert isinstance(shown, str)
    assert shown.startswith("[0,0,")
    assert len(shown) < SHOWN_BYTES_MAX + 100


@pytest.mark.parametrize(
    "body",
    [
        [None] * SHOWN_BYTES_MAX,
        {"a": ["x" * 1_000] * 100},
        {f"{key:09}": 1 for key in range(9_000)},
        AmqpValue(Array(int, (7,) * SHOWN_BYTES_MAX)),
        AmqpValue(Described("d", "x" * SHOWN_BYTES_MAX)),
        AmqpSequence([[1] * SHOWN_BYTES_MAX]),
    ],
)
def test_a_value_that_is_too_large_is_not_shown(body: Any) -> None:
    shown = content_of(Message(body, application_properties={"few": 1}).encode())
    assert "too much to be shown" in str(shown["body"])
    assert shown["application_properties"] == {"few": 1}


@pytest.mark.parametrize(
    ("section", "name"),
    [(0x72, "annotations"), (0x74, "application_properties"), (0x76, "body"), (0x77, "body"), (0x78, "footer")],
)
def test_what_can_only_be_too_large_is_not_even_decoded(section: int, name: str) -> None:
    """Else a MiB of small values would keep all who ask waiting, those who ask for health as well: here they are
    malformed, and nobody finds out."""
    constructor = 0xD0 if name == "body" else 0xD1
    values = b"\xff" * READ_BYTES_MAX
    large = bytes((0, 0x53, section, constructor)) + pack(">II", 4 + len(values), len(values)) + values
    text = Message("x").encode()
    shown = content_of(large if name == "body" else text + large if name == "footer" else large + text)
    assert "too much to be shown" in str(shown[name])


@pytest.mark.parametrize("body", ["x" * READ_BYTES_MAX, AmqpValue(b"x" * READ_BYTES_MAX), b"x" * READ_BYTES_MAX])
def test_of_a_large_text_the_beginning_is_shown(body: Body) -> None:
    assert str(content_of(Message(body).encode())["body"]).startswith("xxx")


def test_a_section_that_is_too_large_is_not_shown() -> None:
    shown = content_of(Message("x", application_properties={"much": "y" * SHOWN_BYTES_MAX}).encode())
    assert "too much to be shown" in str(shown["application_properties"])
    assert shown["body"] == "x"
