"""Spans of OpenTelemetry for what a client does with messages (extra ``telemetry``).

::

    options = acquit.ConnectOptions(tracer=OpenTelemetry())
    with acquit.connect(url, options=options) as connection:
        ...

Spans and attributes are those of OpenTelemetry's semantic conventions for messaging:

=======  ========  =================================================================================================
span     kind      from, to
=======  ========  =================================================================================================
send     PRODUCER  `send` is called; the outcome is known. An error unless it is *accepted*
receive  CONSUMER  a message is handed out by `receive`, or to a listener
process  CONSUMER  a listener's handler is called; it returns. An error where it raises
settle   CLIENT    an outcome is given; the peer has answered. An error where the answer is STALE or UNKNOWN
=======  ========  =================================================================================================

The context of the *send* span travels in the message annotations, under the names of the propagator in use
(``traceparent``, ``tracestate`` and ``baggage`` for the default one), so that brokers pass it on and no application
property is touched. Who receives links to it, or, where a message has none, to the one that other programs put into the
application properties. A *process* span is its child where the handler runs in no other span.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

from opentelemetry import context as contexts
from opentelemetry import propagate, trace
from opentelemetry.trace import Link, SpanKind, Status, StatusCode

from acquit._version import version
from acquit.client.receipts import ReceiptStatus
from acquit.client.received import MessageCore
from acquit.errors import DecodeError

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.propagators.textmap import TextMapPropagator
    from opentelemetry.trace import Span, TracerProvider

    from acquit.client.receipts import SettlementReceipt
    from acquit.protocol.delivery import Outcome
    from acquit.protocol.message import Message

SYSTEM: Final = "amqp"
"""``messaging.system``: the conventions have no name for a broker that speaks AMQP 1.0, whichever it is."""
LINKS_MAX: Final = 128
"""Links of one span, as OpenTelemetry's own limit is by default."""

_Attributes = dict[str, str | int]


