"""`tools/environment.sh` in a project of its own, with one package that it fetches from a folder."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest

from tests.support.pages import ROOT

BACKEND = """\
import pathlib, zipfile

def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    name = "project-1-py3-none-any.whl"
    with zipfile.ZipFile(pathlib.Path(wheel_directory) / name, "w") as wheel:
        wheel.writestr("project.pth", "")
        wheel.writestr("project-1.dist-info/METADATA", "Metadata-Version: 2.1\\nName: project\\nVersion: 1\\n")
        wheel.writestr("project-1.dist-info/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        wheel.writestr("project-1.dist-info/RECORD", "")
    return name
"""
PROJECT = """\
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]

[project]
name = "project"
version = "1"
"""


def make_wheel(folder: Path) -> str:
    """The package `thing`; the hash of its file."""
    path = folder / "thing-1-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr("thing.py", "")
        wheel.writestr("thing-1.dist-info/METADATA", "Metadata-Version: 2.1\nName: thing\nVersion: 1\n")
        wheel.writestr("thing-1.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr("thing-1.dist-info/RECORD", "")
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.slow
def test_a_file_that_is_not_the_one_that_was_pinned_is_not_installed(tmp_path: Path) -> None:
    (tmp_path / "tools").mkdir()
    for name in ("environment.sh", "pins.py"):
        shutil.copy(ROOT / "tools" / name, tmp_path / "tools")
    (tmp_path / "pyproject.toml").write_text(PROJECT)
    (tmp_path / "backend.py").write_text(BACKEND)
    (tmp_path / "wheels").mkdir()
    pinned = make_wheel(tmp_path / "wheels")
    environment = {**os.environ, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path / "wheels")}

    def install(hash_: str) -> subprocess.CompletedProcess[str]:
        (tmp_path / "constraints.txt").write_text(f"thing==1 \\\n    --hash=sha256:{hash_}\n    # for base\n")
        command = ["tools/environment.sh", "dev"]
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)

    refused = install(hashlib.sha256(b"another file").hexdigest())
    assert refused.returncode != 0
    assert "DO NOT MATCH THE HASHES" in refused.stderr
    assert not (tmp_path / ".venv" / ".acquit-stamp").exists()
    done = install(pinned)
    assert done.returncode == 0, done.stderr
    assert list((tmp_path / ".venv").glob("lib/python*/site-packages/thing.py"))
    again = install(pinned)
    assert (again.returncode, again.stderr) == (0, ""), "it is there already"
