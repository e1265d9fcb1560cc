"""A broker that is killed with SIGKILL and started again, under clients that go on as if nothing had been.

`acquit serve` runs in a process of its own and returns to its port. The kill comes at a frame: a proxy holds that frame
until the broker is dead and has been started again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import acquit
from acquit import AckMode, TransactionInDoubt, TransactionRolledBack
from acquit.cli.app import run as acquit_command
from acquit.demo.children import Children
from acquit.protocol.definitions import TransactionalState
from acquit.testing import PassedFrame, Proxy
from tests.support.draining import take_all
from tests.support.endpoint import BrokerProcess
from tests.support.outages import (
    INTERRUPTED,
    LONG,
    Asyncio,
    Blocking,
    Story,
    assert_in_order,
    assert_one_warning_an_outage,
    fast,
    until,
)

BODIES = [f"m{number:03}" for number in range(200)]
BOUND = 30.0
"""Seconds for a start of the broker, and all that waits for it."""


class Mortal:
    """A broker that comes back to its port. It is started on the thread of `starter`, with which it would die."""

    def __init__(self, process: BrokerProcess, starter: ThreadPoolExecutor) -> None:
        self.process = process
        self.kills = 0
        self._starter = starter
        starter.submit(process.start).result(BOUND)
        self.port = int(process.url.rpartition(":")[2])

    @property
    def url(self) -> str:
        return self.process.url

    def kill_and_restart(self, frame: PassedFrame | None = None) -> None:
        """In the midst of everything."""
        self.process.kill()
        self.kills += 1
        self._starter.submit(self.process.start, self.port).result(BOUND)


@pytest.fixture
def mortal(tmp_path: Path) -> Iterator[Mortal]:
    """For this test alone. At the end it stops in order, and its books balance."""
    with ThreadPoolExecutor(1) as starter, Children(tmp_path / "logs") as children:
        process = BrokerProcess(children, tmp_path / "data", tmp_path / "endpoint")
        yield Mortal(process, starter)
        assert process.stop() == 0, "acquit serve did not end in order"
    for what in (["verify"], ["balance", "--archive"]):
        assert acquit_command(["ledger", *what, "--data", str(tmp_path / "data")]) == 0, "see what it printed"


def rest(mortal: Mortal, address: str) -> list[Any]:
    """What is in a queue, by a client without a proxy."""
    with acquit.connect(mortal.url) as connection, connection.session() as session:
        return take_all(session.receiver(address))


TRANSACTION_KILLS = {
    "an outcome": lambda proxy: proxy.before("disposition", 3, by="client", state=TransactionalState),
    "after the discharge": lambda proxy: proxy.after("discharge", 3, by="client"),
}


@pytest.mark.promise("moved-once")
@pytest.mark.parametrize(
    ("api", "when"),
    [(("blocking", "asyncio")[number % 2], when) for number, when in enumerate(TRANSACTION_KILLS)],
    indirect=["api"],
)
def test_what_is_moved_in_transactions_arrives_once(
    api: Blocking | Asyncio, mortal: Mortal, when: str, caplog: pytest.LogCaptureFixture
) -> None:
    story = Story()
    names = BODIES[:60]
    with acquit.connect(mortal.url) as connection, connection.session() as session:
        for body in names:
            session.sender("from").send(body, timeout=BOUND)
    moved: list[object] = []
    doubts = 0
    with Proxy(mortal.url) as proxy:
        rule = TRANSACTION_KILLS[when](proxy).call(mortal.kill_and_restart)
        with api.connect(proxy.url, options=fast(), on_event=story) as connection:
            session = connection.session(AckMode.TRANSACTED)
            receiver, sender = session.receiver("from"), session.sender("to")
            while len(moved) < len(names):
                taken: list[object] = []
                try:
                    while len(taken) < 10:
                        message = receiver.receive(LONG)
                        assert message is not None
                        taken.append(message.body)
                        sender.send(message.body, timeout=BOUND)
                    session.commit(BOUND)
                except TransactionRolledBack:
                    session.rollback(BOUND)
                except TransactionInDoubt:
                    doubts += 1
                    break
                else:
                    moved += taken
            rule.wait(BOUND)
    assert doubts == 0, "our broker remembers over its death what became of a transaction"
    assert moved == names
    assert [message.body for message in rest(mortal, "to")] == names
    assert rest(mortal, "from") == []
    assert_in_order(story)
    assert_one_warning_an_outage(caplog, story)


@pytest.mark.promise("answered", "redelivered")
def test_producers_and_consumers_through_many_deaths(api: Blocking | Asyncio, mortal: Mortal) -> None:
    """No proxy: the port refuses while the broker is dead, and is its port again afterwards."""
    stories = [Story() for _ in range(4)]
    names = [[f"{producer}.{number}" for number in range(150)] for producer in range(2)]
    applied: Counter[int] = Counter()
    """By sequence: a second copy that a producer had to send is a message of its own."""
    done: set[object] = set()
    doubtful: set[object] = set()

    def produce(number: int) -> None:
        with api.connect(mortal.url, options=fast(), on_event=stories[number]) as connection:
            sender = connection.session().sender("q")
            for body in names[number]:
                sender.send(body, timeout=BOUND)

    def consume(number: int) -> None:
        with api.connect(mortal.url, options=fast(), on_event=stories[number]) as connection:
            receiver = connection.session("individual").receiver("q", prefetch=10)
            while len(done | doubtful) < 300:
                message = receiver.receive(0.1)
                if message is None:
                    continue
                if message.accept().status is acquit.ReceiptStatus.APPLIED:
                    applied[message.sequence] += 1
                    done.add(message.body)
                else:
                    doubtful.add(message.body)

    with ThreadPoolExecutor() as pool:
        working = [pool.submit(produce, 0), pool.submit(produce, 1), pool.submit(consume, 2), pool.submit(consume, 3)]
        for progress in (60, 120, 180):
            until(lambda: len(done) >= progress or any(work.done() for work in working), "progress", BOUND)  # noqa: B023
            mortal.kill_and_restart()
        for work in working:
            work.result(BOUND)
    assert done | doubtful == {name for each in names for name in each}
    assert set(applied.values()) == {1}
    # What is left is what nobody knew the fate of, or a second copy: a producer has one message on the way at a time.
    left = [message.body for message in rest(mortal, "q")]
    assert len([body for body in left if body not in doubtful]) <= 2 * mortal.kills
    for story in stories:
        assert_in_order(story)
    assert all(story.kinds.count(INTERRUPTED) <= mortal.kills for story in stories)
    assert sum(story.kinds.count(INTERRUPTED) for story in stories) >= mortal.kills
