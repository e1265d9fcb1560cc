"""Postings and outcomes that happen together, or not at all."""

from __future__ import annotations

from unittest.mock import Mock, patch

import pytest

from acquit.broker.dispatching.consumers import Consumer
from acquit.broker.holdings import Holdings
from acquit.broker.options import AddressRule, BrokerLimits, BrokerOptions, TransactionLimits
from acquit.broker.queue import NodeEvent
from acquit.broker.transact.transaction import HeldTogether
from acquit.broker.transact.transactions import VOLATILE_MAX
from acquit.errors import StoreFull
from acquit.ledger.balance import balance
from acquit.ledger.events import EventKind
from acquit.ledger.fold import Fold
from acquit.ledger.history import history
from acquit.ledger.recorder import Recorder
from acquit.ledger.records import FATES_KNOWN, Namespace
from acquit.ledger.verify import verify
from acquit.protocol.definitions import (
    Accepted,
    Declare,
    Discharge,
    Error,
    Modified,
    RcvSettleMode,
    Received,
    Rejected,
    Released,
    Source,
    Target,
    TransactionalState,
)
from acquit.protocol.delivery import Delivery, DeliveryState, SentRun
from acquit.protocol.link import ReceivingLink, SendingLink
from acquit.protocol.message import Message
from acquit.store.options import MIB
from acquit.store.reading import FolderReader
from acquit.testing.simulation.disk import FaultyDisk
from tests.support.broker_world import DATA, Client, World, after_kill, durable, live_of
from tests.support.transacting import Controller, control_message

UNKNOWN_ID = "amqp:transaction:unknown-id"
ROLLBACK = "amqp:transaction:rollback"
TIMEOUT = "amqp:transaction:timeout"
LIMIT = "amqp:resource-limit-exceeded"


def attempt_of(delivery: Delivery) -> int:
    header = Message.decode(delivery.payload)
    return header.delivery_count


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def client(world: World) -> Client:
    return world.client()


@pytest.fixture
def controller(client: Client) -> Controller:
    return Controller(client)


def filled(client: Client, *bodies: object, address: str = "q") -> None:
    """A queue with these durable messages."""
    client.post_all(client.sender(address, f"to-{address}"), *(durable(body) for body in bodies))


# -- postings ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("said", [Accepted(), Received(0, 0), TransactionalState(b"another")])
@pytest.mark.parametrize("settled", [False, True])
def test_what_a_sender_says_behind_a_posting_does_not_change_its_transaction(
    world: World, client: Client, settled: bool, said: DeliveryState
) -> None:
    """4.4.1: the transfer says that. The broker hears both frames at once here."""
    controller, sender, receiver = Controller(client), client.sender("q"), client.receiver("q", credit=10)
    txn = controller.declare()
    for tag, body, state in ((b"1", "held", TransactionalState(txn)), (b"2", "at once", None)):
        sent = sender.send(tag, durable(body).encode(), state=state)
        (sent.settle if settled else sent.update)(said)
    world.settle()
    assert client.bodies(receiver) == ["at once"]
    assert controller.commit(txn) is None
    world.settle()
    assert client.bodies(receiver) == ["at once", "held"]
    world.check()


def test_a_posting_is_visible_when_its_commit_is_synced(world: World, controller: Controller) -> None:
    client = controller.client
    sender, receiver = client.sender("q"), client.receiver("q", credit=10)
    txn = controller.declare()
    sent = controller.post(sender, txn, durable("a"), Message("b"))
    assert [controller.provisional(one) for one in sent] == [Accepted(), Accepted()]
    world.settle()
    assert client.bodies(receiver) == []
    assert live_of(world, "q") == 0
    discharge = controller.discharge(txn)
    assert client.bodies(receiver) == []
    assert client.outcome(discharge) is None
    world.settle()
    assert client.bodies(receiver) == ["a", "b"]
    assert client.outcome(discharge) == Accepted()
    world.check_journal()


@pytest.mark.parametrize("mode", list(RcvSettleMode))
def test_a_commit_of_what_is_volatile_waits_for_no_disk(
    world: World, controller: Controller, mode: RcvSettleMode
) -> None:
    client = controller.client
    sender, receiver = client.sender("q", rcv_settle_mode=mode), client.receiver("other", credit=10)
    client.post_all(client.sender("other", "filler"), Message("x"), Message("y"))
    world.settle()
    txn = controller.declare()
    sent = controller.post(sender, txn, Message("a"), Message("b"))
    controller.retire(txn, *client.held(receiver), settled=mode is RcvSettleMode.FIRST)
    world.sync()
    discharge = controller.discharge(txn)
    assert client.outcome(discharge) == Accepted()
    told = Accepted() if mode is RcvSettleMode.SECOND else TransactionalState(txn, Accepted())
    assert [client.answers[one][0] for one in sent] == [told, told]
    assert all(one.settled for one in client.received[receiver])
    assert client.bodies(client.receiver("q", "taker", credit=10)) == ["a", "b"]
    assert live_of(world, "other") == 0
    assert world.core.transactions.fate(txn, "") == "committed"
    world.check()
    assert not world.sync(), "it is recorded at once"
    assert world.crash().core.transactions.fate(txn, "") == "unknown"
    world.advance(1_000)
    world.settle()
    assert world.crash().core.transactions.fate(txn, "") == "committed"
    world.check_journal()
    client.post(client.sender("other", "another"), durable("not on the disk"))
    txn = controller.declare()
    controller.post(sender, txn, Message("c"))
    assert client.outcome(controller.discharge(txn)) == Accepted()


def volatile_commits(controller: Controller, sender: SendingLink, count: int) -> list[bytes]:
    committed = []
    for _ in range(count):
        txn = controller.declare()
        controller.post(sender, txn, Message("x"))
        assert controller.client.outcome(controller.discharge(txn)) == Accepted()
        committed.append(txn)
    return committed


def test_fates_of_what_is_volatile_are_recorded_together_and_at_a_stop(world: World, controller: Controller) -> None:
    first, *_, last = volatile_commits(controller, controller.client.sender("q"), VOLATILE_MAX + 1)
    world.sync()
    after = world.crash()
    assert [after.core.transactions.fate(one, "") for one in (first, last)] == ["committed", "unknown"]
    after = world.stop()
    assert [after.core.transactions.fate(one, "") for one in (first, last)] == ["committed", "committed"]
    assert verify(DATA, disk=after.disk).problems == ()


@pytest.mark.parametrize("kind", [Message, durable])
def test_no_more_fates_are_kept_than_the_limit_at_any_moment(kind: type) -> None:
    world = World(BrokerOptions(transactions=TransactionLimits(fates_max=3)))
    controller = Controller(world.client())
    sender = controller.client.sender("q")
    txns = [controller.declare() for _ in range(5)]
    for txn in txns:
        controller.post(sender, txn, kind("x"))
        assert controller.commit(txn) is None
        assert len(world.core.transactions.fates) <= 3
    assert [world.core.transactions.fate(txn, "") for txn in txns] == ["unknown"] * 2 + ["committed"] * 3


