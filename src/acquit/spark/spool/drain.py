"""Interfaces of the spool protocol: to a link to a queue, and to whoever understands messages.

Three small interfaces keep AMQP and Spark out of the protocol: a `Drain` is one attached link; a `MessageReader` finds
identities and makes rows; both have an implementation over acquit's client (`spark.link`, `spark.columns`), and
the tests have a model of a broker that forgets, restarts and redelivers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, Self, TypeAlias
from uuid import UUID

import numpy as np
import pyarrow as pa

from acquit.spark.spool.identities import I64, NONE, Identities, Mask, Outcome, join

Numbers: TypeAlias = Sequence[int] | I64
"""Numbers of messages of one drain, ascending: it numbers them from 0, in the order in which it gives them."""


class Drain(Protocol):
    """Link to a queue, attached with default-outcome *released*: what is never settled goes back uncounted."""

    @property
    def broker_id(self) -> UUID | None:
        """Identity of an acquit broker, whose sequence numbers then identify postings; None elsewhere."""

    @property
    def exhausted(self) -> bool:
        """True if the queue had nothing more as `receive` returned nothing; else time was up, or the link was lost."""

    def receive(self, rows_max: int) -> Sequence[bytes]:
        """Return at least one message, as it was transferred, or none at the end of the queue, of the time, or of the
        link. Each is unsettled, and has the next number."""

    def settle(self, outcomes: Mapping[Outcome, Numbers]) -> bool:
        """Settle the messages of these numbers and wait for the answers. False when any answer is missing: they may
        come again."""

    def detach(self) -> None:
        """Give back what is unsettled and let the link go. Never raises; may be called again."""


class KeptMessages(Protocol):
    """Some messages that were identified together, in the form in which their reader keeps them."""

    def __len__(self) -> int: ...

    def take(self, rows: I64) -> Self:
        """Return these of them; the rows ascend."""


class Identified(NamedTuple):
    """Identities of messages, before anything is made of these. Each column is over the messages."""

    identities: Identities
    """Fingerprints of what says that two deliveries are the same message, unambiguous over all kinds of identity, and
    of the content that they must share, too: the time of the posting, where an acquit broker has numbered it; else the
    bare message (3.2), or the body alone where the identity is by a field that the user names."""
    named: Mask
    """True for each message that has an identity. Of others `identities` says nothing."""
    names_posting: Mask
    """True if the identity is given by the broker for each posting, or by a field that the user names. Else two
    deliveries on one unbroken link are two messages with one id."""
    sequences: I64
    """The broker's, where `broker_id` is known; 0 for a message that has none."""
    messages: list[KeptMessages]
    """The messages until rows are made: no column, but one piece after the other."""

    def take(self, rows: I64) -> Identified:
        """Return the columns of these messages, which ascend."""
        return Identified(
            self.identities.take(rows),
            self.named[rows],
            self.names_posting[rows],
            self.sequences[rows],
            take_messages(self.messages, rows),
        )

    @classmethod
    def join(cls, parts: Sequence[Identified]) -> Identified:
        """Return the columns of all parts, one after the other."""
        if not parts:
            return cls(NONE, np.zeros(0, np.bool_), np.zeros(0, np.bool_), np.zeros(0, np.int64), [])
        return cls(
            join([part.identities for part in parts]),
            np.concatenate([part.named for part in parts]),
            np.concatenate([part.names_posting for part in parts]),
            np.concatenate([part.sequences for part in parts]),
            [piece for part in parts for piece in part.messages],
        )


@dataclass(frozen=True, slots=True)
class Rows:
    """Messages as rows, in their order, and which of them could not be parsed."""

    batches: Sequence[pa.RecordBatch]
    corrupt: dict[int, str]
    """Row number and reason. The row is there all the same, with its bytes in the corrupt column."""


class MessageReader(Protocol):
    """Understands messages."""

    def identify(self, payloads: Sequence[bytes], broker_id: UUID | None) -> Identified:
        """Never raises, whatever the bytes are."""

    def rows(self, messages: Sequence[KeptMessages], broker_id: UUID | None) -> Rows:
        """Return the rows of messages that `identify` gave. Never raises."""

    def earlier(self, messages: Sequence[KeptMessages], broker_id: UUID | None, log_format: int) -> Identities:
        """Return the fingerprints that messages of `identify`, all with an identity, had in an earlier format of the
        log (`entries`). Never raises."""


def take_messages(messages: Sequence[KeptMessages], rows: I64) -> list[KeptMessages]:
    """Return these messages, which ascend, of all pieces."""
    found = []
    start = 0
    for piece in messages:
        end = start + len(piece)
        low, high = np.searchsorted(rows, (start, end)).tolist()
        if high - low == len(piece):
            found.append(piece)
        elif low < high:
            found.append(piece.take(rows[low:high] - start))
        start = end
    return found
