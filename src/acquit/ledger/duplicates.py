"""Windows of ids: which postings an address remembers, so that one that comes again posts nothing.

A window is part of the state that the journal's records make. A posting that carries a body fingerprint (extra
BODY_FINGERPRINT) puts its id into the window of its address: the extra DUPLICATE_ID, or else its message id. For those
that a transaction held, a record in the batch of the commit does. So the broker, recovery and the audit hold the same
windows, by this code, and an id is known after a crash exactly when its posting is.

**Order is sequence.** A window keeps its newest ids, `limit` of them, by the sequence of their postings. So it does
not matter in which order a fold that begins in the middle learns of them. While it does not know a limit it forgets
nothing but what records imply: an id that is posted again was forgotten before, and so was all that is older.

**Carried forward.** Ids live in *blocks* of at most `BLOCK_IDS`, each of which knows the oldest record that tells of
it. Before that record's segment leaves the recovery set, the block is written again as one STATE record of the
namespace DUPLICATES. These keys are used in it::

    address                         value: limit u32, oldest u64   the window's size (other windows have LIMIT), and
                                                                   the sequence of the oldest id in it, 0 for none
    address NUL first sequence u64  value: entries                 one block: what is still in the window of it
    entry: sequence u64 | body fingerprint u64 | id, 16-bit length and bytes

and STATE_DELETED of an address forgets its window. All numbers are little-endian.

**The same id with another body** is another message: an id is remembered once for each body. A body is compared by its
fingerprint, size and CRC-32 of the body sections: properties and annotations may differ, as they do when an
application sends a message again. An id of more than `ID_BYTES_MAX` bytes is remembered by its BLAKE2b hash, so that
memory is bounded in ids.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum
from hashlib import blake2b
from struct import Struct
from typing import Final, NamedTuple

from acquit.ledger.fields import FieldReader, blob_field
from acquit.ledger.records import Extra, Namespace, Posting, State, encode_id
from acquit.store.interface import Position

LIMIT: Final = 20_000
"""Ids of a window of which no record says otherwise. Part of the format."""
BLOCK_IDS: Final = 256
ID_BYTES_MAX: Final = 64

_MASK: Final = (1 << 64) - 1
_LIMIT: Final = Struct("<IQ")
_NUMBER: Final = Struct("<Q")
_ENTRY: Final = Struct("<QQ")
ENTRY_BYTES: Final = _ENTRY.size + 2
"""Bytes of each id in a record, beside the id itself."""
_NUL: Final = b"\0"
_EXTRA: Final = Struct("<BH")
_FINGERPRINT_EXTRA: Final = Struct("<BHQ")
_DUPLICATE_ID: Final = int(Extra.DUPLICATE_ID)
_BODY_FINGERPRINT: Final = int(Extra.BODY_FINGERPRINT)


class Known(IntEnum):
    """Answers of a window about an id and a body."""

    NEW = 0
    REUSED = 1
    """The id is known, with another body."""
    REPEATED = 2
    """Both are known: this is a duplicate."""


class WindowEntry(NamedTuple):
    """An id in a window, and the posting that had it."""

    sequence: int
    """Sequence of the posting that had it."""
    fingerprint: int
    """Size and CRC-32 of its body, as `events.fingerprint` gives it."""
    identity: bytes
    """Id as `window_id` gives it."""


class _Block:
    """Entries that follow each other, and the place of the oldest record that tells of any of them."""

    __slots__ = ("entries", "position")

    def __init__(self, position: Position, entries: Iterable[WindowEntry] = ()) -> None:
        self.position = position
        self.entries = deque(entries)

    @property
    def first(self) -> int:
        """The lowest sequence. No block is empty."""
        return self.entries[0].sequence

    @property
    def last(self) -> int:
        """The highest sequence."""
        return self.entries[-1].sequence


def window_id(encoded: bytes) -> bytes:
    """An id, as `records.encode_id` gives it, as windows keep it. Equal exactly for equal ids."""
    return encoded if len(encoded) <= ID_BYTES_MAX else b"h" + blake2b(encoded, digest_size=32).digest()


class Window:
    """The ids of one address."""

    __slots__ = ("_blocks", "_count", "_kept", "limit", "limit_at")

    def __init__(self, limit: int | None) -> None:
        self.limit = limit
        """Number of ids that are kept; None while a fold that began in the middle does not know: then all are."""
        self.limit_at: Position | None = None
        """Position of the record that set it."""
        self._kept: dict[bytes, int | dict[int, int]] = {}
        """id -> sequence << 64 | fingerprint; of an id with several bodies {fingerprint: sequence}."""
        self._count = 0
        self._blocks: deque[_Block] = deque()

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[WindowEntry]:
        """Oldest first."""
        for block in self._blocks:
            yield from block.entries

    @property
    def oldest(self) -> int:
        """The sequence of the oldest id; 0 where there is none."""
        return self._blocks[0].first if self._blocks else 0

    @property
    def newest(self) -> int:
        """The sequence of the newest id; 0 where there is none."""
        return self._blocks[-1].last if self._blocks else 0

    def look_up(self, identity: bytes, fingerprint: int) -> tuple[Known, int]:
        """Return what is known of id and body, and for REPEATED the sequence of the first posting."""
        kept = self._kept.get(identity)
        if kept is None:
            return Known.NEW, 0
        if not isinstance(kept, dict):
            kept = {kept & _MASK: kept >> 64}
        first = kept.get(fingerprint)
        return (Known.REUSED, 0) if first is None else (Known.REPEATED, first)

    def outlasts(self, sequence: int, added: int) -> bool:
        """Return whether an id that is there, of the posting with this sequence, is there still after so many others
        were added. False where that takes a closer look."""
        if self.limit is None:
            return True
        leaving = self._count + added - self.limit
        for block in self._blocks:
            if leaving <= 0:
                return True
            if sequence <= block.last:
                return False
            leaving -= len(block.entries)
        return leaving <= 0

    def add(self, entry: WindowEntry, position: Position) -> None:
        """The newest posting so far, which was no duplicate."""
        if self._admit(entry):
            self._append(entry, position)
            self.trim()

    def extend(self, entries: Sequence[WindowEntry], positions: Iterable[Position]) -> None:
        """`add` of many, in order, of whose ids none is there: no more than are kept."""
        kept = self._kept
        for entry, position in zip(entries, positions, strict=False):
            kept[entry.identity] = entry.sequence << 64 | entry.fingerprint
            self._append(entry, position)
        self._count += len(entries)
        self.trim()

    def _append(self, entry: WindowEntry, position: Position) -> None:
        """Put what was admitted into the last block."""
        blocks = self._blocks
        if not blocks or len(blocks[-1].entries) >= BLOCK_IDS:
            blocks.append(_Block(position))
        elif blocks[-1].position > position:
            blocks[-1].position = position
        blocks[-1].entries.append(entry)

    def set_block(self, entries: Iterable[WindowEntry], position: Position) -> None:
        """A block was written again: its ids are in the window, and that record tells of them."""
        told = [entry for entry in sorted(entries) if self._admit(entry) or self._has(entry)]
        if not told:
            return
        first, last, there = told[0].sequence, told[-1].sequence, set(told)
        before: list[_Block] = []
        after: list[_Block] = []
        for other in self._blocks:
            # A fold that began elsewhere has cut its blocks elsewhere.
            for aside, apart in (
                (before, [entry for entry in other.entries if entry.sequence < first]),
                (after, [entry for entry in other.entries if entry.sequence > last]),
            ):
                if apart:
                    aside.append(_Block(other.position, apart))
            between = [entry for entry in other.entries if first < entry.sequence < last and entry not in there]
            if between:
                told = sorted((*told, *between))
                position = min(position, other.position)
        self._blocks = deque((*before, _Block(position, told), *after))
        self.trim()

    def trim(self) -> None:
        """Forget the oldest ids beyond the limit."""
        if self.limit is not None:
            while self._count > self.limit:
                self._forget_oldest()

    def forget_before(self, sequence: int) -> None:
        """Forget the ids of older postings."""
        while self._blocks and self.oldest < sequence:
            self._forget_oldest()

    def stale(self, before: Position) -> list[int]:
        """The lowest sequences of the blocks of which a record below that position tells."""
        return [block.first for block in self._blocks if block.position < before]

    def block(self, number: int) -> tuple[Position, Iterable[WindowEntry]] | None:
        """Place and entries of the block that began with this sequence, whose oldest may be forgotten since; None where
        all of it and what is behind it is."""
        found = next((block for block in self._blocks if block.last >= number), None)
        return None if found is None else (found.position, found.entries)

    def _admit(self, entry: WindowEntry) -> bool:
        """Take an entry into the window. False if it is in it, or a later posting of its id and body is."""
        identity, fingerprint = entry.identity, entry.fingerprint
        known, first = self.look_up(identity, fingerprint)
        if known is Known.REPEATED:
            if first >= entry.sequence:
                return False
            self.forget_before(first + 1)
        kept = self._kept.get(identity)
        if kept is None:
            self._kept[identity] = entry.sequence << 64 | fingerprint
        elif isinstance(kept, dict):
            kept[fingerprint] = entry.sequence
        else:
            self._kept[identity] = {kept & _MASK: kept >> 64, fingerprint: entry.sequence}
        self._count += 1
        return True

    def _has(self, entry: WindowEntry) -> bool:
        return self.look_up(entry.identity, entry.fingerprint) == (Known.REPEATED, entry.sequence)

    def _forget_oldest(self) -> None:
        block = self._blocks[0]
        entry = block.entries.popleft()
        if not block.entries:
            self._blocks.popleft()
        kept = self._kept[entry.identity]
        if isinstance(kept, dict) and len(kept) > 1:
            del kept[entry.fingerprint]
        else:
            del self._kept[entry.identity]
        self._count -= 1


class Windows:
    """The windows of all addresses."""

    def __init__(self) -> None:
        self.by_address: dict[str, Window] = {}
        self.ids = 0
        """Number of ids in all of them."""
        self._partial = False

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Windows):
            return NotImplemented
        return self._contents() == other._contents()

    __hash__ = None  # type: ignore[assignment]

    def _contents(self) -> dict[str, tuple[int | None, list[WindowEntry]]]:
        return {address: (window.limit, list(window)) for address, window in self.by_address.items()}

    # -- for the fold that begins in the middle -----------------------------------------------------------------------

    def begin_in_the_middle(self) -> None:
        """Limits may have been set before: nothing is forgotten for a limit that is not known."""
        self._partial = True

    def all_known(self) -> None:
        """Fix the limits that are not known: from here on, what no record said was never said."""
        self._partial = False
        for window in self.by_address.values():
            if window.limit is None:
                window.limit = LIMIT
            before = len(window)
            window.trim()
            self.ids += len(window) - before

    # -- for the broker -----------------------------------------------------------------------------------------------

    def look_up(self, address: str, identity: bytes, fingerprint: int) -> tuple[Known, int]:
        """Return what is known at an address of id and body, and for REPEATED the sequence of the first posting."""
        window = self.by_address.get(address)
        return (Known.NEW, 0) if window is None else window.look_up(identity, fingerprint)

    def limit(self, address: str, limit: int) -> None:
        """Keep so many ids of an address, and say so in no record."""
        window = self._window(address)
        before = len(window)
        window.limit = limit
        window.trim()
        self.ids += len(window) - before

    # -- what records say ---------------------------------------------------------------------------------------------

    def remember(self, address: str, entry: WindowEntry, position: Position) -> None:
        """A posting entered; `position` is that of the record which has its id."""
        window = self._window(address)
        before = len(window)
        window.add(entry, position)
        self.ids += len(window) - before

    def remember_all(self, address: str, entries: Sequence[WindowEntry], positions: Iterable[Position]) -> None:
        """`remember` of many, in order, of whose ids none is there: no more than are kept."""
        window = self._window(address)
        before = len(window)
        window.extend(entries, positions)
        self.ids += len(window) - before

    def set(self, state: State, position: Position) -> None:
        """A STATE record of the namespace. Raises ValueError for one that makes no sense."""
        address, nul, _ = state.key.partition(_NUL)
        window = self._window(address.decode())
        before = len(window)
        reader = FieldReader(state.value)
        if nul:
            entries = []
            while reader.left:
                sequence, fingerprint = reader.struct(_ENTRY)
                entries.append(WindowEntry(sequence, fingerprint, reader.blob()))
            window.set_block(entries, position)
        else:
            window.limit, oldest = reader.struct(_LIMIT)
            window.limit_at = position
            window.forget_before(oldest)
            window.trim()
        self.ids += len(window) - before

    def forget(self, key: bytes) -> None:
        """A STATE_DELETED record of the namespace."""
        window = self.by_address.pop(key.decode(), None)
        if window is not None:
            self.ids -= len(window)

    def _window(self, address: str) -> Window:
        window = self.by_address.get(address)
        if window is None:
            window = self.by_address[address] = Window(None if self._partial else LIMIT)
        return window

    # -- for the checkpoint -------------------------------------------------------------------------------------------

    def stale(self, before: Position) -> Iterator[bytes]:
        """Keys of what only records below that position tell."""
        for address, window in self.by_address.items():
            name = address.encode()
            if window.limit_at is not None and window.limit_at < before:
                yield name
            for number in window.stale(before):
                yield name + _NUL + _NUMBER.pack(number)

    def renewed(self, key: bytes, before: Position, time_us: int) -> State | None:
        """The record that sets this key as it now is; None where a later one tells of it, or it has gone."""
        address, nul, number = key.partition(_NUL)
        window = self.by_address.get(address.decode())
        if window is None:
            return None
        if nul:
            found = window.block(*_NUMBER.unpack(number))
            if found is None or found[0] >= before:
                return None
            return State(time_us, Namespace.DUPLICATES, key, _encode(found[1]))
        if window.limit is None or window.limit_at is None or window.limit_at >= before:
            return None
        return self.limit_record(address.decode(), window.limit, time_us)

    def limit_record(self, address: str, limit: int, time_us: int) -> State:
        """The record that sets how many ids a window keeps."""
        window = self.by_address.get(address)
        oldest = 0 if window is None else window.oldest
        return State(time_us, Namespace.DUPLICATES, address.encode(), _LIMIT.pack(limit, oldest))


def remember(windows: Windows, posting: Posting, position: Position) -> None:
    """A posting that may have an id to be remembered."""
    extras = dict(posting.extras)
    body = extras.get(Extra.BODY_FINGERPRINT)
    if body is None:
        return
    (fingerprint,) = FieldReader(body).struct(_NUMBER)
    identity = extras.get(Extra.DUPLICATE_ID) or encode_id(posting.message_id)
    entry = WindowEntry(posting.event.sequence, fingerprint, window_id(identity))
    windows.remember(posting.address, entry, position)


def encode_id_extras(identity: bytes, fingerprint: int) -> bytes:
    """`records.encode_extras` of what a posting says of its duplicates: its id, as `records.encode_id` gives it, and
    the fingerprint of its body; 0 where there is none, and the id is not remembered."""
    told = _EXTRA.pack(_DUPLICATE_ID, len(identity)) + identity
    return told + _FINGERPRINT_EXTRA.pack(_BODY_FINGERPRINT, _NUMBER.size, fingerprint) if fingerprint else told


def read_id_extras(data: bytes, at: int, end: int) -> tuple[bytes, int] | None:
    """Return the id and the fingerprint of the body that `encode_id_extras` has put there; None where the extras of a
    posting are others, or there are more."""
    if end - at <= _EXTRA.size + _FINGERPRINT_EXTRA.size:
        return None
    tag, length = _EXTRA.unpack_from(data, at)
    told_at = at + _EXTRA.size + length
    if tag != _DUPLICATE_ID or told_at + _FINGERPRINT_EXTRA.size != end:
        return None
    tag, size, fingerprint = _FINGERPRINT_EXTRA.unpack_from(data, told_at)
    return (data[told_at - length : told_at], fingerprint) if (tag, size) == (_BODY_FINGERPRINT, _NUMBER.size) else None


def block_record(address: str, entries: Sequence[WindowEntry], time_us: int) -> State:
    """The record that puts ids into a window whose postings did not: those that a transaction held. In order."""
    key = address.encode() + _NUL + _NUMBER.pack(entries[0].sequence)
    return State(time_us, Namespace.DUPLICATES, key, _encode(entries))


def _encode(entries: Iterable[WindowEntry]) -> bytes:
    return b"".join(_ENTRY.pack(entry[0], entry[1]) + blob_field(entry[2]) for entry in entries)


__all__ = [
    "BLOCK_IDS",
    "ENTRY_BYTES",
    "ID_BYTES_MAX",
    "LIMIT",
    "Known",
    "Window",
    "WindowEntry",
    "Windows",
    "block_record",
    "encode_id_extras",
    "read_id_extras",
    "remember",
    "window_id",
]