@pytest.mark.pure
def test_what_is_volatile_is_not_committed_where_its_fate_finds_no_room(
    world: World, controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    sender = controller.client.sender("q")
    known = volatile_commits(controller, sender, VOLATILE_MAX)
    txn = controller.declare()
    controller.post(sender, txn, Message("x"))
    with monkeypatch.context() as patch:
        patch.setattr(Recorder, "append", Mock(side_effect=StoreFull("no room")))
        world.core.tick(world.now_us)
        assert world.core.scribe.exhausted
        error = controller.commit(txn)
        assert error is not None
        assert error.condition == ROLLBACK
    assert world.core.transactions.fate(txn, "") == "rolled-back"
    world.settle()
    volatile_commits(controller, sender, 1)
    world.sync()
    assert {world.crash().core.transactions.fate(one, "") for one in known} == {"committed"}
    assert live_of(world, "q") == VOLATILE_MAX + 1


@pytest.mark.parametrize("limits", [{"fates_max": 0}, {"fates_kept_ms": 0}])
def test_fates_that_are_forgotten_before_they_are_recorded_are_not(limits: dict[str, int]) -> None:
    world = World(BrokerOptions(transactions=TransactionLimits(**limits)))
    controller = Controller(world.client())
    committed = volatile_commits(controller, controller.client.sender("q"), 3)
    for _ in range(2):
        world.advance(1_000)
        world.settle()
    fates = [key for namespace, key in world.opened.recorder.table.state if namespace == Namespace.FATE]
    assert set(fates) <= {FATES_KNOWN}
    assert {world.core.transactions.fate(one, "") for one in committed} == {"unknown"}


@pytest.mark.parametrize(
    ("kind", "verdict"),
    [(durable, Accepted()), (durable, Rejected()), (durable, Released()), (Message, Rejected()), (Message, Released())],
)
def test_a_commit_waits_for_the_disk_where_it_retires_what_is_durable_or_goes_elsewhere(
    world: World, controller: Controller, kind: type, verdict: Accepted | Rejected | Released
) -> None:
    client = controller.client
    receiver = client.receiver("q", credit=10)
    client.post_all(client.sender("q", "to-q"), kind("x"))
    world.settle()
    txn = controller.declare()
    controller.post(client.sender("other"), txn, Message("a"))
    controller.retire(txn, *client.held(receiver), outcome=verdict)
    discharge = controller.discharge(txn)
    assert client.outcome(discharge) is None
    world.settle()
    assert client.outcome(discharge) == Accepted()
    assert world.crash().core.transactions.fate(txn, "") == "committed"


def test_a_posting_takes_its_place_at_the_commit(world: World, controller: Controller) -> None:
    client = controller.client
    sender = client.sender("q")
    txn = controller.declare()
    controller.post(sender, txn, durable("first sent"))
    client.post_all(sender, durable("not in the transaction"))
    assert controller.commit(txn) is None
    receiver = client.receiver("q", credit=10)
    world.settle()
    assert client.bodies(receiver) == ["not in the transaction", "first sent"]


@pytest.mark.parametrize("kind", [durable, Message])
def test_a_posting_that_is_rolled_back_never_enters(world: World, controller: Controller, kind: type) -> None:
    client = controller.client
    sender, receiver = client.sender("q"), client.receiver("q", credit=10)
    txn = controller.declare()
    controller.post(sender, txn, kind("a"))
    held = world.core.snapshot().queue("q")
    assert held is not None
    assert (held.held, held.rolled_back, held.depth) == (1, 0, 0)
    controller.roll_back(txn)
    after = world.core.snapshot().queue("q")
    assert after is not None
    assert (after.held, after.rolled_back) == (0, 1)
    assert client.bodies(receiver) == []
    queue = world.core.queues.by_name["q"]
    assert (queue.counts[EventKind.HELD], queue.counts[EventKind.ROLLED_BACK], queue.entered) == (1, 1, 0)
    world.check_journal()


def test_several_transactions_at_once_on_one_connection(world: World, controller: Controller) -> None:
    client = controller.client
    other = Controller(client, "another")
    sender, receiver = client.sender("q"), client.receiver("q", credit=10)
    one, two, three = controller.declare(), other.declare(), controller.declare()
    assert len({one, two, three}) == 3
    assert all(len(txn) == 16 for txn in (one, two, three))
    for name, txn in (("one", one), ("two", two), ("three", three), ("one again", one)):
        controller.post(sender, txn, durable(name))
    assert other.commit(two) is None
    controller.roll_back(three)
    assert client.bodies(receiver) == ["two"]
    assert controller.commit(one) is None
    assert client.bodies(receiver) == ["two", "one", "one again"]
    world.check_journal()


def test_a_transaction_over_several_sessions(world: World, controller: Controller) -> None:
    client = controller.client
    session = client.engine.begin()
    filled(client, "in", address="from")
    second = client.engine.begin()
    receiver = second.attach_receiver("elsewhere", source=client.receiver("from", "peek").local_attach.source)
    receiver.grant(5)
    world.settle()
    (delivery,) = client.held(receiver)
    assert delivery.link.session is not controller.link.session
    txn = controller.declare()
    controller.retire(txn, delivery)
    assert controller.commit(txn) is None
    assert live_of(world, "from") == 0
    assert session is not second


def test_a_settled_posting(world: World, controller: Controller) -> None:
    client = controller.client
    txn = controller.declare()
    controller.post(client.sender("q"), txn, durable("a"), settled=True)
    assert controller.commit(txn) is None
    assert live_of(world, "q") == 1


def test_a_posting_whose_sender_settles_second_hears_its_outcome_at_the_end(
    world: World, controller: Controller
) -> None:
    client = controller.client
    sender = client.sender("q", rcv_settle_mode=RcvSettleMode.SECOND)
    txn = controller.declare()
    (sent,) = controller.post(sender, txn, durable("a"))
    assert client.answers[sent] == (TransactionalState(txn, Accepted()), False)
    assert controller.commit(txn) is None
    assert client.answers[sent] == (Accepted(), False)
    assert live_of(world, "q") == 1


def test_a_delivery_time_and_a_ttl_hold_in_a_transaction(world: World, controller: Controller) -> None:
    client = controller.client
    txn = controller.declare()
    later = durable("later", annotations={"x-opt-delivery-delay": 5_000})
    controller.post(client.sender("q"), txn, later, durable("short", ttl_ms=1_000), durable("now"))
    world.advance(2_000)
    assert controller.commit(txn) is None
    world.advance(1)
    world.settle()
    receiver = client.receiver("q", credit=10)
    world.settle()
    assert client.bodies(receiver) == ["now"]
    world.advance(3_500)
    assert client.bodies(receiver) == ["now", "later"]
    assert world.core.queues.by_name["q"].counts[EventKind.EXPIRED] == 1


def test_postings_to_the_anonymous_terminus(world: World, controller: Controller) -> None:
    client = controller.client
    sender = client.sender(None)
    txn = controller.declare()
    good, lost = controller.post(sender, txn, durable("a", to="x"), durable("b"))
    assert controller.provisional(good) == Accepted()
    refusal = controller.provisional(lost)
    assert isinstance(refusal, Rejected)
    assert refusal.error is not None
    assert refusal.error.condition == "amqp:not-found"
    assert controller.commit(txn) is None  # its sender knows which of them will be there
    assert live_of(world, "x") == 1


def test_a_queue_with_a_limit_refuses_in_a_transaction_as_outside_of_one() -> None:
    world = World(BrokerOptions(address=(AddressRule("q", {"messages_max": 2, "full_policy": "reject"}),)))
    controller = Controller(world.client())
    sender = controller.client.sender("q")
    txn = controller.declare()
    sent = controller.post(sender, txn, durable(1), durable(2))
    (beyond,) = controller.post(sender, txn, durable(3))
    assert [controller.provisional(one) for one in sent] == [Accepted(), Accepted()]
    assert isinstance(controller.provisional(beyond), Rejected)
    assert controller.commit(txn) is None
    assert live_of(world, "q") == 2


# -- what fails --------------------------------------------------------------------------------------------------------
def test_a_settled_posting_that_is_refused_makes_the_commit_fail(world: World, controller: Controller) -> None:
    client = controller.client
    sender = client.sender(None)
    txn = controller.declare()
    controller.post(sender, txn, durable("a", to="x"))
    controller.post(sender, txn, durable("nowhere"), settled=True)
    assert client.detached[sender].error.condition == "amqp:not-found"  # type: ignore[union-attr]
    error = controller.commit(txn)
    assert error is not None
    assert error.condition == ROLLBACK
    assert "no 'to'" in str(error.description)
    assert live_of(world, "x") == 0
    world.check_journal()


def test_nothing_more_is_posted_in_a_transaction_that_has_failed(world: World, controller: Controller) -> None:
    client = controller.client
    sender = client.sender(None)
    txn = controller.declare()
    controller.post(sender, txn, durable("nowhere"), settled=True)
    (sent,) = controller.post(client.sender("x", "another"), txn, durable("a"))
    refusal = controller.provisional(sent)
    assert isinstance(refusal, Rejected)
    assert refusal.error is not None
    assert refusal.error.condition == ROLLBACK
    controller.roll_back(txn)


def test_a_transaction_that_is_not_there(world: World, controller: Controller) -> None:
    client = controller.client
    filled(client, "a", "b")
    receiver = client.receiver("q", credit=1)
    world.settle()
    txn = controller.declare()
    assert controller.commit(txn) is None
    sender = client.sender("q")
    for unknown in (bytes(16), txn, b""):
        client.tags += 1
        sent = sender.send(client.tags.to_bytes(4, "big"), durable("x").encode(), state=TransactionalState(unknown))
        world.settle()
        answer = client.outcome(sent)
        assert isinstance(answer, Rejected)
        assert answer.error is not None
        assert answer.error.condition == UNKNOWN_ID
    error = controller.commit(txn)
    assert error is not None
    assert error.condition == UNKNOWN_ID
    controller.retire(txn, *client.held(receiver))
    world.settle()
    detached = client.detached[receiver]
    assert detached.error is not None
    assert detached.error.condition == UNKNOWN_ID
    assert world.core.queues.by_name["q"].available == 2  # what it had settled is not lost
    controller.post(sender, txn, durable("x"), settled=True)
    world.settle()
    assert client.detached[sender].error.condition == UNKNOWN_ID  # type: ignore[union-attr]


def test_the_transaction_of_another_connection_is_not_there(world: World, controller: Controller) -> None:
    txn = controller.declare()
    stranger = Controller(world.client("stranger"))
    error = stranger.commit(txn)
    assert error is not None
    assert error.condition == UNKNOWN_ID
    assert controller.commit(txn) is None


# -- outcomes ----------------------------------------------------------------------------------------------------------
OUTCOMES = [
    (Accepted(), EventKind.ACCEPTED),
    (Rejected(Error("test:reason", "because")), EventKind.DEAD_LETTERED),
    (Released(), EventKind.RELEASED),
    (Modified(), EventKind.MODIFIED),
    (Modified(delivery_failed=True), EventKind.MODIFIED),
    (Modified(undeliverable_here=True), EventKind.MODIFIED),
    (Modified(delivery_failed=True, message_annotations={"x-opt-why": "so"}), EventKind.MODIFIED),
]


@pytest.mark.parametrize("settled", [True, False])
@pytest.mark.parametrize(("outcome", "kind"), OUTCOMES)
def test_an_outcome_happens_at_the_commit(
    world: World, controller: Controller, outcome: DeliveryState, kind: EventKind, settled: bool
) -> None:
    client = controller.client
    filled(client, "a", "b")
    receiver = client.receiver("q", credit=2)
    world.settle()
    first, second = client.held(receiver)
    queue = world.core.queues.by_name["q"]
    txn = controller.declare()
    controller.retire(txn, first, outcome=outcome, settled=settled)
    world.settle()
    assert (queue.counts[kind], queue.acquired) == (0, 2)
    discharge = controller.discharge(txn)
    assert client.answers.get(first) is None
    world.settle()
    assert client.outcome(discharge) == Accepted()
    assert queue.counts[kind] == 1
    assert client.answers.get(first) == (None if settled else (outcome, True))
    assert client.held(receiver) == [second]
    world.check_journal()
    if kind is EventKind.MODIFIED:
        again = client.receiver("q", "again", credit=1)
        world.settle()
        (redelivered,) = client.held(again)
        assert isinstance(outcome, Modified)
        assert attempt_of(redelivered) == int(outcome.delivery_failed or False)
        annotations = Message.decode(redelivered.payload).annotations
        assert annotations.get("x-opt-why") == (outcome.message_annotations or {}).get("x-opt-why")


@pytest.mark.parametrize("outcome", [outcome for outcome, _ in OUTCOMES])
def test_after_a_rollback_an_unsettled_delivery_is_its_receivers_again(
    world: World, controller: Controller, outcome: DeliveryState
) -> None:
    client = controller.client
    filled(client, "a")
    receiver = client.receiver("q", credit=1)
    world.settle()
    (delivery,) = client.held(receiver)
    txn = controller.declare()
    controller.retire(txn, delivery, outcome=outcome, settled=False)
    controller.roll_back(txn)
    queue = world.core.queues.by_name["q"]
    assert (queue.acquired, queue.available) == (1, 0)
    # It can be retired in another transaction, and outside of any.
    txn = controller.declare()
    controller.retire(txn, delivery, outcome=outcome, settled=False)
    controller.roll_back(txn)
    delivery.settle(Accepted())
    world.settle()
    assert queue.counts[EventKind.ACCEPTED] == 1
    world.check_journal()


@pytest.mark.parametrize(
    ("default", "attempt"), [(None, 0), (Released(), 0), (Modified(delivery_failed=True), 1), (Accepted(), None)]
)
def test_after_a_rollback_a_settled_delivery_gets_the_default_outcome(
    world: World, controller: Controller, default: DeliveryState | None, attempt: int | None
) -> None:
    client = controller.client
    filled(client, "a")
    receiver = client.receiver("q", credit=1, default_outcome=default)
    world.settle()
    (delivery,) = client.held(receiver)
    txn = controller.declare()
    controller.retire(txn, delivery)
    controller.roll_back(txn)
    queue = world.core.queues.by_name["q"]
    assert queue.counts[EventKind.ACCEPTED] == (attempt is None)
    if attempt is not None:
        receiver.grant(1)
        world.settle()
        assert attempt_of(client.held(receiver)[-1]) == attempt
    world.check_journal()


def test_a_range_and_several_links_in_one_transaction(world: World, controller: Controller) -> None:
    client = controller.client
    filled(client, *range(20))
    filled(client, *range(20), address="other")
    receiver, other = client.receiver("q", credit=20), client.receiver("other", "other", credit=20)
    world.settle()
    txn = controller.declare()
    session = client.begun
    state = TransactionalState(txn, Accepted())
    session.settle_all([*client.held(receiver)[:15], *client.held(other)[:5]], state)  # type: ignore[attr-defined]
    world.settle()
    assert (live_of(world, "q"), live_of(world, "other")) == (20, 20)
    assert controller.commit(txn) is None
    assert (live_of(world, "q"), live_of(world, "other")) == (5, 15)
    world.check_journal()


def test_work_on_both_sides_in_one_commit(world: World, controller: Controller) -> None:
    client = controller.client
    filled(client, "a", address="in")
    receiver, sender = client.receiver("in", credit=1), client.sender("out")
    world.settle()
    txn = controller.declare()
    controller.retire(txn, *client.held(receiver))
    controller.post(sender, txn, durable("result"))
    world.settle()
    assert (live_of(world, "in"), live_of(world, "out")) == (1, 0)
    assert controller.commit(txn) is None
    assert (live_of(world, "in"), live_of(world, "out")) == (0, 1)


def test_an_outcome_said_twice_in_one_transaction_is_said_once(world: World, controller: Controller) -> None:
    client = controller.client
    filled(client, "a")
    receiver = client.receiver("q", credit=1)
    world.settle()
    (delivery,) = client.held(receiver)
    txn = controller.declare()
    controller.retire(txn, delivery, settled=False)
    controller.retire(txn, delivery, settled=True)
    assert controller.commit(txn) is None
    assert live_of(world, "q") == 0


def test_to_settle_what_a_transaction_holds_is_to_forget_it(world: World, controller: Controller) -> None:
    client = controller.client
    filled(client, "a", "b")
    receiver = client.receiver("q", credit=2, default_outcome=Modified(delivery_failed=True))
    world.settle()
    first, second = client.held(receiver)
    txn = controller.declare()
    controller.retire(txn, first, second, settled=False)
    first.settle()
    world.settle()
    controller.roll_back(txn)
    queue = world.core.queues.by_name["q"]
    assert (queue.available, queue.acquired) == (1, 1)


@pytest.mark.parametrize("same", [True, False])
def test_two_outcomes_for_one_delivery_end_the_control_link(world: World, controller: Controller, same: bool) -> None:
    """4.4.2; and what was rolled back with it was only what that link had declared."""
    client = controller.client
    other = Controller(client, "another")
    filled(client, "a")
    receiver = client.receiver("q", credit=1)
    world.settle()
    (delivery,) = client.held(receiver)
    txn = controller.declare()
    controller.retire(txn, delivery, settled=False)
    contender = txn if same else other.declare()
    controller.retire(contender, delivery, outcome=Released(), settled=False)
    world.settle()
    loser = controller if same else other
    detached = client.detached[loser.link]
    assert detached.error is not None
    assert detached.error.condition == ROLLBACK
    if not same:
        assert controller.commit(txn) is None
        assert live_of(world, "q") == 0


def test_an_outcome_outside_of_the_transaction_that_holds_one_ends_the_link(
    world: World, controller: Controller
) -> None:
    client = controller.client
    filled(client, "a", "b")
    for number, outcome in enumerate((Accepted(), Released())):
        receiver = client.receiver("q", f"link-{number}", credit=1)
        world.settle()
        (delivery,) = client.held(receiver)
        txn = controller.declare()
        controller.retire(txn, delivery, settled=False)
        delivery.settle(outcome)
        world.settle()
        detached = client.detached[receiver]
        assert detached.error is not None
        assert detached.error.condition == "amqp:illegal-state"
        assert controller.commit(txn) is None
    assert live_of(world, "q") == 0
    world.check_journal()


def test_an_outcome_of_a_purged_message_makes_the_commit_fail(world: World, controller: Controller) -> None:
    client = controller.client
    filled(client, "a", "b")
    receiver = client.receiver("q", credit=2)
    world.settle()
    first, second = client.held(receiver)
    txn = controller.declare()
    controller.retire(txn, first)
    for message in list(world.core.life.live.values()):
        if message in world.core.life.retiring:
            world.core.life.apply(message, NodeEvent.PURGE)
    error = controller.commit(txn)
    assert error is not None
    assert error.condition == ROLLBACK
    assert client.held(receiver) == [second]


def test_a_settled_outcome_of_a_delivery_that_was_settled_here_makes_the_commit_fail(
    world: World, controller: Controller
) -> None:
    client = controller.client
    filled(client, "a")
    receiver = client.receiver("q", credit=1)
    world.settle()
    (delivery,) = client.held(receiver)
    client.server.sessions[0].outgoing.clear()  # it is not known there any more
    txn = controller.declare()
    controller.retire(txn, delivery)
    error = controller.commit(txn)
    assert error is not None
    assert error.condition == ROLLBACK


# -- ends --------------------------------------------------------------------------------------------------------------
def test_a_control_link_that_goes_takes_its_transactions_along(world: World, controller: Controller) -> None:
    client = controller.client
    filled(client, "a")
    sender, receiver = client.sender("out"), client.receiver("q", credit=1)
    other = Controller(client, "another")
    world.settle()
    (delivery,) = client.held(receiver)
    txn, kept = controller.declare(), other.declare()
    controller.retire(txn, delivery, settled=False)
    controller.post(sender, txn, durable("x"))
    other.post(sender, kept, durable("y"))
    controller.link.detach()
    world.settle()
    assert other.commit(kept) is None
    assert live_of(world, "out") == 1
    delivery.settle(Accepted())
    world.settle()
    assert live_of(world, "q") == 0
    world.check_journal()


@pytest.mark.parametrize("settled", [True, False])
def test_a_lost_connection_rolls_back(world: World, settled: bool) -> None:
    client = world.client()
    controller = Controller(client)
    filled(client, "a")
    receiver = client.receiver("q", credit=1)
    world.settle()
    txn = controller.declare()
    controller.retire(txn, *client.held(receiver), settled=settled)
    controller.post(client.sender("out"), txn, durable("x"))
    client.lose()
    world.settle()
    assert live_of(world, "out") == 0
    again = world.client("again")
    receiver = again.receiver("q", credit=1)
    world.settle()
    (delivery,) = again.held(receiver)
    assert attempt_of(delivery) == 1  # as of a lost connection
    world.check_journal()


@pytest.mark.parametrize("settled", [True, False])
@pytest.mark.parametrize("how", ["connection lost", "connection closed", "control link closed"])
def test_what_had_an_outcome_in_a_transaction_was_seen(settled: bool, how: str) -> None:
    """To close over a transaction is to roll it back, a failure of what was settled in it; to lose it is none."""
    world = World(BrokerOptions(address=(AddressRule("q", {"max_delivery_attempts": 2}),)))
    client = world.client()
    controller = Controller(client)
    filled(client, "a")
    receiver = client.receiver("q", credit=1, default_outcome=Modified(delivery_failed=True))
    world.settle()
    controller.retire(controller.declare(), *client.held(receiver), settled=settled)
    if how == "connection lost":
        client.lose()
    elif how == "connection closed":
        client.close()
    else:
        controller.link.detach()
        receiver.detach()
    world.settle()
    again = world.client("again")
    receiver = again.receiver("q", credit=1)
    world.settle()
    (delivery,) = again.held(receiver)
    left = how == "control link closed" and not settled  # its receiver had it again, and closed over it
    assert attempt_of(delivery) == (0 if left else 1)
    delivery.settle(Modified(delivery_failed=True))
    world.settle()
    assert live_of(world, "DLQ") == (0 if left or how == "connection lost" else 1)
    world.check_journal()


def test_a_session_that_ends_takes_its_control_links_along(world: World) -> None:
    client = world.client()
    session = client.engine.begin()
    controller = Controller(client, session=session)
    sender = client.sender("out")
    txn = controller.declare()
    controller.post(sender, txn, durable("x"))
    session.end()
    world.settle()
    assert live_of(world, "out") == 0
    assert not world.core.transactions.postings.durable


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("default", [None, Modified(delivery_failed=True)])
def test_a_link_that_goes_leaves_the_outcome_to_its_transaction(
    world: World, controller: Controller, commit: bool, default: DeliveryState | None
) -> None:
    client = controller.client
    filled(client, "a")
    receiver = client.receiver("q", credit=1, default_outcome=default)
    world.settle()
    txn = controller.declare()
    controller.retire(txn, *client.held(receiver), settled=False)
    receiver.detach()
    world.settle()
    queue = world.core.queues.by_name["q"]
    assert (queue.acquired, queue.available) == (1, 0)
    if commit:
        assert controller.commit(txn) is None
        assert queue.counts[EventKind.ACCEPTED] == 1
    else:
        controller.roll_back(txn)
        again = client.receiver("q", "again", credit=1)
        world.settle()
        assert attempt_of(client.held(again)[0]) == (default is not None)
    world.check_journal()


def test_an_idle_transaction_gives_back_what_it_holds() -> None:
    world = World(BrokerOptions(transactions=TransactionLimits(idle_timeout_ms=1_000)))
    controller = Controller(world.client())
    client = controller.client
    filled(client, "a")
    receiver, sender = client.receiver("q", credit=1), client.sender("out")
    world.settle()
    (delivery,) = client.held(receiver)
    idle, empty = controller.declare(), controller.declare()
    controller.retire(idle, delivery, settled=True)
    controller.post(sender, idle, durable("x"))
    world.advance(900)
    controller.post(sender, idle, durable("x"))
    world.advance(900)
    assert world.core.transactions.postings.durable
    world.advance(200)
    world.settle()
    assert not world.core.transactions.postings.durable
    assert world.core.queues.by_name["q"].available == 1
    world.check_journal()
    (late,) = controller.post(sender, idle, durable("late"))
    refusal = controller.provisional(late)
    assert isinstance(refusal, Rejected)
    assert refusal.error is not None
    assert refusal.error.condition == TIMEOUT
    receiver.grant(1)
    world.settle()
    controller.retire(idle, client.held(receiver)[-1])
    error = controller.commit(idle)
    assert error is not None
    assert error.condition == TIMEOUT
    assert world.core.queues.by_name["q"].available == 1
    assert controller.commit(empty) is None  # it held nothing up
    world.check_journal()


# -- limits ------------------------------------------------------------------------------------------------------------
def test_limits_of_transactions() -> None:
    limits = TransactionLimits(per_connection_max=2, postings_max=2, bytes_max=1_000, retirements_max=2)
    world = World(BrokerOptions(transactions=limits))
    controller = Controller(world.client())
    client = controller.client
    filled(client, 1, 2, 3)
    receiver, sender = client.receiver("q", credit=3), client.sender("out")
    world.settle()
    one, two = controller.declare(), controller.declare()
    refused = client.outcome(controller.ask(Declare()))
    assert isinstance(refused, Rejected)
    assert refused.error is not None
    assert refused.error.condition == LIMIT
    *_, third = controller.post(sender, one, durable(1), durable(2), durable(3))
    (large,) = controller.post(sender, two, durable("x" * 1_000))
    for sent in (third, large):
        refusal = controller.provisional(sent)
        assert isinstance(refusal, Rejected)
        assert refusal.error is not None
        assert refusal.error.condition == LIMIT
    assert controller.commit(one) is None
    controller.retire(two, *client.held(receiver))
    world.settle()
    error = controller.commit(two)
    assert error is not None
    assert error.condition == ROLLBACK
    assert "no more than 2 outcomes" in str(error.description)
    assert live_of(world, "out") == 2
    assert world.core.queues.by_name["q"].available == 3
    controller.declare()
    world.check_journal()


# -- crashes -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("together", [False, True])
def test_a_crash_at_every_batch_boundary(together: bool) -> None:
    """Of an uncommitted transaction nothing is there, of a committed one everything."""
    world = World()
    client = world.client()
    if together:
        client.begun.next_delivery_id = 1_000  # wide, so that they are predicted
    controller = Controller(client)
    receiver, sender, filling = client.receiver("in", credit=2), client.sender("out"), client.sender("in", "to-in")
    for _ in range(2):
        client.post(filling, durable("x"))
        world.settle()
    client.held(receiver)[0].settle(Accepted())
    world.settle()
    if together:
        controller.post(sender, controller.declare(), durable("x"))
    txn = controller.declare()
    assert controller.post(sender, txn, durable("a"))
    world.sync()
    controller.post(sender, txn, durable("b"))
    controller.retire(txn, *client.held(receiver))
    transaction = world.core.transactions.find(client.peer, txn)
    assert [isinstance(held, HeldTogether) for held in transaction.postings] == [together] * 2
    assert [run.messages.count for run in transaction.runs] == [1] * together
    boundaries = [world.crash()]
    while world.sync():
        boundaries.append(world.crash())
    discharge = controller.discharge(txn)
    boundaries.append(world.crash())
    while world.sync():
        world.carry()
        boundaries.append(world.crash())
    assert client.outcome(discharge) == Accepted()
    states = []
    for after in boundaries:
        after.settle()
        after.check_journal()
        fold = after.fold()
        assert balance(fold).balanced
        assert not balance(fold).held
        states.append((live_of(after, "in"), live_of(after, "out")))
        out = after.core.queues.by_name["out"]
        committed = states[-1] == (0, 2)
        assert out.counts[EventKind.HELD] == out.counts[EventKind.ROLLED_BACK] + (2 if committed else 0)
        assert after.core.transactions.fate(txn, "") == ("committed" if committed else "rolled-back")
    assert set(states) == {(1, 0), (0, 2)}
    assert states == sorted(states, key=lambda state: state[1])
    assert states[-1] == (0, 2)


@pytest.mark.parametrize("together", [False, True])
def test_held_postings_are_copied_forward_while_their_transaction_is_open(together: bool) -> None:
    world = World()
    client = world.client()
    client.begun.next_delivery_id = 1_000  # wide, so that they are predicted
    controller = Controller(client)
    sender, other = client.sender("out"), client.sender("busy", "busy")
    receiver = client.receiver("busy", credit=500)
    txn, lost = controller.declare(), controller.declare()
    if together:
        controller.post(sender, controller.declare(), durable("like"))
    controller.post(sender, txn, durable("kept"), durable("kept"))
    controller.post(sender, lost, durable("lost"))
    postings = world.core.transactions.postings
    assert [isinstance(held, HeldTogether) for held in postings.durable.values()][-3:-1] == [together] * 2
    world.settle()
    first = world.opened.journal.segments[0].number
    for _ in range(60):
        client.post_all(other, *(durable("x" * 500) for _ in range(20)))
        for delivery in client.held(receiver):
            delivery.settle(Accepted())
        receiver.grant(500)
        world.settle()
    journal = world.opened.journal
    assert journal.left_through > first
    position, *_ = map(postings.position, postings.durable)
    assert position > next(info for info in journal.segments if not info.archived).base
    world.check_journal()
    assert balance(world.fold()).held == 0  # a fold of its own begins a run, which rolls back
    crashed = world.crash()
    crashed.settle()
    assert live_of(crashed, "out") == 0
    assert controller.commit(txn) is None
    controller.roll_back(lost)
    after = world.crash()
    again = after.client()
    receiver = again.receiver("out", credit=5)
    after.settle()
    assert again.bodies(receiver) == ["kept", "kept"]
    after.check_journal()


@pytest.mark.parametrize("together", [False, True])
def test_what_is_committed_while_its_segment_leaves_stays(together: bool) -> None:
    """It is another message from the commit on, and its record stands where that of the posting was."""
    world = World()
    client = world.client()
    controller = Controller(client)
    client.begun.next_delivery_id = 1_000  # wide, so that they are predicted
    client.post_all(client.sender("before", "before"), *(durable(number) for number in range(60)))
    txn, out = controller.declare(), client.sender("out")
    if together:
        controller.post(out, controller.declare(), durable("00"))
    controller.post(out, txn, *(durable(f"{number:02}") for number in range(40)))
    held = world.core.transactions.find(client.peer, txn).postings
    assert any(isinstance(one, HeldTogether) and len(one.payloads) == 40 for one in held) is together
    sender, receiver = client.sender("busy", "busy"), client.receiver("busy", credit=500)
    world.carry()
    while not world.checkpointer.active:
        client.post(sender, durable("x" * 2_000))
        world.carry()
        for delivery in client.held(receiver):
            delivery.settle(Accepted())
        receiver.grant(500)
        world.carry()
        world.sync()
    leaving = world.opened.journal.left_through + 1
    end = world.opened.journal.segments[0].end
    postings = world.core.transactions.postings
    assert all(postings.position(sequence) < end for sequence in postings.durable)
    assert controller.commit(txn) is None
    with patch.object(Holdings, "stays", side_effect=AssertionError):  # else the checkpoint would look once more
        while world.opened.journal.left_through < leaving:
            client.post_all(sender, durable("y"))
    after = world.crash()
    assert live_of(after, "out") == 40
    again = after.client()
    receiver = again.receiver("out", credit=50)
    after.settle()
    assert again.bodies(receiver) == [f"{number:02}" for number in range(40)]
    after.check_journal()


def test_the_header_says_what_it_said(world: World, controller: Controller) -> None:
    client = controller.client
    txn = controller.declare()
    controller.post(client.sender("q"), txn, durable("a", priority=7))
    assert controller.commit(txn) is None
    receiver = client.receiver("q", credit=1)
    world.settle()
    message = Message.decode(client.held(receiver)[0].payload)
    assert (message.durable, message.priority, message.first_acquirer) == (True, 7, True)


# -- with everything else ----------------------------------------------------------------------------------------------
def test_a_topic_is_fanned_out_at_the_commit(world: World, controller: Controller) -> None:
    client = controller.client
    early = [client.subscriber("news", f"sub-{number}", durable=True) for number in range(2)]
    volatile = client.subscriber("news", "volatile")
    sender = client.sender("news", target=Target("news", capabilities=("topic",)))
    txn = controller.declare()
    controller.post(sender, txn, durable("a"), Message("b"))
    late = client.subscriber("news", "late", durable=True)
    world.settle()
    assert [client.bodies(link) for link in (*early, volatile, late)] == [[]] * 4
    assert controller.commit(txn) is None
    assert [client.bodies(link) for link in (*early, volatile, late)] == [["a", "b"]] * 4
    world.check_journal()
    assert balance(world.fold()).balanced
    after = world.crash()
    after.settle()
    after.check_journal()


@pytest.mark.parametrize("kind", [durable, Message])
def test_a_last_value_counts_for_a_subscription_that_is_younger_than_the_posting(kind: type) -> None:
    world = World(BrokerOptions(address=(AddressRule("news", {"last_value": True, "last_value_key": "key"}),)))
    controller = Controller(world.client())
    client = controller.client
    sender = client.sender("news", target=Target("news", capabilities=("topic",)))
    txn = controller.declare()
    controller.post(sender, txn, kind("old", application_properties={"key": "x"}))
    late = client.subscriber("news", "late", durable=True, credit=0)
    assert controller.commit(txn) is None
    client.post_all(sender, kind("new", application_properties={"key": "x"}))
    late.grant(10)
    world.settle()
    assert client.bodies(late) == ["new"]


@pytest.mark.parametrize("kind", [durable, Message])
def test_what_no_subscription_takes_at_the_commit_is_counted(world: World, controller: Controller, kind: type) -> None:
    client = controller.client
    receiver = client.subscriber("news", "goes")
    sender = client.sender("news", target=Target("news", capabilities=("topic",)))
    txn, none = controller.declare(), controller.declare()
    (sent,) = controller.post(sender, txn, kind("a"))
    receiver.detach()
    world.settle()
    (unrouted,) = controller.post(sender, none, kind("b"))
    assert [controller.provisional(one) for one in (sent, unrouted)] == [Accepted(), Accepted()]
    assert controller.commit(txn) is None
    controller.roll_back(none)
    assert world.core.topics.by_address["news"].counts[EventKind.UNROUTED] == 1
    world.check_journal()
    assert balance(world.crash().fold()).balanced


def test_durable_messages_for_volatile_subscriptions_alone(world: World, controller: Controller) -> None:
    client = controller.client
    receiver = client.subscriber("news", "volatile")
    sender = client.sender("news", target=Target("news", capabilities=("topic",)))
    txn = controller.declare()
    controller.post(sender, txn, durable("a"))
    assert controller.commit(txn) is None
    assert client.bodies(receiver) == ["a"]
    world.check_journal()
    assert balance(world.crash().fold()).balanced


def test_an_unroutable_posting_is_released_where_the_policy_says_so() -> None:
    world = World(BrokerOptions(address=(AddressRule("news", {"unroutable": "release"}),)))
    controller = Controller(world.client())
    sender = controller.client.sender("news", target=Target("news", capabilities=("topic",)))
    txn = controller.declare()
    (sent,) = controller.post(sender, txn, durable("a"))
    assert controller.provisional(sent) == Released()
    assert controller.commit(txn) is None


def with_id(identity: str, body: object = "x") -> Message:
    return durable(body, application_properties={"_AMQ_DUPL_ID": identity})


def test_duplicates_in_transactions(world: World, controller: Controller) -> None:
    client = controller.client
    sender, other = client.sender("q"), client.sender("q", "other")
    txn, rival = controller.declare(), controller.declare()
    first, again = controller.post(sender, txn, with_id("a"), with_id("a"))
    assert [controller.provisional(one) for one in (first, again)] == [Accepted(), Accepted()]
    (refused,) = controller.post(other, rival, with_id("a"))
    refusal = controller.provisional(refused)
    assert isinstance(refusal, Rejected)
    assert refusal.error is not None
    assert refusal.error.condition == "amqp:resource-locked"
    controller.roll_back(txn)
    controller.post(other, rival, with_id("a"))
    assert controller.commit(rival) is None
    assert live_of(world, "q") == 1
    # It is final now, also after a crash.
    after = world.crash()
    controller = Controller(after.client())
    txn = controller.declare()
    sender = controller.client.sender("q")
    counts = after.core.queues.by_name["q"].counts
    before = counts[EventKind.DUPLICATE]
    duplicate, reused = controller.post(sender, txn, with_id("a"), with_id("a", "another body"))
    assert [controller.provisional(one) for one in (duplicate, reused)] == [Accepted(), Accepted()]
    assert controller.commit(txn) is None
    assert live_of(after, "q") == 2
    assert counts[EventKind.DUPLICATE] == before + 1
    after.check_journal()


def test_a_lock_leaves_what_a_transaction_holds_alone() -> None:
    world = World(BrokerOptions(address=(AddressRule("q", {"lock_duration_ms": 1_000}),)))
    controller = Controller(world.client())
    client = controller.client
    filled(client, "a", "b")
    receiver = client.receiver("q", credit=2)
    world.settle()
    first, _ = client.held(receiver)
    txn = controller.declare()
    controller.retire(txn, first, settled=False)
    world.advance(2_000)
    world.settle()
    queue = world.core.queues.by_name["q"]
    assert (queue.acquired, queue.available) == (1, 1)
    assert controller.commit(txn) is None
    assert queue.counts[EventKind.ACCEPTED] == 1
    world.check_journal()


def test_a_queue_that_is_deleted_refuses_the_commit_of_what_was_to_enter_it(
    world: World, controller: Controller
) -> None:
    client = controller.client
    filled(client, "a")
    receiver = client.receiver("q", credit=1)
    sender = client.sender("doomed")
    world.settle()
    txn = controller.declare()
    controller.post(sender, txn, durable("x"))
    controller.retire(txn, *client.held(receiver))
    world.core.administration.delete("doomed", None)
    world.settle()
    error = controller.commit(txn)
    assert error is not None
    assert error.condition == ROLLBACK
    assert world.core.queues.by_name["q"].live == 1
    world.check_journal()


@pytest.mark.parametrize("commit", [True, False])
def test_a_queue_that_is_deleted_while_a_transaction_has_its_messages(
    world: World, controller: Controller, commit: bool
) -> None:
    client = controller.client
    filled(client, "a", "b")
    receiver = client.receiver("q", credit=1)
    world.settle()
    txn = controller.declare()
    controller.retire(txn, *client.held(receiver), settled=False)
    queue = world.core.queues.by_name["q"]
    world.core.administration.delete("q", None)
    world.settle()
    assert queue.live == 1
    if commit:
        assert controller.commit(txn) is None
    else:
        controller.roll_back(txn)
    assert (queue.live, queue.counts[EventKind.ACCEPTED]) == (0, commit)
    assert queue not in world.core.removal.queues
    world.check_journal()


def test_a_queue_is_kept_for_what_is_to_enter_it() -> None:
    world = World(BrokerOptions(address=(AddressRule("#", {"auto_delete": True}),)))
    controller = Controller(world.client())
    client = controller.client
    for ends in (True, False):
        sender, filler = client.sender("q", f"sender-{ends}"), client.sender("other", f"other-{ends}")
        txn = controller.declare()
        controller.post(sender, txn, durable("x"))
        for link in (sender, filler):
            link.detach()
        world.settle()
        assert "other" not in world.core.queues.by_name
        assert "q" in world.core.queues.by_name
        if ends:
            assert controller.commit(txn) is None
            assert live_of(world, "q") == 1
            receiver = client.receiver("q", credit=1)
            world.settle()
            client.held(receiver)[0].settle(Accepted())
            receiver.detach()
            world.settle()
        else:
            controller.roll_back(txn)
        assert "q" not in world.core.queues.by_name


def having_a_run(world: World, message: Message | None = None) -> tuple[Controller, SendingLink, ReceivingLink]:
    """A client that has a run of three messages, with a link to their queue and the one from it."""
    client = world.client()
    client.begun.next_delivery_id = 1_000  # wide, so that they are predicted
    controller, sender, receiver = Controller(client), client.sender("q"), client.receiver("q", credit=10)
    for count in (1, 3):
        client.post(sender, *[message or Message("x")] * count)
        world.settle()
    client.held(receiver)[0].settle(Accepted())
    return controller, sender, receiver


def test_a_run_is_retired_whose_link_was_stolen_just_before() -> None:
    world = World()
    controller, _, receiver = having_a_run(world)
    client, txn = controller.client, controller.declare()
    other = client.engine.begin()
    other.attach_receiver("receiver", source=Source("q"), target=Target("there"))
    controller.retire(txn, *client.held(receiver))  # in the same read
    transaction = world.core.transactions.find(client.peer, txn)
    assert (len(transaction.retirements), transaction.runs, transaction.failed) == (3, [], None)
    assert controller.commit(txn) is None
    assert live_of(world, "q") == 0


@pytest.mark.pure
def test_a_run_that_is_looked_at_on_its_way_is_retired_singly() -> None:
    world = World()
    controller, _, receiver = having_a_run(world, durable("x"))
    txn = controller.declare()
    retire_run = world.core.transactions.retire_run
    taken = []

    def looked_at(consumer: Consumer, sent: SentRun) -> bool:
        assert len(world.core.life.live) == 3
        taken.append(retire_run(consumer, sent))
        return taken[-1]

    with patch.object(world.core.transactions, "retire_run", looked_at):
        controller.retire(txn, *controller.client.held(receiver))
    transaction = world.core.transactions.find(controller.client.peer, txn)
    assert (len(transaction.retirements), transaction.runs, taken) == (3, [], [False])
    assert controller.commit(txn) is None
    assert live_of(world, "q") == 0
    world.check_journal()


@pytest.mark.parametrize("ends", ["commits", "rolls back", "is refused"])
def test_durable_ones_are_retired_together_until_somebody_comes_to_one(ends: str) -> None:
    world = World()
    controller, _, receiver = having_a_run(world, durable("x"))
    client, txn = controller.client, controller.declare()
    controller.retire(txn, *client.held(receiver))
    transaction = world.core.transactions.find(client.peer, txn)
    assert ([run.messages.count for run in transaction.runs], transaction.retirements) == ([3], [])
    world.check()
    first = min(world.core.life.sequences())
    message = world.core.life.message(first)
    assert message is not None
    assert ([run.messages.count for run in transaction.runs], len(transaction.retirements)) == ([], 3)
    world.check()
    if ends == "is refused":
        world.core.life.apply(message, NodeEvent.PURGE)
    if ends == "rolls back":
        controller.roll_back(txn)
    else:
        assert (controller.commit(txn) is None) is (ends == "commits")
    world.settle()
    assert live_of(world, "q") == {"commits": 0, "rolls back": 3, "is refused": 2}[ends]
    world.check()
    world.check_journal()


@pytest.mark.parametrize("limit", [2, 3])
def test_a_run_that_is_too_long_for_a_transaction_fails_it(limit: int) -> None:
    world = World(BrokerOptions(transactions=TransactionLimits(retirements_max=limit)))
    controller, _, receiver = having_a_run(world, durable("x"))
    txn = controller.declare()
    controller.retire(txn, *controller.client.held(receiver))
    assert (controller.commit(txn) is None) is (limit == 3)
    world.settle()
    world.check()


def test_a_queue_goes_with_the_run_that_a_commit_takes_from_it() -> None:
    world = World(BrokerOptions(address=(AddressRule("#", {"auto_delete": True}),)))
    controller, sender, receiver = having_a_run(world)
    client, txn = controller.client, controller.declare()
    controller.retire(txn, *client.held(receiver))
    transaction = world.core.transactions.find(client.peer, txn)
    assert (transaction.retirements, [run.messages.count for run in transaction.runs]) == ([], [3])
    for link in (sender, receiver):
        link.detach()
    world.settle()
    assert live_of(world, "q") == 3
    assert controller.commit(txn) is None
    assert "q" not in world.core.queues.by_name


def test_a_dead_letter_whose_body_must_be_read_waits_for_it() -> None:
    """All of a commit is one batch: what has to be read is read before it."""
    world = World(BrokerOptions(address=(AddressRule("q", {"memory_bytes_max": 64 * 1024}),)))
    controller = Controller(world.client())
    client = controller.client
    filled(client, *(f"{number}" * 1_000 for number in range(100, 150)))
    receiver = client.receiver("q", credit=50)
    world.settle()
    held = client.held(receiver)
    assert len(held) == 50
    assert any(message.body is None for message in world.core.life.live.values())
    txn = controller.declare()
    controller.retire(txn, *held[:20], outcome=Rejected(Error("test:bad")))
    controller.retire(txn, *held[20:40])
    boundaries = []
    discharge = controller.discharge(txn)
    while world.sync():
        world.carry()
        boundaries.append(world.crash())
    assert client.outcome(discharge) == Accepted()
    for after in boundaries:
        after.settle()
        assert (live_of(after, "q"), live_of(after, "DLQ")) in {(50, 0), (10, 20)}
    assert (live_of(world, "q"), live_of(world, "DLQ")) == (10, 20)
    world.check_journal()


def test_a_link_that_reads_without_acquiring_has_nothing_to_retire() -> None:
    world = World(BrokerOptions(address=(AddressRule("q", {"non_destructive": True}),)))
    controller = Controller(world.client())
    client = controller.client
    filled(client, "a")
    receiver = client.receiver("q", credit=1)
    world.settle()
    txn = controller.declare()
    controller.retire(txn, *client.held(receiver))
    assert controller.commit(txn) is None
    assert live_of(world, "q") == 1


def test_the_ledger_tells_the_story(world: World, controller: Controller) -> None:
    client = controller.client
    sender = client.sender("q")
    kept, lost = controller.declare(), controller.declare()
    controller.post(sender, kept, durable("a", message_id="kept"))
    controller.post(sender, lost, durable("b", message_id="lost"))
    assert controller.commit(kept) is None
    controller.roll_back(lost)
    found = history(DATA, message_id="kept", disk=world.crash().disk)
    assert [[step.kind for step in life.steps] for life in found.lives] == [[EventKind.HELD], [EventKind.POSTED]]
    assert found.lives[1].came_from == found.lives[0].sequence
    assert found.lives[0].entered_as == found.lives[1].sequence
    assert [life.standing for life in found.lives] == ["committed", "live"]
    (life,) = history(DATA, message_id="lost", disk=world.crash().disk).lives
    assert [step.kind for step in life.steps] == [EventKind.HELD, EventKind.ROLLED_BACK]
    assert life.standing == "rolled-back"
    controller.post(sender, controller.declare(), durable("c", message_id="open"))
    world.settle()
    (life,) = history(DATA, message_id="open", disk=after_kill(world.disk)).lives
    assert life.standing == "held"
    (life,) = history(DATA, message_id="open", disk=world.crash().disk).lives
    assert life.standing == "rolled-back"
    reading = Fold()
    FolderReader(DATA, after_kill(world.disk)).replay(reading)
    assert balance(reading).held == 1
    checked = verify(DATA, disk=world.crash().disk)
    assert checked.problems == ()


# -- the disk ----------------------------------------------------------------------------------------------------------
def test_a_full_disk_refuses_postings_and_serves_commits() -> None:
    disk = FaultyDisk()
    world = World(disk=disk)
    controller = Controller(world.client())
    client = controller.client
    sender, held_sender = client.sender("q"), client.sender("held", "held")
    txn = controller.declare()
    controller.post(held_sender, txn, durable("held"))
    disk.capacity_bytes = disk.used_bytes + 256 * 1024
    while not world.opened.journal.full:
        client.post(sender, durable(bytes(8_000)))
        world.settle()
    other = controller.declare()
    (late,) = controller.post(held_sender, other, durable("late"))
    refusal = controller.provisional(late)
    assert isinstance(refusal, Rejected)
    assert refusal.error is not None
    assert refusal.error.condition == LIMIT
    controller.post(held_sender, other, durable("late"), settled=True)
    error = controller.commit(other)
    assert error is not None
    assert controller.commit(txn) is None
    assert live_of(world, "held") == 1
    world.check_journal()


def test_without_any_room_a_commit_is_refused_and_a_rollback_waits() -> None:
    disk = FaultyDisk()
    world = World(disk=disk)
    controller = Controller(world.client())
    client = controller.client
    filled(client, *range(3_000))
    receiver, sender = client.receiver("q", credit=10_000), client.sender("out")
    world.settle()
    rolled_back, txn = controller.declare(), controller.declare()
    controller.post(sender, rolled_back, durable("a"))
    controller.post(sender, txn, durable("b"))
    world.settle()
    held = iter(client.held(receiver))
    disk.capacity_bytes = disk.used_bytes + 100 * 1024
    while not world.core.scribe.exhausted:
        next(held).settle(Accepted())
        world.carry()
        world.sync()
    discharge = controller.discharge(rolled_back, fail=True)
    assert client.outcome(discharge) == Accepted()
    commit = controller.discharge(txn)
    refusal = client.outcome(commit)
    assert isinstance(refusal, Rejected)
    assert refusal.error is not None
    assert refusal.error.condition == ROLLBACK
    assert "no room" in str(refusal.error.description)
    assert not world.core.transactions.postings.durable
    disk.capacity_bytes = None
    world.advance(5_000)
    world.chores()
    world.advance(1_000)
    world.settle()
    assert not world.opened.recorder.table.transactions
    assert live_of(world, "out") == 0
    world.check_journal()
    counts = world.crash().core.queues.by_name["out"].counts
    assert (counts[EventKind.HELD], counts[EventKind.ROLLED_BACK]) == (2, 2)


def test_a_duplicate_whose_sender_settles_second_hears_its_outcome_at_the_end_as_well(
    world: World, controller: Controller
) -> None:
    client = controller.client
    sender = client.sender("q", rcv_settle_mode=RcvSettleMode.SECOND)
    message = durable("x", application_properties={"_AMQ_DUPL_ID": "a"})
    client.post(sender, message)
    world.settle()
    txn = controller.declare()
    (sent,) = controller.post(sender, txn, message)
    assert isinstance(controller.provisional(sent), Accepted)
    assert controller.commit(txn) is None
    assert client.answers[sent][0] == Accepted()
    assert live_of(world, "q") == 1
    world.check_journal()


@pytest.mark.parametrize("mode", list(RcvSettleMode))
def test_the_commit_of_a_duplicate_waits_until_the_first_is_on_the_disk(
    world: World, controller: Controller, mode: RcvSettleMode
) -> None:
    client = controller.client
    sender = client.sender("q", rcv_settle_mode=mode)
    txn = controller.declare()
    client.post(client.sender("q", "another"), with_id("a"))
    controller.post(sender, txn, with_id("a"))
    discharge = controller.discharge(txn)
    assert client.outcome(discharge) is None, "its message would be lost by a crash now"
    world.settle()
    assert client.outcome(discharge) == Accepted()
    assert live_of(world, "q") == 1
    world.check_journal()


@pytest.mark.parametrize("within", [False, True])
def test_an_id_of_what_a_crash_forgets_is_forgotten_as_well(within: bool) -> None:
    world = World()
    client = world.client()
    client.subscriber("t", credit=0)
    publisher = client.publisher("t")
    message = durable("x", application_properties={"_AMQ_DUPL_ID": "a"})
    if within:
        controller = Controller(client)
        txn = controller.declare()
        controller.post(publisher, txn, message)
        assert controller.commit(txn) is None
    else:
        client.post_all(publisher, message)
    client.post_all(publisher, message)
    assert world.core.topics.by_address["t"].counts[EventKind.DUPLICATE] == 1
    after = world.crash()
    again = after.client()
    subscriber = again.subscriber("t")
    again.post_all(again.publisher("t"), message)
    assert again.bodies(subscriber) == ["x"]


def test_a_commit_without_room_for_its_duplicate_ids_is_refused() -> None:
    """And not done without them: who posts them again would not be told from others."""
    disk = FaultyDisk()
    world = World(disk=disk)
    controller = Controller(world.client())
    client = controller.client
    filled(client, *range(3_000))
    receiver, sender = client.receiver("q", credit=10_000), client.sender("out")
    world.settle()
    messages = [durable("x", application_properties={"_AMQ_DUPL_ID": f"{n:050}"}) for n in range(200)]
    txn = controller.declare()
    controller.post(sender, txn, *messages)
    world.settle()
    held = iter(client.held(receiver))
    disk.capacity_bytes = disk.used_bytes + 150 * 1024
    # Of what the commit needs, about 10 KiB are events, and 14 KiB ids.
    while not 0 < world.opened.journal.room_bytes < 16 * 1024:
        next(held).settle(Accepted())
        world.carry()
        world.sync()
    discharge = controller.discharge(txn)
    world.carry()
    refusal = client.outcome(discharge)
    assert isinstance(refusal, Rejected)
    disk.capacity_bytes = None
    for _ in range(2):
        world.advance(5_000)
        world.chores()
    world.settle()
    assert live_of(world, "out") == 0
    again = client.post(sender, *messages[:50])
    world.settle()
    assert [client.outcome(one) for one in again] == [Accepted()] * 50
    assert live_of(world, "out") == 50
    world.check_journal()


def test_what_transactions_hold_is_bounded_by_the_memory_of_the_broker() -> None:
    """Also where no queue is there to be full: a topic without subscriptions."""
    world = World(BrokerOptions(limits=BrokerLimits(memory_bytes_max=MIB)))
    controller = Controller(world.client())
    sender = controller.client.sender("news", target=Target("news", capabilities=("topic",)))
    answers = []
    for _ in range(4):
        txn = controller.declare()
        answers += [controller.provisional(one) for one in controller.post(sender, txn, *[durable(bytes(50_000))] * 6)]
    assert answers.count(Accepted()) == 20
    assert isinstance(answers[-1], Rejected)
    assert world.core.memory.bytes <= MIB
    world.settle()


@pytest.mark.parametrize("annotations", [b"\xc1\x02\x01\x40", b"\xc1\x03\x02\xa3\x05"])
@pytest.mark.parametrize("header", [b"", b"\x00\x53\x70\xc0\x02\x01\x41"])
def test_a_message_that_makes_no_sense_is_refused_when_it_is_posted(
    world: World, controller: Controller, header: bytes, annotations: bytes
) -> None:
    client = controller.client
    sender = client.sender("q")
    txn = controller.declare()
    payload = header + b"\x00\x53\x72" + annotations + b"\x00\x53\x75\xa0\x01x"
    (plain,) = client.post(sender, payload)
    (sent,) = controller.post(sender, txn, payload)
    world.settle()
    assert isinstance(client.outcome(plain), Rejected)
    assert controller.provisional(sent) == client.outcome(plain)
    assert controller.commit(txn) is None
    world.check_journal()


# -- what few do -------------------------------------------------------------------------------------------------------
def test_volatile_messages_are_retired_too(world: World, controller: Controller) -> None:
    client = controller.client
    client.post_all(client.sender("q", "filler"), Message("a"), Message("b"))
    receiver = client.receiver("q", credit=2)
    world.settle()
    first, second = client.held(receiver)
    txn = controller.declare()
    controller.retire(txn, first)
    controller.retire(txn, second, outcome=Modified(delivery_failed=True))
    assert controller.commit(txn) is None
    queue = world.core.queues.by_name["q"]
    assert (queue.counts[EventKind.ACCEPTED], queue.available) == (1, 1)


def test_a_state_without_an_outcome(world: World, controller: Controller) -> None:
    """Unsettled it asks for nothing; settled it leaves the message to the default-outcome, either way."""
    client = controller.client
    filled(client, "a", "b")
    receiver = client.receiver("q", credit=2, default_outcome=Accepted())
    world.settle()
    first, second = client.held(receiver)
    txn = controller.declare()
    controller.retire(txn, first, outcome=None, settled=False)
    controller.retire(txn, second, outcome=None, settled=True)
    assert controller.commit(txn) is None
    queue = world.core.queues.by_name["q"]
    assert (queue.acquired, queue.counts[EventKind.ACCEPTED]) == (1, 1)


def test_an_outcome_of_a_message_that_was_taken_away_makes_the_commit_fail() -> None:
    world = World(BrokerOptions(address=(AddressRule("q", {"lock_duration_ms": 1_000}),)))
    controller = Controller(world.client())
    client = controller.client
    filled(client, "a")
    receiver = client.receiver("q", credit=1)
    world.settle()
    (delivery,) = client.held(receiver)
    world.advance(1_500)
    world.settle()
    assert client.answers[delivery][0] == Modified(delivery_failed=True)
    txn = controller.declare()
    controller.retire(txn, delivery)
    error = controller.commit(txn)
    assert error is not None
    assert error.condition == ROLLBACK
    assert world.core.queues.by_name["q"].live == 1
    world.check_journal()


def test_a_connection_that_is_lost_while_its_commit_waits_for_bodies_is_rolled_back() -> None:
    world = World(BrokerOptions(address=(AddressRule("q", {"memory_bytes_max": 64 * 1024}),)))
    client = world.client()
    controller = Controller(client)
    filled(client, *(f"{number}" * 1_000 for number in range(100, 150)))
    receiver, sender = client.receiver("q", credit=50), client.sender("out")
    world.settle()
    txn = controller.declare()
    controller.retire(txn, *client.held(receiver), outcome=Rejected(), settled=False)
    controller.post(sender, txn, durable("x"))
    world.settle()
    controller.link.send(b"commit", control_message(Discharge(txn, False)))
    data = client.engine.data_to_send()
    world.core.handle(client.peer, client.server.receive_data(data, world.now_s), world.now_us)
    assert world.core.transactions.fate(txn, "") == "unknown"
    client.lose()
    world.settle()
    assert world.core.transactions.fate(txn, "") == "rolled-back"
    assert (live_of(world, "q"), live_of(world, "DLQ"), live_of(world, "out")) == (50, 0, 0)
    world.check_journal()


def test_a_clock_that_is_set_ends_no_transaction() -> None:
    world = World(BrokerOptions(transactions=TransactionLimits(idle_timeout_ms=1_000)))
    controller = Controller(world.client())
    txn = controller.declare()
    controller.post(controller.client.sender("q"), txn, durable("a"))
    world.now_us += 3_600_000_000
    world.core.clock_set(3_600_000_000)
    world.advance(500)
    assert controller.commit(txn) is None
    assert live_of(world, "q") == 1


def test_an_unknown_transaction_settles_what_another_one_holds(world: World, controller: Controller) -> None:
    client = controller.client
    filled(client, "a")
    receiver = client.receiver("q", credit=1)
    world.settle()
    (delivery,) = client.held(receiver)
    txn = controller.declare()
    controller.retire(txn, delivery, settled=False)
    controller.retire(bytes(16), delivery, settled=True)
    world.settle()
    assert receiver in client.detached
    assert world.core.queues.by_name["q"].acquired == 1
    controller.roll_back(txn)
    assert world.core.queues.by_name["q"].available == 1


@pytest.mark.parametrize("settled", [True, False])
def test_an_outcome_that_crosses_the_end_of_its_link_makes_the_commit_fail(world: World, settled: bool) -> None:
    """The link was stolen, and its message given to somebody else; the controller does not know yet."""
    client = world.client("same")
    controller = Controller(client)
    filled(client, "a")
    receiver = client.receiver("q", credit=1)
    world.settle()
    (delivery,) = client.held(receiver)
    txn = controller.declare()
    client.reading = False
    thief = world.client("same")
    stolen = thief.receiver("q", credit=1)
    world.settle()
    assert thief.held(stolen)
    controller.retire(txn, delivery, settled=settled)
    discharge = controller.discharge(txn)
    world.settle()
    client.reading = True
    world.settle()
    refusal = client.outcome(discharge)
    assert isinstance(refusal, Rejected)
    assert refusal.error is not None
    assert refusal.error.condition == ROLLBACK
    thief.held(stolen)[0].settle(Accepted())
    world.settle()
    assert live_of(world, "q") == 0
    world.check_journal()


def test_a_clean_stop_rolls_back(world: World, controller: Controller) -> None:
    client = controller.client
    filled(client, "a")
    receiver = client.receiver("q", credit=1)
    world.settle()
    txn = controller.declare()
    controller.post(client.sender("out"), txn, durable("x"))
    controller.retire(txn, *client.held(receiver))
    after = world.stop()
    after.settle()
    assert (live_of(after, "q"), live_of(after, "out")) == (1, 0)
    assert after.core.transactions.fate(txn, "") == "rolled-back"
    counts = after.core.queues.by_name["out"].counts
    assert (counts[EventKind.HELD], counts[EventKind.ROLLED_BACK]) == (1, 1)
    again = after.client()
    receiver = again.receiver("q", credit=1)
    after.settle()
    assert attempt_of(again.held(receiver)[0]) == 0  # as of a link that is closed
    after.check_journal()


@pytest.mark.parametrize("settled", [True, False])
@pytest.mark.parametrize("commit", [True, False])
def test_a_consumer_that_may_hold_one_gets_the_next_after_the_end(settled: bool, commit: bool) -> None:
    world = World(BrokerOptions(address=(AddressRule("q", {"prefetch_max": 1}),)))
    controller = Controller(world.client())
    client = controller.client
    filled(client, "a", "b")
    receiver = client.receiver("q", credit=10)
    world.settle()
    (delivery,) = client.held(receiver)
    txn = controller.declare()
    controller.retire(txn, delivery, settled=settled)
    world.settle()
    assert client.bodies(receiver) == ["a"]
    if commit:
        assert controller.commit(txn) is None
        assert client.bodies(receiver) == ["a", "b"]
    else:
        controller.roll_back(txn)
        assert client.bodies(receiver) == (["a", "a"] if settled else ["a"])


@pytest.mark.parametrize("again", ["before", "after"])
def test_undeliverable_here_is_said_of_no_terminus_that_was_closed_before_the_commit(
    world: World, controller: Controller, again: str
) -> None:
    client = controller.client
    filled(client, "a")
    receiver = client.receiver("q", credit=2)
    world.settle()
    txn = controller.declare()
    controller.retire(txn, client.held(receiver)[0], outcome=Modified(undeliverable_here=True), settled=False)
    receiver.detach()
    world.settle()
    if again == "before":
        receiver = client.receiver("q", credit=2)
    assert controller.commit(txn) is None
    if again == "after":
        receiver = client.receiver("q", credit=2)
    world.settle()
    assert client.bodies(receiver) == ["a"]
    assert not world.core.life.exclusions
    world.check_journal()
    world = world.crash()
    client = world.client()
    receiver = client.receiver("q", credit=2)
    world.settle()
    assert client.bodies(receiver) == ["a"]
