"""Sessions and links that come back on a restored connection, until the peer has answered them.

Theory of operation. A session that begins again, and a link that attaches again, has nobody who waits for the answer,
as `session()` or `receiver()` did the first time: a peer that never gives one would leave every `receive` without end.
So each has `answer_timeout_ms`, like the first time, and ends alone with the reason when that has passed::

    expect ─ answered ─▶ forgotten
       │  ▲
       │  └────────────── its delay is over: attach again
       ├─ refused for a reason that may pass ─▶ waits ─▶ (outage_max_ms, rounds_max) ─▶ the link ends
       └─ answer_timeout_ms ─▶ the session or link ends

A refusal may pass where the broker still believes in the connection that was lost, and in the link on it: only one may
consume from a durable subscription, so that the one that comes back is refused until the broker has noticed. Such a
link is attached again with the delays of `Reconnect`, within its limits, counted from the loss.

All of it is loop side, and knows no clock but the times that it is called with.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Final, TypeAlias

from acquit.client.core_base import CoreBase
from acquit.client.failures import Failure, link_refusal
from acquit.client.receiving import ReceiverCore
from acquit.client.reconnecting import RETRIED, Backoff
from acquit.client.sending import SenderCore
from acquit.client.session import SessionCore
from acquit.errors import LinkDetached, SessionEnded
from acquit.protocol.definitions import ConnectionCondition
from acquit.protocol.events import LinkDetached as Detached

logger = logging.getLogger("acquit.client")

Endpoint: TypeAlias = SessionCore | SenderCore | ReceiverCore

_PASSING: Final = RETRIED - {ConnectionCondition.CONNECTION_FORCED}
"""Conditions of a link's refusal that may pass."""


class _Awaited:
    """Time by which one endpoint has its answer, or, where it was refused, is tried again."""

    __slots__ = ("backoff", "due", "refused")

    def __init__(self, due: float) -> None:
        self.due = due
        self.refused = False
        self.backoff: Backoff | None = None


class Returning:
    """The sessions and links of one core that come back. `new_backoff` makes the delays of an outage that began at a
    time."""

    def __init__(self, core: CoreBase, new_backoff: Callable[[float], Backoff]) -> None:
        self._core = core
        self._new_backoff = new_backoff
        self._awaited: dict[Endpoint, _Awaited] = {}
        self._due: list[tuple[float, int, Endpoint]] = []
        """Times to act: a heap, in which an entry counts while it is the one that its endpoint waits for."""
        self._numbers = itertools.count()
        self._lost_at = 0.0

    @property
    def deadline(self) -> float | None:
        """The next time to call `act`."""
        due = self._due
        while due:
            at, _, endpoint = due[0]
            awaited = self._awaited.get(endpoint)
            if awaited is not None and awaited.due == at and endpoint.failure is None:
                return at
            heappop(due)
            if endpoint.failure is not None:
                self.forget(endpoint)
        return None

    def lost(self, now: float) -> None:
        """The connection is lost, and with it all answers that it owes."""
        self._lost_at = now
        self._awaited.clear()
        self._due.clear()
        self._core.refused.clear()

    def expect(self, session: SessionCore) -> None:
        """Expect the answers to the begin of a session and to the attaches of its links, which have just been sent."""
        due = self._core.now + self._core.options.answer_timeout_ms / 1000
        endpoints: list[Endpoint] = [session, *session.senders, *session.receivers]
        for endpoint in endpoints:
            self._awaited[endpoint] = _Awaited(due)
            heappush(self._due, (due, next(self._numbers), endpoint))

    def forget(self, endpoint: Endpoint) -> None:
        """The peer has answered, or nobody wants to know any more."""
        if self._awaited:
            self._awaited.pop(endpoint, None)
            self._core.refused.pop(endpoint, None)

    def tries_again(self, link: SenderCore | ReceiverCore, event: Detached) -> bool:
        """Return True if a link that the peer has detached was refused as it came back, for a reason that may pass, and
        is to be attached once more. What was asked of it meanwhile is over, as it would be with another loss."""
        awaited = self._awaited.get(link)
        if awaited is None or link.failure is not None or link.closing or link.session.closing:
            return False
        if not link.attached.done:  # it has never been there, and somebody waits to hear whether it can be
            return False
        if not event.remote or event.error is None or event.error.condition not in _PASSING:
            return False
        if awaited.backoff is None:
            logger.warning(
                "%s was refused as the connection was restored, and will be attached if that can be done: %s (%s)",
                link.spec.what,
                event.error.description or "no reason",
                event.error.condition,
            )
            awaited.backoff = self._new_backoff(self._lost_at)
        awaited.backoff.begin_round()
        if awaited.backoff.exhausted(self._core.now) is not None:
            return False
        awaited.refused = True
        self._core.refused[link] = failure = link_refusal(event, link.spec.what)
        self._wait(link, awaited, awaited.backoff.next_delay(self._core.now))
        link.on_refused(failure, event.unsettled)
        return True

    def act(self, now: float) -> None:
        """Attach again what has waited for that, and end what was not answered in time."""
        while (deadline := self.deadline) is not None and deadline <= now:
            _, _, endpoint = heappop(self._due)
            awaited = self._awaited[endpoint]
            if isinstance(endpoint, SessionCore):
                self._end_session(endpoint)
            elif not awaited.refused:
                self._end_link(endpoint)
            else:
                awaited.refused = False
                self._core.refused.pop(endpoint, None)
                self._wait(endpoint, awaited, self._core.options.answer_timeout_ms / 1000)
                _session_of(endpoint).attach_again(endpoint)

    def _wait(self, endpoint: Endpoint, awaited: _Awaited, delay_s: float) -> None:
        awaited.due = self._core.now + delay_s
        heappush(self._due, (awaited.due, next(self._numbers), endpoint))

    def _end_session(self, session: SessionCore) -> None:
        self.forget(session)
        session.engine.end()
        session.on_ended(Failure(SessionEnded, f"the peer did not answer the begin of the session {self._in_time}"))
        self._core.forget_session(session)

    def _end_link(self, link: SenderCore | ReceiverCore) -> None:
        self.forget(link)
        session = _session_of(link)
        link.link.detach(closed=False)  # what it left at the peer may be somebody's next time
        why = f"the peer did not answer the attach of {link.spec.what} {self._in_time}"
        session.forget(link, Failure(LinkDetached, why))
        if session.transactions is not None:
            session.transactions.advance()

    @property
    def _in_time(self) -> str:
        return f"within {self._core.options.answer_timeout_ms / 1000:g} s of the connection being restored"


def _session_of(link: SenderCore | ReceiverCore) -> SessionCore:
    session = link.session
    assert isinstance(session, SessionCore)
    return session


__all__ = ["Returning"]
