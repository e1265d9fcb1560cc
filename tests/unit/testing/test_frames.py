"""Streams cut into frames, and frames read when somebody looks."""

from __future__ import annotations

import pytest

from acquit.protocol.composite import encode_composite
from acquit.protocol.constants import AMQP_HEADER, SASL_HEADER, TLS_HEADER
from acquit.protocol.definitions import Close, Discharge, Open, SaslMechanisms, Transfer
from acquit.protocol.frames import HEARTBEAT, SASL_FRAME, encode_frame
from acquit.testing.frames import NAMES, PassedFrame, Selection, Splitter

MECHANISMS = encode_frame(0, encode_composite(SaslMechanisms(sasl_server_mechanisms=("PLAIN",))), SASL_FRAME)
OPEN = encode_frame(0, encode_composite(Open(container_id="AMQP")))
CLOSE = encode_frame(0, encode_composite(Close()))
STREAM = [SASL_HEADER, MECHANISMS, AMQP_HEADER, OPEN, HEARTBEAT, CLOSE]


def passed(raw: bytes) -> PassedFrame:
    return PassedFrame(0, "client", raw)


def transfer(payload: bytes) -> PassedFrame:
    return passed(encode_frame(7, encode_composite(Transfer(handle=1)) + payload))


def control(value: object) -> bytes:
    return b"\x00\x53\x77" + encode_composite(value)


def test_every_split_gives_the_same_frames() -> None:
    whole = b"".join(STREAM)
    for at in range(len(whole) + 1):
        for second in range(at, len(whole) + 1):
            splitter = Splitter()
            found = splitter.feed(whole[:at]) + splitter.feed(whole[at:second]) + splitter.feed(whole[second:])
            assert found == STREAM
            assert splitter.rest == b""


def test_what_was_begun_is_the_rest() -> None:
    splitter = Splitter()
    assert splitter.feed(OPEN + CLOSE[:-1]) == [OPEN]
    assert splitter.rest == CLOSE[:-1]


@pytest.mark.parametrize("tls", [b"\x16\x03\x01\x02\x00\x01\x00\x01", b"\x00\x00\x00\x07\x02\x00\x00\x00"])
def test_what_is_no_frame_has_no_bounds_any_more(tls: bytes) -> None:
    splitter = Splitter()
    assert splitter.feed(TLS_HEADER + tls) == [TLS_HEADER, tls]
    assert splitter.feed(b"\x00") == [b"\x00"]
    assert splitter.feed(OPEN) == [OPEN]
    assert passed(tls).name == "bytes"


def test_names() -> None:
    assert [passed(raw).name for raw in STREAM] == ["header", "sasl-mechanisms", "header", "open", "empty", "close"]
    assert {passed(raw).name for raw in STREAM} <= set(NAMES)
    assert passed(OPEN).performative == Open(container_id="AMQP")
    assert passed(HEARTBEAT).performative is None


@pytest.mark.parametrize("body", [b"\x00", b"\x00\x53\x10\xc0", b"\x00\x53\x7f\x45", b"\x00\x53\x10\x45"])
def test_what_cannot_be_decoded_has_a_name_too(body: bytes) -> None:
    frame = passed(encode_frame(5, body))
    assert (frame.name, frame.performative, frame.control, frame.channel) == ("unknown", None, None, 5)
    assert "unknown" in str(frame)


def test_a_data_offset_behind_the_end_is_no_matter() -> None:
    frame = passed(b"\x00\x00\x00\x08\xff\x00\x00\x00")
    assert (frame.name, frame.payload) == ("unknown", b"")


def test_an_extended_header_is_skipped() -> None:
    body = encode_composite(Close())
    raw = (12 + len(body)).to_bytes(4, "big") + b"\x03\x00\x00\x02" + b"\xff\xff\xff\xff" + body
    assert passed(raw).name == "close"


def test_payload_and_control() -> None:
    assert transfer(b"abc").payload == b"abc"
    assert transfer(b"abc").control is None
    assert transfer(control(Discharge(txn_id=b"t", fail=True))).control == Discharge(txn_id=b"t", fail=True)
    assert transfer(b"\x00\x53\x77\x00\x53").control is None
    assert transfer(b"\x00\x53\x77\xa1\x01x").control is None


def test_a_discharge_is_a_transfer_and_is_selected_by_what_it_says() -> None:
    frame = transfer(control(Discharge(txn_id=b"t", fail=True)))
    assert Selection("transfer", None, None, {})(frame)
    assert Selection("discharge", "client", None, {"fail": True, "txn_id": bytes})(frame)
    assert not Selection("discharge", None, None, {"fail": False})(frame)
    assert not Selection("discharge", "broker", None, {})(frame)
    assert not Selection("declare", None, None, {})(frame)
    assert Selection(None, None, None, {"handle": 1})(frame)
    assert not Selection(None, None, None, {"handle": 1})(passed(OPEN))
