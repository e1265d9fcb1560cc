"""``acquit demo``: see `acquit.demo`, which prints for itself, but for what keeps it from being played."""

from __future__ import annotations

from pathlib import Path

import click

from acquit.cli.options import PathType, json_option


@click.command()
@click.argument("directory", metavar="[DIR]", required=False, type=PathType(exists=True, file_okay=False))
@click.option(
    "--data",
    type=PathType(file_okay=False),
    metavar="DIR",
    help="Where the broker keeps its data; by default a folder of its own that is named at the end.",
)
@click.option(
    "--files", default=2500, show_default=True, type=click.IntRange(min=1), help="Take at most so many files."
)
@click.option("--spark", is_flag=True, help="Take what was checked into a Spark table, and kill the driver once.")
@click.option("--naive", is_flag=True, help="Show beside it what acknowledge-on-receipt loses under the same kills.")
@json_option
def demo(directory: Path | None, data: Path | None, files: int, spark: bool, naive: bool, as_json: bool) -> int:
    """Post the files below DIR as messages, kill a worker and the broker with -9 meanwhile, and account for every one.

    DIR is read and never written; by default it is this Python's own library.
    """
    from acquit.demo.play import DemoOptions, run

    return run(DemoOptions(directory=directory, data=data, files_max=files, spark=spark, naive=naive, json=as_json))
