"""A sending link of the client: its outgoing buffer, and the sends in flight.

Theory of operation. User code encodes the message, in its own thread, and puts it into a bounded buffer; the loop side
moves it on while the link has credit. Each send is a promise, which the engine carries as the context of its delivery
and gives back with the outcome::

    enqueue ─▶ queue (bounded) ─ credit ─▶ engine, in flight (bounded by credit) ─ outcome ─▶ promise

While it waits in the queue a send can be taken back, and we know that it never left. From the transfer on only the
peer can say what became of it: without its outcome the send is *in doubt*.

A send keeps its payload until it has its outcome. When the connection is lost and will be restored, what was in flight
goes back to the front of the queue, in order, and is sent again, with the same message id: a sender gives an id to each
message that has none, so that whoever gets it twice can know. What has no outcome when the send time-out has passed
since it was lost for the first time is in doubt after all, at that moment of an outage or with the next loss; a send
with a `timeout` of its own is so when that has passed, connected or not, whether somebody waits for it (`withdraw`) or
not (`expire`). An *unreliable* sender knows no outcomes: what left is
done with.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping
from itertools import islice
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from acquit.client.failures import Failure
from acquit.client.message_ids import MessageIds
from acquit.client.options import DeliveryMode, SenderSpec
from acquit.client.receipts import UNRELIABLE, Milestone, SendPromise, TimeOver
from acquit.client.received import MessageCore, SessionCoreBase
from acquit.client.receiving import OUTCOMES
from acquit.client.tags import delivery_tags
from acquit.client.tracing import TracedPayload, Tracer
from acquit.errors import ConfigurationError, EncodeError, LinkDetached, MessageTooLarge
from acquit.protocol.body import Content
from acquit.protocol.composite import encode_composite
from acquit.protocol.constants import ACCEPTED
from acquit.protocol.definitions import Properties, SndSettleMode, Source, Target
from acquit.protocol.delivery import Delivery, DeliveryState, is_outcome
from acquit.protocol.link import SendingLink
from acquit.protocol.message import Message
from acquit.protocol.sections import data_head, encode_header, text_head

if TYPE_CHECKING:
    from acquit.client.inbox import Cursor

logger = logging.getLogger("acquit.client")

_HEADERS: Final = {
    DeliveryMode.PERSISTENT: encode_header(durable=True),
    DeliveryMode.NON_PERSISTENT: encode_header(durable=False),
}


class SenderCore:
    """A sender. Methods under "user side" may be called from any thread, the others only on the loop side."""

    __slots__ = (
        "_asked_at",
        "_failed",
        "_first_lost",
        "_ids",
        "_pumps",
        "_queued_bytes",
        "_sent_bytes",
        "_tags",
        "_tracer",
        "attached",
        "closing",
        "detached",
        "failure",
        "in_flight",
        "link",
        "message_bytes_max",
        "notify",
        "queue",
        "session",
        "spec",
    )

    link: SendingLink

    def __init__(self, session: SessionCoreBase, spec: SenderSpec) -> None:
        self.session = session
        self.spec = spec
        self.attached = Milestone()
        self.detached = Milestone()
        self.failure: Failure | None = None
        self.closing = False
        self.queue: deque[SendPromise] = deque()
        self.in_flight = 0
        self.message_bytes_max = 0
        self.notify: Callable[[], None] = _nobody
        """Called on the loop side when the buffer has room again, or never will."""
        self._pumps = 0
        self._asked_at: int | None = None
        """Number of `pump`s when another was last asked for, as in `CoreBase.post`."""
        self._tags = delivery_tags()
        self._tracer = session.core.options.tracer
        self._queued_bytes = 0
        self._sent_bytes = 0
        self._failed: deque[SendPromise] = deque(maxlen=1_000)
        self._ids = MessageIds()
        self._first_lost: dict[SendPromise, float] = {}
        """Times at which the sends that are, or were, sent again were lost for the first time."""

    # -- user side -----------------------------------------------------------------------------------------------------

    @property
    def has_room(self) -> bool:
        """True if the buffer takes one more. A message larger than the whole buffer may have it for itself."""
        spec = self.spec
        return len(self.queue) < spec.buffer_messages and self._queued_bytes - self._sent_bytes < spec.buffer_bytes

    def enqueue(self, promise: SendPromise) -> None:
        """Put a send into the buffer. Look at `has_room` first; threads must take turns."""
        if self._tracer is not None:
            self.begin_trace(promise)
        size = len(promise.payload)
        self._queued_bytes += size  # with no call between, where a handler of a signal might send as well
        self.queue.append(promise)
        self._ask_to_pump()

    def _ask_to_pump(self) -> None:
        pumps = self._pumps
        if self._asked_at != pumps:
            self.session.core.post((self.pump,))
            self._asked_at = pumps

    def limit(self, promise: SendPromise, left_s: float, timeout_s: float) -> None:
        """Arrange that a send that was put into the buffer ends in `left_s` seconds, which is what is left of its
        `timeout_s`, whether somebody waits for it or not."""
        core = self.session.core
        core.post((core.limit, self, promise, left_s, timeout_s))

    def check(self) -> None:
        """Raise why nothing can be sent any more, if that is so."""
        if self.failure is not None:
            raise self.failure.error()
        if self.closing:
            raise LinkDetached(f"{self.spec.what} is closed")

    def encode(self, message: Message | Content, delivery_mode: DeliveryMode | None) -> bytes:
        """The payload to transfer. Raises EncodeError, MessageTooLarge for one larger than the peer takes,
        ConfigurationError for what is no message."""
        if delivery_mode is not None and not isinstance(delivery_mode, DeliveryMode):
            raise ConfigurationError(
                f"delivery_mode must be DeliveryMode.PERSISTENT or NON_PERSISTENT, got {delivery_mode!r}"
            )
        if self._tracer is not None:
            return self._encode_traced(message, delivery_mode, self._tracer)
        payload = encode(message, self.spec.delivery_mode, delivery_mode, self._ids)
        self.check_size(payload)
        return payload

    def _encode_traced(self, message: Message | Content, delivery_mode: DeliveryMode | None, tracer: Tracer) -> bytes:
        """The payload with the trace of the send, whose context the message carries."""
        if isinstance(message, Encoded):
            return encode(message, self.spec.delivery_mode, delivery_mode, self._ids)
        message = message_of(message)
        if isinstance(message, MessageCore):
            message = message.as_new()
        traced, trace = tracer.begin_send(message, self.spec.address, self.session.core.where)
        try:
            payload = TracedPayload(encode(traced, self.spec.delivery_mode, delivery_mode, self._ids))
            self.check_size(payload)
        except BaseException as exc:
            trace.end(exc)
            raise
        payload.trace = trace
        return payload

    def check_size(self, payload: bytes) -> None:
        """Raise MessageTooLarge for a payload that is larger than the peer takes: to be asked again after a wait, as
        it may be another peer by then."""
        if self.message_bytes_max and len(payload) > self.message_bytes_max:
            raise MessageTooLarge(
                f"the message has {len(payload)} bytes, {self.spec.what} takes at most {self.message_bytes_max}"
            )

    def begin_trace(self, promise: SendPromise) -> None:
        """Arrange that the trace of a send ends with it."""
        payload = promise.payload
        if isinstance(payload, TracedPayload):
            promise.when_done(lambda: payload.trace.end(promise.error()))

    def give_up(self, promise: SendPromise, error: BaseException) -> None:
        """A send did not get into the buffer."""
        if isinstance(promise.payload, TracedPayload):
            promise.payload.trace.end(error)

    def prepare(
        self, message: Message | Content, cursor: Cursor, delivery_mode: DeliveryMode | None
    ) -> PreparedMessage:
        """Write a message to be sent in the transaction of `cursor`. Raises ConfigurationError for a sender without a
        store that could."""
        raise ConfigurationError(f"{self.spec.what} has no SqlStore (exactly_once): prepare has nowhere to write")

    @property
    def address(self) -> str | None:
        """Address of the target, as the peer says it; None for the anonymous terminus."""
        target = self.link.target
        return target.address if isinstance(target, Target) else self.spec.address

    def first_failed(self) -> SendPromise | None:
        """Forget all failed sends so far but the first of them whose error nobody has seen, and return that: it is
        the first again until it is asked (`SendPromise.value`). None where there is none."""
        unseen = None
        while self._failed:
            promise = self._failed.popleft()
            # One whose time was over while it was under way may have been accepted since.
            if unseen is None and not promise.asked and promise.error() is not None:
                unseen = promise
        if unseen is not None:
            self._failed.append(unseen)
        return unseen

    # -- loop side: life -----------------------------------------------------------------------------------------------

    def attach(self) -> None:
        """Attach; credit is the peer's to grant."""
        spec = self.spec
        # In a transaction the outcomes are needed: a commit is of all sends or of none.
        settled = spec.unreliable and self.session.transactions is None
        self.link = self.session.engine.attach_sender(
            spec.name,
            source=Source(outcomes=OUTCOMES),
            target=Target(
                address=spec.address, capabilities=(*spec.capabilities, "topic") if spec.topic else spec.capabilities
            ),
            snd_settle_mode=SndSettleMode.SETTLED if settled else SndSettleMode.MIXED,
            properties=spec.properties,
            context=self,
        )

    def on_attached(self) -> None:
        """The peer has a terminus for us."""
        self.message_bytes_max = limit = self.link.remote_max_message_size
        self.attached.succeed()
        # A copy, which is made at once: other threads go on putting in.
        if limit and (larger := [promise for promise in list(self.queue) if len(promise.payload) > limit]):
            # Encoded for another host, which took larger ones.
            self._fail_queued(Failure(MessageTooLarge, f"{self.spec.what} takes at most {limit} bytes"), larger)

    def on_interrupted(self, lost: list[Delivery]) -> None:
        """The connection is lost, with the deliveries in `lost`, and will be restored: they are to be sent again."""
        core = self.session.core
        self.in_flight = 0
        first_lost = {promise: at for promise, at in self._first_lost.items() if not promise.done}
        for delivery in reversed(lost):
            promise = delivery.context
            if not isinstance(promise, SendPromise) or promise.done:
                continue
            at = first_lost.setdefault(promise, core.now)
            # Whoever waited for it may have given up, and was told that it is in doubt; and a message that ends each
            # connection it is sent on must not do that for ever: no longer than whoever waits wants to, or as set.
            outlived = not promise.awaited and core.now - at >= core.options.send_timeout_ms / 1000
            if not promise.payload or outlived:
                self._fail(promise, core.interruption)
                continue
            promise.resent = True
            self._sent_bytes -= len(promise.payload)
            self.queue.appendleft(promise)
        self._first_lost = first_lost

    def on_refused(self, failure: Failure, lost: list[Delivery]) -> None:
        """The peer refused the link as it came back, for `failure`, and it will be attached once more: what was sent on
        it nevertheless, in `lost`, has not been taken, as there was no target."""
        self.on_interrupted(lost)

    def give_up_waiting(self, failure: Failure) -> None:
        """The connection was not restored in time for what waits to be sent, and nobody waits for."""
        self._fail_queued(failure, [promise for promise in list(self.queue) if not promise.awaited])

    def _fail_queued(self, failure: Failure | TimeOver, promises: list[SendPromise]) -> None:
        for promise in promises:
            try:
                self.queue.remove(promise)
            except ValueError:
                continue
            self._sent_bytes += len(promise.payload)
            self._fail(promise, failure)
        self.notify()

    def _fail(self, promise: SendPromise, failure: Failure | TimeOver | None) -> None:
        """A send has no outcome, and will have none."""
        self._failed.append(promise)
        promise.fail(failure)

    def on_ended(self, failure: Failure, lost: list[Delivery]) -> None:
        """The link is gone, by itself or with its session or connection, and the deliveries in `lost` with it."""
        if self.failure is None:
            self.failure = failure
        self.attached.fail(failure)
        for delivery in lost:
            if isinstance(promise := delivery.context, SendPromise) and not promise.done:
                self._ended(promise)
                promise.fail(failure)
        while self.queue:
            promise = self.queue.popleft()
            self._failed.append(promise)
            promise.fail(failure)
        self.detached.succeed()
        self.notify()

    def detach(self) -> None:
        """Close the link; `detached` ends when that is done. What is not sent by now never will be."""
        self.closing = True
        if self.failure is None and self.session.out_of_reach(self):
            self.session.forget(self, Failure(LinkDetached, f"{self.spec.what} was closed by us", orderly=True))
        elif self.failure is None:
            self.link.detach()
        else:
            self.detached.succeed()

    # -- loop side: messages -------------------------------------------------------------------------------------------

    def pump(self) -> None:
        """Transfer what the peer gives credit for."""
        self._pumps += 1  # before looking at the queue: who enqueues after this look wakes us again
        if self.failure is not None:
            self.on_ended(self.failure, [])
            return
        queue, link = self.queue, self.link
        if not queue or not self.session.core.writable:
            return
        if self.spec.unreliable:
            self._pump_unreliably()
            return
        count = 0
        while room := min(link.room, len(queue)):
            promises = [queue.popleft() for _ in range(room)]
            payloads = [promise.payload for promise in promises]
            try:
                sent = link.send_all(list(islice(self._tags, room)), payloads, promises)
            except BaseException:  # an interrupt, or a bug: whoever gives the wire up asks for what is queued or flying
                flying = {id(delivery.context) for delivery in link.unsettled()}
                queue.extendleft(promise for promise in reversed(promises) if id(promise) not in flying)
                raise
            if sent < room:  # large ones take more of the window than one frame each
                queue.extendleft(reversed(promises[sent:]))
                del promises[sent:], payloads[sent:]
            for promise in promises:
                promise.transferred = True
            self._sent_bytes += sum([len(payload) for payload in payloads])
            count += sent
        self.in_flight += count
        if count and len(queue) <= self.spec.buffer_messages // 2:
            # Half empty rather than one free: who waits for room comes back once for many messages.
            self.notify()

    def _pump_unreliably(self) -> None:
        queue, link = self.queue, self.link
        while queue and link.sendable:
            promise = queue.popleft()
            payload = promise.payload
            self._sent_bytes += len(payload)
            link.send(next(self._tags), payload, settled=True)
            promise.transferred = True
            promise.settle(UNRELIABLE)
        self.notify()

    def on_credit(self) -> None:
        """The peer granted credit, or wants it used or given back (2.6.7)."""
        self.pump()
        if self.link.drain and self.link.credit and not self.queue:
            self.link.drained()

    def on_states(self, deliveries: list[Delivery], state: DeliveryState | None, settled: bool) -> None:
        """The peer told what became of sends."""
        if not settled:
            if not is_outcome(state):
                return  # progress
            # rcv-settle-mode second: the outcome is final when the sender has settled (2.6.12)
            self.session.engine.settle_all(deliveries)
        self.in_flight -= len(deliveries)
        if state == ACCEPTED:
            for delivery in deliveries:
                delivery.context.settle(state)  # type: ignore[attr-defined]  # of our own `send`
            return
        for delivery in deliveries:
            if isinstance(promise := delivery.context, SendPromise):
                self._failed.append(promise)
                promise.settle(state)

    def expire(self, promise: SendPromise, timeout_s: float) -> None:
        """End a send that nobody waits for, as its time is over. One that is still here is taken back (NotSent); one
        that is under way is in doubt, until an outcome is heard after all, and is not sent again."""
        if promise.done:
            return
        if promise in self.queue:
            self._fail_queued(self._time_over(promise, timeout_s), [promise])
        else:
            self._fail(promise, self._time_over(promise, timeout_s))

    def _time_over(self, promise: SendPromise, timeout_s: float | None) -> TimeOver:
        """Return why `promise` has not left in time."""
        core = self.session.core
        if core.interrupted:
            return TimeOver(timeout_s, "the connection was not restored")
        refused = core.refused.get(self)
        return TimeOver(timeout_s) if refused is None else TimeOver(timeout_s, f"{refused.message}, and not attached")

    def withdraw(self, promise: SendPromise, timeout_s: float | None = None) -> None:
        """The time of whoever waited is over: take a send back if it has not left. Then it has ended with NotSent."""
        try:
            self.queue.remove(promise)
        except ValueError:
            promise.payload = b""  # in flight: should the connection be lost, it is not sent again
            return
        self._sent_bytes += len(promise.payload)
        promise.fail(self.session.core.interruption if promise.transferred else self._time_over(promise, timeout_s))
        self.notify()

    def warn_of_failed(self) -> None:
        """Warn, at the close, of failed sends that nobody will hear of any more."""
        unseen = [promise for promise in self._failed if not promise.asked and promise.error() is not None]
        if unseen:
            logger.warning(
                "%d sends of %s failed and nobody asked their receipts; the first: %s",
                len(unseen),
                self.spec.what,
                unseen[0].error(),
            )

    @property
    def lasting(self) -> bool:
        """True if sends outlive the program."""
        return False

    def written(self) -> Milestone | None:
        """Return what is reached when all sends so far are in the store that they are kept in; None without one."""
        return None

    def unfinished(self) -> list[SendPromise]:
        """All sends that have no end yet."""
        flying = [] if self.failure is not None or self.session.core.interrupted else self.link.unsettled()
        return [*(d.context for d in flying if isinstance(d.context, SendPromise)), *self.queue]

    def _ended(self, promise: SendPromise) -> None:
        self.in_flight -= 1
        self._failed.append(promise)

    @property
    def remote_properties(self) -> Mapping[str, object]:
        """Properties of the peer's attach."""
        attach = self.link.remote_attach
        return {} if attach is None or attach.properties is None else attach.properties


