"""A whole system on one seed: a real broker, real clients, and everything that machines and networks do to them.

The broker is `acquit.broker.server.Server` with its committer, checkpointer, recovery and chores, on a disk that
tears, forgets and fills (`acquit.testing.simulation.disk`); the clients are `acquit.aio`. All of them are processes in
virtual time (`loops`) on a network in memory (`network`). `World.run` lets users work while faults strike, then has
the faults end, and holds what is left against the oracle.

A run is a function of its seed: configuration, users, faults and the order of all turns are drawn from it, and every
source of chance in the product is fed by it (`seeded`).
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import count
from random import Random
from typing import Any, Final

import acquit.aio
from acquit.broker import parking
from acquit.broker.options import BrokerOptions
from acquit.client.receipts import ReceiptStatus
from acquit.ledger.balance import balance
from acquit.ledger.recovery import open_journal
from acquit.store.options import JournalOptions
from acquit.testing.simulation.loops import START_S, Process
from acquit.testing.simulation.system import DATA, Simulation, seeded
from tests.simulation.audits import ERASING_S, check_books, check_credit, check_disk, check_erased, live_bytes
from tests.simulation.facts import Seen, Violation, Wall
from tests.simulation.faults import FAULTS, LEADS_TO, aims, draw_faults, heal, state_of
from tests.simulation.hostile import ATTACKED, PEERS
from tests.simulation.limits import draw_limits
from tests.simulation.oracle import DEAD_LETTERS, EXPIRED, Oracle
from tests.simulation.pausing import resume_all
from tests.simulation.places import TRAITS, Place, draw
from tests.simulation.resuming import KEPT_MS, Work, come_back, end_termini, unsent
from tests.simulation.users import OPTIONS, URL, USERS, Holder, live, see
from tests.support.broker_world import check_accounts

WORK_S: Final = 6.0
WORK_S_MIN: Final = 0.1
"""Below which nothing is gained by a shorter case."""
RUNS_MAX: Final = 200
"""Worlds that are run to find a simpler case."""
SHRINKING_S: Final = 120.0
"""The time, on a clock, after which the simplest so far has to do."""
AIMED_WORLDS: Final = 0.35
"""Of all: in these, faults wait for the broker to do something in particular, in the others they come at any time."""
AIMED_SHARE: Final = 0.8
"""Of the faults of such a world: they wait so."""
AIM_S: Final = 2.0
"""For so long."""
ACCOUNTS_S: Final = 0.31
"""How often the broker's accounts are looked at."""
BOOKS_SHARE: Final = 0.02
"""Of the times at which there is another segment: so often the books of all are looked at."""
CALM_S: Final = 0.3
"""After which a broker does all that it can, when nothing goes wrong any more."""
IDLE_MS: Final = 2_000
"""After which the broker asks whether a peer is still there; after twice that it gives its messages to others."""
SHORT_MS: Final = 5_000
"""A terminus that is kept no longer has ended by itself at rest."""
COME_BACKS: Final = 30
"""How often senders attach again, beside once for each message, while there is room for a few at a time."""
REST_S: Final = 400.0
"""Within which everybody must have come to an end, when nothing goes wrong any more."""

JOURNALS: Final = (
    JournalOptions(
        segment_bytes=16 * 1024,
        alignment_bytes=512,
        reserve_segments=1,
        spare_segments=0,
        recovery_bytes_max=32 * 1024,
        archive_bytes_max=128 * 1024,
        stubs_max=20,
        retry_ms=50,
    ),
    JournalOptions(
        segment_bytes=64 * 1024,
        alignment_bytes=512,
        reserve_segments=1,
        spare_segments=1,
        recovery_bytes_max=128 * 1024,
        archive_bytes_max=0,
        stubs_max=20,
        retry_ms=50,
    ),
    JournalOptions(
        segment_bytes=256 * 1024,
        first_segment_bytes=64 * 1024,
        reserve_segments=0,
        spare_segments=1,
        recovery_bytes_max=512 * 1024,
        archive_bytes_max=1 << 20,
        erase_bodies_after_s=2,
        retry_ms=50,
    ),
)
"""From segments that hold a handful of messages to some that hold a few hundred."""
DEPTHS: Final = (parking.SIZES, parking.Sizes(1, 1), parking.Sizes(4, 12))
"""How deep a queue is before its messages are parked."""
STEPS: Final = (1, 4, 256)
"""How many messages are copied out of a segment at a time: no promise speaks of that."""


