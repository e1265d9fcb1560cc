"""The pins of the environment: which version of which package, with the hashes of all its files.

`constraints.txt` is resolved by uv for all platforms and every Python from `requires-python` on, and written here. Each
entry says for which sets it is there: `base` is what acquit itself needs, `build` what it and packages without wheels
are built with, the others are the extras of pyproject.toml. `tools/environment.sh` installs what `--select` prints, and
nothing else, so that every file that is installed or run meanwhile has one of the hashes::

    python tools/pins.py                       resolve again; what is pinned keeps its version where it can
    python tools/pins.py --upgrade             resolve again with the newest of everything
    python tools/pins.py --select dev spark    print the pins of base, build and these extras, for pip
    python tools/pins.py --select spark --from-source     those of them that have no wheels: pip builds them

Only `--select` runs before anything is installed: it needs no more than Python itself.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

ROOT = Path(__file__).resolve().parent.parent
PINS = ROOT / "constraints.txt"

BASE: Final = "base"
BUILD: Final = "build"
ALWAYS: Final = frozenset((BASE, BUILD))
"""The sets that every environment has."""

BUILDS_OTHERS: Final = ("setuptools>=77",)
"""What packages without wheels are built with: pyspark, python-qpid-proton, sslyze. Which it is stands in no file that
can be read before they are fetched. From 70.1 on it makes wheels by itself."""

HEAD: Final = """\
# The versions `make` installs: those the last full run passed with, so that a new release elsewhere never turns a
# green tree red overnight; with the hashes of their files, so that nothing else can take their place. They bind this
# repository's own environment only; users get the ranges in pyproject.toml. Written by `make pins`.
"""
FOR: Final = "    # for "
SOURCE: Final = "; built from source"
HASH: Final = "    --hash=sha256:"


@dataclass(frozen=True, order=True, slots=True)
class Pin:
    """One version of a package, for the environments that its marker names (all, without one)."""

    name: str
    version: str
    marker: str
    hashes: tuple[str, ...]
    """SHA-256 of each of its files, in hexadecimal."""
    sets: frozenset[str] = frozenset()
    wheels: bool = True
    """Whether there are any for Linux. What has none is fetched as source, and built where no wheel suits."""

    @property
    def requirement(self) -> str:
        """As pip reads it, in one line for each hash."""
        first = f"{self.name}=={self.version}" + (f" ; {self.marker}" if self.marker else "")
        return " \\\n".join((first, *(f"{HASH}{one}" for one in self.hashes)))

    @property
    def entry(self) -> str:
        """As it stands in the file."""
        return f"{self.requirement}\n{FOR}{', '.join(sorted(self.sets))}{'' if self.wheels else SOURCE}\n"


def read_project() -> dict[str, Any]:
    """The tables of pyproject.toml."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def parse(text: str) -> list[Pin]:
    """Read the file. Raises ValueError for a line that is of no entry."""
    pins: list[Pin] = []
    name = version = marker = ""
    hashes: list[str] = []
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith(HASH):
            hashes.append(line.removeprefix(HASH).removesuffix(" \\"))
        elif line.startswith(FOR):
            sets, source, _ = line.removeprefix(FOR).partition(SOURCE)
            pins.append(Pin(name, version, marker, tuple(hashes), frozenset(sets.split(", ")), not source))
            hashes = []
        elif "==" in line and line[0] != "#":
            wanted, _, marker = line.removesuffix(" \\").partition(" ; ")
            name, _, version = wanted.partition("==")
        elif line and line[0] != "#":
            raise ValueError(f"{PINS.name}:{number}: {line}")
    return pins


def select(pins: Iterable[Pin], extras: Iterable[str], *, wheels: bool = True) -> list[Pin]:
    """Return the pins that an environment with these extras has: those with wheels, or those without."""
    wanted = ALWAYS.union(extras)
    return [pin for pin in pins if pin.wheels is wheels and pin.sets & wanted]


def resolve(upgrade: bool) -> list[Pin]:
    """Have uv resolve all sets together, then each within the versions of all. Raises CalledProcessError, after uv has
    said why, where there is no solution."""
    project = read_project()
    extras = list(project["project"]["optional-dependencies"])
    with tempfile.TemporaryDirectory() as folder:
        build = Path(folder) / "build.in"
        build.write_text("\n".join((*project["build-system"]["requires"], *BUILDS_OTHERS)))
        kept = Path(folder) / "kept.txt"
        kept.write_text("" if upgrade else PINS.read_text())
        pins = _compile("pyproject.toml", "--all-extras", str(build), "--constraint", str(kept))
        kept.write_text("".join(f"{pin.requirement}\n" for pin in pins))
        within = ("--constraint", str(kept))
        named = {BASE: ["pyproject.toml"], BUILD: [str(build)]}
        named |= {extra: ["pyproject.toml", "--extra", extra] for extra in extras}
        members = {name: {pin.name for pin in _compile(*wanted, *within)} for name, wanted in named.items()}
    for extra in extras:
        members[extra] -= members[BASE]
    return [
        Pin(pin.name, pin.version, pin.marker, pin.hashes, frozenset(sets), pin.wheels)
        for pin in pins
        if (sets := [name for name, names in members.items() if pin.name in names])
    ]


def _compile(*wanted: str) -> list[Pin]:
    command = [sys.executable, "-m", "uv", "pip", "compile", "--quiet", "--universal", "--python-version", "3.11"]
    with tempfile.TemporaryDirectory() as folder:
        lock = Path(folder) / "pylock.toml"
        command += ["--format", "pylock.toml", "--output-file", str(lock)]
        subprocess.run([*command, *wanted], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
        packages = tomllib.loads(lock.read_text())["packages"]
    found = []
    for package in packages:
        files = [*package.get("wheels", []), *([package["sdist"]] if "sdist" in package else [])]
        hashes = tuple(sorted(file["hashes"]["sha256"] for file in files))
        wheels = any(re.search(r"-any\.whl|manylinux", file["url"]) for file in files)
        found.append(Pin(package["name"], package["version"], package.get("marker", ""), hashes, wheels=wheels))
    return sorted(found)


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--upgrade", action="store_true")
    parser.add_argument("--select", nargs="*", metavar="EXTRA")
    parser.add_argument("--from-source", action="store_true")
    arguments = parser.parse_args()
    if arguments.select is None:
        try:
            pins = resolve(arguments.upgrade)
        except subprocess.CalledProcessError as error:
            return int(error.returncode)
        PINS.write_text(HEAD + "".join(pin.entry for pin in pins))
    else:
        chosen = select(parse(PINS.read_text()), arguments.select, wheels=not arguments.from_source)
        print("".join(f"{pin.requirement}\n" for pin in chosen), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
