"""The time of day, and when somebody sets it."""

from __future__ import annotations

import logging

import pytest

from acquit.broker.clock import Clock, compare_with_journal
from tests.support.broker_world import World, durable


class Hands:
    """Two clocks that a test moves."""

    def __init__(self) -> None:
        self.wall = 1_700_000_000_000_000
        self.steady = 5_000_000
        self.jumps: list[int] = []
        self.clock = Clock(self.jumps.append, wall_us=lambda: self.wall, steady_s=lambda: self.steady / 1e6)

    def pass_us(self, wall: int, steady: int) -> int:
        self.wall += wall
        self.steady += steady
        return self.clock.now_us()


def test_time_passes_and_nobody_is_told() -> None:
    hands = Hands()
    for _ in range(10):
        assert hands.pass_us(60_000_000, 60_000_000) == hands.wall
    assert hands.jumps == []


@pytest.mark.parametrize(("by_us", "word"), [(-3_600_000_000, "back"), (86_400_000_000, "forward")])
def test_a_clock_that_is_set_is_told_and_logged(by_us: int, word: str, caplog: pytest.LogCaptureFixture) -> None:
    hands = Hands()
    with caplog.at_level(logging.WARNING, "acquit.broker"):
        assert hands.pass_us(1_000_000 + by_us, 1_000_000) == hands.wall
    assert hands.jumps == [by_us]
    (record,) = caplog.records
    assert record.getMessage().startswith(f"the clock was set {word}")
    assert record.seconds == by_us / 1e6  # type: ignore[attr-defined]
    hands.pass_us(1_000_000, 1_000_000)
    assert hands.jumps == [by_us], "told once"


def test_a_clock_that_is_corrected_gently_was_not_set() -> None:
    hands = Hands()
    for _ in range(100):
        hands.pass_us(1_000_500, 1_000_000)
    assert hands.jumps == []


def test_a_clock_behind_the_journal_is_logged_as_the_broker_starts(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    client = world.client()
    client.post(client.sender("q"), durable(b"x"))
    world.settle()
    written_us = world.fold().written_us
    assert written_us == world.now_us
    with caplog.at_level(logging.WARNING, "acquit.broker"):
        compare_with_journal(written_us, written_us)
        compare_with_journal(written_us, written_us + 3_600_000_000)
        assert caplog.records == []
        compare_with_journal(written_us, written_us - 3_600_000_000)
    (record,) = caplog.records
    assert "behind the journal" in record.getMessage()
    assert record.seconds == 3_600  # type: ignore[attr-defined]
