"""What programs do with the client: each function is a user of one connection, and tells the oracle what it was told.

They are the real client (`acquit.aio`) on a simulated process. A user goes on until `world.working` ends, over as many
lost connections as that takes; when its connection is lost for good, it makes another. It has one receiver for a
queue, and none closes its session: the connection ends as a whole, after the oracle has heard of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, Any

from acquit import DeliveryMode, Message, Subscription, aio
from acquit.client.options import ConnectOptions
from acquit.client.receipts import ReceiptStatus
from acquit.client.reconnecting import ConnectionEvent, ConnectionEventKind, Reconnect
from acquit.errors import (
    AcquitError,
    CreditExhausted,
    DeliveryInDoubt,
    NotSent,
    SendFailed,
    TransactionInDoubt,
    TransactionRolledBack,
)
from acquit.protocol.extensions import ORIGIN, POSTED_AT, SEQUENCE
from tests.simulation.administering import administer
from tests.simulation.facts import Posting, Seen, Sent, Transaction, Violation
from tests.simulation.leaving import leave
from tests.simulation.pausing import pause
from tests.simulation.places import COLOURS, VALUE, Place
from tests.simulation.resuming import receive_once, receive_once_in_memory, relay_once, send_once, send_once_in_memory

if TYPE_CHECKING:
    from tests.simulation.termini import Terminus
    from tests.simulation.world import World

URL = "amqp://127.0.0.1:5672"
OPTIONS = ConnectOptions(
    reconnect=Reconnect(delay_ms=20, delay_max_ms=500, outage_max_ms=20_000),
    connect_timeout_ms=3_000,
    answer_timeout_ms=3_000,
    close_timeout_ms=1_000,
    ack_timeout_ms=5_000,
    send_timeout_ms=8_000,
    idle_timeout_ms=4_000,
)

PATIENCE_S = 10_000.0
SILENT_S = 3.0
"""What is to come to who has credit comes sooner than that, if its link is there."""
SILENT_TOGETHER_S = 12.0
"""And sooner than that what a receiver held that is gone: before, the broker may believe that it is there."""
PASSING = Subscription(name="passing", durable=False, shared=True)
MANNERS: tuple[dict[str, int], ...] = (
    {"accept": 60, "reject": 10, "release": 15, "fail": 15},
    {"accept": 10, "release": 10, "fail": 80},
    {"accept": 10, "release": 20, "modify": 70},
    {"accept": 50, "reject": 5, "release": 15, "not here": 20, "fail here": 10},
)
"""How often a consumer does what: most do their work; one that cannot fails again and again, or gives all back, or
wants others to try."""
VERBS: Mapping[str, Callable[[Any], Awaitable[Any]]] = {
    "accept": lambda message: message.accept(),
    "reject": lambda message: message.reject(description="by chance"),
    "release": lambda message: message.release(),
    "modify": lambda message: message.modify(),
    "fail": lambda message: message.modify(delivery_failed=True),
    "not here": lambda message: message.modify(undeliverable_here=True),
    "fail here": lambda message: message.modify(delivery_failed=True, undeliverable_here=True),
}
RETIRING = frozenset({"accept", "reject"})
FAILING = frozenset({"fail", "fail here"})
SHUNNING = frozenset({"not here", "fail here"})
"""Verbs after which a message may be gone, an attempt has failed, and it comes no more to who said so."""

User = Callable[["World", "Holder"], Awaitable[None]]


class HandlerFailed(Exception):
    """What a listener raises on purpose."""


class Holder:
    """A user's present connection: who holds what it was given."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.token = ""
        self.connection: aio.Connection | None = None
        self.transaction: Transaction | None = None
        """In which something was done, and which has not ended."""
        self.termini: list[Terminus] = []
        """What outlives it."""
        self.lose()

    def hear(self, event: ConnectionEvent) -> None:
        """Its connection opened, or was lost: it holds nothing that it held before."""
        self.lose()
        opened = event.kind in (ConnectionEventKind.CONNECTED, ConnectionEventKind.RESTORED)
        if opened and self.world.is_cut(self.name):  # the last that came through
            self.world.oracle.connection_broke(self.token)

    def lose(self) -> None:
        """Take another token: the old one's messages are anybody's."""
        self.world.oracle.connection_broke(self.token)
        self.world.connections[self.name] += 1
        self.token = f"{self.name}#{self.world.connections[self.name]}"
        for terminus in self.termini:
            self.world.oracle.termini.moves(terminus, self.token)


