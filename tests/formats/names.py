"""The names and numbers that others rely on: users' files and scripts, peers, and what is on disks.

`names.txt` lists them. One that is gone from there breaks somebody. `python -m tests.formats.names` adds new ones;
with ``--check`` it exits 1 if there are some.
"""

from __future__ import annotations

import dataclasses
import sys
import typing
from collections.abc import Iterator
from enum import IntEnum, IntFlag
from pathlib import Path

import click

from acquit.broker.options import AddressPolicy, BrokerOptions
from acquit.cli.app import COMMANDS, acquit
from acquit.cli.exits import Exit
from acquit.ledger import events, records
from acquit.protocol import extensions
from acquit.spark import columns, metrics, source_options
from acquit.spark.ledger import options as ledger_options
from acquit.spark.sink import options as sink_options
from acquit.spark.sink import rows

NAMES = Path(__file__).with_name("names.txt")


def names() -> list[str]:
    """All of them, sorted."""
    return sorted({*wire(), *journal(), *settings(), *commands(), *spark()})


def wire() -> Iterator[str]:
    yield from (f"wire {value}" for name, value in vars(extensions).items() if name.isupper())


def journal() -> Iterator[str]:
    for module in (records, events):
        for kind in vars(module).values():
            if isinstance(kind, type) and issubclass(kind, IntEnum | IntFlag) and kind.__module__ == module.__name__:
                yield from (f"journal {kind.__name__} {member.name} = {member.value}" for member in kind)


def settings() -> Iterator[str]:
    yield from configuration("setting", BrokerOptions)
    yield from configuration("setting.address", AddressPolicy)


def configuration(path: str, options: type) -> Iterator[str]:
    hints = typing.get_type_hints(options)
    for field in dataclasses.fields(options):
        yield f"{path}.{field.name}"
        inner = [hints[field.name], *typing.get_args(hints[field.name])]
        for kind in inner:
            if dataclasses.is_dataclass(kind) and isinstance(kind, type):
                yield from configuration(f"{path}.{field.name}", kind)


def commands() -> Iterator[str]:
    yield from (f"exit {code.name} = {code.value}" for code in Exit)
    context = click.Context(acquit)
    for name in COMMANDS:
        command = acquit.get_command(context, name)
        assert command is not None
        yield from options_of(f"acquit {name}", command)


def options_of(path: str, command: click.Command) -> Iterator[str]:
    yield path
    for parameter in command.params:
        yield from (f"{path} {name}" for name in (*parameter.opts, *parameter.secondary_opts) if name.startswith("-"))
    if isinstance(command, click.Group):
        for name in command.list_commands(click.Context(command)):
            inner = command.get_command(click.Context(command), name)
            assert inner is not None
            yield from options_of(f"{path} {name}", inner)


def spark() -> Iterator[str]:
    for name, module in (("source", source_options), ("sink", sink_options), ("ledger", ledger_options)):
        yield from (f"spark {name} option {option.name}" for option in module.OPTIONS)
    yield from (f"spark source column {name} {field.spark_type}" for name, field in columns.BY_NAME.items())
    yield from (f"spark sink column {column.name}" for column in rows.COLUMNS)
    yield from (f"spark metric {name}" for name in metrics._NAMES.values())


if __name__ == "__main__":
    # Adds and never takes away: what is gone is for a person to decide.
    text = "\n".join(sorted({*names(), *NAMES.read_text().splitlines()})) + "\n"
    if "--check" not in sys.argv:
        NAMES.write_text(text)
    elif text != NAMES.read_text():
        raise SystemExit(f"{NAMES.name} lacks names that are new: `make generate` adds them")
