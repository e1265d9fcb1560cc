"""Draw the layers inside each large package into ARCHITECTURE.md, from the imports, so that the picture cannot lie.

python tools/generate_layers.py [--check]

A module stands one layer above the highest of those that it imports, imports for types alone included; so it can be
read after what is below it. Where modules import one another in a circle they share a layer. The pictures stand between
lines ``<!-- layers of PACKAGE -->`` and ``<!-- end of layers -->``; a package without such lines is not drawn. With
--check nothing is written, and the exit code is 1 when a picture is not what the imports give.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from textwrap import fill
from typing import Final

from check_imports import circles, graph, read, within

ROOT: Final = Path(__file__).resolve().parent.parent
PAGE: Final = ROOT / "ARCHITECTURE.md"
PICTURE: Final = re.compile(r"(<!-- layers of ([\w.]+) -->\n).*?(<!-- end of layers -->)", re.DOTALL)
WIDTH: Final = 118


def layers(imports: Mapping[str, set[str]], package: str) -> list[list[str]]:
    """Return the modules of `package`, without its name, by layer, the lowest first."""
    own = {module: {*targets} for module, targets in imports.items() if within(module, package) and module != package}
    together = {module: frozenset(circle) for circle in circles(imports) for module in circle}
    heights: dict[frozenset[str], int] = {}

    def height(circle: frozenset[str]) -> int:
        if circle not in heights:
            below = {target for module in circle for target in own[module]} & own.keys() - circle
            heights[circle] = max((height(group(module)) + 1 for module in below), default=0)
        return heights[circle]

    def group(module: str) -> frozenset[str]:
        return together.get(module, frozenset({module})).intersection(own)

    found: dict[int, list[str]] = defaultdict(list)
    for module in sorted(own):
        found[height(group(module))].append(module.removeprefix(f"{package}."))
    return [found[at] for at in sorted(found)]


def lines(modules: list[list[str]]) -> Iterator[str]:
    """Yield the lines of a picture, the highest layer first; modules of one package below stand together."""
    for at, names in reversed(list(enumerate(modules))):
        packages: dict[str, list[str]] = defaultdict(list)
        for name in names:
            package, _, module = name.rpartition(".")
            packages[package].append(module)
        texts = packages.pop("", []) + [
            f"{package}.{modules[0]}" if len(modules) == 1 else f"{package}.{{{', '.join(modules)}}}"
            for package, modules in packages.items()
        ]
        yield fill(
            "  ".join(texts), WIDTH, initial_indent=f"{at:2}  ", subsequent_indent="    ", break_on_hyphens=False
        )


def drawn(page: str, imports: Mapping[str, set[str]]) -> str:
    """Return the page with its pictures as the imports give them."""

    def picture(found: re.Match[str]) -> str:
        text = "\n".join(lines(layers(imports, f"acquit.{found[2]}")))
        if not text:
            raise SystemExit(f"{PAGE.name}: layers of {found[2]}: there is no such package in acquit")
        return f"{found[1]}```text\n{text}\n```\n{found[3]}"

    return PICTURE.sub(picture, page)


def main() -> int:
    """Write the page, or with --check compare it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if the page would change")
    check = parser.parse_args().check
    page = PAGE.read_text(encoding="utf-8")
    fresh = drawn(page, graph(*read(ROOT / "src")))
    if not check:
        PAGE.write_text(fresh, encoding="utf-8")
    elif fresh != page:
        print(f"{PAGE.name}: its layers are not those of the imports; `make generate` draws them again")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
