"""A second broker beside the first on the same machine: what two cores bring that one event loop cannot use.

    python benchmarks/bench_second_broker.py [--short] [--rounds N] [--json FILE] [--page docs/speed.md]

Two brokers run (`acquit serve` as it comes), each a process of its own with its data in a folder of its own on one
disk. `benchmarks/amqpload.c` is built with the machine's `cc`, and sends through them in three ways, which take turns,
row by row and round by round, after a round that warms them:

    one broker, one pair        a sender and a receiver, and their queue
    one broker, two pairs       two of each with two queues, of one generator (`amqpload -k 2`)
    two brokers, a pair each    at the same time, each with a generator of its own

Each pair has as many messages, so the last two ways have twice as many as the first. Given are messages a second,
medians and ranges, and the medians of the ratios within a round. That of two brokers is the sum of what each makes over
its own time: it says too much where one ends long before the other, so `--json` has both. Brokers and generators share
the machine's cores, and only ratios of one run mean anything.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import sys
import tempfile
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import bench_peers
from bench_broker import compiled
from bench_peers import Case, Contestant, acquit, attempt, conditions, put, spread

MESSAGES: Final = {False: 1_000_000, True: 200_000}
"""Of each pair, by whether they are durable: a second or more."""
NAMES: Final = ("100 B", "1 KB", "100 B, durable", "1 KB, durable")
CASES: Final = tuple(replace(case, messages=MESSAGES[case.durable]) for case in bench_peers.CASES if case.name in NAMES)
MARKS: Final = ("<!-- made by benchmarks/bench_second_broker.py -->", "<!-- so far the second broker -->")


@dataclass
class Way:
    """One column: brokers that have their pairs at the same time."""

    name: str
    brokers: list[Contestant]
    pairs: int
    """Of each broker."""
    runs: dict[str, list[list[float]]] = field(default_factory=lambda: defaultdict(list))
    """By case, of each round: messages a second of each broker."""

    def rates(self, case: Case) -> list[float]:
        """Return messages a second of all brokers, of each round."""
        return [sum(run) for run in self.runs[case.name]]

    def run(self, program: Path, case: Case, share: float) -> list[float]:
        """Run a case: messages a second, of each broker. Raises SystemExit where a message was lost or refused."""
        each = replace(case, messages=case.messages * self.pairs, pairs=self.pairs)
        with ThreadPoolExecutor(len(self.brokers)) as pool:
            runs = list(pool.map(lambda broker: attempt(broker, program, each, share, 0), self.brokers))
        return [figures[case.name] for figures in runs]


def ways(first: Contestant, second: Contestant) -> list[Way]:
    """Return the columns."""
    return [
        Way("one broker, one pair", [first], 1),
        Way("one broker, two pairs", [first], 2),
        Way("two brokers, a pair each", [first, second], 1),
    ]


def measure(columns: list[Way], program: Path, rounds: int, share: float) -> None:
    """Warm the brokers by one round, and let the ways take turns."""
    for number in range(rounds + 1):
        for case in CASES:
            for way in columns:
                run = way.run(program, case, share)
                where = f"round {number}" if number else "warming"
                said = " + ".join(f"{rate:,.0f}" for rate in run)
                print(f"{where}: {case.name}: {way.name} {said}", file=sys.stderr, flush=True)
                if number:
                    way.runs[case.name].append(run)


def beside(two: Way, one: Way, case: Case) -> float:
    """Return the median of the ratios of two brokers to one within a round."""
    return statistics.median(both / alone for both, alone in zip(two.rates(case), one.rates(case), strict=True))


def markdown(columns: list[Way], rounds: int) -> str:
    """Return the table as the page has it."""
    *ones, two = columns
    heads = [f"messages/s, median of {rounds} (lowest to highest)", *(way.name for way in columns)]
    heads += ["two brokers beside one pair", "beside two pairs"]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for case in CASES:
        cells = [spread(way.rates(case)) for way in columns] + [f"{beside(two, one, case):.2f}" for one in ones]
        lines.append(f"| {case.name} | {' | '.join(cells)} |")
    return "\n".join([*lines, "", conditions([two.brokers[0].product]), ""])


def main() -> int:
    """Run the rounds and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--short", action="store_true", help="few messages, one round: shows that it runs")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there")
    parser.add_argument("--page", type=Path, metavar="FILE", help="put the table there, between its two marks")
    arguments = parser.parse_args()
    rounds, share = (1, 0.01) if arguments.short else (arguments.rounds, 1.0)
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        program = compiled(folder)
        columns = ways(*(stack.enter_context(acquit(folder / each)) for each in ("first", "second")))
        measure(columns, program, rounds, share)
    written = markdown(columns, rounds)
    print(written)
    if arguments.page is not None:
        put(arguments.page, MARKS, written)
    if arguments.json is not None:
        arguments.json.write_text(json.dumps({way.name: way.runs for way in columns}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
