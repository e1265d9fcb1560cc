"""Each script of benchmarks/ runs: who wants to measure what we say finds no script that is older than the product.

In their short forms, as `make bench` runs them, and what they say of speed is not looked at. Those of Spark
and of the client take minutes (`make bench`); `bench_peers` has tests of its own (`test_load_generator`).
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.support.pages import ROOT

SCRIPTS: Final = sorted(path.name for path in (ROOT / "benchmarks").glob("bench_*.py"))
ELSEWHERE: Final = {
    "bench_audit.py",
    "bench_client.py",
    "bench_ledger_source.py",
    "bench_peers.py",
    "bench_spark_ingest.py",
    "bench_spark_replay.py",
    "bench_spark_sink.py",
    "bench_spark_sizing.py",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in SCRIPTS if name not in ELSEWHERE])
def test_it_runs_in_its_short_form(name: str, tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "benchmarks" / name), "--short"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[-2_000:]
    assert done.stdout


def test_who_is_tried_elsewhere_is_there() -> None:
    assert set(SCRIPTS) > ELSEWHERE
