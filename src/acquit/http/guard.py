"""The guard in front of the HTTP interface: what does not get past it, no route ever sees.

In this order: the host that a page of somebody else may have had pointed at this machine (DNS rebinding); who asks;
that a request which changes something was not sent by another page (CSRF: its body is JSON or it has a header that
pages may not send elsewhere unasked, and no other origin is named); how large the body is. ``/healthz`` and
``/readyz`` are for everybody, and tell nothing else.

Paths stay as they came, percent-encoded, until a route has taken them apart: a queue may have a slash in its name.
"""

from __future__ import annotations

import ipaddress
import logging
from typing import TYPE_CHECKING, Final

from acquit.broker.access.listeners import is_loopback
from acquit.broker.admin.later import RequestFailure
from acquit.http.logins import NotIn
from acquit.http.problems import ProblemResponse

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from acquit.broker.options.http import Http
    from acquit.http.logins import Logins

logger = logging.getLogger("acquit.http")

OPEN_PATHS: Final = frozenset({"/healthz", "/readyz"})
SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_HEADERS: Final = [
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
    (b"cross-origin-resource-policy", b"same-origin"),
]


class Guard:
    """An ASGI application around another one."""

    def __init__(self, inner: ASGIApp, logins: Logins, options: Http) -> None:
        self._inner = inner
        self._logins = logins
        self._options = options
        self._names = {name.lower() for name in (*options.host_names, options.host, "localhost")}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request in, or answer it here."""
        began = False

        async def answer(message: Message) -> None:
            nonlocal began
            if message["type"] == "http.response.start":
                began = True
                message = {**message, "headers": [*message.get("headers", ()), *_HEADERS]}
            await send(message)

        try:
            refusal = await self._look(scope, receive, answer)
        except Exception:
            logger.exception("a request failed: please report this")
            refusal = None if began else ProblemResponse(500, "this is a mistake of the broker's: see its log")
        if refusal is not None:
            await refusal(scope, receive, answer)

    async def _look(self, scope: Scope, receive: Receive, send: Send) -> ProblemResponse | None:
        """Return what is to be answered to a request that does not come in."""
        raw = scope.get("raw_path") or b""
        scope = {**scope, "path": raw.decode("ascii", "replace")}
        if scope["path"] in OPEN_PATHS:
            await self._inner(scope, receive, send)
            return None
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        address = scope.get("client")
        if is_loopback(address) and not self._known_host(headers.get("host", "")):
            return ProblemResponse(421, "this broker has no such name: http.host_names lists those that it has")
        try:
            user = await self._logins.user(
                headers.get("authorization"), address, encrypted=scope.get("scheme") == "https"
            )
        except (NotIn, RequestFailure) as refused:
            return ProblemResponse(refused.status, str(refused), getattr(refused, "headers", None))
        if scope["method"] not in SAFE_METHODS and (why := _foreign(scope, headers)):
            return ProblemResponse(403, why)
        body = await self._read(headers, receive)
        if isinstance(body, ProblemResponse) or body is None:
            return body
        scope["state"] = {**scope.get("state", {}), "user": user}
        await self._inner(scope, _replay(body, receive), send)
        return None

    def _known_host(self, host: str) -> bool:
        if host.startswith("["):
            name = host[1:].partition("]")[0]
        else:
            name = host.rpartition(":")[0] or host
        if name.lower() in self._names:
            return True
        try:
            return ipaddress.ip_address(name).is_loopback
        except ValueError:
            return False

    async def _read(self, headers: dict[str, str], receive: Receive) -> bytes | ProblemResponse | None:
        """Return the body of a request; None where its peer has gone."""
        most = self._options.body_bytes_max
        length = headers.get("content-length", "0")
        if length.isdigit() and int(length) > most:
            return _too_large(most)
        body = bytearray()
        while True:
            message = await receive()
            if message["type"] != "http.request":
                return None
            body += message.get("body", b"")
            if len(body) > most:
                return _too_large(most)
            if not message.get("more_body", False):
                return bytes(body)


def _too_large(most: int) -> ProblemResponse:
    return ProblemResponse(413, f"a body has at most {most} bytes (http.body_bytes_max)", {"connection": "close"})


def _foreign(scope: Scope, headers: dict[str, str]) -> str | None:
    """Return why a request that changes something may have been sent by another page; None if it was not."""
    origin = headers.get("origin")
    if origin is not None and origin != f"{scope.get('scheme')}://{headers.get('host')}":
        return "another page sent this"
    if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        return "another page sent this"
    is_json = headers.get("content-type", "").partition(";")[0].strip().lower() == "application/json"
    if not is_json and "x-requested-with" not in headers:
        return "what changes something needs the header Content-Type: application/json, or X-Requested-With"
    return None


def _replay(body: bytes, receive: Receive) -> Receive:
    """Return what gives a body that was read, and then what comes behind it."""
    given = False

    async def again() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again


__all__ = ["Guard"]
