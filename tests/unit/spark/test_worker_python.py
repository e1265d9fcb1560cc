"""The Python that a local session starts its workers with."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from acquit.spark.launchers import cache_folder
from acquit.spark.worker_python import worker_python

PACKAGE = Path(pyspark.__file__).parent.resolve()
ZIPS = f"{PACKAGE}/python/lib/pyspark.zip:{next((PACKAGE / 'python' / 'lib').glob('py4j-*.zip'))}"


def path_of(program: str, path: str) -> list[str]:
    """What a worker that is started with this PYTHONPATH has of it."""
    done = subprocess.run(
        [program, "-c", "import os, sys; print(sys.executable); print(os.environ['PYTHONPATH'])", "a b"],
        env={"PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    python, kept = done.stdout.splitlines()
    assert python == sys.executable
    return kept.split(":")


@pytest.mark.parametrize(
    ("path", "kept"),
    [
        (f"a.jar:{ZIPS}:a.jar:/of the user", ["a.jar", "a.jar", "/of the user"]),
        (f"{ZIPS}:/b", ["/b"]),
        ("/other/pyspark.zip:/b", ["/other/pyspark.zip", "/b"]),
        (ZIPS, ZIPS.split(":")),
    ],
)
def test_the_zips_are_taken_from_the_path(tmp_path: Path, path: str, kept: list[str]) -> None:
    assert path_of(worker_python({}, cache=tmp_path), path) == kept


def test_the_script_is_made_once(tmp_path: Path) -> None:
    first = worker_python({}, cache=tmp_path)
    made = Path(first).stat().st_mtime_ns
    assert worker_python({"SPARK_HOME": str(PACKAGE)}, cache=tmp_path) == first
    assert [path.stat().st_mtime_ns for path in tmp_path.iterdir()] == [made]


def test_another_spark_has_its_own(tmp_path: Path) -> None:
    for home in (tmp_path, tmp_path / "none"):
        assert worker_python({"SPARK_HOME": str(home)}, cache=tmp_path / "cache") == sys.executable


def test_the_same_spark_by_another_name(tmp_path: Path) -> None:
    (tmp_path / "spark").symlink_to(PACKAGE)
    program = worker_python({"SPARK_HOME": str(tmp_path / "spark")}, cache=tmp_path / "cache")
    zips = ZIPS.replace(str(PACKAGE), str(tmp_path / "spark"))
    assert path_of(program, f"{zips}:/b") == ["/b"]


@pytest.mark.parametrize("end", ["/", "/.", "//"])
def test_spark_home_is_spelled_as_spark_spells_it(tmp_path: Path, end: str) -> None:
    home = f"{PACKAGE}{end}"
    program = worker_python({"SPARK_HOME": home}, cache=tmp_path)
    assert path_of(program, f"{ZIPS.replace(str(PACKAGE), home)}:/b") == ["/b"]


def test_who_has_no_home_has_no_script(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", fail)
    assert cache_folder({}) is None
    assert worker_python({}) == sys.executable


def test_a_cache_by_a_relative_path_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    assert cache_folder({"XDG_CACHE_HOME": "here"}) == tmp_path / ".cache" / "acquit"
    assert cache_folder({"XDG_CACHE_HOME": str(tmp_path / "there")}) == tmp_path / "there" / "acquit"


def test_what_is_in_its_place_is_written_anew(tmp_path: Path) -> None:
    program = Path(worker_python({}, cache=tmp_path))
    text = program.read_bytes()
    program.write_bytes(b"\xff")
    assert worker_python({}, cache=tmp_path) == str(program)
    assert program.read_bytes() == text
    assert program.stat().st_mode & 0o022 == 0


def test_an_environment_by_another_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark looks where the links lead to."""
    (tmp_path / "site packages").symlink_to(PACKAGE.parent)
    monkeypatch.setattr(pyspark, "__file__", str(tmp_path / "site packages" / "pyspark" / "__init__.py"))
    assert path_of(worker_python({}, cache=tmp_path / "cache"), f"{ZIPS}:/b") == ["/b"]


def test_a_folder_that_nothing_can_be_written_to(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert worker_python({}, cache=tmp_path / "file") == sys.executable


def test_pyspark_that_is_no_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pyspark, "__file__", str(tmp_path / "pyspark" / "__init__.py"))
    assert worker_python({}, cache=tmp_path / "cache") == sys.executable
