"""A broker for the commands to talk to, and a port where nobody answers."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.support.shell import Shell

if TYPE_CHECKING:
    import acquit


@pytest.fixture(autouse=True)
def always_as_before(logging_as_before: None) -> None:
    """Some tests run commands without the shell."""


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
