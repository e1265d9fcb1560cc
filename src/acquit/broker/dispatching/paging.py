"""Runs of what was parked: a block of a deep queue is read from the journal, and handed out together.

A message that waits in the middle of a deep queue is a row of numbers (`broker.parking`), and the bodies are in the
journal. Most of such messages are alike, as those of one sender are, and follow one another: then nobody need make an
object of each. What stands next is read in one piece and, if one `Template` fits all of it, becomes a `MessageRun`,
which knows where the records are and when each message was posted. While one is handed out the next one is read.

Nothing changes until the payloads are there. What does not make a run becomes single messages with their bodies, as it
would have if each had been read by itself; so does all of a queue where somebody looks at each message (a browser, a
last value, a redelivery that is waited for).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, cast

from acquit.broker.dispatching.backlog import RUNS_AHEAD
from acquit.broker.intake.shaping import read_posting
from acquit.broker.intake.templates import learn_template
from acquit.broker.memory import BESIDE_BODY_BYTES, Reads, restore_body
from acquit.broker.message_run import MessageRun, Recorded
from acquit.broker.queue import NodeState
from acquit.errors import DecodeError
from acquit.protocol.rope import ROPE_MIN

if TYPE_CHECKING:
    from array import array
    from collections.abc import Sequence

    from acquit.broker.intake.templates import Template
    from acquit.broker.life import Life
    from acquit.broker.nodes.node import Queue
    from acquit.store.interface import Position


class Paging:
    """Reads blocks of parked messages."""

    def __init__(self, life: Life) -> None:
        self._life = life
        self._memory = life.memory
        self._parking = life.parking
        self._latest: Template | None = None
        """Template of the last run."""
        self._coming: set[Queue] = set()
        """Queues of which a block is being read."""
        self._unfit: array[int] | None = None
        """The last block that made no run: it is not looked at again each time that one of a run before it is given."""

    def waits(self, queue: Queue) -> bool:
        """Read on. True if the next message of a queue comes in a run that is being read; False if it is there, or is
        to come by itself."""
        run, block = queue.backlog.next_run(), queue.backlog.next_block()
        if block is None or (queue not in self._coming and not self._read(queue, block)):
            return False
        queue.reading = run is None
        return queue.reading

    def _read(self, queue: Queue, block: array[int]) -> bool:
        """Read the next block, if it may become a run; False if it may not."""
        priority = queue.backlog.priority_of(block)
        if block is self._unfit or priority is None or not _may_be_together(queue):
            return False
        sequences = self._parking.rows.beginning(block)
        stretch = self._parking.stretch(sequences, priority)
        if stretch is None:
            self._unfit = block
            return False
        sizes = [fingerprint >> 32 for fingerprint in stretch.fingerprints]
        count, bytes_max = len(sizes), self._memory.read_ahead_bytes // RUNS_AHEAD
        if sum(sizes) > bytes_max:
            count = max(1, bytes_max // max(sizes))
        if count < self._parking.sizes.run or max(sizes) >= ROPE_MIN:  # large ones are not sent together
            self._unfit = block
            return False
        positions = cast("Sequence[Position]", stretch.positions[:count])
        hints = [size + BESIDE_BODY_BYTES for size in sizes[:count]]
        self._coming.add(queue)
        self._memory.want_together(Reads([], positions, hints, partial(self._loaded, queue, block, sequences[:count])))
        return True

    def _loaded(self, queue: Queue, block: array[int], sequences: range, payloads: Sequence[bytes | None]) -> None:
        """The payloads of the first messages of a block are here; None in the place of one that was not there."""
        self._coming.discard(queue)
        queue.reading = False
        self._life.wake(queue)
        backlog = queue.backlog
        priority = backlog.priority_of(block)
        if priority is None:
            return  # they were taken meanwhile, as single ones
        run = self._run(queue, sequences, priority, payloads)
        if run is not None:
            self._parking.leave_out(queue, sequences)
            self._memory.hold_run(run)
            self._life.add_run(run)
            backlog.replace(block, len(sequences), run)
            return
        messages = self._parking.objects(sequences)
        backlog.replace(block, len(sequences), messages)
        for message in messages:
            payload = payloads[message.sequence - sequences[0]]
            if message.body is None and payload is not None and message.state is NodeState.AVAILABLE:
                message.body = restore_body(message, payload)
                self._memory.hold(message)

    def _run(
        self, queue: Queue, sequences: range, priority: int, payloads: Sequence[bytes | None]
    ) -> MessageRun | None:
        """Return the run that these messages make; None where they make none."""
        found = [payload for payload in payloads if payload is not None]
        stretch = self._parking.stretch(sequences, priority)
        if stretch is None or len(found) < len(sequences) or not _may_be_together(queue):
            return None
        template = self._template(found)
        if template is None or template.priority != priority or (template.marked and queue.policy.message_groups):
            return None
        positions, fingerprints, times_us = stretch
        at_once = times_us[0] == times_us[-1] and list(times_us).count(times_us[0]) == len(times_us)
        sizes = list(map(len, found))
        run = MessageRun(
            queue,
            sequences,
            template,
            template.rests(found),
            sum(sizes),
            max(sizes),
            times_us[0],
            Recorded(self._life, positions, fingerprints),
            () if at_once else times_us,
        )
        run.pending = False
        return run

    def _template(self, payloads: Sequence[bytes]) -> Template | None:
        """Return the template that fits all of these; None for none."""
        if self._latest is None or not _fits(self._latest, payloads):
            try:
                self._latest = learn_template(read_posting(payloads[0]))
            except DecodeError:  # whatever was let in, it must not stop a queue
                return None
            if self._latest is None or not _fits(self._latest, payloads):
                return None
        return self._latest


def _fits(template: Template, payloads: Sequence[bytes]) -> bool:
    """Return whether messages are alike, whatever ids to detect duplicates by they have."""
    return template.fits_all(payloads) or template.identified_all(payloads) is not None


def _may_be_together(queue: Queue) -> bool:
    """Return whether nobody looks at each message of a queue before it is handed out. A browser that never had credit,
    as one that only asks how many there are, has looked at none."""
    if queue.delayed or queue.groups is not None or queue.values is not None:
        return False
    return not any(browser.started for browser in queue.browsers)


__all__ = ["Paging"]
