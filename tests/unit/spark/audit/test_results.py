"""The tables of the audit have a column for each way in and each way out."""

from __future__ import annotations

from acquit.ledger.events import ENTERING, RETIRING
from acquit.spark.audit.results import _COUNTED


def test_every_way_in_and_out_is_counted_by_minute() -> None:
    assert {kind for kinds in _COUNTED.values() for kind in kinds} >= ENTERING | RETIRING
