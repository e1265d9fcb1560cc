"""The Python program that a local Spark session starts its workers with.

Spark puts `pyspark.zip`, which lies in its own folder, before all else on a worker's path, and of what it imports from
a zip Python keeps no bytecode: each process compiles PySpark anew. A query on a Python source starts several, one after
the other, to be planned, so that a second passes before it begins. Where PySpark is installed as a package, as by pip,
the same files lie beside that zip with their bytecode, and a script of a few lines takes the zip from the path.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Final

import pyspark

from acquit.spark.launchers import cache_folder, write_launcher

_LAUNCHER: Final = """#!/bin/sh
# Written by acquit: Python for workers of Spark, which import PySpark from where it is installed, and not from its zip.
zips={zips}
case "$PYTHONPATH" in *"$zips:"*)
    PYTHONPATH="${{PYTHONPATH%%"$zips:"*}}${{PYTHONPATH#*"$zips:"}}"
esac
exec {python} "$@"
"""


def worker_python(environment: Mapping[str, str] = os.environ, *, cache: Path | None = None) -> str:
    """Path of a program that is this very Python, for workers of the PySpark that is installed here. It may write one
    small script under `cache`. Where PySpark is not installed as a package, another Spark is to be started
    (``SPARK_HOME``), or the script cannot be run, it is `sys.executable`."""
    package = Path(pyspark.__file__).parent
    home = environment.get("SPARK_HOME") or str(package.resolve())  # as Spark finds it, and writes it
    libraries = Path(home, "python", "lib")
    zips = [libraries / "pyspark.zip", *sorted(libraries.glob("py4j-*-src.zip"))]
    folder = cache or cache_folder(environment)
    if folder is None or len(zips) != 2 or not zips[0].is_file() or not Path(home).samefile(package):
        return sys.executable
    before = ":".join(f"{home}/python/lib/{each.name}" for each in zips)
    text = _LAUNCHER.format(zips=shlex.quote(before), python=shlex.quote(sys.executable))
    script = folder / f"python-{sha256(os.fsencode(text)).hexdigest()[:16]}"
    try:
        write_launcher(script, text)
    except OSError:
        return sys.executable
    return str(script) if os.access(script, os.X_OK) else sys.executable


__all__ = ["worker_python"]
