"""One queue or ten thousand, two connections or ten thousand: what a message costs the broker.

    python benchmarks/bench_flat.py [--short] [--messages N] [--rounds N] [--counts N ...] [--durable] [--json FILE]

`benchmarks/amqpload.c` sends as many messages of 100 bytes in each row, with as many in flight in all (1,000, or one
for each sender where there are more of these), and takes turns with queues and connections message by message, so that
the more there are the fewer messages of one of them the broker finds in what it reads at once:

    queues       two connections, one that sends and one that receives, with a link to each queue
    connections  half of them send and half receive, each with one link; a queue for each pair
    shared       the same, and all pairs share ten queues

Each row is of a broker of its own (`acquit serve`), and has the medians of the rounds. *CPU* is the time of the
broker's process, in user and kernel, for a message that is posted, handed out and settled: what the generator takes is
not in it. *Beside one* is how often it takes what one queue with one pair of connections takes; more than twice is
bold. *Beside one with its share* compares with one queue and one pair that have no more in flight than each has of them
in this row: that is what becomes dearer because less is done with one system call and in one turn, and not because
there are many. *Idle* is the broker's time in a second in which all are there and nothing is sent. Memory is what is
resident at the end.

As many connections as the limit of open files allows: it is raised as far as it may, for both processes.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from bench_broker import compiled

COUNTS: Final = (1, 10, 100, 1_000, 10_000)
KINDS: Final = ("queues", "connections", "shared")
IN_FLIGHT: Final = 1_000
SHARED: Final = 10
"""Queues that all connections share."""
EACH_MIN: Final = 20
"""Messages of each queue or connection, at the least."""
IDLE_S: Final = 3
CLAIM: Final = 2.0
SPARE_FILES: Final = 500
"""Descriptors that each process has beside those of its connections."""
RUN_S_MAX: Final = 600
CONFIG: Final = """
[limits]
connections_max = 10_200
queues_max = 10_200

[connection]
links_max = 10_001
"""


@dataclass(frozen=True)
class Case:
    """One row, or what a row is compared with."""

    kind: str
    """One of KINDS, or `one`: one queue and one pair of connections."""
    count: int
    in_flight: int

    @property
    def senders(self) -> int:
        """Connections that send."""
        return 1 if self.kind in ("one", "queues") else max(1, self.count // 2)

    @property
    def share(self) -> int:
        """Messages in flight for each queue or, where there are several, each pair of connections."""
        return max(1, self.in_flight // (self.count if self.kind == "queues" else self.senders))

    def arguments(self, messages: int, durable: bool) -> list[str]:
        """Return those of the load generator."""
        if self.kind == "one" and self.in_flight < 100:
            messages //= 5  # each waits for the one before
        count = max(messages, EACH_MIN * max(self.senders, self.count if self.kind == "queues" else 1))
        words = ["-n", str(count), "-s", "100", "-T", str(self.in_flight), "-k", str(self.senders)]
        words += ["-c", "500" if self.kind == "one" else "100", "-a", f"flat-{self.kind}"]
        words += ["-L", str(self.count)] if self.kind == "queues" else []
        words += ["-q", str(min(SHARED, self.senders))] if self.kind == "shared" else []
        return [*words, "-D"] if durable else words


@dataclass(frozen=True)
class Figures:
    """What one run gave."""

    cpu_us: float
    """Of the broker, for a message."""
    rate: float
    """Messages a second."""
    idle_ms: float
    """Of the broker's time, in a second in which nothing is sent."""
    memory_mib: float


def rows(counts: list[int], connections_max: int) -> list[Case]:
    """Return the cases of the table."""
    cases = []
    for kind in KINDS:
        for count in counts:
            wanted = count if kind == "queues" else min(max(2, count), connections_max)
            senders = Case(kind, wanted, 1).senders
            if kind != "shared" or senders > SHARED:
                cases.append(Case(kind, wanted, max(IN_FLIGHT, senders)))
    return cases


def ones(cases: list[Case]) -> list[Case]:
    """Return what they are compared with: one queue with all that is in flight, and with the share of one."""
    return [Case("one", 1, in_flight) for in_flight in sorted({IN_FLIGHT, *(case.share for case in cases)})]


