"""Sessions and links that come back on a restored connection, until the peer has answered them.

Theory of operation. A session that begins again, and a link that attaches again, has nobody who waits for the answer,
as `session()` or `receiver()` did the first time: a peer that never gives one would leave every `receive` without end.
So each has `answer_timeout_ms`, like the first time, and ends alone with the reason when that has passed::

    expect ─ answered ─▶ forgotten
       └─ answer_timeout_ms ─▶ the session or link ends

All of it is loop side, and knows no clock but the times that it is called with.
"""

from __future__ import annotations

from collections import deque
from typing import TypeAlias

from acquit.client.core_base import CoreBase
from acquit.client.failures import Failure
from acquit.client.receiving import ReceiverCore
from acquit.client.sending import SenderCore
from acquit.client.session import SessionCore
from acquit.errors import LinkDetached, SessionEnded

Endpoint: TypeAlias = SessionCore | SenderCore | ReceiverCore


class Returning:
    """The sessions and links of one core that come back."""

    def __init__(self, core: CoreBase) -> None:
        self._core = core
        self._awaited: dict[Endpoint, None] = {}
        self._due: deque[tuple[float, Endpoint]] = deque()

    @property
    def deadline(self) -> float | None:
        """The next time to call `act`."""
        due = self._due
        while due:
            at, endpoint = due[0]
            if endpoint in self._awaited and endpoint.failure is None:
                return at
            due.popleft()
            self.forget(endpoint)
        return None

    def lost(self) -> None:
        """The connection is lost, and with it all answers that it owes."""
        self._awaited.clear()
        self._due.clear()

    def expect(self, session: SessionCore) -> None:
        """Expect the answers to the begin of a session and to the attaches of its links, which have just been sent."""
        due = self._core.now + self._core.options.answer_timeout_ms / 1000
        endpoints: list[Endpoint] = [session, *session.senders, *session.receivers]
        for endpoint in endpoints:
            self._awaited[endpoint] = None
            self._due.append((due, endpoint))

    def forget(self, endpoint: Endpoint) -> None:
        """The peer has answered, or nobody wants to know any more."""
        if self._awaited:
            self._awaited.pop(endpoint, None)

    def act(self, now: float) -> None:
        """End what was not answered in time."""
        while (deadline := self.deadline) is not None and deadline <= now:
            _, endpoint = self._due.popleft()
            if isinstance(endpoint, SessionCore):
                self._end_session(endpoint)
            else:
                self._end_link(endpoint)

    def _end_session(self, session: SessionCore) -> None:
        self.forget(session)
        session.engine.end()
        session.on_ended(Failure(SessionEnded, f"the peer did not answer the begin of the session {self._in_time}"))
        self._core.forget_session(session)

    def _end_link(self, link: SenderCore | ReceiverCore) -> None:
        self.forget(link)
        session = link.session
        assert isinstance(session, SessionCore)
        link.link.detach(closed=False)  # what it left at the peer may be somebody's next time
        why = f"the peer did not answer the attach of {link.spec.what} {self._in_time}"
        session.forget(link, Failure(LinkDetached, why))
        if session.transactions is not None:
            session.transactions.advance()

    @property
    def _in_time(self) -> str:
        return f"within {self._core.options.answer_timeout_ms / 1000:g} s of the connection being restored"


__all__ = ["Returning"]
