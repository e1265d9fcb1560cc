"""``acquit top``: a broker and its queues, live in the terminal.

The screen is rich's, which the base install has for its tables anyway: it knows how wide a character is and what a
terminal can do, respects NO_COLOR, and puts the terminal back as it was. Keys are read with `termios`. The broker is
asked on a thread of its own, so that keys work while it does not answer.
"""

from __future__ import annotations

import os
import queue
import re
import select
import signal
import sys
import termios
import threading
import time
import tty
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import Final, NoReturn

import click
from rich.console import Console, Group
from rich.live import Live

from acquit.cli.connecting import BrokerAt, broker_options
from acquit.cli.exits import Exit
from acquit.cli.options import FiniteRange, seconds
from acquit.cli.output import remark
from acquit.cli.screen import SORTS, View, frame
from acquit.cli.watching import Missed, Seen, watch

TICK_S: Final = 1.0
"""Seconds between two frames, at most: the age of old figures is told."""
LEAVE_S: Final = 1.0
"""Seconds that the thread has to close its connection; what hangs is left to the end of the process."""
_SEQUENCES: Final = re.compile(rb"\x1b(\[[0-9;]*[ -/]*[@-~]|O.)?")
"""Keys that send more than one byte, as arrows do: they mean nothing here."""
_HEIGHT_MIN: Final = 4


@click.command()
@click.option(
    "--interval",
    "interval_s",
    type=FiniteRange(0, min_open=True),
    default=2.0,
    show_default=True,
    metavar="SECONDS",
    help="How far apart two looks at the broker are.",
)
@click.option(
    "--sort",
    type=click.Choice([sort.label for sort in SORTS]),
    default=SORTS[0].label,
    show_default=True,
    help="The order of the queues at first.",
)
@seconds(10.0, "How long to wait for the broker, and for each of its answers.")
@broker_options
def top(interval_s: float, sort: str, timeout_s: float, broker: BrokerAt) -> int:
    """Watch a broker and its queues in the terminal: rates, backlogs, and what is in trouble.

    Keys: q quits, s sorts by the next column, p pauses the display. A broker that is away is tried again each second;
    meanwhile the last figures stay, with their age. Where there is no terminal one frame is printed."""
    order = next(found for found in SORTS if found.label == sort)
    console = Console(highlight=False)
    with closing(Looks(broker, timeout_s, interval_s)) as looks:
        first = looks.first()
        if first.now.refusal:
            remark(f"acquit: {first.now.refusal}")
            return Exit.FAILED
        view = View(first, interval_s, order)
        if not (console.is_terminal and sys.stdin.isatty()) or console.is_dumb_terminal:
            for line in frame(view, time.monotonic(), console.width, None):
                console.print(line, soft_wrap=True)
            return Exit.OK
        _show(view, looks, console)
    return Exit.OK


class Looks:
    """Looks at a broker, made on a thread of its own."""

    def __init__(self, broker: BrokerAt, timeout_s: float, interval_s: float) -> None:
        self._made: queue.SimpleQueue[Seen | Missed | Exception] = queue.SimpleQueue()
        self._left = threading.Event()
        self._wake = os.pipe()
        os.set_blocking(self._wake[1], False)
        self._thread = threading.Thread(
            target=self._run, args=(broker, timeout_s, interval_s), name="acquit-top", daemon=True
        )
        self._thread.start()

    @property
    def waking(self) -> int:
        """The descriptor that can be read when there is something new."""
        return self._wake[0]

    def first(self) -> Seen:
        """Return the first look. Raises what made it fail."""
        made = self._made.get()
        if isinstance(made, Exception):
            raise made
        assert isinstance(made, Seen)  # a first look that is missed fails
        return made

    def new(self) -> Iterator[Seen | Missed]:
        """Yield what is new. Raises what ended the looks."""
        os.read(self._wake[0], 4096)
        while not self._made.empty():
            made = self._made.get()
            if isinstance(made, Exception):
                raise made
            yield made

    def wake(self) -> None:
        """Make `waking` readable."""
        try:
            os.write(self._wake[1], b"!")
        except BlockingIOError:
            pass  # it is readable

    def close(self) -> None:
        """End the thread."""
        self._left.set()
        self._thread.join(LEAVE_S)
        if not self._thread.is_alive():
            for descriptor in self._wake:
                os.close(descriptor)

    def _run(self, broker: BrokerAt, timeout_s: float, interval_s: float) -> None:
        try:
            for made in watch(broker, timeout_s, interval_s, self._left.wait):
                self._tell(made)
        except Exception as error:  # noqa: BLE001  # the command's thread raises it
            self._tell(error)

    def _tell(self, made: Seen | Missed | Exception) -> None:
        self._made.put(made)
        self.wake()


def _show(view: View, looks: Looks, console: Console) -> None:
    """Show the looks until somebody quits."""
    shown = latest = view
    with (
        _keys(sys.stdin.fileno()) as keys,
        _signals(looks),
        Live(console=console, screen=True, auto_refresh=False) as live,
    ):
        while True:
            width, height = console.size
            live.update(Group(*frame(shown, time.monotonic(), width, max(height, _HEIGHT_MIN))), refresh=True)
            ready, _, _ = select.select([keys, looks.waking], [], [], TICK_S)
            if looks.waking in ready:
                for made in looks.new():
                    if isinstance(made, Seen):
                        latest = replace(latest, seen=made, missed="")
                    else:
                        latest = replace(latest, missed=made.reason)
            if keys in ready:
                typed = os.read(keys, 1024)
                pressed = _SEQUENCES.sub(b"", typed).lower()
                if not typed or b"q" in pressed:
                    return
                latest = _typed(latest, pressed)
            shown = replace(shown, held=True, sort=latest.sort) if latest.held else latest


def _typed(view: View, pressed: bytes) -> View:
    """Return the view after these keys."""
    for key in pressed:
        if key == ord("s"):
            view = replace(view, sort=SORTS[(SORTS.index(view.sort) + 1) % len(SORTS)])
        elif key == ord("p"):
            view = replace(view, held=not view.held)
    return view


@contextmanager
def _keys(descriptor: int) -> Iterator[int]:
    """Make a terminal give each key as it is typed, and show none; as it was at the end. A screen that is not left
    cannot be suspended either."""
    before = termios.tcgetattr(descriptor)
    try:
        tty.setcbreak(descriptor)
        now = termios.tcgetattr(descriptor)
        now[6][termios.VSUSP] = b"\x00"
        termios.tcsetattr(descriptor, termios.TCSADRAIN, now)
        yield descriptor
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


@contextmanager
def _signals(looks: Looks) -> Iterator[None]:
    """Draw anew when the terminal has another size, and leave it as it was when we are told to end."""

    def end(number: int, _: object) -> NoReturn:
        raise SystemExit(128 + number)

    before = {
        signal.SIGWINCH: signal.signal(signal.SIGWINCH, lambda *_: looks.wake()),
        signal.SIGTERM: signal.signal(signal.SIGTERM, end),
        signal.SIGHUP: signal.signal(signal.SIGHUP, end),
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
