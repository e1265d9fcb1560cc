"""Connections to brokers that we did not write are lost before, within and after frames that matter, and come back.

`tests/system/test_reconnect_*` say the same of our own broker, and more of it: there, what has arrived is known to have
been done. What another broker makes of the last frames before a cut is its own affair, so here a message may be seen
once more than there, but what our client says of it is as true.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

import acquit
from acquit import Accepted, AckMode, ReceiptStatus, TransactionInDoubt, TransactionRolledBack
from acquit.protocol.definitions import Declared, TransactionalState
from acquit.testing import Proxy
from tests.interop.all_brokers import BROKERS
from tests.interop.foreign import ForeignBroker
from tests.interop.foreign_looks import PATIENCE_S, Bench, everything, rest, take
from tests.support.outages import INTERRUPTED, RESTORED, Cut, Story, accepted, arrived, cuts, fast, opened

pytestmark = [pytest.mark.interop, pytest.mark.promise("no-lies")]

OTHERS = [name for name in BROKERS if name != "acquit"]
each = pytest.mark.parametrize("foreign", OTHERS, indirect=True, scope="session")
each_with_transactions = pytest.mark.parametrize(
    "foreign", [name for name in OTHERS if BROKERS[name].can.transactions], indirect=True, scope="session"
)

BODIES = [f"m{number}" for number in range(5)]
LAST = len(BODIES)
OUTCOME: dict[str, object] = {"state": Accepted}
IN: dict[str, object] = {"state": TransactionalState}

OPENING = cuts(
    ("broker", "sasl-outcome", 1),
    ("client", "open", 1),
    ("broker", "open", 1),
)
ATTACHING = cuts(
    ("client", "begin", 1),
    ("broker", "begin", 1),
    ("client", "attach", 1),
    ("broker", "attach", 1),
)
SENDING = cuts(
    ("broker", "flow", 1),
    ("client", "transfer", 1),
    ("broker", "disposition", 1),
    ("client", "transfer", 3),
    ("client", "transfer", LAST),
)
DELIVERED = cuts(
    ("client", "flow", 1),
    ("broker", "transfer", 1),
    ("broker", "transfer", 3),
    ("broker", "transfer", LAST),
)
ACCEPTED = cuts(*[("client", "disposition", number, OUTCOME) for number in (1, 3, LAST)])
RECEIVING = [
    *[(AckMode.INDIVIDUAL, *cut.values) for cut in [*ATTACHING, *DELIVERED, *ACCEPTED]],
    # AUTO says as much as it can at once: how many dispositions there are depends on time.
    *[(AckMode.AUTO, *cut.values) for cut in [*DELIVERED, *ACCEPTED[:3]]],
]
TRANSACTED = cuts(
    ("client", "declare", 1),
    ("broker", "disposition", 1, {"state": Declared}),
    ("client", "transfer", 1, IN),
    ("broker", "disposition", 1, IN),
    ("client", "disposition", 1, IN),
    ("client", "discharge", 1),
    ("broker", "disposition", 1, OUTCOME),
)


@pytest.fixture
def bench(foreign: ForeignBroker, address: str) -> Iterator[Bench]:
    """Past the proxy."""
    with foreign.connect() as connection:
        yield Bench(foreign, connection, foreign.queue(address), None, "")


def assert_restored(story: Story, proxy: Proxy) -> None:
    """It was lost once, and is there again; where it had not opened before, it never was there."""
    if opened(proxy):
        story.wait_for(RESTORED)
        assert story.kinds.count(INTERRUPTED) == 1


@each
@pytest.mark.parametrize("cut", [*OPENING, *ATTACHING, *SENDING])
def test_a_send_is_sent_again_and_nothing_is_lost(bench: Bench, cut: Cut) -> None:
    story = Story()
    with Proxy(bench.broker.url) as proxy:
        rule = cut.set(proxy)
        with bench.broker.connect(url=proxy.url, options=fast(), on_event=story) as connection:
            sender = connection.session().sender(bench.queue)
            assert sender.send(BODIES[0], timeout=PATIENCE_S) == Accepted()
            receipts = [sender.send(body, wait=False) for body in BODIES[1:]]
            assert [receipt.result(PATIENCE_S) for receipt in receipts] == [Accepted()] * len(receipts)
            rule.wait(PATIENCE_S)
            assert_restored(story, proxy)
        passed = arrived(proxy)
    with bench.connection.session() as session, session.receiver(bench.queue, prefetch=0) as receiver:
        found = everything(receiver, BODIES)
    counted = Counter(message.body for message in found)
    assert set(counted) == set(BODIES)
    assert counted <= passed, "nothing is there more often than it was sent"
    assert len({(message.body, message.message_id) for message in found}) == len(BODIES)
    assert list(dict.fromkeys(message.body for message in found)) == BODIES


@each
@pytest.mark.parametrize(("mode", "cut"), RECEIVING, ids=str)
def test_what_was_not_acknowledged_comes_again(bench: Bench, mode: AckMode, cut: Cut) -> None:
    bench.fill(*BODIES)
    story = Story()
    seen: Counter[object] = Counter()
    answered: set[object] = set()
    with Proxy(bench.broker.url) as proxy:
        rule = cut.set(proxy)
        with bench.broker.connect(url=proxy.url, options=fast(), on_event=story) as connection:
            receiver = connection.session(mode).receiver(bench.queue)

            def process(message: acquit.ReceivedMessage) -> None:
                seen[message.body] += 1
                assert message.body not in answered, "the broker said that it is done"
                if mode is AckMode.INDIVIDUAL:
                    receipt = message.accept()
                    assert receipt.done
                    if receipt.status in (ReceiptStatus.APPLIED, ReceiptStatus.ANSWERED):
                        answered.add(message.body)

            while set(seen) != set(BODIES):
                process(take(receiver))
            rule.wait(PATIENCE_S)
            assert_restored(story, proxy)
            for message in rest(receiver):
                process(message)
        assert set(accepted(proxy)) == set(BODIES)
    assert max(seen.values()) <= 2
    assert bench.left(0) == []


@pytest.mark.promise("moved-once")
@each_with_transactions
@pytest.mark.parametrize("cut", TRANSACTED)
def test_a_transaction_happens_once_however_often_it_is_tried(bench: Bench, address: str, cut: Cut) -> None:
    out = bench.broker.queue(f"{address}.out")
    bench.fill("a", "b")
    story = Story()
    told = []
    with Proxy(bench.broker.url) as proxy:
        rule = cut.set(proxy)
        with bench.broker.connect(url=proxy.url, options=fast(), on_event=story) as connection:
            session = connection.session(AckMode.TRANSACTED)
            receiver, sender = session.receiver(bench.queue), session.sender(out)
            results: list[object] = []
            while len(results) < 2:
                try:
                    message = receiver.receive(timeout=0.5 if told else PATIENCE_S)
                    if message is not None:
                        sender.send(f"result of {message.body}", wait=False)
                    session.commit(PATIENCE_S)
                    told.append("committed")
                except TransactionRolledBack:
                    told.append("rolled back")
                except TransactionInDoubt:
                    told.append("in doubt")
                results += [body for body, _ in bench.left_there(out)]
            rule.wait(PATIENCE_S)
    assert sorted(map(str, results)) == ["result of a", "result of b"]
    if "in doubt" not in told:
        assert told.count("committed") >= 2
    assert bench.left(0) == bench.left(0, out) == []
