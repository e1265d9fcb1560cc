"""``acquit completion``: the script by which a shell completes commands and options."""

from __future__ import annotations

import click
from click.shell_completion import BashComplete, FishComplete, ShellComplete, ZshComplete

from acquit.cli.exits import Exit

SHELLS: dict[str, type[ShellComplete]] = {"bash": BashComplete, "zsh": ZshComplete, "fish": FishComplete}
VARIABLE = "_ACQUIT_COMPLETE"
"""Environment variable by which the script asks; click derives it from the command's name."""


@click.command()
@click.argument("shell", type=click.Choice(list(SHELLS)))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> int:
    """Print the script that completes commands and options in SHELL.

    bash: eval "$(acquit completion bash)" in ~/.bashrc; zsh: eval "$(acquit completion zsh)" in ~/.zshrc, after
    compinit; fish: acquit completion fish > ~/.config/fish/completions/acquit.fish
    """
    click.echo(SHELLS[shell](ctx.find_root().command, {}, "acquit", VARIABLE).source())
    return Exit.OK
