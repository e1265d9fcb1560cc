"""A worker: acquires postings, checks the files they name, forwards what is good, rejects what is not.

The order is what makes it safe. For each message:

1. check the file (`checks`);
2. good: post the forwarded copy and wait until the broker answered *accepted*, which it does after its sync;
3. only then settle the original: *accepted*, or *rejected* with the complaint, which takes it to the dead letter queue.

A worker that is killed before 2 leaves the original acquired: the broker notices the lost connection and gives it to
another. Killed between 2 and 3, the same, and the file is forwarded a second time, as the same message under the same
id; the table keeps one. There is no point at which a kill can lose the file. `hold_at` stops a worker exactly between 2
and 3, with more messages acquired and untouched behind it, and waits there for the kill.

The naive worker does everything the same, on a session in mode NO_ACK: the broker settles each message when it sends
it. Its bad files are posted to the dead letter queue by itself, and forwarding is tried until it is answered, so that
what it loses is due to the acknowledgement mode and to nothing else.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import acquit
from acquit import AckMode
from acquit.demo.checks import Complaint, check
from acquit.demo.manifest import Manifest
from acquit.demo.messages import DEAD_LETTERS, FILES, INGEST, FileFacts, forwarded, read
from acquit.demo.roles import keep_working, obey_parent, report
from acquit.errors import AcquitError

BATCH = 8
"""Forwarded together: one wait for the broker's sync pays for all of them."""
PREFETCH = 16
IDLE_S = 0.3
ANSWER_TIMEOUT_S = 30.0
BUSY_S = 0.6
HOLD_S = 60.0


@dataclass(frozen=True, slots=True)
class _Checked:
    message: acquit.ReceivedMessage
    row: FileFacts
    complaint: Complaint | None


def run(manifest_file: Path, endpoint: Path, *, name: str, naive: bool, hold_at: int | None) -> None:
    """Work until the parent says ``finish`` and nothing comes any more. `hold_at`: see the module's text."""
    finish = obey_parent()
    worker = _NaiveWorker(manifest_file, hold_at) if naive else _FileWorker(manifest_file, hold_at)

    def work(connection: acquit.Connection) -> None:
        worker.begin(connection)
        while True:
            if batch := worker.take_batch():
                worker.handle(batch)
            else:
                report(idle=True)
                if finish.is_set():
                    return

    def lost(why: AcquitError) -> None:
        report(lost=str(why))

    keep_working(endpoint, container_id=name, work=work, lost=lost)
    report(finished=True)


class _FileWorker:
    mode = AckMode.INDIVIDUAL

    def __init__(self, manifest_file: Path, hold_at: int | None) -> None:
        self._manifest = Manifest.load(manifest_file)
        self._hold_at = hold_at
        self._handled = 0

    def begin(self, connection: acquit.Connection) -> None:
        session = connection.session(self.mode)
        self._receiver = session.receiver(FILES, prefetch=PREFETCH)
        self._session = session
        self._ingest = session.sender(INGEST)

    def take_batch(self) -> list[acquit.ReceivedMessage]:
        """Return the messages that are there, `BATCH` at most; empty when none came for `IDLE_S`."""
        batch: list[acquit.ReceivedMessage] = []
        while len(batch) < BATCH:
            message = self._receiver.receive(timeout=0 if batch else IDLE_S)
            if message is None:
                break
            batch.append(message)
        return batch

    def handle(self, batch: Sequence[acquit.ReceivedMessage]) -> None:
        checked = [self._check(message) for message in batch]
        receipts = [
            self._ingest.send(forwarded(one.row, self._manifest.frozen_at_ms), wait=False)
            for one in checked
            if one.complaint is None
        ]
        for receipt in receipts:
            receipt.result(ANSWER_TIMEOUT_S)
        self._handled += len(checked)
        self._hold(checked)
        answers = [
            one.message.accept(sync=False)
            if one.complaint is None
            else one.message.reject(one.complaint.condition, one.complaint.description, sync=False)
            for one in checked
        ]
        for answer in answers:
            answer.result(ANSWER_TIMEOUT_S)
        self._report(checked)

    def _check(self, message: acquit.ReceivedMessage) -> _Checked:
        row = read(message)
        return _Checked(message, row, check(self._manifest, path=row.path, sha256=row.sha256, body=row.head))

    def _hold(self, checked: Sequence[_Checked]) -> None:
        if self._hold_at is None or self._handled < self._hold_at:
            return
        self._hold_at = None
        # Everything of this batch is forwarded or judged, nothing settled. While it is busy, more arrive in its buffer.
        time.sleep(BUSY_S)
        report(holding=len(checked))
        time.sleep(HOLD_S)

    def _report(self, checked: Sequence[_Checked]) -> None:
        report(
            forwarded=[one.row.identity for one in checked if one.complaint is None],
            rejected=[one.row.identity for one in checked if one.complaint is not None],
        )


class _NaiveWorker(_FileWorker):
    mode = AckMode.NO_ACK

    def __init__(self, manifest_file: Path, hold_at: int | None) -> None:
        super().__init__(manifest_file, hold_at)
        self._unsent: deque[_Checked] = deque()

    def begin(self, connection: acquit.Connection) -> None:
        super().begin(connection)
        self._dead_letters = self._session.sender(DEAD_LETTERS)
        self._send_all()

    def handle(self, batch: Sequence[acquit.ReceivedMessage]) -> None:
        checked = [self._check(message) for message in batch]
        self._unsent.extend(checked)
        self._send_all()
        self._handled += len(checked)
        self._hold(checked)
        self._report(checked)

    def _send_all(self) -> None:
        """Forward what is in memory. Kept until it is answered: nobody would deliver it again."""
        receipts = []
        for one in self._unsent:
            sender = self._ingest if one.complaint is None else self._dead_letters
            receipts.append(sender.send(forwarded(one.row, self._manifest.frozen_at_ms), wait=False))
        for receipt in receipts:
            receipt.result(ANSWER_TIMEOUT_S)
            self._unsent.popleft()
