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

import json
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from acquit.errors import ConfigurationError, PipelineFailed, StoreCorrupt
from acquit.spark.audit import anomalies as wrong
from acquit.spark.audit import balance as balancing
from acquit.spark.audit import histories, suspects, tables
from acquit.spark.audit.anomalies import NOTES, Anomaly, AnomalyRow
from acquit.spark.audit.balance import BrokerTotals, QueueBalance, live_by_broker
from acquit.spark.audit.bucket import BucketFacts, Place
from acquit.spark.audit.jobs import BLOCK, BUCKET, RESULT, SEGMENT, TASK, fold_task, merge_task
from acquit.spark.audit.log import RUNS, AuditLog, Entry, Partial, remove_superseded
from acquit.spark.audit.plan import Plan, plan_run, tasks
from acquit.spark.audit.segment import Facts
from acquit.spark.audit.tables import DataFile
from acquit.spark.ledger.chain import plan as plan_segments
from acquit.spark.ledger.options import Verify
from acquit.spark.session import reason_of, start_session

BUCKETS: Final = 32
"""A task holds one bucket's pieces and open messages in memory, about 110 bytes each."""
ANOMALIES_MAX: Final = 10_000
HISTORIES_MAX: Final = 1_000
_ANOMALIES_A_PIECE: Final = 1_000
"""Rows that one segment or bucket tells of."""
_POLL_S: Final = 0.5
_TASKS_A_CORE: Final = 4
_DAMAGE: Final = re.compile(r"(?P<path>.+), offset (?P<offset>\d+): (?P<message>.+)")
"""As StoreCorrupt puts it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditOptions:
    """What to audit, and where to keep it. Raises ConfigurationError for what cannot be."""

    folders: Sequence[Path]
    """The data folders of the brokers: absolute, seen under the same path by driver and executors."""
    into: Path
    """The audit's folder, made if it is not there: absolute, and seen by all, too."""
    verify: Verify = Verify.FULL
    """``full`` reads every byte of each new segment; ``quick`` its side file where there is one."""
    histories: int = HISTORIES_MAX
    """Of so many messages that anomalies name, the events are kept."""
    anomalies: int = ANOMALIES_MAX
    """So many anomalies of a run are kept as rows; all are counted."""
    buckets: int = BUCKETS
    """Of a new audit: in how many parts messages are put together that are not complete in one segment."""
    master: str | None = None
    """For a session that is started here: ``local[4]``, ``spark://host:7077``."""
    memory_mb: int = 1_024
    """For a session that is started here: memory of the driver's JVM."""

    def __post_init__(self) -> None:
        for name, path in (*(("folders", folder) for folder in self.folders), ("into", self.into)):
            if not path.is_absolute():
                raise ConfigurationError(f"{name}: expected an absolute path, got {path}")
        if not self.folders:
            raise ConfigurationError("folders: expected at least one data folder of a broker")
        for name, value, least in (
            ("histories", self.histories, 0),
            ("anomalies", self.anomalies, 1),
            ("buckets", self.buckets, 1),
        ):
            if value < least:
                raise ConfigurationError(f"{name}: expected a number from {least} on, got {value}")
        if self.verify not in list(Verify):
            raise ConfigurationError(f"verify: expected full or quick, got {self.verify}")
        object.__setattr__(self, "verify", Verify(self.verify))


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditProgress:
    """So far."""

    stage: str
    """What is being done: `planning`, `folding`, `explaining` or `committing`."""
    segments: int
    """Folded, about: tasks that have ended."""
    segments_total: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditSummary:
    """What a run did, and how the audit then stands."""

    into: Path
    entry: int
    """Number of the newest entry in the audit's log."""
    changed: bool
    """This run committed it; else there was nothing new."""
    brokers: int
    segments: int
    """Folded by this run."""
    events: int
    """Folded by this run."""
    closed: int
    """Messages whose retirement this run found."""
    open: int
    """Messages that are live, as far as the journals were read."""
    anomalies: dict[str, int] = field(default_factory=dict)
    """Found by this run, by kind, notes included (`acquit.spark.audit.anomalies.NOTES`)."""
    balance: dict[str, int] = field(default_factory=dict)
    """Queues by the state of their balance: `balanced`, `differs`, `incomplete`."""
    differing: tuple[str, ...] = ()
    """The first queues whose balance does not hold, and why."""
    sound: bool
    """Every balance holds, and this run found no anomaly that is more than a note. A gap in a journal is one."""
    shuffled_bytes: int = 0
    """Handed to the shuffle by tasks, before it compresses."""
    duration_s: float


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
    run = _Run(options, on_progress or (lambda progress: None))
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


