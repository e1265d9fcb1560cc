"""Spans of OpenTelemetry, as an exporter gets them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

import acquit
from acquit import aio
from acquit.telemetry import OpenTelemetry
from acquit.testing import Proxy


class Spans:
    """What was exported."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.tracer = OpenTelemetry(self.provider, TraceContextTextMapPropagator())
        self.options = acquit.ConnectOptions(tracer=self.tracer)

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self._exporter.get_finished_spans() if span.name == name]

    def one(self, name: str) -> ReadableSpan:
        (span,) = self.named(name)
        return span


@pytest.fixture
def spans() -> Spans:
    return Spans()


@pytest.fixture
def broker() -> Iterator[acquit.Broker]:
    with acquit.Broker() as broker:
        yield broker


def linked(span: ReadableSpan) -> list[int]:
    return [link.context.span_id for link in span.links]


def test_a_message_is_followed_from_its_sender_to_its_outcome(broker: acquit.Broker, spans: Spans) -> None:
    with acquit.connect(broker.url, options=spans.options) as connection:
        session = connection.session("individual")
        session.sender("q").send(acquit.Message("one", message_id="m-1", correlation_id="c-1"))
        message = session.receiver("q").receive(5)
        assert message is not None
        with spans.tracer.processing(message):
            pass
        message.accept()
    sent, received = spans.one("send q"), spans.one("receive q")
    processed, settled = spans.one("process q"), spans.one("accepted q")
    assert (sent.kind, received.kind) == (SpanKind.PRODUCER, SpanKind.CONSUMER)
    assert (processed.kind, settled.kind) == (SpanKind.CONSUMER, SpanKind.CLIENT)
    assert sent.attributes is not None
    assert dict(sent.attributes) == {
        "messaging.system": "amqp",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": "q",
        "messaging.message.id": "m-1",
        "messaging.message.conversation_id": "c-1",
        "server.address": "127.0.0.1",
        "server.port": broker.port,
    }
    assert sent.context is not None
    assert all(linked(span) == [sent.context.span_id] for span in (received, processed, settled))
    assert processed.parent is not None and processed.parent.span_id == sent.context.span_id
    assert all(span.status.status_code is StatusCode.UNSET for span in (sent, received, processed, settled))


def test_the_context_is_an_annotation_and_the_users_message_stays_as_it_was(
    broker: acquit.Broker, spans: Spans
) -> None:
    mine = acquit.Message("one")
    with acquit.connect(broker.url, options=spans.options) as connection:
        connection.session().sender("q").send(mine)
    assert mine.annotations == {}
    with acquit.connect(broker.url) as connection:
        message = connection.session().receiver("q").receive(5)
        assert message is not None
        sent = spans.one("send q").context
        assert sent is not None
        assert str(message.annotations["traceparent"]).startswith(f"00-{sent.trace_id:032x}-{sent.span_id:016x}-0")
        assert message.application_properties == {}


def test_what_others_put_into_the_application_properties_is_followed(broker: acquit.Broker, spans: Spans) -> None:
    theirs = f"00-{7:032x}-{9:016x}-01"
    with acquit.connect(broker.url) as connection:
        connection.session().sender("q").send(acquit.Message("x", application_properties={"traceparent": theirs}))
        connection.session().sender("q").send(acquit.Message("x", application_properties={"traceparent": "nonsense"}))
    with acquit.connect(broker.url, options=spans.options) as connection:
        receiver = connection.session().receiver("q")
        assert receiver.receive(5) and receiver.receive(5)
    first, second = spans.named("receive q")
    assert (linked(first), linked(second)) == ([9], [])


