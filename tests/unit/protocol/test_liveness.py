from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from acquit.protocol.liveness import Liveness


def test_a_silent_peer_has_twice_what_we_advertise() -> None:
    liveness = Liveness(1_000, now=10.0)
    assert liveness.deadline == 12.0
    assert not liveness.silent_too_long(11.9)
    liveness.heard(11.9)
    assert not liveness.silent_too_long(12.0)
    assert liveness.silent_too_long(13.9)


def test_without_a_time_out_nobody_is_too_silent() -> None:
    liveness = Liveness(0, now=0.0)
    assert liveness.deadline is None
    assert not liveness.silent_too_long(1e9)
    assert not liveness.heartbeat_due(1e9)


def test_the_deadline_is_the_earlier_one() -> None:
    liveness = Liveness(1_000, now=0.0)
    liveness.keep_alive(2_000, now=0.0)
    assert liveness.deadline == 0.5
    assert liveness.heartbeat_due(0.5)
    assert liveness.deadline == 1.0
    for _ in range(2):
        assert liveness.heartbeat_due(liveness.deadline or 0.0)
    assert liveness.deadline == 2.0


def test_no_heartbeat_where_something_was_sent() -> None:
    liveness = Liveness(0, now=0.0)
    liveness.keep_alive(4_000, now=0.0)
    liveness.sent()
    assert not liveness.heartbeat_due(1.0)
    assert liveness.heartbeat_due(2.0)
    assert not liveness.heartbeat_due(2.5)


@given(st.integers(100, 60_000), st.lists(st.floats(0.0, 0.6), max_size=50))
def test_the_peer_never_waits_longer_than_half_of_its_time_out(timeout_ms: int, gaps: list[float]) -> None:
    """Whenever output is taken, if the deadlines are kept, two consecutive frames are at most half a time-out apart."""
    timeout = timeout_ms / 1000
    liveness = Liveness(0, now=0.0)
    liveness.keep_alive(timeout_ms, now=0.0)
    now = last_sent = 0.0
    for gap in gaps:
        until = now + gap * timeout
        while liveness.deadline is not None and liveness.deadline <= until:
            now = liveness.deadline
            if liveness.heartbeat_due(now):
                liveness.sent()
                assert now - last_sent <= timeout / 2 * 1.000001
                last_sent = now
        now = until
        assert now - last_sent <= timeout / 2 * 1.000001
        liveness.sent()
        last_sent = now