USUAL: Final[dict[str, tuple[str, ...]]] = {
    "faults": tuple(FAULTS),
    "users": (*USERS, *PEERS),
    "traits": tuple(TRAITS),
}
"""What a case has all of, if it says nothing."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """What a run is a function of."""

    seed: int
    work_s: float = WORK_S
    """How long users work, in virtual time."""
    faults: tuple[str, ...] = USUAL["faults"]
    users: tuple[str, ...] = USUAL["users"]
    traits: tuple[str, ...] = USUAL["traits"]
    """That addresses may have."""
    without: tuple[int, ...] = ()
    """Strikes that are left out, by their numbers."""

    def __str__(self) -> str:
        """As `parse` reads it: what differs from the defaults."""
        words = [f"seed={self.seed}"]
        if self.work_s != WORK_S:
            words.append(f"work_s={self.work_s:g}")
        words += [
            f"{name}={','.join(mine) or 'none'}"
            for name, usual in USUAL.items()
            if (mine := getattr(self, name)) != usual
        ]
        if self.without:
            words.append(f"without={','.join(map(str, self.without))}")
        return " ".join(words)

    @classmethod
    def parse(cls, text: str) -> Case:
        """Read what `str` has written. Raises ValueError."""
        values: dict[str, Any] = {}
        for word in text.split():
            name, _, value = word.partition("=")
            match name:
                case "seed":
                    values[name] = int(value)
                case "work_s":
                    values[name] = float(value)
                case "faults" | "users" | "traits":
                    values[name] = () if value == "none" else tuple(value.split(","))
                case "without":
                    values[name] = tuple(map(int, value.split(",")))
                case _:
                    raise ValueError(f"{word!r}: expected seed=, work_s=, faults=, users=, traits= or without=")
        return cls(**values)

    def simpler(self, strikes: int) -> Iterator[Case]:
        """Yield cases that ask for less, the least first. `strikes`: how many there were."""
        for share in (0.25, 0.5, 0.75):
            if self.work_s > WORK_S_MIN:
                yield replace(self, work_s=round(self.work_s * share, 2))
        for name in USUAL:
            kinds: tuple[str, ...] = getattr(self, name)
            for size in sorted({max(1, len(kinds) >> halved) for halved in range(1, 6)}, reverse=True):
                for at in range(0, len(kinds), size):
                    yield replace(self, **{name: kinds[:at] + kinds[at + size :]})
        for number in range(strikes):
            if number not in self.without:
                yield replace(self, without=(*self.without, number))


class World(Simulation):
    """One run."""

    def __init__(self, case: Case) -> None:
        super().__init__(case.seed)
        self.case = case
        rng = self.rng
        self.kinds = draw_faults(self.fault_rng, case.faults)
        self.aims = aims(self.kinds) if self.fault_rng.random() < AIMED_WORLDS else []
        self.wall = Wall(lambda: self.scheduler.now, START_S)
        self.once = Place(name="once", settings={"max_delivery_attempts": 0})
        self.places = tuple(self._deep(draw(name, rng, case.traits)) for name in "abc")
        self.topics = (self._deep(draw("t", rng, case.traits, topic=True)),)
        if "pause" in case.users:  # some of what is paused would go meanwhile, and be made again
            going = Random(f"auto-delete of {case.seed}")
            self.places, self.topics = (
                tuple(
                    replace(place, settings={"auto_delete": going.random() < 0.5, **place.settings}) for place in kind
                )
                for kind in (self.places, self.topics)
            )
        everywhere = (*self.places, *self.topics, self.once)
        self.oracle = Oracle(self.once.name, everywhere, lambda: self.scheduler.now, self.wall)
        self.oracle.stood_still = lambda: max(
            (process.stands_still_until for process in self.processes if process.name.startswith("broker")), default=0.0
        )
        self.oracle.is_cut = self._is_given_up
        self.holders: dict[str, Holder] = {}
        self.connections: Counter[str] = Counter()
        """How many each client has had, in all its lives."""
        self.links = count()
        """Those of subscriptions that go with them, for their names."""
        self.working = True
        self.calm = False
        """Nothing strikes any more, while users still work."""
        self.sealed = 0
        """The newest segment when its books were looked at."""
        self.lived: list[tuple[int, int]] = []
        """The end of the journal, and what it needed for all that lived, several times a second."""
        self.waiting: dict[str, str] = {}
        """Sends that wait for room as long as it takes: their keys, and whose they are."""
        self.ended: list[str] = []
        """Subscriptions that have ended, as somebody was told, by their names."""
        self.resuming: set[str] = set()
        """Addresses that somebody has asked to be resumed, and nobody was told that they are."""
        self.strikes = 0
        self.pairs: Counter[tuple[str, str]] = Counter()
        """What struck, and what the broker was doing (`faults.STATES`)."""
        self.transactions = 0
        self._numbers = 0
        self.clients: dict[str, Process] = {}
        self.doomed = 0
        """So many brokers will be killed in one of their first steps of the disk."""
        self.step_records = rng.choice(STEPS)
        self.disks_failed = False
        """A disk has refused something to a broker that has died since."""
        self.works: dict[str, Work] = {}
        """What clients with exactly-once links have beside their processes."""
        self.options = self.usual = self._draw_options()
        self.less: dict[str, int] = {}
        """Limits of connections that the next broker has, and those after it have not."""
        self.oracle.termini.kept_ms = self.options.limits.terminus_kept_ms_max
        weather = self.network.weather
        weather.jitter_s = rng.choice((0.0, 0.001, 0.02))
        weather.piece_bytes_max = rng.choice((1 << 20, 1_000, 40))

    def _draw_options(self) -> BrokerOptions:
        drawn = BrokerOptions(
            journal=self.rng.choice(JOURNALS),
            address=(*(place.rule for place in (*self.places, *self.topics, self.once)), *ATTACKED),
            **draw_limits(self.fault_rng, idle_timeout_ms=IDLE_MS),
        )
        kept_ms = Random(f"termini of {self.case.seed}").choice(KEPT_MS)
        return replace(drawn, limits=replace(drawn.limits, terminus_kept_ms_max=kept_ms))

    def _deep(self, place: Place) -> Place:
        """Have the bodies of an address in the journal alone, where its queues park their messages and it may be so."""
        if "full_policy" in place.settings or DEPTHS[0] == parking.SIZES:
            return place
        return replace(place, settings={"full_policy": "page", "messages_max": 1, **place.settings})

    def body(self) -> tuple[str, str]:
        """A key, and a body that begins with it."""
        self._numbers += 1
        key = f"m{self._numbers}"
        return key, key + " " + "x" * self.rng.choice((0, 0, 10, 200, 2_000))

    def wall_us(self) -> int:
        """The time of day."""
        return self.wall.now_us

    # -- processes -----------------------------------------------------------------------------------------------------

    def start_broker(self) -> None:
        """Exec."""
        if self.doomed:
            self.doomed -= 1
            self.disk.power_loss_at = self.rng.randrange(40)
        less, self.less = self.less, {}
        usual = self.usual
        self.options = replace(usual, connection=replace(usual.connection, **less)) if less else usual
        super().start_broker()

    def _has_started(self) -> None:
        self.server._checkpointer._step_records = self.step_records

    def stop_broker(self) -> bool:
        """SIGTERM. False where there is no broker that could hear it."""
        stops = super().stop_broker()
        if stops:
            self._all_broke()
        return stops

    def _broker_died(self) -> None:
        self._all_broke()
        self.oracle.broker_died()
        super()._broker_died()

    def _all_broke(self) -> None:
        for client in self.clients.values():
            self.broke(client)

    def _replace_disk(self) -> None:
        self.disks_failed = self.disks_failed or bool(self.disk.raised)
        self.power_fails = self.power_fails or self.rng.random() < 0.4
        super()._replace_disk()
        if self.rng.random() < 0.2:
            self.check_ledger()

    def check_ledger(self) -> None:
        """The journal as it is on the disk balances."""
        opened = open_journal(
            DATA, self.options.journal, disk=self.disk.after_kill(), clock_us=self.wall_us, clock_s=lambda: 0.0
        )
        found = balance(opened.fold)
        if not found.balanced:
            raise Violation(f"balance: {[row.mismatch for row in found.queues]} {found.anomalies}")

    def start_client(self, number: int) -> None:
        if self.working:
            name = f"client-{number}"
            process = self.clients[name] = self.process(name)
            kind = self.case.users[number]
            process.spawn(PEERS[kind](self, name) if kind in PEERS else live(self, name, USERS[kind]))

    # -- faults --------------------------------------------------------------------------------------------------------

    def _strike(self) -> None:
        """Draw a fault, perhaps with what the broker has to be doing for it to strike; and so on."""
        rng, names = self.fault_rng, self.kinds
        if not self.working or self.calm or not names:
            return
        if self.aims and rng.random() < AIMED_SHARE:
            name, aim = rng.choice(self.aims)
        else:
            (name,), aim = rng.choices(names, [FAULTS[name].weight for name in names]), ""
        number, self.strikes = self.strikes, self.strikes + 1
        if number not in self.case.without:
            end = self.scheduler.now + AIM_S

            def strike() -> bool:
                state = self.state
                strikes = self.working and not self.calm and (state == aim or not aim)
                if strikes and FAULTS[name].strike(self) is not False:
                    self.faults[name] += 1
                    self.pairs[name, state] += 1
                    return True
                return self.scheduler.now > end

            if not strike():
                self.scheduler.watches.append(strike)
                if aim in LEADS_TO and LEADS_TO[aim].__name__ in names:
                    LEADS_TO[aim](self)
        self.scheduler.later(rng.expovariate(1.5), self._strike)

    @property
    def state(self) -> str:
        """What the broker is doing (`faults.STATES`)."""
        return state_of(self.server if self.broker is not None and not self.broker.dead else None)

    def broke(self, client: Process) -> None:
        """A client's connection is gone, whoever knows it."""
        holder = self.holders.get(client.name)
        if holder is not None:
            self.oracle.connection_broke(holder.token)

    def is_cut(self, client: str) -> bool:
        """The client's latest connection has no other end any more."""
        links = [link for link in self.network.links if link.client.process.name == client]
        return not links or links[-1].is_cut

    def _is_given_up(self, token: str) -> bool:
        """A client has this connection, and the broker has closed it: it may have heard nothing for too long."""
        holder = self.holders.get(token.partition("#")[0])
        return holder is not None and holder.token == token and self.is_cut(holder.name)

    # -- a run ---------------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Work, come to rest, and account for everything. Raises Violation, or what else should not have happened."""
        scheduler = self.scheduler
        try:
            self.start_broker()
            for number in range(len(self.case.users)):
                scheduler.later(self.rng.random(), self.start_client, number)
            scheduler.later(self.rng.random(), self._strike)
            scheduler.later(ACCOUNTS_S, self._check_accounts)
            scheduler.run_for(self.case.work_s)
            self._rest()
        finally:
            for process in self.processes:
                process.dead = True
            for process in self.processes:
                process.bury()

    def _rest(self) -> None:
        """Nothing goes wrong any more: everybody ends, and all that is there is taken."""
        scheduler = self.scheduler
        self.calm = True
        heal(self)
        # What a slow disk was given before is written by then.
        scheduler.run_for(max(0.0, max(process.busy_until for process in self.processes) - scheduler.now))
        scheduler.run_for(CALM_S)
        check_credit(self)
        self.working = False
        heal(self)
        scheduler.run_for(1.0)
        heal(self)  # a broker that died last may have handed them on
        clients = [process for process in self.clients.values() if not process.dead]
        self._await_ends(lambda: [client for client in clients if client.name not in self.waiting.values()])
        if not scheduler.run_until(lambda: self.up, REST_S):
            raise Violation("liveness: the broker does not come up")
        if "pause" in self.case.users:
            resume_all(self)
        # The latest time of day that there was: all that waits for its time has waited long enough.
        self.wall.ahead_us = max(self.wall.ahead_us, self.wall.ahead_us_max)
        scheduler.run_for(5 * IDLE_MS / 1000)  # connections of which only the broker still believes that they are there
        rested_s = scheduler.now
        if not self.waiting and self.rng.random() < 0.5:  # who waits is not to be served by a restart
            self._start_again()
        late = frozenset({*self.waiting, *unsent(self)})  # they enter as room is made
        if self.works:
            self._come_back(receivers=self.oracle.termini.kept_ms > SHORT_MS or self.rng.random() < 0.5)
        left = self._take_all(late=late)
        self._await_ends(lambda: clients)  # there is room for everything
        self._take_all(left, late=late)
        for _ in range(COME_BACKS + len(unsent(self))):  # a queue may have room for one message at a time
            if not unsent(self):
                break
            self._come_back(receivers=False)
            self._take_all(left, late=late)
        if unsent(self):
            raise Violation(f"suspended: these are in stores, and not sent: {unsent(self)}")
        self._is_at_rest()
        self.oracle.drained(left, rested_s)
        self._check_empty("all was taken")
        if self.rng.random() < 0.5:
            self._start_again()
            left = self._take_all()
            if any(left.values()):
                raise Violation(f"again: {left}, after all was taken and the broker was started again")
        self._check_empty("all was taken")
        scheduler.run_for(1.0)
        self.check_ledger()
        check_erased(self)
        check_books(self)
        check_disk(self)

    def _await_ends(self, whose: Callable[[], list[Process]]) -> None:
        if not self.scheduler.run_until(lambda: not any(client._tasks for client in whose()), REST_S):
            waiting = [str(task) for client in whose() for task in client._tasks]
            raise Violation(f"liveness: after {REST_S} s these still wait: {waiting}")

    def _start_again(self) -> None:
        """What is in memory alone is gone: the journal has everything."""
        scheduler, broker = self.scheduler, self.broker
        if self.rng.random() < 0.5:
            assert broker is not None
            broker.kill()
        else:
            self.stop_broker()
        if not scheduler.run_until(lambda: self.up and self.broker is not broker, REST_S):
            raise Violation("liveness: the broker does not come up again")

    def _take_all(
        self, left: dict[str, list[Seen]] | None = None, late: frozenset[str] = frozenset()
    ) -> dict[str, list[Seen]]:
        """All that is in queues, in the order in which it comes. `left`: what was there before; `late`: keys of what
        may have entered since."""
        left = {} if left is None else left
        task = self.process("last").spawn(self._take(left, late))
        if not self.scheduler.run_until(task.done, REST_S):
            raise Violation(
                f"liveness: after {REST_S} s not all is taken: { {name: len(found) for name, found in left.items()} }"
            )
        task.result()
        return left

    def _is_at_rest(self) -> None:
        """Nobody does anything, so nothing is written, once what is to be erased is."""
        journal = self.server._opened.journal
        erase_after_s = self.options.journal.erase_bodies_after_s
        self.scheduler.run_for(erase_after_s + ERASING_S if erase_after_s else 10.0)
        end = journal.end
        self.scheduler.run_for(10.0)
        if journal.end != end:
            raise Violation(f"rest: {journal.end - end} bytes are written while nobody does anything")

    def _come_back(self, *, receivers: bool) -> None:
        """What exactly-once links have left is resumed, and what nobody can resume any more is given back."""
        task = self.process("last").spawn(self._resume_all(receivers=receivers))
        # A lock may last shorter than most of what is done with a message: it comes again then, twenty times and more.
        # So all of it may take longer; but what is left must become less.
        counts, before = self.oracle.counts, -1
        while not self.scheduler.run_until(task.done, REST_S):
            if counts["accepted"] + counts["retired"] <= before:
                raise Violation(f"liveness: for {REST_S} s nothing has come of links that resume")
            before = counts["accepted"] + counts["retired"]
        ended = task.result()
        self.scheduler.run_for(1.0)
        if ended and (held := [one for one in self.server._core._termini.snapshots() if one.messages]):
            raise Violation(f"suspended: {held} at rest")

    async def _resume_all(self, *, receivers: bool) -> bool:
        """Returns whether all termini have ended."""

        async def connect(client: str) -> acquit.aio.Connection:
            holder = self.holders[client]
            return await acquit.aio.connect(URL, container_id=client, options=OPTIONS, on_event=holder.hear)

        await come_back(self, connect, receivers=receivers)
        if receivers:
            async with acquit.aio.connect(URL, container_id="operator") as connection:
                return await end_termini(self, connection) >= 0
        return False

    async def _take(self, left: dict[str, list[Seen]], late: frozenset[str]) -> None:
        places = (*self.places, self.once)
        queues = (*(place.name for place in places), *self.oracle.subscriptions, EXPIRED, DEAD_LETTERS)
        async with (
            acquit.aio.connect(URL, container_id="last") as connection,
            connection.session("individual") as session,
        ):
            for queue in queues:
                found = left.setdefault(queue, [])
                try:
                    receiver = await session.receiver(queue, prefetch=200)
                except acquit.NotFound:
                    if not self.oracle.may_be_missing(queue):
                        raise
                    continue  # it was asked for, and refused, or the connection was lost before
                receipts = []
                while (message := await receiver.receive(timeout=1.0)) is not None:
                    seen = see(message, queue)
                    if seen.key in late and queue not in (EXPIRED, DEAD_LETTERS):
                        self.oracle.arrives(seen, "last")
                        self.oracle.retires(seen.sequence)
                    elif not self._is_of_attackers(seen):
                        found.append(seen)
                    receipts.append(await message.accept(sync=False))
                for receipt in receipts:
                    status = await receipt.result(10.0)
                    if status is not ReceiptStatus.APPLIED:
                        raise Violation(f"receipts: {status} for what was accepted at rest in {queue}")
                await receiver.close()

    def _is_of_attackers(self, seen: Seen) -> bool:
        """They posted it, or rejected it from a subscription of theirs."""
        origin = seen.origin_queue.partition("::")[0]
        ours = not origin or any(place.name == origin for place in (*self.places, *self.topics, self.once))
        return "attack" in self.case.users and not (ours and seen.key in self.oracle.postings)

    def _check_accounts(self) -> None:
        """What the broker counts is what there is, several times a second."""
        if self.up and not (self.broker is None or self.broker.dead):
            try:
                check_accounts(self.server._core)
            except AssertionError as wrong:
                raise Violation(f"accounts: {wrong}") from wrong
            self.lived.append((self.server._opened.journal.end, live_bytes(self.server._core)))
            newest = self.server._opened.journal.segments[-1].number
            if newest != self.sealed and self.rng.random() < BOOKS_SHARE:
                check_books(self)
            self.sealed = newest
        self.scheduler.later(ACCOUNTS_S, self._check_accounts)

    def _check_empty(self, why: str) -> None:
        """Nothing is held of what is not there."""
        self.scheduler.run_for(1.0)
        snapshot = self.server.inspect()
        ours = {place.name for place in (*self.places, *self.topics, self.once)} | {EXPIRED, DEAD_LETTERS}
        for queue in snapshot.queues:
            if queue.address in ours and (queue.depth or queue.memory_bytes or queue.body_bytes or queue.held):
                raise Violation(f"memory: {why}, and there is {queue}")
        if snapshot.connections:
            raise Violation(f"memory: nobody is there, and there is {snapshot.connections}")
        if self.server._core.memory.bytes and not any(queue.depth for queue in snapshot.queues):
            raise Violation(f"memory: {self.server._core.memory.bytes} bytes are in use, and nothing is there")


