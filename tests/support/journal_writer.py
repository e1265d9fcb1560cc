"""A process that writes a journal until it is killed, and says what it was answered.

    python -m tests.support.journal_writer FOLDER SEED

A line for each message whose posting (``P``) or acceptance (``A``) is synced, and only then.
"""

from __future__ import annotations

import random
import sys
import time
from pathlib import Path

from acquit.ledger.events import EventKind
from acquit.ledger.records import Queue, encode_id, encode_posting_meta
from acquit.ledger.recovery import open_journal
from acquit.store.options import JournalOptions

OPTIONS = JournalOptions(segment_bytes=256 * 1024, reserve_segments=1, spare_segments=1)
QUEUE = 1


def payload_of(sequence: int) -> bytes:
    """What the message with this sequence says."""
    return random.Random(sequence).randbytes(sequence * 7919 % 3000)


def main(path: Path, seed: int) -> None:
    """Write for ever."""
    rng = random.Random(seed)
    opened = open_journal(path, OPTIONS, sequence_block=4096)
    recorder, journal = opened.recorder, opened.journal
    if QUEUE not in opened.fold.table.queues:
        recorder.append(Queue(1, QUEUE, "queue", "address"))
    live = {sequence: message.fingerprint for sequence, message in opened.fold.messages.items()}
    while True:
        now_us = time.time_ns() // 1000
        answers = []
        for sequence in rng.sample(sorted(live), k=min(len(live), rng.randrange(12))):
            recorder.transition(EventKind.ACCEPTED, sequence, QUEUE, live.pop(sequence), now_us)
            answers.append(f"A {sequence}\n")
        for _ in range(rng.randrange(1, 12)):
            sequence = opened.sequences.take(now_us)
            meta = encode_posting_meta(b"address", encode_id(sequence))
            live[sequence] = recorder.posted(sequence, QUEUE, payload_of(sequence), meta, now_us)[1]
            answers.append(f"P {sequence}\n")
        batch = recorder.take_batch()
        assert batch is not None
        batch.write_and_sync(lambda: sys.stdout.write("".join(answers)) and sys.stdout.flush())  # noqa: B023
        journal.complete(batch)
        chore = journal.take_chore()
        if chore is not None:
            chore.run()
            journal.complete_chore(chore)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
