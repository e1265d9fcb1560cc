"""The examples of the pages about Spark, in the session of these tests.

What a ``staged`` block speaks of is put there first, by the page's function in `STAGES`: folders that begin with
``/data``, ``/shared``, ``/lake`` or ``/var/lib/acquit`` are in a folder of the test, ``amqp://broker:5672`` is a broker
of the page's own, `spark` is this session. The blocks of a page are one story: python blocks share their names, and
each finds what those before it have left.

What a page shows that a command prints is held to what it does print. Numbers, times and uuids may be others.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import write_deltalake

import acquit
from acquit.cli.app import run
from acquit.cli.exits import Exit
from acquit.spark.audit import AuditOptions, audit
from acquit.spark.columns import MessageColumns
from acquit.spark.driver import StreamDriver
from acquit.spark.java import java_home
from acquit.spark.source_options import SourceOptions
from acquit.spark.spool import Spool, open_store
from tests.support.pages import PAGES, ROOT, URL, Block, Command, blocks, commands, name_of
from tests.support.queue_double import QueueDouble, posting
from tests.unit.spark.test_driver import ProbeDouble

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PLACES = re.compile(r"(?<![\w./:-])/(?=(?:data|shared|lake|var/lib/acquit)\b)")
BROKER = "amqp://broker:5672"


@dataclass(frozen=True)
class Stage:
    """Where the blocks of one page are run."""

    root: Path
    """What the page's absolute paths are below."""
    broker: acquit.Broker
    """Its data are in /var/lib/acquit."""
    spark: SparkSession

    def at(self, path: str) -> Path:
        """An absolute path of the page."""
        return self.root / path.lstrip("/")

    def here(self, text: str) -> str:
        """A text of the page, with the places and the broker that it stands for."""
        return PLACES.sub(f"{self.root}/", text).replace(BROKER, self.broker.url).replace(URL, self.broker.url)

    def there(self, text: str) -> str:
        """The other way round: what was printed, as the page has it."""
        return text.replace(f"{self.root}/", "/").replace(self.broker.url, URL)

    def post(self, address: str, count: int, broker: acquit.Broker | None = None) -> None:
        """Orders, each with a JSON object as body, and a message id."""
        with acquit.connect((broker or self.broker).url) as connection, connection.session() as session:
            sender = session.sender(address)
            for number in range(count):
                body = {"id": number, "total": number * 3, "lines": [], "customer": "ada", "number": number}
                sender.send(acquit.Message(json.dumps(body), message_id=f"order-{number}"), wait=False)
            sender.flush()

    def take(self, address: str, count: int, *, reject: bool = False) -> list[int]:
        """Accept or reject the oldest messages; their sequences."""
        found = []
        with acquit.connect(self.broker.url) as connection, connection.session("individual") as session:
            receiver = session.receiver(address, prefetch=1)
            for _ in range(count):
                message = receiver.receive(timeout=10)
                assert message is not None and message.sequence is not None
                found.append(message.sequence)
                if reject:
                    message.reject("shop:no-customer", "no such customer")
                else:
                    message.accept()
        return found


def queues(stage: Stage) -> None:
    for address in ("orders", "returns", "orders.north", "orders.south"):
        stage.post(address, 4)


def letters(stage: Stage) -> None:
    """Two of them, and the second one died when it was in the table already."""
    stage.post("orders", 2)
    sequences = stage.take("orders", 2, reject=True)
    write_deltalake(stage.at("/data/orders"), pa.table({"sequence": sequences[1:]}))


def lying_letters(stage: Stage) -> None:
    stage.post("DLQ.orders", 4)


def orders_as_files(stage: Stage) -> None:
    rows = [json.dumps({"order_id": f"order-{number}", "customer": "ada", "total": 9.5}) for number in range(5)]
    for place in ("/shared/new-orders", "/data/orders"):
        stage.at(place).mkdir(parents=True)
        (stage.at(place) / "orders.json").write_text("\n".join(rows))


def journals(stage: Stage) -> None:
    """Of two brokers that have stopped."""
    for name in ("a", "b"):
        with acquit.Broker(stage.at(f"/data/broker-{name}")) as broker:
            stage.post("orders", 3, broker)


def audited(stage: Stage) -> None:
    """An audit, a table with all that was accepted, and the receipts of who posted it."""
    stage.post("orders", 3)
    write_deltalake(stage.at("/lake/orders"), pa.table({"sequence": stage.take("orders", 3)}))
    receipts = [json.dumps({"message_id": f"order-{number}"}) for number in range(3)]
    stage.at("/data").mkdir(exist_ok=True)
    stage.at("/data/producer-7.jsonl").write_text("\n".join(receipts))
    audit(AuditOptions(folders=[stage.at("/var/lib/acquit")], into=stage.at("/data/audit")), spark=stage.spark)


def audited_before(stage: Stage) -> None:
    journals(stage)
    audited(stage)


