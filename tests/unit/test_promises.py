"""The list of promises and tests in docs/how-it-is-tested.md: what is found, and what is refused."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.simulation.oracle import RULES
from tests.unit.test_tree import load

promises = load("promises")
PAGE = """\
Words.

| promise | needs | without |
|---|---|---|
| <a id="kept"></a>What is there stays. | a disk | |
| no promise | | |

<a id="true"></a>**Nothing** is made up,
see [there](#words).

- one
- <a id="item"></a>An item of a list.
- another
"""


def below(folder: Path, **files: str) -> list[object]:
    for name, text in files.items():
        path = folder / name / "test_it.py"
        path.parent.mkdir()
        path.write_text(text)
    return list(promises.proofs(folder))


def test_promises_are_rows_paragraphs_and_items() -> None:
    assert [(found.name, found.text, found.conditions) for found in promises.promises(PAGE)] == [
        ("kept", "What is there stays.", (("needs", "a disk"),)),
        ("true", "**Nothing** is made up, see [there](#words).", ()),
        ("item", "An item of a list.", ()),
    ]


def test_markers_of_modules_classes_and_functions_are_found(tmp_path: Path) -> None:
    module = '"""Many\nthings.\n\nAt length."""\npytestmark = [pytest.mark.slow, pytest.mark.promise("a")]\n'
    inside = '@pytest.mark.promise("a", "b")\nclass TestIt:\n    @pytest.mark.promise("c")\n    def test_x(self): ...\n'
    alone = '@pytest.mark.slow\n@pytest.mark.promise("d")\nasync def test_y(): ...\ndef test_z(): ...\n'
    found = below(tmp_path, crash=module, unit=inside, system=alone)
    assert [(proof.promise, proof.path, proof.words) for proof in found] == [
        ("a", "crash/test_it.py", "Many things."),
        ("d", "system/test_it.py", "`test_y` (soak)"),
        ("a", "unit/test_it.py", "`TestIt`"),
        ("b", "unit/test_it.py", "`TestIt`"),
        ("c", "unit/test_it.py", "`TestIt::test_x`"),
    ]


def test_each_promise_has_its_tests_by_kind() -> None:
    wanted = promises.promises(PAGE)
    given = [
        promises.Proof("kept", "unit/test_it.py", "`test_a`"),
        promises.Proof("kept", "crash/test_it.py", "`test_b`"),
        promises.Proof("true", "unit/test_it.py", "`test_c`"),
        promises.Proof("item", "unit/test_it.py", "`test_c`"),
    ]
    text = promises.section(wanted, given)
    assert text.index("| kill -9 | [test_it.py](../tests/crash/test_it.py): `test_b` |") < text.index("| units |")
    assert "- *needs*: a disk" in text
    assert "[there](guarantees.md#words)" in text


@pytest.mark.parametrize(
    ("promise", "path", "complaint"),
    [
        ("true", "unit/test_it.py", "no test stands behind the promise 'kept'"),
        ("kept", "nowhere/test_it.py", "KINDS has no word for this folder"),
        ("unheard-of", "unit/test_it.py", "there is no promise 'unheard-of'"),
    ],
)
def test_what_is_missing_or_unknown_is_refused(promise: str, path: str, complaint: str) -> None:
    wanted = [promises.Promise("kept", "What is there stays.")]
    given = [promises.Proof(promise, path, "`test_a`")]
    with pytest.raises(promises.Unproven, match=complaint):
        promises.section(wanted, given)


def test_the_oracle_speaks_of_its_rules_alone() -> None:
    """Each violation begins with a rule's name, so that what is listed for a promise is what is held to it."""
    raised = {
        text.values[0].value.partition(":")[0]  # type: ignore[attr-defined]
        for module in ("oracle.py", "termini.py", "leaving.py")
        for node in ast.walk(ast.parse((promises.ROOT / "tests" / promises.ORACLE).with_name(module).read_text()))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "Violation"
        for text in node.args
    }
    assert raised == set(RULES)
