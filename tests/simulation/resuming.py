"""Users of exactly-once links: senders, receivers and a relay, over lost connections, and over kills of their own.

Each has a `Work`: what outlives its process. Its links have the same names in every life of it, and the same address.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any, Final

from acquit import Message
from acquit.client.entries import EntryKind, LinkEntries, StoreEntry, forget
from acquit.errors import AcquitError, CreditExhausted, LinkDetached, SendFailed
from acquit.protocol.composite import encode_composite
from acquit.protocol.constants import ACCEPTED
from acquit.protocol.definitions import Modified, Rejected, Released
from acquit.protocol.extensions import MANAGEMENT_NODE, TERMINUS_ENTITY
from tests.simulation.facts import Seen, Sent, Violation
from tests.simulation.places import Place
from tests.simulation.stores import KeptStore, ToldMemoryStore, key_of

if TYPE_CHECKING:
    from acquit.testing.simulation.loops import Process
    from tests.simulation.termini import Terminus
    from tests.simulation.users import Holder
    from tests.simulation.world import World

KEPT_MS: Final = (604_800_000, 604_800_000, 2_000, 300)
"""For how long a broker keeps a terminus without a link."""
IN: Final = "in"
OUT: Final = "out"
BUSY_MAX: Final = 20
"""Sends, or outcomes, that one user has under way."""
FRAME_BYTES_MIN: Final = 4_096
"""Shorter ones hold no unsettled map."""
ENDED: Final = "has ended the terminus"

VERBS: Final[Mapping[str, tuple[Callable[[Any], Awaitable[Any]], Any]]] = {
    "accept": (lambda message: message.accept(), ACCEPTED),
    "reject": (lambda message: message.reject(), Rejected()),
    "release": (lambda message: message.release(), Released()),
    "fail": (lambda message: message.modify(delivery_failed=True), Modified(delivery_failed=True)),
}
MANNERS: Final[tuple[dict[str, int], ...]] = (
    {"accept": 100},
    {"accept": 70, "reject": 10, "release": 10, "fail": 10},
)


@dataclass(eq=False)
class Work:
    """What a client has beside its process."""

    client: str
    store: KeptStore | ToldMemoryStore
    process: Process
    source: Place
    target: Place
    prefetch: int
    manner: Mapping[str, int]
    links: set[str] = field(default_factory=set)
    """Those that it has ever asked for."""

    def entries(self, link: str) -> LinkEntries:
        """What its store has."""
        return self.store.load(link)

    def terminus(self, world: World, link: str, token: str) -> Terminus:
        """The link is about to be attached."""
        self.links.add(link)
        anew = not self.store.durable and not self.entries(link).identity
        return world.oracle.termini.asks(f"{self.client}/{link}", token, anew=anew)


def work_of(world: World, holder: Holder, *, durable: bool) -> Work:
    """What this client has; made when it begins for the first time."""
    process = world.clients[holder.name]
    work = world.works.get(holder.name)
    if work is None:
        rng = world.rng
        kind = KeptStore if durable else ToldMemoryStore
        source, target = rng.sample(world.places, 2)
        if rng.random() < 0.3:
            target = rng.choice(world.topics)
        work = world.works[holder.name] = Work(
            holder.name,
            kind(world, holder.name),
            process,
            source,
            target,
            rng.choice((0, 1, 5, 50)),
            rng.choice(MANNERS),
        )
        process.on_death.append(lambda: _crash(world, work))
    elif work.process is not process:
        work.process = process
        process.on_death.append(lambda: _crash(world, work))
        if not durable:
            work.store = ToldMemoryStore(world, holder.name)
    return work


def _crash(world: World, work: Work) -> None:
    if isinstance(work.store, KeptStore) and world.clients.get(work.client) is work.process:
        work.store.crash()


# -- senders -----------------------------------------------------------------------------------------------------------


async def send_once(world: World, holder: Holder) -> None:
    """Send with a store that outlives the process; some in a transaction of the user's own."""
    await _send_once(world, holder, durable=True)


async def send_once_in_memory(world: World, holder: Holder) -> None:
    """Send with a store in memory."""
    await _send_once(world, holder, durable=False)


