"""Wrong input, as a user or an operator meets it: one readable line, the right exit code, and nothing lost.

Brokers are processes of their own, as a stranger starts them; what is said to them is said in this one.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol

import pytest

import acquit
from tests.support.draining import take_all, take_each
from tests.support.shell import Ran, Shell

FAILED, USAGE, UNREACHABLE, UNSOUND = 1, 2, 3, 4


class Run(Protocol):
    """``run("send", "orders", "x", url=...)`` runs ``acquit send orders x``."""

    def __call__(self, *arguments: object, url: str = ...) -> Ran: ...


@pytest.fixture
def run(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "200")

    def execute(*arguments: object, url: str = "amqp://127.0.0.1:1") -> Ran:
        monkeypatch.setenv("ACQUIT_URL", url)
        return shell(*arguments)

    return execute


def complaint(ran: Ran, code: int) -> str:
    """What a failed command said: one line, and no traceback."""
    assert ran.code == code, ran
    assert "Traceback" not in ran.err
    lines = [line for line in ran.err.splitlines() if line.strip()]
    assert len(lines) == 1, lines
    return lines[0]


Serve = Callable[..., "Served"]


class Served:
    """A running `acquit serve`."""

    def __init__(self, process: subprocess.Popen[str], url: str) -> None:
        self.process = process
        self.url = url

    def stop(self) -> int:
        self.process.terminate()
        return self.process.wait(timeout=30)


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """Starts brokers with a TOML text, and ends them all."""
    with ExitStack() as stack:

        def start(config: str = "", data: Path = tmp_path / "data") -> Served:
            file = tmp_path / "acquit.toml"
            file.write_text(config)
            command = [sys.executable, "-m", "acquit", "serve", "--host", "127.0.0.1", "--port", "0"]
            process = stack.enter_context(
                subprocess.Popen(
                    [*command, "--data", str(data), "--config", str(file)],
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                )
            )
            stack.callback(process.kill)
            assert process.stdout is not None
            ready = process.stdout.readline()
            found = re.search(r"amqp://\S+:\d+", ready)
            assert found, (ready, process.stderr.read() if process.stderr is not None and not ready else "")
            return Served(process, found.group())

        yield start


USERS = """
[security]
anonymous = "never"

