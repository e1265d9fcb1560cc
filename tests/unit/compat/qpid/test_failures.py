"""The API's exceptions for those of our client."""

from __future__ import annotations

import pytest

from acquit import errors
from acquit.compat.qpid.failures import translated
from acquit.compat.qpid.messaging import exceptions as ours


@pytest.mark.parametrize(
    ("error", "link", "expected"),
    [
        (errors.AuthenticationFailed("x"), ours.LinkError, ours.AuthenticationFailure),
        (errors.ConnectTimeout("x"), ours.LinkError, ours.ConnectError),
        (errors.ConnectionLost("x"), ours.LinkError, ours.ConnectionError),
        (errors.ConnectionLost("x", condition="amqp:resource-limit-exceeded"), ours.LinkError, ours.HeartbeatTimeout),
        (
            errors.ConnectionLost("x", condition="amqp:resource-limit-exceeded", remote=True),
            ours.LinkError,
            ours.ConnectionError,
        ),
        (errors.SessionEnded("x"), ours.LinkError, ours.SessionError),
        (errors.SessionEnded("x", condition="amqp:internal-error"), ours.LinkError, ours.ServerError),
        (errors.NotFound("x"), ours.SendError, ours.NotFound),
        (errors.ResourceDeleted("x"), ours.FetchError, ours.NotFound),
        (errors.Unauthorized("x"), ours.FetchError, ours.UnauthorizedAccess),
        (errors.LinkStolen("x"), ours.FetchError, ours.FetchError),
        (errors.ResourceLocked("x"), ours.ReceiverError, ours.ReceiverError),
        (errors.MessageRejected("x"), ours.SendError, ours.SendError),
        (
            errors.MessageRejected("x", condition="amqp:resource-limit-exceeded"),
            ours.SendError,
            ours.TargetCapacityExceeded,
        ),
        (
            errors.MessageRejected("x", condition="amqp:link:message-size-exceeded"),
            ours.SendError,
            ours.TargetCapacityExceeded,
        ),
        (errors.LimitReached("x", condition="amqp:resource-limit-exceeded"), ours.ReceiverError, ours.ReceiverError),
        (errors.DeliveryInDoubt("x"), ours.LinkError, ours.SendError),
        (errors.TransactionRolledBack("x"), ours.LinkError, ours.TransactionAborted),
        (errors.TransactionInDoubt("x"), ours.LinkError, ours.TransactionUnknown),
        (errors.EncodeError("x"), ours.SendError, ours.EncodeError),
        (errors.DecodeError("x"), ours.FetchError, ours.DecodeError),
        (errors.Unreliable("x"), ours.LinkError, ours.SessionError),
        (errors.LocalProtocolError("x"), ours.SendError, ours.SendError),
    ],
)
def test_rows(error: errors.AcquitError, link: type[ours.LinkError], expected: type[ours.MessagingError]) -> None:
    found = translated(error, link)
    assert type(found) is expected
    assert found.text == "x" and found.code == getattr(error, "condition", None)
