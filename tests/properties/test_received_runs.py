"""A receiver in rcv-settle-mode second that takes runs hears and says what one hears and says that takes none, whatever
either end does to some of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from hypothesis import event, example, given, settings
from hypothesis import strategies as st

from acquit.protocol.composite import encode_composite
from acquit.protocol.constants import ACCEPTED, RELEASED
from acquit.protocol.costs import Turn
from acquit.protocol.definitions import (
    DeliveryState,
    Detach,
    Disposition,
    End,
    RcvSettleMode,
    Received,
    Rejected,
    Role,
    TransactionalState,
    Transfer,
)
from acquit.protocol.delivery import Delivery, ReceivedRun
from acquit.protocol.events import DeliveriesReceived, Event, LinkDetached, RunReceived, RunSettled, StatesReceived
from acquit.protocol.frames import encode_frame
from acquit.protocol.settlement import Phase
from tests.support.examples import share
from tests.support.peer import receiving_engine

FIRST = 0xFFFF_FFD0
"""Ids that have four bytes, as the fast path wants them, and begin anew in the middle."""
STATES: list[DeliveryState | None] = [ACCEPTED, ACCEPTED, RELEASED, Rejected(), None]
OTHERS: list[DeliveryState] = [Received(0, 1), RELEASED, TransactionalState(b"t", ACCEPTED)]
FATES = [Detach(0, closed=True), End()]

places = st.integers(0, 70)
sizes = st.integers(1, 30)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("send"), sizes, st.sampled_from([1, 1, 1, 3])),
        st.tuples(st.just("send"), sizes, st.just(1)),
        st.tuples(st.just("large"), st.just(1), st.just(0)),
        st.tuples(st.just("first"), st.just(1), st.just(0)),
        st.tuples(st.just("settle"), places, sizes, st.sampled_from(STATES[:-1])),
        st.tuples(st.just("settle"), st.just(0), st.just(70), st.sampled_from(STATES[:-1])),
        st.tuples(st.just("settle"), st.just(0), st.just(70), st.sampled_from(STATES[:-1])),
        st.tuples(st.just("answer"), places, sizes, st.sampled_from(STATES)),
        st.tuples(st.just("answer"), places, sizes, st.sampled_from([*STATES, TransactionalState(b"t", ACCEPTED)])),
        st.tuples(st.just("answer"), places, st.sampled_from([1, 70, 1 << 31]), st.sampled_from(STATES)),
        st.tuples(st.just("tell"), places, sizes, st.sampled_from(OTHERS)),
        st.tuples(st.just("single"), places, st.just(1), st.sampled_from(STATES[:-1])),
        st.tuples(st.sampled_from(["look", "open"]), st.just(0), st.just(0)),
        st.tuples(st.just("fate"), st.integers(0, 1), st.just(0)),
    ),
    max_size=14,
)


class Receiving:
    """One of the two receivers."""

    def __init__(self, turn_cost_max: int, *, runs: bool) -> None:
        self.peer, self.link = receiving_engine(1_000, rcv_settle_mode=RcvSettleMode.SECOND)
        self.peer.engine.turn = Turn(turn_cost_max)
        self.link.takes_runs = self.link.hears_runs = runs
        self.runs = 0
        self.said: list[tuple[object, ...]] = []
        self.sent = 0
        self.latest: ReceivedRun | None = None

    def hear(self, data: bytes) -> None:
        self.note(self.peer.send_bytes(data))
        while self.peer.engine.input_waits:
            self.note(self.peer.send_bytes(b""))

    def note(self, events: Iterable[Event]) -> None:
        for one in events:
            match one:
                case DeliveriesReceived(_, deliveries):
                    self.said += [("came", d.delivery_id, d.payload, d.phase) for d in deliveries]
                case RunReceived(_, run):
                    self.runs += 1
                    self.latest = run
                    ids = range(run.first_id, run.first_id + len(run.tags))
                    self.said += [
                        ("came", id_, payload, run.phase) for id_, payload in zip(ids, run.payloads, strict=True)
                    ]
                case StatesReceived(_, deliveries, state, settled):
                    self.said += [told(d, state, settled) for d in deliveries]
                case RunSettled(run, state):
                    self.runs += 1
                    assert run.whole and run.phase == Phase.SETTLED and run.local_state is not None
                    ids = range(run.first_id, run.first_id + len(run.tags))
                    self.said += [("told", id_, run.local_state, run.context, state, True) for id_ in ids]
                case LinkDetached(unsettled=unsettled):
                    self.said += [("lost", *looked_at(d)) for d in unsettled]
                case _:
                    self.said.append((type(one),))

    def do(self, step: tuple[Any, ...], context: int) -> None:
        """One step of a history."""
        verb, place, count, *more = step
        first = (FIRST + place) & 0xFFFF_FFFF
        last = (first + count - 1) & 0xFFFF_FFFF
        session = self.link.session
        match verb:
            case "send":
                numbers = range(self.sent, self.sent + place)
                self.hear(b"".join([self.transfer(number, b"%d" % number * count) for number in numbers]))
                self.sent += place
            case "large":
                begun = self.transfer(self.sent, b"begun", more=True)
                self.hear(begun + encode_frame(0, encode_composite(Transfer(0)) + b"ended"))
                self.sent += 1
            case "first":
                self.hear(self.transfer(self.sent, b"first", rcv_settle_mode=RcvSettleMode.FIRST))
                self.sent += 1
            case "settle":
                done = session.settle_range(self.link, first, count, more[0], context)
                self.said.append((verb, done, self.link.unsettled_count))
            case "answer" | "tell":
                disposition = Disposition(Role.SENDER, first, last, settled=verb == "answer", state=more[0])
                self.hear(encode_frame(0, encode_composite(disposition)))
                self.said.append((verb, self.link.unsettled_count))
            case "single":
                found = session.incoming.get(first)
                if found is not None:
                    self.said.append((verb, session.settle_all([found], more[0])))
            case "look":
                self.said.append((verb, *map(looked_at, self.link.unsettled())))
            case "open":
                assert self.latest is None or self.latest.deliveries is not None
            case "fate":
                self.hear(encode_frame(0, encode_composite(FATES[place])))
            case _:
                raise AssertionError(verb)
        for one in self.peer.hear():
            if isinstance(one, Disposition):
                ids = range(one.first, one.last + 1) if one.last is not None else [one.first]
                self.said += [("told", id_, one.settled, one.state) for id_ in ids]
            else:
                self.said.append((type(one),))

    def transfer(self, number: int, payload: bytes, **fields: Any) -> bytes:
        id_ = (FIRST + number) & 0xFFFF_FFFF
        return encode_frame(0, encode_composite(Transfer(0, id_, number.to_bytes(8, "big"), 0, **fields)) + payload)


def told(delivery: Delivery, state: DeliveryState | None, settled: bool) -> tuple[object, ...]:
    return "told", delivery.delivery_id, delivery.local_state, delivery.context, state, settled


def looked_at(delivery: Delivery) -> tuple[object, ...]:
    return (
        delivery.delivery_id,
        delivery.tag,
        delivery.payload,
        delivery.phase,
        delivery.local_state,
        delivery.remote_state,
        delivery.context,
    )


@settings(max_examples=share(300))
@given(steps, st.sampled_from([0, 0, 1, 30, 100]))
@example([("send", 30, 1), ("settle", 3, 20, ACCEPTED), ("answer", 5, 10, ACCEPTED), ("answer", 10, 40, None)], 0)
@example([("send", 9, 1), ("tell", 0, 9, RELEASED)], 0)
@example([("send", 9, 1), ("open", 0, 0), ("settle", 0, 9, ACCEPTED), ("answer", 0, 9, ACCEPTED)], 0)
@example([("send", 9, 1), ("large", 1, 0), ("send", 9, 1), ("settle", 0, 70, ACCEPTED), ("answer", 0, 70, ACCEPTED)], 1)
@example([("send", 9, 1), ("large", 1, 0), ("send", 9, 1), ("look", 0, 0), ("fate", 0, 0)], 0)
def test_what_comes_together_is_what_it_is_one_by_one(history: list[tuple[Any, ...]], turn_cost_max: int) -> None:
    together, singly = Receiving(turn_cost_max, runs=True), Receiving(turn_cost_max, runs=False)
    for number, step in enumerate(history):
        said = []
        for end in (together, singly):
            end.said.clear()
            end.do(step, number)
            said.append(sorted_told(end.said))
        assert said[0] == said[1], step
        assert together.link.unsettled_count == singly.link.unsettled_count
    assert list(map(looked_at, together.link.unsettled())) == list(map(looked_at, singly.link.unsettled()))
    assert [d.delivery_id for d in together.link.session.unsettled()] == [
        d.delivery_id for d in singly.link.session.unsettled()
    ]
    event(f"runs: {min(together.runs, 3)}")


def sorted_told(said: list[tuple[object, ...]]) -> list[tuple[object, ...]]:
    """What became of each delivery: of one disposition, the order is free."""
    return sorted(said, key=lambda one: (one[0] == "told", one[1] if one[0] == "told" else 0))
