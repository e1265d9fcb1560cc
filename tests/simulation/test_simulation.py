"""A few worlds of the simulation, and that it can be trusted: it repeats itself, and it sees what it should."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import nullcontext
from typing import Final

import pytest

from acquit.broker.core import Core
from acquit.broker.nodes.pausing import Pauses
from acquit.broker.nodes.removal import Removal
from acquit.broker.options import AddressRule
from acquit.broker.scribe import Scribe
from acquit.ledger.records import Actor
from tests.simulation import hostile
from tests.simulation.facts import Posting, Seen, Sent, Transaction, Violation, Wall
from tests.simulation.faults import FAULTS
from tests.simulation.hostile import PEERS
from tests.simulation.oracle import DEAD_LETTERS, EXPIRED, Oracle
from tests.simulation.places import TRAITS, Place
from tests.simulation.sweeps import Act
from tests.simulation.termini import Termini
from tests.simulation.users import USERS
from tests.simulation.world import Case, shrink, simulate
from tests.support.examples import share

RESUMING: Final = ("send_once", "receive_once", "relay_once")
_WITHOUT_LEAVING: Final = [name for name in (*USERS, *PEERS) if name not in ("leave", "pause")]
_THOSE: Final = ",".join(_WITHOUT_LEAVING)
_BEFORE: Final = ",".join(name for name in _WITHOUT_LEAVING if not name.startswith(RESUMING))
_SINCE: Final = ("cut_before_it_is_read", "cut_over_a_taken_message", "start_with_less")
_THEN: Final = ",".join(name for name in FAULTS if name not in _SINCE)
"""Users and faults of the worlds in which these were found: with others they would be other worlds."""
KEPT: Final[dict[str, str]] = {
    "seed=9035 work_s=1.27 faults=kill_as_it_starts,kill_before_it_writes,tear_a_batch,kill_client,stand_still,"
    f"slow_disk,sync_error,dead_disk,cut,cut_in_a_transaction,cut_in_a_commit,change_weather users={_BEFORE}": (
        "ids of volatile messages are known to one broker alone"
    ),
    f"seed=99272341 work_s=1.5 faults=kill_as_it_starts users={_BEFORE}": (
        "a message that waits for its body as the broker starts is copied forward as if nobody had had it"
    ),
    "seed=1036 work_s=2.25 faults=kill,kill_in_a_step_of_the_disk,kill_again_and_again,kill_client,cut,"
    f"stand_still,slow_disk,full_disk users={_BEFORE}": (
        "a broker that starts on a full disk ends, and is started again"
    ),
    f"seed=310118 faults={_THEN} users={_THOSE}": (
        "a delivery whose lock had run out is forgotten before its receiver has heard of it"
    ),
    f"seed=310076 faults={_THEN} users={_THOSE}": "what is rejected on a full disk comes again",
}
"""Cases that once showed a fault, of the product or of the world, and which. They are run for ever."""


@pytest.mark.parametrize("seed", range(1, 1 + share(6)))
def test_a_world_keeps_its_promises(seed: int) -> None:
    simulate(Case(seed=seed, work_s=3.0))


def test_faults_that_were_found_are_gone() -> None:
    for case in KEPT:
        simulate(Case.parse(case))


def test_a_case_repeats_itself() -> None:
    case = Case(seed=3, work_s=2.0)
    first, second = simulate(case), simulate(case)
    assert (first.scheduler.calls, first.scheduler.now) == (second.scheduler.calls, second.scheduler.now)
    assert first.oracle.counts == second.oracle.counts
    assert first.oracle.copies == second.oracle.copies


def test_a_case_is_one_line_that_can_be_read_back() -> None:
    case = Case(seed=7, work_s=1.5, faults=("cut", "kill"), users=(), without=(3, 1))
    assert str(case) == "seed=7 work_s=1.5 faults=cut,kill users=none without=3,1"
    assert Case.parse(str(case)) == case
    assert Case.parse("seed=9") == Case(seed=9)


@pytest.mark.pure
def test_a_broker_that_answers_before_the_disk_has_it_is_found_and_the_case_shrunk(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def soon(scribe: Scribe, call: Callable[..., None], *arguments: object) -> None:
        asyncio.get_running_loop().call_soon(call, *arguments)

    monkeypatch.setattr(Scribe, "when_synced", soon)
    case = next(case for case in map(_case, range(1, 20)) if _fails(case))
    smaller = shrink(case)
    assert _fails(smaller)
    assert smaller.work_s < case.work_s or len(smaller.faults) < len(case.faults)


@pytest.mark.pure
def test_an_end_that_is_answered_before_the_disk_has_it_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Removal, "when_recorded", lambda removal, queue, call: call())
    faults = ("kill", "slow_disk", "kill_before_it_writes", "kill_again_and_again")
    cases = (Case(seed=seed, faults=faults, users=("produce", "leave"), traits=()) for seed in range(1, 40))
    assert any(map(_fails, cases))


@pytest.mark.pure
def test_a_pause_that_a_restart_forgets_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Pauses, "restore", lambda pauses: None)
    users = ("produce", "consume", "consume_too", "listen", "receive", "pause")
    cases = (Case(seed=seed, faults=("kill",), users=users, traits=()) for seed in range(1, 40))
    assert any(map(_fails, cases))


def test_what_is_taken_from_a_connection_that_is_gone_may_have_been_retired_by_others() -> None:
    once, queue = (Place(name=name, settings={"max_delivery_attempts": 0}) for name in ("once", "a"))
    oracle = Oracle("once", (once, queue), lambda: 0.0, Wall(lambda: 0.0, 0.0))
    oracle.sends(Posting("m1", "a", durable=True))
    oracle.answered("m1", Sent.ACCEPTED)
    seen, late = Seen("a", 1, "m1"), Transaction("late")
    oracle.connection_broke("gone")
    oracle.arrives(seen, "another")
    oracle.retires(1)
    oracle.retired(1)
    oracle.takes(seen, "gone", late)
    oracle.rolled_back(late)
    oracle.drained({"a": [], DEAD_LETTERS: [], EXPIRED: []}, 0.0)
    oracle.takes(seen, "gone", late := Transaction("later"))
    oracle.commits(late)
    with pytest.raises(Violation, match="again: "):
        oracle.committed(late)


def test_what_was_handed_out_over_a_connection_that_may_be_gone_may_have_failed() -> None:
    once, queue = (Place(name=name, settings={"max_delivery_attempts": 1}) for name in ("once", "a"))
    oracle = Oracle("once", (once, queue), lambda: 0.0, Wall(lambda: 0.0, 0.0))
    oracle.sends(Posting("m1", "a", durable=True))
    oracle.answered("m1", Sent.ACCEPTED)
    letter = Seen(DEAD_LETTERS, 2, "m1", origin=1, origin_queue="a")
    with pytest.raises(Violation, match="letter: "):
        oracle.drained({"a": [], DEAD_LETTERS: [letter], EXPIRED: []}, 0.0)
    oracle.connection_broke("held up")
    oracle.arrives(Seen("a", 1, "m1"), "held up")
    oracle.drained({"a": [], DEAD_LETTERS: [letter], EXPIRED: []}, 0.0)


@pytest.mark.parametrize("given_up", [False, True])
def test_what_a_client_looks_at_late_is_no_news_only_if_the_broker_gave_it_up(*, given_up: bool) -> None:
    """A client stood still with a message; another got it, and its commit was answered; then the first one looks."""
    once, queue = (Place(name=name, settings={"max_delivery_attempts": 0}) for name in ("once", "a"))
    oracle = Oracle("once", (once, queue), lambda: 0.0, Wall(lambda: 0.0, 0.0))
    oracle.is_cut = lambda connection: given_up and connection == "still#1"
    oracle.sends(Posting("m1", "a", durable=True))
    oracle.answered("m1", Sent.ACCEPTED)
    oracle.connection_broke("other#1")  # it may have added one to any delivery-count
    oracle.takes(Seen("a", 1, "m1", fresh=False, count=1), "other#2", taker := Transaction("taker"))
    oracle.commits(taker)
    oracle.committed(taker)
    if given_up:
        oracle.arrives(Seen("a", 1, "m1"), "still#1")
        assert oracle.is_broken("still#1")
        assert not oracle.is_broken("other#2")
    else:
        with pytest.raises(Violation, match="whole: "):
            oracle.arrives(Seen("a", 1, "m1"), "still#1")


@pytest.mark.parametrize("heard", [False, True])
def test_only_a_release_that_was_applied_tells_that_a_message_was_given_out_anew(*, heard: bool) -> None:
    """One failed and holds up its queue until it is tried again; what is behind it is given out nevertheless."""
    now = 0.0
    settings = {"max_delivery_attempts": 0, "redelivery_blocks": "queue", "redelivery_delay_ms": 10_000}
    once, queue = Place(name="once", settings={"max_delivery_attempts": 0}), Place(name="a", settings=settings)
    oracle = Oracle("once", (once, queue), lambda: now, Wall(lambda: now, 0.0))
    first, second = Seen("a", 1, "m1"), Seen("a", 2, "m2")
    for seen in (first, second):
        oracle.sends(Posting(seen.key, "a", durable=True))
        oracle.answered(seen.key, Sent.ACCEPTED)
        oracle.arrives(seen, "one")
    now = 1.0
    oracle.fails(1)
    oracle.failed(1, 0, now)
    now = 2.0
    oracle.gives_back(2)
    if heard:
        oracle.applied(second, now, late=False, retires=False)
    with pytest.raises(Violation, match="blocked: ") if heard else nullcontext():
        oracle.arrives(Seen("a", 2, "m2", fresh=False, count=0), "another")


@pytest.mark.parametrize(("locks", "again_s"), [(True, 1.047), (True, 1.051), (False, 1.051), (False, 1.091)])
def test_a_failure_that_is_said_late_was_one_as_the_lock_ran_out(*, locks: bool, again_s: float) -> None:
    """It was said 40 ms after that, and is told to be applied: a lock that runs out is a failed attempt, too."""
    now = 0.0
    settings = {"max_delivery_attempts": 0, "redelivery_delay_ms": 50, "lock_duration_ms": 1_000}
    traits = frozenset({"delays", "locks"} if locks else {"delays"})
    once, queue = (
        Place(name="once", settings={"max_delivery_attempts": 0}),
        Place(name="a", traits=traits, settings=settings),
    )
    oracle = Oracle("once", (once, queue), lambda: now, Wall(lambda: now, 0.0))
    oracle.sends(Posting("m1", "a", durable=True))
    oracle.answered("m1", Sent.ACCEPTED)
    oracle.arrives(Seen("a", 1, "m1"), "one")
    now = 1.04
    oracle.fails(1)
    oracle.failed(1, 0, now)
    now = again_s
    early = again_s < (1.05 if locks else 1.09)
    with pytest.raises(Violation, match="time: ") if early else nullcontext():
        oracle.arrives(Seen("a", 1, "m1", fresh=False, count=1), "another")


def test_a_store_that_lags_may_tell_of_a_terminus_that_another_one_has_followed() -> None:
    now = 0.0
    once = Place(name="once", settings={})
    termini = Termini(Oracle("once", (once,), lambda: now, Wall(lambda: now, 0.0)), kept_ms=300.0)
    terminus = termini.asks("client/in", "client#1", anew=False)
    for identity in (b"1", b"2", b"3"):
        termini.learns("client/in", identity)
    termini.identified("client/in", b"1")
    termini.broke("client#1")
    now = 1.0
    termini.identified("client/in", b"3")
    termini.attached(terminus, "client#1", b"3")
    termini.identified("client/in", b"2")
    assert terminus.identity == b"3"
    termini.learns("client/in", b"4")
    with pytest.raises(Violation, match="was ended before its time"):
        termini.identified("client/in", b"4")


@pytest.mark.parametrize("set_at_s", [(), (6.0, 7.0), (2.0, 3.0), (0.5, 0.7), (4.2, 4.4)])
def test_a_cancel_takes_what_was_not_due_before_it_however_the_clock_was_set_since(set_at_s: tuple[float, ...]) -> None:
    """The clock is set an hour forward at one of these moments, and back at the next."""
    now = 0.0
    wall = Wall(lambda: now, 0.0)
    once, queue = (Place(name=name, settings={"max_delivery_attempts": 0}) for name in ("once", "a"))
    oracle, act, asked = Oracle("once", (once, queue), lambda: now, wall), Act("cancel", "a"), (0.0, 0.0, 0)
    oracle.sends(Posting("m2", "a", durable=True))
    oracle.browses(Seen("a", 2, "m2"), "somebody")
    for now in sorted({0.0, 1.0, 4.0, 5.0, 8.0, *set_at_s}):
        if now in set_at_s:
            wall.ahead_us = 0 if wall.ahead_us else 3_600_000_000
        elif now == 0.0:
            oracle.sends(Posting("m1", "a", durable=True, delay_ms=60_000))
        elif now == 1.0:
            oracle.answered("m1", Sent.ACCEPTED)
        elif now == 4.0:
            asked = oracle.asks(act)
        elif now == 5.0:
            oracle.done(act, asked)
    with nullcontext() if 0.0 < min(set_at_s, default=0.0) < 5.0 else pytest.raises(Violation, match="swept: "):
        oracle.drained({"a": [Seen("a", 1, "m1")], DEAD_LETTERS: [], EXPIRED: []}, 8.0)


@pytest.mark.parametrize("name", FAULTS)
def test_each_fault_strikes(name: str) -> None:
    users, traits = ("honest", "transact"), tuple(TRAITS)
    if name == "cut_over_a_taken_message":
        users, traits = ("produce", "receive_once", "receive_once_too"), ("locks",)
    cases = (Case(seed=seed, work_s=1.5, faults=(name,), users=users, traits=traits) for seed in range(1, 10))
    assert any(simulate(case).faults[name] for case in cases), name


def test_attackers_are_told_why_something_ends_and_a_reason_that_does_not_exist_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(hostile, "CONDITIONS", frozenset())
    assert any(_fails(Case(seed=seed, work_s=2.0, faults=(), users=("attack",))) for seed in range(1, 10))


def test_a_broker_that_writes_while_nobody_does_anything_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    tick = Core.tick

    def write(core: Core, time_us: int) -> None:
        core.scribe.recorder.append(Actor(time_us, 1, "c", "l", "", "a"))
        tick(core, time_us)

    monkeypatch.setattr(Core, "tick", write)
    with pytest.raises(Violation, match="rest: "):
        simulate(Case(seed=1, work_s=0.5, faults=(), users=("produce",)))


@pytest.mark.parametrize(
    ("trait", "wrong", "first"),
    [
        ("attempts", {"max_delivery_attempts": 5}, 22),
        ("full", {"messages_max": 70}, 6),
        ("last_value", {"last_value": False}, 1),
        ("single", {"consumers": "shared"}, 9),
        ("groups", {"message_groups": False}, 9),
        ("unique", {"duplicate_detection": "off"}, 1),
    ],
)
def test_a_policy_that_is_not_kept_is_found(
    trait: str, wrong: dict[str, object], first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By one of forty worlds; it was the `first` when worlds were last changed."""

    def rule(place: Place) -> AddressRule:
        return AddressRule(place.name, {**place.settings, **wrong} if trait in place.traits else place.settings)

    monkeypatch.setattr(Place, "rule", property(rule))
    users = ("produce", "consume", "consume_too", "listen")
    cases = (Case(seed=seed, work_s=2.0, faults=(), users=users, traits=(trait,)) for seed in range(first, first + 40))
    assert any(map(_fails, cases))


def _case(seed: int) -> Case:
    faults = ("kill", "kill_in_a_step_of_the_disk", "kill_again_and_again", "slow_disk")
    return Case(seed=seed, work_s=2.0, faults=faults, users=("produce", "produce_too"), traits=())


def _fails(case: Case) -> bool:
    try:
        simulate(case)
    except Violation:
        return True
    return False
