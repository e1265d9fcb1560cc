from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import click
import pytest

import acquit
from acquit.cli import app
from acquit.cli.exits import Exit
from acquit.errors import NotFound


def failing(error: BaseException) -> click.Command:
    @click.command()
    def fail() -> None:
        raise error

    return fail


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    monkeypatch.setattr(app.LazyGroup, "get_command", lambda self, ctx, name: request.param)


@pytest.mark.parametrize("command", [failing(NotFound("no such address x"))], indirect=True)
@pytest.mark.usefixtures("command")
def test_a_failure_is_a_line_without_a_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run(["demo"]) == Exit.FAILED
    assert capsys.readouterr() == ("", "acquit: no such address x\n")


@pytest.mark.parametrize("command", [failing(NotFound("no such address x"))], indirect=True)
@pytest.mark.usefixtures("command")
def test_debug_shows_where(capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run(["--debug", "demo"]) == Exit.FAILED
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize("command", [failing(ZeroDivisionError("a defect"))], indirect=True)
@pytest.mark.usefixtures("command")
def test_a_defect_keeps_its_traceback() -> None:
    with pytest.raises(ZeroDivisionError):
        app.run(["demo"])


def wrapped() -> RuntimeError:
    """What Python 3.11 makes of an interrupt in `__set_name__`."""
    error = RuntimeError("Error calling __set_name__ on 'Field' instance 'notes' in 'Stack'")
    error.__cause__ = KeyboardInterrupt()
    return error


@pytest.mark.parametrize("command", [failing(KeyboardInterrupt()), failing(wrapped())], indirect=True)
@pytest.mark.usefixtures("command")
def test_interrupted() -> None:
    assert app.run(["demo"]) == Exit.INTERRUPTED


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["fly"], "no such command 'fly'; there are serve, send"),
        (["--wrong"], "--wrong"),
    ],
)
def test_wrong_usage(arguments: list[str], text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run(arguments) == Exit.USAGE
    assert text in capsys.readouterr().err


def test_help_lists_every_command_and_loads_none(capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run(["--help"]) == Exit.OK
    shown = capsys.readouterr().out
    assert all(f"  {name} " in shown for name in app.COMMANDS)


def test_the_command_line_loads_no_command_before_it_is_used() -> None:
    program = (
        "import sys\n"
        "from acquit.cli.app import run\n"
        "run(['--help'])\n"
        "print(sorted({name.split('.')[1] for name in sys.modules if name.startswith('acquit.')}))\n"
        "print(sorted(name for name in sys.modules if name.startswith('acquit.cli.')))"
    )
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    parts, commands = shown.splitlines()[-2:]
    # No client, broker, ledger, store, demo, Spark.
    assert parts == "['_version', 'cli', 'errors']"
    assert commands == "['acquit.cli.app', 'acquit.cli.exits', 'acquit.cli.lazy', 'acquit.cli.streams']"


def test_what_is_left_at_the_end_is_not_looked_through_again() -> None:
    """Python looks for garbage three times as it exits: a tenth of the time of a short command."""
    program = (
        "import atexit, gc, sys\n"
        "sys.argv = ['acquit', '--version']\n"
        "atexit.register(lambda: print(len(gc.get_objects()) < gc.get_freeze_count()))\n"
        "from acquit.cli import main\n"
        "main()"
    )
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert shown.splitlines()[-1] == "True"


@pytest.mark.parametrize("where", ["Field().__set_name__(None, '')", "type('Stack', (), {'notes': Field()})"])
def test_an_interrupt_that_comes_before_anything_was_begun(where: str) -> None:
    program = (
        "import os, signal, sys\n"
        "class Field:\n"
        "    def __set_name__(self, owner, name):\n"
        "        os.kill(os.getpid(), signal.SIGTERM)\n"
        "class Interrupting:\n"
        "    def find_spec(self, name, path, target=None):\n"
        "        if name == 'click':\n"
        f"            {where}\n"
        "sys.meta_path.insert(0, Interrupting())\n"
        "sys.argv = ['acquit', '--version']\n"
        "from acquit.cli import main\n"
        "main()"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout, ran.stderr) == (Exit.INTERRUPTED, "", "")


HEAVY = {"asyncio", "importlib.metadata", "rich", "ssl", "structlog"}
"""Packages that take longer to load than the command line itself."""


@pytest.mark.parametrize(
    ("arguments", "needed"),
    [(["--help"], set()), (["--version"], set()), (["queues", "--url", "amqp://127.0.0.1:{port}"], {"asyncio", "ssl"})],
    ids=["help", "version", "queues"],
)
def test_what_loads_slowly_is_loaded_by_what_needs_it(arguments: list[str], needed: set[str], unused_port: int) -> None:
    program = (
        "import sys\n"
        "from acquit.cli.app import run\n"
        "code = run(sys.argv[1:])\n"
        "sys.stderr.write(' '.join(['loaded:', *sys.modules]))"
    )
    command = [sys.executable, "-c", program, *(argument.format(port=unused_port) for argument in arguments)]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    loaded = set(told.partition("loaded:")[2].split())
    assert loaded & HEAVY == needed
    assert not {name for name in loaded if name.startswith(("acquit.broker", "acquit.ledger", "acquit.store"))}


UNUSED = frozenset(
    {
        *("acquit.cli.watching", "acquit.client.identity", "acquit.client.inbox", "acquit.client.requests"),
        *("acquit.client.requests_blocking", "acquit.client.stores", "acquit.client.subscriptions"),
        *("difflib", "hmac", "secrets", "sqlite3"),
    }
)
"""Modules that a question to a broker does not need."""
TEXTS_MAX = 230
"""Methods that `dataclass` and `NamedTuple` make from texts for `acquit queues`, at most: each takes a tenth of a
millisecond. It was 442 once. Lower it where there are fewer."""


def test_a_question_to_a_broker_loads_no_more_than_it_needs(broker: acquit.Broker) -> None:
    """Of issue 16: `acquit queues` takes less than 0.15 s of CPU. Nearly all of that is imports, and what they make."""
    program = (
        "import sys\n"
        "codes = []\n"
        "sys.addaudithook(lambda event, told: codes.append(told[0]) if event == 'exec' else None)\n"
        "from acquit.cli.app import run\n"
        "code = run(sys.argv[1:])\n"
        "texts = [code for code in codes if code.co_filename == '<string>']\n"
        "sys.stderr.write(' '.join([f'{code} {len(texts)} loaded:', *sys.modules]))"
    )
    command = [sys.executable, "-c", program, "queues", "--url", broker.url]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    figures, _, loaded = told.partition(" loaded:")
    code, texts = map(int, figures.split())
    assert code == Exit.OK
    assert 0 < texts <= TEXTS_MAX
    assert "acquit.client.blocking" in loaded.split()
    assert not {*loaded.split()} & UNUSED


def test_a_broker_for_everybody_loads_no_more_than_it_needs(tmp_path: Path) -> None:
    """Of issue 16: an empty broker takes less than 45 MB of memory. Together these would be a quarter of that."""
    program = (
        "import sys\n"
        "from acquit.cli.app import run\n"
        "run(sys.argv[1:])\n"
        "sys.stderr.write(' '.join(['loaded:', *sys.modules]))"
    )
    command = [sys.executable, "-c", program, "serve", "--port", "0", "--data", str(tmp_path / "data")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as broker:
        assert broker.stdout is not None
        assert "ready" in broker.stdout.readline()
        broker.terminate()
        told = broker.communicate()[1]
    loaded = {name.partition(".")[0] for name in told.partition("loaded:")[2].split()}
    assert "structlog" in loaded
    assert not loaded & {"asn1crypto", "fastapi", "numpy", "prometheus_client", "pygments", "rich", "scramp", "uvicorn"}


def test_logs_look_the_same_where_rich_is_there_for_others() -> None:
    """It is absent for structlog alone, and only where nobody had it before."""
    program = (
        "import sys, {first}acquit.cli.logs\n"
        "import rich, structlog\n"
        "assert sys.modules['rich'] is rich\n"
        "acquit.cli.logs.configure('console', 'info')\n"
        "try:\n"
        "    password = 'hush'\n"
        "    1 / 0\n"
        "except ZeroDivisionError:\n"
        "    structlog.get_logger('a').exception('it happened')"
    )
    shown = [
        subprocess.run(
            [sys.executable, "-c", program.format(first=first)], capture_output=True, text=True, check=True
        ).stderr
        for first in ("", "rich, ")
    ]
    for text in shown:
        assert "it happened" in text and "ZeroDivisionError" in text and "hush" not in text


@pytest.mark.parametrize("name", list(app.COMMANDS))
def test_every_command_explains_itself(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run([name, "--help"]) == Exit.OK
    assert "Usage: acquit " + name in capsys.readouterr().out


def test_a_reader_that_has_gone_makes_no_noise() -> None:
    program = "from acquit.cli.app import run; import sys; sys.exit(run(['--help']))"
    reading, writing = os.pipe()
    os.close(reading)
    try:
        result = subprocess.run([sys.executable, "-c", program], stdout=writing, stderr=subprocess.PIPE, check=False)
    finally:
        os.close(writing)
    assert (result.returncode, result.stderr) == (Exit.FAILED, b"")


@pytest.mark.parametrize("group", ["config", "ledger", "queues", "scheduled", "spool", "user"])
def test_what_a_command_of_a_group_does_is_said_to_the_end(group: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run([group, "--help"]) == Exit.OK
    listed = capsys.readouterr().out.partition("\nCommands:\n")[2].splitlines()
    assert listed
    assert not [line for line in listed if line.endswith("...")]
    assert listed[-1].endswith(".")
