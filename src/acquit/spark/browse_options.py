"""The options of the batch source. `OPTIONS` is the reference that `docs/spark-batch.md` repeats."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from acquit.errors import ConfigurationError
from acquit.spark.options import HOUR_MS, Option, parse_options, read_count, read_duration
from acquit.spark.read_options import READ_OPTIONS, ReadOptions, poison_option
from acquit.spark.spool import Poison


@dataclass(frozen=True, slots=True, kw_only=True)
class BrowseOptions(ReadOptions):
    """Options of the batch source; see `OPTIONS` for each."""

    parts: int = 4
    idle_timeout_ms: int = 10_000

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
    *READ_OPTIONS,
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
    poison_option(Poison.COLUMN, Poison.FAIL),
)
