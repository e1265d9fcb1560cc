"""Two engines under random scripts of both applications, over a wire that cuts the bytes anywhere.

The script is a list of small acts: of the client, of the server, of the wire. Whatever it is, these hold at every step:
neither side ever raises for what the other sent or ends anything because of it; no more is sent than there is credit;
and when both have come to rest: what was sent has arrived, once, whole and in order on its link; both ends hold the
same deliveries for unsettled; both agree on delivery-count and credit.
"""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acquit.protocol.constants import ACCEPTED, RELEASED
from acquit.protocol.definitions import Accepted, Modified, RcvSettleMode, Received
from acquit.protocol.delivery import Delivery, DeliveryState
from acquit.protocol.events import (
    ConnectionEnded,
    CreditChanged,
    DeliveriesReceived,
    DeliveryAborted,
    Event,
    LinkDetached,
    LinkDrained,
    SessionEnded,
    StatesReceived,
)
from acquit.protocol.link import ReceivingLink, SendingLink
from acquit.protocol.options import ConnectionOptions
from acquit.protocol.serial import MASK
from acquit.protocol.settlement import Phase
from tests.support.examples import share
from tests.support.hostile import Application, Talk, state_of, talked_to
from tests.support.wire import Wire

STATES: list[DeliveryState | None] = [ACCEPTED, RELEASED, Modified(True), Received(1, 1), None]

ACTS = (
    "send",
    "send",
    "send many",
    "send large",
    "send settled",
    "abort",
    "grant",
    "grant",
    "drain",
    "drained",
    "settle",
    "settle all",
    "update",
    "sender settles",
    "offer",
    "step",
    "step",
    "step",
)


class Side:
    """One end of the links, as an application sees it."""

    def __init__(self) -> None:
        self.arrived: dict[ReceivingLink, list[Delivery]] = {}
        self.aborted: list[bytes] = []
        self.open: list[Delivery] = []  # deliveries that this side has not heard the end of

    def hear(self, events: Iterable[Event]) -> None:
        for event in events:
            match event:
                case DeliveriesReceived(link, deliveries):
                    self.arrived.setdefault(link, []).extend(deliveries)
                    self.open += deliveries
                case DeliveryAborted(_, tag):
                    self.aborted.append(tag)
                case StatesReceived(link, deliveries, _, settled):
                    for delivery in deliveries:
                        assert delivery.link is link
                        assert delivery.phase == Phase.SETTLED or not settled
                case CreditChanged() | LinkDrained():
                    pass
                case SessionEnded() | ConnectionEnded() | LinkDetached():
                    raise AssertionError(f"ended by a peer that did nothing wrong: {event}")


class World:
    """Two links, one each way, on one session, and what was done on them."""

    def __init__(self, seed: int, small_frames: bool, second: bool, serial: int) -> None:
        self.random = random.Random(seed)
        frame = 512 if small_frames else 4_096
        options = {
            "max_frame_size": frame,
            "incoming_window_frames": 7,
            "output_chunk_bytes": 1_024,
            "unsettled_max": 20,
            "initial_serial": serial,
        }
        self.wire = Wire(
            ConnectionOptions(container_id="client", **options),  # type: ignore[arg-type]
            ConnectionOptions(container_id="server", **options),  # type: ignore[arg-type]
            split=self.split,
        ).open()
        session, theirs = self.wire.begin()
        self.sessions = (session, theirs)
        mode = RcvSettleMode.SECOND if second else RcvSettleMode.FIRST
        out, into = self.wire.attach_sender(
            session, "out", rcv_settle_mode=mode, credit=5, initial_delivery_count=serial
        )
        back, fro = self.wire.attach_receiver(session, "back", rcv_settle_mode=mode, credit=3)
        self.senders: tuple[SendingLink, ...] = (out, fro)
        self.receivers: tuple[ReceivingLink, ...] = (into, back)
        self.client, self.server = Side(), Side()
        self.sides = {out: self.client, fro: self.server, into: self.server, back: self.client}
        self.sent: dict[SendingLink, list[tuple[bytes, bytes, Delivery]]] = {out: [], fro: []}
        self.tags = 0

    def split(self, data: bytes) -> Iterable[bytes]:
        while data:
            cut = self.random.choice((1, 2, 7, 8, 9, 40, 600, len(data)))
            yield data[:cut]
            data = data[cut:]

    def step(self) -> None:
        client, server = self.wire.step()
        self.client.hear(client)
        self.server.hear(server)

    def rest(self) -> None:
        client, server = self.wire.run()
        self.client.hear(client)
        self.server.hear(server)

    def send(self, link: SendingLink, size: int, settled: bool = False) -> None:
        if not link.sendable:
            return
        self.tags += 1
        tag = b"%d" % self.tags
        payload = self.random.randbytes(size)
        credit = link.credit
        delivery = link.send(tag, payload, settled=settled)
        assert link.credit == credit - 1
        self.sent[link].append((tag, payload, delivery))
        if not settled:
            self.sides[link].open.append(delivery)

    def act(self, act: str) -> None:
        sender = self.random.choice(self.senders)
        receiver = self.random.choice(self.receivers)
        side = self.sides[receiver]
        open_here = [item for item in side.open if not item.settled and item.link is receiver]
        state = self.random.choice(STATES)
        match act:
            case "send":
                self.send(sender, self.random.randrange(100))
            case "send many":
                for _ in range(self.random.randrange(12)):
                    self.send(sender, 20)
            case "send large":
                self.send(sender, self.random.choice((460, 470, 480, 490, 1_000, 5_000, 20_000)))
            case "send settled":
                self.send(sender, self.random.choice((0, 10, 1_500)), settled=True)
            case "abort":
                if self.sent[sender]:
                    _, _, delivery = self.sent[sender][-1]
                    if sender.abort(delivery):
                        assert delivery.settled
                        self.sent[sender].pop()
            case "grant":
                receiver.grant(self.random.randrange(12))
            case "drain":
                receiver.drain_credit()
            case "drained":
                sender.drained()
            case "offer":
                sender.offer(self.random.randrange(9))
            case "settle":
                if open_here:
                    self.settle(self.random.choice(open_here), state)
            case "settle all":
                some = [item for item in open_here if self.random.random() < 0.7]
                self.random.shuffle(some)
                receiver.session.settle_all(some, ACCEPTED)
            case "update":
                undecided = [item for item in open_here if item.phase <= Phase.OFFERED_SECOND]
                if undecided and state is not None:
                    self.random.choice(undecided).update(state)
            case "sender settles":
                mine = [item for item in self.sides[sender].open if item.link is sender and not item.settled]
                if mine:
                    self.random.choice(mine).settle(self.random.choice((ACCEPTED, None)))
            case _:
                self.step()

    def settle(self, delivery: Delivery, state: DeliveryState | None) -> None:
        if delivery.phase == Phase.DECIDED_SECOND:
            return
        if delivery.phase in (Phase.UNSETTLED_SECOND, Phase.OFFERED_SECOND) and not isinstance(
            state, Accepted | Modified
        ):
            state = ACCEPTED
        delivery.settle(state)

    def check_rest(self) -> None:
        for sender, receiver in zip(self.senders, self.receivers, strict=True):
            expected = [(tag, payload) for tag, payload, _ in self.sent[sender]]
            arrived = self.sides[receiver].arrived.get(receiver, [])
            assert [(item.tag, item.payload) for item in arrived] == expected
            assert sender.delivery_count == receiver.delivery_count
            assert sender.credit == receiver.credit
            held = {item.tag for item in sender.unsettled()}
            assert held == {item.tag for item in receiver.unsettled()}
            assert sender.unsettled_count == receiver.unsettled_count == len(held)
        ours, theirs = self.sessions
        assert set(ours.outgoing) == set(theirs.incoming)
        assert set(ours.incoming) == set(theirs.outgoing)


