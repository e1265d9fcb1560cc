"""The pipeline *redrive*: dead letters back to where they died, those that a predicate selects, each exactly once.

**Choosing** is Spark's: a predicate in SQL over what a letter says of its past (`spark.letters`), its properties and
its body. Where a table is named, letters whose posting has a row in it are left where they are: a message may have been
put into the table and yet come again, and again, until it was dead-lettered.

**Moving** is the broker's: for each letter the posting there and the retirement here are in one batch of its journal,
so that a crash leaves it in one of the two queues (`docs/administration.md`). Letters are named by their sequence,
which is given once. So a redrive that was killed, or whose answer was lost, is just run again: what was moved is not
there any more, and nothing is moved twice. Two redrives at once share the letters.

**Identity.** The bare message is the same byte for byte, its message-id with it, and the annotation
``x-opt-acquit-origin`` says which sequence it had: the ledger tells its whole story. To a consumer that goes by the
broker's sequence it is a new posting: that is why a table is asked first. To one that goes by a field of the message
(`identityField`) it is the old one.

Nothing of a letter goes through the driver but its sequence and its target.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

from acquit.client.management import Management, ManagementFailed, converse
from acquit.errors import AcquitError, ConfigurationError, PipelineFailed
from acquit.protocol.extensions import QUEUE
from acquit.protocol.types import Value
from acquit.spark.beforehand import STARTING, WAITING, none_is_there, refuse_missing
from acquit.spark.browse_options import BrowseOptions
from acquit.spark.connecting import broker_id, connect_patiently
from acquit.spark.letters import dead_letters
from acquit.spark.options import BrokerAccess, SparkAt
from acquit.spark.parquet import Columns, read_columns
from acquit.spark.session import QUERY_ERRORS, QUICK_JAVA, failure_of, reason_of, refuse_connect, session_of
from acquit.spark.tables import columns_of, readable_files

DEAD_LETTER_QUEUE: Final = "DLQ"
SHOWN: Final = 20
"""Letters that a dry run shows one by one."""
_CHUNK: Final = 1_000
"""Letters in one request."""
_GROUPS_MAX: Final = 1_000
_ANSWER_S: Final = 60.0
_RATE_MIN: Final = 1e-6
"""Least `rate`, in letters a second. Below it a pause would be longer than clocks can tell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RedriveOptions(BrokerAccess, SparkAt):
    """Options of a redrive: which letters, and where to. Raises ConfigurationError for options that cannot be."""

    queue: str = DEAD_LETTER_QUEUE
    """Queue of the letters."""
    where: str = "true"
    """Predicate that selects letters, in Spark's SQL over the columns of `spark.letters`."""
    to: str | None = None
    """Queue that the letters go to; the broker makes it if it is not there. By default each goes to where it died."""
    table: Path | None = None
    """A table (Delta or Parquet) with a column `sequence`, or else `message_id`: letters with a row in it stay."""
    limit: int | None = None
    """No more than so many, the oldest first."""
    rate: float | None = None
    """No more than so many in a second. By default as fast as the broker moves them."""
    dry_run: bool = False
    """Say what would go, and move nothing."""

    def __post_init__(self) -> None:
        if self.to == "":
            raise ConfigurationError("to: expected the name of a queue, found nothing")
        if self.to == self.queue:
            raise ConfigurationError(f"to: {self.to} is where the letters are; expected another queue")
        if self.limit is not None and self.limit < 1:
            raise ConfigurationError(f"limit: expected a number above 0, got {self.limit}")
        if self.rate is not None and not _RATE_MIN <= self.rate < math.inf:
            raise ConfigurationError(f"rate: expected messages in a second, above 0, got {self.rate:g}")
        BrowseOptions.parse(self.browse_options())

    def browse_options(self) -> dict[str, str]:
        """Return the options in the form that the batch source takes."""
        # The queue of dead letters is made by the first letter: where there is none yet, there is nothing to redrive.
        create = str(self.queue == DEAD_LETTER_QUEUE).lower()
        return {**self.access_options(), "address": self.queue, "create": create}


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterGroup:
    """Letters that died in one way."""

    target: str | None
    """Queue that they go to; None where they do not say where they died."""
    cause: str | None
    condition: str | None
    in_table: bool
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Letter:
    """A letter, as a dry run shows it."""

    sequence: int
    message_id: str | None
    target: str | None
    cause: str | None
    condition: str | None
    description: str | None
    in_table: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RedriveSummary:
    """Result of a redrive; after a dry run, the result that it would have had."""

    queue: str
    selected: int
    """Letters that the predicate selects, before `limit`."""
    in_table: int
    """Selected letters that have a row in the table, and stay."""
    homeless: int
    """Other selected letters that do not say where they died, and stay. `to` sends them somewhere."""
    moved: int
    """0 in a dry run."""
    would_move: int
    """Were to be moved, after `limit`: what a dry run says, and what `moved` and `gone` add up to otherwise."""
    gone: int
    """Were there when they were looked at and not any more, or acquired by a consumer, when they should have gone."""
    groups: tuple[LetterGroup, ...]
    """Groups of the selected letters, the largest first; the first 1,000 of them."""
    shown: tuple[Letter, ...]
    """First letters that were selected; in a dry run alone."""
    dry_run: bool
    duration_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RedriveProgress:
    """Progress of a redrive so far."""

    moved: int
    of: int


