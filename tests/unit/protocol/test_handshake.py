from __future__ import annotations

import pytest

from acquit.errors import AuthenticationFailed, LocalProtocolError
from acquit.protocol.composite import encode_composite
from acquit.protocol.connection import Connection
from acquit.protocol.constants import AMQP_HEADER, SASL_HEADER, TLS_HEADER
from acquit.protocol.definitions import (
    AmqpCondition,
    Begin,
    Close,
    Open,
    SaslChallenge,
    SaslCode,
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
    SaslResponse,
)
from acquit.protocol.events import ConnectionEnded, SaslChallenged, SaslInitiated, SaslResponded
from acquit.protocol.frames import SASL_FRAME, encode_frame
from acquit.protocol.sasl import Anonymous, Plain, SaslServerOptions
from tests.support.peer import START, Peer, client_peer, framed, server_peer
from tests.support.wire import CLIENT, SERVER, Wire, frames_in, kinds, only, single_bytes

PLAIN_ONLY = SaslServerOptions(mechanisms=("PLAIN",))
# -- headers


@pytest.mark.parametrize(
    "header", [b"HTTP/1.1", b"AMQP\x00\x01\x01\x00", b"AMQP\x00\x00\x09\x01", TLS_HEADER, SASL_HEADER, b"\x00" * 8]
)
def test_another_header_is_answered_with_ours_and_the_end(header: bytes) -> None:
    peer = server_peer()
    ended = only(peer.send_bytes(header + b"more"), ConnectionEnded)
    assert (ended.lost, ended.remote) == (False, False)
    assert peer.hear_bytes() == AMQP_HEADER
    assert peer.engine.closed
    assert peer.send_bytes(b"even more") == []


def test_a_header_is_refused_as_soon_as_it_is_wrong() -> None:
    peer = server_peer()
    assert peer.send_bytes(b"AM") == []
    assert kinds(peer.send_bytes(b"Q!")) == ["ConnectionEnded"]
    assert peer.hear_bytes() == AMQP_HEADER


def test_a_client_meets_another_header() -> None:
    peer = client_peer()
    ended = only(peer.send_bytes(b"AMQP\x00\x00\x09\x01"), ConnectionEnded)
    assert ended.error is not None
    assert ended.error.condition == AmqpCondition.NOT_IMPLEMENTED
    assert ended.foreign
    assert peer.engine.closed


def test_a_client_without_sasl_meets_a_server_that_requires_it() -> None:
    ended = only(client_peer().send_bytes(SASL_HEADER), ConnectionEnded)
    assert ended.authentication
    assert not ended.foreign
    assert ended.error is not None
    assert "requires SASL" in (ended.error.description or "")


def test_bytes_before_a_client_opens() -> None:
    peer = Peer(Connection(CLIENT, server=False, sasl=None, now=START))
    assert kinds(peer.send_bytes(AMQP_HEADER)) == ["ConnectionEnded"]


# -- SASL


def test_plain_over_the_wire() -> None:
    wire = Wire(sasl=Plain("ada", "secret"), server_sasl=SaslServerOptions(mechanisms=("PLAIN", "ANONYMOUS")))
    wire.client.open()
    _, heard = wire.run()
    initiated = only(heard, SaslInitiated)
    assert (initiated.mechanism, initiated.response, initiated.hostname) == (
        "PLAIN",
        b"\0ada\0secret",
        "broker.example",
    )
    assert wire.server.sasl_succeed("ada", wire.now) == []
    heard_by_client, heard_by_server = wire.run()
    assert kinds(heard_by_client) == kinds(heard_by_server) == ["ConnectionOpened"]
    assert wire.server.user == "ada"


def test_plain_in_single_bytes() -> None:
    wire = Wire(sasl=Plain("ada", "secret"), server_sasl=PLAIN_ONLY, split=single_bytes).open()
    assert wire.server.user == "user"


def test_the_server_refuses() -> None:
    wire = Wire(sasl=Plain("ada", "wrong"), server_sasl=PLAIN_ONLY)
    wire.client.open()
    wire.run()
    wire.server.sasl_fail()
    assert wire.server.closed
    heard_by_client, heard_by_server = wire.run()
    for heard in (heard_by_client, heard_by_server):
        ended = only(heard, ConnectionEnded)
        assert ended.authentication
        assert not ended.lost
    assert wire.client.closed


