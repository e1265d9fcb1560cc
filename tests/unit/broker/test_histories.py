"""Histories of a running broker: read on a thread of their own, one at a time, bounded."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import acquit
from acquit.broker import histories as module
from acquit.broker.histories import Histories
from acquit.broker.machine import MACHINE, Job
from acquit.broker.options import BrokerOptions
from acquit.client.management import ManagementFailed, converse
from acquit.errors import StoreCorrupt
from acquit.ledger.history import Asked, History, KnownNames
from acquit.store.options import JournalOptions


class SlowWorker:
    """Does its jobs when the test says so."""

    def __init__(self) -> None:
        self.jobs: list[Job] = []
        self.stopped = False

    def submit(self, job: Job) -> None:
        self.jobs.append(job)

    def tell(self, call: Callable[..., None], *arguments: object) -> None:
        call(*arguments)

    def give_way(self) -> None:
        """Nothing goes on beside the test."""

    async def stop(self) -> None:
        while self.jobs:
            self.jobs.pop(0)()
        self.stopped = True


@pytest.fixture
def worker() -> SlowWorker:
    return SlowWorker()


@pytest.fixture
def told() -> list[Any]:
    return []


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What was read, in place of a journal."""
    read: list[dict[str, Any]] = []

    def history(data: Path, **arguments: Any) -> History:
        read.append(arguments)
        if arguments["sequence"] == 13:
            raise StoreCorrupt("damaged", path="7", offset=0)
        if arguments["sequence"] == 14:
            raise ZeroDivisionError
        return History((), arguments["sequence"], False)

    monkeypatch.setattr(module, "history", history)
    return read


@pytest.fixture
def asked(worker: SlowWorker, told: list[Any], read: list[dict[str, Any]]) -> Histories:
    def make_worker(name: str) -> SlowWorker:
        assert name == "acquit-history"
        return worker

    machine = replace(MACHINE, make_worker=make_worker)
    return Histories(Path("/data"), machine, KnownNames({}, {}), lambda: told.append("turn"))


def test_one_is_read_at_a_time(
    asked: Histories, worker: SlowWorker, told: list[Any], read: list[dict[str, Any]]
) -> None:
    for sequence in (1, 2, 3):
        asked.ask(Asked(sequence=sequence)).when_finished(told.append)
    for number in (1, 2, 3):
        assert len(worker.jobs) == 1
        worker.jobs.pop()()
        assert (told[-2].first_segment, told[-1]) == (number, "turn")
    assert not worker.jobs
    assert [one["sequence"] for one in read] == [1, 2, 3]


def test_too_many_that_wait_are_refused(asked: Histories, worker: SlowWorker, told: list[Any]) -> None:
    for sequence in range(1, module.WAITING_MAX + 3):
        asked.ask(Asked(sequence=sequence)).when_finished(told.append)
    (refused,) = told
    assert refused.status == 503
    worker.jobs.pop()()
    asked.ask(Asked(sequence=99)).when_finished(told.append)
    assert len([one for one in told if getattr(one, "status", 0) == 503]) == 1


@pytest.mark.parametrize(("limit", "expected"), [(1 << 64, module.BYTES_MAX), (7, 7)])
def test_nobody_reads_more_than_the_bounds(
    asked: Histories, worker: SlowWorker, read: list[dict[str, Any]], limit: int, expected: int
) -> None:
    asked.ask(Asked(message_id="x"), limit)
    worker.jobs.pop()()
    (one,) = read
    assert (one["message_id"], one["bounds"].bytes_max) == ("x", expected)
    assert (one["bounds"].seconds_max, one["bounds"].steps_max) == (module.SECONDS_MAX, module.STEPS_MAX)
    assert not one["bounds"].cancelled()


def test_damage_is_an_answer(asked: Histories, worker: SlowWorker, told: list[Any]) -> None:
    asked.ask(Asked(sequence=13)).when_finished(told.append)
    worker.jobs.pop()()
    assert (told[0].status, "damaged" in str(told[0])) == (500, True)


def test_a_defect_leaves_nobody_waiting(asked: Histories, worker: SlowWorker, told: list[Any]) -> None:
    for sequence in (14, 1):
        asked.ask(Asked(sequence=sequence)).when_finished(told.append)
    with pytest.raises(ZeroDivisionError):
        worker.jobs.pop()()
    assert told[0].status == 500
    worker.jobs.pop()()
    assert told[2].first_segment == 1


def test_an_answer_that_cannot_be_given_keeps_nothing_from_others(
    asked: Histories, worker: SlowWorker, told: list[Any]
) -> None:
    def fail(result: object) -> None:
        raise ZeroDivisionError

    asked.ask(Asked(sequence=1)).when_finished(fail)
    asked.ask(Asked(sequence=2)).when_finished(told.append)
    with pytest.raises(ZeroDivisionError):
        worker.jobs.pop()()
    worker.jobs.pop()()
    assert told[0].first_segment == 2


def test_a_stop_cancels_what_is_read_and_what_waits(
    asked: Histories, worker: SlowWorker, told: list[Any], read: list[dict[str, Any]]
) -> None:
    for sequence in (1, 2):
        asked.ask(Asked(sequence=sequence)).when_finished(told.append)
    asyncio.run(asked.stop())
    assert worker.stopped
    assert [one["bounds"].cancelled() for one in read] == [True]
    assert told == []
    asked.ask(Asked(sequence=3)).when_finished(told.append)
    assert told[0].status == 503


def test_nothing_is_made_where_nobody_asks(asked: Histories, worker: SlowWorker) -> None:
    asyncio.run(asked.stop())
    assert not worker.stopped


# -- a real broker -----------------------------------------------------------------------------------------------------


def test_a_running_broker_tells_what_became_of_a_message(tmp_path: Path) -> None:
    options = BrokerOptions(journal=JournalOptions.small())
    with acquit.Broker(tmp_path, config=options) as broker, acquit.connect(broker.url) as connection:
        session = connection.session("individual")
        sender = session.sender("q")
        sender.send(acquit.Message("x", message_id="mine"))
        session.receiver("q").receive(timeout=5).accept()
        for _ in range(50):
            sender.send(bytes(20_000))  # over many segments
        with converse(connection, timeout_s=30) as node:
            answer: Any = node.request("READ", "acquit:history", body={"message_id": "mine"})
            (life,) = answer["lives"]
            assert [step["event"] for step in life["steps"]] == ["posted", "acquired", "accepted"]
            assert all(step["queue"] == "q" and step["who"] for step in life["steps"])
            assert answer["complete"] is True
            part: Any = node.request("READ", "acquit:history", body={"message_id": "mine", "bytes_max": 10_000})
            assert (part["complete"], part["stopped"], part["lives"]) == (False, "bytes", [])
            with pytest.raises(ManagementFailed) as failed:
                node.request("READ", "acquit:history", body={"sequence": 12_345})
            assert failed.value.status == 404
