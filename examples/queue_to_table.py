"""A queue into a Parquet table with Spark: each posting once, whatever happens on the way.

Needs the extra `spark` (`pip install 'acquit[spark]'`) and Java 17 or newer, or the extra `java`.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import pyarrow.dataset

import acquit
from acquit.spark.ingest import IngestOptions, TableFormat, ingest

with tempfile.TemporaryDirectory() as folder, acquit.Broker() as broker:
    with acquit.connect(broker.url) as connection, connection.session() as session:
        sender = session.sender("orders")
        for number in range(100):
            sender.send(acquit.Message(f"order {number}", message_id=f"order-{number}", durable=True), wait=False)
        sender.flush()

    table = Path(folder, "orders")
    columns = ("message_id", "sequence", "posted_at", "body")
    # Ends when what is in the queue now is in the table. Run it again, after a crash as well: it goes on from there.
    summary = ingest(
        IngestOptions(
            url=broker.url,
            address="orders",
            table=table,
            format=TableFormat.PARQUET,
            columns=columns,
            master="local[2]",
            memory_mb=512,
        )
    )
    print(f"{summary.rows} rows in {summary.batches} batch(es)")

    rows = pyarrow.dataset.dataset([str(file) for file in table.glob("*.parquet")]).to_table().to_pylist()
    first = min(rows, key=lambda row: row["sequence"])
    print(first["message_id"], first["body"].decode())
