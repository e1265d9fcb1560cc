"""Peers that speak in frames of their own: some that keep to the specification as no client does, some that do not.

`honest` sends and receives as users do, and tells the oracle; but it uses what the specification allows and real
clients leave aside: scattered channels and handles, windows of one transfer, messages cut into frames at any byte and
mixed with those of other links, aborted ones, outcomes by range, drain, echo, links that are stolen or detached without
being closed, transactions that are left behind.

`attack` does what `tests.support.raw_peer` and `tests.support.hostile` know of senseless and illegal frames, on
addresses of its own. The oracle is told nothing: nobody else may notice, whatever the broker sends must be frames, and
when it says why it ends something, that must be a condition that there is.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from random import Random
from typing import TYPE_CHECKING, Any, Final

from acquit.protocol.composite import encode_composite
from acquit.protocol.constants import AMQP_HEADER, SASL_HEADER
from acquit.protocol.definitions import (
    Accepted,
    Attach,
    Begin,
    Close,
    Coordinator,
    Declare,
    Declared,
    Detach,
    Discharge,
    Disposition,
    End,
    Error,
    Flow,
    Modified,
    Open,
    Performative,
    RcvSettleMode,
    Received,
    Rejected,
    Released,
    Role,
    SaslInit,
    SaslPerformative,
    Source,
    Target,
    TransactionalState,
    Transfer,
)
from acquit.protocol.frames import SASL_FRAME, FrameDecoder, encode_frame
from acquit.protocol.message import Message
from tests.simulation.facts import Sent, Transaction, Violation
from tests.simulation.users import Holder, compose, see
from tests.support.hostile import Talk
from tests.support.raw_peer import ADDRESSES, RULES, RawTalker

if TYPE_CHECKING:
    from tests.simulation.world import World

Peer = Callable[["World", str], Coroutine[Any, Any, None]]

WINDOW: Final = 0x7FFFFFFF
WORDS: Final = (None, Received(0, 0), Accepted())
"""What a sender says of a message of its own while it sends it (2.6.12)."""
PATIENCE_S: Final = 5.0
HEARTBEAT_S: Final = 0.5
TRANSFER_BYTES: Final = 200
"""Room in a frame for what is not payload."""
OURS: Final = tuple(
    address for address in ADDRESSES if address.partition("::")[0] not in ("DLQ", "ExpiryQueue", "once", "a")
)
"""Addresses that attackers speak of: none that users do."""
ATTACKED: Final = tuple(rule for rule in RULES if rule.match in OURS or "#" in rule.match)
"""The policies of these addresses."""
CONDITIONS: Final = frozenset(
    {
        *("amqp:not-found", "amqp:unauthorized-access", "amqp:decode-error", "amqp:resource-limit-exceeded"),
        *("amqp:not-allowed", "amqp:invalid-field", "amqp:not-implemented", "amqp:resource-locked"),
        *("amqp:precondition-failed", "amqp:resource-deleted", "amqp:illegal-state", "amqp:frame-size-too-small"),
        *("amqp:connection:forced", "amqp:connection:framing-error"),
        *("amqp:session:window-violation", "amqp:session:errant-link", "amqp:session:handle-in-use"),
        *("amqp:session:unattached-handle", "amqp:link:detach-forced", "amqp:link:transfer-limit-exceeded"),
        *("amqp:link:message-size-exceeded", "amqp:link:stolen"),
        *("amqp:transaction:unknown-id", "amqp:transaction:rollback", "amqp:transaction:timeout"),
    }
)
"""Of the specification (2.8.15 to 2.8.18, 4.5.8), without the one for errors of the broker's own."""


