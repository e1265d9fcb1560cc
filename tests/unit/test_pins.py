"""constraints.txt has what an environment needs, and `tools/pins.py` gives out no more than that."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import PackageNotFoundError, distribution

import pytest
from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.support.pages import ROOT
from tests.unit.test_tree import load

pins = load("pins")
TEXT = """\
# Words.
one==1.0 \\
    --hash=sha256:aa \\
    --hash=sha256:bb
    # for base
two==2.0 ; python_full_version < '3.12' \\
    --hash=sha256:cc
    # for dev, spark; built from source
"""
PINNED = pins.parse(pins.PINS.read_text())
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
SETS = {
    "base": PROJECT["project"]["dependencies"],
    "build": [*PROJECT["build-system"]["requires"], *pins.BUILDS_OTHERS],
    **PROJECT["project"]["optional-dependencies"],
}


def of(name: str) -> dict[str, str]:
    """The versions that an environment of this machine has of one set and what every one has."""
    wanted = {"base", name}
    return {
        pin.name: pin.version
        for pin in PINNED
        if pin.sets & wanted and (not pin.marker or Marker(pin.marker).evaluate())
    }


def test_the_file_is_read_as_it_is_written() -> None:
    one, two = pins.parse(TEXT)
    assert (one.name, one.version, one.hashes, one.sets, one.wheels) == ("one", "1.0", ("aa", "bb"), {"base"}, True)
    assert (two.marker, two.sets, two.wheels) == ("python_full_version < '3.12'", {"dev", "spark"}, False)
    assert "# Words.\n" + one.entry + two.entry == TEXT
    assert pins.HEAD + "".join(pin.entry for pin in PINNED) == pins.PINS.read_text()
    with pytest.raises(ValueError, match=r"constraints.txt:1: --no-binary"):
        pins.parse("--no-binary :all:\n")


def test_what_is_selected_has_hashes_and_is_wanted() -> None:
    both = pins.parse(TEXT)
    assert [pin.name for pin in pins.select(both, [])] == ["one"]
    assert [pin.name for pin in pins.select(both, ["spark"], wheels=False)] == ["two"]
    assert pins.select(both, ["s3"], wheels=False) == []
    assert (
        pins.select(both, ["spark"], wheels=False)[0].requirement
        == TEXT[TEXT.index("two") : TEXT.index("\n    # for dev")]
    )


def test_each_pin_has_the_hashes_of_files() -> None:
    for pin in PINNED:
        assert pin.hashes, pin.name
        assert all(re.fullmatch("[0-9a-f]{64}", one) for one in pin.hashes), pin.name
        assert pin.sets <= SETS.keys(), pin.name


@pytest.mark.parametrize("name", SETS)
def test_what_the_project_asks_for_is_pinned(name: str) -> None:
    """And what that needs, as far as it is installed here. `make pins` mends it."""
    pinned = of(name)
    asked = [Requirement(text) for text in SETS[name]]
    seen: set[str] = set()
    while asked:
        wanted = asked.pop()
        key = canonicalize_name(wanted.name)
        assert key in pinned, f"{name}: {wanted}"
        assert wanted.specifier.contains(pinned[key], prereleases=True), f"{name}: {wanted}, not {pinned[key]}"
        extras = ["", *wanted.extras]
        for extra in extras:
            if (about := f"{key}[{extra}]") not in seen:
                seen.add(about)
                asked += [one for one in _needs(key, pinned[key]) if _applies(one, extra)]


def _needs(name: str, version: str) -> list[Requirement]:
    try:
        found = distribution(name)
    except PackageNotFoundError:
        return []
    return [Requirement(text) for text in found.requires or []] if found.version == version else []


def _applies(wanted: Requirement, extra: str) -> bool:
    return wanted.marker is None or wanted.marker.evaluate({"extra": extra})