@dataclass(slots=True)
class _Told:
    """What tasks said."""

    segments: list[Facts] = field(default_factory=list)
    buckets: list[BucketFacts] = field(default_factory=list)
    files: list[DataFile] = field(default_factory=list)
    shuffled: int = 0


class _Run:
    """One run."""

    def __init__(self, options: AuditOptions, on_progress: Callable[[AuditProgress], None]) -> None:
        self._options = options
        self._on_progress = on_progress
        _check_into(options.into)
        self._log = AuditLog(options.into)
        self._before = self._log.last()
        self._number = self._before.number + 1 if self._before is not None else 1
        self._buckets = self._before.buckets if self._before is not None else options.buckets
        self._names = _read_names(options.into, self._before)
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
        session = (
            spark
            if spark is not None
            else start_session(master=self._options.master, memory_mb=self._options.memory_mb)
        )
        folder = self._log.begin(self._number)
        try:
            entry = self._entry(session, plan, folder)
            self._say("committing")
            self._log.commit(entry)
        except (PySparkException, Py4JError) as error:
            self._log.check_wanted(self._number, folder)
            raise _failure(error) from error
        except OSError:
            self._log.check_wanted(self._number, folder)
            raise
        self._log.clean()
        if self._before is not None:
            remove_superseded(self._options.into, self._before.superseded)
        return self._summary(entry, started_s, changed=True)

    def _say(self, stage: str) -> None:
        self._on_progress(AuditProgress(stage=stage, segments=self._done, segments_total=self._total))

    # -- the work -----------------------------------------------------------------------------------------------------

    def _entry(self, session: SparkSession, plan: Plan, folder: str) -> Entry:
        options, before = self._options, self._before
        place = Place(
            root=options.into,
            folder=folder,
            brokers={broker.number: broker.store for broker in plan.brokers},
            below={broker.number: broker.below for broker in plan.brokers if broker.below},
            open=before.open if before is not None else {},
            anomalies_max=min(options.anomalies, _ANOMALIES_A_PIECE),
        )
        told = self._fold(session, plan, place)
        self._say("explaining")
        for facts in told.segments:
            names = self._names.setdefault(facts.broker, {})
            names.update(facts.queues)
        closed = [file.path for entry in self._log.entries() for file in entry.added if file.table == "closed"]
        closed += [file.path for file in told.files if file.table == "closed"]
        opened = self._open(told)
        rows, counts = self._anomalies(plan, told)
        found, more = suspects.explain(
            session,
            told.segments,
            told.buckets,
            plan,
            [options.into / path for path in closed],
            [options.into / path for path in opened.values()],
            options.verify,
            options.anomalies,
        )
        rows += found
        counts += more
        _advance(plan, told.segments)
        totals, balances = self._balance(plan, told, opened)
        files = list(told.files)
        kept = sorted(set(rows), key=_order)[: options.anomalies]
        state = self._write(folder, place, files, kept, told, balances, totals)
        events = histories.read(session, kept, plan, options.verify, options.histories)
        if events.num_rows:
            events = histories.named(events, place.brokers, self._names)
            files.append(tables.write(options.into, f"{folder}/histories.parquet", events, name="histories"))
        states = Counter(row.state for row in balances)
        differing = [row for row in balances if row.state == balancing.DIFFERS]
        serious = [kind for kind in counts if kind not in NOTES]
        old = set(before.open.values()) | set(before.state.values()) if before is not None else set()
        return Entry(
            number=self._number,
            run=folder,
            buckets=self._buckets,
            brokers=plan.brokers,
            segments=_covered(plan),
            added=files,
            superseded=sorted(old - set(opened.values()) - set(state.values())),
            open=opened,
            state=state,
            summary={
                "segments": len(told.segments),
                "events": sum(facts.folded for facts in told.segments),
                "closed": sum(file.rows for file in files if file.table == "closed"),
                "open": sum(row.live for row in balances),
                "anomalies": dict(sorted(counts.items())),
                "balance": dict(sorted(states.items())),
                "differing": [f"{row.queue or row.queue_number}: {row.detail}" for row in differing[:10]],
                "sound": not serious and not differing,
                "shuffled_bytes": told.shuffled,
            },
            previous_sha256=self._log.sha256(self._number - 1),
        )

    def _fold(self, session: SparkSession, plan: Plan, place: Place) -> _Told:
        told = _Told()
        if not plan.works:
            return told
        works = tasks(plan.works, session.sparkContext.defaultParallelism * _TASKS_A_CORE)
        numbers = session.range(0, len(works), 1, len(works))
        blocks = numbers.mapInArrow(fold_task(works, place, self._buckets, self._options.verify), BLOCK)
        results = blocks.groupBy("bucket").applyInArrow(merge_task(place), RESULT)
        with self._following(session, [len(work) for work in works]):
            found = results.toArrow()
        for kind, payload in zip(found["kind"].to_pylist(), found["payload"].to_pylist(), strict=True):
            value = json.loads(payload)
            if kind == SEGMENT:
                told.segments.append(Facts.from_json(value))
            elif kind == BUCKET:
                told.buckets.append(BucketFacts.from_json(value))
                told.files += told.buckets[-1].files
            elif kind == TASK:
                told.files += [DataFile(**file) for file in value["files"]]
                told.shuffled += value["shuffled"]
        told.segments.sort(key=lambda facts: (facts.broker, facts.number))
        told.buckets.sort(key=lambda facts: facts.bucket)
        if len(told.segments) != len(plan.works):
            raise PipelineFailed(f"{len(plan.works)} segments were to be folded, {len(told.segments)} were")
        return told

    @contextmanager
    def _following(self, session: SparkSession, sizes: Sequence[int]) -> Iterator[None]:
        """Tell how many tasks of the fold have ended, until the block ends."""
        group = f"acquit audit {self._options.into} {self._number}"
        session.sparkContext.setJobGroup(group, f"audit into {self._options.into}")
        ended = threading.Event()
        tracker = session.sparkContext.statusTracker()

        def follow() -> None:
            while not ended.wait(_POLL_S):
                for job in tracker.getJobIdsForGroup(group):
                    info = tracker.getJobInfo(job)
                    stages = [tracker.getStageInfo(stage) for stage in info.stageIds] if info is not None else []
                    for stage in stages:
                        if stage is not None and stage.numTasks == len(sizes):
                            self._done = max(self._done, sum(sizes[: stage.numCompletedTasks]))
                self._say("folding")

        follower = threading.Thread(target=follow, name="acquit-audit-progress", daemon=True)
        self._say("folding")
        follower.start()
        try:
            yield
        finally:
            ended.set()
            follower.join()
            session.sparkContext.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]
        self._done = self._total
        self._say("folding")

    # -- what comes of it ---------------------------------------------------------------------------------------------

    def _open(self, told: _Told) -> dict[int, str]:
        opened = dict(self._before.open) if self._before is not None else {}
        for bucket in told.buckets:
            if bucket.opened:
                opened.pop(bucket.bucket, None)
                opened.update({file.bucket: file.path for file in bucket.files if file.table == "open"})
        return opened

    def _anomalies(self, plan: Plan, told: _Told) -> tuple[list[AnomalyRow], Counter[str]]:
        """All that needs no look elsewhere."""
        rows: list[AnomalyRow] = []
        counts: Counter[str] = Counter()
        backward: dict[tuple[int, int], list[int]] = {}
        for facts in told.segments:
            rows += facts.anomalies
            counts.update(facts.counts)
            if facts.backward_us or facts.backward_messages:
                backward[facts.broker, facts.number] = [facts.backward_us, facts.backward_messages, facts.last_us]
            if facts.unclean:
                text = "the broker did not stop in order before: acquisitions of its last moments may be missing"
                rows.append(
                    AnomalyRow(facts.broker, 0, 0, Anomaly.LOWER_BOUNDS.value, text, facts.number, facts.created_us)
                )
                counts[Anomaly.LOWER_BOUNDS.value] += 1
        last = {(facts.broker, facts.number): facts.last_us for facts in told.segments}
        for bucket in told.buckets:
            rows += bucket.anomalies
            held = (Anomaly.RETIRED_WITHOUT_POSTING.value, Anomaly.ACQUIRED_WITHOUT_POSTING.value)
            counts.update({kind: count for kind, count in bucket.counts.items() if kind not in held})
            for broker, segment, messages in bucket.backward:
                entry = backward.setdefault((broker, segment), [0, 0, last.get((broker, segment), 0)])
                entry[1] += messages
        for (broker, segment), (back_us, messages, time_us) in sorted(backward.items()):
            parts = [f"the clock went back by {back_us / 1e6:.3f} s"] if back_us else []
            parts += [f"{messages} messages have an event with an earlier time than the one before"] if messages else []
            rows.append(AnomalyRow(broker, 0, 0, Anomaly.BACKWARD_CLOCK.value, "; ".join(parts), segment, time_us))
            counts[Anomaly.BACKWARD_CLOCK.value] += 1
        for hole in plan.holes:
            kind = Anomaly.DELETED if hole.deleted else Anomaly.GAP
            text = f"segments {hole.first} to {hole.last} " + (
                "were deleted by retention before they were audited"
                if hole.deleted
                else "are missing, and no record says that retention deleted them"
            )
            rows.append(AnomalyRow(hole.broker, 0, 0, kind.value, text, hole.first, 0))
            counts[kind.value] += 1
        return rows, counts

    def _balance(
        self, plan: Plan, told: _Told, opened: dict[int, str]
    ) -> tuple[dict[int, BrokerTotals], list[QueueBalance]]:
        root = self._options.into
        totals = _read_totals(root, self._before)
        written = {bucket.bucket: bucket.live for bucket in told.buckets if bucket.opened}
        sums = list(written.values())
        sums += [tables.live_of(root / path) for bucket, path in opened.items() if bucket not in written]
        live = live_by_broker(sums)
        unknown = live_by_broker(bucket.unknown for bucket in told.buckets)
        rows: list[QueueBalance] = []
        for broker in plan.brokers:
            own = totals.setdefault(broker.number, BrokerTotals())
            facts = [facts for facts in told.segments if facts.broker == broker.number]
            holes = [hole.last + 1 for hole in plan.holes if hole.broker == broker.number]
            if not own.advance(facts, holes):
                broker.total_known = False
            for queue, (count, hash_sum) in unknown.get(broker.number, {}).items():
                own.found(queue, count, hash_sum)
            names = {number: name for number, (name, _) in self._names.get(broker.number, {}).items()}
            rows += balancing.balance(
                broker.store,
                own,
                live.get(broker.number, {}),
                names,
                holes=bool(broker.missing or broker.deleted),
                known=broker.total_known,
            )
        return totals, rows

    def _write(
        self,
        folder: str,
        place: Place,
        files: list[DataFile],
        rows: Sequence[AnomalyRow],
        told: _Told,
        balances: Sequence[QueueBalance],
        totals: dict[int, BrokerTotals],
    ) -> dict[str, str]:
        """The driver's own files: those of this run into `files`, those that replace others are returned."""
        root = self._options.into
        names = {(b, number): name for b, queues in self._names.items() for number, (name, _) in queues.items()}
        if rows:
            table = wrong.table(rows, dict(place.brokers), names)
            files.append(tables.write(root, f"{folder}/anomalies.parquet", table, name="anomalies"))
        letters = _letters(told.segments, place.brokers, names)
        if letters.num_rows:
            files.append(tables.write(root, f"{folder}/dead_letters.parquet", letters, name="dead_letters"))
        queues = pa.table(
            {
                "broker_number": pa.array([b for b, _ in sorted(names)], pa.int32()),
                "queue_number": pa.array([q for _, q in sorted(names)], pa.int64()),
                "queue": pa.array([names[key] or None for key in sorted(names)], pa.string()),
                "address": pa.array([self._names[b][q][1] or None for b, q in sorted(names)], pa.string()),
            }
        )
        state = {name: f"{folder}/{name}.parquet" for name in ("queues", "balance", "totals")}
        plain = [json.dumps(total.to_json()) for _, total in sorted(totals.items())]
        kept = pa.table({"broker_number": pa.array(sorted(totals), pa.int32()), "totals": pa.array(plain, pa.string())})
        for name, table in (("queues", queues), ("balance", balancing.table(balances)), ("totals", kept)):
            tables.write(root, state[name], table, name=name)
        return state

    def _summary(self, entry: Entry, started_s: float, *, changed: bool) -> AuditSummary:
        told = entry.summary if changed else entry.summary | {"segments": 0, "events": 0, "closed": 0}
        told = told if changed else told | {"shuffled_bytes": 0, "anomalies": {}}
        differing = tuple(told["differing"])
        return AuditSummary(
            into=self._options.into,
            entry=entry.number,
            changed=changed,
            brokers=len(entry.brokers),
            duration_s=time.monotonic() - started_s,
            **(told | {"differing": differing, "sound": told["sound"] if changed else not differing}),
        )