class Speaker(asyncio.Protocol):
    """One connection: reads what comes as frames, and hands each to `hear`."""

    def __init__(self, world: World, hear: Callable[[int, Performative | None, bytes], None]) -> None:
        self._world = world
        self._hear = hear
        self._decoder = FrameDecoder(0xFFFF_FFFF)
        self._greeting: bytes | None = b""
        self._news = asyncio.Event()
        self._written_s = 0.0
        self.over = False
        self.transport: asyncio.Transport = None  # type: ignore[assignment]  # known before anything else

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        if self._greeting is not None:  # SASL is over when AMQP's header comes
            self._greeting += data
            _, found, data = self._greeting.partition(AMQP_HEADER)
            if not found:
                return
            self._greeting = None
        self._decoder.feed(data)
        for frame in self._decoder:
            said = frame.performative
            assert not isinstance(said, SaslPerformative)
            if isinstance(said, Close | End | Detach) and said.error is not None:
                self._check(said.error)
            self._hear(frame.channel, said, frame.payload)
            self.over = self.over or isinstance(said, Close)
        self._news.set()

    def _check(self, error: Error) -> None:
        condition = str(error.condition)
        failed = self._world.disk.raised or self._world.disks_failed
        if condition not in CONDITIONS and not (condition == "amqp:internal-error" and failed):
            raise Violation(f"condition: the broker ends something for {error}")

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self.over = True
        self._news.set()

    async def heard(self, until: Callable[[], object], within_s: float = PATIENCE_S) -> bool:
        """Wait until this is so; False where the connection is over first, or it takes too long."""
        loop = asyncio.get_running_loop()
        end = loop.time() + within_s
        while not until():
            left = end - loop.time()
            if self.over or left <= 0:
                return False
            silent_s = loop.time() - self._written_s
            if silent_s >= HEARTBEAT_S:  # however much is heard: the broker wants to hear something too
                self.write(encode_frame(0, b""))
                silent_s = 0.0
            self._news.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._news.wait(), min(left, HEARTBEAT_S - silent_s))
        return True

    def write(self, data: bytes) -> None:
        """Send bytes, unless it is over."""
        self._written_s = asyncio.get_running_loop().time()
        if not self.over:
            self.transport.write(data)


async def _connect(world: World, hear: Callable[[int, Performative | None, bytes], None]) -> Speaker:
    """Open a socket, over as many attempts as that takes."""
    loop = asyncio.get_running_loop()
    while True:
        try:
            _, speaker = await loop.create_connection(lambda: Speaker(world, hear), "127.0.0.1", 5672)
        except OSError:
            await asyncio.sleep(0.05)
        else:
            return speaker


# -- attackers ---------------------------------------------------------------------------------------------------------

ANONYMOUS: Final = SASL_HEADER + encode_frame(0, encode_composite(SaslInit("ANONYMOUS", b"")), SASL_FRAME)
GREETINGS: Final = (
    *(ANONYMOUS,) * 20,
    b"",
    SASL_HEADER,
    AMQP_HEADER,
    b"AMQP\x02\x01\x00\x00",
    b"GET / HTTP/1.1\r\n\r\n",
    SASL_HEADER + encode_frame(0, encode_composite(SaslInit("PLAIN", b"\0a\0b")), SASL_FRAME),
    SASL_HEADER + encode_frame(0, encode_composite(SaslInit("NONSENSE", b"")), SASL_FRAME),
    SASL_HEADER + encode_frame(0, encode_composite(Open("x")), SASL_FRAME),
    ANONYMOUS + ANONYMOUS,
)
"""What an attacker begins with; most come in."""


async def attack(world: World, name: str) -> None:
    """Say what one may not, or what makes no sense, on one connection after the other."""
    shared: list[bytes] = []
    rng = Random(world.rng.getrandbits(64))
    while world.working:
        talker = RawTalker(rng.getrandbits(64), shared=shared, addresses=OURS)
        wild = Talk(rng.getrandbits(64), 1.0)
        wildness = rng.choice((0.0, 0.0, 0.002, 0.05))

        def hear(channel: int, said: Performative | None, payload: bytes, talker: RawTalker = talker) -> None:
            talker.hear_frame(said)

        speaker = await _connect(world, hear)
        speaker.write(rng.choice(GREETINGS))
        talker.open()
        for _ in range(rng.choice((10, 100, 400))):
            for _ in range(rng.choice((1, 3, 10))):
                talker.step()
            speaker.write(talker.take())
            if rng.random() < wildness:
                speaker.write(wild.wild())
            await asyncio.sleep(rng.choice((0.001, 0.01, 0.01, 0.1)))
            if speaker.over or talker.over or not world.working:
                break
        if rng.random() < 0.3:
            speaker.write(wild.transfer()[: rng.randrange(1, 20)])  # it ends in the midst of a frame
        speaker.transport.abort() if rng.random() < 0.5 else speaker.transport.close()
        await asyncio.sleep(rng.random() * 0.2)


