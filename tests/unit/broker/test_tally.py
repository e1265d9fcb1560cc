"""What a queue counts beside its accounts: attempts, how they end, and how long messages wait and are held."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from acquit.broker.durations import STAY_BOUNDS_S, DurationsSnapshot
from acquit.broker.options import AddressRule, BrokerOptions
from acquit.broker.queue import Ending, Verdict
from acquit.broker.snapshots import QUEUE_FIGURES, queue_figures
from acquit.broker.tally import HOLD_ENDS, RUNS_SKIPPED, TALLY_FIGURES, HoldEnd, QueueTally
from acquit.ledger.events import EventKind
from acquit.protocol.constants import ACCEPTED, RELEASED, Outcome
from acquit.protocol.definitions import Modified, Received, Rejected
from acquit.protocol.delivery import DeliveryState
from acquit.protocol.message import Message
from tests.support.broker_world import World, durable, posted
from tests.support.transacting import Controller
from tests.unit.broker.links.test_termini import resume_from

SECOND_US = 1_000_000


class Tally(NamedTuple):
    acquired: int
    read: int
    redelivered: int
    ended: tuple[int, ...]
    in_queue: DurationsSnapshot
    held: DurationsSnapshot


def tally(world: World, name: str = "q") -> Tally:
    figures = queue_figures(world.core.queues.by_name[name])[len(QUEUE_FIGURES) :]
    found = dict(zip(TALLY_FIGURES, figures, strict=True))

    def stays(name: str) -> DurationsSnapshot:
        counts = tuple(int(found[f"{name}_{place}"]) for place in range(len(STAY_BOUNDS_S) + 1))
        return DurationsSnapshot(STAY_BOUNDS_S, counts, found[f"{name}_s"])

    return Tally(
        int(found["acquisitions"]),
        int(found["read"]),
        int(found["redelivered"]),
        tuple(int(found[f"ended_{end}"]) for end in HOLD_ENDS),
        stays("in_queue"),
        stays("held"),
    )


def ended(world: World) -> dict[str, int]:
    """The ends that have come, each with its count."""
    return {name: count for name, count in zip(HOLD_ENDS, tally(world).ended, strict=True) if count}


@pytest.mark.parametrize("kind", [durable, Message])
@pytest.mark.parametrize(
    ("state", "name"),
    [
        (ACCEPTED, "accepted"),
        (Rejected(), "rejected"),
        (RELEASED, "released"),
        (None, "released"),  # settled without a state (3.5.3)
        (Modified(), "modified"),
        (Modified(delivery_failed=True), "failed"),
    ],
)
def test_each_outcome_is_counted_by_its_name(kind: type[Message], state: DeliveryState | None, name: str) -> None:
    world, client = posted("q", kind(b"1"), kind(b"2"), kind(b"3"))
    receiver = client.receiver("q", credit=2)
    world.settle()
    for delivery in client.received[receiver][:2]:
        delivery.settle(state)
    world.settle()
    assert ended(world) == {name: 2}
    assert tally(world).acquired == 2


def test_what_no_consumer_said_is_told_apart() -> None:
    world, client = posted(
        "q", durable(b"1"), options=BrokerOptions(address=(AddressRule("#", {"lock_duration_ms": 1_000}),))
    )
    receiver = client.receiver("q", credit=1)
    world.settle()
    client.detach(receiver)
    world.settle()
    assert ended(world) == {"detached": 1}
    other = world.client("other")
    other.receiver("q", credit=1)
    world.settle()
    other.lose()
    world.settle()
    assert ended(world) == {"detached": 1, "connection_lost": 1}
    client.receiver("q", "again", credit=1)
    world.settle()
    world.advance(5_000)
    world.settle()
    assert ended(world) == {"detached": 1, "connection_lost": 1, "lock_expired": 1}


def test_a_progress_report_ends_nothing() -> None:
    world, client = posted("q", durable(b"1"))
    receiver = client.receiver("q", credit=1)
    world.settle()
    client.received[receiver][0].update(Received(0, 0))
    world.settle()
    assert ended(world) == {}


@pytest.mark.parametrize(("outcome", "name"), [(ACCEPTED, "accepted"), (Rejected(), "rejected")])
def test_a_transaction_counts_when_it_commits(outcome: Outcome, name: str) -> None:
    world, client = posted("q", durable(b"1"))
    controller, receiver = Controller(client), client.receiver("q", credit=1)
    world.settle()
    transaction = controller.declare()
    controller.retire(transaction, client.received[receiver][0], outcome=outcome)
    world.settle()
    assert ended(world) == {}
    world.now_us += SECOND_US
    controller.commit(transaction)
    world.settle()
    assert ended(world) == {name: 1}
    assert tally(world).held.sum_s == pytest.approx(1.0)


@pytest.mark.parametrize("kind", [durable, Message])
@pytest.mark.parametrize("selector", [None, "n > 0"])
def test_the_second_time_is_a_redelivery(kind: type[Message], selector: str | None) -> None:
    world, client = posted("q", *(kind(str(n), application_properties={"n": n}) for n in (1, 2, 3)))
    receiver = client.receiver("q", credit=2, selector=selector)
    world.settle()
    assert tally(world).redelivered == 0
    for delivery in client.received[receiver]:
        delivery.settle(RELEASED)
    receiver.grant(3)
    world.settle()
    assert (tally(world).acquired, tally(world).redelivered) == (5, 2)


def test_a_presettled_link_redelivers_too_and_holds_nothing() -> None:
    world, client = posted("q", durable(b"1"), durable(b"2"))
    receiver = client.receiver("q", credit=1)
    world.settle()
    client.received[receiver][0].settle(RELEASED)
    world.settle()
    client.receiver("q", "quick", presettled=True, credit=2)
    world.settle()
    assert (tally(world).acquired, tally(world).redelivered) == (3, 1)
    assert sum(tally(world).held.counts) == 1
    assert [consumer.timed for consumer in world.core.queues.by_name["q"].consumers] == [None, None]
    assert sum(tally(world).in_queue.counts) == 3


def test_a_resumable_link_redelivers_too() -> None:
    world, client = posted("q", durable(b"1"), durable(b"2"))
    plain = client.receiver("q", "plain", credit=1)
    world.settle()
    client.received[plain][0].settle(RELEASED)
    client.detach(plain)
    world.settle()
    resume_from(client, None)
    assert (tally(world).acquired, tally(world).redelivered) == (3, 1)


def test_the_time_in_the_queue_is_from_posting_to_acquisition() -> None:
    world, client = posted("q", durable(b"1"), durable(b"2"))
    world.now_us += 3 * SECOND_US
    receiver = client.receiver("q", credit=2)
    world.settle()
    found = tally(world).in_queue
    assert found.bounds_s == STAY_BOUNDS_S
    assert found.counts[STAY_BOUNDS_S.index(10.0)] == sum(found.counts) == 2
    assert found.sum_s == pytest.approx(6.0)
    world.now_us += SECOND_US
    client.received[receiver][0].settle(RELEASED)
    receiver.grant(1)
    world.settle()
    assert tally(world).in_queue.sum_s == pytest.approx(10.0), "another attempt counts from the posting, too"


def test_the_middle_of_a_run_is_followed_until_it_is_held_no_more() -> None:
    world, client = posted("q", *(durable(str(n)) for n in range(3)))
    receiver = client.receiver("q", credit=3)
    world.settle()
    first, middle, last = client.received[receiver]
    first.settle(ACCEPTED)
    world.settle()
    assert sum(tally(world).held.counts) == 0
    world.now_us += 4 * SECOND_US
    middle.settle(ACCEPTED)
    last.settle(ACCEPTED)
    world.settle()
    found = tally(world).held
    assert (sum(found.counts), found.sum_s) == (1, pytest.approx(4.0))
    sender = client.sender("q", "more")
    for _ in range(RUNS_SKIPPED):  # then as many runs pass as the tally says
        client.post_all(sender, durable(b"passed"))
        receiver.grant(1)
        world.settle()
        client.received[receiver][-1].settle(ACCEPTED)
    client.post_all(sender, durable(b"followed"))
    receiver.grant(1)
    world.settle()
    world.now_us += 2 * SECOND_US
    client.received[receiver][-1].settle(Rejected())
    world.settle()
    found = tally(world).held
    assert (sum(found.counts), found.sum_s) == (2, pytest.approx(6.0))


def test_a_link_that_goes_ends_what_was_measured() -> None:
    world, client = posted("q", durable(b"1"))
    lost = world.client("lost")
    lost.receiver("q", credit=1)
    world.settle()
    world.now_us += SECOND_US
    lost.lose()
    world.settle()
    assert tally(world).held.sum_s == pytest.approx(1.0)
    resume_from(client, None)
    world.now_us += SECOND_US
    client.lose()
    world.settle()
    assert tally(world).held.sum_s == pytest.approx(2.0), "what is suspended is held by its terminus"


def test_after_a_restart_it_begins_anew_but_for_what_the_journal_says() -> None:
    world, client = posted("q", durable(b"1"))
    receiver = client.receiver("q", credit=1)
    world.settle()
    client.received[receiver][0].settle(ACCEPTED)
    world.settle()
    world = world.crash()
    found = tally(world)
    assert (found.acquired, sum(found.ended), found.redelivered) == (1, 0, 0)
    assert sum(found.in_queue.counts) == sum(found.held.counts) == 0


def test_reading_where_messages_stay_is_counted() -> None:
    world, client = posted(
        "q", durable(b"1"), options=BrokerOptions(address=(AddressRule("#", {"non_destructive": True}),))
    )
    receiver = client.receiver("q", credit=1)
    world.settle()
    client.received[receiver][0].settle(ACCEPTED)
    world.settle()
    counts = world.core.queues.by_name["q"].counts
    assert tally(world).read == counts[EventKind.READ] == 1


@pytest.mark.parametrize("verdict", list(Verdict))
@pytest.mark.parametrize("ending", list(Ending))
def test_what_a_link_said_counts_and_else_how_it_ended(verdict: Verdict, ending: Ending) -> None:
    found = QueueTally()
    found.end(verdict, ending)
    names = {
        Ending.SETTLED: verdict.name.lower(),
        Ending.DETACHED: "detached",
        Ending.ENDED_HERE: "detached",
        Ending.CONNECTION_LOST: "connection_lost",
        Ending.RESTARTED: "connection_lost",
        Ending.LOCK_EXPIRED: "lock_expired",
    }
    assert found.ended == [int(name == names[ending]) for name in HOLD_ENDS]


def test_names_are_those_of_the_ends() -> None:
    assert len(QueueTally().ended) == len(HOLD_ENDS) == len(HoldEnd)


def test_the_time_to_durable_ends_with_the_sync() -> None:
    world = World()
    client = world.client()
    sender = client.sender("q")
    world.settle()
    client.post(sender, durable(b"1"), durable(b"2"))  # a group
    world.carry()
    assert sum(world.core.postings.counts) == 0
    world.now_us += SECOND_US
    assert world.sync()  # the core has had no turn since: the time is that of the sync
    assert (sum(world.core.postings.counts), world.core.postings.sum_s) == (2, pytest.approx(2.0))
    client.post(sender, durable(b"3", ttl_ms=60_000))
    world.carry()
    world.now_us += 3 * SECOND_US
    world.settle()
    assert (sum(world.core.postings.counts), world.core.postings.sum_s) == (3, pytest.approx(5.0))
    client.post(sender, Message(b"volatile"))
    world.settle()
    assert sum(world.core.postings.counts) == 3
