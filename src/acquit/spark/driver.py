"""The driver's side of the source: when a batch begins, what its tasks do, when its files may go.

An *epoch* is one batch of the source; the offset is its number and the number of parts, ``{"epoch": 40, "parts": 2}``:
what an epoch contains is decided by its tasks, in the spool. Epochs count from 1, each batch is exactly the next one.
An offset also has the number of the source that made it, which every later one repeats: by it a spool is refused to a
second source (`spool.owner`), and with the number of its plan.

**When there is something to read.** An acquit broker says how many messages are available, so an idle query makes no
batches. Other brokers do not say without handing messages out, and no broker says how many a selector selects: there an
epoch may turn out empty, and a queue that gave nothing is left alone for a while, twice as long each time.

**An idle query** is asked again 10 ms after it said that there is nothing, for ever. So the answer waits: longer each
time, up to a quarter of a second, which is how long the first message after a pause may wait for its batch.

**Several addresses.** A part reads one address. An epoch has a part for each address that is worth reading, and more,
up to `parts`, where most lies (`spread`). Which address a part reads is decided anew whenever tasks are planned,
because nothing depends on it: an attempt that read another queue for the same part has lost like any other, and gives
back.

**AvailableNow** ends at what was there when it began: on an acquit broker, at the sequence that was the last one then
(of the whole broker, so it serves all addresses). An address is at its end when every part that read it in an epoch
came to the end of the queue or met what is newer, and the broker, asked then, has nothing older any more. If it has,
then that is behind newer messages of a higher priority (or a task that lost has given it back), and from then on the
address is read with a selector that leaves out what is newer. Where that gives nothing, what there is belongs to
somebody else, as groups do. Elsewhere an address is at its end when every part that read it came to the end of the
queue. What an earlier run has published says nothing about the end.

**Refusals.** An offset whose epoch is finished in the spool is from an older checkpoint; an offset that says there were
epochs while the spool holds none, or has finished fewer, means that the spool was lost, or is another one or an older
one. All of them stop the query, because going on would lose or double. So that there is something to miss, the plan of
each epoch is in the spool, durably, before Spark knows of the epoch, and the offset has the plan's number: when Spark
asks for an epoch again whose plan is not there, what its tasks took may have been published in the spool that is gone.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias
from uuid import uuid4

from acquit.errors import SpoolDamaged, SpoolFenced
from acquit.spark.metrics import SourceMetrics
from acquit.spark.source_options import MESSAGES_MAX, SourceOptions
from acquit.spark.spool import HeldFiles, LogState, Part, Spool

logger = logging.getLogger("acquit.spark")

Offset: TypeAlias = Mapping[str, int]

_BACKOFF_FIRST_S: Final = 0.1
_BACKOFF_MAX_S: Final = 5.0
_IDLE_FIRST_S: Final = 0.01
_IDLE_MAX_S: Final = 0.25
_WEIGHED_FOR_S: Final = 5.0
_SOURCE_SHIFT: Final = 96
"""The number of a source, and of a plan, is 32 bits of a uuid."""
_IF_GONE: Final = (
    "if it is gone for good, start a new query with a new checkpoint and a new spool: messages that were taken and not "
    "yet acknowledged may then appear twice, and what an epoch took that is not in the table is lost"
)


class Probe(Protocol):
    """Questions that the driver can ask about the queues; `spark.link.QueueProbe` answers them."""

    def available(self, address: str) -> int | None:
        """Return the number of messages available, selected or not; None where the broker does not tell."""

    def last_sequence(self) -> int | None:
        """The highest sequence given so far; None where the broker does not tell."""

    def older(self, address: str, until: int) -> bool:
        """True if a message with a sequence up to `until` is available. For a broker that tells the last sequence."""

    def close(self) -> None:
        """Let the connection go."""


@dataclass(frozen=True, slots=True)
class PlannedPart:
    """Work of one task: its part, the queue that it reads, and the nonce of the plan that it must find in the spool."""

    part: Part
    address: str
    plan: str
    run: str
    """Identity of the query's run. A process does not rely on what it learned of the spool in another run."""
    only_until: int | None = None
    """The broker is asked for nothing beyond this sequence."""
    source: int | None = None
    """The number of the source; None where the offset is from before there were any."""


