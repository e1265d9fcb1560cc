"""Broken files for Python installations that have none.

Slim images ship the standard library without its tests, and with them goes everything in it that fails to parse. The
demo then has nothing to reject, and its dead letter queue would stay empty. Only when the default folder is used and a
look at the likely places finds no such file, the run adds the few files below, says so, and lists them in the manifest
under ``demo-samples/``. A folder that the user names is never added to.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from acquit.demo.checks import parse
from acquit.demo.manifest import SKIPPED_FOLDERS

PREFIX = "demo-samples"
FILES: dict[str, bytes] = {
    "python2.py": b"print 'a statement until 2008'\n",
    "truncated.json": b'{"title": "cut off in the middle of a',
    "twice.toml": b'name = "one"\nname = "two"\n',
    "latin1.py": b"name = 'caf\xe9'\n",
}
# A search of the whole tree would parse it twice; these few names are where CPython keeps what must not parse.
LIKELY = ("lib2to3/tests/data", "test/tokenizedata", "test/test_tomllib/data/invalid", "test")
LIKELY_FILES_MAX = 40


def has_poison(root: Path) -> bool:
    """True if one of the likely files under `root` fails to parse. Reads `LIKELY_FILES_MAX` of a place at most."""
    return any(
        parse(path.name, path.read_bytes()) is not None for place in LIKELY for path in _small_files(root / place)
    )


def _small_files(folder: Path) -> Iterator[Path]:
    if not folder.is_dir() or folder.name in SKIPPED_FOLDERS:
        return
    pattern = "bad*.py" if folder.name == "test" else "*.*"
    for count, path in enumerate(sorted(folder.glob(pattern))):
        if count == LIKELY_FILES_MAX:
            return
        if path.is_file() and not path.is_symlink():
            yield path


def write(folder: Path) -> dict[str, Path]:
    """Write the samples into `folder` and return the prefix they are listed under, for `manifest.freeze`."""
    folder.mkdir(parents=True)
    for name, content in FILES.items():
        (folder / name).write_bytes(content)
    return {PREFIX: folder}
