from __future__ import annotations

import pytest

from acquit.broker.options import BrokerLimits, BrokerOptions
from acquit.doctor import machine
from acquit.doctor.findings import Severity

OK, WARNING, PROBLEM = Severity


def test_python() -> None:
    assert machine.python((3, 11, 0), "CPython").severity is OK
    assert machine.python((3, 10, 9), "CPython").severity is PROBLEM
    assert machine.python((3, 12, 0), "PyPy").severity is WARNING


def test_event_loop() -> None:
    assert machine.event_loop(machine.selector_name()).severity is OK
    assert machine.event_loop("SelectSelector").severity is WARNING


@pytest.mark.parametrize(
    ("hard", "severity"),
    [(-1, OK), (1_158, OK), (1_157, WARNING), (1_000_000, OK)],
    ids=["none", "just", "less", "many"],
)
def test_open_files_for_all_connections(hard: int, severity: Severity) -> None:
    options = BrokerOptions(limits=BrokerLimits(connections_max=1_000, unauthenticated_max=100))
    found = machine.open_files(256, hard, options)
    assert found.severity is severity
    assert ("LimitNOFILE=1158" in found.advice) == (severity is WARNING)


def test_memory_that_is_not_there() -> None:
    options = BrokerOptions()
    assert machine.memory(machine.memory_bytes(), options).found
    assert machine.memory(options.limits.memory_bytes_max, options).severity is WARNING
    assert machine.memory(options.limits.memory_bytes_max * 2, options).severity is OK


def test_the_limit_of_a_control_group_counts(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    whole = machine.memory_bytes()
    limit = machine.Path(str(tmp_path)) / "memory.max"
    monkeypatch.setattr(machine, "CGROUP", limit)
    limit.write_text("1048576\n")
    assert machine.memory_bytes() == 1 << 20
    limit.write_text("max\n")
    assert machine.memory_bytes() >= whole


@pytest.mark.parametrize(
    ("now_s", "state", "severity", "said"),
    [
        (1_800_000_000, 0, OK, "2027-01-15 08:00:00 UTC, synchronised"),
        (1_800_000_000, machine.UNSYNCHRONISED, WARNING, "not synchronised"),
        (1_800_000_000, None, OK, "does not tell"),
        (86_400, 0, PROBLEM, "1970-01-02"),
    ],
)
def test_the_clock(now_s: float, state: int | None, severity: Severity, said: str) -> None:
    found = machine.clock(now_s, state)
    assert found.severity is severity
    assert said in found.found


def test_the_kernel_is_asked() -> None:
    assert machine.clock_state() in (None, 0, 1, 2, 3, 4, 5)
