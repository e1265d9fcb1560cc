"""A login by name and password that comes by another way than AMQP: the HTTP interface's.

It takes the way of a login by SASL PLAIN: it waits where others have failed (`login_throttle`), the password is hashed
on the thread for that, among as many as may wait for it, and who is refused hears so late, and is in the log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, Protocol

from acquit.broker.access.logins import Challenge, Login, PlainLogin, Proven

if TYPE_CHECKING:
    from acquit.broker.access.login_throttle import LoginThrottle
    from acquit.broker.access.users import Users

BUSY: BaseException = RuntimeError("too many passwords wait to be verified, or this login has to wait for too long")


class Verifying(Protocol):
    """A login whose step is done on the thread for passwords."""

    def answer(self, found: Challenge | Proven | None, *, busy: bool = False) -> None:
        """Hear what the login has come to; `busy`: it was not even looked at."""

    def conclude(self, step: Callable[[], Challenge | Proven | None]) -> None:
        """Hear what the step returns."""


class LoginOwner(Protocol):
    """The broker, as a login sees it."""

    login_throttle: LoginThrottle
    refusal_delay_s: float

    @property
    def users(self) -> Users:
        """Users who may log in."""

    def verify(self, client: Verifying, login: Login, response: bytes) -> None:
        """Do a step of a login on a thread, and call `conclude` with what comes of it."""

    def login_refused(self, name: str, peer: str, network: str, mechanism: str, *, busy: bool) -> None:
        """Record that a login by this name was refused; `busy`: it was not looked at."""


class PasswordAttempt(NamedTuple):
    """A name and a password that somebody came with."""

    peer: str
    """Address for the log, ``host:port``."""
    network: str
    """Network by which failures are counted."""
    mechanism: str
    """Way that it came by, as the log names it."""
    response: bytes
    """Name and password as SASL PLAIN has them (RFC 4616)."""


class PasswordLogin:
    """A login that is being decided. `decided` is called once: with the user, with None for one that is refused, or
    with `BUSY` for one that may be tried again."""

    def __init__(
        self,
        owner: LoginOwner,
        loop: asyncio.AbstractEventLoop,
        attempt: PasswordAttempt,
        patience_s: float,
        decided: Callable[[str | BaseException | None], None],
    ) -> None:
        """`patience_s`: how long it may have to wait for others."""
        self._owner = owner
        self._loop = loop
        self._attempt = attempt
        self._decided = decided
        self._give_up_at = loop.time() + patience_s
        self._login = PlainLogin(owner.users)
        self._name = self._login.decides(attempt.response) or ""
        self._deciding = False

    def begin(self) -> None:
        """Begin with it, as soon as it may be decided."""
        now = self._loop.time()
        wait_s = self._owner.login_throttle.ask(self._attempt.network, self._name, now)
        if not wait_s:
            self._deciding = True
            self._owner.verify(self, self._login, self._attempt.response)
        elif now + wait_s >= self._give_up_at:
            self.answer(None, busy=True)
        else:
            self._loop.call_later(wait_s, self.begin)

    def conclude(self, step: Callable[[], Challenge | Proven | None]) -> None:
        """Hear what verifying the password came to."""
        try:
            found = step()
        except Exception as error:  # noqa: BLE001 - whatever it is, the attempt is not under way any more
            self._loop.call_exception_handler({"message": "a password could not be verified", "exception": error})
            self.answer(None, busy=True)
        else:
            self.answer(found)

    def answer(self, found: Challenge | Proven | None, *, busy: bool = False) -> None:
        """Hear what the login has come to."""
        if self._deciding:
            right = None if busy else isinstance(found, Proven)
            self._owner.login_throttle.ended(self._attempt.network, self._name, self._loop.time(), right=right)
        if isinstance(found, Proven):
            self._decided(found.user)
            return
        peer, network, mechanism, _ = self._attempt
        self._owner.login_refused(self._name, peer, network, mechanism, busy=busy)
        self._loop.call_later(self._owner.refusal_delay_s, self._decided, BUSY if busy else None)


__all__ = ["BUSY", "PasswordAttempt", "PasswordLogin", "Verifying"]
