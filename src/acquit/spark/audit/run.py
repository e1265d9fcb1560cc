"""The pipeline *audit*: what became of every message, from the journals of brokers.

``audit(AuditOptions(folders=[...], into=...))`` folds all that the journals have and the audit in `into` has not, and
commits it as one entry of the audit's log. Run it every night, or whenever: a run costs what has come since, not what
there is. What it wrote is read with `acquit.spark.audit.results.AuditResults`.

How it runs. Segments are folded in parallel, one after the other in a task (`segment`); what is complete is written
where it is found. Pieces of messages are shuffled to their buckets, and meet what earlier runs left open (`bucket`).
The driver gets a few numbers of each segment and bucket, balances them (`balance`), looks for the messages that
anomalies name (`suspects`, `histories`), and commits (`log`).
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from acquit.errors import ConfigurationError, StoreCorrupt
from acquit.spark.audit import anomalies, dead_letters, histories, kept, suspects, tables
from acquit.spark.audit import balance as balancing
from acquit.spark.audit.anomalies import NOTES, AnomalyRow
from acquit.spark.audit.balance import BalanceRow, BrokerTotals
from acquit.spark.audit.bucket import RunFolders
from acquit.spark.audit.failures import cause_of
from acquit.spark.audit.jobs import BLOCK, RESULT, fold_task, in_tasks, merge_task
from acquit.spark.audit.log import RUNS, AuditLog, LogEntry
from acquit.spark.audit.options import AuditOptions, AuditProgress, AuditSummary
from acquit.spark.audit.plan import Plan, advance, covered, plan_run, tasks
from acquit.spark.audit.tables import DataFile
from acquit.spark.audit.told import Told
from acquit.spark.ledger.chain import plan as plan_segments
from acquit.spark.session import QUERY_ERRORS, refuse_connect, session_of

_ANOMALIES_A_PIECE: Final = 1_000
"""Rows that one segment or bucket tells of."""
_POLL_S: Final = 0.5
_TASKS_A_CORE: Final = 4
_JOB_PROPERTIES: Final = ("spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel")
"""Properties that a job group sets, in a session that may be somebody's who has set them too."""


def audit(
    options: AuditOptions,
    *,
    spark: SparkSession | None = None,
    on_progress: Callable[[AuditProgress], None] | None = None,
) -> AuditSummary:
    """Run the pipeline.

    Raises ConfigurationError for what can be known beforehand; StoreCorrupt for a journal that is damaged, or is not
    the one that earlier runs have read; PipelineFailed with the reason in one line when a task fails, and where
    another run on the same folder was committed first; KeyboardInterrupt. Then nothing has changed: the run before
    stands.
    """
    started_s = time.monotonic()
    refuse_connect(spark)
    run = _AuditRun(options, on_progress or (lambda progress: None))
    return run.run(spark, started_s)


def _check_into(into: Path) -> None:
    """Raise ConfigurationError for the folder of something else: a table, a spool, a broker's data."""
    try:
        names = [path.name for path in into.iterdir() if not path.name.startswith(".")]
    except FileNotFoundError:
        return
    if names and RUNS not in names:
        raise ConfigurationError(
            f"into {into}: expected the folder of an audit, or nothing yet; found other files, such as {min(names)}"
        )


