"""The native build: what mypyc is given, what a wheel gets, and that what runs as native is."""

from __future__ import annotations

import ast
import importlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tools import native as build

from acquit._version import native

ROOT = Path(__file__).resolve().parents[2]
HOT = build.hot_modules(ROOT / "src" / "acquit")

SOURCE = '''"""A module."""

from __future__ import annotations

from dataclasses import dataclass


class Event:
    """One that others derive from."""

    __slots__ = (
        "a",
        "b",
    )

    def __init__(self) -> None:
        self.a = self.b = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """One with a decorator."""

    a: int
'''
PREPARED = '''"""A module."""

from __future__ import annotations

import typing

if typing.TYPE_CHECKING:  # what it says is read by the compiler: it need not be there when it runs
    from mypy_extensions import mypyc_attr

from dataclasses import dataclass


@mypyc_attr(allow_interpreted_subclasses=True)
class Event:
    """One that others derive from."""

    pass

    def __init__(self) -> None:
        self.a = self.b = 1


@dataclass(frozen=True, kw_only=True)
class Made:
    """One with a decorator."""

    a: int
'''


def test_only_what_lays_out_attributes_is_taken_out() -> None:
    assert build.prepared(SOURCE) == PREPARED


@pytest.mark.parametrize("path", HOT, ids=lambda path: path.stem)
def test_nothing_else_of_a_module_is_changed(path: Path) -> None:
    before, after = ast.parse(path.read_text()), ast.parse(build.prepared(path.read_text()))
    for tree in (before, after):
        Stripped().visit(tree)
    assert ast.dump(before) == ast.dump(after)


class Stripped(ast.NodeTransformer):
    """A tree without what the build takes out and puts in."""

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.ClassDef:
        self.generic_visit(node)
        node.body = [one for one in node.body if not isinstance(one, ast.Pass) and not is_slots(one)]
        node.decorator_list = [one for one in node.decorator_list if "mypyc_attr" not in ast.unparse(one)]
        return node

    def visit_Call(self, node: ast.Call) -> ast.Call:
        self.generic_visit(node)
        node.keywords = [word for word in node.keywords if word.arg != "slots"]
        return node

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.ImportFrom | None:
        return None if node.module == "mypy_extensions" else node

    def visit_If(self, node: ast.If) -> ast.If | None:
        return None if ast.unparse(node.test) == "typing.TYPE_CHECKING" else node

    def visit_Import(self, node: ast.Import) -> ast.Import | None:
        return None if ast.unparse(node) == "import typing" else node


def is_slots(statement: ast.stmt) -> bool:
    return "__slots__" in ast.unparse(statement).partition("=")[0].partition(":")[0]


def test_a_name_that_stands_for_nothing_is_told(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="not there"):
        build.hot_modules(tmp_path)


def test_classes_that_mypyc_is_told_more_of_are_there() -> None:
    names = {
        node.name for path in HOT for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ClassDef)
    }
    assert set(build.TRAITS) <= names


def test_a_wheel_gets_what_was_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def compiled(target: Path) -> list[Path]:
        (target / "acquit").mkdir()
        (target / "acquit" / "one.so").touch()
        return [target / "acquit" / "one.so"]

    monkeypatch.setattr(build, "compile_tree", compiled)
    hook = build.NativeHook(str(tmp_path), {}, None, None, str(tmp_path / "dist"), "wheel")
    data: dict[str, Any] = {"force_include": {}}
    hook.initialize("standard", data)
    ((path, name),) = data.pop("force_include").items()
    assert name == "acquit/one.so" and Path(path).exists()
    assert data == {"pure_python": False, "infer_tag": True}
    hook.finalize("standard", data, str(tmp_path))
    assert not Path(path).exists()


def test_an_editable_install_is_pure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "compile_tree", lambda target: pytest.fail("nothing is to be compiled"))
    hook = build.NativeHook(str(tmp_path), {}, None, None, str(tmp_path / "dist"), "wheel")
    data: dict[str, Any] = {"force_include": {}}
    hook.initialize("editable", data)
    assert data == {"force_include": {}}


def test_what_runs_is_of_one_kind() -> None:
    """Of the modules that are compiled all are, or none is."""
    suffixes = set()
    for path in HOT:
        name = ".".join(path.relative_to(ROOT / "src").with_suffix("").parts)
        suffixes.add(Path(str(importlib.import_module(name).__file__)).suffix)
    assert suffixes == ({".so"} if native() else {".py"})
    assert native() or "ACQUIT_TEST_NATIVE" not in os.environ, "make test-native runs the pure build"


def test_the_command_tells_which_it_is() -> None:
    command = [sys.executable, "-m", "acquit", "--version"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert shown.rstrip().endswith(" (native)") is native()


USES_UP = {"all", "any", "array", "deque", "extend", "frozenset", "fromkeys", "join", "list", "max", "min", "next"}
USES_UP |= {"set", "sorted", "sum", "tuple", "update", "dict"}


def kept_generators(text: str) -> list[str]:
    """The generator expressions that are not used up where they stand."""
    tree = ast.parse(text)
    above = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    kept = []
    for node in ast.walk(tree):
        if isinstance(node, ast.GeneratorExp) and not isinstance(above[node], ast.Starred):
            by = above[node]
            if not isinstance(by, ast.Call) or ast.unparse(by.func).rpartition(".")[2] not in USES_UP:
                kept.append(ast.unparse(node))
    return kept


@pytest.mark.parametrize("path", HOT, ids=str)
def test_no_generator_expression_is_kept(path: Path) -> None:
    """mypyc makes a list of one at once: who looked at the first of a million parked messages made objects of all."""
    assert kept_generators(path.read_text()) == []


def test_a_generator_expression_that_is_kept_is_found() -> None:
    kept = "f(one for one in x)", "y = (one for one in x)", "islice((one for one in x), 3)"
    assert [kept_generators(text) for text in kept] == [["(one for one in x)"]] * 3
    assert kept_generators("any(one for one in x) or next((one for one in x), None)") == []
