"""A message's life at a node: every state by every event, and every life the table allows."""

from __future__ import annotations

import inspect
import re
from itertools import product
from pathlib import Path

import pytest

from acquit.broker import queue
from acquit.broker.queue import (
    ENDINGS,
    LEFT_BEHIND,
    LOSSES,
    ROWS,
    STEPS,
    TABLE,
    Effect,
    Ending,
    NodeEvent,
    NodeState,
    Row,
    Verdict,
    decide,
    step,
)
from acquit.errors import LocalProtocolError
from acquit.ledger.events import ENTERING, RETIRING, EventKind

LIVE = {NodeState.PENDING, NodeState.SCHEDULED, NodeState.AVAILABLE, NodeState.ACQUIRED, NodeState.SUSPENDED}
OUTCOMES = {
    NodeEvent.ACCEPT,
    NodeEvent.REJECT,
    NodeEvent.REJECT_NOWHERE,
    NodeEvent.RELEASE,
    NodeEvent.MODIFY,
    NodeEvent.FAIL,
    NodeEvent.FAIL_LATER,
    NodeEvent.FAIL_LAST,
    NodeEvent.FAIL_LAST_NOWHERE,
}
LEFT = {NodeEvent.LEAVE, NodeEvent.LEAVE_MODIFIED, NodeEvent.LEAVE_COUNTED, NodeEvent.LEAVE_COUNTED_LATER}


@pytest.mark.parametrize(("state", "event"), list(product(NodeState, NodeEvent)))
def test_every_case_has_its_row_or_is_refused_by_name(state: NodeState, event: NodeEvent) -> None:
    row = TABLE.get((state, event))
    assert STEPS[state][event] is row
    if row is None:
        with pytest.raises(LocalProtocolError, match=f"{state.name} cannot {event.name}"):
            step(state, event)
    else:
        assert step(state, event) == row
        assert (row.state, row.event) == (state, event)
        assert row.why


def test_no_message_comes_back_from_the_archive() -> None:
    assert not [row for row in ROWS if row.state is NodeState.ARCHIVED]


def test_nothing_becomes_new() -> None:
    assert not [row for row in ROWS if row.next is NodeState.NEW]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.state.name}-{row.event.name}")
def test_the_books_balance_in_every_row(row: object) -> None:
    """P3: what enters the live states is recorded as entering, what leaves them as retiring, nothing else is."""
    assert isinstance(row, Row)
    state, event, after, attempts, record, effects, _ = row
    enters = state not in LIVE and after in LIVE
    leaves = state in LIVE and after not in LIVE
    assert (record in ENTERING) == enters == bool(effects & Effect.ENTER)
    assert (record in RETIRING) == leaves == bool(effects & Effect.RETIRE)
    # Nobody said what a link left behind: it is back, is no failure, and the journal can tell it from what was said.
    assert bool(effects & Effect.LEFT) == (event in LEFT or (state, event) == (NodeState.ACQUIRED, NodeEvent.RESTART))
    if effects & Effect.LEFT:
        assert record in (EventKind.RELEASED, EventKind.MODIFIED)
        assert effects & (Effect.OFFER | Effect.SCHEDULE)
        assert row.failures == 0
    else:
        assert row.failures == attempts
    # The count goes up only where an attempt is noted, and only for who had acquired it.
    assert attempts <= bool(effects & Effect.NOTE)
    if effects & Effect.NOTE:
        assert state in (NodeState.ACQUIRED, NodeState.SUSPENDED)
    # What becomes available is offered, what ceases to be is withdrawn.
    if after is NodeState.AVAILABLE and after is not state:
        assert effects & Effect.OFFER
    if state is NodeState.AVAILABLE and after is not state:
        assert effects & Effect.WITHDRAW
    if effects & Effect.COPY:
        assert record in (EventKind.DEAD_LETTERED, EventKind.EXPIRED, EventKind.MOVED_OUT)
    if after is NodeState.SCHEDULED and after is not state:
        assert effects & Effect.SCHEDULE
    if event in OUTCOMES | LEFT:
        assert state in (NodeState.ACQUIRED, NodeState.SUSPENDED)


def test_each_state_is_reached_and_each_live_one_can_be_left() -> None:
    reached = {NodeState.NEW}
    edges = {(row.state, row.next) for row in ROWS}
    while more := {after for before, after in edges if before in reached} - reached:
        reached |= more
    assert reached == set(NodeState)
    ends = {NodeState.ARCHIVED}
    while more := {before for before, after in edges if after in ends} - ends:
        ends |= more
    assert ends == set(NodeState)


def test_whoever_holds_a_message_can_say_any_outcome() -> None:
    for state in (NodeState.ACQUIRED, NodeState.SUSPENDED):
        assert {row.event for row in ROWS if row.state is state} >= OUTCOMES | LEFT


def test_a_message_is_seen_only_when_it_is_available() -> None:
    seen = {row.state for row in ROWS if row.effects & (Effect.TRANSMIT | Effect.TRANSMIT_SYNCED)}
    assert seen == {NodeState.AVAILABLE}


