"""What users may rely on: the names the public modules export, each documented and fully typed.

``tools/public_names.txt`` lists them. A name that appears or disappears without its line there is an error, so that the
public surface never changes by accident; the diff of that file is what a reviewer reads. Every public function, class
and public method needs a docstring and annotations without a bare ``Any``.

    python tools/check_public_names.py            prints each difference and exits 1
    python tools/check_public_names.py --write    takes the present names as the public ones
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parent.parent
LIST = ROOT / "tools" / "public_names.txt"

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

ANY = re.compile(r"\bAny\b")


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


def public_names() -> list[str]:
    """Every public name, dotted, sorted."""
    return sorted(f"{module.__name__}.{name}" for module in public_modules() for name in exported(module))


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
