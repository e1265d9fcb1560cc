"""The broker beside other brokers, in one run and in turns: messages a second, and latency, and where we fall short.

    python benchmarks/bench_peers.py [--short] [--rounds N] [--peers artemis,rabbitmq] [--cases TEXT] [--json FILE]
                                    [--page docs/speed.md] [--native]

`benchmarks/amqpload.c` (raw AMQP 1.0 over one sending and one receiving connection for each pair, credit 500) is built
with the machine's `cc`; it counts a run only if each message came once, in order, and to whom it belongs. Each broker
is a process of its own with its data in a folder of its own on one disk: `acquit serve` as it comes; Artemis with a
heap of 1 GB, the journal of `artemis create` (NIO, 10 MB files), as `tests/interop/artemis.py` has it; RabbitMQ with
classic queues. Each is warmed by messages of each kind, and then they take turns, case by case and round by round.
Given are medians and ranges, and the median of the ratios to Artemis within a round; only ratios of one run mean
anything. *Durable* means one sync before an answer with acquit and Artemis; RabbitMQ's classic queues answer with a
sync only for some. A broker that refuses messages of a row, or does not deliver them as it must, has no further figure
there, and what the load generator said stands below the table.

With `--native` the native build (docs/native.md) runs, as `make native` leaves it, and more is claimed of it.

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
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from bench_broker import compiled, peak_mib

ROOT: Final = Path(__file__).resolve().parent.parent
BESIDE: Final = "artemis"
WARM_MESSAGES: Final = 300_000
QUEUE: Final = "bench"
PAIRS: Final = 10
PRIORITIES: Final = 10
RUN_S_MAX: Final = 600
MESSAGES_MIN: Final = 1_000
NATIVE: Final = ROOT / "build" / "native"
NATIVE_CLAIMS: Final = {1.2: 2.0, 1.0: 1.5}
"""What is claimed of rates of the native build, by what is claimed of the pure one."""
MARKS: Final = ("<!-- made by benchmarks/bench_peers.py -->", "<!-- so far -->")
NATIVE_MARKS: Final = ("<!-- made by benchmarks/bench_peers.py --native -->", "<!-- so far the native build -->")


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
    options: tuple[str, ...] = ()
    """Further ones of the load generator; `amqpload -h` says what they are."""
    node: str = "queue"
    """What the address is: `queue`, `topic`, or `priorities`, a queue that keeps them."""
    rate: int = 0
    """Messages a second; 0: as many as can be. With one, what is measured is the time from when a message was due
    until it arrived."""
    half_of: str = ""
    """The rate is half of what acquit makes in the row of this name, for all brokers."""
    without: tuple[tuple[str, str], ...] = ()
    """Peers that are not asked, and why not."""

    @property
    def timed(self) -> bool:
        """True if latency is measured, and not messages a second."""
        return bool(self.rate or self.half_of)

    def arguments(self, share: float, rate: int) -> list[str]:
        """Return those of the load generator, for a share of the messages, at so many a second (0: all it can)."""
        count = max(MESSAGES_MIN, int(self.messages * share))
        words = ["-n", str(count), "-s", str(self.size), "-c", "500", "-k", str(self.pairs), *self.options]
        words += ["-D"] if self.durable else []
        return words + (["-r", str(rate)] if rate else [])


NO_DUPLICATES: Final = (("rabbitmq", "it has no duplicate detection"),)
NO_GROUPS: Final = (("rabbitmq", "it has no message groups: a single active consumer is one for the whole queue"),)
NO_SELECTORS: Final = (("rabbitmq", "it has no selectors for queues"),)
NO_TRANSACTIONS: Final = (("rabbitmq", "it has no transactions over AMQP 1.0"),)
CASES: Final = (
    Case("100 B", 1.2),
    Case("1 KB", 1.2, size=1024),
    Case("100 B, durable", 1.2, durable=True),
    Case("1 KB, durable", 1.2, size=1024, durable=True),
    Case("100 B, as Qpid JMS writes it", 1.2, options=("-l", "jms")),
    Case("100 B, as proton writes it", 1.2, options=("-l", "proton")),
    Case("100 B, ten consumers of a queue", 1.0, pairs=PAIRS, options=("-q", "1")),
    Case("100 B, ten queues", 1.0, pairs=PAIRS),
    Case("100 B, topic with ten subscriptions", 1.0, messages=20_000, options=("-f", "10"), node="topic"),
    Case("100 B, transactions of 100", 1.0, messages=100_000, options=("-t", "100"), without=NO_TRANSACTIONS),
    Case(
        "100 B, durable, transactions of 100",
        1.0,
        messages=100_000,
        durable=True,
        options=("-t", "100"),
        without=NO_TRANSACTIONS,
    ),
    Case("100 B, duplicate detection", 1.0, messages=100_000, options=("-d", "100"), without=NO_DUPLICATES),
    Case("100 B, selectors that take one in ten", 1.0, messages=100_000, options=("-x", "10"), without=NO_SELECTORS),
    Case(
        "100 B, a hundred groups, ten consumers",
        1.0,
        messages=100_000,
        pairs=PAIRS,
        options=("-q", "1", "-g", "100"),
        without=NO_GROUPS,
    ),
    Case("100 B, ten priorities", 1.0, options=("-i",), node="priorities"),
    Case("latency at 1,000/s", 1.0, messages=5_000, rate=1_000),
    Case("latency at 1,000/s, durable", 1.0, messages=5_000, rate=1_000, durable=True),
    Case("latency at half of our maximum", 1.0, half_of="100 B"),
    Case("latency at half of our maximum, durable", 1.0, durable=True, half_of="100 B, durable"),
)
PERCENTILES: Final = ("p50", "p99", "p99.9")


class PeerMissing(Exception):
    """A broker cannot be run here; the text says why."""


class DroppedOut(Exception):
    """A broker refused messages of a row, or did not deliver them; the text says what the load generator said."""


@dataclass
class Contestant:
    """A broker that runs."""

    name: str
    product: str
    port: int
    login: tuple[str, str] | None
    pid: int
    prefixes: dict[str, str] = field(default_factory=dict)
    """By what a node is: what its address has before its name."""
    figures: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    """By case, or case and percentile: messages a second, or microseconds."""
    lacks: dict[str, str] = field(default_factory=dict)
    """By case: why there are no figures, or no more."""

    def run(self, program: Path, case: Case, share: float, rate: int = 0) -> dict[str, float]:
        """Run a case: what it gave, by the name of the figure. Raises DroppedOut where one was lost or refused."""
        command = [
            str(program),
            "-p",
            str(self.port),
            "-a",
            self.prefixes.get(case.node, "") + name_of(case),
            *case.arguments(share, rate),
        ]
        if self.login is not None:
            command += ["-u", self.login[0], "-P", self.login[1]]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_S_MAX, check=False)
        except subprocess.TimeoutExpired as slow:
            raise DroppedOut(f"a run took more than {RUN_S_MAX} s") from slow
        figure = re.search(r"([\d.]+) msg/s.*rej=0\b", done.stdout)
        if done.returncode or figure is None:
            raise DroppedOut(f"{done.stdout}{done.stderr}".strip())
        if not rate:
            return {case.name: float(figure[1])}
        said = dict(re.findall(r"(p[\d.]+)=(\d+)us", done.stdout.partition("e2e")[2]))
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
            yield Contestant("acquit", version.stdout.strip(), int(ready[1]), None, process.pid)
        finally:
            process.terminate()


@contextlib.contextmanager
def artemis(folder: Path) -> Iterator[Contestant]:
    """Artemis, as a server runs it: all of its queues keep priorities, and all remember duplicates."""
    broker = peer("artemis", "Artemis", folder)
    broker.java = ("-Xms1g", "-Xmx1g", "-Dacquit.journalFileBytes=10485760")
    with started(broker, {"queue": broker.queue, "priorities": broker.queue, "topic": broker.topic}):
        login = (broker.username, broker.password)
        yield Contestant("artemis", broker.product, broker.port, login, broker._process.pid)


@contextlib.contextmanager
def rabbitmq(folder: Path) -> Iterator[Contestant]:
    """RabbitMQ with classic queues. A topic is an exchange's routing key, by an address of RabbitMQ's version 1:
    version 2 has none that a receiver could subscribe at."""
    broker = peer("rabbitmq", "RabbitMQ", folder)
    broker.kind = "classic"
    prefixes = {"queue": "/queues/", "priorities": "/queues/", "topic": "/topic/"}

    def prioritized(name: str) -> None:
        arguments = {"x-queue-type": "classic", "x-max-priority": PRIORITIES - 1}
        broker.manage("PUT", f"/queues/{name}", {"durable": True, "arguments": arguments})

    with started(broker, {"queue": broker.queue, "priorities": prioritized, "topic": broker.topic}):
        yield Contestant("rabbitmq", broker.product, broker.port, None, broker._node.pid, prefixes)


def newest(folder: Path, pattern: str) -> float:
    """When the latest file of this kind was written below a folder, in seconds since the epoch; 0 for none."""
    return max((path.stat().st_mtime for path in folder.rglob(pattern)), default=0.0)


def claimed(case: Case, *, native: bool) -> Case:
    """Return a row with what is claimed of the build that runs."""
    return replace(case, claim=NATIVE_CLAIMS[case.claim]) if native and not case.timed else case


def name_of(case: Case) -> str:
    """Return the name of a row's own node: what one row leaves behind, no other row finds."""
    return f"{QUEUE}-{[one.name for one in CASES].index(case.name)}"


