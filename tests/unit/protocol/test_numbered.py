"""Where each message of a sender with a mark says its place, and how the broker takes it off."""

from __future__ import annotations

import struct

import pytest

from acquit.errors import DecodeError
from acquit.protocol.extensions import PLACE
from acquit.protocol.message import Message
from acquit.protocol.numbered import place_section, take_place

BARE = Message("x").encode()
HEADER = Message("x", durable=True).encode().removesuffix(BARE)


@pytest.mark.parametrize("place", [(0, 0, 0), (1, 2, 3), (2**64 - 1, 2**64 - 1, 2**32 - 1)])
@pytest.mark.parametrize("header", [b"", HEADER], ids=["no header", "a header"])
def test_what_a_sender_of_ours_says_is_taken_off(place: tuple[int, int, int], header: bytes) -> None:
    assert take_place(header + place_section(place) + BARE) == (place, header + BARE)


def test_the_place_is_read_in_any_encoding() -> None:
    annotated = Message("x", delivery_annotations={"a": 1, PLACE: struct.pack(">QQI", 1, 2, 3)}, durable=True)
    assert take_place(annotated.encode()) == ((1, 2, 3), HEADER + BARE)


@pytest.mark.parametrize(
    "payload",
    [b"", BARE, HEADER + BARE, Message("x", delivery_annotations={PLACE: b"short"}).encode()],
    ids=["nothing", "no header", "a header", "another length"],
)
def test_a_message_without_a_place_is_refused(payload: bytes) -> None:
    with pytest.raises(DecodeError, match=f"annotation {PLACE}, a binary of 20 bytes"):
        take_place(payload)


def test_a_place_that_is_cut_short_is_refused() -> None:
    whole = HEADER + place_section((1, 2, 3))
    for length in range(len(HEADER) + 1, len(whole)):
        with pytest.raises(DecodeError):
            take_place(whole[:length])
