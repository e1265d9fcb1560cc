"""The page of threats claims nothing without a test."""

from __future__ import annotations

import ast
import re

import pytest

from tests.support.pages import ROOT

CLAIM = re.compile(r"^\| (?P<claim>[^|]+) \| (?P<tests>[^|]+) \|$", re.MULTILINE)
TEST = re.compile(r"`(?P<file>tests/[\w/]+\.py)::(?P<name>test_\w+)`")


def unproved(page: str) -> list[str]:
    """What is wrong with the tables of claims: a claim that names no test, a test that is not there, or other text
    where tests should stand."""
    faults: list[str] = []
    for table in re.split(r"^\| claim \| tests \|\n\|---\|---\|\n", page, flags=re.MULTILINE)[1:]:
        for row in table.split("\n\n", 1)[0].splitlines():
            found = CLAIM.match(row)
            tests = [] if found is None else TEST.findall(found["tests"])
            if found is None or not tests or TEST.sub("", found["tests"]).strip():
                faults.append(f"no tests: {row}")
            faults += [f"not there: {file}::{name}" for file, name in tests if name not in _functions(file)]
    return faults


def _functions(file: str) -> set[str]:
    path = ROOT / file
    if not path.is_file():
        return set()
    return {node.name for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef)}


def test_each_claim_has_tests_that_are_there() -> None:
    page = (ROOT / "docs" / "threat-model.md").read_text()
    assert page.count("| claim | tests |\n") == 3
    assert unproved(page) == []


@pytest.mark.parametrize(
    "row",
    [
        "| nobody comes in | |",
        "| nobody comes in | to be written |",
        "| nobody comes in | `tests/docs/test_threat_model.py::test_that_is_not_there` |",
        "| nobody comes in | `tests/docs/test_no_file.py::test_that_is_not_there` |",
    ],
)
def test_a_claim_without_its_test_is_found(row: str) -> None:
    assert unproved(f"| claim | tests |\n|---|---|\n{row}\n")
