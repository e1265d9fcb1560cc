"""Large bodies from files and into files, over sockets: how much memory a client needs for one.

Measured in a process of its own with tracemalloc, from the opened link on. What the client holds is the message, once;
the rest is what is on its way through the socket, and what a growing buffer has ahead.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import acquit

pytestmark = pytest.mark.promise("bounded")

SIZE = 24 * 1024 * 1024

PROGRAM = """
import sys, tracemalloc
import acquit

url, role, path = sys.argv[1:]
with acquit.connect(url) as connection, connection.session("individual") as session:
    link = session.sender("large") if role == "send" else session.receiver("large", prefetch=1)
    tracemalloc.start()
    if role == "send":
        link.send(acquit.Message.from_file(path))
    else:
        message = link.receive(timeout=60)
        message.save_body(path)
        message.accept()
    print(tracemalloc.get_traced_memory()[1])
"""


def peak(url: str, role: str, path: Path) -> float:
    """In bodies."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROGRAM, url, role, str(path)],
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
    )
    return int(done.stdout) / SIZE


def test_a_body_from_a_file_and_into_a_file_is_held_once_on_either_side(tmp_path: Path) -> None:
    block = os.urandom(1024 * 1024)
    with (tmp_path / "in").open("wb") as file:
        for _ in range(SIZE // len(block)):
            file.write(block)
    with acquit.Broker() as broker:
        assert peak(broker.url, "send", tmp_path / "in") < 1.15
        assert peak(broker.url, "receive", tmp_path / "out") < 1.3
    assert (tmp_path / "in").read_bytes() == (tmp_path / "out").read_bytes()
