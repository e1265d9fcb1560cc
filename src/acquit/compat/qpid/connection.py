"""Connections, on those of our blocking client.

Theory of operation. Each endpoint of the API has at most one of the client behind it, `_inner`, and none while its
connection is not attached: sessions and links may be made before `Connection.open`, and come back with `attach` after a
`detach`. When a connection that is to reconnect is lost, the client brings its endpoints back by itself.

Errors. What ends one endpoint is its `error`, and raised by whatever needs it from then on; a message that was refused
is raised once, by the next call that concerns its sender. Calls from several threads are as safe as the client's.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING
from uuid import uuid4

from acquit.client import blocking as client
from acquit.client.locks import UserLock
from acquit.client.reconnecting import ConnectionEvent, ConnectionEventKind
from acquit.client.threads import Gate
from acquit.compat.qpid import connecting
from acquit.compat.qpid.endpoint import Endpoint
from acquit.compat.qpid.failures import translated
from acquit.compat.qpid.messaging.exceptions import (
    AuthenticationFailure,
    ConnectError,
    ConnectionClosed,
    ConnectionError,
    MessagingError,
    Timeout,
)
from acquit.compat.qpid.session import Session
from acquit.errors import AcquitError, ConnectionLost, ConnectTimeout

if TYPE_CHECKING:
    from acquit.compat.qpid.util import URL

logger = logging.getLogger("qpid.messaging")


class Connection(Endpoint):
    """A connection to a broker, once it is opened; `establish` makes one that is.

    `url` is ``[amqp://|amqps://][user[/password]@]host[:port]``. Options, of which the URL's parts win: host, port,
    transport (tcp, ssl, tcp+tls), username, password, sasl_mechanisms (names with spaces between them), heartbeat
    (seconds), reconnect, reconnect_timeout, reconnect_interval, reconnect_interval_min, reconnect_interval_max
    (seconds), reconnect_limit (rounds), reconnect_urls, ssl_keyfile, ssl_certfile, ssl_trustfile,
    ssl_skip_hostname_check, client_properties, and container_id, which is new. Raises ConnectionError for another.
    """

    @staticmethod
    def establish(url: str | URL | None = None, timeout: float | None = None, **options: object) -> Connection:
        """A connection that is open. Raises what `open` raises."""
        connection = Connection(url, **options)
        connection.open(timeout)
        return connection

    def __init__(self, url: str | URL | None = None, **options: object) -> None:
        super().__init__()
        self.options = options
        self._options = connecting.read_options(url, options)
        self.id = str(uuid4())
        self.sessions: dict[str, Session] = {}
        self.session_counter = 0
        self._lock = UserLock()
        """Held for moments only, never while something is waited for."""
        self._opening = UserLock()
        """Held while the connection, a session or a link comes about: one thread at a time makes them."""
        self._stopped = False
        """True if somebody gives up what is being opened."""
        self._stop = Gate()
        self._open = False
        self._inner: client.Connection | None = None

    def __getattr__(self, name: str) -> object:
        # The options are attributes, as ever; what was set on the connection itself was found before.
        if name != "_options" and name in self._options:
            return self._options[name]
        raise AttributeError(f"{type(self).__name__!r} has no attribute {name!r}")

    def session(self, name: str | None = None, transactional: bool = False) -> Session:
        """The session of this name, made where there is none; without a name, a new one."""
        with self._opening:
            if name is None:
                name = str(self.session_counter)
                self.session_counter += 1
            full_name = f"{self.id}:{name}"
            found = self.sessions.get(full_name)
            if found is not None:
                return found
            session = Session(self, full_name, transactional)
            if self._inner is not None:
                session._link()
            self.sessions[full_name] = session
            return session

    def open(self, timeout: float | None = None) -> None:
        """Connect, and attach what was made before.

        With `reconnect` it is tried again until `timeout` or `reconnect_timeout` (seconds), or `reconnect_limit`.
        Raises ConnectError, AuthenticationFailure, Timeout; ConnectionError when it is open.
        """
        with self._opening:
            if self._open:
                raise ConnectionError(text="the connection is open already")
            reconnect_timeout = self._options["reconnect_timeout"]
            if self.reconnect and isinstance(reconnect_timeout, int | float) and reconnect_timeout > 0:
                timeout = reconnect_timeout
            self.attach(timeout)
            self._open = True

    def opened(self) -> bool:
        """Return True if `open` was called, and `close` was not."""
        return self._open

    def attach(self, timeout: float | None = None) -> None:
        """Connect, if it is not, and attach all sessions and links. Raises as `open`."""
        with self._opening:
            if self._inner is not None:
                return
            self.error = None
            self._stopped = False
            settings = connecting.settings({**self._options, **self._set()}, timeout)
            try:
                self._inner = settings.connect(self._on_event, timeout, self._pause)
            except ConnectTimeout as exc:
                if timeout is not None:
                    raise Timeout(f"the connection was not opened within {timeout:g} s: {exc}") from exc
                raise self._failed_to_connect(exc) from exc
            except AcquitError as exc:
                raise self._failed_to_connect(exc) from exc
            for session in list(self.sessions.values()):
                session._link()

    def _pause(self, delay_s: float) -> bool:
        """Wait; True at once where somebody gives up what is being opened."""
        return self._stop.wait(lambda: self._stopped, delay_s)

    def _set(self) -> dict[str, object]:
        """Options that were changed on the connection."""
        return {name: self.__dict__[name] for name in connecting.OPTIONS if name in self.__dict__}

    def _failed_to_connect(self, exc: AcquitError) -> MessagingError:
        error = translated(exc)
        if not isinstance(error, AuthenticationFailure):
            error = ConnectError(error.code, error.text)
        self.error = error
        return error

    def attached(self) -> bool:
        """Return True if the connection is there, or will be again by itself."""
        return self._inner is not None

    def detach(self, timeout: float | None = None) -> None:
        """Disconnect. Sessions and links stay, to be attached again; what was not acknowledged is redelivered. What
        became of sends that were not waited for is raised by the next call of their sender, as ever."""
        self._stopped = True
        self._stop.open()
        with self._lock:
            inner, self._inner = self._inner, None
        if inner is not None:
            for session in list(self.sessions.values()):
                session._unlink()
            inner.close(timeout)

    def close(self, timeout: float | None = None) -> None:
        """Close all sessions, then the connection."""
        try:
            for session in list(self.sessions.values()):
                session.close(timeout)
        finally:
            self.detach(timeout)
            self._open = False

    def check_error(self) -> None:
        """Raise the error, if there is one."""
        if self.error is not None:
            raise self.error

    def get_error(self) -> MessagingError | None:
        """The error, if there is one."""
        return self.error

    def check_closed(self) -> None:
        """Raise ConnectionClosed unless it is attached."""
        if self._inner is None:
            raise ConnectionClosed(text="the connection is closed")

    # -- inside --------------------------------------------------------------------------------------------------------

    def _on_event(self, event: ConnectionEvent) -> None:
        if self.reconnect_log and event.kind in (ConnectionEventKind.INTERRUPTED, ConnectionEventKind.RESTORED):
            logger.warning(
                "the connection to %s is %s%s",
                event.where,
                event.kind.value,
                f": {event.reason}" if event.reason else "",
            )
        if event.kind is ConnectionEventKind.FAILED and self.error is None and self._inner is not None:
            failure = self._inner._aio._core.failure
            reason = event.reason or f"the connection to {event.where} was lost"
            self.error = translated(failure.error() if failure is not None else ConnectionLost(reason))
            for session in list(self.sessions.values()):
                session._gate.open()


__all__ = ["Connection"]
