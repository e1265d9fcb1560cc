"""What `make check` says of the repository it says for a reason: import directions, private names, hygiene.

Beside that, tests mirror the sources, and replace what is there.
"""

from __future__ import annotations

import ast
import dataclasses
import importlib
import importlib.util
import re
import sys
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


def load(name: str) -> ModuleType:
    """A script of tools/, as a module, which finds those beside it."""
    tools = ROOT / "tools"
    spec = importlib.util.spec_from_file_location(f"tools_{name}", tools / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up there
    sys.path.insert(0, str(tools))
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(tools))
    return module


check_imports = load("check_imports")
check_hygiene = load("check_hygiene")
check_private = load("check_private")
check_words = load("check_words")


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
        ("acquit.broker.intake.posting", "import asyncio", "no asyncio"),
        ("acquit.broker.dispatching.choosing", "import asyncio", "no asyncio"),
        ("acquit.broker.transact.transactions", "def f():\n    import asyncio", "no asyncio"),
        ("acquit.broker.intake.something_new", "import socket", "no socket"),
        ("acquit.broker.access.permissions", "import threading", "no threading"),
        ("acquit.client.transacting", "import asyncio", "no asyncio"),
        ("acquit.client.fates", "import time", "no time"),
        ("acquit.ledger.fold", "import time", "no time"),
        ("acquit.compat.qpid.messaging.address", "import time", "no time"),
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
        ("acquit.client.aio.receiver", "import asyncio"),
        ("acquit.broker.server", "import asyncio"),
        ("acquit.broker.configuration", "import cattrs"),
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


@pytest.mark.parametrize(
    ("source", "complains"),
    [
        ("from datetime import datetime\nat = datetime.now()", True),
        ("from datetime import date\nat = date.today()", True),
        ("import datetime\ndef f():\n    return datetime.datetime.utcnow()", True),
        ("from datetime import datetime\nat = datetime.fromtimestamp(0)", False),
        ("class A:\n    def now(self): ...\nA().now()", False),
    ],
)
def test_a_clock_that_is_read_through_datetime_is_named(tmp_path: Path, source: str, complains: bool) -> None:
    module = tmp_path / "src/acquit/protocol/credit.py"
    module.parent.mkdir(parents=True)
    module.write_text(source)
    found = [line for line in check_imports.check(tmp_path / "src") if "reads no clock" in line]
    assert bool(found) is complains
    assert all("protocol/credit.py" in line for line in found)


@pytest.fixture(scope="module")
def drawn() -> tuple[list[str], list[object]]:
    """The modules of the tree, and its arrows."""
    modules, arrows = [], []
    for path in sorted((ROOT / "src").rglob("*.py")):
        modules.append(check_imports.module_name(path, ROOT / "src"))
        arrows += check_imports.arrows(path.read_text(), path, modules[-1], is_package=path.name == "__init__.py")
    return modules, arrows


@pytest.mark.parametrize(
    ("table", "row", "complaint"),
    [
        ("ALLOWED", {"gone": (frozenset(), frozenset())}, "ALLOWED names gone"),
        (
            "ALLOWED",
            {"client": (frozenset(("errors", "protocol", "transport")), frozenset(("scramp", "yaml")))},
            "yaml",
        ),
        ("PURE", {"acquit.broker.posting": (frozenset(("time",)), frozenset())}, "PURE names acquit.broker.posting"),
        (
            "PURE",
            {"acquit.store": (frozenset(("time",)), frozenset(("acquit.store.writer", "acquit.store.journal")))},
            "PURE exempts acquit.store.writer",
        ),
        ("PURE", {"acquit.ledger": (frozenset(("time",)), frozenset(("acquit.ledger.old",)))}, "acquit.ledger.old"),
    ],
)
def test_a_row_that_guards_nothing_is_named(
    monkeypatch: pytest.MonkeyPatch,
    drawn: tuple[list[str], list[object]],
    table: str,
    row: dict[str, object],
    complaint: str,
) -> None:
    monkeypatch.setattr(check_imports, table, getattr(check_imports, table) | row)
    (found,) = check_imports.stale_rows(*drawn)
    assert complaint in found