def redrive(
    options: RedriveOptions,
    *,
    spark: SparkSession | None = None,
    on_progress: Callable[[RedriveProgress], None] | None = None,
    on_stage: Callable[[str], None] | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> RedriveSummary:
    """Run the pipeline. `on_stage` is told what is being done before there is anything for `on_progress` to count.

    Raises ConfigurationError for a predicate that makes no sense, a table that is none, and a broker that is not
    acquit; ConnectionFailed when none answers; PipelineFailed with the reason in one line when it is lost later, or
    refuses: what was moved until then is moved, and the same call goes on with the rest.
    """
    started_s = time.monotonic()
    refuse_connect(spark)
    if options.table is not None:
        next(_known_files(options.table), None)  # what is wrong with it is told before Spark has started
    say = on_stage or (lambda stage: None)
    say(WAITING.format(options.url))
    if _nothing_there(options):
        return RedriveSummary(
            queue=options.queue,
            selected=0,
            in_table=0,
            homeless=0,
            moved=0,
            would_move=0,
            gone=0,
            groups=(),
            shown=(),
            dry_run=options.dry_run,
            duration_s=time.monotonic() - started_s,
        )
    say(STARTING)
    session = session_of(spark, options, java_options=QUICK_JAVA)
    try:
        with _cached(_chosen(session, options)) as chosen:
            groups = _groups(chosen)
            totals = _totals(chosen, groups)
            count = totals.get((False, False), 0)
            count = count if options.limit is None else min(count, options.limit)
            # In one partition, because sorting many would evaluate all of it once more to learn where to cut.
            going = chosen.where("target IS NOT NULL AND NOT in_table").coalesce(1).sortWithinPartitions("sequence")
            shown = _shown(chosen) if options.dry_run else ()
            moved = 0 if options.dry_run else _move(options, going, count, on_progress, sleep)
    except QUERY_ERRORS as error:
        raise failure_of(error)  # noqa: B904  # its cause says what kind it is
    return RedriveSummary(
        queue=options.queue,
        selected=sum(totals.values()),
        in_table=totals.get((False, True), 0) + totals.get((True, True), 0),
        homeless=totals.get((True, False), 0),
        moved=moved,
        would_move=count,
        gone=0 if options.dry_run else count - moved,
        groups=groups,
        shown=shown,
        dry_run=options.dry_run,
        duration_s=time.monotonic() - started_s,
    )


@contextmanager
def _cached(frame: DataFrame) -> Iterator[DataFrame]:
    """Looked at once, and forgotten at the end however that comes: who asks again must see the queue as it is then."""
    frame = frame.cache()
    try:
        yield frame
    finally:
        with suppress(*QUERY_ERRORS):
            frame.unpersist()


def _nothing_there(options: RedriveOptions) -> bool:
    """True if there is no queue of dead letters yet. Raises ConfigurationError for another queue that is not there, and
    for a broker that is not acquit."""
    browse = BrowseOptions.parse(options.browse_options())
    with connect_patiently(browse) as connection:
        if broker_id(connection) is None:
            raise ConfigurationError(
                f"the broker at {options.url} is no acquit broker: its dead letters do not say what was tried, and it "
                "cannot be asked to move chosen ones"
            )
        if browse.create:
            return none_is_there(connection, browse)
        refuse_missing(connection, browse, advice="")
        return False


def _chosen(session: SparkSession, options: RedriveOptions) -> DataFrame:
    """A row for each letter that the predicate selects: what is needed to move it, and to show it."""
    letters = dead_letters(session, options.browse_options())
    try:
        selected = letters.where(options.where)
    except (AnalysisException, ParseException) as error:
        raise ConfigurationError(f"where {options.where!r}: {reason_of(error)}") from error
    target = sql.col("origin_queue") if options.to is None else sql.lit(options.to)
    why = ("cause", "condition", "description")
    narrow = selected.select("sequence", "message_id", "origin_sequence", target.alias("target"), *why)
    if options.table is None:
        return narrow.withColumn("in_table", sql.lit(False))
    return _marked(session, narrow, options.table)


def _marked(session: SparkSession, letters: DataFrame, table: Path) -> DataFrame:
    """Add the column `in_table`: true if the posting has a row in the table. Reads two columns of that, at most."""
    letters = letters.withColumn("in_table", sql.lit(False))
    # Listed now: a row that came while Spark started counts.
    rows = _identities(session, letters, table)
    if rows is None:
        return letters
    for column, ours in _IDENTITIES.items():
        if column in rows.columns:
            identity = sql.col(column).alias("known")
            wanted = letters.select(sql.col(ours).alias("known")).distinct()
            known = (
                rows.select(identity).join(wanted, "known", "left_semi").distinct().withColumn("found", sql.lit(True))
            )
            joined = letters.join(known, letters[ours] == known["known"], "left")
            in_table = sql.col("in_table") | sql.coalesce("found", sql.lit(False))
            letters = joined.withColumn("in_table", in_table).drop("known", "found")
            rows = rows.where(sql.col(column).isNull())
    return letters


def _identities(session: SparkSession, letters: DataFrame, table: Path) -> DataFrame | None:
    """Return the columns of `_IDENTITIES` of a table, as the letters have them: what is of another type, and no such
    value, is null. None for a table without files.

    The files of each kind are read together, and nothing of them but these columns: a table may have got them later
    than its first rows, and have others whose types were changed."""
    kinds: dict[Columns, list[str]] = {}
    for kind, path in _known_files(table):
        kinds.setdefault(kind, []).append(path)
    found: DataFrame | None = None
    for kind, paths in kinds.items():
        types = {name: letters.schema[_IDENTITIES[name]].dataType for name, _ in kind}
        columns = [sql.col(name).try_cast(wanted).alias(name) for name, wanted in types.items()]
        rows = read_columns(session, kind, paths).select(*columns)
        found = rows if found is None else found.unionByName(rows, allowMissingColumns=True)
    return found


_IDENTITIES: Final = {"sequence": "origin_sequence", "message_id": "message_id"}
"""A column of the table, and that of a letter which is the same for the same posting. Of a row the first that is not
null counts."""


def _known_files(table: Path) -> Iterator[tuple[Columns, str]]:
    """Yield the table's files that have columns of `_IDENTITIES`, each as soon as it is looked at. Needs no Spark.
    Raises ConfigurationError where there is no table, or one that cannot be read so, or none of its files has such a
    column."""
    files = readable_files(table).files
    names: dict[str, None] = {}
    for file in files:
        schema = columns_of(file, table)
        names |= dict.fromkeys(schema.names)
        kind = tuple((name, schema.field(name).type) for name in _IDENTITIES if name in schema.names)
        if kind:
            yield kind, str(file.path)
    if files and _IDENTITIES.keys().isdisjoint(names):
        raise ConfigurationError(
            f"table {table}: expected a column {' or '.join(_IDENTITIES)} to know messages by, found {', '.join(names)}"
        )


def _groups(chosen: DataFrame) -> tuple[LetterGroup, ...]:
    counted = chosen.groupBy("target", "cause", "condition", "in_table").count()
    rows = counted.orderBy(sql.desc("count"), "target", "cause", "condition").limit(_GROUPS_MAX).collect()
    return tuple(LetterGroup(**row.asDict()) for row in rows)


def _totals(chosen: DataFrame, groups: Sequence[LetterGroup]) -> Counter[tuple[bool, bool]]:
    """Count the letters, by whether they have nowhere to go, and whether they are in the table."""
    if len(groups) < _GROUPS_MAX:
        counts = [(group.target is None, group.in_table, group.count) for group in groups]
    else:
        counted = chosen.groupBy(sql.col("target").isNull(), "in_table").count()
        counts = [(row[0], row[1], row[2]) for row in counted.collect()]
    totals: Counter[tuple[bool, bool]] = Counter()
    for homeless, in_table, count in counts:
        totals[homeless, in_table] += count
    return totals


def _shown(chosen: DataFrame) -> tuple[Letter, ...]:
    columns = ("sequence", "message_id", "target", "cause", "condition", "description", "in_table")
    return tuple(Letter(**row.asDict()) for row in chosen.select(*columns).orderBy("sequence").limit(SHOWN).collect())


def _move(
    options: RedriveOptions,
    going: DataFrame,
    count: int,
    on_progress: Callable[[RedriveProgress], None] | None,
    sleep: Callable[[float], None],
) -> int:
    """Move the letters, in their order. Return how many were moved."""
    if not count:
        return 0
    chunk = _CHUNK if options.rate is None else max(1, min(_CHUNK, int(options.rate)))
    moved = asked = 0
    refused: dict[str, PipelineFailed] = {}
    """Refusals, by the queue that letters should go to: letters to others do not wait until that is mended."""
    rows = islice(going.select("sequence", "target").toLocalIterator(), count)
    letters = ((row.sequence, row.target) for row in rows)
    try:
        with (
            connect_patiently(BrowseOptions.parse(options.browse_options())) as connection,
            converse(connection, _ANSWER_S) as node,
        ):
            began_s = time.monotonic()
            while batch := list(islice(letters, chunk)):
                for target, sequences in _by_target(batch):
                    if target in refused:
                        continue
                    try:
                        moved += _moved(node, options.queue, target, sequences)
                    except PipelineFailed as error:
                        refused[target] = error
                asked += len(batch)
                if on_progress is not None:
                    on_progress(RedriveProgress(moved=moved, of=count))
                if options.rate is not None and asked < count:
                    sleep(max(0.0, began_s + asked / options.rate - time.monotonic()))
        if refused:
            raise next(iter(refused.values()))
    except AcquitError as error:
        raise PipelineFailed(
            f"{error}; {moved} of {count} letters were moved for sure: run it again for those that were not"
        ) from error
    return moved


def _by_target(batch: Sequence[tuple[int, str]]) -> Iterator[tuple[str, list[int]]]:
    found: dict[str, list[int]] = {}
    for sequence, target in batch:
        found.setdefault(target, []).append(sequence)
    return iter(found.items())


def _moved(node: Management, queue: str, target: str, sequences: Sequence[int]) -> int:
    """Move letters that are there; return how many. Raises PipelineFailed, and what a lost connection raises."""
    asked: dict[Value, Value] = {"to": target, "sequences": list[Value](sequences)}
    try:
        answer = node.request("MOVE", QUEUE, name=queue, body=asked)
    except ManagementFailed as error:
        raise PipelineFailed(f"{queue} to {target}: {error}") from error
    if not isinstance(answer, dict) or not isinstance(moved := answer.get("moved"), int):
        raise PipelineFailed(f"{queue} to {target}: the broker does not say how many it has moved")
    return moved
