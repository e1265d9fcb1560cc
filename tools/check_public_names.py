"""What users may rely on: the names the public modules export, each documented and fully typed.

``tools/public_names.txt`` lists them. A name that appears or disappears without its line there is an error, so that the
public surface never changes by accident; the diff of that file is what a reviewer reads. Every public function, class
and public method needs a docstring and annotations without a bare ``Any``.

Three kinds of things are watched:

- modules whose ``__all__`` is public as a whole (`PUBLIC_MODULES`). They are imported;
- modules of which the pages tell some names (`TOLD`), mostly Spark's. PySpark and all that comes with it take longer to
  import than everything else here takes together, so their sources are read, and followed to where a name is defined.
  What is used by keyword is watched, too: parameters, and the fields of classes;
- what is named in text, where no import can fail: options and columns of the data sources (`SPARK_TABLES`).

What a page or an example imports has to be among these.

    python tools/check_public_names.py            prints each difference and exits 1
    python tools/check_public_names.py --write    takes the present names as the public ones
"""

from __future__ import annotations

import argparse
import ast
import importlib
import importlib.util
import inspect
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import TypeAlias

ROOT = Path(__file__).resolve().parent.parent
LIST = ROOT / "tools" / "public_names.txt"
SOURCES = ROOT / "src"

PUBLIC_MODULES = (
    "acquit",
    "acquit.aio",
    "acquit.compat.qpid",
    "acquit.compat.qpid.messaging",
    "acquit.errors",
    "acquit.spark",
    "acquit.testing",
    "acquit.types",
)
"""Modules that users import from. One that does not exist yet has no names."""

TOLD = {
    "acquit.broker.configuration": "parse_options",
    "acquit.ledger.history": "History Life Step history",
    "acquit.protocol.constants": "ACCEPTED",
    "acquit.telemetry": "OpenTelemetry",
    "acquit.spark.audit": "AuditOptions AuditProgress AuditSummary audit",
    "acquit.spark.audit.quick": "SealBalance SealedQueue balance_by_seals",
    "acquit.spark.audit.reconcile": "ReconcileOptions reconcile",
    "acquit.spark.audit.reconciled": "Against Example Finding Reconciliation",
    "acquit.spark.audit.results": "AuditResults",
    "acquit.spark.compact": "CompactOptions CompactSummary compact",
    "acquit.spark.ingest": "IngestOptions IngestProgress IngestSummary TableFormat ingest",
    "acquit.spark.ledger.source": "LedgerDataSource",
    "acquit.spark.metrics": "SourceMetrics metrics_of",
    "acquit.spark.redrive": "Letter LetterGroup RedriveOptions RedriveProgress RedriveSummary redrive",
    "acquit.spark.report": "report",
    "acquit.spark.session": "start_session",
    "acquit.spark.source": "AcquitDataSource",
    "acquit.spark.spool": "Spool.status SpoolStatus open_store",
    "acquit.spark.tables": "TableFile TableFiles TableKind table_files",
    "acquit.spark.worker_python": "worker_python",
    "pyspark_acquit": "DefaultSource",
    "pyspark_acquit_ledger": "DefaultSource",
}
"""Of these modules only these names. ``Class.method``: of the class only that."""

SPARK_TABLES = {
    "readStream.format(acquit).option": ("acquit.spark.source_options", "OPTIONS"),
    "read.format(acquit).option": ("acquit.spark.browse_options", "OPTIONS"),
    "read.format(acquit).column": ("acquit.spark.columns", "FIELDS"),
    "write.format(acquit).option": ("acquit.spark.sink.options", "OPTIONS"),
    "write.format(acquit).column": ("acquit.spark.sink.rows", "COLUMNS"),
    "read.format(acquit.ledger).option": ("acquit.spark.ledger.options", "OPTIONS"),
    "read.format(acquit.ledger).events": ("acquit.spark.ledger.columns", "EVENT_FIELDS"),
    "read.format(acquit.ledger).details": ("acquit.spark.ledger.columns", "DETAIL_FIELDS"),
    "read.format(acquit.ledger).segments": ("acquit.spark.ledger.columns", "SEGMENT_FIELDS"),
}
"""Where the rows of a table have a `name` that users write into text. None of these modules needs PySpark."""

