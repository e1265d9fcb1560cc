"""Plant mistakes in the product, one at a time, and say which of them the simulation finds, and how soon.

    python tools/planted.py                               all of them, into the table of docs/how-it-is-tested.md
    python tools/planted.py "accept before sync"          these alone: the other rows stay as they are
    python tools/planted.py --check                       each can still be planted, and the table has them all

Each is tried in a process in which the import of the modules concerned gives the changed source (`mutate`); no file of
the tree is touched. Worlds are run there, seed by seed, until one fails or so many seconds of processor time are over.
A mistake is *found* if that world passes without it.
"""

from __future__ import annotations

import argparse
import importlib
import json
import logging
import os
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from time import process_time

from mutate import ROOT, PlantedSource
from planted_mistakes import MISTAKES, Planted

SOURCES = ROOT / "src/acquit"
PAGE = ROOT / "docs/how-it-is-tested.md"
BEGIN, END = "<!-- planted: begin -->", "<!-- planted: end -->"
LIMIT_S = 60.0
WALL = 10
"""How many times as long as its limit a process may take on the clock: others may want the processors too."""
_RULE = re.compile(r"([a-z]+): ")


class CannotPlant(Exception):
    """A mistake does not fit the sources any more."""


@dataclass(frozen=True, slots=True)
class Found:
    """What came of one mistake."""

    seconds: float
    """Of processor time, until it was found, or in vain."""
    seed: int = 0
    """Of the world that showed it; 0: none did."""
    rule: str = ""
    message: str = ""


def changed(mistake: Planted) -> dict[str, str]:
    """The sources with the mistake in them, by path below src/acquit. Raises CannotPlant."""
    sources: dict[str, str] = {}
    for edit in mistake.edits:
        path = SOURCES / edit.path
        if not path.exists():
            raise CannotPlant(f"{mistake.name!r}: there is no {path.relative_to(ROOT)}")
        source = sources.get(edit.path) or path.read_text()
        count = source.count(edit.old)
        if count != 1:
            raise CannotPlant(f"{mistake.name!r}: this is {count} times in {path.relative_to(ROOT)}:\n{edit.old}")
        sources[edit.path] = source.replace(edit.old, edit.new)
    for path_, source in sources.items():
        try:
            compile(source, path_, "exec")
        except SyntaxError as exc:
            raise CannotPlant(f"{mistake.name!r}: what it makes of {path_} is no Python: {exc}") from exc
    return sources


# -- a run ------------------------------------------------------------------------------------------------------------


def run_child(sources: dict[str, str], first: int, limit_s: float, worlds: int) -> Found:
    """Run worlds with these files in the place of modules; what the first says that fails."""
    sys.dont_write_bytecode = True
    for path, file in sources.items():
        module = "acquit." + path.removesuffix(".py").replace("/", ".")
        sys.meta_path.insert(0, PlantedSource(module, Path(file)))
    logging.disable(logging.CRITICAL)
    world = importlib.import_module("tests.simulation.world")  # of the tests, which are held to other rules
    begun_s = process_time()
    for seed in range(first, first + worlds):
        try:
            world.simulate(world.Case(seed=seed))
        except Exception as exc:  # noqa: BLE001  # whatever it is, the world did not expect it
            rule = _RULE.match(str(exc)) if type(exc).__name__ == "Violation" else None
            name = rule[1] if rule else type(exc).__name__
            return Found(process_time() - begun_s, seed, name, str(exc)[:300])
        if process_time() - begun_s >= limit_s:
            break
    return Found(process_time() - begun_s)


def attempt(mistake: Planted | None, first: int, limit_s: float, worlds: int = 1 << 30) -> Found:
    """Run worlds with a mistake, or without one, in a process of their own."""
    with tempfile.TemporaryDirectory(prefix="acquit-planted-") as folder:
        sources = {}
        for number, (path, source) in enumerate(changed(mistake).items() if mistake is not None else ()):
            file = Path(folder, f"{number}.py")
            file.write_text(source)
            sources[path] = str(file)
        asked = json.dumps([sources, first, limit_s, worlds])
        paths = os.pathsep.join((str(ROOT / "src"), str(ROOT)))
        try:
            done = subprocess.run(
                [sys.executable, str(Path(__file__)), "--child", asked],
                check=False,
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": paths, "PYTHONHASHSEED": "0"},
                capture_output=True,
                text=True,
                timeout=WALL * limit_s,
            )
        except subprocess.TimeoutExpired:
            return Found(limit_s, message="it did not end")
    if done.returncode:
        raise SystemExit(done.stderr)
    return Found(**json.loads(done.stdout.splitlines()[-1]))


