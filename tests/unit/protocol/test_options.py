from __future__ import annotations

import pytest

from acquit.errors import ConfigurationError
from acquit.protocol.options import ConnectionOptions


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("max_frame_size", 511),
        ("max_frame_size", 1 << 32),
        ("max_frame_size", "64k"),
        ("channel_max", 65_536),
        ("idle_timeout_ms", -1),
        ("incoming_window_frames", 1),
        ("unsettled_max", 0),
        ("initial_serial", 1 << 32),
    ],
)
def test_a_value_out_of_range_is_refused_by_name(field: str, value: object) -> None:
    with pytest.raises(ConfigurationError, match=f"{field} must be a whole number"):
        ConnectionOptions(container_id="c", **{field: value})  # type: ignore[arg-type]


def test_a_container_has_a_name() -> None:
    with pytest.raises(ConfigurationError, match="container_id"):
        ConnectionOptions(container_id="")
