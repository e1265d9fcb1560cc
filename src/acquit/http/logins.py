"""Users of the HTTP interface: HTTP Basic (RFC 7617) against the users of the broker, by the rules of AMQP's logins.

A peer may send a password where it would be offered SASL PLAIN, and may come without one where it would be offered
ANONYMOUS. A password that is right is not hashed again for every request: a keyed digest of it is remembered for some
minutes, as long as users and permissions stay what they are. The key is this process's alone, and nothing is written.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
import secrets
import time
from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from acquit.broker.access.listeners import is_loopback, mechanisms
from acquit.broker.access.logins import ANONYMOUS, PLAIN
from acquit.broker.access.password_login import BUSY, PasswordAttempt
from acquit.broker.access.unauthenticated import peer_network
from acquit.transport.pump import endpoint_name

if TYPE_CHECKING:
    from acquit.broker.access.listeners import Keys
    from acquit.http.bridge import Bridge

REMEMBERED_S: Final = 300.0
"""Seconds for which a password that was right is not hashed again."""
REMEMBERED_MAX: Final = 1_000
DECIDING_MAX: Final = 8
"""Passwords from one address that are being decided at once: who guesses keeps nobody else waiting."""
PATIENCE_S: Final = 2.0
"""Seconds that a login waits at most where others have failed; it is to be tried again otherwise."""
CREDENTIALS_MAX: Final = 4_096
"""Characters of an Authorization header at most."""
CHALLENGE: Final = {"www-authenticate": 'Basic realm="acquit", charset="UTF-8"'}


class NotIn(Exception):
    """The peer is not let in; `status` is that of the answer."""

    def __init__(self, status: int, text: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(text)
        self.status = status
        self.headers = headers


class Logins:
    """Logins of one HTTP interface. All methods belong to its loop."""

    def __init__(self, bridge: Bridge) -> None:
        """`bridge` is for logins alone: those that wait keep no request waiting."""
        self._bridge = bridge
        self._key = secrets.token_bytes(32)
        self._remembered: OrderedDict[bytes, tuple[float, Keys, str]] = OrderedDict()
        self._deciding: dict[bytes, asyncio.Task[str]] = {}
        self._deciding_of: Counter[str] = Counter()

    async def user(self, authorization: str | None, address: object, *, encrypted: bool) -> str | None:
        """Return the user that a request comes from; None for an anonymous one. Raises NotIn."""
        keys = self._bridge.server.keys
        offered = mechanisms(
            keys.security, loopback=is_loopback(address), encrypted=encrypted, passwords=keys.users.have_passwords
        )
        if authorization is None:
            if ANONYMOUS in offered:
                return None
            if PLAIN in offered:
                raise NotIn(401, "a user and a password are needed", CHALLENGE)
        if PLAIN not in offered:
            if keys.users.have_passwords and not encrypted:
                raise NotIn(403, "no password is taken from there without TLS")
            raise NotIn(403, "nobody is let in from there: there is no user with a password")
        return await self._check(keys, _plain(authorization or ""), address)

    async def _check(self, keys: Keys, response: bytes, address: object) -> str:
        digest = hmac.digest(self._key, response, hashlib.sha256)
        known = self._remembered.get(digest)
        if known is not None and known[1] is keys and time.monotonic() - known[0] < REMEMBERED_S:
            return known[2]
        task = self._deciding.get(digest)
        if task is None:
            task = self._deciding[digest] = asyncio.create_task(self._decide(keys, digest, response, address))
            task.add_done_callback(lambda done: self._decided(digest, done))
        return await asyncio.shield(task)

    def _decided(self, digest: bytes, done: asyncio.Task[str]) -> None:
        self._deciding.pop(digest, None)
        if not done.cancelled():
            done.exception()  # seen, also where nobody waits for it any more

    async def _decide(self, keys: Keys, digest: bytes, response: bytes, address: object) -> str:
        peer, network = endpoint_name(address), peer_network(address)
        if self._deciding_of[network] >= DECIDING_MAX:
            raise _too_many()
        self._deciding_of[network] += 1
        try:
            user = await self._ask(peer, network, response)
        finally:
            self._deciding_of[network] -= 1
            if not self._deciding_of[network]:
                del self._deciding_of[network]
        if self._bridge.server.keys is not keys:
            raise _too_many()  # users have changed meanwhile
        self._remembered[digest] = time.monotonic(), keys, user
        self._remembered.move_to_end(digest)
        while len(self._remembered) > REMEMBERED_MAX:
            self._remembered.popitem(last=False)
        return user

    async def _ask(self, peer: str, network: str, response: bytes) -> str:
        """Return the user, whom the broker finds. Raises NotIn."""

        def begin(give: Callable[[str | BaseException | None], None]) -> None:
            attempt = PasswordAttempt(peer, network, "HTTP Basic", response)
            self._bridge.server.log_in(attempt, PATIENCE_S, give)

        try:
            user = await self._bridge.ask(begin)
        except RuntimeError as error:
            if error is not BUSY:
                raise
            raise _too_many() from None
        if user is None:
            raise NotIn(401, "the user or the password is wrong", CHALLENGE)
        return user


def _too_many() -> NotIn:
    return NotIn(
        429, "too many logins have failed, or wait, or users have changed: try again later", {"retry-after": "5"}
    )


def _plain(authorization: str) -> bytes:
    """Return the credentials of HTTP Basic as a response of SASL PLAIN. Raises NotIn."""
    scheme, _, encoded = authorization.partition(" ")
    if scheme.lower() == "basic" and len(encoded) <= CREDENTIALS_MAX:
        try:
            user, colon, password = base64.b64decode(encoded.strip(), validate=True).decode().partition(":")
        except (binascii.Error, ValueError):
            user, colon, password = "", "", ""
        if user and colon and password and "\0" not in user + password:
            return f"\0{user}\0{password}".encode()
    raise NotIn(401, "expected HTTP Basic: a user and a password in UTF-8", CHALLENGE)


__all__ = ["CHALLENGE", "Logins", "NotIn"]
