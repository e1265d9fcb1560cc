"""Hold private attributes to their owners: what uses one of another object, from another module.

``x._name`` is such a use where `x` is neither ``self`` nor ``cls`` and no class of the module has a `_name`. `STANDING`
is how many each part has: what stands may be removed, and nothing be added.

    python tools/check_private.py            prints what differs from that, and exits 1
    python tools/check_private.py --list     prints all that stand
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT = Path(__file__).resolve().parent.parent

STANDING: Final[dict[str, int]] = {"client": 6, "protocol": 0}
"""Part of ``src/acquit``: how many uses stand there. Lower it with what is removed."""


def is_private(name: str) -> bool:
    """Whether a name is its owner's alone."""
    return name.startswith("_") and not name.startswith("__")


def own_names(tree: ast.Module) -> set[str]:
    """The private names that the module's own classes have: methods, class attributes, slots, and what they assign."""
    names: set[str] = set()
    for owner in ast.walk(tree):
        if not isinstance(owner, ast.ClassDef):
            continue
        for node in ast.walk(owner):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                names.add(node.name)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                names.add(node.value)  # a slot
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                names.add(node.id)
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and is_own(node.value):
                names.add(node.attr)
    return {name for name in names if is_private(name)}


def is_own(node: ast.expr) -> bool:
    """Whether an expression is the object whose method this is, or its class or base."""
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name) and node.func.id == "super"
    return isinstance(node, ast.Name) and node.id in ("self", "cls")


def uses(source: str) -> Iterator[tuple[int, str]]:
    """Where `source` uses a private attribute of another module's object: lines, and what they say."""
    tree = ast.parse(source)
    own = own_names(tree)
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Attribute)
            and is_private(node.attr)
            and not is_own(node.value)
            and node.attr not in own
        ):
            yield node.lineno, ast.unparse(node)


def check(source_root: Path) -> list[str]:
    """One line for each part that has more or fewer uses than `STANDING` says, with the uses where it has more."""
    found = []
    for part, standing in STANDING.items():
        there = list_uses(source_root, part)
        if len(there) > standing:
            found += [f"{part}: {len(there)} uses of private attributes, more than {standing}", *there]
        elif len(there) < standing:
            found.append(f"{part}: {len(there)} uses of private attributes are left: lower STANDING from {standing}")
    return found


def list_uses(source_root: Path, part: str) -> list[str]:
    """One line for each use in a part."""
    return [
        f"{path.relative_to(source_root.parent)}:{line}: {what}"
        for path in sorted((source_root / "acquit" / part).rglob("*.py"))
        for line, what in uses(path.read_text(encoding="utf-8"))
    ]


def main() -> int:
    """Print what differs, or all; exit code 1 if anything differs."""
    if "--list" in sys.argv[1:]:
        print(*(use for part in STANDING for use in list_uses(ROOT / "src", part)), sep="\n")
        return 0
    found = check(ROOT / "src")
    for line in found:
        print(line)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
