"""Surveys: looks at all queues and topics, a few in each turn, so that ten thousand of them hold up nobody.

Three are made so. `list_queues` is a page of the queues in some order: what it has of each is a key, and a row only of
those on the page. `table` is rows as somebody finds them. `measure` is what a monitoring system wants: figures of the
queues with most in them, and the sums of the others, which are never more than a sum; counters of the others that never
go back are made in `others`. The numbers of one queue belong together; those of two queues may be some milliseconds
apart.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from heapq import heappush, heappushpop, merge
from itertools import islice
from operator import add, attrgetter, itemgetter
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from acquit.broker.admin.later import Later
from acquit.broker.admin.others import LookAtOthers, OtherViews
from acquit.broker.admin.troubles import trouble_names, troubles_of_queue, troubles_of_topic
from acquit.broker.admin.turns import InTurns
from acquit.broker.inspect import QUEUE_COLUMNS
from acquit.broker.nodes.node import Queue
from acquit.broker.snapshots import (
    CONNECTION_FIGURES,
    QUEUE_FIGURES,
    connection_figures,
    oldest_age_ms,
    queue_figures,
    queue_snapshot,
    topic_figures,
    topic_snapshot,
)
from acquit.broker.tally import TALLY_FIGURES
from acquit.protocol.codec import EncodedList
from acquit.protocol.types import Value

if TYPE_CHECKING:
    from acquit.broker.admin.connections import Connections
    from acquit.broker.inspect import QueueSnapshot
    from acquit.broker.nodes.addresses import Policies
    from acquit.broker.nodes.queues import Queues
    from acquit.broker.nodes.topics import Topic, Topics
    from acquit.broker.scribe import Scribe

LOOKED_AT: Final = 50
"""Queues that one turn looks at: about a tenth of a millisecond's work."""
ROWS_AT_ONCE: Final = 20
"""Rows that one turn makes."""
TROUBLE: Final = "trouble"
"""Order of queues: by their troubles, then by what is in them. It is no column."""
LISTED_COLUMNS: Final = (*QUEUE_COLUMNS, "dead_letters", "troubles")
"""Columns of a page of queues."""
MEASURED: Final = (*QUEUE_FIGURES, *TALLY_FIGURES)
"""Figures of a queue, for monitoring."""
_GAUGES: Final = slice(QUEUE_FIGURES.index("pending"), len(QUEUE_FIGURES))
"""The figures among `MEASURED` that say how it is, and count nothing."""
TOTALS: Final = ("depth", "acquired", "entered", "retired")
"""Figures that a page of queues may have the sums of."""
_TEXTS: Final = frozenset(("name", "address", "kind", "active_consumer", "paused"))
_DEPTH_BITS: Final = 48

_T = TypeVar("_T")
Key = Callable[["Queue"], int | str]
_KEYS: Final[dict[str, Key]] = {
    **{name: attrgetter(name) for name in ("name", "address", "available", "acquired", "suspended", "pending")},
    **{name: attrgetter(name) for name in ("undeliverable", "memory_bytes", "entered", "held", "paused")},
    "depth": attrgetter("live"),
    "body_bytes": attrgetter("bytes"),
    "scheduled": lambda queue: len(queue.scheduled),
    "consumers": lambda queue: len(queue.consumers) + len(queue.browsers),
    "producers": lambda queue: len(queue.producers),
}
"""Columns that need no snapshot of a queue, to be sorted by."""


class QueueOrder(NamedTuple):
    """The page of queues that somebody wants."""

    sort: str = "name"
    """A column, or `TROUBLE`."""
    descending: bool = False
    contains: str = ""
    """Text that the names of queues must have in them."""
    dead_letters: bool = False
    """True for only those where dead or expired letters go."""
    totals: bool = False
    """The sums of `TOTALS` over all that there are, too."""
    offset: int = 0
    limit: int = 100


class ListedQueues(NamedTuple):
    """A page of queues."""

    rows: list[dict[Value, Value]]
    total: int
    """Queues and topics that there are, of which this is a page."""
    totals: dict[Value, Value]
    """Sums over all of them; none, where nobody asked for them."""


class QueueMeasures(NamedTuple):
    """Figures of one queue or topic, or of several."""

    name: str
    is_topic: bool
    oldest_age_ms: int
    figures: list[float]
    """The figures of `MEASURED`."""


class Measures(NamedTuple):
    """Figures of the queues and connections."""

    rows: list[QueueMeasures]
    other: QueueMeasures | None
    """The sums of the queues that have no row, and the oldest age of all; None where each has one. Where counters
    are to grow only, these are what such queues counted while they had no row."""
    queues: int
    """All of them."""
    connections: dict[Value, Value]
    """Sums over all connections, by the names of `CONNECTION_FIGURES`; *oldest_unsettled_ms* is that of all."""


