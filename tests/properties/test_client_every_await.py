"""Cancelling loses nothing: every operation is cancelled at every one of its awaits, and the account is exact.

Exact means, of what is received: each message is with the program once, in order, or has gone back, or is still to
come; each has one outcome at most. Of what is sent: each message was taken once at most, and once where `send` said so.
"""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest

from acquit import aio, errors
from acquit.client.modes import AckMode
from acquit.client.options import ConnectOptions
from acquit.client.receipts import ReceiptStatus
from acquit.client.reconnecting import Reconnect
from acquit.protocol.constants import ACCEPTED
from acquit.protocol.definitions import Discharge, Released, TransactionalState
from acquit.protocol.delivery import DeliveryState
from acquit.protocol.link import ReceivingLink, SendingLink
from acquit.protocol.message import Message
from tests.support.server import Server, serve
from tests.support.stepping import Accounted, Cut, at_every_await, numbers, turns

LONG = 30.0
MODES = [mode.name.lower() for mode in AckMode]


def body(message: aio.ReceivedMessage | None) -> object:
    assert message is not None
    return message.body


def bodies(messages: list[aio.ReceivedMessage]) -> list[object]:
    return [message.body for message in messages]


async def take_all(receiver: aio.Receiver, got: list[object], count: int) -> None:
    """What there is to come of `count`, acknowledged as the mode wants it."""
    while len(got) < count:
        message = await receiver.receive(LONG)
        assert message is not None
        got.append(message.body)
        await message.acknowledge()


# -- receiving ---------------------------------------------------------------------------------------------------------

Receive = Callable[[aio.Receiver, list[object]], Awaitable[None]]


async def receive(receiver: aio.Receiver, got: list[object]) -> None:
    message = await receiver.receive()
    assert message is not None
    got.append(message.body)


async def receive_in_time(receiver: aio.Receiver, got: list[object]) -> None:
    message = await receiver.receive(LONG)
    assert message is not None
    got.append(message.body)


async def receive_many(receiver: aio.Receiver, got: list[object]) -> None:
    got += bodies(await receiver.receive_many(3))


async def iterate(receiver: aio.Receiver, got: list[object]) -> None:
    async for message in receiver:
        got.append(message.body)
        if len(got) == 2:
            return


@pytest.mark.promise("no-lies")
@pytest.mark.parametrize("operation", [receive, receive_in_time, receive_many, iterate])
@pytest.mark.parametrize("prefetch", [0, 2, 10])
@pytest.mark.parametrize("mode", MODES)
def test_receiving(operation: Receive, prefetch: int, mode: str) -> None:
    for delay in range(4):

        async def scenario(cut: Cut, delay: int = delay) -> None:
            stage = Accounted(mode)
            receiver = await stage.session.receiver("q", prefetch=prefetch)
            stage.rig.slow = True
            stage.offer(5)
            await turns(delay)
            got: list[object] = []
            await cut(operation(receiver, got))
            if mode == "client":
                await stage.session.acknowledge(sync=False)
            elif mode == "individual":
                await stage.session.acknowledge()
            await take_all(receiver, got, 5)
            assert got == [str(number) for number in range(5)]
            await receiver.close()
            await stage.settled()
            assert receiver._core._pulling == 0
            fates = stage.fates(committed=[b"txn-1"])
            assert fates["accepted"] + fates["held"] == numbers(5)
            assert not fates["again"]
            assert (mode == "no_ack") == bool(fates["held"])

        at_every_await(scenario)


