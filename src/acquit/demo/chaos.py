"""A run of the pipeline with its kills: the processes that are started, those that are killed, and the end.

The kills come at named points and not at random times, so that every run has the same story:

* **one worker** is killed while it holds deliveries, some of them forwarded and not yet acknowledged (`roles`).
  A new one takes its place, as a supervisor would do it;
* **the broker** is killed after that, when half of the files are posted: producers have sends without an answer,
  workers hold deliveries and forwards without an answer. It is started again on the same folder and port.

Posting is over when every producer has finished and the broker has nothing left in their queue; what that left where is
for the balance to say, not for this module.
"""

from __future__ import annotations

import json
import queue
import signal
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import acquit
from acquit.client.management import converse
from acquit.demo.children import BrokerProcess, Child, Children, DemoStuck
from acquit.demo.messages import FILES
from acquit.protocol.extensions import QUEUE

PRODUCERS = 2
WORKERS = 3
HOLD_AFTER = 40
"""The worker that will be killed stops after this many messages, or earlier where a third of its share is less."""
STUCK_S = 40.0


@dataclass(slots=True)
class Tally:
    """The sum of what the processes reported. For progress; the balance is made from the journal."""

    counts: Counter[str] = field(default_factory=Counter)
    files: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    """Identities, by what happened to them: ``forwarded``, ``rejected``."""

    def add(self, what: Mapping[str, int | list[str]]) -> None:
        """Add up the numbers of a report, and keep its identities."""
        for name, value in what.items():
            if isinstance(value, int):
                self.counts[name] += value
            else:
                self.files[name].update(value)


Watch = Callable[[Tally, str | None], None]
"""Called after each report with the tally, and with a sentence when something happened that a spectator should read."""


class PipelineRun:
    """A run that posts, checks and forwards files, with the kills. Raises DemoStuck; `children` end the processes."""

    def __init__(self, children: Children, broker: BrokerProcess, watch: Watch) -> None:
        self._children = children
        self._broker = broker
        self._worker: dict[str, object] = {}
        self.watch = watch
        self.running: dict[str, Child] = {}
        """Children that have neither finished nor been killed."""
        self.tally = Tally()

    def post(self, manifest: Path, root: Path, files: int, *, naive: bool, post_s: float) -> None:
        """Post so many files over `post_s` seconds, and check them; `naive`: workers acknowledge on receipt."""
        share = {"manifest": str(manifest), "of": PRODUCERS, "rate_per_s": max(1.0, files / PRODUCERS / post_s)}
        for index in range(PRODUCERS):
            self.start("produce", f"producer-{index + 1}", share | {"index": index})
        self._worker = {"root": str(root), "naive": naive, "hold_at": None}
        hold_at = max(1, min(HOLD_AFTER, files // WORKERS // 3))
        for index in range(WORKERS):
            self.start("work", f"worker-{index + 1}", self._worker | ({} if index else {"hold_at": hold_at}))
        counts = self.tally.counts
        # A broker that is killed while the worker's buffer fills leaves it less to lose.
        self.until(lambda: counts["posted"] * 2 >= files and not (self._posting() and "worker-1" in self.running))
        self._kill_broker()
        self.until(lambda: not self._posting())
        with acquit.connect(self._broker.url) as connection, converse(connection, STUCK_S) as management:
            # Those count, too, that somebody has and has not settled.
            self.until(lambda: cast(dict[str, int], management.request("READ", QUEUE, name=FILES))["depth"] == 0)
        while self.running:
            worker = self.running.popitem()[1]
            if worker.stop() not in (0, -signal.SIGTERM):  # of which dies only one that has come too late for anything
                raise worker.stuck()

    def start(self, role: str, name: str, arguments: Mapping[str, object]) -> int:
        """Start a process of this role, with these arguments beside the broker's address, and return its id."""
        options = json.dumps({"name": name, "url": self._broker.url, **arguments})
        self.running[name] = self._children.start(name, ["acquit.demo", role, options])
        return self.running[name].pid

    def kill(self, name: str) -> int:
        """Kill a running process with -9, and return its id."""
        child = self.running.pop(name)
        child.kill()
        return child.pid

    def until(self, done: Callable[[], bool], *, silence_s: float = STUCK_S) -> None:
        """Hear reports until `done`, which is asked after each. Raises DemoStuck after `silence_s` without one."""
        while not done():
            try:
                name, what = self._children.reports.get(timeout=silence_s)
            except queue.Empty:
                raise DemoStuck(f"nothing happened for {silence_s:.0f} s; see the logs") from None
            self.tally.add(what)
            sentence = None
            if "finished" in what:
                self.running.pop(name, None)
            elif name in self.running and "ended" in what:
                raise self.running[name].stuck()
            elif name in self.running and "held_by_killed_worker" in what:
                sentence = self._kill_worker(name)
            self.watch(self.tally, sentence)

    def _posting(self) -> bool:
        return any(name.startswith("producer") for name in self.running)

    def _kill_worker(self, name: str) -> str:
        pid, held = self.kill(name), self.tally.counts["held_by_killed_worker"]
        self.start("work", f"{name}b", self._worker)
        return (
            f"kill -9 {pid}: {name}, with {held} files forwarded or judged and not acknowledged, "
            f"and more in its buffer; {name}b takes its place"
        )

    def _kill_broker(self) -> None:
        pid, broker, posted = self._broker.child.pid, self._broker, self.tally.counts["posted"]
        broker.kill()
        ready_s = broker.start(broker.port)
        self.tally.add({"broker_recovery_ms": round(1000 * ready_s)})
        again = f"started again in {ready_s:.1f} s as {broker.child.pid}"
        self.watch(self.tally, f"kill -9 {pid}: the broker, after {posted} answered postings; {again}")