[users.ada]
password = "s3cret-of-ada"
"""


def test_wrong_password(run: Run, serve: Serve) -> None:
    broker = serve(USERS)
    at = broker.url.removeprefix("amqp://")
    said = complaint(run("send", "orders", "x", url=f"amqp://ada:wrong-guess@{at}"), FAILED)
    assert "wrong-guess" not in said
    assert run("send", "orders", "x", url=f"amqp://ada:s3cret-of-ada@{at}").code == 0
    assert broker.stop() == 0
    assert broker.process.stderr is not None
    logged = broker.process.stderr.read()
    assert "wrong-guess" not in logged
    assert "s3cret-of-ada" not in logged


def test_anonymous_where_it_is_not_allowed(run: Run, serve: Serve) -> None:
    complaint(run("send", "orders", "x", url=serve(USERS).url), FAILED)


def test_unknown_address_where_creation_is_forbidden(run: Run, serve: Serve) -> None:
    broker = serve('[[address]]\nmatch = "closed.#"\ncreate = false\n')
    assert "closed.orders" in complaint(run("send", "closed.orders", "x", url=broker.url), FAILED)
    assert "closed.orders" in complaint(run("receive", "closed.orders", url=broker.url), FAILED)
    assert run("send", "open.orders", "x", url=broker.url).code == 0


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[limits\n", "TOML"),
        ('[limits]\nmemory_bytes_max = "much"\n', "limits.memory_bytes_max"),
        ("[limits]\nmemory_bytes_max = 0\n", "limits.memory_bytes_max"),
        ("[limits]\nmemroy_bytes_max = 1\n", "limits.memroy_bytes_max"),
        ("[[address]]\nmax_delivery_attempts = 3\n", "match"),
        ('[[address]]\nmatch = "a"\nmax_delivery_attempts = -1\n', "max_delivery_attempts"),
        ('[security]\nplain = "sometimes"\n', "plain"),
    ],
)
def test_invalid_toml_names_the_key_and_what_was_expected(run: Run, text: str, expected: str, tmp_path: Path) -> None:
    file = tmp_path / "acquit.toml"
    file.write_text(text)
    said = complaint(run("serve", "--port", 0, "--data", tmp_path / "data", "--config", file), USAGE)
    assert expected in said
    assert not (tmp_path / "data").exists()


def test_unreadable_toml(run: Run, tmp_path: Path) -> None:
    said = complaint(run("serve", "--port", 0, "--data", tmp_path / "data", "--config", tmp_path / "none.toml"), USAGE)
    assert "none.toml" in said


def test_locked_data_folder(run: Run, serve: Serve, tmp_path: Path) -> None:
    broker = serve()
    said = complaint(run("serve", "--port", 0, "--data", tmp_path / "data"), FAILED)
    assert str(broker.process.pid) in said
    assert run("send", "orders", "x", url=broker.url).code == 0


def test_data_folder_of_another_version(run: Run, serve: Serve, tmp_path: Path) -> None:
    assert serve().stop() == 0
    data = tmp_path / "data"
    changed = 0
    for file in data.iterdir():
        if file.is_file() and file.suffix == ".json":
            text = file.read_text()
            file.write_text(re.sub(r'("(?:format|version|format_version)":\s*)1\b', r"\g<1>999", text))
            changed += file.read_text() != text
    assert changed
    said = complaint(run("serve", "--port", 0, "--data", data), FAILED)
    assert "999" in said


@pytest.mark.promise("missing")
def test_damage_in_the_middle_of_the_journal(run: Run, serve: Serve, tmp_path: Path) -> None:
    broker = serve()
    with acquit.connect(broker.url) as connection, connection.session() as session:
        sender = session.sender("orders")
        for index in range(200):
            sender.send(f"message {index}", timeout=20)
    assert broker.stop() == 0
    segment = min((tmp_path / "data" / "journal").glob("*.seg"))
    content = bytearray(segment.read_bytes())
    position = content.index(b"message 3")
    content[position] ^= 0xFF
    segment.write_bytes(content)
    said = complaint(run("serve", "--port", 0, "--data", tmp_path / "data"), UNSOUND)
    assert segment.name in said
    assert "offset" in said
    verified = run("ledger", "verify", "--data", tmp_path / "data")
    assert verified.code == UNSOUND
    assert segment.name in verified.out + verified.err


def test_body_over_the_limit(run: Run, serve: Serve, tmp_path: Path) -> None:
    broker = serve("[connection]\nmessage_bytes_max = 10_000\n")
    big = tmp_path / "big"
    big.write_bytes(b"x" * 50_000)
    said = complaint(run("send", "orders", "--file", big, url=broker.url), FAILED)
    assert re.search(r"10,?000|message-size-exceeded", said)
    assert run("send", "orders", "small", url=broker.url).code == 0
    received = run("receive", "orders", "--count", 1, "--timeout", 20, url=broker.url)
    assert "small" in received.out


def test_nobody_answers(run: Run) -> None:
    complaint(run("send", "orders", "x", url="amqp://127.0.0.1:1"), UNREACHABLE)


def test_a_repeated_message_id_with_another_body_passes(serve: Serve) -> None:
    """Only the same message is a duplicate; what merely shares an id is never dropped."""
    broker = serve()
    with acquit.connect(broker.url) as connection, connection.session() as session:
        sender = session.sender("orders")
        for body in (b"first", b"second"):
            sender.send(acquit.Message(body, message_id="one"), timeout=20)
        receiver = session.receiver("orders")
        bodies = [received.body for _ in range(2) if (received := receiver.receive(timeout=20)) is not None]
    assert bodies == [b"first", b"second"]


ROOT = sys.platform == "linux" and os.geteuid() == 0
small_disk = pytest.mark.skipif(not ROOT, reason="mounting a small tmpfs takes root on Linux")


@small_disk
def test_full_disk_refuses_postings_serves_outcomes_and_recovers(run: Run, serve: Serve, tmp_path: Path) -> None:
    """A real file system of 48 MiB, filled by the broker's own postings."""
    data = tmp_path / "small"
    data.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=48m", "tmpfs", str(data)], check=True)
    ballast = data / "ballast"
    try:
        broker = serve("[journal]\nsegment_bytes = 4_194_304\n", data=data / "broker")
        ballast.write_bytes(b"\0" * (16 << 20))
        accepted = 0
        with acquit.connect(broker.url) as connection, connection.session("individual") as session:
            sender = session.sender("orders")
            body = os.urandom(64 * 1024)
            condition = None
            while condition is None and accepted < 1000:
                try:
                    sender.send(body, timeout=20)
                    accepted += 1
                except acquit.SendFailed as refused:
                    condition = refused.condition
            assert condition == "amqp:resource-limit-exceeded"
            assert 20 < accepted < 700

            receiver = session.receiver("orders", prefetch=10)
            for _ in range(5):
                received = receiver.receive(timeout=20)
                assert received is not None
                assert received.body == body
                assert received.accept(sync=True).status.name == "APPLIED"

            ballast.unlink()
            for attempt in range(100):
                try:
                    sender.send(b"room again", timeout=20)
                    break
                except acquit.SendFailed:
                    # The broker looks for room every now and then; receive() is a pause that ends by itself.
                    assert attempt < 99
                    session.receiver("nothing", prefetch=1).receive(timeout=0.1)
        assert broker.stop() == 0
        balance = run("ledger", "balance", "--data", data / "broker", "--json")
        assert balance.code == 0, balance.out + balance.err
        again = serve("[journal]\nsegment_bytes = 4_194_304\n", data=data / "broker")
        with acquit.connect(again.url) as connection, connection.session() as session:
            left = len(take_all(session.receiver("orders")))
        assert left == accepted - 5 + 1
        assert again.stop() == 0
    finally:
        subprocess.run(["umount", "-l", str(data)], check=True)