async def _send_once(world: World, holder: Holder, *, durable: bool) -> None:
    rng, work = world.rng, work_of(world, holder, durable=durable)
    assert holder.connection is not None
    session = await holder.connection.session()
    sender, terminus, tasks = await _open_sender(world, holder, work, session)
    try:
        while world.working:
            for _ in range(rng.choice((1, 1, 5, 12)) if len(tasks) < BUSY_MAX else 0):
                prepared = durable and rng.random() < 0.5
                tasks[await _post(world, holder, work, sender, terminus, prepared=prepared)] = None
            await _some_end(tasks, rng.choice((0.0, 0.05, 0.5)))
            await asyncio.sleep(rng.choice((0.0, 0.01, 0.2)))
    finally:
        _abandon(tasks)


async def _open_sender(
    world: World, holder: Holder, work: Work, session: Any
) -> tuple[Any, Terminus, dict[asyncio.Task[None], None]]:
    """Attach it; what an earlier life left is sent."""
    token = holder.token
    terminus = work.terminus(world, OUT, token)
    holder.termini.append(terminus)
    keys = [key_of(payload) for payload in work.entries(OUT).sends.values()]
    try:
        sender = await session.sender(work.target.name, name=OUT, topic=work.target.topic, exactly_once=work.store)
    except LinkDetached as error:
        if ENDED in str(error):
            await _give_up(world, work)
        raise
    world.oracle.termini.attached(terminus, token, sender._core._identity)
    tasks = {}
    if keys:
        tasks[asyncio.ensure_future(_flush(world, sender, keys))] = None
    return sender, terminus, tasks


async def _give_up(world: World, work: Work) -> None:
    """The terminus is no more: send again what is in doubt, or do not."""
    sends = work.entries(OUT).sends
    world.oracle.termini.given_up(f"{work.client}/{OUT}", [key_of(payload) for payload in sends.values()])
    world.oracle.termini.asks(f"{work.client}/{OUT}", "", anew=False)
    entries = [StoreEntry(EntryKind.IDENTITY, OUT, b"", None)]
    if world.rng.random() < 0.5:
        entries += forget(EntryKind.SEND, OUT, sends)
    safe = asyncio.Event()
    work.store.write(entries, lambda _: safe.set())
    await safe.wait()


async def _flush(world: World, sender: Any, keys: list[str]) -> None:
    """Hear of what an earlier life left."""
    with suppress(AcquitError):
        await sender.flush()
        world.oracle.termini.recovered(keys)


async def _post(
    world: World, holder: Holder, work: Work, sender: Any, terminus: Terminus, *, prepared: bool
) -> asyncio.Task[None]:
    """Send one. `prepared`: it is in the store at once, with what else the program does in this turn."""
    from tests.simulation.users import compose

    posting, message = compose(world, work.target, durable=True)
    posting.exactly = True
    world.oracle.sends(posting)
    sent = sender.prepare(message, None) if prepared else message
    return asyncio.ensure_future(_hear(world, holder, sender, terminus, posting.key, sent))


async def _hear(world: World, holder: Holder, sender: Any, terminus: Terminus, key: str, message: Any) -> None:
    """Send it, and be told what became of it."""
    token = holder.token
    try:
        receipt = await sender.send(message, wait=False)
        await receipt.result()
    except SendFailed:
        world.oracle.answered(key, Sent.REFUSED)
    except AcquitError:
        return
    else:
        world.oracle.answered(key, Sent.ACCEPTED)
    if holder.token == token:
        world.oracle.termini.attached(terminus, token, sender._core._identity)


