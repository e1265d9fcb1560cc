"""Identities of the messages that the spool has taken: fingerprints, kept as sorted columns.

A message is set aside when its *identity* and its *content* were both named by an earlier entry of the log. So each
message leaves two fingerprints:

- `match`, 128 bits of SHA-256 over the identity and the SHA-256 of the content (`drain.Identified`): equal means
  "this very message again". It alone decides, and 128 bits make a false "again", which would lose a message, out of
  the question.
- `identity`, 64 bits of SHA-256 over the identity alone: equal while `match` differs means "the same id with other
  content". Both messages are kept and the case is counted, so a collision of 64 bits only miscounts.

A posting that an acquit broker has numbered is told by three numbers: the broker's, its sequence and, for its content,
its time. Nothing of it is digested (`of_postings`): sequence and time stand in the halves of `match` as they are, each
combined with 64 bits that are drawn from the broker, and `identity` is the sequence, counted from a third such number.
So no two postings of one broker are ever mistaken for each other, and what can go wrong between two brokers is that
their numbers are alike in all bits but those that sequences and times fill: with 2**40 of each, less likely than that
two of as many random numbers of 128 bits are the same. Sequences that follow each other have identities that do, so
that a look-up of what is drained together touches few pages of a run.

A log of an earlier format named them by digests, too (`Identities.of` with a time): `entries` says which.

With the outcome that was recorded, that is 25 bytes a message. They are columns (structure of arrays) sorted by
`identity`: the same bytes serve in a log entry, in a run on disk that is mapped into memory, and in a merge, and a
batch of look-ups is one vectorised binary search for each block. A Python set would cost eight times the memory in
every worker process.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from hashlib import sha256
from typing import Final, Protocol, Self, TypeAlias
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

U64: TypeAlias = NDArray[np.uint64]
U8: TypeAlias = NDArray[np.uint8]
Mask: TypeAlias = NDArray[np.bool_]

I64: TypeAlias = NDArray[np.int64]

Content: TypeAlias = bytes | memoryview | int
"""Content of a message: bytes, or, in the second format of the log, the time of a posting in milliseconds, as its
broker says it in 64 bits."""

BYTES_EACH: Final = 25
_U64: Final = np.dtype("<u8")
_POSTING: Final = b"acquit posting"
"""Beginning of what is digested of a broker."""


class Outcome(IntEnum):
    """Outcome that the log records for a message, to be answered now and whenever it comes again."""

    ACCEPTED = 0
    REJECTED = 1


class _Hash(Protocol):
    def digest(self) -> bytes: ...


UNKNOWN: Final = 255
"""Answer of `Identities.outcomes` for a message that is not named here."""


@dataclass(frozen=True, slots=True)
class Identities:
    """Fingerprints and outcomes as columns, sorted by `identity`, or as they came where `of` or `of_postings` made
    them."""

    identity: U64
    match_low: U64
    match_high: U64
    outcome: U8

    def __len__(self) -> int:
        return len(self.identity)

    @classmethod
    def of(cls, keys: Sequence[bytes], contents: Sequence[Content]) -> Self:
        """The fingerprints of messages by their identities, which are unambiguous bytes, and contents; all accepted.
        In the order given: look-ups answer in this order. Sort before encoding."""
        identity, low, high, _ = _digests(sha256(key) for key in keys)
        times = np.array([one if isinstance(one, int) else 0 for one in contents], np.int64)
        high = high ^ times.view(np.uint64)
        others = [(row, keys[row], one) for row, one in enumerate(contents) if not isinstance(one, int)]
        if others:
            rows = [row for row, _, _ in others]
            digests = _digests(sha256(key + sha256(one).digest()) for _, key, one in others)
            low = low.copy()
            low[rows], high[rows] = digests[0], digests[1]
        return cls(identity, low, high, np.full(len(keys), Outcome.ACCEPTED, np.uint8))

    @classmethod
    def of_postings(cls, broker_id: UUID, sequences: I64, times_ms: I64) -> Self:
        """The fingerprints of messages that this acquit broker numbered, by sequence and time of posting; all accepted.
        In the order given."""
        drawn = np.frombuffer(sha256(_POSTING + broker_id.bytes).digest(), _U64)
        numbers, times = sequences.astype(np.uint64), times_ms.astype(np.uint64)
        outcome = np.full(len(numbers), Outcome.ACCEPTED, np.uint8)
        return cls(numbers + drawn[0], numbers ^ drawn[1], times ^ drawn[2], outcome)

    @classmethod
    def decode(cls, data: bytes | memoryview, count: int) -> Self:
        """The columns in `data`, without copying it. Raises ValueError when the length is not that of `count`."""
        if len(data) != count * BYTES_EACH:
            raise ValueError(f"{len(data)} bytes cannot be {count} identities of {BYTES_EACH} bytes")
        columns = np.frombuffer(data, _U64, 3 * count).reshape(3, count)
        return cls(columns[0], columns[1], columns[2], np.frombuffer(data, np.uint8, count, 24 * count))

    def columns(self) -> tuple[U64, U64, U64, U8]:
        """Return the columns, in the order in which they are encoded."""
        return self.identity, self.match_low, self.match_high, self.outcome

    def encode(self) -> bytes:
        """The columns one after the other, little-endian."""
        *words, outcome = self.columns()
        return b"".join(column.astype(_U64, copy=False).tobytes() for column in words) + outcome.tobytes()

    def repeats(self) -> dict[int, int]:
        """Rows whose match is that of an earlier row, and the first one that has it."""
        order = np.lexsort((self.match_high, self.match_low))  # stable: the first of equal ones comes first
        low, high = self.match_low[order], self.match_high[order]
        same = np.flatnonzero((low[1:] == low[:-1]) & (high[1:] == high[:-1])) + 1
        found: dict[int, int] = {}
        for later in same.tolist():
            before, row = int(order[later - 1]), int(order[later])
            found[row] = found.get(before, before)
        return found

    def conflicts(self) -> Mask:
        """Return which rows have the identity of an earlier one, and a match that no earlier one has."""
        found = np.ones(len(self), np.bool_)
        found[np.unique(self.identity, return_index=True)[1]] = False
        if found.any():
            found[list(self.repeats())] = False
        return found

    def sort(self) -> Identities:
        """Sorted by identity."""
        return self.take(np.argsort(self.identity, kind="stable"))

    def take(self, rows: NDArray[np.intp] | Mask) -> Identities:
        """Return these rows (indices or a mask), in this order."""
        return Identities(self.identity[rows], self.match_low[rows], self.match_high[rows], self.outcome[rows])

    def put(self, rows: NDArray[np.intp], others: Identities) -> Identities:
        """Return these with the fingerprints of `others` in these rows."""
        changed = Identities(self.identity.copy(), self.match_low.copy(), self.match_high.copy(), self.outcome)
        changed.identity[rows] = others.identity
        changed.match_low[rows], changed.match_high[rows] = others.match_low, others.match_high
        return changed

    def outcomes(self, wanted: Identities) -> tuple[U8, Mask]:
        """Return for each of `wanted` its outcome here or UNKNOWN, and whether its id is here with other content.

        `self` must be sorted; `wanted` need not be, and is looked up faster if it is. Where both are true (the id is
        here with this content and with another), only the outcome is told: it is a message come again.
        """
        found = np.full(len(wanted), UNKNOWN, np.uint8)
        conflict = np.zeros(len(wanted), np.bool_)
        at = np.searchsorted(self.identity, wanted.identity)
        pending = np.arange(len(wanted))
        # One pass for the first candidate of each, a second for the second, and so on: nearly always half a pass.
        while True:
            inside = at[pending] < len(self)
            pending = pending[inside]
            pending = pending[self.identity[at[pending]] == wanted.identity[pending]]
            if not len(pending):
                return found, conflict
            here = at[pending]
            same = (self.match_low[here] == wanted.match_low[pending]) & (
                self.match_high[here] == wanted.match_high[pending]
            )
            found[pending[same]] = self.outcome[here[same]]
            conflict[pending] = ~same
            pending = pending[~same]
            at[pending] += 1


def _digests(hashes: Iterable[_Hash]) -> U64:
    """A column for each eight bytes of them."""
    return np.frombuffer(b"".join([one.digest() for one in hashes]), _U64).reshape(-1, 4).T


NONE: Final = Identities.of([], [])


def join(blocks: Sequence[Identities]) -> Identities:
    """Return the rows of all blocks, one block after the other."""
    if not blocks:
        return NONE
    return Identities(
        np.concatenate([block.identity for block in blocks]),
        np.concatenate([block.match_low for block in blocks]),
        np.concatenate([block.match_high for block in blocks]),
        np.concatenate([block.outcome for block in blocks]),
    )


def merge(blocks: Sequence[Identities]) -> Identities:
    """All of `blocks`, oldest first, as one sorted block; of equal matches the newest is kept."""
    if not blocks:
        return NONE
    whole = join(blocks).sort()
    # The sort is stable, so of equal neighbours the last is the newest. Equal matches with another in between (one id
    # with two contents, in turns) both stay: harmless, and rare.
    same = (
        (whole.identity[1:] == whole.identity[:-1])
        & (whole.match_low[1:] == whole.match_low[:-1])
        & (whole.match_high[1:] == whole.match_high[:-1])
    )
    return whole.take(np.append(~same, True)) if len(whole) else whole
