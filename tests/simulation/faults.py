"""What goes wrong in a world, as a table: each fault is a function that does its harm at once, or prepares it.

`state_of` says what the broker was doing, in one word, when a fault struck. Pairs of both are counted, so that a run
can say which it never reached.
"""

from __future__ import annotations

import errno
import math
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Final, NamedTuple

from acquit.broker.links.terminus import SourceTerminus
from acquit.testing.simulation.disk import BLOCK_BYTES
from tests.simulation.limits import draw_less

if TYPE_CHECKING:
    from acquit.broker.committer import Committer
    from acquit.broker.server import Server
    from acquit.store.interface import Batch
    from acquit.testing.simulation.network import TcpConnection, TcpEnd
    from tests.simulation.world import World


NOTICES_S: Final = 1.0
"""Within which the broker notices that there is room again."""
NOTICES: Final = (*((True, True), (True, False)) * 2, (False, True), (False, False))
"""Whether client and broker hear of a cut: most clients do, for one that does not is idle until its time is over."""
DISCHARGE: Final = b"\x00\x53\x77\x00\x53\x32"
"""How the message begins that ends a transaction (4.5.7)."""


class Fault(NamedTuple):
    """One kind of harm."""

    strike: Callable[[World], bool | None]
    """False where there was nothing to be harmed."""
    weight: int
    """How often it is drawn, compared with others, where nothing is aimed at."""
    kind: str
    """Some worlds are spared all of a kind: what waits for somebody to notice is not to be ended by something else."""
    aim: str = ""
    """What it waits for by itself; "": it strikes at once, or waits for a state of the broker (`aims`)."""


# -- processes ---------------------------------------------------------------------------------------------------------


def kill(world: World) -> None:
    """SIGKILL for the broker, between two turns: also while it starts, or before it has begun to."""
    if world.broker is not None:
        world.broker.kill()


def kill_in_a_step_of_the_disk(world: World) -> None:
    """SIGKILL or loss of power in one of its next steps on the disk."""
    world.disk.power_loss_at = world.disk.steps + world.fault_rng.randrange(12)


def kill_again_and_again(world: World) -> None:
    """A container that crashes in a loop: none of these lives gets far."""
    for number in range(world.fault_rng.randint(2, 6)):
        world.scheduler.later(number * 0.5 + world.fault_rng.random() * 0.5, kill, world)


def kill_as_it_starts(world: World) -> None:
    """The next few lives end in one of their first steps on the disk, from exec to the first batches."""
    world.doomed = world.fault_rng.randint(1, 4)
    kill(world)


def start_with_less(world: World) -> None:
    """SIGKILL for the broker, and the next one is configured to grant its connections less: what clients have had does
    not fit any more."""
    world.less = draw_less(world.fault_rng)
    kill(world)


def kill_before_it_writes(world: World) -> bool:
    """SIGKILL for the broker when it has said something, and holds a batch that is not written: nothing of what it said
    may depend on that."""
    held = _batch_under_way(world) is not None or _lingers(world)
    if not held or not any(link.server.out.size for link in world.network.links):
        return False
    kill(world)
    return True


def tear_a_batch(world: World) -> bool:
    """Loss of power in the very write of a batch: some of its blocks are there, and others are not."""
    batch = _batch_under_way(world)
    if batch is None or batch.size_bytes <= BLOCK_BYTES:
        return False
    world.disk.power_loss_at = world.disk.steps
    world.power_fails = True
    return True


def _batch_under_way(world: World) -> Batch | None:
    """The batch that the broker's thread has been given, and has not written."""
    committer = _committer(world)
    return None if committer is None else committer._in_flight


def _lingers(world: World) -> bool:
    """Whether the next batch waits for somebody who waits for it."""
    committer = _committer(world)
    return committer is not None and committer._linger is not None


def _committer(world: World) -> Committer | None:
    alive = world.broker is not None and not world.broker.dead
    committer = getattr(world.server, "_committer", None) if alive else None
    return None if committer is None or committer.failure is not None else committer


def stop(world: World) -> bool:
    """SIGTERM for the broker; perhaps it is killed while it stops."""
    if world.fault_rng.random() < 0.3:
        world.scheduler.later(world.fault_rng.random() * 0.2, kill, world)
    return world.stop_broker()


