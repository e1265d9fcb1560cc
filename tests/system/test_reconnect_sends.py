"""Sends over a connection that is lost before, within and after each frame that matters, and comes back."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

import acquit
from acquit import Accepted, DeliveryInDoubt, MessageRejected, NotSent
from acquit.broker.options import AddressRule, BrokerOptions
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
    arrived,
    assert_in_order,
    assert_one_warning_an_outage,
    cuts,
    drain,
    fast,
    in_turns,
    opened,
    until,
)

BODIES = [f"m{number}" for number in range(8)]
LAST = len(BODIES)

POINTS = cuts(
    ("client", "header", 1),
    ("broker", "sasl-mechanisms", 1),
    ("client", "sasl-init", 1),
    ("broker", "sasl-outcome", 1),
    ("client", "header", 2),
    ("client", "open", 1),
    ("broker", "open", 1),
    ("client", "begin", 1),
    ("broker", "begin", 1),
    ("client", "attach", 1),
    ("broker", "attach", 1),
    ("broker", "flow", 1),
    ("client", "transfer", 1),
    ("broker", "disposition", 1),
    ("client", "transfer", 3),
    ("broker", "disposition", 3),
    ("client", "transfer", LAST),
    ("broker", "disposition", 4),
    ("client", "detach", 1),
    ("broker", "detach", 1),
    ("client", "end", 1),
    ("broker", "end", 1),
    ("client", "close", 1),
    ("broker", "close", 1),
)


@pytest.mark.promise("at-least-once")
@pytest.mark.parametrize("cut", in_turns(POINTS))
def test_a_send_is_sent_again_and_nothing_is_lost(
    api: Blocking | Asyncio, broker: acquit.Broker, address: str, cut: Cut, caplog: pytest.LogCaptureFixture
) -> None:
    story = Story()
    with Proxy(broker.url) as proxy:
        rule = cut.set(proxy)
        with api.connect(proxy.url, options=fast(), on_event=story) as connection:
            session = connection.session()
            sender = session.sender(address)
            for body in BODIES[:3]:
                assert sender.send(body, timeout=LONG) == Accepted()
            receipts = [sender.send(body, wait=False) for body in BODIES[3:]]
            sender.flush(LONG)
            assert [receipt.result(LONG) for receipt in receipts] == [Accepted()] * len(receipts)
            story.wait_for(CONNECTED)
            if cut.name not in ("detach", "end", "close"):
                rule.wait(LONG)
                if opened(proxy):
                    story.wait_for(RESTORED)
            sender.close(LONG)
            session.close(LONG)
        rule.wait(LONG)
        messages = drain(broker, address)
        in_queue = [message.body for message in messages]
        # What passed entirely is there once for each passing: repeated where its answer was cut, and never else.
        assert sorted(in_queue) == sorted(arrived(proxy).elements())
        assert set(in_queue) == set(BODIES)
        assert list(dict.fromkeys(in_queue)) == BODIES
        # A repeated one can be told by its id.
        assert len({(message.body, message.message_id) for message in messages}) == len(BODIES)
        assert None not in {message.message_id for message in messages}
        lost_open = opened(proxy)
    assert_in_order(story)
    assert_one_warning_an_outage(caplog, story)
    if cut.name in ("detach", "end", "close"):
        pass  # whether it is restored before it is closed is nobody's concern
    elif lost_open:
        assert story.kinds == [CONNECTED, INTERRUPTED, RESTORED]
    else:
        assert story.kinds == [CONNECTED]


@pytest.mark.parametrize(
    "cut",
    in_turns(
        cuts(*[("client", "transfer", number) for number in (1, 2, 4, 5)], ("broker", "disposition", 1)),
    ),
)
def test_a_message_of_many_frames_is_whole_or_not_there(
    api: Blocking | Asyncio, broker: acquit.Broker, address: str, cut: Cut
) -> None:
    large = bytes(range(256)) * 900  # four frames of 65,536 octets
    with Proxy(broker.url) as proxy:
        rule = cut.set(proxy)
        with api.connect(proxy.url, options=fast()) as connection:
            sender = connection.session().sender(address)
            assert sender.send(large, timeout=LONG) == Accepted()
            assert sender.send(b"small", timeout=LONG) == Accepted()
        rule.wait(LONG)
        whole = [frame for frame in proxy.passed("transfer", by="client") if not frame.performative.more]  # type: ignore[union-attr]
    in_queue = [message.body for message in drain(broker, address)]
    assert list(dict.fromkeys(in_queue)) == [large, b"small"]
    assert len(in_queue) == len(whole)


@pytest.mark.promise("at-most-once")
@pytest.mark.parametrize(
    "cut", in_turns(cuts(("client", "attach", 1), *[("client", "transfer", number) for number in (1, 2, 5, LAST)]))
)
def test_an_unreliable_send_is_never_sent_again(
    api: Blocking | Asyncio, broker: acquit.Broker, address: str, cut: Cut, caplog: pytest.LogCaptureFixture
) -> None:
    story = Story()
    with Proxy(broker.url) as proxy:
        rule = cut.set(proxy)
        with api.connect(proxy.url, options=fast(), on_event=story) as connection:
            sender = connection.session().sender(address, unreliable=True)
            for body in BODIES:
                assert sender.send(body, timeout=LONG) is None
            rule.wait(LONG)
            story.wait_for(RESTORED)
            assert sender.send("afterwards", timeout=LONG) is None
            sender.close(LONG)
        sent = arrived(proxy)
        in_queue = [message.body for message in drain(broker, address)]
        assert sorted(in_queue) == sorted(sent)
        assert max(sent.values()) == 1
        assert in_queue[-1] == "afterwards"
        assert set(in_queue) <= {*BODIES, "afterwards"}
        assert all(frame.performative.settled for frame in proxy.passed("transfer", by="client"))  # type: ignore[union-attr]
    assert_one_warning_an_outage(caplog, story)


def test_sends_in_an_outage_wait_for_its_end(api: Blocking | Asyncio, broker: acquit.Broker, address: str) -> None:
    story = Story()
    with Proxy(broker.url) as proxy, api.connect(proxy.url, options=fast(), on_event=story) as connection:
        sender = connection.session().sender(address)
        assert connection.connected
        proxy.refuse()
        proxy.cut()
        story.wait_for(INTERRUPTED)
        assert not connection.connected
        assert not connection.closed
        receipts = [sender.send(body, wait=False) for body in BODIES]
        assert not any(receipt.done for receipt in receipts)
        proxy.accept()
        assert [receipt.result(LONG) for receipt in receipts] == [Accepted()] * len(BODIES)
        assert connection.connected
        assert set(arrived(proxy).values()) == {1}
    assert [message.body for message in drain(broker, address)] == BODIES


@pytest.mark.promise("no-lies")
def test_a_send_that_left_and_was_not_answered_in_time_is_in_doubt(
    api: Blocking | Asyncio, broker: acquit.Broker, address: str
) -> None:
    story = Story()
    with Proxy(broker.url) as proxy, api.connect(proxy.url, options=fast(), on_event=story) as connection:
        sender = connection.session().sender(address)
        proxy.before("disposition", by="broker").call(lambda frame: (proxy.refuse(), proxy.cut()))
        with pytest.raises(DeliveryInDoubt):
            sender.send("left", timeout=1.0)
        story.wait_for(INTERRUPTED)
        with pytest.raises(NotSent):
            sender.send("never left", timeout=0.05)
        proxy.accept()
        assert sender.send("afterwards", timeout=LONG) == Accepted()
        # Who heard that it is in doubt, or did not leave, may do something about it: it does not leave behind his back.
        assert arrived(proxy) == {"left": 1, "afterwards": 1}
    assert [message.body for message in drain(broker, address)] == ["left", "afterwards"]


def test_a_send_that_is_refused_when_it_is_sent_again_is_in_doubt(api: Blocking | Asyncio) -> None:
    """The first time it may have been taken, and here it was: that the second is refused says nothing of that."""
    rule = AddressRule("narrow", {"messages_max": 1, "full_policy": "reject"})
    with acquit.Broker(config=BrokerOptions(address=(rule,))) as broker:
        with Proxy(broker.url) as proxy, api.connect(proxy.url, options=fast()) as connection:
            proxy.before("disposition", by="broker").cut()
            with pytest.raises(DeliveryInDoubt, match="may have been taken") as caught:
                connection.session().sender("narrow").send("once", timeout=LONG)
        assert isinstance(caught.value.__cause__, MessageRejected)
        assert [message.body for message in drain(broker, "narrow")] == ["once"]


def test_the_send_timeout_of_the_options_bounds_an_outage(
    api: Blocking | Asyncio, broker: acquit.Broker, address: str
) -> None:
    story = Story()
    options = fast(send_timeout_ms=200)
    with Proxy(broker.url) as proxy, api.connect(proxy.url, options=options, on_event=story) as connection:
        sender = connection.session().sender(address)
        proxy.before("disposition", by="broker").call(lambda frame: (proxy.refuse(), proxy.cut()))
        left = sender.send("left", wait=False)
        story.wait_for(INTERRUPTED)
        stayed = sender.send("stayed", wait=False)
        with pytest.raises(DeliveryInDoubt):
            left.result(LONG)
        with pytest.raises(acquit.AcquitError):
            stayed.result(LONG)
        with ThreadPoolExecutor() as pool:
            afterwards = pool.submit(sender.send, "afterwards", timeout=LONG)
            until(lambda: sender._core.queue, "the message waits for the connection")
            with pytest.raises(acquit.AcquitError):
                sender.send("beside", wait=False).result(LONG)
            proxy.accept()
            assert afterwards.result(LONG) == Accepted()  # for as long as its own time-out said
    assert [message.body for message in drain(broker, address)] == ["left", "afterwards"]


def test_several_senders_and_sessions_come_back(api: Blocking | Asyncio, broker: acquit.Broker, address: str) -> None:
    with Proxy(broker.url) as proxy, api.connect(proxy.url, options=fast()) as connection:
        senders = [connection.session().sender(f"{address}.{number}") for number in range(5)]
        for turn in range(3):
            proxy.after("transfer", 3, by="client").cut()
            receipts = [sender.send(f"t{turn}", wait=False) for sender in senders]
            assert [receipt.result(LONG) for receipt in receipts] == [Accepted()] * len(senders)
    for number in range(5):
        in_queue = [message.body for message in drain(broker, f"{address}.{number}")]
        assert list(dict.fromkeys(in_queue)) == ["t0", "t1", "t2"]
