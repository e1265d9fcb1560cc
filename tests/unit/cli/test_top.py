"""`acquit top` in a terminal of its own: a pty, with real keys, signals and a broker that goes away."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import acquit
from acquit.broker.options import BrokerOptions, Role, Security, User
from acquit.cli.exits import Exit
from acquit.store.options import JournalOptions
from tests.support.shell import Shell

ENTER, LEAVE = b"\x1b[?1049h", b"\x1b[?1049l"
SHOW_CURSOR = b"\x1b[?25h"
COLOUR = re.compile(rb"\x1b\[[0-9;]*3[0-9](;[0-9]+)*m")
PROGRAM = (
    "import fcntl, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); from acquit.cli import main; sys.exit(main())"
)
"""The command, with its terminal as the controlling one: Ctrl-C there is a signal."""
WAIT_S = 20.0


class Terminal:
    """A terminal that `acquit top` runs in."""

    def __init__(self, url: str, width: int, height: int, **environment: str) -> None:
        self.controller, self._other = pty.openpty()
        self.resize(width, height)
        self.before = termios.tcgetattr(self._other)
        self.shown = b""
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, "top", "--interval", "0.05", "--timeout", "5", "--url", url],
            stdin=self._other, stdout=self._other, stderr=self._other, start_new_session=True,
            env={**{name: text for name, text in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")},
                 "TERM": "xterm-256color", **environment},
        )  # fmt: skip

    def resize(self, width: int, height: int) -> None:
        fcntl.ioctl(self.controller, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))

    def type(self, keys: bytes) -> None:
        os.write(self.controller, keys)

    def until(self, reached: Callable[[str], object]) -> str:
        """Read until the newest whole frame is so, and return that."""
        deadline = time.monotonic() + WAIT_S
        while not reached(self.frame()):
            assert self._read(deadline), self.shown[-4000:]
        return self.frame()

    def frame(self) -> str:
        """The newest frame that has been drawn to its end, without the colours."""
        frames = self.shown.split(b"\x1b[H")
        text = frames[-2] if len(frames) > 2 else b""
        return re.sub(rb"\x1b\[[0-9;?]*[a-zA-Z]", b"", text).decode()

    def end(self) -> int:
        """Read to the end of the program, and return its exit code."""
        deadline = time.monotonic() + WAIT_S
        while self.process.poll() is None:
            assert time.monotonic() < deadline, self.shown[-4000:]
            self._read(time.monotonic() + 0.1)
        while self._read(time.monotonic() + 0.1):
            pass
        return self.process.wait()

    @property
    def as_before(self) -> bool:
        """True if the terminal has all its modes again, its own screen and its cursor."""
        left = self.shown.rfind(LEAVE) > self.shown.rfind(ENTER) and SHOW_CURSOR in self.shown
        return left and termios.tcgetattr(self._other) == self.before

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self.controller)
        os.close(self._other)

    def _read(self, deadline: float) -> bool:
        ready, _, _ = select.select([self.controller], [], [], max(0.0, deadline - time.monotonic()))
        if ready:
            self.shown += os.read(self.controller, 65_536)
        return bool(ready)


@contextmanager
def terminal(url: str, width: int = 80, height: int = 24, **environment: str) -> Iterator[Terminal]:
    opened = Terminal(url, width, height, **environment)
    try:
        yield opened
    finally:
        opened.close()


def lines(text: str) -> list[str]:
    return text.replace("\r", "").split("\n")


def test_keys_a_new_size_and_the_end() -> None:
    with acquit.Broker() as broker:
        with acquit.connect(broker.url) as connection, connection.session() as session:
            session.sender("orders").send("x")
        with terminal(broker.url) as top:
            shown = top.until(lambda text: "orders" in text and "in 0/s" in text)
            assert "sort: trouble" in shown
            assert len(lines(shown)) == 24
            assert COLOUR.search(top.shown)
            top.type(b"\x1b[B")  # an arrow
            top.type(b"s")
            top.until(lambda text: "sort: in/s" in text)
            top.type(b"p")
            top.until(lambda text: "PAUSED" in text)
            with acquit.connect(broker.url) as connection, connection.session() as session:
                session.sender("later").send("x")
            top.type(b"s")
            assert "later" not in top.until(lambda text: "sort: out/s" in text)
            top.type(b"p")
            top.until(lambda text: "later" in text and "PAUSED" not in text)
            top.resize(40, 10)
            top.until(lambda text: len(lines(text)) == 10 and max(map(len, lines(text))) <= 40)
            top.type(b"q")
            assert top.end() == Exit.OK
            assert top.as_before


def test_a_broker_that_restarts(tmp_path: Path) -> None:
    with acquit.Broker(tmp_path) as broker:
        port = broker.port
        top = Terminal(broker.url, 80, 24, NO_COLOR="1")
        top.until(lambda text: "accepting" in text)
    try:
        assert "accepting" in top.until(lambda text: "OLD FIGURES, of " in text)
        with acquit.Broker(tmp_path, port=port):
            top.until(lambda text: "accepting" in text and "OLD FIGURES" not in text)
            assert not COLOUR.search(top.shown)
            top.type(b"\x03")
            assert top.end() == Exit.INTERRUPTED
        assert top.as_before
    finally:
        top.close()


def test_the_terminal_is_restored_when_it_is_told_to_end() -> None:
    with acquit.Broker() as broker, terminal(broker.url) as top:
        top.until(lambda text: "accepting" in text)
        top.process.send_signal(signal.SIGTERM)
        assert top.end() == 128 + signal.SIGTERM
        assert top.as_before


def test_the_terminal_is_restored_when_it_fails(tmp_path: Path) -> None:
    def options(password: str) -> BrokerOptions:
        users = {"ada": User(password=password, roles=("reader",))}
        security = Security(users=users, roles={"reader": Role(browse=("#",))})
        return BrokerOptions(security=security, journal=JournalOptions.small())

    with acquit.Broker(tmp_path, config=options("x")) as broker:
        port = broker.port
        top = Terminal(f"amqp://ada:x@127.0.0.1:{port}", 80, 24)
        top.until(lambda text: "accepting" in text)
    try:
        with acquit.Broker(tmp_path, port=port, config=options("y")):
            assert top.end() == Exit.FAILED
        assert top.as_before
        said = top.shown[top.shown.rfind(LEAVE) :].decode()
        assert "acquit: " in said and "Traceback" not in said
    finally:
        top.close()


def test_without_a_terminal_it_is_one_frame(shell: Shell) -> None:
    with acquit.Broker() as broker:
        shell("send", "orders", "one", "--url", broker.url)
        ran = shell("top", "--url", broker.url)
    assert (ran.code, ran.err) == (Exit.OK, "")
    assert "\x1b" not in ran.out
    assert "1 wait and nobody receives"[:12] in ran.out
    assert "q quit" not in ran.out


def test_nobody_there(shell: Shell, unused_port: int) -> None:
    ran = shell("top", "--url", f"amqp://127.0.0.1:{unused_port}")
    assert (ran.code, ran.out, ran.err.count("\n")) == (Exit.UNREACHABLE, "", 1)


def test_who_may_see_no_queue_is_told_so(shell: Shell) -> None:
    security = Security(users={"eve": User(password="x", roles=("clerk",))}, roles={"clerk": Role(send=("#",))})
    with acquit.Broker(config=BrokerOptions(security=security, journal=JournalOptions.small())) as broker:
        ran = shell("top", "--url", f"amqp://eve:x@127.0.0.1:{broker.port}")
    assert (ran.code, ran.out) == (Exit.FAILED, "")
    assert ran.err.count("\n") == 1 and "'eve' may not see any queue" in ran.err
