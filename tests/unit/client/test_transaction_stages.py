"""The table of a transaction's life: complete, and without a way from a rollback to a commit."""

from __future__ import annotations

import pytest

from acquit.client.transaction_stages import DISCHARGING, FATES, TABLE, Fate, Stage, TransactionEvent, step
from acquit.errors import LocalProtocolError

BEFORE_THE_END = {Stage.FRESH, Stage.DECLARING, Stage.DECLARED, Stage.VOID_DECLARING, Stage.VOID}
"""No discharge is sent."""
UNDER_WAY = {Stage.COMMITTING, Stage.ASKING, Stage.ROLLING_BACK}
OVER = {Stage.COMMITTED, Stage.IN_DOUBT, Stage.ROLLED_BACK}

NEVER: dict[TransactionEvent, set[Stage]] = {
    TransactionEvent.DECLARE: set(Stage) - {Stage.FRESH},
    TransactionEvent.DECLARED: set(Stage) - {Stage.DECLARING, Stage.VOID_DECLARING},
    TransactionEvent.ROLL_BACK: set(),
    TransactionEvent.DISCHARGE: set(Stage) - {Stage.DECLARED, Stage.VOID},
    # What loses its coordinator before its end is rolled back first; what is over has none.
    TransactionEvent.GONE: {Stage.FRESH, Stage.DECLARING, Stage.DECLARED, Stage.IN_DOUBT, Stage.COMMITTED},
    TransactionEvent.RESET: UNDER_WAY | {Stage.IN_DOUBT, Stage.COMMITTED},
    TransactionEvent.UNANSWERED: set(Stage) - {Stage.COMMITTING, Stage.ASKING},
    TransactionEvent.COMMITTED: (BEFORE_THE_END - {Stage.FRESH}) | {Stage.COMMITTED},
    TransactionEvent.ROLLED_BACK: BEFORE_THE_END | {Stage.COMMITTED},
    TransactionEvent.UNCLEAR: BEFORE_THE_END | {Stage.COMMITTED},
}
"""In which stages an event cannot happen: nobody who could bring it about is there, or has been asked."""


@pytest.mark.parametrize("event", TransactionEvent)
@pytest.mark.parametrize("stage", Stage)
def test_each_case_has_a_row_or_a_reason(stage: Stage, event: TransactionEvent) -> None:
    if stage in NEVER[event]:
        with pytest.raises(LocalProtocolError, match=f"{stage.name}, and {event.name}"):
            step(stage, event)
    else:
        assert step(stage, event) is TABLE[stage][event]


def reachable(stage: Stage) -> set[Stage]:
    found, left = {stage}, [stage]
    while left:
        for after in TABLE[left.pop()].values():
            if after not in found:
                found.add(after)
                left.append(after)
    return found


def test_every_stage_is_reached_and_every_transaction_can_end() -> None:
    assert reachable(Stage.FRESH) == set(Stage)
    for stage in Stage:
        assert reachable(stage) & OVER


def test_what_is_to_be_rolled_back_is_never_committed_by_us() -> None:
    """Only the peer's word on a commit that had been sent can say so."""
    ours = {
        TransactionEvent.DECLARE,
        TransactionEvent.DECLARED,
        TransactionEvent.ROLL_BACK,
        TransactionEvent.DISCHARGE,
        TransactionEvent.GONE,
        TransactionEvent.RESET,
        TransactionEvent.UNANSWERED,
    }
    for stage, fate in FATES.items():
        if fate is Fate.ROLLED_BACK:
            assert {FATES.get(after) for event, after in TABLE[stage].items() if event in ours} == {Fate.ROLLED_BACK}


def test_a_commit_that_was_sent_is_not_done_again() -> None:
    for stage in (Stage.COMMITTING, Stage.ASKING, Stage.IN_DOUBT, Stage.COMMITTED):
        assert not reachable(stage) & BEFORE_THE_END


def test_who_is_discharging_has_no_answer_yet() -> None:
    assert DISCHARGING == UNDER_WAY
    for stage in UNDER_WAY:
        assert {
            TABLE[stage][event]
            for event in (TransactionEvent.COMMITTED, TransactionEvent.ROLLED_BACK, TransactionEvent.UNCLEAR)
        } <= OVER
