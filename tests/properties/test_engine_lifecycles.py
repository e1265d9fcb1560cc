"""Two applications that begin and end, attach and detach, accept and refuse at any moment, over a wire that is slow.

Everything crosses with everything. Neither engine may find fault with the other; at rest both have the same sessions
and links, and when all is ended nothing is left: no channel, no handle, no delivery.
"""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acquit.errors import LocalProtocolError
from acquit.protocol.connection import Connection
from acquit.protocol.constants import ACCEPTED
from acquit.protocol.definitions import Error, RcvSettleMode, Source, Target
from acquit.protocol.delivery import Delivery
from acquit.protocol.events import (
    ConnectionEnded,
    DeliveriesReceived,
    Event,
    LinkDetached,
    LinkRequested,
    SessionBegun,
    SessionEnded,
)
from acquit.protocol.link import Link, LinkState, ReceivingLink, SendingLink
from acquit.protocol.options import ConnectionOptions
from acquit.protocol.session import Session, SessionState
from acquit.protocol.settlement import Phase
from tests.support.examples import share
from tests.support.wire import Wire

OURS = Error("test:on-purpose", "by the script")
ACTS = ("begin", "end", "attach", "attach", "answer", "answer", "detach", "grant", "send", "settle", "step", "step")


class Side:
    """One application, which remembers what it was told and checks that it was told once."""

    def __init__(self, engine: Connection) -> None:
        self.engine = engine
        self.requests: list[Link] = []
        self.links: list[Link] = []
        self.deliveries: list[Delivery] = []
        self.ended: set[object] = set()

    def hear(self, events: list[Event]) -> None:
        for event in events:
            match event:
                case LinkRequested(link):
                    self.requests.append(link)
                    self.links.append(link)
                case DeliveriesReceived(_, deliveries):
                    self.deliveries += deliveries
                case SessionEnded(session, error, _):
                    assert error in (None, OURS), f"found fault: {error}"
                    self.end_once(session)
                case LinkDetached(link, closed, error, _, unsettled):
                    assert error in (None, OURS), f"found fault: {error}"
                    self.end_once(link)
                    assert all((item.phase == Phase.LOST) == closed or item.over for item in unsettled)
                case ConnectionEnded(_, _, _):
                    raise AssertionError("the connection ended")
                case SessionBegun(session):
                    assert session.state in (SessionState.MAPPED, SessionState.END_SENT, SessionState.ENDED)
                case _:
                    pass

    def end_once(self, thing: object) -> None:
        assert thing not in self.ended
        self.ended.add(thing)


class World:
    """Two sides and what they may do."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        options = ConnectionOptions(container_id="one", max_frame_size=512)
        self.wire = Wire(options, options).open()
        self.sides = (Side(self.wire.client), Side(self.wire.server))
        self.sent = 0

    def step(self) -> None:
        client, server = self.wire.step()
        self.sides[0].hear(client)
        self.sides[1].hear(server)

    def rest(self) -> None:
        client, server = self.wire.run()
        self.sides[0].hear(client)
        self.sides[1].hear(server)

    def act(self, act: str) -> None:
        chance = self.random
        side = chance.choice(self.sides)
        sessions = side.engine.sessions
        try:
            if act == "begin" and len(sessions) < 3:
                side.engine.begin()
            elif act == "end" and sessions and chance.random() < 0.3:
                chance.choice(sessions).end(chance.choice((None, OURS)))
            elif act == "attach" and sessions:
                side.links.append(self.attach(chance.choice(sessions)))
            elif act == "answer" and side.requests:
                self.answer(side, side.requests.pop(chance.randrange(len(side.requests))))
            elif act == "detach" and side.links:
                chance.choice(side.links).detach(chance.choice((None, None, OURS)), closed=chance.random() < 0.6)
            elif act == "grant":
                self.grant(side)
            elif act == "send":
                self.send(side)
            elif act == "settle" and side.deliveries:
                side.deliveries.pop(chance.randrange(len(side.deliveries))).settle(ACCEPTED)
            elif act == "step":
                self.step()
        except LocalProtocolError:
            pass  # a name in use, no handle or channel left, a request not yet answered: refused, and nothing was said

    def attach(self, session: Session) -> Link:
        chance = self.random
        attach = session.attach_sender if chance.random() < 0.5 else session.attach_receiver
        return attach(
            chance.choice(("a", "b", "c")),
            source=Source("s"),
            target=Target("t"),
            rcv_settle_mode=chance.choice(list(RcvSettleMode)),
        )

    def answer(self, side: Side, link: Link) -> None:
        if self.random.random() < 0.7:
            link.accept_attach()
        else:
            link.refuse(OURS)

    def grant(self, side: Side) -> None:
        receivers = [link for link in side.links if isinstance(link, ReceivingLink)]
        if receivers:
            receiver = self.random.choice(receivers)
            if self.random.random() < 0.2:
                receiver.drain_credit()
            else:
                receiver.grant(self.random.randrange(5), echo=self.random.random() < 0.2)

    def send(self, side: Side) -> None:
        senders = [link for link in side.links if isinstance(link, SendingLink) and link.sendable]
        if senders:
            sender = self.random.choice(senders)
            payload = bytes(self.random.choice((10, 10, 3_000)))
            self.sent += 1
            side.deliveries.append(sender.send(b"%d" % self.sent, payload))
            if self.random.random() < 0.2:
                sender.drained()

    def check_rest(self) -> None:
        client, server = (side.engine for side in self.sides)
        assert len(client.sessions) == len(server.sessions)
        by_channel = {session.channel: session for session in server.sessions}
        for session in client.sessions:
            assert session.remote_channel is not None
            theirs = by_channel[session.remote_channel]
            assert session.state is theirs.state is SessionState.MAPPED
            assert theirs.remote_channel == session.channel
            ours = sorted((link.handle, link.remote_handle, link.name) for link in session.links)
            assert ours == sorted((link.remote_handle, link.handle, link.name) for link in theirs.links)
            assert {link.state for link in session.links} <= {LinkState.ATTACHED}

    def end_all(self) -> None:
        for side in self.sides:
            for link in side.requests:
                link.accept_attach()
            side.requests.clear()
        self.rest()
        self.check_rest()
        for session in self.wire.client.sessions:
            for link in session.links:
                link.detach()
        self.rest()
        for side in self.sides:
            for session in side.engine.sessions:
                assert session.links == []
                assert not session.input_handles
        for session in self.wire.server.sessions:
            session.end()
        self.rest()
        for side in self.sides:
            assert side.engine.sessions == []
            assert side.engine.predictions.transfers == {}
            channels = side.engine._channels
            given_back = [*channels._freed, *channels._resting]
            assert sorted(given_back) == list(range(channels._next)), "a channel is not given back"


def check(seed: int, script: list[str]) -> None:
    world = World(seed)
    for act in script:
        world.act(act)
    world.rest()
    world.end_all()


@settings(max_examples=share(150))
@given(st.integers(0, 1 << 32), st.lists(st.sampled_from(ACTS), max_size=80))
def test_whatever_crosses_is_understood(seed: int, script: list[str]) -> None:
    check(seed, script)


def test_long_lives(rng: random.Random) -> None:
    for _ in range(20):
        check(rng.randrange(1 << 32), rng.choices(ACTS, k=300))


@pytest.mark.slow
def test_very_many_lives(rng: random.Random, soak_rounds: int) -> None:
    for _ in range(50 * soak_rounds):
        check(rng.randrange(1 << 32), rng.choices(ACTS, k=rng.randrange(400)))
