"""Exactly-once links, searched: a producer, a consumer and the broker, of which one is struck at each step of the run.

All three are the real ones, in `acquit.testing.Simulation`: in one thread, in virtual time. A *step* is a turn of one
of the three processes, so that a stroke falls between any two things that one of them does: before and after each
frame, between a store's write and its sync, between the journal's record and its answer. The store of a program is a
`LateStore`: a write is safe some time after it was made, and lost if the program is killed before that.

`test_mistakes_are_found` plants mistakes in what is searched; each of them must be seen.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any

import pytest

import acquit
from acquit import aio
from acquit.broker.dispatching.resuming import Resuming
from acquit.broker.dispatching.sending import Sending as Dispatch
from acquit.broker.links.termini import Termini
from acquit.broker.links.terminus import TargetTerminus
from acquit.client.entries import Done, EntryKind, LinkEntries, StoreEntry, apply_entry, copied, forget
from acquit.client.receipts import ReceiptStatus
from acquit.client.resuming import ResumingReceiver, ResumingSender
from acquit.protocol import resumption
from acquit.protocol.composite import encode_composite
from acquit.protocol.constants import ACCEPTED
from acquit.protocol.definitions import Close, Error, Released
from acquit.protocol.delivery import Delivery
from acquit.protocol.frames import encode_frame
from acquit.protocol.resumption import MapState, ResumeAction
from acquit.testing import Simulation
from acquit.testing.simulation.network import Pipe
from acquit.testing.simulation.system import Program
from tests.support.examples import share

pytestmark = pytest.mark.promise("exactly-once")

COUNT = 3
"""Messages that are sent, received and accepted."""
LATE_S = 0.004
"""Seconds after which what is written is safe."""
OPTIONS = acquit.ConnectOptions(ack_timeout_ms=600_000, reconnect=acquit.Reconnect(delay_ms=5, delay_max_ms=50))


class LateStore:
    """A store that outlives its program; what was written less than `LATE_S` before the program was killed is lost."""

    durable = True

    def __init__(self) -> None:
        self.links: dict[str, LinkEntries] = {}

    def load(self, link: str) -> LinkEntries:
        """Return the entries of a link, as they are on the disk."""
        return copied(self.links.get(link, LinkEntries()))

    def write(self, entries: Sequence[StoreEntry], done: Done | None = None) -> None:
        """Change entries a little later, unless the process is killed before."""
        asyncio.get_running_loop().call_later(LATE_S, self._perform, list(entries), done)

    def _perform(self, entries: list[StoreEntry], done: Done | None) -> None:
        for entry in entries:
            self.write_within(None, entry)
        if done is not None:
            done(None)

    def write_within(self, _: object, entry: StoreEntry) -> None:
        """Write as part of a transaction of the user's: all that a program does in one turn is one transaction."""
        apply_entry(self.links, entry)

    @property
    def left(self) -> int:
        """Entries that wait for the broker."""
        return sum(len(entries.outcomes) + len(entries.sends) for entries in self.links.values())


@dataclass
class Work:
    """What survives a kill: the stores, and the database that they share with the work itself."""

    sends: LateStore = field(default_factory=LateStore)
    outcomes: LateStore = field(default_factory=LateStore)
    prepared: int = 0
    effects: list[str] = field(default_factory=list)
    attempts: list[int] = field(default_factory=list)
    statuses: list[ReceiptStatus] = field(default_factory=list)
    produced: bool = False
    consumed: bool = False


async def keep_at_it(program: Callable[[str, Work], Awaitable[None]], url: str, work: Work) -> None:
    """Begin a program again where it could not connect, or its connection was lost before its link was attached."""
    while True:
        try:
            return await program(url, work)
        except (acquit.ConnectionFailed, acquit.ConnectionLost, acquit.SessionEnded, acquit.LinkDetached):
            await asyncio.sleep(0.01)


