"""Questions to an acquit broker before a read begins, so that a mistyped queue or selector is reported at once.

**Queues that are not there.** A link to an address that is not there makes a queue of it, unless the address's policy
says otherwise: whoever posts first, or waits first, need not ask anybody. For whoever reads what is there *now* it
makes an empty queue of a mistyped name, and success of nothing. AMQP has no attach for existing nodes only (a source
names an address, or asks for a new one by `dynamic`, 3.5.3), so the management node is asked. Who asks, unless the
option `create` says otherwise:

- A **batch** and a **pipeline**: they look at what is there, or somebody has just typed the name.
- Not a **stream** of somebody's own. It is set up once and then started again and again, often before its producers,
  whose first message makes the queue; and a queue with `auto_delete` may be gone whenever it was empty. A stream that
  does ask does so once, as it starts.

**Selectors.** The tasks of a stream attach with the selector, and an acquit broker's queue has tasks only when there is
something in it. So the selector is tried as the stream starts, on a link without credit. The broker's word is asked for
and not that of a parser here: it is the broker's language and the broker's limits.

Other brokers are not asked. They say `amqp:not-found` where a queue is not to be made, and there tasks attach at once,
because nothing else says whether there is something.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from acquit.client.blocking import Connection
from acquit.client.management import Management, ManagementFailed, converse
from acquit.errors import ConfigurationError, ConnectTimeout, LinkDetached, SessionEnded
from acquit.protocol.definitions import AmqpCondition
from acquit.protocol.extensions import QUEUE
from acquit.protocol.types import Value
from acquit.spark.read_options import ReadOptions

CREATE_ADVICE: Final = "with the option create = true (--create) it would be made"
WAITING: Final = "waiting for the broker at {}"
STARTING: Final = "starting"
"""Stages that a pipeline reports: while it asks the broker, and once it has."""

_CLOSE_MAX: Final = 3
_NOT_FOUND: Final = 404
_SEPARATOR: Final = "::"
"""Separator in ``ADDRESS::QUEUE``. A queue with the name of its address is asked for by that name alone."""


def refuse_missing(connection: Connection, options: ReadOptions, *, advice: str = CREATE_ADVICE) -> None:
    """Raise ConfigurationError where a queue of `options` is not there, naming those whose names are close.

    For acquit brokers. What the user may not ask about counts as there: to attach to it will say what is wrong.
    """
    with _asking(connection, options) as broker:
        missing = [address for address in options.queues if not _knows(broker, address)]
        if not missing:
            return
        names = _names(broker)
    close = [match for address in missing for match in difflib.get_close_matches(address, names, _CLOSE_MAX)]
    absent = ", ".join(map(repr, missing))
    hint = f"; did you mean {' or '.join(map(repr, dict.fromkeys(close)))}?" if close else ""
    raise ConfigurationError(
        f"there {'is no queue' if len(missing) == 1 else 'are no queues'} {absent} at {options.url}{hint}"
        f"{f' ({advice})' if advice else ''}"
    )


def none_is_there(connection: Connection, options: ReadOptions) -> bool:
    """True if no queue of `options` is there; what the user may not ask about counts as there. For acquit brokers."""
    with _asking(connection, options) as broker:
        return not any(_knows(broker, address) for address in options.queues)


def check_beforehand(connection: Connection, options: ReadOptions) -> None:
    """Raise ConfigurationError for queues that are not there, if they are not to be made, and for a selector that is
    none. For acquit brokers, as a stream begins."""
    if not options.create:
        refuse_missing(connection, options)
    if options.selector is None:
        return
    try:
        with connection.session("no-ack") as session:
            session.receiver(options.queues[0], prefetch=0, browse=True, selector=options.selector).close()
    except LinkDetached as error:
        refuse_selector(error, options)
        raise


def refuse_selector(error: LinkDetached | SessionEnded, options: ReadOptions) -> None:
    """Raise ConfigurationError if this is what an acquit broker says of a selector that is none."""
    if error.condition == AmqpCondition.INVALID_FIELD and options.selector is not None:
        raise ConfigurationError(f"option selector = {options.selector!r}: {error}") from error


@contextmanager
def _asking(connection: Connection, options: ReadOptions) -> Iterator[Management]:
    timeout_s = options.ack_timeout_ms / 1000
    try:
        with converse(connection, timeout_s) as broker:
            yield broker
    except ConnectTimeout as error:
        raise ConnectTimeout(f"the broker does not say which queues it has, within {timeout_s:g} s") from error


def _knows(broker: Management, address: str) -> bool:
    """True unless the broker says that it has no queue or topic of this name; what it may not tell counts as there."""
    node, _, name = address.partition(_SEPARATOR)
    try:
        broker.ask("READ", QUEUE, name=node if node == name else address)
    except ManagementFailed as error:
        return error.status != _NOT_FOUND
    return True


def _names(broker: Management) -> Sequence[str]:
    """Return the names of all queues that the user may know of; none where the broker refuses the query."""
    try:
        body = broker.request("QUERY", QUEUE, body={"attributeNames": list[Value](["name"])})
    except ManagementFailed:
        return []
    rows = body.get("results") if isinstance(body, dict) else None
    return [str(row[0]) for row in rows if isinstance(row, list) and row] if isinstance(rows, list) else []


__all__ = [
    "CREATE_ADVICE",
    "STARTING",
    "WAITING",
    "check_beforehand",
    "none_is_there",
    "refuse_missing",
    "refuse_selector",
]