def kill_client(world: World) -> bool:
    """SIGKILL for a client; another takes its place, under its name. Half of the time it is one whose store lags behind
    what it has heard, if there is such."""
    numbers = range(len(world.case.users) or 1)
    behind = [number for number in numbers if (work := world.works.get(f"client-{number}")) and work.store.behind]
    number = world.fault_rng.choice(behind if behind and world.fault_rng.random() < 0.5 else numbers)
    process = world.clients.get(f"client-{number}")
    if process is None or process.dead:
        return False
    process.kill()
    world.broke(process)
    world.scheduler.later(world.fault_rng.random(), world.start_client, number)
    return True


def stand_still(world: World) -> bool:
    """SIGSTOP for anybody, and SIGCONT."""
    alive = [process for process in world.processes if not process.dead]
    if not alive:
        return False
    process = world.fault_rng.choice(alive)
    process.stands_still_until = world.scheduler.now + world.fault_rng.choice((0.05, 0.5, 3.0))
    return True


# -- the disk ----------------------------------------------------------------------------------------------------------


def slow_disk(world: World) -> bool:
    """Each operation takes long, for a while."""
    process = world.broker
    if process is None or process.dead:
        return False
    usual, process.delay_max_s = 0.002, world.fault_rng.choice((0.05, 0.5, 5.0))
    world.scheduler.later(1.0, setattr, process, "delay_max_s", usual)
    return True


def full_disk(world: World) -> None:
    """No more room, for a while."""
    disk = world.disk
    world.oracle.no_room_until_s = math.inf
    disk.capacity_bytes = disk.used_bytes + world.fault_rng.choice((0, 2_000, 30_000))
    world.scheduler.later(world.fault_rng.random() * 2, _make_room, world)


def _make_room(world: World) -> None:
    world.oracle.no_room_until_s = world.scheduler.now + NOTICES_S
    world.disk.capacity_bytes = None


def short_writes(world: World) -> None:
    """The disk takes less than it is given, for a while."""
    world.disk.short_writes = Random(world.fault_rng.getrandbits(64))
    world.scheduler.later(1.0, _write_whole, world)


def _write_whole(world: World) -> None:
    world.disk.short_writes = None


def io_error(world: World) -> None:
    """EIO in one of the next steps on the disk, once."""
    world.disk.errors[world.disk.steps + world.fault_rng.randrange(12)] = errno.EIO


def sync_error(world: World) -> None:
    """The next sync fails, and what it was for may be forgotten."""
    world.disk.sync_errors = 1


def read_error(world: World) -> None:
    """The next read fails."""
    world.disk.read_errors = 1


def no_descriptors(world: World) -> None:
    """No file is opened, for a while: the process, or the system, has no descriptor left."""
    world.disk.unopened = world.fault_rng.choice((errno.EMFILE, errno.ENFILE))
    world.scheduler.later(world.fault_rng.random() * 2, _give_descriptors, world)


def _give_descriptors(world: World) -> None:
    world.disk.unopened = None


def dead_disk(world: World) -> None:
    """EIO for everything, until somebody changes the cable."""
    world.disk.failing = errno.EIO
    world.scheduler.later(world.fault_rng.random() * 2, _mend_disk, world)


def _mend_disk(world: World) -> None:
    world.disk.failing = None


# -- the network -------------------------------------------------------------------------------------------------------


def _some_link(world: World) -> TcpConnection | None:
    links = [link for link in world.network.links if not link.over]
    return world.fault_rng.choice(links) if links else None


def cut(world: World) -> bool:
    """A connection is gone, at any byte; each end hears of it, or does not."""
    link = _some_link(world)
    if link is None:
        return False
    _cut(world, link)
    return True


def cut_before_it_is_read(world: World) -> bool:
    """A connection is gone, and what had arrived is not read by then: a write has failed before."""
    links = [link for link in world.network.links if not link.is_cut and link.client.into.size + link.server.into.size]
    if not links:
        return False
    link = world.fault_rng.choice(links)
    world.broke(link.client.process)
    link.cut(notices=(True, True), unread=True)
    return True


