"""A receiver of payloads under random schedules: parts of lots settled and taken back, bytes torn anywhere, the end at
any time. What its receipts say is true, its credit comes back, and after its close nothing is left."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acquit.client.options import ConnectOptions
from acquit.client.receipts import ReceiptStatus, SettlementReceipt
from acquit.client.run_receiving import RunReceiverCore
from acquit.protocol.constants import ACCEPTED, RELEASED
from acquit.protocol.definitions import Modified, Rejected
from acquit.protocol.delivery import Delivery, Outcome
from acquit.protocol.message import Message
from tests.support.examples import share
from tests.support.server import Rig, Server

OUTCOMES: list[Outcome] = [ACCEPTED, RELEASED, Rejected(), Modified(delivery_failed=True)]

numbers = st.integers(0, 40)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("offer"), st.integers(1, 12)),
        st.tuples(st.just("run")),
        st.tuples(st.just("take"), st.integers(1, 12)),
        st.tuples(st.just("settle"), numbers, st.integers(1, 12), st.sampled_from([ACCEPTED, *OUTCOMES])),
        st.tuples(st.just("process")),
        st.tuples(st.just("carry")),
        st.tuples(st.just("peer settles"), numbers, st.sampled_from(OUTCOMES)),
        st.tuples(st.just("peer offers"), numbers, st.sampled_from(OUTCOMES)),
    ),
    max_size=40,
)


@dataclass
class Draining:
    """One receiver under a schedule, and what it has done."""

    rig: Rig
    prefetch: int
    offered: int = 0
    taken: list[object] = field(default_factory=list)
    receipts: list[tuple[SettlementReceipt, list[object], Outcome]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.session = self.rig.session("individual")
        receiver = self.rig.receiver(self.session, in_runs=True, prefetch=self.prefetch)
        assert isinstance(receiver, RunReceiverCore)
        self.receiver = receiver

    def step(self, name: str, *how: object) -> None:
        getattr(self, name.replace(" ", "_"))(*how)
        receiver = self.receiver
        assert receiver.link.credit + receiver.held <= self.prefetch
        assert receiver.held >= 0 and receiver.held_bytes >= 0

    def offer(self, count: int) -> None:
        self.rig.server.offer("q", *(str(number) for number in range(self.offered, self.offered + count)))
        self.offered += count

    def run(self) -> None:
        self.rig.run()

    def take(self, count: int) -> None:
        payloads = self.receiver.take_payloads(count) or ()
        assert len(payloads) <= count
        self.taken += [Message.decode(payload).body for payload in payloads]

    def settle(self, first: int, count: int, outcome: Outcome) -> None:
        first, end = min(first, len(self.taken)), min(first + count, len(self.taken))
        receipt = self.receiver.settle_numbers([(first, end)], outcome)
        self.receipts.append((receipt, self.taken[first:end], outcome))

    def process(self) -> None:
        self.rig.core.process(self.rig.now)

    def carry(self) -> None:
        self.rig.carry()

    def _peers(self, index: int) -> Delivery | None:
        unsettled = self.rig.peer.sending.unsettled()
        return unsettled[index] if index < len(unsettled) else None

    def peer_settles(self, index: int, outcome: Outcome) -> None:
        if (delivery := self._peers(index)) is not None:
            delivery.settle(outcome)

    def peer_offers(self, index: int, outcome: Outcome) -> None:
        if (delivery := self._peers(index)) is not None and delivery.local_state is None:
            delivery.update(outcome)


def draining(prefetch: int) -> Draining:
    server = Server()
    server.options = replace(server.options, initial_serial=1_000)
    return Draining(Rig(server, ConnectOptions(ack_timeout_ms=5_000)), prefetch)


@pytest.mark.promise("no-lies")
@settings(max_examples=share(200))
@given(st.sampled_from([1, 5, 30]), steps, st.booleans())
def test_what_receipts_say_is_true(prefetch: int, schedule: list[tuple[str, ...]], cut: bool) -> None:
    world = draining(prefetch)
    for name, *how in schedule:
        world.step(name, *how)
    if cut:
        world.rig.cut()
    world.rig.run()
    world.rig.advance(10.0)
    said = world.rig.server.outcomes()
    assert len(set(world.taken)) == len(world.taken), "each once"
    for receipt, bodies, outcome in world.receipts:
        assert receipt.done and receipt.count == len(bodies)
        if receipt.status is ReceiptStatus.ANSWERED:
            assert all((body, outcome, False) in said for body in bodies)
        if not cut:
            assert receipt.status is not ReceiptStatus.UNKNOWN


@pytest.mark.promise("no-lies")
@settings(max_examples=share(200))
@given(st.sampled_from([1, 5, 30]), steps)
def test_after_closing_every_message_is_somewhere_once(prefetch: int, schedule: list[tuple[str, ...]]) -> None:
    world = draining(prefetch)
    for name, *how in schedule:
        world.step(name, *how)
    world.session.settle_leftovers(world.receiver)
    world.rig.run()
    assert (world.receiver.held, world.receiver.held_bytes) == (0, 0)
    assert world.receiver.link.unsettled_count == 0 and world.receiver.open_receipts() == []
    world.receiver.detach()
    world.rig.run()
    assert world.receiver.detached.done and not world.receiver.buffer
    waiting = {Message.decode(payload).body for payload in world.rig.server.queues["q"]}
    decided = {body for body, _, _ in world.rig.server.outcomes()}
    by_peer = {str(number) for number in range(world.offered)} - decided - waiting
    assert not decided & waiting
    assert len(by_peer) <= sum(name == "peer settles" for name, *_ in schedule)
