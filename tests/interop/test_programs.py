"""Whole programs on other libraries, with nothing set: what a newcomer writes in his first five minutes.

They are what the examples of python-qpid-proton and rhea do (neither package ships its own): a link with as much credit
as there is, accepted by itself, and an orderly close; request and reply, selectors, a durable subscription. Every
sender runs with every receiver, our own command line among them.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import acquit
from tests.interop.conftest import Look, Server
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


def proton_program(name: str, server: Server, *arguments: str) -> list[str]:
    return [sys.executable, str(PROGRAMS / f"proton_{name}.py"), f"127.0.0.1:{server.port}", *arguments]


def rhea_program(name: str, server: Server, *arguments: str) -> list[str]:
    return [node(), str(PROGRAMS / f"rhea_{name}.js"), str(server.port), *arguments]


EACH = {"proton": proton_program, "rhea": rhea_program}
REQUESTS = ["red", "green", "blue"]


@pytest.mark.parametrize("client", ["proton client", "proton blocking_client", "rhea client"])
@pytest.mark.parametrize("library", EACH)
def test_request_and_reply(server: Server, address: str, library: str, client: str) -> None:
    environment = {**os.environ, "ACQUIT_INTEROP_NODE_MODULES": str(NODE_MODULES)}
    answering = EACH[library]("server", server, address, str(len(REQUESTS)))
    asking, program = client.split()
    with subprocess.Popen(answering, env=environment) as answers:
        try:
            out = run(*EACH[asking](program, server, address, *REQUESTS))
            assert answers.wait(timeout=20) == 0
        finally:
            answers.kill()
    assert out.splitlines() == [f"{text} => {text.upper()}" for text in REQUESTS]


@pytest.mark.parametrize("library", EACH)
def test_management(server: Server, address: str, library: str) -> None:
    out = run(*EACH[library]("management", server, address))
    assert out.splitlines() == ["CREATE 201", "READ 200 0", "PURGE 200", "DELETE 204", "READ 404"]


@pytest.mark.parametrize("library", EACH)
def test_selected(server: Server, ours: acquit.Connection, address: str, library: str) -> None:
    with ours.session() as session, session.sender(address) as sender:
        for number in range(6):
            properties = {"kind": "odd" if number % 2 else "even"}
            sender.send(acquit.Message(b"", message_id=f"m{number}", application_properties=properties))
    program = EACH[library]
    for how in (["browse"], []):
        out = run(*program("selected", server, address, "kind = 'odd'", "3", *how))
        assert out.split() == ["m1", "m3", "m5"]
    assert run(*program("selected", server, address, "kind IS NOT NULL", "3")).split() == ["m0", "m2", "m4"]


@pytest.mark.parametrize("library", EACH)
def test_durable_subscription(server: Server, ours: acquit.Connection, look: Look, address: str, library: str) -> None:
    def subscriber(count: int, *words: str) -> list[str]:
        who = [f"container-{address}", "sub", str(count), *words]
        if library == "proton":
            return run(sys.executable, str(PROGRAMS / "proton_subscriber.py"), f"{url}/{address}", *who).split()
        return run(*rhea_program("subscriber", server, address, *who)).split()

    url = f"127.0.0.1:{server.port}"
    queue = f"{address}::container-{address}/sub"
    assert subscriber(0) == []
    with ours.session() as session, session.sender(address, topic=True) as sender:
        for first, words in ((0, []), (2, ["unsubscribe"])):
            assert look.is_there(queue)
            names = [f"m{first}", f"m{first + 1}"]
            for name in names:
                sender.send(acquit.Message(b"", message_id=name))
            assert subscriber(2, *words) == names
    assert not look.is_there(queue)
