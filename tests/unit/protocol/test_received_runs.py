from __future__ import annotations

import sys
from types import FrameType
from typing import Any

import pytest

from acquit.errors import LocalProtocolError
from acquit.protocol.composite import encode_composite
from acquit.protocol.constants import ACCEPTED, RELEASED
from acquit.protocol.costs import Turn
from acquit.protocol.definitions import Disposition, End, RcvSettleMode, Role, TransactionalState, Transfer
from acquit.protocol.delivery import ReceivedRun
from acquit.protocol.events import RunReceived, RunSettled, StatesReceived
from acquit.protocol.frames import encode_frame
from acquit.protocol.link import ReceivingLink
from acquit.protocol.session import Session
from acquit.protocol.settlement import Phase
from tests.support.peer import Peer, attach_to, receiving_engine, sending_attach
from tests.support.wire import kinds, only

FIRST = 1_000  # wide from the start


def transfers(first: int, count: int, message_format: int = 0, **fields: Any) -> bytes:
    frames = []
    for number in range(first, first + count):
        transfer = Transfer(0, number, number.to_bytes(8, "big"), message_format, **fields)
        frames.append(encode_frame(0, encode_composite(transfer) + b"%d" % number))
    return b"".join(frames)


def taking(count: int) -> tuple[Peer, ReceivingLink, ReceivedRun]:
    """An engine in mode second whose application takes runs, and has one, behind a single delivery."""
    peer, link = receiving_engine(100, rcv_settle_mode=RcvSettleMode.SECOND)
    link.takes_runs = link.hears_runs = True
    peer.send_bytes(transfers(FIRST, 1))
    run = only(peer.send_bytes(transfers(FIRST + 1, count)), RunReceived).run
    peer.hear()
    return peer, link, run


def settled(first: int, last: int, state: Any = ACCEPTED) -> bytes:
    return encode_frame(0, encode_composite(Disposition(Role.SENDER, first, last, settled=True, state=state)))


def test_in_mode_second_a_run_is_forgotten_when_its_sender_has_settled_it() -> None:
    peer, link, run = taking(5)
    run.context = "mine"
    assert link.session.settle_run(run, ACCEPTED) == 5
    said = peer.hear_only(Disposition)
    assert (said.first, said.last, said.settled, said.state) == (FIRST + 1, FIRST + 5, False, ACCEPTED)
    assert (run.phase, link.unsettled_count) == (Phase.DECIDED_SECOND, 6)
    assert link.session.settle_run(run, RELEASED) == 0, "the first outcome stands"
    told = only(peer.send_bytes(settled(FIRST + 1, FIRST + 5)), RunSettled)
    assert told.run is run and told.state == ACCEPTED and (run.settled, run.whole, run.context) == (True, True, "mine")
    assert link.unsettled_count == 1
    assert link.session.settle_run(run, ACCEPTED) == 0
    assert [one.delivery_id for one in link.unsettled()] == [FIRST]


def test_in_mode_second_a_run_needs_an_outcome() -> None:
    peer, link, run = taking(5)
    with pytest.raises(LocalProtocolError, match="need an outcome: their receiver settles second"):
        link.session.settle_run(run, TransactionalState(b"t", ACCEPTED))
    assert (run.phase, run.local_state, peer.hear()) == (Phase.UNSETTLED_SECOND, None, [])


