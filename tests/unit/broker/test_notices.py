"""What a crowd causes is few lines of the log."""

from __future__ import annotations

import logging

import pytest

from acquit.broker.notices import KINDS_MAX, PAUSE_S, TEXT_MAX, USUAL, Notices


def said(caplog: pytest.LogCaptureFixture) -> list[tuple[str, object, object]]:
    return [(r.getMessage(), r.__dict__["peer"], r.__dict__.get("times", 1)) for r in caplog.records]


def test_the_first_is_said_and_the_others_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    now = 100.0
    notices = Notices(logging.getLogger("notices"), lambda: now)
    for number in range(1_000):
        notices.warn("too many", peer=number)
    notices.warn("no TLS", peer="x")
    notices.flush()
    assert said(caplog) == [("too many", 0, 1), ("no TLS", "x", 1)]
    caplog.clear()
    now += PAUSE_S
    notices.flush()
    notices.flush()
    assert said(caplog) == [("too many", 999, 999)]
    caplog.clear()
    notices.warn("too many", peer="soon")
    assert said(caplog) == []
    now += 2 * PAUSE_S
    notices.flush()
    assert said(caplog) == [("too many", "soon", 1)]


def test_what_is_usual_has_more_lines(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    now = 100.0
    notices = Notices(logging.getLogger("notices"), lambda: now)
    for number in range(USUAL + 70):
        notices.inform("opened", "192.0.2.1", peer=number)
    notices.inform("opened", "192.0.2.2", peer="other")
    assert said(caplog) == [*(("opened", number, 1) for number in range(USUAL)), ("opened", "other", 1)]
    assert {record.levelno for record in caplog.records} == {logging.INFO}
    caplog.clear()
    now += PAUSE_S
    notices.flush()
    assert said(caplog) == [("opened", USUAL + 69, 70)]


def test_who_comes_now_and_then_is_always_said(caplog: pytest.LogCaptureFixture) -> None:
    """A pause that is over gives all lines back, also where nobody has flushed."""
    now = 100.0
    notices = Notices(logging.getLogger("notices"), lambda: now)
    for number in range(5):
        notices.warn("no TLS", peer=number)
        now += PAUSE_S
    assert said(caplog) == [("no TLS", number, 1) for number in range(5)]


def test_lines_are_bounded_whoever_causes_them_and_whatever_they_say(caplog: pytest.LogCaptureFixture) -> None:
    notices = Notices(logging.getLogger("notices"), lambda: 100.0)
    for number in range(3 * KINDS_MAX):
        notices.warn("refused", f"network {number}", peer="x" * 60_000, count=number)
    assert len(caplog.records) == KINDS_MAX + 1, "what more of them cause is counted together"
    assert {len(str(vars(record)["peer"])) for record in caplog.records} == {TEXT_MAX + 3}
