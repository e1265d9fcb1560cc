"""Dead letters that go back, each to where it died."""

from __future__ import annotations

import pytest

from acquit.broker.admin import redriving, walking
from acquit.broker.admin.later import Later, RequestFailure
from acquit.broker.admin.redriving import OTHERS, Redriven
from acquit.broker.options import AddressRule, BrokerOptions
from acquit.errors import SelectorError
from acquit.ledger.events import EventKind
from acquit.protocol.definitions import Error, Rejected
from acquit.protocol.message import Message
from tests.support.broker_world import World, durable, live_of, posted


def dead(*queues: str, each: int = 1, options: BrokerOptions | None = None) -> World:
    """A world where messages of these queues were rejected."""
    world = World(options or BrokerOptions())
    client = world.client("kills")
    for name in queues:
        client.post_all(
            client.sender(name, f"to {name}"),
            *[durable(f"{name} {number}", application_properties={"n": number}) for number in range(each)],
        )
        link = client.receiver(name, f"from {name}", credit=each)
        world.settle()
        link.session.settle_all(client.held(link), Rejected(Error("shop:no", "no")))
        link.detach()
        world.settle()
    assert live_of(world, "DLQ") == each * len(queues)
    return world


def redrive(world: World, *, refused: str = "", **choice: object) -> Redriven:
    later: Later[Redriven] = world.core.administration.redrive(
        "DLQ",
        "ada",
        lambda address: "may not" if address == refused else None,
        **choice,  # type: ignore[arg-type]
    )
    world.settle()
    results: list[object] = []
    later.when_finished(results.append)
    (result,) = results
    assert isinstance(result, Redriven)
    return result


def taken(world: World, name: str) -> list[Message]:
    client = world.client(f"takes-{name}")
    link = client.receiver(name, credit=1_000)
    world.settle()
    return [Message.decode(delivery.payload) for delivery in client.received.get(link, [])]


def test_each_goes_to_its_own_queue() -> None:
    world = dead("a", "b", each=3)
    told = redrive(world)
    assert (told.by_origin, told.redriven, told.without_origin, told.left) == ({"a": 3, "b": 3}, 6, 0, {})
    counts = world.core.queues.by_name["DLQ"].counts
    assert counts[EventKind.MOVED_OUT] == 6
    world.check_journal()
    world = world.crash()
    assert live_of(world, "DLQ") == 0
    letters = taken(world, "b")
    assert [letter.body for letter in letters] == ["b 0", "b 1", "b 2"]
    assert {letter.delivery_count for letter in letters} == {0}
    assert all(letter.annotations["x-opt-ORIG-QUEUE"] == "b" for letter in letters), "it says what it was"
    assert all(letter.annotations["x-opt-acquit-attempts"] for letter in letters)


def test_its_attempts_begin_anew() -> None:
    options = BrokerOptions(address=(AddressRule("a", {"max_delivery_attempts": 2}),))
    world = dead("a", options=options)
    redrive(world)
    (message,) = world.core.life.live.values()
    assert (message.attempt, message.extra) == (0, None)


def test_a_dry_run_counts_and_changes_nothing() -> None:
    world = dead("a", "b", each=2)
    world.core.administration.delete("b", None)
    world.settle()
    before = set(world.core.life.live)
    told = redrive(world, dry_run=True)
    assert told.by_origin == {"a": 2, "b": 2}
    assert set(world.core.life.live) == before
    assert "b" not in world.core.queues.by_name


def test_an_origin_that_is_no_more_is_made() -> None:
    world = dead("a")
    world.core.administration.delete("a", None)
    world.settle()
    assert redrive(world).by_origin == {"a": 1}
    assert [message.body for message in taken(world.crash(), "a")] == ["a 0"]


def test_an_origin_that_its_policy_does_not_make_keeps_nothing_from_others() -> None:
    world = dead("a", "b", each=2)
    world.core.administration.delete("a", None)
    world.settle()
    world.core.apply(BrokerOptions(address=(AddressRule("a", {"create": False}),)))
    for dry_run in (True, False):
        told = redrive(world, dry_run=dry_run)
        assert (told.by_origin, told.left) == ({"b": 2}, {"a": 2})
        assert "makes none" in told.reasons["a"]
    assert live_of(world, "DLQ") == 2


def test_who_may_not_manage_an_origin_leaves_its_letters() -> None:
    world = dead("a", "b")
    told = redrive(world, refused="a")
    assert (told.by_origin, told.left, told.reasons) == ({"b": 1}, {"a": 1}, {"a": "may not"})
    assert live_of(world, "DLQ") == 1


def test_what_does_not_say_where_it_died_stays() -> None:
    world = dead("a")
    client = world.client()
    here = {"x-opt-ORIG-QUEUE": "DLQ"}
    client.post_all(client.sender("DLQ"), durable("no letter"), durable("died here", annotations=here))
    told = redrive(world)
    assert (told.by_origin, told.without_origin) == ({"a": 1}, 2)
    assert live_of(world, "DLQ") == 2


