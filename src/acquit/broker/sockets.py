"""One peer's socket: between its pump and the broker, with its authentication in the middle.

Until the peer has opened its connection, SASL is seen to here: each mechanism is a small machine of `logins`, and one
that is slow on purpose has its steps done on a thread. A peer that is refused hears so after a short while, by a timer:
who guesses passwords waits, and cannot tell by the clock how near a guess was. Everything after that goes to the core.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from acquit.broker.access.logins import LOGINS, Challenge, Login, Proven
from acquit.protocol._definitions import Error, SaslCode
from acquit.protocol.events import ConnectionEnded, ConnectionOpened, Event, SaslInitiated, SaslResponded
from acquit.transport.pump import Pump, PumpOptions

if TYPE_CHECKING:
    from acquit.broker.links.endpoints import Peer
    from acquit.broker.server import Server
    from acquit.protocol.connection import Connection

logger = logging.getLogger("acquit.broker")


class PeerSocket:
    """The handler of one pump (`transport.pump.Handler`)."""

    __slots__ = ("_login", "_loop", "_server", "certified", "engine", "gone", "known", "peer", "pump")

    def __init__(
        self, server: Server, engine: Connection, peer: Peer, loop: asyncio.AbstractEventLoop, options: PumpOptions
    ) -> None:
        self._server = server
        self._loop = loop
        self._login: Login | None = None
        self.engine = engine
        self.peer = peer
        self.certified: str | None = None
        """Whom its TLS certificate names."""
        self.known = False
        """The peer has authenticated, and opened its connection."""
        self.gone: asyncio.Future[None] = loop.create_future()
        """Done when the socket is closed."""
        self.pump = Pump(engine, self, loop=loop, options=options)
        engine.context = self

    def handle(self, events: list[Event]) -> None:
        """What the peer did."""
        if not self.known:
            events = self._authenticate(events)
        if events:
            self._server.handle(self, events)
            last = events[-1]
            if last.__class__ is ConnectionEnded:
                self._log_end(last)

    def on_writable(self, writable: bool) -> None:
        """The socket takes no more, or does again."""
        self._server.writable(self, writable)

    def on_closed(self) -> None:
        """The socket is gone."""
        self._server.closed(self)
        self.gone.set_result(None)

    def close(self, error: Error) -> None:
        """Close in order, or at once where nothing was opened."""
        if self.known:
            self.engine.close(error)
            self.pump.touch()
        else:
            self.pump.abort()

    def answer(self, found: Challenge | Proven | None, *, busy: bool = False) -> None:
        """What the login has come to; `busy`: it was not even looked at."""
        match found:
            case Proven(user=user, additional_data=additional_data):
                self.handle(self.engine.sasl_succeed(user, self._loop.time(), additional_data))
            case Challenge(challenge=challenge):
                if events := self.engine.sasl_challenge(challenge):
                    self.handle(events)  # it did not wait to be asked
            case None:
                logger.warning("a login is refused", extra={"peer": self.peer.name, "busy": busy})
                code = SaslCode.SYS_TEMP if busy else SaslCode.AUTH
                self._loop.call_later(self._server.refusal_delay_s, self._refuse, code)
        self.pump.touch()

    def _refuse(self, code: SaslCode) -> None:
        self.engine.sasl_fail(code)
        self.pump.touch()

    def _step(self, login: Login, response: bytes) -> None:
        if login.slow:
            self._server.verify(self, login, response)
        else:
            self.answer(login.step(response))

    def _log_end(self, event: Event) -> None:
        assert isinstance(event, ConnectionEnded)
        error = event.error
        logger.info(
            "a connection was lost" if event.lost else "a connection was closed",
            extra={
                "peer": self.peer.name,
                "container": self.peer.container,
                "condition": None if error is None else str(error.condition),
                "description": None if error is None else error.description,
            },
        )

    def _authenticate(self, events: list[Event]) -> list[Event]:
        """See to SASL; the events that are left."""
        rest: list[Event] = []
        for event in events:
            match event:
                case SaslInitiated(mechanism=mechanism, response=response):
                    self._login = LOGINS[mechanism](self._server.users, self.certified)
                    self._step(self._login, response)
                case SaslResponded(response=response):
                    assert self._login is not None
                    self._step(self._login, response)
                case ConnectionOpened():
                    self.known = True
                    self._server.opened(self)
                    rest.append(event)
                    logger.info(
                        "a connection was opened",
                        extra={
                            "peer": self.peer.name,
                            "container": event.open.container_id,
                            "user": self.engine.user,
                        },
                    )
                case _:
                    rest.append(event)
        return rest


__all__ = ["PeerSocket"]
