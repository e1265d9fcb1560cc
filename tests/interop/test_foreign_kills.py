"""Brokers are killed with -9 and started again on their folder, while our client works on them: nothing is lost, and
what the client says of each message is true.

The client reconnects through a proxy, which kills the broker in the very moment that a test names. Brokers are started
by the tests' own thread alone: some are made to end with the thread that started them.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

import acquit
from acquit import Accepted, AckMode, Message, ReceiptStatus, TransactionInDoubt, TransactionRolledBack
from acquit.testing import PassedFrame, Proxy
from tests.interop.all_brokers import BROKERS
from tests.interop.foreign import ForeignBroker
from tests.interop.foreign_looks import PATIENCE_S, Bench, everything, rest, take
from tests.interop.observations import Observer
from tests.support.outages import INTERRUPTED, RESTORED, Story, fast

pytestmark = pytest.mark.interop

RESTART_S = 60.0
OPTIONS = fast(reconnect={"outage_max_ms": 60_000, "delay_max_ms": 100})

with_transactions = pytest.mark.parametrize(
    "mortal_process", [name for name, kind in BROKERS.items() if kind.can.transactions], indirect=True, scope="session"
)


class Stage:
    """A broker that can be killed, and our client on it through the proxy."""

    def __init__(self, broker: ForeignBroker, proxy: Proxy, name: str) -> None:
        self.broker = broker
        self.proxy = proxy
        self.queue = broker.queue(name)
        self.marker = broker.queue(f"{name}.marker")
        self.dead = threading.Event()
        self.story = Story()
        self.connection = broker.connect(url=proxy.url, options=OPTIONS, on_event=self.story)

    def kill_and_restart(self) -> None:
        self.broker.kill()
        self.dead.set()
        self.come_back()

    def come_back(self) -> None:
        assert self.dead.wait(PATIENCE_S)
        self.broker.restart()
        self.story.wait_for(RESTORED)

    def kill(self, frame: PassedFrame) -> None:
        """For a rule of the proxy: the frame does not pass, and the broker is dead."""
        self.broker.kill()
        self.proxy.cut()
        self.dead.set()

    def bench(self) -> Bench:
        """A connection of its own, to see what there is."""
        return Bench(self.broker, self.broker.connect(), self.queue, None, self.marker)


@pytest.fixture
def stage(mortal_foreign: ForeignBroker, address: str) -> Iterator[Stage]:
    with Proxy(mortal_foreign.url) as proxy:
        stage = Stage(mortal_foreign, proxy, address)
        yield stage
        stage.connection.close()


def texts_of(left: list[tuple[object, int]]) -> list[str]:
    return [str(body) for body, _ in left]


def texts(messages: list[acquit.ReceivedMessage]) -> list[str]:
    return [str(message.body) for message in messages]


@pytest.mark.promise("at-least-once")
def test_what_was_accepted_is_there_and_what_was_not_is_sent_again(stage: Stage, observe: Observer) -> None:
    with stage.connection.session(AckMode.AUTO) as session:
        sender = session.sender(stage.queue)
        for number in range(10):
            assert sender.send(str(number)) == Accepted()
        stage.proxy.before("disposition", by="broker").call(stage.kill)
        receipts = [sender.send(str(number), wait=False) for number in range(10, 40)]
        assert stage.dead.wait(PATIENCE_S)
        assert not any(receipt.done for receipt in receipts)
        stage.come_back()
        assert [receipt.result(RESTART_S) for receipt in receipts] == [Accepted()] * 30
        with session.receiver(stage.queue, prefetch=200) as receiver:
            found = everything(receiver, [str(number) for number in range(40)])
    assert stage.story.kinds.count(INTERRUPTED) == 1
    ids: dict[str, set[object]] = {}
    for message in found:
        ids.setdefault(str(message.body), set()).add(message.message_id)
    observe("survives_kill", all(str(number) in ids for number in range(10)))
    assert sorted(ids, key=int) == [str(number) for number in range(40)]
    assert all(len(each) == 1 for each in ids.values()), "a message that is sent again keeps its id"
    twice = [body for body in ids if texts(found).count(body) > 1]
    assert all(int(body) >= 10 for body in twice)


@pytest.mark.promise("no-lies")
def test_what_was_handed_out_comes_again_and_its_receipt_is_stale(stage: Stage, observe: Observer) -> None:
    with stage.connection.session(AckMode.INDIVIDUAL) as session:
        with session.sender(stage.queue) as sender:
            for body in "abcdef":
                sender.send(body)
        receiver = session.receiver(stage.queue, prefetch=20)
        a, b, c = (take(receiver) for _ in range(3))
        accepted = a.accept()
        stage.kill_and_restart()
        late = b.accept()
        assert (late.status, late.count) == (ReceiptStatus.STALE, 1)
        assert c.release().status is ReceiptStatus.STALE
        again = everything(receiver, "bcdef")
        found = texts(again)
        if accepted.status is not ReceiptStatus.SENT:
            assert "a" not in found, f"{accepted} was said of it"
        assert sorted(set(found) - {"a"}) == list("bcdef")
        assert len(found) == len(set(found))
        counts = {str(message.body): message.delivery_count for message in again}
        observe("kill_counts", counts["b"] > 0)
        session.acknowledge()
        assert list(rest(receiver)) == []


def test_a_consumer_and_a_producer_that_notice_nothing(stage: Stage) -> None:
    count, killed_at = 150, 40
    wanted = {str(number) for number in range(count)}
    seen: list[str] = []
    killing = threading.Event()

    async def produce(connection: acquit.aio.Connection) -> None:
        async with connection.session() as session, session.sender(stage.queue) as sender:
            for number in range(count):
                await sender.send(Message(body=str(number), durable=True))

    async def consume(connection: acquit.aio.Connection) -> None:
        async with connection.session(AckMode.INDIVIDUAL) as session, session.receiver(stage.queue) as receiver:
            async for message in receiver:
                seen.append(str(message.body))
                receipt = await message.accept()
                assert receipt.status is not None
                if len(seen) == killed_at:
                    killing.set()
                if wanted <= set(seen):
                    return

    async def main() -> None:
        async with await stage.broker.aconnect(url=stage.proxy.url, options=OPTIONS) as connection:
            await asyncio.wait_for(asyncio.gather(produce(connection), consume(connection)), RESTART_S)

    with ThreadPoolExecutor() as threads:
        work = threads.submit(asyncio.run, main())
        assert killing.wait(PATIENCE_S)
        stage.kill_and_restart()
        work.result()
    assert set(seen) == wanted


@with_transactions
def test_a_transaction_goes_with_its_broker(stage: Stage, address: str) -> None:
    out = stage.broker.queue(f"{address}.out")
    with stage.connection.session(AckMode.TRANSACTED) as session:
        sender, receiver, results = session.sender(stage.queue), session.receiver(stage.queue), session.sender(out)
        sender.send("a")
        session.commit()
        assert take(receiver).body == "a"
        results.send("lost")
        stage.kill_and_restart()
        with pytest.raises(TransactionRolledBack):
            session.commit()
        with session.transaction():
            assert take(receiver).body == "a", "it was rolled back, so it comes again"
            results.send("once")
    passed = [f"{frame.by} {frame.connection}: {frame.performative}" for frame in stage.proxy.frames]
    bench = stage.bench()
    left = texts_of(bench.left_there(stage.queue)), texts_of(bench.left_there(out))
    assert left == ([], ["once"]), "\n".join(passed)
    bench.connection.close()


@pytest.mark.promise("no-lies")
@with_transactions
@pytest.mark.parametrize("lost", ["the commit", "the answer"])
def test_a_commit_without_an_answer_happened_or_not_and_the_client_says_what_it_knows(
    stage: Stage, address: str, lost: str, observe: Observer
) -> None:
    out = stage.broker.queue(f"{address}.out")
    with stage.connection.session(AckMode.TRANSACTED) as session:
        sender, receiver, results = session.sender(stage.queue), session.receiver(stage.queue), session.sender(out)
        sender.send("a")
        session.commit()
        assert take(receiver).body == "a"
        results.send("result")

        named, by = ("discharge", "client") if lost == "the commit" else ("disposition", "broker")
        stage.proxy.before(named, by=by).call(stage.kill)
        said = "committed"
        with ThreadPoolExecutor() as threads:
            commit = threads.submit(session.commit, RESTART_S)
            stage.come_back()
            try:
                commit.result()
            except TransactionInDoubt:
                said = "in doubt"
            except TransactionRolledBack:
                said = "rolled back"
    bench = stage.bench()
    with bench.connection.session(AckMode.AUTO) as plain:
        left = texts(list(rest(plain.receiver(stage.queue)))), texts(list(rest(plain.receiver(out))))
    bench.connection.close()
    assert left in ((["a"], []), ([], ["result"])), "all of it, or nothing"
    if said != "in doubt":
        assert (left == ([], ["result"])) is (said == "committed")
    observe("commit_without_answer", "asked" if said != "in doubt" else "in doubt")
