"""Blocks of docs/ that are no program of their own, run by what they are for."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.support.pages import ROOT


def block(page: str, beginning: str) -> str:
    """The one python block of a page, marked as not run there, that begins like this."""
    text = (ROOT / "docs" / page).read_text()
    fence = "```python no-run\n"
    (found,) = (part.split("```\n")[0] for part in text.split(fence)[1:] if part.startswith(beginning))
    return found


def test_the_suite_of_the_page_on_testing(tmp_path: Path) -> None:
    (tmp_path / "test_orders.py").write_text(block("testing.md", "import acquit\n\n\ndef test_"))
    plugin = ("-p", "no:acquit", "-p", "acquit.testing.plugin", "-p", "no:cacheprovider")
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "pytest", "-q", *plugin],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert "1 passed" in done.stdout, done.stdout + done.stderr
