"""Sources of a receiver that are more than an address: topics and their subscriptions, selectors, temporary nodes.

What goes over the wire is what Qpid JMS sends, so every broker that serves it serves us.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from acquit.client.options import ReceiverSpec
from acquit.client.products import UNKNOWN, Product
from acquit.protocol.constants import Outcome
from acquit.protocol.definitions import (
    DeleteOnClose,
    Source,
    StdDistMode,
    TerminusDurability,
    TerminusExpiryPolicy,
)
from acquit.protocol.types import Described, Symbol, ULong

SELECTOR: Final = "jms-selector"
NO_LOCAL: Final = "no-local"
_SELECTOR_FILTER: Final = Symbol("apache.org:selector-filter:string")
_NO_LOCAL_FILTER: Final = Symbol("apache.org:no-local-filter:list")
_CODES: Final[Mapping[object, object]] = {
    _SELECTOR_FILTER: ULong(0x0000_468C_0000_0004),
    _NO_LOCAL_FILTER: ULong(0x0000_468C_0000_0003),
}
"""A filter is known by either of its descriptors (protocol: apache.org filters)."""
_QUEUES: Final = frozenset(("queue", "temporary-queue"))
_TOPICS: Final = frozenset(("topic", "temporary-topic"))
_OF_STREAMS: Final = "rabbitmq:stream-"
"""Beginning of the names of filters that RabbitMQ's streams apply, which knows them by their keys."""


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


def is_choosy(spec: ReceiverSpec) -> bool:
    """Return True if the receiver asks for something of its source that a peer may not grant, and attach it all the
    same: what its answer says of that has to be looked at."""
    return spec.browse or spec.topic or spec.subscription is not None or asked_filters(spec) is not None


def is_queue_for_topic(spec: ReceiverSpec, granted: Source | None) -> bool:
    """Return True if a topic was asked for, and the peer says that it gives a queue (3.5.3)."""
    if granted is None or not (spec.topic or spec.subscription is not None):
        return False
    kinds = set(granted.capabilities)
    return bool(kinds & _QUEUES) and not kinds & _TOPICS


def asked_filters(spec: ReceiverSpec) -> Mapping[str, object] | None:
    """All filters of the source, by the names they get here."""
    filters = dict(spec.filters or {})
    if spec.selector is not None:
        filters[SELECTOR] = Described(_SELECTOR_FILTER, spec.selector)
    if spec.no_local:
        filters[NO_LOCAL] = Described(_NO_LOCAL_FILTER, [])
    return filters or None


def not_applied(
    asked: Mapping[str, object] | None, granted: Mapping[str, object] | None, peer: Product = UNKNOWN
) -> list[str]:
    """Names of filters that the peer did not echo, which means that it does not apply them (3.5.8), or that it is known
    to echo in any case."""
    heard = {name: kind for name, value in (granted or {}).items() if _is_true(name, kind := _kind(value), peer)}
    return sorted(
        name for name, value in (asked or {}).items() if _kind(value) not in heard.values() and name not in heard
    )


def _is_true(name: str, kind: object, peer: Product) -> bool:
    """Return True if the peer applies a filter that it has echoed."""
    if peer.repeats_filters:
        return name.startswith(_OF_STREAMS)
    return not (peer.repeats_source and kind in _CODES.values())


def _kind(value: object) -> object:
    descriptor = value.descriptor if isinstance(value, Described) else None
    return _CODES.get(descriptor, descriptor)


__all__ = ["asked_filters", "is_choosy", "is_queue_for_topic", "make_source", "not_applied"]
