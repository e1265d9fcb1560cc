"""The front door: what is public is listed, documented and typed, and importing it loads nothing heavy."""

from __future__ import annotations

import ast
import importlib.util
import inspect
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_type_hints

import pytest

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


def functions_of(name: str, value: object) -> Iterator[tuple[str, Any]]:
    """What is public of `value` and has annotations: itself, and, of a class, its methods and properties, inherited
    ones, too."""
    if inspect.isfunction(value) or inspect.isclass(value):
        yield name, value
    if not inspect.isclass(value):
        return
    for attribute in dir(value):
        if attribute.startswith("_") and attribute != "__init__":
            continue
        member = inspect.getattr_static(value, attribute)
        member = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
        if inspect.isfunction(member):
            yield f"{name}.{attribute}", member


LATER = {
    "Sender.prepare": "Cursor",
    "Session.receiver": "Subscription",
    "Session.requester": "Requester",
    "Session.responder": "Reply",
    "Session.unsubscribe": "Subscription",
}
"""Methods with a type whose module is loaded by whoever needs it: all of them together are a tenth of a command's start
(`cli.test_app.TEXTS_MAX`)."""


def test_the_types_of_what_is_public_are_known_at_run_time() -> None:
    """Frameworks that inject arguments or check them ask for the hints of whatever they are given."""
    import acquit.aio

    asked, unknown = 0, []
    later = {
        f"{api}.{name}: name '{missing}' is not defined"
        for api in ("acquit", "acquit.aio")
        for name, missing in LATER.items()
    }
    for module in (acquit, acquit.aio, acquit.errors):
        for exported in check_public_names.exported(module):
            for name, function in functions_of(f"{module.__name__}.{exported}", getattr(module, exported)):
                asked += 1
                try:
                    get_type_hints(function)
                except (NameError, TypeError) as exc:
                    unknown.append(f"{name}: {exc}")
    assert set(unknown) == later
    assert asked > 500


PIPELINE = '''
class Access:
    """Where."""
    url: str

class Options(Access):
    """What."""
    table: str
    _own: int
    def checked(self, how): ...

def run(options: Options, *, master=None) -> Any:
    """Do it."""

class Source(DataSource):
    """Spark calls it."""
    def reader(self, schema): ...
'''


def test_what_is_too_heavy_to_import_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "acquit" / "heavy").mkdir(parents=True)
    (tmp_path / "acquit" / "heavy" / "__init__.py").write_text(
        "from contextlib import suppress\nfrom acquit.heavy.inner import Options, Source\n"
        "with suppress(Exception):\n    from acquit.heavy.inner import run as go\n"
    )
    (tmp_path / "acquit" / "heavy" / "inner.py").write_text(PIPELINE)
    monkeypatch.setattr(check_public_names, "SOURCES", tmp_path)
    monkeypatch.setattr(
        check_public_names, "TOLD", {"acquit.heavy": "Options Source go", "acquit.heavy.inner": "Options.checked gone"}
    )
    check_public_names.statements.cache_clear()
    try:
        names = list(check_public_names.told_names())
    finally:
        check_public_names.statements.cache_clear()
    assert [name for name, _ in names] == [
        "acquit.heavy.Options",
        "acquit.heavy.Options.url",
        "acquit.heavy.Options.table",
        "acquit.heavy.Options.checked(how)",
        "acquit.heavy.Source",
        "acquit.heavy.go(options,master)",
        "acquit.heavy.inner.Options.checked(how)",
        "acquit.heavy.inner.gone",
    ]
    assert [line for name, node in names for line in check_public_names.told_complaints(name, node)] == [
        "acquit.heavy.Options.checked(how): no docstring",
        "acquit.heavy.Options.checked(how): parameter how has no type",
        "acquit.heavy.Options.checked(how): what it returns has no type",
        "acquit.heavy.go(options,master): parameter master has no type",
        "acquit.heavy.go(options,master): what it returns is Any",
        "acquit.heavy.inner.Options.checked(how): no docstring",
        "acquit.heavy.inner.Options.checked(how): parameter how has no type",
        "acquit.heavy.inner.Options.checked(how): what it returns has no type",
        "acquit.heavy.inner.gone: not defined where tools/check_public_names.py has it",
    ]


def test_what_a_page_imports_is_watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "README.md").write_text("```python\nfrom acquit import Broker\n```\n")
    (tmp_path / "docs" / "page.md").write_text(
        "```python\nfrom acquit.spark.ingest import (\n    ingest,\n    IngestOptions as It,\n    hidden,\n)\n```\n"
        "from acquit there is `from acquit.compat.qpid.messaging import *`\n"
    )
    monkeypatch.setattr(check_public_names, "ROOT", tmp_path)
    assert [line for line in check_public_names.check() if "imports" in line] == [
        "docs/page.md: imports acquit.spark.ingest.hidden, which tools/check_public_names.py does not watch"
    ]


def test_the_names_are_found_without_pyspark() -> None:
    """Also where it is there: importing it takes longer than the whole check."""
    program = (
        "import sys; sys.path.insert(0, 'tools'); import check_public_names; "
        "print(len(check_public_names.public_names()) > 500, 'pyspark' in sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT)
    assert result.stdout.strip() == "True False"


def test_importing_acquit_loads_neither_spark_nor_the_command_line() -> None:
    """A worker imports acquit thousands of times: what it does not need must not load."""
    program = "import acquit, sys; print(sorted({'click', 'rich', 'pyspark', 'pandas', 'pyarrow'} & set(sys.modules)))"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_the_front_door_loads_what_is_asked_for() -> None:
    program = (
        "import sys\n"
        "before = {*sys.modules}\n"  # what the environment itself begins with
        "import acquit\n"
        "print(sorted(name for name in sys.modules if name.startswith('acquit')))\n"
        "print({'asyncio', 'dataclasses'} & ({*sys.modules} - before))\n"
        "acquit.Message\n"
        "print('asyncio' in {*sys.modules} - before, 'Message' in vars(acquit))"
    )
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert shown.splitlines() == ["['acquit']", "set()", "False True"]


def test_what_type_checkers_see_of_the_front_door_is_what_programs_get() -> None:
    import acquit

    tree = ast.parse((ROOT / "src" / "acquit" / "__init__.py").read_text())
    (block,) = [node for node in tree.body if isinstance(node, ast.If)]
    seen = {
        alias.name: (node.module or "")
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert seen == {**acquit._HOMES, **dict.fromkeys(acquit._MODULES, "acquit")}
    assert sorted({*seen, "__version__"}) == sorted(acquit.__all__)
    assert {*acquit.__all__} <= {*dir(acquit)}
    with pytest.raises(AttributeError, match="no attribute 'conect'"):
        _ = acquit.conect
