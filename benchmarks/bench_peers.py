"""The broker beside other brokers, in one run and in turns: messages a second, and latency, and where we fall short.

    python benchmarks/bench_peers.py [--short] [--rounds N] [--peers artemis,rabbitmq] [--cases TEXT] [--json FILE]
                                    [--page docs/speed.md]

`benchmarks/amqpload.c` (raw AMQP 1.0 over one sending and one receiving connection for each pair, credit 500) is built
with the machine's `cc`. Each broker is a process of its own with its data in a folder of its own on one disk: `acquit
serve` as it comes; Artemis with a heap of 1 GB, the journal of `artemis create` (NIO, 10 MB files), as
`tests/interop/artemis.py` has it; RabbitMQ with classic queues. Each is warmed by messages of each kind, and then they
take turns, case by case and round by round. Given are medians and ranges, and the median of the ratios to Artemis
within a round; only ratios of one run mean anything. *Durable* means one sync before an answer with acquit and
Artemis; RabbitMQ's classic queues answer with a sync only for some.

`CASES` says what is claimed of each ratio; what falls short is marked, and the exit code is 1 then. Peers are had by
``make interop-peers``; one that is missing is named, and left out.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from bench_broker import compiled, peak_mib

ROOT: Final = Path(__file__).resolve().parent.parent
BESIDE: Final = "artemis"
WARM_MESSAGES: Final = 300_000
QUEUE: Final = "bench"
PAIRS: Final = 10
RUN_S_MAX: Final = 600
MARKS: Final = ("<!-- made by benchmarks/bench_peers.py -->", "<!-- so far -->")


@dataclass(frozen=True)
class Case:
    """One row of the table."""

    name: str
    claim: float
    """The least ratio to the peer: of rates ours by theirs, of latencies theirs by ours."""
    size: int = 100
    durable: bool = False
    messages: int = 200_000
    pairs: int = 1
    one_queue: bool = False
    """All pairs on one queue."""
    rate: int = 0
    """Messages a second; 0: as many as can be. Then what is measured is the time from sending to arrival."""

    def arguments(self, share: float) -> list[str]:
        """Return those of the load generator, for a share of the messages."""
        count = max(1_000, int(self.messages * share))
        words = ["-n", str(count), "-s", str(self.size), "-c", "500", "-k", str(self.pairs)]
        words += ["-D"] if self.durable else []
        words += ["-q", "1"] if self.one_queue else []
        return words + (["-r", str(self.rate)] if self.rate else [])


CASES: Final = (
    Case("100 B", 1.2),
    Case("1 KB", 1.2, size=1024),
    Case("100 B, durable", 1.2, durable=True),
    Case("1 KB, durable", 1.2, size=1024, durable=True),
    Case("100 B, ten consumers of a queue", 1.0, pairs=PAIRS, one_queue=True),
    Case("100 B, ten queues", 1.0, pairs=PAIRS),
    Case("latency at 1,000/s", 1.0, messages=5_000, rate=1_000),
    Case("latency at 1,000/s, durable", 1.0, messages=5_000, rate=1_000, durable=True),
)
PERCENTILES: Final = ("p50", "p99", "p99.9")


class PeerMissing(Exception):
    """A broker cannot be run here; the text says why."""


class DroppedOut(Exception):
    """A broker refused messages, or did not deliver them; the text says what the load generator said."""


@dataclass
class Contestant:
    """A broker that runs."""

    name: str
    product: str
    port: int
    address: str
    login: tuple[str, str] | None
    pid: int
    figures: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    """By case, or case and percentile: messages a second, or microseconds."""

    def run(self, program: Path, case: Case, share: float) -> dict[str, float]:
        """Run a case: what it gave, by the name of the figure. Raises DroppedOut where one was lost or refused."""
        command = [str(program), "-p", str(self.port), "-a", self.address, *case.arguments(share)]
        if self.login is not None:
            command += ["-u", self.login[0], "-P", self.login[1]]
        done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_S_MAX, check=False)
        rate = re.search(r"([\d.]+) msg/s.*rej=0\b", done.stdout)
        if done.returncode or rate is None:
            raise DroppedOut(f"{self.name}, {case.name}: the load generator said: {done.stdout}{done.stderr}")
        if not case.rate:
            return {case.name: float(rate[1])}
        said = dict(re.findall(r"(p[\d.]+)=(\d+)us", done.stdout.partition("e2e")[2].partition(";")[0]))
        return {f"{case.name}, {one}": float(said[one]) for one in PERCENTILES}


# -- brokers -----------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def acquit(folder: Path) -> Iterator[Contestant]:
    """`acquit serve`, as it comes."""
    command = [sys.executable, "-m", "acquit", "serve", "--host", "127.0.0.1", "--port", "0", "--data", str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        try:
            ready = re.search(r"amqp://127\.0\.0\.1:(\d+)", process.stdout.readline())
            if ready is None:
                raise SystemExit("acquit serve did not start")
            version = subprocess.run([*command[:3], "--version"], capture_output=True, text=True, check=True)
            yield Contestant("acquit", version.stdout.strip(), int(ready[1]), QUEUE, None, process.pid)
        finally:
            process.terminate()


@contextlib.contextmanager
def artemis(folder: Path) -> Iterator[Contestant]:
    """Artemis, as a server runs it."""
    broker = peer("artemis", "Artemis", folder)
    broker.java = ("-Xms1g", "-Xmx1g", "-Dacquit.journalFileBytes=10485760")
    with started(broker):
        yield Contestant(
            "artemis", broker.product, broker.port, QUEUE, (broker.username, broker.password), broker._process.pid
        )


@contextlib.contextmanager
def rabbitmq(folder: Path) -> Iterator[Contestant]:
    """RabbitMQ with classic queues."""
    broker = peer("rabbitmq", "RabbitMQ", folder)
    broker.kind = "classic"
    with started(broker):
        yield Contestant("rabbitmq", broker.product, broker.port, f"/queues/{QUEUE}", None, broker._node.pid)


def peer(module: str, name: str, folder: Path) -> Any:
    """Return the broker that the interoperability tests have, not started. Raises PeerMissing."""
    try:
        return getattr(importlib.import_module(f"tests.interop.{module}"), name)(folder)
    except ImportError as missing:
        raise PeerMissing(f"{missing} (pip install acquit[interop])") from missing
    except Exception as missing:
        raise PeerMissing(str(missing)) from missing


@contextlib.contextmanager
def started(broker: Any) -> Iterator[None]:
    """Start it, and make the queues."""
    try:
        broker.start()
    except Exception as missing:  # PeerMissing of the tests, or a process that did not come up
        raise PeerMissing(str(missing)) from missing
    with broker:
        for name in [QUEUE, *(f"{QUEUE}-{number}" for number in range(PAIRS))]:
            broker.queue(name)
        yield


BROKERS: Final[dict[str, Callable[[Path], contextlib.AbstractContextManager[Contestant]]]] = {
    "acquit": acquit,
    "artemis": artemis,
    "rabbitmq": rabbitmq,
}


# -- the table ---------------------------------------------------------------------------------------------------------


def measure(contestants: list[Contestant], program: Path, cases: list[Case], rounds: int, share: float) -> None:
    """Warm them, and let them take turns. A peer that drops out keeps the figures that it has."""
    for one in contestants:
        print(f"warming {one.name} ({one.product})", file=sys.stderr, flush=True)
        for case in cases:
            if not case.rate:
                one.run(program, case, share * WARM_MESSAGES / case.messages / 2)
    running = list(contestants)
    for number in range(rounds):
        for case in cases:
            for one in list(running):
                try:
                    figures = one.run(program, case, share)
                except DroppedOut as dropped:
                    if one is contestants[0]:
                        raise SystemExit(str(dropped)) from dropped
                    print(f"{dropped}; {one.name} runs no more", file=sys.stderr, flush=True)
                    running.remove(one)
                    continue
                for name, figure in figures.items():
                    one.figures[name].append(figure)
                said = "  ".join(f"{figure:,.0f}" for figure in figures.values())
                print(f"round {number + 1}: {case.name}: {one.name} {said}", file=sys.stderr, flush=True)


def rows(contestants: list[Contestant], cases: list[Case]) -> Iterator[tuple[str, bool, float]]:
    """Yield the figures there are: their name, whether less is better, and the ratio that is claimed."""
    for case in cases:
        names = [f"{case.name}, {one}" for one in PERCENTILES] if case.rate else [case.name]
        for name in names:
            if name in contestants[0].figures:
                yield name, bool(case.rate), case.claim


def ratio(ours: list[float], theirs: list[float], *, less: bool) -> float:
    """Return the median of the ratios within a round; above 1 is better than the peer."""
    pairs = zip(theirs, ours, strict=False) if less else zip(ours, theirs, strict=False)
    return statistics.median(one / other for one, other in pairs)


def table(contestants: list[Contestant], cases: list[Case]) -> int:
    """Print it; return how many claims fall short."""
    missed = 0
    us, *others = contestants
    beside = next((one for one in others if one.name == BESIDE), None)
    for name, less, claim in rows(contestants, cases):
        print(f"{name} ({'us, less is better' if less else 'messages/s'})")
        for one in contestants:
            figures = one.figures[name]
            if not figures:
                continue
            line = f"  {one.name:10}{statistics.median(figures):12,.0f}  ({min(figures):,.0f} to {max(figures):,.0f})"
            if one is us and beside is not None:
                found = ratio(figures, beside.figures[name], less=less)
                line += f"  {found:.2f} x {beside.name}"
                if found < claim:
                    line += f"  SHORT of {claim}"
                    missed += 1
            print(line)
    for one in contestants:
        print(f"{one.name}: {one.product}, {peak_mib(one.pid):,.0f} MiB at its peak")
    return missed


def markdown(contestants: list[Contestant], cases: list[Case], rounds: int) -> str:
    """Return the table as the page has it."""
    us, *others = contestants
    beside = next((one for one in others if one.name == BESIDE), None)
    lines = [
        f"| median of {rounds} (lowest to highest) | {' | '.join(one.name for one in contestants)} | beside {BESIDE} |",
        "|---|" + "---|" * (len(contestants) + 1),
    ]
    for name, less, claim in rows(contestants, cases):
        cells = []
        for one in contestants:
            figures = [figure / 1000 for figure in one.figures[name]] if less else one.figures[name]
            if not figures:
                cells.append("dropped out")
                continue
            shape = ",.2f" if less else ",.0f"
            cells.append(
                f"{statistics.median(figures):{shape}} ({min(figures):{shape}} to {max(figures):{shape}})".strip()
            )
        found = ratio(us.figures[name], beside.figures[name], less=less) if beside is not None else 0.0
        short = f"**{found:.2f}** of {claim:g}" if found < claim else f"{found:.2f}"
        lines.append(f"| {name}, {'ms' if less else 'messages/s'} | {' | '.join(cells)} | {short} |")
    memory = " | ".join(f"{peak_mib(one.pid):,.0f}" for one in contestants)
    lines.append(f"| peak resident memory, MiB | {memory} | |")
    said = ", ".join(one.product for one in contestants)
    return "\n".join([*lines, "", f"{said}; {os.cpu_count()} CPUs, Python {platform.python_version()}.", ""])


def main() -> int:
    """Run the rounds and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--short", action="store_true", help="few messages, one round: shows that it runs")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--peers", default="artemis,rabbitmq", help="which, or none")
    parser.add_argument("--cases", default="", help="those whose name contains this")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there")
    parser.add_argument("--page", type=Path, metavar="FILE", help="put the table there, between its two marks")
    arguments = parser.parse_args()
    rounds, share = (1, 0.02) if arguments.short else (arguments.rounds, 1.0)
    cases = [case for case in CASES if arguments.cases in case.name]
    sys.path.insert(0, str(ROOT))
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        program = compiled(folder)
        contestants = []
        for peer in ("acquit", *(word for word in arguments.peers.split(",") if word not in ("", "none"))):
            try:
                contestants.append(stack.enter_context(BROKERS[peer](folder / peer)))
            except PeerMissing as missing:
                print(f"{peer} is missing: {missing}", file=sys.stderr)
        measure(contestants, program, cases, rounds, share)
        missed = table(contestants, cases)
        if arguments.page is not None:
            before, _, rest = arguments.page.read_text().partition(MARKS[0])
            after = rest.partition(MARKS[1])[2]
            written = markdown(contestants, cases, rounds)
            arguments.page.write_text(f"{before}{MARKS[0]}\n\n{written}\n{MARKS[1]}{after}")
        if arguments.json is not None:
            arguments.json.write_text(json.dumps([vars(one) for one in contestants], indent=1) + "\n")
    return 1 if missed and not arguments.short else 0


if __name__ == "__main__":
    sys.exit(main())
