"""The API's exceptions for those of our client, as a table: the first row that fits says which."""

from __future__ import annotations

from typing import Final

from acquit import errors
from acquit.compat.qpid.messaging import exceptions as ours

_ROWS: Final[tuple[tuple[type[errors.AcquitError], type[ours.MessagingError]], ...]] = (
    (errors.AuthenticationFailed, ours.AuthenticationFailure),
    (errors.ConnectTimeout, ours.ConnectError),
    (errors.ConnectionFailed, ours.ConnectionError),
    (errors.SessionEnded, ours.SessionError),
    (errors.NotFound, ours.NotFound),
    (errors.ResourceDeleted, ours.NotFound),
    (errors.Unauthorized, ours.UnauthorizedAccess),
    (errors.DeliveryInDoubt, ours.SendError),
    (errors.TransactionInDoubt, ours.TransactionUnknown),
    (errors.TransactionFailed, ours.TransactionAborted),
    (errors.EncodeError, ours.EncodeError),
    (errors.DecodeError, ours.DecodeError),
    (errors.SettlementError, ours.SessionError),
)
_CAPACITY: Final = "amqp:resource-limit-exceeded"
_SIZE: Final = "amqp:link:message-size-exceeded"
_FAULT: Final = "amqp:internal-error"


def translated(error: errors.AcquitError, link: type[ours.LinkError] = ours.LinkError) -> ours.MessagingError:
    """The exception to raise for `error`. `link`: what a link's failure is that no row knows."""
    kind: type[ours.MessagingError] = next((kind for row, kind in _ROWS if isinstance(error, row)), link)
    condition = getattr(error, "condition", None)
    if isinstance(error, errors.ConnectionLost) and condition == _CAPACITY and not error.remote:
        kind = ours.HeartbeatTimeout  # it was our engine that gave up, on a peer that was too slow
    elif condition == _FAULT:
        kind = ours.ServerError
    elif condition in (_CAPACITY, _SIZE) and issubclass(kind, ours.SenderError):
        kind = ours.TargetCapacityExceeded
    return kind(condition, str(error))


__all__ = ["translated"]
