"""The client of one connection as a pure machine: operations in flight, sessions, acknowledgement, loss.

Theory of operation. There are two sides, which may or may not be one thread.

*User side*: what user code calls. It pops buffers, appends to queues, and leaves *commands*; it never touches the
engine. Deques and dicts are all that is shared, and one operation on them is atomic.

*Loop side*: the driver (`aio`) calls `handle` with the engine's events, `process` when `wake` was called, `flushed`
when the engine's output has gone to the socket, and `handle_deadline` at `next_deadline`. All that concerns the engine
happens here, for all commands that have gathered at once: many acknowledgements are one disposition, many hand-overs
one flow.

::

    user side                      loop side
    take ──────▶ commands ──────▶ process ──▶ engine ──▶ pump
    settle ────▶    │               ▲
    enqueue ───▶    └─ wake() once ─┘        handle ◀── events ◀── engine

`wake` is called once until `process` runs, whatever gathers meanwhile. `process` counts its turn *before* it looks at
the commands: who appends after that look wakes again. Who wakes notes *afterwards* in which turn that was: until then
another thread, or a handler of a signal in the midst of this one, wakes as well.

The core knows no clock, no socket and no loop, so that a simulation can drive it with virtual time.

Interruption. A connection that is lost and may be restored (`reconnecting` says when) takes nothing with it but what
is in flight. `interrupt` leaves sessions and links as they are, with the verbs of a dead engine, which do nothing;
sends without an outcome go back to their queues, buffers are emptied, `since` tells messages of the old connection.
`restore` gives the core another engine: each session begins on it, and its links attach by the specs they were made
from, all in one write but for links that a peer with few handles may have no room for: these wait until it has begun
(`protocol.session`). What it has no room for ends with the reason, and the rest goes on; `returning` sees to it that
each is answered in time. No user code takes part in either.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from heapq import heappop
from typing import Final

from acquit.client.core_base import CoreBase
from acquit.client.failures import Failure, connection_failure, link_failure, session_failure
from acquit.client.fates import FateQuery
from acquit.client.modes import Mode
from acquit.client.options import ConnectOptions
from acquit.client.products import product_of
from acquit.client.receipts import Milestone, ReceiptStatus, SendPromise
from acquit.client.received import Kinds
from acquit.client.receiving import ReceiverCore, lose
from acquit.client.reconnecting import Backoff, Reconnect, worth_another_try
from acquit.client.resuming import ResumingReceiver, ResumingSender
from acquit.client.returning import Returning
from acquit.client.run_receiving import RunReceiverCore
from acquit.client.sending import SenderCore
from acquit.client.session import SessionCore, SubscriptionRemoval
from acquit.client.transacting import ControlLink
from acquit.errors import ConnectionClosed, ConnectionLost
from acquit.protocol import events as ev
from acquit.protocol.connection import Connection
from acquit.protocol.definitions import AmqpCondition, Error, Open
from acquit.protocol.extensions import DURABLE_SETTLEMENT


class ClientCore(CoreBase):
    """The core of one connection. `where` names the peer for people; `wake` asks the driver to call `process` soon."""

    def __init__(
        self,
        engine: Connection,
        options: ConnectOptions,
        *,
        where: str,
        wake: Callable[[], None],
        wall_clock: Callable[[], float],
        kinds: Kinds,
        named: bool = False,
        reconnect: Reconnect | None = None,
        draw: Callable[[], float] = lambda: 0.0,
        elsewhere: bool = False,
    ) -> None:
        """`wall_clock`: the driver's, in seconds, which goes on while the machine sleeps. `reconnect`: the policy by
        which the driver restores a connection that is lost, if it does; `elsewhere`: it has other hosts to go to.
        `draw` gives random numbers from 0 to 1."""
        super().__init__(engine, options, where=where, wake=wake, wall_clock=wall_clock, named=named)
        self.kinds = kinds
        self.opened = Milestone()
        self.closed = Milestone()
        """The socket is gone."""
        self.on_lost: Callable[[Failure], None] = _nobody
        """Called when the connection is lost and may be restored, and when it is over."""
        self.sessions: list[SessionCore] = []
        self._reconnect = reconnect
        self._elsewhere = elsewhere
        policy = reconnect if reconnect is not None else Reconnect()
        self._returning = Returning(self, lambda lost_at: Backoff(policy, policy.rounds_max, lost_at, draw))
        self._remote_open: Open | None = None
        self._resend_until = 0.0

    # -- user side -----------------------------------------------------------------------------------------------------

    @property
    def remote_open(self) -> Open:
        """The peer's *open*. It is there once `opened` has ended well."""
        assert self._remote_open is not None
        return self._remote_open

    # -- loop side: what the driver calls ------------------------------------------------------------------------------

    def process(self, now: float) -> None:
        """Do what user code has asked for since the last time."""
        self._turns += 1
        self._now = now
        commands = self._commands
        for _ in range(len(commands)):  # what comes meanwhile, from other threads, wakes us again
            command = commands.popleft()
            if command.__class__ is tuple:
                command[0](*command[1:])
            else:
                command.handed_over()  # type: ignore[union-attr]  # a message
        for session in self.sessions:
            if session.eager:
                session.say_all()
            else:
                session.after_batch(now)
        self._top_up()

    def handle(self, events: list[ev.Event], now: float) -> None:
        """Act on what the peer did."""
        self._now = now
        for event in events:
            _HANDLERS[event.__class__](self, event)
        self._top_up()

    def flushed(self) -> None:
        """All that was said is written to the socket."""
        if self.sent:
            sent, self.sent = self.sent, []
            for receipt, count in sent:
                receipt.note(ReceiptStatus.SENT, count)

    def on_writable(self, writable: bool) -> None:
        """The socket takes no more, or does again."""
        self.writable = writable
        if writable:
            for session in self.sessions:
                for sender in session.senders:
                    sender.pump()

    def next_deadline(self) -> float | None:
        """Return the latest time to call `handle_deadline`, on the driver's clock; None where it need not be called."""
        unanswered = self._unanswered
        while unanswered and unanswered[0][1].done:
            unanswered.popleft()
        deadline = unanswered[0][0] if unanswered else None
        if self.gathering:
            due = min(self.gathering.values())
            deadline = due if deadline is None else min(due, deadline)
        limited = self._limited
        while limited and limited[0][3].done:
            heappop(limited)
        if limited:
            deadline = limited[0][0] if deadline is None else min(limited[0][0], deadline)
        if self.interrupted:
            deadline = self._resend_until if deadline is None else min(self._resend_until, deadline)
        elif (due_back := self._returning.deadline) is not None:
            deadline = due_back if deadline is None else min(due_back, deadline)
        return deadline

    def handle_deadline(self, now: float) -> None:
        """End what has waited too long."""
        unanswered = self._unanswered
        while unanswered and (unanswered[0][1].done or unanswered[0][0] <= now):
            unanswered.popleft()[1].expire(f"no answer within {self.options.ack_timeout_ms} ms")
        for session in [session for session, due in self.gathering.items() if due <= now]:
            session.say_gathered()
        self._now = now
        while self._limited and self._limited[0][0] <= now:
            _, _, sender, promise, timeout_s = heappop(self._limited)
            sender.expire(promise, timeout_s)
        if self.interrupted and now >= self._resend_until:
            self._give_up_sends(now)
        self._returning.act(now)
        self._top_up()

    # -- loop side: interruption ---------------------------------------------------------------------------------------

    def interrupt(self, failure: Failure) -> None:
        """The connection is lost. What can wait for another does."""
        self.interrupted = True
        self.interruption = failure
        self.restored = Milestone()
        self.writable = False
        self._resend_until = self._now + self.options.send_timeout_ms / 1000
        self._answers_lost(failure)
        self._returning.lost(self._now)
        for session in tuple(self.sessions):
            session.on_interrupted(failure)
        self.sessions = [session for session in self.sessions if session.failure is None]
        self.on_lost(failure)

    def restore(self, engine: Connection, now: float) -> None:
        """Go on with another connection, which is open: begin all sessions on it, and attach their links."""
        self._now = now
        self.engine = engine
        self._note_open()
        self.interrupted = False
        self.writable = True
        for session in tuple(self.sessions):
            session.restore()
        self.sessions = [session for session in self.sessions if session.failure is None]
        for session in self.sessions:
            self._returning.expect(session)
        self.restored.succeed()

    def give_up(self, failure: Failure, unheard: Sequence[ev.Event] = ()) -> None:
        """The connection could not be restored: it is over. `unheard` are events that were perhaps not acted upon: the
        engine has settled the sends that they speak of, and would not name them among those that it loses."""
        self.interrupted = False
        self._end(failure)
        for event in unheard:
            for delivery in event.deliveries if isinstance(event, ev.StatesReceived) else ():
                if isinstance(promise := delivery.context, SendPromise):
                    promise.fail(failure)
        self.closed.succeed()

    def _give_up_sends(self, now: float) -> None:
        """Give up the sends that have waited for the connection for as long as a send may take, except those that
        somebody waits for, which end with their own `timeout`."""
        self._resend_until = now + self.options.send_timeout_ms / 1000
        assert self.interruption is not None
        for session in self.sessions:
            for sender in tuple(session.senders):
                sender.give_up_waiting(self.interruption)

    def _answers_lost(self, failure: Failure) -> None:
        # Answers that were on their way from here are in doubt; those that never left are known to have no effect.
        sent, self.sent = self.sent, []
        for receipt, count in sent:
            receipt.note(ReceiptStatus.STALE, count, failure.message)
        unanswered, self._unanswered = self._unanswered, deque()
        for deadline, receipt in unanswered:
            if receipt.lasting and self.interrupted:
                self._unanswered.append((deadline, receipt))
            else:
                receipt.expire(failure.message)

    def receiver_names(self) -> set[str]:
        """The names of the links that receive, in all sessions."""
        return {receiver.spec.name for session in self.sessions for receiver in session.receivers}

    def forget_session(self, session: object) -> None:
        """Drop a session that has ended without a word of the peer."""
        self.sessions = [other for other in self.sessions if other is not session]

    # -- loop side: operations -----------------------------------------------------------------------------------------

    def begin(self, mode: Mode) -> SessionCore:
        """Begin a session."""
        self.check()
        session = SessionCore(self, mode, self.kinds)
        session.engine = self.engine.begin()
        session.engine.context = session
        self.sessions.append(session)
        return session

    def close(self) -> None:
        """Close the connection; `closed` ends when the socket is gone."""
        self.closing = True
        if self.interrupted:
            self.give_up(Failure(ConnectionClosed, f"the connection to {self.where} was closed by us", orderly=True))
        else:
            self.engine.close()

    def abandon(self, reason: str) -> None:
        """Forget the connection without a word to the peer: this process has no right to it, as it was forked off the
        one that has. What is still asked for ends at once."""
        self._wake = lambda: self.process(self._now)
        self.on_lost = _nobody
        self.interrupted = False
        self._end(Failure(ConnectionLost, reason))
        self.engine.receive_eof(self._now)  # our copy of it; nothing is written
        self.process(self._now)
        self.closed.succeed()

    def on_closed(self) -> None:
        """The socket is gone. ConnectionEnded came before, unless it never was."""
        self.closed.succeed()

    # -- loop side: events ---------------------------------------------------------------------------------------------

    def _top_up(self) -> None:
        if self.short_of_credit:
            for receiver in self.short_of_credit:
                receiver.top_up()
            self.short_of_credit.clear()

    def _on_opened(self, event: ev.ConnectionOpened) -> None:
        self._note_open()
        self.opened.succeed()

    def _note_open(self) -> None:
        remote = self._remote_open = self.engine.remote_open
        assert remote is not None
        durable = DURABLE_SETTLEMENT in remote.offered_capabilities
        self.answer_means = ReceiptStatus.APPLIED if durable else ReceiptStatus.ANSWERED
        self.peer = product_of(remote.properties)

    def _on_ended(self, event: ev.ConnectionEnded) -> None:
        failure = connection_failure(event, self.where)
        opened = self.opened.done and self.opened.failure is None
        again = self._reconnect is not None and worth_another_try(event, elsewhere=self._elsewhere)
        if opened and again and not (self.closing or self.failure):
            self.interrupt(failure)
        else:
            self._end(failure)

    def _end(self, failure: Failure) -> None:
        if self.failure is not None:
            return
        self.failure = failure
        for session in self.sessions:
            session.on_ended(failure)
        self.sessions.clear()
        self._answers_lost(failure)
        self.opened.fail(failure)
        self.restored.succeed()
        self.on_lost(failure)

    def _on_session_begun(self, event: ev.SessionBegun) -> None:
        session = event.session.context
        if isinstance(session, SessionCore):
            session.begun.succeed()
            self._returning.forget(session)
        else:
            event.session.end(Error(AmqpCondition.NOT_ALLOWED, "this client takes no sessions"))

    def _on_session_ended(self, event: ev.SessionEnded) -> None:
        session = event.session.context
        if isinstance(session, SessionCore):
            session.on_ended(session_failure(event))
            if session in self.sessions:
                self.sessions.remove(session)
        event.session.release()

    def _on_link_requested(self, event: ev.LinkRequested) -> None:
        event.link.refuse(Error(AmqpCondition.NOT_ALLOWED, "this client takes no links"))

    def _on_link_attached(self, event: ev.LinkAttached) -> None:
        endpoint = event.link.context
        if isinstance(endpoint, SenderCore | ReceiverCore | SubscriptionRemoval | ControlLink | FateQuery):
            endpoint.on_attached()
        if isinstance(endpoint, SenderCore | ReceiverCore):
            self._returning.forget(endpoint)

    def _on_link_detached(self, event: ev.LinkDetached) -> None:
        endpoint = event.link.context
        if isinstance(endpoint, SubscriptionRemoval | ControlLink | FateQuery):
            endpoint.on_ended(link_failure(event, endpoint.what))
        if not isinstance(endpoint, SenderCore | ReceiverCore):
            return
        if isinstance(endpoint, ResumingSender | ResumingReceiver) and endpoint.attaches_again(event.unsettled):
            return
        session = endpoint.session
        assert isinstance(session, SessionCore)
        if not self._returning.tries_again(endpoint, event):
            self._end_link(endpoint, session, event)
        if session.transactions is not None:
            session.transactions.advance()

    @staticmethod
    def _end_link(endpoint: SenderCore | ReceiverCore, session: SessionCore, event: ev.LinkDetached) -> None:
        failure = link_failure(event, endpoint.spec.what)
        links: list[SenderCore] | list[ReceiverCore]
        if isinstance(endpoint, SenderCore):
            endpoint.on_ended(failure, event.unsettled)
            links = session.senders
        else:
            lose(event.unsettled, failure.message)
            endpoint.on_ended(failure)
            links = session.receivers
        if endpoint in links:
            links.remove(endpoint)  # type: ignore[arg-type]  # the list of its own kind

    def _on_credit(self, event: ev.CreditChanged) -> None:
        if isinstance(sender := event.link.context, SenderCore):
            sender.on_credit()
        elif isinstance(control := event.link.context, ControlLink | FateQuery):
            control.pump()

    def _on_drained(self, event: ev.LinkDrained) -> None:
        if isinstance(receiver := event.link.context, ReceiverCore):
            receiver.on_drained()
            if receiver.session.transactions is not None:
                receiver.session.transactions.advance()

    def _on_flow(self, event: ev.FlowReceived) -> None:
        if isinstance(receiver := event.link.context, ReceiverCore):
            receiver.on_flow()

    def _on_deliveries(self, event: ev.DeliveriesReceived) -> None:
        if isinstance(receiver := event.link.context, ReceiverCore):
            receiver.on_deliveries(event.deliveries)
        elif isinstance(query := event.link.context, FateQuery):
            query.on_deliveries(event.deliveries)

    def _on_run(self, event: ev.RunReceived) -> None:
        if isinstance(receiver := event.link.context, RunReceiverCore):
            receiver.on_run(event.run)

    def _on_run_settled(self, event: ev.RunSettled) -> None:
        if isinstance(receiver := event.run.link.context, ReceiverCore):
            session = receiver.session
            assert isinstance(session, SessionCore)
            session.on_run_answered(event.run, event.state)

    def _on_aborted(self, event: ev.DeliveryAborted) -> None:
        if isinstance(receiver := event.link.context, ReceiverCore):
            self.short_of_credit[receiver] = None  # its credit is used, and nothing came of it
            if isinstance(receiver, ResumingReceiver):
                receiver.on_aborted(event.tag)

    def _on_states(self, event: ev.StatesReceived) -> None:
        endpoint = event.link.context
        if isinstance(endpoint, SenderCore):
            endpoint.on_states(event.deliveries, event.state, event.settled)
        elif isinstance(endpoint, ReceiverCore):
            session = endpoint.session
            assert isinstance(session, SessionCore)
            session.on_answers(event.deliveries, event.state, event.settled)
        elif isinstance(endpoint, ControlLink | FateQuery):
            endpoint.on_states(event.deliveries, event.state, event.settled)


_HANDLERS: Final[dict[type, Callable[..., None]]] = {
    ev.ConnectionOpened: ClientCore._on_opened,
    ev.ConnectionEnded: ClientCore._on_ended,
    ev.SessionBegun: ClientCore._on_session_begun,
    ev.SessionEnded: ClientCore._on_session_ended,
    ev.LinkRequested: ClientCore._on_link_requested,
    ev.LinkAttached: ClientCore._on_link_attached,
    ev.LinkDetached: ClientCore._on_link_detached,
    ev.CreditChanged: ClientCore._on_credit,
    ev.LinkDrained: ClientCore._on_drained,
    ev.FlowReceived: ClientCore._on_flow,
    ev.DeliveriesReceived: ClientCore._on_deliveries,
    ev.RunReceived: ClientCore._on_run,
    ev.RunSettled: ClientCore._on_run_settled,
    ev.DeliveryAborted: ClientCore._on_aborted,
    ev.StatesReceived: ClientCore._on_states,
    ev.TransactionalStateMissed: lambda core, event: None,  # about sends whose outcome was heard before: an echo
}
"""Every event that a client's engine gives. The SASL events are a server's."""


def _nobody(failure: Failure) -> None:
    pass
