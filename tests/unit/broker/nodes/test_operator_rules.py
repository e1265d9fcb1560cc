"""Rules that operators give a running broker."""

from __future__ import annotations

from dataclasses import replace

import pytest

from acquit.broker.nodes.operator_rules import RULES_MAX
from acquit.broker.options import AddressRule, BrokerOptions
from acquit.broker.refusal import Refused
from acquit.errors import ConfigurationError
from acquit.ledger.records import Namespace, State
from tests.support.broker_world import World, after_kill

CONFIGURED = BrokerOptions(address=(AddressRule("orders", {"messages_max": 7, "max_delivery_attempts": 5}),))


def limits_of(world: World) -> tuple[int, int]:
    policy = world.core.policies.policy_of("orders")
    return policy.messages_max, policy.max_delivery_attempts


def test_a_rule_counts_before_the_configurations_and_for_queues_that_are_there() -> None:
    world = World(CONFIGURED)
    world.client().sender("orders", "first")
    rules = world.core._operator_rules
    rules.put("orders", {"messages_max": 3})
    assert limits_of(world) == (3, 5)
    assert world.core.queues.by_name["orders"].policy.messages_max == 3
    rules.put("#", {"messages_max": 4, "max_delivery_attempts": 4})
    assert limits_of(world) == (3, 5), "the more specific rule first, whoever gave it"
    rules.put("orders", {"max_delivery_attempts": 2})
    assert limits_of(world) == (7, 2), "in place of what was given before"
    rules.put("orders", {})
    assert limits_of(world) == (7, 5)
    assert [rule.match for rule in rules.rules] == ["#"]


def test_rules_outlive_a_restart_and_a_change_of_the_configuration() -> None:
    world = World(CONFIGURED)
    for match, settings in (("orders", {"messages_max": 3}), ("gone", {"create": False}), ("é.*", {"create": False})):
        world.core._operator_rules.put(match, settings)
    world.core._operator_rules.put("gone", {})
    world.settle()
    world = World(CONFIGURED, disk=after_kill(world.disk))
    assert [rule.match for rule in world.core._operator_rules.rules] == ["orders", "é.*"]
    assert limits_of(world) == (3, 5)
    world.core.apply(replace(CONFIGURED, address=(AddressRule("orders", {"messages_max": 9}),)))
    assert limits_of(world) == (3, 10)
    world.core._operator_rules.put("orders", {})
    assert limits_of(world) == (9, 10)


@pytest.mark.parametrize(
    ("match", "settings"),
    [
        ("orders", {"nonsense": 1}),
        ("orders", {"messages_max": -1}),
        ("orders", {"messages_max": "many"}),
        ("a..b", {"messages_max": 1}),
        ("orders", {"dead_letter_address": "a\0b"}),
        ("orders", {"dead_letter_address": "half a pair \ud800"}),
        ("orders", {"duplicate_window": 2.5}),
        ("orders", {"non_destructive": "no"}),
        ("orders", {"last_value": True, "last_value_key": 5}),
    ],
)
def test_what_cannot_be_changes_nothing(match: str, settings: dict[str, object]) -> None:
    world = World(CONFIGURED)
    world.core._operator_rules.put("orders", {"messages_max": 3})
    with pytest.raises(ConfigurationError):
        world.core._operator_rules.put(match, settings)
    assert limits_of(world) == (3, 5) and len(world.core._operator_rules.rules) == 1


def test_there_is_a_limit() -> None:
    world = World(CONFIGURED)
    rules = world.core._operator_rules
    rules._rules = {f"a{number}": AddressRule(f"a{number}") for number in range(RULES_MAX)}
    with pytest.raises(Refused, match="1000 rules"):
        rules.put("orders", {"messages_max": 3})
    rules.put("a7", {"messages_max": 3})


def test_a_rule_that_this_version_does_not_take_is_left_alone(caplog: pytest.LogCaptureFixture) -> None:
    world = World(CONFIGURED)
    world.core._operator_rules.put("orders", {"messages_max": 3})
    for key, value in (
        (b"orders.new", b'{"not_yet": 1}'),
        (b"orders.list", b"[1]"),
        (b"orders.number", b"1"),
        (b"orders.text", b"\xff"),
        (b"orders", b'{"duplicate_window": 2.5}'),
    ):
        world.opened.recorder.append(State(1, Namespace.ADDRESS, key, value))
    world.settle()
    world = World(CONFIGURED, disk=after_kill(world.disk))
    assert limits_of(world) == (7, 5) and not world.core._operator_rules.rules
    assert sum("left out" in record.getMessage() for record in caplog.records) == 5
    assert (Namespace.ADDRESS, b"orders.new") in world.opened.recorder.table.state
