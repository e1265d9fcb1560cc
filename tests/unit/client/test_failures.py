from __future__ import annotations

from typing import cast

import pytest

from acquit import errors
from acquit.client.failures import Failure, connection_failure, link_failure, session_failure
from acquit.protocol import events as ev
from acquit.protocol.definitions import Error
from acquit.protocol.link import Link
from acquit.protocol.session import Session

LINK = cast(Link, None)
SESSION = cast(Session, None)


@pytest.mark.pure
@pytest.mark.parametrize(
    ("condition", "kind"),
    [
        ("amqp:not-found", errors.NotFound),
        ("amqp:unauthorized-access", errors.Unauthorized),
        ("amqp:link:stolen", errors.LinkStolen),
        ("amqp:resource-limit-exceeded", errors.LimitReached),
        ("amqp:link:message-size-exceeded", errors.MessageTooLarge),
        ("amqp:resource-deleted", errors.ResourceDeleted),
        ("amqp:resource-locked", errors.ResourceLocked),
        ("amqp:link:detach-forced", errors.LinkDetached),
        ("com.example:own", errors.LinkDetached),
    ],
)
def test_a_condition_has_its_error(condition: str, kind: type[errors.LinkDetached]) -> None:
    failure = link_failure(ev.LinkDetached(LINK, True, Error(condition, "why"), True, []), "the receiver from 'q'")
    error = failure.error()
    assert type(error) is kind
    assert str(error) == f"the receiver from 'q' was detached by the peer: why ({condition})"
    assert (error.condition, error.description, error.remote) == (condition, "why", True)
    assert not failure.orderly


@pytest.mark.pure
def test_each_who_asks_gets_an_exception_of_his_own() -> None:
    failure = link_failure(ev.LinkDetached(LINK, True, None, False, []), "x")
    assert failure.error() is not failure.error()


@pytest.mark.pure
def test_what_we_asked_for_is_orderly() -> None:
    assert link_failure(ev.LinkDetached(LINK, True, None, False, []), "x").orderly
    assert not link_failure(ev.LinkDetached(LINK, True, None, True, []), "x").orderly
    assert session_failure(ev.SessionEnded(SESSION, None, False)).orderly
    assert connection_failure(ev.ConnectionEnded(None, lost=False, remote=False), "host:1").orderly
    assert not connection_failure(ev.ConnectionEnded(None, lost=True, remote=False), "host:1").orderly
    assert not Failure(errors.ConnectionLost, "a failure of our own").orderly


@pytest.mark.parametrize(
    ("event", "kind", "text"),
    [
        (
            ev.ConnectionEnded(None, lost=True, remote=True),
            errors.ConnectionLost,
            "the connection to host:1 was lost",
        ),
        (
            ev.ConnectionEnded(Error("amqp:resource-limit-exceeded", "silent"), lost=True, remote=False),
            errors.ConnectionLost,
            "the connection to host:1 was ended by us: silent (amqp:resource-limit-exceeded)",
        ),
        (
            ev.ConnectionEnded(Error("amqp:connection:forced"), lost=False, remote=True),
            errors.ConnectionClosed,
            "the connection to host:1 was closed by the peer: amqp:connection:forced",
        ),
        (
            ev.ConnectionEnded(None, lost=False, remote=False),
            errors.ConnectionClosed,
            "the connection to host:1 was closed by us",
        ),
        (
            ev.ConnectionEnded(Error("amqp:unauthorized-access", "AUTH"), lost=False, remote=True, authentication=True),
            errors.AuthenticationFailed,
            "host:1 refused to authenticate us: AUTH",
        ),
    ],
)
def test_the_end_of_a_connection(event: ev.ConnectionEnded, kind: type[errors.EndpointError], text: str) -> None:
    error = connection_failure(event, "host:1").error()
    assert type(error) is kind
    assert str(error) == text


@pytest.mark.pure
def test_the_end_of_a_session() -> None:
    error = session_failure(ev.SessionEnded(SESSION, Error("amqp:session:window-violation"), True)).error()
    assert type(error) is errors.SessionEnded
    assert str(error) == "the session was ended by the peer: amqp:session:window-violation"