@pytest.mark.parametrize("prefetch", [0, 2])
@pytest.mark.parametrize("how", ["receive", "iterate", "listen", "listener"])
def test_who_waits_beside_one_that_is_cancelled_is_not_held_up(how: str, prefetch: int) -> None:
    """A wake-up that was for the cancelled one is passed on."""
    for delay in range(3):

        async def scenario(cut: Cut, delay: int = delay) -> None:
            stage = Accounted("auto")
            receiver = await stage.session.receiver("q", prefetch=prefetch)
            stage.rig.slow = True
            got: list[object] = []

            async def first() -> None:
                got.append(body(await receiver.receive()))

            async def other() -> None:
                match how:
                    case "receive":
                        got.append(body(await receiver.receive()))
                    case "iterate":
                        got.append(body(await anext(receiver)))
                    case "listen":
                        await receiver.listen(lambda message: got.append(message.body))
                    case _:
                        async with receiver.start_listener(lambda message: got.append(message.body)) as listener:
                            await listener.wait()

            cutting = asyncio.create_task(cut(first()))
            await turns(1)
            beside = asyncio.create_task(other())
            await turns(delay)
            stage.offer(1)
            while not got:
                await turns(1)  # one of them has it; the scenario is limited in time
            offered = 1
            while not (cutting.done() and (beside.done() or how.startswith("listen"))):  # and the other has the next
                stage.offer(1, first=offered)
                offered += 1
                await turns(20)
            await cutting
            await receiver.close()
            await beside
            assert got == [str(number) for number in range(len(got))]

        assert at_every_await(scenario) >= 1


@pytest.mark.parametrize("prefetch", [0, 2])
def test_a_receive_that_waits_for_what_never_comes(prefetch: int) -> None:
    async def scenario(cut: Cut) -> None:
        stage = Accounted("individual")
        receiver = await stage.session.receiver("q", prefetch=prefetch)
        stage.rig.slow = True
        await cut(receiver.receive(0.001))
        await stage.settled()
        assert stage.rig.peer.sending.credit == prefetch  # with 0 none is left, nor a message for nobody
        stage.offer(3)
        got: list[object] = []
        await take_all(receiver, got, 3)
        assert got == ["0", "1", "2"]

    assert at_every_await(scenario) >= (2 if prefetch == 0 else 1)


@pytest.mark.parametrize("prefetch", [0, 2, 10])
@pytest.mark.parametrize("mode", ["auto", "dups_ok", "pre_ack", "individual"])
def test_listening(mode: str, prefetch: int) -> None:
    async def scenario(cut: Cut) -> None:
        stage = Accounted(mode)
        receiver = await stage.session.receiver("q", prefetch=prefetch)
        stage.rig.slow = True
        stage.offer(4)
        begun: list[object] = []
        ended: list[object] = []

        async def handle(message: aio.ReceivedMessage) -> None:
            begun.append(message.body)
            await turns(2)
            ended.append(message.body)
            if mode == "individual":
                await message.accept()
            if len(ended) == 3:
                await message.accept() if mode == "auto" else None
                await receiver.close()

        await cut(receiver.listen(handle))
        await receiver.close()
        await stage.settled()
        assert begun == [str(number) for number in range(len(begun))]
        assert ended == begun[: len(ended)]
        fates = stage.fates()
        assert sum(fates.values(), stage.waiting()) == numbers(4)
        assert not fates["held"]
        done = Counter(ended if mode != "pre_ack" else begun)
        if mode == "dups_ok" and len(ended) == 3:
            done["2"] -= "2" not in fates["accepted"]  # its handler closed the receiver without a word on it
        assert fates["accepted"] == +done

    assert at_every_await(scenario) > 6


@pytest.mark.parametrize("what", ["stop", "wait", "block"])
@pytest.mark.parametrize("mode", ["auto", "individual"])
def test_stopping_a_listener(what: str, mode: str) -> None:
    awaits = 0
    for delay in range(0, 12, 2):

        async def scenario(cut: Cut, delay: int = delay) -> None:
            stage = Accounted(mode)
            receiver = await stage.session.receiver("q", prefetch=3)
            stage.rig.slow = True
            stage.offer(6)
            ended: list[object] = []

            async def handle(message: aio.ReceivedMessage) -> None:
                await turns(3)
                if mode == "individual":
                    await message.accept()
                ended.append(message.body)
                if what == "wait" and len(ended) > 2:
                    await listener.stop()

            async def block() -> None:
                async with listener:
                    await turns(delay)

            listener = receiver.start_listener(handle, concurrency=2)
            await turns(delay)
            await cut({"stop": listener.stop, "wait": listener.wait, "block": block}[what]())
            assert await listener.stop()
            before = list(ended)
            await turns(20)
            assert ended == before  # nobody is called any more
            got: list[object] = list(ended)
            await take_all(receiver, got, 6)
            assert sorted(map(str, got)) == [str(number) for number in range(6)]
            await receiver.close()
            await stage.settled()
            assert stage.fates()["accepted"] == numbers(6)

        awaits = max(awaits, at_every_await(scenario))
    assert awaits >= 1


