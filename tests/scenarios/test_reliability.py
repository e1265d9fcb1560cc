"""The reliability of a link: one scenario for each name that a link's settle modes have together."""

from __future__ import annotations

import pytest

from acquit.broker.server import CAPABILITIES
from acquit.protocol.constants import ACCEPTED, RELEASED
from acquit.protocol.definitions import Modified, RcvSettleMode, SndSettleMode
from acquit.protocol.message import Message
from tests.support.broker_world import World, durable, live_of


@pytest.mark.promise("at-most-once")
@pytest.mark.parametrize("end", ["lost", "closed", "released"])
def test_unreliable_at_most_once(end: str) -> None:
    """Acknowledgement is implicit; nothing can be released or rejected."""
    world = World()
    client = world.client()
    client.post(client.sender("q"), durable(b"x"))
    receiver = client.receiver("q", presettled=True, credit=1)
    world.settle()
    assert receiver.remote_attach is not None
    assert receiver.remote_attach.snd_settle_mode == SndSettleMode.SETTLED
    (delivery,) = client.received[receiver]
    assert delivery.settled
    if end == "released":
        assert not delivery.settle(RELEASED), "too late: it was settled as it was sent"
    elif end == "lost":
        client.lose()
    else:
        client.close()
    world.settle()
    assert live_of(world, "q") == 0
    world.check_journal()


@pytest.mark.promise("at-most-once")
def test_unreliable_from_a_sender() -> None:
    """A posting that is sent settled is taken and never answered."""
    world = World()
    client = world.client()
    (sent,) = client.post(client.sender("q", snd_settle_mode=SndSettleMode.SETTLED), durable(b"x"), settled=True)
    world.settle()
    assert client.answers.get(sent) is None
    assert live_of(world, "q") == 1


def test_reliable_at_least_once() -> None:
    """Stays acquired, invisible to others, until settled; if the answer is lost, it comes again."""
    world = World()
    client = world.client()
    client.post(client.sender("q"), durable(b"x"))
    receiver = client.receiver("q", "one", credit=1)
    world.settle()
    assert receiver.remote_attach is not None
    assert receiver.remote_attach.rcv_settle_mode == RcvSettleMode.FIRST
    other = world.client("other")
    elsewhere = other.receiver("q", "two", credit=5)
    world.settle()
    assert other.received == {}
    client.received[receiver][0].settle(ACCEPTED)
    client.lose()  # before it is written
    world.settle()
    (again,) = other.received[elsewhere]
    message = Message.decode(again.payload)
    assert (message.body, message.delivery_count) == (b"x", 1)
    again.settle(ACCEPTED)
    world.settle()
    assert live_of(world, "q") == 0
    world.check_journal()


@pytest.mark.promise("answered")
@pytest.mark.parametrize("outcome", [ACCEPTED, RELEASED, Modified(delivery_failed=True)], ids=repr)
def test_answered(outcome: Modified) -> None:
    """The acknowledgement is itself answered, by us only after the sync, which a capability promises."""
    assert "acquit:durable-settlement" in CAPABILITIES
    world = World()
    client = world.client()
    client.post(client.sender("q"), durable(b"x"))
    receiver = client.receiver("q", second=True, credit=1)
    world.settle()
    assert receiver.remote_attach is not None
    assert receiver.remote_attach.rcv_settle_mode == RcvSettleMode.SECOND
    (delivery,) = client.received[receiver]
    delivery.settle(outcome)
    world.carry()
    assert not delivery.settled, "nothing is answered before the sync"
    lost = world.crash()
    assert live_of(lost, "q") == 1, "so a crash takes nothing back that was answered"
    world.settle()
    assert delivery.settled
    assert client.answers[delivery] == (outcome, True)
    kept = world.crash()
    assert live_of(kept, "q") == (0 if outcome is ACCEPTED else 1)
    world.check_journal()


@pytest.mark.promise("answered")
def test_answered_a_volatile_message() -> None:
    """There is nothing to sync for."""
    world = World()
    client = world.client()
    receiver = client.receiver("q", second=True, credit=1)
    client.post(client.sender("q"), Message(b"x"))
    world.carry()
    client.received[receiver][0].settle(ACCEPTED)
    world.carry()
    assert client.received[receiver][0].settled


def test_exactly_once_is_not_granted_yet() -> None:
    """A resumable terminus is asked for by both attaches with a capability: we do not offer it, so nobody believes that
    an unsettled delivery is kept for a link that is away."""
    assert "acquit:resume" not in CAPABILITIES
    world = World()
    client = world.client()
    client.post(client.sender("q"), durable(b"x"))
    receiver = client.receiver("q", second=True, credit=1)
    world.settle()
    receiver.detach(closed=False)
    other = client.receiver("q", "other", credit=1)
    world.settle()
    assert client.bodies(other) == [b"x"], "it was given back"
    world.check_journal()
