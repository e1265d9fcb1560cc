"""Started listeners: on tasks over a rig, where the order of things matters, and on threads over sockets."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, cast

import pytest

import acquit
from acquit import aio, errors
from acquit.client.aio import KINDS
from acquit.client.driver import Driver
from acquit.client.listening import ListeningCore
from acquit.client.options import ConnectOptions
from acquit.protocol.constants import ACCEPTED
from acquit.protocol.definitions import Accepted, Error, Modified, Rejected, Released
from tests.support.server import Rig, RigDriver, Server, ThreadedServer, serving

LONG = 30.0
SOON = 0.01
FAILED = Modified(delivery_failed=True)


def run(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(LONG):
            await main()

    asyncio.run(limited())


async def turn() -> None:
    """Let every task run until it waits."""
    for _ in range(8):
        await asyncio.sleep(0)


class Stage:
    """An asyncio session over a rig, with a handler that waits for each message to be let go."""

    def __init__(self, mode: str = "auto") -> None:
        self.rig = Rig()
        self.rig.core.kinds = KINDS
        self.session = aio.Session(self.rig.session(mode), cast(Driver, RigDriver(self.rig)))
        self.begun: list[object] = []
        self.ended: list[object] = []
        self.go = asyncio.Event()

    def offer(self, *bodies: bytes) -> None:
        self.rig.server.offer("q", *bodies)
        self.rig.run()

    @property
    def said(self) -> list[tuple[object, object]]:
        self.rig.run()
        return [(body, state) for body, state, _ in self.rig.server.outcomes()]

    async def handle(self, message: aio.ReceivedMessage) -> None:
        self.begun.append(message.body)
        await self.go.wait()
        self.ended.append(message.body)


# -- the life of a listener --------------------------------------------------------------------------------------------


def test_a_listener_runs_beside_the_program_in_the_order_of_its_receiver() -> None:
    async def main() -> None:
        stage = Stage()
        receiver = await stage.session.receiver("q")
        listener = receiver.start_listener(stage.handle)
        stage.offer(b"a", b"b", b"c")
        await turn()
        assert (stage.begun, listener.done) == ([b"a"], False)
        stage.go.set()
        await turn()
        assert stage.ended == [b"a", b"b", b"c"]
        assert stage.said == [(b"a", ACCEPTED), (b"b", ACCEPTED), (b"c", ACCEPTED)]
        assert await listener.stop()
        assert listener.done
        assert await listener.wait()
        assert await listener.stop()  # again does no harm

    run(main)


@pytest.mark.parametrize("concurrency", [2, 3, 10])
def test_so_many_handlers_run_at_a_time(concurrency: int) -> None:
    async def main() -> None:
        stage = Stage()
        receiver = await stage.session.receiver("q")
        async with receiver.start_listener(stage.handle, concurrency):
            stage.offer(*(bytes([97 + n]) for n in range(6)))
            await turn()
            assert len(stage.begun) == min(concurrency, 6)
            stage.go.set()
            await turn()
            assert len(stage.ended) == 6

    run(main)


@pytest.mark.parametrize("concurrency", [0, 10_001, True, "2"])
def test_a_concurrency_that_makes_no_sense(concurrency: int) -> None:
    async def main() -> None:
        receiver = await Stage().session.receiver("q")
        with pytest.raises(errors.ConfigurationError, match="concurrency must be a whole number from 1 to 10000"):
            receiver.start_listener(print, concurrency)

    run(main)


def test_a_stop_hands_out_nothing_more_and_says_the_outcome_of_what_was_under_way() -> None:
    async def main() -> None:
        stage = Stage()
        receiver = await stage.session.receiver("q")
        listener = receiver.start_listener(stage.handle, concurrency=2)
        stage.offer(b"a", b"b", b"c")
        await turn()
        assert not await listener.stop(SOON)  # two handlers are busy
        assert not listener.done
        stage.offer(b"d")
        stage.go.set()
        assert await listener.stop()
        assert stage.ended == [b"a", b"b"]
        assert [state for _, state, _ in stage.rig.server.outcomes()] == [ACCEPTED] * 2  # without another turn
        assert [message.body for message in await receiver.receive_many(9)] == [b"c", b"d"]

    run(main)


@pytest.mark.parametrize("prefetch", [0, 1, 10])
def test_what_a_listener_leaves_is_there_for_the_next(prefetch: int) -> None:
    async def main() -> None:
        stage = Stage()
        stage.go.set()
        receiver = await stage.session.receiver("q", prefetch=prefetch)
        first = receiver.start_listener(stage.handle)
        stage.offer(b"a")
        await turn()
        await first.stop()
        stage.offer(b"b")
        await turn()
        assert stage.ended == [b"a"]
        async with receiver.start_listener(stage.handle):
            await turn()
        assert stage.ended == [b"a", b"b"]

    run(main)


def test_with_prefetch_zero_a_stopped_listener_takes_its_credit_back() -> None:
    async def main() -> None:
        stage = Stage()
        receiver = await stage.session.receiver("q", prefetch=0)
        listener = receiver.start_listener(stage.handle, concurrency=3)
        await turn()
        assert stage.rig.peer.sending.credit == 3
        await listener.stop()
        await turn()
        assert stage.rig.peer.sending.credit == 0

    run(main)


def test_a_listener_that_waits_goes_on_after_a_drain() -> None:
    async def main() -> None:
        stage = Stage()
        stage.go.set()
        receiver = await stage.session.receiver("q", prefetch=10)
        async with receiver.start_listener(stage.handle):
            await turn()
            assert await receiver.drain(LONG)
            stage.offer(b"a", b"b", b"c")
            await turn()
            assert stage.ended == [b"a", b"b", b"c"]

    run(main)


def test_a_stop_that_is_cancelled_goes_on() -> None:
    async def main() -> None:
        stage = Stage()
        receiver = await stage.session.receiver("q")
        listener = receiver.start_listener(stage.handle)
        stage.offer(b"a", b"b")
        await turn()
        stopping = asyncio.create_task(listener.stop())
        await turn()
        stopping.cancel()
        await turn()
        stage.go.set()
        assert await listener.wait()
        assert stage.ended == [b"a"]

    run(main)


def test_a_handler_stops_its_own_listener_without_waiting_for_itself() -> None:
    async def main() -> None:
        stage = Stage()
        receiver = await stage.session.receiver("q")
        answers: list[bool] = []

        async def handle(message: aio.ReceivedMessage) -> None:
            answers.append(await listener.stop())
            with pytest.raises(errors.LocalProtocolError, match="cannot wait for the end of its own listener"):
                await listener.wait()

        listener = receiver.start_listener(handle)
        stage.offer(b"a", b"b")
        assert await listener.wait(LONG)
        assert answers == [False]
        assert stage.said == [(b"a", ACCEPTED)]

    run(main)


def test_a_listener_that_nobody_keeps_goes_on() -> None:
    async def main() -> None:
        stage = Stage()
        receiver = await stage.session.receiver("q")

        async def forget(message: aio.ReceivedMessage) -> None:
            await asyncio.Event().wait()  # which nobody else knows

        listener = weakref.ref(receiver.start_listener(forget))
        stage.offer(b"a")
        await turn()
        gc.collect()
        assert listener() is not None
        assert len(receiver._core.listeners) == 1

    run(main)


def test_who_waits_may_have_enough_of_it() -> None:
    async def main() -> None:
        receiver = await Stage().session.receiver("q")
        listener = receiver.start_listener(print)
        assert not await listener.wait(SOON)
        await listener.stop()

    run(main)


# -- ends --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["receiver", "session"])
def test_closing_stops_the_listener_first_and_gives_back_what_it_never_had(what: str) -> None:
    async def main() -> None:
        stage = Stage()
        receiver = await stage.session.receiver("q")
        listener = receiver.start_listener(stage.handle)
        stage.offer(b"a", b"b")
        await turn()
        closing = asyncio.create_task((receiver if what == "receiver" else stage.session).close(LONG))
        await turn()
        assert not closing.done()
        stage.go.set()
        await closing
        assert await listener.wait()  # nobody failed
        assert stage.said == [(b"a", ACCEPTED), (b"b", Released())]

    run(main)


def test_closing_waits_for_the_handler_of_a_lent_task_as_well() -> None:
    async def main() -> None:
        stage = Stage()
        receiver = await stage.session.receiver("q")
        listening = asyncio.create_task(receiver.listen(stage.handle))
        stage.offer(b"a", b"b")
        await turn()
        closing = asyncio.create_task(receiver.close(LONG))
        await turn()
        assert not closing.done()
        stage.go.set()
        await closing
        await listening
        assert stage.said == [(b"a", ACCEPTED), (b"b", Released())]
        await receiver.listen(stage.handle)  # it is closed: that is the end

    run(main)


@pytest.mark.parametrize("prefetch", [0, 10])
def test_who_lends_a_task_that_waits_has_it_back_at_the_close(prefetch: int) -> None:
    async def main() -> None:
        stage = Stage()
        receiver = await stage.session.receiver("q", prefetch=prefetch)
        listening = asyncio.create_task(receiver.listen(stage.handle))
        await turn()
        await receiver.close(LONG)
        await listening
        assert receiver._core.listeners == []
        assert receiver._core._pulling == 0

    run(main)


def test_a_close_waits_for_handlers_no_longer_than_it_may(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        stage = Stage()
        receiver = await stage.session.receiver("q")
        listener = receiver.start_listener(stage.handle)
        stage.offer(b"a")
        await turn()
        await receiver.close(SOON)
        assert stage.said == [(b"a", FAILED)]
        stage.go.set()
        await listener.wait()
        assert stage.said == [(b"a", FAILED)]  # it has its outcome
        assert "a handler of the receiver from 'q' did not return before the close was over" in caplog.text

    run(main)


def test_a_handler_that_closes_its_receiver_does_not_wait_for_itself(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        stage = Stage("individual")
        receiver = await stage.session.receiver("q")

        async def handle(message: aio.ReceivedMessage) -> None:
            await message.accept()
            await receiver.close()

        listener = receiver.start_listener(handle)
        stage.offer(b"a", b"b")
        assert await listener.wait(LONG)
        assert stage.said == [(b"a", ACCEPTED), (b"b", Released())]
        assert caplog.text == ""

    run(main)


def test_an_end_that_nobody_asked_for_is_raised(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        stage = Stage()
        receiver = await stage.session.receiver("q")
        listener = receiver.start_listener(stage.handle, concurrency=3)
        await turn()
        stage.rig.peer.sending.detach(Error("amqp:resource-deleted", "gone"))
        stage.rig.run()
        with pytest.raises(errors.ResourceDeleted, match="gone"):
            await listener.wait()
        assert listener.done
        assert await listener.stop()  # says nothing of it
        assert caplog.text.count("the listener of the receiver from 'q' failed, and ends with it") == 1
        assert len(caplog.records) == 1  # not one for each worker
        with pytest.raises(errors.ResourceDeleted):
            receiver.start_listener(stage.handle)

    run(main)


def test_the_end_of_the_connection_is_raised_by_the_block() -> None:
    async def main() -> None:
        stage = Stage()
        receiver = await stage.session.receiver("q")

        async def block() -> None:
            async with receiver.start_listener(stage.handle) as listener:
                await turn()
                stage.rig.cut()
                await turn()
                assert listener.done

        with pytest.raises(errors.ConnectionLost):
            await block()

    run(main)


def test_what_a_block_raises_is_not_replaced() -> None:
    async def main() -> None:
        stage = Stage("individual")
        receiver = await stage.session.receiver("q")

        def handle(message: aio.ReceivedMessage) -> None:
            raise ValueError("of the handler")

        async def block() -> None:
            async with receiver.start_listener(handle):
                stage.offer(b"a")
                await turn()
                raise KeyError("of the block")

        with pytest.raises(KeyError, match="of the block"):
            await block()

    run(main)


def test_cancelling_all_tasks_gives_messages_back_as_failed() -> None:
    """As at the end of asyncio.run."""

    async def main() -> None:
        stage = Stage()
        receiver = await stage.session.receiver("q")
        listener = receiver.start_listener(stage.handle, concurrency=2)
        stage.offer(b"a")
        await turn()
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            if task.get_name().startswith("acquit"):
                task.cancel()
        await turn()
        assert listener.done
        with pytest.raises(asyncio.CancelledError):
            await listener.wait()
        assert stage.said == [(b"a", FAILED)]

    run(main)


def test_workers_that_wait_can_be_cancelled_as_well() -> None:
    async def main() -> None:
        receiver = await Stage().session.receiver("q")
        listener = receiver.start_listener(print, concurrency=2)
        await turn()
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            if task.get_name().startswith("acquit"):
                task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await listener.wait()
        never = receiver.start_listener(print)  # it has not begun to wait yet
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            if task.get_name().startswith("acquit"):
                task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await never.wait()

    run(main)


@pytest.mark.parametrize("how", ["begin_stop", "failed"])
def test_after_the_beginning_of_a_stop_nothing_is_taken(how: str) -> None:
    """Whatever a worker that has just looked is about to do."""
    rig = Rig()
    receiver = rig.receiver(rig.session("individual"))
    rig.server.offer("q", b"a", b"b")
    rig.run()
    listening = ListeningCore(receiver, 1)
    assert listening.take() is not None
    if how == "begin_stop":
        listening.begin_stop()
    else:
        listening.failed(ValueError("no"))
    assert listening.take() is None
    assert len(receiver.buffer) == 1


# -- failures of handlers ----------------------------------------------------------------------------------------------

AUTOMATIC = {"auto": [FAILED, ACCEPTED], "dups_ok": [FAILED, ACCEPTED], "pre_ack": [ACCEPTED, ACCEPTED]}


def fails_at_a(message: acquit.ReceivedMessage | aio.ReceivedMessage) -> None:
    if message.body == b"a":
        raise ValueError("not that one")


@pytest.mark.parametrize("mode", AUTOMATIC)
def test_in_automatic_modes_the_listening_goes_on(mode: str, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        stage = Stage(mode)
        receiver = await stage.session.receiver("q")
        async with receiver.start_listener(fails_at_a):
            stage.offer(b"a", b"b")
            await turn()
        assert [state for _, state in stage.said] == AUTOMATIC[mode]
        assert "ValueError: not that one" in caplog.text

    run(main)


def test_the_first_failure_ends_it_and_the_others_are_finished(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        stage = Stage("individual")
        receiver = await stage.session.receiver("q")

        async def handle(message: aio.ReceivedMessage) -> None:
            stage.begun.append(message.body)
            if message.body == b"a":
                await turn()
                raise ValueError("first")
            await stage.go.wait()
            await message.accept()
            raise KeyError("second")

        listener = receiver.start_listener(handle, concurrency=2)
        stage.offer(b"a", b"b", b"c")
        await turn()
        await turn()
        assert (stage.begun, listener.done) == ([b"a", b"b"], False)
        stage.go.set()
        with pytest.raises(ValueError, match="first"):
            await listener.wait()
        assert stage.said == [(b"b", ACCEPTED)]
        assert "was ending already: KeyError('second')" in caplog.text

    run(main)


def test_a_failure_of_what_was_under_way_at_a_stop_is_not_lost() -> None:
    async def main() -> None:
        stage = Stage("individual")
        receiver = await stage.session.receiver("q")

        async def handle(message: aio.ReceivedMessage) -> None:
            await stage.handle(message)
            raise ValueError("late")

        listener = receiver.start_listener(handle)
        stage.offer(b"a")
        await turn()
        assert not await listener.stop(SOON)
        stage.go.set()
        assert await listener.stop()  # which raises nothing
        with pytest.raises(ValueError, match="late"):
            await listener.wait()

    run(main)


@pytest.mark.parametrize("coroutine", [True, False])
@pytest.mark.parametrize(
    ("mode", "said"),
    [
        ("auto", [FAILED, ACCEPTED]),
        ("dups_ok", [FAILED, ACCEPTED]),
        ("pre_ack", [ACCEPTED, ACCEPTED]),
        ("individual", []),
        ("client", []),
        ("no_ack", []),
    ],
)
def test_who_deals_with_failures_hears_of_them_and_the_listening_goes_on(
    mode: str, said: list[object], coroutine: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        stage = Stage(mode)
        receiver = await stage.session.receiver("q")
        heard: list[tuple[object, str]] = []
        handled: list[object] = []

        def handle(message: aio.ReceivedMessage) -> None:
            fails_at_a(message)
            handled.append(message.body)

        def on_error(message: aio.ReceivedMessage, error: Exception) -> None:
            heard.append((message.body, str(error)))

        async def on_error_later(message: aio.ReceivedMessage, error: Exception) -> None:
            await asyncio.sleep(0)
            on_error(message, error)

        async with receiver.start_listener(handle, on_error=on_error_later if coroutine else on_error):
            stage.offer(b"a", b"b")
            await turn()
        assert (heard, handled) == ([(b"a", "not that one")], [b"b"])
        assert [state for _, state in stage.said] == said
        assert "not that one" not in caplog.text

    run(main)


def test_who_deals_with_a_failure_may_say_the_outcome() -> None:
    async def main() -> None:
        stage = Stage("auto")
        receiver = await stage.session.receiver("q")

        async def on_error(message: aio.ReceivedMessage, error: Exception) -> None:
            await message.reject("acquit:unreadable", str(error))

        async with receiver.start_listener(fails_at_a, on_error=on_error):
            stage.offer(b"a", b"b")
            await turn()
        assert stage.said == [(b"a", Rejected(Error("acquit:unreadable", "not that one"))), (b"b", ACCEPTED)]

    run(main)


def test_what_on_error_raises_ends_the_listening_in_the_modes_that_would_end() -> None:
    async def main() -> None:
        stage = Stage("individual")
        receiver = await stage.session.receiver("q")

        def on_error(message: aio.ReceivedMessage, error: Exception) -> None:
            raise KeyError("enough") from error

        listener = receiver.start_listener(fails_at_a, on_error=on_error)
        stage.offer(b"a", b"b")
        with pytest.raises(KeyError, match="enough"):
            await listener.wait()

    run(main)


# -- modes, with many handlers at a time -------------------------------------------------------------------------------


def test_in_client_mode_a_handler_acknowledges_what_the_others_have_as_well() -> None:
    async def main() -> None:
        stage = Stage("client")
        receiver = await stage.session.receiver("q")

        async def handle(message: aio.ReceivedMessage) -> None:
            stage.begun.append(message.body)
            if message.body == b"b":
                await message.acknowledge()
            await stage.go.wait()

        async with receiver.start_listener(handle, concurrency=2):
            stage.offer(b"a", b"b", b"c")
            await turn()
            assert stage.said == [(b"a", ACCEPTED), (b"b", ACCEPTED)]
            stage.go.set()

    run(main)


def test_what_dups_ok_has_gathered_is_said_when_the_listener_has_stopped() -> None:
    async def main() -> None:
        stage = Stage("dups_ok")
        stage.go.set()
        receiver = await stage.session.receiver("q")
        listener = receiver.start_listener(stage.handle)
        stage.offer(b"a", b"b")
        await turn()
        assert stage.said == []
        await listener.stop()
        assert [state for _, state, _ in stage.rig.server.outcomes()] == [ACCEPTED] * 2

    run(main)


def test_at_the_prefetch_limit_a_listener_warns(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        stage = Stage("individual")
        receiver = await stage.session.receiver("q", prefetch=2)
        kept: list[aio.ReceivedMessage] = []
        async with receiver.start_listener(kept.append):
            stage.offer(b"a", b"b", b"c")
            await turn()
            assert caplog.text.count("has handed out all of its prefetch") == 1
            for message in tuple(kept):
                await message.accept(sync=False)
            await turn()
            assert len(kept) == 3

    run(main)


def test_a_transaction_holds_what_all_handlers_have() -> None:
    async def main() -> None:
        stage = Stage("transacted")
        receiver = await stage.session.receiver("q")
        stage.go.set()
        async with receiver.start_listener(stage.handle, concurrency=2):
            stage.offer(b"a", b"b")
            await turn()
        await stage.session.commit()
        assert sorted(str(body) for body, _ in stage.said) == ["b'a'", "b'b'"]

    run(main)


# -- on threads --------------------------------------------------------------------------------------------------------


@pytest.fixture
def server() -> Iterator[ThreadedServer]:
    with serving(Server()) as running:
        yield running


@pytest.fixture
def connection(server: ThreadedServer) -> Iterator[acquit.Connection]:
    with acquit.connect(server.url, options=ConnectOptions(reconnect=None)) as connection:
        yield connection


def outcomes(server: ThreadedServer) -> list[tuple[object, object]]:
    return server.call(lambda: [(body, state) for body, state, _ in server.server.outcomes()])


class Handler:
    """Called on threads; it keeps each until `go`."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.lock = threading.Lock()
        self.names: list[str] = []
        self.begun = threading.Semaphore(0)
        self.ended: list[object] = []

    def __call__(self, message: acquit.ReceivedMessage) -> None:
        with self.lock:
            self.names.append(threading.current_thread().name)
        self.begun.release()
        assert self.go.wait(LONG)
        with self.lock:
            self.ended.append(message.body)

    def wait_for(self, count: int) -> None:
        for _ in range(count):
            assert self.begun.acquire(timeout=LONG)


