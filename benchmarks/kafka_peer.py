"""A Kafka broker for the comparison, and Spark's source for it: both from Maven Central, resolved into ``build/``.

One node is broker and controller (KRaft), on ports of its own on 127.0.0.1, with its log in a temporary folder. What
cannot be had here is `PeerMissing`, with the reason; then the comparison goes without Kafka.
"""

from __future__ import annotations

import base64
import contextlib
import shutil
import socket
import subprocess
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).parent
BUILD = HERE.parent / "build/kafka"
STARTED_WITHIN_S = 60

PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
log.dirs={folder}/log
num.partitions={partitions}
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
"""


class PeerMissing(Exception):
    """Kafka cannot be run here; the text says why."""


def source_jars() -> list[str]:
    """Spark's source for Kafka, and what it needs."""
    return _resolved(HERE / "kafka/spark/pom.xml", "spark").split(":")


def _resolved(pom: Path, name: str) -> str:
    found = BUILD / name
    if found.exists() and found.stat().st_mtime >= pom.stat().st_mtime:
        classes = found.read_text(encoding="utf-8")
        if all(Path(entry).exists() for entry in classes.split(":")):
            return classes
    for program in ("java", "mvn"):
        if shutil.which(program) is None:
            raise PeerMissing(f"Kafka needs {program} on the PATH (a JDK, 17 or newer, and Maven)")
    BUILD.mkdir(parents=True, exist_ok=True)
    _run("mvn", "-q", "-B", "-f", str(pom), "dependency:build-classpath", f"-Dmdep.outputFile={found}")
    return found.read_text(encoding="utf-8").strip()


def _run(*command: str) -> None:
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode:
        raise PeerMissing(f"{command[0]} ended with {done.returncode}: {(done.stdout + done.stderr).strip()[:500]}")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextlib.contextmanager
def kafka(folder: Path, partitions: int) -> Iterator[tuple[str, int]]:
    """The address and the process number of a broker with its log below `folder`. Raises PeerMissing."""
    classes = _resolved(HERE / "kafka/pom.xml", "broker")
    port, controller = _free_port(), _free_port()
    folder.mkdir(parents=True)
    settings = folder / "server.properties"
    settings.write_text(PROPERTIES.format(port=port, controller=controller, folder=folder, partitions=partitions))
    java = ("java", "-Xmx512m", "-cp", classes)
    cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    _run(*java, "kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(settings), "--standalone")
    with subprocess.Popen(
        [*java, "kafka.Kafka", str(settings)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        try:
            _wait_for(port, process)
            yield f"127.0.0.1:{port}", process.pid
        finally:
            process.terminate()


def _wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    ends_at = time.monotonic() + STARTED_WITHIN_S
    while time.monotonic() < ends_at and process.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.1)
    raise PeerMissing(f"the Kafka broker does not listen after {STARTED_WITHIN_S} s")
