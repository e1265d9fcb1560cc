"""Run worlds with fresh seeds on all CPUs, for minutes or hours, or one case again.

Prints a line for each case that fails, shrunk, which repeats it exactly; the exit code is 1 then.
"""

from __future__ import annotations

import argparse
import logging
import os
import random
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, field
from itertools import count

from tests.simulation.faults import FAULTS, IMPOSSIBLE, STATES
from tests.simulation.rows import Row, all_rows, is_explained, noted
from tests.simulation.world import Case, shrink, simulate

REPORT_S = 30.0


@dataclass
class Found:
    """What came of some worlds."""

    worlds: int = 0
    calls: int = 0
    happened: Counter[str] = field(default_factory=Counter)
    pairs: Counter[tuple[str, str]] = field(default_factory=Counter)
    rows: Counter[Row] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    """How to repeat each."""

    def add(self, other: Found) -> None:
        """Take in what came of others."""
        self.worlds += other.worlds
        self.calls += other.calls
        self.happened += other.happened
        self.pairs += other.pairs
        self.rows += other.rows
        self.failures += other.failures


def attempt(seed: int) -> Found:
    """Run one world."""
    logging.disable(logging.CRITICAL)
    case = Case(seed=seed)
    try:
        with noted() as rows:
            world = simulate(case)
    except Exception:
        case = shrink(case)
        try:
            simulate(case)
        except Exception as why:
            found = f'{type(why).__name__}: {why}\n    make simulate CASE="{case}"'
        else:
            found = f'it fails, and not always: make simulate CASE="{case}"'
        return Found(1, failures=[found])
    return Found(1, world.scheduler.calls, world.oracle.counts + world.faults, world.pairs, rows)


def attempts(jobs: int, first: int, end_s: float) -> Iterator[Found]:
    """Run one world after the other, in so many processes; 0: in this one, for who watches it."""
    seeds = count(first)
    if not jobs:
        while time.monotonic() < end_s:
            yield attempt(next(seeds))
        return
    running: set[Future[Found]] = set()
    with ProcessPoolExecutor(jobs) as pool:
        while running or time.monotonic() < end_s:
            while len(running) < jobs and time.monotonic() < end_s:
                running.add(pool.submit(attempt, next(seeds)))
            done, running = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                yield future.result()


def run(minutes: float, jobs: int, first: int) -> int:
    """Run worlds until the time is over. Returns how many failed."""
    end_s = time.monotonic() + minutes * 60
    begun_s = told_s = time.monotonic()
    found = Found()
    for more in attempts(jobs, first, end_s):
        found.add(more)
        for failure in more.failures:
            say(f"FAILED {failure}")
        if time.monotonic() - told_s > REPORT_S:
            told_s = time.monotonic()
            say(f"{found.worlds} worlds, {found.calls:,} calls, {len(found.failures)} failed")
    elapsed_s = time.monotonic() - begun_s
    say(f"seeds {first} to {first + found.worlds - 1}: {found.worlds} worlds in {elapsed_s:.0f} s")
    say(f"{found.calls:,} calls, {found.calls / elapsed_s:,.0f}/s")
    say("  ".join(f"{name}: {count:,}" for name, count in found.happened.most_common()))
    say_pairs(found.pairs)
    say_rows(found.rows)
    say(f"{found.worlds - len(found.failures)} passed, {len(found.failures)} failed")
    return len(found.failures)


def say_pairs(pairs: Counter[tuple[str, str]]) -> None:
    """Print how often each fault struck in each state of the broker, and which pairs were never reached."""
    say("\nwhat struck, and how often, while the broker was")
    for number, state in enumerate(STATES):
        say(f"  {number:2}: {state}")
    say(f"{'':28}" + "".join(f"{number:6}" for number in range(len(STATES))))
    for fault in FAULTS:
        say(f"{fault:28}" + "".join(f"{_cell(pairs, fault, state):>6}" for state in STATES))
    possible = [(fault, state) for fault in FAULTS for state in STATES if (fault, state) not in IMPOSSIBLE]
    say(f"{sum(pair in pairs for pair in possible)} of {len(possible)} pairs reached\n")


def _cell(pairs: Counter[tuple[str, str]], fault: str, state: str) -> str:
    return str(pairs[fault, state] or ("-" if (fault, state) in IMPOSSIBLE else "NEVER"))


def say_rows(rows: Counter[Row]) -> None:
    """Print how many rows of each table were reached, and those that never were."""
    for table, total in Counter(row[0] for row in all_rows()).items():
        never = [" ".join(row[1:]).strip() for row in all_rows() if row[0] == table and not rows[row]]
        say(f"{table}: {total - len(never)} of {total} rows reached; never: {', '.join(never) or 'none'}")
    wrong = [" ".join(row) for row in rows if is_explained(row)]
    if wrong:
        say(f"reached, though it is said why not: {', '.join(wrong)}")


def say(text: str) -> None:
    """Print a line, now."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes at a time; 0: none but this")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32), help="the first of them")
    parser.add_argument("--case", help="run this one alone, with the broker's log and a traceback")
    options = parser.parse_args()
    if options.case is None:
        failed = run(options.minutes, options.jobs, options.seed)
    else:
        logging.basicConfig(level=logging.INFO)
        failed = 0
        try:
            simulate(Case.parse(options.case))
        except Exception:
            traceback.print_exc()
            failed = 1
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
