from __future__ import annotations

import pytest

from acquit.doctor.findings import Severity, ok, problem, size_text, warning


def test_only_what_is_as_it_should_be_has_no_advice() -> None:
    assert (ok("a", "b").severity, ok("a", "b").advice) == (Severity.OK, "")
    assert warning("a", "b", "c").severity is Severity.WARNING
    assert problem("a", "b", "c").severity is Severity.PROBLEM


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 bytes"), (1023, "1,023 bytes"), (1536, "1.5 KiB"), (3 << 30, "3.0 GiB"), (5 << 50, "5,120.0 TiB")],
)
def test_sizes(size: int, text: str) -> None:
    assert size_text(size) == text