@pytest.mark.parametrize("prefetch", [0, 10])
def test_handlers_have_threads_of_their_own(
    server: ThreadedServer, connection: acquit.Connection, prefetch: int
) -> None:
    handler = Handler()
    receiver = connection.session().receiver("q", prefetch=prefetch)
    with receiver.start_listener(handler, concurrency=3) as listener:
        server.offer("q", b"a", b"b", b"c", b"d")
        handler.wait_for(3)
        assert len(set(handler.names)) == 3
        assert all(name.startswith("acquit listener") for name in handler.names)
        assert not listener.wait(SOON)
        handler.go.set()
        handler.wait_for(1)
    assert sorted(handler.ended) == [b"a", b"b", b"c", b"d"]
    assert sorted(outcomes(server), key=str) == [(body, Accepted()) for body in (b"a", b"b", b"c", b"d")]
    assert listener.done


@pytest.mark.parametrize("prefetch", [0, 10])
def test_a_stop_waits_for_threads_and_leaves_the_buffer(
    server: ThreadedServer, connection: acquit.Connection, prefetch: int
) -> None:
    handler = Handler()
    receiver = connection.session().receiver("q", prefetch=prefetch)
    listener = receiver.start_listener(handler)
    server.offer("q", b"a", b"b")
    handler.wait_for(1)
    assert not listener.stop(SOON)
    handler.go.set()
    assert listener.stop()
    assert handler.ended == [b"a"]
    assert outcomes(server) == [(b"a", Accepted())]
    message = receiver.receive(LONG)
    assert message is not None and message.body == b"b"


