"""Facts about brokers that their frames do not tell, or tell wrongly.

A peer names its product and version in *open*. Where one is known to end sessions for a question that the specification
allows, or to repeat what was asked as if it were granted, our client does not ask, or does not believe it. What each
broker was seen to do is in ``docs/brokers.md``; the tests that saw it are `tests/interop/test_foreign_*`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple


class Product(NamedTuple):
    """The peculiarities of a peer."""

    keeps_first_acquirer: bool = False
    """True if *first-acquirer* (3.2.1) is kept up to date: false says that somebody had the message before."""
    refuses_second: bool = False
    """True if the peer ends the session, or the link, where a receiver asks for rcv-settle-mode second; others answer
    that they grant *first* (2.6.3, 2.7.3)."""
    repeats_source: bool = False
    """True if the peer's *attach* repeats what was asked of the source although the peer does nothing of it (3.5.3):
    distribution-mode, selectors, durability and capabilities."""
    repeats_target: bool = False
    """True if the peer's *attach* repeats the capabilities that were asked of the target, whatever node is there."""
    repeats_filters: bool = False
    """True if the peer's *attach* repeats every filter, and the peer applies none but those of its streams (3.5.8)."""
    wants_attach_answered: bool = False
    """True if the peer ends the session for a *flow* that comes before it has answered the *attach*, where it takes the
    link from an earlier connection: as may be after each loss of one (2.6.1, 2.7.4)."""


UNKNOWN: Final = Product()

_KNOWN: Final[tuple[tuple[str, tuple[int, ...], Product], ...]] = (
    ("acquit", (), Product(keeps_first_acquirer=True)),
    ("apache-activemq-artemis", (), Product(repeats_target=True)),
    ("Apache Qpid Broker-J Core", (), Product(wants_attach_answered=True, repeats_target=True)),
    ("RabbitMQ", (), Product(refuses_second=True, repeats_source=True, repeats_target=True, repeats_filters=True)),
    (
        "RabbitMQ",
        (4,),
        Product(
            keeps_first_acquirer=True,
            refuses_second=True,
            repeats_source=True,
            repeats_target=True,
            repeats_filters=True,
        ),
    ),
    (
        "RabbitMQ",
        (4, 1),
        Product(keeps_first_acquirer=True, refuses_second=True, repeats_source=True, repeats_target=True),
    ),
    ("RabbitMQ", (4, 3), Product(keeps_first_acquirer=True, refuses_second=True)),
)
"""Rows of a product, the first version of which the row holds, and its peculiarities; the older first."""


def product_of(properties: Mapping[str, object] | None) -> Product:
    """Return what is known of a peer that shows these connection properties."""
    shown = properties or {}
    name, version = shown.get("product"), _numbers(str(shown.get("version", "")))
    rows = [row for product, since, row in _KNOWN if product == name and version >= since]
    return rows[-1] if rows else UNKNOWN


def _numbers(version: str) -> tuple[int, ...]:
    """The numbers that a version begins with: (4, 0) of ``4.0-beta.1``."""
    numbers: list[int] = []
    for part in version.split("."):
        digits = part[: len(part) - len(part.lstrip("0123456789"))]
        if not digits:
            break
        numbers.append(int(digits))
        if digits != part:
            break
    return tuple(numbers)
