"""Connections of the HTTP interface: uvicorn's, with a bound for their number and for how slow a client may be.

A client has `request_timeout_ms` to send a request to its last byte, the first one from when it has connected, and as
long for each pause in which it does not read its answer. Between two requests it has uvicorn's keep-alive time. Where
there are too many connections the one that has been idle longest gives way, and where none is idle, the one that has
been silent longest in the midst of sending a request. None does whose request is being answered.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

if TYPE_CHECKING:
    from collections.abc import Callable


class Crowd:
    """The connections that there are, and how many there may be. `arriving`: those in the midst of TLS, or only just
    accepted. A few of the latter may count twice for a moment."""

    def __init__(self, size_max: int) -> None:
        self.size_max = size_max
        self._members: dict[Conversation, None] = {}
        """Connections, in the order in which something was last heard of them, or an answer to them ended."""

    def room(self, arriving: int) -> bool:
        """Return whether one more may come; another gives way for it, if one has no request that is being answered."""
        if len(self._members) + arriving < self.size_max:
            return True
        leaving = next((one for one in self._members if one.idle), None)
        leaving = leaving or next((one for one in self._members if not one.working), None)
        if leaving is None:
            return False
        self.leave(leaving)
        leaving.end()
        return True

    def enter(self, one: Conversation) -> None:
        """Count a connection."""
        self._members[one] = None

    def stir(self, one: Conversation) -> None:
        """Note that something was heard of a connection, or that its answer has ended."""
        if one in self._members:
            self.leave(one)
            self.enter(one)

    def leave(self, one: Conversation) -> None:
        """Count it no more."""
        self._members.pop(one, None)

    def end(self) -> None:
        """End all of them, at once."""
        for one in list(self._members):
            one.end()


class Conversation(H11Protocol):
    """A connection. See the module."""

    def __init__(self, crowd: Crowd, timeout_s: float, **given: Any) -> None:
        super().__init__(**given)
        self._crowd = crowd
        self._timeout_s = timeout_s
        self._before = self.conn.their_state
        """The state of h11's before a request has begun."""
        self._deadline: asyncio.TimerHandle | None = None
        self._stalled: asyncio.TimerHandle | None = None

    @property
    def working(self) -> bool:
        """True from the last byte of a request to the last one of its answer."""
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is not None and not cycle.response_complete and not cycle.more_body

    @property
    def idle(self) -> bool:
        """True where no byte of a request has come that is not answered."""
        return not self.working and self.conn.their_state is self._before and not self.conn.trailing_data[0]

    def end(self) -> None:
        """End it at once."""
        self.transport.abort()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's
        """Begin."""
        super().connection_made(transport)
        self._crowd.enter(self)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        self._crowd.leave(self)
        self._deadline = _cancelled(self._deadline)
        self._stalled = _cancelled(self._stalled)
        self._unset_keepalive_if_required()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read some more of a request."""
        super().data_received(data)
        self._crowd.stir(self)
        self._watch()

    def on_response_complete(self) -> None:
        """Wait for another request."""
        super().on_response_complete()
        self._crowd.stir(self)
        self._watch()

    def pause_writing(self) -> None:
        """Wait for a client that does not read."""
        super().pause_writing()
        self._stalled = self._stalled or self._after(self.end)

    def resume_writing(self) -> None:
        """Go on."""
        super().resume_writing()
        self._stalled = _cancelled(self._stalled)

    def _watch(self) -> None:
        cycle: RequestResponseCycle | None = self.cycle
        if self.working or (cycle is not None and self.idle) or self.transport.is_closing():
            self._deadline = _cancelled(self._deadline)
        elif self._deadline is None:
            self._deadline = self._after(self.end)

    def _after(self, call: Callable[[], None]) -> asyncio.TimerHandle:
        return self.loop.call_later(self._timeout_s, call)


def _cancelled(timer: asyncio.TimerHandle | None) -> asyncio.TimerHandle | None:
    """Cancel a timer, and return None: there is none then."""
    if timer is not None:
        timer.cancel()
    return None


__all__ = ["Conversation", "Crowd"]
