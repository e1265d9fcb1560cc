"""Whatever bytes arrive, in whatever state: the engine answers, does not raise, and does not grow.

What it wrote must always be whole frames, a close the last of them, and one end is told at most once. The corpus is
what once broke something, or looks as if it could.
"""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acquit.protocol._definitions import Close, Open, SaslCode
from acquit.protocol.composite import encode_composite
from acquit.protocol.connection import Connection
from acquit.protocol.constants import AMQP_HEADER, SASL_HEADER
from acquit.protocol.events import ConnectionEnded, Event, SaslInitiated, SaslResponded
from acquit.protocol.frames import AMQP_FRAME, SASL_FRAME, encode_frame
from acquit.protocol.options import ConnectionOptions
from acquit.protocol.sasl import Plain, SaslServerOptions
from tests.support.hostile import Application, Talk, talked_to
from tests.support.wire import frames_in

OPTIONS = ConnectionOptions(
    container_id="engine",
    max_frame_size=4_096,
    max_message_size=20_000,
    assembly_bytes_max=50_000,
    unsettled_max=100,
    incoming_window_frames=64,
)

CORPUS = [
    b"",
    b"AMQP",
    AMQP_HEADER * 3,
    SASL_HEADER + AMQP_HEADER,
    AMQP_HEADER + b"\x00\x00\x00\x00",
    AMQP_HEADER + b"\xff\xff\xff\xff\x02\x00\x00\x00",
    AMQP_HEADER + encode_frame(0, b"\x00" * 100),
    AMQP_HEADER + encode_frame(0, b"\x00\x53\x10\xd0\xff\xff\xff\xff\xff\xff\xff\xff"),
    AMQP_HEADER + encode_frame(0, b"\x00\x53\x10\xc0\x03\x01\xa1\xff"),
    AMQP_HEADER + encode_frame(0, encode_composite(Open("x"))) * 2,
    AMQP_HEADER + encode_frame(0, encode_composite(Close())) * 2,
    AMQP_HEADER + encode_frame(65_535, encode_composite(Open("x"))),
    SASL_HEADER + encode_frame(0, b"\x00\x53\x41\xc0\x07\x02\xa3\x05PLAIN\xa0", SASL_FRAME),
    SASL_HEADER + encode_frame(0, b"\x00\x53\x41\xc0\x12\x02\xa3\x05PLAIN\xa0\x08\x00user\x00pw", SASL_FRAME) * 2,
]


def engines() -> list[Connection]:
    """One in each state that a stranger can meet it in."""
    server = Connection(OPTIONS, server=True, sasl=None, now=0.0)
    secured = Connection(OPTIONS, server=True, sasl=SaslServerOptions(mechanisms=("PLAIN",)), now=0.0)
    client = Connection(OPTIONS, server=False, sasl=None, now=0.0)
    client.open()
    authenticating = Connection(OPTIONS, server=False, sasl=Plain("user", "pw"), now=0.0)
    authenticating.open()
    in_sasl = Connection(OPTIONS, server=False, sasl=Plain("user", "pw"), now=0.0)
    in_sasl.open()
    in_sasl.receive_data(SASL_HEADER, 0.0)
    opening = Connection(OPTIONS, server=True, sasl=None, now=0.0)
    opening.receive_data(AMQP_HEADER, 0.0)
    return [server, secured, client, authenticating, in_sasl, opening, talked_to(OPTIONS, 50, messages=5).engine]


def check_output(data: bytes) -> None:
    """Headers, then whole frames; nothing after a close."""
    for header, frame_type in ((SASL_HEADER, SASL_FRAME), (AMQP_HEADER, AMQP_FRAME)):
        if data.startswith(header):
            rest, data = data[8:], b""
            if frame_type == SASL_FRAME and AMQP_HEADER in rest:
                rest, _, data = rest.partition(AMQP_HEADER)
                data = AMQP_HEADER + data
            said = frames_in(rest, frame_type)
            assert not any(isinstance(item, Close) for _, item, _ in said[:-1])
    if data:
        assert not any(isinstance(item, Close) for _, item, _ in frames_in(data)[:-1])


def feed(engine: Connection, chunks: list[bytes]) -> None:
    application = Application(credit=50)
    events: list[Event] = []
    output = b""
    for chunk in chunks:
        heard = engine.receive_data(chunk, 1.0)
        for event in heard:
            if isinstance(event, SaslInitiated | SaslResponded) and not engine.closed:
                if isinstance(event, SaslInitiated) and len(event.response) % 3:
                    heard += engine.sasl_succeed("user", 1.0)
                elif len(events) % 2:
                    heard += engine.sasl_challenge(b"again")
                else:
                    engine.sasl_fail(SaslCode.AUTH)
        application.hear([event for event in heard if not isinstance(event, SaslInitiated | SaslResponded)])
        events += heard
        while engine.has_output:
            output += engine.data_to_send()
    events += engine.receive_eof(2.0)
    assert engine.closed
    assert sum(isinstance(event, ConnectionEnded) for event in events) == 1
    check_output(output)


@pytest.mark.parametrize("data", CORPUS, ids=range(len(CORPUS)))
@pytest.mark.parametrize("which", range(len(engines())))
def test_the_corpus(data: bytes, which: int) -> None:
    feed(engines()[which], [data])
    feed(engines()[which], [data[index : index + 1] for index in range(len(data))])


@settings(max_examples=150)
@given(st.lists(st.binary(max_size=200), max_size=5), st.sampled_from([b"", AMQP_HEADER, SASL_HEADER]))
def test_random_bytes(chunks: list[bytes], header: bytes) -> None:
    for engine in engines():
        feed(engine, [header, *chunks])


def misbehave(seed: int, wildness: float) -> None:
    data = b"".join(Talk(seed, wildness).frames(60))
    chance = random.Random(seed)
    chunks = []
    while data:
        cut = chance.choice((5, 100, 2_000))
        chunks.append(data[:cut])
        data = data[cut:]
    feed(talked_to(OPTIONS, 50, messages=5).engine, chunks)


@settings(max_examples=200)
@given(st.integers(0, 1 << 32), st.sampled_from([0.01, 0.1, 0.5]))
def test_a_peer_that_misbehaves(seed: int, wildness: float) -> None:
    misbehave(seed, wildness)


@pytest.mark.slow
def test_very_many_that_do(rng: random.Random, soak_rounds: int) -> None:
    for _ in range(200 * soak_rounds):
        misbehave(rng.randrange(1 << 32), rng.choice((0.01, 0.1, 0.5)))


def test_a_frame_that_never_ends_takes_no_more_than_its_size() -> None:
    engine = talked_to(OPTIONS, 50).engine
    begin = encode_frame(0, bytes(4_000))[:-1]
    assert engine.receive_data(begin, 0.0) == []
    assert engine.receive_data(b"\x00" * 10_000, 0.0) != [], "the frame ends, is looked at, and refused"
    assert engine.closed
