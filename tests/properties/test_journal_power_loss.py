"""Power is lost at every moment there is; what was answered is there afterwards, and nothing that was not recorded.

The disk (`acquit.testing.simulation.disk`) dies in each step of a short life in turn: a write, a sync, a rename. Of
what was not synced, nothing survives, or everything, or blocks in any combination. The next process must find exactly
one of the states that the journal was told, none older than what was answered, and be able to go on; that one dies,
too.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acquit.errors import StoreFailed, StoreFull
from acquit.ledger.verify import verify
from acquit.store.options import JournalOptions
from acquit.store.segment import HEADER_BYTES, SegmentHeader
from acquit.testing.simulation.disk import FaultyDisk, PowerLoss, all_survives, none_survives
from tests.support.examples import share
from tests.support.mini_broker import DATA, SMALL, Clock, History, MiniBroker, check_recovered

TINY = JournalOptions(
    segment_bytes=16 * 1024,
    first_segment_bytes=8 * 1024,
    alignment_bytes=512,
    reserve_segments=1,
    spare_segments=0,
    recovery_bytes_max=24 * 1024,
    archive_bytes_max=24 * 1024,
)
"""Segments so small that a short life has every kind of step in it: sealing, archiving, deleting."""
ERASING = replace(TINY, archive_bytes_max=1 << 20, erase_bodies_after_s=1, retry_ms=20)
"""Segments leave for their age, and the bodies in them are erased; nothing is deleted."""
STEP_US = {TINY: 10, SMALL: 10, ERASING: 3_000}
"""How fast time goes with these options."""


class World:
    """One truth, one clock, and a disk that dies and comes back."""

    def __init__(self, seed: int, options: JournalOptions) -> None:
        self.rng = random.Random(seed)
        self.options = options
        self.truth = History()
        self.clock = Clock(STEP_US[options])

    def life(self, disk: FaultyDisk, turns: int, *, stays: bool = False) -> bool:
        """A process opens the folder and lives for so many turns. False when power was lost on the way. `stays`: it
        begins with a message in a queue where nothing else happens, and ends by a kill."""
        try:
            broker = MiniBroker(disk, self.rng, truth=self.truth, options=self.options, clock=self.clock)
            check_recovered(broker)
            if stays:
                broker.leave_alone(b"stays")
            broker.live_on(turns, sync=0.6, chores=0.5)
            if turns and not stays and self.rng.random() < 0.5:
                broker.close()
        except PowerLoss:
            return False
        assert verify(DATA, disk=disk).problems == ()
        check_erased(disk, self.truth)
        return True


def erased_segments(disk: FaultyDisk) -> list[bytes]:
    """The segments that have no bodies any more, as they stand on the disk."""
    paths = [path for path in disk.paths() if path.parent.name == "archive" and path.suffix == ".seg"]
    found = [bytes(disk.content(path)) for path in paths]
    return [content for content in found if SegmentHeader.decode(content[:HEADER_BYTES], "").erased]


def check_erased(disk: FaultyDisk, truth: History) -> None:
    bodies = [body for body in truth.payloads.values() if len(body) >= 16]
    for content in erased_segments(disk):
        assert not any(body in content for body in bodies)


def steps_of(seed: int, turns: int, options: JournalOptions) -> int:
    """How many steps the disk takes in this life."""
    disk = FaultyDisk()
    assert World(seed, options).life(disk, turns)
    return disk.steps


SEED, TURNS = 37, 60


def test_the_life_has_every_kind_of_step() -> None:
    """Otherwise the test below would not mean much."""
    disk = FaultyDisk()
    World(SEED, TINY).life(disk, TURNS)
    names = [path.name for path in disk.paths()]
    archived = [path for path in disk.paths() if path.parent.name == "archive"]
    assert any(name.endswith(".stub") for name in names), "nothing was deleted"
    assert any(path.suffix == ".seg" for path in archived), "nothing was archived"
    assert any(name.endswith(".events") for name in names)
    disk = FaultyDisk()
    World(SEED, ERASING).life(disk, TURNS)
    assert len(erased_segments(disk)) >= 3


@pytest.mark.promise("durable")
@pytest.mark.parametrize(
    ("part", "options"),
    [
        *(pytest.param(part, TINY, id=f"{part}") for part in range(share(8))),
        *(
            pytest.param(part, ERASING, id=f"erasing-{part}", marks=[pytest.mark.slow] * (part > 1))
            for part in range(8)
        ),
    ],
)
def test_power_lost_in_every_step(part: int, options: JournalOptions) -> None:
    steps = steps_of(SEED, TURNS, options)
    for step in range(part, steps, 8):
        # Nothing survives, or all of it, in turns, and in any case blocks by chance.
        for survives in ((none_survives, all_survives)[step // 8 % 2], coin(step)):
            world = World(SEED, options)
            disk = FaultyDisk(power_loss_at=step)
            assert not world.life(disk, TURNS)
            assert world.life(disk.after_power_loss(survives), TURNS if step % 16 == part else 1), step


def biased(rng: random.Random, share: float) -> Callable[[], bool]:
    return lambda: rng.random() < share


def coin(*seed: int) -> Callable[[], bool]:
    return biased(random.Random(repr(seed)), 0.5)


@pytest.mark.promise("durable")
def test_power_lost_in_every_step_of_a_recovery() -> None:
    """A torn batch, then a recovery that is itself cut short wherever it can be; then one that is not."""
    base = steps_of(SEED, TURNS, TINY) * 2 // 3
    step = 0
    while True:
        for salt in range(3):
            world = World(SEED, TINY)
            first = FaultyDisk(power_loss_at=base)
            assert not world.life(first, TURNS)
            second = first.after_power_loss(coin(salt))
            second.power_loss_at = step
            survived = world.life(second, 0)
            assert world.life(second.after_power_loss(coin(step, salt)), 1)
        if survived:
            break
        step += 1
    assert step > 5, "a recovery takes more steps than this"


@pytest.mark.promise("durable")
@settings(max_examples=share(60))
@given(
    seed=st.integers(0, 1 << 32),
    lives=st.lists(st.tuples(st.integers(0, 150), st.integers(0, 600), st.floats(0, 1)), min_size=1, max_size=4),
    options=st.sampled_from([SMALL, TINY, ERASING]),
)
def test_power_lost_again_and_again(seed: int, lives: list[tuple[int, int, float]], options: JournalOptions) -> None:
    world = World(seed, options)
    disk = FaultyDisk()
    for turns, die_at, surviving in lives:
        disk.power_loss_at = die_at
        world.life(disk, turns)
        disk = disk.after_power_loss(biased(world.rng, surviving))
    assert world.life(disk, 1)


@pytest.mark.promise("durable")
@pytest.mark.parametrize("survives", [all_survives, none_survives])
@pytest.mark.parametrize("seed", range(share(4)))
def test_killed_as_it_starts_again_and_again(seed: int, survives: Callable[[], bool]) -> None:
    """As a container that loops in crashes is: in each round some starts end in one of their first steps, most of them
    before the first batch; then one lives for a while, and takes messages along that nobody ever settles."""
    rng = random.Random(seed)
    world = World(seed, TINY)
    disk = FaultyDisk()
    for _ in range(8):
        for _ in range(3):
            disk.power_loss_at = rng.randrange(15)
            world.life(disk, 0)
            disk = disk.after_power_loss(survives)
        assert world.life(disk, 30, stays=True)
        disk = disk.after_kill()
    assert world.life(disk, 1)


@pytest.mark.promise("durable")
@settings(max_examples=share(40))
@given(seed=st.integers(0, 1 << 32), capacity_kib=st.integers(200, 800), short=st.booleans())
def test_a_disk_that_gets_full_loses_nothing(seed: int, capacity_kib: int, short: bool) -> None:
    """Postings are refused, a batch waits and is written again from the same offset, and a power loss in this state
    finds what was answered."""
    world = World(seed, SMALL)
    disk = FaultyDisk(capacity_bytes=capacity_kib * 1024, short_writes=random.Random(seed) if short else None)
    broker = MiniBroker(disk, world.rng, truth=world.truth, options=SMALL, clock=world.clock)
    refused = 0
    for _ in range(60):
        try:
            broker.live_on(1, sync=0.7, chores=0.7)
        except StoreFull:
            refused += 1
            broker.clock.us += 2_000_000
            if refused == 20:
                disk.capacity_bytes = None
    after = disk.after_power_loss(coin(seed))
    assert world.life(after, 1)


@pytest.mark.promise("durable")
@settings(max_examples=share(60))
@given(seed=st.integers(0, 1 << 32), error_at=st.integers(0, 120), surviving=st.floats(0, 1))
def test_after_an_io_error_nothing_is_accepted(seed: int, error_at: int, surviving: float) -> None:
    world = World(seed, SMALL)
    disk = FaultyDisk(errors={error_at: 5})
    try:
        broker = MiniBroker(disk, world.rng, truth=world.truth, options=SMALL, clock=world.clock)
        broker.live_on(60, sync=0.8, chores=0.5)
    except StoreFailed:
        pass
    else:
        return
    assert world.life(disk.after_power_loss(biased(world.rng, surviving)), 1)


@pytest.mark.promise("durable")
@pytest.mark.slow
def test_many_lives(rng: random.Random, soak_rounds: int) -> None:
    """Long ones, one after the other, each ended by a loss of power or in order."""
    for _ in range(soak_rounds * 5):
        world = World(rng.getrandbits(32), rng.choice([SMALL, TINY]))
        disk = FaultyDisk()
        for _ in range(rng.randrange(1, 7)):
            disk.power_loss_at = rng.randrange(500) if rng.random() < 0.8 else None
            if rng.random() < 0.3:
                disk.short_writes = random.Random(rng.getrandbits(32))
            world.life(disk, rng.randrange(200))
            disk = disk.after_power_loss(biased(rng, rng.random()))
        assert world.life(disk, 1)