@cache
def passes(seed: int) -> bool:
    """Whether a world passes without any mistake."""
    return not attempt(None, seed, LIMIT_S, worlds=1).seed


def hunt(mistake: Planted, first: int, limit_s: float) -> Found:
    """Run worlds with a mistake until one fails that passes without it, or the time is over."""
    spent_s = 0.0
    while spent_s < limit_s:
        found = attempt(mistake, first, limit_s - spent_s)
        spent_s += found.seconds
        if not found.seed:
            return Found(spent_s, message=found.message)
        if passes(found.seed):
            return Found(spent_s, found.seed, found.rule, found.message)
        first = found.seed + 1
    return Found(spent_s, message="worlds failed without it as well")


# -- the table --------------------------------------------------------------------------------------------------------


def row_of(mistake: Planted, found: Found) -> str:
    """Its row in the table."""
    said = (
        f"yes | {found.seconds:.1f} | {found.rule} | {found.seed}" if found.seed else f"no | {found.seconds:.1f} | | "
    )
    return f"| {mistake.name} | {mistake.breaks} | {said} |"


def rows_of(text: str) -> dict[str, str]:
    """The rows of a table, by mistake."""
    rows = [line for line in text.splitlines() if line.startswith("| ") and not line.startswith("| mistake |")]
    return {row.split(" | ")[0].removeprefix("| "): row for row in rows}


def table(rows: Iterable[str]) -> str:
    """What stands between the markers of the page."""
    rows = list(rows)
    cells = [[cell.strip() for cell in row.split("|")[1:-1]] for row in rows]
    times = [float(seconds) for _, _, found, seconds, *_ in cells if found == "yes"]
    median = f", half of them within {statistics.median(times):.1f} s" if times else ""
    lines = [
        f"{len(times)} of {len(rows)} were found{median} (`make planted`). *Seconds* are of one processor, from the",
        "first seed on; *found by* is the rule that was broken, or an error that nothing in the world explains.",
        "",
        "| mistake | the promise that it breaks | found | seconds | found by | seed |",
        "|---|---|---|---|---|---|",
        *rows,
    ]
    return "\n".join(lines)


def split_page() -> tuple[str, str, str]:
    """The page before, between and behind the markers."""
    before, begin, rest = PAGE.read_text().partition(BEGIN)
    between, end, behind = rest.partition(END)
    if not begin or not end:
        raise CannotPlant(f"{PAGE.relative_to(ROOT)} has no {BEGIN} and {END}")
    return before + begin, between, end + behind


def problems() -> list[str]:
    """Why the list is not as it should be: mistakes that cannot be planted, or that the page does not have."""
    found = []
    for mistake in MISTAKES:
        try:
            changed(mistake)
        except CannotPlant as exc:
            found.append(str(exc))
    there = [tuple(row.split(" | ")[:2]) for row in rows_of(split_page()[1]).values()]
    if there != [(f"| {mistake.name}", mistake.breaks) for mistake in MISTAKES]:
        found.append(f"{PAGE.relative_to(ROOT)} does not have these mistakes: run make planted")
    return found


def main() -> int:
    """Do what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="MISTAKE", help="these alone")
    parser.add_argument("--limit-s", type=float, default=LIMIT_S, help="processor time for each (60)")
    parser.add_argument("--seed", type=int, default=1, help="of the first world (1)")
    parser.add_argument("--check", action="store_true", help="run nothing: can all of them be planted?")
    options = parser.parse_args()
    if options.check:
        wrong = problems()
        for problem in wrong:
            print(problem, file=sys.stderr)
        return bool(wrong)
    known = {mistake.name: mistake for mistake in MISTAKES}
    for name in options.names:
        if name not in known:
            parser.error(f"no mistake is called {name!r}")
    for mistake in [known[name] for name in options.names] or MISTAKES:
        found = hunt(mistake, options.seed, options.limit_s)
        print(f"{row_of(mistake, found)}  {found.message}", flush=True)
        before, between, behind = split_page()
        rows = {**rows_of(between), mistake.name: row_of(mistake, found)}
        PAGE.write_text(f"{before}\n{table(rows[one.name] for one in MISTAKES if one.name in rows)}\n{behind}")
    return 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        print(json.dumps(asdict(run_child(*json.loads(sys.argv[2])))))
        sys.exit(0)
    sys.exit(main())
