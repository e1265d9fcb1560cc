"""Interfaces of the spool protocol: to a link to a queue, and to whoever understands messages.

Three small interfaces keep AMQP and Spark out of the protocol: a `Drain` is one attached link; a `MessageReader` finds
identities and makes rows; both have an implementation over acquit's client (`spark.link`, `spark.columns`), and
the tests have a model of a broker that forgets, restarts and redelivers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple, Protocol, Self
from uuid import UUID

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from acquit.spark.spool.identities import Content, Outcome


class DrainedDelivery(Protocol):
    """Unsettled delivery, of the drain that gave it."""

    @property
    def payload(self) -> bytes:
        """The message as it was transferred."""


class Drain(Protocol):
    """Link to a queue, attached with default-outcome *released*: what is never settled goes back uncounted."""

    @property
    def broker_id(self) -> UUID | None:
        """Identity of an acquit broker, whose sequence numbers then identify postings; None elsewhere."""

    @property
    def exhausted(self) -> bool:
        """True if the queue had nothing more as `receive` returned nothing; else time was up, or the link was lost."""

    def receive(self, rows_max: int) -> Sequence[DrainedDelivery]:
        """Return at least one message, or none at the end of the queue, of the time, or of the link."""

    def settle(self, outcomes: Mapping[Outcome, Sequence[DrainedDelivery]]) -> bool:
        """Settle these and wait for the answers. False when any answer is missing: they may come again."""

    def detach(self) -> None:
        """Give back what is unsettled and let the link go. Never raises; may be called again."""


class KeptMessages(Protocol):
    """Some messages that were identified together, in the form in which their reader keeps them."""

    def __len__(self) -> int: ...

    def take(self, rows: NDArray[np.int64]) -> Self:
        """Return these of them; the rows ascend."""


class Identified(NamedTuple):
    """Identities of messages, before anything is made of these. Each column is over the messages."""

    keys: list[bytes | None]
    """Identities: what says that two deliveries are the same message. Unambiguous over all kinds of identity; None for
    a message that has none."""
    names_posting: list[bool]
    """True if the identity is given by the broker for each posting, or by a field that the user names. Else two
    deliveries on one unbroken link are two messages with one id."""
    contents: list[Content]
    """Content that two deliveries of one message must share, too: the time of the posting, where an acquit broker has
    numbered it; else the bare message (3.2), or the body alone where the identity is by a field that the user names."""
    sequences: list[int | None]
    """The broker's, where `broker_id` is known."""
    messages: list[KeptMessages]
    """The messages until rows are made: no column, but one piece after the other."""

    def take(self, rows: Sequence[int]) -> Identified:
        """Return the columns of these messages, which ascend."""
        return Identified(
            [self.keys[row] for row in rows],
            [self.names_posting[row] for row in rows],
            [self.contents[row] for row in rows],
            [self.sequences[row] for row in rows],
            take_messages(self.messages, np.array(rows, np.int64)),
        )

    @classmethod
    def join(cls, parts: Iterable[Identified]) -> Identified:
        """Return the columns of all parts, one after the other."""
        columns = [list(chain.from_iterable(column)) for column in zip(*parts, strict=True)]
        return cls(*columns) if columns else cls([], [], [], [], [])


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

    def bare(self, messages: Sequence[KeptMessages], broker_id: UUID | None) -> list[bytes]:
        """Return the bare message of each that `identify` gave: the content of every message in the first format of
        the log. Never raises."""


def take_messages(messages: Sequence[KeptMessages], rows: NDArray[np.int64]) -> list[KeptMessages]:
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