def spooled(stage: Stage) -> None:
    """A query that has made two epochs, without Spark; a message came twice."""
    place = str(stage.at("/shared/orders-spool"))
    queue = QueueDouble()
    options = SourceOptions.parse({"url": BROKER, "address": "queue", "spool": place})
    driver = StreamDriver(options, Spool(open_store(place)), ProbeDouble(queue))
    start = driver.initial_offset()
    for first in (1, 10):
        queue.post(*(posting(first + number) for number in range(10)))
        end = driver.latest_offset(start, 10)
        if start["epoch"]:
            driver.commit(start)
        for planned in driver.partitions(start, end):
            worker = Spool(open_store(place))
            worker.check_plan(planned.part.epoch, planned.plan)
            worker.claim("5d0c5c1e-2f5e-4c43-8f3a-0a8f5f1d9f3b")
            worker.take(planned.part, queue.attach, MessageColumns("queue"))
        start = end


def small_files(stage: Stage) -> None:
    for number in range(3):
        write_deltalake(stage.at("/data/orders"), pa.table({"sequence": [number]}), mode="append")


def data_at_hand(stage: Stage) -> None:
    """The broker's data are in the folder where one is, as if it had been started there."""
    Path("acquit-data").symlink_to(stage.at("/var/lib/acquit"))


def read_me(stage: Stage) -> None:
    queues(stage)
    stage.post("refused", 1)
    stage.take("refused", 1, reject=True)


STAGES: dict[str, Callable[[Stage], None]] = {
    "README.md": read_me,
    "docs/audit.md": journals,
    "docs/compact.md": small_files,
    "docs/ingest.md": queues,
    "docs/ledger-source.md": journals,
    "docs/reconcile.md": audited,
    "docs/redrive.md": letters,
    "docs/report.md": audited_before,
    "docs/spark-batch.md": lying_letters,
    "docs/spark-cluster.md": queues,
    "docs/spark-sink.md": orders_as_files,
    "docs/spark-tutorial.md": data_at_hand,
    "docs/spark.md": queues,
    "docs/spool.md": spooled,
}


@pytest.fixture
def stage(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    data, here = tmp_path / "var/lib/acquit", tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    with acquit.Broker(data) as broker:
        monkeypatch.setenv("ACQUIT_URL", broker.url)
        yield Stage(tmp_path, broker, spark)


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "staged")], ids=name_of)
def test_staged_blocks(page: Path, stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    STAGES[name_of(page)](stage)
    names: dict[str, object] = {"spark": stage.spark}
    for block in blocks(page, "staged"):
        if block.language == "python":
            perform(page, block, stage, names)
        else:
            for command in commands(block):
                type_in(command, stage, capsys)


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_spark_submit_as_the_page_on_ingest_has_it(stage: Stage) -> None:
    """On a Spark of this machine instead of one on hosts of their own."""
    (block,) = blocks(ROOT / "docs" / "ingest.md", "no-run")
    stage.post("orders", 4)
    programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    for command in commands(block):
        done = subprocess.run(
            ["sh", "-c", stage.here(command.text).replace("spark://host:7077", "local[2]")],
            capture_output=True,
            text=True,
            timeout=200,
            check=False,
            env={**os.environ, "PATH": programs, "JAVA_HOME": str(java_home()), "PYSPARK_PYTHON": sys.executable},
        )
        assert done.returncode == Exit.OK, done.stdout + done.stderr
    assert stage.broker.inspect().queue("orders").depth == 0


def perform(page: Path, block: Block, stage: Stage, names: dict[str, object]) -> None:
    # Blank lines in place of the prose, so that a traceback names the line of the page.
    program = "\n" * (block.line - 1) + stage.here(block.text)
    exec(compile(program, str(page), "exec"), names)
    for query in stage.spark.streams.active:
        query.processAllAvailable()
        query.stop()


def type_in(command: Command, stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    expected = [told(line) for line in command.output if line]
    failing = any(line.startswith("acquit: ") for line in command.output)
    words = shlex.split(stage.here(command.text))
    capsys.readouterr()
    if words[0] == "acquit":
        code = run(words[1:])
        out, err = capsys.readouterr()
        assert (code != Exit.OK) == failing, (command.text, out, err)
    else:
        done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True)
        out, err = done.stdout, done.stderr
    if expected:
        printed = [told(line) for line in stage.there(err if failing else out).splitlines() if line.strip()]
        assert agree(printed, expected), (command.text, printed, expected)


def agree(printed: list[str], expected: list[str]) -> bool:
    """Line by line. A line ``...`` stands for all that follows, ``...`` at the end of one for the rest of it."""
    for number, line in enumerate(expected):
        if line == "...":
            return True
        if number >= len(printed) or not (
            printed[number].startswith(line[:-3]) if line.endswith("...") else printed[number] == line
        ):
            return False
    return len(printed) == len(expected)


TOLD = (
    (re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"), "UUID"),
    (re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z"), "TIME"),
    (re.compile(r"\d[\d,]*(?:\.\d+)?"), "#"),
    (re.compile(r"# [kMG]?B\b"), "# B"),
    (re.compile(r"# batches\b"), "# batch"),
    (re.compile(r"# identities\b"), "# identity"),
    (re.compile(r"(# (?:\w+ )?(?:row|file|letter|event|segment|broker|message|part|entrie|epoch))s\b"), r"\1"),
    (re.compile(r"\s+"), " "),
)


def told(line: str) -> str:
    """A line without what differs from run to run."""
    for pattern, words in TOLD:
        line = pattern.sub(words, line)
    return line.strip()