async def live(world: World, name: str, user: User) -> None:
    """Be this user for as long as the world works."""
    holder = world.holders[name] = Holder(world, name)
    container = None if user in NAMELESS else name
    while world.working:
        try:
            connection = await aio.connect(URL, container_id=container, options=OPTIONS, on_event=holder.hear)
            holder.connection = connection
            try:
                await user(world, holder)
            finally:
                holder.lose()
                holder.termini.clear()
                with suppress(AcquitError):
                    await connection.close()
        except AcquitError:
            await asyncio.sleep(0.05)


def see(message: Any, queue: str, *, fresh: bool | None = None) -> Seen:
    """What a message says, for the oracle. `fresh`: that nobody had it, of one that cannot tell."""
    said = message.annotations
    return Seen(
        queue=queue,
        sequence=int(said[SEQUENCE]),
        body=str(message.body),
        fresh=not message.redelivered and not message.delivery_count if fresh is None else fresh,
        count=message.header.delivery_count,
        priority=message.priority,
        posted_at_ms=int(said[POSTED_AT]),
        origin=int(said.get(ORIGIN, 0)),
        origin_queue=str(said.get("x-opt-ORIG-QUEUE", "")),
        ended_at_ms=int(said.get("x-opt-ACTUAL-EXPIRY", 0)),
    )


# -- senders -----------------------------------------------------------------------------------------------------------


def compose(world: World, place: Place, *, durable: bool, last: bool = False) -> tuple[Posting, Message]:
    """A message for an address, and what the oracle has to know of it. `last`: of those that are there."""
    key, body = world.body()
    fields = place.dress(world.rng)
    if last and "priorities" in place.traits:
        fields["priority"] = 0
    posting = Posting(
        key,
        place.name,
        durable,
        priority=fields.get("priority", 4),
        group=fields.get("group_id"),
        value=fields["application_properties"].get(VALUE),
        colour=fields["application_properties"]["colour"],
        ttl_ms=fields.get("ttl_ms") or place.settings.get("default_ttl_ms", 0),
        delay_ms=fields.get("annotations", {}).get("x-opt-delivery-delay", 0),
    )
    return posting, Message(body, message_id=key, durable=durable, **fields)


async def produce(world: World, holder: Holder) -> None:
    """Send one message after the other, or several at a time; now and then one of them twice."""
    rng, oracle = world.rng, world.oracle
    assert holder.connection is not None
    session = await holder.connection.session()
    places = (*world.places, *world.topics, world.once)
    # Else what does not say that it is durable would be.
    senders = {
        place.name: await session.sender(place.name, topic=place.topic, delivery_mode=DeliveryMode.NON_PERSISTENT)
        for place in places
    }
    while world.working:
        together = []
        for _ in range(rng.choice((1, 1, 1, 5, 30))):
            place = rng.choice(places)
            posting, message = compose(world, place, durable=rng.random() < 0.85)
            oracle.sends(posting)
            times = 2 if "unique" in place.traits and rng.random() < 0.3 else 1
            together += [_send(world, senders[place.name], posting.key, message, times) for _ in range(times)]
        await asyncio.gather(*together)
        await asyncio.sleep(rng.choice((0.0, 0.0, 0.01, 0.2)))


async def flood(world: World, holder: Holder) -> None:
    """Send many volatile messages at a time, alike as far as their address lets them be."""
    rng, oracle = world.rng, world.oracle
    assert holder.connection is not None
    session = await holder.connection.session()
    place = rng.choice((*world.places, *world.topics))
    sender = await session.sender(place.name, topic=place.topic, delivery_mode=DeliveryMode.NON_PERSISTENT)
    while world.working:
        receipts = []
        for _ in range(rng.choice((1, 10, 60))):
            posting, message = compose(world, place, durable=rng.random() < 0.01)
            oracle.sends(posting)
            with suppress(NotSent):
                receipts.append((posting.key, await sender.send(message, wait=False, timeout=2.0)))
        for key, receipt in receipts:
            try:
                await receipt.result()
            except SendFailed:
                oracle.answered(key, Sent.REFUSED)
            else:
                oracle.answered(key, Sent.ACCEPTED)
        await asyncio.sleep(rng.choice((0.0, 0.01, 0.2)))


