"""The table of what a sender resumes, against the specification's example of two unsettled maps (3.4.6)."""

from __future__ import annotations

import pytest

from acquit.protocol.definitions import Accepted, DeliveryState, Received, Rejected, Released, TransactionalState
from acquit.protocol.resumption import MISSING, ROWS, MapState, ResumeAction, action, first_fitting, known, plan

BEGUN, HALF = Received(section_number=0, section_offset=0), Received(section_number=2, section_offset=100)

SENDER: dict[bytes, DeliveryState | None] = {
    b"1": None,
    b"2": None,
    b"3": None,
    b"4": None,
    b"5": BEGUN,
    b"6": HALF,
    b"7": HALF,
    b"8": HALF,
    b"9": HALF,
    b"10": Accepted(),
    b"11": Accepted(),
    b"12": Accepted(),
    b"13": Accepted(),
    b"14": Accepted(),
}
RECEIVER: dict[bytes, DeliveryState | None] = {
    b"2": HALF,
    b"3": Accepted(),
    b"4": None,
    b"6": HALF,
    b"7": HALF,
    b"8": Accepted(),
    b"9": None,
    b"11": HALF,
    b"12": Accepted(),
    b"13": Released(),
    b"14": None,
}
EXPECTED = {
    b"1": ResumeAction.SEND,
    b"2": ResumeAction.RESUME,
    b"3": ResumeAction.CONFIRM,
    b"4": ResumeAction.RESUME,
    b"5": ResumeAction.SEND,
    b"6": ResumeAction.RESUME,
    b"7": ResumeAction.RESUME,
    b"8": ResumeAction.CONFIRM,
    b"9": ResumeAction.RESUME,
    b"10": ResumeAction.FORGET,
    b"11": ResumeAction.ABORT,
    b"12": ResumeAction.SETTLE,
    b"13": ResumeAction.RESTATE,
    b"14": ResumeAction.ABORT,
}


def test_the_examples_of_the_specification() -> None:
    assert dict(plan(SENDER, RECEIVER, complete=True)) == EXPECTED


def test_each_example_is_named_by_the_row_that_decides_it() -> None:
    by_example = {example: row for row in ROWS for example in row.examples}
    assert sorted(by_example) == list(range(1, 15))
    for example, row in by_example.items():
        tag = str(example).encode()
        assert row.receiver is known(RECEIVER.get(tag, MISSING))
        assert (row.sender is MapState.OUTCOME) == (known(SENDER[tag]) is MapState.OUTCOME)
        assert row.action is EXPECTED[tag]


def test_every_case_has_a_row() -> None:
    states = [MISSING, None, BEGUN, HALF, Accepted(), Released()]
    for ours in states:
        for theirs in states:
            if not (ours is theirs is MISSING):
                assert action(ours, theirs) in ResumeAction


@pytest.mark.parametrize("state", [None, BEGUN, HALF, Accepted(), Rejected()])
def test_what_the_sender_does_not_have_is_settled(state: DeliveryState | None) -> None:
    assert dict(plan({}, {b"1": state}, complete=True)) == {b"1": ResumeAction.IGNORE}


@pytest.mark.parametrize("state", [None, BEGUN, Accepted()])
def test_an_incomplete_map_says_nothing_of_what_it_does_not_name(state: DeliveryState | None) -> None:
    assert action(state, MISSING, complete=False) is ResumeAction.WAIT


def test_an_outcome_in_a_transaction_that_ended_is_none() -> None:
    state = TransactionalState(txn_id=b"1", outcome=Accepted())
    assert known(state) is MapState.UNSETTLED


def test_no_map_at_all_is_an_empty_one() -> None:
    assert dict(plan({b"1": None}, None, complete=True)) == {b"1": ResumeAction.SEND}


def test_as_much_of_a_map_as_fits() -> None:
    ours = dict.fromkeys((b"a", b"b", b"c"))
    assert first_fitting(ours, (), 100) == (ours, False)
    named, incomplete = first_fitting(ours, (b"c", b"x"), 8)
    assert (list(named), incomplete) == ([b"c", b"a"], True)