ANY = re.compile(r"\bAny\b")
IMPORT = re.compile(r"^ *from ((?:acquit|pyspark_acquit)[\w.]*) import (\([^)]*\)|[^\n(]*)", re.MULTILINE)

Definition: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Assign | ast.AnnAssign
Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
DEFINITIONS = (*FUNCTIONS, ast.ClassDef, ast.Assign, ast.AnnAssign)


def public_modules() -> Iterator[ModuleType]:
    for name in PUBLIC_MODULES:
        if importlib.util.find_spec(name) is not None:
            yield importlib.import_module(name)


def exported(module: ModuleType) -> list[str]:
    """The module's `__all__`; for the exception tree, which has none, its classes."""
    names = getattr(module, "__all__", None)
    if names is None:
        names = [name for name, value in vars(module).items() if inspect.isclass(value) and not name.startswith("_")]
        names = [name for name in names if getattr(module, name).__module__ == module.__name__]
    return list(names)


def members(name: str, value: object) -> Iterator[tuple[str, object]]:
    """`value` itself and, of a class, the public methods and properties it defines."""
    yield name, value
    if not inspect.isclass(value):
        return
    for attribute, member in vars(value).items():
        if attribute.startswith("_") and attribute != "__init__":
            continue
        if isinstance(member, property):
            yield f"{name}.{attribute}", member.fget
        elif isinstance(member, classmethod | staticmethod):
            yield f"{name}.{attribute}", member.__func__
        elif inspect.isfunction(member):
            yield f"{name}.{attribute}", member


def complaints(name: str, value: object) -> Iterator[str]:
    """What `value`, exported as `name`, lacks."""
    if not (inspect.isfunction(value) or inspect.isclass(value)):
        return
    constructor = name.endswith(".__init__")
    if not constructor and not inspect.getdoc(value):
        yield f"{name}: no docstring"
    if inspect.isfunction(value):
        if value.__module__.partition(".")[0] != "acquit" or value.__qualname__.startswith("__create_fn__"):
            return
        signature = inspect.signature(value)
        for parameter in list(signature.parameters.values()):
            if parameter.name in ("self", "cls"):
                continue
            if parameter.annotation is parameter.empty:
                yield f"{name}: parameter {parameter.name} has no type"
            elif ANY.search(str(parameter.annotation)):
                yield f"{name}: parameter {parameter.name} is Any"
        if not constructor and signature.return_annotation is signature.empty:
            yield f"{name}: no return type"
        elif ANY.search(str(signature.return_annotation)):
            yield f"{name}: returns Any"


# Modules that are read and not imported.


@cache
def statements(module: str) -> tuple[ast.stmt, ...]:
    """What the module's source consists of, also within ``with``; nothing where it is not one of ours."""
    path = SOURCES.joinpath(*module.split("."))
    found = next((file for file in (path.with_suffix(".py"), path / "__init__.py") if file.exists()), None)
    body = [] if found is None else ast.parse(found.read_text(encoding="utf-8")).body
    return tuple(inner for node in body for inner in (node.body if isinstance(node, ast.With) else [node]))


def definition(module: str, name: str) -> tuple[str, Definition] | None:
    """The module that defines what `module` calls `name`, and the definition; None where there is none of ours."""
    for node in statements(module):
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                if name == (alias.asname or alias.name):
                    return definition(node.module, alias.name)
        elif isinstance(node, DEFINITIONS) and name in names_of(node):
            return module, node
    return None


def names_of(node: Definition) -> list[str]:
    """What a statement defines."""
    if isinstance(node, (*FUNCTIONS, ast.ClassDef)):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return [target.id for target in targets if isinstance(target, ast.Name)]


def parameters(node: Function) -> list[ast.arg]:
    of = node.args
    return [
        one
        for one in (*of.posonlyargs, *of.args, of.vararg, *of.kwonlyargs, of.kwarg)
        if one is not None and one.arg not in ("self", "cls")
    ]


