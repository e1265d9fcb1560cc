"""`acquit serve` on a folder whose journal lacks messages that it accounts for: it says so, and a person may go on."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import acquit
from tests.support.served import Served
from tests.unit.ledger.test_recovery import DATA, after_a_loss


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Of three messages of two queues the records are gone; a fourth is there."""
    disk = after_a_loss()
    for path in disk.paths():
        copy = tmp_path / "data" / path.relative_to(DATA)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(disk.content(path))
    return tmp_path


def test_a_loss_is_refused_in_words_and_accepted_by_a_person(folder: Path) -> None:
    data = folder / "data"
    command = [sys.executable, "-m", "acquit", "serve", "--host", "127.0.0.1", "--port", "0", "--data", str(data)]
    refused = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert refused.returncode == 4, refused.stderr
    assert "listening" not in refused.stderr
    assert "Traceback" not in refused.stderr
    assert "--accept-loss" in refused.stderr
    assert "queue-1: " in refused.stderr

    with Served(folder, arguments=["--accept-loss"]) as served:
        (line,) = served.lines("queue-1")
    assert "lost" in str(line)

    with acquit.Broker(data) as broker:  # it is on record, so nothing needs to be accepted any more
        depths = {queue.name: queue.depth for queue in broker.inspect().queues}
    assert (depths["queue-1"], depths["queue-2"]) == (1, 0)
