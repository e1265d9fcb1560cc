"""The order of the demo: freeze, post and kill, fill the table, stop the broker, read its journal, compare."""

from __future__ import annotations

import json
import signal
import sysconfig
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from acquit.demo import accounts, collector, ingest, samples
from acquit.demo.broker import BrokerProcess
from acquit.demo.chaos import PipelineRun, Tally
from acquit.demo.children import Children
from acquit.demo.manifest import Manifest, freeze
from acquit.demo.sheet import Sheet, draw_up
from acquit.demo.stage import Closing, DemoStage, QuietStage, RichStage
from acquit.errors import AcquitError, ConfigurationError

FILE_BYTES_MAX = 4 << 20
EXIT_HOLDS, EXIT_DOES_NOT_HOLD, EXIT_FAILED, EXIT_INTERRUPTED = 0, 1, 2, 130


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoOptions:
    """The options of ``acquit demo``."""

    directory: Path | None = None
    """The folder whose files are posted; None: this Python's standard library."""
    data: Path | None = None
    """Folder for everything; must be empty or absent. None: a fresh folder for temporary files, kept as well."""
    files_max: int = 2500
    """Above that many files, every n-th is taken."""
    spark: bool = False
    """Fill a Delta table with Spark, killing its driver once, instead of a SQLite table."""
    naive: bool = False
    """Play it a second time with acknowledge-on-receipt, and show what that loses."""
    json: bool = False
    """True for one JSON document on standard output instead of progress and tables."""
    post_s: float = 5.0
    """Posting is spread over that many seconds, so that there is a middle to kill the broker in."""

    def __post_init__(self) -> None:
        if self.files_max < 1:
            raise ConfigurationError(f"files_max: expected at least 1, got {self.files_max}")
        if not 0 < self.post_s <= 600:
            raise ConfigurationError(f"post_s: expected seconds above 0, 600 at most, got {self.post_s}")


def run(options: DemoOptions) -> int:
    """Play the demo and return the exit code.

    0: every file is accounted for once; 1: the balance does not hold; 2: it could not be played; 130: interrupted.
    Every process it started has ended when it returns.
    """
    stage: DemoStage = QuietStage() if options.json else RichStage()
    try:
        with _ended_by_signals():
            closing = _play(options, stage)
    except (AcquitError, OSError) as why:
        stage.failed(f"{type(why).__name__}: {why}")
        return EXIT_FAILED
    except KeyboardInterrupt:
        stage.failed("interrupted")
        return EXIT_INTERRUPTED
    stage.close(closing)
    return EXIT_HOLDS if closing.careful.holds else EXIT_DOES_NOT_HOLD


def _play(options: DemoOptions, stage: DemoStage) -> Closing:
    begun_s = time.monotonic()
    if options.spark:
        ingest.check_installed()
    data = _data_folder(options.data)
    root = options.directory if options.directory is not None else Path(sysconfig.get_path("stdlib"))
    stripped = options.directory is None and not samples.has_poison(root)
    extra = samples.write(data / "samples") if stripped else {}
    manifest = freeze(
        root,
        files_max=options.files_max,
        file_bytes_max=FILE_BYTES_MAX,
        now_ms=time.time_ns() // 1_000_000,
        extra=extra,
    )
    digest = manifest.save(data / "manifest.jsonl")
    stage.plan(_plan(options, manifest, data, digest))
    careful, tally = _perform(options, stage, manifest, data, naive=False)
    naive = _perform(options, stage, manifest, data / "naive", naive=True)[0] if options.naive else None
    closing = Closing(
        careful=careful,
        naive=naive,
        table="Delta" if options.spark else "SQLite",
        elapsed_s=time.monotonic() - begun_s,
        tries=_tries(careful, data, spark=options.spark),
        figures={
            "in_doubt": tally.in_doubt,
            "reconnects": tally.reconnects,
            "held_by_killed_worker": tally.held_by_killed_worker,
            "broker_recovery_s": tally.broker_recovery_s,
        },
    )
    (data / "balance.json").write_text(json.dumps(careful.as_json(), indent=2), encoding="utf-8")
    return closing


