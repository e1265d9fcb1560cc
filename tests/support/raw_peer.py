"""A peer of a broker that knows the protocol well and keeps to none of its promises.

`RawPeer(world, seed)` writes frames that are valid one by one (or nearly) and senseless together: attaches with every
combination of terminus fields, transactions of others, settlements of what was never sent. It reads what the broker
answers, so that it can speak of transactions, deliveries and addresses that exist. The same seed says the same.
"""

from __future__ import annotations

import random
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from acquit.broker.options import AddressRule
from acquit.errors import EncodeError
from acquit.protocol.composite import encode_composite
from acquit.protocol.connection import Connection
from acquit.protocol.constants import AMQP_HEADER
from acquit.protocol.definitions import (
    Accepted,
    Attach,
    Begin,
    Close,
    Coordinator,
    Declare,
    Declared,
    DeleteOnClose,
    DeleteOnNoLinks,
    DeleteOnNoLinksOrMessages,
    DeleteOnNoMessages,
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
    SndSettleMode,
    Source,
    Target,
    TerminusDurability,
    TerminusExpiryPolicy,
    TransactionalState,
    Transfer,
)
from acquit.protocol.frames import encode_frame
from acquit.protocol.message import AmqpValue, Message
from acquit.protocol.options import ConnectionOptions
from acquit.protocol.types import Described, Symbol, UByte, ULong
from tests.support.broker_world import World
from tests.support.wire import frames_in

ADDRESSES: Final = (
    *("q", "q", "q", "topic", "topic", "last", "ring", "group", "once", "lock", "read", "gone.a", "gone.b"),
    *("topic.a", "topic.*", "topic.#", "*", "#", "::", "a::b::c", "topic::", "::topic", "topic::client0/s0", "q::q"),
    *(
        "topic::s1",
        "",
        "$management",
        "$nothing",
        "a\0b",
        "x" * 2_000,
        "y" * 600,
        "a::" + "z" * 600,
        "q.",
        ".",
        "temporary.queue." + "0" * 32,
    ),
    *("DLQ", "ExpiryQueue", "topic:", "topic:::x"),
)
PLAIN: Final = ("q", "q", "q", "once", "lock", "group", "ring", "last", "read", "gone.a", "topic", "topic.a", "topic.#")
RULES: Final = (
    AddressRule("last", {"last_value": True}),
    AddressRule("ring", {"ring_size": 5}),
    AddressRule("once", {"consumers": "exclusive", "duplicate_detection": "message-id", "duplicate_window": 3}),
    AddressRule("lock", {"lock_duration_ms": 30, "redelivery_delay_ms": 20, "max_delivery_attempts": 3}),
    AddressRule("read", {"non_destructive": True}),
    AddressRule("group", {"redelivery_delay_ms": 25, "redelivery_blocks": "group", "consumers": "single-active"}),
    AddressRule("gone.#", {"auto_delete": True, "messages_max": 20, "full_policy": "drop-oldest"}),
    AddressRule("topic.#", {"auto_delete": True, "unroutable": "release"}),
)
"""How a broker that they are used on may treat some of them."""
SELECTORS: Final = ("n > 5", "body LIKE '%a%b%'", "JMSPriority = 4", "n = n", "(", "n BETWEEN 1 AND 2", "1 = 1", "")
CAPABILITIES: Final = ("topic", "queue", "shared", "global", "temporary-queue", "temporary-topic", "nonsense")
LIFETIMES: Final = (DeleteOnClose(), DeleteOnNoLinks(), DeleteOnNoMessages(), DeleteOnNoLinksOrMessages())
OPERATIONS: Final = ("QUERY", "READ", "CREATE", "DELETE", "PURGE", "MOVE", "CANCEL", "RELOAD", "nonsense")
BODIES: Final = (
    *(None, 5, "x", [1], {}, {"to": "q"}, {"to": "gone.b", "max": 2}, {"all": True}, {"kind": "topic"}, {"to": 5}),
    *({"sequence": 3}, {"after": "x"}, {"attributeNames": [[1], {}]}, {"attributeNames": ["name"]}, {5: 5}),
    *({"to": "q", "selector": "("}, {"limit": 10**6}, {"if_empty": True}, {"message_id": "m1"}),
)
TYPES: Final = ("acquit:queue", "acquit:broker", "acquit:message", "acquit:transaction")


