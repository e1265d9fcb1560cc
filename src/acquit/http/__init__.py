"""The HTTP interface of a broker: health, a REST interface to its operations, and figures for Prometheus.

Theory of operation. It has a thread of its own, with an asyncio loop on which uvicorn reads requests and FastAPI
answers them (`face`). The broker belongs to another thread, and never waits for this one. A request crosses once
(`bridge`): one call on the broker's loop, which costs it one operation, and the result comes back by a future. Figures
of everything are a survey, taken a few queues at a time, which all who ask within a second share. What is
left, from passwords that were right a moment ago (`logins`) to sorting and JSON, happens here, from plain data::

    broker's thread   loop ── operation ───────────── survey ▪ ▪ ▪ ▪ ───
                              ▲      │                ▲            │
    this thread       loop ── ask    answer ── ask ──┘            └─ page, metrics

`guard` decides what reaches the table of `routes`: it checks the host, who asks, that no other page is behind it, and
sizes. A row of that table is one operation of `broker.admin.operations`, where its permission is checked.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from acquit.errors import ConfigurationError

if TYPE_CHECKING:
    from acquit.broker.options.http import Http
    from acquit.broker.server import Server
    from acquit.http.face import Face

NEEDED: Final = ("fastapi", "uvicorn", "prometheus_client")


def check_installed() -> None:
    """Raise ConfigurationError, with what to do, where the packages of the extra ``http`` are not installed."""
    if missing := [name.replace("_", "-") for name in NEEDED if find_spec(name) is None]:
        raise ConfigurationError(f"the HTTP interface needs {', '.join(missing)}: pip install 'acquit[http]'")


async def start_face(server: Server, options: Http) -> Face:
    """Start the HTTP interface of a broker that runs on this loop. Raises ConfigurationError for an address that cannot
    be listened on, and where the extra ``http`` is not installed."""
    check_installed()
    from acquit.http.face import Face

    face = Face(server, options)
    await face.start()
    return face


__all__ = ["check_installed", "start_face"]
