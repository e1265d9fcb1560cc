"""Failed logins make the next ones wait: those of the user who fails, where they fail."""

from __future__ import annotations

from heapq import heapify, heappop, heappush

import pytest

from acquit.broker.access.login_throttle import (
    AGAIN_S,
    FORGOTTEN_S,
    FREE_OF_ADDRESS,
    FREE_OF_NAME,
    FREE_OF_USER,
    KEPT_MAX,
    STRANGERS_S_MAX,
    LoginThrottle,
)

HERE, THERE = "192.0.2.1", "192.0.2.2"
HOUR_S = 3_600.0
VERIFYING_S = 0.019
"""53 in a second, one after the other: what a broker does that delays none."""


def throttle(longest_s: float = 30.0) -> LoginThrottle:
    made = LoginThrottle()
    made.longest_s = longest_s
    return made


def fail(found: LoginThrottle, network: str, user: str, now: float) -> None:
    """One wrong guess, however long it has to wait."""
    while wait_s := found.ask(network, user, now):
        now += wait_s
    found.ended(network, user, now, right=False)


def decided(found: LoginThrottle, networks: list[str], names: list[str], until: float = HOUR_S) -> int:
    """How many wrong guesses are decided by then, of connections from these addresses that each begin anew at once.
    One thread verifies them, in order."""
    count, free_at = 0, 0.0
    due = [(0.0, number, False) for number in range(len(networks))]
    heapify(due)
    while due:
        now, number, verified = heappop(due)
        if now >= until:
            continue
        network, name = networks[number], names[number % len(names)]
        if verified:
            found.ended(network, name, now, right=False)
            count += 1
        wait_s = found.ask(network, name, now)
        if wait_s:
            heappush(due, (now + wait_s, number, False))
        else:
            free_at = max(now, free_at) + VERIFYING_S
            heappush(due, (free_at, number, True))
    return count


def test_who_mistypes_does_not_wait() -> None:
    found = throttle()
    for number in range(FREE_OF_USER):
        assert found.ask(HERE, "ada", float(number)) == 0.0
        found.ended(HERE, "ada", float(number), right=False)
    assert found.ask(HERE, "ada", 10.0) == 0.0


def test_who_guesses_waits_longer_each_time_up_to_a_limit() -> None:
    found = throttle()
    now, waits = 0.0, []
    for _ in range(20):
        waits.append(found.ask(HERE, "ada", now))
        now += waits[-1]
        assert not waits[-1] or found.ask(HERE, "ada", now) == 0.0
        found.ended(HERE, "ada", now, right=False)
    assert waits[: FREE_OF_USER + 1] == [0.0] * (FREE_OF_USER + 1)
    grown = waits[FREE_OF_USER + 1 :]
    assert grown[:7] == pytest.approx([0.6, 1.2, 2.4, 4.8, 9.6, 19.2, 30.0])
    assert grown[7:] == pytest.approx([30.0] * len(grown[7:]))


@pytest.mark.parametrize("together", [1, 50])
def test_an_hour_has_few_guesses_however_many_come_together(together: int) -> None:
    assert decided(throttle(longest_s=0.0), [HERE] * together, ["ada"], 60.0) > 3_000, "nobody waits: in a minute"
    assert decided(throttle(), [HERE] * together, ["ada"]) < 150
    assert decided(throttle(), [HERE] * together, [f"user-{number}" for number in range(together)]) < 200
    assert decided(throttle(), [""] * together, ["ada"]) < 150, "programs of this machine"


def test_few_guesses_of_one_user_from_many_addresses() -> None:
    networks = [f"192.0.2.{number}" for number in range(100)]
    assert decided(throttle(), networks, ["ada"], 600.0) < FREE_OF_NAME + 600.0 / STRANGERS_S_MAX + 10


def test_those_at_the_same_time_count_before_they_are_decided() -> None:
    found = throttle()
    waits = [found.ask(HERE, "ada", 0.0) for _ in range(50)]
    assert waits == [0.0] * (FREE_OF_USER + 1) + [AGAIN_S] * (49 - FREE_OF_USER)
    for _ in range(FREE_OF_USER + 1):
        found.ended(HERE, "ada", 1.0, right=False)
    assert found.ask(HERE, "ada", 1.0) == pytest.approx(0.6)
    assert found.ask(HERE, "ada", 1.6) == 0.0
    assert found.ask(HERE, "ada", 1.6) > 0, "one is being decided"
    found.ended(HERE, "ada", 1.7, right=None)
    assert found.ask(HERE, "ada", 1.7) == 0.0, "it was not decided after all"


