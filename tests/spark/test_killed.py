"""Whole Spark programs that are killed at named points, and a worker that comes back from the dead. `make soak`."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pyarrow.dataset as ds
import pyspark
import pytest

import acquit
from acquit.spark.java import use_java
from acquit.spark.spool import FolderStore, Spool
from tests.spark.test_source import left, named, post
from tests.support.crashing import VARIABLE

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
ROOT = Path(__file__).resolve().parents[2]
MESSAGES = 60


def run(url: str, address: str, root: Path, crashes: str = "", *, master: str = "local[2]") -> int:
    """One run of the program. Its exit status; not 0 when its JVM was killed under it."""
    environment = {**os.environ, VARIABLE: crashes or "0:none:none"}
    arguments = [sys.executable, "-m", "tests.support.spark_program", url, address, str(root), master]
    # To a file: a worker that is left behind holds on to a pipe.
    with (root / "output").open("w+") as output:
        done = subprocess.run(
            arguments, cwd=ROOT, env=environment, stdout=output, stderr=output, timeout=180, check=False
        )

    return done.returncode


def bodies(root: Path) -> list[str]:
    """What a reader that honours Spark's list of files sees."""
    committed = {
        Path(line.split('"path":"file://')[1].split('"')[0])
        for entry in (root / "table" / "_spark_metadata").iterdir()
        if entry.name.partition(".")[0].isdecimal()
        for line in entry.read_text().splitlines()
        if '"path"' in line
    }
    return sorted(ds.dataset([str(path) for path in committed], format="parquet").to_table()["text"].to_pylist())


@pytest.mark.parametrize("point", ["received", "published", "settled"])
def test_everything_is_killed_at_once(broker: acquit.Broker, address: str, tmp_path: Path, point: str) -> None:
    post(broker.url, address, *range(MESSAGES))
    assert run(broker.url, address, tmp_path, f"2:{point}:everything") != 0
    assert (tmp_path / "spool.crashes" / point).exists()
    assert run(broker.url, address, tmp_path) == 0
    assert bodies(tmp_path) == named(*range(MESSAGES))
    assert left(broker.url, address) == 0


def test_a_worker_that_hangs_while_its_batch_is_done_by_another(
    broker: acquit.Broker, address: str, tmp_path: Path
) -> None:
    post(broker.url, address, *range(MESSAGES))
    assert run(broker.url, address, tmp_path, "1:received:zombie") != 0
    assert (tmp_path / "spool.crashes" / "received").exists()
    zombie = psutil.Process(int((tmp_path / "spool.crashes" / "received").read_text()))
    try:
        # It still holds messages (until the broker finds it silent); its part, and batches after that, are done.
        assert run(broker.url, address, tmp_path) == 0
        assert len(bodies(tmp_path)) > 0
        zombie.send_signal(signal.SIGCONT)
        zombie.wait(timeout=60)
    finally:
        if zombie.is_running():
            zombie.kill()
    assert run(broker.url, address, tmp_path) == 0
    assert bodies(tmp_path) == named(*range(MESSAGES))
    assert Spool(FolderStore(tmp_path / "spool")).status().totals.rows == MESSAGES
    assert left(broker.url, address) == 0


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[str]:
    """A standalone cluster with a worker on each of two hosts: on one host Spark never speculates. Its URL."""
    home = use_java()
    spark_home = Path(pyspark.__file__).parent
    environment = {**os.environ, "SPARK_HOME": str(spark_home), "SPARK_SCALA_VERSION": "2.13", "PYTHONPATH": str(ROOT)}
    java = [str(home / "bin" / "java"), "-Xmx256m", "-cp", str(spark_home / "jars" / "*")]
    port = _free_port()
    url = f"spark://127.0.0.1:{port}"
    ends = ["--webui-port", str(_free_port())]
    commands = [[*java, "org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", "--port", str(port), *ends]]
    for number in (1, 2):
        place = ["--host", f"127.0.0.{number}", "--webui-port", str(_free_port()), "--work-dir", str(tmp_path / "work")]
        size = ["--cores", "1", "--memory", "700m"]
        commands.append([*java, "org.apache.spark.deploy.worker.Worker", url, *place, *size])
    with (tmp_path / "cluster").open("w") as output:
        children = [subprocess.Popen(one, env=environment, stdout=output, stderr=output) for one in commands]
    yield url
    for child in children:
        child.terminate()
        child.wait(30)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_a_speculative_copy_overtakes_a_stalled_attempt(
    broker: acquit.Broker, address: str, tmp_path: Path, cluster: str
) -> None:
    post(broker.url, address, *range(MESSAGES))
    assert run(broker.url, address, tmp_path, "1:received:stall", master=cluster) == 0
    # Spark ends the stalled one when its copy is done, if it still can.
    with contextlib.suppress(psutil.NoSuchProcess):
        stalled = psutil.Process(int((tmp_path / "spool.crashes" / "received").read_text()))
        stalled.send_signal(signal.SIGCONT)
        stalled.wait(timeout=60)
    attempts = [path.name.rpartition("-")[0] for path in (tmp_path / "spool.attempts").iterdir()]
    assert len(attempts) > len(set(attempts)), "there was no speculative attempt"
    assert run(broker.url, address, tmp_path) == 0
    assert bodies(tmp_path) == named(*range(MESSAGES))
    assert left(broker.url, address) == 0
