"""The driver's side of the source: when a batch begins, what its tasks do, when its files may go.

An *epoch* is one batch of the source; the offset is its number and the number of parts, ``{"epoch": 40, "parts": 2}``,
and nothing else: what an epoch contains is decided by its tasks, in the spool. Epochs count from 1, each batch is
exactly the next one.

**When there is something to read.** An acquit broker says how many messages are available, so an idle query makes no
batches. Other brokers do not say without handing messages out: there an epoch may turn out empty, and after an empty
one the next waits, twice as long each time.

**AvailableNow** ends at what was there when it began: on an acquit broker, at the sequence that was the last one then;
elsewhere when every part of an epoch came to the end of the queue.

**Refusals.** An offset whose epoch is finished in the spool is from an older checkpoint; an offset that says there were
epochs while the spool holds none means that the spool was lost or is another one. Both stop the query, because going on
would lose or double.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias
from uuid import UUID

from acquit.errors import SpoolDamaged, SpoolFenced
from acquit.spark.source_options import SourceOptions
from acquit.spark.spool import LogState, Part, Spool

Offset: TypeAlias = Mapping[str, int]

_BACKOFF_FIRST_S: Final = 0.1
_BACKOFF_MAX_S: Final = 5.0


class Probe(Protocol):
    """What the driver can ask about the queue (`spark.link.QueueProbe`)."""

    broker_id: UUID | None

    def available(self) -> int | None:
        """How many messages are available; None where the broker does not tell."""

    def last_sequence(self) -> int | None:
        """The highest sequence given so far; None where the broker does not tell."""

    def close(self) -> None:
        """Let the connection go."""


@dataclass(frozen=True, slots=True)
class PlannedPart:
    """What the driver gives a task: its part, and the nonce of the plan that it must find in the spool."""

    part: Part
    plan: str


class Driver:
    """One for each run of a query, in the process that Spark keeps for the source. `clock` is in seconds."""

    def __init__(
        self, options: SourceOptions, spool: Spool, probe: Probe, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._options = options
        self._spool = spool
        self._probe = probe
        self._clock = clock
        self._available_now = False
        self._until_sequence: int | None = None
        self._begun = -1
        """The newest epoch that this run has begun. How older ones ended says nothing about what there is now."""
        self._rows_max = options.max_messages_per_batch
        self._idle_until = 0.0
        self._backoff_s = _BACKOFF_FIRST_S
        self._backed_off_for = 0
        self._probed_store = False

    def initial_offset(self) -> Offset:
        """Before the first epoch."""
        return {"epoch": 0, "parts": self._options.parts}

    def begin_available_now(self) -> None:
        """From now on read what is there now, and then end."""
        self._available_now = True
        self._until_sequence = self._probe.last_sequence()

    def latest_offset(self, start: Offset, rows_max: int | None) -> Offset:
        """The next epoch, or `start` when there is nothing to read. `rows_max` of None lifts `maxMessagesPerBatch`."""
        self._open()
        self._refuse_lost(start["epoch"])
        state = self._spool.state()
        # Without a limit in messages the one in bytes still holds: nothing here is unbounded.
        self._rows_max = rows_max if rows_max is not None else self._options.max_bytes_per_batch
        if not self._worth_reading(start["epoch"], state):
            return start
        self._begun = start["epoch"] + 1
        return {"epoch": self._begun, "parts": self._options.parts}

    def partitions(self, start: Offset, end: Offset) -> Sequence[PlannedPart]:
        """The tasks of the batch that ends at `end`. May be for an epoch that an earlier run has planned."""
        epoch, parts = end["epoch"], end["parts"]
        if epoch == start["epoch"]:
            return []
        self._open()
        self._refuse_lost(start["epoch"])
        state = self._spool.state()
        if epoch <= state.floor:
            raise SpoolFenced(
                f"spool {self._spool.place}: epoch {epoch} is finished (the floor is {state.floor}): the checkpoint is "
                "older than the spool. Restore the newer checkpoint, or start a new query with a new checkpoint and a "
                "new spool"
            )
        plan = self._spool.plan(epoch)
        return [
            PlannedPart(
                Part(
                    epoch=epoch,
                    part=part,
                    rows_max=_share(self._rows_max, part, parts),
                    bytes_max=_share(self._options.max_bytes_per_batch, part, parts),
                    until_sequence=self._until_sequence,
                    poison=self._options.poison,
                    missing_identity=self._options.missing_identity,
                ),
                plan,
            )
            for part in range(parts)
        ]

    def commit(self, end: Offset) -> None:
        """Spark will not ask for `end` or anything before it again."""
        self._spool.finish(end["epoch"])

    def stop(self) -> None:
        """The query has ended."""
        self._probe.close()

    def _open(self) -> None:
        if not self._probed_store:
            self._spool.prove()
            self._probed_store = True

    def _refuse_lost(self, started: int) -> None:
        if started > 0 and self._spool.untouched():
            raise SpoolDamaged(
                f"spool {self._spool.place} is empty, but the checkpoint is at epoch {started}: the spool was lost, or "
                "`spool` names another folder. Name the old one; or, if it is gone for good, start a new query with a "
                "new checkpoint: messages that were taken and not yet acknowledged may then appear twice"
            )

    def _worth_reading(self, done: int, state: LogState) -> bool:
        """Whether the epoch after `done` is worth a batch."""
        # What the epoch before came to; empty when nobody read the batch.
        last = [one for key, one in state.decided.items() if key[0] == done]
        if self._available_now and done == self._begun and all(one.ended for one in last):
            return False
        available = self._probe.available()
        if available is not None:
            return available > 0
        if self._available_now:
            return True
        if done == self._begun and not any(
            one.totals.rows or one.totals.set_aside or one.totals.rejected for one in last
        ):
            return self._waited_long_enough(done)
        self._backoff_s = _BACKOFF_FIRST_S
        return True

    def _waited_long_enough(self, done: int) -> bool:
        """After an empty epoch on a broker that does not tell."""
        now = self._clock()
        if self._backed_off_for != done:
            self._backed_off_for = done
            self._idle_until = now + self._backoff_s
            self._backoff_s = min(2 * self._backoff_s, _BACKOFF_MAX_S)
        return now >= self._idle_until


def _share(total: int, part: int, parts: int) -> int:
    """An even share, at least 1."""
    return max(1, total // parts + (part < total % parts))
