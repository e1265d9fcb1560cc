"""Requests and replies on asyncio: over a rig where the order of things matters, against our broker else."""

# ruff: noqa: SIM117 -- who is inside of whom is what these tests are about

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any, cast

import pytest

import acquit
from acquit import Message, aio, errors
from acquit.client import requests
from acquit.client.aio import KINDS
from acquit.client.driver import Driver
from acquit.client.requests import Requester
from acquit.protocol.constants import ACCEPTED
from acquit.protocol.definitions import Error, Rejected
from acquit.protocol.types import Byte, ULong
from acquit.testing import Proxy
from tests.support.server import Rig, RigDriver, Server

LONG = 30.0
SOON = 0.01


def run(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(LONG):
            await main()

    asyncio.run(limited())


async def until(what: Callable[[], bool]) -> None:
    while not what():
        await asyncio.sleep(0.001)


class Stage:
    """A requester of "q" with the fixed reply address "r", over a rig."""

    def __init__(self, server: Server | None = None, mode: str = "auto") -> None:
        self.rig = Rig(server)
        self.rig.core.kinds = KINDS
        self.session = aio.Session(self.rig.session(mode), cast(Driver, RigDriver(self.rig)))
        self.requester: Requester

    @classmethod
    async def open(cls, server: Server | None = None, mode: str = "auto") -> Stage:
        stage = cls(server, mode)
        stage.requester = await stage.session.requester("q", reply_to="r")
        return stage

    def start(self, message: Message | str = "x", timeout: float = LONG) -> asyncio.Task[aio.ReceivedMessage]:
        return asyncio.create_task(self.requester.request(message, timeout=timeout))

    async def asked(self, count: int = 1) -> list[Message]:
        """The requests that the server has taken."""
        while len(self.rig.server.taken) < count:
            await asyncio.sleep(0)
            self.rig.run()
        return [Message.decode(delivery.payload) for delivery in self.rig.server.taken]

    def reply(self, *replies: Message) -> None:
        self.rig.server.offer("r", *replies)
        self.rig.run()


# -- the request -------------------------------------------------------------------------------------------------------


def test_a_request_says_where_its_reply_goes_and_what_it_is_called() -> None:
    async def main() -> None:
        stage = await Stage.open()
        task = stage.start(Message("x", subject="s"))
        (request,) = await stage.asked()
        assert (request.reply_to, request.subject, request.body) == ("r", "s", "x")
        assert request.correlation_id == request.message_id is not None
        kind = request.annotations["x-opt-jms-reply-to"]
        assert (kind, type(kind)) == (0, Byte)
        assert stage.requester.pending == 1
        stage.reply(Message("y", correlation_id=request.correlation_id))
        assert (await task).body == "y"
        assert stage.requester.pending == 0

    run(main)


@pytest.mark.parametrize(
    ("given", "named"),
    [
        (Message("x", correlation_id="c"), ("c", "c")),
        (Message("x", message_id=ULong(7)), (7, 7)),
        (Message("x", correlation_id="c", message_id="m"), ("m", "c")),
    ],
)
def test_ids_that_it_has_are_kept_and_the_message_is_not_changed(given: Message, named: tuple[object, object]) -> None:
    async def main() -> None:
        before = given.encode()
        stage = await Stage.open()
        task = stage.start(given)
        (request,) = await stage.asked()
        assert (request.message_id, request.correlation_id) == named
        stage.reply(Message("y", correlation_id=request.correlation_id))
        await task
        assert given.encode() == before

    run(main)


def test_two_requests_of_one_correlation_id_cannot_wait_at_once() -> None:
    async def main() -> None:
        stage = await Stage.open()
        first = stage.start(Message("x", correlation_id="c"))
        await stage.asked()
        with pytest.raises(errors.LocalProtocolError, match="correlation id 'c' waits already"):
            await stage.requester.request(Message("x", correlation_id="c"))
        # A uuid, a number or bytes that look like it are others.
        other = stage.start(Message("x", correlation_id=b"c"))
        await stage.asked(2)
        stage.reply(Message("bytes", correlation_id=b"c"), Message("text", correlation_id="c"))
        assert ((await first).body, (await other).body) == ("text", "bytes")
        again = stage.start(Message("x", correlation_id="c"))
        await stage.asked(3)
        stage.reply(Message("again", correlation_id="c"))
        assert (await again).body == "again"

    run(main)


def test_one_message_can_be_many_requests() -> None:
    async def main() -> None:
        stage = await Stage.open()
        message = Message("x")
        tasks = [stage.start(message) for _ in range(50)]
        asked = await stage.asked(50)
        assert len({request.correlation_id for request in asked}) == 50
        for number, request in enumerate(reversed(asked)):
            stage.reply(Message(number, correlation_id=request.correlation_id))
        assert [reply.body for reply in await asyncio.gather(*tasks)] == [*range(49, -1, -1)]

    run(main)


def test_a_received_message_can_be_passed_on_as_a_request() -> None:
    async def main() -> None:
        stage = await Stage.open()
        receiver = await stage.session.receiver("in")
        stage.rig.server.offer("in", Message("x", delivery_count=3, subject="s", delivery_annotations={"x-opt-d": 1}))
        stage.rig.run()
        received = await receiver.receive(LONG)
        assert received is not None
        task = stage.start(received)
        (request,) = await stage.asked()
        assert (request.body, request.subject, request.reply_to) == ("x", "s", "r")
        assert (request.delivery_count, request.delivery_annotations) == (0, {})
        task.cancel()

    run(main)


# -- what does not come back -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("credit", "verdict", "accepted", "said"),
    [
        (100, ACCEPTED, True, "the request was accepted"),
        (100, None, None, "its outcome was not heard"),
        (0, ACCEPTED, False, "the request never left"),
    ],
)
def test_a_timeout_says_what_became_of_the_request(
    credit: int, verdict: object, accepted: bool | None, said: str
) -> None:
    async def main() -> None:
        server = Server(credit=credit)
        server.verdict = lambda delivery: verdict  # type: ignore[assignment,return-value]
        stage = await Stage.open(server)
        with pytest.raises(errors.RequestTimeout, match=f"no reply from 'q' within 0.5 s: {said}") as raised:
            await stage.requester.request("x", timeout=0.5)
        assert raised.value.accepted is accepted
        assert raised.value.correlation_id is not None
        assert stage.requester.pending == 0
        # And it does not leave behind our back.
        for link in server.connection.links(requests_link()):
            link.grant(100)
        stage.rig.run()
        assert len(server.taken) == (0 if credit == 0 else 1)

    run(main)


