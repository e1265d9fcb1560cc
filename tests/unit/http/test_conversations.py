"""Which connection gives way where there are too many.

One is answered before the next one connects: a connection that is on its way to its protocol may count twice.
"""

from __future__ import annotations

import http.client
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from urllib.parse import urlsplit

import pytest

import acquit
from acquit.broker.options import BrokerOptions, Http
from tests.support.http import TIMEOUT_S

Connect = Callable[[], http.client.HTTPConnection]
UPLOAD = b'{"body": "what somebody posts"}'


@pytest.fixture
def connect() -> Iterator[Connect]:
    """Connect to a broker that has three connections at once."""
    options = BrokerOptions(http=Http(port=0, connections_max=3)).with_small_journal()
    with acquit.Broker(config=options) as broker, ExitStack() as stack:

        def connected() -> http.client.HTTPConnection:
            made = http.client.HTTPConnection(urlsplit(str(broker.http_url)).netloc, timeout=TIMEOUT_S)
            made.auto_open = 0
            made.connect()
            return stack.enter_context(closing(made))

        yield connected


def is_answered(made: http.client.HTTPConnection) -> bool:
    """Ask for something. False: the connection is closed."""
    try:
        made.request("GET", "/healthz")
        answer = made.getresponse()
        return bool(answer.read()) and answer.status == 200
    except (ConnectionError, http.client.NotConnected):
        return False


def answered(made: http.client.HTTPConnection) -> http.client.HTTPConnection:
    """Ask for something, and return the connection, which stays."""
    assert is_answered(made)
    return made


def test_the_one_that_has_been_idle_longest_gives_way(connect: Connect) -> None:
    first, second, third = (answered(connect()) for _ in range(3))
    answered(first)  # it has been idle for less time than the others from now on
    answered(connect())
    assert not is_answered(second)
    answered(first)
    answered(connect())
    assert not is_answered(third)
    answered(first)


def test_one_that_has_said_nothing_yet_is_idle(connect: Connect) -> None:
    first, silent = answered(connect()), connect()
    for _ in range(3):
        answered(first)
    third = answered(connect())
    answered(connect())
    assert not is_answered(silent)
    assert is_answered(first) and is_answered(third)


@pytest.mark.parametrize("sent", [0, 10], ids=["the head", "a part"])
def test_an_upload_is_not_idle(connect: Connect, sent: int) -> None:
    uploading = connect()
    uploading.putrequest("POST", "/api/v1/queues/q/messages")
    for name, value in (("Content-Type", "application/json"), ("Content-Length", str(len(UPLOAD)))):
        uploading.putheader(name, value)
    uploading.endheaders(UPLOAD[:sent])
    second, third = (answered(connect()) for _ in range(2))
    answered(connect())
    assert not is_answered(second)
    answered(third)
    uploading.send(UPLOAD[sent:])
    assert uploading.getresponse().status == 404, "there is no such queue, which only who has sent it all is told"


def test_where_none_is_idle_one_in_the_midst_of_a_request_gives_way(connect: Connect) -> None:
    for slow in (connect(), connect(), connect()):
        slow.send(b"GET /healthz HT")
    answered(connect())