class RawTalker:
    """What such a peer says and hears, whoever carries its bytes: `take` gives them."""

    def __init__(self, seed: int, *, shared: list[bytes] | None = None, addresses: tuple[str, ...] = ADDRESSES) -> None:
        """`shared`: ids of transactions, which peers know of each other; `addresses`: those it speaks of."""
        self.random = random.Random(seed)
        self.name = f"client{self.random.randrange(3)}"
        self.out = bytearray()
        self.txn_ids: list[bytes] = shared if shared is not None else []
        self.known_addresses = addresses
        self.addresses: list[str] = []
        self.over = False
        self.handles: dict[int, Attach] = {}
        self.next_handle = 0
        self.next_id = 0
        self.counts: dict[int, int] = {}
        self.received: list[int] = []
        self.theirs: dict[int, int] = {}
        self.credit: dict[int, int] = {}
        self.halves: dict[int, int] = {}
        self.begun = False

    def open(self) -> None:
        """Say AMQP's header, and what a connection and a session begin with."""
        size = self.random.choice((512, 1_000, 65_536, 65_536, 65_536))
        self.write(AMQP_HEADER + encode_frame(0, encode_composite(Open(self.name, max_frame_size=size))))
        self.begin()

    # -- the wire

    def write(self, data: bytes) -> None:
        self.out += data

    def take(self) -> bytes:
        """What it has said since the last time."""
        data = bytes(self.out)
        self.out.clear()
        return data

    def say(self, performative: Performative, payload: bytes = b"") -> None:
        with suppress(EncodeError):
            self.write(encode_frame(0, encode_composite(performative) + payload))

    def hear_bytes(self, data: bytes) -> None:
        """Read whole frames, with or without the header before them."""
        for _, performative, _ in frames_in(data.removeprefix(AMQP_HEADER)):
            self.hear_frame(performative)

    def hear_frame(self, said: object) -> None:
        match said:
            case Transfer(delivery_id=int() as id_):
                self.received.append(id_)
            case Disposition(state=Declared(txn_id=txn_id)):
                self.txn_ids.append(txn_id)
            case Attach(name=name, handle=handle, role=role):
                for mine, attach in self.handles.items():
                    if attach.name == name and attach.role != role and mine not in self.theirs.values():
                        self.theirs[handle] = mine
                for terminus in (said.source, said.target):
                    if isinstance(terminus, Source | Target) and terminus.dynamic and terminus.address:
                        self.addresses.append(terminus.address)
            case Flow(handle=int() as handle, delivery_count=count, link_credit=credit) if handle in self.theirs:
                mine = self.theirs[handle]
                self.credit[mine] = ((count or 0) + (credit or 0) - self.counts[mine]) & 0xFFFFFFFF
            case Detach(handle=handle):
                mine = self.theirs.pop(handle, -1)
                if mine in self.handles and self.random.random() < 0.9:
                    self.detach(mine)
                self.credit.pop(mine, None)
            case End():
                if self.begun:
                    self.forget()
                    self.say(End())
            case Close():
                self.over = True
            case _:
                pass

    # -- what it does

    def forget(self) -> None:
        """The session is over."""
        self.begun = False
        for mine in (self.handles, self.theirs, self.credit, self.halves):
            mine.clear()  # type: ignore[attr-defined]

    def begin(self) -> None:
        self.forget()
        self.begun = True
        self.next_id = 0
        self.next_handle = 0
        self.say(Begin(None, 0, 1 << 20, 1 << 20))

    def step(self) -> None:
        """One thing or another."""
        chance = self.random
        if not self.begun:
            self.begin()
        elif chance.random() < 0.002:
            self.end()
        kinds = [kind for kind, weight in _STEPS for _ in range(weight)]
        getattr(self, chance.choice(kinds))()

    def some_address(self) -> str | None:
        chance = self.random
        if self.addresses and chance.random() < 0.15:
            return chance.choice(self.addresses)
        return chance.choice(self.known_addresses) if chance.random() < 0.97 else None

    def some_state(self, depth: int = 0) -> object:
        chance = self.random
        return chance.choice(
            (
                Accepted(),
                Accepted(),
                Accepted(),
                Released(),
                Rejected(Error("amqp:internal-error", "no")),
                Rejected(),
                Modified(),
                Modified(True),
                Modified(True, True, {"x-opt-a": 1}),
                Modified(False, None, {"x-opt-b": "long" * 200}),
                Rejected(Error("x:long", "long" * 200)),
                Modified(False, True),
                None,
                Described(ULong(99), 1),
                *([] if depth else [Declared(b"x")]),
                *([Received(1, 2)] if depth == 0 else []),
                *([TransactionalState(self.some_txn(), self.some_state(1))] * 8 if depth == 0 else []),  # type: ignore[arg-type]
            )
        )

    def some_txn(self) -> bytes:
        chance = self.random
        if self.txn_ids and chance.random() < 0.9:
            return chance.choice(self.txn_ids[-6:])
        return chance.choice((b"", b"x", bytes(16), chance.randbytes(16), bytes(300)))

    def some_filter(self) -> dict[str, object] | None:
        chance = self.random
        filters: dict[str, object] = {}
        if chance.random() < 0.3:
            filters["jms-selector"] = Described(ULong(0x0000468C_00000004), chance.choice(SELECTORS))
        if chance.random() < 0.15:
            filters["no-local"] = Described(ULong(0x0000468C_00000003), [])
        if chance.random() < 0.03:
            filters["odd"] = chance.choice((1, "x", Described(Symbol("apache.org:odd"), 3), None))
        return filters or None

    def attach(self) -> None:
        chance = self.random
        receiving = chance.random() < 0.5
        handle = self.next_handle if chance.random() < 0.98 else chance.randrange(20)
        self.next_handle = (self.next_handle + 1) % 200
        dynamic = chance.random() < 0.12
        terminus = {
            "address": None if dynamic and chance.random() < 0.95 else self.some_address(),
            "durable": chance.choice((TerminusDurability.NONE, *TerminusDurability)),
            "expiry_policy": chance.choice(list(TerminusExpiryPolicy)),
            "timeout": chance.choice((0, 0, 5, 0xFFFFFFFF)),
            "dynamic": dynamic,
            "dynamic_node_properties": chance.choice(
                (None, {"lifetime-policy": chance.choice(LIFETIMES)}, {"lifetime-policy": 7}, {"x": 1})
            ),
            "capabilities": tuple(chance.sample(CAPABILITIES, chance.choice((0, 0, 1, 1, 2, 3)))),
        }
        source: object = Source(
            **terminus,  # type: ignore[arg-type]
            distribution_mode=chance.choice((None, None, "move", "copy", "odd")),
            filter=self.some_filter(),
            default_outcome=chance.choice((None, None, self.some_state())),  # type: ignore[arg-type]
            outcomes=chance.choice(((), (), ("amqp:accepted:list",), ("amqp:rejected:list",))),
        )
        target: object = Target(**terminus)  # type: ignore[arg-type]
        if chance.random() < 0.2:
            target = Coordinator(("amqp:local-transactions",))
        if receiving and chance.random() < 0.1:
            source = None
        if not receiving:
            source = chance.choice((Source("here"), source, None))
        elif not isinstance(target, Coordinator) or chance.random() < 0.9:
            target = chance.choice((Target("replies"), target, None))
        attach = Attach(
            f"s{chance.randrange(8)}" + chance.choice(("", "", "|x", "|global", "\0" if chance.random() < 0.1 else "")),
            handle,
            Role.RECEIVER if receiving else Role.SENDER,
            chance.choice(list(SndSettleMode)),
            chance.choice(list(RcvSettleMode)),
            source,  # type: ignore[arg-type]
            target,  # type: ignore[arg-type]
            {}
            if chance.random() < 0.05
            else {b"t": chance.choice((None, Accepted()))}
            if chance.random() < 0.1
            else None,
            chance.random() < 0.05,
            None if receiving else chance.choice((0, 0, 0xFFFFFFFE)),
            chance.choice((None, None, 0, 100_000, 40, 32, 1, 200)),
            desired_capabilities=tuple(chance.sample(CAPABILITIES, chance.choice((0, 0, 1)))),
            properties=chance.choice((None, None, {"priority": chance.choice((1, -5, "x", 1 << 40))})),
        )
        self.handles[handle] = attach
        self.counts[handle] = attach.initial_delivery_count or 0
        self.say(attach)
        if receiving and chance.random() < 0.8:
            self.flow(handle)

    def plain(self) -> None:
        """A link that makes sense."""
        chance = self.random
        receiving = chance.random() < 0.5
        handle = self.next_handle
        self.next_handle = (self.next_handle + 1) % 200
        address = chance.choice([plain for plain in PLAIN if plain in self.known_addresses])
        words = ("topic",) if "topic" in address else ()
        durable = chance.random() < 0.3
        source = Source(
            address,
            TerminusDurability.UNSETTLED_STATE if durable and words else TerminusDurability.NONE,
            TerminusExpiryPolicy.NEVER if durable and words else TerminusExpiryPolicy.LINK_DETACH,
            capabilities=words,
        )
        attach = Attach(
            f"p{chance.randrange(12)}",
            handle,
            Role.RECEIVER if receiving else Role.SENDER,
            chance.choice((SndSettleMode.MIXED, SndSettleMode.UNSETTLED)),
            chance.choice((RcvSettleMode.FIRST, RcvSettleMode.FIRST, RcvSettleMode.SECOND)),
            source if receiving else Source("here"),
            Target("there") if receiving else chance.choice((Target(address, capabilities=words), Target(None))),
            initial_delivery_count=None if receiving else 0,
        )
        self.handles[handle] = attach
        self.counts[handle] = 0
        self.say(attach)
        if receiving:
            self.flow(handle)

    def coordinator(self) -> None:
        """A control link that makes sense."""
        handle = self.next_handle
        self.next_handle = (self.next_handle + 1) % 200
        outcomes = self.random.choice(((), ("amqp:accepted:list",)))
        attach = Attach(
            f"control{self.random.randrange(4)}",
            handle,
            Role.SENDER,
            source=Source(outcomes=outcomes),
            target=Coordinator(()),
            initial_delivery_count=0,
        )
        self.handles[handle] = attach
        self.counts[handle] = 0
        self.say(attach)

    def detach(self, handle: int | None = None) -> None:
        chance = self.random
        if handle is None:
            if not self.handles:
                return
            handle = chance.choice(list(self.handles))
        self.handles.pop(handle, None)
        self.halves.pop(handle, None)
        self.say(Detach(handle, chance.random() < 0.7, Error("x:y") if chance.random() < 0.05 else None))

    def _handle(self, role: Role) -> int | None:
        handles = [handle for handle, attach in self.handles.items() if attach.role == role]
        return self.random.choice(handles) if handles else None

    def flow(self, handle: int | None = None) -> None:
        chance = self.random
        handle = self._handle(Role.RECEIVER) if handle is None else handle
        if handle is None:
            return
        self.say(
            Flow(
                0,
                1 << 20,
                self.next_id,
                1 << 20,
                handle,
                self.counts.get(handle, 0),
                chance.choice((0, 1, 10, 100, 1000)),
                drain=chance.random() < 0.2,
                echo=chance.random() < 0.1,
                properties={"txn-id": self.some_txn()} if chance.random() < 0.01 else None,
            )
        )

    def message(self) -> bytes:
        chance = self.random
        annotations: dict[str, object] = {}
        if chance.random() < 0.1:
            annotations[chance.choice(("x-opt-delivery-time", "x-opt-delivery-delay", "x-opt-jms-dest"))] = (
                chance.choice((0, 1, 50, -1, 1 << 62, -(1 << 63), "x", UByte(3), 1_700_000_000_500))
            )
        properties: dict[str, object] = {"n": chance.randrange(10)}
        if chance.random() < 0.15:
            properties["_AMQ_DUPL_ID"] = chance.choice(("a", "b", "c", 5, "long" * 2_000, b"x", None))
        if chance.random() < 0.1:
            properties["_AMQ_LVQ_NAME"] = chance.choice(("v", "w", 1, None))
        return Message(
            chance.choice((b"x", "text", b"y" * 300, None)),
            durable=chance.random() < 0.6,
            priority=chance.choice((4, 4, 0, 9, 255)),
            ttl_ms=chance.choice((None, None, None, 0, 1, 20, 0xFFFFFFFF)),
            message_id=chance.choice((None, "m1", "m2", 7)),
            group_id=chance.choice((None, None, "g1", "g2", "g" * 3_000, str(chance.random()))),
            group_sequence=chance.choice((None, 1, 0xFFFFFFFF)),
            to=self.some_address(),
            annotations=annotations or None,
            application_properties=properties,
        ).encode()

    def management(self) -> bytes:
        chance = self.random
        name: object = chance.choice((*self.known_addresses[:24], *self.addresses, 5, None))
        if self.txn_ids and chance.random() < 0.3:
            name = chance.choice(self.txn_ids).hex()
        body = chance.choice(BODIES)
        return Message(
            AmqpValue(body),
            message_id=chance.choice((1, "x", None)),
            reply_to=chance.choice(("replies", "replies", None, "x")),
            application_properties={
                "operation": chance.choice(OPERATIONS),
                "type": chance.choice(TYPES),
                "name": name,
            },
        ).encode()

    def payload_for(self, attach: Attach) -> bytes:
        chance = self.random
        if chance.random() < 0.02:
            return chance.randbytes(chance.randrange(50))
        if isinstance(attach.target, Coordinator):
            body: object = chance.choice(
                (
                    Declare(),
                    Declare(),
                    Declare(),
                    Declare(5),
                    Discharge(self.some_txn(), chance.choice((None, False, False, True))),
                    Discharge(self.some_txn(), chance.choice((None, False, False, True))),
                    Discharge(self.some_txn(), chance.choice((None, False, False, True))),
                    Accepted(),
                )
            )
            return b"\x00\x53\x77" + encode_composite(body)  # type: ignore[arg-type]
        if isinstance(attach.target, Target) and attach.target.address == "$management":
            return self.management()
        return self.message()

    def transfer(self) -> None:
        chance = self.random
        handle = self._handle(Role.SENDER)
        if handle is None or (self.credit.get(handle, 0) <= 0 and chance.random() < 0.995):
            return
        self.credit[handle] = self.credit.get(handle, 0) - 1
        self.counts[handle] += 1
        attach = self.handles[handle]
        control = isinstance(attach.target, Coordinator)
        more = chance.random() < 0.05
        halved = more or handle in self.halves
        state = None
        if chance.random() < (0.02 if control else 0.35):
            state = TransactionalState(self.some_txn(), self.some_state(1) if chance.random() < 0.1 else None)  # type: ignore[arg-type]
        elif chance.random() < (0.3 if halved else 0.03):
            state = self.some_state()  # type: ignore[assignment]
        settled = {SndSettleMode.SETTLED: True, SndSettleMode.UNSETTLED: False}.get(
            attach.snd_settle_mode, chance.random() < 0.2
        )
        if control:
            settled = chance.random() < 0.05
        payload = self.payload_for(attach)
        if handle in self.halves:
            id_ = self.halves.pop(handle)
            self.counts[handle] -= 1
            aborted = chance.random() < 0.2
            self.say(Transfer(handle, id_, settled=settled or None, aborted=aborted, state=state), payload)
            return
        id_, self.next_id = self.next_id, (self.next_id + 1) & 0xFFFFFFFF
        if more:
            self.halves[handle] = id_
        self.say(Transfer(handle, id_, id_.to_bytes(4, "big"), 0, settled, more, state=state), payload)

    def manage(self) -> None:
        """Links to ask and to hear on."""
        for role in (Role.RECEIVER, Role.SENDER):
            handle = self.next_handle
            self.next_handle = (self.next_handle + 1) % 200
            node = "$management"
            source = Source(node) if role is Role.RECEIVER else Source("here")
            target = Target("replies") if role is Role.RECEIVER else Target(node)
            attach = Attach(
                "manage", handle, role, source=source, target=target, initial_delivery_count=int(role is Role.SENDER)
            )
            self.handles[handle] = attach
            self.counts[handle] = 0
            self.say(attach)
            if role is Role.RECEIVER:
                self.flow(handle)

    def dispose(self) -> None:
        chance = self.random
        role = Role.RECEIVER if chance.random() < 0.9 else Role.SENDER
        top = self.received[-1] if self.received and role is Role.RECEIVER else max(0, self.next_id - 1)
        first = max(0, top - chance.choice((0, 0, 1, 3, 20)))
        last = first + chance.choice((0, 0, 1, 5, 1 << 20 if chance.random() < 0.1 else 2))
        self.say(Disposition(role, first, last, chance.random() < 0.5, self.some_state()))  # type: ignore[arg-type]

    def end(self) -> None:
        self.forget()
        self.say(End())


