"""The guard in front of the HTTP interface: what does not get past it, no route ever sees.

In this order: the host that a page of somebody else may have had pointed at this machine (DNS rebinding); that no other
page has sent it; who asks; that a request which changes something has what pages may not send elsewhere unasked (CSRF:
its body is JSON, or it has a header of its own); how large the body is, and how many values it has. What other pages
ask for is refused also where it is only read, because a browser sends a password that it remembers along, and some
answers cost more than others. Only the console's own page may be led to from elsewhere. ``/healthz`` and ``/readyz``
are for everybody, and tell nothing else.

Paths stay as they came, percent-encoded, until a route has taken them apart: a queue may have a slash in its name.
"""

from __future__ import annotations

import ipaddress
import logging
from typing import TYPE_CHECKING, Final

from acquit.broker.access.listeners import is_loopback
from acquit.broker.admin.later import RequestFailure
from acquit.broker.admin.requests import VALUES_MAX
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
    (b"x-frame-options", b"DENY"),
]
_TOO_MANY: Final = f"a body holds at most {VALUES_MAX:,} values: send more of them as text or octets"
SIGNS_MAX: Final = 2 * VALUES_MAX
"""Commas and opening brackets of a body of JSON: a value that JSON does not have takes two, as `{"uuid": ...},`."""
_POLICY: Final = (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'")
"""The policy of answers that have none of their own: they are no pages, but a browser may show one as if it were."""


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
                headers = [*message.get("headers", ()), *_HEADERS]
                if all(name != _POLICY[0] for name, _ in headers):
                    headers.append(_POLICY)
                message = {**message, "headers": headers}
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
        if why := _foreign(scope, headers):
            return ProblemResponse(403, why)
        try:
            user = await self._logins.user(
                headers.get("authorization"), address, encrypted=scope.get("scheme") == "https"
            )
        except (NotIn, RequestFailure) as refused:
            return ProblemResponse(refused.status, str(refused), getattr(refused, "headers", None))
        if scope["method"] not in SAFE_METHODS and not _is_deliberate(headers):
            return ProblemResponse(
                403, "what changes something needs the header Content-Type: application/json, or X-Requested-With"
            )
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
                whole = bytes(body)
                return whole if _has_few_values(whole) else ProblemResponse(400, _TOO_MANY)


def _has_few_values(body: bytes) -> bool:
    """Return whether a body of JSON may have no more values than a request may hold, found without reading it: commas
    and brackets outside of its texts say how many there can be."""
    if _signs(body) <= SIGNS_MAX:
        return True
    if b"\0" in body:  # it is in UTF-16 or 32, where any octet may look like a quote
        return False
    parts = body.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"', 4 * SIGNS_MAX)
    return len(parts) <= 4 * SIGNS_MAX and _signs(b"".join(parts[::2])) <= SIGNS_MAX


def _signs(body: bytes) -> int:
    return sum(map(body.count, (b",", b"[", b"{")))


def _too_large(most: int) -> ProblemResponse:
    return ProblemResponse(413, f"a body has at most {most} bytes (http.body_bytes_max)", {"connection": "close"})


def _foreign(scope: Scope, headers: dict[str, str]) -> str | None:
    """Return why another page has sent a request; None where none has, as far as browsers say."""
    host, origin = headers.get("host"), headers.get("origin")
    # A proxy in front of it may have taken TLS off: then the page is of the same host, and https.
    if origin is not None and origin not in (f"{scope.get('scheme')}://{host}", f"https://{host}"):
        return "another page sent this"
    if headers.get("sec-fetch-site", "none") in ("same-origin", "none"):
        return None
    followed = headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest") == "document"
    return None if followed and scope["method"] == "GET" and scope["path"] == "/" else "another page sent this"


def _is_deliberate(headers: dict[str, str]) -> bool:
    """Return whether a request has what a page can send to another host only when it is allowed to."""
    is_json = headers.get("content-type", "").partition(";")[0].strip().lower() == "application/json"
    return is_json or "x-requested-with" in headers


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