def test_an_arrow_that_is_lazy_between_parts_that_are_gone_is_named(
    monkeypatch: pytest.MonkeyPatch, drawn: tuple[list[str], list[object]]
) -> None:
    monkeypatch.setattr(check_imports, "LAZY", check_imports.LAZY | {("cli", "console")})
    assert check_imports.stale_rows(*drawn) == ["LAZY names console, and there is no such module"]


SOME = {
    "acquit.store.a": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from acquit.store.b import B",
    "acquit.store.b": "def f():\n    from acquit.store import c",
    "acquit.store.c": "from acquit.store import a\nfrom . import errors",
    "acquit.store.d": "from acquit.store.a import A",
}
"""Three modules in a circle that no import at run time closes, and one that looks at it from outside."""


def imports_of(sources: dict[str, str]) -> dict[str, set[str]]:
    """The graph of modules that say what `sources` has for each."""
    found = [
        arrow
        for module, source in sources.items()
        for arrow in check_imports.arrows(source, Path("x.py"), module, is_package=False)
    ]
    graph: dict[str, set[str]] = check_imports.graph(sources, found)
    return graph


def test_a_circle_is_named_by_each_of_its_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check_imports, "CIRCLES", {})
    assert check_imports.circle_offences(imports_of(SOME)) == [
        "acquit.store.a is in a circle of 3 modules: it imports acquit.store.b, which lead back to it",
        "acquit.store.b is in a circle of 3 modules: it imports acquit.store.c, which lead back to it",
        "acquit.store.c is in a circle of 3 modules: it imports acquit.store.a, which lead back to it",
    ]


@pytest.mark.parametrize("cut", ["acquit.store.a", "acquit.store.b", "acquit.store.c"])
def test_without_one_of_its_imports_there_is_no_circle(monkeypatch: pytest.MonkeyPatch, cut: str) -> None:
    monkeypatch.setattr(check_imports, "CIRCLES", {})
    assert check_imports.circle_offences(imports_of(SOME | {cut: ""})) == []


def test_a_circle_that_is_listed_passes_until_it_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    listed = frozenset(("acquit.store.a", "acquit.store.b", "acquit.store.c"))
    monkeypatch.setattr(check_imports, "CIRCLES", {"acquit.store": listed})
    assert check_imports.circle_offences(imports_of(SOME)) == []
    gone = check_imports.circle_offences(imports_of(SOME | {"acquit.store.b": ""}))
    assert gone == [f"CIRCLES names {module}, which is in no circle: take it out" for module in sorted(listed)]


def test_a_module_that_joins_a_listed_circle_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    listed = frozenset(("acquit.store.a", "acquit.store.b", "acquit.store.c"))
    monkeypatch.setattr(check_imports, "CIRCLES", {"acquit.store": listed})
    (found,) = check_imports.circle_offences(imports_of(SOME | {"acquit.store.b": "from acquit.store import c, d"}))
    assert found.startswith("acquit.store.d is in a circle of 4 modules")


@pytest.mark.parametrize(
    ("imports", "found"),
    [
        ({"a": "b", "b": "c", "c": ""}, []),
        ({"a": "b", "b": "a", "c": "d", "d": "c"}, [{"a", "b"}, {"c", "d"}]),
        ({"a": "bc", "b": "d", "c": "d", "d": "a"}, [{"a", "b", "c", "d"}]),
        ({"a": "b", "b": "ac", "c": "d", "d": "c"}, [{"c", "d"}, {"a", "b"}]),
    ],
)
def test_circles_of_graphs(imports: dict[str, str], found: list[set[str]]) -> None:
    assert check_imports.circles(imports) == found


