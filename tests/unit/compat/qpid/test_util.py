"""Where a broker is."""

from __future__ import annotations

import pytest

from acquit.compat.qpid.util import URL


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("host", (None, None, None, "host", None)),
        ("host:1", (None, None, None, "host", 1)),
        ("user@host", (None, "user", None, "host", None)),
        ("user/pass@host:1", (None, "user", "pass", "host", 1)),
        ("user/p/a:s@host", (None, "user", "p/a:s", "host", None)),
        ("amqp://host", ("amqp", None, None, "host", None)),
        ("amqps://user/pass@host:1", ("amqps", "user", "pass", "host", 1)),
        ("amqp://us%65r:p%40ss@host/", ("amqp", "user", "p@ss", "host", None)),
        ("amqp:tcp:host:1", ("amqp", None, None, "host", 1)),
        ("[::1]", (None, None, None, "::1", None)),
        ("user/pass@[::1]:1", (None, "user", "pass", "::1", 1)),
    ],
)
def test_the_parts(text: str, expected: object) -> None:
    url = URL(text)
    assert (url.scheme, url.user, url.password, url.host, url.port) == expected


@pytest.mark.parametrize("text", ["", "user@", "host:port", "http://host", "host:1:2", "a b", "[::1", "host/queue"])
def test_what_is_none(text: str) -> None:
    with pytest.raises(ValueError, match="not a URL of the form"):
        URL(text)


def test_urls_as_text() -> None:
    text = "amqp://user/pass@[::1]:1"
    assert str(URL(text)) == text and URL(URL(text)) == URL(text) == text
    assert URL(text) != URL("host") and len({URL(text), URL(text)}) == 1


def test_passwords_are_not_shown() -> None:
    assert repr(URL("amqp://user/secret@host")) == "URL('user@host')"
    with pytest.raises(ValueError, match="not a URL") as caught:
        URL("user/secret@host:port")
    assert "secret" not in str(caught.value)