def test_all_lives_up_to_eight_events_balance() -> None:
    """Walk every life: entered minus retired is 1 exactly while the message is live, and neither the count nor the
    failures ever fall; there are never more failures than are counted."""
    lives = {(NodeState.NEW, 0, 0, 0, 0)}
    seen = set(lives)
    for _ in range(8):
        following = set()
        for state, entered, retired, count, failures in lives:
            for row in (row for row in STEPS[state] if row is not None):
                life = (
                    row.next,
                    entered + bool(row.effects & Effect.ENTER),
                    retired + bool(row.effects & Effect.RETIRE),
                    count + row.attempts,
                    failures + row.failures,
                )
                assert 0 <= row.failures <= row.attempts
                assert life[1] - life[2] == (row.next in LIVE), row
                assert life[1] <= 1, row
                following.add(life)
        lives = following - seen
        seen |= lives
    assert {state for state, *_ in seen} == set(NodeState)


def test_outcomes_become_the_event_that_the_policy_asks_for() -> None:
    def event(
        verdict: Verdict, *, left: bool = False, last: bool = False, dead_letter: bool = True, delayed: bool = False
    ) -> NodeEvent:
        return decide(verdict, left=left, last=last, dead_letter=dead_letter, delayed=delayed)

    assert event(Verdict.ACCEPTED) is NodeEvent.ACCEPT
    assert event(Verdict.RELEASED) is NodeEvent.RELEASE
    assert event(Verdict.MODIFIED) is NodeEvent.MODIFY
    assert event(Verdict.RELEASED, delayed=True) is NodeEvent.RELEASE_LATER
    assert event(Verdict.MODIFIED, delayed=True) is NodeEvent.MODIFY_LATER
    for returned in (Verdict.RELEASED, Verdict.MODIFIED):
        assert event(returned, last=True, delayed=True) is NodeEvent.RETURN_LAST
        assert event(returned, last=True, dead_letter=False) is NodeEvent.RETURN_LAST_NOWHERE
    assert event(Verdict.REJECTED) is NodeEvent.REJECT
    assert event(Verdict.REJECTED, dead_letter=False) is NodeEvent.REJECT_NOWHERE
    assert event(Verdict.FAILED) is NodeEvent.FAIL
    assert event(Verdict.FAILED, delayed=True) is NodeEvent.FAIL_LATER
    assert event(Verdict.FAILED, delayed=True, last=True) is NodeEvent.FAIL_LAST
    assert event(Verdict.FAILED, last=True, dead_letter=False) is NodeEvent.FAIL_LAST_NOWHERE
    for last in (False, True):  # what nobody said is never the last attempt
        assert event(Verdict.ACCEPTED, left=True, last=last) is NodeEvent.ACCEPT
        assert event(Verdict.REJECTED, left=True, last=last) is NodeEvent.REJECT
        assert event(Verdict.RELEASED, left=True, last=last, delayed=True) is NodeEvent.LEAVE
        assert event(Verdict.MODIFIED, left=True, last=last, delayed=True) is NodeEvent.LEAVE_MODIFIED
        assert event(Verdict.FAILED, left=True, last=last) is NodeEvent.LEAVE_COUNTED
        assert event(Verdict.FAILED, left=True, last=last, delayed=True) is NodeEvent.LEAVE_COUNTED_LATER


@pytest.mark.parametrize(
    ("verdict", "left", "last", "dead_letter", "delayed"), list(product(Verdict, *[(False, True)] * 4))
)
def test_whatever_is_decided_has_a_row_for_who_holds_the_message(
    verdict: Verdict, left: bool, last: bool, dead_letter: bool, delayed: bool
) -> None:
    event = decide(verdict, left=left, last=last, dead_letter=dead_letter, delayed=delayed)
    row = step(NodeState.ACQUIRED, event)
    # rejected and failed count (3.4.3, 3.4.5); accepted, released, and modified without delivery-failed do not.
    assert row.attempts == (verdict in (Verdict.REJECTED, Verdict.FAILED))
    assert row.failures == (verdict is Verdict.REJECTED or (verdict is Verdict.FAILED and not left))
    assert bool(row.effects & Effect.COPY) <= dead_letter


def test_endings_without_an_outcome() -> None:
    assert set(ENDINGS) == set(Ending)
    assert {ending for ending, verdict in ENDINGS.items() if verdict is Verdict.FAILED} >= LOSSES
    assert ENDINGS[Ending.DETACHED] is ENDINGS[Ending.ENDED_HERE] is ENDINGS[Ending.SETTLED] is Verdict.RELEASED
    assert set(LEFT_BEHIND) == LOSSES | {Ending.DETACHED, Ending.ENDED_HERE}


@pytest.mark.pure
def test_every_event_is_one_that_the_broker_asks_for() -> None:
    """A row that no code reaches is a picture of something that never happens. What is exempt is read from the fold, or
    goes by the rows without asking; `tests/simulation/rows.py` says why of each."""
    broker = Path(queue.__file__).parent
    asking = inspect.getsource(queue).partition("_PLAIN: Final")[2]
    asking += "".join(path.read_text() for path in broker.rglob("*.py") if path.name != "queue.py")
    asked = set(re.findall(r"NodeEvent\.([A-Z_]+)", asking))
    assert {event.name for event in NodeEvent} - asked == {
        *("POST_HELD", "ROLL_BACK", "BROWSE", "RESTART", "RESTART_VOLATILE")
    }
