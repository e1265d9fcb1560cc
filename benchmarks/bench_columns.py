"""What a worker's CPU spends on one message, by what the message carries: from AMQP bytes to a file of the table.

    python benchmarks/bench_columns.py [--short] [--messages N] [--rounds N] [--size BYTES]

No Spark and no broker: messages as an acquit broker hands them out are identified, made columns and selected, as a task
of the source does between drain and spool, and written as one Parquet file, as `acquit pipeline ingest` writes it.
Drain, spool and settlements come to that, and cost the same whatever a message carries.

*id only*: a message-id and bytes. *uuid*: the id is one. *five properties*: of the application, texts that differ in
each. *text and a number*: two that differ in each. *as Qpid JMS sends them*: the annotations of a JMS message, `to`,
creation-time and a correlation-id. *JSON*: the first with bodies that are read by a schema (`bodyAs = json`). Printed
are the medians of the rounds, in microseconds of CPU a message; compare those of one run only. *short way* is the share
of messages that `acquit.spark.plain` reads many at once.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final
from uuid import UUID

import numpy as np
import pyarrow as pa

from acquit.broker.intake.shaping import make_body
from acquit.protocol.message import Message
from acquit.protocol.sections import scan_sections
from acquit.protocol.types import Byte, Timestamp
from acquit.spark.columns import FIELDS, MessageColumns
from acquit.spark.decoding import JsonDecoder
from acquit.spark.plain import read_lot
from acquit.spark.table_source import write_files

BROKER: Final = UUID(int=1)
NOW_MS: Final = 1_800_000_000_000
LINE: Final = pa.struct([("sku", pa.string()), ("count", pa.int32()), ("price", pa.float64())])
ORDER: Final = pa.struct([("id", pa.int64()), ("customer", pa.string()), ("lines", pa.list_(LINE))])
ORDER_DDL: Final = "id BIGINT, customer STRING, lines ARRAY<STRUCT<sku: STRING, count: INT, price: DOUBLE>>"
"""The same as the option `bodySchema`."""
LINE_BYTES: Final = 45

Make = Callable[[int, bytes], Message]


def id_only(number: int, body: bytes) -> Message:
    """The least that a message can carry."""
    return Message(body, durable=True, message_id=f"order-{number}")


def with_uuid(number: int, body: bytes) -> Message:
    """With an id that is no text."""
    return Message(body, durable=True, message_id=UUID(int=number))


def five_properties(number: int, body: bytes) -> Message:
    """With five values of its own."""
    values = {f"property-{place}": f"{place}-{number}" for place in range(5)}
    return Message(body, durable=True, message_id=f"order-{number}", application_properties=values)


def with_number(number: int, body: bytes) -> Message:
    """With a value of its own that is no text."""
    values = {"customer": f"c-{number}", "amount": number}
    return Message(body, durable=True, message_id=f"order-{number}", application_properties=values)


def as_jms(number: int, body: bytes) -> Message:
    """What Qpid JMS sends of a BytesMessage with a correlation-id."""
    return Message(
        body,
        durable=True,
        message_id=f"ID:order-{number}",
        to="orders",
        correlation_id=f"c-{number}",
        creation_time=Timestamp(NOW_MS + number),
        content_type="application/octet-stream",
        annotations={"x-opt-jms-dest": Byte(0), "x-opt-jms-msg-type": Byte(3)},
    )


def as_json(number: int, body: bytes) -> Message:
    """An order with as many lines as make it about as long as the other bodies."""
    lines = [{"sku": f"sku-{line:05}", "count": line, "price": line / 4} for line in range(len(body) // LINE_BYTES)]
    order = {"id": number, "customer": f"c-{number}", "lines": lines}
    return id_only(number, json.dumps(order).encode())


KINDS: Final[Mapping[str, tuple[Make, JsonDecoder | None]]] = {
    "id only": (id_only, None),
    "uuid": (with_uuid, None),
    "five properties": (five_properties, None),
    "text and a number": (with_number, None),
    "as Qpid JMS sends them": (as_jms, None),
    "JSON": (as_json, JsonDecoder(ORDER)),
}


def handed_out(message: Message, sequence: int) -> bytes:
    """As an acquit broker sends it."""
    sections = scan_sections(message.encode())
    return sections.header + bytes(make_body(sections, sequence, NOW_MS))


def cost_us(payloads: list[bytes], decoder: JsonDecoder | None, folder: Path) -> float:
    """CPU of one message."""
    schema = pa.schema([(field.name, field.arrow_type) for field in FIELDS])
    if decoder is not None:
        schema = schema.append(pa.field(decoder.column, ORDER))
    reader = MessageColumns("orders", None, decoder)
    began = time.process_time()
    rows = reader.rows(reader.identify(payloads, BROKER).messages, BROKER)
    assert not rows.corrupt
    write_files(folder, "bench", list(reader.select(rows.batches, schema)), schema.names)
    return (time.process_time() - began) / len(payloads) * 1e6


def main() -> None:
    """Measure each kind in turns, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--short", action="store_true", help="2,000 messages, one round")
    parser.add_argument("--messages", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--size", type=int, default=1_024)
    given = parser.parse_args()
    count, rounds = (2_000, 1) if given.short else (given.messages, given.rounds)
    body = np.random.default_rng(1).bytes(given.size)
    lots = {
        name: [handed_out(make(number, body), number) for number in range(1, count + 1)]
        for name, (make, _) in KINDS.items()
    }
    costs: dict[str, list[float]] = {name: [] for name in KINDS}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(rounds):
            for name, (_, decoder) in KINDS.items():
                costs[name].append(cost_us(lots[name], decoder, Path(folder)))
    print("| messages | µs a message | short way |")
    print("|---|---:|---:|")
    for name, found in costs.items():
        print(f"| {name} | {statistics.median(found):.1f} | {read_lot(lots[name][:1_000]).plain.mean():.0%} |")


if __name__ == "__main__":
    main()
