"""Metrics of a query's sources, as Spark reports them while it runs.

Spark asks a Python source for its newest offset when it reports progress, and passes on whatever that says. So the
figures travel there: `StreamingQueryProgress` has them under ``sources[i].latestOffset`` wherever it goes (listeners,
logs, `query.lastProgress`), and `metrics_of` reads them back.

They are taken when a batch is planned, so they do not count that batch yet; when a query has ended,
`Spool.status()` has the last word. Counters are of the whole spool, never fall, and outlive the query's restarts, but
for `stale`, which counts what the running driver has seen.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceMetrics:
    """Metrics of one source of a query."""

    broker: str
    """The option url."""
    queues: Sequence[str]
    """The addresses that are read."""
    epoch: int
    """The newest that was begun."""
    rows: int
    """Given to Spark, each once, however often the batch was read."""
    set_aside: int
    """Messages that came again, were recognised, and made no row."""
    poison: int
    """Messages that could not be parsed: rows with `corrupt`, and those that were rejected."""
    rejected: int
    """Messages of `poison` that went back to the broker, to be dead-lettered."""
    conflicts: int
    """Rows with the identity of an earlier message and other content; both are kept."""
    unidentified: int
    """Rows without identity (`missingIdentity = at-least-once`)."""
    stale: int
    """Attempts of tasks whose rows were not taken: another attempt was first, or they ended before they published."""
    unacknowledged: int
    """Parts that may still be replayed whose settlements came too late, or got no answer: their messages may come
    again, to be set aside."""
    spool_bytes: int
    """Size of the spool's files of messages: those that may still be replayed, and those that are about to go."""
    oldest_epoch: int | None
    """The oldest that has such a file; None when there is none."""
    queue_depth: Mapping[str, int | None]
    """Messages available at each address; None where the broker does not tell."""


_NAMES = {
    field.name: "".join(part if number == 0 else part.capitalize() for number, part in enumerate(field.name.split("_")))
    for field in fields(SourceMetrics)
}
"""Field: its name in JSON."""


def plain(metrics: SourceMetrics) -> dict[str, object]:
    """Return the metrics as Spark carries them, by their names in JSON."""
    return {_NAMES[name]: value for name, value in asdict(metrics).items()}


def metrics_of(progress: Mapping[str, object]) -> list[SourceMetrics]:
    """The figures of each source `acquit` in a `StreamingQueryProgress` (of `query.lastProgress`, or of a listener, or
    its JSON as a dict). Sources of other kinds are passed over."""
    sources = progress["sources"]
    assert isinstance(sources, list)
    found = []
    for source in sources:
        said = source["latestOffset"]
        said = json.loads(said) if isinstance(said, str) else said
        if isinstance(said, dict) and said.keys() == set(_NAMES.values()):
            found.append(SourceMetrics(**{name: said[key] for name, key in _NAMES.items()}))
    return found


__all__ = ["SourceMetrics", "metrics_of", "plain"]