def test_the_circles_that_stand_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    check_imports.print_circles(ROOT / "src")
    printed = capsys.readouterr().out
    for part, row in check_imports.CIRCLES.items():
        assert f"{part.partition('.')[2]}: {len(row)} of " in printed


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("other._x", ["other._x"]),
        ("class A:\n    def f(self, other):\n        return self._x, other._x", ["other._x"]),
        ("class A:\n    def f(self, other):\n        self._x = other._x", []),
        ("class A:\n    __slots__ = ('_x',)\n\ndef f(a):\n    return a._x", []),
        ("class A(B):\n    def f(self):\n        return super()._f(), self.b._f()", ["self.b._f"]),
        ("other.__dict__, other.x", []),
    ],
)
def test_a_private_attribute_of_another_is_found(source: str, found: list[str]) -> None:
    assert [what for _, what in check_private.uses(source)] == found


@pytest.mark.parametrize(("standing", "complaint"), [(0, "more than 0"), (2, "lower STANDING from 2")])
def test_private_attributes_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, standing: int, complaint: str
) -> None:
    module = tmp_path / "src/acquit/client/a.py"
    module.parent.mkdir(parents=True)
    module.write_text("other._x")
    monkeypatch.setattr(check_private, "STANDING", {"client": standing})
    found = check_private.check(tmp_path / "src")
    assert complaint in found[0]
    assert found[1:] == (["src/acquit/client/a.py:1: other._x"] if standing == 0 else [])


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ('"""Of LIKE, in this turn."""', 1),
        ('"""The steps of LIKE."""', 0),
        ('def f():\n    """Whether it may."""', 1),
        ('def f():\n    """True if a frame may be sent."""', 0),
        ('class A:\n    x: int = 1\n    """How many there are."""', 1),
        ('class A:\n    x: int = 1\n    """Messages that wait."""\n    """What no tool shows."""', 0),
    ],
)
def test_a_docstring_begins_with_a_verb_or_a_noun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, found: int
) -> None:
    (tmp_path / "acquit").mkdir()
    (tmp_path / "acquit/a.py").write_text(source)
    faults = check_words.list_openings(tmp_path).get("a", [])
    assert len(faults) == found
    monkeypatch.setattr(check_words, "TWINS", {})
    complaint = f"a: {found} docstrings begin with neither verb nor noun"
    assert check_words.check(tmp_path) == ([complaint, *faults] if found else [])


def test_a_class_name_is_one_class(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("class Row: ...\nclass Row: ...")
    assert check_words.list_twins(tmp_path) == {}
    (tmp_path / "b.py").write_text("class _Row: ...")
    assert check_words.list_twins(tmp_path) == {"Row": ["a.py", "b.py"]}


@pytest.mark.parametrize(
    ("twins", "found"),
    [
        ({}, ["class Row: in a.py, b.py"]),
        ({"Row": "a reason"}, []),
        ({"Row": "a reason", "Column": "a reason"}, ["class Column: in TWINS, but not in several modules"]),
    ],
)
def test_a_class_name_of_several_modules_has_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, twins: dict[str, str], found: list[str]
) -> None:
    (tmp_path / "a.py").write_text("class Row: ...")
    (tmp_path / "b.py").write_text("class Row: ...")
    monkeypatch.setattr(check_words, "TWINS", twins)
    assert check_words.check(tmp_path) == found


def bases_of(node: ast.ClassDef, tree: ast.Module) -> list[type] | None:
    """The classes of ours that a class of a test derives from; None where it has another base."""
    names = [base.id for base in node.bases if isinstance(base, ast.Name)]
    if not names or len(names) < len(node.bases):
        return None
    found = {
        alias.asname or alias.name: (line.module, alias.name)
        for line in ast.walk(tree)
        if isinstance(line, ast.ImportFrom) and line.module and line.module.startswith("acquit")
        for alias in line.names
    }
    if not all(name in found for name in names):
        return None
    return [getattr(importlib.import_module(found[name][0]), found[name][1]) for name in names]