def peer(module: str, name: str, folder: Path) -> Any:
    """Return the broker that the interoperability tests have, not started. Raises PeerMissing."""
    try:
        return getattr(importlib.import_module(f"tests.interop.{module}"), name)(folder)
    except ImportError as missing:
        raise PeerMissing(f"{missing} (pip install acquit[interop])") from missing
    except Exception as missing:
        raise PeerMissing(str(missing)) from missing


@contextlib.contextmanager
def started(broker: Any, make: dict[str, Callable[[str], object]]) -> Iterator[None]:
    """Start it, and make the nodes of all rows; `make` has how, by what the node is."""
    try:
        broker.start()
    except Exception as missing:  # PeerMissing of the tests, or a process that did not come up
        raise PeerMissing(str(missing)) from missing
    with broker:
        for case in CASES:
            name = name_of(case)
            for each in [name] if case.pairs == 1 else [f"{name}-{number}" for number in range(case.pairs)]:
                make[case.node](each)
        yield


BROKERS: Final[dict[str, Callable[[Path], contextlib.AbstractContextManager[Contestant]]]] = {
    "acquit": acquit,
    "artemis": artemis,
    "rabbitmq": rabbitmq,
}


# -- the table ---------------------------------------------------------------------------------------------------------


def measure(contestants: list[Contestant], program: Path, cases: list[Case], rounds: int, share: float) -> None:
    """Warm them, and let them take turns. A peer that drops out of a row keeps the figures that it has. Raises
    SystemExit where acquit drops out."""
    for one in contestants:
        print(f"warming {one.name} ({one.product})", file=sys.stderr, flush=True)
        for case in cases:
            if one.name in dict(case.without):
                one.lacks[case.name] = dict(case.without)[one.name]
            if not case.timed:
                attempt(one, program, case, min(share, share * WARM_MESSAGES / case.messages / 2), 0)
    for number in range(rounds):
        for case in cases:
            rate = half(contestants[0], program, case.half_of, share) if case.half_of else case.rate
            for one in contestants:
                figures = attempt(one, program, case, share, rate)
                for name, figure in figures.items():
                    one.figures[name].append(figure)
                said = "  ".join(f"{figure:,.0f}" for figure in figures.values()) or one.lacks[case.name]
                where = f"{case.name} ({rate:,}/s)" if case.half_of else case.name
                print(f"round {number + 1}: {where}: {one.name} {said}", file=sys.stderr, flush=True)