def simulate(case: Case) -> World:
    """Run one world. What it raises says how to repeat it."""
    usual, parking.SIZES = parking.SIZES, Random(f"parking of {case.seed}").choice(DEPTHS)
    with seeded(case.seed):
        world = World(case)
        try:
            world.run()
        except BaseException as why:
            why.add_note(f'make simulate CASE="{case}" repeats it; {dict(world.faults)}, {dict(world.oracle.counts)}')
            raise
        finally:
            parking.SIZES = usual
    return world


def shrink(case: Case) -> Case:
    """Find a case that asks for less and still fails in some way: a shorter one, with fewer faults and users. It is not
    the least one where that takes more than `RUNS_MAX` worlds, or `SHRINKING_S`."""
    end_s = time.monotonic() + SHRINKING_S
    strikes, runs = _strikes_before_failure(case), 0
    while strikes is not None:
        for candidate in case.simpler(strikes):
            runs += 1
            if runs > RUNS_MAX or time.monotonic() > end_s:
                return case
            smaller = _strikes_before_failure(candidate)
            if smaller is not None:
                case, strikes = candidate, smaller
                break
        else:
            break
    return case


def _strikes_before_failure(case: Case) -> int | None:
    """Run a world: how many strikes there were before it failed; None if it did not."""
    with seeded(case.seed):
        world = World(case)
        try:
            world.run()
        except Exception:
            return world.strikes
    return None


__all__ = ["FAULTS", "Case", "World", "shrink", "simulate"]
