"""Transactions of a real broker: fencing somebody who does not read, and what a connection leaves behind."""

from __future__ import annotations

import pytest

import acquit
from acquit.protocol.definitions import (
    Accepted,
    Coordinator,
    Declare,
    Declared,
    Discharge,
    Source,
    Target,
    TransactionalState,
)
from acquit.protocol.message import Message
from tests.crash.wire import Lost, Wire, ask_fate
from tests.support.draining import take_all
from tests.support.transacting import control_message


def begin(wire: Wire, *bodies: str) -> tuple[bytes, object]:
    """A transaction that has posted these; and its control link."""
    control = wire.session.attach_sender("control", source=Source(), target=Coordinator())
    declared = wire.answer(wire.send(control, control_message(Declare())))
    assert isinstance(declared, Declared)
    sender = wire.session.attach_sender("sender", source=Source(), target=Target("q"))
    for body in bodies:
        message = Message(body, durable=True).encode()
        answer = wire.answer(wire.send(sender, message, TransactionalState(declared.txn_id)))
        assert answer == TransactionalState(declared.txn_id, Accepted())
    return declared.txn_id, control


def bodies(url: str) -> list[object]:
    with acquit.connect(url) as connection, connection.session() as session:
        return [message.body for message in take_all(session.receiver("q"))]


def test_who_is_asked_about_is_fenced() -> None:
    with acquit.Broker() as broker:
        lost, asker, again = (Wire(broker.url, name) for name in ("lost", "asker", "again"))
        with lost.socket, asker.socket, again.socket:
            txn_id, control = begin(lost, "a", "b")
            assert ask_fate(asker, txn_id) == "rolled-back"
            # A commit that comes after that changes nothing, and its sender hears why.
            with pytest.raises(Lost):
                lost.answer(lost.send(control, control_message(Discharge(txn_id, False))))  # type: ignore[arg-type]
            assert ask_fate(again, txn_id) == "rolled-back"
            assert bodies(broker.url) == []


def test_a_commit_and_a_socket_that_is_gone() -> None:
    with acquit.Broker() as broker:
        committed, dropped, asker = Wire(broker.url, "one"), Wire(broker.url, "two"), Wire(broker.url, "asker")
        with asker.socket:
            one, control = begin(committed, "kept")
            two, _ = begin(dropped, "lost")
            assert committed.answer(committed.send(control, control_message(Discharge(one, False)))) == Accepted()  # type: ignore[arg-type]
            committed.socket.close()
            dropped.socket.close()
            assert ask_fate(asker, one) == "committed"
            assert ask_fate(asker, two) == "rolled-back"
            assert bodies(broker.url) == ["kept"]
