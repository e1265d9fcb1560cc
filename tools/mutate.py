"""Plant mistakes in modules, one at a time, and say which of them no test notices.

    python tools/mutate.py acquit.broker.transact --sample 20 --seed 7

A mistake is a small change of one place of the source: another comparison, a condition turned round, a statement left
out. Each is tried on the tests of its module (`tests_of`), in a process in which the import of that module gives the
changed source; no file of the tree is touched. It is *killed* if a test fails, or the tests take five times as long as
without it; otherwise it has *survived*, and is printed. A survivor is a test that is missing, a line that is not
needed, or a change that means the same: somebody has to look.

A sample is drawn from each module by its name and the seed, so that the same command tries the same mistakes.
"""

from __future__ import annotations

import argparse
import ast
import importlib.abc
import importlib.machinery
import importlib.util
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ROOT / "src"
TESTS = ("tests/unit", "tests/properties", "tests/scenarios")
"""Where tests are looked for: those that need no other process."""
WHOLE = {
    "acquit.broker": ("tests/unit/broker/test_core.py", "tests/scenarios"),
    "acquit.client": ("tests/properties/test_client_core.py", "tests/properties/test_client_transactions.py"),
    "acquit.ledger": ("tests/properties/test_ledger_fold.py", "tests/unit/broker/test_core.py"),
    "acquit.protocol": ("tests/properties/test_engine.py", "tests/properties/test_engine_endings.py"),
    "acquit.spark.spool": ("tests/properties/test_spool_model.py",),
    "acquit.store": ("tests/properties/test_journal_format.py", "tests/properties/test_journal_power_loss.py"),
}
"""Tests of many modules together, by package."""
SLOWER = 5
"""How many times as long as without a mistake its tests may take."""
TIMEOUT_S_MIN = 20.0

COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.FloorDiv: ast.Mult,
    ast.Div: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
}


@dataclass(frozen=True)
class Mistake:
    """A change of a source: what is between two offsets (of octets) becomes `text`."""

    line: int
    start: int
    end: int
    text: str

    def plant(self, source: bytes) -> bytes:
        """The source with the mistake in it."""
        return source[: self.start] + self.text.encode() + source[self.end :]

    def describe(self, source: bytes) -> str:
        """What was, and what is there now."""
        return f"{_short(source[self.start : self.end].decode())}  ->  {_short(self.text)}"


def mistakes(source: bytes) -> list[Mistake]:
    """All that can be planted in a source, in its order."""
    lines = [0]
    for line in source.splitlines(keepends=True):
        lines.append(lines[-1] + len(line))
    found: list[Mistake] = []

    def add(node: ast.expr | ast.stmt, instead: ast.expr | str) -> None:
        text = instead if isinstance(instead, str) else f"({ast.unparse(instead)})"
        assert node.end_lineno is not None and node.end_col_offset is not None
        start, end = lines[node.lineno - 1] + node.col_offset, lines[node.end_lineno - 1] + node.end_col_offset
        found.append(Mistake(node.lineno, start, end, text))

    for node in _nodes(ast.parse(source)):
        match node:
            case ast.Compare(left=left, ops=[op], comparators=rights) if type(op) in COMPARISONS:
                add(node, ast.Compare(left, [COMPARISONS[type(op)]()], rights))
            case ast.BoolOp(op=op, values=values):
                add(node, ast.BoolOp(ast.Or() if isinstance(op, ast.And) else ast.And(), values))
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                add(node, operand)
            case ast.BinOp(left=left, op=operator, right=right) if type(operator) in OPERATORS:
                add(node, ast.BinOp(left, OPERATORS[type(operator)](), right))
            case ast.Constant(value=bool(value)):
                add(node, str(not value))
            case ast.Constant(value=int(value)):
                add(node, str(value + 1))
            case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test):
                if not isinstance(test, ast.Compare | ast.UnaryOp | ast.Constant):
                    add(test, ast.UnaryOp(ast.Not(), test))
            case ast.Return(value=ast.expr() as value) if not isinstance(value, ast.Constant):
                add(node, "return None")
            case ast.Expr(value=ast.Call()) | ast.AugAssign() | ast.Raise() | ast.Delete():
                add(node, "pass")
            case ast.Assign(targets=[ast.Attribute() | ast.Subscript(), *_]):
                add(node, "pass")
            case ast.Break():
                add(node, "continue")
            case ast.Continue():
                add(node, "break")
            case _:
                pass
    return found


def _nodes(tree: ast.Module) -> Iterator[ast.AST]:
    """What runs: no annotations, docstrings, assertions, log lines, texts with gaps, and nothing that is for types."""

    def walk(node: ast.AST) -> Iterator[ast.AST]:
        yield node
        for name, value in ast.iter_fields(node):
            if name in ("annotation", "returns", "decorator_list", "bases", "keywords") and not isinstance(
                node, ast.Call
            ):
                continue
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST) and not _passed_over(child):
                    yield from walk(child)

    yield from walk(tree)


def _passed_over(node: ast.AST) -> bool:
    match node:
        case ast.JoinedStr() | ast.Assert() | ast.Import() | ast.ImportFrom():
            return True
        case ast.If(test=ast.Name(id="TYPE_CHECKING")):
            return True
        case ast.Assign(targets=[ast.Name(id="__all__" | "__slots__")]):
            return True
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id="logger" | "log")))):
            return True
        case _:
            return False


