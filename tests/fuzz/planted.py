"""Mistakes of the kinds that the search is for, planted one at a time in a copy of the sources: when is each found?

    python -m tests.fuzz.planted [--seconds 120]

Prints a line for each: after how many seconds the search found it (0: the replay of seeds and corpus that it begins
with), or that it did not; the exit code says whether all were found. The search begins from the corpus of the tree
alone, with a fixed seed.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import acquit

SOURCES = Path(acquit.__file__).parents[1]
ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Mistake:
    """A text in a module, and what stands there instead."""

    kind: str
    target: str
    module: str
    right: str
    wrong: str


MISTAKES = (
    Mistake(
        "an unchecked length: a string that ends behind its input",
        "value",
        "protocol/_decoder.py",
        'raise DecodeError(f"a value ends at offset {next_offset}, past the end at {end}")',
        "pass",
    ),
    Mistake(
        "an unchecked length: a side field of a record",
        "entry",
        "ledger/fields.py",
        "if end > len(self.data):",
        "if end > len(self.data) + 4:",
    ),
    Mistake(
        "a quadratic loop: the sections of a body",
        "sections",
        "protocol/sections.py",
        "            rank, widths = form\n",
        "            rank, widths = form\n            for _ in range(offset):\n                pass\n",
    ),
    Mistake(
        "a missing depth limit",
        "value",
        "protocol/_decoder.py",
        "        if self.depth_left < 0:",
        "        if self.depth_left < -100_000:",
    ),
    Mistake(
        "an exception of the wrong class: a struct.error for a ValueError",
        "small",
        "store/segment.py",
        "if len(meta) != _LEFT.size:",
        "if len(meta) > _LEFT.size:",
    ),
    Mistake(
        "an exception of the wrong class: a selector's number out of range",
        "selector",
        "broker/selector/lexer.py",
        "except OverflowError:",
        "except ZeroDivisionError:",
    ),
    Mistake(
        "a short way that differs: a user-id is overlooked",
        "posting",
        "broker/intake/templates.py",
        "    if not posting.plain or posting.user_id is not None:\n",
        "    if not posting.plain:\n",
    ),
    Mistake(
        "a short way that differs: the fast path does not look at the end of a disposition",
        "fast_path",
        "protocol/fastpath.py",
        "if between != layout.between or tail != layout.tail:",
        "if between != layout.between:",
    ),
    Mistake(
        "a short way that differs: rows as arrays",
        "rows",
        "spark/plain.py",
        "(sequences > 0) &",
        "(sequences >= 0) &",
    ),
    Mistake(
        "a short way that differs: bodies many at once",
        "body",
        "spark/json_columns.py",
        "            data.decode()\n",
        "",
    ),
    Mistake(
        "a record accepted with a wrong checksum",
        "record",
        "store/record.py",
        " else crc32(data[4:meta_end], payload_crc) != crc:",
        " else payload_bytes < 0:",
    ),
    Mistake(
        "a payload accepted with a wrong checksum",
        "record",
        "store/record.py",
        "    return payload if crc32(data[offset + 4 : payload_at], payload_crc) == crc else None",
        "    return payload",
    ),
    Mistake(
        "a batch accepted with a wrong checksum",
        "segment",
        "store/record.py",
        "crc32(data[8:64], crc32(memoryview(data)[64:])) == head.crc",
        'data[8:64] != b""',
    ),
    Mistake(
        "a spool entry accepted with a wrong checksum",
        "spool_entry",
        "spark/spool/entries.py",
        "if sha256(body).digest() != data[-_DIGEST_BYTES:]:",
        "if len(data) < _DIGEST_BYTES:",
    ),
    Mistake(
        "a login that asks for no password",
        "sasl_server",
        "broker/access/users.py",
        "return name if matches and known and acts_as_itself else None",
        "return name if known and acts_as_itself else None",
    ),
    Mistake(
        "a server believed that proves nothing",
        "sasl_client",
        "client/scram.py",
        "            if not additional_data:\n",
        "            if additional_data is None:\n                return\n            if not additional_data:\n",
    ),
)


def try_mistake(mistake: Mistake, seconds: int) -> str | None:
    """How it was found; None: it was not."""
    with tempfile.TemporaryDirectory() as folder:
        sources = Path(folder) / "src"
        shutil.copytree(SOURCES, sources, ignore=shutil.ignore_patterns("__pycache__"))
        path = sources / "acquit" / mistake.module
        text = path.read_text()
        assert text.count(mistake.right) == 1, f"{mistake.module}: {mistake.right!r} is not there once"
        path.write_text(text.replace(mistake.right, mistake.wrong))
        environment = {**os.environ, "PYTHONPATH": f"{sources}{os.pathsep}{ROOT}"}
        command = [sys.executable, "-m", "tests.fuzz", "--target", mistake.target, "--seed", "1"]
        command += ["--minutes", str(seconds / 60), "--build", f"{folder}/build"]
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return None
    line = next((line for line in done.stdout.splitlines() if "BROKEN" in line), done.stderr[-500:])
    took, _, found = line.removeprefix(mistake.target).partition("BROKEN: ")
    return f"{took.strip():>5}  {found}" if found else f"FAILED OTHERWISE: {line}"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.planted", description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=int, default=120, help="for each")
    parser.add_argument("--target", help="those in this one alone")
    given = parser.parse_args()
    missed = 0
    for mistake in MISTAKES:
        if given.target not in (None, mistake.target):
            continue
        found = try_mistake(mistake, given.seconds)
        missed += found is None
        print(f"{mistake.target:12} {found or 'NOT FOUND'}: {mistake.kind}", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
