"""Groups of commands: those whose modules are imported one at a time, when a command runs or its help is asked for, and
those of one module."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

SENTENCE_MAX = 1_000
"""Longer than any first sentence."""


class HandedOn(click.Command):
    """A command of a group: what was said before its name, it goes by, unless it is told otherwise behind it. What it
    has no option for is refused: nobody writes an option to have it ignored."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        rest = super().parse_args(ctx, args)
        group = ctx.parent
        if group is not None and isinstance(group.command, WholeGroup) and not ctx.resilient_parsing:
            own = {option.name for option in self.params if isinstance(option, click.Option)}
            for option in group.command.params:
                name = option.name
                if group.get_parameter_source(name) is not ParameterSource.COMMANDLINE:
                    continue
                if name not in own:
                    raise click.UsageError(f"{option.opts[0]} belongs to {group.command_path}, not to {self.name}", ctx)
                if ctx.get_parameter_source(name) is not ParameterSource.COMMANDLINE:
                    ctx.params[name] = group.params[name]
        return rest


class WholeGroup(click.Group):
    """A group whose help says of each command the whole first sentence, on as many lines as that takes: click ends it
    in dots where the screen does. Options that it has itself are handed on to its commands."""

    command_class = HandedOn

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(
                [(name, self.commands[name].get_short_help_str(SENTENCE_MAX)) for name in self.list_commands(ctx)]
            )


class LazyGroup(click.Group):
    """A group made of a table, ``name: (module under package, what it does)``. The list that its help prints comes from
    the table alone. In the module the command has the name that it has here, with ``_`` for ``-``."""

    def __init__(self, *args: Any, package: str, table: Mapping[str, tuple[str, str]], **options: Any) -> None:
        super().__init__(*args, **options)
        self._package = package
        self._table = table

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self._table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self._table:
            return None
        module = importlib.import_module(f"{self._package}.{self._table[cmd_name][0]}")
        command: click.Command = getattr(module, cmd_name.replace("-", "_"))
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, summary) in self._table.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        # click asks every command for its help, and loads it for that.
        from click.shell_completion import CompletionItem

        names = [
            CompletionItem(name, help=text) for name, (_, text) in self._table.items() if name.startswith(incomplete)
        ]
        return names + click.Command.shell_complete(self, ctx, incomplete)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        # click suggests by loading every command; the names alone do.
        if args and args[0] not in self._table and not args[0].startswith("-"):
            ctx.fail(f"no such command {args[0]!r}; there are {', '.join(self._table)}")
        return super().resolve_command(ctx, args)