def cut_in_a_transaction(world: World) -> bool:
    """A connection is gone between the steps of a transaction, or before its commit is answered."""
    busy = {
        holder.name for holder in world.holders.values() if holder.transaction is not None and holder.transaction.posts
    }
    links = [link for link in world.network.links if not link.over and link.client.process.name in busy]
    if not links:
        return False
    link = world.fault_rng.choice(links)
    world.scheduler.later(world.fault_rng.random() * 0.01, _cut, world, link)
    return True


def cut_in_a_commit(world: World) -> bool:
    """A connection is gone between a commit and its answer: the broker never hears the one, or the client the other."""
    links = [link for link in world.network.links if not link.is_cut and link.client.out.carries(DISCHARGE)]
    if not links:
        return False
    link = world.fault_rng.choice(links)
    _deafen(world, world.fault_rng.choice((link.client, link.server)), (0.01, 0.1))
    return True


def cut_over_a_taken_message(world: World) -> bool:
    """A receiver that resumes hears no more, just after a message was taken from it, and its connection is gone: what
    it says of the message is answered, and the answer is lost."""
    server = world.server if state_of(world.server) != "down" else None
    core = getattr(server, "_core", None)
    if core is None:
        return False
    holding = {
        name.container
        for name, terminus in core._termini._by_name.items()
        if isinstance(terminus, SourceTerminus) and terminus.taken and terminus.attached is not None
    }
    links = [link for link in world.network.links if not link.is_cut and link.client.process.name in holding]
    if not links:
        return False
    _deafen(world, world.fault_rng.choice(links).client, (0.1, 0.5, 1.0))
    return True


def deafen(world: World) -> bool:
    """Nothing of a direction arrives any more, and the other goes on; in the end the connection is gone."""
    link = _some_link(world)
    if link is None:
        return False
    _deafen(world, world.fault_rng.choice((link.client, link.server)), (0.01, 0.1, 3.0, 10.0))
    return True


def _deafen(world: World, end: TcpEnd, cut_after_s: tuple[float, ...]) -> None:
    world.broke(end.link.client.process)
    end.into.cut(int(world.fault_rng.random() * (end.into.size + 1)))
    world.scheduler.later(world.fault_rng.choice(cut_after_s), _cut, world, end.link)


def _cut(world: World, link: TcpConnection) -> None:
    if link.over:
        return
    world.broke(link.client.process)
    link.cut(notices=world.fault_rng.choice(NOTICES))


def half_close(world: World) -> bool:
    """One direction of a connection ends, behind what is under way; the other goes on."""
    link = _some_link(world)
    if link is None:
        return False
    world.broke(link.client.process)
    world.fault_rng.choice((link.client, link.server)).out.end()
    return True


def hold_up(world: World) -> bool:
    """Nothing of a direction arrives for a while, and then all of it: the other end may have given up by then."""
    link = _some_link(world)
    if link is None:
        return False
    world.broke(link.client.process)
    world.fault_rng.choice((link.client, link.server)).out.hold(world.fault_rng.choice((0.05, 0.5, 3.0, 10.0)))
    return True


def change_weather(world: World) -> None:
    """The network gets slower or faster, and splits into other pieces."""
    weather = world.network.weather
    weather.jitter_s = world.fault_rng.choice((0.0, 0.001, 0.02, 0.2))
    weather.piece_bytes_max = world.fault_rng.choice((1 << 20, 1_000, 40, 7))


# -- time --------------------------------------------------------------------------------------------------------------


def set_clock(world: World) -> None:
    """The time of day jumps. The steady clock does not."""
    world.wall.ahead_us += world.fault_rng.choice((-3_600_000_000, -2_000_000, 2_000_000, 3_600_000_000))


