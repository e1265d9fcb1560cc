"""What a machine that loses power may leave of a broker, and whether that keeps what clients were told.

`Recording` runs a real `acquit serve` below strace, life after life, with traffic; `Diary` remembers what the client
was told, and when: by the bytes of its connection, which the trace has as well, so that no clock is needed. `images`
goes through the recording, stops at chosen moments, and builds the data folder as the disk may have it then. `check`
starts a broker on that, takes everything, and compares.
"""

from __future__ import annotations

import random
import re
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from signal import SIGKILL, SIGTERM

import acquit
from tests.crash.restarts import Account, Copy, Traffic, configuration
from tests.crash.test_kills import assert_ledger_holds
from tests.crash.wire import Lost
from tests.support.platter import Luck, Platter
from tests.support.syscalls import Moment, Traced, moments, recorded

_URL = re.compile(r"amqp://[\d.]+:\d+")
_PEER = re.compile(r"TCP:\[[\d.]+:\d+->[\d.]+:(\d+)\]")


@dataclass(frozen=True, slots=True)
class Entry:
    """Something that the client did or was told, and how far its connection was then."""

    verb: str
    copies: tuple[Copy, ...]
    port: int
    sent: int
    heard: int


@dataclass
class Diary(Account):
    """An account that can be opened again as it was at any moment of the broker's life."""

    entries: list[Entry] = field(default_factory=list)

    def posted(self, copies: Sequence[Copy]) -> None:
        super().posted(copies)
        self._note("posted", copies)

    def attempted(self, copies: Sequence[Copy]) -> None:
        super().attempted(copies)
        self._note("attempted", copies)

    def retired(self, copy: Copy) -> None:
        super().retired(copy)
        self._note("retired", [copy])

    def _note(self, verb: str, copies: Sequence[Copy]) -> None:
        wire = self.wire
        assert wire is not None
        port = wire.socket.getsockname()[1]
        self.entries.append(Entry(verb, tuple(copies), port, wire.bytes_sent, wire.bytes_heard))

    def at(self, sent: Counter[int], heard: Counter[int]) -> Account:
        """The account, when the broker had sent and heard so many bytes, by the port of the client."""
        then = Account()
        for entry in self.entries:
            if entry.verb == "attempted":
                # As long as it has not heard of it, nothing may have come of it.
                if heard[entry.port] > entry.sent:
                    then.attempted(entry.copies)
            elif sent[entry.port] >= entry.heard:
                if entry.verb == "posted":
                    then.posted(entry.copies)
                else:
                    then.retired(*entry.copies)
        return then


class Recording:
    """Lives of a broker on one folder, each with its trace."""

    def __init__(self, folder: Path, journal: str, rng: random.Random) -> None:
        self.root = folder / "disk"
        self.root.mkdir()
        self.data = self.root / "broker"
        self.config = folder / "acquit.toml"
        self.config.write_text(configuration(journal))
        self.diary = Diary()
        self.traces: list[Path] = []
        self.ends: list[Path] = []
        """The folder, as it was seen at the end of each life."""
        self._folder = folder
        self._rng = rng
        self._numbers = iter(range(1, 1 << 60))

    def live(self, steps: int, *, kill: bool) -> None:
        """Start a broker, work so many steps on it, and end it: with SIGKILL while it works, or in order."""
        trace = self._folder / f"trace-{len(self.traces)}"
        self.traces.append(trace)
        broker = Traced(recorded(trace), self._serve(), self._folder / "log")
        try:
            ready = broker.stdout.readline()
            found = _URL.search(ready)
            assert found, (ready, (self._folder / "log").read_text())
            with suppress(Lost, OSError), closing(self._connect(found.group())) as traffic:
                if len(self.traces) == 1:
                    traffic.subscribe()
                traffic.work(steps)
                if kill:
                    broker.signal(SIGKILL)
                    traffic.work(1_000)
            broker.signal(SIGTERM)
            status = broker.wait()
            assert kill or status == 0, (self._folder / "log").read_text()
            self.ends.append(self._folder / f"end-{len(self.ends)}")
            shutil.copytree(self.root, self.ends[-1])
        finally:
            broker.end()

    def _serve(self) -> list[str]:
        return [
            *("-m", "acquit", "serve", "--host", "127.0.0.1", "--port", "0"),
            *("--data", str(self.data), "--config", str(self.config)),
        ]

    def _connect(self, url: str) -> Traffic:
        return Traffic(url, self.diary, self._rng, self._numbers)


@dataclass(frozen=True)
class Image:
    """A data folder that the loss of power may leave, and what holds of it."""

    where: str
    """At which moment, and what of the unsafe is there: for people."""
    files: dict[str, bytes | None]
    account: Account


def images(
    recording: Recording, count: int, rng: random.Random, deaf_to: frozenset[str] = frozenset()
) -> Iterator[Image]:
    """So many of the images that the disk may hold at moments of the recording: when anything changes, most often."""
    lives = [list(moments(trace)) for trace in recording.traces]
    weights = [_weight(moment) for life in lives for moment in life]
    chosen = Counter(rng.choices(range(len(weights)), weights, k=count))
    platter = Platter(recording.root, deaf_to)
    sent: Counter[int] = Counter()
    heard: Counter[int] = Counter()
    at = -1
    for number, (life, end) in enumerate(zip(lives, recording.ends, strict=True)):
        for moment in life:
            at += 1
            platter.take(moment)
            _count(moment, sent, heard)
            for _ in range(chosen[at]):
                luck = Luck(rng)
                where = f"life {number}, moment {at}, {moment.call.name} {'ended' if moment.ends else 'began'}, {luck}"
                yield Image(where, platter.image(luck), recording.diary.at(sent, heard))
        platter.ended(end)


def _weight(moment: Moment) -> float:
    """How often the power is lost right after this."""
    call = moment.call
    if call.name == "sendto":  # somebody was just told something
        return 2.0 * (moment.ends and call.of.startswith("TCP"))
    if call.name == "pwrite64":
        return 1.0 * ("/broker/" in call.of)
    if call.name in ("rename", "unlink", "mkdir"):
        return 8.0 * (b"/broker" in call.strings()[-1])
    return 4.0 * (call.name in ("fsync", "fdatasync", "ftruncate") and "/broker" in call.of)


def _count(moment: Moment, sent: Counter[int], heard: Counter[int]) -> None:
    """Add what this moment carried over a connection."""
    call = moment.call
    counter = {"sendto": sent, "recvfrom": heard}.get(call.name)
    if counter is None or not moment.ends or (peer := _PEER.match(call.of)) is None:
        return
    assert call.result is not None
    counter[int(peer.group(1))] += max(0, call.result)


def check(image: Image, folder: Path, config: Path) -> list[str]:
    """Lay the image down in a new folder, start a broker there, take everything. Returns what does not hold."""
    folder.mkdir()
    for name, content in image.files.items():
        path = folder / name
        if content is None:
            path.mkdir()
        else:
            path.write_bytes(content)
    data, account = folder / "broker", image.account
    if "broker/broker.json" in image.files:
        assert_ledger_holds(data)
    with acquit.Broker(data, config=config) as broker:
        numbers = iter(range(1 << 60, 1 << 61))
        with closing(Traffic(broker.url, account, random.Random(0), numbers)) as traffic:
            account.emptied(traffic.empty())
    assert_ledger_holds(data)
    return account.problems
