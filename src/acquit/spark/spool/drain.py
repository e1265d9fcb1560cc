"""What the spool protocol needs from a link to a queue, and from whoever understands messages.

Three small interfaces keep AMQP and Spark out of the protocol: a `Drain` is one attached link; a `MessageReader` finds
identities and makes rows; both have an implementation over acquit's client (`spark.client_drain`, `spark.columns`), and
the tests have a model of a broker that forgets, restarts and redelivers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol
from uuid import UUID

import pyarrow as pa

from acquit.spark.spool.identities import Outcome


class Received(NamedTuple):
    """One unsettled delivery: the message as it was transferred, and the drain's own handle on it."""

    payload: bytes
    handle: object


class Drain(Protocol):
    """One link, attached with default-outcome *released*: what is never settled goes back uncounted."""

    @property
    def broker_id(self) -> UUID | None:
        """Of an acquit broker, whose sequence numbers then identify postings; None elsewhere."""

    @property
    def exhausted(self) -> bool:
        """After `receive` returned nothing: the queue had nothing more. False: time was up, or the link was lost."""

    def receive(self, rows_max: int) -> Sequence[Received]:
        """At least one message, or none at the end of the queue, of the time, or of the link."""

    def settle(self, outcomes: Sequence[tuple[Received, Outcome]]) -> bool:
        """Settle these and wait for the answers. False when any answer is missing: they may come again."""

    def detach(self) -> None:
        """Give back what is unsettled and let the link go. Never raises; may be called again."""


class Identity(NamedTuple):
    """What says that two deliveries are the same message."""

    key: bytes
    """Unambiguous over all kinds of identity."""
    names_posting: bool
    """Given by the broker for each posting, or by a field that the user names. Else two deliveries on one unbroken link
    are two messages with one id."""


class Identified(NamedTuple):
    """What a message is, before anything is made of it."""

    identity: Identity | None
    bare: bytes | memoryview
    """The bare message (3.2), over which content is compared."""
    sequence: int | None
    """The broker's sequence, where `broker_id` is known."""
    message: object
    """What the reader keeps of it until rows are made."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Messages as rows, in their order, and which of them could not be parsed."""

    batches: Sequence[pa.RecordBatch]
    corrupt: dict[int, str]
    """Row number and reason. The row is there all the same, with its bytes in the corrupt column."""


class MessageReader(Protocol):
    """Understands messages."""

    def identify(self, payload: bytes, broker_id: UUID | None) -> Identified:
        """Never raises, whatever the bytes are."""

    def rows(self, messages: Sequence[Identified], broker_id: UUID | None) -> Rows:
        """Never raises, whatever the bytes are."""