@pytest.mark.parametrize("prefetch", [4, 10])
@pytest.mark.parametrize("operation", ["drain", "refresh"])
def test_asking_the_peer(operation: str, prefetch: int) -> None:
    async def scenario(cut: Cut) -> None:
        stage = Accounted("auto")
        receiver = await stage.session.receiver("q", prefetch=prefetch)
        stage.rig.slow = True
        stage.offer(3)
        await cut(getattr(receiver, operation)(LONG))
        got: list[object] = []
        await take_all(receiver, got, 3)
        stage.offer(3, first=3)
        await take_all(receiver, got, 6)
        assert got == [str(number) for number in range(6)]

    assert at_every_await(scenario) == 1


# -- acknowledging -----------------------------------------------------------------------------------------------------

Acknowledge = Callable[[aio.Session, list[aio.ReceivedMessage]], Awaitable[object]]
ACKNOWLEDGE: dict[str, Acknowledge] = {
    "session.acknowledge": lambda session, messages: session.acknowledge(),
    "session.acknowledge up to": lambda session, messages: session.acknowledge(messages[1]),
    "message.acknowledge": lambda session, messages: messages[1].acknowledge(),
    "accept": lambda session, messages: messages[1].accept(),
    "settle": lambda session, messages: session.settle(messages[:2], ACCEPTED),
    "beyond the capacity": lambda session, messages: session.settle(messages[:2], ACCEPTED, sync=False),
    "renew": lambda session, messages: messages[1].renew_lock(),
}


@pytest.mark.promise("no-lies")
@pytest.mark.parametrize("operation", ACKNOWLEDGE)
@pytest.mark.parametrize("mode", ["client", "individual"])
def test_acknowledging(mode: str, operation: str) -> None:
    async def scenario(cut: Cut) -> None:
        stage = Accounted(mode, ack_capacity=1)
        receiver = await stage.session.receiver("q")
        stage.rig.slow = True
        stage.offer(3)
        messages = [cast(aio.ReceivedMessage, await receiver.receive(LONG)) for _ in range(3)]
        await cut(ACKNOWLEDGE[operation](stage.session, messages))
        receipt = await stage.session.acknowledge()  # the rest; `fates` sees to it that nothing is said twice
        assert receipt.status in (ReceiptStatus.ANSWERED, ReceiptStatus.SENT)
        await receiver.close()
        await stage.settled()
        fates = stage.fates()
        assert (fates["accepted"], fates["again"]) == (numbers(3), Counter())
        assert not stage.session._core.handed_out

    assert at_every_await(scenario) == 1


# -- sending -----------------------------------------------------------------------------------------------------------


def check_sent(stage: Accounted, sender: aio.Sender, certain: list[str], possible: str) -> None:
    taken = [str(body) for body in stage.rig.server.bodies()]
    assert Counter(taken) - Counter([possible]) == Counter(certain)
    assert Counter(taken)[possible] <= 1
    assert [body for body in taken if body != possible] == certain  # in order
    core = sender._core
    assert (len(core.queue), core.in_flight, core._queued_bytes - core._sent_bytes) == (0, 0, 0)


