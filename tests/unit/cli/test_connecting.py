"""Where the command line connects to, as whom, and over which TLS; and what it says of an outage."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest

import acquit
from acquit.cli import connecting
from acquit.cli.exits import Exit
from tests.support.guarded import FILES, guarded_broker, split
from tests.support.server import Server, serving
from tests.support.shell import Shell

LONG_S = 30


@pytest.fixture(scope="module")
def guarded() -> Iterator[acquit.Broker]:
    with guarded_broker() as broker:
        yield broker


@pytest.fixture
def at_guarded(shell: Shell, guarded: acquit.Broker, monkeypatch: pytest.MonkeyPatch) -> Shell:
    monkeypatch.setenv("ACQUIT_URL", guarded.url)
    monkeypatch.setenv("ACQUIT_CA", str(FILES / "certificate.pem"))
    return shell


@pytest.mark.parametrize(
    ("command", "timeout_s"),
    [(("send", "q", "x"), 0), (("queues",), 0), (("move", "a", "b"), 0), (("address", "list"), 0), (("bench",), 1)],
)
def test_a_host_that_says_nothing_is_not_waited_for_longer_than_for_an_answer(
    shell: Shell, command: tuple[str, ...], timeout_s: int
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        begun_s = time.monotonic()
        ran = shell(*command, "--timeout", timeout_s, "--url", f"amqp://127.0.0.1:{silent.getsockname()[1]}")
        assert time.monotonic() - begun_s < connecting.OPENS_S_MAX
    assert (ran.code, ran.err.count("\n")) == (Exit.UNREACHABLE, 1)
    assert "within 1 s" in ran.err


def test_a_long_wait_for_an_answer_is_none_for_a_host() -> None:
    assert connecting.opens_within(600.0) * 1000 == acquit.ConnectOptions().connect_timeout_ms


# -- as whom


def test_a_password_in_a_file(at_guarded: Shell, tmp_path: Path) -> None:
    path = tmp_path / "password"
    path.write_text("s3cret\nand not this\n")
    assert at_guarded("send", "q", "x", "--user", "bob", "--password-file", path).code == Exit.OK
    path.write_text("another\n")
    ran = at_guarded("send", "q", "x", "--user", "bob", "--password-file", path)
    assert ran.code == Exit.FAILED
    assert "another" not in ran.err
    path.write_text("")
    ran = at_guarded("send", "q", "x", "--user", "bob", "--password-file", path)
    assert (ran.code, ran.err.count("\n")) == (Exit.USAGE, 1)
    assert "expected a password in its first line" in ran.err
    path.write_bytes(b"secr\xe9t\n")
    ran = at_guarded("send", "q", "x", "--user", "bob", "--password-file", path)
    assert (ran.code, ran.err) == (Exit.USAGE, f"acquit: --password-file {path}: not text in UTF-8\n")


def test_a_password_in_the_environment(at_guarded: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACQUIT_USER", "bob")
    monkeypatch.setenv("ACQUIT_PASSWORD", "s3cret")
    assert at_guarded("send", "q", "x").code == Exit.OK


def test_a_password_that_is_asked_for(at_guarded: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    ran = at_guarded("send", "q", "x", "--user", "bob")
    assert ran.code == Exit.USAGE
    assert "or a terminal to ask on" in ran.err
    monkeypatch.setattr(connecting, "_asks", lambda: True)
    monkeypatch.setattr(click, "prompt", lambda text, **_: {"Password of bob": "s3cret"}[text])
    assert at_guarded("send", "q", "x", "--user", "bob").code == Exit.OK


def test_no_password_is_taken_from_the_command_line(shell: Shell) -> None:
    ran = shell("send", "q", "x", "--password", "s3cret")
    assert ran.code == Exit.USAGE


# -- over which TLS


def test_a_certificate_says_who_we_are(at_guarded: Shell, tmp_path: Path) -> None:
    assert at_guarded("send", "q", "x", "--cert", FILES / "ada.pem").code == Exit.OK
    cert, key = split(tmp_path)
    assert at_guarded("send", "q", "x", "--cert", cert, "--key", key).code == Exit.OK
    ran = at_guarded("send", "q", "x", "--cert", cert)
    assert (ran.code, ran.err.count("\n")) == (Exit.USAGE, 1)
    assert "expected a certificate and its key" in ran.err


def test_who_is_not_trusted(at_guarded: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ACQUIT_CA")
    ran = at_guarded("send", "q", "x", "--cert", FILES / "ada.pem")
    assert (ran.code, ran.err.count("\n")) == (Exit.UNREACHABLE, 1)
    assert "--ca FILE says whom to trust" in ran.err


def test_halves_and_files_that_are_none(shell: Shell, tmp_path: Path) -> None:
    ran = shell("send", "q", "x", "--key", FILES / "key.pem")
    assert ran.code == Exit.USAGE
    assert "--cert" in ran.err
    path = tmp_path / "nothing"
    path.write_text("nothing")
    ran = shell("send", "q", "x", "--ca", path)
    assert (ran.code, ran.err.count("\n")) == (Exit.USAGE, 1)
    assert "expected certificates in PEM" in ran.err
    ran = shell("send", "q", "x", "--user", "ada", "--cert", FILES / "ada.pem")
    assert ran.code == Exit.USAGE
    assert "without --user the certificate says who" in ran.err


# -- where to


def test_the_first_of_several_hosts_that_answers(
    shell: Shell, broker: acquit.Broker, unused_port: int, address: str
) -> None:
    dead = f"amqp://127.0.0.1:{unused_port}"
    assert shell("send", address, "x", "--url", dead, "--url", broker.url).code == Exit.OK
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("ACQUIT_URL", f"{dead} {broker.url}")
        assert shell("receive", address, "--count", 1).code == Exit.OK
        assert shell("send", address, "x").code == Exit.OK
    listed = f"failover:({dead},{broker.url})?failover.startupMaxReconnectAttempts=1"
    ran = shell("receive", address, "--count", 1, "--url", listed)
    assert (ran.code, ran.out.splitlines()[-1]) == (Exit.OK, "x")


@pytest.mark.timeout(LONG_S)
@pytest.mark.parametrize("command", [("health",), ("queues",), ("move", "a", "b"), ("bench", "send")], ids=" ".join)
def test_each_host_of_a_failover_list_is_tried_once(shell: Shell, unused_port: int, command: tuple[str, ...]) -> None:
    """In a program it is tried for minutes."""
    dead = f"amqp://127.0.0.1:{unused_port}"
    ran = shell(*command, "--url", f"failover:({dead},{dead})")
    assert (ran.code, (ran.out + ran.err).count("cannot connect to")) == (Exit.UNREACHABLE, 2)
    ran = shell(*command, "--url", f"failover:({dead})?failover.maxAttempts=1")
    assert (ran.code, ran.err.count("\n")) == (Exit.USAGE, 1)
    assert "failover: no option 'failover.maxAttempts'" in ran.err


def test_management_goes_the_same_way(at_guarded: Shell) -> None:
    assert at_guarded("queues", "create", "made", "--cert", FILES / "ada.pem").code == Exit.OK


# -- when it is interrupted


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + LONG_S
    while not condition():
        assert time.monotonic() < end


def test_an_outage_is_two_lines(shell: Shell) -> None:
    server = Server()
    server.offer("q", "one")
    with serving(server) as running:

        def cut() -> None:
            until(lambda: running.call(server.outcomes) != [])
            running.cut()
            until(lambda: len(running.call(lambda: server.connections)) == 2)
            running.offer("q", "two")

        thread = threading.Thread(target=cut)
        thread.start()
        ran = shell("receive", "q", "--count", 2, "--timeout", LONG_S, "--url", running.url)
        thread.join()
    assert ran.code == Exit.OK
    interrupted, restored = ran.err.splitlines()
    assert interrupted.startswith("interrupted: ")
    assert restored.startswith(f"connected again, to {running.where}, after ")