def test_an_idle_listener_stops_at_once(connection: acquit.Connection) -> None:
    for prefetch in (0, 10):
        receiver = connection.session().receiver("q", prefetch=prefetch)
        assert receiver.start_listener(print, concurrency=4).stop(LONG)


def test_a_thread_may_stop_its_own_listener_and_close_what_it_hangs_on(
    server: ThreadedServer, connection: acquit.Connection, caplog: pytest.LogCaptureFixture
) -> None:
    session = connection.session("individual")
    receiver = session.receiver("q")
    answers: list[bool] = []

    def handle(message: acquit.ReceivedMessage) -> None:
        message.accept()
        answers.append(listener.stop())
        with pytest.raises(errors.LocalProtocolError):
            listener.wait()
        session.close()

    listener = receiver.start_listener(handle)
    server.offer("q", b"a", b"b")
    assert listener.wait(LONG)
    assert answers == [False]
    assert outcomes(server) == [(b"a", Accepted()), (b"b", Released())]
    assert "did not return" not in caplog.text


def test_closing_waits_for_the_threads(server: ThreadedServer, connection: acquit.Connection) -> None:
    handler = Handler()
    receiver = connection.session().receiver("q")
    listener = receiver.start_listener(handler)
    server.offer("q", b"a")
    handler.wait_for(1)
    closing = threading.Thread(target=receiver.close, args=(LONG,))
    closing.start()
    handler.go.set()
    closing.join(LONG)
    assert listener.wait(LONG)
    assert outcomes(server) == [(b"a", Accepted())]


