"""Frames: whole from any split, and refused as soon as they cannot be."""

from __future__ import annotations

import struct
import tracemalloc

import pytest

from acquit.errors import DecodeError, FramingError
from acquit.protocol.composite import encode_composite
from acquit.protocol.constants import ACCEPTED, AMQP_HEADER
from acquit.protocol.definitions import Begin, Close, Open, SaslInit, SaslMechanisms, SaslOutcome, Transfer
from acquit.protocol.frames import (
    AMQP_FRAME,
    HEARTBEAT,
    SASL_FRAME,
    SASL_MAX_FRAME_SIZE,
    Frame,
    FrameDecoder,
    encode_frame,
)

OPEN = Open("container", "host", 4096)
TRANSFER = Transfer(0, 1, b"tag", 0)
STREAM = (
    encode_frame(0, encode_composite(OPEN))
    + encode_frame(3, encode_composite(Begin(None, 1, 2, 3)))
    + HEARTBEAT
    + encode_frame(3, encode_composite(TRANSFER) + b"payload")
    + encode_frame(65535, encode_composite(Close()))
)
FRAMES = [
    Frame(AMQP_FRAME, 0, OPEN, b""),
    Frame(AMQP_FRAME, 3, Begin(None, 1, 2, 3), b""),
    Frame(AMQP_FRAME, 0, None, b""),
    Frame(AMQP_FRAME, 3, TRANSFER, b"payload"),
    Frame(AMQP_FRAME, 65535, Close(), b""),
]


def header(size: int, words: int = 2, frame_type: int = 0, channel: int = 0) -> bytes:
    return struct.pack(">IBBH", size, words, frame_type, channel)


def read(data: bytes, max_frame_size: int = 4096, frame_type: int = AMQP_FRAME) -> list[Frame]:
    decoder = FrameDecoder(max_frame_size, frame_type)
    decoder.feed(data)
    return list(decoder)


def test_the_layout() -> None:
    assert encode_frame(0x0102, b"body") == bytes.fromhex("0000000c 02 00 0102") + b"body"
    assert encode_frame(0, b"body", SASL_FRAME) == bytes.fromhex("0000000c 02 01 0000") + b"body"
    assert bytes.fromhex("00000008 02 00 0000") == HEARTBEAT


def test_a_stream_in_one_piece() -> None:
    assert read(STREAM) == FRAMES


@pytest.mark.parametrize("cut", range(len(STREAM) + 1))
def test_a_stream_in_two_pieces(cut: int) -> None:
    decoder = FrameDecoder(4096)
    decoder.feed(STREAM[:cut])
    frames = list(decoder)
    decoder.feed(STREAM[cut:])
    assert frames + list(decoder) == FRAMES
    assert decoder.buffered == 0


@pytest.mark.parametrize("step", [1, 2, 3, 7])
def test_a_stream_in_many_pieces(step: int) -> None:
    decoder = FrameDecoder(4096)
    frames = []
    for start in range(0, len(STREAM), step):
        decoder.feed(STREAM[start : start + step])
        frames += list(decoder)
    assert frames == FRAMES


def test_feeding_without_reading_keeps_everything() -> None:
    decoder = FrameDecoder(4096)
    for octet in STREAM:
        decoder.feed(bytes([octet]))
    assert decoder.buffered == len(STREAM)
    assert list(decoder) == FRAMES


def test_reading_may_stop_between_frames() -> None:
    decoder = FrameDecoder(4096)
    decoder.feed(STREAM)
    assert next(iter(decoder)) == FRAMES[0]
    decoder.feed(STREAM)
    assert list(decoder) == FRAMES[1:] + FRAMES


def test_an_extended_header_is_skipped() -> None:
    body = encode_composite(Close())
    data = header(16 + len(body), words=4) + b"whatever" + body
    assert read(data) == [Frame(AMQP_FRAME, 0, Close(), b"")]
    assert read(header(16, words=4) + b"whatever") == [Frame(AMQP_FRAME, 0, None, b"")]


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (header(7), "a frame of 7 octets"),
        (header(0), "a frame of 0 octets"),
        (header(8, words=1), "a data offset of 1 words"),
        (header(8, words=0), "a data offset of 0 words"),
        (header(8, words=3), "a frame of 8 octets with a data offset of 12"),
        (header(1000, words=255), "a frame of 1000 octets with a data offset of 1020"),
        (header(4097), "more than the maximum of 4096"),
        (header(0xFFFF_FFFF), "more than the maximum of 4096"),
        (header(8, frame_type=1), "type 0x01 where type 0x00 must come"),
        (header(8, frame_type=2), "type 0x02 where type 0x00 must come"),
        (AMQP_HEADER, "more than the maximum"),
        (encode_frame(0, encode_composite(ACCEPTED)), "a Accepted may not stand in a frame of type 0"),
        (encode_frame(0, encode_composite(SaslInit("PLAIN"))), "a SaslInit may not stand in a frame of type 0"),
    ],
)
def test_what_is_no_frame_is_refused(data: bytes, why: str) -> None:
    with pytest.raises(FramingError, match=why) as caught:
        read(data)
    assert caught.value.condition == "amqp:connection:framing-error"


