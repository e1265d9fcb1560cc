from __future__ import annotations

from collections.abc import Callable

import pytest

from acquit.errors import FrameTooLarge, LocalProtocolError
from acquit.protocol.connection import ConnectionState
from acquit.protocol.constants import AMQP_HEADER
from acquit.protocol.definitions import (
    AmqpCondition,
    Attach,
    Begin,
    Close,
    ConnectionCondition,
    Disposition,
    End,
    Error,
    Flow,
    Open,
    Performative,
    Role,
)
from acquit.protocol.events import ConnectionEnded, ConnectionOpened, SessionBegun
from acquit.protocol.frames import HEARTBEAT, encode_frame
from acquit.protocol.options import ConnectionOptions
from tests.support.peer import START, begun_server, client_peer, framed, open_server, server_peer
from tests.support.wire import Wire, frames_in, kinds, only, opened, single_bytes, whole

# -- opening


@pytest.mark.parametrize("split", [whole, single_bytes])
def test_opens_are_exchanged(split: Callable[[bytes], list[bytes]]) -> None:
    wire = Wire(split=split)
    wire.client.open()
    heard_by_client, heard_by_server = wire.run()
    theirs = only(heard_by_server, ConnectionOpened).open
    assert (theirs.container_id, theirs.hostname, theirs.idle_time_out) == ("client", "broker.example", 30_000)
    assert only(heard_by_client, ConnectionOpened).open.container_id == "server"
    assert wire.client.state is wire.server.state is ConnectionState.OPENED


def test_what_we_say_in_open() -> None:
    options = ConnectionOptions(
        container_id="c",
        max_frame_size=4_096,
        channel_max=7,
        idle_timeout_ms=0,
        offered_capabilities=("a",),
        desired_capabilities=("b", "c"),
        properties={"product": "acquit"},
    )
    wire = Wire(client=options)
    wire.client.open()
    _, heard = wire.run()
    said = only(heard, ConnectionOpened).open
    assert said == Open(
        "c",
        None,
        4_096,
        7,
        None,
        offered_capabilities=("a",),
        desired_capabilities=("b", "c"),
        properties={"product": "acquit"},
    )


def test_a_client_says_its_header_and_open_at_once() -> None:
    said = client_peer().hear_bytes()
    assert said.startswith(AMQP_HEADER)
    assert isinstance(frames_in(said[8:])[0][1], Open)


def test_open_is_for_clients_and_once() -> None:
    with pytest.raises(LocalProtocolError):
        server_peer().engine.open()
    peer = client_peer()
    with pytest.raises(LocalProtocolError):
        peer.engine.open()


@pytest.mark.parametrize(
    "first",
    [
        None,
        Begin(None, 0, 1, 1),
        Attach("a", 0, Role.SENDER),
        Flow(None, 1, 0, 1),
        Disposition(Role.SENDER, 0),
        End(),
    ],
)
def test_a_frame_before_open(first: Performative | None) -> None:
    peer = server_peer()
    peer.send_bytes(AMQP_HEADER)
    ended = only(peer.say(first), ConnectionEnded)
    assert ended.error is not None
    assert ended.error.condition == AmqpCondition.NOT_ALLOWED
    said = peer.hear()
    assert [type(item) for item in said] == [Open, Close], "a close must come after an open"


def test_an_open_on_another_channel() -> None:
    peer = server_peer()
    peer.send_bytes(AMQP_HEADER)
    peer.say(Open("peer"), channel=1)
    assert peer.error_heard(Close).condition == AmqpCondition.NOT_ALLOWED


@pytest.mark.parametrize("bad", [Open("p", max_frame_size=511), Open("p", idle_time_out=5)])
def test_an_open_that_we_cannot_keep(bad: Open) -> None:
    peer = server_peer()
    peer.send_bytes(AMQP_HEADER)
    peer.say(bad)
    assert peer.error_heard(Close).condition == AmqpCondition.INVALID_FIELD


def test_an_open_of_zeros_before_a_close_is_a_refusal_that_says_why() -> None:
    peer = client_peer()
    peer.send_bytes(AMQP_HEADER)
    assert peer.say(Open("broker", max_frame_size=0, channel_max=0)) == []
    reason = Error("amqp:not-found", "no such host")
    assert peer.say(Close(reason)) == [ConnectionEnded(reason, lost=False, remote=True)]


