from __future__ import annotations

from typing import Any

import pytest

from acquit.bench.plan import BenchPlan, BenchResult, Scenario
from acquit.client.modes import AckMode
from acquit.errors import ConfigurationError


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ({"size_bytes": 7, "count": 1}, "8 bytes or more"),
        ({}, "either a number of messages"),
        ({"count": 1, "seconds": 1.0}, "either a number of messages"),
        ({"scenario": Scenario.RECEIVE, "seconds": 1.0}, "posted before"),
        ({"count": 1, "rate": 1.0}, "rate belongs"),
        ({"scenario": Scenario.LATENCY, "count": 1}, "rate belongs"),
        ({"scenario": Scenario.FAN_OUT, "count": 1, "durable": True}, "not durable"),
        ({"count": 1, "mode": AckMode.TRANSACTED}, "transacted"),
    ],
)
def test_what_does_not_go_together(values: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=complaint):
        BenchPlan(**{"scenario": Scenario.END_TO_END, **values})


@pytest.mark.parametrize(
    ("scenario", "receivers", "expected"),
    [(Scenario.SEND, 0, 0), (Scenario.RECEIVE, 2, 10), (Scenario.END_TO_END, 2, 10), (Scenario.FAN_OUT, 3, 30)],
)
def test_how_much_should_come(scenario: Scenario, receivers: int, expected: int) -> None:
    plan = BenchPlan(scenario=scenario, count=10, connections=2, consumers=3)
    result = BenchResult(plan, sent=10, accepted=10, seconds=2.0)
    assert (plan.receivers, result.expected) == (receivers, expected)
    result.received = expected
    assert result.whole
    assert result.rate == (expected or 10) / 2
    result.refused = 1
    assert not result.whole
