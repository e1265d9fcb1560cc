"""The garbage collector is held off, and left as it was."""

from __future__ import annotations

import gc

import pytest

from acquit.ledger.collection import without_collection


@pytest.mark.parametrize("enabled", [True, False])
def test_the_collector_is_held_off_and_left_as_it_was(enabled: bool) -> None:
    if not enabled:
        gc.disable()
    try:
        with without_collection():
            assert not gc.isenabled()
        assert gc.isenabled() == enabled
    finally:
        gc.enable()
