"""Values that cannot work are refused by name; delays that grow stop growing."""

from __future__ import annotations

import pytest

from acquit.broker.options import AddressPolicy, AddressRule, BrokerLimits, BrokerOptions, ConnectionLimits, Security
from acquit.errors import ConfigurationError


def test_a_number_out_of_range_is_named() -> None:
    with pytest.raises(ConfigurationError, match="idle_timeout_ms: expected a number from 0 to 4294967295, found -1"):
        ConnectionLimits(idle_timeout_ms=-1)
    with pytest.raises(ConfigurationError, match="connections_max"):
        BrokerLimits(connections_max=0)
    with pytest.raises(ConfigurationError, match="anonymous: expected one of"):
        Security(anonymous="sometimes")  # type: ignore[arg-type]


def test_a_rule_knows_its_settings() -> None:
    with pytest.raises(ConfigurationError, match="bogus: no such setting"):
        AddressRule("a", {"bogus": 1})
    with pytest.raises(ConfigurationError, match="max_delivery_attempts"):
        AddressRule("a", {"max_delivery_attempts": -1})


def test_two_rules_for_one_pattern_are_one_too_many() -> None:
    with pytest.raises(ConfigurationError, match="expected one rule for each pattern"):
        BrokerOptions(address=(AddressRule("a"), AddressRule("a")))


def test_redelivery_delays() -> None:
    assert AddressPolicy().redelivery_delay(5) == 0
    fixed = AddressPolicy(redelivery_delay_ms=100)
    assert [fixed.redelivery_delay(attempt) for attempt in (1, 2, 60_000)] == [100, 100, 100]
    growing = AddressPolicy(redelivery_delay_ms=100, redelivery_multiplier=3.0)
    assert [growing.redelivery_delay(attempt) for attempt in (1, 2, 3, 4, 60_000)] == [100, 300, 900, 1_000, 1_000]
    longest = AddressPolicy(redelivery_delay_ms=100, redelivery_multiplier=1000.0, redelivery_delay_ms_max=5_000)
    assert longest.redelivery_delay(60_000) == 5_000
