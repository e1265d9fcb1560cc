"""Spans of what a worker takes: one for each lot, with links to what each message says of its sender; none when off."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest
from opentelemetry.sdk.trace import ReadableSpan, SpanLimits, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind

import acquit
from acquit.errors import ConfigurationError
from acquit.protocol.message import Message
from acquit.spark.link import QueueDrain
from acquit.spark.source_options import SourceOptions
from acquit.spark.spool import Outcome
from acquit.spark.tracing import load_tracer
from acquit.telemetry import LINKS_MAX, OpenTelemetry

EXPORTER = InMemorySpanExporter()
PROVIDER = TracerProvider()
PROVIDER.add_span_processor(SimpleSpanProcessor(EXPORTER))
MADE: list[OpenTelemetry] = []
HERE = "tests.unit.spark.test_tracing"


def telemetry() -> OpenTelemetry:
    """What a user writes."""
    MADE.append(OpenTelemetry(PROVIDER))
    return MADE[-1]


def nothing() -> None:
    """A mistake."""


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    load_tracer.cache_clear()
    EXPORTER.clear()
    MADE.clear()
    yield
    load_tracer.cache_clear()


def drain_of(broker: acquit.Broker, address: str, **more: str) -> QueueDrain:
    given = {"url": broker.url, "address": address, "spool": "/nowhere", "drainTimeout": "30s", **more}
    return QueueDrain(SourceOptions.parse(given), address, 1_000, 1 << 20)


def post(broker: acquit.Broker, address: str, count: int, *, traced: bool) -> list[int]:
    """Post messages; the span ids of their senders."""
    options = acquit.ConnectOptions(tracer=OpenTelemetry(PROVIDER) if traced else None)
    with acquit.connect(broker.url, options=options) as connection, connection.session() as session:
        sender = session.sender(address)
        for number in range(count):
            sender.send(Message(str(number), durable=True), wait=False)
        sender.flush()
    sent = [span.context.span_id for span in EXPORTER.get_finished_spans()]
    EXPORTER.clear()
    return sent


def spans(name: str) -> list[ReadableSpan]:
    return [span for span in EXPORTER.get_finished_spans() if span.name == name]


def test_a_lot_is_one_span_with_a_link_to_each_sender(broker: acquit.Broker, address: str) -> None:
    sent = post(broker, address, 3, traced=True)
    drain = drain_of(broker, address, tracer=f"{HERE}:telemetry")
    taken = [*drain.receive(100)]
    while len(taken) < 3:
        taken += drain.receive(100)
    assert drain.settle({Outcome.ACCEPTED: range(len(taken))})
    drain.detach()
    received = spans(f"receive {address}")
    assert {link.context.span_id for span in received for link in span.links} == set(sent)
    assert sum(int(str((span.attributes or {})["messaging.batch.message_count"])) for span in received) == 3
    for span in received:
        assert span.kind is SpanKind.CONSUMER and span.start_time is not None and span.end_time is not None
        assert span.start_time <= span.end_time
        attributes = dict(span.attributes or {})
        assert attributes["messaging.operation.type"] == "receive"
        assert attributes["messaging.destination.name"] == address
        assert attributes["server.port"] == broker.port
    (settled,) = spans(f"accepted {address}")
    assert {link.context.span_id for link in settled.links} == set(sent) and settled.status.is_ok


def test_a_span_has_no_more_links_than_it_may() -> None:
    """The SDK would drop them as well: by then each message's annotations would have been decoded."""
    provider = TracerProvider(span_limits=SpanLimits(max_links=10 * LINKS_MAX))
    provider.add_span_processor(SimpleSpanProcessor(EXPORTER))
    tracer = OpenTelemetry(provider)
    messages = [tracer.begin_send(Message("x"), "orders", "127.0.0.1:5672")[0] for _ in range(LINKS_MAX + 1)]
    tracer.received_together(messages, "orders", "127.0.0.1:5672", 0)
    (span,) = spans("receive orders")
    assert len(span.links) == LINKS_MAX
    assert (span.attributes or {})["messaging.batch.message_count"] == LINKS_MAX + 1


def test_messages_without_a_context_and_an_empty_queue(broker: acquit.Broker, address: str) -> None:
    post(broker, address, 1, traced=False)
    drain = drain_of(broker, address, tracer=f"{HERE}:telemetry")
    while drain.receive(100):
        pass
    drain.detach()
    (span,) = spans(f"receive {address}")
    assert not span.links


def test_it_is_made_once_in_a_process(broker: acquit.Broker, address: str) -> None:
    for _ in range(2):
        drain_of(broker, address, tracer=f"{HERE}:telemetry").detach()
    assert len(MADE) == 1


def test_without_the_option_nothing_is_recorded_and_nothing_loaded(broker: acquit.Broker, address: str) -> None:
    post(broker, address, 1, traced=True)
    drain = drain_of(broker, address)
    while drain.receive(100):
        pass
    drain.detach()
    assert not EXPORTER.get_finished_spans() and not MADE
    program = "import sys, acquit.spark.link; sys.exit(any(name.startswith('opentelemetry') for name in sys.modules))"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


@pytest.mark.parametrize("name", ["telemetry", "a b:c", ":f", "m:", "m:f()", "m..n:f"])
def test_what_is_no_name_of_a_function_is_refused_at_once(name: str) -> None:
    with pytest.raises(ConfigurationError, match="tracer"):
        SourceOptions.parse({"url": "amqp://127.0.0.1", "address": "q", "spool": "/nowhere", "tracer": name})


@pytest.mark.parametrize("name", ["no_such_module_here:f", f"{HERE}:no_such_function", f"{HERE}:nothing"])
def test_what_cannot_be_loaded_says_so(name: str) -> None:
    with pytest.raises(ConfigurationError, match="option tracer = "):
        load_tracer(name)