# -- honest peers ------------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class RawLink:
    """A link that an honest peer has attached."""

    session: RawSession
    handle: int
    name: str
    attached: bool = False
    granted: bool = False
    """Its peer has what it was asked for."""
    credit_to: int = 0
    """A sender: the delivery-count up to which it may send."""
    count: int = 0
    token: object = None
    """A receiver: who holds what comes on it."""
    queue: str = ""
    """A receiver: from where."""
    second: bool = False
    """It settles in mode second: the sender last (2.8.3)."""
    partial: bytes = b""
    id: int = 0
    """Of the delivery that is arriving."""


@dataclass(eq=False)
class RawSession:
    """A session that an honest peer has begun."""

    channel: int
    window: int
    begun: bool = False
    next_id: int = 0
    """Of the next transfer; deliveries are counted apart."""
    next_delivery: int = 0
    room_to: int = 0
    """The transfer-id up to which the broker takes transfers."""
    next_incoming: int = 0
    handle_max: int = 255
    theirs: dict[int, RawLink] = field(default_factory=dict)
    links: list[RawLink] = field(default_factory=list)


@dataclass(eq=False)
class Outgoing:
    """A message on its way."""

    link: RawLink
    key: str
    parts: deque[bytes]
    txn: bytes | None
    settled: bool
    aborted: bool = False
    forgets: bool = False
    """Its last frame says settled: no answer comes."""
    speaks: bool = False
    """Its sender states progress or an outcome of its own, and may settle before it has heard one."""
    begun: bool = False
    id: int = 0


