"""The repository keeps its own rules: import directions, hygiene, tests that mirror the sources."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


def load(name: str) -> ModuleType:
    """A script of tools/, as a module."""
    import sys

    spec = importlib.util.spec_from_file_location(f"tools_{name}", ROOT / "tools" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up there
    spec.loader.exec_module(module)
    return module


check_imports = load("check_imports")
check_hygiene = load("check_hygiene")


def test_every_import_is_an_arrow_of_the_diagram() -> None:
    assert check_imports.check(ROOT / "src") == []


@pytest.mark.parametrize(
    ("module", "source", "complaint"),
    [
        ("acquit.client.core", "from acquit.broker import core", "client may not import broker"),
        ("acquit.broker.core", "import acquit.client", "broker may not import client"),
        ("acquit.broker.core", "from acquit import client", "broker may not import client"),
        ("acquit.broker.server", "from ..client import aio", "broker may not import client"),
        ("acquit.store.journal", "from acquit.protocol.codec import encode", "store may not import protocol"),
        ("acquit.protocol.codec", "from acquit.store import record", "protocol may not import store"),
        ("acquit.protocol.link", "import asyncio", "no asyncio"),
        ("acquit.broker.core", "def f():\n    from time import monotonic", "no time"),
        ("acquit.client.core", "import threading", "no threading"),
        ("acquit.protocol.codec", "import structlog", "the package structlog"),
        ("acquit.cli.serve", "import acquit.spark", "only inside a function"),
        ("acquit.embedded", "from acquit.cli import main", "embedded may not import cli"),
        ("acquit.errors", "from acquit import connect", "errors may not import acquit"),
        ("acquit.novelty", "import sys", "novelty has no row"),
    ],
)
def test_a_wrong_arrow_is_named(module: str, source: str, complaint: str) -> None:
    found = list(check_imports.arrows(source, Path("x.py"), module, is_package=False))
    assert [reason for arrow in found if (reason := check_imports.offence(arrow)) and complaint in reason]


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("acquit.client.aio", "import asyncio"),
        ("acquit.broker.server", "import asyncio, structlog"),
        ("acquit.cli.serve", "def f():\n    from acquit.spark import ingest"),
        ("acquit.cli.serve", "if TYPE_CHECKING:\n    from acquit.spark import ingest"),
        ("acquit.protocol.codec", "from . import types"),
        ("acquit.embedded", "from acquit.broker.server import serve\nfrom acquit import errors"),
    ],
)
def test_a_right_arrow_passes(module: str, source: str) -> None:
    found = list(check_imports.arrows(source, Path("x.py"), module, is_package=False))
    assert found
    assert [check_imports.offence(arrow) for arrow in found] == [None] * len(found)


def test_hygiene() -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout: nothing says which files are the repository's")
    assert check_hygiene.check(ROOT) == []


@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        ("docs/a.md", "see /" + "work/x for it\n", "path of one machine"),
        ("docs/a.md", "in /" + "root/.cache\n", "path of one machine"),
        ("docs/a.md", "from https://py" + "pi.org/simple\n", "registry's host"),
        ("docs/a.md", "TO" + "DO: finish\n", "unfinished"),
        ("docs/a.md", "a \nb\n", "trailing blanks"),
        ("docs/a.md", "a", "no newline"),
        ("docs/a.md", "a\r\n", "carriage"),
        ("src/acquit/a.py", "import sys\n", "no module docstring"),
        ("src/acquit/a.py", '"""Why."""\n\nimport sys\n', "annotations"),
        ("src/acquit/a.py", '"""Why."""\n' + "\n" * 900 + "x = 1\n", "lines, more than"),
        ("src/acquit/a.py", '"""Why."""\nx = f()  # type' + ": ignore\n", "without naming it"),
        ("docs/a.md", "[there](nowhere.md#part)\n", "does not exist"),
        ("x/package-lock.json", '{"packages": {"a": {"resolved": "there"}}}\n', "where it was fetched"),
    ],
)
def test_a_fault_is_named(name: str, text: str, complaint: str) -> None:
    assert [line for line in check_hygiene.check_text(Path(name), text) if complaint in line]


def test_ordinary_words_are_no_paths_of_a_machine() -> None:
    text = "units of work/rest, a/root/b, the homework/ folder\n"
    assert check_hygiene.check_text(Path("docs/a.md"), text) == []


def test_unit_tests_mirror_the_sources() -> None:
    """tests/unit/store/test_journal.py tests src/acquit/store/journal.py: a renamed module takes its tests along."""
    unit = ROOT / "tests" / "unit"
    orphans = []
    for path in sorted(unit.glob("*/**/test_*.py")):
        folder = ROOT / "src" / "acquit" / path.parent.relative_to(unit)
        name = path.stem.removeprefix("test_")
        if not ((folder / f"{name}.py").is_file() or (folder / f"_{name}.py").is_file() or (folder / name).is_dir()):
            orphans.append(str(path.relative_to(ROOT)))
    assert orphans == []
