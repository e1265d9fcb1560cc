"""Tables of Parquet files and checkpoints as a Spark stream leaves them, without Spark."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from acquit.spark.columns import FIELDS

COLUMNS = pa.schema([(field.name, field.arrow_type) for field in FIELDS])


def listed(table: Path, *batches: str, schema: pa.Schema = COLUMNS, folder: str = "") -> None:
    """Put batches into the list of the table, by their names there, each with a file in `folder` within the table."""
    log = table / "_spark_metadata"
    log.mkdir(parents=True)
    (table / folder).mkdir(parents=True, exist_ok=True)
    for batch in batches:
        file = table / folder / f"part-{batch}.parquet"
        pq.write_table(schema.empty_table(), file)
        entry = {"path": file.as_uri(), "size": file.stat().st_size, "action": "add"}
        (log / batch).write_text(f"v1\n{json.dumps(entry)}")


def begun(checkpoint: Path, *batches: int) -> None:
    """Say in the checkpoint that these batches have begun."""
    (checkpoint / "offsets").mkdir(parents=True)
    for batch in batches:
        (checkpoint / "offsets" / str(batch)).write_text("v1")
