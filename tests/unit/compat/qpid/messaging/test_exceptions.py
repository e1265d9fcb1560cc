"""The exceptions, as programs know them."""

from __future__ import annotations

import builtins

import pytest

from acquit.compat.qpid.messaging import exceptions


@pytest.mark.parametrize(
    ("name", "bases"),
    [
        ("Empty", "FetchError ReceiverError LinkError MessagingError"),
        ("TargetCapacityExceeded", "SendError SenderError LinkError MessagingError"),
        ("NotFound", "ResolutionError AddressError LinkError MessagingError"),
        ("AssertionFailed", "ResolutionError AddressError LinkError MessagingError"),
        ("MalformedAddress", "AddressError LinkError MessagingError"),
        ("InvalidOption", "AddressError LinkError MessagingError"),
        ("InsufficientCapacity", "LinkError MessagingError"),
        ("LinkClosed", "LinkError MessagingError"),
        ("AuthenticationFailure", "ConnectError ConnectionError MessagingError"),
        ("VersionError", "ConnectError ConnectionError MessagingError"),
        ("ConnectionClosed", "ConnectionError MessagingError"),
        ("HeartbeatTimeout", "ConnectionError MessagingError"),
        ("TransactionAborted", "TransactionError SessionError MessagingError"),
        ("TransactionUnknown", "TransactionError SessionError MessagingError"),
        ("NontransactionalSession", "SessionError MessagingError"),
        ("UnauthorizedAccess", "SessionError MessagingError"),
        ("ServerError", "SessionError MessagingError"),
        ("SessionClosed", "SessionError MessagingError"),
        ("Detached", "SessionError MessagingError"),
        ("EncodeError", "ContentError MessagingError"),
        ("DecodeError", "ContentError MessagingError"),
        ("InternalError", "MessagingError"),
    ],
)
def test_what_catches_what(name: str, bases: str) -> None:
    names = [base.__name__ for base in getattr(exceptions, name).__mro__[1:]]
    assert names == [*bases.split(), "Exception", "BaseException", "object"]


def test_a_time_out_is_no_messaging_error() -> None:
    assert exceptions.Timeout.__mro__[1] is Exception


def test_the_connection_s_error_is_not_python_s() -> None:
    assert not issubclass(exceptions.ConnectionError, builtins.ConnectionError)


def test_an_error_says_its_text_its_code_and_more() -> None:
    error = exceptions.MessagingError("amqp:not-found", "no such queue", queue="q")
    assert (error.code, error.text, error.info) == ("amqp:not-found", "no such queue", {"queue": "q"})
    assert str(error) == "no such queue(amqp:not-found) queue='q'"
    assert str(exceptions.MessagingError(text="gone")) == "gone"