class OpenTelemetry:
    """A tracer of the messages of a connection: give it to `acquit.ConnectOptions`. One may serve many connections."""

    def __init__(
        self, tracer_provider: TracerProvider | None = None, propagator: TextMapPropagator | None = None
    ) -> None:
        """`tracer_provider` and `propagator` default to the global ones, at each call."""
        self._provider = tracer_provider
        self._propagator = propagator
        self._tracer = trace.get_tracer("acquit", version(), tracer_provider)

    # -- `acquit.client.tracing.Tracer`, and `acquit.spark.tracing.BatchTracer` ----------------------------------------

    def begin_send(self, message: Message, address: str | None, where: str) -> tuple[Message, _SendSpan]:
        """Begin a *send* span, and put its context into a copy of the message."""
        to = address if address is not None else message.to
        span = self._tracer.start_span(
            _name("send", to),
            kind=SpanKind.PRODUCER,
            attributes=_attributes("send", "send", to, where, message),
            links=_links(self._context_of(message)),
        )
        carrier: dict[str, str] = {}
        self._textmap().inject(carrier, trace.set_span_in_context(span))
        carrying = copy.copy(message)
        carrying.annotations = {**message.annotations, **carrier}
        return carrying, _SendSpan(span)

    def received(self, message: Message, address: str, where: str) -> None:
        """Record a *receive* span."""
        self._tracer.start_span(
            _name("receive", address),
            kind=SpanKind.CONSUMER,
            attributes=_attributes("receive", "receive", address, where, message),
            links=_links(self._context_of(message)),
        ).end()

    def received_together(self, messages: Sequence[Message], address: str, where: str, since_ns: int) -> None:
        """Record one *receive* span of messages that were taken together, from `since_ns` (since the epoch) until now.
        It links to the first `LINKS_MAX` of them that have a context."""
        attributes = _attributes("receive", "receive", address, where, messages[0] if len(messages) == 1 else None)
        attributes["messaging.batch.message_count"] = len(messages)
        self._tracer.start_span(
            _name("receive", address),
            kind=SpanKind.CONSUMER,
            attributes=attributes,
            links=[link for message in messages[:LINKS_MAX] for link in _links(self._context_of(message))],
            start_time=since_ns,
        ).end()

    @contextmanager
    def processing(self, message: Message, address: str = "", where: str = "") -> Iterator[Span]:
        """Return the context of a *process* span, for the time in which a message is handled. Listeners have it; code
        that handles what `receive` returned may use it: ``with telemetry.processing(message): ...``."""
        if not address and isinstance(message, MessageCore):
            address, where = message.receiver.address, message.receiver.session.core.where
        theirs = self._context_of(message)
        inside = trace.get_current_span().get_span_context().is_valid
        with self._tracer.start_as_current_span(
            _name("process", address),
            context=None if inside or theirs is None else theirs,
            kind=SpanKind.CONSUMER,
            attributes=_attributes("process", "process", address, where, message),
            links=_links(theirs),
        ) as span:
            yield span

    def settled(
        self, messages: Sequence[Message], address: str, outcome: Outcome, receipt: SettlementReceipt, where: str
    ) -> None:
        """Begin a *settle* span, which ends with the receipt."""
        verb = type(outcome).__name__.lower()
        attributes = _attributes(verb, "settle", address, where, messages[0] if len(messages) == 1 else None)
        if len(messages) > 1:
            attributes["messaging.batch.message_count"] = len(messages)
        span = self._tracer.start_span(
            _name(verb, address),
            kind=SpanKind.CLIENT,
            attributes=attributes,
            links=[link for message in messages[:LINKS_MAX] for link in _links(self._context_of(message))],
        )

        def answered() -> None:
            status = receipt.status
            if not span.is_recording():
                return  # a receipt may say so twice
            if status in (ReceiptStatus.STALE, ReceiptStatus.UNKNOWN):
                span.set_attribute("error.type", status.name)
                span.set_status(Status(StatusCode.ERROR, receipt.reason))
            span.end()

        receipt.when_done(answered)

    # -- inside --------------------------------------------------------------------------------------------------------

    def _textmap(self) -> TextMapPropagator:
        return self._propagator if self._propagator is not None else propagate.get_global_textmap()

    def _context_of(self, message: Message) -> Context | None:
        """Return the context that a message carries; None without one."""
        textmap = self._textmap()
        try:
            carriers = message.annotations, message.application_properties
        except DecodeError:
            return None  # whoever looks at it will be told
        for carrier in carriers:
            texts = {name: value for name in textmap.fields if isinstance(value := carrier.get(name), str)}
            if texts:
                found = textmap.extract(texts, contexts.Context())
                if trace.get_current_span(found).get_span_context().is_valid:
                    return found
        return None


class _SendSpan:
    """A *send* span."""

    __slots__ = ("_span",)

    def __init__(self, span: Span) -> None:
        self._span = span

    def end(self, error: BaseException | None) -> None:
        """End the span, once."""
        if not self._span.is_recording():
            return
        if error is not None:
            self._span.set_attribute("error.type", type(error).__qualname__)
            self._span.set_status(Status(StatusCode.ERROR, str(error)))
        self._span.end()


def _name(operation: str, address: str | None) -> str:
    return f"{operation} {address}" if address else operation


def _attributes(name: str, kind: str, address: str | None, where: str, message: Message | None) -> _Attributes:
    host, _, port = where.rpartition(":")
    attributes: _Attributes = {
        "messaging.system": SYSTEM,
        "messaging.operation.name": name,
        "messaging.operation.type": kind,
    }
    if address:
        attributes["messaging.destination.name"] = address
    if host and port.isdecimal():
        attributes |= {"server.address": host, "server.port": int(port)}
    if message is not None:
        with suppress(DecodeError):
            if message.message_id is not None:
                attributes["messaging.message.id"] = str(message.message_id)
            if message.correlation_id is not None:
                attributes["messaging.message.conversation_id"] = str(message.correlation_id)
    return attributes


def _links(theirs: Context | None) -> list[Link]:
    return [] if theirs is None else [Link(trace.get_current_span(theirs).get_span_context())]


__all__ = ["LINKS_MAX", "SYSTEM", "OpenTelemetry"]
