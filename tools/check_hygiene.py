"""The repository's own hygiene: what no file of it may contain, and what every file of it must have.

Looks at the files git tracks, and at those it would track (so that a fault shows before the commit). Each rule is a
function of one file's path and text that yields ``(line, complaint)``; ``RULES`` says which files it reads.

    python tools/check_hygiene.py        prints each fault and exits 1
"""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from fnmatch import fnmatch
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

FILE_BYTES_MAX = 1_000_000
"""Larger things are generated, or belong elsewhere."""

MODULE_LINES_MAX = 800
"""Beyond this a module has outgrown its readers. Generated modules are exempt."""

AS_PUBLISHED = ("spec/*", "LICENSE", "tests/fuzz/corpus/*")
"""Files kept byte for byte as they came."""

# Hosts of package registries: what is installed comes from wherever the user's own tools are pointed at.
# Split in two, so that this file passes its own rule.
REGISTRY_HOSTS = tuple(
    f"{name}.{zone}"
    for name, zone in [
        ("pypi", "org"),
        ("pythonhosted", "org"),
        ("npmjs", "org"),
        ("npmjs", "com"),
        ("yarnpkg", "com"),
        ("maven", "org"),
        ("maven.apache", "org"),
        ("crates", "io"),
        ("golang", "org"),
        ("deb.debian", "org"),
    ]
)
MACHINE_PATH = re.compile(r"(?<![\w.])/(?:work|root|home/\w+|Users/\w+)/|(?<![\w.])/(?:work|root)(?![\w/.-])")
# (?#) matches nothing: it lets this file pass its own rule.
UNFINISHED = re.compile(r"\b(?:TO(?#)DO|FIX(?#)ME|XX(?#)X|HA(?#)CK)\b")
CONFLICT = re.compile(r"^(?:<{7} |={7}$|>{7} )")

SECTION = re.compile(rb"\x00\x53[\x70-\x78]")

LINK = re.compile(r"\]\(([^()\s]+)\)")

Faults = Iterator[tuple[int, str]]


def no_foreign_places(path: Path, text: str) -> Faults:
    """Nothing that is true on one machine only, and no registry's host."""
    for number, line in enumerate(text.splitlines(), 1):
        if MACHINE_PATH.search(line):
            yield number, "a path of one machine"
        for host in REGISTRY_HOSTS:
            if host in line:
                yield number, f"a package registry's host ({host})"


def finished(path: Path, text: str) -> Faults:
    """Unfinished work belongs in the tracker."""
    for number, line in enumerate(text.splitlines(), 1):
        if UNFINISHED.search(line):
            yield number, "a note of unfinished work"
        if CONFLICT.match(line):
            yield number, "a merge conflict's marker"


def clean_text(path: Path, text: str) -> Faults:
    """Unix line ends, no trailing blanks, one newline at the end."""
    if "\r" in text:
        yield 1, "carriage returns"
    if text and not text.endswith("\n"):
        yield text.count("\n") + 1, "no newline at the end"
    if text.endswith("\n\n"):
        yield text.count("\n"), "blank lines at the end"
    for number, line in enumerate(text.split("\n"), 1):
        if line != line.rstrip():
            yield number, "trailing blanks"


def well_opened(path: Path, text: str) -> Faults:
    """Each module of the product opens with its theory of operation and postpones annotations."""
    if not text.strip():
        return
    tree = ast.parse(text, str(path))
    if ast.get_docstring(tree) is None:
        yield 1, "no module docstring"
    postponed = any(isinstance(node, ast.ImportFrom) and node.module == "__future__" for node in tree.body)
    if not postponed and len(tree.body) > 1:
        yield 1, "no `from __future__ import annotations`"


def readable_size(path: Path, text: str) -> Faults:
    """A module one person can hold in the head."""
    lines = text.count("\n")
    if lines > MODULE_LINES_MAX and path.name != "definitions.py":
        yield lines, f"{lines} lines, more than {MODULE_LINES_MAX}"


def section_octets(path: Path, text: str) -> Faults:
    """How a section of a message begins is known in `protocol.sections` alone."""
    if path.is_relative_to("src/acquit/protocol"):
        return
    for node in ast.walk(ast.parse(text, str(path))):
        if isinstance(node, ast.Constant) and isinstance(node.value, bytes) and SECTION.search(node.value):
            yield node.lineno, "octets of a section: use protocol.sections.section_head"


def reasoned_exceptions(path: Path, text: str) -> Faults:
    """A check that is switched off names the check."""
    for number, line in enumerate(text.splitlines(), 1):
        if re.search(r"#\s*noqa(?!:)", line) or re.search(r"#\s*type:\s*ignore(?!\[)", line):
            yield number, "a check switched off without naming it"


def lock_without_hosts(path: Path, text: str) -> Faults:
    """An npm lock pins versions and hashes; where they come from is the user's configuration."""
    for name, package in json.loads(text).get("packages", {}).items():
        if "resolved" in package:
            yield 1, f"{name or 'the root'} names where it was fetched"


def links_lead_somewhere(path: Path, text: str) -> Faults:
    """A page's relative links name files of the repository."""
    for number, line in enumerate(text.splitlines(), 1):
        for target in LINK.findall(line):
            place = target.partition("#")[0]
            if place and "://" not in place and not (ROOT / path.parent / place).exists():
                yield number, f"a link to {place}, which does not exist"


RULES: list[tuple[str, Callable[[Path, str], Faults]]] = [
    ("*", no_foreign_places),
    ("*", finished),
    ("*", clean_text),
    ("src/*.py", well_opened),
    ("tools/*.py", well_opened),
    ("src/*.py", readable_size),
    ("tools/*.py", readable_size),
    ("src/*.py", section_octets),
    ("*.py", reasoned_exceptions),
    ("*.md", links_lead_somewhere),
    ("*package-lock.json", lock_without_hosts),
]


def files(root: Path) -> list[Path]:
    """What git tracks or would track, relative to `root`."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=root, check=True, capture_output=True, text=True).stdout
    return sorted(Path(name) for name in set(listed.split("\0")) if name and (root / name).is_file())


def check_text(path: Path, text: str) -> list[str]:
    """One line for each fault of the file at `path` (relative to the repository) with this content."""
    name = path.as_posix()
    if any(fnmatch(name, pattern) for pattern in AS_PUBLISHED):
        return []
    return [
        f"{name}:{line}: {complaint}"
        for pattern, rule in RULES
        if fnmatch(name, pattern)
        for line, complaint in rule(path, text)
    ]


def check(root: Path) -> list[str]:
    """One line for each fault in the repository at `root`."""
    found = []
    for path in files(root):
        content = (root / path).read_bytes()
        if len(content) > FILE_BYTES_MAX:
            found.append(f"{path}: {len(content)} bytes, more than {FILE_BYTES_MAX}")
        try:
            text = content.decode("utf-8")
        except UnicodeDecodeError:
            continue  # binary: a fuzzer's find, a picture
        found.extend(check_text(path, text))
    return found


def main() -> int:
    """Print what is wrong; exit code 1 if anything is."""
    found = check(ROOT)
    for line in found:
        print(line)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
