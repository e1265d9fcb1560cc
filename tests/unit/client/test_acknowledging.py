"""Acknowledgements that nobody waits for are bounded, by a window in the session and by the credit of the receiver."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, cast

import pytest

import acquit
from acquit import aio, errors
from acquit.client.acknowledging import Unanswered
from acquit.client.aio import KINDS
from acquit.client.core import ClientCore
from acquit.client.driver import Driver
from acquit.client.options import ConnectOptions
from acquit.client.receipts import ReceiptStatus, SettlementReceipt
from acquit.protocol import events as ev
from acquit.protocol.constants import ACCEPTED
from tests.support.server import Rig, RigDriver, Server, serving

LONG = 30.0


def run(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(LONG):
            await main()

    asyncio.run(limited())


async def turn() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


class Stage:
    """Messages that a server does not answer about, before it is told to."""

    def __init__(self, mode: str = "individual", **options: int) -> None:
        self.rig = Rig(options=ConnectOptions(**options))  # type: ignore[arg-type]  # numbers all
        self.rig.core.kinds = KINDS
        self.rig.server.answers = False
        self.session = aio.Session(self.rig.session(mode), cast(Driver, RigDriver(self.rig)))

    def offer(self, count: int) -> None:
        self.rig.server.offer("q", *(b"%d" % number for number in range(count)))
        self.rig.run()

    def answer(self, count: int) -> None:
        """The oldest that wait for an answer get it."""
        waiting = [
            delivery
            for event in self.rig.server.all(ev.StatesReceived)
            for delivery in event.deliveries
            if not delivery.settled
        ]
        self.rig.peer.sending.session.settle_all(waiting[:count], ACCEPTED)
        self.rig.run()


def in_order(count: int, capacity: int) -> tuple[Unanswered, list[SettlementReceipt]]:
    rig = Rig(options=ConnectOptions(ack_capacity=capacity))
    window = Unanswered(cast(ClientCore, rig.core))
    receipts = [SettlementReceipt(count) for _ in range(5)]
    return window, receipts


@pytest.mark.parametrize(("count", "capacity", "at"), [(1, 3, 3), (2, 5, 2), (10, 1, 0)])
def test_the_window_counts_deliveries_and_names_the_oldest(count: int, capacity: int, at: int) -> None:
    window, receipts = in_order(count, capacity)
    for number, receipt in enumerate(receipts):
        assert window.add(receipt) == (number >= at)
        assert window.in_the_way() is (receipts[0] if number >= at else None)
    receipts[1].note(ReceiptStatus.ANSWERED, count)  # out of turn: it does not count, and the oldest is the oldest
    assert window.in_the_way() is (receipts[0] if 4 * count > capacity else None)
    receipts[0].note(ReceiptStatus.ANSWERED, count)
    assert window.in_the_way() is (receipts[2] if 3 * count > capacity else None)


def test_one_that_is_never_answered_holds_up_nobody() -> None:
    window, (never, *_) = in_order(1, 3)
    window.add(never)
    for _ in range(1_000):
        receipt = SettlementReceipt(1)
        full = window.add(receipt)
        receipt.note(ReceiptStatus.ANSWERED, 1)
        assert not full or window.in_the_way() is None
    assert len(window._receipts) <= 4


def test_an_acknowledgement_beyond_the_capacity_waits_for_the_oldest() -> None:
    async def main() -> None:
        stage = Stage(ack_capacity=2)
        receiver = await stage.session.receiver("q")
        stage.offer(4)
        first, second, third, fourth = await receiver.receive_many(4)
        receipts = [await first.accept(sync=False), await second.accept(sync=False)]
        task = asyncio.create_task(third.accept(sync=False))
        await turn()
        assert not task.done()
        stage.answer(1)
        receipts.append(await task)
        assert [receipt.status for receipt in receipts] == [ReceiptStatus.ANSWERED, None, None]
        task = asyncio.create_task(stage.session.settle([fourth], ACCEPTED, sync=False))
        await turn()
        assert not task.done()
        task.cancel()  # it was said before it was waited for: nothing is lost but the receipt
        await turn()
        stage.answer(3)
        assert [state for _, state, _ in stage.rig.server.outcomes()] == [ACCEPTED] * 4
        assert [receipt.status for receipt in receipts] == [ReceiptStatus.ANSWERED] * 3

    run(main)


def test_who_waits_does_so_for_the_ack_timeout_and_then_nobody_knows() -> None:
    """The rig's time stands still, so that it is the wait that gives up, and not the receipt's own time-out."""

    async def main() -> None:
        stage = Stage(ack_capacity=1, ack_timeout_ms=20)
        receiver = await stage.session.receiver("q")
        stage.offer(3)
        receipts = [await message.accept(sync=False) for message in await receiver.receive_many(3)]
        assert [receipt.status for receipt in receipts] == [ReceiptStatus.UNKNOWN, ReceiptStatus.UNKNOWN, None]
        assert receipts[0].reason == "no answer within 20 ms"

    run(main)


def test_threads_wait_as_well() -> None:
    server = Server()
    server.answers = False
    with (
        serving(server) as running,
        acquit.connect(running.url, options=ConnectOptions(ack_capacity=1)) as connection,
    ):
        receiver = connection.session("individual").receiver("q")
        running.offer("q", b"a", b"b")
        first, second = receiver.receive(LONG), receiver.receive(LONG)
        assert first is not None and second is not None
        receipt = first.accept(sync=False)
        thread = threading.Thread(target=second.accept, kwargs={"sync": False})
        thread.start()
        assert receipt.result(0.05) is ReceiptStatus.UNKNOWN  # it is not heard of yet
        assert thread.is_alive()
        server.answers = True

        def answer() -> None:
            for event in server.all(ev.StatesReceived):
                event.link.session.settle_all([d for d in event.deliveries if not d.settled], ACCEPTED)
            server.connection.touch()

        running.call(answer)
        assert receipt.result(LONG) is ReceiptStatus.ANSWERED
        thread.join(LONG)
        assert not thread.is_alive()


def test_where_no_answer_is_granted_the_window_moves_as_frames_are_written() -> None:
    async def main() -> None:
        stage = Stage("auto", ack_capacity=1)
        receiver = await stage.session.receiver("q")
        stage.offer(5)
        listened: list[aio.Receipt] = []

        async def handle(message: aio.ReceivedMessage) -> None:
            listened.append(await message.accept(sync=False))

        async with receiver.start_listener(handle):
            await turn()
        assert [receipt.status for receipt in listened] == [ReceiptStatus.SENT] * 5

    run(main)


@pytest.mark.parametrize("prefetch", [0, 4])
def test_a_peer_that_never_answers_gets_no_credit_for_ever(prefetch: int, caplog: pytest.LogCaptureFixture) -> None:
    """Its deliveries have to be remembered: that ends at the capacity, however many receipts are given up."""

    async def main() -> None:
        stage = Stage(ack_capacity=10, ack_timeout_ms=1_000)
        receiver = await stage.session.receiver("q", prefetch=prefetch)
        stage.offer(100)
        taken = 0

        async def take_all() -> None:
            nonlocal taken
            while True:
                message = await receiver.receive(0.01)
                assert message is not None
                await message.accept(sync=False)
                taken += 1
                stage.rig.advance(1)
                stage.rig.run()

        with pytest.raises(errors.CreditExhausted, match=r"owes answers to 10 acknowledgements of .* \(ack_capacity\)"):
            await take_all()
        assert 10 <= taken <= 10 + max(1, prefetch)
        assert receiver._core.link.unsettled_count <= 10 + max(1, prefetch)
        waiting = asyncio.create_task(receiver.receive(LONG))
        await turn()
        assert not waiting.done()
        assert caplog.text.count("owes answers") == 1
        stage.answer(100)
        assert await waiting is not None  # and now it may send again

    run(main)


# -- callbacks ---------------------------------------------------------------------------------------------------------


def test_a_callback_hears_of_its_receipt_once_and_never_from_within() -> None:
    async def main() -> None:
        stage = Stage()
        receiver = await stage.session.receiver("q")
        stage.offer(1)
        message = await receiver.receive()
        assert message is not None
        receipt = await message.accept(sync=False)
        heard: list[aio.Receipt] = []
        receipt.add_done_callback(heard.append)
        await turn()
        assert heard == []
        stage.answer(1)
        assert heard == []  # the loop calls it
        await turn()
        assert heard == [receipt]
        receipt.add_done_callback(heard.append)
        assert heard == [receipt]
        await turn()
        assert heard == [receipt, receipt]

    run(main)


def test_a_callback_of_a_send_hears_of_failures_as_well() -> None:
    async def main() -> None:
        stage = Stage()
        stage.rig.server.verdict = lambda delivery: None
        sender = await stage.session.sender("q")
        receipt = await sender.send(b"x", wait=False)
        heard: list[type[Exception]] = []

        def note(done: aio.SendReceipt) -> None:
            try:
                done.value()
            except errors.AcquitError as error:
                heard.append(type(error))

        receipt.add_done_callback(note)
        await turn()
        stage.rig.cut()
        await turn()
        assert heard == [errors.DeliveryInDoubt]

    run(main)


def test_what_a_callback_raises_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        stage = Stage()
        sender = await stage.session.sender("q")
        receipt = await sender.send(b"x", wait=False)

        def fail(done: aio.SendReceipt) -> None:
            raise ValueError("of the callback")

        receipt.add_done_callback(fail)
        await receipt
        await turn()
        assert "a callback of <SendReceipt accepted> failed" in caplog.text
        assert "ValueError: of the callback" in caplog.text

    run(main)


def test_callbacks_of_threads_have_a_thread_of_their_own_and_may_use_the_client() -> None:
    with serving(Server()) as running, acquit.connect(running.url) as connection:
        session = connection.session("individual")
        sender, receiver = session.sender("q"), session.receiver("q")
        running.offer("q", b"a")
        message = receiver.receive(LONG)
        assert message is not None
        heard: list[tuple[str, object]] = []
        done = threading.Semaphore(0)

        def note(receipt: acquit.SendReceipt | acquit.Receipt) -> None:
            heard.append((threading.current_thread().name, receipt))
            sender.send(b"from the callback")  # waits
            done.release()

        sent = sender.send(b"x", wait=False)
        sent.add_done_callback(note)
        acknowledged = message.accept()
        acknowledged.add_done_callback(note)  # it has ended
        for _ in range(2):
            assert done.acquire(timeout=LONG)
        assert sorted(heard, key=str) == sorted(
            [("acquit callbacks", sent), ("acquit callbacks", acknowledged)], key=str
        )
        assert running.server.bodies() == [b"x", b"from the callback", b"from the callback"]


def test_a_receipt_that_ends_between_the_two_steps_calls_back_once() -> None:
    """The loop side ends it while a thread is leaving its callback."""
    for _ in range(200):
        receipt = acquit.Receipt(1)
        heard: list[acquit.Receipt] = []
        called = threading.Semaphore(0)

        def note(
            done: acquit.Receipt, heard: list[acquit.Receipt] = heard, called: threading.Semaphore = called
        ) -> None:
            heard.append(done)
            called.release()

        ending = threading.Thread(target=receipt.note, args=(ReceiptStatus.SENT, 1))
        ending.start()
        receipt.add_done_callback(note)
        ending.join()
        assert called.acquire(timeout=LONG)
        last = threading.Event()
        other = acquit.Receipt(0)
        other.add_done_callback(lambda _, last=last: last.set())  # type: ignore[misc]  # bound now
        assert last.wait(LONG)  # whatever was to be called before has been
        assert heard == [receipt]
