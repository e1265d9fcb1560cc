"""Receiving over a connection that is lost before, within and after each frame that matters, and comes back."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

import pytest

import acquit
from acquit import AckMode, ReceiptStatus
from acquit.protocol.definitions import Accepted, Role
from acquit.testing import Proxy
from tests.support.outages import (
    CONNECTED,
    INTERRUPTED,
    LONG,
    RESTORED,
    Asyncio,
    Blocking,
    Cut,
    Story,
    accepted,
    acquired,
    assert_in_order,
    assert_one_warning_an_outage,
    cuts,
    dead_letters,
    drain,
    fast,
    in_turns,
    live,
    opened,
    post,
    until,
)

BODIES = [f"m{number}" for number in range(6)]

# Before there is a link, a receiver is no other than a sender: test_reconnect_sends.py.
ATTACHING = cuts(("broker", "open", 1), ("client", "attach", 1), ("broker", "attach", 1), ("client", "flow", 1))
TRANSFERS = cuts(*[("broker", "transfer", number) for number in (1, 2, 4, 6)])
OURS: dict[str, object] = {"state": Accepted}
OUTCOMES = cuts(*[("client", "disposition", number, OURS) for number in (1, 3, 6)])
ANSWERS = cuts(*[("broker", "disposition", number, {"role": Role.SENDER}) for number in (1, 3, 6)])


def receive_all(receiver: Any, broker: acquit.Broker, address: str) -> Any:
    """Messages until the queue is empty, each to be dealt with before the next."""
    ends_at = time.monotonic() + LONG
    while live(broker, address) > 0:
        message = receiver.receive(0.05)
        assert time.monotonic() < ends_at, broker.inspect().queue(address)
        if message is not None:
            yield message


@pytest.mark.promise("redelivered", "at-least-once")
@pytest.mark.parametrize(
    ("api", "mode", "prefetch", "cut"),
    in_turns(
        [*ATTACHING, *TRANSFERS, *OUTCOMES, *ANSWERS],
        ("blocking", AckMode.CLIENT, 100),
        ("asyncio", AckMode.INDIVIDUAL, 0),
        ("blocking", AckMode.INDIVIDUAL, 1),
    ),
    indirect=["api"],
)
def test_what_was_not_acknowledged_comes_again(
    api: Blocking | Asyncio,
    broker: acquit.Broker,
    address: str,
    mode: AckMode,
    prefetch: int,
    cut: Cut,
    caplog: pytest.LogCaptureFixture,
) -> None:
    story = Story()
    post(broker, address, *BODIES)
    seen: Counter[object] = Counter()
    known: Counter[object] = Counter()
    with Proxy(broker.url) as proxy:
        rule = cut.set(proxy)
        with api.connect(proxy.url, options=fast(), on_event=story) as connection:
            session = connection.session(mode)
            receiver = session.receiver(address, prefetch=prefetch)
            for message in receive_all(receiver, broker, address):
                seen[message.body] += 1
                assert message.redelivered is (message.delivery_count > 0)
                if seen[message.body] > 1:
                    assert message.redelivered
                receipt = message.acknowledge()
                assert receipt.done
                if receipt.status is ReceiptStatus.APPLIED:
                    known[message.body] += 1
                else:
                    assert receipt.status in (ReceiptStatus.UNKNOWN, ReceiptStatus.STALE), receipt
                    story.wait_for(INTERRUPTED)
            rule.wait(LONG)
            if opened(proxy):
                story.wait_for(RESTORED)
        # Each was accepted exactly once at the broker, whatever was cut; and what we were told is so.
        assert accepted(proxy) == Counter(BODIES)
        assert set(known.values()) <= {1}
        assert len(known) >= len(BODIES) - 1
        assert set(seen) == set(BODIES)
        assert sum(seen.values()) <= len(BODIES) + 1
        restored = opened(proxy)
    assert drain(broker, address) == []
    assert_in_order(story)
    assert_one_warning_an_outage(caplog, story)
    assert story.kinds == ([CONNECTED, INTERRUPTED, RESTORED] if restored else [CONNECTED])


BY_ITSELF, BEFORE = ("blocking", AckMode.AUTO), ("asyncio", AckMode.PRE_ACK)
GATHERED = ("asyncio", AckMode.DUPS_OK)
"""How many dispositions there are depends on time: there may be no third."""


@pytest.mark.parametrize(
    ("api", "mode", "cut"),
    [
        *in_turns([*ATTACHING, *TRANSFERS, *OUTCOMES[:3]], BY_ITSELF, GATHERED, BEFORE),
        *in_turns(OUTCOMES[3:], BY_ITSELF, BEFORE),
    ],
    indirect=["api"],
)
def test_acknowledged_by_itself(
    api: Blocking | Asyncio, broker: acquit.Broker, address: str, mode: AckMode, cut: Cut
) -> None:
    story = Story()
    post(broker, address, *BODIES)
    seen: Counter[object] = Counter()
    with Proxy(broker.url) as proxy:
        rule = cut.set(proxy)
        with api.connect(proxy.url, options=fast(), on_event=story) as connection:
            receiver = connection.session(mode).receiver(address, prefetch=2)
            for message in receive_all(receiver, broker, address):
                seen[message.body] += 1
                if mode is not AckMode.DUPS_OK:
                    body = message.body
                    until(lambda: rule.fired or accepted(proxy)[body], "its acknowledgement")  # noqa: B023  # now
            rule.wait(LONG)
        # The acknowledgement goes out by itself: every message is accepted once, and may be seen again where it got
        # lost. Not more often than there were messages on the way.
        assert accepted(proxy) == Counter(BODIES)
        assert set(seen) == set(BODIES)
        assert all(count <= 2 for count in seen.values())
    assert drain(broker, address) == []


@pytest.mark.promise("at-most-once")
@pytest.mark.parametrize(("how", "cut"), in_turns(TRANSFERS, ("mode",), ("receiver",)))
def test_an_unreliable_receiver_sees_each_message_once_or_never(
    api: Blocking | Asyncio, broker: acquit.Broker, address: str, cut: Cut, how: str
) -> None:
    story = Story()
    post(broker, address, *BODIES)
    with Proxy(broker.url) as proxy:
        rule = cut.set(proxy)
        with api.connect(proxy.url, options=fast(), on_event=story) as connection:
            session = connection.session(AckMode.NO_ACK if how == "mode" else AckMode.CLIENT)
            receiver = session.receiver(address, unreliable=how == "receiver", prefetch=2)
            seen = [message.body for message in receive_all(receiver, broker, address)]
            rule.wait(LONG)
            story.wait_for(RESTORED)
            post(broker, address, "afterwards")
            while (message := receiver.receive(LONG)).body != "afterwards":
                seen.append(message.body)
        assert len(seen) == len(set(seen))
        assert set(seen) <= set(BODIES)
    assert drain(broker, address) == []


def test_prefetched_messages_are_dropped_and_come_again(
    api: Blocking | Asyncio, broker: acquit.Broker, address: str
) -> None:
    story = Story()
    post(broker, address, *BODIES)
    with Proxy(broker.url) as proxy, api.connect(proxy.url, options=fast(), on_event=story) as connection:
        receiver = connection.session(AckMode.INDIVIDUAL).receiver(address, prefetch=4)
        first = receiver.receive(LONG)
        proxy.wait_for("transfer", 4, by="broker")
        proxy.cut()
        story.wait_for(RESTORED)
        receipt = first.accept()
        assert receipt.status is ReceiptStatus.STALE
        assert "lost" in receipt.reason
        again = []
        for body in BODIES:  # in their order, the first one too
            message = receiver.receive(LONG)
            assert message.body == body
            again.append((message.redelivered, message.delivery_count))
            assert message.accept().status is ReceiptStatus.APPLIED
        assert again[0] == (True, 1)
        assert again[5] == (False, 0)
        assert receiver.receive(0.01) is None
    assert drain(broker, address) == []


@pytest.mark.parametrize("verb", ["accept", "reject", "release", "modify", "acknowledge"])
@pytest.mark.parametrize("when", ["interrupted", "restored"])
def test_an_old_delivery_s_outcome_does_nothing_and_says_so(
    api: Blocking | Asyncio, broker: acquit.Broker, address: str, verb: str, when: str
) -> None:
    story = Story()
    post(broker, address, "x")
    with Proxy(broker.url) as proxy, api.connect(proxy.url, options=fast(), on_event=story) as connection:
        receiver = connection.session(AckMode.INDIVIDUAL).receiver(address)
        old = receiver.receive(LONG)
        if when == "interrupted":
            proxy.refuse()
        proxy.cut()
        story.wait_for(INTERRUPTED if when == "interrupted" else RESTORED)
        proxy.forget()
        receipt = getattr(old, verb)()
        assert receipt.status is ReceiptStatus.STALE, receipt
        assert receipt.count == 1
        proxy.accept()
        message = receiver.receive(LONG)
        assert (message.body, message.redelivered) == ("x", True)
        assert proxy.passed("disposition", by="client") == []
        assert message.accept().status is ReceiptStatus.APPLIED
    assert drain(broker, address) == []
    assert dead_letters(broker, address) == []


def test_acknowledging_a_session_tells_what_is_stale_from_what_is_not(
    api: Blocking | Asyncio, broker: acquit.Broker, address: str
) -> None:
    story = Story()
    post(broker, address, *BODIES)
    with Proxy(broker.url) as proxy, api.connect(proxy.url, options=fast(), on_event=story) as connection:
        session = connection.session(AckMode.CLIENT)
        receiver = session.receiver(address)
        for body in BODIES[:3]:
            assert receiver.receive(LONG).body == body
        proxy.cut()
        story.wait_for(RESTORED)
        again = [receiver.receive(LONG) for _ in BODIES]
        assert [message.body for message in again] == BODIES
        receipt = session.acknowledge()
        assert receipt.status in (ReceiptStatus.STALE, ReceiptStatus.APPLIED), receipt
        until(lambda: live(broker, address) == 0, "all of them accepted")
    assert drain(broker, address) == []


def test_a_wait_goes_on_over_an_outage_and_ends_at_its_timeout_in_one(
    api: Blocking | Asyncio, broker: acquit.Broker, address: str
) -> None:
    story = Story()
    with Proxy(broker.url) as proxy, api.connect(proxy.url, options=fast(), on_event=story) as connection:
        receiver = connection.session(AckMode.CLIENT).receiver(address)
        proxy.refuse()
        proxy.cut()
        story.wait_for(INTERRUPTED)
        assert receiver.receive(0.01) is None
        post(broker, address, "x")
        proxy.wait_for("flow", by="client")
        proxy.accept()
        assert receiver.receive(LONG).body == "x"


@pytest.mark.parametrize("prefetch", [0, 3])
def test_the_credit_comes_back(api: Blocking | Asyncio, broker: acquit.Broker, address: str, prefetch: int) -> None:
    story = Story()
    with Proxy(broker.url) as proxy, api.connect(proxy.url, options=fast(), on_event=story) as connection:
        receiver = connection.session(AckMode.CLIENT).receiver(address, prefetch=prefetch)
        for turn in range(1, 4):
            proxy.cut()
            story.wait_for(RESTORED, turn)
            proxy.wait_for("attach", turn + 1, by="broker")
            post(broker, address, *BODIES[:3])
            for body in BODIES[:3]:
                message = receiver.receive(LONG)
                assert message.body == body
                assert message.acknowledge().status is ReceiptStatus.APPLIED
        assert acquired(broker, address) == 0


def test_recovered_messages_of_a_lost_connection_do_not_come_twice(
    api: Blocking | Asyncio, broker: acquit.Broker, address: str
) -> None:
    """`recover` puts messages back into the buffer; those are the old connection's, and go with it."""
    story = Story()
    post(broker, address, *BODIES)
    with Proxy(broker.url) as proxy, api.connect(proxy.url, options=fast(), on_event=story) as connection:
        session = connection.session(AckMode.CLIENT)
        receiver = session.receiver(address)
        for body in BODIES[:3]:
            assert receiver.receive(LONG).body == body
        assert session.recover() == 3
        proxy.cut()
        story.wait_for(RESTORED)
        assert [receiver.receive(LONG).body for _ in BODIES] == BODIES
        assert session.acknowledge().status is ReceiptStatus.APPLIED
    assert drain(broker, address) == []


