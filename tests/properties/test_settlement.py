"""The settlement table, walked exhaustively: two ends, two wires, up to four frames in flight each way.

A joint state is what the sender knows, how much it has sent, the same of the receiver, and the frames on both wires.
Every verb that the table allows and every arrival leads to another one. The search visits all that can be reached, in
each receiver settle mode, and looks for states that should not be: stuck, without a way out, or without a row.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import pytest

from acquit.errors import LocalProtocolError
from acquit.protocol.definitions import RcvSettleMode, Role
from acquit.protocol.settlement import RECEIVER_STEPS, ROWS, SENDER_STEPS, TABLE, Input, Phase, SettlementEffect, apply

IN_FLIGHT_MAX = 4

SENDER, RECEIVER = Role.SENDER, Role.RECEIVER
NOTHING, PART, ALL = range(3)  # how much of the delivery was sent, or has arrived (2.6.14)

VERBS = (Input.UPDATE, Input.DECIDE, Input.SETTLE)
HEARD = {Input.UPDATE: Input.RECV_STATE, Input.DECIDE: Input.RECV_OUTCOME, Input.SETTLE: Input.RECV_SETTLED}
TRANSFERS = {
    Input.TRANSFER: Input.RECV_TRANSFER,
    Input.TRANSFER_SETTLED: Input.RECV_TRANSFER_SETTLED,
    Input.ABORT: Input.RECV_ABORT,
}
FROM_PEER = {
    SENDER: (Input.RECV_STATE, Input.RECV_OUTCOME, Input.RECV_SETTLED),
    RECEIVER: (
        Input.RECV_TRANSFER,
        Input.RECV_TRANSFER_SETTLED,
        Input.RECV_ABORT,
        Input.RECV_STATE,
        Input.RECV_OUTCOME,
        Input.RECV_SETTLED,
    ),
}


class Frame(NamedTuple):
    input: Input  # what it is to whom it reaches
    last: bool = False  # the last transfer of the delivery


class End(NamedTuple):
    phase: Phase
    progress: int


class Joint(NamedTuple):
    sender: End
    receiver: End
    to_receiver: tuple[Frame, ...]
    to_sender: tuple[Frame, ...]


START = Joint(End(Phase.NEW, NOTHING), End(Phase.NEW, NOTHING), (), ())
FINISH = Joint(End(Phase.SETTLED, ALL), End(Phase.SETTLED, ALL), (), ())


class Walk:
    """All the joint states that can be reached, and what it took."""

    def __init__(self, mode: RcvSettleMode) -> None:
        self.mode = mode
        self.used: set[tuple[Role, Phase, Input]] = set()
        self.ways: dict[Joint, set[Joint]] = {}
        todo = [START]
        while todo:
            state = todo.pop()
            if state not in self.ways:
                self.ways[state] = self._ways(state)
                todo += self.ways[state]

    def _row(self, role: Role, phase: Phase, input_: Input) -> tuple[Phase, SettlementEffect] | None:
        found = TABLE.get((role, phase, input_))
        if found is not None:
            self.used.add((role, phase, input_))
        return found

    def _ways(self, state: Joint) -> set[Joint]:
        return self._sender_sends(state) | self._verbs(state) | self._arrivals(state)

    def _sender_sends(self, state: Joint) -> set[Joint]:
        ways = set()
        if state.sender.progress == ALL or len(state.to_receiver) == IN_FLIGHT_MAX:
            return ways
        for input_, heard in TRANSFERS.items():
            if input_ is Input.ABORT and state.sender.progress == NOTHING:
                continue
            row = self._row(SENDER, state.sender.phase, input_)
            if row is None:
                continue
            for last in (True,) if input_ is Input.ABORT else (False, True):
                sender = End(row[0], ALL if last else PART)
                ways.add(state._replace(sender=sender, to_receiver=(*state.to_receiver, Frame(heard, last))))
        return ways

    def _verbs(self, state: Joint) -> set[Joint]:
        ways = set()
        for role in (SENDER, RECEIVER):
            end, wire = (state.receiver, state.to_sender) if role else (state.sender, state.to_receiver)
            for verb in VERBS:
                row = self._row(role, end.phase, verb)
                if row is None or end.progress == NOTHING:
                    continue
                phase, effects = row
                if not effects:
                    assert phase is end.phase, "a verb that does nothing changes nothing"
                    continue
                if len(wire) == IN_FLIGHT_MAX:
                    continue
                assert bool(effects & SettlementEffect.ANNOUNCE) != bool(effects & SettlementEffect.ANNOUNCE_SETTLED)
                if effects & SettlementEffect.ANNOUNCE_SETTLED:
                    frame = Frame(Input.RECV_SETTLED)
                else:  # in mode second a settling verb only tells the outcome
                    frame = Frame(HEARD[Input.DECIDE if verb is Input.SETTLE else verb])
                moved = end._replace(phase=phase)
                if role is SENDER:
                    ways.add(state._replace(sender=moved, to_receiver=(*wire, frame)))
                else:
                    ways.add(state._replace(receiver=moved, to_sender=(*wire, frame)))
        return ways

    def _arrivals(self, state: Joint) -> set[Joint]:
        ways = set()
        if state.to_receiver:
            frame, *rest = state.to_receiver
            end = state.receiver
            input_ = frame.input
            is_transfer = input_ in TRANSFERS.values()
            if input_ is Input.RECV_TRANSFER and end.phase is Phase.NEW and self.mode is RcvSettleMode.SECOND:
                input_ = Input.RECV_TRANSFER_SECOND
            assert not is_transfer or end.progress != ALL
            row = self._row(RECEIVER, end.phase, input_)
            assert row is not None, (RECEIVER, end.phase, input_)
            progress = (ALL if frame.last else PART) if is_transfer else end.progress
            ways.add(state._replace(receiver=End(row[0], progress), to_receiver=tuple(rest)))
        if state.to_sender:
            frame, *rest = state.to_sender
            row = self._row(SENDER, state.sender.phase, frame.input)
            assert row is not None, (SENDER, state.sender.phase, frame.input)
            ways.add(state._replace(sender=state.sender._replace(phase=row[0]), to_sender=tuple(rest)))
        return ways

    def able_to_finish(self) -> set[Joint]:
        back: dict[Joint, list[Joint]] = {}
        for state, ways in self.ways.items():
            for way in ways:
                back.setdefault(way, []).append(state)
        seen: set[Joint] = set()
        todo = [FINISH]
        while todo:
            state = todo.pop()
            if state not in seen:
                seen.add(state)
                todo += back.get(state, ())
        return seen


@cache
def walk(mode: RcvSettleMode) -> Walk:
    return Walk(mode)


modes = pytest.mark.parametrize("mode", list(RcvSettleMode))


@pytest.mark.promise("no-lies")
@modes
def test_the_only_end_is_settled_at_both_ends_with_nothing_on_the_wire(mode: RcvSettleMode) -> None:
    stuck = [state for state, ways in walk(mode).ways.items() if not ways - {state}]
    assert stuck == [FINISH]


@modes
def test_from_everywhere_there_is_a_way_to_the_end(mode: RcvSettleMode) -> None:
    assert walk(mode).able_to_finish() == set(walk(mode).ways)


@modes
def test_the_search_is_not_trivial(mode: RcvSettleMode) -> None:
    assert len(walk(mode).ways) > 250


@modes
def test_an_end_that_has_forgotten_says_nothing_more(mode: RcvSettleMode) -> None:
    """Settled is said once (2.6.12): no disposition leaves an end whose phase is SETTLED."""
    for state, ways in walk(mode).ways.items():
        for way in ways:
            if state.receiver.phase is Phase.SETTLED:
                assert len(way.to_sender) <= len(state.to_sender)


@pytest.mark.promise("no-lies")
def test_in_mode_second_the_sender_settles_first() -> None:
    """2.8.3: unless the sender aborts, no receiver in mode second forgets before it hears that the sender has."""
    for state, ways in walk(RcvSettleMode.SECOND).ways.items():
        for way in ways:
            if state.receiver.phase is not Phase.SETTLED and way.receiver.phase is Phase.SETTLED:
                assert state.sender.phase is Phase.SETTLED


def test_every_row_is_needed() -> None:
    used = walk(RcvSettleMode.FIRST).used | walk(RcvSettleMode.SECOND).used
    # Two peers that both obey the table never say anything after an outcome but that they settle. Others may.
    for_peers_that_go_on_after_an_outcome = {
        (SENDER, Phase.DECIDED, Input.RECV_STATE),
        (SENDER, Phase.DECIDED, Input.RECV_OUTCOME),
        (RECEIVER, Phase.OFFERED, Input.RECV_STATE),
        (RECEIVER, Phase.OFFERED, Input.RECV_OUTCOME),
        (RECEIVER, Phase.OFFERED_SECOND, Input.RECV_STATE),
        (RECEIVER, Phase.OFFERED_SECOND, Input.RECV_OUTCOME),
    }
    # A lost delivery is out of the maps: nothing of the peer's reaches it. What LOSE and LOST do is tested below.
    unused = {key for key in TABLE if key not in used and key[1] is not Phase.LOST and key[2] is not Input.LOSE}
    assert unused == for_peers_that_go_on_after_an_outcome


@pytest.mark.parametrize("key", [(SENDER, Phase.DECIDED), (RECEIVER, Phase.OFFERED), (RECEIVER, Phase.OFFERED_SECOND)])
@pytest.mark.parametrize("input_", [Input.RECV_STATE, Input.RECV_OUTCOME])
def test_an_outcome_is_final_whatever_its_author_says_later(key: tuple[Role, Phase], input_: Input) -> None:
    role, phase = key
    assert TABLE[role, phase, input_] == (phase, SettlementEffect.NONE)


@pytest.mark.parametrize("role", [SENDER, RECEIVER])
def test_whatever_the_peer_says_of_a_known_delivery_has_a_row(role: Role) -> None:
    only_receivers = {Phase.UNSETTLED_SECOND, Phase.OFFERED_SECOND, Phase.DECIDED_SECOND}
    for phase in Phase:
        if phase in (Phase.NEW, Phase.LOST) or (role is SENDER and phase in only_receivers):
            continue
        for input_ in FROM_PEER[role]:
            assert (role, phase, input_) in TABLE


@pytest.mark.parametrize("role", [SENDER, RECEIVER])
def test_settled_by_the_peer_always_means_forgotten_here(role: Role) -> None:
    """The session relies on it: what it finds in its map leaves it."""
    steps = RECEIVER_STEPS if role else SENDER_STEPS
    for phase in Phase:
        step = steps[phase][Input.RECV_SETTLED]
        if step is not None and phase is not Phase.SETTLED:
            assert step == (Phase.SETTLED, SettlementEffect.FORGET | SettlementEffect.NOTIFY)


@pytest.mark.parametrize("role", [SENDER, RECEIVER])
def test_losing_the_link_ends_everything_once(role: Role) -> None:
    for phase in Phase:
        row = TABLE.get((role, phase, Input.LOSE))
        if row is not None:
            over = phase in (Phase.SETTLED, Phase.LOST)
            assert row == ((phase, SettlementEffect.NONE) if over else (Phase.LOST, SettlementEffect.FORGET))
    for verb in VERBS:
        assert TABLE[role, Phase.LOST, verb] == (Phase.LOST, SettlementEffect.NONE)


def test_no_case_has_two_rows() -> None:
    assert len({(row.role, row.phase, row.input) for row in ROWS}) == len(ROWS)


def test_the_fast_form_is_the_table() -> None:
    for role, steps in ((SENDER, SENDER_STEPS), (RECEIVER, RECEIVER_STEPS)):
        for phase in Phase:
            for input_ in Input:
                assert steps[phase][input_] == TABLE.get((role, phase, input_))


def test_a_verb_that_is_ruled_out_is_refused_by_name() -> None:
    with pytest.raises(LocalProtocolError, match="a receiver cannot DECIDE a delivery that is DECIDED_SECOND"):
        apply(RECEIVER, Phase.DECIDED_SECOND, Input.DECIDE)
