"""The bounds of a journal."""

from __future__ import annotations

import pytest

from acquit.errors import ConfigurationError
from acquit.store.options import JournalOptions


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("alignment_bytes", 0),
        ("alignment_bytes", 256),
        ("alignment_bytes", 1000),
        ("alignment_bytes", 131072),
        ("segment_bytes", 4096),
        ("segment_bytes", (64 << 20) + 1),
        ("batch_bytes_max", 2 << 30),
        ("batch_bytes_max", -1),
        ("recovery_bytes_max", -1),
        ("reserve_segments", -1),
        ("spare_segments", -1),
        ("archive_bytes_max", -1),
        ("archive_age_max_s", -1),
        ("stubs_max", -1),
        ("retry_ms", -1),
        ("open_files_max", 0),
    ],
)
def test_a_value_that_cannot_work_is_named(name: str, value: int) -> None:
    with pytest.raises(ConfigurationError, match=name):
        JournalOptions(**{name: value})


def test_the_small_ones_are_small() -> None:
    assert JournalOptions.small().segment_bytes < JournalOptions().segment_bytes