def _short(text: str) -> str:
    return " ".join(text.split())[:80]


# -- modules and their tests ------------------------------------------------------------------------------------------


def modules_of(names: Sequence[str]) -> dict[str, Path]:
    """The modules that `names` (dotted, of modules or packages) stand for, without those that only import."""
    found = {}
    for path in sorted(SOURCES.rglob("*.py")):
        parts = path.relative_to(SOURCES).with_suffix("").parts
        module = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        if any(f"{module}.".startswith(f"{name}.") for name in names) and mistakes(path.read_bytes()):
            found[module] = path
    return found


def tests_of(module: str) -> list[list[str]]:
    """The tests of a module, in the order in which they are tried: those that mirror it, those beside them and those
    that import it, those of the whole that it is a part of."""
    head, _, name = module.rpartition(".")
    folder = Path("tests/unit", *head.split(".")[1:])
    mirror = [str(path) for path in [folder / f"test_{name}.py"] if (ROOT / path).exists()]
    importing = [
        str(path.relative_to(ROOT))
        for part in TESTS
        for path in sorted((ROOT / part).rglob("test_*.py"))
        if f"from {module} import" in (text := path.read_text())
        or f"from {head} import {name}" in text
        or path.parent == ROOT / folder
    ]
    others = [path for path in importing if path not in mirror]
    whole = [path for package, paths in WHOLE.items() if module.startswith(f"{package}.") for path in paths]
    return [tests for tests in (mirror, others, [path for path in whole if path not in others]) if tests]


# -- a run ------------------------------------------------------------------------------------------------------------


class PlantedSource(importlib.abc.MetaPathFinder):
    """Gives one module another source."""

    def __init__(self, module: str, source: Path) -> None:
        self._module, self._source = module, source

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """The changed source for its module, nothing for any other."""
        if fullname != self._module:
            return None
        return importlib.util.spec_from_file_location(fullname, self._source)


def run_child(module: str, source: str, arguments: list[str]) -> int:
    """pytest, in a process in which `module` has this source."""
    import pytest

    sys.dont_write_bytecode = True
    sys.meta_path.insert(0, PlantedSource(module, Path(source)))
    # pytest rewrites the assertions of packages that have plugins, ours among them, and would find the module itself.
    return int(pytest.main(["-q", "-x", "--assert=plain", "-p", "no:cacheprovider", "-p", "no:xdist", *arguments]))


def passes(module: str, source: bytes, tests: list[str], timeout_s: float | None) -> bool:
    """Whether the tests pass with this source of the module, in time."""
    with tempfile.TemporaryDirectory(prefix="acquit-mutate-") as folder:
        path = Path(folder, f"{module.rpartition('.')[2]}.py")
        path.write_bytes(source)
        command = [sys.executable, str(Path(__file__)), "--child", module, str(path), *tests]
        try:
            done = subprocess.run(
                command,
                check=False,
                cwd=ROOT,
                env={**os.environ, "TMPDIR": folder, "ACQUIT_TEST_SEED": "1"},
                capture_output=True,
                timeout=timeout_s,
            )
        except subprocess.TimeoutExpired:
            return False
        return done.returncode == 0


def try_module(module: str, path: Path, sample: int, seed: int, *, own: bool) -> tuple[int, list[str]]:
    """Plant some of the mistakes of a module: how many, and those that survived. `own`: its nearest tests."""
    source = path.read_bytes()
    drawn = random.Random(f"{module} {seed}").sample(all_ := mistakes(source), min(sample, len(all_)))
    stages: list[tuple[list[str], float]] = []
    for tests in tests_of(module)[: 1 if own else None]:
        began = time.monotonic()
        if not passes(module, source, tests, None):
            raise SystemExit(f"{module}: its tests fail without a mistake: {' '.join(tests)}")
        stages.append((tests, max(TIMEOUT_S_MIN, SLOWER * (time.monotonic() - began))))
    survived = []
    for mistake in sorted(drawn, key=lambda one: one.start):
        changed = mistake.plant(source)
        if all(passes(module, changed, tests, timeout_s) for tests, timeout_s in stages):
            survived.append(f"{path.relative_to(ROOT)}:{mistake.line}: {mistake.describe(source)}")
            print(survived[-1], flush=True)
    return len(drawn), survived


def main() -> int:
    """Try what the command line asks for, and print what survived."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("modules", nargs="+", metavar="MODULE", help="dotted names of modules or packages")
    parser.add_argument("--sample", type=int, default=10, help="mistakes for each module (10)")
    parser.add_argument("--seed", type=int, default=1, help="which ones (1)")
    parser.add_argument("--own", action="store_true", help="only the nearest tests of each module: faster, and harsher")
    options = parser.parse_args()
    modules = modules_of(options.modules)
    if not modules:
        parser.error(f"no module is called {' or '.join(options.modules)}")
    os.nice(10)
    planted = alive = 0
    for module, path in modules.items():
        count, survived = try_module(module, path, options.sample, options.seed, own=options.own)
        planted += count
        alive += len(survived)
        print(f"{module}: {count} planted, {len(survived)} survived", flush=True)
    print(f"{planted} planted, {alive} survived (seed {options.seed})")
    return 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        sys.exit(run_child(sys.argv[2], sys.argv[3], sys.argv[4:]))
    sys.exit(main())
