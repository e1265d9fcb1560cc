"""The options of the batch source. `OPTIONS` is the reference that `docs/spark-batch.md` repeats."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from acquit.errors import ConfigurationError
from acquit.spark.decoding import BODY_OPTIONS, BodyAs, check_body
from acquit.spark.options import (
    CONNECTION_OPTIONS,
    HOUR_MS,
    ConnectionOptions,
    Option,
    parse_options,
    read_choice,
    read_count,
    read_duration,
)
from acquit.spark.source_options import read_addresses
from acquit.spark.spool import Poison


@dataclass(frozen=True, slots=True, kw_only=True)
class BrowseOptions(ConnectionOptions):
    """Options of the batch source; see `OPTIONS` for each."""

    address: str | None = None
    addresses: tuple[str, ...] = ()
    selector: str | None = None
    parts: int = 4
    idle_timeout_ms: int = 10_000
    poison: Poison = Poison.COLUMN
    body_as: BodyAs = BodyAs.BYTES
    body_schema: str | None = None

    def __post_init__(self) -> None:
        ConnectionOptions.__post_init__(self)
        if self.address is None and not self.addresses:
            raise ConfigurationError("option address is missing: the queue to look at; or name several with addresses")
        if self.address is not None and self.addresses:
            raise ConfigurationError("option address is given, and addresses too: name all queues in addresses")
        check_body(self.body_as, self.body_schema)

    @property
    def queues(self) -> tuple[str, ...]:
        """The addresses that are looked at, at least one, each once."""
        return self.addresses if self.address is None else (self.address,)

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> BrowseOptions:
        """Read options as Spark gives them. Raises ConfigurationError."""
        if any(key.lower() == "spool" for key in options):
            raise ConfigurationError(
                "option spool is for a stream (spark.readStream), which takes messages; spark.read only looks at them, "
                "and keeps nothing"
            )
        return parse_options(cls, OPTIONS, options)


OPTIONS: Final = (
    *CONNECTION_OPTIONS,
    Option("address", "address", str, "the queue to look at; this or `addresses` is required"),
    Option(
        "addresses",
        "addresses",
        read_addresses,
        "several queues to look at, separated by commas; the column `queue` says in which a row is",
    ),
    Option(
        "selector",
        "selector",
        str,
        "only messages that this JMS selector selects, such as `region = 'EU' AND total > 100`; refused where the "
        "broker grants none",
    ),
    Option(
        "parts",
        "parts",
        read_count(1, 1_000),
        "how many tasks look at a queue together, at most; one where the broker is not acquit's, or there is little",
    ),
    Option(
        "idleTimeout",
        "idle_timeout_ms",
        read_duration(1, HOUR_MS),
        "how long nothing may come without the broker saying that the end is reached; then an acquit broker's queue is "
        "an error, and another's is taken to be at its end",
    ),
    Option(
        "poison",
        "poison",
        read_choice(Poison, Poison.COLUMN, Poison.FAIL),
        "a message that cannot be parsed: column (a row with `corrupt`), or fail",
    ),
    *BODY_OPTIONS,
)
