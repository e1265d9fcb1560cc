"""State that is not messages: queues, actors, keyed state, reservations, as the journal's records set them.

The same table stands behind the fold (which fills it from records read back) and behind the recorder (which fills it
from records as they are written), so that both agree by construction. For each key it remembers where in the log it
was last set. Before a segment leaves the recovery set, what was last set in it is written again (`stale`): in small
steps, because each record says how its one key stands wherever it lands.

The table keeps the entries themselves, not encodings: what is written again is their current state.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from acquit.ledger.duplicates import Windows
from acquit.ledger.records import (
    FATES_KNOWN,
    Actor,
    Commit,
    Dispatched,
    Entry,
    Namespace,
    Queue,
    QueueDeleted,
    RecordKind,
    Reserved,
    Rollback,
    Start,
    State,
    StateDeleted,
    Transaction,
    Verdict,
    encode_fate,
)
from acquit.store.interface import Position, Record

Key = tuple[str] | tuple[str, int] | tuple[str, int, bytes]

DECODERS: Final[dict[int, Callable[[Record], Entry]]] = {
    RecordKind.START: Start.decode,
    RecordKind.RESERVED: Reserved.decode,
    RecordKind.DISPATCHED: Dispatched.decode,
    RecordKind.QUEUE: Queue.decode,
    RecordKind.QUEUE_DELETED: QueueDeleted.decode,
    RecordKind.ACTOR: Actor.decode,
    RecordKind.STATE: State.decode,
    RecordKind.STATE_DELETED: StateDeleted.decode,
    RecordKind.TRANSACTION: Transaction.decode,
}
"""The kinds of record that a table takes note of."""

_RESERVED: Final[Key] = ("reserved",)
_DUPLICATES: Final = ("state", int(Namespace.DUPLICATES))


class StateTable:
    """State that the journal's records set of everything but messages."""

    def __init__(self) -> None:
        self.queues: dict[int, Queue] = {}
        self.actors: dict[int, Actor] = {}
        """Actors of this run, by number; see `forget_actor`."""
        self.state: dict[tuple[int, bytes], State] = {}
        """Keyed state of all namespaces but DUPLICATES."""
        self.windows = Windows()
        """Keyed state of the namespace DUPLICATES, which postings change as well."""
        self.dispatched: dict[int, Dispatched] = {}
        """Marks of what may have been acquired, by queue."""
        self.transactions: dict[int, Transaction] = {}
        """Open ones of this run, by number."""
        self.reserved_up_to = 0
        self.queue_max = 0
        self.actor_max = 0
        self._set_at: dict[Key, Position] = {}

    def apply(self, entry: Entry, position: Position) -> None:
        """Take note of a record. Kinds that are none of the table's are passed over."""
        match entry:
            case Queue(number=number):
                self.queues[number] = entry
                self.queue_max = max(self.queue_max, number)
                self._set_at["queue", number] = position
            case QueueDeleted(number=number):
                self.queues.pop(number, None)
                self.dispatched.pop(number, None)
                self._set_at.pop(("queue", number), None)
                self._set_at.pop(("dispatched", number), None)
            case Actor(number=number):
                self.actors[number] = entry
                self.actor_max = max(self.actor_max, number)
                self._set_at["actor", number] = position
            case State(namespace=Namespace.DUPLICATES):
                self.windows.set(entry, position)
            case StateDeleted(namespace=Namespace.DUPLICATES, key=key):
                self.windows.forget(key)
            case State(namespace=namespace, key=key):
                self.state[namespace, key] = entry
                self._set_at["state", namespace, key] = position
            case StateDeleted(namespace=namespace, key=key):
                self.state.pop((namespace, key), None)
                self._set_at.pop(("state", namespace, key), None)
            case Dispatched(queue=queue):
                self.dispatched[queue] = entry
                self._set_at["dispatched", queue] = position
            case Reserved():
                self.reserved_up_to = max(self.reserved_up_to, entry.up_to)
                self.queue_max = max(self.queue_max, entry.queue_max)
                self.actor_max = max(self.actor_max, entry.actor_max)
                self._set_at[_RESERVED] = position
            case Transaction(number=number):
                self.transactions[number] = entry
                self._set_at["transaction", number] = position
            case Commit(number=number, time_us=time_us):
                self.discharge(number, Verdict.COMMITTED, time_us)
            case Rollback(number=number, time_us=time_us):
                self.discharge(number, Verdict.ROLLED_BACK, time_us)
            case Start(clean=clean, time_us=time_us):
                self._begin_run(clean, time_us)
            case _:
                pass

    def _begin_run(self, clean: bool, time_us: int) -> None:
        """No link and no transaction survives a restart, and what an unclean stop leaves unknown about acquisitions
        stays unknown."""
        for number in self.actors:
            self._set_at.pop(("actor", number), None)
        self.actors = {}
        for number in list(self.transactions):
            self.discharge(number, Verdict.ROLLED_BACK, time_us)
        # Whoever runs now has to say it again: an earlier version forgets fates, and says nothing.
        self.forget_fate(FATES_KNOWN)
        for queue, marks in self.dispatched.items():
            doubtful = marks.doubtful if clean else max(marks.doubtful, marks.up_to)
            self.dispatched[queue] = Dispatched(marks.time_us, queue, 0, doubtful)

    def discharge(self, number: int, verdict: Verdict, time_us: int) -> bool:
        """Discharge a transaction by commit or rollback: its fate is keyed state from now on. False if it was not open.

        Only the records of its beginning and its end say that, and without the first the second tells nothing. So the
        fate counts as set where the transaction began, and is written again before that segment leaves."""
        position = self._set_at.pop(("transaction", number), Position(0))
        transaction = self.transactions.pop(number, None)
        if transaction is None:
            return False
        fate = State(time_us, Namespace.FATE, transaction.txn_id, encode_fate(verdict, transaction.user))
        self.state[Namespace.FATE, transaction.txn_id] = fate
        self._set_at["state", int(Namespace.FATE), transaction.txn_id] = position
        return True

    def forget_fate(self, txn_id: bytes) -> None:
        """Forget a fate whose time has passed: it is not copied forward any more, and so leaves with its record."""
        self.state.pop((Namespace.FATE, txn_id), None)
        self._set_at.pop(("state", int(Namespace.FATE), txn_id), None)

    def forget_actor(self, number: int) -> None:
        """The link is gone and holds nothing: its number need not be explained to those who read only what recovery
        reads. (Its ACTOR record stays where it is, for the audit.)"""
        self.actors.pop(number, None)
        self._set_at.pop(("actor", number), None)

    def certain_from(self, queue: int) -> int:
        """Return the sequence from which on certainly no earlier run has acquired what is in this queue. (Of this run
        the broker knows itself.)"""
        marks = self.dispatched.get(queue)
        return 0 if marks is None else marks.doubtful + 1

    def reserved(self, time_us: int) -> Reserved:
        """The record that reserves what is reserved now."""
        return Reserved(time_us, self.reserved_up_to, self.queue_max, self.actor_max)

    def stale(self, before: Position) -> list[Key]:
        """Keys last set before this position."""
        keys: list[Key] = [key for key, position in self._set_at.items() if position < before]
        return keys + [("state", int(Namespace.DUPLICATES), name) for name in self.windows.stale(before)]

    def renewed(self, key: Key, before: Position, time_us: int) -> Entry | None:
        """The record that sets this key again as it now is; None when it was set or went away since it was found
        stale."""
        if key[:2] == _DUPLICATES:
            return self.windows.renewed(key[-1], before, time_us)  # type: ignore[arg-type]  # it has three parts
        if self._set_at.get(key, before) >= before:
            return None
        match key:
            case ("queue", int(number)):
                return self.queues[number]
            case ("actor", int(number)):
                return self.actors[number]
            case ("transaction", int(number)):
                return self.transactions[number]
            case ("dispatched", int(queue)):
                return self.dispatched[queue]
            case ("state", int(namespace), bytes(name)):
                return self.state[namespace, name]
            case _:
                return self.reserved(time_us)
