"""Sends that the peer gives no credit for: what is said of them, by whoever asks, and when their own time is over."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import acquit
from acquit import Accepted, DeliveryInDoubt, NotSent
from acquit.broker.options import AddressRule, BrokerOptions
from acquit.testing import Proxy
from tests.support.outages import INTERRUPTED, LONG, Asyncio, Blocking, Story, fast, post, until

SOON = 0.05
ROOM = 2


@pytest.fixture(scope="module")
def full() -> Iterator[acquit.Broker]:
    """A broker whose queues ``full.*`` take two messages, and give no credit for more."""
    rule = AddressRule("full.#", {"messages_max": ROOM, "full_policy": "block"})
    with acquit.Broker(config=BrokerOptions(address=(rule,))) as broker:
        yield broker


@pytest.mark.promise("bounded")
def test_what_never_left_is_not_in_doubt(api: Blocking | Asyncio, full: acquit.Broker) -> None:
    address = f"full.{api.name}.doubt"
    with api.connect(full.url) as connection, connection.session() as session:
        sender = session.sender(address)
        receipts = [sender.send(str(number), wait=False) for number in range(ROOM + 2)]
        assert [receipt.result(LONG) for receipt in receipts[:ROOM]] == [Accepted()] * ROOM
        waits = "did not leave within 0.05 s, and still waits for credit of the peer, or to be connected"
        with pytest.raises(NotSent, match=f"^the message {waits}$"):
            receipts[-1].result(SOON)
        with pytest.raises(NotSent, match="^2 of 2 sends have no outcome within 0.05 s: 2 did not leave"):
            sender.flush(SOON)
        assert not receipts[-1].done
        receiver = session.receiver(address)
        assert [receiver.receive(LONG).body for _ in range(ROOM + 2)] == ["0", "1", "2", "3"]
        assert [receipt.result(LONG) for receipt in receipts] == [Accepted()] * (ROOM + 2)
        sender.flush(LONG)


def test_a_flush_says_how_many_left_and_how_many_did_not(api: Blocking | Asyncio, full: acquit.Broker) -> None:
    address, options = f"full.{api.name}.flush", fast(close_timeout_ms=100)
    with Proxy(full.url) as proxy, api.connect(proxy.url, options=options) as connection:
        sender = connection.session().sender(address)
        proxy.wait_for("flow", by="broker")
        proxy.stall(by="broker")  # in one direction: an outcome of the first may be on its way before the second leaves
        receipts = [sender.send(str(number), wait=False) for number in range(ROOM + 3)]
        until(lambda: len(proxy.passed("transfer", by="client")) == ROOM, "what there is credit for has left")
        said = (
            f"^{ROOM + 3} of {ROOM + 3} sends have no outcome within 0.05 s: {ROOM} may or may not be taken, "
            "3 did not leave, and still wait for credit of the peer, or to be connected; their receipts tell which$"
        )
        with pytest.raises(DeliveryInDoubt, match=said):
            sender.flush(SOON)
        with pytest.raises(DeliveryInDoubt, match="^no outcome within 0.05 s: the message may or may not be taken$"):
            receipts[0].result(SOON)
        with pytest.raises(NotSent):
            receipts[-1].result(SOON)
        proxy.cut()


@pytest.mark.promise("bounded")
def test_a_send_keeps_its_own_time_whoever_waits_for_it(api: Blocking | Asyncio, full: acquit.Broker) -> None:
    address = f"full.{api.name}.time"
    with api.connect(full.url) as connection, connection.session() as session:
        sender = session.sender(address)
        for number in range(ROOM):
            sender.send(str(number))
        nobody_waits = sender.send("never", wait=False, timeout=SOON)
        with pytest.raises(NotSent, match="^the peer gave no credit within 0.05 s: the message never left$"):
            nobody_waits.result()  # which has no time-out
        assert nobody_waits.done
        stays = sender.send("stays", wait=False)
        receiver = session.receiver(address)
        assert [receiver.receive(LONG).body for _ in range(ROOM + 1)] == ["0", "1", "stays"]
        assert stays.result(LONG) == Accepted()


def test_a_flush_tells_of_a_send_whose_time_was_over(api: Blocking | Asyncio, full: acquit.Broker) -> None:
    with api.connect(full.url) as connection:
        sender = connection.session().sender(f"full.{api.name}.heard")
        for number in range(ROOM):
            sender.send(str(number))
        sender.send("never", wait=False, timeout=SOON)
        with pytest.raises(NotSent, match="within 0.05 s"):
            sender.flush(LONG)
        sender.flush(LONG)


def test_a_send_keeps_its_own_time_in_an_outage(api: Blocking | Asyncio, broker: acquit.Broker, address: str) -> None:
    story = Story()
    with Proxy(broker.url) as proxy, api.connect(proxy.url, options=fast(), on_event=story) as connection:
        sender = connection.session().sender(address)
        proxy.before("disposition", by="broker").call(lambda frame: (proxy.refuse(), proxy.cut()))
        left = sender.send("left", wait=False, timeout=0.5)
        story.wait_for(INTERRUPTED)
        stayed = sender.send("stayed", wait=False, timeout=SOON)
        with pytest.raises(NotSent, match="^the connection was not restored within 0.05 s: the message never left$"):
            stayed.result()
        with pytest.raises(DeliveryInDoubt, match="^no outcome within 0.5 s: the message may or may not be taken$"):
            left.result()
        proxy.accept()
        assert sender.send("afterwards", timeout=LONG) == Accepted()
    assert {message.body for message in _all(broker, address)} == {"left", "afterwards"}


def test_the_outcome_of_a_send_whose_time_was_over_is_learned_all_the_same(
    api: Blocking | Asyncio, broker: acquit.Broker, address: str
) -> None:
    with Proxy(broker.url) as proxy, api.connect(proxy.url, options=fast()) as connection:
        sender = connection.session().sender(address)
        proxy.before("disposition", by="broker").stall()
        receipt = sender.send("late", wait=False, timeout=SOON)
        with pytest.raises(DeliveryInDoubt):
            receipt.result()
        proxy.resume()
        until(lambda: receipt.outcome == Accepted(), "the outcome has come")
        assert receipt.result() == Accepted()
        sender.flush(LONG)  # nothing failed


def test_a_transaction_without_a_message_that_was_to_be_in_it_is_not_committed(
    api: Blocking | Asyncio, full: acquit.Broker
) -> None:
    address = f"full.{api.name}.transaction"
    post(full, address, "one", "two")
    with api.connect(full.url) as connection:
        session = connection.session("transacted")
        sender = session.sender(address)
        never = sender.send("never", wait=False, timeout=SOON)
        until(lambda: never.done, "its time is over")
        with pytest.raises(acquit.TransactionRolledBack, match="a send in it failed: .*the message never left"):
            session.commit()


def _all(broker: acquit.Broker, address: str) -> list[acquit.ReceivedMessage]:
    with acquit.connect(broker.url) as connection, connection.session().receiver(address) as receiver:
        found = []
        while (message := receiver.receive(0.2)) is not None:
            found.append(message)
        return found
