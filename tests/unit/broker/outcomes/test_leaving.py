"""What a consumer held is given back a bounded number at a time, in order, and nothing overtakes it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from acquit.broker.outcomes import leaving
from acquit.broker.outcomes.settling import Settling
from acquit.protocol.definitions import Accepted
from acquit.protocol.message import Message
from tests.support.broker_world import Client, World, durable
from tests.support.transacting import Controller

MESSAGES = 20


@pytest.fixture
def given_back(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many deliveries were given back each time, of which three at most in one turn."""
    counts: list[int] = []
    ended = Settling.ended

    def count(self: Settling, consumer: object, deliveries: list[object], ending: object) -> None:
        counts.append(len(deliveries))
        ended(self, consumer, deliveries, ending)  # type: ignore[arg-type]

    monkeypatch.setattr(leaving, "GIVEN_BACK_MAX", 3)
    monkeypatch.setattr(Settling, "ended", count)
    return counts


def detach(client: Client) -> None:
    (link,) = client.received
    client.detach(link)


def end(client: Client) -> None:
    client.begun.end()
    client.world.carry()


@pytest.mark.pure
@pytest.mark.parametrize("leave", [detach, end, Client.close, Client.lose])
def test_it_is_given_back_some_in_each_turn_before_anything_else_of_its_queue_goes_out(
    leave: Callable[[Client], None], given_back: list[int]
) -> None:
    world = World()
    holder, other = world.client("holder"), world.client("other")
    link = holder.receiver("orders", credit=MESSAGES)
    sender = other.sender("orders")
    other.post_all(sender, *(durable(f"m{number}") for number in range(MESSAGES)))
    assert len(holder.bodies(link)) == MESSAGES
    waiting = other.receiver("orders", "waiting", credit=2 * MESSAGES)
    given_back.clear()
    other.post(sender, Message("later"))
    leave(holder)
    world.settle()
    assert sum(given_back) == MESSAGES
    assert max(given_back) <= 3
    bodies = [body for body in other.bodies(waiting) if body != "later"]
    assert bodies == [f"m{number}" for number in range(MESSAGES)]
    assert world.core.queues.by_name["orders"].leaving == 0


def test_a_clean_stop_waits_for_what_is_being_given_back(given_back: list[int]) -> None:
    world = World()
    holder = world.client("holder")
    holder.receiver("orders", credit=MESSAGES)
    holder.post_all(holder.sender("orders"), *(durable(f"m{number}") for number in range(MESSAGES)))
    again = world.stop()
    assert sum(given_back) == MESSAGES
    link = again.client().receiver("orders", credit=MESSAGES)
    again.settle()
    assert [len(client.bodies(link)) for client in again.clients] == [MESSAGES]


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("whole_session", [True, False])
def test_what_a_transaction_has_the_outcome_of_stays_its_affair(
    commit: bool, whole_session: bool, given_back: list[int]
) -> None:
    """Also while the others are being given back: it may end before the next turn."""
    world = World()
    holder = world.client("holder")
    other_session = holder.engine.begin()
    world.carry()
    controller = Controller(holder, session=other_session)
    link = holder.receiver("orders", credit=MESSAGES)
    holder.post_all(holder.sender("orders"), *(durable(f"m{number}") for number in range(MESSAGES)))
    txn = controller.declare()
    controller.retire(txn, *holder.held(link)[:2], settled=False)
    if whole_session:
        link.session.end()
    else:
        link.detach()
    discharge = controller.discharge(txn, fail=not commit)  # both in one read of the broker
    world.settle()
    assert holder.outcome(discharge) == Accepted()
    assert world.core.queues.by_name["orders"].acquired == 0
    taker = world.client("taker")
    again = taker.receiver("orders", credit=MESSAGES)
    world.settle()
    assert len(taker.bodies(again)) == (MESSAGES - 2 if commit else MESSAGES)
    world.check_journal()


def test_few_are_given_back_at_once(given_back: list[int]) -> None:
    world = World()
    holder = world.client("holder")
    link = holder.receiver("orders", credit=2)
    holder.post_all(holder.sender("orders"), durable("one"), durable("two"))
    given_back.clear()
    holder.detach(link)
    assert given_back == [2]


def test_links_that_end_and_hold_nothing_leave_no_word_in_the_journal() -> None:
    """Thousands of them may end in the same moment."""
    world = World()
    idle = world.client("idle")
    for number in range(20):
        idle.receiver(f"idle{number}", f"idle{number}", credit=1)
    names = world.core.scribe.recorder.table.actors
    before = dict(names)
    idle.lose()
    world.settle()
    assert dict(names) == before
