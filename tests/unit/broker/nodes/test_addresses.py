"""Patterns, and the policy that they make together."""

from __future__ import annotations

import re

import pytest

from acquit.broker.nodes import addresses
from acquit.broker.nodes.addresses import Policies, address_fault, is_pattern, matches, specificity, topic_fault
from acquit.broker.options import AddressPolicy, AddressRule
from acquit.errors import ConfigurationError


@pytest.mark.parametrize(
    ("pattern", "address", "expected"),
    [
        ("a.b", "a.b", True),
        ("a.b", "a.c", False),
        ("a.*", "a.b", True),
        ("a.*", "a", False),
        ("a.*", "a.b.c", False),
        ("*", "a", True),
        ("#", "a", True),
        ("#", "a.b.c", True),
        ("a.#", "a", True),
        ("a.#", "a.b.c", True),
        ("a.#", "ab", False),
        ("#.z", "z", True),
        ("#.z", "a.b.z", True),
        ("#.z", "a.z.b", False),
        ("a.#.z", "a.z", True),
        ("a.#.z", "a.b.z.c.z", True),
        ("a.*.#", "a", False),
        ("a.*.#", "a.b", True),
        ("#.*.#", "a", True),
        ("#.#", "a.b", True),
    ],
)
def test_patterns(pattern: str, address: str, expected: bool) -> None:
    assert matches(pattern, address) is expected


def test_matching_takes_no_exponential_time() -> None:
    assert not matches(".".join(["#", "a"] * 30), ".".join(["a"] * 200 + ["b"]))


def test_the_most_specific_pattern_comes_first() -> None:
    patterns = ["#", "*", "orders.#", "orders.*", "orders.eu", "orders.*.urgent", "#.urgent"]
    assert sorted(patterns, key=specificity) == [
        "orders.eu",
        "orders.*.urgent",
        "orders.*",
        "#.urgent",
        "orders.#",
        "*",
        "#",
    ]


def test_each_setting_comes_from_the_most_specific_rule_that_has_it() -> None:
    policies = Policies(
        (
            AddressRule("#", {"max_delivery_attempts": 1, "create": False}),
            AddressRule("orders.eu", {"create": True}),
            AddressRule("orders.#", {"max_delivery_attempts": 5}),
        )
    )
    policy = policies.policy_of("orders.eu")
    assert (policy.create, policy.max_delivery_attempts, policy.connection_loss) == (True, 5, "count")
    assert policies.policy_of("other").max_delivery_attempts == 1


def test_a_policy_is_made_once_for_all_addresses_that_have_it_and_stays_while_it_says_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    policies = Policies((AddressRule("orders.#", {"max_releases": 5}),))
    made: list[dict[str, object]] = []

    def make(**settings: object) -> AddressPolicy:
        made.append(settings)
        return AddressPolicy(**settings)  # type: ignore[arg-type]

    monkeypatch.setattr(addresses, "AddressPolicy", make)
    before = {id(policies.policy_of(f"orders.{at}")) for at in range(50)}
    assert len(made) == len(before) == 1
    policies.override((AddressRule("other", {"max_releases": 5}),))
    assert {id(policies.policy_of(f"orders.{at}")) for at in range(50)} == before
    assert len(made) == 3, "two that each set of rules begins with, to know its defaults, included"


def test_policies_that_are_remembered_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(addresses, "POLICIES_KEPT", 3)
    policies = Policies(())
    for releases in range(10):
        policies.override((AddressRule("q", {"max_releases": releases}),))
        assert policies.policy_of("q").max_releases == releases
    assert len(policies._known) <= 3


def test_where_dead_letters_go_they_end() -> None:
    limits: dict[str, object] = {"max_delivery_attempts": 2, "max_releases": 2}
    policies = Policies((AddressRule("#", limits), AddressRule("orders.#", {"dead_letter_address": "orders.dead"})))
    assert policies.policy_of("orders.eu").dead_letter_address == "orders.dead"
    for address in ("orders.dead", "DLQ", "ExpiryQueue"):
        assert policies.policy_of(address).dead_letter_address == ""
        assert policies.policy_of(address).expiry_address == ""
        assert policies.policy_of(address).max_delivery_attempts == 0
        assert policies.policy_of(address).max_releases == 0


@pytest.mark.parametrize("setting", ["dead_letter_address", "expiry_address"])
@pytest.mark.parametrize("address", ["$dead", "::", "q::q", "t::q", "*", "dead.#"])
def test_an_address_that_no_link_would_find_is_refused(setting: str, address: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(repr(address))):
        Policies((AddressRule("#", {setting: address}),))


@pytest.mark.parametrize("address", ["", "a\nb", "x" * 2_000, "$queue"])
def test_what_is_no_address(address: str) -> None:
    assert address_fault(address)


@pytest.mark.parametrize("address", ["a", "orders.eu", "mit Umläuten", "a/b?c=d"])
def test_what_is_one(address: str) -> None:
    assert address_fault(address) is None


@pytest.mark.parametrize(
    ("pattern", "other", "covers"),
    [
        ("a.*", "a.b", True),
        ("a.*", "a.*", True),
        ("a.*", "a.#", False),
        ("a.#", "a.#", True),
        ("a.#", "a.*.c", True),
        ("#", "*.#", True),
        ("*", "#", False),
        ("*.#", "#", False),
        ("a.#.b", "a.*.b", True),
        ("a.#.b", "a.#", False),
    ],
)
def test_a_pattern_matches_another_only_where_it_matches_all_that_one_does(
    pattern: str, other: str, covers: bool
) -> None:
    assert matches(pattern, other) is covers


@pytest.mark.parametrize(
    ("address", "pattern"),
    [("a", False), ("a.*", True), ("#", True), ("a.#.b", True), ("a*b.c", False), ("#1", False), ("", False)],
)
def test_what_is_a_pattern(address: str, pattern: bool) -> None:
    assert is_pattern(address) is pattern


def test_a_topic_has_a_bounded_number_of_words() -> None:
    assert topic_fault(".".join("a" * 64)) is None
    assert "64" in str(topic_fault(".".join("a" * 65)))
    assert topic_fault("") == address_fault("")