def told(name: str, module: str, node: Definition) -> Iterator[tuple[str, Definition]]:
    """`name` itself; of a class its public fields and methods, those of our bases as well.

    The methods of a data source are there because PySpark calls them: they are its own to name.
    """
    if isinstance(node, FUNCTIONS):
        yield f"{name}({','.join(one.arg for one in parameters(node))})", node
        return
    yield name, node
    bases = [base.id for base in node.bases if isinstance(base, ast.Name)] if isinstance(node, ast.ClassDef) else []
    if not isinstance(node, ast.ClassDef) or "DataSource" in bases:
        return
    for base in bases:
        if (found := definition(module, base)) is not None:
            yield from (line for line in told(name, *found) if line[0] != name)
    for member in node.body:
        if isinstance(member, DEFINITIONS):
            for attribute in names_of(member):
                if not attribute.startswith("_") or attribute == "__init__":
                    yield from told(f"{name}.{attribute}", module, member)


def told_names() -> Iterator[tuple[str, Definition | None]]:
    """All of `TOLD`, with their definitions; None for what is not there."""
    for module, names in TOLD.items():
        for name in names.split():
            of, _, only = name.partition(".")
            found = definition(module, of)
            if found is None:
                yield f"{module}.{name}", None
                continue
            lines = list(told(f"{module}.{of}", *found))
            if only:
                lines = [line for line in lines if line[0].partition("(")[0] == f"{module}.{name}"]
            yield from lines


def told_complaints(name: str, node: Definition | None) -> Iterator[str]:
    """As `complaints`."""
    if node is None:
        yield f"{name}: not defined where tools/check_public_names.py has it"
    if not isinstance(node, (*FUNCTIONS, ast.ClassDef)):
        return
    constructor = node.name == "__init__"
    if not constructor and ast.get_docstring(node) is None:
        yield f"{name}: no docstring"
    if isinstance(node, FUNCTIONS):
        annotations = [(f"parameter {one.arg}", one.annotation) for one in parameters(node)]
        if not constructor:
            annotations.append(("what it returns", node.returns))
        for what, annotation in annotations:
            if annotation is None:
                yield f"{name}: {what} has no type"
            elif ANY.search(ast.unparse(annotation)):
                yield f"{name}: {what} is Any"


def spark_names() -> Iterator[str]:
    """Each option and column, in the form ``read.format(acquit).option(parts)``."""
    for form, (module, table) in SPARK_TABLES.items():
        yield from (f"{form}({row.name})" for row in getattr(importlib.import_module(module), table))


def shown_imports() -> Iterator[tuple[Path, str]]:
    """What pages and examples import of ours, and where."""
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "examples").glob("*.py"))):
        for module, names in IMPORT.findall(path.read_text(encoding="utf-8")):
            yield from ((path, f"{module}.{name.split()[0]}") for name in names.strip("()").split(",") if name.strip())


def public_names() -> list[str]:
    """Every public name, dotted, sorted."""
    names = {f"{module.__name__}.{name}" for module in public_modules() for name in exported(module)}
    return sorted(names | {name for name, node in told_names() if node is not None} | set(spark_names()))


def check() -> list[str]:
    """One line for each difference from the list, and for each public thing without documentation or types."""
    listed = LIST.read_text(encoding="utf-8").split() if LIST.exists() else []
    names = public_names()
    found = [f"{name}: exported, but not in tools/public_names.txt" for name in names if name not in listed]
    found += [f"{name}: in tools/public_names.txt, but not exported" for name in listed if name not in names]
    seen: set[int] = set()
    for module in public_modules():
        for name in exported(module):
            if not hasattr(module, name):
                found.append(f"{module.__name__}.{name}: in __all__, but missing")
                continue
            value = getattr(module, name)
            if id(value) in seen:
                continue
            seen.add(id(value))
            for member, thing in members(f"{module.__name__}.{name}", value):
                found.extend(complaints(member, thing))
    for name, node in told_names():
        found.extend(told_complaints(name, node))
    watched = {name.partition("(")[0] for name in names} | set(PUBLIC_MODULES)
    for path, name in shown_imports():
        # Everything of the API that programs of another client import with a star is in that module's __all__.
        if name not in watched and not name.endswith(".*"):
            found.append(f"{path.relative_to(ROOT)}: imports {name}, which tools/check_public_names.py does not watch")
    return found


def main() -> int:
    """Compare or write; exit code 1 on a difference."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="take the present names as the public ones")
    if parser.parse_args().write:
        LIST.write_text("".join(f"{name}\n" for name in public_names()), encoding="utf-8")
    found = check()
    for line in found:
        print(line)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