async def produce(url: str, work: Work) -> None:
    """Send messages, each written to the store in the transaction that makes it."""
    async with aio.connect(url, container_id="producer", options=OPTIONS) as connection:
        session = await connection.session()
        sender = await session.sender("q", name="out", exactly_once=work.sends)
        while work.prepared < COUNT:
            message = sender.prepare(acquit.Message(str(work.prepared), durable=True), None)  # type: ignore[arg-type]
            work.prepared += 1
            _ = await sender.send(message, wait=False)
        await sender.flush()
        await _until(lambda: not work.sends.left)
    work.produced = True


async def consume(url: str, work: Work) -> None:
    """Receive messages; the effect of each and its outcome are one transaction."""
    async with aio.connect(url, container_id="consumer", options=OPTIONS) as connection:
        session = await connection.session("individual")
        receiver = await session.receiver("q", name="in", prefetch=2, exactly_once=work.outcomes)
        receipts = []
        while len(work.effects) < COUNT:
            message = await receiver.receive()
            assert message is not None
            work.effects.append(str(message.body))
            work.attempts.append(message.delivery_count)
            tag = message.delivery_tag
            work.outcomes.write_within(None, StoreEntry(EntryKind.OUTCOME, "in", tag, encode_composite(ACCEPTED)))
            receipts.append(await message.accept(sync=False))
        work.statuses += [await receipt.result() for receipt in receipts]
        await _until(lambda: not work.outcomes.left)
        assert await receiver.receive(timeout=0.5) is None, "a message came twice"
    work.consumed = True


async def come_back(url: str, work: Work) -> None:
    """Attach both links once more, with nothing left to do: what the other end could not be told is told now."""
    async with aio.connect(url, container_id="producer", options=OPTIONS) as connection:
        session = await connection.session()
        sender = await session.sender("q", name="out", exactly_once=work.sends)
        await sender.flush()
    async with aio.connect(url, container_id="consumer", options=OPTIONS) as connection:
        session = await connection.session("individual")
        receiver = await session.receiver("q", name="in", exactly_once=work.outcomes)
        assert await receiver.receive(timeout=0.5) is None, "a message came twice"


async def _until(so: Callable[[], bool]) -> None:
    while not so():
        await asyncio.sleep(0.05)


Stroke = Callable[[Simulation, Program[None], Program[None]], None]


def _again(program: Program[None], world: Simulation) -> None:
    if not program.done:
        program.kill()
        world.scheduler.later(0.02, program.start)


def _kill_all(world: Simulation, producer: Program[None], consumer: Program[None]) -> None:
    _again(producer, world)
    _again(consumer, world)
    world.kill_broker()


CLOSE = encode_frame(0, encode_composite(Close(Error("amqp:connection:forced", "in the same read"))))
TRANSFER = b"\x00\x53\x14"


def _close_behind(world: Simulation, program: Program[None], *, sends: bool) -> bool:
    """Let the next message that comes from the program, or to it, come in one read with the end of the connection.
    False if none comes for a while."""

    def under_way() -> list[Pipe]:
        pipes = [link.client.out if sends else link.client.into for link in world.links(program)]
        return [pipe for pipe in pipes if pipe.carries(TRANSFER)]

    if not world.scheduler.run_until(lambda: bool(under_way()), 0.5):
        return False
    under_way()[0].put_behind(CLOSE)
    return True


STROKES: dict[str, Stroke] = {
    "kill producer": lambda world, producer, consumer: _again(producer, world),
    "kill consumer": lambda world, producer, consumer: _again(consumer, world),
    "kill broker": lambda world, producer, consumer: world.kill_broker(),
    "power": lambda world, producer, consumer: world.kill_broker(power=True),
    "cut producer": lambda world, producer, consumer: _ignore(world.cut(producer)),
    "cut consumer": lambda world, producer, consumer: _ignore(world.cut(consumer)),
    "kill all": _kill_all,
    "close producer": lambda world, producer, consumer: _ignore(_close_behind(world, producer, sends=True)),
    "close consumer": lambda world, producer, consumer: _ignore(_close_behind(world, consumer, sends=False)),
}


