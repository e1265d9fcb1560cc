"""``acquit doctor``: what is wrong, or may become wrong, with a machine, a configuration and a data folder."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click

from acquit.cli.exits import Exit
from acquit.cli.options import config_option, json_option, own_data_option
from acquit.cli.output import emit_json, line

STYLES: Final = {"ok": "green", "warning": "yellow", "problem": "bold red"}


@click.command()
@own_data_option("The broker's folder, which need not be there yet.")
@config_option("The broker's configuration; without it, the defaults are held to the machine.")
@json_option
def doctor(data: Path, config: Path | None, as_json: bool) -> int:
    """Look at this machine, the configuration and the folder of a broker, running or not, and say what to change.

    Each finding is one line: ok, warning or problem. Exit code 1 where there is a problem. Nothing is changed; a small
    file is written and removed to see how long the disk takes.
    """
    from acquit.doctor import examine
    from acquit.doctor.findings import Severity

    worst = Exit.OK
    for finding in examine(data, config):
        if finding.severity is Severity.PROBLEM:
            worst = Exit.FAILED
        if as_json:
            emit_json(
                {
                    "severity": finding.severity.value,
                    "subject": finding.subject,
                    "found": finding.found,
                    "advice": finding.advice,
                }
            )
        else:
            name = finding.severity.value
            advice = f"; {finding.advice}" if finding.advice else ""
            line((f"{name:<8}", STYLES[name]), f" {finding.subject}: {finding.found}{advice}")
    return worst