async def _send(world: World, sender: Any, key: str, message: Message, times: int) -> None:
    oracle, timeout = world.oracle, world.rng.choice((None, 2.0))
    try:
        if world.rng.random() < 0.3:
            receipt = await sender.send(message, wait=False, timeout=timeout or 8.0)
            await receipt.result()
        else:
            await sender.send(message, timeout=timeout)
    except (NotSent, SendFailed):
        if times == 1:
            oracle.answered(key, Sent.REFUSED)
    except (DeliveryInDoubt, AcquitError):
        pass
    else:
        oracle.answered(key, Sent.ACCEPTED)


async def insist(world: World, holder: Holder) -> None:
    """Send, and wait for room as long as it takes, also when all others have gone."""
    rng, oracle = world.rng, world.oracle
    assert holder.connection is not None
    session = await holder.connection.session()
    places = [place for place in world.places if not place.displaces and "scheduled" not in place.traits]
    limits = world.options.limits
    if not places or 1 in (limits.connections_max, limits.connections_per_address_max):  # nobody else would get in
        return await asyncio.sleep(1.0)
    (place,) = rng.choices(places, [9 if place.settings.get("full_policy") == "block" else 1 for place in places])
    sender = await session.sender(place.name)
    while world.working:
        posting, message = compose(world, place, durable=True, last=True)
        oracle.sends(posting)
        world.waiting[posting.key] = holder.name
        try:
            receipt = await sender.send(message, wait=False, timeout=PATIENCE_S)
            await receipt.result()
        except SendFailed:
            oracle.answered(posting.key, Sent.REFUSED)
        else:
            oracle.answered(posting.key, Sent.ACCEPTED)
        finally:
            del world.waiting[posting.key]
        await asyncio.sleep(rng.random() * 0.2)
    return None


# -- receivers ---------------------------------------------------------------------------------------------------------


async def consume(world: World, holder: Holder) -> None:
    """Give each message an outcome of its own, now or later."""
    await _consume(world, holder, world.rng.choice(world.places).name)


async def subscribe(world: World, holder: Holder) -> None:
    """Do so with those of a subscription that lasts."""
    rng = world.rng
    place, shared = rng.choice(world.topics), rng.random() < 0.5
    name = "shared" if shared else "mine"
    queue = f"{place.name}::{holder.name}/{name}"
    await _consume(world, holder, queue, subscription=Subscription(name=name, durable=True, shared=shared))


async def look_for_some(world: World, holder: Holder) -> None:
    """Do so with those of one colour, where no groups are bound to consumers: whom it does not match goes elsewhere."""
    colour = world.rng.choice(COLOURS)
    free = [place for place in world.places if "groups" not in place.traits]
    if free:
        # What waits for another attempt may hold up those whom others were passed over for.
        (place,) = world.rng.choices(free, [3 if "delays" in place.traits else 1 for place in free])
        await _consume(world, holder, place.name, colour=colour, selector=f"colour = '{colour}'")
    await asyncio.sleep(1.0)


async def _consume(world: World, holder: Holder, queue: str, *, colour: str = "", **options: Any) -> None:
    rng, oracle = world.rng, world.oracle
    assert holder.connection is not None
    session = await holder.connection.session("individual")
    prefetch = rng.choice((0, 1, 5, 50))
    properties = {"priority": rng.choice((-1, 0, 5))}
    address = queue.partition("::")[0]
    if colour:
        oracle.selects(queue)
    if "subscription" in options:
        oracle.subscribes(queue)
    token = holder.token
    receiver = await session.receiver(address, prefetch=prefetch, properties=properties, **options)
    if "subscription" in options:
        oracle.subscribed(queue)
    oracle.attached(queue, token)
    await _work(
        world, session, receiver, queue, lambda: holder.token, lambda: world.working, prefetch=prefetch, colour=colour
    )


async def watch(world: World, holder: Holder) -> None:
    """Do so with those of one subscription after the other that goes with its link."""
    rng, colour = world.rng, world.rng.choice(("", "", *COLOURS))
    selector = f"colour = '{colour}'" if colour else None
    for number in count():
        if not world.working:
            return
        end_s = world.scheduler.now + rng.choice((0.2, 1.0, 100.0))
        queue = f"{rng.choice(world.topics).name}::{holder.token}-{number}"
        await _pass(world, holder, queue, end_s, SILENT_S, colour=colour, topic=True, selector=selector)


async def share(world: World, holder: Holder) -> None:
    """Do so with those of a subscription that goes with the last of its links, beside others."""
    rng = world.rng
    while world.working:
        end_s = world.scheduler.now + rng.choice((0.2, 1.0, 100.0))
        queue = f"{rng.choice(world.topics).name}::{PASSING.name}"
        await _pass(world, holder, queue, end_s, SILENT_TOGETHER_S, subscription=PASSING)


