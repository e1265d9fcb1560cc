"""The reasons why endpoints are gone, and the exceptions that say so.

A connection, session or link ends once, and then every wait on it, in any thread, ends with an exception. Exceptions
carry a traceback of their own, so what is kept is not an exception but a `Failure`, from which each waiter gets a
fresh one.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from acquit import errors
from acquit.protocol import events
from acquit.protocol.definitions import AmqpCondition, Error, LinkCondition

LINK_ERRORS: Final[dict[str, type[errors.LinkDetached]]] = {
    AmqpCondition.NOT_FOUND: errors.NotFound,
    AmqpCondition.UNAUTHORIZED_ACCESS: errors.Unauthorized,
    AmqpCondition.RESOURCE_LIMIT_EXCEEDED: errors.LimitReached,
    AmqpCondition.RESOURCE_DELETED: errors.ResourceDeleted,
    AmqpCondition.RESOURCE_LOCKED: errors.ResourceLocked,
    LinkCondition.MESSAGE_SIZE_EXCEEDED: errors.MessageTooLarge,
    LinkCondition.STOLEN: errors.LinkStolen,
}
"""Exception that a link ends with, by the condition of its detach (2.8.15, 2.8.18); LinkDetached for all others."""


class Failure(NamedTuple):
    """The reason why an endpoint is gone. `error` makes the exception, one for each who asks."""

    kind: type[errors.EndpointError]
    message: str
    condition: str | None = None
    description: str | None = None
    remote: bool = False
    orderly: bool = False
    """True if we asked for this end: nobody failed."""

    def error(self) -> errors.EndpointError:
        """A fresh exception."""
        return self.kind(self.message, condition=self.condition, description=self.description, remote=self.remote)

    def told(self, message: str) -> Failure:
        """Return the same failure in other words."""
        return self._replace(message=message)


def link_refusal(event: events.LinkDetached, what: str) -> Failure:
    """Return why nothing can be had of a link that the peer refused as it came back, and may grant later. It is the
    loss of the connection that is not over for that link."""
    error = event.error
    condition, description = (None, None) if error is None else (error.condition, error.description)
    why = f"{what} was refused as the connection was restored: {_reason(error)}"
    return Failure(errors.ConnectionLost, why, condition, description, remote=True)


def _reason(error: Error | None) -> str:
    if error is None:
        return "no reason given"
    return error.condition if error.description is None else f"{error.description} ({error.condition})"


def _failure(kind: type[errors.EndpointError], what: str, error: Error | None, remote: bool) -> Failure:
    who = "by the peer" if remote else "by us"
    if error is None:
        return Failure(kind, f"{what} {who}", remote=remote, orderly=not remote)
    return Failure(kind, f"{what} {who}: {_reason(error)}", error.condition, error.description, remote)


def connection_failure(event: events.ConnectionEnded, where: str, why: str = "") -> Failure:
    """Return the reason why the connection to `where` ended; `why`: what else is known of one that was lost."""
    if event.authentication:
        kind: type[errors.EndpointError] = errors.AuthenticationFailed
        described = event.error.description if event.error is not None else None
        reason = f": {described}" if described else ""
        condition = event.error.condition if event.error is not None else None
        return Failure(kind, f"{where} refused to authenticate us{reason}", condition, described, remote=True)
    if not event.lost:
        return _failure(errors.ConnectionClosed, f"the connection to {where} was closed", event.error, event.remote)
    if event.error is not None:
        return _failure(errors.ConnectionLost, f"the connection to {where} was ended", event.error, event.remote)
    return Failure(errors.ConnectionLost, f"the connection to {where} was lost{why}", remote=True)


def session_failure(event: events.SessionEnded) -> Failure:
    """Return the reason why a session ended."""
    return _failure(errors.SessionEnded, "the session was ended", event.error, event.remote)


def link_failure(event: events.LinkDetached, what: str) -> Failure:
    """Return the reason why a link, described as `what` ("receiver from 'orders'"), was detached or refused."""
    condition = event.error.condition if event.error is not None else ""
    kind = LINK_ERRORS.get(condition, errors.LinkDetached)
    return _failure(kind, f"{what} was detached", event.error, event.remote)
