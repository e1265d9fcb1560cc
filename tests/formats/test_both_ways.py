"""Clients and brokers of other versions: each end does with the other what both of them know.

The other end is made of the sources of its day, which the repository has.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.formats.keep import HERE, put_aside

pytestmark = [pytest.mark.promise("formats"), pytest.mark.slow]


@pytest.mark.parametrize("old", ["client", "broker"])
@pytest.mark.parametrize(("commit", "since"), [("365c0bb", "first"), ("ff9a46e", "later")], ids=["first", "topics"])
def test_another_version_at_the_other_end(tmp_path: Path, commit: str, since: str, old: str) -> None:
    try:
        put_aside(commit, tmp_path)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("its sources are not here: no repository, or a shallow clone")
    now, then = dict(os.environ), {**os.environ, "PYTHONPATH": str(tmp_path / "src")}
    server = start(["serve", str(tmp_path / "data"), since], then if old == "broker" else now)
    try:
        assert server.stdout is not None
        client = start(["talk", server.stdout.readline().strip(), since], then if old == "client" else now)
        said, _ = client.communicate(timeout=100)
        assert client.returncode == 0
        assert len(json.loads(said)) == 9
    finally:
        server.communicate(timeout=30)
    assert server.returncode == 0


def start(words: list[str], environment: Mapping[str, str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(HERE / "write.py"), *words],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