def test_an_open_of_zeros_before_anything_else_is_an_error() -> None:
    peer = client_peer()
    peer.send_bytes(AMQP_HEADER)
    peer.say(Open("broker", max_frame_size=0))
    peer.say(Begin(None, 0, 1, 1))
    assert peer.error_heard(Close).condition == AmqpCondition.INVALID_FIELD


def test_an_open_of_zeros_before_nothing_else_is_why_no_connection_came_about() -> None:
    peer = client_peer()
    peer.send_bytes(AMQP_HEADER)
    peer.say(Open("broker", max_frame_size=256))
    deadline = peer.engine.next_deadline()
    assert deadline is not None
    assert peer.engine.handle_deadline(deadline - 0.1) == []
    ended = only(peer.engine.handle_deadline(deadline), ConnectionEnded)
    assert (ended.lost, ended.remote) == (False, False)
    assert ended.error is not None
    assert ended.error.description == "a max-frame-size of 256, must be 512 at least (2.7.1)"
    assert peer.error_heard(Close).condition == AmqpCondition.INVALID_FIELD


def test_a_second_open() -> None:
    peer = open_server()
    peer.say(Open("peer"))
    assert peer.error_heard(Close).condition == AmqpCondition.NOT_ALLOWED


# -- frames and channels


@pytest.mark.parametrize(
    ("data", "condition"),
    [
        (b"\x00\x00\x00\x07\x02\x00\x00\x00", ConnectionCondition.FRAMING_ERROR),  # size below the header's
        (b"\x00\x00\x00\x08\x01\x00\x00\x00", ConnectionCondition.FRAMING_ERROR),  # data offset below 2
        (b"\x00\x00\x00\x08\x03\x00\x00\x00", ConnectionCondition.FRAMING_ERROR),  # data offset past the end
        (b"\x7f\x00\x00\x00", ConnectionCondition.FRAMING_ERROR),  # oversized, refused before it arrives
        (b"\x00\x00\x00\x08\x02\x01\x00\x00", ConnectionCondition.FRAMING_ERROR),  # SASL now
        (encode_frame(0, b"\x00\x53\x11\xc0\xff\x01"), AmqpCondition.DECODE_ERROR),
        (encode_frame(0, b"\x00\x53\x99\x45"), AmqpCondition.DECODE_ERROR),
        (encode_frame(0, b"hello"), AmqpCondition.DECODE_ERROR),
    ],
)
def test_bytes_that_cannot_be_read_end_the_connection_at_once(data: bytes, condition: str) -> None:
    peer = begun_server()
    (ended,) = peer.send_bytes(data)
    assert isinstance(ended, ConnectionEnded)
    assert (ended.lost, ended.remote) == (False, False)
    assert peer.error_heard(Close).condition == condition
    assert peer.engine.closed


def test_a_frame_for_a_channel_without_a_session() -> None:
    peer = begun_server()
    peer.say(End(), channel=3)
    assert peer.error_heard(Close).condition == AmqpCondition.NOT_ALLOWED
    assert not peer.engine.closed, "the peer may still say close"
    assert peer.say(Flow(0, 1, 0, 1)) == [], "what comes after we closed is ignored"
    assert peer.say(Close()) == []
    assert peer.engine.closed


def test_a_channel_above_the_highest() -> None:
    peer = open_server(ConnectionOptions(container_id="c", channel_max=3))
    peer.say(Begin(None, 0, 1, 1), channel=4)
    assert peer.error_heard(Close).condition == ConnectionCondition.FRAMING_ERROR


def test_a_second_begin_on_a_channel() -> None:
    peer = begun_server()
    peer.say(Begin(None, 0, 1, 1))
    assert peer.error_heard(Close).condition == AmqpCondition.NOT_ALLOWED


def test_a_begin_in_answer_to_nothing() -> None:
    peer = begun_server()
    peer.say(Begin(5, 0, 1, 1), channel=1)
    assert peer.error_heard(Close).condition == AmqpCondition.NOT_ALLOWED


