"""The site: `make site` builds it with mkdocs, strictly, and so does a test where mkdocs is installed."""

from __future__ import annotations

import subprocess
import sys

import pytest
import yaml

from tests.support.pages import ROOT

CONFIG = yaml.safe_load((ROOT / "mkdocs.yml").read_text())


def test_it_is_strict_and_asks_nobody_else() -> None:
    assert CONFIG["strict"] is True and CONFIG["theme"]["font"] is False
    assert set(CONFIG["validation"].values()) == {"warn"}
    assert "repo_url" not in CONFIG and "site_url" not in CONFIG
    for hook in CONFIG["hooks"]:
        assert (ROOT / hook).is_file()


def test_it_builds_without_a_warning(tmp_path: object) -> None:
    pytest.importorskip("material", reason="the extra docs is not installed")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