def _ignore(_: object) -> None:
    pass


def _has_done(world: Simulation, turns: int) -> bool:
    return world.scheduler.turns >= turns


def run(seed: int, strokes: Sequence[tuple[int, str]]) -> int:
    """Run once, struck after so many steps each, and look at what came of it. Returns the number of steps."""
    work = Work()
    with Simulation(seed, within_s=900.0) as world:
        begun = world.scheduler.turns
        producer = world.start(keep_at_it, produce, world.url, work)
        consumer = world.start(keep_at_it, consume, world.url, work)
        for step, name in strokes:
            world.scheduler.run_until(partial(_has_done, world, begun + step), 60.0)
            STROKES[name](world, producer, consumer)
        over = world.scheduler.run_until(lambda: (work.produced and work.consumed) or world._raised(), 900.0)
        assert over, f"it hangs: {work}"
        world._raise()
        steps = world.scheduler.turns - begun
        world.run(keep_at_it, come_back, world.url, work)
        queue = world.inspect().queue("q")
        assert work.effects == [str(number) for number in range(COUNT)]
        assert work.attempts == [0] * COUNT, "a resumption is no attempt"
        assert set(work.statuses) <= {ReceiptStatus.APPLIED}
        assert queue is not None
        assert (queue.depth, queue.acquired) == (0, 0), "a message is left in the queue"
        for terminus in world.server._core._termini.snapshots():
            assert not terminus.messages, "a delivery stays suspended"
            assert not terminus.tags, "a tag stays that nobody asks for"
    return steps


STEPS = 154
"""Of the run on seed 0 without a stroke."""


def test_a_run_without_a_stroke_goes_well() -> None:
    assert run(0, ()) == STEPS


STRIDE = 5
"""Of the steps that `make test-native` tries; `make test` tries every third of these, the soak all."""


@pytest.mark.parametrize("stroke", STROKES)
def test_struck_at_some_steps_everything_happens_once(stroke: str) -> None:
    stride = STRIDE * 3 // share(3)
    for step in range(list(STROKES).index(stroke) % stride, STEPS, stride):
        _try(0, [(step, stroke)])


async def post(url: str) -> None:
    """Send a message."""
    async with aio.connect(url, container_id="poster", options=OPTIONS) as connection:
        session = await connection.session()
        _ = await (await session.sender("q")).send("x")


async def think(url: str, work: Work) -> None:
    """Receive a message, and accept it after a while."""
    async with aio.connect(url, container_id="consumer", options=OPTIONS) as connection:
        session = await connection.session("individual")
        receiver = await session.receiver("q", name="in", exactly_once=work.outcomes)
        message = await receiver.receive()
        assert message is not None
        work.effects.append(str(message.body))
        await asyncio.sleep(1.0)
        work.statuses.append(await (await message.accept(sync=False)).result())
        assert await receiver.receive(timeout=0.5) is None, "the message came twice"


def test_what_is_resumed_in_one_read_with_the_end_is_resumed_once_more() -> None:
    """It was lost as it came: its sender has not settled it."""
    work = Work()
    with Simulation(0, within_s=60.0) as world:
        world.run(post, world.url)
        consumer = world.start(think, world.url, work)
        assert world.scheduler.run_until(lambda: bool(work.effects), 10.0)
        for link in world.links(consumer):
            link.cut(notices=(True, True))
        assert _close_behind(world, consumer, sends=False), "it was not resumed"
        world.wait(consumer)
        assert work.statuses == [ReceiptStatus.APPLIED]
        queue = world.inspect().queue("q")
        assert queue is not None
        assert queue.depth == 0


