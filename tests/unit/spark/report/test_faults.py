"""The words of the report for anomalies."""

from __future__ import annotations

from acquit.spark.audit.anomalies import Anomaly
from acquit.spark.report.faults import MEANINGS


def test_every_anomaly_has_its_meaning() -> None:
    assert set(MEANINGS) == set(Anomaly)
