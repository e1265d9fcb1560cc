"""Requests to the HTTP interface of a broker, with the standard library alone."""

from __future__ import annotations

import base64
import http.client
import json
import ssl
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

TIMEOUT_S: Final = 30
JSON: Final = {"Content-Type": "application/json"}


class Answer(NamedTuple):
    """An answer, with its JSON where it has some."""

    status: int
    headers: dict[str, str]
    text: str

    @property
    def json(self) -> Any:
        """The JSON of the answer."""
        return json.loads(self.text)

    @property
    def detail(self) -> str:
        """What was wrong."""
        assert self.headers["content-type"] == "application/problem+json", self
        assert self.json["status"] == self.status
        return str(self.json["detail"])


def basic(user: str, password: str) -> dict[str, str]:
    """Return the header of HTTP Basic."""
    return {"Authorization": "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()}


def ask(
    url: str | None,
    path: str,
    method: str = "GET",
    body: object = None,
    headers: dict[str, str] | None = None,
    *,
    context: ssl.SSLContext | None = None,
) -> Answer:
    """Return the answer to one request. `body`: bytes, or what is sent as JSON."""
    parts = urlsplit(str(url))
    made = (
        http.client.HTTPConnection(parts.netloc, timeout=TIMEOUT_S)
        if context is None
        else http.client.HTTPSConnection(parts.netloc, timeout=TIMEOUT_S, context=context)
    )
    data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
    try:
        made.request(method, path, data, {**({} if data is None else JSON), **(headers or {})})
        answer = made.getresponse()
        return Answer(answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read().decode())
    finally:
        made.close()


__all__ = ["JSON", "Answer", "ask", "basic"]
