"""The common part of connections, sessions, senders and receivers."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from acquit.compat.qpid.failures import translated
from acquit.compat.qpid.messaging.exceptions import ConnectionClosed, LinkError, MessagingError
from acquit.errors import AcquitError, ConnectionFailed, EndpointError

if TYPE_CHECKING:
    from acquit.compat.qpid.connection import Connection


logger = logging.getLogger("qpid.messaging")


class SharedTimeout:
    """A time-out that several waits share, in seconds; None: no limit."""

    __slots__ = ("_ends_at",)

    def __init__(self, timeout: float | None) -> None:
        self._ends_at = None if timeout is None else time.monotonic() + timeout

    def left(self) -> float | None:
        return None if self._ends_at is None else max(0.0, self._ends_at - time.monotonic())


class Endpoint:
    """The common part of connections, sessions, senders and receivers: an `error`, and who is told of it."""

    def __init__(self) -> None:
        self._error: MessagingError | None = None
        self._handler: Callable[[Endpoint, Exception], object] | None = None

    @property
    def error(self) -> MessagingError | None:
        """The error that ended the endpoint; None while it has not ended."""
        return self._error

    @error.setter
    def error(self, error: MessagingError | None) -> None:
        self._error = error
        if error is not None and self._handler is not None:
            try:
                self._handler(self, error)
            except Exception:  # of the user's, in the midst of what the client does
                logger.exception("the exception handler of %r failed", self)

    def set_async_exception_notify_handler(self, handler: Callable[[Endpoint, Exception], object] | None) -> None:
        """Call `handler` with the endpoint and its error when there is one. It may be called in a thread of the
        client's and must not wait for anything."""
        self._handler = handler


class ConnectionPart(Endpoint):
    """An endpoint within a connection."""

    def __init__(self, connection: Connection) -> None:
        super().__init__()
        self._connection = connection
        self.closed = False

    def check_error(self) -> None:
        """Raise the error of this endpoint, or of what it is part of."""
        error = self.get_error()
        if error is not None:
            raise error

    def get_error(self) -> MessagingError | None:
        """The error of this endpoint, or of what it is part of."""
        return self._connection.error or self.error

    def _failed(self, exc: AcquitError, link: type[LinkError] = LinkError) -> MessagingError:
        """Return what to raise for an error of the client's, which becomes this endpoint's where it is its end."""
        error = translated(exc, link)
        if isinstance(exc, ConnectionFailed):
            if self._connection._inner is None:
                return ConnectionClosed(text="the connection is closed")
            if self._connection.error is None:
                self._connection.error = error
            return self._connection.error
        if isinstance(exc, EndpointError) and self.error is None:
            self.error = error
        return error


__all__ = ["ConnectionPart", "Endpoint", "SharedTimeout"]