@contextlib.contextmanager
def serving(folder: Path) -> Iterator[tuple[int, int]]:
    """Run a broker with its data in this folder: its process, and its port."""
    folder.mkdir()
    config = folder / "acquit.toml"
    config.write_text(CONFIG)
    command = [sys.executable, "-m", "acquit", "serve", "--host", "127.0.0.1", "--port", "0", "--config", str(config)]
    with subprocess.Popen(
        [*command, "--data", str(folder / "data")], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as broker:
        assert broker.stdout is not None
        try:
            ready = re.search(r"amqp://127\.0\.0\.1:(\d+)", broker.stdout.readline())
            if ready is None:
                raise SystemExit("acquit serve did not start")
            yield broker.pid, int(ready[1])
        finally:
            broker.terminate()


def run(program: Path, pid: int, port: int, words: list[str], idle_s: int) -> Figures:
    """Run the load generator once. Raises SystemExit where a message was rejected or did not come."""
    command = [str(program), "-p", str(port), "-b", str(pid), *words, *(["-z", str(idle_s)] if idle_s else [])]
    done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_S_MAX, check=False)
    found = re.search(
        r"n=(\d+) .* (\d+) msg/s.*rej=0\b.*broker-idle-cpu=([\d.]+)s, broker-cpu=([\d.]+)s, broker-rss=(\d+)KiB",
        done.stdout,
    )
    if done.returncode or found is None:
        raise SystemExit(f"the load generator said: {done.stdout}{done.stderr}")
    count, rate, idle, busy, memory = map(float, found.groups())
    return Figures(busy / count * 1e6, rate, idle / max(1, idle_s) * 1e3, memory / 1024)


def measure(
    program: Path, folder: Path, case: Case, messages: int, rounds: int, *, durable: bool, idle_s: int
) -> Figures:
    """Measure a case: the medians of its rounds, on a broker that is warm."""
    print(f"{case.kind}, {case.count}, {case.in_flight} in flight ...", file=sys.stderr, flush=True)
    with serving(folder / f"{case.kind}-{case.count}-{case.in_flight}") as (pid, port):
        run(program, pid, port, Case("one", 1, IN_FLIGHT).arguments(5_000, durable), 0)
        several = [run(program, pid, port, case.arguments(messages, durable), idle_s) for _ in range(rounds)]
    return Figures(*(statistics.median(getattr(one, name) for one in several) for name in Figures.__dataclass_fields__))


def beside(figures: Figures, one: Figures) -> str:
    """As in the table: how many times what one takes."""
    times = figures.cpu_us / one.cpu_us
    return f"{times:.1f}" if times <= CLAIM else f"**{times:.1f}**"


def raise_limit() -> int:
    """Raise the limit of open files, for this process and those it starts; how many connections there may be."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    return max(2, most - SPARE_FILES)


def main() -> int:
    """Run the cases and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--short", action="store_true", help="few messages, one round: shows that it runs")
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--counts", type=int, nargs="*", help="how many queues, and connections")
    parser.add_argument("--durable", action="store_true")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there")
    arguments = parser.parse_args()
    messages, rounds, idle_s = (5_000, 1, 0) if arguments.short else (arguments.messages, arguments.rounds, IDLE_S)
    counts = arguments.counts or (COUNTS[:3] if arguments.short else COUNTS)
    if max(counts) > COUNTS[-1]:
        parser.error(f"no more than {COUNTS[-1]}")

    cases = rows(list(counts), raise_limit())
    measured: dict[Case, Figures] = {}
    with tempfile.TemporaryDirectory() as name:
        program = compiled(Path(name))
        for case in (*ones(cases), *cases):
            measured[case] = measure(
                program, Path(name), case, messages, rounds, durable=arguments.durable, idle_s=idle_s
            )
    one = {case.in_flight: figures for case, figures in measured.items() if case.kind == "one"}
    kind = "durable" if arguments.durable else "not durable"
    print(f"{messages} messages of 100 B, {kind}, median of {rounds}\n")
    print("| | in flight | CPU, us a message | beside one | with its share | messages/s | idle, ms/s | MiB |")
    print("|---|---|---|---|---|---|---|---|")
    for case, figures in measured.items():
        compared = f"{beside(figures, one[IN_FLIGHT])} | {beside(figures, one[case.share])}"
        print(
            f"| {case.count:,} {case.kind} | {case.in_flight:,} | {figures.cpu_us:.1f} | {compared} | "
            f"{figures.rate:,.0f} | {figures.idle_ms:.0f} | {figures.memory_mib:.0f} |"
        )
    if arguments.json is not None:
        written = [asdict(case) | asdict(figures) for case, figures in measured.items()]
        arguments.json.write_text(json.dumps(written, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