def test_a_second_answer_to_our_begin() -> None:
    peer = open_server()
    session = peer.engine.begin()
    assert only(peer.say(Begin(0, 0, 1, 1)), SessionBegun).session is session
    peer.say(Begin(0, 0, 1, 1), channel=1)
    assert Close in {type(item) for item in peer.hear()}


def test_a_begin_that_cannot_be_answered_within_the_peers_channels() -> None:
    peer = open_server(channel_max=0)
    peer.say(Begin(None, 0, 1, 1))
    peer.hear()
    peer.say(Begin(None, 0, 1, 1), channel=1)
    assert peer.error_heard(Close).condition == AmqpCondition.RESOURCE_LIMIT_EXCEEDED


def test_channels_run_out_for_us_too() -> None:
    wire = opened(server=ConnectionOptions(container_id="s", channel_max=1))
    first = wire.client.begin()
    wire.client.begin()
    with pytest.raises(LocalProtocolError, match="no channel"):
        wire.client.begin()
    first.end()
    wire.run()
    assert wire.client.begin().channel == first.channel, "a channel is used again when both have ended"
    wire.run()


def test_no_session_before_the_opens() -> None:
    with pytest.raises(LocalProtocolError):
        client_peer().engine.begin()


def test_a_performative_that_does_not_fit_the_peers_frame() -> None:
    peer = open_server(max_frame_size=512)
    with pytest.raises(FrameTooLarge):
        peer.engine.begin(properties={"x": "y" * 600})
    assert peer.hear() == []
    assert peer.engine.sessions == []
    assert peer.engine.begin().channel == 0


# -- closing


def test_close_in_order() -> None:
    wire = opened()
    wire.begin()
    wire.client.close(Error("amqp:connection:forced", "bye"))
    assert wire.client.state is ConnectionState.CLOSE_SENT
    heard_by_client, heard_by_server = wire.run()
    assert heard_by_client == [ConnectionEnded(None, lost=False, remote=False)]
    assert heard_by_server == [ConnectionEnded(Error("amqp:connection:forced", "bye"), lost=False, remote=True)]
    assert wire.client.closed
    assert wire.server.closed
    assert len(wire.client.sessions) == 1, "what was there can still be walked"
    wire.client.close()
    assert wire.client.receive_eof(wire.now) == []


def test_both_close_at_once() -> None:
    wire = opened()
    wire.client.close()
    wire.server.close(Error("amqp:connection:forced"))
    heard_by_client, heard_by_server = wire.run()
    assert kinds(heard_by_client) == kinds(heard_by_server) == ["ConnectionEnded"]
    assert wire.client.closed
    assert wire.server.closed


@pytest.mark.parametrize("idle_s", [0, 4.9, 7])
def test_a_peer_that_does_not_answer_our_close(idle_s: float) -> None:
    """It has as long as it ever has, however long ago something was heard of it."""
    peer = open_server()
    peer.engine.close()
    asked = peer.engine.next_deadline()
    assert asked is not None and asked <= START
    assert peer.engine.handle_deadline(START + idle_s) == []
    deadline = peer.engine.next_deadline()
    assert deadline == START + idle_s + 5
    assert peer.engine.handle_deadline(deadline - 0.1) == []
    assert peer.engine.handle_deadline(deadline) == [ConnectionEnded(None, lost=True, remote=False)]
    assert peer.engine.closed
    assert peer.engine.next_deadline() is None


def test_nonsense_after_our_close() -> None:
    peer = open_server()
    peer.engine.close()
    peer.hear()
    assert kinds(peer.send_bytes(b"\xff" * 8)) == ["ConnectionEnded"]
    assert peer.engine.closed
    assert not peer.engine.has_output


@pytest.mark.parametrize("said", [b"", AMQP_HEADER])
def test_a_server_that_stops_early(said: bytes) -> None:
    peer = server_peer()
    peer.send_bytes(said)
    peer.engine.close()
    if said:
        assert [type(item) for item in peer.hear()] == [Open, Close]
        assert peer.say(Close()) == [ConnectionEnded(None, lost=False, remote=False)]
    assert peer.engine.closed


def test_the_socket_ends() -> None:
    wire = opened()
    session, _ = wire.begin()
    assert wire.client.receive_eof(wire.now) == [ConnectionEnded(None, lost=True, remote=True)]
    assert wire.client.closed
    assert wire.client.receive_eof(wire.now) == []
    assert wire.client.receive_data(b"late", wire.now) == []
    session.end()
    assert not wire.client.has_output, "verbs on what is gone do nothing"