async def _pass(
    world: World, holder: Holder, queue: str, end_s: float, silent_s: float, *, colour: str = "", **options: Any
) -> None:
    """Be there until then, or until the connection is lost; leave, or wait until nothing has come for so long."""
    rng, oracle, token = world.rng, world.oracle, holder.token
    assert holder.connection is not None
    session = await holder.connection.session("individual")
    prefetch = rng.choice((0, 1, 5, 50))
    shared, link = "subscription" in options, f"{token}/{next(world.links)}"
    oracle.joins(queue, token, link, shared=shared)
    receiver = await session.receiver(queue.partition("::")[0], prefetch=prefetch, **options)
    oracle.watches(queue, link, colour)

    def stays() -> bool:
        return world.working and holder.token == token and world.scheduler.now < end_s

    held = await _work(world, session, receiver, queue, lambda: link, stays, prefetch=prefetch, colour=colour)
    while holder.token == token and (not world.working or (not shared and rng.random() < 0.3)):
        for one in held:
            await _decide(world, {"accept": 1}, *one)
        held, since_s = [], world.scheduler.now
        for patience_s in (silent_s, SILENT_S):
            message = await receiver.receive(timeout=patience_s)
            if message is not None:
                seen = see(message, queue)
                oracle.arrives(seen, link)
                held.append((message, seen, link))
                break
            if not await receiver.refresh(timeout=SILENT_S):
                break
        else:
            oracle.silent(queue, link, since_s)
            break
    oracle.leaves(queue, link, [seen.sequence for _, seen, _ in held])
    await receiver.close()
    if holder.token == token and receiver._core.detached.done:  # else its time for that was over
        oracle.left(queue, link)


async def _work(
    world: World,
    session: Any,
    receiver: Any,
    queue: str,
    who: Callable[[], str],
    stays: Callable[[], bool],
    *,
    prefetch: int,
    colour: str,
) -> list[tuple[Any, Seen, str]]:
    """Receive, and give out outcomes. Returns what is left in hand."""
    rng, oracle = world.rng, world.oracle
    held: list[tuple[Any, Seen, str]] = []
    recovered: set[int] = set()
    """These come out of the buffer, whoever has credit."""
    asked_s = None
    manner = rng.choice(MANNERS)
    locks = "locks" in oracle.place(queue).traits
    while stays():
        if asked_s is None and prefetch == 0 and not recovered:
            asked_s = world.scheduler.now
        try:
            message = await receiver.receive(timeout=rng.choice((0.1, 1.0)))
        except CreditExhausted:
            message = None
        if message is not None:
            seen = see(message, queue)
            oracle.arrives(seen, who(), asked_s=asked_s)
            asked_s = None
            recovered.discard(seen.sequence)
            held.append((message, seen, who()))
            if colour and message.application_properties["colour"] != colour:
                raise Violation(f"selector: {seen} came to who asked for {colour}")
        else:
            recovered.clear()
            if rng.random() < 0.05:
                await receiver.drain(timeout=1.0)
        if held and locks and rng.random() < 0.3:
            await _keep(world, receiver, *rng.choice(held))
        if held and rng.random() < 0.02 and not oracle.is_broken(who()):
            oracle.recovers(who(), [seen.sequence for _, seen, token in held if token == who()])
            await session.recover()
            asked_s = None
            recovered |= {seen.sequence for _, seen, _ in held}
            held.clear()
        while held and (rng.random() < 0.7 or len(held) > 8):
            await _decide(world, manner, *held.pop(rng.randrange(len(held))))
    return held


async def _keep(world: World, receiver: Any, message: Any, seen: Seen, token: str) -> None:
    """Renew the lock of a message, or hold it for longer than that lasts."""
    rng, oracle, said_s = world.rng, world.oracle, world.scheduler.now
    if rng.random() < 0.2:
        return await asyncio.sleep(oracle.place(seen.queue).lock_s * rng.choice((0.5, 1.0, 1.5)))
    oracle.renews(seen.sequence)
    try:
        receipt = await message.renew_lock()
    except AcquitError:  # it ran out
        return None
    if receipt.status is ReceiptStatus.SENT and await receiver.refresh(timeout=1.0):
        oracle.renewed(seen.sequence, token, said_s)  # what was said before was heard before
    return None


