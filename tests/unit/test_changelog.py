"""CHANGELOG.md of the fragments in changes/: `make changelog` would take every one of them."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FRAGMENTS = sorted(path for path in (ROOT / "changes").iterdir() if path.name != "README.md")
HEADINGS = {
    "security": "### Security",
    "removed": "### Removed",
    "changed": "### Changed",
    "added": "### Added",
    "fixed": "### Fixed",
}
"""In the order in which who upgrades wants to read them."""


def towncrier(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "towncrier", "build", "--date", "2030-01-31", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def plain(text: str) -> str:
    """One line of it."""
    return " ".join(text.split())


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """What it reads, with a fragment of each kind."""
    (tmp_path / "tools").mkdir()
    (tmp_path / "changes").mkdir()
    for name in ("pyproject.toml", "CHANGELOG.md", "tools/changelog.md.jinja", "changes/README.md"):
        shutil.copy(ROOT / name, tmp_path / name)
    for kind in HEADINGS:
        (tmp_path / "changes" / f"a-{kind}-thing.{kind}.md").write_text(f"What is {kind},\nin two lines.\n")
    return tmp_path


def test_every_fragment_is_taken_under_the_heading_of_its_kind() -> None:
    built = towncrier(ROOT, "--draft", "--version", "0.0.0")
    assert built.returncode == 0, built.stderr
    parts = dict(part.split("\n", 1) for part in built.stdout.split("### ")[1:])
    for path in FRAGMENTS:
        heading = HEADINGS[path.suffixes[0].lstrip(".")].removeprefix("### ")
        assert f"- {plain(path.read_text())} - " in plain(parts[heading]) + " - ", path.name


def test_a_release_stands_above_those_before_and_its_fragments_are_gone(tree: Path) -> None:
    before = (tree / "CHANGELOG.md").read_text()
    built = towncrier(tree, "--yes", "--version", "9.9.0")
    assert built.returncode == 0, built.stderr
    head, made, older = (tree / "CHANGELOG.md").read_text().partition("## 9.9.0 (2030-01-31)\n")
    assert made and before.startswith(head) and older.endswith(before.removeprefix(head))
    lines = [line for line in older[: older.index("\n## ")].splitlines() if line]
    assert lines[0::3] == list(HEADINGS.values())
    assert lines[1:3] == ["- What is security,", "  in two lines."]
    assert [path.name for path in (tree / "changes").iterdir()] == ["README.md"]


@pytest.mark.parametrize("name", ["a-thing.new.md", "a-thing.md", "a-thing"])
def test_what_is_no_fragment_is_refused_by_name(tree: Path, name: str) -> None:
    (tree / "changes" / name).write_text("Something.\n")
    built = towncrier(tree, "--draft", "--version", "9.9.0")
    assert built.returncode != 0
    assert name in built.stderr