@small_disk
def test_full_disk_does_no_transaction_by_half(run: Run, serve: Serve, tmp_path: Path) -> None:
    """A real file system, filled by transactions that post into a queue and a topic: each is in all places, or none."""
    data = tmp_path / "small"
    data.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=48m", "tmpfs", str(data)], check=True)
    ballast = data / "ballast"
    subscriptions = [acquit.Subscription(name=name) for name in ("audit", "billing")]
    config = "[journal]\nsegment_bytes = 4_194_304\n"
    committed: set[str] = set()
    refused: set[str] = set()

    def post(session: acquit.Session, sender: acquit.Sender, publisher: acquit.Sender, name: str) -> bool:
        """One of four messages."""
        try:
            for number in range(2):
                for where in (sender, publisher):
                    message = acquit.Message(
                        os.urandom(32 * 1024), message_id=f"{name}.{number}", application_properties={"of": name}
                    )
                    where.send(message, timeout=20)
            session.commit(timeout=20)
        except (acquit.SendFailed, acquit.TransactionRolledBack):
            with contextlib.suppress(acquit.TransactionRolledBack):
                session.rollback(timeout=20)
            refused.add(name)
            return False
        committed.add(name)
        return True

    def found(session: acquit.Session, **where: object) -> Counter[str]:
        receiver = session.receiver("news" if where else "orders", **where)  # type: ignore[arg-type]
        names: Counter[str] = Counter()
        for message in take_each(receiver):
            assert message.application_properties is not None
            names[str(message.application_properties["of"])] += 1
        return names

    try:
        broker = serve(config, data=data / "broker")
        ballast.write_bytes(b"\0" * (16 << 20))
        with acquit.connect(broker.url, container_id="user") as connection:
            with connection.session() as session:
                for subscription in subscriptions:
                    session.receiver("news", subscription=subscription).close()
            session = connection.session("transacted")
            sender, publisher = session.sender("orders"), session.sender("news", topic=True)
            number = 0
            while len(refused) < 5 and number < 1_000:
                number += 1
                post(session, sender, publisher, f"t{number}")
            assert len(committed) > 20
            assert len(refused) == 5
            ballast.unlink()
            for attempt in range(100):
                if post(session, sender, publisher, f"again{attempt}"):
                    break
                # The broker looks for room every now and then; receive() is a pause that ends by itself.
                connection.session().receiver("nothing", prefetch=1).receive(timeout=0.1)
            assert any(name.startswith("again") for name in committed)
        broker.process.kill()
        broker.process.wait()
        verified = run("ledger", "verify", "--data", data / "broker")
        assert verified.code == 0, verified.out + verified.err
        again = serve(config, data=data / "broker")
        with acquit.connect(again.url, container_id="user") as connection, connection.session() as session:
            expected = Counter(dict.fromkeys(committed, 2))
            assert found(session) == expected
            for subscription in subscriptions:
                assert found(session, subscription=subscription) == expected
        assert again.stop() == 0
        balance = run("ledger", "balance", "--data", data / "broker", "--json")
        assert balance.code == 0, balance.out + balance.err
    finally:
        subprocess.run(["umount", "-l", str(data)], check=True)