def stale_doubles(tree: ast.Module, known: set[str]) -> list[str]:
    """What a test puts in place of something that is not there (any more): an override that calls a base without it,
    and a function assigned to a name that is none of `known`. Such a test watches nothing."""
    found = []
    functions = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and (bases := bases_of(node, tree)) is not None:
            called = {
                inner.attr
                for inner in ast.walk(node)
                if isinstance(inner, ast.Attribute) and ast.unparse(inner.value) == "super()"
            }
            found += [f"{node.name}.{name}" for name in called if not any(hasattr(base, name) for base in bases)]
        elif isinstance(node, ast.Assign):
            doubles = isinstance(node.value, ast.Lambda) or (
                isinstance(node.value, ast.Name) and node.value.id in functions
            )
            targets = [target for target in node.targets if isinstance(target, ast.Attribute)]
            found += [ast.unparse(target) for target in targets if doubles and target.attr not in known]
    return found


def test_what_tests_watch_or_replace_is_there() -> None:
    texts = {path: path.read_text() for part in ("src", "tests") for path in (ROOT / part).rglob("*.py")}
    defined = r"(?:def|class) (\w+)|\bself\.(\w+)\b|^    (\w+)(?::| =)"
    known = {name for text in texts.values() for names in re.findall(defined, text, re.MULTILINE) for name in names}
    stale = {
        str(path.relative_to(ROOT)): found
        for path, text in texts.items()
        if path.is_relative_to(ROOT / "tests") and (found := stale_doubles(ast.parse(text), known))
    }
    assert stale == {}


@pytest.mark.parametrize(
    "source",
    [
        (
            "from acquit.broker.dispatching.consumers import Consumer\n"
            "class Watched(Consumer):\n    def may_have(self, message):\n        return super().may_have(message)"
        ),
        "def count(): ...\nworld.core.counted_once = count",
        "world.core.counted_once = lambda: None",
    ],
)
def test_a_double_of_nothing_is_named(source: str) -> None:
    assert len(stale_doubles(ast.parse(source), {"counted"})) == 1


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
        ("src/acquit/a.py", '"""Why."""\n\nx = b"\\x00\\x53\\x77"\n', "octets of a section"),
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


# -- the table of a message's life -------------------------------------------------------------------------------------

BROKER = ROOT / "src" / "acquit" / "broker"


def states_set(source: str) -> list[tuple[str, bool]]:
    """Assignments to ``message.state``: what is assigned, and whether the table of `broker.queue` gave it."""
    tree = ast.parse(source)
    given = {
        target.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign | ast.AnnAssign)
        and node.value is not None
        and "step(" in ast.unparse(node.value)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Name)
    }
    rows = {
        target.id
        for node in tree.body
        if isinstance(node, ast.AnnAssign) and isinstance(node.value, ast.Attribute) and node.value.attr == "next"
        if isinstance(node.value.value, ast.Name) and node.value.value.id in given
        for target in [node.target]
        if isinstance(target, ast.Name)
    }
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and any(ast.unparse(target) == "message.state" for target in node.targets):
            value = node.value
            of_row = isinstance(value, ast.Attribute) and value.attr == "next"
            base = value.value if isinstance(value, ast.Attribute) else value
            by_table = ast.unparse(base).startswith("step(") or (
                isinstance(base, ast.Name) and base.id in (given if of_row else given | rows)
            )
            found.append((ast.unparse(value), by_table))
    return found


def test_a_message_changes_its_state_as_the_table_says() -> None:
    changes = {path.name: states_set(path.read_text(encoding="utf-8")) for path in sorted(BROKER.rglob("*.py"))}
    assert sum(map(len, changes.values())) >= 8
    assert {(name, value) for name, found in changes.items() for value, by_table in found if not by_table} == set()


@pytest.mark.parametrize(
    ("source", "by_table"),
    [
        ("message.state = NodeState.ARCHIVED", False),
        ("_GONE = NodeState.ARCHIVED\nmessage.state = _GONE", False),
        ("row = step(message.state, event)\nmessage.state = row.next", True),
        ("_ROW: Final = step(A, B)\n_NEXT: Final = _ROW.next\nmessage.state = _NEXT", True),
        ("_ROW: Final = other(A, B)\n_NEXT: Final = _ROW.next\nmessage.state = _NEXT", False),
        ("message.state = step(A, B).next", True),
    ],
)
def test_a_state_that_the_table_does_not_give_is_named(source: str, by_table: bool) -> None:
    assert [found for _, found in states_set(source)] == [by_table]


