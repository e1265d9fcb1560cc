"""A broker inside the process."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import acquit
from acquit.broker.options import AddressRule, BrokerOptions
from acquit.errors import AcquitError, ConfigurationError, NotFound, StoreLocked
from acquit.store.options import JournalOptions
from tests.support.forking import FORKING, child_that_lives, in_child


def threads() -> Counter[str]:
    """The threads there are, by name: other tests share a broker of their own."""
    return Counter(thread.name for thread in threading.enumerate() if thread.name == "acquit-broker")


def temporary_folder(broker: acquit.Broker) -> Path:
    assert broker._temporary is not None
    return Path(broker._temporary)


def test_what_was_sent_is_there_after_a_restart(tmp_path: Path) -> None:
    for expected in ([], [b"one"]):
        with acquit.Broker(tmp_path) as broker, acquit.connect(broker.url) as connection:
            receiver = connection.session().receiver("orders", prefetch=0)
            received = receiver.receive(timeout=5 if expected else 0.01)
            assert [received.body] if received is not None else expected == []
            connection.session().sender("orders").send(b"one", timeout=20)


def test_a_temporary_folder_goes_with_it() -> None:
    with acquit.Broker() as broker, acquit.connect(broker.url) as connection:
        connection.session().sender("orders").send(b"one", timeout=20)
        assert broker.inspect().queue("orders") is not None
        folder = temporary_folder(broker)
        assert folder.is_dir()
    assert not folder.exists()


def test_closing_twice_is_closing_once_and_afterwards_it_says_so() -> None:
    before = threads()
    broker = acquit.Broker()
    broker.close()
    broker.close()
    with pytest.raises(AcquitError, match="closed"):
        broker.inspect()
    assert threads() == before


def test_a_folder_has_one_broker(tmp_path: Path) -> None:
    with acquit.Broker(tmp_path):
        running = threads()
        with pytest.raises(StoreLocked):
            acquit.Broker(tmp_path)
        assert threads() == running


def test_options() -> None:
    options = BrokerOptions(address=(AddressRule("closed.#", {"create": False}),))
    with acquit.Broker(config=options) as broker, acquit.connect(broker.url) as connection:
        session = connection.session()
        with pytest.raises(NotFound):
            session.sender("closed.orders")
        session.sender("open.orders")


def test_time_passes_at_once() -> None:
    """What is to happen later has happened when `advance` returns, and nothing a moment earlier."""
    rule = AddressRule("jobs", {"lock_duration_ms": 3_600_000, "redelivery_delay_ms": 60_000})
    with (
        acquit.Broker(config=BrokerOptions(address=(rule,))) as broker,
        acquit.connect(broker.url) as connection,
        connection.session("individual") as session,
    ):
        sender = session.sender("jobs")

        def depths() -> tuple[int, int]:
            queue, expired = broker.inspect().queue("jobs"), broker.inspect().queue("ExpiryQueue")
            assert queue is not None
            return queue.depth, expired.depth if expired is not None else 0

        sender.send(acquit.Message("an hour at most", ttl_ms=3_600_000), timeout=20)
        assert depths() == (1, 0)
        broker.advance(3_500_000)
        assert depths() == (1, 0)
        broker.advance(200_000)
        assert depths() == (0, 1)

        sender.send(acquit.Message("tomorrow", annotations={"x-opt-delivery-delay": 86_400_000}), timeout=20)
        receiver = session.receiver("jobs")
        assert receiver.receive(0.01) is None
        broker.advance(86_400_000)
        held = receiver.receive(20)
        assert held is not None
        broker.advance(3_600_000)  # its lock is over, and it waits for its redelivery
        assert receiver.receive(0.01) is None
        broker.advance(60_000)
        again = receiver.receive(20)
        assert again is not None
        assert (again.body, again.delivery_count) == ("tomorrow", 1)
        assert held.accept().status is acquit.ReceiptStatus.STALE
        assert again.accept().status is acquit.ReceiptStatus.APPLIED


@pytest.mark.parametrize("by_ms", [-1, 0.5, "1", None, True])
def test_time_that_makes_no_sense(by_ms: int) -> None:
    with acquit.Broker() as broker, pytest.raises(ConfigurationError, match="by_ms must be a whole number"):
        broker.advance(by_ms)


@pytest.mark.parametrize("kind", [str, Path])
def test_options_in_a_file(tmp_path: Path, kind: type[str | Path]) -> None:
    file = tmp_path / "broker.toml"
    file.write_text('[[address]]\nmatch = "closed"\ncreate = false\n')
    with acquit.Broker(config=kind(file)) as broker, acquit.connect(broker.url) as connection:
        session = connection.session()
        with pytest.raises(NotFound):
            session.sender("closed")


def disk_space(folder: Path) -> int:
    found = 0
    for file in folder.rglob("*"):
        with suppress(FileNotFoundError):  # the broker renames a segment when it is prewritten
            found += file.stat().st_blocks * 512
    assert found
    return found


def test_options_that_say_nothing_of_the_journal_leave_it_small_in_a_temporary_folder() -> None:
    options = BrokerOptions(address=(AddressRule("closed.#", {"create": False}),))
    with acquit.Broker(config=options) as broker, acquit.connect(broker.url) as connection:
        connection.session().sender("orders").send(b"one", timeout=20)
        assert disk_space(temporary_folder(broker)) < 60_000_000


def test_options_that_say_something_of_the_journal_are_followed() -> None:
    journal = JournalOptions(spare_segments=2)
    assert BrokerOptions(journal=journal).with_small_journal().journal is journal


FORK = """
import atexit, os, sys, acquit

