"""What became of a transaction, for who lost the answer."""

from __future__ import annotations

import pytest

from acquit.broker.options import BrokerOptions, TransactionLimits
from acquit.broker.transact.fates import Fates
from acquit.ledger.records import Namespace, Verdict
from acquit.ledger.table import StateTable
from acquit.protocol._definitions import Accepted, Source, Target
from acquit.protocol.message import Message
from tests.support.broker_world import Client, World, durable, live_of
from tests.support.transacting import Controller


class Asker:
    """Asks the management node."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.answers = client.begun.attach_receiver(  # type: ignore[attr-defined]
            "answers", source=Source("$management"), target=Target("me")
        )
        self.answers.grant(1_000)
        self.requests = client.sender("$management", "ask")

    def ask(self, name: str) -> None:
        properties = {"operation": "READ", "type": "acquit:transaction", "name": name}
        self.client.post(
            self.requests, Message(None, message_id=name, reply_to="me", application_properties=properties)
        )
        self.client.world.carry()

    def answer(self) -> tuple[int, object] | None:
        """The next answer's status and fate, if it has come."""
        received = self.client.received.get(self.answers, [])
        if not received:
            return None
        message = Message.decode(received.pop(0).payload)
        body = message.body
        fate = body["fate"] if isinstance(body, dict) else None
        return int(str(message.application_properties["statusCode"])), fate

    def fate(self, txn_id: bytes) -> object:
        self.ask(txn_id.hex())
        self.client.world.settle()
        status, fate = self.answer() or (0, None)
        assert status == 200
        return fate


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def asker(world: World) -> Asker:
    return Asker(world.client("asker"))


@pytest.mark.parametrize("work", [True, False])
def test_fates_of_what_has_ended(world: World, asker: Asker, work: bool) -> None:
    controller = Controller(world.client())
    sender = controller.client.sender("q")
    committed, rolled_back = controller.declare(), controller.declare()
    if work:
        controller.post(sender, committed, durable("a"))
        controller.post(sender, rolled_back, durable("b"))
    assert controller.commit(committed) is None
    controller.roll_back(rolled_back)
    assert asker.fate(committed) == "committed"
    assert asker.fate(rolled_back) == "rolled-back"
    assert asker.fate(bytes(16)) == "unknown"
    assert asker.fate(b"x") == "unknown"
    after = world.crash()
    asker = Asker(after.client())
    assert asker.fate(committed) == ("committed" if work else "unknown")
    assert asker.fate(rolled_back) == ("rolled-back" if work else "unknown")


def test_a_question_that_names_no_transaction(asker: Asker) -> None:
    for name in ("", "not hex"):
        asker.ask(name)
        status, _ = asker.answer() or (0, None)
        assert status == 400


def test_to_ask_about_a_live_one_fences_it(world: World, asker: Asker) -> None:
    client = world.client("lost")
    controller = Controller(client)
    client.post_all(client.sender("in", "filler"), durable("in"))
    receiver, sender = client.receiver("in", credit=1), client.sender("q")
    world.settle()
    txn = controller.declare()
    controller.post(sender, txn, durable("a"))
    controller.retire(txn, *client.held(receiver))
    # A commit that was sent, and that the broker has not read.
    from acquit.protocol._definitions import Discharge
    from tests.support.transacting import control_message

    controller.link.send(b"commit", control_message(Discharge(txn, False)))
    unread = client.engine.data_to_send()
    world.clients.remove(client)
    assert asker.fate(txn) == "rolled-back"
    events = client.server.receive_data(unread, world.now_s)
    world.core.handle(client.peer, events, world.now_us)
    world.settle()
    assert live_of(world, "q") == 0
    assert world.core.queues.by_name["in"].available == 1
    assert asker.fate(txn) == "rolled-back"
    client.hear(client.engine.receive_data(client.server.data_to_send(), world.now_s))
    assert client.ended is not None
    assert client.ended.error is not None
    assert client.ended.error.condition == "amqp:connection:forced"
    world.check_journal()


def test_a_commit_in_a_batch_is_awaited(world: World, asker: Asker) -> None:
    client = world.client("lost")
    controller = Controller(client)
    txn = controller.declare()
    controller.post(client.sender("q"), txn, durable("a"))
    world.settle()
    sent = controller.discharge(txn)
    asker.ask(txn.hex())
    assert asker.answer() is None
    assert client.ended is None
    world.settle()
    assert asker.answer() == (200, "committed")
    assert client.outcome(sent) == Accepted()
    assert live_of(world, "q") == 1


def test_a_commit_in_a_batch_whose_client_is_gone_is_done(world: World, asker: Asker) -> None:
    client = world.client("lost")
    controller = Controller(client)
    txn = controller.declare()
    controller.post(client.sender("q"), txn, durable("a"))
    controller.discharge(txn)
    client.lose()
    asker.ask(txn.hex())
    assert asker.answer() is None
    world.settle()
    assert asker.answer() == (200, "committed")
    assert live_of(world, "q") == 1


