"""Keep what an earlier acquit writes, for the tests of this folder: `python tests/formats/keep.py COMMIT NAME`.

The sources of that commit are put aside, `write.py` is run with them, and what it writes becomes `kept/NAME.tar.xz`. A
kept archive is never made again: it is what users of that day have. A new one is due when something is written that no
kept one has; `test_formats.py` names the kinds of records that are in none.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
KEPT = HERE / "kept"


def plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Nothing of the machine that it was made on."""
    member.uid = member.gid = member.mtime = 0
    member.uname = member.gname = ""
    return member


def put_aside(commit: str, folder: Path) -> None:
    """Write the sources of a commit to `folder`/src. Raises CalledProcessError where it is not in the repository."""
    sources = subprocess.run(["git", "archive", commit, "src"], cwd=HERE.parents[1], capture_output=True, check=True)
    subprocess.run(["tar", "-x", "-C", str(folder)], input=sources.stdout, check=True)


def keep(commit: str, name: str) -> None:
    target = KEPT / f"{name}.tar.xz"
    if target.exists():
        raise SystemExit(f"{target} is there: what was kept is not made again")
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch)
        put_aside(commit, root)
        subprocess.run(
            [sys.executable, str(HERE / "write.py"), str(root / name)],
            env={**os.environ, "PYTHONPATH": str(root / "src")},
            check=True,
        )
        KEPT.mkdir(exist_ok=True)
        with tarfile.open(target, "w:xz") as archive:
            archive.add(root / name, ".", filter=plain)


if __name__ == "__main__":
    keep(*sys.argv[1:])
