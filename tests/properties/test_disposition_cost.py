"""A disposition of 30 bytes may name everything that is unsettled: what it costs us is paid for by deliveries."""

from __future__ import annotations

import pytest

from acquit.protocol.definitions import Accepted, AmqpCondition, Disposition, End, Flow, Received, Role
from acquit.protocol.events import SessionEnded, StatesReceived
from acquit.protocol.link import SendingLink
from acquit.protocol.options import ConnectionOptions
from acquit.protocol.settlement import Phase
from tests.support.peer import Peer, attach_to, begun_server, receiving_attach

pytestmark = pytest.mark.promise("fairness")

MESSAGES = 1_000


def sent(count: int, serial: int = 0) -> tuple[Peer, SendingLink]:
    options = ConnectionOptions(container_id="engine", initial_serial=serial)
    peer = begun_server(options, incoming_window=100_000)
    link = attach_to(peer, receiving_attach())
    assert isinstance(link, SendingLink)
    peer.say(Flow(None, 100_000, 0, 0, 0, None, 100_000))
    for number in range(count):
        link.send(b"%d" % number, b"")
    peer.hear()
    return peer, link


def test_saying_the_same_of_everything_for_ever_ends_the_session() -> None:
    peer, _ = sent(MESSAGES)
    events = [
        event
        for number in range(40)
        for event in peer.say(Disposition(Role.RECEIVER, 0, 0x7FFF_FFFF, False, Received(0, number)))
    ]
    assert sum(isinstance(event, StatesReceived) for event in events) == 20
    assert isinstance(events[-1], SessionEnded)
    assert peer.error_heard(End).condition == AmqpCondition.RESOURCE_LIMIT_EXCEEDED


def test_acknowledging_everything_up_to_here_each_time_is_allowed() -> None:
    """Ids that are settled may be named again, and some clients do."""
    for serial in (0, 0xFFFF_FF00):
        peer, link = sent(MESSAGES, serial)
        for number in range(MESSAGES):
            peer.say(Disposition(Role.RECEIVER, serial, (serial + number) & 0xFFFF_FFFF, True, Accepted()))
        assert link.session.unsettled() == []
        assert peer.hear() == []


def test_what_lies_outside_of_all_that_is_unsettled_is_free() -> None:
    peer, link = sent(MESSAGES)
    for _ in range(100):
        peer.say(Disposition(Role.RECEIVER, 2_000, 0x7FFF_FFFF, True, Accepted()))
        peer.say(Disposition(Role.RECEIVER, 0x9000_0000, 0xFFFF_FFFF, True, Accepted()))
    assert len(link.session.unsettled()) == MESSAGES
    peer.say(Disposition(Role.RECEIVER, 0xFFFF_0000, 0xFFFF, True, Accepted()))
    assert link.session.unsettled() == []


def test_three_words_on_each_delivery_are_never_too_many() -> None:
    peer, link = sent(0)
    for start in range(0, 10 * MESSAGES, 100):
        deliveries = [link.send(b"%d" % number, b"") for number in range(start, start + 100)]
        for state in (Received(0, 0), Accepted()):
            peer.say(Disposition(Role.RECEIVER, start, start + 99, False, state))
        peer.say(Disposition(Role.RECEIVER, start, start + 99, True, Accepted()))
        assert {delivery.phase for delivery in deliveries} == {Phase.SETTLED}
    assert peer.engine.sessions == [link.session]