{begin}
    child = os.fork()
    if child == 0:
        with acquit.connect(broker.url) as connection:
            connection.session().sender("orders").send("of the child")
        {leave}
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    with acquit.connect(broker.url) as connection:
        connection.session().sender("orders").send("of the parent")
    queue = broker.inspect().queue("orders")
    print(queue.depth)
print(len(os.listdir({folders!r})))
"""


@pytest.mark.parametrize(
    ("begin", "leave"),
    [
        ("with acquit.Broker() as broker:", "sys.exit(0)"),
        ("broker = acquit.Broker()\nif True:", "sys.exit(0)"),
        ("broker = acquit.Broker()\nif True:", "atexit.unregister(broker.close); sys.exit(0)"),
        ("with acquit.Broker('data', http_port=0) as broker:", "broker.close(); sys.exit(0)"),
    ],
)
def test_a_forked_child_that_ends_leaves_the_parent_s_broker_alone(tmp_path: Path, begin: str, leave: str) -> None:
    """Its `atexit`, the end of its block, its finalizers. The parent's broker goes on, and ends as ever."""
    folders = tmp_path / "temporary"
    folders.mkdir()
    program = FORK.format(begin=begin, leave=leave, folders=str(folders))
    environment = {**os.environ, "TMPDIR": str(folders)}
    ended = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program],
        check=False,
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    code, depth, left = ended.stdout.splitlines()
    assert (code, depth) == ("0", "2")
    assert int(left) == begin.startswith("broker"), "at the end of its block the folder goes"
    assert list(folders.iterdir()) == []


@FORKING
def test_a_forked_child_has_an_address_of_the_parent_s_broker_and_nothing_else() -> None:
    with acquit.Broker() as broker:

        def check() -> None:
            with acquit.connect(broker.url) as connection:
                connection.session().sender("orders").send(b"one", timeout=20)
            for use in (broker.inspect, lambda: broker.advance(1)):
                with pytest.raises(AcquitError, match=f"runs in the process that started it, {parent}: connect to its"):
                    use()

        parent = os.getpid()
        in_child(check)
        queue = broker.inspect().queue("orders")
        assert queue is not None and queue.depth == 1


@FORKING
def test_a_forked_child_does_not_wait_for_who_closes_the_broker() -> None:
    """A thread of the parent may have the lock in the moment of the fork, and is not there to give it back."""
    with acquit.Broker() as broker, broker._closing:
        in_child(broker.close)


@FORKING
def test_a_forked_child_that_lives_on_keeps_neither_folder_nor_port_nor_connections(tmp_path: Path) -> None:
    broker = acquit.Broker(tmp_path, http_port=0)
    port, http_port = broker.port, int((broker.http_url or "").rpartition(":")[2])
    lost = threading.Event()
    options = acquit.ConnectOptions(reconnect=None)
    with (
        socket.create_connection(("127.0.0.1", http_port)) as by_http,
        acquit.connect(broker.url, options=options, on_event=lambda event: lost.set()) as connection,
    ):
        by_http.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert by_http.recv(1)
        lost.clear()
        connection.session().sender("orders").send(b"one", timeout=20)
        with child_that_lives():
            broker.close()
            assert lost.wait(20)
            by_http.settimeout(20)
            while by_http.recv(65_536):
                pass
            with acquit.Broker(tmp_path, port=port, http_port=http_port) as again:
                queue = again.inspect().queue("orders")
                assert queue is not None and queue.depth == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"config": 5}, "config must be BrokerOptions or the path of a TOML file, got 5"),
        ({"config": {"limits": {}}}, "config must be BrokerOptions or the path of a TOML file, got {'limits': {}}"),
        ({"config": "/nowhere/broker.toml"}, "/nowhere/broker.toml: cannot be read: No such file or directory"),
        ({"data": 5}, "data must be the path of a folder or None, got 5"),
        ({"data": ""}, "data must be the path of a folder or None, got ''"),
        ({"host": None}, "host must be a name or an address, got None"),
        ({"port": "5672"}, "port must be a whole number from 0 to 65535, got '5672'"),
        ({"port": 65_536}, "port must be a whole number from 0 to 65535, got 65536"),
    ],
)
def test_arguments_that_make_no_sense_start_no_thread(arguments: dict[str, Any], said: str) -> None:
    before = threads()
    with pytest.raises(ConfigurationError) as caught:
        acquit.Broker(**arguments)
    assert str(caught.value) == said
    assert threads() == before