@pytest.mark.slow
@pytest.mark.parametrize("stroke", STROKES)
def test_struck_at_every_step_everything_happens_once(stroke: str) -> None:
    for step in range(STEPS):
        _try(0, [(step, stroke)])


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_struck_several_times_everything_happens_once(seed: int, soak_rounds: int) -> None:
    rng = Random(seed)
    for round_ in range(3 * soak_rounds):
        steps = sorted(rng.sample(range(250), rng.choice((2, 3, 5))))
        _try(1_000 * seed + round_, [(step, rng.choice(list(STROKES))) for step in steps])


def _try(seed: int, strokes: Sequence[tuple[int, str]]) -> None:
    try:
        run(seed, strokes)
    except BaseException as exc:
        exc.add_note(f"run({seed}, {strokes})")
        raise


# -- mistakes ----------------------------------------------------------------------------------------------------------

Mistake = Callable[[pytest.MonkeyPatch], None]


def _forget_at_once(store: object, entries: Sequence[StoreEntry]) -> None:
    assert isinstance(store, LateStore)
    for entry in entries:
        store.write_within(None, entry)


def _send_forgotten_as_it_is_transferred(patch: pytest.MonkeyPatch) -> None:
    """Rather than when its outcome was heard."""
    pump = ResumingSender.pump

    def wrong(self: ResumingSender) -> None:
        before = set(self._unsettled)
        pump(self)
        _forget_at_once(self._store, forget(EntryKind.SEND, self.spec.name, set(self._unsettled) - before))

    patch.setattr(ResumingSender, "pump", wrong)


def _send_settled_before_it_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    """The broker forgets the tag while the store still asks for it."""
    on_states = ResumingSender.on_states

    def wrong(self: ResumingSender, deliveries: Any, state: Any, settled: bool) -> None:
        on_states(self, deliveries, state, settled)
        self.session.engine.settle_all(deliveries)

    patch.setattr(ResumingSender, "on_states", wrong)


def _send_again_under_a_new_tag(patch: pytest.MonkeyPatch) -> None:
    load = LateStore.load

    def wrong(self: LateStore, link: str) -> LinkEntries:
        entries = load(self, link)
        entries.sends = {tag + b"'": payload for tag, payload in entries.sends.items()}
        return entries

    patch.setattr(LateStore, "load", wrong)


def _outcome_forgotten_as_it_is_told(patch: pytest.MonkeyPatch) -> None:
    """Rather than when the broker has settled."""
    settle = ResumingReceiver.settle

    def wrong(self: ResumingReceiver, message: Any, outcome: Any, receipt: Any) -> None:
        settle(self, message, outcome, receipt)
        _forget_at_once(self._store, forget(EntryKind.OUTCOME, self.spec.name, [message.delivery_tag]))

    patch.setattr(ResumingReceiver, "settle", wrong)


def _map_without_what_the_store_has(patch: pytest.MonkeyPatch) -> None:
    load = LateStore.load

    def wrong(self: LateStore, link: str) -> LinkEntries:
        entries = load(self, link)
        entries.outcomes = {}
        return entries

    patch.setattr(LateStore, "load", wrong)


def _deliveries_lost_with_the_connection(patch: pytest.MonkeyPatch) -> None:
    on_interrupted = ResumingReceiver.on_interrupted

    def wrong(self: ResumingReceiver, failure: Any) -> None:
        self._held.clear()
        on_interrupted(self, failure)

    patch.setattr(ResumingReceiver, "on_interrupted", wrong)


def _posting_without_its_tag(patch: pytest.MonkeyPatch) -> None:
    """Nothing in the journal."""
    posted = Termini.posted
    patch.setattr(Termini, "posted", lambda self, terminus, tags, durable: posted(self, terminus, tags, durable=False))


def _tag_forgotten_as_the_outcome_is_told(patch: pytest.MonkeyPatch) -> None:
    """One frame early."""
    posted = Termini.posted

    def wrong(self: Termini, terminus: Any, tags: Any, durable: bool) -> None:
        posted(self, terminus, tags, durable=durable)
        self.forget(terminus, list(tags))

    patch.setattr(Termini, "posted", wrong)


