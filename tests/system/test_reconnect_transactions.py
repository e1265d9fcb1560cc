"""Transactions over a connection that is lost before, within and after each frame that matters, and comes back."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import acquit
from acquit import AckMode, TransactionInDoubt, TransactionRolledBack, aio
from acquit.protocol.definitions import Coordinator, Declared, Role, TransactionalState
from acquit.testing import PassedFrame, Proxy
from tests.support.outages import (
    CONNECTED,
    INTERRUPTED,
    LONG,
    RESTORED,
    Asyncio,
    Blocking,
    Cut,
    Story,
    assert_in_order,
    assert_one_warning_an_outage,
    cuts,
    drain,
    fast,
    in_turns,
    live,
    post,
    until,
)

BODIES = ["a", "b", "c"]
IN: dict[str, object] = {"state": TransactionalState}
DECLARED: dict[str, object] = {"state": Declared}
# The broker's answer to the discharge of the first transaction: no transactional state, and not of a link of messages.
ATTACHED = cuts(
    ("client", "attach", 1, {"target": Coordinator}),
    ("broker", "attach", 1, {"target": Coordinator}),
    ("client", "attach", 1, {"role": Role.SENDER, "target": acquit.protocol.definitions.Target}),
)
FIRST = [
    *cuts(("client", "declare", 1), ("broker", "disposition", 1, DECLARED), ("client", "transfer", 1, IN)),
    *cuts(("broker", "disposition", 1, IN))[:2],  # its answer, before and within
]
"""The first operation is lost: it has no answer."""
LATER = [
    *cuts(("broker", "disposition", 1, IN))[2:],
    *cuts(("client", "transfer", 2, IN), ("broker", "disposition", 2, IN)),
    *cuts(("client", "transfer", 3, IN), ("broker", "disposition", 3, IN)),
    *cuts(("client", "discharge", 1))[:2],
]
"""Something of it was answered, and goes with the connection."""
ASKED = cuts(("client", "discharge", 1))[2:]
"""The broker has heard the commit."""


def bodies(broker: acquit.Broker, address: str) -> list[object]:
    return [message.body for message in drain(broker, address)]


@pytest.mark.parametrize(("receipts", "cut"), in_turns([*ATTACHED, *FIRST], (False,), (True,)))
def test_the_first_operation_is_done_again_in_a_fresh_transaction(
    api: Blocking | Asyncio,
    broker: acquit.Broker,
    address: str,
    cut: Cut,
    receipts: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    story = Story()
    with Proxy(broker.url) as proxy:
        rule = cut.set(proxy)
        with api.connect(proxy.url, options=fast(), on_event=story) as connection:
            session = connection.session(AckMode.TRANSACTED)
            sender = session.sender(address)
            first = sender.send(BODIES[0], wait=not receipts)
            rule.wait(LONG)
            story.wait_for(RESTORED)
            for body in BODIES[1:]:
                sender.send(body, timeout=LONG)
            session.commit(LONG)
            if receipts:
                assert first.result(LONG) == acquit.Accepted()
        assert bodies(broker, address) == BODIES
    assert story.kinds == [CONNECTED, INTERRUPTED, RESTORED]
    assert_one_warning_an_outage(caplog, story)


@pytest.mark.parametrize(
    "cut", in_turns([*FIRST[:-2], *cuts(("client", "transfer", 2, IN), ("client", "transfer", 3, IN))])
)
def test_what_was_pipelined_is_done_again_or_fails_together(
    api: Blocking | Asyncio, broker: acquit.Broker, address: str, cut: Cut
) -> None:
    """Where nothing was answered, all of it is done again in order; where something was, it has failed."""
    story = Story()
    with Proxy(broker.url) as proxy:
        rule = cut.set(proxy)
        with api.connect(proxy.url, options=fast(), on_event=story) as connection:
            session = connection.session(AckMode.TRANSACTED)
            sender = session.sender(address)
            receipts = [sender.send(body, wait=False) for body in BODIES]
            rule.wait(LONG)
            story.wait_for(RESTORED)
            # Those answers that the client had heard before the cut: without any, nothing of it was.
            answered = [frame for frame in proxy.passed("disposition", by="broker", **IN) if frame.connection == 0]  # type: ignore[arg-type]
            if answered:
                with pytest.raises(TransactionRolledBack):
                    session.commit(LONG)
                for receipt in receipts:
                    with pytest.raises(TransactionRolledBack):
                        receipt.result(LONG)
            else:
                session.commit(LONG)
                assert [receipt.result(LONG) for receipt in receipts] == [acquit.Accepted()] * len(BODIES)
        assert bodies(broker, address) == ([] if answered else BODIES)


@pytest.mark.parametrize("cut", in_turns(LATER))
def test_a_later_operation_fails_the_transaction(
    api: Blocking | Asyncio, broker: acquit.Broker, address: str, cut: Cut, caplog: pytest.LogCaptureFixture
) -> None:
    story = Story()
    with Proxy(broker.url) as proxy:
        rule = cut.set(proxy)
        with api.connect(proxy.url, options=fast(), on_event=story) as connection:
            session = connection.session(AckMode.TRANSACTED)
            sender = session.sender(address)
            refused = []
            for body in BODIES:
                try:
                    sender.send(body, timeout=LONG)
                except TransactionRolledBack:
                    refused.append(body)
                if rule.fired:
                    story.wait_for(INTERRUPTED)
            if cut.name != "discharge" and not (cut.name == "disposition" and cut.n == 3 and cut.passes):
                assert refused or cut.n == 3
            with pytest.raises(TransactionRolledBack):
                session.commit(LONG)
            rule.wait(LONG)
            # It has failed, and the next one has nothing to do with it.
            for body in ("d", "e"):
                sender.send(body, timeout=LONG)
            session.commit(LONG)
        assert bodies(broker, address) == ["d", "e"]
    assert_in_order(story)
    assert_one_warning_an_outage(caplog, story)


def test_operations_of_a_failed_transaction_are_refused_at_once(
    api: Blocking | Asyncio, broker: acquit.Broker, address: str
) -> None:
    story = Story()
    with Proxy(broker.url) as proxy, api.connect(proxy.url, options=fast(), on_event=story) as connection:
        session = connection.session(AckMode.TRANSACTED)
        sender = session.sender(address)
        sender.send("a", timeout=LONG)
        proxy.refuse()
        proxy.cut()
        story.wait_for(INTERRUPTED)
        # Nobody waits for the connection to hear that.
        with pytest.raises(TransactionRolledBack):
            sender.send("b", timeout=LONG)
        with pytest.raises(TransactionRolledBack):
            session.commit(LONG)
        proxy.accept()
        sender.send("c", timeout=LONG)
        session.commit(LONG)
    assert bodies(broker, address) == ["c"]


def test_a_rollback_of_a_failed_transaction_is_one(
    api: Blocking | Asyncio, broker: acquit.Broker, address: str
) -> None:
    story = Story()
    with Proxy(broker.url) as proxy, api.connect(proxy.url, options=fast(), on_event=story) as connection:
        session = connection.session(AckMode.TRANSACTED)
        sender = session.sender(address)
        sender.send("a", timeout=LONG)
        proxy.cut()
        story.wait_for(RESTORED)
        session.rollback(LONG)
        sender.send("b", timeout=LONG)
        session.commit(LONG)
    assert bodies(broker, address) == ["b"]


def answer_of_discharge(proxy: Proxy) -> Any:
    """A selection of the broker's answer to the first discharge: by the delivery id that the client gave it."""

    def is_answer(frame: PassedFrame) -> bool:
        asked = proxy.passed("discharge", by="client")
        said = frame.performative
        return bool(
            asked
            and frame.connection == asked[0].connection
            and said.role is Role.RECEIVER  # type: ignore[union-attr]
            and said.first <= asked[0].performative.delivery_id <= (said.last or said.first)  # type: ignore[union-attr]
        )

    return is_answer


