"""Subscriptions of topics: their links are named as Qpid JMS names them."""

from __future__ import annotations

import pytest

from acquit.client.subscriptions import Subscription
from acquit.errors import ConfigurationError


@pytest.mark.parametrize(
    ("subscription", "named", "names", "first"),
    [
        (Subscription(name="s"), True, ["s", "s"], "s"),
        (Subscription(name="s", shared=True), True, ["s", "s|2", "s|3"], "s"),
        (Subscription(name="s", shared=True), False, ["s|global", "s|global2", "s|global3"], "s|global"),
        (Subscription(name="s", durable=False, shared=True), True, ["s|volatile1", "s|volatile2"], "s"),
        (Subscription(name="s", durable=False, shared=True), False, ["s|global-volatile1"], "s|global"),
    ],
)
def test_link_names(subscription: Subscription, named: bool, names: list[str], first: str) -> None:
    taken: set[str] = set()
    for name in names:
        assert subscription.link_name(taken, named=named) == name
        taken.add(name)
    assert subscription.first_link_name(named=named) == first


def test_an_exclusive_durable_subscription_needs_a_container_with_a_name() -> None:
    with pytest.raises(ConfigurationError, match="connect with a container_id"):
        Subscription(name="s").link_name((), named=False)


@pytest.mark.parametrize("arguments", [{"name": ""}, {"name": "a|b"}, {"name": "s", "durable": False}])
def test_a_subscription_that_makes_no_sense(arguments: dict[str, object]) -> None:
    with pytest.raises(ConfigurationError, match="subscription"):
        Subscription(**arguments)  # type: ignore[arg-type]
