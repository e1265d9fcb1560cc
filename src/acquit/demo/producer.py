"""A producer: posts one durable message a file, and goes on until each of them was answered *accepted*.

Sends are pipelined: up to `WINDOW` are without their answer. When the broker is killed, those are *in doubt*: the
broker may have synced them or not, and nobody can tell from here (`DeliveryInDoubt`). The producer posts them again
under the same message id. So a file may be posted twice, which is honest, visible in the ledger, and harmless: both
postings are the same message by identity (see `messages`), and the table at the end keeps one.
"""

from __future__ import annotations

import time
from collections import deque
from pathlib import Path

import acquit
from acquit.demo.manifest import Manifest, ManifestEntry
from acquit.demo.messages import FILES, posting
from acquit.demo.roles import keep_working, obey_parent, report
from acquit.errors import AcquitError, DeliveryInDoubt, EndpointError

WINDOW = 32
ANSWER_TIMEOUT_S = 30.0


def run(manifest_file: Path, endpoint: Path, *, name: str, index: int, of: int, rate_per_s: float) -> None:
    """Post every `of`-th entry, beginning with `index`, at `rate_per_s` at most.

    The rate is there for the spectator: a broker that is killed "in the middle" needs a middle.
    """
    obey_parent()
    manifest = Manifest.load(manifest_file)
    producer = _FileProducer(manifest, manifest.entries[index::of], rate_per_s)
    keep_working(endpoint, container_id=name, work=producer.work, lost=producer.lost)
    report(finished=True)


class _FileProducer:
    def __init__(self, manifest: Manifest, entries: tuple[ManifestEntry, ...], rate_per_s: float) -> None:
        self._manifest = manifest
        self._waiting = deque(entries)
        self._in_flight: deque[tuple[ManifestEntry, acquit.SendReceipt]] = deque()
        self._interval_s = 1.0 / rate_per_s
        self._next_s = time.monotonic()

    def work(self, connection: acquit.Connection) -> None:
        with connection.session() as session, session.sender(FILES) as sender:
            while self._waiting or self._in_flight:
                while self._waiting and len(self._in_flight) < WINDOW:
                    receipt = sender.send(posting(self._manifest, self._waiting[0]), wait=False)
                    self._in_flight.append((self._waiting.popleft(), receipt))
                    self._pace()
                report(posted=self._take_answers())

    def lost(self, why: AcquitError) -> None:
        """Sort what had no answer yet: answered after all, or in doubt and to be posted again."""
        answered = 0
        again = []
        for entry, receipt in self._in_flight:
            try:
                receipt.result(0)
                answered += 1
            except (DeliveryInDoubt, EndpointError):
                again.append(entry)
        self._in_flight.clear()
        self._waiting.extendleft(reversed(again))
        report(posted=answered, in_doubt=len(again), lost=str(why))

    def _take_answers(self) -> int:
        """Wait for the oldest answer, and take all that are there. Raises DeliveryInDoubt when one will never come."""
        count = 0
        while self._in_flight and (count == 0 or self._in_flight[0][1].done):
            self._in_flight[0][1].result(ANSWER_TIMEOUT_S)
            self._in_flight.popleft()
            count += 1
        return count

    def _pace(self) -> None:
        # Time lost to a dead broker is not made up for: a burst would be over before the spectator looks again.
        self._next_s = max(self._next_s + self._interval_s, time.monotonic() - self._interval_s)
        if (ahead_s := self._next_s - time.monotonic()) > 0:
            time.sleep(ahead_s)