@dataclass
class _Engine:
    """What `World` carries bytes from and to."""

    talker: RawTalker
    heard: bytearray = field(default_factory=bytearray)

    def data_to_send(self) -> bytes:
        return self.talker.take()

    def receive_data(self, data: bytes, now: float) -> list[object]:
        self.heard += data
        return []


class RawPeer(RawTalker):
    """See the module. Known to `World` as one of its clients."""

    def __init__(self, world: World, seed: int, *, shared: list[bytes] | None = None) -> None:
        super().__init__(seed, shared=shared)
        self.world = world
        self.engine = _Engine(self)
        self.reading = True
        self.server = Connection(ConnectionOptions(container_id="broker"), server=True, sasl=None, now=world.now_s)
        self.peer = world.core.connected(self.server, self.name)
        world.clients.append(self)  # type: ignore[arg-type]  # as much of a client as it needs
        self.open()
        world.carry()

    def hear(self, events: list[object]) -> None:
        """What the world has carried here."""
        data = bytes(self.engine.heard)
        self.engine.heard.clear()
        self.hear_bytes(data)

    def lose(self) -> None:
        """The socket is gone."""
        self.over = True
        if self in self.world.clients:
            self.world.clients.remove(self)  # type: ignore[arg-type]
        core = self.world.core
        core.handle(self.peer, self.server.receive_eof(self.world.now_s), self.world.now_us)
        self.world.carry()


_STEPS: Final = (
    ("attach", 6),
    ("plain", 8),
    ("coordinator", 2),
    ("manage", 1),
    ("transfer", 80),
    ("dispose", 25),
    ("flow", 15),
    ("detach", 5),
    ("end", 0),
)

__all__ = ["ADDRESSES", "RULES", "RawPeer", "RawTalker"]