def test_right_ones_at_the_same_time_wait_for_each_other_alone() -> None:
    found = throttle()
    for _ in range(10):
        waits = [found.ask(HERE, "ada", 0.0) for _ in range(FREE_OF_USER + 2)]
        assert waits == [0.0] * (FREE_OF_USER + 1) + [AGAIN_S]
        for _ in range(FREE_OF_USER + 1):
            found.ended(HERE, "ada", 0.0, right=True)
    assert not found._counts


def test_who_gives_up_waiting_makes_nobody_wait_longer() -> None:
    """Also not himself: he tries again, sooner than he is let."""
    found = throttle()
    for number in range(8):
        fail(found, HERE, "ada", float(number))
    now = 100.0
    fail(found, HERE, "ada", now)
    for second in range(20):
        assert 0 < found.ask(HERE, "ada", now + second) <= 30.0 - second
    assert found.ask(HERE, "ada", now + 60.0) == 0.0


def test_the_user_is_not_kept_out_elsewhere_nor_are_others_there() -> None:
    found = throttle()
    for number in range(FREE_OF_ADDRESS):
        fail(found, HERE, "ada", float(number))
    assert found.ask(HERE, "ada", 30.0) > 0
    assert found.ask(THERE, "ada", 30.0) == 0
    assert found.ask(HERE, "bob", 30.0) == 0


def test_who_was_here_before_waits_for_no_neighbour_and_no_stranger() -> None:
    found = throttle()
    assert found.ask(HERE, "ada", 0.0) == 0.0
    found.ended(HERE, "ada", 0.0, right=True)
    for number in range(FREE_OF_NAME + 10):
        fail(found, HERE, f"user-{number}", 1.0)
        fail(found, f"198.51.100.{number}", "ada", 1.0)
    assert found.ask(HERE, "ada", 2.0) == 0.0
    assert found.ask(HERE, "bob", 2.0) > 0
    assert 0 < found.ask(THERE, "ada", 2.0) <= 60.0


def test_a_stranger_waits_little_for_what_failed_elsewhere() -> None:
    found = throttle()
    for number in range(FREE_OF_NAME + 10):
        fail(found, f"198.51.100.{number}", "ada", 1.0)
    now = 1.0 + 10 * STRANGERS_S_MAX  # those beyond were decided one after the other
    assert found.ask(THERE, "ada", now) <= STRANGERS_S_MAX


def test_an_address_that_tries_many_names_waits_whatever_the_name() -> None:
    found = throttle()
    for number in range(FREE_OF_ADDRESS + 5):
        fail(found, HERE, f"user-{number}", 1.0)
    assert found.ask(HERE, "another", 1.0) > 0
    for number in range(FREE_OF_ADDRESS + 5):
        fail(found, "", f"user-{number}", 1.0)
    assert found.ask("", "another", 1.0) == 0, "programs of this machine have one address"


def test_a_success_and_a_quiet_time_clear_it() -> None:
    found = throttle()
    for _ in range(10):
        fail(found, HERE, "ada", 1.0)
        fail(found, HERE, "bob", 1.0)
    assert found.ask(HERE, "ada", 100.0) == 0.0
    found.ended(HERE, "ada", 100.0, right=True)
    fail(found, HERE, "ada", 101.0)
    assert found.ask(HERE, "ada", 101.0) == 0.0
    found.ended(HERE, "ada", 101.0, right=None)
    fail(found, HERE, "bob", 101.0)
    now = 101.0 + 30.0
    assert found.ask(HERE, "bob", now - 1.0) > 0
    assert found.ask(HERE, "bob", now + FORGOTTEN_S) == 0.0
    found.ended(HERE, "bob", now + FORGOTTEN_S, right=False)
    assert found.ask(HERE, "bob", now + FORGOTTEN_S) == 0.0, "it begins anew"


def test_it_remembers_so_many() -> None:
    found = throttle()
    for number in range(KEPT_MAX + 100):
        found.ask("", f"user-{number}", 1.0)
        found.ended("", f"user-{number}", 1.0, right=number % 2 == 0)
        found.ask("", f"more-{number}", 1.0)
    assert len(found._counts) == KEPT_MAX
    assert len(found._homes) <= KEPT_MAX
    for number in range(KEPT_MAX + 100):
        found.ended("", f"more-{number}", 1.0, right=None)


def test_what_did_not_fail_is_not_remembered() -> None:
    found = throttle()
    for right in (True, None):
        assert found.ask(HERE, "ada", 1.0) == 0.0
        found.ended(HERE, "ada", 1.0, right=right)
    assert not found._counts


def test_it_can_be_switched_off() -> None:
    found = throttle(longest_s=0.0)
    for _ in range(50):
        fail(found, HERE, "ada", 1.0)
    assert found.ask(HERE, "ada", 1.0) == 0
