from __future__ import annotations

import pytest

from acquit.client.url import Target, parse_url
from acquit.errors import ConfigurationError


@pytest.mark.parametrize(
    ("url", "target"),
    [
        ("amqp://localhost", Target("localhost", 5672, False, None, None)),
        ("amqp://localhost/", Target("localhost", 5672, False, None, None)),
        ("amqps://broker.example", Target("broker.example", 5671, True, None, None)),
        ("amqp://127.0.0.1:10000", Target("127.0.0.1", 10000, False, None, None)),
        ("AMQP://Broker.Example:1", Target("broker.example", 1, False, None, None)),
        ("amqp://[::1]:5000", Target("::1", 5000, False, None, None)),
        ("amqp://ann@host", Target("host", 5672, False, "ann", None)),
        ("amqp://ann:secret@host", Target("host", 5672, False, "ann", "secret")),
        ("amqp://ann:@host", Target("host", 5672, False, "ann", "")),
        ("amqp://a%40b:p%3A%2F%20@host", Target("host", 5672, False, "a@b", "p:/ ")),
    ],
)
def test_a_url_says_where_and_as_whom(url: str, target: Target) -> None:
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
        ("amqp://host:port", "cannot be read"),
        ("amqp://host:70000", "cannot be read"),
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
    assert "secret" not in str(caught.value)


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
    assert target.authenticated("bob", "other") == Target("host", 5672, False, "bob", "other")
    assert target.authenticated(None, "other") == Target("host", 5672, False, "ann", "other")
    with pytest.raises(ConfigurationError, match="a password is given without a user"):
        parse_url("amqp://host").authenticated(None, "other")