async def _some_end(tasks: dict[asyncio.Task[None], None], timeout_s: float) -> None:
    """Wait a while for what is under way. Raises what one of them raised."""
    if tasks:
        done, _ = await asyncio.wait(tasks, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        for task in [task for task in tasks if task in done]:  # in order
            del tasks[task]
            task.result()


def _abandon(tasks: dict[asyncio.Task[None], None]) -> None:
    for task in tasks:
        task.cancel()


# -- receivers ---------------------------------------------------------------------------------------------------------


async def receive_once(world: World, holder: Holder) -> None:
    """Process messages, each in one transaction with its outcome or not, with a store that outlives the process."""
    await _receive_once(world, holder, durable=True)


async def receive_once_in_memory(world: World, holder: Holder) -> None:
    """Do so with a store in memory."""
    await _receive_once(world, holder, durable=False)


async def relay_once(world: World, holder: Holder) -> None:
    """Send another message for each that is received, in one transaction with its outcome."""
    await _receive_once(world, holder, durable=True, relays=True)


async def _receive_once(world: World, holder: Holder, *, durable: bool, relays: bool = False) -> None:
    rng, work = world.rng, work_of(world, holder, durable=durable)
    assert holder.connection is not None
    session = await holder.connection.session("individual")
    tasks: dict[asyncio.Task[None], None] = {}
    sender = outgoing = None
    if relays:
        sender, outgoing, tasks = await _open_sender(world, holder, work, session)
    receiver, terminus = await _open_receiver(world, holder, work, session, work.prefetch)
    held: list[tuple[Any, Seen]] = []
    locks = "locks" in work.source.traits
    try:
        while world.working:
            try:
                message = await receiver.receive(timeout=rng.choice((0.05, 0.5)))
            except CreditExhausted:
                message = None
            if message is not None:
                held.append((message, _arrived(world, holder, work, terminus, message)))
            while held and (rng.random() < 0.7 or len(held) > 8) and len(tasks) < BUSY_MAX:
                one, seen = held.pop(rng.randrange(len(held)))
                (verb,) = rng.choices(tuple(work.manner), tuple(work.manner.values()))
                if sender is not None and outgoing is not None:
                    verb = "accept"
                    _commit(work, one, verb)
                    tasks[await _post(world, holder, work, sender, outgoing, prepared=True)] = None
                elif durable and rng.random() < 0.5:
                    _commit(work, one, verb)
                tasks[asyncio.ensure_future(_decide(world, terminus, one, seen, verb))] = None
            if held and locks and rng.random() < 0.3:
                world.oracle.renews(held[0][1].sequence)
                with suppress(AcquitError):
                    await held[0][0].renew_lock()
            await _some_end(tasks, 0.0)
            if terminus.away_s is not None and rng.random() < 0.5:
                await _look_back(world, holder, work, receiver, terminus)
    finally:
        _abandon(tasks)


async def _open_receiver(world: World, holder: Holder, work: Work, session: Any, prefetch: int) -> tuple[Any, Terminus]:
    token, queue = holder.token, work.source.name
    terminus = work.terminus(world, IN, token)
    holder.termini.append(terminus)
    receiver = await session.receiver(queue, name=IN, prefetch=prefetch, exactly_once=work.store)
    world.oracle.attached(queue, token)
    world.oracle.termini.attached(terminus, token, receiver._core._identity)
    return receiver, terminus


async def _look_back(world: World, holder: Holder, work: Work, receiver: Any, terminus: Terminus) -> None:
    """Ask the broker something over the link: whoever is answered is there."""
    token = holder.token
    if await receiver.refresh(timeout=0.5) and holder.token == token:
        world.oracle.termini.attached(terminus, token, receiver._core._identity)


def _arrived(world: World, holder: Holder, work: Work, terminus: Terminus, message: Any) -> Seen:
    from tests.simulation.users import see

    seen = see(message, work.source.name)
    # The link may be on another terminus than the store says yet: what is written is safe only a little later.
    world.oracle.termini.identified(terminus.name, message.receiver._identity)
    world.oracle.arrives(seen, holder.token, terminus=terminus, tag=message.delivery_tag)
    return seen


def _commit(work: Work, message: Any, verb: str) -> None:
    """Write the outcome with the work itself."""
    assert isinstance(work.store, KeptStore)
    entry = StoreEntry(EntryKind.OUTCOME, IN, message.delivery_tag, encode_composite(VERBS[verb][1]))
    work.store.write_within(None, entry)


async def _decide(world: World, terminus: Terminus, message: Any, seen: Seen, verb: str) -> None:
    tag, said_s, number = message.delivery_tag, world.scheduler.now, terminus.number
    try:
        receipt = await VERBS[verb][0](message)
    except AcquitError:
        return
    if terminus.number == number:
        world.oracle.termini.told(terminus, tag, seen, verb, receipt.status, said_s)


# -- the end -----------------------------------------------------------------------------------------------------------


async def come_back(world: World, connect: Callable[[str], Awaitable[Any]], *, receivers: bool) -> None:
    """Attach the links of all clients once more, with nothing to do but what is left: sends whose outcome is unknown,
    outcomes that nobody has confirmed, and messages that are held. `receivers`: theirs too."""
    from tests.simulation.users import Holder

    if world.options.connection.max_frame_size < FRAME_BYTES_MIN:  # none was granted
        return
    finishing = {OUT: _finish_sending, **({IN: _finish_receiving} if receivers else {})}
    for work in world.works.values():
        for link, finish in finishing.items():
            if link not in work.links or not (work.store.durable or work.entries(link).identity):
                continue
            holder = world.holders[work.client] = Holder(world, work.client)
            connection = holder.connection = await connect(work.client)
            try:
                await finish(world, holder, work, await connection.session("individual"))
            finally:
                holder.lose()
                await connection.close()


async def _finish_sending(world: World, holder: Holder, work: Work, session: Any) -> None:
    for _ in range(2):
        try:
            _, _, tasks = await _open_sender(world, holder, work, session)
            break
        except LinkDetached as error:
            if ENDED not in str(error):
                raise
    else:
        raise Violation(f"suspended: {work.client} cannot attach its sender again")
    if tasks:
        await asyncio.wait(tasks, timeout=1.0)
        _abandon(tasks)
    await asyncio.sleep(0.5)


async def _finish_receiving(world: World, holder: Holder, work: Work, session: Any) -> None:
    receiver, terminus = await _open_receiver(world, holder, work, session, 0)
    tasks = None
    while tasks is None or tasks:  # what is resumed needs no credit of ours, and comes as far as what came is settled
        await asyncio.sleep(0.5)
        tasks = []
        while (message := receiver._core.take()) is not None:
            seen = _arrived(world, holder, work, terminus, message)
            tasks.append(asyncio.ensure_future(_decide(world, terminus, message, seen, "accept")))
        for task in tasks:
            await task
    left = work.entries(IN).outcomes
    if left:
        raise Violation(f"suspended: outcomes of {work.client} that nobody confirms: {left}")
    await receiver.close()


def unsent(world: World) -> set[str]:
    """Keys of sends that are in stores of clients: those of memory are gone with their process."""
    works = [work for work in world.works.values() if work.store.durable or not work.process.dead]
    return {key_of(payload) for work in works for payload in work.store.written(OUT).sends.values()}


async def end_termini(world: World, connection: Any, *, draw: Random | None = None) -> int:
    """End those that are there, as an operator; with `draw`, one of them. Returns how many messages went back."""
    reply_to = "termini-answers"
    if world.options.connection.links_max == 1:  # there is no room for both links
        return -1 if draw is not None else _end_without_links(world)
    session = await connection.session()
    answers = await session.receiver(MANAGEMENT_NODE, target=reply_to, prefetch=5)
    requests = await session.sender(MANAGEMENT_NODE)

    async def ask(operation: str, name: str) -> Any:
        properties = {"operation": operation, "type": TERMINUS_ENTITY, "name": name}
        await requests.send(Message(None, message_id=name, reply_to=reply_to, application_properties=properties))
        answer = await answers.receive(timeout=4.0)
        return None if answer is None else answer.body

    found = await ask("QUERY", "all")
    returned = 0
    if found is not None:
        rows = [dict(zip(found["attributeNames"], row, strict=True)) for row in found["results"]]
        for row in [draw.choice(rows)] if draw is not None and rows else rows:
            world.oracle.termini.ends_all([f"{row['container']}/{row['link']}"])
            answer = await ask("DELETE", row["identity"])
            returned += answer["returned"] if isinstance(answer, dict) and "returned" in answer else 0
    await answers.close()
    return returned


def _end_without_links(world: World) -> int:
    """`end_termini` as by HTTP, for a broker whose connections may have one link each."""
    administration = world.server._core.administration
    found = administration.termini()
    for terminus in found:
        world.oracle.termini.ends_all([f"{terminus.container}/{terminus.link}"])
        administration.end_terminus(terminus.identity)
    world.server._turn()
    return sum(terminus.messages for terminus in found)


__all__ = [
    "KEPT_MS",
    "Work",
    "come_back",
    "end_termini",
    "receive_once",
    "receive_once_in_memory",
    "relay_once",
    "send_once",
    "send_once_in_memory",
    "unsent",
]
