"""Groups of commands, and what is said before one of them."""

from __future__ import annotations

from collections.abc import Iterator

import click

from acquit.cli import app
from acquit.cli.lazy import HandedOn, WholeGroup


def groups(command: click.Command) -> Iterator[click.Group]:
    """The group and those below it."""
    if isinstance(command, click.Group):
        yield command
        ctx = click.Context(command)
        for name in command.list_commands(ctx):
            below = command.get_command(ctx, name)
            assert below is not None
            yield from groups(below)


def test_no_group_drops_what_is_said_before_its_commands() -> None:
    found = [group for group in groups(app.acquit) if group.invoke_without_command]
    assert {group.name for group in found} >= {"queues", "termini"}
    for group in found:
        assert isinstance(group, WholeGroup)
        assert all(isinstance(command, HandedOn) for command in group.commands.values())