class Honest:
    """One connection of an honest peer."""

    def __init__(self, world: World, holder: Holder, rng: Random) -> None:
        self._world = world
        self._oracle = world.oracle
        self._holder = holder
        self._rng = rng
        self._names = count()
        self._sessions: list[RawSession] = []
        self._channels: dict[int, RawSession] = {}
        self._answers: dict[tuple[int, int], Callable[[object], None]] = {}
        """By channel and delivery-id of ours: what to do with its outcome."""
        self._held: deque[tuple[RawLink, int, int]] = deque()
        """Deliveries: link, delivery-id, sequence."""
        self._deciding: dict[tuple[int, int], int] = {}
        """By channel and delivery-id: sequences of those that wait for the broker's settlement."""
        self._unsettled: dict[tuple[int, int], bytes | None] = {}
        """By channel and delivery-id of ours: what we settle once its outcome is final, and in which transaction it
        is."""
        self._refused: set[str] = set()
        """Postings that a transaction did not take."""
        self._receiver: RawLink | None = None
        self._opened: Open | None = None
        self.speaker: Speaker

    # -- hearing -------------------------------------------------------------------------------------------------------

    def hear(self, channel: int, said: Performative | None, payload: bytes) -> None:
        """Take one frame."""
        session = self._channels.get(channel)
        match said:
            case Open():
                self._opened = said
            case Begin(remote_channel=int() as mine):
                session = next(one for one in self._sessions if one.channel == mine)
                self._channels[channel] = session
                session.begun = True
                session.next_incoming = said.next_outgoing_id
                session.room_to = said.incoming_window
                session.handle_max = said.handle_max
            case Attach() if session is not None:
                link = next(one for one in session.links if one.name == said.name and not one.attached)
                session.theirs[said.handle] = link
                link.attached = True
                link.granted = said.source is not None  # otherwise a detach follows
            case Detach() if session is not None:
                link = session.theirs.pop(said.handle)
                link.attached = False
                if link in session.links:
                    session.links.remove(link)
                    self.say(session, Detach(link.handle, said.closed))
            case Flow() if session is not None:
                session.room_to = (said.next_incoming_id or 0) + said.incoming_window
                if said.handle is not None:
                    link = session.theirs[said.handle]
                    if said.link_credit is not None and link.token is None:
                        link.credit_to = (said.delivery_count or 0) + said.link_credit
                if said.echo:
                    self._flow(session)
            case Transfer() if session is not None:
                self._take(session, session.theirs[said.handle], said, payload)
            case Disposition() if session is not None:
                self._settled(session, said)
            case _:
                pass

    def _take(self, session: RawSession, link: RawLink, said: Transfer, payload: bytes) -> None:
        session.next_incoming += 1
        if said.delivery_id is not None:
            link.id = said.delivery_id
        link.partial += payload
        if session.window < WINDOW:
            self._flow(session)
        if said.more:
            return
        data, link.partial = link.partial, b""
        link.count += 1
        if said.aborted:
            return
        message = Message.decode(data)
        seen = see(message, link.queue, fresh=message.first_acquirer and not message.delivery_count)
        self._oracle.arrives(seen, link.token)
        if link is self._receiver:
            self._held.append((link, link.id, seen.sequence))

    def _settled(self, session: RawSession, said: Disposition) -> None:
        last = said.first if said.last is None else said.last
        for id_ in range(said.first, last + 1):
            if said.role is Role.RECEIVER:
                answer = self._answers.pop((session.channel, id_), None) if said.state is not None else None
                if answer is not None:
                    answer(said.state)
                if said.settled:
                    self._unsettled.pop((session.channel, id_), None)
                elif not isinstance(said.state, TransactionalState):
                    self._settle(session, id_)
            elif said.settled:
                sequence = self._deciding.pop((session.channel, id_), None)
                if sequence is not None and isinstance(said.state, Accepted | Rejected):
                    self._oracle.retired(sequence, rejected=isinstance(said.state, Rejected))

    # -- saying --------------------------------------------------------------------------------------------------------

    def _settle(self, session: RawSession, id_: int) -> None:
        """Settle a message of ours, if that is still to be said."""
        if self._unsettled.pop((session.channel, id_), None) is not None:
            self.say(session, Disposition(Role.SENDER, id_, None, True))

    def say(self, session: RawSession, *said: Performative, payload: bytes = b"") -> None:
        """Send performatives."""
        for one in said:
            self.speaker.write(encode_frame(session.channel, encode_composite(one) + payload))

    def _flow(self, session: RawSession, **link: object) -> None:
        self.say(session, Flow(session.next_incoming, session.window, session.next_id, WINDOW, **link))  # type: ignore[arg-type]

    async def open(self) -> bool:
        """Connect, and begin sessions."""
        rng = self._rng
        self.speaker = await _connect(self._world, self.hear)
        size = rng.choice((512, 1_000, 65_536))
        self.speaker.write(ANONYMOUS + AMQP_HEADER)
        self.speaker.write(encode_frame(0, encode_composite(Open(self._holder.name, max_frame_size=size))))
        if not await self.speaker.heard(lambda: self._opened):
            return False
        self._holder.lose()  # from now on it may hold something
        assert self._opened is not None
        top = self._opened.channel_max
        for channel in {min(top, one) for one in rng.choice(((0,), (7, 200), (255, 0, 1)))}:
            session = RawSession(channel, rng.choice((1, 5, WINDOW)))
            self._sessions.append(session)
            self.say(session, Begin(None, 0, session.window, WINDOW))
        return await self.speaker.heard(lambda: all(session.begun for session in self._sessions))

    def _new_link(self, name: str) -> RawLink | None:
        """A link on some session; None where that has as many as it may."""
        session = self._rng.choice(self._sessions)
        used = {link.handle for link in session.links}
        free = [handle for handle in (77, 0, 200, *range(1, 50)) if handle not in used and handle <= session.handle_max]
        if not free:
            return None
        link = RawLink(session, free[0], name)
        session.links.append(link)
        return link

    async def sender(self, target: Target | Coordinator) -> RawLink | None:
        """Attach a link to send on; None where that is refused."""
        link = self._new_link(f"{self._holder.name}-{next(self._names)}")
        if link is None:
            return None
        link.second = self._rng.random() < 0.4
        mode = RcvSettleMode.SECOND if link.second else RcvSettleMode.FIRST
        source = Source("here")
        self.say(
            link.session,
            Attach(link.name, link.handle, Role.SENDER, None, mode, source, target, initial_delivery_count=0),  # type: ignore[arg-type]
        )
        attached = await self.speaker.heard(lambda: link.attached or link not in link.session.links)
        return link if attached and link.attached else None

    async def receiver(self, queue: str) -> None:
        """Attach the link to receive on; while there is one, it is left before, or this steals it."""
        if self._rng.random() < 0.5:
            self.detach()
        self._let_go()
        self._holder.lose()
        link = self._new_link("received")
        if link is None:
            return
        link.token, link.queue = self._holder.token, queue
        link.second = self._rng.random() < 0.5
        self._receiver = link
        mode = RcvSettleMode.SECOND if link.second else RcvSettleMode.FIRST
        self.say(
            link.session,
            Attach(link.name, link.handle, Role.RECEIVER, None, mode, source=Source(queue), target=Target("me")),  # type: ignore[arg-type]
        )
        if await self.speaker.heard(lambda: link.attached or link not in link.session.links):
            if link.attached and link.granted:
                self._oracle.attached(queue, link.token)
            self.grant()

    def _let_go(self) -> None:
        """Whatever is held goes back to its queue, or has gone."""
        self._held.clear()
        self._receiver = None

    def grant(self) -> None:
        """Give credit, drain, or ask for an echo."""
        link = self._receiver
        if link is not None and link.attached:
            credit, drain = self._rng.choice(((0, False), (1, False), (10, False), (10, True), (100, False)))
            echo = self._rng.random() < 0.2
            self._flow(
                link.session,
                handle=link.handle,
                delivery_count=link.count,
                link_credit=credit,
                drain=drain,
                echo=echo,
            )

    def detach(self) -> None:
        """Leave the link without closing it, or close it."""
        link = self._receiver
        if link is not None and link.attached:
            self._let_go()
            self._holder.lose()
            self._leave(link)

    def _leave(self, link: RawLink) -> None:
        if link in link.session.links:
            link.session.links.remove(link)
            self.say(link.session, Detach(link.handle, self._rng.random() < 0.5))

    def decide(self) -> None:
        """Settle deliveries that follow each other as a range, or one."""
        rng, oracle = self._rng, self._oracle
        if not self._held:
            return
        if rng.random() < 0.3:
            self._held.rotate(-rng.randrange(len(self._held)))
        link, first, sequence = self._held.popleft()
        ids, sequences = [first], [sequence]
        while self._held and self._held[0][1] == ids[-1] + 1 and rng.random() < 0.8:
            _, id_, sequence = self._held.popleft()
            ids.append(id_)
            sequences.append(sequence)
        state = rng.choice((Accepted(), Accepted(), Accepted(), Rejected(), Released(), Modified(True)))
        gone = isinstance(state, Accepted | Rejected)
        answered = link.second or rng.random() < 0.2  # also in mode first an outcome may be said before it is settled
        for id_, sequence in zip(ids, sequences, strict=True):
            if gone:
                oracle.retires(sequence, rejects=isinstance(state, Rejected))
            elif isinstance(state, Modified):
                oracle.fails(sequence)
            else:
                oracle.gives_back(sequence)
            if answered:
                self._deciding[link.session.channel, id_] = sequence
        if rng.random() < 0.1:
            self.say(link.session, Disposition(Role.RECEIVER, ids[0], ids[-1], False, Received(0, 0)))
        self.say(link.session, Disposition(Role.RECEIVER, ids[0], ids[-1], not answered, state))

    async def post(self, links: dict[RawLink, str], txn: bytes | None = None) -> list[str]:
        """Send a message on each of these links, to the queues that they lead to, frame by frame in turn; some are
        aborted. Returns their keys."""
        ways = [
            one
            for link, queue in links.items()
            if await self.speaker.heard(lambda link=link: link.credit_to > link.count or not link.attached)  # type: ignore[misc]
            and link.attached
            for one in (self._write(link, queue, txn),)
        ]
        keys = [way.key for way in ways]
        while ways:
            way = self._rng.choice(ways)
            session = way.link.session
            if not await self.speaker.heard(lambda session=session: session.room_to > session.next_id):  # type: ignore[misc]
                break
            if way.link.attached:
                self._say_part(way)
            if not way.parts or not way.link.attached:
                ways.remove(way)
        return keys

    def _write(self, link: RawLink, queue: str, txn: bytes | None) -> Outgoing:
        rng = self._rng
        place = next(place for place in self._world.places if place.name == queue)
        posting, message = compose(self._world, place, durable=txn is not None or rng.random() < 0.8)
        self._oracle.sends(posting)
        key, data = posting.key, message.encode()
        assert self._opened is not None
        cuts = {rng.randrange(len(data)) for _ in range(rng.choice((0, 0, 1, 3)))}
        cuts.update(range(0, len(data), min(self._opened.max_frame_size, 1 << 20) - TRANSFER_BYTES))
        cuts.discard(0)
        parts = deque(data[a:b] for a, b in zip([0, *sorted(cuts)], [*sorted(cuts), len(data)], strict=True))
        way = Outgoing(link, key, parts, txn, settled=txn is None and rng.random() < 0.1)
        if txn is None and cuts and rng.random() < 0.3:
            way.aborted = True
            self._oracle.answered(key, Sent.REFUSED)
        elif txn is None and not way.settled:
            way.forgets = rng.random() < 0.1
        way.speaks = not way.settled and rng.random() < 0.2
        return way

    def _say_part(self, way: Outgoing) -> None:
        session, part = way.link.session, way.parts.popleft()
        transfer = Transfer(way.link.handle, settled=way.settled, more=bool(way.parts))
        if not way.begun:
            way.begun = True
            id_, session.next_delivery = session.next_delivery, session.next_delivery + 1
            transfer = replace(transfer, delivery_id=id_, delivery_tag=way.key.encode(), message_format=0)
            way.link.count += 1
            way.id = id_
            if not way.settled and not way.aborted and not way.forgets:
                self._answers[session.channel, id_] = partial(self._posted, way)
                if way.link.second:
                    self._unsettled[session.channel, id_] = way.txn
        if way.txn is not None:
            transfer = replace(transfer, state=TransactionalState(way.txn))
        elif way.speaks:
            transfer = replace(transfer, state=self._rng.choice(WORDS))
        if way.aborted and not way.parts:
            transfer, part = replace(transfer, aborted=True), b""
        elif way.forgets and not way.parts:
            transfer = replace(transfer, settled=True)
        session.next_id += 1
        self.say(session, transfer, payload=part)
        if way.speaks and (way.parts or not (way.forgets or way.aborted)):
            for word in self._rng.sample(WORDS, 2):
                self.say(session, Disposition(Role.SENDER, way.id, None, False, word))
            if not way.parts and way.txn is None and self._rng.random() < 0.3:
                self._unsettled.pop((session.channel, way.id), None)
                self.say(session, Disposition(Role.SENDER, way.id, None, True))

    def _posted(self, way: Outgoing, state: object) -> None:
        """A posting has an outcome. One that a transaction has taken waits for the commit."""
        if isinstance(state, TransactionalState):
            if not isinstance(state.outcome, Accepted):
                self._refused.add(way.key)
        else:
            self._oracle.answered(way.key, Sent.ACCEPTED if isinstance(state, Accepted) else Sent.REFUSED)

    # -- transactions --------------------------------------------------------------------------------------------------

    async def ask(self, link: RawLink, what: Declare | Discharge) -> object:
        """Say this to the coordinator: its answer, None where there is none."""
        if not await self.speaker.heard(lambda: link.credit_to > link.count or not link.attached) or not link.attached:
            return None
        session, answers = link.session, list[object]()
        id_, session.next_delivery = session.next_delivery, session.next_delivery + 1
        self._answers[session.channel, id_] = answers.append
        if link.second:
            self._unsettled[session.channel, id_] = None
        link.count += 1
        session.next_id += 1
        self.say(session, Transfer(link.handle, id_, b"%d" % id_, 0), payload=b"\x00\x53\x77" + encode_composite(what))
        await self.speaker.heard(lambda: answers or not link.attached)
        return answers[0] if answers else None

    async def transact(self, control: RawLink, links: dict[RawLink, str]) -> bool:
        """Post in a transaction; commit it, roll it back, or leave it behind. False where it is not known what came of
        it."""
        oracle, rng = self._oracle, self._rng
        declared = await self.ask(control, Declare())
        if not isinstance(declared, Declared):
            return False
        self._world.transactions += 1
        transaction = Transaction(f"transaction {self._world.transactions}")
        transaction.posts += await self.post(links, declared.txn_id)
        way = rng.random()
        if way < 0.1:  # its links go with what was posted last still unread
            for link in links:
                self._leave(link)
        if way < 0.2 or self.speaker.over or not await self.speaker.heard(lambda: not self._pending(transaction)):
            oracle.rolled_back(transaction)
            return False  # the caller ends the connection, and its transactions with it
        for key in self._refused.intersection(transaction.posts):
            oracle.answered(key, Sent.REFUSED)
            transaction.posts.remove(key)
        if way >= 0.4:
            oracle.commits(transaction)
        answer = await self.ask(control, Discharge(declared.txn_id, fail=way < 0.4))
        if way < 0.4:
            oracle.rolled_back(transaction)
        elif isinstance(answer, Accepted):
            oracle.committed(transaction)
        elif isinstance(answer, Rejected):
            oracle.rolled_back(transaction)
        else:
            oracle.in_doubt(transaction)
        for channel, id_ in [at for at, txn in self._unsettled.items() if txn == declared.txn_id]:
            self._settle(next(one for one in self._sessions if one.channel == channel), id_)
        return answer is not None

    def _pending(self, transaction: Transaction) -> bool:
        keys = set(transaction.posts)
        return any(isinstance(one, partial) and one.args[0].key in keys for one in self._answers.values())


