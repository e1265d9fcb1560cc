"""A receiving link of the client: its buffer, its credit, what was handed out.

Theory of operation. Messages arrive on the loop side and wait in `buffer`. User code, in whatever thread, pops them:
a deque makes that safe, and nothing else is shared. What follows from a hand-over (credit, the automatic outcome) is
a command to the loop side, where it happens for all messages of a wake-up at once.

Credit. `held` counts the messages whose credit has not come back: by the mode, those in the buffer, or those not
acknowledged. Link-credit + held never exceeds `prefetch`; it is topped up when half of that is free, so that a flow
frame pays for many messages. The limit in bytes is kept by estimate, as credit counts messages: credit is granted for
as many messages of the average size as there is room for, and taken back when what arrives is larger. It is exceeded by
what was on its way, and by a single message that is larger than all of it.

Pull (prefetch 0). Each waiting `receive` is one credit. At its time-out the credit is drained (2.6.7): the peer sends
at once or gives it back, so that a message cannot arrive for nobody. `drain` does the same for a prefetching receiver
and leaves it without credit until somebody waits for a message again.

Interruption. What was prefetched is dropped, for the broker delivers it again; what was handed out is known by its
number as of an earlier connection (`SessionCore.since`). Who waits goes on waiting, and the credit is granted anew with
the next attach.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Protocol, Self

from acquit.client.failures import Failure
from acquit.client.modes import CreditReturn
from acquit.client.options import ReceiverSpec
from acquit.client.receipts import Milestone, ReceiptStatus, SettlementReceipt
from acquit.client.received import MessageCore, ReceiverBase, SessionCoreBase
from acquit.client.sources import asked_filters, is_choosy, is_queue_for_topic, make_source, not_applied
from acquit.client.tracing import Tracer
from acquit.errors import AcquitError, CreditExhausted, EndpointError, LinkDetached
from acquit.protocol.constants import ACCEPTED, RELEASED, Outcome
from acquit.protocol.definitions import AmqpCondition, Error, RcvSettleMode, SndSettleMode, StdDistMode, Target
from acquit.protocol.delivery import Delivery
from acquit.protocol.extensions import LOCK_DURATION

logger = logging.getLogger("acquit.client")

OUTCOMES = ("amqp:accepted:list", "amqp:rejected:list", "amqp:released:list", "amqp:modified:list")
"""The outcomes a link may end in (3.5.3)."""


class Listener(Protocol):
    """A listener, which hands messages to a handler, as its receiver sees it (`listening.ListeningCore`)."""

    ended: Milestone

    def begin_stop(self) -> None:
        """Hand out nothing more."""

    @property
    def asked_from_inside(self) -> bool:
        """True if one of the listener's own handlers is asking."""


