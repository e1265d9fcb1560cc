"""Search for inputs that break a target, guided by coverage: all targets in turns, or one.

    python -m tests.fuzz --minutes 5 --target frames

The search is atheris's, which is libFuzzer for Python. What it finds is made shorter and printed as a line for its
target's corpus, and the exit code is 1. With ``--keep`` the inputs that reach something new go into the corpus,
minimised. What a search has reached lies in build/fuzz, where the next one begins.
"""

from __future__ import annotations

import argparse
import hashlib
import logging
import os
import sys
import time
import warnings
from pathlib import Path
from typing import NoReturn

import atheris

with atheris.instrument_imports(include=["acquit"]):
    from tests.fuzz.targets import TARGETS

from tests.fuzz import corpora
from tests.fuzz.target import Target, check, measure, reached
from tests.fuzz.verdict import BY_THE_CLOCK, GOES_ON, fault, verdict

BUILD = Path("build/fuzz")


def shrink(target: Target, data: bytes, why: str) -> bytes:
    """The shortest input by leaving pieces out, and the plainest by zeros, with which the same is wrong."""

    def broken(shorter: bytes) -> bool:
        return fault(target, shorter) == why

    size = len(data)
    while size:
        at = 0
        while at < len(data):
            shorter = data[:at] + data[at + size :]
            plainer = data[:at] + b"\0" * len(data[at : at + size]) + data[at + size :]
            if broken(shorter):
                data = shorter
                continue
            if plainer != data and broken(plainer):
                data = plainer
            at += size
        size //= 2
    return data


def fill(folder: Path, inputs: list[bytes]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for data in inputs:
        (folder / hashlib.sha256(data).hexdigest()[:24]).write_bytes(data)


def run(target: Target, log: Path, *arguments: str) -> NoReturn:
    """Be libFuzzer, in a child of our own. What it says goes to the log."""
    said = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(said, 1)
    os.dup2(said, 2)
    if target.warms:
        measure(target, target.seeds[0])
    limits = (f"-max_len={target.length_max}", "-rss_limit_mb=2048", "-timeout=30", "-verbosity=0")
    atheris.Setup([sys.argv[0], *arguments, *limits], lambda data: check(target, data))
    atheris.Fuzz()
    sys.exit()


def search(target: Target, build: Path, *arguments: str) -> dict[str, bytes]:
    """Search; the inputs that the search left behind, by their kinds. Raises RuntimeError where it ended otherwise than
    by its time or by one of these."""
    prefix, log = build / f"{target.name}.", build / f"{target.name}.log"
    for path in build.glob(f"{target.name}.*-*"):
        path.unlink()
    child = os.fork()
    if not child:
        run(target, log, *arguments, f"-artifact_prefix={prefix}")  # ends as libFuzzer ends, which then writes the find
    _, status = os.waitpid(child, 0)
    found = {path.name.removeprefix(prefix.name): path.read_bytes() for path in build.glob(f"{target.name}.*-*")}
    if status and all(kind.startswith(GOES_ON) for kind in found):
        raise RuntimeError(f"the search in {target.name} ended with {status}: see {log}")
    return found


def try_target(target: Target, build: Path, seconds: float, seed: int) -> tuple[bytes, str] | None:
    """Search for so long; an input that breaks the target, shrunk, and what is wrong with it, or None."""
    known = [*target.seeds, *corpora.read(target.name)]
    for data in (*known, *target.long):
        if (why := fault(target, data)) is not None:
            return data, why
    folder, words = build / target.name, build / f"{target.name}.words"
    fill(folder, known)
    arguments = [str(folder), f"-max_total_time={max(1, round(seconds))}", f"-seed={seed}"]
    if target.words:
        spelled = ["".join(f"\\x{octet:02x}" for octet in word) for word in target.words]
        words.write_text("".join(f'"{word}"\n' for word in spelled))
        arguments.append(f"-dict={words}")
    for kind, data in search(target, build, *arguments).items():
        why = verdict(target, data, kind)
        if why is None:
            print(f"{target.name:16} an input seemed slow, as the machine was: it is not", flush=True)
        elif kind.startswith(BY_THE_CLOCK):
            return data, why
        else:
            return shrink(target, data, why), why
    return None


def keep(target: Target, build: Path) -> int:
    """Add to the corpus what the search has found to reach something new, the shortest first. How many."""
    known: set[tuple[object, int, int]] = set()
    for data in (*target.seeds, *corpora.read(target.name), *target.long):
        known |= reached(target, data)
    added = []
    for path in sorted((build / target.name).iterdir(), key=lambda path: (path.stat().st_size, path.name)):
        data = path.read_bytes()
        if fault(target, data) is None and not (found := reached(target, data)) <= known:
            known |= found
            added.append(data)
    return corpora.add(target.name, added)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=5, help="in all")
    parser.add_argument("--target", choices=TARGETS, action="append", help="default: all, in turns")
    parser.add_argument("--seed", type=int, default=0, help="0: another one each time")
    parser.add_argument("--keep", action="store_true", help="add what reaches something new to the corpus")
    parser.add_argument("--build", type=Path, default=BUILD, help="where searches leave what they reach")
    given = parser.parse_args()
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    targets = [TARGETS[name] for name in given.target or TARGETS]
    given.build.mkdir(parents=True, exist_ok=True)
    finds: list[str] = []
    for target in targets:
        begun_s = time.monotonic()
        found = try_target(target, given.build, given.minutes * 60 / len(targets), given.seed)
        took_s = time.monotonic() - begun_s
        if found is None:
            added = f", {keep(target, given.build)} kept" if given.keep else ""
            print(f"{target.name:16} {took_s:5.0f} s  nothing{added}", flush=True)
            continue
        broken, why = found
        finds.append(
            f"{target.name:16} {took_s:5.0f} s  BROKEN: {why}\n"
            f"    tests/fuzz/corpus/{target.name}.txt: {corpora.escape(broken)}"
        )
        print(finds[-1], flush=True)
    if finds:  # once more, where who keeps only the end of what a run printed finds them
        print(f"\n{len(finds)} of {len(targets)} targets are broken:", *finds, sep="\n")
    return 1 if finds else 0


if __name__ == "__main__":
    sys.exit(main())
