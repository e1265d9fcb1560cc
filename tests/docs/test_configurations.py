"""The configurations that pages show are ones that a broker takes."""

from __future__ import annotations

import re

import pytest

from acquit.broker.configuration import parse_options
from tests.support.pages import ROOT

SHOWN = ("privacy.md", "sizing-a-broker.md")
_TOML = re.compile(r"^```toml\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", SHOWN)
def test_they_are_taken(page: str) -> None:
    shown = _TOML.findall((ROOT / "docs" / page).read_text())
    assert shown
    for text in shown:
        parse_options(text, page)


def test_the_figures_of_sizing_are_those_of_the_options() -> None:
    """The page has constants of the code; here they are computed."""
    page = (ROOT / "docs" / "sizing-a-broker.md").read_text()
    (whole,) = _TOML.findall(page)
    small = "[journal]\nsegment_bytes = 4_194_304"
    for text, end, megabytes in (
        ("", 0, "16.8"),
        ("", (8 << 20) + 1, "268"),
        (whole, 0, "268"),
        (small, 1 << 40, "16.8"),
    ):
        journal = parse_options(text).journal
        files = (journal.reserve_segments + journal.spare_segments + 1) * journal.prewritten_bytes(end)
        assert f"{files / 1e6:.3g}" == megabytes and f"{megabytes} MB" in page
    assert "`segment_bytes = 4_194_304`" in page
    options = parse_options("")
    assert f"`limits.duplicate_ids_max`, {options.limits.duplicate_ids_max:,}: " in page
    assert f"`limits.sender_marks_max`, {options.limits.sender_marks_max:,}: " in page
    assert f"`limits.links_max`, {options.limits.links_max:,}" in page
    assert options.journal.recovery_bytes_max == options.limits.memory_bytes_max == 1 << 30
    assert options.journal.archive_bytes_max == 10 << 30 and options.journal.archive_age_max_s == 30 * 86_400