class _AuditRun:
    """Run of the audit."""

    def __init__(self, options: AuditOptions, on_progress: Callable[[AuditProgress], None]) -> None:
        self._options = options
        self._root = options.into
        self._on_progress = on_progress
        _check_into(options.into)
        self._log = AuditLog(options.into)
        self._before = self._log.last()
        self._number = self._before.number + 1 if self._before is not None else 1
        self._buckets = self._before.buckets if self._before is not None else options.buckets
        self._names = kept.read_names(options.into, self._before)
        self._total = 0
        self._done = 0

    def run(self, spark: SparkSession | None, started_s: float) -> AuditSummary:
        self._say("planning")
        self._log.clean()
        known = {broker: frozenset(names) for broker, names in self._names.items()}
        states = self._before.brokers if self._before is not None else []
        plan = plan_run(plan_segments(self._options.folders), states, known)
        self._total = len(plan.works)
        if self._before is not None and not plan.works and not plan.holes:
            return self._summary(self._before, started_s, changed=False)
        session = session_of(spark, self._options)
        folder = self._log.begin(self._number)
        try:
            entry = self._entry(session, plan, folder)
            self._say("committing")
            self._log.commit(entry)
        except QUERY_ERRORS as error:
            self._log.check_wanted(self._number, folder)
            raise cause_of(error)  # noqa: B904  # its cause says what kind it is
        except (OSError, StoreCorrupt):  # files of the run before go once two others have been committed
            self._log.check_wanted(self._number, folder)
            raise
        self._log.clean()
        return self._summary(entry, started_s, changed=True)

    def _say(self, stage: str) -> None:
        self._on_progress(AuditProgress(stage=stage, segments=self._done, segments_total=self._total))

    # -- the work -----------------------------------------------------------------------------------------------------

    def _entry(self, session: SparkSession, plan: Plan, folder: str) -> LogEntry:
        """Do what is planned, and write it into the run's folder; what the log is to say of it."""
        before = self._before
        place = RunFolders(
            root=self._root,
            folder=folder,
            brokers={broker.number: broker.store for broker in plan.brokers},
            below={broker.number: broker.below for broker in plan.brokers if broker.below},
            open=before.open if before is not None else {},
            anomalies_max=min(self._options.anomalies, _ANOMALIES_A_PIECE),
        )
        told = self._fold(session, plan, place)
        self._say("explaining")
        for facts in told.segments:
            self._names.setdefault(facts.broker, {}).update(facts.queues)
        opened = told.opened(place.open)
        rows, counts = self._anomalies(session, plan, told, opened)
        advance(plan, told.segments)
        totals = kept.read_totals(self._root, before)
        balances = self._balance(plan, told, opened, totals)
        files = told.files + self._added(session, plan, place, told, rows)
        state = self._state(folder, balances, totals)
        old = set(before.open.values()) | set(before.state.values()) if before is not None else set()
        return LogEntry(
            number=self._number,
            run=folder,
            buckets=self._buckets,
            brokers=plan.brokers,
            segments=covered(plan),
            added=files,
            superseded=sorted(old - set(opened.values()) - set(state.values())),
            open=opened,
            state=state,
            summary=_said(told, files, counts, balances),
            previous_sha256=self._log.sha256(self._number - 1),
        )

    def _fold(self, session: SparkSession, plan: Plan, place: RunFolders) -> Told:
        if not plan.works:
            return Told()
        works = tasks(plan.works, session.sparkContext.defaultParallelism * _TASKS_A_CORE)
        fold = partial(fold_task, place=place, buckets=self._buckets, verify=self._options.verify)
        blocks = in_tasks(session, list(enumerate(works)), fold, BLOCK)
        results = blocks.groupBy("bucket").applyInArrow(merge_task(place), from_arrow_schema(RESULT))
        with self._following(session, [len(work) for work in works]):
            return Told.of(results.toArrow())

    @contextmanager
    def _following(self, session: SparkSession, sizes: Sequence[int]) -> Iterator[None]:
        """Tell how many tasks of the fold have ended, until the block ends."""
        group = f"acquit audit {self._options.into} {self._number}"
        context = session.sparkContext
        given = {name: context.getLocalProperty(name) for name in _JOB_PROPERTIES}
        context.setJobGroup(group, f"audit into {self._options.into}")
        ended = threading.Event()
        tracker = context.statusTracker()

        def look() -> None:
            for job in tracker.getJobIdsForGroup(group):
                info = tracker.getJobInfo(job)
                stages = [tracker.getStageInfo(stage) for stage in info.stageIds] if info is not None else []
                for stage in stages:
                    if stage is not None and stage.numTasks == len(sizes):
                        self._done = max(self._done, sum(sizes[: stage.numCompletedTasks]))

        def follow() -> None:
            while not ended.wait(_POLL_S):
                with suppress(*QUERY_ERRORS):  # what has become of the JVM is said by who waits for the result
                    look()
                self._say("folding")

        follower = threading.Thread(target=follow, name="acquit-audit-progress", daemon=True)
        self._say("folding")
        follower.start()
        try:
            yield
        finally:
            ended.set()
            follower.join()
            for name, value in given.items():
                context.setLocalProperty(name, value)  # type: ignore[arg-type]  # None: as if it had never been
        self._done = self._total
        self._say("folding")

    # -- what comes of it ---------------------------------------------------------------------------------------------

    def _anomalies(
        self, session: SparkSession, plan: Plan, told: Told, opened: Mapping[int, str]
    ) -> tuple[list[AnomalyRow], Counter[str]]:
        """Return the anomalies that are kept as rows, the gravest first, and how many there are of each kind."""
        options = self._options
        rows, counts = told.anomalies(plan)
        closed = [file.path for entry in self._log.entries() for file in entry.added if file.table == "closed"]
        closed += [file.path for file in told.files if file.table == "closed"]
        found, more = suspects.explain(
            session,
            told.segments,
            told.buckets,
            plan,
            [self._root / path for path in closed],
            [self._root / path for path in opened.values()],
            options.verify,
            options.anomalies,
        )
        return sorted({*rows, *found}, key=_order)[: options.anomalies], counts + more

    def _balance(
        self, plan: Plan, told: Told, opened: Mapping[int, str], totals: dict[int, BrokerTotals]
    ) -> list[BalanceRow]:
        """Balance all queues. Brings `totals` to the end of the run."""
        live, unknown = told.live(self._root, opened), told.unknown()
        rows: list[BalanceRow] = []
        for broker in plan.brokers:
            own = totals.setdefault(broker.number, BrokerTotals())
            facts = [facts for facts in told.segments if facts.broker == broker.number]
            behind_holes = [hole.last + 1 for hole in plan.holes if hole.broker == broker.number]
            if not own.advance(facts, behind_holes):
                broker.total_known = False
            for queue, (count, hash_sum) in unknown.get(broker.number, {}).items():
                own.found(queue, count, hash_sum)
            rows += balancing.balance(
                broker.store,
                own,
                live.get(broker.number, {}),
                {number: name for number, (name, _) in self._names.get(broker.number, {}).items()},
                holes=bool(broker.missing or broker.deleted),
                known=broker.total_known,
            )
        return rows

    def _added(
        self, session: SparkSession, plan: Plan, place: RunFolders, told: Told, rows: Sequence[AnomalyRow]
    ) -> list[DataFile]:
        """Write what the driver adds to the tables that grow."""
        options = self._options
        names = {(b, number): name for b, queues in self._names.items() for number, (name, _) in queues.items()}
        letters = ((facts.broker, letter) for facts in told.segments for letter in facts.letters)
        events = histories.read(session, rows, plan, options.verify, options.histories)
        found = {
            "anomalies": anomalies.table(rows, place.brokers, names),
            "dead_letters": dead_letters.table(letters, place.brokers, names),
            "histories": histories.named(events, place.brokers, self._names),
        }
        return [
            tables.write(self._root, f"{place.folder}/{name}.parquet", table, name=name)
            for name, table in found.items()
            if table.num_rows
        ]

    def _state(self, folder: str, balances: Sequence[BalanceRow], totals: Mapping[int, BrokerTotals]) -> dict[str, str]:
        """Write what replaces that of the run before."""
        found = {
            "queues": kept.names_table(self._names),
            "balance": balancing.table(balances),
            "totals": kept.totals_table(totals),
        }
        return {
            name: tables.write(self._root, f"{folder}/{name}.parquet", table, name=name).path
            for name, table in found.items()
        }

    def _summary(self, entry: LogEntry, started_s: float, *, changed: bool) -> AuditSummary:
        said = dict(entry.summary)
        said["differing"] = tuple(said["differing"])
        if not changed:
            said |= {"segments": 0, "events": 0, "closed": 0, "shuffled_bytes": 0, "anomalies": {}}
        before = self._found_until(entry.number - changed)
        said["anomalies_before"] = dict(sorted(before.items()))
        # Nothing mends them: what was folded is not folded again, and no later segment takes back what it said.
        said["sound"] = not said["differing"] and NOTES.issuperset([*before, *said["anomalies"]])
        return AuditSummary(
            into=self._root,
            entry=entry.number,
            changed=changed,
            brokers=len(entry.brokers),
            duration_s=time.monotonic() - started_s,
            **said,
        )

    def _found_until(self, number: int) -> Counter[str]:
        """Count the anomalies that runs up to this entry found, by kind."""
        found: Counter[str] = Counter()
        for entry in self._log.entries():
            if entry.number <= number:
                found.update(entry.summary["anomalies"])
        return found


def _said(
    told: Told, files: Sequence[DataFile], counts: Mapping[str, int], balances: Sequence[BalanceRow]
) -> dict[str, Any]:
    """A run's summary, as the log keeps it."""
    differing = [row for row in balances if row.state == balancing.DIFFERS]
    serious = [kind for kind in counts if kind not in NOTES]
    return {
        "segments": len(told.segments),
        "events": sum(facts.folded for facts in told.segments),
        "closed": sum(file.rows for file in files if file.table == "closed"),
        "open": sum(row.live for row in balances),
        "anomalies": dict(sorted(counts.items())),
        "balance": dict(sorted(Counter(row.state for row in balances).items())),
        "differing": [f"{row.queue or row.queue_number}: {row.detail}" for row in differing[:10]],
        "sound": not serious and not differing,
        "shuffled_bytes": told.shuffled_bytes,
    }


def _order(row: AnomalyRow) -> tuple[object, ...]:
    """Messages first: their histories are looked for."""
    return (row.kind in NOTES, row.broker, row.segment, row.queue, row.sequence, row.kind, row.detail)
