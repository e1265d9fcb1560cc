"""The client's core against the broker's core, over wires that are cut at any byte, by either end, and a broker that
crashes: what the client says became of a message is what became of it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acquit import errors
from acquit.client.options import DeliveryMode
from acquit.client.receipts import ReceiptStatus, SendPromise, SettlementReceipt
from acquit.client.received import MessageCore
from acquit.client.transacting import Fate, Transaction
from acquit.protocol.constants import ACCEPTED, RELEASED, Outcome
from acquit.protocol.definitions import Modified
from tests.support.examples import share
from tests.support.joined import Joined
from tests.support.server import receiver_spec, sender_spec

pytestmark = pytest.mark.promise("no-lies")

pieces = st.one_of(st.integers(0, 200), st.just(0), st.just(1 << 30), st.just(1 << 30))
faults = (
    st.tuples(st.just("move"), pieces, pieces),
    st.tuples(st.just("move"), pieces, pieces),
    st.tuples(st.just("run")),
    st.tuples(st.just("run")),
    st.tuples(st.just("sync")),
    st.tuples(st.just("sync")),
    st.tuples(st.just("cut")),
    st.tuples(st.just("cut unnoticed")),
    st.tuples(st.just("notice")),
    st.tuples(st.just("crash")),
    st.tuples(st.just("restore")),
    st.tuples(st.just("restore")),
)


class Stage:
    """What the steps of a schedule do."""

    def __init__(self) -> None:
        self.joined = Joined()
        self.number = 0

    def step(self, name: str, *how: object) -> None:
        getattr(self, name.replace(" ", "_"))(*how)

    def move(self, up: int, down: int) -> None:
        self.joined.move(up, down)

    def run(self) -> None:
        self.joined.run()

    def sync(self) -> None:
        self.joined.sync()

    def cut(self) -> None:
        self.joined.cut()

    def cut_unnoticed(self) -> None:
        self.joined.cut(broker_notices=False)

    def notice(self) -> None:
        self.joined.notice()

    def crash(self) -> None:
        self.joined.crash()

    def restore(self) -> None:
        self.joined.restore()

    def calm(self) -> None:
        """The faults are over."""
        self.joined.notice()
        self.joined.restore()
        self.joined.run()

    def name(self) -> str:
        self.number += 1
        return str(self.number)

    def left_in(self, address: str) -> Counter[object]:
        """What a fresh client finds there."""
        self.joined.cut()
        self.joined.run()  # the broker takes back what nobody acknowledged
        self.joined.client.sessions.clear()
        self.joined.restore()
        session = self.joined.session("no_ack")
        receiver = session.add_receiver(receiver_spec(address, name="last", prefetch=10_000))
        self.joined.run()
        found: Counter[object] = Counter()
        while (message := receiver.take()) is not None:
            found[message.body] += 1
        return found


@settings(max_examples=share(120), deadline=None)
@given(
    st.lists(
        st.one_of(st.tuples(st.just("send")), st.tuples(st.just("withdraw"), st.integers(0, 9)), *faults),
        min_size=8,
        max_size=60,
    ),
    st.booleans(),
)
def test_sends(schedule: list[tuple[object, ...]], durable: bool) -> None:
    class Sending(Stage):
        def __init__(self) -> None:
            super().__init__()
            mode = DeliveryMode.PERSISTENT if durable else DeliveryMode.NON_PERSISTENT
            self.sender = self.joined.session("auto").add_sender(
                sender_spec("q", buffer_messages=100, delivery_mode=mode)
            )
            self.joined.run()
            self.sent: dict[str, SendPromise] = {}

        def send(self) -> None:
            name = self.name()
            self.sent[name] = self.joined.send(self.sender, name)

        def withdraw(self, index: int) -> None:
            """A send whose time is over."""
            if index < len(self.sent):
                promise = list(self.sent.values())[index]
                if not promise.done:
                    self.sender.withdraw(promise)

    stage = Sending()
    crashed = False
    for name, *how in schedule:
        crashed = crashed or (name == "crash")
        stage.step(str(name), *how)
    stage.calm()
    outcomes = {name: promise.error() for name, promise in stage.sent.items() if promise.done}
    assert outcomes.keys() == stage.sent.keys(), "a send has no end"
    assert stage.joined.client.sessions[0].senders[0].in_flight == 0
    left = stage.left_in("q")
    for name, error in outcomes.items():
        if error is None:
            assert left[name] >= 1 or (crashed and not durable), "accepted, and lost"
        elif isinstance(error, errors.NotSent):
            assert left[name] == 0, "sent after all"
        else:
            assert isinstance(error, errors.DeliveryInDoubt)
        assert left[name] <= 1 + stage.joined.cuts, "more copies than losses account for"
    assert left.keys() <= outcomes.keys()


@settings(max_examples=share(120), deadline=None)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("take")),
            st.tuples(st.just("settle"), st.integers(0, 9), st.sampled_from([ACCEPTED, RELEASED, Modified(True)])),
            st.tuples(st.just("recover")),
            *faults,
        ),
        min_size=10,
        max_size=60,
    ),
    st.sampled_from(["individual", "client", "auto", "dups_ok"]),
    st.sampled_from([0, 1, 3, 100]),
)
def test_receives(schedule: list[tuple[object, ...]], mode: str, prefetch: int) -> None:
    class Receiving(Stage):
        def __init__(self) -> None:
            super().__init__()
            session = self.joined.session("auto")
            sender = session.add_sender(sender_spec("q", buffer_messages=100))
            self.names = [self.name() for _ in range(8)]
            for name in self.names:
                self.joined.send(sender, name)
            self.joined.run()
            self.session = self.joined.session(mode)
            self.receiver = self.session.add_receiver(receiver_spec("q", prefetch=prefetch))
            self.joined.run()
            self.taken: list[MessageCore] = []
            self.given: list[tuple[str, Outcome, SettlementReceipt]] = []

        def take(self) -> None:
            if prefetch == 0:
                self.receiver.begin_wait()
            if (message := self.receiver.take()) is not None:
                self.taken.append(message)
            if prefetch == 0:
                self.receiver.end_wait()

        def settle(self, index: int, outcome: Outcome) -> None:
            if index < len(self.taken) and not self.taken[index].settled:
                message = self.taken[index]
                receipt = message.decide(outcome)
                self.given.append((str(message.body), outcome, receipt))

        def recover(self) -> None:
            kept = [m for m in self.taken if m.number not in self.session.handed_out]
            if self.session.recover():
                self.taken = kept

    stage = Receiving()
    for name, *how in schedule:
        stage.step(str(name), *how)
        assert stage.receiver.held >= 0
    stage.calm()
    assert all(receipt.done for _, _, receipt in stage.given), "a receipt has no end"
    if mode in ("individual", "client"):
        session, receiver = stage.session, stage.receiver
        held = len(receiver.buffer) + sum(number >= session.since for number in session.handed_out)
        assert receiver.held == held, "credit is lost, or made up"
    taken = {str(message.body) for message in stage.taken}
    left = stage.left_in("q")
    assert set(left.values()) <= {1}
    automatic = mode in ("auto", "dups_ok")
    for name in stage.names:
        accepted = [receipt.status for body, outcome, receipt in stage.given if body == name and outcome == ACCEPTED]
        if ReceiptStatus.APPLIED in accepted:
            assert left[name] == 0, "acknowledged, applied, and delivered again"
        elif not (automatic and name in taken) and set(accepted) <= {ReceiptStatus.STALE}:
            assert left[name] == 1, "not acknowledged, and gone"


@dataclass
class Attempt:
    """One transaction as its user sees it."""

    sent: list[str] = field(default_factory=list)
    received: list[str] = field(default_factory=list)
    ending: Transaction | None = None
    committed: bool = False


@settings(max_examples=share(200), deadline=None)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("send")),
            st.tuples(st.just("send")),
            st.tuples(st.just("take")),
            st.tuples(st.just("commit")),
            st.tuples(st.just("commit")),
            st.tuples(st.just("rollback")),
            *faults,
        ),
        min_size=12,
        max_size=60,
    )
)
def test_transactions(schedule: list[tuple[object, ...]]) -> None:
    class Transacting(Stage):
        def __init__(self) -> None:
            super().__init__()
            sender = self.joined.session("auto").add_sender(sender_spec("in", buffer_messages=100))
            self.names = [f"in {number}" for number in range(8)]
            for name in self.names:
                self.joined.send(sender, name)
            self.session = self.joined.session("transacted")
            assert self.session.transactions is not None
            self.transactions = self.session.transactions
            self.transactions.open()
            self.receiver = self.session.add_receiver(receiver_spec("in", prefetch=3))
            self.sender = self.session.add_sender(sender_spec("out", buffer_messages=100))
            self.joined.run()
            self.attempts = [Attempt()]

        @property
        def current(self) -> Attempt:
            return self.attempts[-1]

        def send(self) -> None:
            name = self.name()
            self.current.sent.append(name)
            self.joined.send(self.sender, name)

        def take(self) -> None:
            refused = self.transactions.refusal is not None  # a listener's worker takes all the same
            message = self.receiver.take_for_listener() if refused else self.receiver.take()
            if message is not None:
                self.current.received.append(str(message.body))

        def commit(self) -> None:
            self._end(commit=True)

        def rollback(self) -> None:
            self._end(commit=False)

        def _end(self, *, commit: bool) -> None:
            self.joined.client.process(self.joined.now)
            if self.transactions.ending is not None:
                return
            self.current.ending = self.transactions.end(commit=commit)
            self.attempts.append(Attempt())

    stage = Transacting()
    for name, *how in schedule:
        stage.step(str(name), *how)
    stage.calm()
    stage.commit()
    stage.joined.run()
    out, inbox = stage.left_in("out"), stage.left_in("in")
    retired: Counter[str] = Counter()
    unsure: set[str] = set()
    for attempt in stage.attempts[:-1]:
        assert attempt.ending is not None and attempt.ending.done, "an end that never comes"
        fate = attempt.ending.fate
        found = {out[name] for name in attempt.sent}
        if fate is Fate.COMMITTED:
            assert found <= {1}, "committed, and not there once"
            retired.update(attempt.received)
        elif fate is Fate.ROLLED_BACK:
            assert found <= {0}, "rolled back, and there"
        else:
            assert len(found) <= 1, "half a transaction"
            unsure.update(attempt.received)
    assert set(retired.values()) <= {1}, "received and committed twice"
    for name in stage.names:
        if name not in unsure:
            assert inbox[name] + retired[name] == 1, name