def requests_link() -> type:
    from acquit.protocol.link import ReceivingLink

    return ReceivingLink


def test_no_room_in_the_outgoing_buffer_is_a_timeout_as_well() -> None:
    async def main() -> None:
        stage = await Stage.open(Server(credit=0))
        tasks = [stage.start("x" * 1024 * 1024, timeout=LONG) for _ in range(16)]
        await asyncio.sleep(0)
        with pytest.raises(errors.RequestTimeout) as raised:
            await stage.requester.request("x", timeout=SOON)
        assert raised.value.accepted is False
        for task in tasks:
            task.cancel()

    run(main)


def test_a_late_reply_is_dropped_and_counted() -> None:
    async def main() -> None:
        stage = await Stage.open()
        with pytest.raises(errors.RequestTimeout) as raised:
            await stage.requester.request("x", timeout=SOON)
        stage.reply(Message("late", correlation_id=raised.value.correlation_id))  # type: ignore[arg-type]
        task = stage.start()
        request = (await stage.asked(2))[1]
        stage.reply(*[Message("twice", correlation_id=request.correlation_id) for _ in range(2)])
        assert (await task).body == "twice"
        assert (stage.requester.late_replies, stage.requester.unknown_replies) == (2, 0)

    run(main)


def test_replies_to_nothing_are_dropped_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        stage = await Stage.open()
        stage.reply(Message("no id"), Message("unknown", correlation_id="who?"))
        stage.rig.server.queues["r"].append(b"\x00\x53\x73\xc0\x03\x01\x50\x01")  # its message id is a ubyte
        stage.reply()
        assert (stage.requester.late_replies, stage.requester.unknown_replies) == (0, 3)
        assert stage.rig.server.queues["r"] == stage.rig.server.queues["nothing"]

    run(main)
    assert "correlation id 'who?': no request of it" in caplog.text
    assert "cannot be read" in caplog.text


