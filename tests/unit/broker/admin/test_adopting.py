"""The coming of topics and queues to other policies."""

from __future__ import annotations

from itertools import pairwise

from acquit.broker.admin.adopting import LOOKED_AT, RULES
from acquit.broker.options import AddressRule, BrokerOptions
from tests.support.broker_world import World

COUNT = 3 * LOOKED_AT


def full_of_queues(rules: int = 0) -> World:
    """Return a broker with three steps' queues."""
    world = World(BrokerOptions(address=tuple(AddressRule(f"other{at}", {"messages_max": 9}) for at in range(rules))))
    for at in range(COUNT):
        world.core.queues.make(f"q{at}", f"q{at}", 0, auto_created=False)
    world.settle()
    return world


def adopted(world: World, attempts: int) -> int:
    return sum(queue.policy.max_delivery_attempts == attempts for queue in world.core.queues.by_name.values())


def test_a_turn_looks_at_a_bounded_number_of_queues_and_the_answer_comes_when_all_have_changed() -> None:
    world = full_of_queues()
    told: list[str] = []
    world.core.administration.put_rule("#", {"max_delivery_attempts": 3}).when_finished(lambda _: told.append("told"))
    seen = [adopted(world, 3)]
    while world.core.administration.adoption.run():
        seen.append(adopted(world, 3))
    assert [*seen, adopted(world, 3)] == [LOOKED_AT, 2 * LOOKED_AT, COUNT] and not told
    world.settle()
    assert told == ["told"]
    assert world.core.policies.policy_of("new").max_delivery_attempts == 3


def test_where_there_are_many_rules_a_turn_looks_at_fewer() -> None:
    world = full_of_queues(rules=10 * RULES - 1)
    world.core.administration.put_rule("#", {"max_delivery_attempts": 3})
    assert adopted(world, 3) == LOOKED_AT // 10


def test_changes_without_end_keep_nobody_waiting() -> None:
    world = full_of_queues()
    told: list[int] = []
    administration = world.core.administration

    def put(number: int) -> None:
        later = administration.put_rule("#", {"max_delivery_attempts": 3, "messages_max": 100 + number})
        later.when_finished(lambda _: tell(number))

    def tell(number: int) -> None:
        told.append(number)
        assert min(queue.policy.messages_max for queue in world.core.queues.by_name.values()) >= 100 + number

    put(0)
    for number in range(1, 40):
        put(number)
        administration.adoption.run()
        world.sync()
    assert len(told) > 20
    assert told == sorted(told)
    while administration.adoption.run():
        pass
    world.settle()
    assert told == list(range(40))
    assert {queue.policy.messages_max for queue in world.core.queues.by_name.values()} == {139}


def test_rules_that_come_under_way_make_each_step_smaller() -> None:
    world = full_of_queues()
    world.core.administration.put_rule("#", {"max_delivery_attempts": 3})
    world.core.apply(
        BrokerOptions(address=tuple(AddressRule(f"more{at}", {"ring_size": 1}) for at in range(10 * RULES)))
    )
    seen = [adopted(world, 3)]
    while world.core.administration.adoption.run():
        seen.append(adopted(world, 3))
    steps = [after - before for before, after in pairwise(seen)]
    assert 0 < max(steps[1:]) <= LOOKED_AT // 10


def test_a_second_change_under_way_comes_behind_the_first_and_both_are_answered_in_the_end() -> None:
    world = full_of_queues()
    told: list[object] = []
    for attempts in (3, 4):
        later = world.core.administration.put_rule("#", {"max_delivery_attempts": attempts, "ring_size": 1})
        later.when_finished(told.append)
    gone = world.core.queues.by_name[f"q{COUNT - 1}"]
    world.core.removal.remove(gone, 0)
    world.settle()
    assert (adopted(world, 3), adopted(world, 4), len(told)) == (0, COUNT - 1, 2)
    assert gone.policy.max_delivery_attempts == 10


def test_what_is_the_same_policy_wakes_no_queue() -> None:
    world = full_of_queues()
    policies = {id(queue.policy) for queue in world.core.queues.by_name.values()}
    world.core.life.dirty.clear()
    world.core.apply(world.core.options)
    while world.core.administration.adoption.run():
        pass
    assert not world.core.life.dirty
    assert {id(queue.policy) for queue in world.core.queues.by_name.values()} == policies
