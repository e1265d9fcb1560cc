"""What is said last: once an end or a close is written nothing follows it, and no verb pretends that something did."""

from __future__ import annotations

import pytest

from acquit.errors import LocalProtocolError
from acquit.protocol.constants import ACCEPTED
from acquit.protocol.definitions import Close, Disposition, RcvSettleMode
from acquit.protocol.delivery import Delivery
from acquit.protocol.events import DeliveriesReceived
from acquit.protocol.session import Session
from acquit.protocol.settlement import Phase
from tests.support.wire import Wire, frames_in, only, opened


def written(wire: Wire) -> list[type]:
    return [type(performative) for _, performative, _ in frames_in(wire.client.data_to_send())]


@pytest.mark.parametrize("settled", [False, True])
@pytest.mark.parametrize("sent_before", [False, True])
def test_no_transfer_after_a_close(settled: bool, sent_before: bool) -> None:
    wire = opened()
    session, _ = wire.begin()
    sender, _ = wire.attach_sender(session, credit=10)
    if sent_before:  # the second of its kind goes the short way
        sender.send(b"1", b"x", settled=settled)
        wire.run()
    wire.client.close()
    assert not sender.sendable
    with pytest.raises(LocalProtocolError):
        sender.send(b"2", b"y", settled=settled)
    assert written(wire) == [Close]


def received(wire: Wire) -> tuple[Session, list[Delivery]]:
    session, _ = wire.begin()
    receiver, sender = wire.attach_receiver(session, credit=10)
    sender.send(b"1", b"x")
    sender.send(b"2", b"x")
    heard, _ = wire.run()
    return receiver.session, only(heard, DeliveriesReceived).deliveries


@pytest.mark.parametrize("ending", ["end", "close"])
def test_settling_after_an_end_or_a_close_is_too_late(ending: str) -> None:
    wire = opened()
    session, (first, second) = received(wire)
    if ending == "end":
        session.end()
    else:
        wire.client.close()
    assert not first.settle(ACCEPTED)
    assert session.settle_all([second], ACCEPTED) == 0
    assert not second.update(ACCEPTED)
    assert Disposition not in written(wire)
    wire.client.receive_eof(wire.now)
    assert [first.phase, second.phase] == [Phase.LOST, Phase.LOST]


def test_what_settle_all_did_before_it_raises_is_said() -> None:
    wire = opened()
    session, theirs = wire.begin()
    first, _ = wire.attach_sender(session, "first", credit=1)
    second, _ = wire.attach_sender(session, "second", credit=1, rcv_settle_mode=RcvSettleMode.SECOND)
    sent = [first.send(b"1", b"x"), second.send(b"2", b"x")]
    wire.run()
    with pytest.raises(LocalProtocolError, match="needs an outcome"):
        theirs.settle_all(theirs.unsettled())
    assert wire.server.has_output
    wire.run()
    assert [delivery.phase for delivery in sent] == [Phase.SETTLED, Phase.UNSETTLED]