# -- the map -----------------------------------------------------------------------------------------------------------

MAP = ROOT / "ARCHITECTURE.md"


def read_map() -> list[list[str]]:
    """The rows of "Where do I change ...", without its head: cells as they stand."""
    lines = MAP.read_text().split("## Where do I change ...\n", 1)[1].split("\n## ", 1)[0].splitlines()
    return [line.strip("|").split("|") for line in lines if line.startswith("| ")][1:]


def test_the_map_names_files_and_tests_that_are_there_and_counts_them() -> None:
    wrong, targets = [], (ROOT / "Makefile").read_text()
    rows = read_map()
    assert len(rows) == 20
    for title, files, checks, count in rows:
        named = re.findall(r"`([^`]+)`", files.replace("(`tests/formats/keep.py` makes it)", ""))
        wrong += [name for name in named if not (any(ROOT.glob(name)) or any((ROOT / "src/acquit").glob(name)))]
        if len(named) != int(count):
            wrong.append(f"{title.strip()}: {len(named)} files, and not {count.strip()}")
        for check in re.findall(r"`([^`]+)`", checks):
            path, _, test = check.partition("::")
            text = (ROOT / path).read_text() if (ROOT / path).is_file() else ""
            if not re.search(rf"^def {test or '.*'}\(", text, re.MULTILINE) and f"\n{check}:" not in targets:
                wrong.append(check)
    assert wrong == []


BROKER_OPTIONS = """
    AddressPolicy BrokerLimits BrokerOptions ConnectionLimits Listen Security Tls TransactionLimits User
""".split()


def attributes_of(path: Path, *, of_self: bool) -> set[str]:
    """The attributes that a module reads: of `self`, but for checks in ``__post_init__``, or of others."""
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            node.body = [part for part in node.body if getattr(part, "name", "") != "__post_init__"]
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
    return {node.attr for node in nodes if (ast.unparse(node.value) == "self") == of_self}


@cache
def read_attributes(parts: str) -> frozenset[str]:
    """The attributes that parts of the product read, of others than `self`."""
    paths = [path for part in parts.split() for path in (ROOT / "src/acquit" / part).rglob("*.py")]
    return frozenset().union(*(attributes_of(path, of_self=False) for path in paths))


@pytest.mark.parametrize(
    ("kind", "parts"),
    [
        *((f"broker.options.{name}", "broker") for name in BROKER_OPTIONS),
        ("broker.options.Http", "broker http"),
        ("store.options.JournalOptions", "broker store"),
        ("client.options.ConnectOptions", "client"),
        ("spark.read_options.ReadOptions", "spark"),
    ],
)
def test_every_option_is_one_that_somebody_reads(kind: str, parts: str) -> None:
    """One that only its class knows can be set, and does nothing."""
    module, _, name = kind.rpartition(".")
    options = getattr(importlib.import_module(f"acquit.{module}"), name)
    own = {Path(str(sys.modules[base.__module__].__file__)) for base in options.__mro__ if base is not object}
    read = read_attributes(parts).union(*(attributes_of(path, of_self=True) for path in own))
    assert {field.name for field in dataclasses.fields(options)} - read == set()


def test_a_third_is_tried_only_of_what_the_native_build_tries_in_full() -> None:
    """Of `share` and `examples` (tests/support/examples.py); else nothing that CI runs would try the rest."""
    tested = re.search(r"^NATIVE_TESTS := ((?:.*\\\n)*.*)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert tested is not None
    folders = tuple(tested[1].replace("\\", "").split())
    sharing = [
        path for path in (ROOT / "tests").rglob("test_*.py") if "\nfrom tests.support.examples" in path.read_text()
    ]
    assert len(sharing) > 30
    for path in sharing:
        name = str(path.relative_to(ROOT))
        assert name.startswith(folders), name
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                text = ast.unparse(node)
                assert "mark.pure" not in text or not re.search(r"\b(share|examples)\(", text), f"{name}: {node.name}"
