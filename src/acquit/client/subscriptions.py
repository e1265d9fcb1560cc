"""Sources of a receiver that are more than an address: topics and their subscriptions, selectors, temporary nodes.

What goes over the wire is what Qpid JMS sends, so every broker that serves it serves us. A subscription is named by the
first part of its link's name; the terminus is durable, shared or both by its durability and its capabilities
(`topic`, `shared`, `global`). Without a container id of the user's own a connection has a name that nobody can come
back to, so its shared subscriptions are `global`, and an exclusive durable one makes no sense.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Final

from acquit.errors import ConfigurationError
from acquit.protocol._definitions import (
    DeleteOnClose,
    Source,
    StdDistMode,
    TerminusDurability,
    TerminusExpiryPolicy,
)
from acquit.protocol.constants import Outcome
from acquit.protocol.types import Described, Symbol, ULong

if TYPE_CHECKING:
    from acquit.client.options import ReceiverSpec

SELECTOR: Final = "jms-selector"
NO_LOCAL: Final = "no-local"
_SELECTOR_FILTER: Final = Symbol("apache.org:selector-filter:string")
_NO_LOCAL_FILTER: Final = Symbol("apache.org:no-local-filter:list")
_CODES: Final[Mapping[object, object]] = {
    _SELECTOR_FILTER: ULong(0x0000_468C_0000_0004),
    _NO_LOCAL_FILTER: ULong(0x0000_468C_0000_0003),
}
"""A filter is known by either of its descriptors (protocol: apache.org filters)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Subscription:
    """A subscription of a topic that has a name (JMS 2.0, section 8.3).

    Durable ones keep what is posted while nobody receives, until `Session.unsubscribe`. Shared ones may have several
    receivers, which take turns. Raises ConfigurationError for one that is neither, and for a name that is empty or has
    a ``|``, which link names use.
    """

    name: str
    durable: bool = True
    shared: bool = False

    def __post_init__(self) -> None:
        if not self.name or "|" in self.name:
            raise ConfigurationError(
                f"the name of a subscription must be a string that is not empty, without |, got {self.name!r}"
            )
        if not (self.durable or self.shared):
            raise ConfigurationError(
                "a subscription that is neither durable nor shared has no name: receive with topic=True"
            )

    def link_name(self, taken: Container[str], *, named: bool) -> str:
        """The name of one more link to it. `named`: the user chose the container id; `taken`: names of other links.

        Raises ConfigurationError for an exclusive subscription of a container that has no name of its own.
        """
        if not self.shared:
            if not named:
                raise ConfigurationError(
                    f"the durable subscription {self.name!r} belongs to a container: connect with a container_id, or "
                    "make it shared"
                )
            return self.name
        for number in count(1):
            link_name = self._shared_name(number, named)
            if link_name not in taken:
                return link_name
        raise AssertionError("count has no end")

    def first_link_name(self, *, named: bool) -> str:
        """The name of the link that unsubscribes."""
        return self.name if named or not self.shared else f"{self.name}|global"

    def _shared_name(self, number: int, named: bool) -> str:
        if self.durable:
            suffix = ("" if number == 1 else str(number)) if named else f"global{'' if number == 1 else number}"
        else:
            suffix = f"{'' if named else 'global-'}volatile{number}"
        return f"{self.name}|{suffix}" if suffix else self.name

    def capabilities(self, *, named: bool) -> tuple[str, ...]:
        """Of the source, besides ``topic``."""
        return (("shared",) if named else ("shared", "global")) if self.shared else ()


def make_source(
    spec: ReceiverSpec, outcomes: Iterable[str], *, named: bool, default_outcome: Outcome | None = None
) -> Source:
    """The source that a receiver asks for. `default_outcome`: for a spec that names none."""
    subscription = spec.subscription
    topic = spec.topic or subscription is not None
    capabilities = [*spec.capabilities]
    if topic:
        capabilities.append("temporary-topic" if spec.address is None else "topic")
    elif spec.address is None:
        capabilities.append("temporary-queue")
    if subscription is not None:
        capabilities += subscription.capabilities(named=named)
    kept = subscription is not None and subscription.durable
    return Source(
        address=spec.address,
        durable=TerminusDurability.UNSETTLED_STATE if kept else TerminusDurability.NONE,
        expiry_policy=TerminusExpiryPolicy.NEVER if kept else TerminusExpiryPolicy.LINK_DETACH,
        dynamic=spec.address is None,
        dynamic_node_properties={"lifetime-policy": DeleteOnClose()} if spec.address is None else None,
        distribution_mode=StdDistMode.COPY if spec.browse or kept else None,
        default_outcome=spec.default_outcome or default_outcome,
        outcomes=tuple(outcomes),
        filter=asked_filters(spec),
        capabilities=tuple(capabilities),
    )


def asked_filters(spec: ReceiverSpec) -> Mapping[str, object] | None:
    """All filters of the source, by the names they get here."""
    filters = dict(spec.filters or {})
    if spec.selector is not None:
        filters[SELECTOR] = Described(_SELECTOR_FILTER, spec.selector)
    if spec.no_local:
        filters[NO_LOCAL] = Described(_NO_LOCAL_FILTER, [])
    return filters or None


def not_applied(
    asked: Mapping[str, object] | None, granted: Mapping[str, object] | None, *, parrot: bool = False
) -> list[str]:
    """Names of filters that the peer did not echo, which means that it does not apply them (3.5.8). A `parrot` echoes
    selectors and no-local in any case, and applies neither."""
    heard = {
        name: kind
        for name, value in (granted or {}).items()
        if not ((kind := _kind(value)) in _CODES.values() and parrot)
    }
    return sorted(
        name for name, value in (asked or {}).items() if _kind(value) not in heard.values() and name not in heard
    )


def _kind(value: object) -> object:
    descriptor = value.descriptor if isinstance(value, Described) else None
    return _CODES.get(descriptor, descriptor)


__all__ = ["Subscription", "asked_filters", "make_source", "not_applied"]