async def honest(world: World, name: str) -> None:
    """Send and receive in frames of one's own, on one connection after the other."""
    rng = Random(world.rng.getrandbits(64))
    holder = world.holders[name] = Holder(world, name)
    while world.working:
        peer = Honest(world, holder, rng)
        if await peer.open():
            await _use(world, peer, rng)
        holder.lose()
        peer.speaker.write(encode_frame(0, encode_composite(Close())))
        await peer.speaker.heard(lambda: False, 1.0)
        peer.speaker.transport.abort()
        await asyncio.sleep(rng.random() * 0.2)


async def _use(world: World, peer: Honest, rng: Random) -> None:
    queues = [rng.choice(world.places).name, rng.choice(world.places).name]
    senders = {link: queue for queue in queues if (link := await peer.sender(Target(queue))) is not None}
    control = await peer.sender(Coordinator(())) if rng.random() < 0.5 else None
    await peer.receiver(rng.choice(world.places).name)
    for _ in range(rng.choice((20, 200))):
        if peer.speaker.over or not world.working:
            return
        chance = rng.random()
        if chance < 0.35 and senders:
            await peer.post(dict(rng.sample(list(senders.items()), rng.randint(1, len(senders)))))
        elif chance < 0.7:
            peer.decide()
        elif chance < 0.85:
            peer.grant()
        elif chance < 0.92 and control is not None and senders:
            if not await peer.transact(control, senders):
                return
        elif chance < 0.94:
            await peer.receiver(rng.choice(world.places).name)
        elif chance < 0.95:
            peer.detach()
        await peer.speaker.heard(lambda: False, rng.choice((0.0, 0.01, 0.1)))


PEERS: Final[dict[str, Peer]] = {"honest": honest, "attack": attack}
"""Who is in a world beside `users.USERS`, each with a process of its own."""

__all__ = ["ATTACKED", "PEERS"]
