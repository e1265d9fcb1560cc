"""Java programs of ours: Maven resolves what their `pom.xml` names, javac compiles them into `build/interop`."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
BUILD = HERE.parents[1] / "build/interop"

QUICK_START = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""For processes that live for a test or for a session of them."""


class PeerMissing(Exception):
    """A peer cannot be run here; the text says why."""


def in_ci() -> bool:
    """Whether a missing peer is a failure, and not a reason to skip."""
    return os.environ.get("CI", "") not in ("", "0", "false")


@dataclass(frozen=True)
class JavaProgram:
    """One program: what it is compiled from, and where to."""

    name: str
    pom: Path
    sources: tuple[Path, ...]

    def classpath(self) -> str:
        """Compile it where it is older than its sources; what Java needs to run it."""
        built = BUILD / self.name
        path = built / "classpath"
        newest = max(source.stat().st_mtime for source in (*self.sources, self.pom))
        if not (path.exists() and path.stat().st_mtime >= newest and _is_whole(path.read_text(encoding="utf-8"))):
            for program in ("java", "javac", "mvn"):
                if shutil.which(program) is None:
                    raise PeerMissing(f"{self.name} needs {program} on the PATH (a JDK, 17 or newer, and Maven)")
            (built / "classes").mkdir(parents=True, exist_ok=True)
            resolved = built / "resolved"
            _run(
                "mvn",
                "-q",
                "-B",
                "-f",
                str(self.pom),
                "dependency:build-classpath",
                f"-Dmdep.outputFile={resolved}",
            )
            whole = f"{built / 'classes'}:{resolved.read_text(encoding='utf-8').strip()}"
            # Manifests of others name archives that are not there: nothing of ours to mend.
            lint = ("-Xlint:all,-path", "-Werror")
            _run("javac", *lint, "-d", str(built / "classes"), "-cp", whole, *map(str, self.sources))
            path.write_text(whole, encoding="utf-8")
        return path.read_text(encoding="utf-8")


def _program(name: str, folder: Path, *shared: Path) -> JavaProgram:
    return JavaProgram(name, folder / "pom.xml", (*shared, *sorted((folder / "src").glob("*.java"))))


_ORDERS = HERE / "brokers/src/Orders.java"

JMS = _program("jms", HERE / "jms")
ARTEMIS = _program("artemis", HERE / "brokers/artemis", _ORDERS)
SPRING = _program("spring", HERE / "spring")
BROKER_J = _program("broker-j", HERE / "brokers/broker-j", _ORDERS)


def _is_whole(classes: str) -> bool:
    """Is all of it still there? Maven's repository is not ours."""
    return all(Path(entry).exists() for entry in classes.split(":"))


def _run(*command: str) -> None:
    finished = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if finished.returncode:
        raise PeerMissing(f"{command[0]} ended with {finished.returncode}: {finished.stdout}{finished.stderr}")
