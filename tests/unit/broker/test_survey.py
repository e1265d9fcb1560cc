"""A survey finds what a snapshot does, a few things a step, also while things come and go."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from acquit.broker.inspect import BrokerSnapshot, ConnectionSnapshot, QueueSnapshot
from acquit.broker.survey import AT_ONCE, Survey, Surveying, SurveyTotals

WHOLE = BrokerSnapshot(broker_id="b", last_sequence=1, accepting=True)
FIGURES = SurveyTotals(
    memory_bytes=1,
    transactions=0,
    journal_bytes=0,
    journal_pending_bytes=0,
    segments=1,
    segment_bytes=1,
    refused={},
    connections_max=9,
)

CONNECTION = ConnectionSnapshot(
    id=1,
    peer="p",
    container="c",
    user=None,
    product="",
    version="",
    mechanism="",
    tls="",
    sessions=1,
    links=1,
    unsettled=0,
    oldest_unsettled_ms=0,
    credit_starved=0,
    buffered_bytes=0,
    since_ms=0,
    writable=True,
)


class Broker:
    """A broker with so many queues."""

    def __init__(self, count: int) -> None:
        self.queues = {f"q{n:04}": QueueSnapshot(name=f"q{n:04}", address="q", entered=n) for n in range(count)}
        self.looked = 0

    def surveyed(self) -> Iterator[tuple[Any, list[Any]]]:
        yield self.look, list(reversed(self.queues))
        yield self.connection, [1]

    def look(self, name: str) -> QueueSnapshot | None:
        self.looked += 1
        return self.queues.get(name)

    def connection(self, number: int) -> ConnectionSnapshot:
        return CONNECTION

    def figures(self) -> tuple[BrokerSnapshot, SurveyTotals]:
        return WHOLE, FIGURES


def test_a_step_looks_at_a_few_and_all_are_found_by_name() -> None:
    broker, found = Broker(3 * AT_ONCE + 1), list[Survey]()
    surveying = Surveying(broker, found.append)
    looked = 0
    while not surveying.step():
        assert broker.looked - looked <= AT_ONCE
        looked = broker.looked
    queues = tuple(broker.queues[name] for name in sorted(broker.queues))
    assert found == [Survey(replace(WHOLE, queues=queues, connections=(broker.connection(1),)), FIGURES)]


def test_what_goes_meanwhile_is_not_there() -> None:
    broker, found = Broker(2 * AT_ONCE), list[Survey]()
    surveying = Surveying(broker, found.append)
    surveying.step()
    gone = broker.queues.pop("q0000")
    while not surveying.step():
        pass
    assert gone not in found[0].broker.queues
    assert len(found[0].broker.queues) == 2 * AT_ONCE - 1