def test_some_of_a_run_are_settled_as_runs() -> None:
    peer, link, run = taking(9)
    assert link.session.settle_range(link, FIRST, 4, ACCEPTED, "a") == (4, 0)
    assert link.session.settle_range(link, FIRST + 4, 2, RELEASED, "b") == (2, 0)
    assert link.session.settle_range(link, FIRST, 20, ACCEPTED, "c") == (4, 0), "these had none"
    said = peer.hear()
    assert [(one.first, one.last, one.state) for one in said if isinstance(one, Disposition)] == [
        (FIRST, FIRST + 3, ACCEPTED),
        (FIRST + 4, FIRST + 5, RELEASED),
        (FIRST + 6, FIRST + 9, ACCEPTED),
    ]
    events = peer.send_bytes(settled(FIRST + 2, FIRST + 2) + settled(FIRST, FIRST + 9))
    assert kinds(events) == ["RunSettled", "StatesReceived", *["RunSettled"] * 4]
    runs = [one.run for one in events if isinstance(one, RunSettled)]
    assert [(one.first_id, len(one.tags), one.context, one.local_state) for one in runs] == [
        (FIRST + 2, 1, "a", ACCEPTED),
        (FIRST + 1, 1, "a", ACCEPTED),
        (FIRST + 3, 1, "a", ACCEPTED),
        (FIRST + 4, 2, "b", RELEASED),
        (FIRST + 6, 4, "c", ACCEPTED),
    ]
    assert [one.context for one in only(events, StatesReceived).deliveries] == ["a"]
    assert run.whole and link.unsettled_count == 0


def test_what_comes_one_by_one_leaves_what_came_together_before_it() -> None:
    peer, link, run = taking(5)
    large = encode_frame(0, encode_composite(Transfer(0, FIRST + 6, (FIRST + 6).to_bytes(8, "big"), 0, more=True)))
    peer.send_bytes(large + encode_frame(0, encode_composite(Transfer(0))))
    later = only(peer.send_bytes(transfers(FIRST + 7, 3)), RunReceived).run
    assert link.session.settle_range(link, FIRST + 6, 1, ACCEPTED, None) == (1, 0)
    assert kinds(peer.send_bytes(settled(FIRST + 6, FIRST + 6))) == ["StatesReceived"]
    assert run.whole and later.whole
    assert [one.delivery_id - FIRST for one in link.unsettled()] == [0, 1, 2, 3, 4, 5, 7, 8, 9]
    assert not run.whole and not later.whole


def test_a_sender_that_decides_by_itself_speaks_of_single_ones() -> None:
    peer, link, run = taking(5)
    link.session.settle_range(link, FIRST, 3, ACCEPTED, "mine")
    events = peer.send_bytes(settled(FIRST + 1, FIRST + 4, None))
    assert kinds(events) == ["RunSettled", "StatesReceived"]
    assert [one.delivery_id for one in only(events, StatesReceived).deliveries] == [FIRST + 3, FIRST + 4]
    assert not run.whole


def test_nothing_is_settled_while_the_link_closes() -> None:
    peer, link, run = taking(5)
    link.closing = True
    assert link.session.settle_range(link, FIRST, 6, ACCEPTED, "mine") == (0, 0)
    assert (run.context, peer.hear()) == (None, [])
    assert {one.context for one in link.unsettled()} == {None}, "the single one neither"


def test_what_is_of_another_link_is_passed_over() -> None:
    peer, link, run = taking(5)
    other = attach_to(peer, sending_attach("other", 1))
    assert link.session.settle_range(other, FIRST, 6, ACCEPTED, "mine") == (0, 0)
    assert run.context is None and all(one.context is None for one in link.unsettled())


def test_on_a_link_in_mode_first_they_are_forgotten() -> None:
    peer, link = receiving_engine(100)
    link.takes_runs = link.hears_runs = True
    peer.send_bytes(transfers(FIRST, 6))
    assert link.session.settle_range(link, FIRST, 6, ACCEPTED, None) == (0, 6)
    said = peer.hear_only(Disposition)
    assert (said.first, said.last, said.settled) == (FIRST, FIRST + 5, True)
    assert link.unsettled_count == 0 and link.unsettled() == []
    peer.send_bytes(transfers(FIRST + 6, 3))
    assert link.session.settle_range(link, FIRST + 6, 3, ACCEPTED, None) == (0, 3), "a run and nothing else"
    assert peer.hear_only(Disposition).last == FIRST + 8


