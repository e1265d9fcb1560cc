"""The front door: what is public is listed, documented and typed, and importing it loads nothing heavy."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]

spec = importlib.util.spec_from_file_location("tools_check_public_names", ROOT / "tools" / "check_public_names.py")
assert spec is not None and spec.loader is not None
check_public_names = importlib.util.module_from_spec(spec)
spec.loader.exec_module(check_public_names)


def test_the_public_names_are_the_listed_ones() -> None:
    assert check_public_names.check() == []


def test_an_undocumented_or_untyped_thing_is_named() -> None:
    def bare(x, y: Any):  # type: ignore[no-untyped-def]
        return x

    bare.__module__ = "acquit.somewhere"
    assert list(check_public_names.complaints("acquit.bare", bare)) == [
        "acquit.bare: no docstring",
        "acquit.bare: parameter x has no type",
        "acquit.bare: parameter y is Any",
        "acquit.bare: no return type",
    ]


def test_importing_acquit_loads_neither_spark_nor_the_command_line() -> None:
    """A worker imports acquit thousands of times: what it does not need must not load."""
    program = "import acquit, sys; print(sorted({'click', 'rich', 'pyspark', 'pandas', 'pyarrow'} & set(sys.modules)))"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