@pytest.mark.promise("no-lies")
@pytest.mark.parametrize("credit", [1, 2, 100])
@pytest.mark.parametrize("full", [True, False])
@pytest.mark.parametrize("wait", [True, False])
@pytest.mark.parametrize("mode", ["auto", "transacted"])
def test_sending(mode: str, wait: bool, full: bool, credit: int) -> None:
    async def scenario(cut: Cut) -> None:
        stage = Accounted(mode, server=Server(credit=credit))
        if full:
            stage.rig.server.credit = 0
        sender = await stage.session.sender("p", buffer_messages=1)
        stage.rig.slow = True
        certain = ["before"] if full else []

        async def make_room() -> None:
            await turns(3)
            stage.rig.server.credit = credit
            for link in stage.rig.peer.links(ReceivingLink):
                link.grant(credit)
            stage.rig.run()

        if full:
            await sender.send("before", wait=False)
            room = asyncio.create_task(make_room())
        sent = await cut(sender.send("the one", wait=wait))  # type: ignore[call-overload]  # either
        if full:
            await room
        await sender.send("after")
        if mode == "transacted":
            await stage.session.commit()
        await sender.flush()
        await stage.settled()
        check_sent(stage, sender, [*certain, *(["the one"] if sent else []), "after"], "" if sent else "the one")

    assert at_every_await(scenario) >= (1 if wait or full else 0)


@pytest.mark.parametrize("operation", ["flush", "close"])
@pytest.mark.parametrize("credit", [1, 100])
def test_ending_to_send(operation: str, credit: int) -> None:
    async def scenario(cut: Cut) -> None:
        stage = Accounted("auto", server=Server(credit=credit))
        sender = await stage.session.sender("p")
        stage.rig.slow = True
        receipts = [await sender.send(str(number), wait=False) for number in range(3)]
        await cut(getattr(sender, operation)())
        await getattr(sender, operation)()
        assert [await receipt for receipt in receipts] == [ACCEPTED] * 3
        await stage.settled()
        check_sent(stage, sender, ["0", "1", "2"], "")
        assert not [link for link in stage.rig.peer.links(ReceivingLink) if operation == "close"]

    assert at_every_await(scenario) >= 1


# -- transactions ------------------------------------------------------------------------------------------------------


class Work:
    """Messages received and sent in a transaction, and which transactions the server committed."""

    def __init__(self) -> None:
        self.stage = Accounted("transacted")
        self.committed: list[bytes] = []
        self.stage.rig.server.commits = self._commit

    def _commit(self, discharge: Discharge) -> DeliveryState:
        self.committed.append(discharge.txn_id)
        return ACCEPTED

    async def begin(self) -> None:
        self.receiver = await self.stage.session.receiver("q", prefetch=2)
        self.sender = await self.stage.session.sender("p")
        self.stage.rig.slow = True
        self.stage.offer(3)
        await self.work()

    async def work(self) -> None:
        for _ in range(2):
            message = await self.receiver.receive(LONG)
            assert message is not None
            await self.sender.send(f"of {message.body}", wait=False)

    @property
    def posted(self) -> Counter[object]:
        """What the server took in transactions that it committed."""
        server = self.stage.rig.server
        return Counter(
            body
            for body, delivery in zip(server.bodies(), server.taken, strict=True)
            if isinstance(delivery.remote_state, TransactionalState) and delivery.remote_state.txn_id in self.committed
        )


@pytest.mark.promise("no-lies")
def test_a_commit() -> None:
    async def scenario(cut: Cut) -> None:
        work = Work()
        await work.begin()
        await cut(work.stage.session.commit())
        await work.stage.session.commit()  # of the same, where that was cancelled, else of nothing
        await work.stage.settled()
        assert work.posted == Counter(["of 0", "of 1"])
        assert work.stage.fates(work.committed)["accepted"] == numbers(2)
        assert len(work.committed) == 1

    assert at_every_await(scenario) >= 1


@pytest.mark.promise("no-lies")
@pytest.mark.parametrize("operation", ["rollback", "block"])
def test_a_rollback(operation: str) -> None:
    async def scenario(cut: Cut) -> None:
        work = Work()
        await work.begin()

        async def block() -> None:
            async with work.stage.session.transaction():
                raise KeyError("rolled back for this")

        try:
            await cut(work.stage.session.rollback() if operation == "rollback" else block())
        except KeyError:
            pass
        await work.stage.session.rollback()
        await work.stage.settled()
        assert work.posted == Counter()
        fates = work.stage.fates(work.committed)
        assert fates["accepted"] == Counter()
        assert fates["again"] >= numbers(2)
        work.stage.offer(2, first=10)  # and it goes on
        await work.work()
        await work.stage.session.commit()
        await work.stage.settled()
        assert len(work.committed) == 1
        assert sum(work.posted.values()) == 2

    assert at_every_await(scenario) >= 1


