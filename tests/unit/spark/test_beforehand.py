"""Queues that are not there: named, with those whose names are close, and not made by asking; and selectors."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import acquit
from acquit.broker.options import BrokerOptions, Role, Security, User
from acquit.errors import ConfigurationError, ConnectTimeout
from acquit.spark.beforehand import CREATE_ADVICE, check_beforehand, refuse_missing
from acquit.spark.browse_options import BrowseOptions
from acquit.store.options import JournalOptions


@pytest.fixture(scope="module")
def stocked() -> Iterator[acquit.Broker]:
    """With the queues orders, orders.eu and returns, and the topic prices with the subscription mine."""
    roles = {
        "limited": Role(browse=("orders",), consume=("#",), create=("#",)),
        "all": Role(browse=("#",), manage=("#",)),
    }
    users = {"eve": User(password="x", roles=("limited",)), "root": User(password="x", roles=("all",))}
    config = BrokerOptions(
        security=Security(anonymous="never", users=users, roles=roles), journal=JournalOptions.small()
    )
    with acquit.Broker(config=config) as broker:
        with acquit.connect(broker.url, username="eve", password="x") as connection, connection.session() as session:
            for name in ("orders", "orders.eu", "returns"):
                session.receiver(name)
            session.receiver("prices", topic=True, subscription=acquit.Subscription(name="mine", shared=True))
        yield broker


def ask(broker: acquit.Broker, *addresses: str, user: str = "root", advice: str = CREATE_ADVICE) -> None:
    options = BrowseOptions.parse({"url": broker.url, "addresses": ",".join(addresses)})
    with acquit.connect(broker.url, username=user, password="x") as connection:
        refuse_missing(connection, options, advice=advice)


def names(broker: acquit.Broker) -> set[str]:
    return {queue.name for queue in broker.inspect().queues}


def test_what_is_there(stocked: acquit.Broker) -> None:
    ask(stocked, "orders", "returns", "orders::orders", "prices")
    subscription = next(name for name in names(stocked) if name.startswith("prices::"))
    ask(stocked, subscription)


@pytest.mark.parametrize(
    ("addresses", "said"),
    [
        (("ordres",), "there is no queue 'ordres' at {}; did you mean 'orders' or 'orders.eu'? (with the option"),
        (("orders", "retuns"), "there is no queue 'retuns' at {}; did you mean 'returns'? (with the option create"),
        (("ordres", "retuns"), "there are no queues 'ordres', 'retuns' at {}; did you mean 'orders' or 'orders.eu' or"),
        (("zzz",), "there is no queue 'zzz' at {} (with the option create = true (--create) it would be made)"),
        (("orders::zzz",), "there is no queue 'orders::zzz' at {}"),
    ],
)
def test_what_is_not(stocked: acquit.Broker, addresses: tuple[str, ...], said: str) -> None:
    before = names(stocked)
    with pytest.raises(ConfigurationError) as caught:
        ask(stocked, *addresses)
    assert str(caught.value).startswith(said.format(stocked.url))
    assert "\n" not in str(caught.value)
    assert names(stocked) == before


def test_without_advice(stocked: acquit.Broker) -> None:
    with pytest.raises(ConfigurationError, match=f"^there is no queue 'zzz' at {stocked.url}$"):
        ask(stocked, "zzz", advice="")


def test_only_queues_that_the_user_may_know_of_are_named(stocked: acquit.Broker) -> None:
    ask(stocked, "retuns", user="eve")  # may not be asked about: to attach to it says what is wrong
    ask(stocked, "orders", user="eve")


def test_a_broker_without_an_answer_is_not_waited_for_for_ever(
    stocked: acquit.Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("acquit.client.blocking.Receiver.receive", lambda *_, **__: None)
    with pytest.raises(ConnectTimeout, match="does not say which queues it has, within 30 s"):
        ask(stocked, "orders")


def test_both_are_asked_for_what_was_given(stocked: acquit.Broker) -> None:
    given = {"url": stocked.url, "addresses": "orders,new"}
    with acquit.connect(stocked.url, username="root", password="x") as connection:
        for more, complaint in (
            ({}, "there is no queue 'new'"),
            ({"selector": "a ="}, "there is no queue 'new'"),
            ({"selector": "a =", "create": "true"}, "option selector = 'a =': .*character 4: found the end"),
        ):
            with pytest.raises(ConfigurationError, match=complaint):
                check_beforehand(connection, BrowseOptions.parse(given | more))
        for more in ({"create": "true"}, {"create": "true", "selector": "a = 1"}):
            check_beforehand(connection, BrowseOptions.parse(given | more))
    assert "new" not in names(stocked)
