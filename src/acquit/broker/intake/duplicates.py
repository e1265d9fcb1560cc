"""Postings that come twice: told by their id, answered, and not posted again.

A client that lost its connection before the answer sends again, and so does an application that was restarted. What
both postings share is an id: the application property ``_AMQ_DUPL_ID``, or, where the address says
``duplicate_detection = "message-id"`` and there is none, the message id. An address remembers its latest ids
(`ledger.duplicates`, whose windows are part of the journal's state).

    id and body known          a duplicate: nothing is posted. It is answered when the first posting is on the disk
    id known, another body     never dropped: it is posted, with the flag ID_REUSED in the ledger
    id held by a transaction   within that transaction a duplicate as above; for everybody else refused, because nobody
                               can know yet whether the first posting will ever be

In a transaction an id is held when it is posted, remembered at the commit, free again after a rollback.

Ids of what is kept as volatile are remembered as long as it may live: until the broker stops. They are kept apart, and
by whether the sender said durable: a durable posting is no duplicate of a message that a crash forgets.

Copies that the broker makes (dead letters, expired messages, moves) do not come through here.
"""

from __future__ import annotations

from itertools import repeat
from typing import TYPE_CHECKING, Final, Protocol

from acquit.broker.intake.identity import Identity
from acquit.broker.refusal import Refused
from acquit.errors import StoreFull
from acquit.ledger.duplicates import (
    BLOCK_IDS,
    ENTRY_BYTES,
    Known,
    Window,
    WindowEntry,
    Windows,
    block_record,
    window_id,
)
from acquit.ledger.events import ID_REUSED, EventKind, fingerprint
from acquit.ledger.recorder import RECORD_BYTES
from acquit.ledger.records import Extra, Namespace, State, StateDeleted, encode_extras
from acquit.protocol.definitions import AmqpCondition
from acquit.protocol.sections import BODY
from acquit.store.interface import Position

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from acquit.broker.intake.shaping import Posting
    from acquit.broker.message import Message
    from acquit.broker.options import AddressPolicy
    from acquit.broker.scribe import Scribe

_DUPLICATE: Final = int(EventKind.DUPLICATE)


class Target(Protocol):
    """A node that a posting goes to: a queue or a topic."""

    @property
    def address(self) -> str: ...
    @property
    def policy(self) -> AddressPolicy: ...
    @property
    def number(self) -> int: ...
    @property
    def counts(self) -> list[int]: ...