def test_a_transaction_s_block() -> None:
    async def scenario(cut: Cut) -> None:
        work = Work()
        await work.begin()

        async def block() -> None:
            async with work.stage.session.transaction():
                await work.sender.send("inside")

        await cut(block())
        try:
            await work.stage.session.commit()
        except errors.TransactionRolledBack:
            pytest.fail("the block had ended it")
        await work.stage.settled()
        accepted = work.stage.fates(work.committed)["accepted"]
        assert (work.posted, accepted) in (
            (Counter(["of 0", "of 1", "inside"]), numbers(2)),
            (Counter(), Counter()),  # a block that raises is rolled back, and a cancellation raises
        )
        assert len(work.committed) <= 1

    assert at_every_await(scenario) >= 2


# -- requests ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("credit", [1, 100])
def test_a_request(credit: int) -> None:
    """Who asks next gets the reply to his own question, and nobody's question was asked twice."""

    async def answer(stage: Accounted) -> None:
        answered = 0
        while True:
            for delivery in stage.rig.server.taken[answered:]:
                request = Message.decode(delivery.payload)
                reply = Message(f"re: {request.body}", correlation_id=request.correlation_id)
                stage.rig.server.offer("replies", reply)
                stage.rig.run()
                answered += 1
            await turns(1)

    async def scenario(cut: Cut) -> None:
        stage = Accounted("auto", server=Server(credit=credit))
        requester = await stage.session.requester("questions", reply_to="replies")
        stage.rig.slow = True
        answering = asyncio.create_task(answer(stage))
        first = await cut(requester.request("one", timeout=LONG))
        assert first is None or first.body == "re: one"
        assert requester.pending == 0
        assert (await requester.request("two", timeout=LONG)).body == "re: two"
        answering.cancel()
        await stage.settled()
        asked = Counter(stage.rig.server.bodies())
        assert asked["two"] == 1
        assert asked["one"] <= 1
        assert requester.unknown_replies == 0
        if not cut.woken:  # then the reply had been handed to who was cancelled
            assert requester.late_replies == asked["one"] - (first is not None)
        await requester.close()
        await stage.settled()
        assert not stage.rig.peer.links(SendingLink)

    assert at_every_await(scenario) >= 1


# -- closing -----------------------------------------------------------------------------------------------------------

GOES_BACK = {"transacted": 5, "auto": 3, "client": 5, "dups_ok": 3, "individual": 5, "pre_ack": 3}
"""Of five messages, two of which were handed out; no_ack says nothing."""


@pytest.mark.parametrize("mode", GOES_BACK)
@pytest.mark.parametrize("what", ["receiver", "session"])
@pytest.mark.parametrize("listening", [True, False])
def test_closing(what: str, mode: str, listening: bool) -> None:
    async def scenario(cut: Cut) -> None:
        stage = Accounted(mode)
        receiver = await stage.session.receiver("q")
        sender = await stage.session.sender("p")
        stage.rig.slow = True
        stage.offer(5)
        handled: list[object] = []

        async def handle(message: aio.ReceivedMessage) -> None:
            handled.append(message.body)
            await turns(6)

        if listening:
            receiver.start_listener(handle, concurrency=2)
            while len(handled) < 2:
                await turns(1)
        else:
            assert bodies([cast(aio.ReceivedMessage, await receiver.receive(LONG)) for _ in range(2)]) == ["0", "1"]
        receipt = await sender.send("sent", wait=False)
        closed = receiver if what == "receiver" else stage.session
        await cut(closed.close())
        await closed.close()
        if what == "receiver":
            await stage.session.close()
        await stage.settled()
        fates = stage.fates()
        assert len(handled) == 2 * listening
        assert fates["accepted"] + fates["again"] == numbers(5)
        assert sum(fates["again"].values()) == GOES_BACK[mode]
        assert (await receipt == ACCEPTED) if mode != "transacted" else receipt.done
        assert not stage.rig.peer.links(SendingLink)
        assert not stage.rig.core.sessions

    assert at_every_await(scenario) >= (2 if what == "session" else 1)