class Encoded(Message):
    """A message that is encoded already, durability and id included: it is sent as it is."""

    def __init__(self, payload: bytes) -> None:
        self.payload = payload


class StoredPayload(bytes):
    """The payload of a send that is in its store already, under a delivery-tag."""

    tag: bytes


class PreparedMessage(Encoded):
    """A message that `Sender.prepare` has written in a transaction of the user's: send it after the commit."""


def message_of(body: Message | Content) -> Message:
    """A message to send, of a body where it is none. None is refused: it is what a function returns that forgot to."""
    if isinstance(body, Message):
        return body
    if body is None:
        raise ConfigurationError("there is no message to send, got None; Message(None) is one with an empty body")
    return Message(body)


def encode(
    message: Message | Content,
    default: DeliveryMode,
    wanted: DeliveryMode | None = None,
    ids: MessageIds | None = None,
) -> bytes:
    """The bytes to transfer. `ids` gives one to a message that has none.

    `wanted` decides whether the message is durable; without it, a message that says durable is, and any other is as
    `default` says. A message that was received starts a life of its own: its count of attempts and its delivery
    annotations stay behind. Raises EncodeError for what AMQP cannot hold, ConfigurationError for what is no message.
    """
    if type(message) is bytes:
        identity = ids.next_section() if ids is not None else b""
        return b"".join((_HEADERS[wanted or default], identity, data_head(len(message)), message))
    if type(message) is str:
        text = _octets(message)
        identity = ids.next_section() if ids is not None else b""
        return b"".join((_HEADERS[wanted or default], identity, text_head(len(text)), text))
    if isinstance(message, Encoded):
        return message.payload
    if not isinstance(message, Message):
        message = message_of(message)
    header = message.header
    durable = wanted is DeliveryMode.PERSISTENT if wanted else header.durable or default is DeliveryMode.PERSISTENT
    if isinstance(message, MessageCore):
        message = message.as_new()
    instead: dict[str, bytes] = {}
    if durable != header.durable or header.first_acquirer or header.delivery_count:
        instead["header"] = encode_header(durable, header.priority, header.ttl)
    if ids is not None and message.properties.message_id is None:
        others = _OTHER_PROPERTIES(message.properties)
        instead["properties"] = (
            ids.next_section() if others == _NONE_OF_THEM else encode_composite(Properties(ids.next(), *others))
        )
    return message.encode_with(instead)


def _octets(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as exc:
        raise EncodeError(f"a str that AMQP cannot hold: {exc}") from exc


_OTHER_PROPERTIES: Final = attrgetter(*(field.name for field in Properties.FIELDS[1:]))
_NONE_OF_THEM: Final = _OTHER_PROPERTIES(Properties())


def _nobody() -> None:
    pass