@pytest.mark.parametrize("start", [bytes.fromhex("00000007"), bytes.fromhex("00001001"), b"HTTP", b"AMQP\0"])
def test_an_impossible_size_is_refused_before_the_rest_comes(start: bytes) -> None:
    with pytest.raises(FramingError, match=r"must be in 8\.\.4096"):
        read(start)


def test_the_largest_frame_is_taken() -> None:
    body = encode_composite(Transfer(0)) + bytes(4096)
    data = encode_frame(0, body[: 4096 - 8])
    assert len(data) == 4096
    assert len(read(data)) == 1


@pytest.mark.parametrize("body", [b"\x40", b"\x00\x53\x10\x45", encode_composite(OPEN)[:-1], b"\x00\x53\x99\x45"])
def test_a_body_that_is_no_performative_is_a_decode_error(body: bytes) -> None:
    with pytest.raises(DecodeError) as caught:
        read(encode_frame(0, body) + STREAM)  # what follows must not lend its octets
    assert caught.value.condition == "amqp:decode-error"


def test_frames_before_a_fault_are_given() -> None:
    decoder = FrameDecoder(4096)
    decoder.feed(STREAM + header(7))
    frames = iter(decoder)
    assert [next(frames) for _ in FRAMES] == FRAMES
    with pytest.raises(FramingError):
        next(frames)


def test_the_security_layer() -> None:
    decoder = FrameDecoder(SASL_MAX_FRAME_SIZE, SASL_FRAME)
    mechanisms, init = SaslMechanisms(("PLAIN",)), SaslInit("PLAIN", b"\0a\0b")
    decoder.feed(encode_frame(0, encode_composite(mechanisms), SASL_FRAME))
    assert list(decoder) == [Frame(SASL_FRAME, 0, mechanisms, b"")]
    decoder.feed(encode_frame(7, encode_composite(init), SASL_FRAME))
    assert list(decoder) == [Frame(SASL_FRAME, 7, init, b"")]


@pytest.mark.parametrize(
    "data",
    [
        encode_frame(0, b"", SASL_FRAME),
        encode_frame(0, encode_composite(OPEN), SASL_FRAME),
        encode_frame(0, encode_composite(OPEN)),
        header(513, frame_type=1),
    ],
)
def test_what_may_not_come_in_the_security_layer(data: bytes) -> None:
    with pytest.raises(FramingError):
        read(data, SASL_MAX_FRAME_SIZE, SASL_FRAME)


@pytest.mark.parametrize("cut", range(9))
def test_leaving_the_security_layer(cut: int) -> None:
    """The outcome, the AMQP header and the first frames may come in one piece, cut anywhere."""
    outcome = encode_frame(0, encode_composite(SaslOutcome(0)), SASL_FRAME)  # type: ignore[arg-type]
    decoder = FrameDecoder(SASL_MAX_FRAME_SIZE, SASL_FRAME)
    decoder.feed(outcome + AMQP_HEADER[:cut])
    frames = iter(decoder)
    assert next(frames).performative == SaslOutcome(0)  # type: ignore[arg-type]
    rest = decoder.take_rest() + AMQP_HEADER[cut:] + STREAM
    assert rest.startswith(AMQP_HEADER)
    decoder.frame_type = AMQP_FRAME
    decoder.max_frame_size = 4096
    decoder.feed(rest[8:])
    assert list(decoder) == FRAMES


def test_a_large_frame_in_small_pieces_is_copied_once_and_kept_once() -> None:
    size = 1_000_000
    data = encode_frame(0, encode_composite(Transfer(0)) + bytes(size))
    decoder = FrameDecoder(2 * size)
    tracemalloc.start()
    try:
        for start in range(0, len(data), 100):
            decoder.feed(data[start : start + 100])
            assert len(list(decoder)) == (start + 100 >= len(data))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 4 * size