def _failure(error: BaseException) -> BaseException:
    """What made a task fail: damage in a journal as what it is. An interrupt makes Spark fail on the way out."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, KeyboardInterrupt):
            return cause
        cause = cause.__context__
    reason = reason_of(error)
    damage = _DAMAGE.fullmatch(reason)
    if damage is None or "acquit.errors.StoreCorrupt: " not in str(error):
        return PipelineFailed(reason)
    return StoreCorrupt(damage["message"], path=damage["path"], offset=int(damage["offset"]))


def _order(row: AnomalyRow) -> tuple[object, ...]:
    """Messages first: their histories are looked for."""
    return (row.kind in NOTES, row.broker, row.segment, row.queue, row.sequence, row.kind, row.detail)


def _advance(plan: Plan, facts: Sequence[Facts]) -> None:
    """Bring the brokers' states to the end of the run."""
    by_number = {broker.number: broker for broker in plan.brokers}
    for hole in plan.holes:
        broker = by_number[hole.broker]
        (broker.deleted if hole.deleted else broker.missing).append([hole.first, hole.last])
        if hole.last > broker.through:
            broker.through, broker.sha256 = hole.last, ""
    for fact in facts:
        broker = by_number[fact.broker]
        segment = plan.segments[fact.broker, fact.number]
        broker.first = broker.first or fact.number
        if fact.folded:
            broker.first_us = min(broker.first_us or fact.first_us, fact.first_us)
            broker.last_us = max(broker.last_us, fact.last_us)
        broker.events += fact.folded
        broker.unclean_stops += fact.unclean
        broker.entered_max = max(broker.entered_max, fact.entered_max)
        if fact.sealed:
            broker.partial = None
            if fact.number > broker.through:
                broker.through, broker.sha256 = fact.number, segment.sha256.hex()
        else:
            broker.partial = Partial(number=fact.number, events=fact.events, digest=fact.digest, length=segment.length)


