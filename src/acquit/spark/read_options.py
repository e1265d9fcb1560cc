"""Options of every way to read queues: which queues, which of their messages, and what is made of bodies.

`spark.source_options` (a stream) and `spark.browse_options` (a batch) add what is theirs. A row of `READ_OPTIONS`, its
check and its line on the pages exist once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from acquit.errors import ConfigurationError
from acquit.spark.decoding import BODY_OPTIONS, BodyAs, check_body
from acquit.spark.options import CONNECTION_OPTIONS, Option, SparkConnectionOptions, read_choice, read_truth
from acquit.spark.spool import Poison

_ADDRESSES_MAX: Final = 1_000
_POISON: Final = {
    Poison.COLUMN: "column (a row with `corrupt`)",
    Poison.REJECT: "reject (to the broker)",
    Poison.FAIL: "fail",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions(SparkConnectionOptions):
    """Options of whatever reads queues; see `READ_OPTIONS` for each."""

    address: str | None = None
    addresses: tuple[str, ...] = ()
    selector: str | None = None
    body_as: BodyAs = BodyAs.BYTES
    body_schema: str | None = None
    create: bool = False
    poison: Poison = Poison.COLUMN

    def __post_init__(self) -> None:
        SparkConnectionOptions.__post_init__(self)
        if self.address is None and not self.addresses:
            raise ConfigurationError("option address is missing: the queue to read; or name several with addresses")
        if self.address is not None and self.addresses:
            raise ConfigurationError("option address is given, and addresses too: name all queues in addresses")
        check_body(self.body_as, self.body_schema)

    @property
    def queues(self) -> tuple[str, ...]:
        """The addresses that are read, at least one, each once."""
        return self.addresses if self.address is None else (self.address,)


def _addresses(text: str) -> tuple[str, ...]:
    addresses = tuple(dict.fromkeys(name for part in text.split(",") if (name := part.strip())))
    if not 1 <= len(addresses) <= _ADDRESSES_MAX:
        raise ValueError(f"names of queues separated by commas, at most {_ADDRESSES_MAX}")
    return addresses


READ_OPTIONS: Final = (
    *CONNECTION_OPTIONS,
    Option("address", "address", str, "the queue to read; this or `addresses` is required"),
    Option(
        "addresses",
        "addresses",
        _addresses,
        "several queues to read, separated by commas; the column `queue` says from which a row is",
    ),
    Option(
        "selector",
        "selector",
        str,
        "only messages that this JMS selector selects, such as `region = 'EU' AND total > 100`; refused where the "
        "broker grants none",
    ),
    *BODY_OPTIONS,
    Option(
        "create",
        "create",
        read_truth,
        "a queue that an acquit broker does not have: true (it is made, if its policy allows), or false (that is an "
        "error, which names queues like it)",
    ),
)


def poison_option(*choices: Poison) -> Option:
    """Return the option for what is done with a message that cannot be parsed: one of `choices`."""
    *first, last = (_POISON[choice] for choice in choices)
    meaning = f"a message that cannot be parsed: {', '.join(first)}, or {last}"
    return Option("poison", "poison", read_choice(Poison, *choices), meaning)


__all__ = ["READ_OPTIONS", "ReadOptions", "poison_option"]
