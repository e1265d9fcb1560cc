"""Questions to a running broker (`acquit.client.management`), over a connection of the command's own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from acquit.cli.connecting import BrokerAt, hanging_up, opens_within
from acquit.cli.output import remark
from acquit.client.management import Management, ManagementFailed, converse
from acquit.protocol.extensions import QUEUE

if TYPE_CHECKING:
    from acquit import Connection

_NOT_FOUND: Final = 404


@contextmanager
def management(broker: BrokerAt, timeout_s: float, *, connect_timeout_s: float | None = None) -> Iterator[Management]:
    """A conversation with a broker, closed at the end, in which each answer may take `timeout_s`. The connection opens
    within `connect_timeout_s` (None: `opens_within`)."""
    within_s = opens_within(timeout_s) if connect_timeout_s is None else connect_timeout_s
    with (
        broker.connect(timeout_s=within_s) as connection,
        converse(connection, timeout_s) as conversation,
        hanging_up(connection),
    ):
        yield conversation


@contextmanager
def lasting() -> Iterator[None]:
    """Say, where somebody interrupts a request that takes a broker a while, that it goes on with it."""
    try:
        yield
    except KeyboardInterrupt:
        remark("acquit: interrupted; the broker goes on with what it was asked for")
        raise


def check_queue(node: Management, name: str) -> None:
    """Raise ManagementFailed, naming those of a like name, where there is no queue or topic of this one."""
    try:
        node.request("READ", QUEUE, name=name)
    except ManagementFailed as error:
        if error.status != _NOT_FOUND:
            raise
        raise ManagementFailed(no_queue(node, name), error.status) from None


def no_queue(node: Management, name: str) -> str:
    """The sentence that there is no such queue, with the names that were perhaps meant, as far as they may be seen."""
    from difflib import get_close_matches

    try:
        answer = node.request("QUERY", QUEUE, body={"attributeNames": ["name"]})
    except ManagementFailed:
        answer = None
    rows = answer.get("results", ()) if isinstance(answer, Mapping) else ()
    like = get_close_matches(name, [str(row[0]) for row in rows], n=3)
    return f"there is no queue {name!r}" + (f"; did you mean {' or '.join(like)}?" if like else "")


def table_of(answer: object) -> tuple[list[str], list[list[Any]]]:
    """Return the column names and rows of the answer to a QUERY. Raises ManagementFailed for what is no table."""
    if not isinstance(answer, Mapping) or not {"attributeNames", "results"} <= answer.keys():
        raise ManagementFailed("QUERY: the answer is not the table that the management draft describes")
    return [str(name) for name in answer["attributeNames"]], [list(row) for row in answer["results"]]


def meant(connection: Connection, name: str, timeout_s: float) -> str:
    """Return the sentence of `no_queue`, for a command that has a connection."""
    with converse(connection, timeout_s) as node:
        return no_queue(node, name)
