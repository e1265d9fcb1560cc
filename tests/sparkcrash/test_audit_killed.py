"""The audit in a real Spark, killed with -9: its driver when all is written and nothing committed, or workers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from acquit.spark.audit.log import AuditLog
from tests.support.audited import all_of, audited, until
from tests.support.ledger_folder import grow

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = """
import os, signal, sys
from pathlib import Path
from acquit.spark.audit import AuditOptions, audit

data, into, what = sys.argv[1:]
killed = []

def workers():
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                pass
    found = [os.getpid()]
    for process in found:
        found += [child for child, parent in parents.items() if parent == process]
    # Of Python below the JVM the first is the daemon, which the others are children of.
    named = [process for process in found[1:] if b"pyspark.daemon" in Path(f"/proc/{process}/cmdline").read_bytes()]
    return [process for process in named if parents[process] in named]

def told(progress):
    if what == "workers":
        if not killed:
            for process in workers():
                os.kill(process, signal.SIGKILL)
                killed.append(process)
    elif progress.stage == what:
        os.kill(os.getpid(), signal.SIGKILL)

options = AuditOptions(folders=[Path(data)], into=Path(into), master="local[2,4]", memory_mb=512)
summary = audit(options, on_progress=told)
assert killed and summary.changed
"""


@pytest.mark.parametrize("what", ["explaining", "committing", "workers"])
def test_killed(tmp_path: Path, what: str) -> None:
    folder = grow(tmp_path / "data", left=8)
    into = tmp_path / "into"
    audited([until(folder.path, tmp_path / "first", 3)], into)
    before = all_of(into)
    audited([folder.path], tmp_path / "whole")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])}
    command = [sys.executable, "-c", PROGRAM, str(folder.path), str(into), what]
    ended = subprocess.run(command, env=environment, check=False, capture_output=True, text=True, timeout=300)
    if what == "workers":
        assert ended.returncode == 0, ended.stderr
    else:
        assert ended.returncode == -9, ended.stderr
        assert all_of(into) == before
        assert audited([folder.path], into).changed
    assert all_of(into) == all_of(tmp_path / "whole")
    assert {f"runs/{path.name}" for path in (into / "runs").iterdir()} == {e.run for e in AuditLog(into).entries()}