def test_an_error_larger_than_the_peers_frame_is_cut_down() -> None:
    peer = open_server(max_frame_size=512)
    peer.engine.close(Error("amqp:internal-error", "é" * 400, {"much": "x" * 1_000}))
    said = peer.error_heard(Close)
    assert said.condition == "amqp:internal-error"
    assert said.info is None
    assert (said.description or "").startswith("éé")


# -- time


def test_a_handshake_takes_no_longer_than_allowed() -> None:
    peer = server_peer()
    assert peer.engine.next_deadline() == START + 10
    peer.send_bytes(AMQP_HEADER)
    assert peer.engine.handle_deadline(START + 9) == []
    (ended,) = peer.engine.handle_deadline(START + 10)
    assert isinstance(ended, ConnectionEnded)
    assert ended.lost
    assert peer.engine.closed
    assert peer.error_heard(Close).condition == AmqpCondition.RESOURCE_LIMIT_EXCEEDED


def test_a_silent_peer_is_given_up_after_twice_what_we_advertise() -> None:
    peer = open_server(ConnectionOptions(container_id="c", idle_timeout_ms=1_000))
    assert peer.engine.next_deadline() == START + 2
    peer.now = START + 1
    peer.send_bytes(HEARTBEAT)
    assert peer.engine.handle_deadline(START + 2) == []
    (ended,) = peer.engine.handle_deadline(START + 3)
    assert isinstance(ended, ConnectionEnded)
    assert ended.lost
    assert not ended.remote
    assert peer.error_heard(Close).condition == AmqpCondition.RESOURCE_LIMIT_EXCEEDED
    assert peer.engine.closed


def test_part_of_a_frame_is_no_sign_of_life() -> None:
    peer = open_server(ConnectionOptions(container_id="c", idle_timeout_ms=1_000))
    peer.now = START + 1.5
    peer.send_bytes(HEARTBEAT[:4])
    assert kinds(peer.engine.handle_deadline(START + 2)) == ["ConnectionEnded"]


def test_heartbeats_keep_two_engines_together() -> None:
    options = ConnectionOptions(container_id="c", idle_timeout_ms=1_000)
    wire = opened(options, ConnectionOptions(container_id="s", idle_timeout_ms=300))
    until = wire.now + 20
    sent = 0
    while wire.now < until:
        deadlines = [wire.client.next_deadline(), wire.server.next_deadline()]
        wire.now = min(deadline for deadline in deadlines if deadline is not None)
        for engine in (wire.client, wire.server):
            assert engine.handle_deadline(wire.now) == []
        sent += wire.client.has_output + wire.server.has_output
        wire.run()
    # Every half of the peer's time-out: 20 s / 0.15 s from the client, 20 s / 0.5 s from the server.
    assert 130 <= sent <= 200


def test_a_peer_without_a_time_out_gets_no_heartbeats() -> None:
    peer = open_server(ConnectionOptions(container_id="c", idle_timeout_ms=0))
    assert peer.engine.next_deadline() is None
    assert peer.engine.handle_deadline(START + 1e6) == []
    assert not peer.engine.has_output


# -- output


def test_output_is_counted_and_taken_once() -> None:
    peer = open_server()
    peer.engine.begin()
    waiting = peer.engine.output_bytes
    assert waiting > 8
    assert len(peer.engine.data_to_send()) == waiting
    assert peer.engine.output_bytes == 0
    assert peer.engine.data_to_send() == b""


def test_a_close_right_behind_what_we_close_for() -> None:
    peer = begun_server()
    told = peer.send_bytes(framed(Open("again"), Close()))
    assert kinds(told) == ["ConnectionEnded"]
    assert peer.error_heard(Close).condition == AmqpCondition.NOT_ALLOWED
    assert peer.engine.closed


def test_nonsense_right_behind_what_we_close_for() -> None:
    peer = begun_server()
    assert kinds(peer.send_bytes(framed(Open("again")) + b"\xff" * 8)) == ["ConnectionEnded"]
    assert peer.engine.closed
