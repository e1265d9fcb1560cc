"""Deliveries that come and go together, and what becomes of them when somebody looks at one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import repeat
from typing import Any

import pytest

from acquit.protocol.composite import encode_composite
from acquit.protocol.constants import ACCEPTED, RELEASED
from acquit.protocol.costs import ACCEPTED_COST, DELIVERY_COST, FRAME_COSTS, UNBOUNDED, Turn
from acquit.protocol.definitions import Detach, Disposition, End, RcvSettleMode, Role, TransactionalState, Transfer
from acquit.protocol.delivery import SentRun
from acquit.protocol.events import DeliveriesReceived, RunAccepted, RunReceived, StatesReceived
from acquit.protocol.frames import encode_frame
from acquit.protocol.link import ReceivingLink, SendingLink
from acquit.protocol.options import ConnectionOptions
from acquit.protocol.sender import Heads
from tests.support.peer import Peer, receiving_engine, sending_engine
from tests.support.wire import kinds, only

FIRST = 1_000  # wide from the start


def transfers(first: int, count: int, **fields: Any) -> bytes:
    frames = []
    for number in range(first, first + count):
        id_ = number & 0xFFFF_FFFF
        transfer = Transfer(0, id_, number.to_bytes(8, "big"), 0, **fields)
        frames.append(encode_frame(0, encode_composite(transfer) + b"%d" % number))
    return b"".join(frames)


def taking(first: int = FIRST, **options: Any) -> tuple[Peer, ReceivingLink]:
    """An engine whose application takes runs, and that has seen one transfer."""
    peer, link = receiving_engine(100, **options)
    peer.send_bytes(transfers(first, 1))
    peer.hear()
    link.takes_runs = True
    return peer, link


def test_deliveries_come_as_a_run_and_are_settled_by_one_disposition() -> None:
    peer, link = taking()
    run = only(peer.send_bytes(transfers(FIRST + 1, 5)), RunReceived).run
    assert (list(run.payloads), run.first_id, run.whole, run.settled) == (
        [b"%d" % number for number in range(FIRST + 1, FIRST + 6)],
        FIRST + 1,
        True,
        False,
    )
    assert (link.credit, link.unsettled_count, link.delivery_count) == (94, 6, 6)
    assert link.session.settle_run(run, ACCEPTED) == 5
    said = peer.hear_only(Disposition)
    assert (said.first, said.last, said.settled, said.state) == (FIRST + 1, FIRST + 5, True, ACCEPTED)
    assert [one.delivery_id for one in link.unsettled()] == [FIRST]
    assert link.unsettled_count == 1


def test_a_link_that_asked_for_none_gets_none() -> None:
    peer, link = taking()
    link.takes_runs = False
    assert kinds(peer.send_bytes(transfers(FIRST + 1, 5))) == ["DeliveriesReceived"]


def test_what_somebody_looked_at_is_settled_all_the_same() -> None:
    peer, link = taking()
    run = only(peer.send_bytes(transfers(FIRST + 1, 5)), RunReceived).run
    assert link.unsettled()[1:] == run.deliveries
    assert not run.whole
    run.deliveries[1].settle(RELEASED)
    assert link.session.settle_run(run, ACCEPTED) == 4
    said = peer.hear()
    assert [(one.first, one.last, one.state) for one in said if isinstance(one, Disposition)] == [
        (FIRST + 2, FIRST + 2, RELEASED),
        (FIRST + 1, FIRST + 1, ACCEPTED),
        (FIRST + 3, FIRST + 5, ACCEPTED),
    ]
    assert link.unsettled_count == 1


def test_a_sender_settles_some_of_a_run_before_it_is_answered() -> None:
    peer, link = taking()
    said = Disposition(Role.SENDER, FIRST + 2, FIRST + 3, settled=True)
    events = peer.send_bytes(transfers(FIRST + 1, 5) + encode_frame(0, encode_composite(said)))
    assert kinds(events) == ["RunReceived", "StatesReceived"]
    run = only(events, RunReceived).run
    assert not run.whole
    assert link.session.settle_run(run, ACCEPTED) == 3
    assert link.unsettled_count == 1


def test_a_run_whose_link_is_closed_with_it_is_not_answered() -> None:
    peer, link = taking()
    closed = encode_frame(0, encode_composite(Detach(0, closed=True)))
    events = peer.send_bytes(transfers(FIRST + 1, 5) + closed)
    assert kinds(events) == ["RunReceived", "LinkDetached"]
    peer.hear()
    assert link.session.settle_run(only(events, RunReceived).run, ACCEPTED) == 0
    assert peer.hear() == []
    assert link.session.incoming == {}


@pytest.mark.parametrize("settled", [None, True])
def test_what_ends_with_what_it_came_in_was_not_settled_by_that(settled: bool | None) -> None:
    """The engine hears the end before anybody else hears of the deliveries."""
    peer, _ = taking()
    end = encode_frame(0, encode_composite(End()))
    events = peer.send_bytes(transfers(FIRST + 1, 3, settled=settled) + end)
    run = only(events, RunReceived).run
    assert run.settled is bool(settled)
    assert run.whole is bool(settled), "what is lost is laid out"
    assert [(one.settled, one.over) for one in run.deliveries] == [(bool(settled), True)] * len(run.tags)


def test_a_run_is_not_answered_while_its_link_closes() -> None:
    peer, link = taking()
    run = only(peer.send_bytes(transfers(FIRST + 1, 5)), RunReceived).run
    link.closing = True
    assert link.session.settle_run(run, ACCEPTED) == 0
    assert run.whole


def test_settled_ones_come_as_a_run_that_nobody_answers() -> None:
    peer, link = receiving_engine(100)
    peer.send_bytes(transfers(FIRST, 1, settled=True))
    link.takes_runs = True
    run = only(peer.send_bytes(transfers(FIRST + 1, 3, settled=True)), RunReceived).run
    assert run.settled
    assert link.session.settle_run(run, ACCEPTED) == 0
    assert link.unsettled() == []
    assert [one.settled for one in run.deliveries] == [True] * 3


def test_what_may_be_told_apart_comes_singly() -> None:
    peer, link = receiving_engine(100, rcv_settle_mode=RcvSettleMode.SECOND)
    peer.send_bytes(transfers(FIRST, 1))
    link.takes_runs = True
    assert kinds(peer.send_bytes(transfers(FIRST + 1, 3))) == ["DeliveriesReceived"]
    assert link in peer.engine.predictions.links


def test_those_of_a_transaction_come_as_a_run_that_says_so() -> None:
    peer, link = receiving_engine(100)
    state = TransactionalState(b"t")
    peer.send_bytes(transfers(FIRST, 1, state=state))
    link.takes_runs = True
    run = only(peer.send_bytes(transfers(FIRST + 1, 3, state=state)), RunReceived).run
    assert run.state == state
    accepted = TransactionalState(b"t", ACCEPTED)
    assert link.session.settle_run(run, accepted) == 3
    assert link.session.keep_order, "a discharge must not overtake it"
    said = peer.hear_only(Disposition)
    assert (said.first, said.last, said.settled, said.state) == (FIRST + 1, FIRST + 3, True, accepted)
    run = only(peer.send_bytes(transfers(FIRST + 4, 3, state=state)), RunReceived).run
    assert [one.remote_state for one in run.deliveries] == [state] * 3
    other = TransactionalState(b"u")
    run = only(peer.send_bytes(transfers(FIRST + 7, 2, state=other)), RunReceived).run
    assert (run.state, [one.remote_state for one in run.deliveries]) == (other, [other] * 2)
    longer = TransactionalState(b"longer")
    assert kinds(peer.send_bytes(transfers(FIRST + 9, 1, state=longer))) == ["DeliveriesReceived"]


def test_to_settle_a_single_one_leaves_a_run_whole() -> None:
    peer, link = taking()
    (single,) = link.unsettled()
    run = only(peer.send_bytes(transfers(FIRST + 1, 5)), RunReceived).run
    assert link.session.settle_all([single], ACCEPTED) == 1
    assert run.whole
    assert link.session.settle_all(run.deliveries[:2], ACCEPTED) == 2
    assert [one.delivery_id for one in link.unsettled()] == [FIRST + 3, FIRST + 4, FIRST + 5]


def test_delivery_ids_that_begin_anew_come_singly() -> None:
    first = 0xFFFF_FFF0
    peer, link = taking(first, next_outgoing_id=first)
    assert kinds(peer.send_bytes(transfers(first + 1, 3))) == ["RunReceived"]
    events = peer.send_bytes(transfers(first + 4, 20))
    assert sum(len(event.deliveries) for event in events if isinstance(event, DeliveriesReceived)) == 20
    assert link.unsettled_count == 24 == len(link.unsettled())


# -- sent together ----------------------------------------------------------------------------------------------------


class Letters:
    """Contexts that are letters."""

    def __init__(self, letters: str) -> None:
        self.letters = letters

    @property
    def accepted_cost(self) -> int:
        return ACCEPTED_COST * len(self.letters)

    def each(self) -> Sequence[object]:
        return list(self.letters)

    def singly(self) -> Letters:
        return self

    def split(self, count: int) -> Letters:
        front, self.letters = self.letters[:count], self.letters[count:]
        return Letters(front)


def tag(number: int) -> bytes:
    return number.to_bytes(4, "big")


def sent(letters: str = "abcde", **options: Any) -> tuple[Peer, SendingLink]:
    """An engine that has sent one by itself, and these together."""
    settings = ConnectionOptions(container_id="engine", **options)
    peer, link = sending_engine(options=settings)
    link.session.next_delivery_id = FIRST
    link.send(tag(0), b"first", context="first")
    peer.hear()
    together(link, letters)
    return peer, link


def together(link: SendingLink, letters: str) -> None:
    assert link.may_send_together(len(letters), 4, 10)
    link.send_together(
        [tag(ord(letter)) for letter in letters],
        Heads("2sH", (repeat(b"he"), [0x6164] * len(letters)), 4),
        [letter.encode() for letter in letters],
        Letters(letters),
    )


def accept(peer: Peer, first: int, last: int | None = None, **fields: Any) -> list[tuple[type, str]]:
    """What the application hears of it, as letters."""
    said = Disposition(Role.RECEIVER, first, last, **{"settled": True, "state": ACCEPTED, **fields})
    heard = []
    for event in peer.say(said):
        if isinstance(event, RunAccepted):
            assert isinstance(event.run.contexts, Letters)
            told = event.run.waits or isinstance(said.state, TransactionalState)
            assert event.run.state == (said.state if told else None)
            heard.append((RunAccepted, event.run.contexts.letters))
        elif isinstance(event, StatesReceived):
            heard.append((StatesReceived, "".join(str(one.context) for one in event.deliveries)))
    return heard


def test_frames_are_those_of_single_sends() -> None:
    peer, link = sent()
    together_bytes = peer.hear_bytes()
    other, single = sent("z")
    other.hear()
    single.session.next_delivery_id = FIRST + 1
    single.send_all(
        [tag(ord(letter)) for letter in "abcde"], [b"head" + letter.encode() for letter in "abcde"], "abcde"
    )
    assert together_bytes == other.hear_bytes()
    assert (link.credit, link.delivery_count, link.unsettled_count) == (94, 6, 6)
    assert link.session.outgoing_count == 6
    assert link.session.oldest_outgoing == FIRST


def test_one_disposition_is_heard_of_what_was_sent_singly_and_together() -> None:
    peer, link = sent()
    together(link, "fg")
    heard = accept(peer, FIRST, FIRST + 7)
    assert sorted(heard, key=str) == [(RunAccepted, "abcde"), (RunAccepted, "fg"), (StatesReceived, "first")]
    assert (link.unsettled_count, link.session.outgoing_count, link.session.oldest_outgoing) == (0, 0, None)


def test_what_is_accepted_in_a_transaction_is_heard_of_together() -> None:
    peer, link = sent()
    state = TransactionalState(b"t", ACCEPTED)
    said = Disposition(Role.RECEIVER, FIRST + 1, FIRST + 3, settled=True, state=state)
    run = only(peer.say(said), RunAccepted).run
    assert (run.link, run.state, link.unsettled_count) == (link, state, 3)
    assert [(one.context, one.delivery_id, one.tag, one.settled, one.remote_state) for one in run.deliveries] == [
        (letter, FIRST + 1 + at, tag(ord(letter)), True, state) for at, letter in enumerate("abc")
    ]
    assert UNBOUNDED - peer.engine.turn.left >= FRAME_COSTS[Disposition] + 3 * DELIVERY_COST, "as of single ones"
    assert [one.context for one in link.unsettled()] == ["first", "d", "e"]
    assert kinds(peer.say(said)) == ["TransactionalStateMissed"]
    released = TransactionalState(b"t", RELEASED)
    assert accept(peer, FIRST + 4, FIRST + 5, state=released) == [(StatesReceived, "de")]


def test_one_disposition_in_a_transaction_is_heard_of_all_and_misses_none() -> None:
    peer, link = sent()
    together(link, "fg")
    heard = accept(peer, FIRST, FIRST + 7, state=TransactionalState(b"t", ACCEPTED))
    assert sorted(heard, key=str) == [(RunAccepted, "abcde"), (RunAccepted, "fg"), (StatesReceived, "first")]


def test_a_part_is_accepted_and_the_rest_stays_together() -> None:
    peer, link = sent()
    assert accept(peer, FIRST) == [(StatesReceived, "first")]
    assert accept(peer, FIRST + 1, FIRST + 2) == [(RunAccepted, "ab")]
    assert accept(peer, FIRST + 1, FIRST + 2) == []
    assert link.session.oldest_outgoing == FIRST + 3
    assert accept(peer, FIRST + 3) == [(RunAccepted, "c")]
    assert (link.unsettled_count, link.session.outgoing_count) == (2, 2)
    assert accept(peer, FIRST + 4, FIRST + 900) == [(RunAccepted, "de")]


@pytest.mark.parametrize(
    "say",
    [
        lambda peer: accept(peer, FIRST + 2, FIRST + 3),
        lambda peer: accept(peer, FIRST + 2, FIRST + 3, state=RELEASED),
        lambda peer: accept(peer, FIRST + 2, FIRST + 3, state=None),
        lambda peer: accept(peer, FIRST + 2, FIRST + 3, settled=None),
        lambda peer: accept(peer, FIRST + 2, FIRST + 3, state=TransactionalState(b"t", ACCEPTED)),
        lambda peer: accept(peer, FIRST + 2, FIRST + 3, state=TransactionalState(b"t", RELEASED)),
    ],
)
def test_what_is_said_of_some_in_the_middle_is_heard_of_those(say: Callable[[Peer], list[tuple[type, str]]]) -> None:
    peer, link = sent()
    assert say(peer) == [(StatesReceived, "bc")]
    assert [one.context for one in link.unsettled() if one.remote_state is None] == ["first", "a", "d", "e"]


# -- accepted, and the peer waits for us to settle


def said_of(peer: Peer, first: int, last: int) -> SentRun:
    """The run that the peer accepts, without settling it."""
    run = only(peer.say(Disposition(Role.RECEIVER, first, last, state=ACCEPTED)), RunAccepted).run
    assert run.waits and run.whole
    return run


def test_what_waits_for_us_is_settled_together() -> None:
    peer, link = sent("abcde", unsettled_max=6)
    run = said_of(peer, FIRST + 1, FIRST + 5)
    assert isinstance(run.contexts, Letters) and run.contexts.letters == "abcde"
    assert (link.unsettled_count, link.session.outgoing_count, link.room) == (6, 6, 0), "nothing is settled yet"
    assert link.session.settle_sent(run, ACCEPTED) == 5
    assert (link.unsettled_count, link.session.outgoing_count, link.room) == (1, 1, 5)
    said = peer.hear_only(Disposition)
    assert (said.role, said.first, said.last) == (Role.SENDER, FIRST + 1, FIRST + 5)
    assert (said.settled, said.state) == (True, ACCEPTED)
    assert [one.context for one in link.unsettled()] == ["first"]


@pytest.mark.parametrize("heard", [False, True])
def test_who_looks_at_what_waits_for_us_finds_single_ones(heard: bool) -> None:
    peer, link = sent()
    together(link, "fg")
    run = said_of(peer, FIRST + 1, FIRST + 5)
    accept(peer, FIRST, settled=None)
    if heard:
        run.heard = True
    found = link.unsettled()
    assert [one.delivery_id for one in found] == list(range(FIRST, FIRST + 8)), "in order"
    assert [one.context for one in found] == ["first", *([None] * 5 if heard else "abcde"), *"fg"]
    assert [one.remote_state for one in found] == [*[ACCEPTED] * 6, None, None]
    assert {one.phase for one in found[1:6]} == {found[0].phase} != {found[6].phase}
    assert not run.whole and run.deliveries == found[1:6]
    assert link.session.settle_sent(run, ACCEPTED) == 5
    assert [one.context for one in link.unsettled()] == ["first", *"fg"]
    assert all(one.settled for one in run.deliveries)


def test_what_waits_for_us_stays_together_while_others_are_settled() -> None:
    peer, link = sent()
    together(link, "fg")
    runs = [said_of(peer, FIRST + 1, FIRST + 5), said_of(peer, FIRST + 6, FIRST + 7)]
    assert accept(peer, FIRST) == [(StatesReceived, "first")]
    assert link.session.oldest_outgoing == FIRST + 1
    assert [link.session.settle_sent(run, ACCEPTED) for run in reversed(runs)] == [2, 5]
    assert (link.unsettled_count, link.session.oldest_outgoing) == (0, None)


def test_one_disposition_is_heard_of_single_ones_and_of_runs_that_wait_for_us() -> None:
    peer, link = sent()
    heard = accept(peer, FIRST, FIRST + 5, settled=None)
    assert sorted(heard, key=str) == [(RunAccepted, "abcde"), (StatesReceived, "first")]
    assert link.session.sent_together


def test_what_the_peer_settles_meanwhile_is_not_settled_twice() -> None:
    peer, link = sent()
    run = said_of(peer, FIRST + 1, FIRST + 5)
    assert accept(peer, FIRST + 2, FIRST + 3) == [(StatesReceived, "bc")]
    assert link.session.settle_sent(run, ACCEPTED) == 3
    assert link.unsettled_count == 1


def test_what_waits_for_us_is_lost_with_its_link() -> None:
    peer, link = sent()
    run = said_of(peer, FIRST + 1, FIRST + 5)
    peer.say(Detach(0, closed=True))
    assert link.session.settle_sent(run, ACCEPTED) == 0
    assert link.session.outgoing_count == 0


def test_senders_are_told_of_the_room_that_settling_makes() -> None:
    peer, link = sent("abcde", unsettled_max=6)
    run = said_of(peer, FIRST + 1, FIRST + 5)
    assert link.session.settle_sent(run, ACCEPTED) == 5
    assert kinds(peer.send_bytes(b"")) == ["CreditChanged"]


def test_what_does_not_fit_in_a_turn_waits_for_us_as_well() -> None:
    peer, link = sent()
    for letters in ("fg", "hi", "jk"):
        together(link, letters)
    peer.engine.turn = Turn(FRAME_COSTS[Disposition] + 2 * ACCEPTED_COST)
    events = peer.say(Disposition(Role.RECEIVER, FIRST + 1, FIRST + 11, state=ACCEPTED))
    assert len(events) < 4
    while peer.engine.input_waits:
        events += peer.send_bytes(b"")
    runs = [event.run for event in events if isinstance(event, RunAccepted)]
    assert sum(len(run.tags) for run in runs) == 11
    assert all(run.waits for run in runs)
    assert link.session.outgoing_count == 12


def test_a_part_waits_for_us_and_the_rest_stays_together() -> None:
    peer, link = sent()
    run = said_of(peer, FIRST + 1, FIRST + 2)
    assert accept(peer, FIRST + 3, FIRST + 5) == [(RunAccepted, "cde")]
    assert (link.unsettled_count, link.session.outgoing_count) == (3, 3)
    assert link.session.settle_sent(run, ACCEPTED) == 2


def test_who_looks_finds_single_ones_in_order() -> None:
    peer, link = sent()
    found = link.unsettled()
    assert [(one.context, one.delivery_id, one.tag) for one in found[1:]] == [
        (letter, FIRST + 1 + at, tag(ord(letter))) for at, letter in enumerate("abcde")
    ]
    assert list(link.session.outgoing.values()) == found
    assert link.session.outgoing_count == 6
    assert accept(peer, FIRST, FIRST + 5) == [(StatesReceived, "firstabcde")]


def test_room_comes_back_as_runs_are_accepted() -> None:
    peer, link = sent("abc", unsettled_max=4)
    assert (link.room, link.sendable, link.may_send_together(1, 4, 5)) == (0, False, False)
    events = peer.say(Disposition(Role.RECEIVER, FIRST + 1, FIRST + 3, settled=True, state=ACCEPTED))
    assert kinds(events) == ["RunAccepted", "CreditChanged"]
    assert link.room == 3


def test_it_says_when_they_cannot_go_together() -> None:
    peer, link = sent()
    assert link.may_send_together(94, 4, 100)
    assert not link.may_send_together(95, 4, 100), "no credit"
    assert not link.may_send_together(1, 5, 100), "nothing was sent yet with a tag as long"
    assert not link.may_send_together(1, 4, 1 << 40), "too large for a frame"
    link.session.next_delivery_id = 0xFFFF_FFFE
    assert not link.may_send_together(5, 4, 100), "delivery-ids begin anew"
    link.session.next_delivery_id = FIRST + 6
    link.session.keep_order = True
    assert not link.may_send_together(1, 4, 100), "a disposition must go first"
    assert peer.hear()
