"""Requests that are known by their bytes mean what they mean to the codec."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acquit.broker.transact import requests
from acquit.broker.transact.requests import RequestReader, decode_request
from acquit.errors import DecodeError
from acquit.protocol.definitions import Declare, Discharge
from acquit.protocol.message import Message
from tests.support.transacting import control_message

IDS = [b"0123456789abcdef", b"fedcba9876543210", b"0123456789abcde", b"", b"\xa0", b"00", b"0000", b"\x53"]
LED = Message(None, durable=True, message_id=IDS[0].decode(), group_id=IDS[1].decode()).encode()[:-4]
"""Sections that are passed over, with what looks like an id in them."""
ASKED = [
    control_message(request)
    for request in (
        Declare(),
        Declare(b"global"),
        *(Discharge(one, fail) for one in IDS for fail in (None, True, False)),
    )
]
PAYLOADS = [led + asked for led in (b"", LED) for asked in ASKED]


def answer(read: Iterable[object]) -> object:
    """What comes of one."""
    try:
        return next(iter(read))
    except DecodeError as error:
        return str(error)


def read_both(reader: RequestReader, payload: bytes) -> tuple[object, object]:
    """What the reader says of it, and what the codec says."""
    return answer(reader.read(one) for one in [payload]), answer(decode_request(one) for one in [payload])


@given(
    st.lists(
        st.tuples(st.sampled_from(PAYLOADS), st.booleans(), st.integers(0), st.integers(1, 255)),
        min_size=2,
        max_size=30,
    )
)
def test_what_was_read_before_is_read_as_by_the_codec(asked: list[tuple[bytes, bool, int, int]]) -> None:
    reader = RequestReader()
    for whole, flips, at, octet in asked:
        payload = bytearray(whole)
        if flips:
            payload[at % len(payload)] ^= octet
        said, meant = read_both(reader, bytes(payload))
        assert said == meant


@pytest.mark.parametrize("payload", PAYLOADS, ids=bytes.hex)
def test_what_comes_twice_means_the_same(payload: bytes) -> None:
    reader = RequestReader()
    assert reader.read(payload) == reader.read(payload) == decode_request(payload)


@pytest.mark.pure
def test_the_same_but_for_its_id_is_not_decoded_again(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = RequestReader()
    declare, first, second = control_message(Declare()), *(control_message(Discharge(one, False)) for one in IDS[:2])
    assert (reader.read(declare), reader.read(first)) == (Declare(), Discharge(IDS[0], False))
    monkeypatch.setattr(requests, "decode_request", None)
    for _ in range(2):
        assert reader.read(declare) == Declare()
        assert reader.read(second) == Discharge(IDS[1], False)
        assert reader.read(first) == Discharge(IDS[0], False)


def test_few_forms_are_remembered() -> None:
    reader = RequestReader()
    for size in range(200):
        reader.read(control_message(Discharge(bytes(range(size)), False)))
        assert len(reader._forms) <= 8
