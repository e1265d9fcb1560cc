"""SASL with peers that say anything, in any order: nothing raises, nobody gets in, and the end is told once."""

from __future__ import annotations

import random

import pytest

from acquit.broker.access.logins import LOGINS, Challenge, Login, Proven
from acquit.broker.access.users import Users, Verifier
from acquit.client.credentials import make_sasl
from acquit.client.url import parse_url
from acquit.errors import AuthenticationFailed
from acquit.protocol._definitions import (
    SaslChallenge,
    SaslCode,
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
    SaslResponse,
)
from acquit.protocol.composite import encode_composite
from acquit.protocol.connection import Connection
from acquit.protocol.constants import AMQP_HEADER, SASL_HEADER, TLS_HEADER
from acquit.protocol.events import (
    ConnectionEnded,
    ConnectionOpened,
    Event,
    SaslChallenged,
    SaslInitiated,
    SaslResponded,
)
from acquit.protocol.frames import SASL_FRAME, encode_frame
from acquit.protocol.options import ConnectionOptions
from acquit.protocol.sasl import SaslServerOptions
from tests.support.wire import frames_in

OPTIONS = ConnectionOptions(container_id="engine", pipelined_bytes_max=2_000)
USERS = Users({"ada": str(Verifier.of("s3cret")), "bob": ""})
MECHANISMS = ("EXTERNAL", "SCRAM-SHA-256", "PLAIN")
WORDS = (
    b"",
    b"\0",
    b"n,,n=ada,r=abc",
    b"y,,n=bob,r=abc",
    b"n,,n=ada,r=abc\0",
    b"n,a=ada,n=ada,r=abc",
    b"\0ada\0wrong",
    b"\0ada\0s3cret\0",
    b"bob\0ada\0s3cret",
    b"c=biws,r=abc,p=AAAA",
    b"r=abcdef,s=QUFBQUFBQUFBQUFBQUFBQQ==,i=4096",
    b"v=AAAA",
    b"e=other-error",
    b"\xff\xfe",
    b"x" * 300,
)


def word(rng: random.Random, heard: bytes) -> bytes:
    """Something to say, often made from what was heard."""
    text = bytearray(rng.choice((*WORDS, heard, b"c=biws," + heard.split(b",")[0] + b",p=" + b"A" * 43 + b"=")))
    while rng.random() < 0.3:
        at = rng.randrange(len(text) + 1)
        text[at : at + rng.randrange(3)] = rng.choice((b"", b",", b"=", b"\0", b"\xc3", b"r=", b"n="))
    return bytes(text)


def something(rng: random.Random, heard: bytes) -> bytes:
    """Bytes for the wire: nearly always a SASL frame, sometimes a wrong one for the one who says it."""
    said = rng.choice(
        (
            SaslInit(rng.choice((*MECHANISMS, "ANONYMOUS", "SCRAM-SHA-1", "")), rng.choice((None, word(rng, heard)))),
            SaslResponse(word(rng, heard)),
            SaslResponse(word(rng, heard)),
            SaslMechanisms(tuple(rng.sample(MECHANISMS, rng.randint(0, 3)))),
            SaslChallenge(word(rng, heard)),
            SaslChallenge(word(rng, heard)),
            SaslOutcome(rng.choice(list(SaslCode)), rng.choice((None, word(rng, heard)))),
        )
    )
    data = encode_frame(0, encode_composite(said), SASL_FRAME)
    match rng.randrange(20):
        case 0:
            return rng.choice((AMQP_HEADER, SASL_HEADER, TLS_HEADER, b"\0" * 8, b"\xff" * 4))
        case 1:
            at = rng.randrange(len(data))
            return data[:at] + bytes([data[at] ^ (1 << rng.randrange(8))]) + data[at + 1 :]
        case 2:
            return data * rng.randint(2, 40)
    return data


def chunks(rng: random.Random, data: bytes) -> list[bytes]:
    if rng.random() < 0.7 or len(data) > 4_000:
        return [data]
    cuts = sorted(rng.randrange(len(data) + 1) for _ in range(3))
    return [data[start:end] for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True)]


