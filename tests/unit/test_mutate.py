"""The tool that plants mistakes: which it finds, and that a test which notices one is told from one that does not."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.unit.test_tree import load

mutate = load("mutate")


@pytest.mark.parametrize(
    ("source", "planted"),
    [
        ("a = b < c", ["a = (b <= c)"]),
        ("a = b is not None", ["a = (b is None)"]),
        ("a = b and c", ["a = (b or c)"]),
        ("a = b + c", ["a = (b - c)"]),
        ("a = not b", ["a = (b)"]),
        ("a = True", ["a = False"]),
        ("a = 7", ["a = 8"]),
        ("if a:\n    b()", ["if (not a):\n    b()", "if a:\n    pass"]),
        ("def f():\n    return a", ["def f():\n    return None"]),
        ("a.b = c", ["pass"]),
        ("a += b", ["pass"]),
        ("raise A", ["pass"]),
        ("'ä'; a = b == c", ["'ä'; a = (b != c)"]),
        # Nothing that does not run, or that nobody tests for.
        ("def f(a: X | Y = b) -> Z:\n    'text'", []),
        ("__slots__ = ('a', 1)", []),
        ("assert a < b", []),
        ("logger.info('x', 1 + 1)", []),
        ("if TYPE_CHECKING:\n    import a", []),
        ("a = f'{b + c}'", []),
    ],
)
def test_mistakes(source: str, planted: list[str]) -> None:
    octets = source.encode()
    found = [mistake.plant(octets).decode() for mistake in mutate.mistakes(octets)]
    assert found == planted
    for changed in found:
        ast.parse(changed)


def test_every_mistake_in_our_sources_is_python() -> None:
    source = (mutate.SOURCES / "acquit/protocol/credit.py").read_bytes()
    found = mutate.mistakes(source)
    assert len(found) > 10
    for mistake in found:
        ast.parse(mistake.plant(source))
        assert mistake.plant(source) != source


def test_modules_and_their_tests() -> None:
    assert list(mutate.modules_of(["acquit.protocol.credit"])) == ["acquit.protocol.credit"]
    assert "acquit.broker.transact.transactions" in mutate.modules_of(["acquit.broker"])
    assert mutate.modules_of(["acquit.brok"]) == {}
    mirror, *others = mutate.tests_of("acquit.protocol.credit")
    assert mirror == ["tests/unit/protocol/test_credit.py"]
    assert all(Path(path).exists() for tests in others for path in tests)
    assert all((mutate.ROOT / path).exists() for paths in mutate.WHOLE.values() for path in paths)


def test_a_mistake_is_noticed_by_a_test_and_the_tree_stays_as_it_is() -> None:
    path = mutate.SOURCES / "acquit/protocol/credit.py"
    source = path.read_bytes()
    tests = ["tests/unit/protocol/test_credit.py"]
    assert mutate.passes("acquit.protocol.credit", source, tests, None)
    assert not mutate.passes("acquit.protocol.credit", b"raise RuntimeError", tests, None)
    assert not mutate.passes("acquit.protocol.credit", source.replace(b"return ", b"return 1 + "), tests, None)
    assert path.read_bytes() == source
