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

`wake` is called once until `process` runs, whatever gathers meanwhile. `process` takes the flag back *before* it looks
at the commands: who appends after that look wakes again.

Acknowledgement. `handed_out` holds what a session handed out and nobody acknowledged, in order. Taking a message out
of it is the claim to decide its outcome: it succeeds once, whoever tries, in whatever thread.

The core knows no clock, no socket and no loop, so that a simulation can drive it with virtual time.

Interruption. A connection that is lost and may be restored (`reconnecting` says when) takes nothing with it but what
is in flight. `interrupt` leaves sessions and links as they are, with the verbs of a dead engine, which do nothing;
sends without an outcome go back to their queues, buffers are emptied, `since` tells messages of the old connection.
`restore` gives the core another engine: each session begins on it, and its links attach by the specs they were made
from, all in one write. No user code takes part in either.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from acquit.client.acknowledging import Unanswered
from acquit.client.failures import Failure, connection_failure, link_failure, session_failure
from acquit.client.fates import FateQuery, Origin
from acquit.client.modes import CreditReturn, Mode, Scope
from acquit.client.options import DURABLE_SETTLEMENT, ConnectOptions, ReceiverSpec, SenderSpec, check_outcome
from acquit.client.products import UNKNOWN, product_of
from acquit.client.receipts import Milestone, ReceiptStatus, SettlementReceipt
from acquit.client.received import MessageCore, describe
from acquit.client.receiving import ReceiverCore, lose
from acquit.client.reconnecting import worth_another_try
from acquit.client.sending import SenderCore
from acquit.client.subscriptions import Subscription
from acquit.client.transacting import Control, TransactedSender, Transactions
from acquit.errors import ConfigurationError, ConnectionClosed, ConnectionLost, LocalProtocolError, SessionEnded
from acquit.protocol import events as ev
from acquit.protocol._definitions import AmqpCondition, Error, Open, Received, Target
from acquit.protocol.connection import Connection
from acquit.protocol.constants import ACCEPTED, RELEASED, Outcome
from acquit.protocol.delivery import Delivery, is_outcome
from acquit.protocol.dispositions import FRAME_OVERHEAD, encode_state
from acquit.protocol.session import Session
from acquit.protocol.settlement import Phase

Command: TypeAlias = MessageCore | tuple[Callable[..., object], *tuple[object, ...]]
"""A message that was handed over, or a method of the loop side with its arguments."""

_ANSWERED: Final = frozenset((Phase.UNSETTLED_SECOND, Phase.OFFERED_SECOND))
"""Deliveries whose sender will answer our outcome: rcv-settle-mode second, of the link or of the transfer (2.7.5)."""

_UNANSWERED_MIN: Final = 1_000
"""So many receipts may be kept before it is worth looking which are done."""

_TRANSACTION_OVERHEAD: Final = 64
"""Octets that an outcome grows by within a transaction: its id, in practice 4 to 36, and what is around it."""

_TAKEN_BACK: Final = object()
"""The context of a delivery that the peer has given an outcome to of its own accord."""


@dataclass(frozen=True, slots=True)
class Kinds:
    """The classes of what users see: the driver's, which know how to wait."""

    message: type[MessageCore]
    receipt: type[SettlementReceipt]