def test_what_is_refused_is_an_error(broker: acquit.Broker, spans: Spans) -> None:
    with acquit.connect(broker.url, options=spans.options) as connection:
        sender = connection.session().sender(None)
        with pytest.raises(acquit.MessageRejected):
            sender.send(acquit.Message("x", to="$management/nothing"))
        with pytest.raises(acquit.EncodeError):
            connection.session().sender("q").send(acquit.Message(object()))  # type: ignore[arg-type]
    refused, unencodable = spans.one("send $management/nothing"), spans.one("send q")
    assert (refused.status.status_code, unencodable.status.status_code) == (StatusCode.ERROR, StatusCode.ERROR)
    assert refused.attributes is not None and refused.attributes["error.type"] == "MessageRejected"
    assert unencodable.attributes is not None and unencodable.attributes["error.type"] == "EncodeError"


def test_what_found_no_room_is_an_error(broker: acquit.Broker, spans: Spans) -> None:
    with Proxy(broker.url) as proxy, acquit.connect(proxy.url, options=spans.options) as connection:
        sender = connection.session().sender("q", buffer_messages=1)
        proxy.cut()
        proxy.refuse()
        waiting = sender.send("waits", wait=False)
        with pytest.raises(acquit.NotSent):
            sender.send("no room", timeout=0.01)
        span = spans.one("send q")
        assert span.attributes is not None and span.attributes["error.type"] == "NotSent"
        proxy.accept()
        waiting.result(20)
    assert [one.status.status_code for one in spans.named("send q")] == [StatusCode.ERROR, StatusCode.UNSET]


@pytest.mark.parametrize("fails", [False, True])
def test_a_handler_runs_in_the_span_of_its_message(broker: acquit.Broker, spans: Spans, fails: bool) -> None:
    inner = spans.provider.get_tracer("inner")
    handled = threading.Event()

    def handler(message: acquit.ReceivedMessage) -> None:
        inner.start_span("work").end()
        handled.set()
        if fails:
            raise ValueError("no")

    with acquit.connect(broker.url, options=spans.options) as connection:
        session = connection.session()
        session.sender("q").send("one")
        receiver = session.receiver("q")
        with receiver.start_listener(handler, on_error=(lambda message, error: None) if fails else None):
            assert handled.wait(5)
    work, processed = spans.one("work"), spans.named("process q")[0]
    assert work.parent is not None and processed.context is not None
    assert work.parent.span_id == processed.context.span_id
    assert processed.status.status_code is (StatusCode.ERROR if fails else StatusCode.UNSET)


def test_several_outcomes_in_one_call_are_one_span(broker: acquit.Broker, spans: Spans) -> None:
    with acquit.connect(broker.url, options=spans.options) as connection:
        session = connection.session("client")
        sender = session.sender("q")
        for number in range(3):
            sender.send(str(number))
        receiver = session.receiver("q")
        assert all(receiver.receive(5) for _ in range(3))
        session.acknowledge()
    settled = spans.one("accepted q")
    assert settled.attributes is not None and settled.attributes["messaging.batch.message_count"] == 3
    assert len(linked(settled)) == 3


def test_a_stale_outcome_is_an_error(broker: acquit.Broker, spans: Spans) -> None:
    with Proxy(broker.url) as proxy, acquit.connect(proxy.url, options=spans.options) as connection:
        session = connection.session("individual")
        session.sender("q").send("one")
        receiver = session.receiver("q")
        message = receiver.receive(5)
        assert message is not None
        proxy.cut()
        again = receiver.receive(20)
        assert again is not None
        assert message.accept().result(5) is acquit.ReceiptStatus.STALE
        span = spans.one("accepted q")
        assert span.status.status_code is StatusCode.ERROR
        again.accept()


def test_with_asyncio(broker: acquit.Broker, spans: Spans) -> None:
    async def run() -> None:
        async with await aio.connect(broker.url, options=spans.options) as connection:
            session = await connection.session("individual")
            sender = await session.sender("q")
            await sender.send("one")
            receiver = await session.receiver("q")
            message = await receiver.receive(5)
            assert message is not None
            await message.accept()

    asyncio.run(run())
    assert spans.one("send q") and spans.one("receive q") and spans.one("accepted q")


def test_a_tracer_is_a_tracer() -> None:
    with pytest.raises(acquit.ConfigurationError, match="tracer must be"):
        acquit.ConnectOptions(tracer="yes")  # type: ignore[arg-type]