def test_only_what_is_chosen() -> None:
    world = dead("a", "b", each=4)
    first = min(world.core.life.live)
    assert redrive(world, sequences=frozenset({first})).by_origin == {"a": 1}
    assert redrive(world, selector="n = 3").by_origin == {"a": 1, "b": 1}
    assert redrive(world, messages_max=3).by_origin == {"a": 2, "b": 1}
    with pytest.raises(SelectorError):
        redrive(world, selector="n >")


def test_what_stays_is_not_counted_among_the_most() -> None:
    world = dead("a", "b", each=2)
    assert redrive(world, refused="a", messages_max=2).by_origin == {"b": 2}


@pytest.mark.parametrize(
    ("origin", "reason"),
    [
        ("temporary.queue." + 32 * "0", "is gone"),
        ("$management", ""),
        ("a::b", "no plain address"),
        ("x" * 1_024, "makes none"),
        ("t", "is a topic"),
    ],
    ids=["temporary", "node", "subscription", "long", "topic"],
)
def test_where_a_letter_cannot_go(origin: str, reason: str) -> None:
    """Whoever may send to a queue of dead letters can say anything of where a message died."""
    rule = AddressRule("x" * 1_024, {"create": False})
    world, _ = posted(
        "DLQ", durable(b"x", annotations={"x-opt-ORIG-QUEUE": origin}), options=BrokerOptions(address=(rule,))
    )
    world.core.administration.create("t", None, topic=True)
    for dry_run in (True, False):
        told = redrive(world, dry_run=dry_run)
        assert (told.redriven, told.left) == (0, {origin: 1})
        assert reason in told.reasons[origin]
    assert list(world.core.queues.by_name) == ["DLQ"]


def test_what_can_be_no_name_takes_no_room_in_the_answer() -> None:
    world, _ = posted("DLQ", *[durable(b"x", annotations={"x-opt-ORIG-QUEUE": f"{n}" * 100_000}) for n in range(3)])
    told = redrive(world)
    assert (told.left, told.without_origin) == ({}, 3)


def test_names_without_end_are_counted_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redriving, "ORIGINS_MAX", 2)
    world = dead("a", "b", "c", "d")
    assert redrive(world, dry_run=True).by_origin == {"a": 1, "b": 1, OTHERS: 2}


def test_bodies_are_read_back_first() -> None:
    options = BrokerOptions(address=(AddressRule("DLQ", {"memory_bytes_max": 65_536}),))
    world = dead("a", "b", each=300, options=options)
    assert redrive(world).by_origin == {"a": 300, "b": 300}
    world.check_journal()


def test_a_subscription_is_an_origin_while_it_is_there() -> None:
    world = World()
    client = world.client("subscribes")
    link = client.subscriber("t", "s", durable=True, credit=1)
    client.post_all(client.publisher("t"), durable("x"))
    link.session.settle_all(client.held(link), Rejected())
    world.settle()
    (name,) = (name for name in world.core.queues.by_name if name != "DLQ")
    assert redrive(world, dry_run=True).by_origin == {name: 1}
    world.core.administration.delete(name, None)
    world.settle()
    told = redrive(world)
    assert (told.by_origin, told.left) == ({}, {name: 1})
    assert live_of(world, "DLQ") == 1


def test_a_queue_that_is_deleted_ends_it() -> None:
    options = BrokerOptions(address=(AddressRule("DLQ", {"memory_bytes_max": 65_536}),))
    world = dead("a", each=300, options=options)
    later = world.core.administration.redrive("DLQ", None, lambda address: None)
    world.core.administration.delete("DLQ", None)
    world.settle()
    results: list[object] = []
    later.when_finished(results.append)
    assert isinstance(results[0], RequestFailure)
    assert "deleted meanwhile" in str(results[0])


@pytest.mark.parametrize("count", [1, 64, 65, 256, 300])
def test_a_queue_that_its_last_letter_leaves_may_go(count: int) -> None:
    world = dead("a", each=count, options=BrokerOptions(address=(AddressRule("DLQ", {"auto_delete": True}),)))
    assert redrive(world).by_origin == {"a": count}
    assert live_of(world, "a") == count
    assert "DLQ" not in world.core.queues.by_name


@pytest.mark.promise("durable")
def test_a_crash_at_any_step_leaves_each_letter_in_one_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walking, "STEP", 2)
    world = dead("a", "b", each=10)
    later = world.core.administration.redrive("DLQ", "ada", lambda address: None)
    told: list[object] = []
    later.when_finished(told.append)
    went = set()
    for step in range(200):
        busy = world.core.turn(world.now_us)
        after = world.crash()
        there = sum(live_of(after, name) for name in ("a", "b"))
        assert there + live_of(after, "DLQ") == 20
        assert there == 20 or not told, "who was told finds it done"
        after.check_journal()
        went.add(there)
        if told and not busy:
            break
        if step % 2:
            world.sync()
    assert len(went) > 4 and there == 20
