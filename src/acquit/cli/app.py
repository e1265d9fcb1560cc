"""The root of the command tree, and the one place where a failure becomes a line and an exit code.

`COMMANDS` is the tree. A command's module is imported when the command runs, or when its help is asked for; the list
that `acquit --help` prints comes from the table.
"""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from contextlib import suppress

import click

from acquit._version import native, version
from acquit.cli.exits import Exit, exit_of, one_line
from acquit.cli.lazy import LazyGroup
from acquit.cli.streams import check_output, of_output, prepare
from acquit.errors import AcquitError

# name: (module under acquit.cli, what it does)
COMMANDS: dict[str, tuple[str, str]] = {
    "serve": ("serve", "Run a broker on a folder of data."),
    "send": ("send", "Send messages and report their outcomes."),
    "receive": ("receive", "Take messages from a queue."),
    "browse": ("receive", "Look at the messages of a queue and leave them there."),
    "status": ("status", "Show on one screen how a broker is."),
    "health": ("status", "Say in one line and in the exit code whether a broker takes messages."),
    "queues": ("queues", "Show, make and delete queues of a running broker, or show a stopped one's."),
    "top": ("top", "Watch a broker and its queues, live in the terminal."),
    "connections": ("connections", "Show who is connected to a broker."),
    "links": ("connections", "Show the links to a broker's queues and topics, and what each holds."),
    "close": ("connections", "Close a connection, or detach a link, with a reason."),
    "pause": ("pausing", "Pause a queue for producers, for consumers, or for both."),
    "resume": ("pausing", "Let a paused queue go on."),
    "purge": ("queues", "Remove all messages of a queue that nobody has acquired."),
    "address": ("address", "Show how messages at an address are treated, or change that."),
    "marks": ("marks", "Show how far senders that number their postings have come."),
    "termini": ("termini", "Show and end what is kept for links that resume their deliveries."),
    "message": ("message", "Show one message of a queue in full, or what became of it."),
    "dlq": ("dlq", "Show dead letters and their reasons, and send them back to where they died."),
    "move": ("move", "Move messages from one queue into another."),
    "scheduled": ("scheduled", "Show messages that wait for their delivery time, or cancel them."),
    "user": ("user", "Say who may log in, and with which roles."),
    "config": ("config", "Check a configuration file, or have a running broker read its own again."),
    "rotate": ("rotate", "Close the open segment of a broker's journal, and begin the next."),
    "ledger": ("ledger", "Ask the journal what became of every message."),
    "backup": ("backup", "Copy the folder of a broker, running or stopped."),
    "restore": ("backup", "Make a copy of a broker's folder ready for a broker."),
    "pipeline": ("pipelines", "Queues, tables and the ledger, with Spark."),
    "spool": ("spool", "Look at the spool of a Spark query, check it, and repair it."),
    "doctor": ("doctor", "Look at machine, configuration and disk, and say what to change."),
    "bench": ("bench", "Measure how fast a broker is, and how late its messages come."),
    "completion": ("completion", "Print the script by which bash, zsh or fish completes commands."),
    "demo": ("demo", "Post real files, kill what can be killed, and show that nothing was lost or doubled."),
}


@click.command(
    cls=LazyGroup,
    package="acquit.cli",
    table=COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Exit codes: 0 done; 1 failed, or not all of it done; 2 wrong usage, configuration or input; "
    "3 no broker; 4 damaged, or the balance does not hold; 5 the broker refuses messages; 130 interrupted.",
)
@click.option("--debug", is_flag=True, envvar="ACQUIT_DEBUG", help="Show the traceback of a failure.")
@click.version_option(version(), prog_name="acquit", message="%(prog)s %(version)s" + (" (native)" if native() else ""))
@click.pass_context
def acquit(ctx: click.Context, debug: bool) -> None:
    """Message delivery with every message accounted for."""
    ctx.obj["debug"] = debug
    check_output(ctx.invoked_subcommand)


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code. Failures are printed on standard error, in one line."""
    settings: dict[str, bool] = {"debug": False}
    prepare()
    try:
        result = acquit.main(args=list(arguments), prog_name="acquit", standalone_mode=False, obj=settings)
        click.echo(nl=False)  # flushed
        return int(result) if isinstance(result, int) else Exit.OK
    except click.ClickException as error:
        with suppress(OSError):  # standard error is full: the code says it
            error.show()
        return error.exit_code
    except click.Abort as abort:
        if not isinstance(abort.__context__, EOFError):
            return Exit.INTERRUPTED
        _tell("\nacquit: nobody answers the question on standard input; --yes, where there is it, asks none")
        return Exit.USAGE
    except KeyboardInterrupt:
        return Exit.INTERRUPTED
    except SystemExit as stop:
        # The reader has gone (`acquit receive orders | head -1`): click has silenced what is left in the buffer. What
        # could not be shown was not done.
        return int(stop.code or 0)
    except Exception as error:
        told = AcquitError(f"standard output: {error}") if of_output(error) else error
        code = exit_of(told)
        if code is None:
            if isinstance(error.__cause__, KeyboardInterrupt):  # Python 3.11: a class was being made, in an import
                return Exit.INTERRUPTED
            raise
        if settings["debug"]:
            traceback.print_exc()
        _tell(f"acquit: {one_line(told)}")
        return code


def _tell(line: str) -> None:
    with suppress(OSError):
        click.echo(line, err=True)
