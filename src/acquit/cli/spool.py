"""``acquit spool``: what a Spark query keeps between a queue and its tables. Needs no Spark, and no query that runs."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from acquit.cli.exits import Exit
from acquit.cli.lazy import WholeGroup
from acquit.cli.options import json_option
from acquit.cli.output import counted, emit_json, remark, table, time_text
from acquit.cli.pipelines.common import need, spool_place
from acquit.errors import ConfigurationError
from acquit.protocol.jsonform import Json, to_json

if TYPE_CHECKING:
    from acquit.spark.spool import SpoolStatus, SpoolStore
    from acquit.spark.spool.verify import Damage

SHOWN = 20
"""Names of files of one kind; the rest is a number."""


@click.group(cls=WholeGroup)
def spool() -> None:
    """Look at the spool of a Spark query, check it, and repair it.

    SPOOL is its folder, or s3://bucket/path (with credentials in the environment)."""


@spool.command()
@click.argument("place", metavar="SPOOL")
@json_option
def show(place: str, as_json: bool) -> int:
    """Say whose SPOOL is, which epochs it holds, how large it is, and what it remembers.

    A query may be running on it."""
    store = _open(place)
    from acquit.spark.spool import Spool
    from acquit.spark.spool.owner import read_owner
    from acquit.spark.spool.verify import FOLDERS

    opened = Spool(store)
    status, state, owner = opened.status(), opened.state(), read_owner(store)
    sizes = {folder: store.sizes(folder) for folder in FOLDERS}
    parts = [
        {
            "epoch": epoch,
            "part": part,
            "rows": one.totals.rows,
            "bytes": sizes["data"].get((one.data or "").partition("/")[2], 0),
            "written": time_text(one.written_at_ms * 1000),
        }
        for (epoch, part), one in sorted(state.decided.items())
    ]
    if as_json:
        emit_json(
            {
                "spool": store.place,
                "query": status.query,
                "previous": [] if owner is None else list(owner.previous),
                "begins_after": 0 if owner is None else owner.begins_after,
                "floor": status.floor,
                "totals": to_json(asdict(status.totals)),
                "published": to_json(parts),
                "unacknowledged": status.unacknowledged,
                "remembered": status.remembered,
                "remembered_since": _time(status.remembered_since_ms),
                "forgotten": to_json(asdict(status.forgotten)),
                "folders": {name: {"files": len(files), "bytes": sum(files.values())} for name, files in sizes.items()},
            }
        )
        return Exit.OK
    query = status.query or "no query"
    before = f" (before it: {', '.join(owner.previous)})" if owner is not None and owner.previous else ""
    click.echo(f"{store.place}: of {query}{before}")
    for line in _lines(status):
        click.echo(line)
    if parts:
        click.echo()
        table(list(parts[0]), [list(one.values()) for one in parts])
    click.echo()
    rows = [[name, len(files), sum(files.values())] for name, files in sizes.items() if files]
    footer = [
        "total",
        sum(len(files) for files in sizes.values()),
        sum(sum(files.values()) for files in sizes.values()),
    ]
    table(["folder", "files", "bytes"], rows, footer=footer)
    return Exit.OK


@spool.command()
@click.argument("place", metavar="SPOOL")
@json_option
def verify(place: str, as_json: bool) -> int:
    """Check every entry, data file and run of identities of SPOOL, and name each problem and what it costs.

    Exit code 4 when a file that is needed is missing or damaged. Nothing is written; a query may be running on it."""
    store = _open(place)
    from acquit.spark.spool.verify import verify as look

    found = look(store)
    if as_json:
        emit_json(
            {
                "spool": store.place,
                "entries": found.entries,
                "data_files": found.data_files,
                "rows": found.rows,
                "identities": found.identities,
                "damage": _damage(found.damage),
                "leftovers": list(found.leftovers),
                "unpublished": list(found.unpublished),
            }
        )
    else:
        for one in found.damage:
            remark(f"{one.name}: {one.problem}; it costs {one.cost}")
        state = "damaged" if found.damage else "sound"
        click.echo(
            f"{store.place}: {state}; {counted(found.entries, 'entry', 'entries')}, {counted(found.rows, 'row')} "
            f"in {counted(found.data_files, 'data file')}, {counted(found.identities, 'identity', 'identities')}"
        )
        if found.leftovers:
            click.echo(
                f"{counted(len(found.leftovers), 'file')} that nobody will ask for: acquit spool repair removes them"
            )
        if found.unpublished:
            click.echo(f"{counted(len(found.unpublished), 'file')} of attempts that are under way, or died")
    return Exit.UNSOUND if found.damage else Exit.OK