def _perform(
    options: DemoOptions, stage: DemoStage, manifest: Manifest, folder: Path, *, naive: bool
) -> tuple[Sheet, Tally]:
    """Perform a run with its kills, in `folder`. Its broker is stopped when this returns; its journal stays."""
    folder.mkdir(exist_ok=True)
    how = "acknowledged on receipt" if naive else "acknowledged after the work"
    manifest_file = folder / "manifest.jsonl"
    if naive:
        manifest.save(manifest_file)
    with (
        ingest.cleared(folder),
        Children(folder / "logs") as children,
        stage.act(f"A run {how}", len(manifest.entries)) as watching,
    ):
        broker = BrokerProcess(children, folder / "broker", folder / "endpoint")

        def watch(tally: Tally, sentence: str | None) -> None:
            watching.progress(tally)
            if sentence is not None:
                watching.happened(sentence)

        watching.happened(f"the broker is ready in {broker.start():.1f} s: process {broker.pid}, {broker.url}")
        performance = PipelineRun(
            children=children,
            broker=broker,
            manifest=manifest,
            manifest_file=manifest_file,
            naive=naive,
            post_s=options.post_s,
            watch=watch,
        )
        tally = performance.go()
        if options.spark and not naive:
            ingest.fill(children, broker, folder, tally, watch)
            rows = ingest.rows(folder)
        else:
            performance.collect(folder / "table.sqlite")
            rows = collector.rows(folder / "table.sqlite")
        broker.stop()
    return draw_up(manifest, accounts.read(folder / "broker"), rows), tally


def _data_folder(given: Path | None) -> Path:
    if given is None:
        return Path(tempfile.mkdtemp(prefix="acquit-demo-"))
    if given.exists() and (not given.is_dir() or any(given.iterdir())):
        raise ConfigurationError(f"{given}: expected an empty or absent folder for the demo's data")
    given.mkdir(parents=True, exist_ok=True)
    return given.resolve()


def _plan(options: DemoOptions, manifest: Manifest, data: Path, digest: str) -> list[str]:
    megabytes = manifest.content_bytes / 1e6
    frozen, left_out = data / "manifest.jsonl", manifest.left_out.total
    lines = [
        f"{len(manifest.entries):,} files ({megabytes:.0f} MB) under {manifest.root}, each a durable message.",
        f"Frozen in {frozen} (SHA-256 {digest[:16]}…); {left_out:,} files left out.",
    ]
    if manifest.extra:
        lines.append(
            "This Python came without the broken files of its tests: "
            f"{len(samples.FILES)} of the demo's own are added, under {samples.PREFIX}/."
        )
    lines.append(
        "Workers acquire, check and forward them; a worker is killed with -9 while it holds deliveries, and the broker "
        "is killed with -9 in the middle and started again."
    )
    if options.spark:
        lines.append(
            "Spark then takes the forwarded ones into a Delta table, in two parts; its driver is killed with -9 and "
            "started again."
        )
    if options.naive:
        lines.append("The same is played a second time with acknowledgement on receipt.")
    seconds = (120 if options.spark else 15) + (15 if options.naive else 0)
    lines.append(f"This takes about {seconds} seconds on 2 cores. Everything is kept in {data}.")
    return lines


def _tries(sheet: Sheet, data: Path, *, spark: bool) -> list[tuple[str, str]]:
    broker = data / "broker"
    tries = []
    if sheet.story is not None:
        tries.append(
            (
                f"acquit ledger show {sheet.story} --data {broker}",
                "what became of one message that was acquired before a kill and settled after it",
            )
        )
    tries += [
        (f"acquit ledger balance --data {broker}", "for each queue: what entered is what left and what is there"),
        (f"acquit ledger verify --data {broker}", "whether the journal is whole"),
        (f"acquit queues --data {broker}", "the dead letters are still there"),
    ]
    return tries


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """SIGTERM and SIGHUP end the demo as Ctrl-C does: through every `finally`, so that no child is left."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    former = {number: signal.signal(number, interrupt) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
