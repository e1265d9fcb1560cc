"""The pump between an engine and a transport that a test plays, and between two engines over a real socket."""

from __future__ import annotations

import asyncio
import logging
import socket
import weakref
from collections.abc import Callable, Coroutine
from itertools import pairwise
from typing import Any

import pytest

from acquit.errors import ConfigurationError
from acquit.protocol.composite import encode_composite
from acquit.protocol.connection import Connection
from acquit.protocol.costs import FRAME_COSTS
from acquit.protocol.definitions import Begin
from acquit.protocol.events import ConnectionEnded, ConnectionOpened, Event, SaslInitiated
from acquit.protocol.frames import encode_frame
from acquit.protocol.options import ConnectionOptions
from acquit.transport import Pump, PumpOptions
from acquit.transport import pump as module
from acquit.transport.pump import LITTLE_BYTES, endpoint_name
from acquit.transport.turnstile import Turnstile
from tests.support.wire import kinds


def run(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(main())


class Wire(asyncio.Transport):
    """A transport that a test plays. `full` makes each write pause the writer, as a full socket does."""

    def __init__(self) -> None:
        super().__init__({"peername": ("10.0.0.1", 5), "sockname": ("::1", 6)})
        self.protocol: asyncio.Protocol | None = None
        self.written: list[bytes] = []
        self.full = False
        self.calls: list[str] = []
        self.socket: socket.socket | None = None

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self.socket if name == "socket" else super().get_extra_info(name, default)

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        self.written.append(bytes(data))
        if self.full and self.protocol is not None:
            self.protocol.pause_writing()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self.calls.append(f"limit {high}")

    def close(self) -> None:
        self.calls.append("close")

    def abort(self) -> None:
        self.calls.append("abort")

    def is_closing(self) -> bool:
        return "close" in self.calls or "abort" in self.calls

    def pause_reading(self) -> None:
        self.calls.append("pause_reading")

    def resume_reading(self) -> None:
        self.calls.append("resume_reading")


class Recorder:
    def __init__(self) -> None:
        self.events: list[Event] = []
        self.calls: list[object] = []
        self.act: Callable[[Event], None] = lambda event: None

    def handle(self, events: list[Event]) -> None:
        self.calls.append("handle")
        for event in events:
            self.events.append(event)
            self.act(event)

    def on_writable(self, writable: bool) -> None:
        self.calls.append(writable)

    def on_closed(self) -> None:
        self.calls.append("closed")


def engine(*, server: bool = False, now: float, **options: int) -> Connection:
    return Connection(
        ConnectionOptions(container_id="server" if server else "client", **options), server=server, sasl=None, now=now
    )


class Stage:
    """A client's pump on a played transport, and the server's engine at the other end of it."""

    def __init__(
        self,
        *,
        opened: bool = True,
        options: PumpOptions | None = None,
        exit_: Turnstile | None = None,
        **engine_options: int,
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self.handler = Recorder()
        self.engine = engine(now=self.loop.time(), **engine_options)
        self.peer = engine(server=True, now=self.loop.time())
        self.pump = Pump(self.engine, self.handler, options=options, exit_=exit_)
        self.wire = Wire()
        self.wire.protocol = self.pump
        if opened:
            self.engine.open()
            self.pump.connection_made(self.wire)
            self.exchange()
            self.wire.written.clear()
            self.handler.calls.clear()

    def exchange(self) -> None:
        """What was written goes to the peer; what it says comes back; the pump flushes what it has to say to that."""
        while self.wire.written:
            for data in self.wire.written:
                self.peer.receive_data(data, self.loop.time())
            self.wire.written.clear()
            if answer := self.peer.data_to_send():
                self.pump.data_received(answer)
            self.pump.flush()

    def begin(self, count: int = 1) -> None:
        for _ in range(count):
            self.engine.begin()


def test_the_first_bytes_leave_when_the_socket_is_there() -> None:
    async def main() -> None:
        stage = Stage(opened=False)
        assert (stage.pump.peer, stage.pump.local, stage.pump.connected, stage.pump.fileno()) == ("?", "?", False, None)
        stage.engine.open()
        stage.pump.flush()
        stage.pump.abort()  # nothing to cut off yet
        assert stage.wire.written == []
        stage.pump.connection_made(stage.wire)
        assert stage.wire.written[0].startswith(b"AMQP")
        assert (stage.pump.peer, stage.pump.local, stage.pump.connected) == ("10.0.0.1:5", "[::1]:6", True)
        assert not stage.pump.encrypted

    run(main)


def test_however_often_touched_there_is_one_write_in_the_next_turn() -> None:
    async def main() -> None:
        stage = Stage()
        for _ in range(5):
            stage.begin()
            stage.pump.touch()
        assert stage.wire.written == []
        await asyncio.sleep(0)
        assert len(stage.wire.written) == 1
        await asyncio.sleep(0)
        assert len(stage.wire.written) == 1

    run(main)


def test_a_little_leaves_at_once_and_what_follows_in_this_turn_in_one_write() -> None:
    async def main() -> None:
        stage = Stage()
        written = stage.wire.written
        for _ in range(5):
            stage.begin()
            stage.pump.touch_promptly()
            assert len(written) == 1
        stage.pump.touch()
        await asyncio.sleep(0)
        assert len(written) == 2
        await asyncio.sleep(0)
        assert len(written) == 2
        stage.begin()
        stage.pump.touch_promptly()  # the next turn has its own first
        assert len(written) == 3
        assert len(stage.peer.receive_data(b"".join(written), 0.0)) == 6

    run(main)


def test_what_is_more_than_a_little_waits_for_the_rest_of_its_lot() -> None:
    async def main() -> None:
        stage = Stage()
        written = stage.wire.written
        while stage.engine.output_bytes <= LITTLE_BYTES:
            assert not written
            stage.begin()
        size = stage.engine.output_bytes
        stage.pump.touch_promptly()
        assert not written
        stage.begin()
        stage.pump.touch_promptly()
        await asyncio.sleep(0)
        assert len(written) == 1 and len(written[0]) > size

    run(main)


def test_exactly_a_little_leaves_at_once() -> None:
    async def main() -> None:
        stage = Stage()
        stage.engine.write_raw([bytes(LITTLE_BYTES)])
        stage.pump.touch_promptly()
        assert [len(data) for data in stage.wire.written] == [LITTLE_BYTES]

    run(main)


def test_what_its_own_input_produces_waits_for_the_end_of_that() -> None:
    async def main() -> None:
        stage = Stage()

        def act(_event: Event) -> None:
            stage.begin()
            stage.pump.touch_promptly()
            assert not stage.wire.written

        stage.handler.act = act
        stage.peer.begin()
        stage.peer.begin()
        stage.pump.data_received(stage.peer.data_to_send())
        assert len(stage.wire.written) == 1
        await asyncio.sleep(0)
        assert len(stage.wire.written) == 1

    run(main)


def test_a_connection_that_is_closed_leaves_in_the_next_turn() -> None:
    """Who says so may be in the middle of a write of this very socket."""

    async def main() -> None:
        stage = Stage()
        closed_by_the_peer(stage)
        stage.wire.calls.clear()
        assert stage.engine.closed
        stage.pump.touch_promptly()
        assert stage.wire.calls == []
        await asyncio.sleep(0)
        assert stage.wire.calls == ["close"]

    run(main)


def closed_by_the_peer(stage: Stage) -> None:
    stage.engine.close()
    stage.peer.receive_data(stage.engine.data_to_send(), 0.0)
    stage.engine.receive_data(stage.peer.data_to_send(), stage.loop.time())


@pytest.mark.pure
def test_where_nothing_follows_the_first_write_nothing_more_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        stage = Stage()
        done: list[Pump] = []
        flush = Pump.flush

        def noted(pump: Pump) -> None:
            done.append(pump)
            flush(pump)

        monkeypatch.setattr(Pump, "flush", noted)
        stage.begin()
        stage.pump.touch_promptly()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert done == [stage.pump]

    run(main)


def test_a_connection_that_closes_after_the_first_write_of_a_turn_is_closed_at_its_end() -> None:
    async def main() -> None:
        stage = Stage()
        stage.begin()
        stage.pump.touch_promptly()
        closed_by_the_peer(stage)
        stage.pump.touch_promptly()
        assert "close" not in stage.wire.calls
        await asyncio.sleep(0)
        assert stage.wire.calls[-1] == "close"

    run(main)


def test_what_waits_to_be_written_in_chunks_is_not_begun_in_the_turn_of_another() -> None:
    async def main() -> None:
        stage = Stage()
        session = stage.engine.begin()
        stage.pump.flush()
        stage.wire.written.clear()
        session.mark_dirty()
        stage.engine.write_raw([b"x"])
        stage.pump.touch_promptly()
        assert stage.wire.written == []
        await asyncio.sleep(0)
        assert stage.wire.written == [b"x"]

    run(main)


def test_a_connection_that_cannot_be_written_harms_nobody_else() -> None:
    async def main() -> None:
        heard: list[dict[str, object]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: heard.append(context))
        stage = Stage()

        def broken(_data: object) -> None:
            raise RuntimeError("no")

        stage.wire.write = broken  # type: ignore[method-assign]
        stage.begin()
        stage.pump.touch_promptly()
        assert stage.wire.calls[-1] == "abort"
        assert [str(context["exception"]) for context in heard] == ["no"]

    run(main)


def test_a_deadline_that_comes_after_the_first_write_of_a_turn_is_kept() -> None:
    async def main() -> None:
        stage = Stage()
        stage.begin()
        stage.pump.touch_promptly()
        deadline = stage.loop.time() + 0.01
        stage.engine.next_deadline = lambda: deadline  # type: ignore[method-assign]
        heard: list[float] = []
        stage.engine.handle_deadline = lambda now: heard.append(now) or []  # type: ignore[func-returns-value, method-assign]
        stage.pump.touch_promptly()
        await asyncio.sleep(0.05)
        assert heard and heard[0] >= deadline

    run(main)


def test_what_one_wake_up_brought_is_answered_with_one_write_at_once() -> None:
    async def main() -> None:
        stage = Stage()
        for _ in range(3):
            session = stage.peer.begin()
            session.end()
        stage.pump.data_received(stage.peer.data_to_send())
        assert len(stage.wire.written) == 1
        await asyncio.sleep(0)
        assert len(stage.wire.written) == 1

    run(main)


def test_a_full_socket_stops_the_output_and_tells_the_handler() -> None:
    async def main() -> None:
        stage = Stage()
        stage.wire.full = True
        stage.begin()
        stage.pump.flush()
        assert stage.handler.calls == [False]
        assert not stage.pump.writable
        stage.begin()
        stage.pump.flush()
        assert len(stage.wire.written) == 1
        stage.wire.full = False
        stage.pump.resume_writing()
        assert stage.handler.calls == [False, True]
        assert stage.pump.writable
        assert len(stage.wire.written) == 2

    run(main)


def test_a_socket_that_has_room_again_is_not_closed_in_the_middle_of_the_write_that_made_it() -> None:
    async def main() -> None:
        stage = Stage()
        stage.wire.full = True
        stage.begin()
        stage.pump.flush()
        stage.peer.close()
        stage.pump.data_received(stage.peer.data_to_send())
        assert stage.engine.closed and stage.engine.has_output
        stage.wire.full = False
        stage.pump.resume_writing()
        assert "close" not in stage.wire.calls
        await asyncio.sleep(0)
        assert stage.wire.calls[-1] == "close" and not stage.engine.has_output

    run(main)


def test_a_peer_that_does_not_read_is_not_read_from() -> None:
    async def main() -> None:
        stage = Stage(options=PumpOptions(output_bytes_max=100))
        stage.wire.full = True
        stage.begin()
        stage.pump.flush()
        asked = 0
        while "pause_reading" not in stage.wire.calls:
            stage.peer.begin().end()  # each wants an answer
            stage.pump.data_received(stage.peer.data_to_send())
            asked += 1
        assert 1 < asked < 20
        assert stage.engine.output_bytes < 1_000
        stage.wire.full = False
        stage.pump.resume_writing()
        assert stage.wire.calls[-1] == "resume_reading"
        assert stage.engine.output_bytes == 0

    run(main)


def test_a_socket_that_fills_again_at_once_keeps_reading_paused() -> None:
    async def main() -> None:
        stage = Stage(options=PumpOptions(output_bytes_max=1))
        stage.wire.full = True
        stage.begin()
        stage.pump.flush()
        stage.peer.begin().end()
        stage.pump.data_received(stage.peer.data_to_send())
        assert "pause_reading" in stage.wire.calls
        stage.pump.resume_writing()
        assert "resume_reading" not in stage.wire.calls

    run(main)


def test_large_output_takes_turns_with_other_connections() -> None:
    async def main() -> None:
        stage = Stage()
        chunks = [b"x"] * 20
        stage.engine.data_to_send = lambda: chunks.pop() if chunks else b""  # type: ignore[method-assign]
        stage.engine.__class__ = type("Endless", (Connection,), {"has_output": property(lambda self: bool(chunks))})
        stage.pump.flush()
        assert len(stage.wire.written) == 8
        while chunks:
            await asyncio.sleep(0)
        assert len(stage.wire.written) == 20

    run(main)


# -- the end -----------------------------------------------------------------------------------------------------------


def test_a_closed_connection_closes_its_socket_after_the_last_word() -> None:
    async def main() -> None:
        stage = Stage()
        stage.engine.close()
        stage.pump.flush()
        assert stage.wire.calls == ["limit 524288"]
        stage.exchange()
        assert stage.wire.calls[-1] == "close"
        assert kinds(stage.handler.events)[-1] == "ConnectionEnded"
        stage.pump.connection_lost(None)
        assert stage.handler.calls[-1] == "closed"
        assert stage.pump.closed

    run(main)


def test_a_peer_that_does_not_take_the_last_word_is_cut_off() -> None:
    async def main() -> None:
        stage = Stage(options=PumpOptions(linger_ms=1))
        stage.pump.data_received(b"\xff" * 8)  # a frame larger than any: we say so, and close
        stage.pump.flush()
        assert stage.wire.calls[-1] == "close"
        await asyncio.sleep(0.01)
        assert stage.wire.calls[-1] == "abort"

    run(main)


def test_a_peer_that_reads_nothing_at_all_is_cut_off_with_the_last_word_unwritten() -> None:
    async def main() -> None:
        stage = Stage(options=PumpOptions(linger_ms=1))
        stage.pump.pause_writing()
        stage.pump.data_received(b"\xff" * 8)
        stage.pump.flush()
        assert "close" not in stage.wire.calls
        await asyncio.sleep(0.01)
        assert stage.wire.calls[-1] == "abort"

    run(main)


def test_the_transport_is_let_go_of_with_its_socket() -> None:
    """It may know the pump, as that of TLS does: who keeps the pump would keep it, too."""

    async def main() -> None:
        stage = Stage()
        wire = weakref.ref(stage.wire)
        stage.pump.connection_lost(ConnectionResetError())
        del stage.wire
        assert wire() is None
        assert stage.pump.connected
        assert stage.pump.buffered_bytes() == 0
        stage.pump.abort()

    run(main)


@pytest.mark.parametrize("polite", [True, False])
def test_the_end_of_the_stream_is_told_once(polite: bool) -> None:
    async def main() -> None:
        stage = Stage()
        if polite:
            assert not stage.pump.eof_received()  # the transport closes itself
        stage.pump.connection_lost(None if polite else ConnectionResetError())
        ended = [event for event in stage.handler.events if isinstance(event, ConnectionEnded)]
        assert len(ended) == 1
        assert ended[0].lost
        assert stage.handler.calls[-1] == "closed"
        stage.pump.touch()
        await asyncio.sleep(0)
        assert stage.wire.written == []

    run(main)


def test_a_handler_that_fails_ends_its_connection() -> None:
    async def main() -> None:
        stage = Stage()

        def fail(event: Event) -> None:
            raise ValueError("bug")

        stage.handler.act = fail
        stage.peer.begin()
        with pytest.raises(ValueError, match="bug"):
            stage.pump.data_received(stage.peer.data_to_send())
        assert stage.wire.calls[-1] == "abort"
        with pytest.raises(ValueError, match="bug"):
            stage.pump.connection_lost(None)
        assert stage.handler.calls[-1] == "closed"

    run(main)


# -- time --------------------------------------------------------------------------------------------------------------


def test_deadlines_are_kept() -> None:
    async def main() -> None:
        stage = Stage(opened=False, handshake_timeout_ms=1)
        stage.engine.open()
        stage.pump.connection_made(stage.wire)
        while not stage.handler.events:
            await asyncio.sleep(0)
        (ended,) = stage.handler.events
        assert isinstance(ended, ConnectionEnded)
        assert ended.error is not None and ended.error.description == "no open within 1 ms"
        assert stage.wire.calls[-1] == "close"

    run(main)


def test_a_deadline_that_moves_later_is_asked_again() -> None:
    async def main() -> None:
        stage = Stage()
        asked: list[float] = []
        deadlines = [stage.loop.time() + 0.001, stage.loop.time() + 0.002]
        stage.engine.next_deadline = lambda: deadlines[0] if deadlines else None  # type: ignore[method-assign]

        def handle(now: float) -> list[Event]:
            asked.append(now)
            deadlines.pop(0)
            return []

        stage.engine.handle_deadline = handle  # type: ignore[method-assign]
        stage.pump.flush()
        while deadlines:
            await asyncio.sleep(0)
        assert len(asked) == 2

    run(main)


def test_a_blocked_loop_is_noticed(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        stage = Stage(options=PumpOptions(late_ms=1_000))
        time_s = stage.loop.time
        due = time_s() + 1.0
        monkeypatch.setattr(stage.engine, "next_deadline", lambda: due)
        stage.pump.flush()
        monkeypatch.setattr(stage.engine, "next_deadline", lambda: None)
        monkeypatch.setattr(stage.loop, "time", lambda: time_s() + 4.0)
        while not caplog.records:
            await asyncio.sleep(0)

    with caplog.at_level(logging.WARNING, logger="acquit.transport"):
        run(main)
    assert "the event loop was blocked for 3.0 s: heartbeats to 10.0.0.1:5 were not sent meanwhile" in caplog.text


def test_what_is_due_when_it_is_asked_for_is_not_late(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a close is, of a connection that has been idle: no word of a blocked loop."""

    async def main() -> None:
        stage = Stage(options=PumpOptions(late_ms=1_000))
        told: list[float] = []

        def handle_deadline(now: float) -> list[Event]:
            told.append(now)
            return []

        monkeypatch.setattr(stage.engine, "handle_deadline", handle_deadline)
        monkeypatch.setattr(stage.engine, "next_deadline", lambda: None if told else stage.loop.time() - 3.0)
        stage.pump.flush()
        while not told:
            await asyncio.sleep(0)

    with caplog.at_level(logging.WARNING, logger="acquit.transport"):
        run(main)
    assert not caplog.records


def test_no_timer_outlives_the_socket() -> None:
    async def main() -> None:
        stage = Stage()
        stage.pump.connection_lost(None)
        timers = [handle for handle in stage.loop._scheduled if not handle.cancelled()]  # type: ignore[attr-defined]
        assert timers == []

    run(main)


# -- small things ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["write_buffer_bytes", "output_bytes_max", "linger_ms", "late_ms"])
def test_a_bound_of_nothing_is_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match=f"{name} must be at least 1, got 0"):
        PumpOptions(**{name: 0})


@pytest.mark.parametrize(
    ("address", "name"),
    [
        (("127.0.0.1", 5672), "127.0.0.1:5672"),
        (("::1", 5672, 0, 0), "[::1]:5672"),
        ("/run/socket", "/run/socket"),
        ("", "?"),
        (None, "?"),
    ],
)
def test_addresses_as_people_write_them(address: object, name: str) -> None:
    assert endpoint_name(address) == name


def test_events_of_a_server_reach_its_handler() -> None:
    async def main() -> None:
        stage = Stage(opened=False)
        recorder = Recorder()
        pump = Pump(stage.peer, recorder)
        wire = Wire()
        wire.protocol = pump
        pump.connection_made(wire)
        stage.engine.open()
        pump.data_received(stage.engine.data_to_send())
        assert kinds(recorder.events) == [ConnectionOpened.__name__]
        assert SaslInitiated.__name__ not in kinds(recorder.events)

    run(main)


def begins(count: int) -> bytes:
    return b"".join(encode_frame(at, encode_composite(Begin(None, 0, 9, 9))) for at in range(count))


def test_connections_take_turns_each_with_as_much_as_a_turn_may_cost() -> None:
    """Whoever sends a thousand times as much is served no more in a turn of the loop, and whoever comes meanwhile is
    served in the next one."""

    async def main() -> None:
        greedy, modest = (Stage(turn_cost_max=1_000) for _ in range(2))
        cost = FRAME_COSTS[Begin]
        greedy.pump.data_received(begins(200))
        served = [len(greedy.handler.events)]
        assert greedy.wire.calls[-1] == "pause_reading"
        for _ in range(10):
            before = len(modest.handler.events)
            modest.pump.data_received(encode_frame(before, encode_composite(Begin(None, 0, 9, 9))))
            assert len(modest.handler.events) == before + 1  # at once, whatever waits elsewhere
            await asyncio.sleep(0)
            served.append(len(greedy.handler.events))
        turns = [now - then for then, now in pairwise(served)]
        assert all(0 < turn * cost <= 1_000 + cost for turn in turns)
        while greedy.engine.input_waits:
            await asyncio.sleep(0)
        assert len(greedy.handler.events) == 201  # the open, too
        assert greedy.wire.calls.count("pause_reading") == greedy.wire.calls.count("resume_reading") == 1
        assert "pause_reading" not in modest.wire.calls

    run(main)


def test_input_that_waits_is_given_up_with_a_socket_that_is_cut_off() -> None:
    async def main() -> None:
        stage = Stage(turn_cost_max=1_000)
        stage.pump.data_received(begins(200))
        stage.pump.connection_lost(None)
        heard = len(stage.handler.events)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert len(stage.handler.events) == heard
        assert isinstance(stage.handler.events[-1], ConnectionEnded)
        assert stage.handler.calls[-1] == "closed"

    run(main)


def test_what_came_before_a_socket_failed_is_heard_in_turns() -> None:
    """What the engine has, and what only the kernel has."""

    async def main() -> None:
        stage = Stage(turn_cost_max=1_000)
        ours, theirs = socket.socketpair()
        with ours, theirs:
            ours.setblocking(False)
            stage.wire.socket = ours
            stage.pump.connection_made(stage.wire)
            both = begins(200)
            stage.pump.data_received(both[:1_001])
            assert stage.engine.input_waits
            theirs.send(both[1_001:])
            heard = [len(stage.handler.events)]
            stage.pump.connection_lost(ConnectionResetError())
        while "closed" not in stage.handler.calls:
            heard.append(len(stage.handler.events))
            assert stage.pump.closed
            await asyncio.sleep(0)
        cost = FRAME_COSTS[Begin]
        assert all(0 < (now - then) * cost <= 1_000 + cost for then, now in pairwise(heard))
        assert len(stage.handler.events) == 202  # the open and the end, too
        assert isinstance(stage.handler.events[-1], ConnectionEnded)
        assert stage.handler.calls[-1] == "closed"

    run(main)


@pytest.mark.parametrize("failure", [None, ConnectionResetError()])
def test_nothing_is_to_be_produced_for_a_socket_that_is_gone(failure: Exception | None) -> None:
    """Its handler hears so at once, and of the rest and the end when it is their turn."""

    async def main() -> None:
        exit_ = Turnstile(asyncio.get_running_loop(), 1)
        exit_.enter(lambda: None)
        stage = Stage(turn_cost_max=1_000, exit_=exit_)
        stage.pump.data_received(begins(200))
        stage.handler.calls.clear()
        stage.pump.connection_lost(failure)
        assert stage.handler.calls == [False]
        assert not stage.pump.writable
        while "closed" not in stage.handler.calls:
            await asyncio.sleep(0)
        assert stage.handler.calls.count(False) == 1

    run(main)


def test_what_came_before_an_abort_is_not_heard_although_a_write_had_failed() -> None:
    async def main() -> None:
        exit_ = Turnstile(asyncio.get_running_loop(), 1)
        exit_.enter(lambda: None)
        before, meanwhile, waiting = (Stage(turn_cost_max=1_000, exit_=one) for one in (None, None, exit_))
        for stage in (before, meanwhile, waiting):
            stage.pump.data_received(begins(200))
        before.pump.abort()
        heard = len(before.handler.events)
        before.pump.connection_lost(ConnectionResetError())
        assert len(before.handler.events) == heard + 1
        meanwhile.pump.connection_lost(ConnectionResetError())
        waiting.pump.connection_lost(ConnectionResetError())
        for stage in (meanwhile, waiting):
            heard = len(stage.handler.events)
            stage.pump.abort()
            while "closed" not in stage.handler.calls:
                await asyncio.sleep(0)
            assert len(stage.handler.events) == heard + 1
        for stage in (before, meanwhile, waiting):
            assert isinstance(stage.handler.events[-1], ConnectionEnded)
            assert stage.handler.calls[-1] == "closed"

    run(main)


def test_of_sockets_that_failed_at_once_a_few_are_heard_in_each_round() -> None:
    async def main() -> None:
        stages = [Stage(turn_cost_max=1_000, exit_=exit_) for exit_ in [Turnstile(asyncio.get_running_loop(), 2)] * 7]
        for stage in stages:
            stage.pump.data_received(begins(200))
        heard = [[len(stage.handler.events) for stage in stages]]
        for stage in stages:
            stage.pump.connection_lost(ConnectionResetError())
        while not all("closed" in stage.handler.calls for stage in stages):
            await asyncio.sleep(0)
            heard.append([len(stage.handler.events) for stage in stages])
        assert all(len(stage.handler.events) == 202 for stage in stages)
        rounds = [sum(now > then for then, now in zip(*two, strict=True)) for two in pairwise(heard[1:])]
        assert max(rounds) <= 2

    run(main)


def test_whatever_fails_as_a_socket_is_lost_the_end_is_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(transport: asyncio.BaseTransport) -> bytes:
        raise MemoryError

    monkeypatch.setattr(module, "unread", fail)

    async def main() -> None:
        stage = Stage()
        with pytest.raises(MemoryError):
            stage.pump.connection_lost(ConnectionResetError())
        assert isinstance(stage.handler.events[-1], ConnectionEnded)
        assert stage.handler.calls[-1] == "closed"

    run(main)


def test_a_handler_that_fails_at_the_rest_hears_of_the_end() -> None:
    async def main() -> None:
        stage = Stage(turn_cost_max=1_000)
        stage.pump.data_received(begins(200))

        def fail(event: Event) -> None:
            if not isinstance(event, ConnectionEnded):
                raise ZeroDivisionError

        stage.handler.act = fail
        with pytest.raises(ZeroDivisionError):
            stage.pump.connection_lost(ConnectionResetError())
        assert isinstance(stage.handler.events[-1], ConnectionEnded)
        assert stage.handler.calls[-1] == "closed"

    run(main)


def test_a_peer_that_does_not_read_stays_paused_when_its_input_is_used_up() -> None:
    async def main() -> None:
        stage = Stage(turn_cost_max=1_000, options=PumpOptions(output_bytes_max=1))
        stage.pump.pause_writing()
        stage.pump.data_received(begins(20))
        while stage.engine.input_waits:
            await asyncio.sleep(0)
        assert stage.wire.calls.count("resume_reading") == 0
        stage.pump.resume_writing()
        assert stage.wire.calls[-1] == "resume_reading"

    run(main)


def test_of_sockets_that_end_at_once_a_few_are_seen_to_in_each_round() -> None:
    """Each end is heard of once, in the order in which they came; what the peer was told before has left."""

    async def main() -> None:
        exit_ = Turnstile(asyncio.get_running_loop(), 2)
        stages = [Stage(exit_=exit_) for _ in range(7)]
        stages[0].engine.begin()
        for stage in stages:
            stage.pump.eof_received()
            stage.pump.connection_lost(None)
        assert len(stages[0].wire.written) == 1
        over = [sum("closed" in stage.handler.calls for stage in stages)]
        while over[-1] < 7:
            await asyncio.sleep(0)
            over.append(sum("closed" in stage.handler.calls for stage in stages))
            assert ["closed" in stage.handler.calls for stage in stages] == [at < over[-1] for at in range(7)]
        assert max(now - then for then, now in pairwise(over)) <= 2
        for stage in stages:
            assert [type(event) for event in stage.handler.events[1:]] == [ConnectionEnded]
            assert stage.handler.calls[-1] == "closed"

    run(main)


def test_a_peer_that_sends_no_more_and_reads_nothing_is_cut_off() -> None:
    async def main() -> None:
        exit_ = Turnstile(asyncio.get_running_loop(), 1)
        exit_.enter(lambda: None)
        stage = Stage(options=PumpOptions(linger_ms=1), exit_=exit_)
        stage.pump.eof_received()
        assert len(stage.handler.events) == 1
        while "abort" not in stage.wire.calls:  # the socket is not over by itself
            await asyncio.sleep(0)
        assert isinstance(stage.handler.events[-1], ConnectionEnded)

    run(main)