@pytest.mark.promise("no-lies")
@pytest.mark.parametrize("place", ["after the discharge", "before", "within", "after"])
def test_a_commit_that_the_broker_heard_is_asked_for_and_true(
    api: Blocking | Asyncio, broker: acquit.Broker, address: str, place: str, caplog: pytest.LogCaptureFixture
) -> None:
    story = Story()
    with Proxy(broker.url) as proxy:
        if place == "after the discharge":
            rule = proxy.after("discharge", by="client").cut()
        else:
            rule = getattr(proxy, place)("disposition", by="broker", where=answer_of_discharge(proxy)).cut()
        with api.connect(proxy.url, options=fast(), on_event=story) as connection:
            session = connection.session(AckMode.TRANSACTED)
            sender = session.sender(address)
            for body in BODIES:
                sender.send(body, timeout=LONG)
            session.commit(LONG)
            rule.wait(LONG)
            story.wait_for(RESTORED)
            sender.send("d", timeout=LONG)
            session.commit(LONG)
        assert len(proxy.passed("discharge", fail=False)) == 2
    assert bodies(broker, address) == [*BODIES, "d"]
    assert_in_order(story)
    assert_one_warning_an_outage(caplog, story)


@pytest.mark.promise("no-lies")
def test_a_commit_is_in_doubt_where_the_outage_is_longer_than_its_time(
    api: Blocking | Asyncio, broker: acquit.Broker, address: str
) -> None:
    story = Story()
    with Proxy(broker.url) as proxy, api.connect(proxy.url, options=fast(), on_event=story) as connection:
        session = connection.session(AckMode.TRANSACTED)
        sender = session.sender(address)
        sender.send("a", timeout=LONG)
        answer = proxy.before("disposition", by="broker", where=answer_of_discharge(proxy))
        answer.call(lambda frame: (proxy.refuse(), proxy.cut()))
        with pytest.raises(TransactionInDoubt):
            session.commit(2)
        proxy.accept()
        story.wait_for(RESTORED)
        sender.send("b", timeout=LONG)
        session.commit(LONG)
    assert bodies(broker, address) == ["a", "b"]