FAULTS: Final = {
    fault.strike.__name__: fault
    for fault in (
        Fault(kill, 2, "broker"),
        Fault(kill_in_a_step_of_the_disk, 2, "broker"),
        Fault(kill_again_and_again, 2, "broker"),
        Fault(kill_as_it_starts, 2, "broker"),
        Fault(start_with_less, 2, "broker"),
        Fault(kill_before_it_writes, 5, "broker", "an answer and a batch are under way"),
        Fault(tear_a_batch, 5, "broker", "a batch of several blocks is about to be written"),
        Fault(stop, 1, "broker"),
        Fault(kill_client, 2, "client"),
        Fault(stand_still, 2, "client"),
        Fault(slow_disk, 2, "disk"),
        Fault(full_disk, 2, "disk"),
        Fault(short_writes, 1, "disk"),
        Fault(io_error, 1, "disk"),
        Fault(sync_error, 1, "disk"),
        Fault(read_error, 1, "disk"),
        Fault(dead_disk, 1, "disk"),
        Fault(no_descriptors, 1, "disk"),
        Fault(cut, 6, "network"),
        Fault(cut_before_it_is_read, 20, "network", "something is under way"),
        Fault(cut_in_a_transaction, 6, "network", "somebody has posted in a transaction"),
        Fault(cut_in_a_commit, 5, "network", "a commit is under way"),
        Fault(cut_over_a_taken_message, 20, "network", "a message was taken from a receiver that resumes"),
        Fault(deafen, 2, "network"),
        Fault(half_close, 1, "network"),
        Fault(hold_up, 2, "network"),
        Fault(change_weather, 1, "network"),
        Fault(set_clock, 2, "time"),
    )
}


def draw_faults(rng: Random, names: tuple[str, ...]) -> tuple[str, ...]:
    """Those of these faults that strike in one world: without some kinds, unless nothing would be left."""
    spared = {kind for kind in dict.fromkeys(fault.kind for fault in FAULTS.values()) if rng.random() < 0.3}
    return tuple(name for name in names if FAULTS[name].kind not in spared) or names


def heal(world: World) -> None:
    """Nothing is wrong any more."""
    _make_room(world)
    world.doomed = 0
    if world.less or world.options is not world.usual:
        world.less = {}
        kill(world)
    world.heal()


# -- what the broker is doing ------------------------------------------------------------------------------------------

STATES: Final = (
    "down",
    "reading the journal",
    "before its first batch",
    "failed",
    "stopping",
    "without room",
    "moving the oldest segment",
    "reading bodies",
    "writing a batch",
    "housekeeping",
    "at rest",
)
"""The first of these that is so."""


LEADS_TO: Final = {
    "down": kill,
    "reading the journal": kill,
    "before its first batch": kill,
    "failed": sync_error,
    "stopping": stop,
    "without room": full_disk,
}
"""Faults that bring about what is rare by itself."""

IMPOSSIBLE: Final = {
    ("stop", "down"): "nobody is there to hear the signal",
    ("stop", "reading the journal"): "the command hears signals once it has started",
    ("stop", "stopping"): "a second signal does not wait, and is a kill",
    ("stop", "failed"): "it stops by itself",
    ("slow_disk", "down"): "nobody works",
    **{(name, state): fault.aim for name, fault in FAULTS.items() if fault.aim for state in STATES},
}
"""Pairs that cannot be reached, or that nobody aims at, and why."""


def aims(names: tuple[str, ...]) -> list[tuple[str, str]]:
    """Pairs of these faults and states that do not come about often enough by themselves, and can be waited for."""
    possible = [state for state in STATES[:-1] if state not in LEADS_TO or LEADS_TO[state].__name__ in names]
    return [(name, state) for name in names for state in possible if (name, state) not in IMPOSSIBLE]


def state_of(server: Server | None) -> str:
    """What a broker is doing; None: there is none."""
    if server is None:
        return "down"
    committer = getattr(server, "_committer", None)
    if committer is None:
        return "reading the journal"
    if committer.failure is not None:
        return "failed"
    if server._stopping:
        return "stopping"
    if committer._no_room or server._opened.journal.full:
        return "without room"
    journal = server._opened.journal
    if journal.synced == journal.segments[-1].base:
        return "before its first batch"
    if server._checkpointer.active:
        return "moving the oldest segment"
    if server._reader._jobs:  # type: ignore[attr-defined]  # a SimulatedWorker
        return "reading bodies"
    if committer._in_flight is not None:
        return "writing a batch"
    return "housekeeping" if committer._chore is not None else "at rest"


__all__ = ["FAULTS", "IMPOSSIBLE", "LEADS_TO", "STATES", "Fault", "aims", "draw_faults", "heal", "state_of"]