@pytest.mark.parametrize("seed", range(150))
def test_a_server(seed: int) -> None:
    """Driven as `broker.sockets` does it."""
    rng = random.Random(seed)
    engine = Connection(OPTIONS, server=True, sasl=SaslServerOptions(mechanisms=MECHANISMS), now=0.0)
    events: list[Event] = []
    output = b""
    login: Login | None = None
    heard = b""
    waiting = list(engine.receive_data(SASL_HEADER, 0.0))
    for _ in range(30):
        while waiting:
            event = waiting.pop(0)
            events.append(event)
            if isinstance(event, SaslInitiated):
                login = LOGINS[event.mechanism](USERS, None)
            if not isinstance(event, SaslInitiated | SaslResponded):
                continue
            assert login is not None
            found = login.step(event.response)
            assert not isinstance(found, Proven), "nothing of what is said here proves anything"
            if isinstance(found, Challenge):
                heard = found.challenge
                waiting += engine.sasl_challenge(found.challenge)
            else:
                engine.sasl_fail()
        output += engine.data_to_send()
        if engine.closed:
            break
        for chunk in chunks(rng, something(rng, heard)):
            waiting += engine.receive_data(chunk, 1.0)
    events += engine.receive_eof(2.0)
    assert engine.user is None
    assert not any(isinstance(event, ConnectionOpened) for event in events)
    assert sum(isinstance(event, ConnectionEnded) for event in events + waiting) == 1
    assert output.startswith(SASL_HEADER)
    said = output.removeprefix(SASL_HEADER).removesuffix(AMQP_HEADER).removesuffix(SASL_HEADER)
    performatives = [item for _, item, _ in frames_in(said, SASL_FRAME)]
    assert all(isinstance(item, SaslMechanisms | SaslChallenge | SaslOutcome) for item in performatives)
    assert not any(isinstance(item, SaslOutcome) for item in performatives[:-1])
    assert SaslOutcome(SaslCode.OK) not in performatives


@pytest.mark.parametrize("seed", range(150))
@pytest.mark.parametrize("mechanisms", [(), ("SCRAM-SHA-256",)])
def test_a_client(seed: int, mechanisms: tuple[str, ...]) -> None:
    """Driven as `client.driver` does it. With SCRAM alone no server that does not know the password is believed."""
    rng = random.Random(seed)
    sasl = make_sasl(parse_url("amqp://ada:pa55word@host"), mechanisms, certified=False)
    engine = Connection(OPTIONS, server=False, sasl=sasl, now=0.0)
    engine.open()
    events: list[Event] = []
    output = engine.data_to_send()
    waiting = engine.receive_data(SASL_HEADER, 0.0)
    if rng.random() < 0.8:
        offer = encode_frame(0, encode_composite(SaslMechanisms(MECHANISMS[1:])), SASL_FRAME)
        waiting += engine.receive_data(offer, 0.0)
    for _ in range(12):
        while waiting:
            event = waiting.pop(0)
            events.append(event)
            if isinstance(event, SaslChallenged) and not engine.closed:
                try:
                    response = sasl.respond(event.challenge)
                except AuthenticationFailed as exc:
                    engine.sasl_give_up(str(exc))
                else:
                    waiting += engine.sasl_respond(response, 1.0)
        sent = engine.data_to_send()
        output += sent
        if engine.closed:
            break
        heard = sent.rpartition(b"r=")[2][:24]  # of our first message, for answers that seem right
        first = b"r=" + heard + b"more,s=QUFBQUFBQUFBQUFBQUFBQQ==,i=4096"
        for chunk in chunks(rng, something(rng, first)):
            waiting += engine.receive_data(chunk, 1.0)
    events += waiting + engine.receive_eof(2.0)
    assert sum(isinstance(event, ConnectionEnded) for event in events) == 1
    assert "pa55word" not in repr(events)
    if mechanisms:
        assert AMQP_HEADER not in output, "we went on with a server that proved nothing"
        assert b"pa55word" not in output