# -- opening -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("prefetch", [0, 2, 10])
def test_attaching_a_receiver(prefetch: int) -> None:
    async def open_one(stage: Accounted) -> None:
        async with stage.session.receiver("q", prefetch=prefetch):
            pass

    async def scenario(cut: Cut) -> None:
        stage = Accounted("individual")
        stage.offer(3)
        stage.rig.slow = True
        await cut(open_one(stage))
        await stage.settled()
        assert not stage.rig.peer.links(SendingLink)  # nothing is left that messages could go to
        assert not stage.session._core.receivers
        fates = stage.fates()
        assert not fates["accepted"]
        assert not fates["held"]
        assert fates["again"] + stage.waiting() == numbers(3)

    assert at_every_await(scenario) >= 2


def test_attaching_a_sender() -> None:
    async def open_one(stage: Accounted) -> None:
        async with stage.session.sender("p"):
            pass

    async def scenario(cut: Cut) -> None:
        stage = Accounted("auto")
        stage.rig.slow = True
        await cut(open_one(stage))
        await stage.settled()
        assert not stage.rig.peer.links(ReceivingLink)
        assert not stage.session._core.senders

    assert at_every_await(scenario) >= 2


@pytest.mark.parametrize("mode", ["auto", "transacted"])
def test_beginning_a_session(mode: str) -> None:
    async def open_one(stage: Accounted) -> None:
        async with aio.Connection(stage.driver).session(mode):
            pass

    async def scenario(cut: Cut) -> None:
        stage = Accounted("auto")
        stage.rig.slow = True
        await cut(open_one(stage))
        await stage.settled()
        assert len(stage.rig.core.sessions) == len(stage.rig.peer.engine.sessions) == 1  # the stage's own

    assert at_every_await(scenario) >= 2


@pytest.mark.parametrize("hosts", ["one", "the second"])
def test_connecting_and_closing_a_connection(hosts: str) -> None:
    async def open_one(where: str) -> None:
        urls = [f"amqp://{where}"]
        if hosts == "the second":
            with socket.socket() as free:  # nobody listens there
                free.bind(("127.0.0.1", 0))
                urls.insert(0, f"amqp://127.0.0.1:{free.getsockname()[1]}")
        async with aio.connect(urls, options=ConnectOptions(reconnect=Reconnect(first_rounds=1))) as connection:
            await connection.session()

    async def scenario(cut: Cut) -> None:
        server = Server()
        async with serve(server) as where:
            await cut(open_one(where))
            while len(server.connections) < 1 and cut.at > 4:
                await asyncio.sleep(0.001)
            for connection in server.connections:
                if connection.pump is not None and connection.pump.connected:
                    await connection.closed.wait()  # no socket is left
            await open_one(where)

    assert at_every_await(scenario) >= 4


def test_what_is_cancelled_at_an_await_is_really_cancelled_there() -> None:
    """The instrument itself: all awaits are found, in both ways, and what came just before is seen."""
    seen: list[tuple[int, bool, int]] = []

    async def scenario(cut: Cut) -> None:
        done: list[int] = []
        loop = asyncio.get_running_loop()
        future: asyncio.Future[int] = loop.create_future()

        async def operation() -> None:
            await asyncio.sleep(0)
            done.append(1)
            loop.call_soon(lambda: future.done() or future.set_result(1))  # no sooner, or nothing waits for it
            await future
            done.append(2)
            await asyncio.sleep(0)
            done.append(3)

        await cut(operation())
        assert future.cancelled() == (cut.at == 2 and not cut.woken)
        seen.append((cut.at, cut.woken, len(done)))

    assert at_every_await(scenario) == 3
    assert seen == [(at, woken, at - 1) for woken in (False, True) for at in range(1, 5)]


def test_an_operation_that_swallows_its_cancellation_is_found() -> None:
    async def scenario(cut: Cut) -> None:
        async def operation() -> Any:
            try:
                await asyncio.sleep(0)
            except asyncio.CancelledError:
                return Released()

        await cut(operation())

    with pytest.raises(AssertionError, match="swallowed its cancellation"):
        at_every_await(scenario)
