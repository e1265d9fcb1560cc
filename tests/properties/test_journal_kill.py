"""A real process on a real disk, killed with -9; and a real disk that is full.

That proves nothing about power (see `test_journal_power_loss`), but all about a process that is gone between any two
instructions, and about what the operating system really says.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from acquit.errors import StoreFull
from acquit.ledger.balance import balance
from acquit.ledger.events import EventKind
from acquit.ledger.records import Queue, encode_posting_meta
from acquit.ledger.recovery import close_journal, open_journal, write_now
from acquit.ledger.verify import verify
from acquit.store.options import JournalOptions
from tests.support.journal_writer import OPTIONS, payload_of

ROOT = Path(__file__).resolve().parents[2]


def killed_after(path: Path, lines: int, seed: int) -> list[str]:
    """Run the writer until it has answered so often, kill it, and give all that it had answered."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])}
    command = [sys.executable, "-m", "tests.support.journal_writer", str(path), str(seed)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment, cwd=ROOT) as writer:
        assert writer.stdout is not None
        heard = [writer.stdout.readline() for _ in range(lines)]
        writer.kill()
        heard += writer.stdout.readlines()
    # The last line may have been cut short by the kill: it is no answer.
    return [line for line in heard if line.endswith("\n")]


def test_what_was_answered_survives_kill_9(tmp_path: Path) -> None:
    path = tmp_path / "data"
    posted: set[int] = set()
    accepted: set[int] = set()
    for run, lines in enumerate((3, 400, 1500, 2500)):
        for line in killed_after(path, lines, run):
            what, sequence = line.split()
            (posted if what == "P" else accepted).add(int(sequence))
        assert verify(path).problems == ()
        opened = open_journal(path, OPTIONS, sequence_block=4096)
        live = opened.fold.messages
        assert not accepted & live.keys()
        # The last batch may be there although its answer was not heard; it accepts fewer than 12.
        assert len(posted - accepted - live.keys()) < 12
        for message in live.values():
            assert opened.journal.read(message.position).payload == payload_of(message.sequence)
        assert balance(opened.fold).balanced
        accepted |= posted - live.keys()
        posted |= live.keys()
        opened.journal.close()
    assert len(posted) > 2000
    assert len(opened.journal.segments) > 10


def test_a_small_disk_that_gets_full(tmp_path: Path) -> None:
    path = tmp_path / "small"
    path.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m,mode=700", "acquit-test", str(path)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("mounting a tmpfs is not allowed here")
    try:
        fill_and_resume(path)
    finally:
        subprocess.run(["umount", str(path)], check=True)


def fill_and_resume(path: Path) -> None:
    options = JournalOptions(segment_bytes=256 * 1024, reserve_segments=2, spare_segments=1, retry_ms=0)
    opened = open_journal(path / "data", options)
    recorder, journal = opened.recorder, opened.journal
    recorder.append(Queue(1, 1, "queue", "address"))

    def chores() -> None:
        for _ in range(8):
            chore = journal.take_chore()
            if chore is None:
                return
            chore.run()
            journal.complete_chore(chore)

    posted: dict[int, int] = {}

    def post() -> None:
        sequence = opened.sequences.take(1)
        _, mark = recorder.posted(sequence, 1, bytes(2000), encode_posting_meta(b"address", b""), 1)
        posted[sequence] = mark
        write_now(recorder)
        chores()

    chores()
    while not journal.full:
        post()
    with pytest.raises(StoreFull, match="no postings until there is room"):
        post()
    assert len(posted) > 100
    # Consumers are served from the reserve.
    for sequence in list(posted)[:60]:
        recorder.transition(EventKind.ACCEPTED, sequence, 1, posted.pop(sequence), 1)
        write_now(recorder)
        chores()
    assert journal.full
    # Somebody makes room: service resumes by itself.
    subprocess.run(["mount", "-o", "remount,size=8m", str(path)], check=True)
    chores()
    assert not journal.full
    for _ in range(50):
        post()
    close_journal(recorder, 2)
    again = open_journal(path / "data", options)
    assert again.fold.messages.keys() == posted.keys()
    assert again.run.clean
    again.journal.close()
