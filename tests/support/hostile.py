"""A peer that mostly does what it may, in every encoding there is, and now and then does not.

`Talk(seed, wildness)` gives frames for an engine that has a session on channel 0 with three links of ours: the peer
sends on handles 0 and 300, and receives on handle 1. With wildness 0 everything is legal as long as the engine grants
enough. The same seed says the same, so that two engines can be told one thing.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator

from acquit.protocol.codec import encode
from acquit.protocol.composite import encode_composite
from acquit.protocol.connection import Connection
from acquit.protocol.definitions import (
    Accepted,
    Attach,
    Begin,
    Close,
    Detach,
    Disposition,
    End,
    Error,
    Flow,
    Modified,
    Performative,
    Received,
    Rejected,
    Released,
    Role,
    Source,
    Target,
    TransactionalState,
    Transfer,
)
from acquit.protocol.delivery import Delivery, DeliveryState
from acquit.protocol.events import (
    CreditChanged,
    DeliveriesReceived,
    Event,
    LinkDetached,
    LinkRequested,
    StatesReceived,
)
from acquit.protocol.frames import encode_frame
from acquit.protocol.link import ReceivingLink, SendingLink
from acquit.protocol.options import ConnectionOptions
from acquit.protocol.serial import MASK
from acquit.protocol.types import Symbol
from tests.support.peer import Peer, attach_to, begun_server, credit_flow, receiving_attach, sending_attach

FIRST, SECOND, OURS = 0, 300, 1
STATES: list[DeliveryState | None] = [
    None,
    Accepted(),
    Released(),
    Rejected(Error("amqp:internal-error", "no")),
    Modified(True, message_annotations={"x-opt-a": 1}),
    Received(1, 2),
    TransactionalState(b"txn", Accepted()),
    TransactionalState(b"other", Accepted()),
    TransactionalState(b"third", Accepted()),
]


def talked_to(options: ConnectionOptions, credit: int, *, messages: int = 0) -> Peer:
    """An engine with those three links, which has sent `messages` on its own."""
    peer = begun_server(options)
    for handle in (FIRST, SECOND):
        link = attach_to(peer, sending_attach(f"in{handle}", handle))
        assert isinstance(link, ReceivingLink)
        link.grant(credit)
    sender = attach_to(peer, receiving_attach("out", OURS))
    assert isinstance(sender, SendingLink)
    peer.say(credit_flow(messages + 3, handle=OURS))
    for number in range(messages):
        sender.send(b"%d" % number, b"x")
    peer.hear()
    return peer


class Talk:
    """See the module."""

    def __init__(self, seed: int, wildness: float) -> None:
        self.random = random.Random(seed)
        self.wildness = wildness
        self.next_id = self.random.choice((0, 0, 250, 65_530, MASK - 3))
        self.unfinished: dict[int, int] = {}
        self.said: dict[int, bytes] = {}
        """The state of the last message of each link: all its frames are in one transaction (4.4.1)."""
        self.tag_bytes = self.random.choice((1, 4, 4, 8, 32))
        self.habits = self._new_habits()

    def frames(self, count: int) -> Iterator[bytes]:
        for _ in range(count):
            if self.random.random() < self.wildness:
                yield self.wild()
            elif self.random.random() < 0.85:
                yield self.transfer()
            else:
                yield self.other()

    # -- legal frames

    def _new_habits(self) -> dict[str, int]:
        """How this client writes its transfers: it does not change its mind often."""
        chance = self.random
        return {
            "list": chance.choice((0xC0, 0xC0, 0xC0, 0xD0)),
            "narrow": chance.choice((0, 1, 1)),
            "descriptor": chance.choice((0, 0, 0, 0, 1, 2)),
            "fields": chance.choice((3, 4, 5, 5, 6, 6, 8, 11)),
            "boolean": chance.choice((0, 0, 1)),
            "doff": chance.choice((2, 2, 2, 3)),
            "settled": chance.choice((0, 0, 1, 2)),
            "size": chance.choice((0, 10, 100, 3_000)),
            "transaction": chance.choice((0, 0, 0, 0, 1, 2, 16)),
        }

    def _uint(self, value: int) -> bytes:
        if self.habits["narrow"] and value == 0:
            return b"\x43"
        if self.habits["narrow"] and value < 256:
            return b"\x52" + bytes([value])
        return b"\x70" + struct.pack(">I", value)

    def _boolean(self, value: bool) -> bytes:
        if self.habits["boolean"]:
            return b"\x56" + bytes([value])
        return b"\x41" if value else b"\x42"

    def transfer(self) -> bytes:
        chance = self.random
        if chance.random() < 0.03:
            self.habits = self._new_habits()
        handle = chance.choice((FIRST, FIRST, FIRST, SECOND))
        body_size = chance.choice((self.habits["size"], self.habits["size"], chance.randrange(300)))
        payload = chance.randbytes(body_size)
        more = chance.random() < 0.04
        aborted = False
        tag: bytes | None
        if handle in self.unfinished:
            id_: int | None = self.unfinished.pop(handle) if chance.random() < 0.5 else None
            self.unfinished.pop(handle, None)
            tag = None
            aborted = chance.random() < 0.2
        else:
            id_ = self.next_id
            self.next_id = (self.next_id + 1) & MASK
            tag = chance.randbytes(self.tag_bytes)
        if more and not aborted:
            assert id_ is None or id_ >= 0
            self.unfinished[handle] = (self.next_id - 1) & MASK if id_ is None else id_
            if tag is None and id_ is None:
                self.unfinished.pop(handle)
                more = False
        return self.raw_transfer(handle, id_, tag, more=more, aborted=aborted, payload=payload)

    def raw_transfer(
        self, handle: int, id_: int | None, tag: bytes | None, *, more: bool, aborted: bool, payload: bytes
    ) -> bytes:
        habits = self.habits
        settled = habits["settled"] == 1 or (habits["settled"] == 2 and self.random.random() < 0.5)
        null = b"\x40"
        fields = [
            self._uint(handle),
            null if id_ is None else self._uint(id_),
            null if tag is None else b"\xa0" + bytes([len(tag)]) + tag,
            null if tag is None else self._uint(0),
            self._boolean(True) if settled else self.random.choice((null, self._boolean(False))),
            self._boolean(more),
            null,
            self._state(handle, goes_on=tag is None),
            null,
            self._boolean(aborted),
            self._boolean(False),
        ]
        count = habits["fields"]
        if habits["transaction"]:
            count = max(count, 8)
        if settled:
            count = max(count, 5)
        if more:
            count = max(count, 6)
        if aborted:
            count = max(count, 10)
        body = b"".join(fields[:count])
        if habits["list"] == 0xC0:
            performative = bytes([0xC0, len(body) + 1, count]) + body
        else:
            performative = b"\xd0" + struct.pack(">II", len(body) + 4, count) + body
        descriptor = (b"\x53\x14", b"\x80" + bytes(7) + b"\x14", encode(Symbol("amqp:transfer:list")))[
            habits["descriptor"]
        ]
        return self.framed(b"\x00" + descriptor + performative + payload)

    def _state(self, handle: int, *, goes_on: bool) -> bytes:
        state = self._transaction()
        if not goes_on:
            self.said[handle] = state
        return self.said[handle]

    def _transaction(self) -> bytes:
        """The state of a message: of one transaction for a while, or none."""
        length = self.habits["transaction"]
        if not length:
            return b"\x40"
        txn_id = bytes([self.random.choice((7, 7, 7, 7, 7, 7, 7, 8))]) * length
        return encode_composite(TransactionalState(txn_id, self.random.choice((None, None, None, Accepted()))))

    def framed(self, body: bytes, channel: int = 0) -> bytes:
        doff = self.habits["doff"]
        extended = self.random.randbytes(4 * doff - 8)
        return struct.pack(">IBBH", 8 + len(extended) + len(body), doff, 0, channel) + extended + body

    def other(self) -> bytes:
        chance = self.random
        kind = chance.randrange(5)
        if kind == 0:
            return encode_frame(0, b"")
        if kind == 1:
            first = chance.randrange(30)
            last = first + chance.choice((0, 1, 5, 1 << 20))
            return self.raw_disposition(first, last, chance.random() < 0.6, chance.choice(STATES))
        if kind == 2:
            return self.perform(Flow(0, 2_000, 0, 2_000, OURS, 0, chance.randrange(60), drain=chance.random() < 0.2))
        if kind == 3:
            return self.perform(Flow(0, 2_000, 0, 2_000, echo=True))
        first = (self.next_id - chance.randrange(1, 20)) & MASK
        return self.perform(
            Disposition(
                Role.SENDER, first, (first + chance.randrange(4)) & MASK, chance.random() < 0.5, chance.choice(STATES)
            )
        )

    def raw_disposition(self, first: int, last: int, settled: bool, state: DeliveryState | None) -> bytes:
        fields = [
            b"\x41",
            self._uint(first),
            b"\x40" if first == last and self.random.random() < 0.5 else self._uint(last),
            self._boolean(settled),
            b"\x40" if state is None else encode_composite(state),
            self._boolean(False),
        ]
        fields = fields[: self.random.choice((5, 5, 6))]
        body = b"".join(fields)
        if len(body) > 250 or self.habits["list"] == 0xD0:
            return self.framed(b"\x00\x53\x15\xd0" + struct.pack(">II", len(body) + 4, len(fields)) + body)
        return self.framed(b"\x00\x53\x15\xc0" + bytes([len(body) + 1, len(fields)]) + body)

    def perform(self, performative: Performative, payload: bytes = b"") -> bytes:
        return encode_frame(0, encode_composite(performative) + payload)

    # -- the others

    def wild(self) -> bytes:
        chance = self.random
        kind = chance.randrange(12)
        if kind == 0:
            return chance.randbytes(chance.randrange(1, 40))
        if kind <= 3:  # a legal frame with some bytes changed
            data = bytearray(self.transfer())
            for _ in range(chance.randrange(1, 4)):
                data[chance.randrange(len(data))] = chance.randrange(256)
            return bytes(data)
        if kind == 4:  # cut short inside, with a size that fits
            data = self.transfer()
            data = data[8 : chance.randrange(8, len(data) + 1)]
            return self.framed(data)
        if kind == 5:
            self.next_id = (self.next_id + chance.choice((1, 2, 1 << 31, MASK))) & MASK
            return self.transfer()
        number = chance.randrange(6)
        choices: list[Performative] = [
            Attach(f"l{number}", number, Role(number % 2), source=Source("s"), target=Target("t")),
            Attach(f"in{number}", number, Role.SENDER, initial_delivery_count=number, target=Target("t")),
            Detach(
                chance.choice((FIRST, SECOND, OURS, number)), chance.random() < 0.5, chance.choice((None, Error("x")))
            ),
            Transfer(number, self.next_id, bytes(number * 8), more=True),
            Flow(chance.choice((None, 0, 5)), number, number, number, number, 0, number, echo=True),
            Disposition(Role(number % 2), 5, 3),
            Begin(chance.choice((None, number)), 0, 5, 5),
            End(),
            Close(),
        ]
        return self.perform(chance.choice(choices))


class Application:
    """Writes down what it hears; unless `passive`, also answers the way brokers do, by a rule and not by chance."""

    def __init__(self, credit: int, *, passive: bool = False) -> None:
        self.credit = credit
        self.passive = passive
        self.log: list[object] = []
        self.deliveries: list[Delivery] = []

    def hear(self, events: list[Event]) -> None:
        for event in events:
            match event:
                case DeliveriesReceived(link, deliveries):
                    for delivery in deliveries:
                        seen = (delivery.delivery_id, delivery.tag, delivery.message_format, delivery.payload)
                        self.log.append((link.name, *seen))
                    self.deliveries += deliveries
                    if self.passive:
                        continue
                    link.session.settle_all([item for item in deliveries if item.delivery_id % 3], Accepted())
                    if link.credit < self.credit // 2:
                        link.grant(self.credit)
                case StatesReceived(link, deliveries, state, settled):
                    self.log += [(link.name, item.delivery_id, state, settled) for item in deliveries]
                case LinkRequested(link):
                    self.log.append(("requested", link.name))
                    if not self.passive:
                        link.accept_attach()
                case LinkDetached(link, closed, error, remote, unsettled):
                    ids = [item.delivery_id for item in unsettled]
                    self.log.append(("detached", link.name, closed, error, remote, ids))
                case CreditChanged():
                    pass  # gathered: how often it comes depends on how the bytes are cut
                case _:
                    self.log.append(type(event).__name__)

    def all_heard(self) -> list[object]:
        """What was heard, and what has become of the deliveries since."""
        return self.log + [(item.delivery_id, item.phase, item.remote_state) for item in self.deliveries]


def state_of(engine: Connection) -> list[object]:
    """Everything about an engine's sessions and links that a peer could notice."""
    state: list[object] = [engine.state]
    for session in engine.sessions:
        state += [session.state, session.next_outgoing_id, session.remote_incoming_window]
        state += [(item.delivery_id, item.phase, item.link.name) for item in session.unsettled()]
        for link in session.links:
            state.append((link.name, link.state, link.unsettled_count))
            if isinstance(link, ReceivingLink | SendingLink):
                state.append((link.credit, link.delivery_count, link.available, link.drain))
    return state