@pytest.mark.parametrize("prefetch", [0, 10])
def test_closing_waits_for_the_handler_of_a_lent_thread_as_well(
    server: ThreadedServer, connection: acquit.Connection, prefetch: int
) -> None:
    handler = Handler()
    receiver = connection.session().receiver("q", prefetch=prefetch)
    lent = threading.Thread(target=receiver.listen, args=(handler,))
    lent.start()
    server.offer("q", b"a")
    handler.wait_for(1)
    closing = threading.Thread(target=receiver.close, args=(LONG,))
    closing.start()
    handler.go.set()
    for thread in (closing, lent):
        thread.join(LONG)
        assert not thread.is_alive()
    assert outcomes(server) == [(b"a", Accepted())]


def test_the_end_of_a_link_is_raised(server: ThreadedServer, connection: acquit.Connection) -> None:
    receiver = connection.session().receiver("q")
    listener = receiver.start_listener(print, concurrency=2)
    server.cut()
    with pytest.raises(errors.ConnectionLost):
        listener.wait(LONG)
    with pytest.raises(errors.ConnectionLost), listener:
        pass
    assert listener.stop()


@pytest.mark.parametrize("dealt_with", [True, False])
def test_a_failure_of_a_handler_on_a_thread(
    server: ThreadedServer, connection: acquit.Connection, dealt_with: bool
) -> None:
    receiver = connection.session("individual").receiver("q")
    second = threading.Event()

    def handle(message: acquit.ReceivedMessage) -> None:
        fails_at_a(message)
        message.accept()
        second.set()

    def on_error(message: acquit.ReceivedMessage, error: Exception) -> None:
        message.reject("acquit:unreadable", str(error))

    listener = receiver.start_listener(handle, on_error=on_error if dealt_with else None)
    server.offer("q", b"a", b"b")
    if dealt_with:
        assert second.wait(LONG)
        assert listener.stop(LONG) and listener.wait()
        assert outcomes(server) == [(b"a", Rejected(Error("acquit:unreadable", "not that one"))), (b"b", Accepted())]
    else:
        with pytest.raises(ValueError, match="not that one"):
            listener.wait(LONG)
        assert outcomes(server) == []


def test_a_system_without_threads_leaves_no_listener_behind(
    server: ThreadedServer, connection: acquit.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    receiver = connection.session().receiver("q")
    start = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if thread.name == "acquit listener 2":
            raise RuntimeError("can't start new thread")
        start(thread)

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RuntimeError, match="can't start new thread"):
            receiver.start_listener(print, concurrency=5)
    receiver.close(LONG)  # waits for the two that there were
    assert receiver._core.listeners == []


def test_pre_ack_on_a_thread_has_accepted_before(server: ThreadedServer, connection: acquit.Connection) -> None:
    receiver = connection.session("pre_ack").receiver("q")
    seen: list[list[tuple[object, object]]] = []
    done = threading.Event()

    def handle(message: acquit.ReceivedMessage) -> None:
        # What was written before this request is heard before it is answered.
        receiver.refresh(SOON)
        seen.append(outcomes(server))
        done.set()

    with receiver.start_listener(handle):
        server.offer("q", b"a")
        assert done.wait(LONG)
    assert seen == [[(b"a", Accepted())]]