def test_what_is_remembered_of_requests_that_ended_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        monkeypatch.setattr(requests, "ENDED_MAX", 1)
        stage = await Stage.open()
        for name in ("a", "b"):
            with pytest.raises(errors.RequestTimeout):
                await stage.requester.request(Message("x", correlation_id=name), timeout=SOON)
        stage.reply(Message("late", correlation_id="a"), Message("late", correlation_id="b"))
        assert (stage.requester.late_replies, stage.requester.unknown_replies) == (1, 1)

    run(main)


def test_a_request_that_is_not_accepted_is_an_error_at_once() -> None:
    async def main() -> None:
        server = Server()
        server.verdict = lambda delivery: Rejected(Error("amqp:not-allowed", "no such service"))
        stage = await Stage.open(server)
        with pytest.raises(errors.MessageRejected, match="no such service"):
            await stage.requester.request("x", timeout=LONG)
        assert stage.requester.pending == 0
        await stage.requester.close()

    run(main)


@pytest.mark.parametrize("mode", ["auto", "client", "individual", "dups_ok", "no_ack", "pre_ack"])
def test_replies_are_accepted_in_every_mode_and_credit_comes_back(mode: str) -> None:
    async def main() -> None:
        stage = await Stage.open(mode=mode)
        for number in range(250):
            task = stage.start()
            asked = await stage.asked(number + 1)
            stage.reply(Message("y", correlation_id=asked[-1].correlation_id), Message("stray"))
            reply = await task
            assert reply.settled
        assert stage.requester.unknown_replies == 250

    run(main)


def test_a_cancelled_request_is_taken_back_if_it_has_not_left() -> None:
    async def main() -> None:
        server = Server(credit=0)
        stage = await Stage.open(server)
        task = stage.start()
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert stage.requester.pending == 0
        for link in server.connection.links(requests_link()):
            link.grant(100)
        stage.rig.run()
        assert server.taken == []

    run(main)


# -- endings -----------------------------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def connected(url: str, **options: Any) -> AsyncIterator[aio.Connection]:
    async with aio.connect(url, options=acquit.ConnectOptions(**options)) as connection:
        yield connection


@pytest.fixture(scope="module")
def broker() -> Iterator[acquit.Broker]:
    with acquit.Broker() as broker:
        yield broker


def depth(broker: acquit.Broker, name: str) -> int:
    queue = broker.inspect().queue(name)
    return queue.depth if queue is not None else 0


@pytest.mark.parametrize("what", ["requester", "session", "connection"])
@pytest.mark.parametrize("reply_to", [None, "fixed-replies"])
def test_closing_ends_the_waits(broker: acquit.Broker, what: str, reply_to: str | None) -> None:
    async def main() -> None:
        async with connected(broker.url) as connection, connection.session() as session:
            requester = await session.requester("nobody-answers", reply_to=reply_to)
            task = asyncio.create_task(requester.request("x", timeout=LONG))
            await until(lambda: requester.pending == 1)
            await {"requester": requester, "session": session, "connection": connection}[what].close()
            with pytest.raises(errors.LinkDetached, match=r"requester of 'nobody-answers' was closed by us"):
                await task
            with pytest.raises(errors.EndpointError):
                await requester.request("x", timeout=LONG)

    run(main)


def test_a_lost_connection_that_is_not_restored_ends_the_waits(broker: acquit.Broker) -> None:
    async def main() -> None:
        with Proxy(broker.url) as proxy:
            async with connected(proxy.url, reconnect=None) as connection, connection.session() as session:
                requester = await session.requester("nobody-answers")
                task = asyncio.create_task(requester.request("x", timeout=LONG))
                await asyncio.to_thread(proxy.wait_for, "disposition", by="broker")
                proxy.cut()
                with pytest.raises(errors.ConnectionLost):
                    await task

    run(main)


