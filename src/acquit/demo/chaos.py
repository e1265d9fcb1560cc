"""A run of the pipeline with its kills: the processes that are started, those that are killed, and the end.

The kills come at named points and not at random times, so that every run has the same story:

* **the broker** is killed when half of the files are posted: producers have sends without an answer, workers hold
  deliveries and forwards without an answer. It is started again on the same folder;
* **one worker** is killed while it holds deliveries, some of them forwarded and not yet acknowledged (`worker`).
  A new one takes its place, as a supervisor would do it.

The run is over when every producer has finished and every worker has nothing to do; what that left where is for the
balance to say, not for this module.
"""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from acquit.demo.broker import BrokerProcess
from acquit.demo.children import Child, Children, Report
from acquit.demo.manifest import Manifest
from acquit.errors import AcquitError

PRODUCERS = 2
WORKERS = 3
HOLD_AFTER = 40
"""The worker that will be killed stops after this many messages, or earlier where a third of its share is less."""
STUCK_S = 40.0


class DemoStuck(AcquitError):
    """A process of the demo ended that should not have, or nothing happened for `STUCK_S`."""


@dataclass(slots=True)
class Tally:
    """The counts that the processes reported. For progress; the balance is made from the journal."""

    posted: int = 0
    in_doubt: int = 0
    reconnects: int = 0
    stored: int = 0
    set_aside: int = 0
    held_by_killed_worker: int = 0
    broker_recovery_s: float = 0.0
    forwarded: set[str] = field(default_factory=set)
    forwarded_again: int = 0
    rejected: set[str] = field(default_factory=set)


Watch = Callable[[Tally, str | None], None]
"""Called after each report with the tally, and with a sentence when something happened that a spectator should read."""


class PipelineRun:
    """Posts, checks and forwards everything in the manifest, with the kills."""

    def __init__(
        self,
        *,
        children: Children,
        broker: BrokerProcess,
        manifest: Manifest,
        manifest_file: Path,
        naive: bool,
        post_s: float,
        watch: Watch,
    ) -> None:
        self._children = children
        self._broker = broker
        self._files = len(manifest.entries)
        self._manifest_file = manifest_file
        self._naive = naive
        self._rate_per_s = max(1.0, self._files / PRODUCERS / post_s)
        self._watch = watch
        self._producing: set[str] = set()
        self._working: dict[str, Child] = {}
        self._idle: set[str] = set()
        self._finished: set[str] = set()
        self._broker_killed = False
        self._progress_s = time.monotonic()
        self.tally = Tally()

    def go(self) -> Tally:
        """Run to the end. Raises DemoStuck, and leaves the processes to `Children`."""
        for index in range(PRODUCERS):
            name = f"producer-{index + 1}"
            arguments = ["--index", str(index), "--of", str(PRODUCERS), "--rate", f"{self._rate_per_s:.1f}"]
            self._start("producer", name, *arguments)
            self._producing.add(name)
        share = self._files // WORKERS
        for index in range(WORKERS):
            hold = ["--hold-at", str(max(1, min(HOLD_AFTER, share // 3)))] if index == 0 else []
            self._start_worker(f"worker-{index + 1}", *hold)
        while self._producing or self._idle != set(self._working):
            self._next(self._during)
        for child in self._working.values():
            child.tell("finish")
        while not self._working.keys() <= self._finished:
            self._next(self._during)
        return self.tally

    def collect(self, table: Path) -> Tally:
        """Start the collector and wait until the forward queue is drained into `table`."""
        self._start("collector", "collector", "--table", str(table))
        while "collector" not in self._finished:
            self._next(self._during)
        return self.tally

    def _start(self, role: str, name: str, *arguments: str) -> Child:
        manifest = [] if role == "collector" else ["--manifest", str(self._manifest_file)]
        return self._children.start(
            name,
            ["acquit.demo", role, "--name", name, "--endpoint", str(self._broker.endpoint), *manifest, *arguments],
        )

    def _start_worker(self, name: str, *arguments: str) -> None:
        naive = ["--naive"] if self._naive else []
        self._working[name] = self._start("worker", name, *naive, *arguments)

    def _next(self, handle: Callable[[Report], str | None]) -> None:
        try:
            report = self._children.reports.get(timeout=STUCK_S)
        except queue.Empty:
            raise DemoStuck(f"nothing happened for {STUCK_S:.0f} s; see the logs") from None
        self._watch(self.tally, handle(report))

    def _during(self, report: Report) -> str | None:
        child, what = report.child, report.what
        if report.ended is not None:
            return self._ended(child, report.ended)
        if "idle" in what:
            self._idle.add(child)
            if time.monotonic() - self._progress_s > STUCK_S:
                raise DemoStuck(f"no progress for {STUCK_S:.0f} s; see the logs")
            return None
        self._idle.discard(child)
        self._progress_s = time.monotonic()
        self._count(what)
        if "finished" in what:
            self._finished.add(child)
            self._producing.discard(child)
        elif "holding" in what:
            return self._kill_worker(child, _number(what, "holding"))
        elif not self._broker_killed and self.tally.posted * 2 >= self._files:
            return self._kill_broker()
        return None

    def _count(self, what: Mapping[str, object]) -> None:
        tally = self.tally
        tally.posted += _number(what, "posted")
        tally.in_doubt += _number(what, "in_doubt")
        tally.stored += _number(what, "stored")
        tally.set_aside += _number(what, "set_aside")
        tally.reconnects += "lost" in what
        for identity in _names(what, "forwarded"):
            tally.forwarded_again += identity in tally.forwarded
            tally.forwarded.add(identity)
        tally.rejected.update(_names(what, "rejected"))

    def _kill_worker(self, name: str, holding: int) -> str:
        killed = self._working.pop(name)
        killed.kill()
        self.tally.held_by_killed_worker = holding
        self._start_worker(f"{name}b")
        return (
            f"kill -9 {killed.pid}: {name}, with {holding} files forwarded or judged and not acknowledged, "
            f"and more in its buffer; {name}b takes its place"
        )

    def _kill_broker(self) -> str:
        self._broker_killed = True
        pid = self._broker.pid
        self._broker.kill()
        self.tally.broker_recovery_s = self._broker.start()
        return (
            f"kill -9 {pid}: the broker, after {self.tally.posted} answered postings; "
            f"started again in {self.tally.broker_recovery_s:.1f} s as {self._broker.pid}"
        )

    def _ended(self, name: str, status: int) -> str | None:
        known = name in self._working or name in self._producing or name == "collector"
        if known and name not in self._finished:
            raise DemoStuck(f"{name} ended with status {status}; see its log")
        return None


def _number(what: Mapping[str, object], key: str) -> int:
    value = what.get(key, 0)
    return value if isinstance(value, int) else 0


def _names(what: Mapping[str, object], key: str) -> list[str]:
    value = what.get(key, ())
    return [str(name) for name in value] if isinstance(value, list) else []
