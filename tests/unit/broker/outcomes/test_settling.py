"""Outcomes by example: what becomes of a message, and what its consumer hears."""

from __future__ import annotations

from dataclasses import replace

import pytest

from acquit.broker.life import Account
from acquit.broker.options import AddressRule, BrokerOptions
from acquit.broker.outcomes.settling import (
    ANNOTATIONS_BYTES_MAX,
    SAID_BYTES_MAX,
    Settling,
    _encode_annotations,
    _within_reason,
)
from acquit.errors import StoreFull
from acquit.ledger.events import RETIRING
from acquit.ledger.history import history
from acquit.ledger.records import Cause
from acquit.protocol.codec import encode
from acquit.protocol.constants import ACCEPTED, RELEASED
from acquit.protocol.definitions import Error, Modified, Rejected
from acquit.protocol.message import Message
from tests.support.broker_world import DATA, Client, World, durable, live_of

FAILED = Modified(delivery_failed=True)


def rules(**settings: object) -> BrokerOptions:
    return BrokerOptions(address=(AddressRule("#", settings),))


def last(client: Client, link: object) -> Message:
    """The latest message of a link."""
    return Message.decode(client.received[link][-1].payload)  # type: ignore[index]


# -- delays -----------------------------------------------------------------------------------------------------------


class Chance:
    """Randomness that a test decides."""

    def __init__(self, *values: float) -> None:
        self.values = list(values)

    def random(self) -> float:
        return self.values.pop(0)


@pytest.mark.parametrize(("chance", "delay_ms"), [(0.0, 500), (0.5, 1_000), (1.0, 1_500)])
def test_jitter_makes_a_delay_shorter_or_longer(chance: float, delay_ms: int) -> None:
    world = World(rules(redelivery_delay_ms=1_000, redelivery_jitter=0.5))
    settling: Settling = world.core._settling
    settling.random = Chance(chance)  # type: ignore[assignment]
    client = world.client()
    receiver = client.receiver("q", credit=10)
    client.post(client.sender("q"), durable(b"x"))
    world.settle()
    client.received[receiver][0].settle(FAILED)
    world.settle()
    world.check_journal()
    world.advance(delay_ms - 1)
    assert len(client.received[receiver]) == 1
    world.advance(1)
    assert len(client.received[receiver]) == 2


