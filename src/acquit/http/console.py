"""The console: a page of plain HTML, CSS and JavaScript modules, as they lie in ``static``, served from memory.

The page asks `routes` for everything, as the user whose browser shows it, so it can show and do what that user may. It
loads nothing from anywhere else, and its policy says so.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from importlib import resources
from typing import TYPE_CHECKING, Final

from starlette.responses import Response

if TYPE_CHECKING:
    from fastapi import FastAPI

FILES: Final = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/console.css": ("console.css", "text/css; charset=utf-8"),
    "/console.js": ("console.js", "text/javascript; charset=utf-8"),
    "/api.js": ("api.js", "text/javascript; charset=utf-8"),
    "/dom.js": ("dom.js", "text/javascript; charset=utf-8"),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
}
"""The file behind each path, and its type."""

HEADERS: Final = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "referrer-policy": "no-referrer",
}


def add_console(app: FastAPI) -> None:
    """Add the files of the console to an application."""
    folder = resources.files("acquit.http") / "static"
    for path, (name, media_type) in FILES.items():
        app.add_api_route(path, _answering((folder / name).read_bytes(), media_type), include_in_schema=False)


def _answering(content: bytes, media_type: str) -> Callable[[], Awaitable[Response]]:
    async def answer() -> Response:
        return Response(content, media_type=media_type, headers=HEADERS)

    return answer


__all__ = ["FILES", "HEADERS", "add_console"]