class ReceiverCore(ReceiverBase):
    """A receiver. Methods under "user side" may be called from any thread, the others only on the loop side."""

    __slots__ = (
        "_average_bytes",
        "_before_listener",
        "_on_handover",
        "_paused",
        "_pulling",
        "_queries",
        "_received",
        "_reliable",
        "_resumes_paused",
        "_settles_for_peer",
        "_silent",
        "_tracer",
        "_unanswered_max",
        "_unsettled_max",
        "_warned",
        "attached",
        "buffer",
        "detached",
        "drained",
        "has_waiters",
        "held",
        "held_bytes",
        "link",
        "listeners",
        "notify",
        "returning",
        "short_of_answers",
        "starved",
    )

    def __init__(self, session: SessionCoreBase, spec: ReceiverSpec) -> None:
        super().__init__(session, spec)
        self.buffer: deque[MessageCore] = deque()
        self.held = 0
        self.held_bytes = 0
        self.attached = Milestone()
        self.detached = Milestone()
        self.drained: Milestone | None = None
        self.listeners: list[Listener] = []
        """Listeners that were started and have not ended."""
        self.notify: Callable[[], None] = _nobody
        """Called on the loop side when the buffer has got something, or nothing will come any more."""
        self.has_waiters: Callable[[], bool] = _no
        """Function that says whether somebody waits for a message who does not say so by `begin_wait`."""
        self.returning = False
        """Messages are not wanted now: what arrives goes back (a rollback)."""
        self._received = self.mode.received
        self._tracer = session.core.options.tracer
        self._before_listener = self.mode.listener_called
        self._unsettled_max = session.core.options.unsettled_max if self.mode.bounded else 0
        self._unanswered_max = 0 if self.mode.credit is CreditReturn.ON_HANDOVER else session.core.options.ack_capacity
        self.short_of_answers = False
        """Less credit was granted than there is room for, before the peer answers acknowledgements."""
        self.starved = False
        """No credit is granted before the peer answers acknowledgements that it has: it owes too many answers."""
        self._resumes_paused = False
        self._reliable = self.mode.reliable
        self._settles_for_peer = False
        """The peer was asked to send settled, and does not (2.8.2): what comes is accepted as it arrives, which is as
        near as can be to having been forgotten as it was sent."""
        self._on_handover = self.mode.credit is CreditReturn.ON_HANDOVER
        self._paused = False
        self._silent = False
        """True while nothing is granted before the peer has answered the attach: it does not bear that, or its answer
        tells first what it is to resume (`resuming`), or whether it does what was asked (`sources.is_choosy`)."""
        self._pulling = 0
        self._queries: list[Milestone] = []
        self._average_bytes = 0.0
        self._warned = False

    # -- user side -----------------------------------------------------------------------------------------------------

    def take(self) -> MessageCore | None:
        """Hand out the next message as `receive` does, with the mode's outcome; None when the buffer is empty. Raises
        `refusal`."""
        if self.mode.transacted and (refusal := self.refusal) is not None:
            raise refusal
        return self._take(self._received)

    def take_for_listener(self) -> MessageCore | None:
        """Hand out the next message undecided, unless the mode decides before its listener is called: else its outcome
        follows from what the listener does."""
        return self._take(self._before_listener)

    def _take(self, outcome: Outcome | None) -> MessageCore | None:
        try:
            message = self.buffer.popleft()
        except IndexError:
            return None
        if self._tracer is not None:
            self._tracer.received(message, self.address, self.session.core.where)
        if outcome is None and self._reliable:
            self.session.handed_out[message.number] = message
            if self._on_handover:
                # Its outcome may be there before the loop side hears of this, and is not for the hand-over to say.
                self.session.core.post((self.session.give_credit_back, message))
            return message
        message.outcome = outcome
        if self._on_handover:
            self.session.core.post(message)
        return message

    def listening(self, message: MessageCore) -> Listening:
        """The time in which a listener has `message`."""
        return Listening(message) if self._tracer is None else TracedListening(message, self._tracer)

    def check(self) -> None:
        """Raise why nothing will come any more, if that is so."""
        failure = self.failure
        if failure is not None and not self.buffer:
            raise failure.error()
        if self.closing:
            raise LinkDetached(f"{self.spec.what} is closed")

    @property
    def refusal(self) -> AcquitError | None:
        """The error of handing out a message in a transaction that cannot be committed any more; None where nothing
        speaks against it, or the receiver has ended (`check`)."""
        transactions = self.session.transactions
        if not self.mode.transacted or transactions is None or self.failure is not None or self.closing:
            return None
        return transactions.refusal

    @property
    def closed_by_us(self) -> bool:
        """True if the receiver has ended because its owner wanted that: it ends an iteration; all else is an error."""
        return self.closing or (self.failure is not None and self.failure.orderly)

    def before_waiting(self) -> None:
        """Prepare a wait for a message, with nothing in the buffer: say so if it will be for nothing, and see to it
        that what room there is has been granted, as hand-overs do not tell the loop side in every mode."""
        self._warn_if_exhausted()
        if not self._on_handover and self.link.credit == 0:
            self.session.core.post((self.top_up,))

    def begin_wait(self) -> None:
        """Note that somebody waits for a message now. Needed where that makes credit: see `waits_for_credit`."""
        self.session.core.post((self._wait_begun,))

    def end_wait(self) -> None:
        """The wait is over, with or without a message."""
        self.session.core.post((self._wait_ended,))

    @property
    def waits_for_credit(self) -> bool:
        """True if there is credit only while somebody waits (prefetch 0, or after `drain`)."""
        return self.spec.prefetch == 0 or self._paused

    @property
    def exhausted(self) -> bool:
        """True if nothing more comes for now: all of the prefetch is handed out, or a transaction has `unsettled_max`
        messages, or the peer owes more answers than `ack_capacity`. `exhaustion` says what has to happen first.

        Counts what is handed out rather than looking at the credit, as acknowledgements may be on their way to the
        loop side.
        """
        spec = self.spec
        if self.buffer:
            return False
        if self.starved:
            return True
        if self._unsettled_max:
            # What is acknowledged by itself makes room by itself.
            return self._received is None and self._unacknowledged >= self._unsettled_max
        if self._on_handover or spec.prefetch == 0:
            return False
        if self.held < spec.prefetch and self.held_bytes < spec.prefetch_bytes:
            return False
        sizes = self._sizes_handed_out()
        return len(sizes) >= spec.prefetch or sum(sizes) >= spec.prefetch_bytes

    def _sizes_handed_out(self) -> list[int]:
        """Bytes of each message of this connection that is handed out and has no outcome."""
        since = self.session.since
        held = list(self.session.handed_out.values())
        return [len(m.payload) for m in held if m.receiver is self and m.number >= since]

    @property
    def _unacknowledged(self) -> int:
        return self.link.unsettled_count if self.failure is None else 0

    def _warn_if_exhausted(self) -> None:
        # Once each time it comes to that.
        exhausted = self.exhausted
        if exhausted and not self._warned:
            logger.warning("%s", self.exhaustion())
        self._warned = exhausted

    def exhaustion(self) -> CreditExhausted:
        """Return the error that `receive` raises when the receiver is exhausted."""
        if self.starved:
            return CreditExhausted(
                f"the peer owes answers to {self._unanswered_max} acknowledgements of {self.spec.what} (ack_capacity), "
                "and nothing more comes before it gives some"
            )
        if self._unsettled_max:
            return CreditExhausted(
                f"{self.spec.what} has handed out {self._unsettled_max} messages in this transaction (unsettled_max), "
                "and nothing more comes before it ends"
            )
        return CreditExhausted(
            f"{self.spec.what} has handed out all of its prefetch ({self.spec.prefetch} messages, "
            f"{self.spec.prefetch_bytes} bytes) in mode {self.mode.name.name}, and nothing more comes before some are "
            "acknowledged"
        )

    @property
    def lock_duration_ms(self) -> int | None:
        """Milliseconds that the peer lets us hold a message without an outcome, if it says so."""
        duration = self.remote_properties.get(LOCK_DURATION)
        return int(duration) if isinstance(duration, int) else None

    @property
    def available(self) -> int | None:
        """Number of messages that wait at the peer, as its last flow said; None where it never did."""
        return self.link.available if self.attached.done and self.failure is None else None

    # -- loop side: life -----------------------------------------------------------------------------------------------

    def attach(self) -> None:
        """Attach, and grant the first credit with it, unless the peer does not bear that, or something was asked for
        that its answer may not grant: what it sends settled before it hears that we refuse the link is gone."""
        spec, mode = self.spec, self.mode
        self._silent = self.session.core.peer.wants_attach_answered or is_choosy(spec)
        self.link = self.session.engine.attach_receiver(
            spec.name,
            source=make_source(spec, OUTCOMES, named=self.session.core.named, default_outcome=mode.default_outcome),
            target=Target(address=spec.target),
            snd_settle_mode=mode.snd_settle_mode,
            rcv_settle_mode=RcvSettleMode.FIRST if self.session.core.peer.refuses_second else mode.rcv_settle_mode,
            properties=spec.properties,
            context=self,
        )
        self.top_up()

    def on_attached(self) -> None:
        """The peer has a terminus for us. What it says of its source is what holds (2.6.3, 3.5.3): where that is not
        what was asked for, to go on would be to consume what the user wanted to look at, or did not want at all."""
        granted = self.link.source
        spec = self.spec
        refused = None
        peer = self.session.core.peer
        if spec.browse and (granted is None or granted.distribution_mode != StdDistMode.COPY or peer.repeats_source):
            refused = "the peer does not let us browse (distribution-mode copy)"
        elif spec.subscription is not None and peer.repeats_source:
            refused = "the peer keeps no subscriptions that have a name"
        elif is_queue_for_topic(spec, granted):
            refused = "the peer has a queue there, and no topic"
        elif missing := not_applied(asked_filters(spec), granted.filter if granted else None, peer):
            refused = f"the peer does not apply the filter {', '.join(missing)}"
        elif self._reliable and not spec.browse and self.link.snd_settle_mode is SndSettleMode.SETTLED:
            # What is settled as it is sent can be given back by nobody, and is in no transaction.
            refused = "the peer sends settled where unsettled was asked for; a session of mode NO_ACK takes that"
        if refused is None:
            self._settles_for_peer = not self._reliable and self.link.snd_settle_mode is not SndSettleMode.SETTLED
            self.attached.succeed()
            if self._silent:
                self._break_silence()
            if self._queries:  # asked of a connection that is lost
                self.link.grant(self.link.credit, echo=True)
            self.notify()  # a temporary node has its name
            return
        self._end(Failure(LinkDetached, f"{spec.what} was detached by us: {refused}"))
        self.link.detach(Error(AmqpCondition.NOT_IMPLEMENTED, refused))

    def _break_silence(self) -> None:
        self._silent = False
        asked, self.drained = self.drained, None
        self.top_up()
        self.drained = asked
        if self._draining:
            self._begin_drain()
            if self.session.transactions is not None:
                self.session.transactions.advance()

    def on_ended(self, failure: Failure) -> None:
        """The link is gone, by itself or with its session or connection."""
        if self.failure is None:
            self._end(failure)
        self.detached.succeed()

    def _end(self, failure: Failure) -> None:
        self.failure = failure
        if self._reliable:
            # Redelivered by the broker; handing them out now would be for an acknowledgement that cannot be made.
            # In NO_ACK they are nobody's but ours.
            self.buffer.clear()
        self.attached.fail(failure)
        for waiting in (self.drained, *self._queries):
            if waiting is not None:
                waiting.fail(failure)
        self._queries.clear()
        self.notify()

    def on_interrupted(self, failure: Failure) -> None:
        """The connection is lost, and will be restored."""
        if self._reliable:
            self.buffer.clear()
        self.held = self.held_bytes = 0
        if self.drained is not None:
            self.drained.fail(failure)  # no credit is left, but who knows what was available
        self.notify()  # a temporary node is gone

    def on_refused(self, failure: Failure, lost: list[Delivery]) -> None:
        """The peer refused the link as it came back, for `failure`, and it will be attached once more: nobody will hear
        of a drain of the one that was refused, and what came over it nevertheless, in `lost`, is gone."""
        if not self.resumes:
            lose(lost, failure.message)
            if self._reliable:
                self._drop_buffer()
        if self.drained is not None:
            self.drained.fail(failure)
        self.notify()

    def _drop_buffer(self) -> None:
        for message in self.empty_buffer():
            self.give_back(message)

    def begin_close(self) -> None:
        """Hand out nothing more, and take nothing more: what is on its way goes back as it arrives."""
        self.closing = True
        if self.failure is None:
            self.link.grant(0)
        self.notify()

    def detach(self) -> None:
        """Close the link, or leave a durable subscription, which lives on; `detached` ends when that is done."""
        self.closing = True
        if self.failure is None and self.session.out_of_reach(self):
            self.session.forget(self, Failure(LinkDetached, f"{self.spec.what} was closed by us", orderly=True))
        elif self.failure is None:
            subscription = self.spec.subscription
            self.link.detach(closed=subscription is None or not subscription.durable)
        else:
            self.detached.succeed()

    # -- loop side: messages -------------------------------------------------------------------------------------------

    def on_deliveries(self, deliveries: list[Delivery]) -> None:
        """Messages arrived. What came before the peer heard that we refuse the link is not what was asked for."""
        if self.failure is not None:
            return
        if self.closing or self.returning:
            self._return_to_sender(deliveries)
            return
        if self._settles_for_peer:
            self.session.engine.settle_all(deliveries, ACCEPTED)
        number = self.session.number
        kind = self.session.kinds.message
        self._take_in([kind(self, delivery, n) for n, delivery in enumerate(deliveries, number)])
        self._count_in(len(deliveries), sum([len(delivery.payload) for delivery in deliveries]))

    def _count_in(self, count: int, size: int) -> None:
        """Count what has arrived against the prefetch, and wake who waits for it."""
        self.session.number += count
        self.held += count
        self.held_bytes += size
        self._average_bytes += (size / count - self._average_bytes) / 4 if self._average_bytes else size / count
        if self.held_bytes + self.link.credit * self._average_bytes > self.spec.prefetch_bytes:
            self.top_up()
        self.notify()

    def _take_in(self, messages: list[MessageCore]) -> None:
        """Put messages into the buffer, where the user's thread may take them at once."""
        self.buffer.extend(messages)

    def _return_to_sender(self, deliveries: list[Delivery]) -> None:
        if self._reliable or self._settles_for_peer:
            self.session.engine.settle_all(deliveries, self.spec.default_outcome or RELEASED)

    def give_back(self, message: MessageCore) -> None:
        """The credit of a message comes back."""
        self._warned = False
        if message.number >= self.session.since:
            self.held -= 1
            self.held_bytes -= len(message.delivery.payload)

    def withdraw(self, delivery: Delivery) -> bool:
        """The peer took back a delivery. True if it was still in the buffer, from where it is gone now."""
        for message in list(self.buffer):
            if message.delivery is delivery and self.take_out(message):
                self.give_back(message)
                return True
        return False

    def take_out(self, message: MessageCore) -> bool:
        """Take a message out of the midst of the buffer. False where it is not there: it was handed out."""
        while True:
            try:
                self.buffer.remove(message)
            except IndexError:  # a thread has taken another meanwhile
                continue
            except ValueError:
                return False
            return True

    def put_back(self, messages: list[MessageCore]) -> None:
        """Recover: handed-out messages go back to the front of the buffer, in the order they were handed out."""
        for message in reversed(messages):
            message.attempts += 1
            self.buffer.appendleft(message)
        self.notify()

    def empty_buffer(self) -> list[MessageCore]:
        """Take all that was never handed out, at the close."""
        left = []
        while self.buffer:
            try:
                left.append(self.buffer.popleft())
            except IndexError:
                break
        return left

    def return_buffer(self) -> list[MessageCore]:
        """Begin a rollback: ask for the credit back, and take what was never handed out. What arrives from now on goes
        back by itself, until `resume`."""
        self.returning = True
        self._resumes_paused = self._paused
        self.drain()
        left = self.empty_buffer()
        for message in left:
            self.give_back(message)
        return left

    @property
    def returned(self) -> bool:
        """True if no credit is left that something could arrive for."""
        return self.failure is not None or self.drained is None or self.drained.done

    def resume(self) -> None:
        """The rollback is over: messages are wanted again."""
        self.returning = False
        self._paused = self._resumes_paused and not self._pulling
        if not self.returned:
            # The peer does not drain. To grant anew is to forget what it still may use.
            assert self.drained is not None
            self.drained.fail(Failure(EndpointError, f"{self.spec.what} was not drained before the transaction ended"))
            self.link.grant(0)
        self.top_up()

    # -- loop side: credit ---------------------------------------------------------------------------------------------

    def top_up(self) -> None:
        """Grant what the prefetch has room for, if that is worth a flow."""
        if self.closing or self.returning or self.failure is not None or self._draining or self._silent:
            return
        credit = self.link.credit
        prefetch = self.spec.prefetch
        resumed = self.resumptions
        if prefetch == 0 or self._paused:
            wanted = self._pulling - len(self.buffer)
            if self._unsettled_max:
                wanted = min(wanted, self._unsettled_max - self.link.unsettled_count)
            elif self._unanswered_max:
                wanted = self._within_unanswered(wanted)
            if wanted + resumed > credit:
                self.link.grant(wanted + resumed)
            return
        room = prefetch - self.held
        if self._average_bytes:
            by_bytes = int((self.spec.prefetch_bytes - self.held_bytes) / self._average_bytes)
            if by_bytes < room:
                # One message must always be able to come, however large it is.
                room = max(by_bytes, 0 if self.held else 1)
        if self._unsettled_max:
            room = min(room, self._unsettled_max - self.link.unsettled_count)
        elif self._unanswered_max:
            room = self._within_unanswered(room)
        room = max(room, 0) + resumed
        # Half of the prefetch is worth a flow. Less is, too, when somebody has nothing to do before it comes.
        urgent = credit < resumed or not (credit or self.buffer)
        if room < credit or (room > credit and (room - credit >= prefetch // 2 or urgent)):
            self.link.grant(max(room, 0))

    @property
    def resumptions(self) -> int:
        """Deliveries that the peer is still to resume, each of which uses one credit."""
        return 0

    def _within_unanswered(self, room: int) -> int:
        # What is acknowledged has given its credit back, but is remembered until the peer answers: a peer that never
        # does gets no more to send.
        beyond = self.link.unsettled_count - self.held - self._unanswered_max
        left = room - max(beyond, 0)
        self.short_of_answers = left < room
        self.starved = left <= 0 < room
        return left

    def _wait_begun(self) -> None:
        self._pulling += 1
        if self._paused and self.spec.prefetch:
            self._paused = False
        self.top_up()

    def _wait_ended(self) -> None:
        self._pulling -= 1
        if self.spec.prefetch or self.failure is not None or not self.link.credit:
            return
        if self._pulling == 0:
            self.drain()
        elif not self._draining:
            wanted = max(0, self._pulling - len(self.buffer)) + self.resumptions
            if wanted < self.link.credit:  # others go on waiting, each for one message
                self.link.grant(wanted)

    def drain(self) -> Milestone:
        """Ask the peer to use the credit now or give it back. The promise ends when none is left."""
        if self.drained is not None and not self.drained.done:
            return self.drained
        self.drained = drained = Milestone()
        core = self.session.core
        failure = self.failure
        if failure is None:
            failure = core.interruption if core.interrupted else core.refused.get(self)
        if failure is not None:
            drained.fail(failure)
        elif self.returning or not self._silent:
            self._begin_drain()
        return drained

    def pause(self) -> None:
        """Take back what credit is left, and grant none until somebody waits for a message, whatever room there is.
        What is on its way arrives all the same."""
        self._paused = True
        if self.failure is None and not self._draining and self.link.credit > self.resumptions:
            self.link.grant(self.resumptions)

    def _begin_drain(self) -> None:
        self._paused = True
        if not self.link.drain_credit():
            self._drain_over()

    @property
    def _draining(self) -> bool:
        """True while a drain is under way: to grant would end it, and nobody would hear that it is over."""
        return self.drained is not None and not self.drained.done

    def on_drained(self) -> None:
        """No credit is left: all that was available has arrived."""
        self._drain_over()
        self.top_up()

    def _drain_over(self) -> None:
        if self.drained is not None:
            self.drained.succeed()
        if self._paused and self.has_waiters() and not self.returning:
            self._paused = False
            self.session.core.short_of_credit[self] = None

    def query(self) -> Milestone:
        """Ask the peer for the state of the link. The promise ends when it has answered, if it ever does."""
        query = Milestone()
        if self.failure is not None:
            query.fail(self.failure)
        else:
            self._queries.append(query)
            self.link.grant(self.link.credit, echo=True)
            if self._draining:
                self.link.drain_credit()
        return query

    def on_flow(self) -> None:
        """The peer told the state of the link."""
        queries, self._queries = self._queries, []
        for query in queries:
            query.succeed()

    # -- loop side: settlement -----------------------------------------------------------------------------------------

    @property
    def answered(self) -> bool:
        """True if the peer answers acknowledgements: rcv-settle-mode second was granted (2.8.3)."""
        return self.link.rcv_settle_mode is RcvSettleMode.SECOND

    def open_receipts(self) -> list[SettlementReceipt]:
        """Receipts that wait for the peer's answer about deliveries of this link."""
        if self.failure is not None:
            return []
        if self.session.transactions is not None:
            return self.session.transactions.open_receipts()
        found = {id(d.context): d.context for d in self.link.unsettled() if isinstance(d.context, SettlementReceipt)}
        return [receipt for receipt in found.values() if not receipt.done]

    @property
    def remote_properties(self) -> Mapping[str, object]:
        """Properties of the peer's attach."""
        attach = self.link.remote_attach
        return {} if attach is None or attach.properties is None else attach.properties


class Listening:
    """A listener's time with a message; at its end the message gets the outcome that the mode says, if it has none."""

    __slots__ = ("_message", "dealt_with")

    def __init__(self, message: MessageCore) -> None:
        self._message = message
        self.dealt_with: Exception | None = None
        """The exception that the listener failed of, if somebody dealt with that: only the outcome is missing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        receiver = self._message.receiver
        mode, session = receiver.mode, receiver.session
        failed, self.dealt_with = exc or self.dealt_with, None  # its traceback knows us
        outcome = mode.listener_returned if failed is None else mode.listener_failed
        if outcome is not None and session.claim(self._message):
            if mode.lazy_messages:
                session.settle_lazily(self._message, outcome)
            else:
                session.settle([self._message], outcome)
        automatic = outcome is not None or mode.listener_called is not None
        if not automatic or not isinstance(exc, Exception):
            return False  # nobody has dealt with it, or somebody wants the listening to end
        becomes = "goes back" if outcome is not None else "is acknowledged already"
        logger.error("the listener of %s failed; the message %s", receiver.spec.what, becomes, exc_info=exc)
        return True


class TracedListening(Listening):
    """The time in which a listener has a message, with its span."""

    __slots__ = ("_processing",)

    def __init__(self, message: MessageCore, tracer: Tracer) -> None:
        super().__init__(message)
        self._processing = tracer.processing(message, message.receiver.address, message.receiver.session.core.where)

    def __enter__(self) -> Self:
        self._processing.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        error = exc if exc is not None else self.dealt_with
        try:
            return super().__exit__(kind, exc, traceback)
        finally:
            with suppress(BaseException):  # what was raised is raised again, and is the handler's
                self._processing.__exit__(type(error) if error is not None else None, error, traceback)


def lose(deliveries: list[Delivery], reason: str) -> None:
    """Deliveries are gone with their link: whoever waits for an answer about them will not get it."""
    for delivery in deliveries:
        receipt = delivery.context
        if isinstance(receipt, SettlementReceipt):
            delivery.context = None
            receipt.note(ReceiptStatus.UNKNOWN, 1, reason)


def _nobody() -> None:
    pass


def _no() -> bool:
    return False
