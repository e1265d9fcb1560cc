"""The demo's child processes: how they report, keep their connection and end; the producers and the workers.

**Reports** are lines of JSON on standard output, read by the parent (`children`): numbers to add up, and lists of
identities. **A producer** posts one durable message a file and pipelines its sends: when the broker is killed, those
without an answer are *in doubt*. The client posts them again under the same message ids. So a file may be posted twice,
which is honest, visible in the ledger, and harmless: the table at the end keeps one.

**A worker** acquires postings. The order of what it does is what makes it safe, for each message:

1. check the file (`checks`);
2. good: post the forwarded copy and wait until the broker answered *accepted*, which it does after its sync;
3. only then settle the original: *accepted*, or *rejected* with the complaint, which takes it to the dead letter queue.

Where a worker is killed before 3, the broker notices the lost connection and gives the original to another; between 2
and 3, the file is forwarded a second time, as the same message under the same id, and the table keeps one. There is no
point at which a kill can lose the file. The naive worker does the same in mode NO_ACK, and posts bad files to the dead
letter queue by itself, so that what it loses is due to the acknowledgement mode and to nothing else.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections import deque
from pathlib import Path

import acquit
from acquit import AckMode
from acquit.demo.checks import check
from acquit.demo.manifest import Manifest
from acquit.demo.messages import DEAD_LETTERS, FILES, INGEST, forwarded, posting, read

PARENT_GONE = 3
OPTIONS = acquit.ConnectOptions(reconnect=acquit.Reconnect(delay_ms=50, delay_max_ms=500, first_rounds=0))
WINDOW = 32
"""Sends of a producer that have no answer yet, at most."""
BATCH = 8
"""Forwarded together: one wait for the broker's sync pays for all of them."""
PREFETCH = 16
IDLE_S = 0.3
ANSWER_TIMEOUT_S = 30.0
BUSY_S = 0.6
HOLD_S = 60.0


def report(**what: object) -> None:
    """Write a line for the parent, whole and at once: the client tells of its connection on a thread of its own."""
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def obey_parent() -> None:
    """End this process with the parent, whose pipe is its standard input, so that no run leaves children behind."""

    def listen() -> None:
        sys.stdin.read()
        os._exit(PARENT_GONE)  # no clean-up: what this process held must go back to the broker, not be closed in order

    threading.Thread(target=listen, name="parent", daemon=True).start()


def connect(name: str, url: str, sends: deque[acquit.SendReceipt] | None = None) -> acquit.Connection:
    """Connect to the broker, again where it went away. Each loss is reported, and how many `sends` it left in doubt."""

    def tell(event: acquit.ConnectionEvent) -> None:
        if event.kind is acquit.ConnectionEventKind.INTERRUPTED:
            report(reconnects=1, in_doubt=sum(not receipt.done for receipt in list(sends or ())))

    return acquit.connect(url, container_id=name, options=OPTIONS, on_event=tell)


def produce(*, name: str, url: str, manifest: str, index: int, of: int, rate_per_s: float) -> None:
    """Post every `of`-th entry of the manifest, beginning with `index`, at `rate_per_s` at most.

    The rate is there for the spectator: a broker that is killed "in the middle" needs a middle. Time lost to a dead
    broker is not made up for: a burst would be over before the spectator looks again.
    """
    files, interval_s, next_s = Manifest.load(Path(manifest)), 1 / rate_per_s, time.monotonic()
    sends: deque[acquit.SendReceipt] = deque()

    def take_answers(unanswered_max: int) -> None:
        before = len(sends)
        while sends and (len(sends) > unanswered_max or sends[0].done):
            sends[0].result(ANSWER_TIMEOUT_S)
            sends.popleft()
        report(posted=before - len(sends))

    with connect(name, url, sends) as connection, connection.session() as session, session.sender(FILES) as sender:
        for entry in files.entries[index::of]:
            sends.append(sender.send(posting(files, entry), wait=False))
            take_answers(WINDOW - 1)
            next_s = max(next_s + interval_s, time.monotonic() - interval_s)
            time.sleep(max(0.0, next_s - time.monotonic()))
        take_answers(0)


def work(*, name: str, url: str, root: str, naive: bool, hold_at: int | None) -> None:
    """Check, forward and settle what is posted, until SIGTERM comes and no message does.

    After `hold_at` messages it stops exactly between 2 and 3, with more acquired and untouched behind, to be killed.
    """
    finish, handled = threading.Event(), 0
    signal.signal(signal.SIGTERM, lambda number, frame: finish.set())
    with connect(name, url) as connection:
        session = connection.session(AckMode.NO_ACK if naive else AckMode.INDIVIDUAL)
        receiver = session.receiver(FILES, prefetch=PREFETCH)
        ingest, dead_letters = session.sender(INGEST), session.sender(DEAD_LETTERS)
        while (batch := receiver.receive_many(BATCH, timeout=IDLE_S)) or not finish.is_set():
            told: dict[str, list[str]] = {"forwarded": [], "rejected": []}
            sends, settle = [], []
            for message in batch:
                entry, body = read(message)
                complaint = check(Path(root), path=entry.path, sha256=entry.sha256, body=body)
                told["rejected" if complaint else "forwarded"].append(entry.identity)
                if naive or complaint is None:
                    sender = dead_letters if complaint else ingest
                    sends.append(sender.send(forwarded(message), wait=False))
                settle.append((message, complaint))
            for send in sends:
                send.result(ANSWER_TIMEOUT_S)
            handled += len(batch)
            if hold_at is not None and handled >= hold_at:
                hold_at = None
                finish.wait(BUSY_S)  # more arrive in its buffer
                report(held_by_killed_worker=len(batch))
                finish.wait(HOLD_S)
            answers = [
                message.reject(complaint.condition, complaint.description, sync=False)
                if complaint
                else message.accept(sync=False)
                for message, complaint in settle
                if not naive
            ]
            for answer in answers:
                answer.result(ANSWER_TIMEOUT_S)
            report(**told)