class Duplicates:
    """Knows the ids of all addresses."""

    def __init__(self, scribe: Scribe, ids_max: int) -> None:
        self._scribe = scribe
        self.ids_max = ids_max
        self._windows = scribe.recorder.table.windows
        self._volatile_ids = Windows()
        self._held: dict[tuple[str, bytes], tuple[object, dict[int, int]]] = {}
        """(address, id) -> the transaction that holds it, and by body the provisional sequence."""
        self._of: dict[object, list[tuple[Identity, int]]] = {}
        """Ids that each transaction holds, in order, with provisional sequences."""

    # -- postings -----------------------------------------------------------------------------------------------------

    def check(self, target: Target, posting: Posting, transaction: object | None = None) -> Identity | None:
        """Return what is known of this posting's id, which the posting keeps; None where it has none that counts.

        The journal's fields of the posting are given what the window needs. To be asked in the turn in which it is
        posted. Raises Refused for an id that another transaction holds, with nothing changed.
        """
        if posting.identity is not None:
            return posting.identity
        policy = target.policy
        if not self.detects(target):
            return None
        encoded = posting.duplicate_id
        if not encoded and policy.duplicate_detection == "message-id":
            encoded = posting.message_id
        if not encoded:
            return None
        bounds = posting.sections.bounds
        body = fingerprint(posting.sections.payload[bounds[BODY] : bounds[BODY + 1]])
        limit = min(policy.duplicate_window, self.ids_max)
        identity = Identity(target.address, window_id(encoded), body, limit, durable=posting.durable)
        self._look_up(identity)
        self._look_up_held(identity, transaction)
        posting.extras += encode_extras([(Extra.BODY_FINGERPRINT, body.to_bytes(8, "little"))])
        posting.identity = identity
        return identity

    def _look_up_held(self, identity: Identity, transaction: object | None) -> None:
        """Raises Refused if another transaction holds the id."""
        held = self._held.get((identity.address, identity.identity))
        if held is None or identity.first:
            return
        if held[0] is not transaction:
            raise Refused(
                "a transaction that has not ended holds the same duplicate id: try again later",
                condition=AmqpCondition.RESOURCE_LOCKED,
            )
        identity.first = held[1].get(identity.fingerprint, 0)
        identity.flags = 0 if identity.first else ID_REUSED
        identity.recorded = identity.durable

    def _look_up(self, identity: Identity) -> None:
        address, fingerprint = identity.address, identity.fingerprint
        volatile = self._volatile_ids.look_up(address, _told(identity), fingerprint)
        durable = self._windows.look_up(address, identity.identity, fingerprint)
        known = max(volatile, durable)
        identity.first = known[1]
        identity.recorded = durable > volatile
        identity.flags = ID_REUSED if known[0] is Known.REUSED else 0

    def suppress(self, identity: Identity, target: Target, actor: int) -> bool:
        """Count a duplicate, of which nothing is posted, and record which posting it repeats. Return True if its answer
        must wait until that is synced."""
        scribe = self._scribe
        target.counts[_DUPLICATE] += 1
        if not identity.recorded:
            scribe.count_volatile(target, _DUPLICATE, 1)  # type: ignore[arg-type]  # it is a queue or a topic
            return False
        try:
            scribe.recorder.transition(
                _DUPLICATE, identity.first, target.number, identity.fingerprint, scribe.time_us, actor
            )
        except StoreFull:
            scribe.exhausted = True  # the recorder keeps the event
        return True

    def entered(self, identity: Identity, message: Message) -> None:
        """Remember the id of a posting in no transaction, which became this message: the copy that has its record, if
        any of them has."""
        self._remember(identity, message.sequence, message.position if message.durable else None)

    # -- postings that came together ----------------------------------------------------------------------------------

    @staticmethod
    def detects(target: Target) -> bool:
        """Return whether ids of what goes there are compared at all."""
        return target.policy.duplicate_detection != "off"

    def new_of(self, target: Target, ids: Sequence[tuple[bytes, int]], *, durable: bool) -> list[int] | None:
        """Return the places of those that are new, of postings that come one behind the other, have these ids and body
        fingerprints, and are all kept as durable, or none. The others are duplicates. None where one must be looked at
        by itself. Nothing is changed."""
        count, address, mark = len(ids), target.address, _mark(durable)
        if not self.detects(target):
            return list(range(count))
        limit = min(target.policy.duplicate_window, self.ids_max)
        if count > limit or any(held == address for held, _ in self._held):
            return None
        if (self._windows if durable else self._volatile_ids).ids + count > self.ids_max:
            return None  # others may have to give way
        recorded = self._windows.by_address.get(address)
        forgotten = self._volatile_ids.by_address.get(address)
        own = recorded if durable else forgotten
        if own is None or own.limit != limit:
            return None  # the first of a window sets how many it keeps
        earlier: dict[bytes, int] = {}
        new: list[int] = []
        for place, (encoded, body) in enumerate(ids):
            identity = window_id(encoded)
            before = earlier.get(identity)
            if before is not None:
                if before != body:
                    return None
                continue
            known, first = (Known.NEW, 0) if recorded is None else recorded.look_up(identity, body)
            other, its = (Known.NEW, 0) if forgotten is None else forgotten.look_up(mark + identity, body)
            if not durable:
                known, first, other = other, its, known
            if other is not Known.NEW or known is Known.REUSED:
                return None
            if known is Known.NEW:
                earlier[identity] = body
                new.append(place)
            elif not own.outlasts(first, count):
                return None
        return new

    def entered_together(
        self,
        target: Target,
        ids: Sequence[tuple[bytes, int]],
        new: Sequence[int],
        sequences: Sequence[int],
        positions: Sequence[Position] | None = None,
        actor: int = 0,
    ) -> None:
        """Remember the ids of postings that came together: of the `new_of` them with the sequences under which they
        entered and, where they are durable, the positions of their records. `suppress` the others."""
        if not self.detects(target):
            return
        address, durable = target.address, positions is not None
        windows, mark = (self._windows, b"") if durable else (self._volatile_ids, _mark(durable=False))
        entries = [
            WindowEntry(sequence, ids[place][1], mark + window_id(ids[place][0]))
            for place, sequence in zip(new, sequences, strict=False)
        ]
        windows.remember_all(address, entries, positions or repeat(Position(0)))
        if len(new) == len(ids):
            return
        entered, limit = set(new), min(target.policy.duplicate_window, self.ids_max)
        for place, (encoded, body) in enumerate(ids):
            if place not in entered:
                identity = Identity(address, window_id(encoded), body, limit, durable=durable)
                self._look_up(identity)
                self.suppress(identity, target, actor)

    # -- transactions -------------------------------------------------------------------------------------------------

    def held(self, identity: Identity, transaction: object, sequence: int) -> None:
        """Hold an id that was posted in a transaction, under this provisional sequence."""
        _, bodies = self._held.setdefault((identity.address, identity.identity), (transaction, {}))
        bodies[identity.fingerprint] = sequence
        self._of.setdefault(transaction, []).append((identity, sequence))

    def commit(self, transaction: object, fresh: Mapping[int, Message]) -> None:
        """Remember the ids that a transaction held, in the batch that is being gathered. `fresh`: what they became, by
        provisional sequence, of all that did enter: of several copies the one that has the record, if any has.

        Raises StoreFull, with nothing changed but that some ids may be remembered already: see `commit_bytes`.
        """
        held = self._of.get(transaction)
        if not held:
            return
        scribe = self._scribe
        by_address: dict[str, list[WindowEntry]] = {}
        for identity, provisional in held:
            message = fresh.get(provisional)
            if message is not None and message.durable:
                entry = WindowEntry(message.sequence, identity.fingerprint, identity.identity)
                by_address.setdefault(identity.address, []).append(entry)
            elif message is not None:
                self._remember(identity, message.sequence, None)
        for address, entries in by_address.items():
            entries.sort()
            for at in range(0, len(entries), BLOCK_IDS):
                scribe.recorder.append(block_record(address, entries[at : at + BLOCK_IDS], scribe.time_us))
        for identity, _ in held:
            self._bound(self._windows, identity)
        self.release(transaction)

    def commit_bytes(self, transaction: object) -> int:
        """Return the bytes that the journal needs room for so that `commit` finds it."""
        held = self._of.get(transaction)
        if not held:
            return 0
        addresses = {identity.address for identity, _ in held}
        records = len(held) // BLOCK_IDS + len(addresses)
        longest = max(len(address.encode()) for address in addresses)
        ids = sum(ENTRY_BYTES + len(identity.identity) for identity, _ in held)
        return ids + records * (RECORD_BYTES + longest)

    def release(self, transaction: object) -> None:
        """Let go all ids of a transaction that has ended."""
        for identity, _ in self._of.pop(transaction, ()):
            self._held.pop((identity.address, identity.identity), None)

    # -- bounds -------------------------------------------------------------------------------------------------------

    def apply_policy(self, address: str, policy: AddressPolicy) -> None:
        """The policy may have changed: a smaller window forgets its oldest ids at once, without detection all of
        them."""
        if policy.duplicate_detection == "off":
            self.forget(address)
            return
        limit = min(policy.duplicate_window, self.ids_max)
        for windows in (self._windows, self._volatile_ids):
            window = windows.by_address.get(address)
            if window is not None:
                self._limit(windows, address, window, limit)

    def addresses(self) -> list[str]:
        """Return the addresses of which ids are remembered."""
        return list(dict.fromkeys((*self._windows.by_address, *self._volatile_ids.by_address)))

    def forget(self, address: str) -> None:
        """Forget all ids that were posted to this address."""
        self._volatile_ids.forget(address.encode())
        self._forget(self._windows, address)

    def _remember(self, identity: Identity, sequence: int, position: int | None) -> None:
        """`position`: of the record that has its id, if there is one."""
        if position is not None:
            entry = WindowEntry(sequence, identity.fingerprint, identity.identity)
            self._windows.remember(identity.address, entry, Position(position))
            self._bound(self._windows, identity)
        else:
            entry = WindowEntry(sequence, identity.fingerprint, _told(identity))
            self._volatile_ids.remember(identity.address, entry, Position(0))
            self._bound(self._volatile_ids, identity)

    def _bound(self, windows: Windows, identity: Identity) -> None:
        """An id was added to its window: keep to the limits."""
        window = windows.by_address.get(identity.address)
        if window is not None and window.limit != identity.limit:
            self._limit(windows, identity.address, window, identity.limit)
        if windows.ids > self.ids_max:
            # Addresses that nobody has posted to for longest give way, and some more of them than need to, because to
            # find them is to look at all.
            by_age = sorted(windows.by_address.items(), key=lambda item: item[1].newest)
            for address, _ in by_age[:-1]:
                self._forget(windows, address)
                if windows.ids <= self.ids_max * 7 // 8:
                    break

    def _forget(self, windows: Windows, address: str) -> None:
        if windows is self._volatile_ids:
            windows.forget(address.encode())
        elif address in windows.by_address:
            self._record(StateDeleted(self._scribe.time_us, Namespace.DUPLICATES, address.encode()))

    def _limit(self, windows: Windows, address: str, window: Window, limit: int) -> None:
        if windows is self._volatile_ids:
            windows.limit(address, limit)
        elif window.limit != limit:
            self._record(windows.limit_record(address, limit, self._scribe.time_us))

    def _record(self, entry: State | StateDeleted) -> None:
        """The recorder's table, and so the window, follows what is written."""
        try:
            self._scribe.recorder.append(entry)
        except StoreFull:
            self._scribe.exhausted = True


def _told(identity: Identity) -> bytes:
    """Return the key of an id among those of volatile messages: those that were sent as durable are kept apart."""
    return _mark(identity.durable) + identity.identity


def _mark(durable: bool) -> bytes:
    return b"d" if durable else b"v"


__all__ = ["ID_REUSED", "Duplicates", "Identity", "Target"]
