"""The tables of docs/brokers.md and docs/guarantees.md say what this run has seen. Runs last (see conftest)."""

from __future__ import annotations

import pytest
from tools import generate_brokers

from tests.interop.java import in_ci
from tests.interop.observations import Recorder

pytestmark = pytest.mark.interop


def test_the_tables_say_what_was_seen(recorder: Recorder) -> None:
    absent = set(generate_brokers.BROKERS) - set(recorder.seen)
    if absent and not in_ci():
        pytest.skip(f"not all brokers were there to look at: {', '.join(sorted(absent))}")
    assert not generate_brokers.stale(recorder.report()), "other than before: look at why, then `make brokers-table`"
