"""The engine, in every state in which it can meet a stranger, and its fast path against the long way."""

from __future__ import annotations

from acquit.errors import AuthenticationFailed
from acquit.protocol.composite import encode_composite
from acquit.protocol.connection import Connection
from acquit.protocol.constants import AMQP_HEADER, SASL_HEADER
from acquit.protocol.definitions import (
    Accepted,
    Close,
    Flow,
    Open,
    Released,
    SaslCode,
    Transfer,
)
from acquit.protocol.events import ConnectionEnded, Event, SaslChallenged, SaslInitiated, SaslResponded
from acquit.protocol.fastpath import Predictions
from acquit.protocol.frames import AMQP_FRAME, SASL_FRAME, encode_frame
from acquit.protocol.options import ConnectionOptions
from acquit.protocol.sasl import Plain, SaslServerOptions
from acquit.protocol.session import Session
from tests.fuzz.target import Reader, Target
from tests.support.hostile import Application, Talk, state_of, talked_to
from tests.support.wire import frames_in

OPTIONS = ConnectionOptions(
    container_id="engine",
    max_frame_size=4_096,
    max_message_size=20_000,
    assembly_bytes_max=50_000,
    unsettled_max=100,
    incoming_window_frames=64,
)
TIGHT = ConnectionOptions(
    container_id="engine", max_message_size=2_500, incoming_window_frames=64, assembly_bytes_max=9_000
)
PLAIN = SaslServerOptions(mechanisms=("PLAIN",))


def server(sasl: SaslServerOptions | None = None, heard: bytes = b"") -> Connection:
    engine = Connection(OPTIONS, server=True, sasl=sasl, now=0.0)
    if heard:
        engine.receive_data(heard, 0.0)
    return engine


def client(sasl: Plain | None = None, heard: bytes = b"") -> Connection:
    engine = Connection(OPTIONS, server=False, sasl=sasl, now=0.0)
    engine.open()
    if heard:
        engine.receive_data(heard, 0.0)
    return engine


STATES = (
    server,
    lambda: server(PLAIN),
    client,
    lambda: client(Plain("user", "pw")),
    lambda: client(Plain("user", "pw"), SASL_HEADER),
    lambda: server(None, AMQP_HEADER),
    lambda: talked_to(OPTIONS, 50, messages=5).engine,
)
"""How an engine gets into each state."""


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
    """It answers, tells its end once, and what it wrote are whole frames."""
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
            elif isinstance(event, SaslChallenged) and not engine.closed:
                engine.sasl_give_up(str(AuthenticationFailed("no")))
        application.hear([event for event in heard if not isinstance(event, SaslInitiated | SaslResponded)])
        events += heard
        while engine.has_output:
            output += engine.data_to_send()
    events += engine.receive_eof(2.0)
    assert engine.closed
    assert sum(isinstance(event, ConnectionEnded) for event in events) == 1
    check_output(output)


def engine(data: bytes) -> None:
    """The first byte says which state, the second how the rest is cut."""
    way = Reader(data)
    state, size = way.number() % len(STATES), way.number() or 1_000
    stream = way.take(way.left)
    feed(STATES[state](), [stream[at : at + size] for at in range(0, len(stream), size)])


class Forgetful(Predictions):
    """Learns nothing, so that every frame goes the long way."""

    def learn(self, session: Session, said: object, frame: bytes) -> None:
        pass


def told(stream: bytes, size: int, options: ConnectionOptions, credit: int, predictions: Predictions) -> list[object]:
    """What an engine hears, what it is like afterwards, and what it answers."""
    peer = talked_to(options, credit, messages=20)
    peer.engine.predictions = predictions
    application = Application(credit)
    output = b""
    for at in range(0, len(stream), size):
        application.hear(peer.send_bytes(stream[at : at + size]))
        output += peer.hear_bytes()
    return [application.all_heard(), state_of(peer.engine), output]


def fast_path(data: bytes) -> None:
    """Both ways hear the same, hold the same and answer the same. The frames come without their heads, each behind its
    length, so that a change of one leaves the others what they are."""
    way = Reader(data)
    habits = way.number()
    size, options, credit = (40, 5_000)[habits & 1], (OPTIONS, TIGHT)[habits >> 1 & 1], (3, 40)[habits >> 2 & 1]
    stream = b""
    while way.left:
        stream += encode_frame(0, way.take(way.number(2)))
    fast = told(stream, size, options, credit, Predictions())
    assert fast == told(stream, size, options, credit, Forgetful())


def without_heads(frames: list[bytes]) -> bytes:
    return b"".join((len(frame) - 4 * frame[4]).to_bytes(2, "big") + frame[4 * frame[4] :] for frame in frames)


CORPUS = (
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
)
FLOW = encode_frame(0, encode_composite(Flow(0, 2_000, 0, 2_000, 1, 0, 5)))


def disposition(place: int, state: Accepted | Released) -> bytes:
    """As peers write it whose frames are predicted: ids in four bytes."""
    delivery_id = b"\x70" + place.to_bytes(4, "big")
    fields = b"\x41" + delivery_id * 2 + b"\x41" + encode_composite(state)
    return b"\x00\x53\x15\xc0" + bytes((len(fields) + 1, 5)) + fields


FIRST_ID = 1_000
ALIKE = (
    [disposition(place, Accepted()) for place in range(4)],
    [disposition(place, state) for place, state in enumerate((Accepted(), Accepted(), Released(), Accepted()))],
    [encode_composite(Transfer(0, FIRST_ID + place, b"tag%d" % place, 0, False)) + b"body" for place in range(4)],
    [encode_composite(Transfer(0, FIRST_ID + place, b"tag%d" % place, 0, True)) + b"\0Sw\x40" for place in range(3)],
)
"""Frames that are predicted from the second on. Few and short, so that one changed byte is soon in the right place."""
MODULES = ("protocol.connection", "protocol.handshake", "protocol.session", "protocol.receiver", "protocol.sender")
WORDS = (AMQP_HEADER, SASL_HEADER, b"\0\x53\x10\xc0", b"\0\x53\x14\xc0", b"\0\x53\x15\xc0", b"\0\x53\x24\x45")

TARGETS = (
    Target(
        "engine",
        engine,
        MODULES,
        (),
        (
            *(bytes((state, 0)) + data for state in range(len(STATES)) for data in CORPUS),
            *(b"\x06\x80" + b"".join(Talk(seed, 0.05).frames(12)) for seed in range(4)),
        ),
        steps=20_000,
        steps_per_byte=400,
        words=WORDS,
        long=(b"\6\0" + FLOW * 200, b"\6\0" + encode_frame(0, b"") * 500, b"\6\1" + FLOW * 40),
    ),
    Target(
        "fast_path",
        fast_path,
        ("protocol.fastpath", "protocol.dispositions"),
        (),
        (
            *(bytes((seed & 7,)) + without_heads(list(Talk(seed, 0.0).frames(16))) for seed in range(16)),
            *(b"\0" + without_heads([encode_frame(0, one) for one in alike]) for alike in ALIKE),
        ),
        steps=40_000,
        steps_per_byte=400,
        words=WORDS,
    ),
)
