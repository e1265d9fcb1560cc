"""What acquit is delivered with: a list of it for scanners, and what is known against it.

    python tools/dependencies.py sbom FOLDER     one CycloneDX file for each set of runtime dependencies
    python tools/dependencies.py audit           ask for known vulnerabilities of all of them

The sets are `base` and those extras that users install. cyclonedx-py lists the environment; of that each file keeps
what its set needs, by what the installed packages say of their dependencies, and that has to be what constraints.txt
pins for it: two ways to the same answer, of which one is the resolver's. pip-audit needs the index, or a mirror with
its data about vulnerabilities; where nothing of that can be had, one line says it, and the exit code is 0.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from importlib.metadata import distribution
from pathlib import Path
from typing import Any, Final

from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import pins

RUNTIME: Final = (pins.BASE, "spark", "s3")
"""What users install. `java` is a Java runtime, for machines that have none."""

Document = dict[str, Any]


def expected(name: str, pinned: Sequence[pins.Pin]) -> dict[str, str]:
    """The versions that constraints.txt has of a set, for this machine."""
    wanted = {pins.BASE, name}
    return {
        pin.name: pin.version
        for pin in pinned
        if pin.sets & wanted and (not pin.marker or Marker(pin.marker).evaluate())
    }


def needs(wanted: Sequence[Requirement]) -> dict[str, set[str]]:
    """What these ask for and all that it needs, by name, each with what it needs itself: as the installed packages say
    it, for this machine. Raises PackageNotFoundError for one that is not installed."""
    found: dict[str, set[str]] = {}
    seen: set[tuple[str, str]] = set()
    waiting = list(wanted)
    while waiting:
        asked = waiting.pop()
        name = canonicalize_name(asked.name)
        direct = found.setdefault(name, set())
        for extra in ("", *asked.extras):
            if (name, extra) not in seen:
                seen.add((name, extra))
                further = [Requirement(text) for text in distribution(name).requires or []]
                applies = [one for one in further if one.marker is None or one.marker.evaluate({"extra": extra})]
                direct.update(canonicalize_name(one.name) for one in applies)
                waiting += applies
    return found


def part(whole: Document, wanted: Sequence[Requirement]) -> Document:
    """What these and what they need are, of a document about all that is installed. cyclonedx-py draws an arrow to
    each extra that happens to be there, so the arrows are made anew."""
    arrows = needs(wanted)
    components = [one for one in whole["components"] if canonicalize_name(one["name"]) in arrows]
    refs = {canonicalize_name(one["name"]): one["bom-ref"] for one in components}
    direct = {canonicalize_name(one.name) for one in wanted}
    by_ref = {whole["metadata"]["component"]["bom-ref"]: direct}
    by_ref |= {refs[name]: arrows[name] for name in sorted(refs)}
    return {
        **whole,
        "components": components,
        "dependencies": [
            {"ref": ref, "dependsOn": sorted(refs[name] for name in names if name in refs)}
            for ref, names in by_ref.items()
        ],
    }


def faults(document: Document, wanted: Mapping[str, str]) -> list[str]:
    """How the components differ from these versions, a line each."""
    found: dict[str, str] = {str(canonicalize_name(one["name"])): one["version"] for one in document["components"]}
    return [
        f"{name}: {found.get(name, 'not listed')}, and pinned is {wanted.get(name, 'none')}"
        for name in sorted(found.keys() | wanted.keys())
        if found.get(name) != wanted.get(name)
    ]


def asked_for(name: str, project: Document) -> list[Requirement]:
    """What the project asks for in a set, base included."""
    extra = project["optional-dependencies"][name] if name != pins.BASE else []
    return [Requirement(text) for text in (*project["dependencies"], *extra)]


def sbom(folder: Path) -> int:
    """Write the files; 1 where one of them is not what is pinned."""
    project = pins.read_project()["project"]
    pinned = pins.parse(pins.PINS.read_text())
    command = [sys.executable, "-m", "cyclonedx_py", "environment", "--pyproject", str(pins.ROOT / "pyproject.toml")]
    command += ["--output-reproducible", "--no-validate", "--output-file", "-", sys.executable]
    whole = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    folder.mkdir(parents=True, exist_ok=True)
    wrong = 0
    for name in RUNTIME:
        document = part(whole, asked_for(name, project))
        path = folder / f"acquit-{name}.cdx.json"
        path.write_text(json.dumps(document, indent=2) + "\n")
        print(f"{path}: {len(document['components'])} packages")
        for fault in faults(document, expected(name, pinned)):
            wrong = 1
            print(f"  {fault}")
    return wrong


def audit() -> int:
    """Print what is known; 1 where something is."""
    pinned = pins.parse(pins.PINS.read_text())
    versions = {name: version for set_ in RUNTIME for name, version in expected(set_, pinned).items()}
    with tempfile.TemporaryDirectory() as folder:
        wanted = Path(folder) / "requirements.txt"
        wanted.write_text("".join(f"{name}=={version}\n" for name, version in sorted(versions.items())))
        command = [sys.executable, "-m", "pip_audit", "--requirement", str(wanted), "--no-deps", "--disable-pip"]
        command += ["--format", "json", "--progress-spinner", "off", "--timeout", "10"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    lines, known = report(done.stdout, done.stderr)
    print("\n".join(lines))
    return int(known)


def report(found: str, said: str) -> tuple[list[str], bool]:
    """What pip-audit has found, for people, and whether anything is known against a package."""
    try:
        packages = json.loads(found)["dependencies"]
    except ValueError:
        reason = said.strip().splitlines() or ["it said nothing"]
        return [f"nothing was audited: {reason[-1]}"], False
    unseen = [package for package in packages if "skip_reason" in package]
    if len(unseen) == len(packages):
        return ["nothing was audited: the index in use has no data about vulnerabilities"], False
    lines = [
        f"{package['name']} {package['version']}: {known['id']}, mended in {', '.join(known['fix_versions']) or 'none'}"
        for package in packages
        for known in package.get("vulns", [])
    ]
    seen = len(packages) - len(unseen)
    summary = f"{seen} of {len(packages)} packages were looked at: {len(lines) or 'no'} known vulnerabilities"
    return [*lines, summary], bool(lines)


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("sbom", "audit"))
    parser.add_argument("folder", nargs="?", type=Path, default=Path("build/sbom"))
    arguments = parser.parse_args()
    return sbom(arguments.folder) if arguments.what == "sbom" else audit()


if __name__ == "__main__":
    sys.exit(main())
