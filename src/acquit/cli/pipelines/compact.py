"""``acquit pipeline compact``: small files of a table into large ones."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from acquit.cli.options import PathType, json_option
from acquit.cli.output import counted, emit_json
from acquit.cli.pipelines.common import Size, bytes_text, ended, following, need

if TYPE_CHECKING:
    from acquit.cli.exits import Exit
    from acquit.spark.compact import CompactSummary


@click.command()
@click.argument("table", metavar="TABLE", type=PathType())
@click.option(
    "--target-file-size",
    type=Size(),
    default="128m",
    show_default=True,
    metavar="SIZE",
    help="Size of the files to make, about.",
)
@click.option(
    "--vacuum",
    is_flag=True,
    help="Delta: also remove files that no version of the last 7 days (or as the table says, a day at least) needs.",
)
@click.option(
    "--into",
    type=PathType(),
    metavar="DIR",
    help="Write a compacted copy of a Parquet table into a new folder.",
)
@click.option("--dry-run", is_flag=True, help="Say what would be done, and do nothing.")
@json_option
def compact(table: Path, target_file_size: int, vacuum: bool, into: Path | None, dry_run: bool, as_json: bool) -> Exit:
    """Merge the small files of the table in the folder TABLE.

    A Delta table is compacted in place, while others read it and append to it. Of Parquet files, those that a Spark
    stream writes among them, only a copy can be made, with --into. Needs neither Spark nor Java.
    """
    need("pyarrow", "deltalake")
    from acquit.spark import compact as pipeline

    options = pipeline.CompactOptions(
        table=table.absolute(),
        target_file_bytes=target_file_size,
        vacuum=vacuum,
        into=None if into is None else into.absolute(),
        dry_run=dry_run,
    )
    with following(f"compacting {table}", "rows" if into else "files") as follower:
        summary = pipeline.compact(
            options, on_progress=lambda done, total: follower.at(done, left=total - done, place="to go")
        )
    _report(summary, as_json=as_json)
    return ended()


def _report(summary: CompactSummary, *, as_json: bool) -> None:
    if as_json:
        emit_json(
            {
                "table": str(summary.table),
                "dry_run": summary.dry_run,
                "files_before": summary.files_before,
                "files_after": summary.files_after,
                "bytes": summary.size_bytes,
                "merged": summary.merged,
                "vacuumed": list(summary.vacuumed),
                "duration_s": round(summary.duration_s, 3),
            }
        )
        return
    would = "would be " if summary.dry_run else ""
    after = f"{would or 'now '}{counted(summary.files_after, 'file')}"
    if summary.files_after == summary.files_before:
        after = "nothing to merge"
    before = f"{counted(summary.files_before, 'file')}, {bytes_text(summary.size_bytes)}"
    gone = f"; {counted(len(summary.vacuumed), 'old file')} {would}removed" if summary.vacuumed else ""
    click.echo(f"{summary.table}: {before}, {after}{gone}, {summary.duration_s:.1f} s")
