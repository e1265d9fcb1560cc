"""A peer's socket, between its pump and the broker, with its authentication in the middle.

Until the peer has opened its connection, SASL is seen to here: each mechanism is a small machine of `logins`, and one
that is slow on purpose has its steps done on a thread. A login whose like have failed waits by a timer before it is
decided (`login_throttle`), and one that is refused before it hears so: who guesses passwords waits, and cannot tell by
the clock how near a guess was. Everything after that goes to the core.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Protocol

from acquit.broker.access.logins import LOGINS, Challenge, Login, Proven
from acquit.protocol.definitions import AmqpCondition, Error, SaslCode
from acquit.protocol.events import ConnectionEnded, ConnectionOpened, Event, SaslInitiated, SaslResponded
from acquit.transport.pump import Pump, PumpOptions

if TYPE_CHECKING:
    from acquit.broker.access.listeners import Caller, Keys
    from acquit.broker.access.login_throttle import LoginThrottle
    from acquit.broker.access.users import Users
    from acquit.broker.links.peers import Peer
    from acquit.broker.notices import Notices
    from acquit.protocol.connection import Connection
    from acquit.transport.turnstile import Turnstile


class SocketOwner(Protocol):
    """The broker, as its sockets see it."""

    login_throttle: LoginThrottle
    notices: Notices
    refusal_delay_s: float

    @property
    def users(self) -> Users:
        """Users that may log in."""

    def handle(self, client: PeerSocket, events: list[Event]) -> None:
        """Act on what a peer did, its authentication taken out."""

    def verify(self, client: PeerSocket, login: Login, response: bytes) -> None:
        """Do a step of a login on a thread, and call `PeerSocket.conclude` with what comes of it."""

    def login_refused(self, name: str, peer: str, network: str, mechanism: str, *, busy: bool) -> None:
        """Record that a login by this name was refused; `busy`: it was not looked at."""

    def writable(self, client: PeerSocket, writable: bool) -> None:
        """The socket takes no more, or does again."""

    def closed(self, client: PeerSocket) -> None:
        """Forget a socket that is gone."""


class PeerSocket:
    """The handler of one pump (`transport.pump.Handler`)."""

    __slots__ = (
        "_certified",
        "_deciding",
        "_facts",
        "_login",
        "_loop",
        "_owner",
        "_place",
        "_tried",
        "_waiting",
        "engine",
        "gone",
        "known",
        "peer",
        "pump",
    )

    def __init__(
        self,
        owner: SocketOwner,
        engine: Connection,
        peer: Peer,
        loop: asyncio.AbstractEventLoop,
        options: PumpOptions,
        caller: Caller,
        exit_: Turnstile,
    ) -> None:
        self._owner = owner
        self._loop = loop
        self._login: Login | None = None
        self._tried = ""
        """Name whose password its login tries."""
        self._deciding = False
        """True while that password is being looked at."""
        self._waiting: asyncio.TimerHandle | None = None
        """Timer until its login may be decided."""
        self.engine = engine
        self.peer = peer
        self.known = False
        """The peer has authenticated, and opened its connection."""
        self.gone: asyncio.Future[None] = loop.create_future()
        """Done when the socket is closed."""
        self.pump = Pump(engine, self, loop=loop, options=options, exit_=exit_)
        self._place = caller.place
        self._certified = caller.certified
        self._facts = caller.facts
        self._place.turn_away = self.pump.abort
        engine.context = self

    def handle(self, events: list[Event]) -> None:
        """Handle what the peer did: its authentication here, the rest by the broker."""
        if not self.known:
            events = self._authenticate(events)
        if events:
            self._owner.handle(self, events)
            last = events[-1]
            if last.__class__ is ConnectionEnded:
                self._log_end(last)

    def on_writable(self, writable: bool) -> None:
        """The socket takes no more, or does again."""
        self._owner.writable(self, writable)

    def on_closed(self) -> None:
        """The socket is gone."""
        self._place.leave()
        if self._waiting is not None:
            self._waiting.cancel()
        self._owner.closed(self)
        self.gone.set_result(None)

    def still_in(self, keys: Keys, before: Keys) -> bool:
        """Return True for a peer that is in, and would come in with other keys as it did with those before."""
        return self.known and keys.still_lets_in(self.engine.user, self.peer.mechanism, self._facts, before)

    def close(self, error: Error) -> None:
        """Close in order, or at once where nothing was opened."""
        if self.known:
            self.engine.close(error)
            self.pump.touch()
        else:
            self.pump.abort()

    def conclude(self, step: Callable[[], Challenge | Proven | None]) -> None:
        """Answer with what a step of the login returns. One that raises was not decided: its peer may try again."""
        try:
            found = step()
        except Exception as error:  # noqa: BLE001 - whatever it is, the attempt is not under way any more
            self._loop.call_exception_handler({"message": "a step of a login failed", "exception": error})
            self.answer(None, busy=True)
        else:
            self.answer(found)

    def answer(self, found: Challenge | Proven | None, *, busy: bool = False) -> None:
        """Answer the peer with what its login has come to; `busy`: it was not even looked at."""
        if self._deciding:
            self._deciding = False
            right = None if busy else isinstance(found, Proven)
            self._owner.login_throttle.ended(self._place.network, self._tried, self._loop.time(), right=right)
        match found:
            case Proven(user=user, additional_data=additional_data):
                self.handle(self.engine.sasl_succeed(user, self._loop.time(), additional_data))
            case Challenge(challenge=challenge):
                if events := self.engine.sasl_challenge(challenge):
                    self.handle(events)  # it did not wait to be asked
            case None:
                name = self._tried or ("" if self._login is None else self._login.name)
                peer = self.peer
                self._owner.login_refused(name, peer.name, self._place.network, peer.mechanism, busy=busy)
                code = SaslCode.SYS_TEMP if busy else SaslCode.AUTH
                self._loop.call_later(self._owner.refusal_delay_s, self._refuse, code)
        self.pump.touch()

    def _refuse(self, code: SaslCode) -> None:
        self.engine.sasl_fail(code)
        self.pump.touch()

    def _step(self, login: Login, response: bytes) -> None:
        """Take a step of a login. One that tries a password waits where others have failed, if it has the time."""
        if self.pump.closed:
            return  # it did not wait
        name = login.decides(response)
        if name is not None:
            self._tried = name
            now = self._loop.time()
            wait_s = self._owner.login_throttle.ask(self._place.network, name, now)
            if wait_s:
                deadline = self.engine.next_deadline()
                if deadline is not None and now + wait_s >= deadline:
                    self.answer(None, busy=True)
                else:
                    # A handle shows its arguments wherever asyncio says that one failed, or was slow: this has none.
                    self._waiting = self._loop.call_later(wait_s, lambda: self._step(login, response))
                return
            self._deciding = True
        if login.slow:
            self._owner.verify(self, login, response)
        else:
            self.conclude(partial(login.step, response))

    def _log_end(self, event: Event) -> None:
        assert isinstance(event, ConnectionEnded)
        error = event.error
        if not self.known and error is not None and error.condition == AmqpCondition.RESOURCE_LIMIT_EXCEEDED:
            self._owner.notices.warn("a connection is refused", peer=self.peer.name, reason=error.description)
            return
        self._owner.notices.inform(
            "a connection was lost" if event.lost else "a connection was closed",
            self.peer.network,
            peer=self.peer.name,
            container=self.peer.container,
            condition=None if error is None else str(error.condition),
            description=None if error is None else error.description,
        )

    def _authenticate(self, events: list[Event]) -> list[Event]:
        """See to SASL; the events that are left."""
        rest: list[Event] = []
        for event in events:
            match event:
                case SaslInitiated(mechanism=mechanism, response=response):
                    self.peer.mechanism = mechanism
                    self._login = LOGINS[mechanism](self._owner.users, self._certified)
                    self._step(self._login, response)
                case SaslResponded(response=response):
                    assert self._login is not None
                    self._step(self._login, response)
                case ConnectionOpened():
                    self.known = True
                    self._place.leave()
                    rest.append(event)
                    self._owner.notices.inform(
                        "a connection was opened",
                        self.peer.network,
                        peer=self.peer.name,
                        container=event.open.container_id,
                        user=self.engine.user,
                    )
                case _:
                    rest.append(event)
        return rest


__all__ = ["PeerSocket"]