class _Survey:
    """A survey under way."""

    ready = True

    def __init__(self, steps: Iterator[None]) -> None:
        self._steps = steps

    def run(self) -> bool:
        """Look at some more. True when that was the last."""
        return next(self._steps, self) is self


class Surveys:
    """The surveys that have not ended, in turns."""

    def __init__(
        self, queues: Queues, topics: Topics, policies: Policies, scribe: Scribe, connections: Connections
    ) -> None:
        self._connections = connections
        self._queues = queues
        self._topics = topics
        self._policies = policies
        self._scribe = scribe
        self._turns = InTurns()
        self._others = OtherViews(len(_counted(MEASURED)))

    def run(self) -> bool:
        """Go on with one of them. True if there is more to do."""
        return self._turns.run()

    def list_queues(self, wanted: QueueOrder, may_see: Callable[[str], bool]) -> Later[ListedQueues]:
        """Return a page of the queues and topics of addresses that `may_see` is true for. Raises RequestFailure where
        too many wait."""
        result = Later[ListedQueues]()
        self._turns.begin(_Survey(self._list(wanted, may_see, result)))
        return result

    def measure(
        self, rows_max: int, may_see: Callable[[str], bool], increasing_for: Hashable | None = None
    ) -> Later[Measures]:
        """Return figures of the queues and topics of such addresses: a row for those with the most messages, and then
        the most that entered. `increasing_for`: who asks from time to time, and wants counters of the others that only
        grow (`others`). Raises RequestFailure where too many wait."""
        result = Later[Measures]()
        look = None if increasing_for is None else self._others.look((increasing_for, rows_max))
        self._turns.begin(_Survey(self._measure(rows_max, may_see, look, result)))
        return result

    def table(self, found: Iterator[list[Value] | None]) -> Later[EncodedList]:
        """Return the rows that are found, encoded, `ROWS_AT_ONCE` in each turn. A look that finds nothing is None, and
        counts. Raises RequestFailure where too many wait."""
        result = Later[EncodedList]()
        self._turns.begin(_Survey(self._table(found, result)))
        return result

    def row(self, found: QueueSnapshot) -> dict[Value, Value]:
        """Return the row of one queue or topic, of which there is a snapshot."""
        node = self._topics.by_address if "topic" in found.kind else self._queues.by_name
        told = 0 if found.name not in node else self._troubles(node[found.name])
        return self._row(found, told)

    def _nodes(self) -> Iterator[list[Queue | Topic]]:
        nodes: list[Queue | Topic] = [*self._queues.by_name.values(), *self._topics.by_address.values()]
        for at in range(0, len(nodes), LOOKED_AT):
            yield nodes[at : at + LOOKED_AT]

    def _is_final(self, address: str) -> bool:
        return address in self._policies.terminal

    def _troubles(self, node: Queue | Topic) -> int:
        if isinstance(node, Queue):
            return troubles_of_queue(node, self._is_final(node.address), self._scribe.time_us)
        return troubles_of_topic(node)

    def _snapshot(self, node: Queue | Topic) -> QueueSnapshot:
        return queue_snapshot(node, self._scribe.time_us) if isinstance(node, Queue) else topic_snapshot(node)

    def _row(self, found: QueueSnapshot, troubles: int) -> dict[Value, Value]:
        columns: dict[Value, Value] = {column: getattr(found, column) for column in QUEUE_COLUMNS}
        named = list[Value](trouble_names(troubles))
        return {**columns, "dead_letters": self._is_final(found.address), "troubles": named}

    def _table(self, found: Iterator[list[Value] | None], result: Later[EncodedList]) -> Iterator[None]:
        rows = EncodedList()
        while len(some := list(islice(found, ROWS_AT_ONCE))) == ROWS_AT_ONCE:
            rows.add([row for row in some if row is not None])
            yield
        rows.add([row for row in some if row is not None])
        result.finish(rows)

    # -- a page -------------------------------------------------------------------------------------------------------

    def _key(self, sort: str) -> Callable[[Queue | Topic], int | str]:
        of_queue = _KEYS.get(sort)

        def key(node: Queue | Topic) -> int | str:
            if sort == TROUBLE:
                return self._troubles(node) << _DEPTH_BITS | (node.live if isinstance(node, Queue) else 0)
            if isinstance(node, Queue) and of_queue is not None:
                return of_queue(node)
            if isinstance(node, Queue) and sort == "oldest_age_ms":
                return oldest_age_ms(node, self._scribe.time_us)
            value: int | str = getattr(self._snapshot(node), sort)
            return value

        return key

    def _list(self, wanted: QueueOrder, may_see: Callable[[str], bool], result: Later[ListedQueues]) -> Iterator[None]:
        key, backwards = self._key(wanted.sort), wanted.descending and wanted.sort in _TEXTS
        sign = -1 if wanted.descending else 1
        runs: list[list[tuple[int | str, str, int, Queue | Topic]]] = []
        total, sums = 0, [0] * len(TOTALS)
        for nodes in self._nodes():
            run: list[tuple[int | str, str, int, Queue | Topic]] = []
            for node in nodes:
                if wanted.contains in _name(node) and may_see(node.address):
                    if wanted.dead_letters and not (isinstance(node, Queue) and self._is_final(node.address)):
                        continue
                    total += 1
                    value = key(node)
                    run.append((value if isinstance(value, str) else sign * value, _name(node), total, node))
                    if wanted.totals and isinstance(node, Queue):
                        sums = list(map(add, sums, (node.live, node.acquired, node.entered, node.retired)))
            run.sort(reverse=backwards)
            runs.append(run)
            yield
        in_order = merge(*runs, reverse=backwards)
        left = wanted.offset
        while left and (passed := len(list(islice(in_order, min(left, LOOKED_AT))))):
            left -= passed
            yield
        rows: list[dict[Value, Value]] = []
        while chosen := list(islice(in_order, min(ROWS_AT_ONCE, wanted.limit - len(rows)))):
            rows += (self._row(self._snapshot(node), self._troubles(node)) for *_, node in chosen)
            yield
        totals = dict[Value, Value](zip(TOTALS, sums, strict=True)) if wanted.totals else {}
        result.finish(ListedQueues(rows, total, totals))

    # -- measures -----------------------------------------------------------------------------------------------------

    def _measure(
        self, rows_max: int, may_see: Callable[[str], bool], look: LookAtOthers | None, result: Later[Measures]
    ) -> Iterator[None]:
        fullest: list[tuple[int, int, int, Queue | Topic, QueueMeasures]] = []
        other, count, time_us = QueueMeasures("", False, 0, [0] * len(MEASURED)), 0, self._scribe.time_us
        entry: tuple[int, int, int, Queue | Topic, QueueMeasures]
        for nodes in self._nodes():
            for node in nodes:
                if not may_see(node.address):
                    continue
                count += 1
                if isinstance(node, Queue):
                    found = QueueMeasures(node.name, False, oldest_age_ms(node, time_us), queue_figures(node))
                    entry = node.live, node.entered, -count, node, found
                else:
                    entry = 0, 0, -count, node, QueueMeasures(node.address, True, 0, topic_figures(node))
                if len(fullest) < rows_max:
                    heappush(fullest, entry)
                    continue
                *_, its, left = heappushpop(fullest, entry) if rows_max else entry
                if look is not None:
                    look.see((left.is_topic, its.number), _counted(left.figures), among_others=True)
                age_ms = max(other.oldest_age_ms, left.oldest_age_ms)
                other = QueueMeasures("", False, age_ms, list(map(add, other.figures, left.figures)))
            yield
        sums, oldest_ms = [0] * len(CONNECTION_FIGURES), 0
        peers = list(self._connections)
        for at in range(0, len(peers), LOOKED_AT):
            for peer in peers[at : at + LOOKED_AT]:
                sums = list(map(add, sums, connection_figures(peer)))
                oldest_ms = max(oldest_ms, peer.ages.oldest_ms(peer.engine.sessions, time_us))
            yield
        if look is not None:
            for at in range(0, len(fullest), LOOKED_AT):
                for *_, its, one in fullest[at : at + LOOKED_AT]:
                    look.see((one.is_topic, its.number), _counted(one.figures), among_others=False)
                yield
            counted = look.end()
            figures = [*counted[: _GAUGES.start], *other.figures[_GAUGES], *counted[_GAUGES.start :]]
            other = other._replace(figures=figures)
        rows = [entry[-1] for entry in sorted(fullest, key=itemgetter(2), reverse=True)]
        connections = dict[Value, Value](zip(CONNECTION_FIGURES, sums, strict=True))
        connections["oldest_unsettled_ms"] = oldest_ms
        result.finish(Measures(rows, other if count > len(rows) else None, count, connections))


def _counted(figures: Sequence[_T]) -> list[_T]:
    """Return what is counted of the figures of `MEASURED`."""
    return [*figures[: _GAUGES.start], *figures[_GAUGES.stop :]]


def _name(node: Queue | Topic) -> str:
    return node.name if isinstance(node, Queue) else node.address


__all__ = [
    "LISTED_COLUMNS",
    "LOOKED_AT",
    "MEASURED",
    "ROWS_AT_ONCE",
    "TOTALS",
    "TROUBLE",
    "ListedQueues",
    "Measures",
    "QueueMeasures",
    "QueueOrder",
    "Surveys",
]
