"""When a connection is tried again, and when no more."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from acquit import ConnectOptions, Reconnect
from acquit.client.reconnecting import (
    HELD,
    RETRIED,
    Backoff,
    better_elsewhere,
    is_final,
    most_telling,
    worth_another_try,
)
from acquit.errors import (
    AuthenticationFailed,
    ConfigurationError,
    ConnectionClosed,
    ConnectionFailed,
    ConnectionLost,
    ConnectTimeout,
)
from acquit.protocol.definitions import AmqpCondition, ConnectionCondition, Error
from acquit.protocol.events import ConnectionEnded


def backoff(first_rounds: int = 0, *, draw: float = 0.0, **options: object) -> Backoff:
    return Backoff(Reconnect(**options), first_rounds, 0.0, lambda: draw)  # type: ignore[arg-type]  # of the right types


def test_delays_grow_up_to_the_longest() -> None:
    delays = backoff(delay_ms=100, delay_max_ms=500, multiplier=2)
    assert [delays.next_delay(0.0) for _ in range(5)] == [0.1, 0.2, 0.4, 0.5, 0.5]


@pytest.mark.parametrize(("multiplier", "following"), [(2, [0.002, 0.004, 0.005]), (1, [0.001, 0.001, 0.001])])
def test_only_the_first_round_is_made_without_delay(multiplier: float, following: list[float]) -> None:
    delays = backoff(delay_ms=0, delay_max_ms=5, multiplier=multiplier)
    for lost_at in (1.0, 100.0):
        delays.lost(lost_at)
        assert [delays.next_delay(lost_at) for _ in range(4)] == [0.0, *following]
        delays.opened(lost_at)


def test_a_connection_that_flaps_is_not_restored_without_delay_again_and_again() -> None:
    delays = backoff(delay_ms=0, delay_max_ms=1_000, multiplier=2)
    found = []
    for _ in range(4):
        delays.lost(1.0)
        found.append(delays.next_delay(1.0))
        delays.opened(1.0)
    assert found == [0.0, 0.002, 0.004, 0.008]


def test_jitter_shortens_a_delay_by_a_part_of_it() -> None:
    assert backoff(delay_ms=100, jitter=0.5, draw=1.0).next_delay(0.0) == pytest.approx(0.05)
    assert backoff(delay_ms=100, jitter=0, draw=1.0).next_delay(0.0) == 0.1


def test_a_connection_that_held_starts_anew_and_one_that_flaps_goes_on() -> None:
    delays = backoff(delay_ms=100, multiplier=2)
    assert not delays.lost(0.1), "for the first time"
    assert delays.next_delay(1.0) == 0.1
    delays.opened(2.0)
    assert delays.lost(2.1)
    assert delays.next_delay(2.1) == 0.2
    delays.opened(3.0)
    assert not delays.lost(3.0 + HELD * 0.4)
    assert delays.next_delay(8.0) == 0.1


def test_a_host_that_sends_us_away_or_falls_silent_is_not_the_first_to_be_tried() -> None:
    silence, redirect = AmqpCondition.RESOURCE_LIMIT_EXCEEDED, ConnectionCondition.REDIRECT
    assert better_elsewhere(redirect, remote=True) and better_elsewhere(silence, remote=False)
    assert not better_elsewhere(silence, remote=True), "its own limit, which may clear up"
    assert not better_elsewhere(None, remote=True) and not better_elsewhere(None, remote=False)


def test_the_last_round_is_when_the_time_is_over() -> None:
    limits = backoff(delay_ms=4_000, multiplier=2, outage_max_ms=10_000)
    limits.lost(100.0)
    assert limits.next_delay(100.0) == 4.0
    assert limits.next_delay(104.0) == 6.0  # not 8
    assert limits.exhausted(110.0) == "10 s"
    assert limits.next_delay(111.0) == 0.0


def test_rounds_and_time_run_out_in_each_outage_anew() -> None:
    limits = backoff(1, rounds_max=2, outage_max_ms=10_000)
    assert limits.exhausted(0.0) is None
    limits.begin_round()
    assert limits.exhausted(0.0) == "1 round of attempts"  # the first connection has its own limit
    limits.opened(1.0)
    limits.lost(100.0)
    limits.begin_round()
    assert limits.exhausted(100.0) is None
    assert limits.exhausted(110.0) == "10 s"
    limits.begin_round()
    assert limits.exhausted(100.0) == "2 rounds of attempts"
    limits.opened(101.0)
    limits.lost(200.0)
    assert limits.exhausted(201.0) is None


def test_no_limits() -> None:
    endless = backoff(outage_max_ms=0)
    for _ in range(100):
        endless.begin_round()
    assert endless.exhausted(1e9) is None


@pytest.mark.parametrize(
    ("event", "again"),
    [
        (ConnectionEnded(None, lost=True, remote=True), True),
        (ConnectionEnded(Error(AmqpCondition.RESOURCE_LIMIT_EXCEEDED, "silent"), lost=True, remote=False), True),
        (ConnectionEnded(None, lost=False, remote=True), True),
        (ConnectionEnded(None, lost=False, remote=False), False),
        (ConnectionEnded(Error(ConnectionCondition.FRAMING_ERROR), lost=False, remote=False), False),
        (ConnectionEnded(Error(AmqpCondition.UNAUTHORIZED_ACCESS), lost=False, remote=True), False),
        (ConnectionEnded(Error(ConnectionCondition.FRAMING_ERROR), lost=False, remote=True), False),
        (ConnectionEnded(None, lost=True, remote=True, authentication=True), False),
        *((ConnectionEnded(Error(condition), lost=False, remote=True), True) for condition in sorted(RETRIED)),
    ],
)
def test_what_is_tried_again(event: ConnectionEnded, again: bool) -> None:
    assert worth_another_try(event) is again


def test_a_redirect_is_worth_another_try_where_there_are_other_hosts() -> None:
    redirected = ConnectionEnded(Error(ConnectionCondition.REDIRECT), lost=False, remote=True)
    assert worth_another_try(redirected, elsewhere=True)
    assert not worth_another_try(redirected)
    assert not worth_another_try(replace(redirected, remote=False), elsewhere=True)
    forbidden = replace(redirected, error=Error(AmqpCondition.UNAUTHORIZED_ACCESS))
    assert not worth_another_try(forbidden, elsewhere=True)


def test_what_would_fail_again_at_the_same_host() -> None:
    assert is_final(AuthenticationFailed("no"))
    assert is_final(ConfigurationError("no"))
    assert is_final(ConnectionClosed("no such host here", condition=AmqpCondition.NOT_FOUND, remote=True))
    assert not is_final(ConnectionClosed("full", condition=AmqpCondition.RESOURCE_LIMIT_EXCEEDED, remote=True))
    assert not is_final(ConnectTimeout("late"))
    assert not is_final(ConnectionLost("gone"))


def test_the_error_that_says_most_is_the_same_in_each_order() -> None:
    by_what_they_say = [
        ConfigurationError("no"),
        AuthenticationFailed("no"),
        ConnectionClosed("no"),
        ConnectionLost("gone"),
        ConnectTimeout("late"),
        ConnectionFailed("nobody there"),
    ]
    for one, another in pairwise(by_what_they_say):
        assert most_telling([one, another]) is most_telling([another, one]) is one


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"delay_ms": -1}, "reconnect: delay_ms must be a whole number from 0 to 2147483647, got -1"),
        ({"delay_max_ms": 0}, "reconnect: delay_max_ms must be a whole number from 1"),
        ({"multiplier": 0.5}, "reconnect: multiplier must be a number from 1 to 100, got 0.5"),
        ({"jitter": 1.5}, "reconnect: jitter must be a number from 0 to 1, got 1.5"),
        ({"rounds_max": True}, "reconnect: rounds_max must be a whole number from 0"),
        ({"first_rounds": "2"}, "reconnect: first_rounds must be a whole number from 0"),
    ],
)
def test_options_out_of_range(options: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        Reconnect(**options)  # type: ignore[arg-type]  # wrong on purpose


def test_connect_options_take_a_reconnect_or_none() -> None:
    assert ConnectOptions().reconnect == Reconnect()
    assert ConnectOptions(reconnect=None).reconnect is None
    with pytest.raises(ConfigurationError, match="reconnect must be a Reconnect or None, got True"):
        ConnectOptions(reconnect=True)  # type: ignore[arg-type]  # wrong on purpose