@pytest.mark.pure
@pytest.mark.parametrize("outcome", [FAILED, Rejected()], ids=["failed", "rejected"])
def test_what_finds_no_room_as_a_dead_letter_waits_as_after_any_failed_attempt(
    outcome: Modified | Rejected, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would go round at once otherwise, as long as the disk is full."""
    world = World(rules(redelivery_delay_ms=1_000, max_delivery_attempts=1))

    def full(*_: object, **__: object) -> int:
        raise StoreFull("no room")

    monkeypatch.setattr(world.core._letters, "copy", full)
    client = world.client()
    receiver = client.receiver("q", credit=10)
    client.post(client.sender("q"), durable(b"x"))
    world.settle()
    client.received[receiver][0].settle(outcome)
    world.settle()
    world.check_journal()
    world.advance(999)
    assert len(client.received[receiver]) == 1
    world.advance(1)
    assert len(client.received[receiver]) == 2


def test_a_body_that_is_let_go_again_as_soon_as_it_is_read_is_read_once_more() -> None:
    """Whoever asked for it first, to learn its group after a restart for instance, has no more use for it."""
    world = World(rules(memory_bytes_max=65_536))
    client = world.client()
    client.post(client.sender("q"), *(durable(b"x" * 10_000) for _ in range(20)))
    receiver = client.receiver("q", credit=20)
    world.settle()
    memory = world.core.memory
    message = next(message for message in world.core.life.live.values() if message.body is None)
    memory.want(message, memory.drop)
    for delivery in client.received[receiver]:
        delivery.settle(Rejected())
    world.settle()
    assert (live_of(world, "q"), live_of(world, "DLQ")) == (0, 20)
    world.check_journal()


def test_messages_that_failed_together_are_not_tried_again_together() -> None:
    world = World(rules(redelivery_delay_ms=10_000, redelivery_jitter=0.3))
    client = world.client()
    receiver = client.receiver("q", credit=100)
    client.post(client.sender("q"), *(durable(b"x") for _ in range(50)))
    world.settle()
    for delivery in client.received[receiver]:
        delivery.settle(FAILED)
    world.settle()
    due = {message.due_at_ms - world.now_us // 1000 for message in world.core.queues.by_name["q"].scheduled.values()}
    assert len(due) > 25
    assert min(due) >= 7_000
    assert max(due) <= 13_000


@pytest.mark.parametrize("restart", ["", "crash", "stop"])
def test_a_delayed_message_holds_up_what_is_behind_it(restart: str) -> None:
    world = World(rules(redelivery_delay_ms=1_000, redelivery_blocks="queue"))
    client = world.client()
    receiver = client.receiver("q", credit=2)
    client.post(client.sender("q"), *(durable(body) for body in (b"1", b"2", b"3")), durable(b"urgent", priority=9))
    world.settle()
    assert client.bodies(receiver) == [b"urgent", b"1"]
    client.received[receiver][1].settle(FAILED)
    client.received[receiver][0].settle(RELEASED)
    receiver.detach()
    world.settle()
    if restart:
        world = world.crash() if restart == "crash" else world.stop()
        client = world.client()
    receiver = client.receiver("q", "again", credit=10)
    world.settle()
    assert client.bodies(receiver) == [b"urgent"], "what stands before it is not held up"
    world.advance(1_000)
    world.settle()
    assert client.bodies(receiver) == [b"urgent", b"1", b"2", b"3"]
    world.check_journal()


def test_a_consumer_that_drains_behind_a_delayed_message_is_answered() -> None:
    world = World(rules(redelivery_delay_ms=1_000, redelivery_blocks="queue"))
    client = world.client()
    receiver = client.receiver("q", credit=1)
    client.post(client.sender("q"), durable(b"1"), durable(b"2"))
    world.settle()
    client.received[receiver][0].settle(FAILED)
    world.settle()
    receiver.grant(5)
    receiver.drain_credit()
    world.settle()
    assert receiver.credit == 0
    assert client.bodies(receiver) == [b"1"]


def test_a_delayed_message_that_is_purged_holds_up_nothing_more() -> None:
    world = World(rules(redelivery_delay_ms=1_000, redelivery_blocks="queue"))
    client = world.client()
    receiver = client.receiver("q", credit=1)
    client.post(client.sender("q"), durable(b"1"))
    world.settle()
    client.received[receiver][0].settle(FAILED)
    world.settle()
    world.purge("q", None)
    client.post(client.sender("q", "more"), durable(b"2"))
    receiver.grant(5)
    world.settle()
    assert client.bodies(receiver) == [b"1", b"2"]


# -- what comes back uncounted ----------------------------------------------------------------------------------------


def test_releasing_without_end_is_counted_paced_and_tells_how_often() -> None:
    world = World()
    client = world.client()
    receiver = client.receiver("q", credit=1_000)
    client.post(client.sender("q"), durable(b"x"))
    world.settle()
    for _ in range(11):
        client.received[receiver][-1].settle(RELEASED)
        world.settle()
    assert len(client.received[receiver]) == 11, "ten times it came back at once"
    assert (last(client, receiver).delivery_count, last(client, receiver).first_acquirer) == (0, False)
    assert last(client, receiver).annotations["x-opt-acquit-acquired-count"] == 10
    waits = []
    for _ in range(15):
        waited = 0
        while client.received[receiver][-1].settled:
            world.advance(1)
            waited += 1
        waits.append(waited)
        client.received[receiver][-1].settle(RELEASED)
        world.settle()
        world.check_journal()
    assert waits == [1, 2, 4, 8, 16, 32, 64, 128, 200, 200, 200, 200, 200, 200, 200]


def test_releases_that_are_far_apart_are_not_paced() -> None:
    world = World()
    client = world.client()
    receiver = client.receiver("q", credit=100)
    client.post(client.sender("q"), durable(b"x"))
    world.settle()
    for _ in range(30):
        client.received[receiver][-1].settle(RELEASED)
        known = len(client.received[receiver])
        world.settle()
        assert len(client.received[receiver]) == known + 1
        world.advance(200)


def test_the_pace_can_be_switched_off() -> None:
    world = World(rules(release_delay_ms_max=0))
    client = world.client()
    receiver = client.receiver("q", credit=1_000)
    client.post(client.sender("q"), durable(b"x"))
    world.settle()
    for _ in range(100):
        client.received[receiver][-1].settle(Modified())
        world.settle()
    assert len(client.received[receiver]) == 101


@pytest.mark.parametrize("outcome", [RELEASED, Modified(delivery_failed=False)], ids=["released", "modified"])
@pytest.mark.parametrize("letters", ["DLQ", ""], ids=["dead letter", "nowhere"])
def test_a_limit_on_releases_dead_letters(outcome: object, letters: str) -> None:
    world = World(rules(max_releases=3, dead_letter_address=letters))
    client = world.client()
    receiver = client.receiver("q", credit=100)
    client.post(client.sender("q"), durable(b"x"))
    world.settle()
    for number in range(3):
        assert len(client.received[receiver]) == number + 1
        client.received[receiver][-1].settle(outcome)  # type: ignore[arg-type]
        world.settle()
    queue = world.core.snapshot().queue("q")
    assert queue is not None
    assert (queue.depth, queue.dead_lettered, queue.dropped) == ((0, 1, 0) if letters else (0, 0, 1))
    world.check_journal()
    if letters:
        reader = client.receiver("DLQ", "letters", credit=1)
        world.settle()
        attempts = last(client, reader).annotations["x-opt-acquit-attempts"]
        assert isinstance(attempts, list)
        assert attempts[-1]["outcome"] == ("released" if outcome is RELEASED else "modified")
        assert "x-opt-acquit-acquired-count" not in last(client, reader).annotations


@pytest.mark.parametrize("letters", ["DLQ", ""], ids=["dead letter", "nowhere"])
@pytest.mark.parametrize(
    ("outcome", "cause"),
    [(Modified(delivery_failed=True), "MODIFIED"), (RELEASED, "RELEASED"), (Rejected(), "REJECTED")],
    ids=["modified", "released", "rejected"],
)
def test_the_journal_says_why_a_message_left_for_good(outcome: object, cause: str, letters: str) -> None:
    world = World(rules(max_delivery_attempts=1, max_releases=1, dead_letter_address=letters))
    client = world.client()
    receiver = client.receiver("q", credit=1)
    client.post(client.sender("q"), durable(b"x"))
    world.settle()
    client.received[receiver][-1].settle(outcome)  # type: ignore[arg-type]
    world.settle()
    (life,) = (life for life in history(DATA, sequence=1, disk=world.disk).lives if life.sequence == 1)
    assert (life.steps[-1].kind in RETIRING, life.steps[-1].cause) == (True, cause)
    world.check_journal()


@pytest.mark.parametrize("outcome", [RELEASED, Modified(), Modified(delivery_failed=True)])
def test_a_dead_letter_stays_however_often_it_comes_back(outcome: object) -> None:
    world = World(rules(max_delivery_attempts=2, max_releases=2))
    client = world.client()
    receiver = client.receiver("q", credit=1)
    client.post(client.sender("q"), durable(b"x"))
    world.settle()
    client.held(receiver)[0].settle(Rejected())
    reader = client.receiver("DLQ", "letters", credit=10)
    for _ in range(5):
        world.settle()
        (letter,) = client.held(reader)
        letter.settle(outcome)  # type: ignore[arg-type]
    world.settle()
    assert live_of(world, "DLQ") == 1
    world.check_journal()


def test_consumers_that_come_and_go_dead_letter_nothing_by_releasing() -> None:
    world = World(rules(max_releases=2))
    client = world.client()
    client.post(client.sender("q"), durable(b"x"))
    for turn in range(5):
        link = client.receiver("q", f"r{turn}", credit=1)
        world.settle()
        link.detach()
        world.settle()
        world.advance(1_000)
    assert (live_of(world, "q"), live_of(world, "DLQ")) == (1, 0)


FAILED_BY_DEFAULT = Modified(delivery_failed=True)


@pytest.mark.parametrize("default", [None, Modified(), FAILED_BY_DEFAULT], ids=["none", "modified", "failed"])
def test_what_links_leave_behind_is_no_release_and_is_not_paced(default: Modified | None) -> None:
    """Spring opens and closes a consumer for each message: JmsTemplate.receive finds what is there, every time."""
    world = World(rules(max_releases=2))
    client = world.client()
    client.post(client.sender("q"), durable(b"x"))
    for turn in range(30):
        link = client.receiver("q", f"r{turn}", credit=1, default_outcome=default)
        world.settle()
        assert len(client.received[link]) == 1, "at once"
        link.detach()
        world.settle()
    world.check_journal()
    world = world.stop()
    for releases in range(2):
        assert (live_of(world, "q"), live_of(world, "DLQ")) == (1, 0), f"released {releases} times, of two"
        client = world.client()
        link = client.receiver("q", credit=1)
        world.settle()
        assert last(client, link).annotations["x-opt-acquit-acquired-count"] == 30 + releases
        assert last(client, link).delivery_count == 0
        client.received[link][0].settle(RELEASED)
        client.close()
        world.settle()
    assert (live_of(world, "q"), live_of(world, "DLQ")) == (0, 1)


def test_a_dead_letter_tells_of_failures_and_not_of_links_that_closed() -> None:
    world = World(rules(max_delivery_attempts=3))
    client = world.client()
    client.post(client.sender("q"), durable(b"x"))
    for _ in range(3):
        for turn in range(10):
            link = client.receiver("q", f"r{turn}", credit=1, default_outcome=FAILED_BY_DEFAULT)
            world.settle()
            link.detach()
            world.settle()
        link = client.receiver("q", "fails", credit=1)
        world.settle()
        client.received[link][-1].settle(FAILED_BY_DEFAULT)
        link.detach()
        world.settle()
    reader = client.receiver("DLQ", "letters", credit=1)
    world.settle()
    attempts = last(client, reader).annotations["x-opt-acquit-attempts"]
    assert isinstance(attempts, list)
    assert [attempt["cause"] for attempt in attempts] == ["modified"] * 3
    world.check_journal()


def test_lost_connections_and_a_crash_are_no_failures_after_a_restart_either() -> None:
    """The number of failures is in the journal, and goes along when the segment of the posting leaves."""
    world = World(rules(max_delivery_attempts=2))
    client = world.client()
    sender = client.sender("q")
    client.post(sender, durable(b"x"))
    for turn in range(3):
        other = world.client(f"lost-{turn}")
        other.receiver("q", credit=1)
        world.settle()
        other.lose()
        world.settle()
    receiver = client.receiver("q", credit=10)
    world.settle()
    for turn in range(40):  # the segment of its posting leaves
        client.post(sender, *(durable(bytes(5_000)) for _ in range(5)))
        world.settle()
        for delivery in client.received[receiver][1 + 5 * turn :]:
            delivery.settle(ACCEPTED)
        receiver.grant(10)
        world.settle()
    assert world.opened.journal.left_through > 0
    world.check_journal()
    world = world.crash()
    for failures in range(2):
        assert (live_of(world, "q"), live_of(world, "DLQ")) == (1, 0), f"{failures} failures, of two"
        client = world.client()
        receiver = client.receiver("q", credit=1)
        world.settle()
        assert last(client, receiver).delivery_count == 4 + failures, "three connections, and the crash"
        client.received[receiver][0].settle(FAILED_BY_DEFAULT)
        client.close()
        world.settle()
    assert (live_of(world, "q"), live_of(world, "DLQ")) == (0, 1)
    world.check_journal()


@pytest.mark.parametrize(("default", "count"), [(None, 0), (FAILED_BY_DEFAULT, 1)], ids=["none", "failed"])
@pytest.mark.parametrize("how", ["stop", "stolen"])
def test_where_the_broker_ends_the_link_its_user_may_have_seen_the_message(
    how: str, default: Modified | None, count: int
) -> None:
    world = World(rules(max_delivery_attempts=1))
    client = world.client("same")
    client.post(client.sender("q"), durable(b"x"))
    client.receiver("q", "r", credit=1, default_outcome=default)
    world.settle()
    if how == "stop":
        world = world.stop()
    other = world.client("same")
    receiver = other.receiver("q", "r", credit=1)
    world.settle()
    assert (last(other, receiver).delivery_count, last(other, receiver).first_acquirer) == (count, False)
    assert live_of(world, "DLQ") == 0, "and nobody has failed"


def test_a_lost_connection_is_a_release_where_it_is_a_failure() -> None:
    world = World(rules(max_releases=1, connection_loss="dead-letter"))
    client = world.client()
    client.post(client.sender("q"), durable(b"x"))
    client.receiver("q", credit=1, default_outcome=RELEASED)
    world.settle()
    client.lose()
    world.settle()
    assert (live_of(world, "q"), live_of(world, "DLQ")) == (0, 1)


def test_the_delay_grows_with_failures_and_not_with_lost_connections() -> None:
    world = World(rules(redelivery_delay_ms=100, redelivery_multiplier=10.0, redelivery_delay_ms_max=60_000))
    client = world.client()
    client.post(client.sender("q"), durable(b"x"))
    for turn in range(4):
        other = world.client(f"lost-{turn}")
        receiver = other.receiver("q", credit=1)
        world.settle()
        assert last(other, receiver).delivery_count == turn
        other.lose()
        world.settle()
        world.advance(100)
    receiver = client.receiver("q", credit=2)
    world.settle()
    client.received[receiver][0].settle(FAILED_BY_DEFAULT)
    world.settle()
    world.advance(100)
    world.settle()
    assert [delivery.settled for delivery in client.received[receiver]] == [True, False], "its first failure"


def test_the_count_of_returns_survives_a_restart_and_a_checkpoint() -> None:
    world = World(rules(max_releases=5))
    client = world.client()
    receiver = client.receiver("q", credit=10)
    sender = client.sender("q")
    client.post(sender, durable(b"x"))
    world.settle()
    for _ in range(3):
        client.received[receiver][-1].settle(RELEASED)
        world.settle()
    for turn in range(40):  # the segment of its posting leaves
        client.post(sender, *(durable(bytes(5_000)) for _ in range(5)))
        world.settle()
        for delivery in client.received[receiver][4 + 5 * turn :]:
            delivery.settle(ACCEPTED)
        receiver.grant(10)
        world.settle()
    world.check_journal()
    world = world.crash()
    client = world.client()
    receiver = client.receiver("q", credit=1)
    world.settle()
    assert last(client, receiver).annotations["x-opt-acquit-acquired-count"] == 4, "three releases, and the crash"
    assert last(client, receiver).delivery_count == 1


# -- undeliverable here -----------------------------------------------------------------------------------------------


def undeliverable(world: World) -> int:
    queue = world.core.snapshot().queue("q")
    assert queue is not None
    return queue.undeliverable


@pytest.mark.parametrize("restart", ["crash", "stop"])
def test_undeliverable_here_holds_over_a_restart_until_its_terminus_is_destroyed(restart: str) -> None:
    world = World()
    client = world.client()
    one = client.receiver("q", "one", credit=1)
    client.post(client.sender("q"), durable(b"x"))
    world.settle()
    client.received[one][0].settle(Modified(True, True))
    world.settle()
    assert undeliverable(world) == 0, "nobody with credit has been asked to take it"
    one.grant(1)
    world.settle()
    assert undeliverable(world) == 1
    world.check_journal()
    world = world.crash() if restart == "crash" else world.stop()
    client = world.client()
    one = client.receiver("q", "one", credit=1)
    world.settle()
    assert client.received == {}
    assert undeliverable(world) == 1
    one.detach(closed=True)
    world.settle()
    world.check_journal()
    world = world.crash()
    client = world.client()
    one = client.receiver("q", "one", credit=1)
    world.settle()
    assert client.bodies(one) == [b"x"], "the terminus was destroyed: this is another one"


def test_a_stolen_link_takes_its_terminus_along() -> None:
    world = World()
    first, second = world.client("same"), world.client("same")
    link = first.receiver("q", "one", credit=1)
    first.post(first.sender("q"), durable(b"x"))
    world.settle()
    first.received[link][0].settle(Modified(True, True))
    world.settle()
    again = second.receiver("q", "one", credit=1)
    world.settle()
    assert second.received.get(again, []) == []
    other = second.receiver("q", "other", credit=1)
    world.settle()
    assert second.bodies(other) == [b"x"]


@pytest.mark.parametrize("end", ["detached", "lost", "stop", "crash"])
def test_the_terminus_of_a_durable_subscription_outlives_its_links(end: str) -> None:
    world = World()
    client = world.client("me")
    link = client.subscriber("news", "mine", durable=True)
    client.post(client.publisher("news"), durable(b"not mine"), durable(b"mine"))
    world.settle()
    client.received[link][0].settle(Modified(False, True))
    client.received[link][1].settle(ACCEPTED)
    world.settle()
    if end == "detached":
        client.detach(link, closed=False)
    elif end == "lost":
        client.lose()
    else:
        world = world.stop() if end == "stop" else world.crash()
    client = world.client("me") if end != "detached" else client
    link = client.subscriber("news", "mine", durable=True)
    world.settle()
    assert client.received.get(link, []) == [], "still undeliverable here"
    queue = world.core.snapshot().queue("news::me/mine")
    assert queue is not None
    assert (queue.available, queue.undeliverable) == (1, 1)
    world.check_journal()


def test_what_is_gone_is_undeliverable_nowhere() -> None:
    world = World(rules(max_delivery_attempts=2, dead_letter_address=""))
    client = world.client()
    link = client.subscriber("news", "mine", durable=True)
    client.post(client.publisher("news"), durable(b"x"), durable(b"y"))
    world.settle()
    for delivery in client.received[link]:
        delivery.settle(Modified(True, True))
    world.settle()
    assert len(world.core.life.exclusions) == 1
    client.detach(link)
    world.settle()
    assert world.core.life.exclusions == {}, "closed: its terminus is destroyed"
    one = client.receiver("q", "one", credit=5)
    client.post(client.sender("q"), durable(b"x"))
    world.settle()
    client.received[one][0].settle(Modified(True, True))
    world.settle()
    assert len(world.core.life.exclusions) == 1
    world.purge("q", None)
    world.settle()
    assert world.core.life.exclusions == {}
    world.check_journal()


def test_so_many_termini_and_no_more_are_remembered() -> None:
    from acquit.broker.life import EXCLUDED_MAX

    world = World(rules(max_delivery_attempts=0))
    client = world.client()
    client.post(client.sender("q"), durable(b"x"))
    for number in range(EXCLUDED_MAX + 10):
        link = client.receiver("q", f"link {number}", credit=1)
        world.settle()
        client.received[link][0].settle(Modified(True, True))
        world.settle()
    (message,) = world.core.life.live.values()
    assert message.extra is not None
    assert len(message.extra.excluded) == EXCLUDED_MAX
    world.check_journal()


# -- stale ------------------------------------------------------------------------------------------------------------


def test_the_error_of_a_rejection_is_in_the_delivery_annotations_of_the_dead_letter() -> None:
    world = World()
    client = world.client()
    receiver = client.receiver("q", credit=1)
    client.post(client.sender("q"), durable(b"x", delivery_annotations={"x-opt-hop": 1}))
    world.settle()
    client.received[receiver][0].settle(Rejected(Error("app:bad", "cannot be parsed")))
    reader = client.receiver("DLQ", "letters", credit=1)
    world.settle()
    told = last(client, reader).delivery_annotations
    assert told["rejected"] == Error("app:bad", "cannot be parsed") or list(told["rejected"].value)[:2] == [  # type: ignore[attr-defined]
        "app:bad",
        "cannot be parsed",
    ]
    assert told["x-opt-hop"] == 1


# -- groups -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("restart", ["", "crash"])
def test_a_delayed_message_holds_up_its_group_and_no_other(restart: str) -> None:
    world = World(rules(redelivery_delay_ms=1_000, redelivery_blocks="group", message_groups=True))
    client = world.client()
    receiver = client.receiver("q", credit=1)
    client.post(
        client.sender("q"),
        durable(b"a1", group_id="a"),
        durable(b"b1", group_id="b"),
        durable(b"a2", group_id="a"),
        durable(b"plain"),
    )
    world.settle()
    assert client.bodies(receiver) == [b"a1"]
    client.received[receiver][0].settle(FAILED)
    world.settle()
    if restart:
        receiver.detach()
        world.settle()
        world = world.crash()
        client = world.client()
        receiver = client.receiver("q", "again", credit=1)
        world.settle()
        client.received.clear()
    receiver.grant(9)
    world.settle()
    assert client.bodies(receiver)[-1:] == [b"plain"]
    assert b"a2" not in client.bodies(receiver)
    world.advance(1_000)
    world.settle()
    assert client.bodies(receiver)[-2:] == [b"a1", b"a2"]
    world.check_journal()


# -- restart ----------------------------------------------------------------------------------------------------------


def test_a_queue_that_is_deleted_while_its_last_attempts_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(rules(connection_loss="dead-letter", max_delivery_attempts=1))
    client = world.client()
    client.receiver("q", credit=5)
    client.post(client.sender("q"), *(durable(b"x") for _ in range(3)))
    world.settle()
    world = world.crash()
    assert world.core.memory.wanted, "their dead letters need their bodies"
    monkeypatch.setattr(world, "_read_back", lambda: False)
    world.core.administration.delete("q", None)
    world.settle()
    monkeypatch.undo()
    world.settle()
    assert "q" not in world.core.queues.by_name
    assert live_of(world, "DLQ") == 3, "what is being performed is performed, and then the queue goes"
    world.check_journal()


# -- bounds of what is kept with a message ----------------------------------------------------------------------------


def test_what_is_said_of_many_messages_is_cut_by_all_of_it_together() -> None:
    part = SAID_BYTES_MAX * 3 // 5
    account = Account(Cause.REJECTED, 1, annotations=b"a" * part, condition="c" * part)
    cut = _within_reason(account, 1)
    assert (cut.annotations, len(cut.condition)) == (b"", SAID_BYTES_MAX // 2)
    told = _within_reason(Account(Cause.REJECTED, 1, condition="c", description="d" * SAID_BYTES_MAX), 1)
    assert (told.condition, len(told.description)) == ("c", SAID_BYTES_MAX // 2)
    half = Account(Cause.REJECTED, 1, annotations=b"a" * (SAID_BYTES_MAX // 2), condition="c" * (SAID_BYTES_MAX // 2))
    assert _within_reason(half, 1) is half, "what just fits"
    cut = _within_reason(replace(half, description="d"), 1)
    assert cut.annotations == half.annotations, "that is its half"
    short = Account(Cause.REJECTED, 1, annotations=b"a", condition="c", description="d")
    assert _within_reason(short, 1) is short


def test_annotations_are_kept_up_to_their_limit() -> None:
    around = len(encode({"x-opt-a": "s" * 1_000})) - 1_000
    at_most = "s" * (ANNOTATIONS_BYTES_MAX - around)
    assert len(_encode_annotations({"x-opt-a": at_most})) == ANNOTATIONS_BYTES_MAX
    assert _encode_annotations({"x-opt-a": at_most + "s"}) == b""
    assert _encode_annotations(None) == b""


# -- accepting --------------------------------------------------------------------------------------------------------


@pytest.mark.pure
def test_accepted_messages_let_go_of_their_bodies_and_their_times(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    client = world.client()
    receiver = client.receiver("q", credit=10)
    client.post(client.sender("q"), durable(b"one"), durable(b"two"), durable(b"three", ttl_ms=5_000))
    world.settle()
    life = world.core.life
    messages = list(life.live.values())
    forgotten: list[object] = []
    monkeypatch.setattr(type(life.timers), "forget", lambda _, message: forgotten.append(message))
    receiver.session.settle_all(client.received[receiver], ACCEPTED)
    world.settle()
    assert [message.body for message in messages] == [None] * 3
    assert forgotten == messages[2:]
    assert (life.live, life.live_bytes, life.memory.bytes) == ({}, 0, 0)