def test_no_mechanism_in_common() -> None:
    wire = Wire(sasl=Anonymous(), server_sasl=PLAIN_ONLY)
    wire.client.open()
    heard, _ = wire.run()
    ended = only(heard, ConnectionEnded)
    assert ended.authentication
    assert not ended.remote
    assert wire.client.closed


def test_a_mechanism_that_was_not_offered_is_answered_with_an_outcome() -> None:
    """5.3.3.2. A client that only sees the socket close takes it for a fault of the network, and tries for ever."""
    peer = server_peer(PLAIN_ONLY)
    said_ahead = AMQP_HEADER + framed(Open("peer"))
    events = peer.send_bytes(SASL_HEADER + framed(SaslInit("EXTERNAL"), frame_type=SASL_FRAME) + said_ahead)
    ended = only(events, ConnectionEnded)
    assert ended.authentication
    assert not ended.remote
    assert ended.error is not None
    assert ended.error.condition == AmqpCondition.UNAUTHORIZED_ACCESS
    said = [item for _, item, _ in frames_in(peer.hear_bytes()[len(SASL_HEADER) :], SASL_FRAME)]
    assert said == [SaslMechanisms(("PLAIN",)), SaslOutcome(SaslCode.AUTH)]
    assert peer.engine.closed


@pytest.mark.parametrize("code", [code for code in SaslCode if code is not SaslCode.OK])
def test_a_servers_passing_trouble_is_not_taken_for_wrong_credentials(code: SaslCode) -> None:
    peer = client_peer(Plain("ada", "secret"))
    peer.send_bytes(SASL_HEADER + framed(SaslMechanisms(("PLAIN",)), frame_type=SASL_FRAME))  # type: ignore[arg-type]
    ended = only(peer.say(SaslOutcome(code), frame_type=SASL_FRAME), ConnectionEnded)
    assert ended.remote
    assert ended.authentication == (code is not SaslCode.SYS_TEMP)
    assert ended.error is not None
    assert (ended.error.condition == AmqpCondition.UNAUTHORIZED_ACCESS) == ended.authentication


def test_everything_pipelined_at_once() -> None:
    """A client may send SASL header, init, AMQP header, open and begin without waiting (2.4.2, 5.3.2)."""
    peer = server_peer(SaslServerOptions(mechanisms=("ANONYMOUS",)))
    everything = (
        SASL_HEADER
        + framed(SaslInit("ANONYMOUS", b"me"), frame_type=SASL_FRAME)
        + AMQP_HEADER
        + framed(Open("peer"), Begin(None, 0, 10, 10))
    )
    assert kinds(peer.send_bytes(everything)) == ["SaslInitiated"]
    assert kinds(peer.send_bytes(framed(Close()))) == [], "nothing is read before the application has spoken"
    events = peer.engine.sasl_succeed("anonymous", START)
    assert kinds(events) == ["ConnectionOpened", "SessionBegun", "ConnectionEnded"]
    said = peer.hear_bytes()
    assert said.startswith(SASL_HEADER)
    assert said.count(AMQP_HEADER) == 1
    assert [type(item) for _, item, _ in frames_in(said.split(AMQP_HEADER)[1])] == [Open, Begin, Close]


def test_too_much_ahead_of_the_outcome() -> None:
    peer = server_peer(SaslServerOptions(mechanisms=("ANONYMOUS",)), pipelined_bytes_max=100)
    peer.send_bytes(SASL_HEADER + framed(SaslInit("ANONYMOUS"), frame_type=SASL_FRAME))
    assert peer.send_bytes(bytes(100)) == []
    ended = only(peer.send_bytes(b"x"), ConnectionEnded)
    assert ended.error is not None
    assert ended.error.condition == AmqpCondition.RESOURCE_LIMIT_EXCEEDED
    assert peer.engine.sasl_succeed("late", START) == [], "verified in vain"
    assert peer.engine.closed


def test_several_rounds_and_additional_data() -> None:
    peer = server_peer(SaslServerOptions(mechanisms=("X",)))
    peer.send_bytes(SASL_HEADER)
    only(peer.say(SaslInit("X", b"1"), frame_type=SASL_FRAME), SaslInitiated)
    peer.engine.sasl_challenge(b"2")
    assert only(peer.say(SaslResponse(b"3"), frame_type=SASL_FRAME), SaslResponded).response == b"3"
    peer.engine.sasl_succeed("x", START, b"4")
    assert frames_in(peer.hear_bytes()[8:], SASL_FRAME)[-1][1] == SaslOutcome(SaslCode.OK, b"4")


