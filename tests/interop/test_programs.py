"""Whole programs on other libraries, with nothing set: what a newcomer writes in his first five minutes.

They are what the example senders and receivers of python-qpid-proton and rhea do (neither package ships its own): one
link, as much credit as there is, accepted by itself, and an orderly close. Each pair of sender and receiver runs, our
own command line among them.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.interop.conftest import Server
from tests.interop.peer import NODE_MODULES, command_of

pytestmark = pytest.mark.interop

PROGRAMS = Path(__file__).parent / "programs"
COUNT = 1000
NUMBER = re.compile(r'^(\d+) \{"sequence": ?(\d+)\}$')


def run(*command: str, text: str | None = None) -> str:
    finished = subprocess.run(
        command,
        input=text,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "ACQUIT_INTEROP_NODE_MODULES": str(NODE_MODULES)},
    )
    assert finished.returncode == 0, finished.stderr
    return finished.stdout


def node() -> str:
    return command_of("rhea")[0]


def proton_send(server: Server, address: str) -> None:
    url = f"127.0.0.1:{server.port}/{address}"
    assert run(sys.executable, str(PROGRAMS / "proton_send.py"), url, str(COUNT)) == f"{COUNT} accepted\n"


def rhea_send(server: Server, address: str) -> None:
    out = run(node(), str(PROGRAMS / "rhea_send.js"), str(server.port), address, str(COUNT))
    assert out == f"{COUNT} accepted\n"


def proton_receive(server: Server, address: str) -> list[int]:
    url = f"127.0.0.1:{server.port}/{address}"
    return numbers(run(sys.executable, str(PROGRAMS / "proton_receive.py"), url, str(COUNT)))


def rhea_receive(server: Server, address: str) -> list[int]:
    return numbers(run(node(), str(PROGRAMS / "rhea_receive.js"), str(server.port), address, str(COUNT)))


def numbers(out: str) -> list[int]:
    found = [NUMBER.match(line) for line in out.splitlines()]
    assert all(found), out[:300]
    assert all(match[1] == match[2] for match in found if match)
    return [int(match[1]) for match in found if match]


@pytest.mark.parametrize("receive", [proton_receive, rhea_receive])
@pytest.mark.parametrize("send", [proton_send, rhea_send])
def test_each_sender_with_each_receiver(
    server: Server,
    address: str,
    send: object,
    receive: object,
) -> None:
    assert callable(send)
    assert callable(receive)
    send(server, address)
    assert receive(server, address) == list(range(1, COUNT + 1))


def test_protons_blocking_classes(server: Server, address: str) -> None:
    out = run(sys.executable, str(PROGRAMS / "proton_blocking.py"), f"127.0.0.1:{server.port}", address)
    assert out == "there and back\n"


def test_our_command_line_with_theirs(server: Server, address: str) -> None:
    acquit = [sys.executable, "-m", "acquit"]
    rhea_send(server, address)
    out = run(*acquit, "receive", address, "--url", server.url, "--count", str(COUNT), "--json")
    assert out.count("\n") == COUNT
    lines = "".join(f'{{"message_id": {number}, "body": {{"sequence": {number}}}}}\n' for number in range(1, COUNT + 1))
    run(*acquit, "send", address, "--url", server.url, "--json-lines", text=lines)
    assert proton_receive(server, address) == list(range(1, COUNT + 1))
