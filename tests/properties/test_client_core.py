"""The client core under random schedules: user code, bytes torn anywhere, a peer with ideas, and the end at any time.

A step of the user never makes anything move; bytes travel when the schedule says so, as many as it says. Whatever
happens, at the end every promise has ended and says what is true of the other side.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acquit import errors
from acquit.client.options import ConnectOptions
from acquit.client.receipts import ReceiptStatus, SendPromise, SettlementReceipt
from acquit.client.received import MessageCore
from acquit.protocol.constants import ACCEPTED, RELEASED
from acquit.protocol.definitions import Accepted, Modified, Rejected, Released
from acquit.protocol.delivery import Delivery, Outcome
from acquit.protocol.message import Message
from tests.support.examples import share
from tests.support.server import Rig, Server

OUTCOMES: list[Outcome] = [ACCEPTED, RELEASED, Rejected(), Modified(delivery_failed=True)]


class Torn(Rig):
    """A rig whose bytes arrive in pieces."""

    def __init__(self, server: Server | None = None, options: ConnectOptions | None = None) -> None:
        self.to_server = bytearray()
        self.to_client = bytearray()
        super().__init__(server, options)

    def write(self) -> None:
        """Both sides write what they have."""
        self.to_server += self.engine.data_to_send()
        self.core.flushed()
        self.to_client += self.peer.engine.data_to_send()

    def deliver(self, up: int, down: int) -> bool:
        """So many bytes arrive, each way."""
        to_server, self.to_server = bytes(self.to_server[:up]), self.to_server[up:]
        to_client, self.to_client = bytes(self.to_client[:down]), self.to_client[down:]
        if to_server:
            self.peer.handle(self.peer.engine.receive_data(to_server, self.now))
        if to_client:
            self.core.handle(self.engine.receive_data(to_client, self.now), self.now)
        return bool(to_server or to_client)

    def carry(self) -> bool:
        self.write()
        return self.deliver(len(self.to_server), len(self.to_client))


pieces = st.integers(0, 300)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("offer"), st.integers(1, 4)),
        st.tuples(st.just("take"), st.integers(1, 4)),
        st.tuples(st.just("settle"), st.integers(0, 5), st.sampled_from(OUTCOMES)),
        st.tuples(st.just("acknowledge"), st.integers(-1, 5)),
        st.tuples(st.just("recover")),
        st.tuples(st.just("wait")),
        st.tuples(st.just("process")),
        st.tuples(st.just("move"), pieces, pieces),
        st.tuples(st.just("peer settles"), st.integers(0, 5), st.sampled_from(OUTCOMES)),
        st.tuples(st.just("peer offers"), st.integers(0, 5), st.sampled_from(OUTCOMES)),
        st.tuples(st.just("time passes")),
    ),
    max_size=60,
)


@dataclass
class Receiving:
    """One receiver under a schedule, and what it should have seen."""

    rig: Torn
    mode: str
    prefetch: int
    offered: int = 0
    taken: list[MessageCore] = field(default_factory=list)
    given: dict[object, Outcome] = field(default_factory=dict)
    receipts: list[tuple[SettlementReceipt, list[object], Outcome]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.session = self.rig.session(self.mode)
        self.receiver = self.rig.receiver(self.session, prefetch=self.prefetch)

    def step(self, name: str, *how: object) -> None:
        getattr(self, name.replace(" ", "_"))(*how)
        receiver = self.receiver
        assert receiver.link.credit + receiver.held <= self.prefetch
        assert receiver.held >= 0

    def offer(self, count: int) -> None:
        for _ in range(count):
            self.rig.server.offer("q", str(self.offered))
            self.offered += 1

    def take(self, count: int) -> None:
        for _ in range(count):
            if (message := self.receiver.take()) is not None:
                self.taken.append(message)

    def settle(self, index: int, outcome: Outcome) -> None:
        if index >= len(self.taken):
            return
        message = self.taken[index]
        try:
            receipt = message.decide(outcome)
        except errors.SettlementError:
            assert message.settled
            return
        assert message.body not in self.given  # once
        self.given[message.body] = outcome
        self.receipts.append((receipt, [message.body], outcome))

    def acknowledge(self, index: int) -> None:
        before = list(self.session.handed_out.values())
        message = self.taken[index] if 0 <= index < len(self.taken) else None
        receipt = self.session.acknowledge(message, whole_session=False)
        acknowledged = [m.body for m in before if m.number not in self.session.handed_out]
        assert receipt.count == len(acknowledged)
        for body in acknowledged:
            assert body not in self.given
            self.given[body] = ACCEPTED
        self.receipts.append((receipt, list(acknowledged), ACCEPTED))

    def recover(self) -> None:
        back = set(self.session.handed_out)
        self.session.recover()
        if self.mode in ("client", "individual"):
            self.taken = [m for m in self.taken if m.number not in back]

    def wait(self) -> None:
        if not self.receiver.buffer:
            self.receiver.before_waiting()

    def process(self) -> None:
        self.rig.core.process(self.rig.now)

    def move(self, up: int, down: int) -> None:
        self.rig.core.process(self.rig.now)
        self.rig.write()
        self.rig.deliver(up, down)

    def _peers(self, index: int) -> Delivery | None:
        unsettled = self.rig.peer.sending.unsettled()
        return unsettled[index] if index < len(unsettled) else None

    def peer_settles(self, index: int, outcome: Outcome) -> None:
        if (delivery := self._peers(index)) is not None:
            delivery.settle(outcome)

    def peer_offers(self, index: int, outcome: Outcome) -> None:
        if (delivery := self._peers(index)) is not None and delivery.local_state is None:
            delivery.update(outcome)

    def time_passes(self) -> None:
        self.rig.advance(1.0)


@pytest.mark.promise("no-lies")
@settings(max_examples=share(200))
@given(st.sampled_from(["auto", "client", "individual", "no_ack"]), st.integers(1, 6), steps, st.booleans())
def test_what_receipts_say_is_true(mode: str, prefetch: int, schedule: list[tuple[str, ...]], cut: bool) -> None:
    world = Receiving(Torn(options=ConnectOptions(ack_timeout_ms=5_000)), mode, prefetch)
    for name, *how in schedule:
        world.step(name, *how)
    if cut:
        world.rig.cut()
    world.rig.run()
    world.rig.advance(10.0)
    said = world.rig.server.outcomes()
    for receipt, bodies, outcome in world.receipts:
        assert receipt.done
        if receipt.status in (ReceiptStatus.APPLIED, ReceiptStatus.ANSWERED):
            # The peer has heard this outcome for each of them, and settled.
            assert all((body, outcome, False) in said for body in bodies)
        if receipt.status is ReceiptStatus.SENT and bodies and not cut:
            assert all((body, outcome, True) in said for body in bodies)
        if not cut:
            assert receipt.status is not ReceiptStatus.UNKNOWN
    if mode == "auto":
        accepted = [body for body, state, _ in said if state == Accepted()]
        assert len(accepted) == len(set(accepted))
        handed_out = {message.body for message in world.taken}
        assert set(accepted) <= handed_out
    if mode == "no_ack":
        assert said == []
        assert [message.body for message in world.taken] == [str(n) for n in range(len(world.taken))]


@pytest.mark.promise("no-lies")
@settings(max_examples=share(100))
@given(st.sampled_from(["auto", "client", "individual"]), st.integers(1, 6), steps)
def test_after_closing_every_message_is_somewhere_once(
    mode: str, prefetch: int, schedule: list[tuple[str, ...]]
) -> None:
    world = Receiving(Torn(options=ConnectOptions(ack_timeout_ms=5_000)), mode, prefetch)
    for name, *how in schedule:
        world.step(name, *how)
    world.session.settle_leftovers(world.receiver)
    world.rig.run()
    world.receiver.detach()
    world.rig.run()
    assert world.session.handed_out == {}
    assert not world.receiver.buffer
    assert world.receiver.detached.done
    # Nothing that was delivered is left without an outcome, from this side or from the peer's.
    waiting = [Message.decode(payload).body for payload in world.rig.server.queues["q"]]
    decided = {body for body, _, _ in world.rig.server.outcomes()}
    by_peer = {str(number) for number in range(world.offered)} - decided - {str(body) for body in waiting}
    assert len(decided & set(waiting)) == 0
    assert len(by_peer) <= sum(name == "peer settles" for name, *_ in schedule)


send_steps = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.integers(0, 3), st.sampled_from([1, 300, 70_000])),
        st.tuples(st.just("grant"), st.integers(0, 4)),
        st.tuples(st.just("decide"), st.integers(0, 5), st.sampled_from([*OUTCOMES, None]), st.booleans()),
        st.tuples(st.just("withdraw"), st.integers(0, 9)),
        st.tuples(st.just("move"), st.integers(0, 100_000), pieces),
        st.tuples(st.just("pause"), st.booleans()),
    ),
    max_size=40,
)


@pytest.mark.promise("no-lies")
@settings(max_examples=share(200))
@given(send_steps, st.booleans())
def test_what_sends_end_in_is_true(schedule: list[tuple[str, ...]], cut: bool) -> None:
    rig = Torn(Server(credit=0))
    rig.server.verdict = lambda delivery: None
    sender = rig.sender(rig.session())
    sends: list[SendPromise] = []
    decided: dict[int, Outcome | None] = {}

    def decide(index: int, outcome: Outcome | None, settle: bool) -> None:
        open_ones = [n for n, delivery in enumerate(rig.server.taken) if not delivery.settled and n not in decided]
        if index < len(open_ones):
            delivery = rig.server.taken[open_ones[index]]
            decided[open_ones[index]] = outcome
            if settle or outcome is None:
                delivery.settle(outcome)
            else:
                delivery.update(outcome)

    for name, *how in schedule:
        match name:
            case "send":
                sends += [rig.send(sender, bytes([len(sends) + n]) * how[1]) for n in range(how[0])]  # type: ignore[operator, call-overload]
            case "grant":
                rig.peer.receiving.grant(how[0])  # type: ignore[arg-type]
            case "decide":
                decide(*how)  # type: ignore[arg-type]
            case "withdraw" if how[0] < len(sends):  # type: ignore[operator]
                sender.withdraw(sends[how[0]])  # type: ignore[call-overload]
            case "move":
                rig.core.process(rig.now)
                rig.write()
                rig.deliver(how[0], how[1])  # type: ignore[arg-type]
            case "pause":
                rig.core.on_writable(not how[0])
    if cut:
        rig.cut()
        rig.core.process(rig.now)
    else:
        rig.core.on_writable(True)
        rig.run()
        for session in rig.core.sessions:
            session.end()
        rig.run()
    arrived = {bytes(Message.decode(delivery.payload).body[:1]): n for n, delivery in enumerate(rig.server.taken)}  # type: ignore[index, arg-type]
    assert list(arrived) == sorted(arrived)  # in the order of sending
    for number, send in enumerate(sends):
        assert send.done
        place = arrived.get(bytes([number]))
        error = send.error()
        if error is None:
            assert place is not None and decided[place] == ACCEPTED
        elif isinstance(error, errors.MessageRejected | errors.MessageReleased | errors.MessageModified):
            kind = {errors.MessageRejected: Rejected, errors.MessageReleased: Released}.get(type(error), Modified)
            assert place is not None and isinstance(decided[place], kind)
        elif not isinstance(error, errors.DeliveryInDoubt):
            assert isinstance(error, errors.NotSent | errors.EndpointError)
            assert place is None  # it never left, as we say
    assert sender.in_flight == 0
    assert not sender.queue