def test_a_temporary_node_goes_with_the_connection_and_another_comes_with_the_next(broker: acquit.Broker) -> None:
    async def main() -> None:
        with Proxy(broker.url) as proxy:
            async with connected(proxy.url) as connection, connection.session() as session:
                requester = await session.requester("service")
                before = requester.reply_to
                task = asyncio.create_task(requester.request("x", timeout=LONG))
                await asyncio.to_thread(proxy.wait_for, "disposition", by="broker")
                proxy.cut()
                with pytest.raises(errors.ReplyAddressLost, match="the request was accepted") as raised:
                    await task
                assert raised.value.accepted is True
                # The next one waits for the connection, and names the new node.
                task = asyncio.create_task(requester.request("y", timeout=LONG))
                async with connected(broker.url) as other, other.session() as elsewhere:
                    async with elsewhere.responder("service", lambda request: request.text * 2) as responder:
                        assert (await task).text == "yy"
                        await until(lambda: responder.answered == 1 and responder.dropped == 1)
                assert requester.reply_to not in ("", before)

    run(main)


def test_a_request_that_had_not_left_is_not_sent_with_an_address_that_is_gone(broker: acquit.Broker) -> None:
    async def main() -> None:
        with Proxy(broker.url) as proxy:
            async with connected(proxy.url) as connection, connection.session() as session:
                requester = await session.requester("unseen")
                proxy.before("transfer", by="client").cut()
                with pytest.raises(errors.ReplyAddressLost) as raised:
                    await requester.request("x", timeout=LONG)
                assert raised.value.accepted is None  # it was written: the network may have taken it
                await until(lambda: requester.reply_to != "")
                assert depth(broker, "unseen") == 0

    run(main)


def test_a_fixed_reply_address_outlives_the_connection(broker: acquit.Broker) -> None:
    async def main() -> None:
        with Proxy(broker.url) as proxy:
            async with connected(proxy.url) as connection, connection.session() as session:
                requester = await session.requester("fixed", reply_to="fixed.replies")
                task = asyncio.create_task(requester.request("x", timeout=LONG))
                await asyncio.to_thread(proxy.wait_for, "disposition", by="broker")
                proxy.refuse()
                proxy.cut()
                await until(lambda: not connection.connected)
                async with connected(broker.url) as other, other.session() as elsewhere:
                    async with elsewhere.responder("fixed", lambda request: request.text * 2) as responder:
                        await until(lambda: responder.answered == 1)
                        assert not task.done()
                        proxy.accept()
                        assert (await task).text == "xx"
                        # And requests made during an interruption wait for its end.
                        proxy.cut()
                        assert (await requester.request("z", timeout=LONG)).text == "zz"

    run(main)


def test_requests_may_say_themselves_where_they_go(broker: acquit.Broker) -> None:
    async def main() -> None:
        async with connected(broker.url) as connection, connection.session() as session:
            async with (
                session.responder("one", lambda request: "of one"),
                session.responder("two", lambda request: "of two"),
                session.requester(None) as requester,
            ):
                assert requester.address is None
                replies = [await requester.request(Message("x", to=to), timeout=LONG) for to in ("two", "one")]
                assert [reply.text for reply in replies] == ["of two", "of one"]
                with pytest.raises(errors.MessageRejected):
                    await requester.request(Message("x", to="$no-such-thing"), timeout=LONG)

    run(main)


def test_all_who_hear_a_topic_may_answer_and_the_first_is_taken(broker: acquit.Broker) -> None:
    async def main() -> None:
        async with connected(broker.url) as connection, connection.session() as session:
            listeners = [await session.receiver("survey", topic=True) for _ in range(3)]
            async with session.requester("survey", topic=True) as requester, session.sender(None) as sender:
                task = asyncio.create_task(requester.request("who is there?", timeout=LONG))
                for number, listener in enumerate(listeners):
                    request = await listener.receive(LONG)
                    assert request is not None
                    await sender.send(request.make_reply(number))
                assert (await task).body == 0
                await until(lambda: requester.late_replies == 2)

    run(main)


def test_a_requester_is_not_for_transactions(broker: acquit.Broker) -> None:
    async def main() -> None:
        async with connected(broker.url) as connection, connection.session("transacted") as session:
            with pytest.raises(errors.ConfigurationError, match="TRANSACTED"):
                await session.requester("service")

    run(main)


def test_what_the_peer_refuses_leaves_no_link_behind(broker: acquit.Broker) -> None:
    async def main() -> None:
        async with connected(broker.url) as connection, connection.session() as session:
            with pytest.raises(errors.LinkDetached):
                await session.requester("$no-such-thing")
            with pytest.raises(errors.LinkDetached):
                await session.responder("$no-such-thing", lambda request: None)
            await until(lambda: not session._core.receivers)

    run(main)