def test_one_that_somebody_has_looked_at_is_heard_of_as_single_ones() -> None:
    peer, link, run = taking(5)
    link.session.settle_range(link, FIRST + 1, 5, ACCEPTED, "mine")
    looked_at = run.deliveries
    told = only(peer.send_bytes(settled(FIRST + 1, FIRST + 5)), StatesReceived)
    assert told.deliveries == looked_at and all(one.settled for one in looked_at)
    assert link.unsettled_count == 1


@pytest.mark.parametrize("runs", [True, False])
def test_half_of_all_ids_away_is_another_delivery(runs: bool) -> None:
    peer, link = receiving_engine(100, rcv_settle_mode=RcvSettleMode.SECOND)
    link.takes_runs = link.hears_runs = runs
    peer.send_bytes(transfers(FIRST, 1))
    peer.send_bytes(transfers(FIRST + 1, 1))
    link.session.settle_range(link, FIRST, 2, ACCEPTED, "mine")
    peer.hear()
    away = (FIRST + 1 + (1 << 31)) & 0xFFFF_FFFF
    assert peer.send_bytes(settled(away, away)) == []
    assert link.unsettled_count == 2
    assert link.session.settle_range(link, away, 1, RELEASED, "other") == (0, 0)


def lines_to_settle(count: int) -> int:
    """How many lines of acquit it takes to settle so many runs, each with a single delivery behind it."""
    peer, link = receiving_engine(10 * count, rcv_settle_mode=RcvSettleMode.SECOND)
    link.takes_runs = link.hears_runs = True
    peer.send_bytes(transfers(FIRST, 1))
    at = FIRST + 1
    for _ in range(count):
        peer.send_bytes(transfers(at, 3))
        peer.send_bytes(transfers(at + 3, 1, message_format=1))
        at += 4
    lines = 0

    def trace(frame: FrameType, event: str, _arg: object) -> Any:
        nonlocal lines
        lines += event == "line"
        return trace if "/acquit/" in frame.f_code.co_filename else None

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        assert link.session.settle_range(link, FIRST, 4 * count + 1, ACCEPTED, "mine") == (4 * count + 1, 0)
    finally:
        sys.settrace(before)
    return lines


@pytest.mark.pure
def test_runs_and_single_ones_in_turns_cost_no_more_each_where_there_are_many() -> None:
    few, many = lines_to_settle(20), lines_to_settle(200)
    assert many < 15 * few, "ten times as many"


def of_many_runs(count: int) -> tuple[Peer, ReceivingLink]:
    """An engine with so many runs of two that have their outcome."""
    peer, link, _ = taking(2)
    for number in range(1, count):
        peer.send_bytes(transfers(FIRST + 1 + 2 * number, 2))
    assert link.session.settle_range(link, FIRST, 1 + 2 * count, ACCEPTED, None) == (1 + 2 * count, 0)
    return peer, link


def test_a_disposition_of_many_runs_is_heard_in_turns() -> None:
    peer, link = of_many_runs(9)
    peer.engine.turn = Turn(15)
    heard = [peer.send_bytes(settled(FIRST, FIRST + 18))]
    while peer.engine.input_waits:
        heard.append(peer.send_bytes(b""))
    assert len(heard) > 3 and max(map(len, heard)) < 9
    assert sum(isinstance(one, RunSettled) for events in heard for one in events) == 9
    assert link.unsettled_count == 0


def test_nobody_hears_the_rest_of_a_session_that_has_ended_meanwhile() -> None:
    peer, link = of_many_runs(9)
    peer.engine.turn = Turn(15)
    peer.send_bytes(settled(FIRST, FIRST + 18))
    assert peer.engine.input_waits
    session = link.session
    assert isinstance(session, Session)
    session.end()
    assert isinstance(peer.hear()[-1], End)
    while peer.engine.input_waits:
        assert peer.send_bytes(b"") == []
