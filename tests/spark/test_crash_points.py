"""The points at which `make spark-crash` kills are there: it runs seldom, and would say so late."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.support.crashing import CRASHES, ROOT, arm, folder_of, passed

PROGRAM = """
import importlib
from tests.support.crashing import CHANGES, CHANGES_IF_TOLD, MUTANTS
changes = [*CHANGES.items(), *CHANGES_IF_TOLD.items(), *MUTANTS.values()]
for name, change in changes:
    module = importlib.import_module(name)
    before = set(vars(module))
    change(module)
    assert set(vars(module)) == before, (name, set(vars(module)) - before)
print(len(changes))
"""


def test_they_are_all_there(tmp_path: Path) -> None:
    command = [sys.executable, "-c", PROGRAM]
    environment = os.environ | {CRASHES: str(tmp_path), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 10


def test_a_worker_that_outlived_its_jvm_leaves_the_point_to_the_next_run(tmp_path: Path) -> None:
    arm(tmp_path, "published", "everything")
    program = f"from tests.support.crashing import *; pass_point(Path({str(folder_of(tmp_path))!r}), 'published')"
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    assert passed(tmp_path, "published") is None
    assert (folder_of(tmp_path) / "published").exists(), "nobody can pass it any more"