def attempt(one: Contestant, program: Path, case: Case, share: float, rate: int) -> dict[str, float]:
    """Return the figures of one run; none where the broker is out of this row, or drops out of it now."""
    if case.name in one.lacks:
        return {}
    try:
        return one.run(program, case, share, rate)
    except DroppedOut as dropped:
        if one.name == "acquit":
            raise SystemExit(f"acquit dropped out of {case.name}: {dropped}") from dropped
        one.lacks[case.name] = f"dropped out: {dropped}"
        return {}


def half(us: Contestant, program: Path, name: str, share: float) -> int:
    """Return half of the messages a second that acquit makes in a row: the median so far, or of a run now."""
    if name not in us.figures:
        case = next(case for case in CASES if case.name == name)
        return int(us.run(program, case, share)[name] / 2)
    return int(statistics.median(us.figures[name]) / 2)


def rows(contestants: list[Contestant], cases: list[Case]) -> Iterator[tuple[Case, str]]:
    """Yield the figures there are: their case and their name."""
    for case in cases:
        names = [f"{case.name}, {one}" for one in PERCENTILES] if case.timed else [case.name]
        yield from ((case, name) for name in names if name in contestants[0].figures)


def ratio(contestants: list[Contestant], case: Case, name: str) -> float | None:
    """Return the median of the ratios to the peer within a round, above 1 being better than the peer; None where there
    is none."""
    ours = contestants[0].figures[name]
    theirs = next((one.figures[name] for one in contestants[1:] if one.name == BESIDE), [])
    pairs = zip(theirs, ours, strict=False) if case.timed else zip(ours, theirs, strict=False)
    ratios = [one / other for one, other in pairs]
    return statistics.median(ratios) if ratios else None