def _covered(plan: Plan) -> list[dict[str, Any]]:
    covered: dict[int, dict[str, Any]] = {}
    stores = {broker.number: broker.store for broker in plan.brokers}
    for (broker, number), segment in plan.segments.items():
        own = covered.setdefault(broker, {"broker": stores[broker], "first": number})
        own["last"], own["sha256"] = number, segment.sha256.hex()
    return list(covered.values())


def _letters(facts: Sequence[Facts], brokers: Any, names: dict[tuple[int, int], str]) -> pa.Table:
    """The dead letters of this run."""
    counts: Counter[tuple[int, int, int, str | None, str | None]] = Counter()
    for fact in facts:
        for queue, minute, cause, condition, count in fact.letters:
            counts[fact.broker, queue, minute, cause, condition] += count
    keys = sorted(counts, key=lambda key: (*key[:3], key[3] or "", key[4] or ""))
    return pa.table(
        {
            "broker": pa.array([brokers[key[0]] for key in keys], pa.string()),
            "queue": pa.array([names.get(key[:2]) for key in keys], pa.string()),
            "minute": pa.array([key[2] * 60_000_000 for key in keys], pa.int64()).view(pa.timestamp("us", "UTC")),
            "cause": pa.array([key[3] for key in keys], pa.string()),
            "condition": pa.array([key[4] for key in keys], pa.string()),
            "count": pa.array([counts[key] for key in keys], pa.int64()),
        }
    )


def _read_names(root: Path, entry: Entry | None) -> dict[int, dict[int, tuple[str, str]]]:
    """Names and addresses of the queues of each broker, as earlier runs found them."""
    found: dict[int, dict[int, tuple[str, str]]] = {}
    if entry is not None:
        for row in pq.read_table(root / entry.state["queues"]).to_pylist():
            names = found.setdefault(row["broker_number"], {})
            names[row["queue_number"]] = (row["queue"] or "", row["address"] or "")
    return found


def _read_totals(root: Path, entry: Entry | None) -> dict[int, BrokerTotals]:
    if entry is None:
        return {}
    rows = pq.read_table(root / entry.state["totals"]).to_pylist()
    return {row["broker_number"]: BrokerTotals.from_json(json.loads(row["totals"])) for row in rows}


def summary_json(summary: AuditSummary) -> dict[str, Any]:
    """As plain values, for machines."""
    return asdict(summary) | {"into": str(summary.into), "duration_s": round(summary.duration_s, 3)}
