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
        ("first_segment_bytes", 4096),
        ("first_segment_bytes", (4 << 20) + 1),
        ("batch_bytes_max", 2 << 30),
        ("batch_bytes_max", -1),
        ("batch_bytes_max", 2),
        ("batch_bytes_max", 511),
        ("recovery_bytes_max", -1),
        ("reserve_segments", -1),
        ("spare_segments", -1),
        ("archive_bytes_max", -1),
        ("archive_age_max_s", -1),
        ("stubs_max", -1),
        ("retry_ms", -1),
        ("retry_ms", 0),
        ("retry_ms", 9),
        ("open_files_max", 0),
    ],
)
def test_a_value_that_cannot_work_is_named(name: str, value: int) -> None:
    with pytest.raises(ConfigurationError, match=name):
        JournalOptions(**{name: value})


def test_what_is_prewritten_doubles_with_what_was_written() -> None:
    options = JournalOptions()
    ends_mib = (0, 1, 2, 3, 4, 8, 9, 16, 10_000)
    assert [options.prewritten_bytes(end << 20) >> 20 for end in ends_mib] == [4, 4, 8, 16, 16, 32, 64, 64, 64]
    assert JournalOptions(segment_bytes=1 << 20).prewritten_bytes(0) == 1 << 20
    assert JournalOptions(segment_bytes=6 << 20).prewritten_bytes(2 << 20) == 6 << 20


def test_a_new_journal_is_small_on_the_disk() -> None:
    """Of issue 16: an empty broker takes less than 20 MB."""
    options = JournalOptions()
    files = options.reserve_segments + options.spare_segments + 1
    assert files * options.prewritten_bytes(0) < 20_000_000


def test_the_small_ones_are_small() -> None:
    assert JournalOptions.small().segment_bytes < JournalOptions().segment_bytes
