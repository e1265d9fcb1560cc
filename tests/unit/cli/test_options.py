"""Numbers on the command line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from acquit.cli import app
from acquit.cli.exits import Exit
from acquit.cli.options import FiniteRange, PathType
from tests.support.shell import Shell

NAMES = {"file", "directory", "path"}
"""Names of click's types of paths."""


def commands(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """The commands below one, each with how it is called."""
    yield path, command
    if isinstance(command, click.Group):
        for name in command.list_commands(click.Context(command)):
            below = command.get_command(click.Context(command), name)
            assert below is not None
            yield from commands(below, (*path, name))


NUMBERS = [
    (" ".join(path), option.opts[0])
    for path, command in commands(app.acquit)
    for option in command.params
    if isinstance(option.type, FiniteRange)
]


def test_every_number_that_need_not_be_whole_is_a_finite_one() -> None:
    types = {type(option.type) for _, command in commands(app.acquit) for option in command.params}
    assert not types & {click.types.FloatParamType, click.FloatRange}
    assert {"--timeout", "--ttl", "--delay", "--seconds", "--watch", "--interval", "--rate"} <= {
        name for _, name in NUMBERS
    }


@pytest.mark.parametrize("value", ["nan", "inf", "1e300", "soon"])
def test_a_number_that_is_none_is_refused_in_one_line(shell: Shell, value: str) -> None:
    for command, option in NUMBERS:
        ran = shell(*command.split(), f"{option}={value}")
        assert (ran.code, ran.out) == (Exit.USAGE, ""), (command, option)
        assert f"Invalid value for '{option}': " in ran.err


def test_the_longest_time_is_one_that_can_be_waited(shell: Shell, unused_port: int) -> None:
    ran = shell("health", "--timeout", "2147483", "--url", f"amqp://127.0.0.1:{unused_port}")
    assert (ran.code, ran.err) == (Exit.UNREACHABLE, "")


def test_no_path_may_be_empty(shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would be the folder in which the command runs: ``acquit serve --data "$DATA"`` where DATA is not set."""
    monkeypatch.chdir(tmp_path)
    paths = [(path, it) for path, command in commands(app.acquit) for it in command.params if it.type.name in NAMES]
    assert {type(it.type) for _, it in paths} == {PathType}
    assert {"data", "config", "copy", "ca", "table", "files"} <= {it.name for _, it in paths}
    for arguments in (
        ["serve", "--data", ""],
        ["doctor", "--config", ""],
        ["backup", "", "x"],
        ["config", "check", ""],
    ):
        ran = shell(*arguments)
        assert ran.code == Exit.USAGE
        assert ran.err.endswith(": expected a path, found an empty text\n")
    ran = shell("spool", "verify", "")
    assert (ran.code, ran.err[:28]) == (Exit.USAGE, "acquit: SPOOL '': expected a")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("url", ["s3://bucket/table", "S3A://b/t", "file:///data/orders", "hdfs://host:8020/orders"])
def test_no_path_may_be_a_url(shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    """It would be a folder where the command runs, such as ``s3:``, and the messages of a queue go there."""
    monkeypatch.chdir(tmp_path)
    for arguments in (
        ["pipeline", "ingest", "orders", url],
        ["pipeline", "ingest", "orders", "table", "--work", url],
        ["pipeline", "compact", "table", "--into", url],
        ["serve", "--data", url],
    ):
        ran = shell(*arguments)
        assert ran.code == Exit.USAGE
        assert ran.err.endswith(": expected a path on this machine, found a URL\n")
    assert list(tmp_path.iterdir()) == []