def check(seed: int, script: list[str], small_frames: bool, second: bool, serial: int) -> None:
    world = World(seed, small_frames, second, serial)
    for act in script:
        world.act(act)
        for sender in world.senders:
            assert sender.credit >= 0
    # Half-written deliveries go on as the windows open; then everybody settles what is left.
    world.rest()
    world.check_rest()
    for receiver in world.receivers:
        undecided = [item for item in receiver.unsettled() if item.phase <= Phase.OFFERED_SECOND]
        receiver.session.settle_all(undecided, ACCEPTED)
    for session in world.sessions:
        session.settle_all([item for item in session.unsettled() if item.phase == Phase.DECIDED and item.link.role])
    world.rest()
    for sender in world.senders:
        sender.session.settle_all(sender.unsettled(), ACCEPTED)
    world.rest()
    world.check_rest()
    for session in world.sessions:
        assert session.unsettled() == []


def check_split(seed: int, wildness: float) -> None:
    """A peer's talk, legal or not, heard whole and heard in pieces."""
    heard = []
    for in_pieces in (False, True):
        peer = talked_to(ConnectionOptions(container_id="engine"), credit=500, messages=20)
        application = Application(credit=500, passive=True)
        data = b"".join(Talk(seed, wildness).frames(80))
        chance = random.Random(seed)
        while data:
            cut = chance.choice((1, 3, 8, 50, 1_000)) if in_pieces else len(data)
            application.hear(peer.send_bytes(data[:cut]))
            data = data[cut:]
        heard.append((application.all_heard(), state_of(peer.engine)))
    assert heard[0] == heard[1]


@settings(max_examples=share(150))
@given(
    st.integers(0, 1 << 32),
    st.lists(st.sampled_from(ACTS), max_size=60),
    st.booleans(),
    st.booleans(),
    st.sampled_from([0, MASK - 5]),
)
def test_nothing_is_lost_doubled_or_misunderstood(
    seed: int, script: list[str], small_frames: bool, second: bool, serial: int
) -> None:
    check(seed, script, small_frames, second, serial)


def test_long_scripts(rng: random.Random) -> None:
    for _ in range(20):
        script = rng.choices(ACTS, k=300)
        check(rng.randrange(1 << 32), script, rng.random() < 0.5, rng.random() < 0.5, rng.choice((0, MASK - 5)))


@settings(max_examples=share(100))
@given(st.integers(0, 1 << 32), st.sampled_from([0.0, 0.0, 0.02]))
def test_any_split_of_the_bytes_means_the_same(seed: int, wildness: float) -> None:
    check_split(seed, wildness)


@pytest.mark.slow
def test_very_many_scripts(rng: random.Random, soak_rounds: int) -> None:
    for _ in range(50 * soak_rounds):
        script = rng.choices(ACTS, k=rng.randrange(200))
        check(rng.randrange(1 << 32), script, rng.random() < 0.5, rng.random() < 0.5, rng.choice((0, MASK - 5)))
        check_split(rng.randrange(1 << 32), rng.choice((0.0, 0.02, 0.1)))
