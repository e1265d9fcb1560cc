"""The options of the streaming source. `OPTIONS` is the reference that `docs/spark.md` repeats."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from acquit.spark.columns import identity_finder
from acquit.spark.options import (
    HOUR_MS,
    YEAR_MS,
    Option,
    parse_options,
    read_choice,
    read_count,
    read_duration,
    read_size,
    read_truth,
)
from acquit.spark.read_options import READ_OPTIONS, ReadOptions, poison_option
from acquit.spark.spool import MissingIdentity, Poison, RetentionOptions
from acquit.spark.spool.places import read_place
from acquit.spark.tracing import read_tracer

MESSAGES_MAX: Final = 100_000_000
"""Messages in a batch, at most. A link's credit has 32 bits (2.6.7)."""
_BATCH_BYTES_MAX: Final = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions(ReadOptions):
    """Options of the streaming source; see `OPTIONS` for each."""

    create: bool = True
    spool: str
    parts: int = 2
    max_messages_per_batch: int = 50_000
    max_bytes_per_batch: int = 64 << 20
    drain_timeout_ms: int = 2_000
    identity_field: str | None = None
    missing_identity: MissingIdentity = MissingIdentity.FAIL
    identity_retention_ms: int = RetentionOptions().identity_retention_ms
    identity_limit: int = RetentionOptions().identity_limit
    reject_is_dead_letter: bool = False
    tracer: str | None = None

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> SourceOptions:
        """Read options as Spark gives them. Raises ConfigurationError."""
        return parse_options(cls, OPTIONS, options)

    @property
    def retention(self) -> RetentionOptions:
        """Options that say how long and how many identities the spool remembers."""
        return RetentionOptions(identity_retention_ms=self.identity_retention_ms, identity_limit=self.identity_limit)


def _identity_field(text: str) -> str:
    identity_finder(text)
    return text


OPTIONS: Final = (
    *READ_OPTIONS,
    Option(
        "spool",
        "spool",
        read_place,
        "a folder of this query alone, shared by the driver and all workers (a local one with local[...] only), or "
        "s3://bucket/path",
        required=True,
    ),
    Option(
        "parts",
        "parts",
        read_count(1, 1_000),
        "how many tasks read in parallel in each batch, over all addresses; at least one for each that is read",
    ),
    Option(
        "maxMessagesPerBatch",
        "max_messages_per_batch",
        read_count(1, MESSAGES_MAX),
        "messages in a batch, over all parts",
    ),
    Option(
        "maxBytesPerBatch",
        "max_bytes_per_batch",
        read_size(1, 1_000 * _BATCH_BYTES_MAX),
        "bytes in a batch, over all parts",
    ),
    Option("drainTimeout", "drain_timeout_ms", read_duration(1, HOUR_MS), "how long a part may drain"),
    Option(
        "identityField",
        "identity_field",
        _identity_field,
        "which field says that two messages with the same body are one, also when they were posted twice: message-id, "
        "correlation-id, application-properties.NAME or message-annotations.NAME; else the acquit broker's sequence, "
        "else message-id",
    ),
    Option(
        "missingIdentity",
        "missing_identity",
        read_choice(MissingIdentity, *MissingIdentity),
        "a message without identity: fail, or at-least-once",
    ),
    Option(
        "identityRetention",
        "identity_retention_ms",
        read_duration(1_000, 10 * YEAR_MS),
        "how long identities are remembered: longer than any redelivery can take",
    ),
    Option(
        "identityLimit", "identity_limit", read_count(1, 1_000_000_000), "how many identities are remembered at most"
    ),
    poison_option(*Poison),
    Option(
        "rejectIsDeadLetter",
        "reject_is_dead_letter",
        read_truth,
        "with poison = reject on a broker that is not acquit: true says that it dead-letters what is rejected",
    ),
    Option(
        "tracer",
        "tracer",
        read_tracer,
        "module:function, which each worker calls once, and which returns acquit.telemetry.OpenTelemetry(...): spans "
        "of what is taken and settled",
    ),
)
