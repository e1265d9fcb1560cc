"""SASL with peers that say anything, in any order, by every mechanism: nobody gets in, and the end is told once.

An input is a list of steps: what kind of frame, and what it says. Both sides are driven as `broker.sockets` and
`client.driver` drive them.
"""

from __future__ import annotations

from acquit.broker.access.logins import LOGINS, Challenge, Login, Proven
from acquit.broker.access.users import Users, Verifier
from acquit.client.credentials import make_sasl
from acquit.client.url import parse_url
from acquit.errors import AuthenticationFailed
from acquit.protocol.composite import encode_composite
from acquit.protocol.connection import Connection
from acquit.protocol.constants import AMQP_HEADER, SASL_HEADER
from acquit.protocol.definitions import (
    SaslChallenge,
    SaslCode,
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
    SaslPerformative,
    SaslResponse,
)
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
from tests.fuzz.target import Reader, Target
from tests.support.wire import frames_in

OPTIONS = ConnectionOptions(container_id="engine", pipelined_bytes_max=2_000)
PASSWORD = "pa55word"
MECHANISMS = ("EXTERNAL", "SCRAM-SHA-256", "PLAIN")
NAMES = (*MECHANISMS, "ANONYMOUS", "SCRAM-SHA-1", "")
USERS = Users({"ada": str(Verifier.of(PASSWORD, iterations=4_096, salt=b"salt" * 4)), "bob": ""})
STEPS_MAX = 12


def said(way: Reader) -> bytes:
    """The next frame of a peer, in bytes. NONCE in what it says stands for what it heard."""
    kind = way.number()
    text = way.block()
    frame: SaslPerformative
    match kind % 8:
        case 0:
            frame = SaslInit(NAMES[(kind >> 3) % len(NAMES)], text)
        case 1:
            frame = SaslInit(NAMES[(kind >> 3) % len(NAMES)])
        case 2:
            frame = SaslResponse(text)
        case 3:
            frame = SaslChallenge(text)
        case 4:
            frame = SaslOutcome(list(SaslCode)[(kind >> 3) % len(SaslCode)], text or None)
        case 5:
            frame = SaslMechanisms(tuple(MECHANISMS[: (kind >> 3) % 4]))
        case 6:
            return encode_frame(0, text, SASL_FRAME)
        case _:
            return text
    return encode_frame(0, encode_composite(frame), SASL_FRAME)


def server(data: bytes) -> None:
    way = Reader(data)
    engine = Connection(OPTIONS, server=True, sasl=SaslServerOptions(mechanisms=MECHANISMS), now=0.0)
    events: list[Event] = []
    output = b""
    login: Login | None = None
    heard = b""
    waiting = list(engine.receive_data(SASL_HEADER, 0.0))
    for _ in range(STEPS_MAX):
        while waiting:
            event = waiting.pop(0)
            events.append(event)
            if isinstance(event, SaslInitiated):
                login = LOGINS[event.mechanism](USERS, None)
            if not isinstance(event, SaslInitiated | SaslResponded):
                continue
            assert login is not None
            login.decides(event.response)
            found = login.step(event.response)
            assert not isinstance(found, Proven), "nobody here knows the password"
            if isinstance(found, Challenge):
                heard = found.challenge
                waiting += engine.sasl_challenge(found.challenge)
            else:
                engine.sasl_fail()
        output += engine.data_to_send()
        if engine.closed or not way.left:
            break
        waiting += engine.receive_data(said(way).replace(b"NONCE", heard.partition(b",")[0]), 1.0)
    events += engine.receive_eof(2.0)
    assert engine.user is None
    assert not any(isinstance(event, ConnectionOpened) for event in events)
    assert sum(isinstance(event, ConnectionEnded) for event in events + waiting) == 1
    assert output.startswith(SASL_HEADER)
    told = output.removeprefix(SASL_HEADER).removesuffix(AMQP_HEADER).removesuffix(SASL_HEADER)
    performatives = [item for _, item, _ in frames_in(told, SASL_FRAME)]
    assert all(isinstance(item, SaslMechanisms | SaslChallenge | SaslOutcome) for item in performatives)
    assert not any(isinstance(item, SaslOutcome) for item in performatives[:-1])
    assert SaslOutcome(SaslCode.OK) not in performatives


def client(data: bytes) -> None:
    """With SCRAM alone no server that does not know the password is believed."""
    way = Reader(data)
    only_scram = bool(way.number() & 1)
    sasl = make_sasl(
        parse_url(f"amqp://ada:{PASSWORD}@host"), ("SCRAM-SHA-256",) if only_scram else (), certified=False
    )
    engine = Connection(OPTIONS, server=False, sasl=sasl, now=0.0)
    engine.open()
    events: list[Event] = []
    output = engine.data_to_send()
    waiting = engine.receive_data(SASL_HEADER, 0.0)
    heard = b""
    for _ in range(STEPS_MAX):
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
        if b"r=" in sent:
            heard = sent.rpartition(b"r=")[2].partition(b",")[0]
        if engine.closed or not way.left:
            break
        waiting += engine.receive_data(said(way).replace(b"NONCE", heard), 1.0)
    events += waiting + engine.receive_eof(2.0)
    assert sum(isinstance(event, ConnectionEnded) for event in events) == 1
    assert PASSWORD not in repr(events)
    if only_scram:
        assert AMQP_HEADER not in output, "we went on with a server that proved nothing"
        assert PASSWORD.encode() not in output


def step(kind: int, text: bytes = b"", which: int = 0) -> bytes:
    return bytes((which << 3 | kind, len(text))) + text


FIRST = b"r=NONCEmore,s=QUFBQUFBQUFBQUFBQUFBQQ==,i=4096"
WORDS = (b"n,,n=ada,r=abc", b"y,,n=bob,r=abc", b"c=biws,r=NONCE,p=", b",i=4096", b"v=AAAA", b"e=other-error", FIRST)

TARGETS = (
    Target(
        "sasl_server",
        server,
        ("broker.access.logins", "broker.access.users", "protocol.sasl"),
        (),
        (
            step(0, b"\0ada\0wrong", 2),
            step(1, b"", 2) + step(2, b"bob\0ada\0x"),
            step(0, b"n,,n=ada,r=abc", 1) + step(2, b"c=biws,NONCE,p=" + b"A" * 43 + b"="),
            step(0, b"ada", 0) + step(2, b""),
            step(0, b"anybody", 3),
        ),
        steps=20_000,
        steps_per_byte=400,
        words=WORDS,
        length_max=512,
    ),
    Target(
        "sasl_client",
        client,
        ("client.scram", "client.credentials", "protocol.sasl"),
        (),
        (
            b"\1" + step(5, b"", 3) + step(3, FIRST) + step(4, b"v=AAAA"),
            b"\1" + step(5, b"", 3) + step(3, FIRST) + step(3, b"v=AAAA") + step(4),
            b"\0" + step(5, b"", 3) + step(4, b"", 1),
            b"\0" + step(5, b"", 1),
            b"\1" + step(5, b"", 3) + step(4),
        ),
        steps=20_000,
        steps_per_byte=400,
        words=WORDS,
        length_max=512,
    ),
)