async def _decide(world: World, manner: Mapping[str, int], message: Any, seen: Seen, token: str) -> None:
    """Give a message an outcome, and tell the oracle what came of that."""
    oracle, sequence, said_s = world.oracle, seen.sequence, world.scheduler.now
    (choice,) = world.rng.choices(tuple(manner), tuple(manner.values()))
    rejects, retiring = choice == "reject", 0
    late = choice != "fail" and oracle.ran_out(sequence, token)  # which is what the lock says, too
    if choice in RETIRING:
        retiring = oracle.retires(sequence, rejects=rejects)
    elif choice in FAILING:
        oracle.fails(sequence)
    else:
        oracle.gives_back(sequence)
    if choice in SHUNNING:
        oracle.shuns(sequence, token)
    try:
        receipt = await VERBS[choice](message)
    except AcquitError:
        return
    if receipt.status is ReceiptStatus.APPLIED:
        oracle.applied(seen, said_s, late=late, retires=bool(retiring))
        if retiring:
            oracle.retired(sequence, rejected=rejects)
        elif choice in FAILING:
            oracle.failed(sequence, seen.count, said_s)
        if choice in SHUNNING:
            oracle.shunned(sequence, token)
    elif receipt.status is ReceiptStatus.STALE and retiring:
        oracle.stale(sequence, retiring)


async def acknowledge_all(world: World, holder: Holder) -> None:
    """Take several, and acknowledge them together (CLIENT)."""
    rng, oracle = world.rng, world.oracle
    assert holder.connection is not None
    queue = rng.choice(world.places).name
    session = await holder.connection.session("client")
    token = holder.token
    receiver = await session.receiver(queue, prefetch=rng.choice((5, 20)))
    oracle.attached(queue, token)
    while world.working:
        taken, tokens = [], set()
        for _ in range(rng.randint(1, 5)):
            message = await receiver.receive(timeout=0.2)
            if message is None:
                break
            seen = see(message, queue)
            oracle.arrives(seen, holder.token)
            taken.append(seen.sequence)
            tokens.add(holder.token)
        if taken and rng.random() < 0.1:
            if len(tokens) == 1:  # else some of it went with a connection that was lost
                oracle.recovers(holder.token, taken)
            await session.recover()
            continue
        for sequence in taken:
            oracle.retires(sequence)
        if taken:
            receipt = await session.acknowledge()
            if receipt.status is ReceiptStatus.APPLIED:
                for sequence in taken:
                    oracle.retired(sequence)


async def listen(world: World, holder: Holder) -> None:
    """Have messages handled as they come, in a mode in which nobody acknowledges; some handlers fail."""
    rng, oracle = world.rng, world.oracle
    assert holder.connection is not None
    queue = rng.choice(world.places).name
    mode = rng.choice(("auto", "dups_ok", "pre_ack"))
    session = await holder.connection.session(mode)
    token = holder.token
    receiver = await session.receiver(queue, prefetch=rng.choice((1, 10)))
    oracle.attached(queue, token)
    concurrency = rng.choice((1, 3))
    """With more than one nobody knows which handler is first."""

    async def handle(message: Any) -> None:
        seen = see(message, queue)
        try:
            oracle.arrives(replace(seen, fresh=seen.fresh and concurrency == 1), holder.token)
        except Violation as why:  # which the listener would take for a handler's
            world.scheduler.failures.append(why)
        fails = rng.random() < 0.2
        if mode == "pre_ack":
            oracle.retires(seen.sequence)
        await asyncio.sleep(rng.choice((0.0, 0.01)))
        if mode != "pre_ack":
            if fails:
                oracle.fails(seen.sequence)
            else:
                oracle.retires(seen.sequence)
        if fails:
            raise HandlerFailed

    listener = receiver.start_listener(handle, concurrency, lambda _message, _error: None)
    while world.working and not await listener.wait(0.5):
        pass
    await listener.stop()


async def receive(world: World, holder: Holder) -> None:
    """Take messages that count as acknowledged when they are handed out."""
    rng, oracle = world.rng, world.oracle
    assert holder.connection is not None
    queue = rng.choice(world.places).name
    session = await holder.connection.session(rng.choice(("auto", "dups_ok", "pre_ack")))
    token = holder.token
    receiver = await session.receiver(queue, prefetch=rng.choice((0, 1, 10)))
    oracle.attached(queue, token)
    while world.working:
        message = await receiver.receive(timeout=0.5)
        if message is not None:
            seen = see(message, queue)
            oracle.arrives(seen, holder.token)
            oracle.retires(seen.sequence)
            await asyncio.sleep(rng.choice((0.0, 0.1)))