# -- responders --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["auto", "client", "individual", "dups_ok", "transacted"])
def test_a_responder_answers_in_every_mode(mode: str) -> None:
    async def main() -> None:
        with acquit.Broker() as broker:
            async with connected(broker.url) as connection, connection.session(mode) as serving:
                async with connection.session() as session, session.requester("service") as requester:
                    async with serving.responder("service", handler) as responder:
                        replies = await asyncio.gather(
                            *(requester.request(f"request {n}", timeout=LONG) for n in range(120))
                        )
                        assert [reply.text for reply in replies] == [f"REQUEST {n}" for n in range(120)]
                    assert (responder.answered, responder.dropped, responder.done) == (120, 0, True)
            await until(lambda: depth(broker, "service") == 0)

    async def handler(request: aio.ReceivedMessage) -> str:
        await asyncio.sleep(0)
        return request.text.upper()

    run(main)


def test_a_handler_returns_bodies_messages_or_nothing(broker: acquit.Broker) -> None:
    answers = {
        "map": {"a": 1},
        "bytes": b"data",
        "message": Message("m", subject="s"),
        "own": Message("o", correlation_id="mine", to="elsewhere"),
        "none": None,
    }

    async def main() -> None:
        async with connected(broker.url) as connection, connection.session() as session:
            async with session.responder("various", lambda request: answers[request.text]) as responder:
                async with session.requester("various") as requester:
                    assert (await requester.request("map", timeout=LONG)).body == {"a": 1}
                    assert (await requester.request("bytes", timeout=LONG)).body == b"data"
                    reply = await requester.request("message", timeout=LONG)
                    assert (reply.body, reply.subject, reply.to) == ("m", "s", requester.reply_to)
                    for name in ("own", "none"):
                        with pytest.raises(errors.RequestTimeout):
                            await requester.request(name, timeout=0.2)
                elsewhere = await (await session.receiver("elsewhere")).receive(LONG)
                assert elsewhere is not None
                assert (elsewhere.text, elsewhere.correlation_id) == ("o", "mine")
                await until(lambda: responder.answered == 4)
                assert responder.dropped == 0
                assert answers["message"] == Message("m", subject="s")

    run(main)


def test_the_correlation_id_of_a_reply_is_the_request_s_or_its_message_id(broker: acquit.Broker) -> None:
    async def main() -> None:
        async with connected(broker.url) as connection, connection.session() as session:
            async with session.responder("named", lambda request: "y"):
                sender, replies = await session.sender("named"), await session.receiver("named.replies")
                for ids, expected in (
                    ({"message_id": "m", "correlation_id": "c"}, "c"),
                    ({"message_id": "m"}, "m"),
                    ({"message_id": ULong(1)}, ULong(1)),
                ):
                    await sender.send(Message("x", reply_to="named.replies", **ids))  # type: ignore[arg-type]
                    reply = await replies.receive(LONG)
                    assert reply is not None
                    assert reply.correlation_id == expected

    run(main)


@pytest.mark.parametrize("mode", ["auto", "individual", "transacted"])
def test_a_handler_that_raises_is_asked_again_and_at_last_it_is_a_dead_letter(
    mode: str, caplog: pytest.LogCaptureFixture
) -> None:
    attempts: Counter[str] = Counter()

    def handler(request: aio.ReceivedMessage) -> str:
        attempts[request.text] += 1
        if request.text == "never" or attempts[request.text] < 3:
            raise ValueError(request.text)
        return "at last"

    async def main() -> None:
        with acquit.Broker() as broker:
            async with connected(broker.url) as connection, connection.session(mode) as serving:
                async with connection.session() as session, session.requester("service") as requester:
                    async with serving.responder("service", handler) as responder:
                        never = asyncio.create_task(requester.request("never", timeout=LONG))
                        assert (await requester.request("third time", timeout=LONG)).text == "at last"
                        await until(lambda: depth(broker, "DLQ") == 1)
                        never.cancel()
                        assert responder.answered == 1
        assert attempts == {"third time": 3, "never": 10}

    run(main)
    assert "a request to 'service' failed: ValueError('never')" in caplog.text