def table(contestants: list[Contestant], cases: list[Case]) -> int:
    """Print it; return how many claims fall short."""
    missed = 0
    for case, name in rows(contestants, cases):
        print(f"{name} ({'us, less is better' if case.timed else 'messages/s'})")
        found = ratio(contestants, case, name)
        for one in contestants:
            figures = one.figures[name]
            if not figures:
                continue
            line = f"  {one.name:10}{statistics.median(figures):12,.0f}  ({min(figures):,.0f} to {max(figures):,.0f})"
            if one is contestants[0] and found is not None:
                line += f"  {found:.2f} x {BESIDE}"
                if found < case.claim:
                    line += f"  SHORT of {case.claim}"
                    missed += 1
            print(line)
    for line in lacking(contestants, cases):
        print(line)
    for one in contestants:
        print(f"{one.name}: {one.product}, {peak_mib(one.pid):,.0f} MiB at its peak")
    return missed


def lacking(contestants: list[Contestant], cases: list[Case]) -> Iterator[str]:
    """Yield a line for each row that a broker is not in, or not in all rounds of."""
    for one in contestants:
        for case in cases:
            if case.name in one.lacks:
                yield f"{one.name}, {case.name}: {one.lacks[case.name]}."


def markdown(contestants: list[Contestant], cases: list[Case], rounds: int) -> str:
    """Return the table as the page has it."""
    lines = [
        f"| median of {rounds} (lowest to highest) | {' | '.join(one.name for one in contestants)} | beside {BESIDE} |",
        "|---|" + "---|" * (len(contestants) + 1),
    ]
    for case, name in rows(contestants, cases):
        cells = []
        for one in contestants:
            figures = [figure / 1000 for figure in one.figures[name]] if case.timed else one.figures[name]
            cells.append(spread(figures, ",.2f" if case.timed else ",.0f") if figures else "none")
        found = ratio(contestants, case, name)
        said = "" if found is None else f"{found:.2f}" if found >= case.claim else f"**{found:.2f}** of {case.claim:g}"
        lines.append(f"| {name}, {'ms' if case.timed else 'messages/s'} | {' | '.join(cells)} | {said} |")
    memory = " | ".join(f"{peak_mib(one.pid):,.0f}" for one in contestants)
    lines.append(f"| peak resident memory, MiB | {memory} | |")
    why = [f"- {line}" for line in lacking(contestants, cases)]
    machine = conditions(one.product for one in contestants)
    return "\n".join([*lines, "", *(["*None* stands where:", "", *why, ""] if why else []), machine, ""])


def spread(figures: list[float], shape: str = ",.0f") -> str:
    """Return a cell of the page: the median, the lowest and the highest."""
    return f"{statistics.median(figures):{shape}} ({min(figures):{shape}} to {max(figures):{shape}})"


def conditions(products: Iterable[str]) -> str:
    """Return the line below a table: what ran, on which machine and when."""
    machine = f"{os.cpu_count()} CPUs ({processor()}), Python {platform.python_version()}"
    return f"{', '.join(products)}; {machine}; {datetime.now(UTC).date()}."


def put(page: Path, marks: tuple[str, str], written: str) -> None:
    """Put what was made into a page, in place of what is between two marks."""
    first, last = marks
    before, _, rest = page.read_text().partition(first)
    after = rest.partition(last)[2]
    page.write_text(f"{before}{first}\n\n{written}\n{last}{after}")


def processor() -> str:
    """Return what this machine's processors call themselves (Linux)."""
    found = re.search(r"model name\s*: (.+)", Path("/proc/cpuinfo").read_text())
    return found[1] if found is not None else platform.machine()


def main() -> int:
    """Run the rounds and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--short", action="store_true", help="few messages, one round: shows that it runs")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--peers", default="artemis,rabbitmq", help="which, or none")
    parser.add_argument("--cases", default="", help="those whose name contains this")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there")
    parser.add_argument("--page", type=Path, metavar="FILE", help="put the table there, between its two marks")
    parser.add_argument("--native", action="store_true", help="our native build, as `make native` leaves it")
    arguments = parser.parse_args()
    if arguments.native:
        if newest(NATIVE, "*.so") < newest(ROOT / "src", "*.py"):
            parser.error("there is no native build of these sources: make native")
        os.environ["PYTHONPATH"] = str(NATIVE)
    rounds, share = (1, 0.02) if arguments.short else (arguments.rounds, 1.0)
    cases = [claimed(case, native=arguments.native) for case in CASES if arguments.cases in case.name]
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
            put(arguments.page, NATIVE_MARKS if arguments.native else MARKS, markdown(contestants, cases, rounds))
        if arguments.json is not None:
            arguments.json.write_text(json.dumps([vars(one) for one in contestants], indent=1) + "\n")
    return 1 if missed and not arguments.short else 0


if __name__ == "__main__":
    sys.exit(main())