@dataclass(slots=True)
class _Patience:
    """Back-off for an address that may have nothing."""

    pause_s: float = _BACKOFF_FIRST_S
    idle_until: float = 0.0
    vain: int = 0
    """Messages available when none was handed out: others have a right to them, as to those of a group."""

    def wait(self, now: float, depth: int | None) -> None:
        """Leave the address alone, longer each time, as it handed out none of `depth` messages."""
        self.vain = depth or 0
        self.idle_until = now + self.pause_s
        self.pause_s = min(2 * self.pause_s, _BACKOFF_MAX_S)

    def end(self) -> None:
        """Reset the back-off, as the address handed out something."""
        self.pause_s, self.idle_until, self.vain = _BACKOFF_FIRST_S, 0.0, 0


class StreamDriver:
    """Planner of epochs in a run of a query, in the process that Spark keeps for the source. `clock` is in seconds."""

    def __init__(
        self,
        options: SourceOptions,
        spool: Spool,
        probe: Probe,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._options = options
        self._spool = spool
        self._probe = probe
        self._clock = clock
        self._sleep = sleep
        self._idle_s = _IDLE_FIRST_S
        """Seconds that the next answer waits if it says that there is nothing to read."""
        self._run = uuid4().hex
        self._available_now = False
        self._until_sequence: int | None = None
        self._begun = -1
        """The newest epoch that this run has begun. How older ones ended says nothing about what there is now."""
        self._assigned: Sequence[str] = ()
        """The address of each part of that epoch."""
        self._judged = -1
        self._patience = {address: _Patience() for address in options.queues}
        self._ended: set[str] = set()
        """Addresses that an AvailableNow run has read to their end."""
        self._behind: set[str] = set()
        """Addresses where what it wants was behind newer messages."""
        self._depths: Mapping[str, int | None] = dict.fromkeys(options.queues)
        self._rows_max = options.max_messages_per_batch
        self._probed_store = False
        self._published: dict[int, int] = {}
        """Epochs that the spool holds as this run begins, and how many parts each had: a query that takes a spool over
        from a lost one must give them out before anything else."""
        self._stale = 0
        self._held: HeldFiles | None = None
        self._weighed = LogState(decided={})
        self._unacknowledged = 0
        self._weighed_until = 0.0
        self._weighed_for = -1

    def initial_offset(self) -> Offset:
        """Return the offset before the first epoch."""
        return {"epoch": self._spool.begins_after(), "parts": self._options.parts}

    def begin_available_now(self) -> None:
        """Read from now on only what is there now, and then end."""
        self._available_now = True
        self._until_sequence = self._probe.last_sequence()

    def latest_offset(self, start: Offset, rows_max: int | None) -> Offset:
        """The next epoch, or `start` when there is nothing to read. `rows_max` of None lifts `maxMessagesPerBatch`."""
        self._open(start["epoch"], start.get("source"), planned=False)
        # Without a limit in messages the one in bytes still holds: nothing here is unbounded.
        self._rows_max = rows_max if rows_max is not None else min(self._options.max_bytes_per_batch, MESSAGES_MAX)
        depths = self._worth_reading(start["epoch"])
        epoch = start["epoch"] + 1
        held = self._published.get(epoch, 0)
        if not depths and not held:
            if self._available_now:
                # The run is over, and Spark kills this process before it would be told to stop.
                self._probe.close()
            else:
                self._sleep(self._idle_s)
                self._idle_s = min(2 * self._idle_s, _IDLE_MAX_S)
            return start
        self._idle_s = _IDLE_FIRST_S
        plan = uuid4().int >> _SOURCE_SHIFT
        self._spool.plan(epoch, _plan_name(plan), durable=True)
        self._begun = epoch
        self._assigned = spread(depths or dict.fromkeys(self._options.queues), max(self._options.parts, held))
        source = start.get("source") or uuid4().int >> _SOURCE_SHIFT
        return {"epoch": self._begun, "parts": len(self._assigned), "source": source, "plan": plan}

    def partitions(self, start: Offset, end: Offset) -> Sequence[PlannedPart]:
        """The tasks of the batch that ends at `end`. May be for an epoch that an earlier run has planned."""
        epoch, parts = end["epoch"], end["parts"]
        if epoch == start["epoch"]:
            return []
        self._open(start["epoch"], end.get("source"), planned=True)
        state = self._spool.state()
        self._refuse_lost(start["epoch"], state, begun=epoch)
        if epoch <= state.floor:
            raise SpoolFenced(
                f"spool {self._spool.place}: epoch {epoch} is finished (the floor is {state.floor}): the checkpoint is "
                "older than the spool. Restore the newer checkpoint, or start a new query with a new checkpoint and a "
                "new spool"
            )
        plan = self._plan_of(end)
        if state.floor < start["epoch"]:  # Spark was killed before it could say that it is done
            self.commit(start)
        queues = self._options.queues if epoch != self._begun else self._assigned
        addresses = [queues[part % len(queues)] for part in range(parts)]
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
                address,
                plan,
                self._run,
                self._until_sequence if address in self._behind else None,
                end.get("source"),
            )
            for part, address in enumerate(addresses)
        ]

    def commit(self, end: Offset) -> None:
        """Spark will not ask for `end` or anything before it again."""
        self._stale += self._spool.stale(end["epoch"])
        self._spool.finish(end["epoch"])

    def report(self) -> SourceMetrics:
        """Return the metrics that are known now. The spool is read again when an epoch begins or has ended, and
        otherwise only after a while: idle queries ask often."""
        now = self._clock()
        if self._held is None or now >= self._weighed_until or self._weighed_for != self._begun:
            self._weighed_until, self._weighed_for = now + _WEIGHED_FOR_S, self._begun
            self._held = self._spool.held()
            self._weighed = self._spool.state()
            self._unacknowledged = self._spool.unacknowledged(self._weighed)
        state = self._weighed
        return SourceMetrics(
            broker=self._options.url,
            queues=list(self._options.queues),
            epoch=max(self._begun, state.floor, max((epoch for epoch, _ in state.decided), default=0)),
            rows=state.totals.rows,
            set_aside=state.totals.set_aside,
            poison=state.totals.corrupt + state.totals.rejected,
            rejected=state.totals.rejected,
            conflicts=state.totals.conflicts,
            unidentified=state.totals.unidentified,
            stale=self._stale,
            unacknowledged=self._unacknowledged,
            spool_bytes=self._held.bytes,
            oldest_epoch=self._held.oldest_epoch,
            queue_depth=dict(self._depths),
        )

    def stop(self) -> None:
        """The query has ended."""
        self._probe.close()

    def _open(self, done: int, source: int | None, *, planned: bool) -> None:
        """Once in a run. From then on the store is asked only when there is something to read: Spark asks an idle query
        often, and an object store is paid by the request."""
        if not self._probed_store:
            self._spool.prove()
            state = self._spool.refuse_lost_entries()
            self._refuse_lost(done, state)
            self._refuse_older(done, state)
            if source is not None or (done == state.floor and not planned):
                # Its tasks would refuse that too, each behind a traceback. An offset without a number is from before
                # there were any, or of a query that has only begun.
                self._spool.refuse_other_source(source)
            for epoch, part in state.decided:
                self._published[epoch] = max(self._published.get(epoch, 0), part + 1)
            self._probed_store = True

    def _refuse_lost(self, done: int, state: LogState, *, begun: int = 0) -> None:
        """`begun` is the newest epoch that the checkpoint has, `done` the newest that it has as done."""
        if max(done, begun) > 0 and not state.next_slot and self._spool.untouched():
            raise SpoolDamaged(
                f"spool {self._spool.place} is empty, but the checkpoint is at epoch {done or begun}: the spool was "
                f"lost, or `spool` names another folder. Name the old one; or, {_IF_GONE}"
            )

    def _refuse_older(self, done: int, state: LogState) -> None:
        # The floor is raised to an epoch when the one after it is begun.
        if state.floor < done - 1:
            raise SpoolDamaged(
                f"spool {self._spool.place} has finished epoch {state.floor}, but the checkpoint is at epoch {done}: "
                f"the spool is older than the checkpoint. Restore the newer one; or, {_IF_GONE}"
            )

    def _plan_of(self, end: Offset) -> str:
        """Return the nonce of the plan for the epoch at `end`, which the spool has from when it began."""
        epoch = end["epoch"]
        if "plan" not in end:  # of a checkpoint from before offsets had one
            return self._spool.plan(epoch)
        plan = _plan_name(end["plan"])
        if epoch != self._begun and not self._spool.has_plan(epoch, plan):
            raise SpoolDamaged(
                f"spool {self._spool.place} does not know that epoch {epoch} has begun, and the checkpoint does: the "
                f"spool is older than the checkpoint. Restore the newer one; or, {_IF_GONE}"
            )
        return plan

    def _worth_reading(self, done: int) -> Mapping[str, int | None]:
        """The addresses that are worth a part of the epoch after `done`, with what is known to be there."""
        if done == self._begun:
            self._judge(done)
        self._depths = {address: self._probe.available(address) for address in self._options.queues}
        now = self._clock()
        return {
            address: depth
            for address, depth in self._depths.items()
            if depth != 0
            and address not in self._ended
            and (self._available_now or self._comes(address, depth) or now >= self._patience[address].idle_until)
        }

    def _comes(self, address: str, depth: int | None) -> bool:
        """True if some of the `depth` messages will be handed out, as far as the broker tells."""
        return depth is not None and self._options.selector is None and depth > self._patience[address].vain

    def _judge(self, done: int) -> None:
        """Note once, for each address, what the last epoch gave. A batch that nobody read counts as nothing given, and
        an AvailableNow run takes it for the end: it would go on for ever."""
        if done == self._judged:
            return
        self._judged = done
        self._weighed_until = 0.0
        state = self._spool.state()
        unread = not any((done, part) in state.decided for part in range(len(self._assigned)))
        for address in set(self._assigned):
            parts = (part for part, read in enumerate(self._assigned) if read == address)
            last = [one for part in parts if (one := state.decided.get((done, part))) is not None]
            new = any(one.totals.rows or one.totals.rejected for one in last)
            gave = new or any(one.totals.set_aside for one in last)
            # One whose parts alone nobody read, as under a limit of rows, has its turn when those before it have ended.
            ended = (unread or (bool(last) and all(one.ended for one in last))) and done not in self._published
            if self._available_now and ended and not (last and self._is_left(address, new)):
                self._ended.add(address)
            if gave:
                self._patience[address].end()
            else:
                self._patience[address].wait(self._clock(), self._depths[address])

    def _is_left(self, address: str, new: bool) -> bool:
        """True if an AvailableNow run can still get messages that were there as it began, though its parts have come to
        an end. `new` says whether they had anything that was not set aside: a queue that keeps accepted messages gives
        all of them to each link."""
        if self._until_sequence is None or not self._probe.older(address, self._until_sequence):
            return False
        if address in self._behind and not new:
            logger.warning(
                "%s has messages from before the run, and hands none of them out: others may have a right to them",
                address,
            )
            return False
        self._behind.add(address)
        return True


def spread(depths: Mapping[str, int | None], parts: int) -> Sequence[str]:
    """The address of each part: one for each address, and what is left of `parts` where most lies for each part."""
    counts = dict.fromkeys(depths, 1)
    for _ in range(parts - len(counts)):
        counts[max(counts, key=lambda address: (depths[address] or 1) / counts[address])] += 1
    return [address for address, count in counts.items() for _ in range(count)]


def _plan_name(plan: int) -> str:
    return f"{plan:08x}"


def _share(total: int, part: int, parts: int) -> int:
    """An even share, at least 1."""
    return max(1, total // parts + (part < total % parts))
