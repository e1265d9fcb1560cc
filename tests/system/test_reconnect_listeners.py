"""Listeners over a connection that is lost before, within and after each frame that matters, and comes back."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any

import pytest

import acquit
from acquit import AckMode, ReceiptStatus, errors
from acquit.protocol.definitions import Accepted
from acquit.testing import Proxy
from tests.support.outages import (
    INTERRUPTED,
    LONG,
    RESTORED,
    Asyncio,
    Blocking,
    Cut,
    Story,
    accepted,
    cuts,
    drain,
    fast,
    in_turns,
    live,
    post,
    until,
)

BODIES = [f"m{number}" for number in range(6)]
CUTS = cuts(
    ("client", "attach", 1),
    ("broker", "transfer", 4),
    ("client", "disposition", 1, {"state": Accepted}),
)


class Handler:
    """Notes what it is called with, in either API; acknowledges where that is its part."""

    def __init__(self, mode: AckMode) -> None:
        self.lock = threading.Lock()
        self.seen: Counter[object] = Counter()
        self.again: list[object] = []
        self.acknowledges = mode in (AckMode.CLIENT, AckMode.INDIVIDUAL)

    def __call__(self, message: Any) -> Any:
        with self.lock:
            self.seen[message.body] += 1
            if self.seen[message.body] > 1 and not message.redelivered:
                self.again.append(message.body)
        return message.acknowledge() if self.acknowledges else None


@pytest.mark.parametrize(
    ("mode", "prefetch", "concurrency", "cut"),
    in_turns(
        CUTS,
        (AckMode.AUTO, 100, 1),
        (AckMode.INDIVIDUAL, 0, 3),
        (AckMode.CLIENT, 100, 1),
        (AckMode.DUPS_OK, 0, 3),
        (AckMode.PRE_ACK, 100, 3),
    ),
)
def test_a_listener_goes_on(
    api: Blocking | Asyncio,
    broker: acquit.Broker,
    address: str,
    mode: AckMode,
    prefetch: int,
    concurrency: int,
    cut: Cut,
) -> None:
    handler = Handler(mode)
    post(broker, address, *BODIES)
    with Proxy(broker.url) as proxy:
        rule = cut.set(proxy)
        with api.connect(proxy.url, options=fast()) as connection:
            receiver = connection.session(mode).receiver(address, prefetch=prefetch)
            listener = receiver.start_listener(handler, concurrency)
            until(lambda: not live(broker, address), "every message handled and accepted")
            rule.wait(LONG)
            assert listener.stop(LONG)
            assert listener.wait()  # an outage is no end
        assert accepted(proxy) == Counter(BODIES)
    assert set(handler.seen) == set(BODIES)
    assert handler.again == []  # who sees a message again is told so
    assert drain(broker, address) == []


def test_a_handler_under_way_in_an_outage_comes_to_its_end_and_the_message_comes_again(
    broker: acquit.Broker, address: str
) -> None:
    story = Story()
    post(broker, address, "x")
    receipts: list[acquit.Receipt] = []
    seen: list[bool] = []
    begun, go = threading.Event(), threading.Event()

    def handle(message: acquit.ReceivedMessage) -> None:
        seen.append(message.redelivered)
        begun.set()
        assert go.wait(LONG)
        receipts.extend((message.renew_lock(), message.accept()))

    with Proxy(broker.url) as proxy, acquit.connect(proxy.url, options=fast(), on_event=story) as connection:
        receiver = connection.session("individual").receiver(address)
        with receiver.start_listener(handle):
            assert begun.wait(LONG)
            proxy.cut()
            story.wait_for(RESTORED)
            go.set()
            until(lambda: len(receipts) == 4, "the message to come again")
    assert seen == [False, True]
    assert [receipt.status for receipt in receipts] == [
        ReceiptStatus.STALE,
        ReceiptStatus.STALE,
        ReceiptStatus.SENT,
        ReceiptStatus.APPLIED,
    ]
    assert receipts[0].reason == receipts[1].reason is not None


@pytest.mark.parametrize("prefetch", [0, 10])
def test_a_listener_is_stopped_in_an_outage(
    api: Blocking | Asyncio, broker: acquit.Broker, address: str, prefetch: int
) -> None:
    story = Story()
    handler = Handler(AckMode.AUTO)
    with Proxy(broker.url) as proxy, api.connect(proxy.url, options=fast(), on_event=story) as connection:
        receiver = connection.session().receiver(address, prefetch=prefetch)
        listener = receiver.start_listener(handler, 2)
        proxy.refuse()
        proxy.cut()
        story.wait_for(INTERRUPTED)
        assert listener.stop(LONG)
        proxy.accept()
        story.wait_for(RESTORED)
        post(broker, address, "x")
        message = receiver.receive(LONG)
        assert message.body == "x"
    assert not handler.seen


def test_an_outage_that_does_not_end_ends_the_listener(
    api: Blocking | Asyncio, broker: acquit.Broker, address: str
) -> None:
    options = fast(reconnect={"rounds_max": 2})
    with Proxy(broker.url) as proxy, api.connect(proxy.url, options=options) as connection:
        listener = connection.session().receiver(address).start_listener(Handler(AckMode.AUTO), 2)
        proxy.refuse()
        proxy.cut()
        with pytest.raises(errors.ConnectionLost):
            listener.wait(LONG)


def test_acknowledgements_without_an_answer_end_with_the_connection(broker: acquit.Broker, address: str) -> None:
    """They are unknown, who waits for room among them is let go, and those of the next connection have all of it."""
    story = Story()
    post(broker, address, *BODIES)
    receipts: list[acquit.Receipt] = []
    options = fast(ack_capacity=2)
    with Proxy(broker.url) as proxy, acquit.connect(proxy.url, options=options, on_event=story) as connection:
        receiver = connection.session("individual").receiver(address, prefetch=3)
        messages = [receiver.receive(LONG) for _ in range(3)]
        proxy.stall("broker")

        def acknowledge() -> None:
            for message in messages:
                assert message is not None
                receipts.append(message.accept(sync=False))

        thread = threading.Thread(target=acknowledge)
        thread.start()
        proxy.wait_for("disposition", 1, by="client")
        assert len(receipts) <= 2
        proxy.cut()
        proxy.resume()
        story.wait_for(RESTORED)
        thread.join(LONG)
        assert not thread.is_alive()
        known = Counter(receipt.result(LONG) for receipt in receipts)
        assert sum(known.values()) == 3
        assert set(known) <= {ReceiptStatus.UNKNOWN, ReceiptStatus.STALE}
        assert known[ReceiptStatus.UNKNOWN]
        until(lambda: not live(broker, address) or drain_one(receiver), "every message acknowledged")
    assert drain(broker, address) == []


def drain_one(receiver: acquit.Receiver) -> bool:
    message = receiver.receive(0.05)
    if message is not None:
        assert message.accept(sync=False).result(LONG) is ReceiptStatus.APPLIED
    return False