async def browse(world: World, holder: Holder) -> None:
    """Look at messages, and take none."""
    rng = world.rng
    assert holder.connection is not None
    queue = rng.choice(world.places).name
    session = await holder.connection.session()
    receiver = await session.receiver(queue, prefetch=rng.choice((1, 20)), browse=True)
    while world.working:
        message = await receiver.receive(timeout=0.5)
        if message is not None:
            world.oracle.browses(see(message, queue), holder.token)
            await asyncio.sleep(rng.choice((0.0, 0.05)))


async def take_at_once(world: World, holder: Holder) -> None:
    """Receive what is settled as it is sent (NO_ACK)."""
    rng, queue = world.rng, world.once.name
    assert holder.connection is not None
    session = await holder.connection.session("no_ack")
    receiver = await session.receiver(queue, prefetch=10)
    while world.working:
        message = await receiver.receive(timeout=0.5)
        if message is not None:
            world.oracle.arrives(see(message, queue), holder.token, on_arrival=True)
        else:
            await asyncio.sleep(rng.random())


# -- transactions ------------------------------------------------------------------------------------------------------


async def transact(world: World, holder: Holder) -> None:
    """Take some, of one queue or of two, post some, and commit, or not."""
    rng, oracle = world.rng, world.oracle
    assert holder.connection is not None
    places = (*world.places, *world.topics)
    queues = [place.name for place in rng.sample(world.places, rng.choice((1, 2)))]
    session = await holder.connection.session("transacted")
    senders = {place.name: await session.sender(place.name, topic=place.topic) for place in places}
    token = holder.token
    receivers = {queue: await session.receiver(queue, prefetch=rng.choice((1, 10))) for queue in queues}
    for queue in queues:
        oracle.attached(queue, token)
    while world.working:
        world.transactions += 1
        transaction = holder.transaction = Transaction(f"transaction {world.transactions}")
        commits = False
        try:
            for _ in range(rng.randint(0, 3)):
                queue, receiver = rng.choice(list(receivers.items()))
                message = await receiver.receive(timeout=0.2)
                if message is None:
                    break
                seen = see(message, queue)
                oracle.takes(seen, holder.token, transaction)
                if rng.random() < 0.2:
                    oracle.renews(seen.sequence)
                    with suppress(AcquitError):  # it is not this one's any more
                        await message.renew_lock()
            targets = rng.choice((places, [rng.choice(places)]))  # to one alone what is posted may stay together
            for _ in range(rng.randint(0, 4)):
                place = rng.choice(targets)
                posting, message = compose(world, place, durable=True)
                oracle.posts(posting, transaction)
                await senders[place.name].send(message)
            if rng.random() < 0.7:
                commits = True
                oracle.commits(transaction)
                await session.commit()
                oracle.committed(transaction)
            else:
                oracle.rolled_back(transaction)
                await session.rollback()
        except TransactionRolledBack:
            oracle.rolled_back(transaction)
        except TransactionInDoubt:
            oracle.in_doubt(transaction)
        except SendFailed:
            oracle.rolled_back(transaction)
            await session.rollback()
        except AcquitError:
            if commits:
                oracle.in_doubt(transaction)
            elif transaction.known is None:
                oracle.rolled_back(transaction)
            raise
        finally:
            holder.transaction = None
        await asyncio.sleep(rng.choice((0.0, 0.05)))


USERS: dict[str, User] = {
    "produce": produce,
    "produce_too": produce,
    "insist": insist,
    "flood": flood,
    "consume": consume,
    "consume_too": consume,
    "look_for_some": look_for_some,
    "subscribe": subscribe,
    "acknowledge_all": acknowledge_all,
    "listen": listen,
    "receive": receive,
    "browse": browse,
    "take_at_once": take_at_once,
    "administer": administer,
    "transact": transact,
    "transact_too": transact,
    "watch": watch,
    "share": share,
    "share_too": share,
    "send_once": send_once,
    "send_once_in_memory": send_once_in_memory,
    "receive_once": receive_once,
    "receive_once_too": receive_once,
    "receive_once_in_memory": receive_once_in_memory,
    "relay_once": relay_once,
    "leave": leave,
    "pause": pause,
}
"""Who is in a world, each with a process and a connection of their own."""
NAMELESS: frozenset[User] = frozenset({share})
"""Whose connections have no container id of their own, so that their subscriptions are everybody's."""

__all__ = ["URL", "USERS", "Holder", "compose", "live", "see"]
