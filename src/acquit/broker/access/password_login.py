"""A login by name and password that comes by another way than AMQP: the HTTP interface's.

It takes the way of a login by SASL PLAIN: it waits where others have failed (`login_throttle`), the password is hashed
on the thread for that, among as many as may wait for it, and who is refused hears so late, and is in the log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from acquit.broker.access.logins import Challenge, Login, PlainLogin, Proven

if TYPE_CHECKING:
    from acquit.broker.access.login_throttle import LoginThrottle
    from acquit.broker.access.users import Users
    from acquit.broker.notices import Notices

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
    notices: Notices
    refusal_delay_s: float

    @property
    def users(self) -> Users:
        """Users who may log in."""

    def verify(self, client: Verifying, login: Login, response: bytes) -> None:
        """Do a step of a login on a thread, and call `conclude` with what comes of it."""

    def login_denied(self, *, busy: bool) -> None:
        """Count a login that is refused."""


class PasswordLogin:
    """A login that is being decided. `decided` is called once: with the user, with None for one that is refused, or
    with `BUSY` for one that may be tried again."""

    def __init__(
        self,
        owner: LoginOwner,
        loop: asyncio.AbstractEventLoop,
        peer: str,
        network: str,
        mechanism: str,
        response: bytes,
        patience_s: float,
        decided: Callable[[str | BaseException | None], None],
    ) -> None:
        """`peer` is for the log, by `network` failures are counted, `response` is that of SASL PLAIN (RFC 4616)."""
        self._owner = owner
        self._loop = loop
        self._peer = peer
        self._network = network
        self._mechanism = mechanism
        self._response = response
        self._decided = decided
        self._give_up_at = loop.time() + patience_s
        self._login = PlainLogin(owner.users)
        self._name = self._login.decides(response) or ""
        self._deciding = False

    def begin(self) -> None:
        """Begin with it, as soon as it may be decided."""
        now = self._loop.time()
        wait_s = self._owner.login_throttle.ask(self._network, self._name, now)
        if not wait_s:
            self._deciding = True
            self._owner.verify(self, self._login, self._response)
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
            self._owner.login_throttle.ended(self._network, self._name, self._loop.time(), right=right)
        if isinstance(found, Proven):
            self._decided(found.user)
            return
        known = self._name in self._owner.users  # what is no user's name may be somebody's password
        self._owner.notices.warn(
            "a login is refused",
            f"{self._network} {self._name if known else ''}",
            peer=self._peer,
            mechanism=self._mechanism,
            user=self._name if known else None,
            busy=busy,
        )
        self._owner.login_denied(busy=busy)
        self._loop.call_later(self._owner.refusal_delay_s, self._decided, BUSY if busy else None)


__all__ = ["BUSY", "PasswordLogin", "Verifying"]