def test_a_handler_may_settle_the_request_itself() -> None:
    async def refuse(request: aio.ReceivedMessage) -> str:
        await request.reject("service:nonsense", "no")
        return "refused"

    async def main() -> None:
        with acquit.Broker() as broker:
            async with connected(broker.url) as connection, connection.session("individual") as session:
                async with session.responder("service", refuse), session.requester("service") as requester:
                    assert (await requester.request("x", timeout=LONG)).text == "refused"
                await until(lambda: depth(broker, "DLQ") == 1)

    run(main)


def test_replies_that_have_nowhere_to_go_are_counted_and_the_request_is_done(broker: acquit.Broker) -> None:
    async def main() -> None:
        async with connected(broker.url) as connection, connection.session() as session:
            sender = await session.sender("homeless")
            await sender.send(Message("no reply-to"))
            async with session.receiver(None) as replies:
                gone = replies.address
            await sender.send(Message("gone", reply_to=gone))
            async with session.responder("homeless", lambda request: "y") as responder:
                await until(lambda: responder.dropped == 2)
            assert responder.answered == 0
        await until(lambda: depth(broker, "homeless") == 0)

    run(main)


def test_requests_are_handled_by_so_many_tasks_and_a_close_waits_for_them(broker: acquit.Broker) -> None:
    async def main() -> None:
        at_once, most, go_on = 0, 0, asyncio.Event()

        async def handler(request: aio.ReceivedMessage) -> str:
            nonlocal at_once, most
            at_once += 1
            most = max(most, at_once)
            await go_on.wait()
            at_once -= 1
            return "y"

        async with connected(broker.url) as connection, connection.session() as session:
            requester = await session.requester("several")
            responder = await session.responder("several", handler, concurrency=4)
            tasks = [asyncio.create_task(requester.request("x", timeout=LONG)) for _ in range(4)]
            await until(lambda: at_once == 4)
            closing = asyncio.create_task(responder.close(LONG))
            await asyncio.sleep(0)
            assert not closing.done()
            go_on.set()
            await closing
            await asyncio.gather(*tasks)
            assert (most, responder.answered) == (4, 4)
            assert await responder.wait(LONG)

    run(main)


def test_requests_of_one_transaction_are_handled_one_by_one(broker: acquit.Broker) -> None:
    async def main() -> None:
        async with connected(broker.url) as connection, connection.session("transacted") as session:
            with pytest.raises(errors.ConfigurationError, match="concurrency must be 1"):
                await session.responder("service", lambda request: None, concurrency=2)

    run(main)


def test_a_responder_of_a_connection_that_is_lost_is_asked_again() -> None:
    """Between its reply and the acknowledgement: the reply is made twice, and the requester sees one of them."""

    async def main() -> None:
        with acquit.Broker() as broker, Proxy(broker.url) as proxy:
            async with connected(broker.url) as connection, connection.session() as session:
                requester = await session.requester("service")
                async with connected(proxy.url) as other, other.session("individual") as serving:
                    proxy.before("disposition", by="client").cut()
                    async with serving.responder("service", lambda request: request.text * 2) as responder:
                        assert (await requester.request("x", timeout=LONG)).text == "xx"
                        await until(lambda: responder.answered == 2)
                    await until(lambda: requester.late_replies == 1)
            await until(lambda: depth(broker, "service") == 0)

    run(main)


# -- replies by hand ---------------------------------------------------------------------------------------------------


def test_a_reply_is_made_of_a_request(broker: acquit.Broker) -> None:
    async def main() -> None:
        async with connected(broker.url) as connection, connection.session() as session:
            async with session.requester("by-hand") as requester:
                task = asyncio.create_task(requester.request("x", timeout=LONG))
                receiver = await session.receiver("by-hand")
                request = await receiver.receive(LONG)
                assert request is not None
                with pytest.raises(errors.ConfigurationError, match="set subject there"):
                    request.make_reply(Message("y"), subject="s")
                sender = await session.sender(None)
                await sender.send(request.make_reply({"y": 1}, subject="s"))
                reply = await task
                assert (reply.body, reply.subject, reply.correlation_id) == ({"y": 1}, "s", request.correlation_id)
            await (await session.sender("by-hand")).send("no reply-to")
            request = await receiver.receive(LONG)
            assert request is not None
            with pytest.raises(errors.LocalProtocolError, match="reply-to"):
                request.make_reply("y")

    run(main)
