"""What became of a transaction, for who lost the answer."""

from __future__ import annotations

from unittest.mock import patch

import pytest

from acquit.broker.options import BrokerOptions, TransactionLimits
from acquit.broker.transact.fates import Fates
from acquit.errors import StoreFull
from acquit.ledger.records import FATES_KNOWN, Namespace, Start, Verdict
from acquit.protocol.definitions import Accepted, Source, Target
from acquit.protocol.message import Message
from tests.support.broker_world import START_US, Client, World, durable, live_of
from tests.support.transacting import Controller


class Asker:
    """Asks the management node."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.answers = client.begun.attach_receiver("answers", source=Source("$management"), target=Target("me"))
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
    for name in ("", " ", "not hex"):
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
    from acquit.protocol.definitions import Discharge
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
    fates = [name for namespace, name in world.opened.recorder.table.state if namespace == Namespace.FATE]
    assert fates == [FATES_KNOWN]


def test_one_that_ended_just_in_time_and_is_one_too_many_is_forgotten_before_its_time() -> None:
    fates = Fates(World().opened.recorder, START_US)
    for after_us in (1_000, 1_001):
        fates.ended(b"%d" % after_us, Verdict.COMMITTED, "", START_US + after_us, recorded=False)
    fates.forget(START_US + 1_001, kept_us=1, fates_max=1)
    assert (fates.of(b"1000", ""), fates.of(b"1001", "")) == ("unknown", "committed")
    assert fates.known_for_us(START_US + 5_000) == 4_000, "unknown says nothing of those that ended by then"
    fates.forget(START_US + 5_000, kept_us=3_998, fates_max=5)
    assert fates.of(b"1001", "") == "unknown"
    assert fates.known_for_us(START_US + 5_000) > 3_998, "whose time was over was not forgotten before it"


# -- over a restart ----------------------------------------------------------------------------------------------------

HOUR_MS = 3_600_000
TWO = BrokerOptions(transactions=TransactionLimits(fates_max=2))


def commit_some(world: World, count: int, name: str = "client") -> list[bytes]:
    """Commit so many transactions, a second after the other."""
    controller = Controller(world.client(name))
    sender = controller.client.sender("q")
    ended = [controller.declare() for _ in range(count)]
    for txn in ended:
        controller.post(sender, txn, durable("a"))
        assert controller.commit(txn) is None
        world.advance(1_000)
    world.settle()
    return ended


def let_segments_leave(world: World) -> None:
    """Write until nothing of what is in the journal now is read by a recovery."""
    client = world.client("busy")
    sender, receiver = client.sender("busy"), client.receiver("busy", credit=500)
    newest = world.opened.journal.segments[-1].number
    for _ in range(200):
        client.post_all(sender, *(durable("x" * 500) for _ in range(20)))
        for delivery in client.held(receiver):
            delivery.settle(Accepted())
        receiver.grant(500)
        world.settle()
        if world.opened.journal.left_through > newest:
            client.close()
            return
    raise AssertionError("the segments stay")


@pytest.mark.parametrize("end", ["crash", "stop"])
@pytest.mark.parametrize("leave", [True, False])
def test_a_fate_forgotten_before_its_time_is_not_said_to_be_known_after_a_restart(leave: bool, end: str) -> None:
    """Its commit happened: whoever is told that nothing is known of it, and that it would be, takes it for rolled
    back."""
    world = World(TWO)
    ended = commit_some(world, 4)
    if leave:
        let_segments_leave(world)
    after: World = getattr(world, end)()
    after.advance(5_000)
    first = Asker(after.client("asker")).fate(ended[0])
    assert first == "unknown"
    assert after.core.transactions.fates_kept_ms == 5_000, "of what ended before the start, one is missing"
    again: World = getattr(after, end)()
    again.advance(1_000)
    assert again.core.transactions.fates_kept_ms == 1_000, "and nobody knows when"


@pytest.mark.parametrize("by_s", [-86_400, 86_400])
@pytest.mark.parametrize("running", [True, False])
def test_a_clock_that_is_set_lets_nothing_be_known_for_longer(by_s: int, running: bool) -> None:
    world = World(TWO)
    ended = commit_some(world, 4)
    let_segments_leave(world)
    world.now_us += by_s * 1_000_000
    if running:
        world.core.clock_set(by_s * 1_000_000)
        world.advance(1_000)
        assert world.core.transactions.fates_kept_ms == 4_000
        world.settle()
    after = world.crash()
    after.advance(2_000)
    assert Asker(after.client("asker")).fate(ended[1]) == "unknown"
    assert after.core.transactions.fates_kept_ms == 2_000
    after.now_us -= by_s * 1_000_000
    after.core.clock_set(-by_s * 1_000_000)
    after.advance(1_000)
    assert after.core.transactions.fates_kept_ms == 3_000


def test_once_the_time_of_the_last_is_over_the_whole_time_is_known_again() -> None:
    world = World(TWO)
    commit_some(world, 4)
    world.advance(HOUR_MS)
    world.settle()
    after = world.crash()
    assert after.core.transactions.fates_kept_ms == HOUR_MS


def test_what_was_forgotten_in_time_hides_nothing_from_the_next_run() -> None:
    world = World()
    commit_some(world, 2)
    world.advance(HOUR_MS + 1)
    world.settle()
    let_segments_leave(world)
    after = world.crash().crash()
    assert after.core.transactions.fates_kept_ms == HOUR_MS
    longer = TransactionLimits(fates_kept_ms=2 * HOUR_MS)
    after.options = BrokerOptions(transactions=longer)
    after = after.crash()
    after.advance(1_000)
    assert after.core.transactions.fates_kept_ms == HOUR_MS + 1_000, "no longer than they were kept then"


def test_a_longer_time_begins_with_what_is_known() -> None:
    world = World(BrokerOptions(transactions=TransactionLimits(fates_kept_ms=10_000)))
    ended = commit_some(world, 1)
    world.advance(60_000)
    world.core.apply(BrokerOptions())
    assert Asker(world.client("asker")).fate(ended[0]) == "unknown"
    assert world.core.transactions.fates_kept_ms == 61_000
    world.settle()
    after = world.crash()
    assert after.core.transactions.fates_kept_ms == 10_000


def test_a_broker_that_has_never_forgotten_one_writes_nothing_about_it() -> None:
    world = World()
    commit_some(world, 2)
    world.advance(1_000)
    assert not world.core.scribe.pending
    after = world.crash()
    after.advance(1_000)
    assert not after.core.scribe.pending
    assert after.core.transactions.fates_kept_ms == HOUR_MS


@pytest.mark.parametrize("leave", [True, False])
def test_a_run_of_an_earlier_version_says_nothing_of_what_it_forgot(leave: bool) -> None:
    world = World()
    commit_some(world, 1)
    recorder = world.opened.recorder
    recorder.append(Start(world.now_us, 1, False, "earlier"))  # it leaves the word of the run before where it is
    world.settle()
    if leave:
        let_segments_leave(world)
    after = world.crash()
    after.advance(1_000)
    assert after.core.transactions.fates_kept_ms == 1_000
    after.advance(HOUR_MS)
    after.settle()
    assert after.crash().core.transactions.fates_kept_ms == HOUR_MS


@pytest.mark.pure
def test_without_room_it_is_said_before_anything_else() -> None:
    """Nothing leaves the journal before it stands there."""
    world = World(TWO)
    ended = commit_some(world, 2)
    recorder = world.opened.recorder
    with patch.object(recorder.journal, "append", side_effect=StoreFull("no room")):
        world.core.transactions.limits = TransactionLimits(fates_max=1)
        world.advance(1_000)
        assert world.core.scribe.exhausted
    world.settle()
    let_segments_leave(world)
    after = world.crash()
    assert Asker(after.client("asker")).fate(ended[0]) == "unknown"
    assert after.core.transactions.fates_kept_ms == 0
