"""The asyncio API: waiting, cancelling and closing, over a rig where the order of things matters, over sockets else."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from typing import Any, cast

import pytest

import acquit
from acquit import Reconnect, Subscription, aio, errors
from acquit.client.aio import KINDS
from acquit.client.driver import Driver
from acquit.client.modes import AckMode
from acquit.client.options import ConnectOptions
from acquit.client.receipts import ReceiptStatus
from acquit.protocol import events as ev
from acquit.protocol.constants import ACCEPTED, RELEASED
from acquit.protocol.definitions import Accepted, Discharge, Error, Modified, Rejected, Released
from acquit.protocol.message import Message
from tests.support.server import Rig, RigDriver, Server, serve

LONG = 30.0
"""Seconds after which a test that hangs fails."""
SOON = 0.01
"""Seconds to wait for what will not come."""
LEFT_BY = 0.5
"""Seconds until which a message has left, on a busy machine."""


def run(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(LONG):
            await main()

    asyncio.run(limited())


async def turn() -> None:
    """Let every task run until it waits."""
    for _ in range(5):
        await asyncio.sleep(0)


class Stage:
    """An asyncio session over a rig."""

    def __init__(self, mode: str = "individual", server: Server | None = None) -> None:
        self.rig = Rig(server)
        self.rig.core.kinds = KINDS
        self.driver = cast(Driver, RigDriver(self.rig))
        self.session = aio.Session(self.rig.session(mode), self.driver)

    def offer(self, *bodies: bytes) -> None:
        self.rig.server.offer("q", *bodies)
        self.rig.run()


def body(message: aio.ReceivedMessage | None) -> object:
    assert message is not None
    return message.body


# -- receive -----------------------------------------------------------------------------------------------------------


def test_receive_returns_what_is_there_and_none_at_the_timeout() -> None:
    async def main() -> None:
        stage = Stage()
        receiver = await stage.session.receiver("q")
        stage.offer(b"a", b"b")
        assert body(await receiver.receive()) == b"a"
        assert body(await receiver.receive(timeout=0)) == b"b"
        assert await receiver.receive(timeout=0) is None
        assert await receiver.receive(timeout=0) is None
        assert await receiver.receive(timeout=SOON) is None

    run(main)


@pytest.mark.parametrize("mode", ["auto", "individual", "no_ack"])
def test_nothing_is_handed_out_or_sent_on_another_loop(mode: str) -> None:
    """Neither is it lost: who asks on the right one has it."""

    async def main() -> None:
        with acquit.Broker() as broker:
            async with aio.connect(broker.url) as connection, connection.session(mode) as session:
                sender, receiver = await session.sender("q"), await session.receiver("q")
                await sender.send("one")
                while not receiver._core.buffer:
                    await asyncio.sleep(SOON)

                async def elsewhere() -> None:
                    for ask in (
                        receiver.receive,
                        receiver.__anext__,
                        lambda: receiver.listen(print),
                        lambda: sender.send("two", wait=False),
                    ):
                        with pytest.raises(errors.LocalProtocolError, match="another event loop"):
                            await ask()
                    with pytest.raises(errors.LocalProtocolError, match="another event loop"):
                        receiver.start_listener(print)

                await asyncio.to_thread(asyncio.run, elsewhere())
                assert body(await receiver.receive(LONG)) == "one"
                assert await receiver.receive(0.1) is None

    run(main)


def test_receive_waits() -> None:
    async def main() -> None:
        stage = Stage()
        receiver = await stage.session.receiver("q")
        waiting = [asyncio.create_task(receiver.receive(timeout)) for timeout in (None, LONG)]
        await turn()
        stage.offer(b"a")
        await turn()
        assert [task.done() for task in waiting] == [True, False]  # first come, first served
        stage.offer(b"b")
        assert [body(await task) for task in waiting] == [b"a", b"b"]

    run(main)


def test_receive_many_takes_what_is_there() -> None:
    async def main() -> None:
        stage = Stage()
        receiver = await stage.session.receiver("q")
        stage.offer(b"a", b"b", b"c")
        assert [m.body for m in await receiver.receive_many(2)] == [b"a", b"b"]
        assert [m.body for m in await receiver.receive_many(9)] == [b"c"]
        assert await receiver.receive_many(9, timeout=SOON) == []
        waiting = asyncio.create_task(receiver.receive_many(9))
        await turn()
        stage.offer(b"d", b"e")
        assert [m.body for m in await waiting] == [b"d", b"e"]
        with pytest.raises(errors.ConfigurationError, match="max_messages"):
            await receiver.receive_many(0)

    run(main)


def test_who_waits_without_a_timeout_is_freed_by_an_acknowledgement() -> None:
    async def main() -> None:
        stage = Stage("individual")
        receiver = await stage.session.receiver("q", prefetch=1)
        stage.offer(b"a", b"b")
        message = await receiver.receive()
        assert message is not None
        waiting = asyncio.create_task(receiver.receive())
        await turn()
        await message.accept(sync=False)
        stage.rig.run()
        assert body(await waiting) == b"b"

    run(main)


@pytest.mark.parametrize("end", ["lost", "closed"])
def test_every_wait_ends_when_nothing_will_come(end: str) -> None:
    async def main() -> None:
        stage = Stage()
        receiver = await stage.session.receiver("q")
        waiting = [asyncio.create_task(receiver.receive(timeout)) for timeout in (None, LONG)]
        await turn()
        if end == "lost":
            stage.rig.cut()
        else:
            await receiver.close()
        for task in waiting:
            with pytest.raises(errors.ConnectionLost if end == "lost" else errors.LinkDetached):
                await task
        with pytest.raises(errors.EndpointError):
            await receiver.receive(0)

    run(main)


# -- one at a time -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [0, 1, 3])
def test_who_waits_goes_on_waiting_over_somebody_else_s_drain(count: int) -> None:
    async def main() -> None:
        stage = Stage()
        receiver = await stage.session.receiver("q", prefetch=3)
        kept = []
        for number in range(count):  # with all of them held there is no credit to drain
            stage.offer(b"%d" % number)
            kept.append(await receiver.receive())
        waiting = asyncio.create_task(receiver.receive())
        await turn()
        assert await receiver.drain(LONG)
        for message in kept:
            assert message is not None
            await message.accept()
        stage.offer(b"a")
        assert body(await waiting) == b"a"

    run(main)


# -- iterating and listening -------------------------------------------------------------------------------------------


def test_iteration_goes_on_until_the_receiver_is_closed() -> None:
    async def main() -> None:
        stage = Stage()
        receiver = await stage.session.receiver("q")
        seen = []

        async def consume() -> str:
            async for message in receiver:
                seen.append(message.body)
                await message.accept()
            return "ended"

        consumer = asyncio.create_task(consume())
        for letter in (b"a", b"b"):
            await turn()
            stage.offer(letter)
        await turn()
        assert not consumer.done()
        await receiver.close()
        assert await consumer == "ended"
        assert seen == [b"a", b"b"]

    run(main)


def test_iteration_does_not_end_silently_when_something_failed() -> None:
    async def main() -> None:
        stage = Stage()
        receiver = await stage.session.receiver("q")

        async def consume() -> None:
            async for _ in receiver:
                pass

        consumer = asyncio.create_task(consume())
        await turn()
        stage.rig.peer.sending.detach(Error("amqp:resource-deleted", "gone"))
        stage.rig.run()
        with pytest.raises(errors.ResourceDeleted, match="gone"):
            await consumer

    run(main)


@pytest.mark.parametrize("coroutine", [True, False])
def test_listening_accepts_what_was_handled_and_gives_back_what_failed(
    coroutine: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        stage = Stage("auto")
        receiver = await stage.session.receiver("q")

        def handle(message: aio.ReceivedMessage) -> None:
            if message.body == b"bad":
                raise ValueError("bad")

        async def handle_later(message: aio.ReceivedMessage) -> None:
            await asyncio.sleep(0)
            if message.body == b"own":
                await message.reject("amqp:not-allowed")
            handle(message)

        listening = asyncio.create_task(receiver.listen(handle_later if coroutine else handle))
        stage.offer(b"good", b"bad", b"own", b"good")
        await turn()
        await turn()
        stage.rig.run()
        assert [outcome for _, outcome, _ in stage.rig.server.outcomes()] == [
            Accepted(),
            Modified(delivery_failed=True),
            Rejected(Error("amqp:not-allowed")) if coroutine else Accepted(),
            Accepted(),
        ]
        await receiver.close()
        await listening
        assert "ValueError: bad" in caplog.text

    run(main)


def test_listening_raises_what_ends_it() -> None:
    async def main() -> None:
        stage = Stage("auto")
        receiver = await stage.session.receiver("q")
        listening = asyncio.create_task(receiver.listen(lambda message: None))
        await turn()
        stage.rig.cut()
        with pytest.raises(errors.ConnectionLost):
            await listening

    run(main)


# -- sending -----------------------------------------------------------------------------------------------------------


def test_send_ends_in_accepted_or_raises() -> None:
    async def main() -> None:
        stage = Stage()
        sender = await stage.session.sender("q")
        assert await sender.send(b"x") == Accepted()
        stage.rig.server.verdict = lambda delivery: Rejected(Error("amqp:not-allowed", "no"))
        with pytest.raises(errors.MessageRejected, match="no"):
            await sender.send(b"x")

    run(main)


def test_receipts_are_asked_or_awaited() -> None:
    async def main() -> None:
        stage = Stage()
        sender = await stage.session.sender("q")
        receipts = [await sender.send(str(number), wait=False) for number in range(3)]
        assert [receipt.done for receipt in receipts] == [False] * 3
        stage.rig.run()
        assert await receipts[0] == await receipts[1].result() == Accepted()
        assert receipts[2].outcome == Accepted()
        assert stage.rig.server.bodies() == ["0", "1", "2"]

    run(main)


def test_a_receipt_that_is_not_there_in_time_is_in_doubt_and_may_still_come() -> None:
    async def main() -> None:
        stage = Stage()
        stage.rig.server.verdict = lambda delivery: None
        sender = await stage.session.sender("q")
        receipt = await sender.send(b"x", wait=False)
        stage.rig.run()
        with pytest.raises(errors.DeliveryInDoubt, match=r"no outcome within 0.01 s"):
            await receipt.result(SOON)
        stage.rig.server.taken[0].settle(ACCEPTED)
        stage.rig.run()
        assert await receipt.result() == Accepted()

    run(main)


def test_a_send_without_credit_is_known_not_to_have_left() -> None:
    async def main() -> None:
        stage = Stage(server=Server(credit=0))
        sender = await stage.session.sender("q")
        with pytest.raises(errors.NotSent, match="the message never left"):
            await sender.send(b"x", timeout=SOON)
        stage.rig.peer.receiving.grant(5)
        stage.rig.run()
        assert stage.rig.server.taken == []

    run(main)


def test_a_send_without_an_answer_is_in_doubt() -> None:
    async def main() -> None:
        stage = Stage()
        stage.rig.server.verdict = lambda delivery: None
        sender = await stage.session.sender("q")
        sending = asyncio.create_task(sender.send(b"x", timeout=LEFT_BY))
        await turn()
        stage.rig.run()
        with pytest.raises(errors.DeliveryInDoubt, match=f"no outcome within {LEFT_BY} s"):
            await sending
        assert len(stage.rig.server.taken) == 1

    run(main)


def test_a_full_buffer_makes_send_wait() -> None:
    async def main() -> None:
        stage = Stage(server=Server(credit=0))
        sender = await stage.session.sender("q", buffer_messages=2)
        for _ in range(2):
            await sender.send(b"x", wait=False)
        with pytest.raises(errors.NotSent, match="the outgoing buffer of the sender to 'q' had no room within 0.01 s"):
            await sender.send(b"x", wait=False, timeout=SOON)
        waiting = asyncio.create_task(sender.send(b"late", wait=False))
        await turn()
        assert not waiting.done()
        stage.rig.peer.receiving.grant(5)
        stage.rig.run()
        receipt = await waiting
        stage.rig.run()
        assert await receipt == Accepted()
        assert stage.rig.server.bodies() == [b"x", b"x", b"late"]

    run(main)


def test_a_send_that_waited_for_room_is_measured_again_as_the_peer_may_be_another() -> None:
    async def main() -> None:
        stage = Stage(server=Server(credit=0))
        stage.rig.core._reconnect = Reconnect()  # as the driver of a connection with failover has it
        sender = await stage.session.sender("q", buffer_messages=1)
        await sender.send(b"x", wait=False)
        waiting = asyncio.create_task(sender.send(b"y" * 2_000, wait=False))
        await turn()
        stage.rig.cut()
        stage.rig.server.credit = 5
        stage.rig.restore(max_message_size=1_000)
        with pytest.raises(errors.MessageTooLarge, match=r"has 20\d\d bytes, the sender to 'q' takes at most 1000"):
            await waiting
        assert await sender.send(b"z") == Accepted()
        assert stage.rig.server.bodies() == [b"x", b"z"]

    run(main)


def test_a_full_buffer_does_not_outlive_its_link() -> None:
    async def main() -> None:
        stage = Stage(server=Server(credit=0))
        sender = await stage.session.sender("q", buffer_messages=1)
        await sender.send(b"x", wait=False)
        waiting = asyncio.create_task(sender.send(b"y", wait=False))
        await turn()
        stage.rig.cut()
        with pytest.raises(errors.ConnectionLost):
            await waiting

    run(main)


def test_flush_waits_for_all_and_tells_the_first_failure_once() -> None:
    async def main() -> None:
        stage = Stage()
        stage.rig.server.verdict = lambda delivery: (
            Rejected(Error("amqp:not-allowed")) if Message.decode(delivery.payload).body == "bad" else ACCEPTED
        )
        sender = await stage.session.sender("q")
        for text in ("good", "bad", "good"):
            await sender.send(text, wait=False)
        with pytest.raises(errors.MessageRejected):
            await sender.flush()
        await sender.flush()

    run(main)


def test_flush_in_doubt() -> None:
    async def main() -> None:
        stage = Stage()
        stage.rig.server.verdict = lambda delivery: None
        sender = await stage.session.sender("q")
        await sender.send(b"x", wait=False)
        with pytest.raises(errors.DeliveryInDoubt, match="no outcome within"):
            await sender.flush(SOON)

    run(main)


# -- acknowledging -----------------------------------------------------------------------------------------------------


def test_without_sync_there_is_a_receipt_to_await() -> None:
    async def main() -> None:
        stage = Stage()
        receiver = await stage.session.receiver("q")
        stage.offer(b"a", b"b", b"c", b"d")
        a, b, c, d = await receiver.receive_many(4)
        receipts = [
            await a.accept(sync=False),
            await b.reject("amqp:decode-error", "no", sync=False),
            await c.release(sync=False),
            await d.modify(delivery_failed=True, undeliverable_here=True, annotations={"x-opt-a": 1}, sync=False),
        ]
        assert await receipts[0].result(0) is ReceiptStatus.UNKNOWN  # for now
        stage.rig.run()
        assert [await receipt for receipt in receipts] == [ReceiptStatus.ANSWERED] * 4
        assert [outcome for _, outcome, _ in stage.rig.server.outcomes()] == [
            Accepted(),
            Rejected(Error("amqp:decode-error", "no")),
            Released(),
            Modified(True, True, {"x-opt-a": 1}),
        ]

    run(main)


def test_a_session_settles_many_at_once_and_recovers() -> None:
    async def main() -> None:
        stage = Stage()
        receiver = await stage.session.receiver("q")
        stage.offer(b"a", b"b", b"c")
        messages = await receiver.receive_many(3)
        receipt = await stage.session.settle(messages[:2], RELEASED, sync=False)
        assert await stage.session.recover() == 1
        stage.rig.run()
        assert (receipt.status, receipt.count) == (ReceiptStatus.ANSWERED, 2)
        assert body(await receiver.receive()) == b"c"
        acknowledged = await stage.session.acknowledge(sync=False)
        assert acknowledged.count == 1

    run(main)


# -- drain and refresh -------------------------------------------------------------------------------------------------


def test_drain_and_refresh() -> None:
    async def main() -> None:
        stage = Stage()
        receiver = await stage.session.receiver("q", prefetch=5)
        stage.rig.server.offer("q", b"a")
        assert await receiver.drain(LONG)
        assert body(await receiver.receive(0)) == b"a"
        stage.rig.peer.sending.offer(7)
        assert await receiver.refresh(LONG)
        assert receiver.available == 7
        stage.rig.server.drains = False
        await receiver.receive(0)  # which grants credit again
        assert not await receiver.drain(SOON)

    run(main)


# -- opening and closing, over sockets ---------------------------------------------------------------------------------


def test_a_day_in_the_life() -> None:
    async def main() -> None:
        server = Server(properties={"product": "test"}, capabilities=("a",))
        async with serve(server) as where, aio.connect(f"amqp://{where}", container_id="me") as connection:
            assert (connection.container_id, connection.remote_container_id) == ("me", "server")
            assert connection.remote_properties == {"product": "test"}
            assert connection.remote_capabilities == ("a",)
            async with connection.session(AckMode.CLIENT) as session:
                assert session.mode is AckMode.CLIENT
                async with session.sender("out") as sender, session.receiver("in") as receiver:
                    assert (sender.address, receiver.address) == ("out", "in")
                    assert await sender.send(b"hello") == Accepted()
                    server.offer("in", b"one", b"two")
                    message = await receiver.receive(LONG)
                    assert body(message) == b"one"
                    assert (await session.acknowledge()).status is ReceiptStatus.ANSWERED
                    assert sender.remote_properties == receiver.remote_properties == {}
            assert not connection.closed
        assert connection.closed
        assert server.outcomes() == [(b"one", Accepted(), False), (b"two", Released(), False)]
        (ended,) = server.all(ev.ConnectionEnded)
        assert (ended.lost, ended.error) == (False, None)

    run(main)


def test_our_name_and_product_are_told() -> None:
    async def main() -> None:
        server = Server()
        async with serve(server) as where, aio.connect(f"amqp://{where}", options=ConnectOptions(properties={"p": 1})):
            opened = server.connection.engine.remote_open
            assert opened is not None
            assert opened.container_id.startswith("acquit-")
            assert opened.hostname == "127.0.0.1"
            assert opened.properties is not None
            assert (opened.properties["product"], opened.properties["p"]) == ("acquit", 1)
            assert opened.desired_capabilities == ("acquit:durable-settlement",)

    run(main)


def test_closing_waits_for_what_is_under_way() -> None:
    async def main() -> None:
        server = Server()
        async with serve(server) as where:
            async with aio.connect(f"amqp://{where}") as connection, connection.session() as session:
                sender = await session.sender("q")
                receipts = [await sender.send(str(number), wait=False) for number in range(500)]
            assert [receipt.outcome for receipt in receipts] == [Accepted()] * 500

    run(main)


def test_closing_gives_up_what_gets_no_answer_in_time() -> None:
    async def main() -> None:
        server = Server(credit=1)
        server.verdict = lambda delivery: None
        async with serve(server) as where, aio.connect(f"amqp://{where}") as connection:
            session = await connection.session()
            sender = await session.sender("q")
            sent = await sender.send(b"x", wait=False)
            while not server.taken:
                await asyncio.sleep(0)
            server.credit = 0
            await sender.close(SOON)
            with pytest.raises(errors.DeliveryInDoubt):
                await sent
            with pytest.raises(errors.LinkDetached):
                await sender.send(b"y")

    run(main)


async def receiver_of(session: aio.Session) -> None:
    await (await session.receiver("r")).receive()


def test_closing_twice_and_after_the_loss_is_fine() -> None:
    async def main() -> None:
        server = Server()
        async with serve(server) as where:
            connection = await aio.connect(f"amqp://{where}", options=ConnectOptions(reconnect=None))
            session = await connection.session()
            sender, receiver = await session.sender("p"), await session.receiver("q")
            for _ in range(2):
                await receiver.close()
                await sender.close()
            pump = server.connection.pump
            assert pump is not None
            pump.abort()
            with pytest.raises(errors.ConnectionLost):
                await receiver_of(session)
            for _ in range(2):
                await session.close()
                await connection.close()
            assert connection.closed
            with pytest.raises(errors.ConnectionLost):
                await connection.session()

    run(main)


def test_a_receiver_closed_for_itself_leaves_the_session() -> None:
    async def main() -> None:
        server = Server()
        async with serve(server) as where, aio.connect(f"amqp://{where}") as connection:
            session = await connection.session("individual")
            receiver = await session.receiver("q")
            server.offer("q", b"a", b"b")
            message = await receiver.receive(LONG)
            await receiver.close()
            assert [outcome for _, outcome, _ in server.outcomes()] == [Released(), Modified(delivery_failed=True)]
            assert message is not None
            with pytest.raises(errors.AlreadySettled):
                await message.accept()
            await session.receiver("q")

    run(main)


def test_a_peer_that_never_answers_an_attach() -> None:
    async def main() -> None:
        server = Server()
        server.silent = True
        options = ConnectOptions(answer_timeout_ms=10)
        async with serve(server) as where, aio.connect(f"amqp://{where}", options=options) as connection:
            session = await connection.session()
            with pytest.raises(
                errors.LinkDetached, match="did not answer the attach of the sender to 'q' within 0.01 s"
            ):
                await session.sender("q")

    run(main)


# -- what cannot be ----------------------------------------------------------------------------------------------------


def test_forgetting_to_await_is_explained() -> None:
    async def main() -> None:
        with pytest.raises(AttributeError, match=r"no 'session': connect\(...\) must be awaited first"):
            aio.connect("amqp://localhost").session()  # type: ignore[attr-defined]
        stage = Stage()
        with pytest.raises(AttributeError, match=r"no 'send': session.sender\(...\) must be awaited first"):
            stage.session.sender("q").send(b"x")  # type: ignore[attr-defined]

    run(main)


# -- transactions, and acknowledging in advance ------------------------------------------------------------------------


def test_a_transacted_session_of_a_peer_without_transactions_is_refused() -> None:
    async def main() -> None:
        server = Server()
        server.refusals[""] = Error("amqp:not-implemented", "no transactions here")
        async with serve(server) as where, aio.connect(f"amqp://{where}") as connection:
            with pytest.raises(errors.LinkDetached, match="no transactions here"):
                await connection.session("transacted")
            async with connection.session() as session:
                await (await session.sender("q")).send("x")

    run(main)


def test_a_transaction_block_commits_or_rolls_back() -> None:
    async def main() -> None:
        server = Server()
        async with (
            serve(server) as where,
            aio.connect(f"amqp://{where}") as connection,
            connection.session("transacted") as session,
        ):
            sender = await session.sender("q")
            async with session.transaction():
                assert await sender.send("x") == ACCEPTED
            with contextlib.suppress(ZeroDivisionError):
                async with session.transaction():
                    receipt = await sender.send("y", wait=False)
                    raise ZeroDivisionError
            with pytest.raises(errors.TransactionRolledBack):
                await receipt.result()
            await sender.send("z")
        assert [request.fail for request in server.controlled if isinstance(request, Discharge)] == [False, True, True]

    run(main)


def test_a_commit_that_is_not_answered_in_time_is_in_doubt() -> None:
    async def main() -> None:
        server = Server()
        server.commits = lambda discharge: None
        async with serve(server) as where, aio.connect(f"amqp://{where}") as connection:
            session = await connection.session("transacted")
            sender = await session.sender("q")
            await sender.send("x")
            with pytest.raises(errors.TransactionInDoubt, match="within 0.01 s") as doubt:
                await session.commit(timeout=SOON)
            assert doubt.value.txn_id == b"txn-1"
            server.commits = lambda discharge: ACCEPTED
            await sender.send("y")
            await session.commit()

    run(main)


@pytest.mark.parametrize("work", [False, True])
@pytest.mark.parametrize("earlier", ["committed", "rolled back", "in doubt", "a rollback"])
def test_a_commit_tells_of_the_one_before_that_was_cancelled(earlier: str, work: bool) -> None:
    """And is none where that failed: what its error says of the work since is true, and a loop repeats that once."""

    async def main() -> None:
        server = Server()
        answers = {"rolled back": Rejected(Error("amqp:transaction:rollback")), "in doubt": None}
        server.commits = lambda discharge: answers.get(earlier, ACCEPTED)
        async with serve(server) as where, aio.connect(f"amqp://{where}") as connection:
            session = await connection.session("transacted")
            sender = await session.sender("q")
            await sender.send("first")
            await cancelled(session.rollback() if earlier == "a rollback" else session.commit())
            if work:
                await sender.send("second", wait=False)
            error = errors.TransactionInDoubt if earlier == "in doubt" else errors.TransactionRolledBack
            if earlier in ("committed", "a rollback"):
                await session.commit()
            elif work:
                with pytest.raises(errors.TransactionRolledBack, match="the commit before it failed") as raised:
                    await session.commit(SOON)
                assert type(raised.value.__cause__) is error
            else:
                with pytest.raises(error) as told:
                    await session.commit(SOON)
                assert told.value.txn_id == b"txn-1"
            server.commits = lambda discharge: ACCEPTED
            await sender.send("third")
            await session.commit()
        ends = [(request.txn_id, request.fail) for request in server.controlled if isinstance(request, Discharge)]
        failed = earlier not in ("committed", "a rollback")
        second = [(b"txn-2", failed)] if work else []
        last = b"txn-3" if work else b"txn-2"
        assert ends == [(b"txn-1", earlier == "a rollback"), *second, (last, False)]

    run(main)


@pytest.mark.parametrize(("end", "why"), [("commit", "cancelled while it waited"), ("rollback", "by us")])
def test_an_end_that_is_cancelled_before_it_begins_is_a_rollback(end: str, why: str) -> None:
    """It waits for a commit before it that nobody waited for; its work is no part of the commit after it."""

    async def main() -> None:
        server = Server()
        server.commits = lambda discharge: None
        async with serve(server) as where, aio.connect(f"amqp://{where}") as connection:
            session = await connection.session("transacted")
            sender = await session.sender("q")
            await sender.send("first")
            await cancelled(session.commit())
            await sender.send("second", wait=False)
            await cancelled(session.commit() if end == "commit" else session.rollback())
            with pytest.raises(errors.TransactionRolledBack, match=why):
                await session.commit(SOON)
        ends = [(request.txn_id, request.fail) for request in server.controlled if isinstance(request, Discharge)]
        assert ends == [(b"txn-1", False)], "the second was never begun at the peer"

    run(main)


def test_a_rollback_takes_the_place_of_a_commit_that_was_cancelled() -> None:
    async def main() -> None:
        server = Server()
        server.commits = lambda discharge: Rejected(Error("amqp:transaction:rollback"))
        async with serve(server) as where, aio.connect(f"amqp://{where}") as connection:
            session = await connection.session("transacted")
            sender = await session.sender("q")
            await sender.send("first")
            await cancelled(session.commit())
            await session.rollback()
            server.commits = lambda discharge: ACCEPTED
            await sender.send("second")
            await session.commit()

    run(main)


def test_a_subscription_is_not_called_gone_where_its_session_is_closed_first() -> None:
    async def main(url: str) -> None:
        gone = Subscription(name="monthly")
        async with aio.connect(url, container_id="reader") as connection:
            session = await connection.session()
            await (await session.receiver("news", topic=True, subscription=gone)).close()
            asked = asyncio.create_task(session.unsubscribe(gone))
            await asyncio.sleep(0)
            await session.close()
            with pytest.raises(errors.SessionEnded):
                await asked
            await (await connection.session()).unsubscribe(gone)  # it was still there

    with acquit.Broker() as broker:
        asyncio.run(main(broker.url))


@pytest.mark.parametrize("shared", [False, True])
def test_a_subscription_that_its_own_session_receives_from_is_locked(shared: bool) -> None:
    """The removal needs the name of the link, which is in use there; the broker says the same to another session."""

    async def main(url: str) -> None:
        held = Subscription(name="held", shared=shared)
        async with aio.connect(url, container_id="reader") as connection:
            session, other = await connection.session(), await connection.session()
            receiver = await session.receiver("news", topic=True, subscription=held)
            for one in (session, other):
                with pytest.raises(errors.ResourceLocked) as locked:
                    await one.unsubscribe(held)
                assert locked.value.condition == "amqp:resource-locked"
                assert ("close that first" in str(locked.value)) is (one is session)
            await receiver.close()
            await session.unsubscribe(held)

    with acquit.Broker() as broker:
        asyncio.run(main(broker.url))


async def cancelled(operation: Coroutine[Any, Any, object]) -> None:
    """Cancel an operation that has been asked for and is not answered."""
    task = asyncio.create_task(operation)
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_an_outcome_in_a_transaction_does_not_wait_for_the_commit() -> None:
    """Its receipt ends when it is written, also where that had to wait for the transaction to be declared."""

    async def main() -> None:
        server = Server()
        server.offer("q", "x")
        async with serve(server) as where, aio.connect(f"amqp://{where}") as connection:
            session = await connection.session("transacted")
            message = await (await session.receiver("q")).receive(LONG)
            assert message is not None
            assert (await message.reject()).status is ReceiptStatus.SENT
            await session.commit()

    run(main)