@spool.command()
@click.argument("place", metavar="SPOOL")
@click.option("--dry-run", is_flag=True, help="Show what would be done and what it would cost, and do nothing.")
@click.option("--stopped", is_flag=True, help="No query is running on it: remove files of attempts that died, too.")
@click.option("--forget-damaged", "forget", is_flag=True, help="Go on without runs of identities that are damaged.")
@click.option(
    "--take-over",
    type=click.Choice(["replay", "finish"]),
    help="The checkpoint is lost and its query is stopped: give SPOOL to the next query that comes. Rows that are "
    "published and may or may not be in the table: replay gives them to it again, finish never.",
)
@json_option
def repair(place: str, dry_run: bool, stopped: bool, forget: bool, take_over: str | None, as_json: bool) -> int:
    """Remove files of SPOOL that nobody will ask for; with options, more, each step with its cost.

    Exit code 4 when damage is left that these options do not repair."""
    store = _open(place)
    from acquit.spark.spool.repair import RepairOptions, TakeOver
    from acquit.spark.spool.repair import repair as carry_out

    options = RepairOptions(
        stopped=stopped, forget=forget, take_over=None if take_over is None else TakeOver(take_over)
    )
    result = carry_out(store, options, dry_run=dry_run)
    if as_json:
        emit_json(
            {
                "spool": store.place,
                "done": result.done,
                "actions": [to_json(asdict(one)) for one in result.actions],
                "left": _damage(result.left),
            }
        )
    else:
        would = "" if result.done else "would "
        removed = [one for one in result.actions if one.what == "remove"]
        for one in [*(one for one in result.actions if one.what != "remove"), *removed[:SHOWN]]:
            click.echo(f"{would}{one.what} {one.name}" + (f": {one.cost}" if one.cost else ""))
        if len(removed) > SHOWN:
            click.echo(f"{would}remove {len(removed) - SHOWN} more files")
        if not result.actions:
            click.echo(f"{store.place}: nothing to do")
        for left in result.left:
            remark(f"{left.name}: {left.problem}; left as it is, it costs {left.cost}")
    return Exit.UNSOUND if result.left else Exit.OK


def _open(place: str) -> SpoolStore:
    """The store of a spool that is there. Raises ConfigurationError."""
    need("pyarrow", "numpy")
    from acquit.spark.spool.places import open_store

    store = open_store(spool_place(place))
    # By their names: the folder of an audit has a log, too, and any folder may have files.
    ours = (name.startswith("owner") for name in store.names(""))
    if not any((*ours, *(name.isdecimal() for name in store.names("log")), *store.names("plans"))):
        below = next((path for path in (Path(place, "_acquit/spool"), Path(place, "spool")) if path.is_dir()), None)
        hint = "" if below is None else f"; did you mean {below}?"
        raise ConfigurationError(f"{store.place}: there is no spool (no owner, no log, no plans){hint}")
    return store


def _lines(status: SpoolStatus) -> list[str]:
    totals, forgotten = status.totals, status.forgotten
    aside = [
        f"{count:,} {name.replace('_', ' ')}" for name, count in asdict(totals).items() if name != "rows" and count
    ]
    since = f" since {_time(status.remembered_since_ms)}" if status.remembered_since_ms is not None else ""
    published = f"{counted(status.published, 'published part')} may be replayed"
    lines = [
        f"epochs up to {status.floor} are finished; {published}, {status.unacknowledged} not known to be acknowledged",
        f"{counted(totals.rows, 'row')} published" + (f", {', '.join(aside)}" if aside else ""),
        f"{counted(status.remembered, 'identity', 'identities')} remembered{since}",
    ]
    if forgotten.count:
        early = f", {forgotten.by_limit:,} of them for the limit" if forgotten.by_limit else ""
        lines.append(f"{forgotten.count:,} forgotten, up to {_time(forgotten.newest_ms)}{early}")
    return lines


def _time(time_ms: int | None) -> str | None:
    return None if time_ms is None else time_text(time_ms * 1000)


def _damage(found: tuple[Damage, ...]) -> list[Json]:
    return [{"file": one.name, "problem": one.problem, "cost": one.cost} for one in found]
