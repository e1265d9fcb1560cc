"""What is in a message, as people are shown it."""

from __future__ import annotations

import pytest

from acquit.http.content import SHOWN_BYTES_MAX, content_of
from acquit.protocol.jsonform import Json
from acquit.protocol.message import AmqpSequence, AmqpValue, Body, Message


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
