"""The meaning of an address string for a link of AMQP 1.0.

Theory of operation. The text is parsed, its options are held to a table of what there is, and a plan says what the link
is attached with. What an option means in AMQP 1.0, and what has no meaning there, is decided here and nowhere else::

    create         capability create-on-demand of the terminus
    delete         asked of the broker's $management when the link is closed
    assert         the node's kind, as the peer's terminus says; whether it is there, as $management says
    mode: browse   distribution-mode copy
    node.type      capability queue or topic
    link.name      a durable link from a topic: the name of the subscription; else of the link
    link.durable   from a topic: a durable subscription, of all who know its name (where the connection has no
                   container_id of its own, or x-declare says exclusive: false), or of this container
    reliability    unreliable, at-most-once: pre-settled (2.6.12); at-least-once, reliable: as the session acknowledges
    selector       filter apache.org:selector-filter:string
    filter         a filter-set of the user's own
    /subject       of a sender: the subject of its messages; of a receiver: a filter on it

Where nothing is said, links from topics and browsers are unreliable, as ever.

What declares exchanges, bindings and queue arguments belongs to AMQP 0-10. What would change which messages come, or
what becomes of them, is refused (InvalidOption), with the setting of the broker that does the same where there is one;
what only concerns the life of a queue is logged and passed over.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias

from acquit.client.subscriptions import Subscription
from acquit.compat.qpid.messaging.address import LexError, Options, ParseError, parse
from acquit.compat.qpid.messaging.exceptions import InvalidOption, MalformedAddress
from acquit.errors import ConfigurationError, EncodeError
from acquit.protocol.extensions import CREATE_ON_DEMAND
from acquit.protocol.types import Described, Symbol, ULong

logger = logging.getLogger("qpid.messaging")

Direction: TypeAlias = Literal["sender", "receiver"]

DIRECT_BINDING: Final = Symbol("apache.org:legacy-amqp-direct-binding:string")
TOPIC_BINDING: Final = Symbol("apache.org:legacy-amqp-topic-binding:string")
SUBJECT_FILTER: Final = "subject"
EXCHANGES: Final = frozenset(("amq.topic", "amq.direct", "amq.fanout", "amq.match"))
"""Nodes that every broker of AMQP 0-10 had: topics, where nothing else is said."""
UNRELIABLE: Final = frozenset(("unreliable", "at-most-once"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Asserted:
    """Kind and durability that the address asserts of its node. None: nothing."""

    kind: str | None
    durable: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AttachPlan:
    """The arguments that a link is attached with."""

    address: str | None
    """None: a node that the peer makes and names."""
    subject: str | None
    topic: bool
    name: str | None
    """Name of the link; None: one that no other has."""
    capabilities: tuple[str, ...]
    unreliable: bool
    creates: bool
    deletes: bool
    """The node is to be deleted when the link is closed."""
    asserted: Asserted | None
    browse: bool = False
    selector: str | None = None
    filters: Mapping[str, object] | None = None
    subscription: Subscription | None = None


# -- what there is ----------------------------------------------------------------------------------------------------

Check: TypeAlias = "Callable[[object], str | None]"
"""Function that says what is expected instead of a value that is no good; None where the value is good."""


def _one_of(*names: str) -> Check:
    return lambda value: None if value in names else f"expected one of {', '.join(names)}"


def _a(*kinds: type, what: str) -> Check:
    return lambda value: None if isinstance(value, kinds) else f"expected {what}"


_POLICY: Final = _one_of("always", "sender", "receiver", "never")
_FLAG: Final = _a(bool, what="True or False")
_TEXT: Final = _a(str, what="a string")
_MAP: Final = _a(dict, what="a map")
_LIST: Final = _a(list, what="a list")

_COMMON: Final[dict[str, Check]] = {
    "create": _POLICY,
    "delete": _POLICY,
    "assert": _POLICY,
    "node": _MAP,
    "link": _MAP,
}
_KNOWN: Final[dict[str, dict[str, Check]]] = {
    "sender": _COMMON,
    "receiver": {**_COMMON, "mode": _one_of("browse", "consume")},
    "node": {
        "type": _one_of("queue", "topic"),
        "durable": _FLAG,
        "capabilities": _LIST,
        "x-declare": _MAP,
        "x-bindings": _LIST,
    },
    "link": {
        "name": _TEXT,
        "durable": _FLAG,
        "reliability": _one_of("unreliable", "at-most-once", "at-least-once", "reliable", "exactly-once"),
        "timeout": _a(int, float, what="a number"),
        "selector": _TEXT,
        "filter": _a(dict, list, what="a map or a list of maps"),
        "x-declare": _MAP,
        "x-bindings": _LIST,
        "x-subscribe": _MAP,
    },
}

_LIFE: Final = frozenset(("auto-delete", "exclusive", "durable", "passive", "type"))
"""Keys of an x-declare that concern the life of a node, and are passed over."""
_INSTEAD: Final[Mapping[str, str]] = {
    "alternate-exchange": "dead_letter_address",
    "qpid.max_count": "messages_max",
    "qpid.max_size": "bytes_max",
    "qpid.policy_type": "full_policy, or ring_size",
    "qpid.last_value_queue": "last_value",
    "qpid.last_value_queue_no_browse": "last_value",
    "qpid.last_value_queue_key": "last_value_key",
    "qpid.LVQ_key": "last_value_key",
    "qpid.browse-only": "non_destructive",
}
"""Keys and arguments of queues, and the setting in a policy of our broker that does the same."""


def _checked(options: Mapping[object, object], known: Mapping[str, Check], where: str) -> dict[str, object]:
    found: dict[str, object] = {}
    for key, value in options.items():
        if not isinstance(key, str) or key not in known:
            raise InvalidOption(
                text=f"error in options: {where}{_shown(key)}: no such option; expected one of {', '.join(known)}"
            )
        expected = known[key](value)
        if expected is not None:
            raise InvalidOption(text=f"error in options: {where}{key}: {expected}, got {value!r:.60}")
        found[key] = value
    return found


def _shown(key: object) -> str:
    """A key, for people; whatever is in it."""
    return key if isinstance(key, str) and key.isprintable() and len(key) <= 60 else f"{key!r:.60}"


def _refuse(option: str, reason: str) -> InvalidOption:
    return InvalidOption(text=f"{option} has no meaning in AMQP 1.0: {reason}")


# -- what it means ----------------------------------------------------------------------------------------------------


def read(address: str) -> tuple[str, str | None, Options]:
    """Name, subject and options of an address. Raises MalformedAddress."""
    if not isinstance(address, str):
        raise MalformedAddress(text=f"an address is a string, got {type(address).__name__}")
    try:
        name, subject, options = parse(address)
    except (LexError, ParseError) as exc:
        raise MalformedAddress(text=f"{address!r:.200}: {exc}") from None
    return name, subject, options or {}


def plan(address: str, direction: Direction, *, named: bool = False) -> AttachPlan:
    """Return what a link to or from `address` is attached with. `named`: the connection has a container_id of its own.

    Raises MalformedAddress, and InvalidOption naming the option.
    """
    name, subject, given = read(address)
    options = _checked(given, _KNOWN[direction], "")
    node = _checked(_map(options, "node"), _KNOWN["node"], "node.")
    link = _checked(_map(options, "link"), _KNOWN["link"], "link.")
    creates = _enabled(options, "create", direction)
    dynamic = address.lstrip().startswith("#")
    _check_declarations(node, link, creates=creates or dynamic)
    durable = bool(link.get("durable"))
    presumed = "topic" if name in EXCHANGES or (durable and direction == "receiver") else None
    topic = node.get("type", presumed) == "topic"
    browse = options.get("mode") == "browse" and not topic
    capabilities = [str(word) for word in _list(node, "capabilities")]
    if creates and not dynamic:
        capabilities.append(CREATE_ON_DEMAND)
    if node.get("type") == "queue" and not dynamic:
        capabilities.append("queue")
    asserts = _enabled(options, "assert", direction) and not dynamic
    common = AttachPlan(
        address=None if dynamic else name,
        subject=subject,
        topic=topic,
        name=_text(link, "name"),
        capabilities=tuple(capabilities),
        unreliable=_unreliable(link, presumed=direction == "receiver" and (browse or (topic and not durable))),
        creates=creates,
        deletes=_enabled(options, "delete", direction) and not dynamic,
        asserted=Asserted(kind=_text(node, "type"), durable=_flag(node, "durable")) if asserts else None,
    )
    if direction == "sender":
        return _sending(common, link)
    return _receiving(common, link, browse=browse, named=named)


def _sending(common: AttachPlan, link: Mapping[str, object]) -> AttachPlan:
    if common.address is None:
        raise InvalidOption(text="a sender cannot have a node made for it: receive from '#', and send to its source")
    for key in ("selector", "filter"):
        if key in link:
            raise InvalidOption(text=f"link.{key} is for receivers")
    return common


def _receiving(common: AttachPlan, link: Mapping[str, object], *, browse: bool, named: bool) -> AttachPlan:
    subscription = None
    if common.topic and link.get("durable"):
        if common.name is None:
            raise InvalidOption(text="link.durable: a durable subscription needs a name: link.name")
        shared = not named or _map(link, "x-declare").get("exclusive") is False
        try:
            subscription = Subscription(name=common.name, durable=True, shared=shared)
        except ConfigurationError as exc:
            raise InvalidOption(text=f"link.name: {exc}") from None
    filters = dict(_filters(link.get("filter")))
    if common.subject is not None and common.subject != "#":
        pattern = "*" in common.subject or "#" in common.subject
        filters[SUBJECT_FILTER] = Described(TOPIC_BINDING if pattern else DIRECT_BINDING, common.subject)
    return replace(
        common,
        name=None if subscription is not None else common.name,
        browse=browse,
        selector=_text(link, "selector"),
        filters=filters or None,
        subscription=subscription,
    )


def _unreliable(link: Mapping[str, object], *, presumed: bool) -> bool:
    reliability = link.get("reliability")
    if reliability == "exactly-once":
        logger.warning(
            "link.reliability: exactly-once is at-least-once, as ever: duplicates are told by the message id"
        )
    return presumed if reliability is None else reliability in UNRELIABLE


def _check_declarations(node: Mapping[str, object], link: Mapping[str, object], *, creates: bool) -> None:
    """Refuse, or log and pass over, what belongs to AMQP 0-10."""
    if _list(node, "x-bindings") or _list(link, "x-bindings"):
        where = "node" if _list(node, "x-bindings") else "link"
        raise _refuse(
            f"{where}.x-bindings", "there are no exchanges; receive from the topic, with a subject or a selector"
        )
    if _map(link, "x-subscribe"):
        raise _refuse("link.x-subscribe", 'consumers are exclusive by the broker\'s policy (consumers = "exclusive")')
    if "timeout" in link:
        logger.warning("link.timeout is passed over: a durable subscription is kept until it is deleted")
    for where, declared in (("node", _map(node, "x-declare") if creates else {}), ("link", _map(link, "x-declare"))):
        _check_arguments(f"{where}.x-declare.arguments", _map(declared, "arguments"))
        keys = [str(key).replace("_", "-") for key, value in declared.items() if value not in ([], {})]
        unknown = [key for key in keys if key not in _LIFE and key != "arguments"]
        if unknown:
            raise _undeclared(f"{where}.x-declare", unknown[0])
        passed = [key for key in keys if key in _LIFE]
        if passed:
            logger.warning("%s.x-declare: %s passed over: the broker's policies say it", where, ", ".join(passed))


def _check_arguments(where: str, arguments: Mapping[object, object]) -> None:
    for key in arguments:
        raise _undeclared(where, str(key))


def _undeclared(where: str, key: str) -> InvalidOption:
    instead = _INSTEAD.get(key)
    reason = f"set {instead} in the broker's policy of the address" if instead else "the broker's policies say it"
    return _refuse(f"{where}: {_shown(key)}", reason)


def _filters(given: object) -> Iterable[tuple[str, Described]]:
    for entry in given if isinstance(given, list) else [given] if given is not None else []:
        if not isinstance(entry, dict) or not {"name", "descriptor", "value"} <= set(entry):
            raise InvalidOption(text=f"link.filter: expected name, descriptor and value, got {entry!r:.60}")
        descriptor = entry["descriptor"]
        if not isinstance(descriptor, int | str) or isinstance(descriptor, bool):
            raise InvalidOption(text=f"link.filter: a descriptor is a number or a string, got {descriptor!r:.60}")
        try:
            said = ULong(descriptor) if isinstance(descriptor, int) else Symbol(descriptor)
        except EncodeError as exc:
            raise InvalidOption(text=f"link.filter: {exc}") from None
        yield str(entry["name"]), Described(said, entry["value"])


def _enabled(options: Mapping[str, object], policy: str, direction: Direction) -> bool:
    return options.get(policy) in ("always", direction)


def _map(options: Mapping[str, object] | Mapping[object, object], key: str) -> Mapping[object, object]:
    found = options.get(key)
    return found if isinstance(found, Mapping) else {}


def _list(options: Mapping[str, object], key: str) -> list[object]:
    found = options.get(key)
    return found if isinstance(found, list) else []


def _text(options: Mapping[str, object], key: str) -> str | None:
    found = options.get(key)
    return found if isinstance(found, str) else None


def _flag(options: Mapping[str, object], key: str) -> bool | None:
    found = options.get(key)
    return found if isinstance(found, bool) else None


__all__ = ["Asserted", "AttachPlan", "Direction", "plan", "read"]
