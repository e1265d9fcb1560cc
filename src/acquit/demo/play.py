"""The order of the demo: freeze, post and kill, fill the table, stop the broker, read its journal, compare."""

from __future__ import annotations

import json
import shutil
import signal
import sysconfig
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from acquit.demo import checks, collector, ingest, sheet
from acquit.demo.chaos import PipelineRun, Tally
from acquit.demo.children import BrokerProcess, Children
from acquit.demo.manifest import Manifest, freeze
from acquit.demo.stage import DemoStage
from acquit.errors import ConfigurationError

FILE_BYTES_MAX = 4 << 20
EXIT_HOLDS, EXIT_DOES_NOT_HOLD = 0, 4
"""Exit codes, those of all commands (`acquit.cli.exits`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoOptions:
    """The options of ``acquit demo``."""

    directory: Path | None = None
    """The folder whose files are posted; None: this Python's standard library."""
    data: Path | None = None
    """Folder for everything; must be empty or absent. None: a fresh folder for temporary files, kept as well."""
    files_max: int = 2500
    """Above that many files, at least 1, every n-th is taken."""
    spark: bool = False
    """Fill a Delta table with Spark, killing its driver once, instead of a SQLite table."""
    naive: bool = False
    """Play it a second time with acknowledge-on-receipt, and show what that loses."""
    json: bool = False
    """True for one JSON document on standard output instead of progress and tables."""
    post_s: float = 5.0
    """Posting is spread over that many seconds, more than 0, so that there is a middle to kill the broker in."""


def run(options: DemoOptions) -> int:
    """Play the demo and return the exit code: whether every file is accounted for once. Raises what keeps it from being
    played: AcquitError, OSError, KeyboardInterrupt.

    SIGTERM and SIGHUP end it as Ctrl-C does. Every process it started has ended when it returns or raises.
    """
    stage = DemoStage(as_json=options.json)
    with ExitStack() as former:
        for number in (signal.SIGTERM, signal.SIGHUP):
            former.callback(signal.signal, number, signal.signal(number, signal.default_int_handler))
        return EXIT_HOLDS if _play(options, stage) else EXIT_DOES_NOT_HOLD


def _play(options: DemoOptions, stage: DemoStage) -> bool:
    begun_s = time.monotonic()
    if options.spark:
        ingest.check_installed()
    data = options.data or Path(tempfile.mkdtemp(prefix="acquit-demo-"))
    if data.exists() and (not data.is_dir() or any(data.iterdir())):
        raise ConfigurationError(f"{data}: expected an empty or absent folder for the demo's data")
    data.mkdir(parents=True, exist_ok=True)
    data = data.resolve()
    root = options.directory or Path(sysconfig.get_path("stdlib"))
    stripped = options.directory is None and not checks.has_poison(root)
    manifest = freeze(
        root,
        files_max=options.files_max,
        file_bytes_max=FILE_BYTES_MAX,
        now_ms=time.time_ns() // 1_000_000,
        extra=checks.write_samples(data / "demo-samples") if stripped else (),
    )
    stage.plan(_plan(options, manifest, data, manifest.save(data / "manifest.jsonl"), stripped=stripped))
    careful, tally = _perform(options, stage, manifest, data, naive=False)
    naive = _perform(options, stage, manifest, data / "naive", naive=True)[0] if options.naive else None
    (data / "balance.json").write_text(json.dumps(careful.as_json(), indent=2), encoding="utf-8")
    broker = data / "broker"
    story = f"acquit ledger show {careful.story} --data {broker}"
    tries = {
        story: "what became of one message that was acquired before a kill and settled after it",
        f"acquit ledger balance --data {broker}": "for each queue: what entered is what left and what is there",
        f"acquit ledger verify --data {broker}": "whether the journal is whole",
        f"acquit queues --data {broker}": "the dead letters are still there",
    }
    if careful.story is None:
        del tries[story]
    stage.close(
        careful,
        naive,
        table="Delta" if options.spark else "SQLite",
        elapsed_s=time.monotonic() - begun_s,
        figures={name: tally.counts[name] for name in ("in_doubt", "reconnects", "held_by_killed_worker")}
        | {"broker_recovery_s": tally.counts["broker_recovery_ms"] / 1000},
        tries=tries,
    )
    return careful.holds


def _perform(
    options: DemoOptions, stage: DemoStage, manifest: Manifest, folder: Path, *, naive: bool
) -> tuple[sheet.Sheet, Tally]:
    """Perform a run with its kills, in `folder`. Its broker is stopped when this returns; its journal stays."""
    title = f"A run acknowledged {'on receipt' if naive else 'after the work'}"
    frozen, table, temporary = (folder / name for name in ("manifest.jsonl", "table", "temporary"))
    with (
        ExitStack() as afterwards,
        Children(folder / "logs") as children,
        stage.act(title, len(manifest.entries)) as watch,
    ):
        # A Java machine that ends in order removes it, too, at the same time.
        afterwards.callback(shutil.rmtree, temporary, ignore_errors=True)
        manifest.save(frozen)
        broker = BrokerProcess(children, folder / "broker")
        pipeline = PipelineRun(children, broker, watch)
        ready_s = broker.start()
        watch(pipeline.tally, f"the broker is ready in {ready_s:.1f} s: process {broker.child.pid}, {broker.url}")
        pipeline.post(frozen, manifest.root, len(manifest.entries), naive=naive, post_s=options.post_s)
        if options.spark and not naive:
            ingest.fill(pipeline, table, temporary)
            rows = ingest.rows(table)
        else:
            table = table.with_suffix(".sqlite")
            pipeline.start("collect", "collector", {"table": str(table)})
            pipeline.until(lambda: "collector" not in pipeline.running)
            rows = collector.rows(table)
        broker.stop()
    return sheet.draw_up(manifest, sheet.read(folder / "broker"), rows), pipeline.tally


def _plan(options: DemoOptions, manifest: Manifest, data: Path, digest: str, *, stripped: bool) -> list[str]:
    files, megabytes = len(manifest.entries), sum(entry.size for entry in manifest.entries) / 1e6
    left_out = sum(manifest.left_out.values())
    seconds = (120 if options.spark else 15) + (15 if options.naive else 0)
    lines = {
        f"{files:,} files ({megabytes:.0f} MB) under {manifest.root}, each a durable message.": True,
        f"Frozen in {data / 'manifest.jsonl'} (SHA-256 {digest[:16]}…); {left_out:,} files left out.": True,
        "This Python came without the broken files of its tests: "
        f"{len(checks.SAMPLES)} of the demo's own are added, under demo-samples/.": stripped,
        "Workers acquire, check and forward them; a worker is killed with -9 while it holds deliveries, and the broker "
        "is killed with -9 in the middle and started again.": True,
        "Spark then takes the forwarded ones into a Delta table, in two parts; its driver is killed with -9 and "
        "started again.": options.spark,
        "The same is played a second time with acknowledgement on receipt.": options.naive,
        f"This takes about {seconds} seconds on 2 cores. Everything is kept in {data}.": True,
    }
    return [line for line, said in lines.items() if said]
