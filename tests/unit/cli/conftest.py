"""A shell for the commands: in this process, with output caught, and a broker to talk to."""

from __future__ import annotations

import io
import logging
import socket
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
import structlog

from acquit.cli.app import run
from tests.support.shell import Ran, Shell

if TYPE_CHECKING:
    import acquit


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Shell:

    def execute(*arguments: object, stdin: str | bytes = "") -> Ran:
        monkeypatch.setattr(
            sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode() if isinstance(stdin, str) else stdin), "utf-8")
        )
        capsys.readouterr()
        code = run([str(argument) for argument in arguments])
        return Ran(code, *capsys.readouterr())

    return execute


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    """`acquit serve` sets the logging of its process up."""
    root = logging.getLogger()
    before = root.handlers[:], root.level
    yield
    root.handlers[:], root.level = before
    structlog.reset_defaults()


@pytest.fixture
def at_broker(shell: Shell, broker: acquit.Broker, monkeypatch: pytest.MonkeyPatch) -> Shell:
    """The shell, with ACQUIT_URL set to the session's broker."""
    monkeypatch.setenv("ACQUIT_URL", broker.url)
    return shell


@pytest.fixture
def unused_port() -> Iterator[int]:
    """A port of 127.0.0.1 where connecting is refused: bound for as long as the test runs, and not listening."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        port: int = held.getsockname()[1]
        yield port