def test_too_many_rounds() -> None:
    peer = server_peer(SaslServerOptions(mechanisms=("X",), rounds_max=1))
    peer.send_bytes(SASL_HEADER)
    peer.say(SaslInit("X", b""), frame_type=SASL_FRAME)
    peer.engine.sasl_challenge(b"")
    peer.say(SaslResponse(b""), frame_type=SASL_FRAME)
    assert only(peer.engine.sasl_challenge(b""), ConnectionEnded).authentication
    assert peer.engine.closed
    assert frames_in(peer.hear_bytes()[8:], SASL_FRAME)[-1][1] == SaslOutcome(SaslCode.AUTH)
    assert peer.engine.sasl_challenge(b"") == [], "too late, and no harm"


def test_what_was_said_before_the_challenge_is_heard_after_it() -> None:
    peer = server_peer(SaslServerOptions(mechanisms=("X",)))
    said = b"".join(
        encode_frame(0, encode_composite(one), SASL_FRAME)
        for one in (SaslInit("X", b"1"), SaslResponse(b"2"), SaslInit("X", b"3"))
    )
    assert kinds(peer.send_bytes(SASL_HEADER + said)) == ["SaslInitiated"]
    assert only(peer.engine.sasl_challenge(b"?"), SaslResponded).response == b"2"
    assert kinds(peer.engine.sasl_challenge(b"?")) == ["ConnectionEnded"], "a second init"
    assert peer.engine.closed


def test_a_peer_that_skips_sasl_where_it_is_required() -> None:
    peer = server_peer(PLAIN_ONLY)
    assert kinds(peer.send_bytes(AMQP_HEADER)) == ["ConnectionEnded"]
    assert peer.hear_bytes() == SASL_HEADER


def test_a_peer_that_skips_sasl_where_it_is_allowed() -> None:
    peer = server_peer(SaslServerOptions(mechanisms=("PLAIN",), required=False))
    peer.send_bytes(AMQP_HEADER)
    assert kinds(peer.say(Open("peer"))) == ["ConnectionOpened"]
    assert peer.engine.user is None


def test_sasl_twice() -> None:
    peer = server_peer(PLAIN_ONLY)
    peer.send_bytes(SASL_HEADER)
    peer.say(SaslInit("PLAIN", b"\0a\0b"), frame_type=SASL_FRAME)
    peer.engine.sasl_succeed("a", START)
    assert kinds(peer.send_bytes(SASL_HEADER)) == ["ConnectionEnded"]


@pytest.mark.parametrize(
    "data",
    [
        framed(Open("peer")),  # an AMQP frame
        encode_frame(0, b"", SASL_FRAME),  # an empty one
        encode_frame(0, encode_composite(SaslMechanisms(("PLAIN",))), SASL_FRAME),  # the server's line
        encode_frame(0, encode_composite(SaslInit("PLAIN", bytes(5_000))), SASL_FRAME),  # larger than allowed
        encode_frame(0, b"\x00\x53\x41", SASL_FRAME),  # cut short
    ],
)
def test_nonsense_instead_of_sasl(data: bytes) -> None:
    peer = server_peer(PLAIN_ONLY)
    peer.send_bytes(SASL_HEADER)
    peer.hear_bytes()
    assert kinds(peer.send_bytes(data)) == ["ConnectionEnded"]
    assert peer.engine.closed
    assert not peer.engine.has_output, "there is no frame to say an error in"


def test_answers_that_nobody_asked_for() -> None:
    peer = server_peer(PLAIN_ONLY)
    with pytest.raises(LocalProtocolError):
        peer.engine.sasl_succeed("a", START)
    with pytest.raises(LocalProtocolError):
        server_peer().engine.sasl_fail()


def test_sasl_options_are_for_servers_and_mechanisms_for_clients() -> None:
    with pytest.raises(LocalProtocolError):
        Connection(CLIENT, server=False, sasl=PLAIN_ONLY, now=START)
    with pytest.raises(LocalProtocolError):
        Connection(SERVER, server=True, sasl=Anonymous(), now=START)


