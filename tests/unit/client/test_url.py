from __future__ import annotations

import traceback

import pytest

from acquit.client.reconnecting import Reconnect
from acquit.client.url import ConnectTarget, parse_url, parse_urls
from acquit.errors import ConfigurationError


@pytest.mark.parametrize(
    ("url", "target"),
    [
        ("amqp://localhost", ConnectTarget("localhost", 5672, False, None, None)),
        ("amqp://localhost/", ConnectTarget("localhost", 5672, False, None, None)),
        ("amqps://broker.example", ConnectTarget("broker.example", 5671, True, None, None)),
        ("amqp://127.0.0.1:10000", ConnectTarget("127.0.0.1", 10000, False, None, None)),
        ("AMQP://Broker.Example:1", ConnectTarget("broker.example", 1, False, None, None)),
        ("amqp://[::1]:5000", ConnectTarget("::1", 5000, False, None, None)),
        ("amqp://ann@host", ConnectTarget("host", 5672, False, "ann", None)),
        ("amqp://ann:secret@host", ConnectTarget("host", 5672, False, "ann", "secret")),
        ("amqp://ann:@host", ConnectTarget("host", 5672, False, "ann", "")),
        ("amqp://a%40b:p%3A%2F%20@host", ConnectTarget("host", 5672, False, "a@b", "p:/ ")),
    ],
)
def test_a_url_says_where_and_as_whom(url: str, target: ConnectTarget) -> None:
    assert parse_url(url) == target


@pytest.mark.parametrize(
    ("url", "complaint"),
    [
        ("localhost:5672", "does not begin with amqp://"),
        ("localhost", "does not begin with amqp://"),
        ("http://localhost", "does not begin with amqp://"),
        ("amqp:localhost", "does not begin with amqp://"),
        ("amqp://", "names no host"),
        ("amqp://:5672", "names no host"),
        ("amqp://host:port", "its port is no number from 1 to 65535"),
        ("amqp://host:70000", "its port is no number from 1 to 65535"),
        ("amqp://ann:secret/x@host", "In a user or password, / .* are written %2F"),
        ("amqp://ann:secret?x@host:1", "In a user or password, / .* are written %2F"),
        ("amqp://ann:secret#x@host", "In a user or password, / .* are written %2F"),
        ("amqp://ann:secret[x@host", "In a user or password, / .* are written %2F"),
        ("amqp://ann:secret\u2100@host", "In a user or password, / .* are written %2F"),
        ("amqp://ann:secret", "its port is no number"),
        ("amqp://host:0", "port 0"),
        ("amqp://host/queue", "Addresses are given to sender"),
        ("amqp://host?x=1", "goes on behind the port"),
        ("amqp://host#x", "goes on behind the port"),
        ("amqp://:secret@host", "a password without a user"),
        ("amqp://[::1", "cannot be read"),
        ("", "does not begin with amqp://"),
    ],
)
def test_a_url_that_is_none_is_refused_with_what_is_expected(url: str, complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=complaint) as caught:
        parse_url(url)
    assert "expected amqp://[user[:password]@]host[:port]" in str(caught.value)
    assert "secret" not in "".join(traceback.format_exception(caught.value))
    assert caught.value.__context__ is None, "it would say more"


def test_what_is_no_string_is_named() -> None:
    with pytest.raises(ConfigurationError, match="a URL is a string, got int"):
        parse_url(5672)  # type: ignore[arg-type]


def test_the_password_stays_out_of_logs() -> None:
    target = parse_url("amqp://ann:secret@host")
    assert "secret" not in repr(target)
    assert target.where == "host:5672"
    assert parse_url("amqp://[::1]").where == "[::1]:5672"


def test_user_and_password_beside_the_url_win() -> None:
    target = parse_url("amqp://ann:secret@host")
    assert target.authenticated(None, None) is target
    assert target.authenticated("bob", "other") == ConnectTarget("host", 5672, False, "bob", "other")
    assert target.authenticated(None, "other") == ConnectTarget("host", 5672, False, "ann", "other")
    with pytest.raises(ConfigurationError, match="a password is given without a user"):
        parse_url("amqp://host").authenticated(None, "other")


# -- several hosts -----------------------------------------------------------------------------------------------------


def places(urls: str | list[str], reconnect: Reconnect | None = None) -> list[str]:
    return [target.where for target in parse_urls(urls, reconnect).targets]


def test_several_hosts() -> None:
    assert places("amqp://one") == ["one:5672"]
    assert places(["amqp://one", "amqps://two:7"]) == ["one:5672", "two:7"]
    assert places("failover:(amqp://one,amqps://two:7)") == ["one:5672", "two:7"]
    assert places("failover:amqp://one, amqp://two") == ["one:5672", "two:5672"]
    assert places("failover://(amqp://one,amqp://[::1]:7)?failover.randomize=true") == ["one:5672", "[::1]:7"]


def test_options_of_jms_users() -> None:
    query = (
        "failover.initialReconnectDelay=5&failover.reconnectDelay=20&failover.maxReconnectDelay=4000"
        "&failover.reconnectBackOffMultiplier=3.0&failover.maxReconnectAttempts=7"
        "&failover.startupMaxReconnectAttempts=2&failover.warnAfterReconnectAttempts=9&failover.randomize=true"
    )
    found = parse_urls(f"failover:(amqp://one)?{query}", Reconnect(outage_max_ms=9)).reconnect
    assert found == Reconnect(
        delay_ms=20, delay_max_ms=4000, multiplier=3.0, rounds_max=7, first_rounds=2, shuffle=True, outage_max_ms=9
    )
    linear = parse_urls("failover:(amqp://one)?failover.useReconnectBackOff=false", None).reconnect
    assert linear == Reconnect(multiplier=1, first_rounds=0)
    assert parse_urls("failover:(amqp://one)?failover.maxReconnectAttempts=0", Reconnect()).reconnect is None
    assert parse_urls("amqp://one", None).reconnect is None


@pytest.mark.parametrize(
    ("urls", "message"),
    [
        ([], "the list of URLs is empty"),
        (["amqp://one", "two"], "does not begin with amqp:// or amqps://"),
        ("failover:()", "failover: names no host, or an empty one"),
        ("failover:(amqp://one,,amqp://two)", "failover: names no host, or an empty one"),
        ("failover:(amqp://one,amqp://ann:sec,ret@two)", "its port is no number"),
        ("failover:(amqp://one", "failover: one parenthesis is missing"),
        ("failover:amqp://one)", "failover: one parenthesis is missing"),
        ("failover://(amqp://one", "failover: one parenthesis is missing"),
        ("failover:(amqp://one)x=1", r"what follows the list of hosts must begin with \?"),
        ("failover:(amqp://one)?failover.nothing=1", "no option 'failover.nothing'; expected one of failover.init"),
        ("failover:(amqp://one)?failover.maxReconnectAttempts=many", "failover.maxReconnectAttempts cannot be 'many'"),
        ("failover:(amqp://one)?failover.randomize=2", "failover.randomize cannot be '2'"),
        ("failover:(amqp://one)?failover.reconnectBackOffMultiplier=0.1", "multiplier must be a number from 1"),
    ],
)
def test_lists_that_cannot_be_read(urls: str | list[str], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        parse_urls(urls, None)


def test_a_user_beside_the_urls_is_the_user_of_every_host() -> None:
    found = parse_urls(["amqp://one", "amqp://me:mine@two"], None).authenticated("you", "yours")
    assert [(target.username, target.password) for target in found.targets] == [("you", "yours")] * 2
