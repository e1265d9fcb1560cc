"""Programs that were written for qpid.messaging, run unchanged by ``python -m acquit.compat.qpid``.

They know nothing of this project: those in support/qpid_programs have the shape of the examples that everybody began
with, and import qpid.messaging, qpid.util and qpid.log.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import acquit

PROGRAMS = Path(__file__).parents[1] / "support" / "qpid_programs"


@pytest.fixture
def url(broker: acquit.Broker) -> str:
    return f"127.0.0.1:{broker.port}"


def command(program: str, *arguments: str) -> list[str]:
    return [sys.executable, "-W", "error", "-m", "acquit.compat.qpid", str(PROGRAMS / f"{program}.py"), *arguments]


def run(program: str, *arguments: str) -> list[str]:
    """The lines that a program writes."""
    done = subprocess.run(command(program, *arguments), capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    return done.stdout.splitlines()


@pytest.mark.parametrize("form", ["{}", "{}; {{create: always, delete: always}}", "{}; {{node: {{type: topic}}}}"])
def test_hello(url: str, address: str, form: str) -> None:
    assert run("hello", url, form.format(address)) == ["Hello world!"]


def test_hello_at_the_exchange_of_old(url: str) -> None:
    assert run("hello", url, "amq.topic") == ["Hello world!"]


def test_hello_says_what_is_wrong(url: str) -> None:
    done = subprocess.run(command("hello", url, "q; {"), capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 1 and "expected a key or '}', found the end" in done.stdout


def test_spout_and_drain(broker: acquit.Broker, url: str, address: str) -> None:
    sent = run("spout", "-b", url, "-c", "3", "-d", "-S", "news", "-P", "a=b", address, "some", "text")
    assert len(sent) == 3 and all("durable=True" in line and "content='some text'" in line for line in sent)
    seen = run("drain", "-b", url, f"{address}; {{mode: browse}}")
    assert len(seen) == 3 and all("subject='news'" in line and "'a': 'b'" in line for line in seen)
    assert run("drain", "-b", url, "-c", "2", "-p", "%(content)s %(durable)s", address) == ["some text True"] * 2
    assert run("drain", "-b", url, "-p", "%(content_type)s", address) == ["text/plain"]
    assert run("drain", "-b", url, address) == []
    queue = broker.inspect().queue(address)
    assert queue is not None and queue.depth == 0 and queue.accepted == 3


def test_maps_arrive_as_maps(url: str, address: str) -> None:
    run("spout", "-b", url, "-M", "name=lamp", "-M", "count=2", f"{address}/order; {{create: always}}")
    drained = run("drain", "-b", url, "-p", "%(content)s %(content_type)s %(subject)s", address)
    assert drained == ["{'name': 'lamp', 'count': '2'} amqp/map order"]


def test_a_server_and_its_client(url: str, address: str) -> None:
    requests = f"{address}; {{create: always, delete: receiver}}"
    with subprocess.Popen(command("server", url, requests), stderr=subprocess.PIPE, text=True) as server:
        try:
            assert run("client", url, address, "one", "two", "three") == ["ONE", "TWO", "THREE"]
            _, errors = server.communicate(timeout=60)
            assert (server.returncode, errors) == (0, "")
        finally:
            server.kill()


def test_a_transactional_mover(broker: acquit.Broker, url: str, address: str) -> None:
    run("spout", "-b", url, "-c", "10", "-d", address, "x")
    assert run("mover", url, address, f"{address}.moved") == ["10 moved"]
    assert run("mover", url, address, f"{address}.moved") == ["0 moved"]
    moved = broker.inspect().queue(f"{address}.moved")
    assert moved is not None and (moved.depth, moved.available) == (10, 10)


def test_a_program_that_is_not_there(tmp_path: Path) -> None:
    for arguments, said in (
        (["nowhere.py"], "error: there is no program 'nowhere.py'; usage: python -m acquit.compat.qpid"),
        ([], "usage: python -m acquit.compat.qpid PROGRAM"),
    ):
        done = subprocess.run(
            [sys.executable, "-m", "acquit.compat.qpid", *arguments],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 1 and said in done.stderr


def test_a_program_has_its_arguments_its_folder_and_its_exit_code(tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("VALUE = 7\n")
    (tmp_path / "program.py").write_text(
        "import sys, beside\n"
        "assert __name__ == '__main__' and sys.argv[1:] == ['-x', 'y'], sys.argv\n"
        "assert sys.argv[0].endswith('program.py') and __file__ == sys.argv[0]\n"
        "sys.exit(beside.VALUE)\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "acquit.compat.qpid", str(tmp_path / "program.py"), "-x", "y"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 7, done.stderr
