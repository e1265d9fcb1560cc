"""A Spark standalone cluster: a master, and a worker on each of two hosts, 127.0.0.1 and 127.0.0.2.

Two, because on one host Spark never speculates. What applications need to be on it is `APPLICATION`.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil
import pyspark

from acquit.spark.java import use_java
from tests.support.spark_program import QUICK

SPARK_HOME = Path(pyspark.__file__).parent
HOSTS = ("127.0.0.1", "127.0.0.2")
START_S = 60.0
END_S = 30.0

APPLICATION = {
    "spark.cores.max": "2",
    "spark.executor.cores": "1",
    "spark.executor.memory": "512m",
    "spark.driver.memory": "512m",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
}
"""Settings of an application: an executor with one core on each host."""


class StandaloneCluster:
    """Use as a context manager; `url` is its master's."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._children: list[subprocess.Popen[bytes]] = []
        self.url = ""

    def environment(self, more: Mapping[str, str] | None = None) -> dict[str, str]:
        """Of a machine that has Spark: nothing of this process's Python."""
        kept = {
            name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYSPARK", "SPARK"))
        }
        own = {
            "SPARK_HOME": str(SPARK_HOME),
            "SPARK_SCALA_VERSION": "2.13",
            "SPARK_LOCAL_IP": "127.0.0.1",
            "JAVA_HOME": str(use_java()),
            # Executors have it from their worker.
            "JDK_JAVA_OPTIONS": f"{QUICK} -Djava.io.tmpdir={tempfile.gettempdir()}",
        }
        return {**kept, **own, **(more or {})}

    def __enter__(self) -> Self:
        port = _free_port()
        self._start("master", "org.apache.spark.deploy.master.Master", "--host", HOSTS[0], "--port", str(port))
        self.url = f"spark://{HOSTS[0]}:{port}"
        for host in HOSTS:
            place = ["--host", host, "--work-dir", str(self._folder / f"work-{host}")]
            self._start(
                host, "org.apache.spark.deploy.worker.Worker", self.url, *place, "--cores", "1", "--memory", "700m"
            )
        self._until_registered()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, why: BaseException | None, where: TracebackType | None
    ) -> None:
        for child in reversed(self._children):
            # Its executors, too, if it is not quick enough to end them itself.
            below = psutil.Process(child.pid).children(recursive=True) if child.poll() is None else []
            child.terminate()
            try:
                child.wait(END_S)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
            for process in below:
                if process.is_running():
                    process.send_signal(signal.SIGKILL)

    def _start(self, name: str, main: str, *arguments: str) -> None:
        java = [str(use_java() / "bin" / "java"), "-Xmx256m", "-cp", f"{SPARK_HOME / 'jars'}/*"]
        command = [*java, main, *arguments, "--webui-port", str(_free_port())]
        with (self._folder / f"{name}.log").open("wb") as log:
            self._children.append(subprocess.Popen(command, env=self.environment(), stdout=log, stderr=log))

    def _until_registered(self) -> None:
        end = time.monotonic() + START_S
        logs = [self._folder / f"{host}.log" for host in HOSTS]
        while not all("Successfully registered with master" in log.read_text() for log in logs):
            assert time.monotonic() < end, f"no cluster after {START_S:g} s: {logs[0].read_text()[-2000:]}"
            time.sleep(0.05)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Host:
    """What a machine of the cluster has: a virtual environment with everything but acquit, and wheels of acquit.

    Nothing is fetched: what acquit needs is what this very environment has.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._base = folder / "base"
        self._base.mkdir()
        (site,) = (Path(entry) for entry in sys.path if (Path(entry) / "pyspark" / "__init__.py").exists())
        for entry in site.iterdir():
            if "acquit" not in entry.name and entry.suffix != ".pth":
                (self._base / entry.name).symlink_to(entry)

    def environment(self, place: Path) -> Path:
        """A fresh one, as after ``python3 -m venv PLACE``. Returns its Python."""
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(place)], check=True)
        (packages,) = place.glob("lib/python3*/site-packages")
        (packages / "base.pth").write_text(f"{self._base}\n")
        return place / "bin" / "python"

    def wheel(self, root: Path) -> Path:
        """Of the tree at `root`."""
        wheels = self._folder / "wheels"
        build = ["wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", str(wheels)]
        self.pip(*build, str(root))
        (wheel,) = wheels.glob("acquit-*.whl")
        return wheel

    def pip(self, *arguments: str) -> None:
        """This environment's own; ``--python`` makes it another's."""
        command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def events(folder: Path) -> Iterator[dict[str, object]]:
    """The event log of applications that have ended, that were given this folder for it."""
    for log in sorted(path for path in folder.rglob("*") if path.is_file() and not path.name.endswith(".crc")):
        for line in log.read_text().splitlines():
            yield json.loads(line)


def event_log(folder: Path) -> dict[str, str]:
    """Settings that write it."""
    folder.mkdir()
    return {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": folder.as_uri(),
        "spark.eventLog.compress": "false",
        "spark.eventLog.rolling.enabled": "false",
    }