@pytest.mark.promise("no-lies")
def test_work_after_a_cancelled_commit_that_was_lost_is_done_once(broker: acquit.Broker, address: str) -> None:
    """The loop of docs/reconnecting.md hears of the earlier commit, and repeats its own work."""
    story = Story()

    async def main() -> int:
        async with aio.connect(proxy.url, options=fast(), on_event=story) as connection:
            session = await connection.session(AckMode.TRANSACTED)
            sender = await session.sender(address)
            await sender.send("first", timeout=LONG)
            rule = proxy.before("discharge", by="client").cut()
            commit = asyncio.create_task(session.commit(LONG))
            await asyncio.sleep(0)
            commit.cancel()
            await asyncio.to_thread(rule.wait, LONG)
            await asyncio.to_thread(story.wait_for, RESTORED)
            for attempt in range(1, 10):
                try:
                    async with session.transaction():
                        await sender.send("second", timeout=LONG)
                except TransactionRolledBack:
                    continue
                return attempt
        raise AssertionError

    with Proxy(broker.url) as proxy:
        assert asyncio.run(main()) == 2
    assert bodies(broker, address) == ["second"]


# -- received in a transaction -----------------------------------------------------------------------------------------

RECEIVED = [
    *cuts(("client", "transfer", 1, IN), ("broker", "disposition", 1, IN)),
    *cuts(("client", "disposition", 1, IN)),
    *cuts(("client", "discharge", 1)),
]


