"""The link that a process keeps between two tasks of a query: who goes on with it, and when what it holds goes back."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

import acquit
from acquit.protocol.message import Message
from acquit.spark.driver import PlannedPart
from acquit.spark.kept_link import KeptLink
from acquit.spark.link import QueueDrain, QueueProbe
from acquit.spark.source_options import SourceOptions
from acquit.spark.spool import Outcome
from tests.support.queue_double import part

COUNT = 10
"""Messages in the queue; a task takes two."""


class Tasks:
    """Tasks of one process that read a queue, one after the other."""

    def __init__(self, url: str, address: str, link: KeptLink) -> None:
        given = {"url": url, "address": address, "spool": "/nowhere", "drainTimeout": "30s"}
        self.options = SourceOptions.parse(given)
        self.planned = PlannedPart(part(rows_max=2), address, "nonce", "run")
        self.link = link
        self.probe = QueueProbe(self.options)

    def run(self, planned: PlannedPart | None = None) -> QueueDrain:
        """A task that settles what it got and keeps the link if it may."""
        drain = self.link.attach(self.options, planned or self.planned)
        assert isinstance(drain, QueueDrain)
        received: list[bytes] = []
        while len(received) < 2 and (more := drain.receive(2 - len(received))):
            received += more
        keeping = drain.has_more()
        assert drain.settle({Outcome.ACCEPTED: range(len(received))} if received else {}, keeping=keeping)
        if keeping:
            drain.keep("nonce")
        else:
            drain.detach()
        return drain

    def come_to(self, count: int) -> None:
        """Wait until so many are available to others."""
        deadline = time.monotonic() + 20
        while (found := self.probe.available(self.planned.address)) != count:
            assert time.monotonic() < deadline, f"{found} available, not {count}"
            time.sleep(0.01)


@pytest.fixture
def tasks(broker: acquit.Broker, address: str, request: pytest.FixtureRequest) -> Iterator[Tasks]:
    with acquit.connect(broker.url) as connection, connection.session() as session:
        sender = session.sender(address)
        for number in range(COUNT):
            sender.send(Message(str(number)), wait=False)
        sender.flush()
    tasks = Tasks(broker.url, address, KeptLink(getattr(request, "param", 60.0)))
    yield tasks
    tasks.link.give_back()
    tasks.probe.close()


def test_the_next_task_goes_on_with_it_to_the_end_of_the_queue(tasks: Tasks) -> None:
    first = tasks.run()
    tasks.come_to(COUNT - 4)
    assert tasks.run() is tasks.run() is tasks.run() is first
    tasks.come_to(0)
    assert tasks.run() is first, "with the last two, and nothing is kept behind those"
    assert tasks.run() is not first
    tasks.come_to(0)


@pytest.mark.parametrize("tasks", [0.2], indirect=True)
def test_what_no_task_comes_for_goes_back_and_the_next_tasks_keep_nothing(tasks: Tasks) -> None:
    keep = []
    left = COUNT
    while left:
        drain = tasks.run()
        keep.append(drain._keep is not None)
        left -= 2
        tasks.come_to(left)
    assert keep == [True, False, True, False, False], "one task, and then two; then it would be tried again"


@pytest.mark.parametrize("change", [{"address": "elsewhere"}, {"only_until": 1_000}, {"part": part(rows_max=3)}])
def test_a_task_of_another_kind_gives_it_back(tasks: Tasks, change: dict[str, object]) -> None:
    first = tasks.run()
    tasks.come_to(COUNT - 4)
    other = tasks.link.attach(tasks.options, replace(tasks.planned, **change))  # type: ignore[arg-type]
    assert isinstance(other, QueueDrain) and other is not first and other._keep is None, "not at once again"
    other.detach()
    tasks.come_to(COUNT - 2)


def test_a_process_that_can_have_no_thread_keeps_nothing(tasks: Tasks, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(timer: threading.Timer) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Timer, "start", refuse)
    tasks.run()
    tasks.come_to(COUNT - 2)
