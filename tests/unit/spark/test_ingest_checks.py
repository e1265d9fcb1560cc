"""Tables that an ingest must not write into, known before Spark starts and before a message is taken."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from acquit.errors import ConfigurationError
from acquit.spark.ingest import IngestOptions, TableFormat
from acquit.spark.ingest_checks import check_table
from tests.support.stream_table import begun, listed


def options_of(table: Path, **given: Any) -> IngestOptions:
    return IngestOptions(url="amqp://127.0.0.1:1", address="q", table=table, format=TableFormat.PARQUET, **given)


@pytest.mark.parametrize(
    ("batches", "begins", "refused"),
    [
        ((), (), None),
        (("0",), (0,), None),
        (("0", "1"), (0, 1, 2), None),
        (("8", "9.compact", "10"), (9, 10), None),
        (("0",), (), "has batches up to 0, and the checkpoint .* is new: "),
        (("0", "1"), (0,), "has batches up to 1, and the checkpoint .* has begun those up to 0: "),
        (("8", "9.compact"), (8,), "has batches up to 9, and the checkpoint .* has begun those up to 8: "),
    ],
    ids=str,
)
def test_a_parquet_table_with_batches_that_the_checkpoint_never_began_is_refused(
    tmp_path: Path, batches: tuple[str, ...], begins: tuple[int, ...], refused: str | None
) -> None:
    """Spark would leave out as many of this query's. One that is in the table and not yet committed has begun."""
    table = tmp_path / "table"
    listed(table, *batches)
    begun(table / "_acquit" / "checkpoint", *begins)
    if refused is None:
        check_table(options_of(table))
    else:
        with pytest.raises(ConfigurationError, match=f"{refused}.*; or name another table") as caught:
            check_table(options_of(table))
        assert "\n" not in str(caught.value)


def test_a_second_query_into_a_parquet_table_is_refused(tmp_path: Path) -> None:
    listed(tmp_path / "table", "0")
    begun(tmp_path / "table" / "_acquit" / "checkpoint", 0)
    check_table(options_of(tmp_path / "table"))
    with pytest.raises(ConfigurationError, match="other/checkpoint is new: it is the table of another query"):
        check_table(options_of(tmp_path / "table", work=tmp_path / "other"))
