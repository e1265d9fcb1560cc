"""docs/spark-cluster.md, done as it says on a standalone cluster whose machines have no acquit but what the page gives
them. The wheel is built from this tree; nothing is fetched."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import acquit
from tests.docs.test_blocks_that_others_run import block
from tests.sparkcrash.pipelines import BATCH, Queue
from tests.sparkcrash.tables import account
from tests.support.cluster import APPLICATION, SPARK_HOME, Host, StandaloneCluster
from tests.support.pages import ROOT

PAGE = "spark-cluster.md"
RUN_S = 150.0


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Host:
    return Host(tmp_path_factory.mktemp("host"))


@pytest.fixture(scope="module")
def wheel(host: Host) -> Path:
    return host.wheel(ROOT)


def commands(heading: str) -> list[list[str]]:
    """Those of the page below this heading, each as its words."""
    section = (ROOT / "docs" / PAGE).read_text().split(f"### {heading}\n")[1].partition("\n### ")[0]
    return [shlex.split(line[2:]) for line in section.splitlines() if line.startswith("$ ")]


class Terminal:
    """A shell on a machine of the cluster, in a folder with the page's job."""

    def __init__(self, cluster: StandaloneCluster, folder: Path, queue: Queue) -> None:
        self._cluster = cluster
        self._folder = folder
        self.exported: dict[str, str] = {}
        self.table = folder / "orders"
        job = block(PAGE, "# ingest_orders.py")
        for theirs, ours in {"amqp://broker:5672": queue.url, "/shared/orders": str(self.table)}.items():
            assert theirs in job
            job = job.replace(theirs, ours)
        assert f'address="{queue.address}"' in job
        (folder / "ingest_orders.py").write_text(job)

    def submit(self, words: list[str]) -> tuple[int, str]:
        """A line of the page that begins with spark-submit. Its status, and what it said, on both streams."""
        assert words[:3] == ["spark-submit", "--master", "spark://master:7077"]
        settings = [word for name, value in APPLICATION.items() for word in ("--conf", f"{name}={value}")]
        done = subprocess.run(
            [str(SPARK_HOME / "bin" / "spark-submit"), "--master", self._cluster.url, *settings, *words[3:]],
            cwd=self._folder,
            env=self._cluster.environment(self.exported),
            capture_output=True,
            text=True,
            timeout=RUN_S,
            check=False,
        )
        return done.returncode, done.stdout + done.stderr


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    """The data folder of the broker that runs while the test does; the audit reads it meanwhile."""
    return tmp_path / "data"


@pytest.fixture
def terminal(cluster: StandaloneCluster, tmp_path: Path, journal: Path) -> Iterator[Terminal]:
    with acquit.Broker(journal) as broker:
        queue = Queue(url=broker.url, address="orders")
        queue.post(*range(BATCH))
        yield Terminal(cluster, tmp_path, queue)


def assert_ingested(terminal: Terminal, done: tuple[int, str]) -> None:
    status, said = done
    assert status == 0, said
    assert f"orders: {BATCH} rows in 1 batches" in said
    assert account(terminal.table, range(BATCH)).holds


def test_installed_on_every_host_and_the_audit_as_it_is(
    host: Host, wheel: Path, terminal: Terminal, tmp_path: Path, journal: Path
) -> None:
    make, install, export, submit = commands("Installed on every host")
    assert make == ["python3", "-m", "venv", "/opt/acquit"]
    python = host.environment(tmp_path / "opt")
    assert install == ["/opt/acquit/bin/pip", "install", "acquit[spark]"]
    host.pip("--python", str(python), "install", "--quiet", "--no-index", "--no-deps", str(wheel))
    assert export == ["export", "PYSPARK_PYTHON=/opt/acquit/bin/python"]
    terminal.exported["PYSPARK_PYTHON"] = str(python)
    assert_ingested(terminal, terminal.submit(submit))

    (audit,) = commands("The pipelines as they are")
    assert audit[3:7] == ["$(/opt/acquit/bin/acquit", "pipeline", "--job", "audit)"]
    job = subprocess.run([python.with_name("acquit"), *audit[4:6], "audit"], capture_output=True, text=True, check=True)
    paths = {"/shared/broker/data": str(journal), "/shared/audit": str(tmp_path / "audit")}
    status, said = terminal.submit([*audit[:3], job.stdout.strip(), *(paths.get(word, word) for word in audit[7:])])
    assert status == 0, said
    assert f"messages: {BATCH} closed, 0 open" in said
    assert "queues: 1 balanced" in said


def test_shipped_with_the_job(host: Host, wheel: Path, terminal: Terminal, tmp_path: Path) -> None:
    install, pack, export, submit = commands("Shipped with the job")
    # The machines' Python is somebody else's, and has no acquit.
    terminal.exported["PYSPARK_PYTHON"] = str(host.environment(tmp_path / "theirs"))
    target = install[install.index("--target") + 1]
    host.pip("install", "--quiet", "--no-index", "--no-deps", "--target", str(tmp_path / target), str(wheel))
    subprocess.run(pack, cwd=tmp_path, check=True)
    name, _, value = export[1].partition("=")
    terminal.exported[name] = value
    assert_ingested(terminal, terminal.submit(submit))


def test_py_files_alone_are_not_enough_and_the_page_says_how_it_ends(
    host: Host, wheel: Path, terminal: Terminal, tmp_path: Path
) -> None:
    (submit,) = commands("What is not enough")
    terminal.exported["PYSPARK_PYTHON"] = str(host.environment(tmp_path / "theirs"))
    words = [str(wheel) if word.endswith(".whl") else word for word in submit]
    assert str(wheel) in words
    status, said = terminal.submit(words)
    assert status != 0
    shown = (ROOT / "docs" / PAGE).read_text().split("ingest_orders.py\norders: ")[1].partition("\n")[0]
    assert f"orders: {shown}" in said, said[-3000:]