@pytest.mark.promise("moved-once")
@pytest.mark.parametrize("cut", in_turns(RECEIVED))
def test_what_was_received_and_sent_happens_together_or_not_at_all(
    api: Blocking | Asyncio, broker: acquit.Broker, address: str, cut: Cut, caplog: pytest.LogCaptureFixture
) -> None:
    """Messages are moved, three in a transaction, until all have been: each arrives once, whatever was cut."""
    story = Story()
    names = [f"m{number}" for number in range(6)]
    source, sink = f"{address}.from", f"{address}.to"
    post(broker, source, *names)
    moved: list[object] = []
    failed = 0
    with Proxy(broker.url) as proxy:
        rule = cut.set(proxy)
        with api.connect(proxy.url, options=fast(), on_event=story) as connection:
            session = connection.session(AckMode.TRANSACTED)
            receiver, sender = session.receiver(source), session.sender(sink)
            while len(moved) < len(names):
                taken: list[object] = []
                try:
                    while len(taken) < 3:
                        message = receiver.receive(LONG)
                        assert message is not None
                        taken.append(message.body)
                        sender.send(message.body, timeout=LONG)
                    session.commit(LONG)
                except TransactionRolledBack:
                    failed += 1
                    session.rollback(LONG)
                else:
                    moved += taken
            rule.wait(LONG)
            story.wait_for(INTERRUPTED)
        assert moved == names
        assert failed == (0 if cut.name == "discharge" and cut.passes else 1)
    assert bodies(broker, sink) == names
    assert bodies(broker, source) == []
    assert_in_order(story)
    assert_one_warning_an_outage(caplog, story)


@pytest.mark.parametrize(
    "cut",
    in_turns(
        [
            *cuts(("client", "flow", 1, {"drain": True}), ("broker", "flow", 1, {"drain": True})),
            *cuts(("broker", "transfer", 1)),  # what was released comes for the credit that is drained
            *cuts(("client", "discharge", 1, {"fail": True})),
            *cuts(("broker", "disposition", 1, {"state": acquit.Accepted})),
        ],
    ),
)
def test_a_rollback_that_is_cut_is_a_rollback(
    api: Blocking | Asyncio, broker: acquit.Broker, address: str, cut: Cut, caplog: pytest.LogCaptureFixture
) -> None:
    story = Story()
    names = [f"m{number}" for number in range(6)]
    post(broker, address, *names)
    with Proxy(broker.url) as proxy, api.connect(proxy.url, options=fast(), on_event=story) as connection:
        session = connection.session(AckMode.TRANSACTED)
        receiver, sender = session.receiver(address, prefetch=100), session.sender(f"{address}.to")
        for name in names[:2]:
            assert receiver.receive(LONG).body == name
            sender.send(name, timeout=LONG)
        rule = cut.set(proxy)
        session.rollback(LONG)
        rule.wait(LONG)
        story.wait_for(RESTORED)
        for name in names:
            message = receiver.receive(LONG)
            assert message.body == name
            sender.send(name, timeout=LONG)
        session.commit(LONG)
    assert bodies(broker, f"{address}.to") == names
    assert bodies(broker, address) == []
    assert_in_order(story)
    assert_one_warning_an_outage(caplog, story)


def test_what_was_received_before_the_loss_is_not_committed(
    api: Blocking | Asyncio, broker: acquit.Broker, address: str
) -> None:
    story = Story()
    post(broker, address, *BODIES)
    with Proxy(broker.url) as proxy, api.connect(proxy.url, options=fast(), on_event=story) as connection:
        session = connection.session(AckMode.TRANSACTED)
        receiver = session.receiver(address)
        assert receiver.receive(LONG).body == "a"
        proxy.cut()
        story.wait_for(RESTORED)
        with pytest.raises(TransactionRolledBack):
            session.commit(LONG)
        again = [receiver.receive(LONG) for _ in BODIES]
        assert [message.body for message in again] == BODIES
        assert again[0].redelivered
        session.commit(LONG)
        until(lambda: live(broker, address) == 0, "the commit of all three")


def test_what_was_prefetched_and_not_handed_out_is_nobody_s_concern(
    api: Blocking | Asyncio, broker: acquit.Broker, address: str
) -> None:
    story = Story()
    post(broker, address, *BODIES)
    with Proxy(broker.url) as proxy, api.connect(proxy.url, options=fast(), on_event=story) as connection:
        session = connection.session(AckMode.TRANSACTED)
        receiver = session.receiver(address)
        proxy.wait_for("transfer", 3, by="broker")
        proxy.cut()
        story.wait_for(RESTORED)
        assert [receiver.receive(LONG).body for _ in BODIES] == BODIES
        session.commit(LONG)
    assert bodies(broker, address) == []
