"""The lists of what acquit is delivered with, and what is said of an audit."""

from __future__ import annotations

import json
from importlib.metadata import distributions
from typing import Any

import pytest
from packaging.requirements import Requirement

from tests.unit.test_tree import load

dependencies = load("dependencies")
pins = dependencies.pins
PINNED = pins.parse(pins.PINS.read_text())
PROJECT = pins.read_project()["project"]


def everything() -> dict[str, Any]:
    """What is installed here, as cyclonedx-py lists it, with arrows that are of no use."""
    found = {one.name: one.version for one in distributions()}
    components = [
        {"bom-ref": f"{name}=={version}", "name": name, "version": version} for name, version in found.items()
    ]
    return {
        "metadata": {"component": {"bom-ref": "root", "name": "acquit"}},
        "components": components,
        "dependencies": [{"ref": one["bom-ref"], "dependsOn": []} for one in components],
    }


@pytest.mark.parametrize("name", dependencies.RUNTIME)
def test_a_list_has_exactly_what_is_pinned_for_its_set(name: str) -> None:
    document = dependencies.part(everything(), dependencies.asked_for(name, PROJECT))
    wanted = dependencies.expected(name, PINNED)
    assert dependencies.faults(document, wanted) == []
    assert len(document["components"]) == len(wanted) > 5
    refs = {one["bom-ref"] for one in document["components"]}
    arrows = {entry["ref"]: set(entry["dependsOn"]) for entry in document["dependencies"]}
    assert arrows.keys() == refs | {"root"}
    assert set().union(*arrows.values()) == refs, "each is there because something needs it"


def test_what_is_missing_too_much_or_of_another_version_is_named() -> None:
    document = dependencies.part(everything(), dependencies.asked_for("base", PROJECT))
    wanted = dependencies.expected("base", PINNED)
    others = {**wanted, "attrs": "1.0", "left-pad": "2.0"}
    del others["click"]
    assert [fault.partition(": ")[0] for fault in dependencies.faults(document, others)] == [
        "attrs",
        "click",
        "left-pad",
    ]
    assert dependencies.faults(document, others)[2] == "left-pad: not listed, and pinned is 2.0"


def test_extras_are_followed_where_they_are_asked_for() -> None:
    assert "s3fs" not in dependencies.needs([Requirement("pytest")])
    assert "werkzeug" not in dependencies.needs([Requirement("moto")]).get("pyyaml", set())
    assert "py-partiql-parser" in dependencies.needs([Requirement("moto[s3]")])
    assert "py-partiql-parser" not in dependencies.needs([Requirement("moto")])


def test_what_an_audit_found_is_said_in_lines() -> None:
    clean: dict[str, object] = {"name": "one", "version": "1", "vulns": []}
    bad = {"name": "two", "version": "2", "vulns": [{"id": "CVE-1", "fix_versions": ["3", "2.1"]}]}
    unseen = {"name": "three", "skip_reason": "not found"}

    def said(*packages: dict[str, object]) -> tuple[list[str], bool]:
        lines, known = dependencies.report(json.dumps({"dependencies": packages}), "")
        return lines, known

    assert said(clean, unseen) == (["1 of 2 packages were looked at: no known vulnerabilities"], False)
    lines, known = said(clean, bad)
    assert known
    assert lines == ["two 2: CVE-1, mended in 3, 2.1", "2 of 2 packages were looked at: 1 known vulnerabilities"]
    assert said(unseen) == (["nothing was audited: the index in use has no data about vulnerabilities"], False)
    assert dependencies.report("", "a\nConnectionError: no way\n") == (
        ["nothing was audited: ConnectionError: no way"],
        False,
    )