@pytest.mark.parametrize("ahead", [b"HTTP/1.1", AMQP_HEADER + b"\xff" * 8, SASL_HEADER])
def test_nonsense_ahead_of_the_outcome_is_found_when_it_is_read(ahead: bytes) -> None:
    peer = server_peer(PLAIN_ONLY)
    peer.send_bytes(SASL_HEADER + framed(SaslInit("PLAIN", b"\0a\0b"), frame_type=SASL_FRAME) + ahead)
    (ended,) = peer.engine.sasl_succeed("a", START)
    assert isinstance(ended, ConnectionEnded)
    assert not ended.authentication
    assert peer.engine.closed


# -- a client whose answers take long


class Slow:
    """A mechanism that leaves its answers to the driver, and wants the server's last word to be `done`."""

    slow = True

    def choose(self, mechanisms: object) -> tuple[str, bytes | None]:
        return "SLOW", b"begin"

    def respond(self, challenge: bytes) -> bytes:
        raise AssertionError("the engine leaves this to the driver")

    def complete(self, additional_data: bytes | None) -> None:
        if additional_data != b"done":
            raise AuthenticationFailed(f"not proven by {additional_data!r}")


def challenged(*behind: bytes, split: bool = False) -> Peer:
    """A client that has heard a challenge, and what is `behind` it."""
    peer = Peer(Connection(CLIENT, server=False, sasl=Slow(), now=START))
    peer.engine.open()
    said = b"".join(
        (
            SASL_HEADER,
            encode_frame(0, encode_composite(SaslMechanisms(("SLOW",))), SASL_FRAME),
            encode_frame(0, encode_composite(SaslChallenge(b"?")), SASL_FRAME),
            *behind,
        )
    )
    events: list[object] = []
    for part in single_bytes(said) if split else [said]:
        events += peer.send_bytes(part)
    assert events == [SaslChallenged(b"?")]
    peer.hear_bytes()
    return peer


def outcome(code: SaslCode, data: bytes | None = None) -> bytes:
    return encode_frame(0, encode_composite(SaslOutcome(code, data)), SASL_FRAME)


def test_the_driver_answers_a_challenge() -> None:
    peer = challenged()
    assert peer.engine.sasl_respond(b"!", START) == []
    assert peer.hear_bytes() == encode_frame(0, encode_composite(SaslResponse(b"!")), SASL_FRAME)
    assert kinds(peer.send_bytes(outcome(SaslCode.OK, b"done") + AMQP_HEADER + framed(Open("peer")))) == [
        "ConnectionOpened"
    ]


@pytest.mark.parametrize("split", [False, True])
def test_what_the_server_sent_ahead_is_read_after_the_answer(split: bool) -> None:
    peer = challenged(outcome(SaslCode.OK, b"done"), AMQP_HEADER, framed(Open("peer")), split=split)
    assert kinds(peer.engine.sasl_respond(b"!", START)) == ["ConnectionOpened"]


def test_a_server_that_does_not_prove_itself() -> None:
    peer = challenged()
    peer.engine.sasl_respond(b"!", START)
    ended = only(peer.send_bytes(outcome(SaslCode.OK)), ConnectionEnded)
    assert ended.authentication and ended.error is not None and "not proven" in (ended.error.description or "")
    assert peer.engine.closed


def test_the_driver_has_no_answer() -> None:
    peer = challenged()
    peer.engine.sasl_give_up("no such password")
    assert peer.engine.closed
    ended = only(peer.engine.receive_eof(START), ConnectionEnded)
    assert ended.authentication and ended.error is not None and ended.error.description == "no such password"
    assert peer.engine.sasl_respond(b"!", START) == [], "too late, and no harm"
    peer.engine.sasl_give_up("again")


def test_an_answer_that_nobody_asked_for() -> None:
    with pytest.raises(LocalProtocolError):
        client_peer().engine.sasl_respond(b"!", START)
    with pytest.raises(LocalProtocolError):
        server_peer(PLAIN_ONLY).engine.sasl_respond(b"!", START)


def test_a_server_that_floods_while_the_answer_is_made() -> None:
    peer = challenged()
    events: list[object] = []
    for _ in range(1_000):
        events += peer.send_bytes(outcome(SaslCode.AUTH) * 50)
        if peer.engine.closed:
            break
    assert kinds(events) == ["ConnectionEnded"]