def test_only_its_user_may_ask(world: World, asker: Asker) -> None:
    client = world.client("ada's")
    client.peer.user = "ada"
    controller = Controller(client)
    ended, live = controller.declare(), controller.declare()
    controller.post(client.sender("q"), ended, durable("a"))
    assert controller.commit(ended) is None
    assert asker.fate(ended) == "unknown"
    assert asker.fate(live) == "unknown"
    assert client.ended is None
    other = Asker(client)
    assert other.fate(ended) == "committed"
    after = world.crash()
    assert Asker(after.client()).fate(ended) == "unknown"


def test_fates_are_kept_for_a_time() -> None:
    world = World(BrokerOptions(transactions=TransactionLimits(fates_kept_ms=10_000)))
    controller = Controller(world.client())
    txn, empty = controller.declare(), controller.declare()
    controller.post(controller.client.sender("q"), txn, durable("a"))
    assert controller.commit(txn) is None
    assert controller.commit(empty) is None
    asker = Asker(world.client("asker"))
    world.advance(9_000)
    assert (asker.fate(txn), asker.fate(empty)) == ("committed", "committed")
    world.advance(1_001)
    assert (asker.fate(txn), asker.fate(empty)) == ("unknown", "unknown")
    after = world.crash()
    after.advance(9_000)
    assert Asker(after.client("9 s")).fate(txn) == "committed", "nobody knows how long the broker was down"
    after.advance(1_001)
    assert Asker(after.client("10 s")).fate(txn) == "unknown"


def test_a_clock_that_is_set_makes_no_fate_older() -> None:
    """Who heard that nothing is known of its transaction, and that it would be, would take it for rolled back."""
    world = World()
    controller = Controller(world.client())
    txn = controller.declare()
    controller.post(controller.client.sender("q"), txn, durable("a"))
    assert controller.commit(txn) is None
    world.now_us += 7_200_000_000
    world.core.clock_set(7_200_000_000)
    world.advance(1)
    assert Asker(world.client("asker")).fate(txn) == "committed"
    world.now_us += 7_200_000_000
    after = world.crash()
    after.advance(1)
    assert Asker(after.client()).fate(txn) == "committed"


def test_and_a_number_of_them() -> None:
    world = World(BrokerOptions(transactions=TransactionLimits(fates_max=2)))
    controller = Controller(world.client())
    sender = controller.client.sender("q")
    ended = [controller.declare() for _ in range(4)]
    for txn in ended:
        controller.post(sender, txn, durable("a"))
        assert controller.commit(txn) is None
        world.advance(1_000)
    asker = Asker(world.client("asker"))
    assert [asker.fate(txn) for txn in ended] == ["unknown", "unknown", "committed", "committed"]
    # The last that was forgotten ended three seconds ago: of what is younger, everything is known.
    assert world.core.transactions.fates_kept_ms == 3_000


def test_a_fate_outlives_the_records_that_it_follows_from() -> None:
    world = World()
    client = world.client()
    controller = Controller(client)
    sender, receiver = client.sender("busy"), client.receiver("busy", credit=500)
    ended, open_ = controller.declare(), controller.declare()
    controller.post(client.sender("q", "q"), ended, durable("a"))
    controller.post(client.sender("q", "q2"), open_, durable("b"))
    assert controller.commit(ended) is None
    first = world.opened.journal.segments[0].number
    for _ in range(60):
        client.post_all(sender, *(durable("x" * 500) for _ in range(20)))
        for delivery in client.held(receiver):
            delivery.settle(Accepted())
        receiver.grant(500)
        world.settle()
    assert world.opened.journal.left_through > first
    assert (Namespace.FATE, ended) in world.opened.recorder.table.state
    after = world.crash().crash()
    asker = Asker(after.client())
    assert asker.fate(ended) == "committed"
    assert asker.fate(open_) == "rolled-back"


def test_the_fate_of_one_that_was_idle_for_too_long_is_forgotten_as_well() -> None:
    limits = TransactionLimits(idle_timeout_ms=1_000, fates_kept_ms=10_000)
    world = World(BrokerOptions(transactions=limits))
    controller = Controller(world.client())
    txn = controller.declare()
    controller.post(controller.client.sender("q"), txn, durable("a"))
    world.advance(1_001)
    controller.roll_back(txn)
    asker = Asker(world.client("asker"))
    assert asker.fate(txn) == "rolled-back"
    world.advance(10_001)
    assert asker.fate(txn) == "unknown"
    assert not any(namespace == Namespace.FATE for namespace, _ in world.opened.recorder.table.state)


def test_one_that_ended_just_in_time_and_is_one_too_many_is_forgotten_before_its_time() -> None:
    fates = Fates(StateTable(), 0)
    for at_us in (1_000, 1_001):
        fates.ended(b"%d" % at_us, Verdict.COMMITTED, "", at_us, recorded=False)
    fates.forget(before_us=1_000, fates_max=1)
    assert (fates.of(b"1000", ""), fates.of(b"1001", "")) == ("unknown", "committed")
    assert fates.known_for_us(5_000) == 4_000, "unknown says nothing of those that ended by then"
    fates.forget(before_us=1_002, fates_max=5)
    assert fates.of(b"1001", "") == "unknown"
    assert fates.known_for_us(5_000) == 4_000, "whose time was over was not forgotten before it"