def _acquired_without_a_record(patch: pytest.MonkeyPatch) -> None:
    """A message leaves on a resumable link, and the journal does not know."""
    patch.setattr(Dispatch, "_record", lambda self, event, queue, consumer, messages: [])


def _released_instead_of_suspended(patch: pytest.MonkeyPatch) -> None:
    suspended = Termini.suspended

    def wrong(self: Termini, terminus: Any, link: object) -> None:
        suspended(self, terminus, link)
        self.end(terminus)

    patch.setattr(Termini, "suspended", wrong)


def _row(sender: MapState, receiver: MapState, what: ResumeAction) -> Mistake:
    return lambda patch: patch.setitem(resumption.TABLE, (sender, receiver, False), what)


def _resumed_with_the_wrong_state(patch: pytest.MonkeyPatch) -> None:
    go_on = Resuming.go_on

    def wrong(self: Resuming, consumer: Any) -> None:
        heard = self._heard
        self._heard = lambda consumer, deliveries, state, settled: heard(consumer, deliveries, Released(), settled)
        try:
            go_on(self, consumer)
        finally:
            self._heard = heard

    patch.setattr(Resuming, "go_on", wrong)


def _tags_not_read_from_the_journal(patch: pytest.MonkeyPatch) -> None:
    restore = Termini.restore

    def wrong(self: Termini) -> Any:
        sources = restore(self)
        for terminus in self._by_name.values():
            if isinstance(terminus, TargetTerminus):
                terminus.answered.clear()
        return sources

    patch.setattr(Termini, "restore", wrong)


def _lost_taken_for_settled(patch: pytest.MonkeyPatch) -> None:
    """By this end, in what it hears of in one read with the end of the connection."""
    patch.setattr(Delivery, "settled", Delivery.over)


MISTAKES: dict[str, tuple[Mistake, str, int]] = {
    "send forgotten as it is transferred": (_send_forgotten_as_it_is_transferred, "kill all", 63),
    "send settled before it is forgotten": (_send_settled_before_it_is_forgotten, "kill producer", 77),
    "sent again under a new tag": (_send_again_under_a_new_tag, "kill producer", 77),
    "outcome forgotten as it is told": (_outcome_forgotten_as_it_is_told, "kill all", 105),
    "map without what the store has": (_map_without_what_the_store_has, "kill consumer", 83),
    "deliveries lost with the connection": (_deliveries_lost_with_the_connection, "cut consumer", 80),
    "posting without its tag in the journal": (_posting_without_its_tag, "kill broker", 72),
    "tag forgotten one frame early": (_tag_forgotten_as_the_outcome_is_told, "cut producer", 63),
    "sent before its acquisition is recorded": (_acquired_without_a_record, "kill broker", 77),
    "released instead of suspended": (_released_instead_of_suspended, "cut consumer", 77),
    "ignored what the peer does not know": (
        _row(MapState.UNSETTLED, MapState.ABSENT, ResumeAction.IGNORE),
        "kill consumer",
        77,
    ),
    "forgot the outcome in the peer's map": (
        _row(MapState.UNSETTLED, MapState.OUTCOME, ResumeAction.WAIT),
        "kill consumer",
        83,
    ),
    "resumed with the wrong state": (_resumed_with_the_wrong_state, "kill consumer", 83),
    "tags not read from the journal": (_tags_not_read_from_the_journal, "power", 72),
    "lost taken for settled": (_lost_taken_for_settled, "close producer", 0),
}
"""Mistakes, the stroke that shows each, and the step where it did so, which is tried first."""


@pytest.mark.pure
@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_found(mistake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant, stroke, first = MISTAKES[mistake]
    plant(monkeypatch)
    assert any(_fails(step, stroke) for step in (first, *range(STEPS))), f"{mistake}: {stroke} does not show it"


def _fails(step: int, stroke: str) -> bool:
    try:
        run(0, [(step, stroke)])
    except (AssertionError, TimeoutError, acquit.AcquitError):
        return True
    return False