def test_a_browser_begins_again(api: Blocking | Asyncio, broker: acquit.Broker, address: str) -> None:
    story = Story()
    post(broker, address, *BODIES)
    with Proxy(broker.url) as proxy, api.connect(proxy.url, options=fast(), on_event=story) as connection:
        receiver = connection.session().receiver(address, browse=True, prefetch=2)
        assert receiver.receive(LONG).body == BODIES[0]
        proxy.cut()
        story.wait_for(RESTORED)
        assert [receiver.receive(LONG).body for _ in BODIES] == BODIES
    assert [message.body for message in drain(broker, address)] == BODIES


@pytest.mark.parametrize("cut", in_turns(cuts(*[(by, "flow", 1, {"drain": True}) for by in ("client", "broker")])))
def test_a_drain_that_is_cut_ends_and_does_no_harm(
    api: Blocking | Asyncio, broker: acquit.Broker, address: str, cut: Cut
) -> None:
    story = Story()
    with Proxy(broker.url) as proxy, api.connect(proxy.url, options=fast(), on_event=story) as connection:
        receiver = connection.session().receiver(address, prefetch=4)
        rule = cut.set(proxy)
        try:
            assert receiver.drain(LONG) is cut.passes
        except acquit.ConnectionLost:
            assert not (cut.passes and cut.by == "broker")
        rule.wait(LONG)
        story.wait_for(RESTORED)
        post(broker, address, *BODIES)
        assert [receiver.receive(LONG).body for _ in BODIES] == BODIES
        assert receiver.drain(LONG)
        post(broker, address, "afterwards")
        assert receiver.receive(LONG).body == "afterwards"


@pytest.mark.parametrize(
    ("mode", "cut"),
    in_turns(
        cuts(*[(by, name, 1) for name in ("detach", "end", "close") for by in ("client", "broker")]),
        (AckMode.CLIENT,),
        (AckMode.INDIVIDUAL,),
    ),
)
def test_a_close_that_is_cut_gives_everything_back(
    api: Blocking | Asyncio, broker: acquit.Broker, address: str, mode: AckMode, cut: Cut
) -> None:
    post(broker, address, *BODIES)
    with Proxy(broker.url) as proxy:
        rule = cut.set(proxy)
        with api.connect(proxy.url, options=fast()) as connection:
            session = connection.session(mode)
            receiver = session.receiver(address)
            assert receiver.receive(LONG).body == BODIES[0]
            receiver.close(LONG)
            session.close(LONG)
        rule.wait(LONG)
    assert [message.body for message in drain(broker, address)] == BODIES