class SessionCore:
    """One session: its mode, its links, and what it handed out."""

    def __init__(self, core: ClientCore, mode: Mode) -> None:
        self.core = core
        self.mode = mode
        self.engine: Session
        self.begun = Milestone()
        self.ended = Milestone()
        self.failure: Failure | None = None
        self.closing = False
        self.senders: list[SenderCore] = []
        self.receivers: list[ReceiverCore] = []
        self.errands: dict[Removal | FateQuery, None] = {}
        """What is under way on links of its own."""
        self.handed_out: dict[int, MessageCore] = {}
        """Handed out and not acknowledged, in the order of handing out, by their number."""
        self.number = 0
        """Of the next message that arrives."""
        self.since = 0
        """The number of the first message that arrived on the present connection: the broker delivers older ones that
        were not acknowledged again, to whomever."""
        self.unanswered = Unanswered(core)
        """Acknowledgements that nobody waits for."""
        self.transactions = Transactions(self) if mode.transacted else None
        self.eager = not (mode.transacted or mode.lazy_messages)
        """Whether nothing that was done waits for something else, or for a while."""
        self._lazy_max = min(mode.lazy_messages, max(1, core.options.unsettled_max // 2))
        self._hurried = False
        self._said: Outcome | None = None
        self._about: list[Delivery] = []

    # -- user side -----------------------------------------------------------------------------------------------------

    def claim(self, message: MessageCore) -> bool:
        """Take the right to decide the outcome of a message. True for the first who asks."""
        return self.handed_out.pop(message._number, None) is not None

    def settle(self, messages: Sequence[MessageCore], outcome: Outcome) -> SettlementReceipt:
        """Give messages their outcome, which were claimed before."""
        receipt = self.core.kinds.receipt(len(messages))
        if messages:
            for message in messages:
                message._outcome = outcome
            self.core.post((self._settle, messages, outcome, receipt))
        return receipt

    def acknowledge(self, message: MessageCore | None, whole_session: bool) -> SettlementReceipt:
        """Accept what `acknowledge` means in this mode: `message` and what was handed out before it, `message` alone,
        or without one all that was handed out. `whole_session`: the verb of a message in CLIENT mode, which does not
        stop at that message. Without effect in the other modes.
        """
        scope = self.mode.scope
        if scope is Scope.NOTHING:
            return self.settle([], ACCEPTED)
        if message is not None and message._receiver.session is not self:
            raise ConfigurationError("acknowledge takes a message of this session, got one of another")
        if message is None or (scope is Scope.SESSION and whole_session):
            wanted: Iterable[MessageCore] = list(self.handed_out.values())
        elif scope is Scope.MESSAGE:
            wanted = [message]
        else:
            wanted = self._up_to(message)
        return self.settle([message for message in wanted if self.claim(message)], ACCEPTED)

    def _up_to(self, message: MessageCore) -> list[MessageCore]:
        """All handed out before `message`, and it; nothing where it is acknowledged already."""
        handed_out = list(self.handed_out.values())
        return handed_out[: handed_out.index(message) + 1] if message._number in self.handed_out else []

    def settle_all(self, messages: Iterable[MessageCore], outcome: Outcome) -> SettlementReceipt:
        """Give each of `messages` its outcome; those that have one already are passed over."""
        self.core.check_outcome(outcome)
        messages = list(messages)
        for message in messages:
            if message._receiver.session is not self:
                raise ConfigurationError("settle takes messages of this session, got one of another")
        return self.settle([message for message in messages if self.claim(message)], outcome)

    def recover(self) -> int:
        """What was handed out and not acknowledged goes back to the front of the buffers, in order. How many.

        Only in modes where the user acknowledges: elsewhere nothing is left to be recovered. Raises LocalProtocolError
        in TRANSACTED, where that is what a rollback does.
        """
        if self.transactions is not None:
            raise LocalProtocolError("recover is not for sessions in mode TRANSACTED: roll back")
        if self.mode.scope is Scope.NOTHING:
            return 0
        claimed = [message for message in list(self.handed_out.values()) if self.claim(message)]
        if claimed:
            self.core.post((self._recover, claimed))
        return len(claimed)

    def check(self) -> None:
        """Raise why the session cannot be used any more, if that is so."""
        if self.failure is not None:
            raise self.failure.error()
        if self.closing:
            raise SessionEnded("the session is closed")

    # -- loop side: life -----------------------------------------------------------------------------------------------

    def add_sender(self, spec: SenderSpec) -> SenderCore:
        """Attach a sender."""
        self.check()
        sender = SenderCore(self, spec) if self.transactions is None else TransactedSender(self, spec)
        sender.attach()
        self.senders.append(sender)
        return sender

    def add_receiver(self, spec: ReceiverSpec) -> ReceiverCore:
        """Attach a receiver."""
        self.check()
        if spec.subscription is not None:
            taken = {other.spec.name for session in self.core.sessions for other in session.receivers}
            spec = replace(spec, name=spec.subscription.link_name(taken, named=self.core.named))
        receiver = ReceiverCore(self, spec)
        receiver.attach()
        self.receivers.append(receiver)
        return receiver

    def ask_fate(self, txn_id: bytes, origin: Origin | None = None) -> FateQuery:
        """Ask the peer what became of a transaction, which was declared at `origin` if that is known."""
        if self.failure is not None:
            raise self.failure.error()
        return FateQuery(self, txn_id, origin)

    def remove_subscription(self, subscription: Subscription) -> Removal:
        """Delete a subscription of a topic at the peer."""
        self.check()
        return Removal(self, subscription)

    def on_ended(self, failure: Failure) -> None:
        """The session is over, by itself or with its connection, and its links with it."""
        if self.failure is not None:
            return
        self.failure = failure
        self.core.gathering.pop(self, None)
        if self.transactions is not None:
            self.transactions.on_session_ended(failure)
        lost = self.engine.unsettled()
        for sender in tuple(self.senders):
            sender.on_ended(failure, [delivery for delivery in lost if delivery.link is sender.link])
        lose(lost, failure.message)
        for receiver in tuple(self.receivers):
            receiver.on_ended(failure)
        self.senders.clear()
        self.receivers.clear()
        for errand in tuple(self.errands):
            errand.on_ended(failure)
        self.begun.fail(failure)
        self.ended.succeed()

    def on_interrupted(self, failure: Failure) -> None:
        """The connection is lost, and will be restored."""
        if self.closing:
            self.on_ended(failure)
            return
        self._about.clear()
        self._hurried = False
        self.core.gathering.pop(self, None)
        self.since = self.number
        closing: list[SenderCore | ReceiverCore] = [*self.senders, *self.receivers]
        for link in closing:
            if link.closing:
                self.forget(link, failure)
        lost = self.engine.unsettled()
        for sender in self.senders:
            sender.on_interrupted([delivery for delivery in lost if delivery.link is sender.link])
        lose(lost, failure.message)
        for receiver in self.receivers:
            receiver.on_interrupted(failure)
        for errand in tuple(self.errands):
            errand.on_ended(failure)
        if self.transactions is not None:
            self.transactions.on_interrupted(failure)

    def forget(self, link: SenderCore | ReceiverCore, failure: Failure) -> None:
        """A link is gone, without a word of the peer."""
        if isinstance(link, SenderCore):
            link.on_ended(failure, [d for d in self.engine.unsettled() if d.link is link.link])
            self.senders.remove(link)
        else:
            link.on_ended(failure)
            self.receivers.remove(link)

    def restore(self) -> None:
        """Begin again on the core's new engine, with all links."""
        self.engine = self.core.engine.begin()
        self.engine.context = self
        for sender in self.senders:
            sender.attach()
        for receiver in self.receivers:
            receiver.attach()
        if self.transactions is not None:
            self.transactions.restore()

    def end(self) -> None:
        """End it; `ended` ends when that is done."""
        self.closing = True
        if self.failure is None and self.core.interrupted:
            self.on_ended(Failure(SessionEnded, "the session was closed by us"))
            self.core.sessions.remove(self)
        elif self.failure is None:
            self.engine.end()
        else:
            self.ended.succeed()

    # -- loop side: acknowledgement ------------------------------------------------------------------------------------

    def handed_over(self, message: MessageCore) -> None:
        """A message left the buffer with the outcome that the mode gives it, if any, and its credit comes back."""
        if message._number < self.since:
            return
        receiver = message._receiver
        receiver.give_back(message)
        self.core.short_of_credit[receiver] = None
        if message._outcome is not None:
            self._say(message._outcome, message._delivery)

    def give_credit_back(self, message: MessageCore) -> None:
        """A message left the buffer undecided, in a mode where its credit comes back with that."""
        if message._number >= self.since:
            message._receiver.give_back(message)
            self.core.short_of_credit[message._receiver] = None

    def _say(self, outcome: Outcome, delivery: Delivery) -> None:
        # Gathered as long as the outcome is the same: what was acknowledged one by one is one disposition.
        if outcome is not self._said:
            self.say_all()
            self._said = outcome
        self._about.append(delivery)

    def say_all(self) -> None:
        """Give the outcomes that have gathered to the engine."""
        if self._about:
            deliveries, self._about = self._about, []
            self.engine.settle_all(deliveries, self._said)

    def after_batch(self, now: float) -> None:
        """All that user code has asked for since the last time is done, in a session that is not eager."""
        if self.transactions is not None:
            self.transactions.advance()
        elif self._hurried or len(self._about) >= self._lazy_max:
            self.say_gathered()
        elif self._about and self not in self.core.gathering:
            self.core.gathering[self] = now + self.mode.lazy_ms / 1000

    def say_gathered(self) -> None:
        """Acknowledge what has waited for more of its kind."""
        self._hurried = False
        self.core.gathering.pop(self, None)
        self.say_all()
        for receiver in self.receivers:
            self.core.short_of_credit[receiver] = None

    def settle_lazily(self, message: MessageCore, outcome: Outcome) -> None:
        """Give a message, which was claimed before, its outcome with others (user side)."""
        message._outcome = outcome
        self.core.post((self._say_lazily, outcome, message))

    def _say_lazily(self, outcome: Outcome, message: MessageCore) -> None:
        if message._number >= self.since:
            self._say(outcome, message._delivery)

    def _settle(self, messages: Sequence[MessageCore], outcome: Outcome, receipt: SettlementReceipt) -> None:
        if self.transactions is not None:
            self.transactions.settle(messages, outcome, receipt)
            return
        self._hurried = True
        sent = answered = 0
        for message in messages:
            delivery = message._delivery
            if message._number < self.since or delivery.settled or delivery.context is _TAKEN_BACK:
                receipt._note(ReceiptStatus.STALE, 1, self.why_stale(message))
                continue
            if delivery.phase in _ANSWERED:
                delivery.context = receipt
                answered += 1
            else:
                sent += 1
            self._say(outcome, delivery)
        if sent:
            self.core.sent.append((receipt, sent))
        if answered:
            self.core.await_answer(receipt)
        if self.mode.credit is CreditReturn.ON_ACKNOWLEDGEMENT:
            for message in messages:
                message._receiver.give_back(message)
                self.core.short_of_credit[message._receiver] = None

    def renew(self, message: MessageCore, receipt: SettlementReceipt) -> None:
        """Tell the peer that a message is being worked on: progress without an outcome (3.4.1)."""
        delivery = message._delivery
        if message._outcome is not None:
            receipt._note(ReceiptStatus.STALE, 1, f"it was {describe(message._outcome)} meanwhile")
        elif message._number < self.since or delivery.context is _TAKEN_BACK or not delivery.update(Received(0, 0)):
            receipt._note(ReceiptStatus.STALE, 1, self.why_stale(message))
        else:
            self.core.sent.append((receipt, 1))

    def why_stale(self, message: MessageCore) -> str:
        failure = message._receiver.failure
        if failure is None and message._number < self.since:
            failure = self.core.interruption
        if failure is not None:
            return failure.message
        state = message._delivery.remote_state
        return f"the peer had settled it before{f', as {describe(state)}' if state is not None else ''}"

    def on_answers(self, deliveries: list[Delivery], state: object, settled: bool) -> None:
        """The peer told a state of deliveries that we received."""
        if not settled:
            if is_outcome(state):
                self._on_taken_back(deliveries, state)
            return
        for delivery in deliveries:
            receipt = delivery.context
            if isinstance(receipt, SettlementReceipt):
                delivery.context = None
                self._answer(receipt, delivery, state)
            else:
                self._withdraw(delivery)
        receiver = deliveries[0].link.context
        if isinstance(receiver, ReceiverCore) and receiver.starved:
            self.core.short_of_credit[receiver] = None

    def _answer(self, receipt: SettlementReceipt, delivery: Delivery, state: object) -> None:
        # A peer that settles without a state agrees (2.6.12); one that names another outcome was faster.
        if state is None or state.__class__ is delivery.local_state.__class__:
            receipt._note(self.core.answer_means, 1)
        else:
            receipt._note(ReceiptStatus.STALE, 1, f"the peer had settled it before, as {describe(state)}")

    def _on_taken_back(self, deliveries: list[Delivery], state: object) -> None:
        # A spontaneous outcome of the sender (a lock that ran out): it is settled when we confirm it (2.6.12). What we
        # have decided meanwhile stands; the sender's answer will tell whose word came first.
        undecided = [delivery for delivery in deliveries if not isinstance(delivery.context, SettlementReceipt)]
        for delivery in undecided:
            delivery.context = _TAKEN_BACK
            self._withdraw(delivery)
        self.engine.settle_all(undecided, state)  # type: ignore[arg-type]  # is_outcome has looked at it

    def _withdraw(self, delivery: Delivery) -> None:
        receiver = delivery.link.context
        if isinstance(receiver, ReceiverCore) and receiver.withdraw(delivery):
            self.core.short_of_credit[receiver] = None

    def _recover(self, messages: list[MessageCore]) -> None:
        by_receiver: dict[ReceiverCore, list[MessageCore]] = {}
        for message in messages:
            receiver = message._receiver
            if message._number < self.since:
                continue  # the broker delivers it again
            if message._delivery.settled or message._delivery.context is _TAKEN_BACK:
                receiver.give_back(message)
                self.core.short_of_credit[receiver] = None
            else:
                by_receiver.setdefault(receiver, []).append(message)
        for receiver, its_own in by_receiver.items():
            receiver.put_back(its_own)

    def settle_leftovers(self, receiver: ReceiverCore) -> None:
        """At the close of `receiver`: give what was not acknowledged the outcomes that the mode says, or the
        default-outcome that the link was attached with."""
        receiver.begin_close()
        if receiver.failure is not None:
            return
        self.say_all()
        handed_out = [m for m in list(self.handed_out.values()) if m._receiver is receiver and self.claim(m)]
        buffered = receiver.empty_buffer()
        if self.transactions is not None:
            # What was handed out stays part of the transaction; what was not never was.
            self.engine.settle_all([message._delivery for message in buffered], RELEASED)
            self.settle(handed_out, ACCEPTED)
            return
        for messages, outcome in ((buffered, self.mode.left_in_buffer), (handed_out, self.mode.left_handed_out)):
            if messages and outcome is not None:
                self.settle(messages, receiver.spec.default_outcome or outcome)


class Removal:
    """Deletes a subscription: attaches to it without a source, which says that nothing is wanted of it but to be gone,
    and closes the link (as JMS clients do over AMQP 1.0)."""

    def __init__(self, session: SessionCore, subscription: Subscription) -> None:
        named = session.core.named
        self.done = Milestone()
        """It is gone; or why that cannot be."""
        self.what = f"the subscription {subscription.name!r}"
        self._session = session
        session.errands[self] = None
        self._link = session.engine.attach_receiver(
            subscription.first_link_name(named=named),
            source=None,
            target=Target(),
            desired_capabilities=subscription.capabilities(named=named),
            context=self,
        )

    def on_attached(self) -> None:
        """The peer has it."""
        self._link.detach(closed=True)

    def on_ended(self, failure: Failure) -> None:
        """The link is over: as we asked for, or because the peer refused, or with its session."""
        self._session.errands.pop(self, None)
        if failure.orderly:
            self.done.succeed()
        else:
            self.done.fail(failure)


class ClientCore:
    """One connection. `where` names the peer for people; `wake` asks the driver to call `process` soon."""

    def __init__(
        self,
        engine: Connection,
        options: ConnectOptions,
        *,
        where: str,
        wake: Callable[[], None],
        kinds: Kinds,
        named: bool = False,
        restores: bool = False,
    ) -> None:
        """`restores`: the driver restores a connection that is lost."""
        self.engine = engine
        self.options = options
        self.where = where
        self.named = named
        """Whether the user chose our container id: whoever chooses it again is the same container."""
        self.kinds = kinds
        self._restores = restores
        self.opened = Milestone()
        self.closed = Milestone()
        """The socket is gone."""
        self.failure: Failure | None = None
        """Why it is over, for good."""
        self.interrupted = False
        """Whether it is lost, and may be restored."""
        self.interruption: Failure | None = None
        """Why it was lost, the last time that it was."""
        self.restored = Milestone()
        """The end of the interruption: it is there again, or over for good."""
        self.on_lost: Callable[[Failure], None] = _nobody
        """Called when the connection is lost and may be restored, and when it is over."""
        self.closing = False
        self.sessions: list[SessionCore] = []
        self.writable = True
        """Whether the socket takes more: senders pause while it does not."""
        self.answer_means = ReceiptStatus.ANSWERED
        self.peer = UNKNOWN
        self.sent: list[tuple[SettlementReceipt, int]] = []
        """Acknowledgements that nobody will answer, until they are written."""
        self.short_of_credit: dict[ReceiverCore, None] = {}
        self.gathering: dict[SessionCore, float] = {}
        """Sessions whose acknowledgements wait for more of their kind, and until when."""
        self._wake = wake
        self._remote_open: Open | None = None
        self._resend_until = 0.0
        self._is_awake = False
        self._commands: deque[Command] = deque()
        self._unanswered: deque[tuple[float, SettlementReceipt]] = deque()
        self._unanswered_max = _UNANSWERED_MIN
        self._now = 0.0

    # -- user side -----------------------------------------------------------------------------------------------------

    @property
    def has_commands(self) -> bool:
        """Whether something that user code has asked for is still to be done."""
        return bool(self._commands)

    def post(self, command: Command) -> None:
        """Leave a command for the loop side."""
        self._commands.append(command)
        if not self._is_awake:
            self._is_awake = True
            self._wake()

    def check(self) -> None:
        """Raise why the connection cannot be used any more, if that is so."""
        if self.failure is not None:
            raise self.failure.error()
        if self.closing:
            raise ConnectionClosed("the connection is closed")

    def check_outcome(self, outcome: Outcome) -> None:
        """Raise ConfigurationError for what is no outcome, EncodeError or LocalProtocolError for one that cannot be
        told. On the loop side there would be nobody to raise it to."""
        if outcome is ACCEPTED or outcome is RELEASED:
            return
        check_outcome("an outcome", outcome)
        size = len(encode_state(outcome)) + FRAME_OVERHEAD + _TRANSACTION_OVERHEAD
        if size > self.engine.peer_frame_size_max:
            raise LocalProtocolError(
                f"the outcome has {size} bytes, the peer takes frames of {self.engine.peer_frame_size_max} at most"
            )

    @property
    def now(self) -> float:
        """When the loop side was called the last time, on the driver's clock."""
        return self._now

    @property
    def remote_open(self) -> Open:
        """What the peer said of itself. It is there once `opened` has ended well."""
        assert self._remote_open is not None
        return self._remote_open

    # -- loop side: what the driver calls ------------------------------------------------------------------------------

    def process(self, now: float) -> None:
        """Do what user code has asked for since the last time."""
        self._is_awake = False
        self._now = now
        commands = self._commands
        for _ in range(len(commands)):  # what comes meanwhile, from other threads, wakes us again
            command = commands.popleft()
            if command.__class__ is tuple:
                command[0](*command[1:])
            else:
                command._receiver.session.handed_over(command)  # type: ignore[union-attr, arg-type]  # a message
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
                receipt._note(ReceiptStatus.SENT, count)

    def on_writable(self, writable: bool) -> None:
        """The socket takes no more, or does again."""
        self.writable = writable
        if writable:
            for session in self.sessions:
                for sender in session.senders:
                    sender.pump()

    def next_deadline(self) -> float | None:
        """When `handle_deadline` wants to be called at the latest."""
        unanswered = self._unanswered
        while unanswered and unanswered[0][1].done:
            unanswered.popleft()
        deadline = unanswered[0][0] if unanswered else None
        if self.gathering:
            due = min(self.gathering.values())
            deadline = due if deadline is None else min(due, deadline)
        if self.interrupted:
            deadline = self._resend_until if deadline is None else min(self._resend_until, deadline)
        return deadline

    def handle_deadline(self, now: float) -> None:
        """End what has waited too long."""
        unanswered = self._unanswered
        while unanswered and (unanswered[0][1].done or unanswered[0][0] <= now):
            unanswered.popleft()[1]._expire(f"no answer within {self.options.ack_timeout_ms} ms")
        for session in [session for session, due in self.gathering.items() if due <= now]:
            session.say_gathered()
        if self.interrupted and now >= self._resend_until:
            self._give_up_sends(now)
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
        for session in tuple(self.sessions):
            session.on_interrupted(failure)
        self.sessions = [session for session in self.sessions if session.failure is None]
        self.on_lost(failure)

    def restore(self, engine: Connection, now: float) -> None:
        """Another connection is open: begin all sessions on it, and attach their links."""
        self._now = now
        self.engine = engine
        self._note_open()
        self.interrupted = False
        self.writable = True
        for session in tuple(self.sessions):
            session.restore()
        self.restored.succeed()

    def give_up(self, failure: Failure) -> None:
        """The connection could not be restored: it is over."""
        self.interrupted = False
        self._end(failure)
        self.closed.succeed()

    def _give_up_sends(self, now: float) -> None:
        """What has waited for the connection for as long as a send may take has waited long enough."""
        self._resend_until = now + self.options.send_timeout_ms / 1000
        assert self.interruption is not None
        for session in self.sessions:
            for sender in tuple(session.senders):
                sender.give_up_waiting(self.interruption)

    def _answers_lost(self, failure: Failure) -> None:
        # Answers that were on their way from here are in doubt; those that never left are known to have no effect.
        sent, self.sent = self.sent, []
        for receipt, count in sent:
            receipt._note(ReceiptStatus.STALE, count, failure.message)
        while self._unanswered:
            self._unanswered.popleft()[1]._expire(failure.message)

    # -- loop side: operations -----------------------------------------------------------------------------------------

    def begin(self, mode: Mode) -> SessionCore:
        """Begin a session."""
        self.check()
        session = SessionCore(self, mode)
        session.engine = self.engine.begin()
        session.engine.context = session
        self.sessions.append(session)
        return session

    def close(self) -> None:
        """Close the connection; `closed` ends when the socket is gone."""
        self.closing = True
        if self.interrupted:
            self.give_up(Failure(ConnectionClosed, f"the connection to {self.where} was closed by us"))
        else:
            self.engine.close()

    def await_answer(self, receipt: SettlementReceipt) -> None:
        """`receipt` waits for the peer, but not for ever."""
        self._unanswered.append((self._now + self.options.ack_timeout_ms / 1000, receipt))
        if len(self._unanswered) > self._unanswered_max:
            # One that is not answered must not keep all that came after it in memory.
            self._unanswered = deque(entry for entry in self._unanswered if not entry[1].done)
            self._unanswered_max = max(_UNANSWERED_MIN, 2 * len(self._unanswered))

    def abandon(self, reason: str) -> None:
        """This process has no right to the connection (it was forked off the one that has): forget it without a word
        to the peer. What is still asked for ends at once."""
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
        if opened and self._restores and not (self.closing or self.failure) and worth_another_try(event):
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
        else:
            event.session.end(Error(AmqpCondition.NOT_ALLOWED, "this client takes no sessions"))

    def _on_session_ended(self, event: ev.SessionEnded) -> None:
        session = event.session.context
        if isinstance(session, SessionCore):
            session.on_ended(session_failure(event))
            if session in self.sessions:
                self.sessions.remove(session)

    def _on_link_requested(self, event: ev.LinkRequested) -> None:
        event.link.refuse(Error(AmqpCondition.NOT_ALLOWED, "this client takes no links"))

    def _on_link_attached(self, event: ev.LinkAttached) -> None:
        endpoint = event.link.context
        if isinstance(endpoint, SenderCore | ReceiverCore | Removal | Control | FateQuery):
            endpoint.on_attached()

    def _on_link_detached(self, event: ev.LinkDetached) -> None:
        endpoint = event.link.context
        if isinstance(endpoint, Removal | Control | FateQuery):
            endpoint.on_ended(link_failure(event, endpoint.what))
        if not isinstance(endpoint, SenderCore | ReceiverCore):
            return
        failure = link_failure(event, endpoint.spec.what)
        links: list[SenderCore] | list[ReceiverCore]
        if isinstance(endpoint, SenderCore):
            endpoint.on_ended(failure, event.unsettled)
            links = endpoint.session.senders
        else:
            lose(event.unsettled, failure.message)
            endpoint.on_ended(failure)
            links = endpoint.session.receivers
        if endpoint in links:
            links.remove(endpoint)  # type: ignore[arg-type]  # the list of its own kind
        if endpoint.session.transactions is not None:
            endpoint.session.transactions.advance()

    def _on_credit(self, event: ev.CreditChanged) -> None:
        if isinstance(sender := event.link.context, SenderCore):
            sender.on_credit()
        elif isinstance(control := event.link.context, Control | FateQuery):
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

    def _on_aborted(self, event: ev.DeliveryAborted) -> None:
        if isinstance(receiver := event.link.context, ReceiverCore):
            self.short_of_credit[receiver] = None  # its credit is used, and nothing came of it

    def _on_states(self, event: ev.StatesReceived) -> None:
        endpoint = event.link.context
        if isinstance(endpoint, SenderCore):
            endpoint.on_states(event.deliveries, event.state, event.settled)
        elif isinstance(endpoint, ReceiverCore):
            endpoint.session.on_answers(event.deliveries, event.state, event.settled)
        elif isinstance(endpoint, Control | FateQuery):
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
    ev.DeliveryAborted: ClientCore._on_aborted,
    ev.StatesReceived: ClientCore._on_states,
}
"""Every event that a client's engine gives. The SASL events are a server's."""


def _nobody(failure: Failure) -> None:
    pass
