"""``acquit backup`` and ``acquit restore``: copies of a data folder, and what makes a broker of one."""

from __future__ import annotations

from pathlib import Path

import click

from acquit.cli.exits import Exit
from acquit.cli.options import PathType, json_option
from acquit.cli.output import counted, counting, emit_json, remark

_FOLDER = PathType(file_okay=False)


@click.command()
@click.argument("data", type=_FOLDER)
@click.argument("target", type=_FOLDER)
@click.option("--archive", is_flag=True, help="With the segments that only the audit needs.")
@json_option
def backup(data: Path, target: Path, archive: bool, as_json: bool) -> int:
    """Copy the folder DATA of a broker, running or stopped, to TARGET, which must be empty or not there.

    The copy is what a crash at that moment would have left, with its users file. A broker that is started on it begins
    a new epoch, so that nobody takes it for the original."""
    from acquit.broker.access.users_file import NAME
    from acquit.ledger.verify import read_head
    from acquit.store.backup import back_up

    with counting("copying segments", None) as counter:
        report = back_up(data, target, archive=archive, others=(NAME,), progress=counter.at)
    head = str(read_head(target))
    if as_json:
        emit_json(
            {
                "store": str(report.store),
                "target": str(target),
                "segments": report.segments,
                "archived": report.archived,
                "bytes": report.copied_bytes,
                "left_behind": report.left_behind,
                "head": head,
            }
        )
    else:
        aside = f" and {report.archived} of the archive" if archive else ""
        click.echo(f"{target}: {counted(report.segments, 'segment')}{aside}, {report.copied_bytes} bytes")
        click.echo(f"head: {head}")
    return Exit.OK


@click.command()
@click.argument("copy", type=_FOLDER)
@json_option
def restore(copy: Path, as_json: bool) -> int:
    """Check the folder COPY, and see to it that the next broker on it begins a new epoch.

    What `acquit backup` makes is marked already, and this only checks it. A copy that was made by other means (a
    snapshot of the file system) must be marked so before a broker is started on it."""
    from acquit.cli.ledger import read_fold
    from acquit.ledger.balance import balance
    from acquit.ledger.records import QueueFlag
    from acquit.store.backup import mark

    fold = read_fold(copy)
    found = balance(fold)
    mark(copy)
    queues = sum(not entry.flags & QueueFlag.TOPIC for entry in fold.table.queues.values())
    live = sum(row.live.total for row in found.queues)
    if as_json:
        emit_json({"copy": str(copy), "queues": queues, "messages": live, "balanced": found.balanced})
    else:
        click.echo(
            f"{copy}: {counted(queues, 'queue')}, {counted(live, 'message')}; the next broker on it begins a new epoch"
        )
        if not found.balanced:
            remark("its accounts do not balance: see `acquit ledger balance`")
    return Exit.OK if found.balanced else Exit.UNSOUND
