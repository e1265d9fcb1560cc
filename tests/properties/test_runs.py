"""Messages that go through the broker as runs become what they become one by one, whatever happens to some of them."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from itertools import chain
from typing import Any
from uuid import UUID

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from acquit.broker.dispatching import backlog
from acquit.broker.dispatching.aside import BEYOND, rank_of
from acquit.broker.dispatching.backlog import Backlog
from acquit.broker.dispatching.paging import Paging
from acquit.broker.dispatching.passes import Pass
from acquit.broker.dispatching.sending import Sending
from acquit.broker.intake.runs import Runs
from acquit.broker.intake.shaping import read_posting
from acquit.broker.intake.templates import learn_template
from acquit.broker.message import OBJECT_BYTES, PARKED_BYTES
from acquit.broker.message import Message as Held
from acquit.broker.message_run import MessageRun
from acquit.broker.nodes.node import Queue
from acquit.broker.options import AddressPolicy, AddressRule, BrokerOptions
from acquit.broker.queue import NodeState
from acquit.protocol.definitions import Accepted, DeliveryState, Modified, RcvSettleMode, Rejected, Released
from acquit.protocol.link import ReceivingLink, SendingLink
from acquit.protocol.message import Message
from acquit.protocol.types import Timestamp, ULong
from tests.support.broker_world import SHALLOW, Client, World, runs_in
from tests.support.examples import share

OPTIONS = BrokerOptions(
    address=(
        AddressRule("few", {"prefetch_max": 3}),
        AddressRule("small", {"messages_max": 9, "full_policy": "reject"}),
        AddressRule("locked", {"lock_duration_ms": 500}),
        AddressRule("ring", {"ring_size": 6}),
        AddressRule("tried", {"max_delivery_attempts": 2}),
        AddressRule("ordered", {"redelivery_delay_ms": 400, "redelivery_blocks": "queue"}),
        AddressRule("latest", {"last_value": True, "last_value_key": "k"}),
        AddressRule("forgetful", {"duplicate_window": 10}),
        AddressRule("more forgetful", {"duplicate_window": 5}),
        AddressRule("careless", {"duplicate_detection": "off"}),
        AddressRule("deep", {"full_policy": "page", "messages_max": 3}),
    )
)
ADDRESSES = [
    "q",
    "q",
    "q",
    "few",
    "small",
    "locked",
    "ring",
    "tried",
    "ordered",
    "latest",
    "topic",
    "forgetful",
    "more forgetful",
    "careless",
    "deep",
    "deep",
    "deep",
]


def identified(number: int, body: bytes = b"", *, durable: bool) -> Message:
    """Return a message with an id to detect duplicates by."""
    told = b"%04d" % number
    return Message(body or told, durable=durable, application_properties={"_AMQ_DUPL_ID": told.decode()})


KINDS: dict[str, Callable[[bytes], Message]] = {
    "volatile": partial(Message, durable=False),
    "durable": partial(Message, durable=True),
    "urgent": partial(Message, durable=False, priority=9),
    "slow": partial(Message, durable=False, priority=1),
    "passing": partial(Message, durable=False, ttl_ms=300),
    "large": lambda body: Message(body * 40, durable=False),
    "grouped": partial(Message, durable=False, group_id="g"),
    "valued": partial(Message, durable=False, application_properties={"k": "v"}),
    "named": lambda body: Message(body, durable=False, message_id=ULong(int(body) << 40), correlation_id=body),
    "named durable": lambda body: Message(
        body, durable=True, message_id=UUID(int=int(body)), correlation_id=body.decode(), creation_time=Timestamp(1)
    ),
    "new": lambda body: identified(int(body), durable=False),
    "new durable": lambda body: identified(int(body), durable=True),
    "twice": lambda body: identified(int(body) // 2, durable=False),
    "twice durable": lambda body: identified(int(body) // 2, durable=True),
    "again": lambda body: identified(int(body) % 7, durable=False),
    "again durable": lambda body: identified(int(body) % 7, durable=True),
    "reused": lambda body: identified(int(body) // 2, body, durable=False),
    "reused durable": lambda body: identified(int(body) // 2, body, durable=True),
}
IDENTIFIED = ["new", "new", "new durable", "new durable", "twice", "twice durable", *list(KINDS)[-4:]]
MIXED: dict[str, Callable[[int], Message]] = {
    "colours": lambda number: Message(
        b"%04d" % number, durable=False, application_properties={"colour": COLOURS[number % 3]}
    ),
    "groups": lambda number: Message(b"%04d" % number, durable=False, group_id="abc"[number % 3]),
    "slow groups": lambda number: Message(b"%04d" % number, durable=False, group_id="abc"[number % 3], priority=1),
    "coloured groups": lambda number: Message(
        b"%04d" % number,
        durable=False,
        group_id="abc"[number % 3],
        application_properties={"colour": COLOURS[number // 3 % 3]},
    ),
}
COLOURS = "red", "blue", "green"
RIVALS_MAX = 3
SELECTORS = {
    "": None,
    **{colour: f"colour = '{colour}'" for colour in COLOURS},
    "no blue": "colour <> 'blue'",
    "urgent": "JMSPriority > 3",
}
OUTCOMES: dict[str, DeliveryState | None] = {
    "accept": Accepted(),
    "release": Released(),
    "fail": Modified(delivery_failed=True),
    "reject": Rejected(),
    "settle": None,
}

counts = st.integers(1, 8)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("post"), st.sampled_from(["volatile"] * 6 + list(KINDS)), counts),
        st.tuples(st.just("post"), st.sampled_from(["volatile", "durable", "durable"]), counts),
        st.tuples(st.sampled_from(["series", "hasty"]), st.sampled_from(["durable", "durable", "volatile"]), counts),
        st.tuples(st.just("post"), st.sampled_from(IDENTIFIED), counts),
        st.tuples(st.just("series"), st.sampled_from(IDENTIFIED), counts),
        st.tuples(st.just("grant"), st.just(""), counts),
        st.tuples(st.just("first"), st.sampled_from(["accept"] * 4 + list(OUTCOMES)), counts),
        st.tuples(st.just("one"), st.sampled_from(list(OUTCOMES)), counts),
        st.tuples(st.just("settled"), st.just(""), counts),
        st.tuples(
            st.sampled_from(
                [
                    "lose",
                    "detach",
                    "browse",
                    "watch",
                    "watch on",
                    "purge",
                    "known",
                    "pass time",
                    "drain",
                    "together",
                    "lose sender",
                ]
            ),
            st.just(""),
            counts,
        ),
        st.tuples(st.just("foreign"), st.sampled_from(["volatile", "durable"]), counts),
        st.tuples(
            st.just("receiver"), st.sampled_from(["", "", "presettled", "second", "urgent", "green", "tight"]), counts
        ),
    ),
    min_size=8,
    max_size=40,
)
Story = list[tuple[str, str, int]]
HELD_AND_RELEASED: Story = [("grant", "", 30), ("watch on", "", 1), ("first", "release", 30), ("watch on", "", 50)]
POSTED: Story = [("post", "volatile", 1), ("post", "volatile", 2), ("post", "volatile", 6)]
RECORDED: Story = [("grant", "", 40), ("post", "durable", 2), ("post", "durable", 2), ("post", "durable", 8)]


class Play:
    """A broker, with one who sends to an address and one who receives, and all that was seen."""

    def __init__(self, address: str, least: int) -> None:
        """`least`: messages that are a run where others wait."""
        self.address = address
        self.world = World(OPTIONS, sizes=SHALLOW._replace(run=least))
        self.seen: list[object] = []
        self.number = 0
        self.browsers = itertools.count()
        self.runs = 0
        self.receiving: Client | None = None
        self.link: ReceivingLink | None = None
        self.watching: ReceivingLink | None = None
        """The last browser that stays."""
        self.rivals: list[ReceivingLink] = []
        self.several = False
        """True once there was more than one receiver."""
        self.receiver("")
        self.sending = self.attached()
        self.sender: SendingLink = self.attach_sender()

    def attached(self) -> Client:
        client = self.world.client("sending")
        client.begun.next_delivery_id = 1_000  # wide, so that they are predicted
        return client

    def attach_sender(self) -> SendingLink:
        return self.sending.publisher("t") if self.address == "topic" else self.sending.sender(self.address)

    def receiver(self, kind: str) -> None:
        if self.receiving is None:
            self.receiving = self.world.client("receiving")
        if self.link is not None:
            self.receiving.detach(self.link)
            if self.address == "topic":
                self.world.settle()  # its end is answered after the sync, and the name is free then
        options: dict[str, Any] = {"presettled": True} if kind == "presettled" else {}
        if self.address == "topic":
            self.link = self.receiving.subscriber("t", "subscriber", durable=True, credit=2, **options)
            return
        if kind == "second":
            options["second"] = True
        elif SELECTORS.get(kind):
            options["selector"] = SELECTORS[kind]
        elif kind == "tight":
            options["max_message_size"] = 150
        self.link = self.receiving.receiver(self.address, credit=2, **options)

    def play(self, story: Story) -> list[object]:
        for verb, kind, count in [*POSTED, *story]:
            self.step(verb, kind, count)
            self.world.carry()
            if count != 1 and verb not in ("together", "hasty"):
                self.world.settle()
            self.look()
        self.world.settle()
        self.world.check_journal()
        self.look()
        return self.seen

    def step(self, verb: str, kind: str, count: int) -> None:
        world, link, receiving = self.world, self.link, self.receiving
        assert link is not None and receiving is not None
        held = receiving.held(link)
        match verb:
            case "post":
                for _ in range(count):
                    if self.sender.sendable:
                        self.number += 1
                        self.sending.post(self.sender, KINDS[kind](b"%04d" % self.number))
            case "series":  # the first ones are learnt from
                for several in (2, 2, count):
                    self.step("post", kind, several)
                    world.carry()
            case "hasty":  # the same, and what follows comes before it is on the disk
                self.step("series", kind, count)
            case "in turns":  # some of each of two priorities
                for priority in (4, 9) * count:
                    if self.sender.sendable:
                        self.number += 1
                        message = Message(b"%04d" % self.number, durable=False, priority=priority)
                        self.sending.post(self.sender, message)
            case "foreign":  # in another format, whatever it is
                for _ in range(count):
                    if self.sender.sendable:
                        self.number += 1
                        payload = KINDS[kind](b"%04d" % self.number).encode()
                        self.sender.send(b"f%03d" % self.number, payload, message_format=7)
            case "mixed":  # the first ones are learnt from
                for several in (2, 2, 2 * count):
                    for _ in range(several):
                        if self.sender.sendable:
                            self.number += 1
                            self.sending.post(self.sender, MIXED[kind](self.number))
                    world.carry()
            case "rival" if self.address != "topic" and len(self.rivals) < RIVALS_MAX:
                self.several = True
                name = f"rival{next(self.browsers)}"
                self.rivals.append(receiving.receiver(self.address, name, credit=count, selector=SELECTORS[kind]))
            case "rivals":
                for rival in self.rivals:
                    rival.grant(rival.credit + count)
                    rival.session.settle_all(receiving.held(rival)[:count], OUTCOMES[kind])
            case "grant":
                link.grant(link.credit + count)
            case "first" if held:
                second = link.rcv_settle_mode is RcvSettleMode.SECOND  # it must say an outcome
                link.session.settle_all(held[:count], OUTCOMES[kind] or (Accepted() if second else None))
            case "one" if held:
                held[count % len(held)].settle(OUTCOMES[kind] or Accepted())
            case "settled" if held:  # what each of them says goes by itself
                for delivery in held[:count]:
                    delivery.settle(Accepted())
                    world.carry()
            case "together":  # in one read: they are sent, and their link ends
                for _ in range(count):
                    if self.sender.sendable:
                        self.number += 1
                        self.sending.post(self.sender, KINDS["volatile"](b"%04d" % self.number))
                self.sender.detach()
                world.carry()
                self.sender = self.attach_sender()
            case "lose":
                receiving.lose()
                self.receiving = self.link = None
                self.rivals, self.watching = [], None
                self.receiver("")
            case "lose sender":
                self.sending.lose()
                self.sending = self.attached()
                self.sender = self.attach_sender()
            case "detach" | "receiver":
                self.receiver(kind)
            case "browse" if self.address != "topic":
                browser = receiving.receiver(self.address, f"browser{next(self.browsers)}", credit=count, browse=True)
                world.carry()
                self.seen.append(receiving.bodies(browser))
                receiving.detach(browser)
            case "watch" if self.address != "topic":  # a browser that stays
                watching = f"browser{next(self.browsers)}"
                self.watching = receiving.receiver(self.address, watching, credit=count, browse=True)
            case "watch on" if self.watching is not None:
                self.watching.grant(self.watching.credit + count)
            case "purge" if self.address != "topic":
                world.purge(self.address)
            case "known":  # what the checkpoint of the journal knows of them
                holdings = world.core.holdings
                sequences = sorted(holdings.sequences())
                some = [0, *sequences[-count:]]
                positions = list(holdings.positions(some))
                known = [holdings.live(sequence) for sequence in some]
                assert positions == [0 if one is None else one.position for one in known]
                self.seen.append(known)
            case "pass time":
                world.advance(100 * count)
            case "drain":
                link.drain_credit()
            case _:
                pass

    def look(self) -> None:
        """See what clients and accounts say."""
        receiving, core = self.receiving, self.world.core
        assert receiving is not None
        for link, deliveries in receiving.received.items():
            said = [(one.payload, one.phase) for one in deliveries]
            self.seen.append((link.name, said, link.credit))
        self.seen.append([str(self.sending.outcome(one)) for one in self.sending.answers])
        for queue in core.queues.by_name.values():
            self.runs += bool(runs_in(queue.backlog))
            accounts = (
                queue.live,
                queue.bytes,
                queue.memory_bytes if queue.name != "deep" else "as it was read",
                queue.acquired,
                queue.available if self.several else queue.backlog.count,
            )
            self.seen.append((queue.name, *accounts, list(queue.counts), queue.tally.redelivered))
            self.seen.append([(one.held, one.tag) for one in queue.consumers])
        for client in self.world.clients:
            for session in client.server.sessions:
                links = [(link.name, link.unsettled_count, link.credit) for link in session.links]
                oldest = None if self.several else session.oldest_outgoing  # links of a session may leave in turns
                self.seen.append((links, session.outgoing_count, oldest, session.next_outgoing_id))
        for windows in (core.duplicates._windows, core.duplicates._volatile_ids):
            self.seen.append({address: list(window) for address, window in windows.by_address.items()})
        life, holdings = core.life, core.holdings
        self.seen.append((life.live_bytes, holdings.live_count))
        memory, parked = life.memory, len(life.parking.rows)  # what is behind a run is parked later
        if self.address != "deep":
            self.seen.append(memory.bytes + parked * (OBJECT_BYTES - PARKED_BYTES))


def never(runs: Runs, producer: object, *, durable: bool) -> list[Queue]:
    return []


def unread(paging: Paging, queue: Queue) -> bool:
    return False


def one_by_one(sending: Sending, consumer: object, messages: object) -> bool:
    return False


def both(address: str, story: Story, least: int = 1) -> Play:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Runs, "queues", never)
        patch.setattr(Sending, "_send_group", one_by_one)
        patch.setattr(Paging, "waits", unread)
        expected = Play(address, least).play(story)
    play = Play(address, least)
    with pytest.MonkeyPatch.context() as patch:
        if address == "deep":
            patch.setattr(backlog, "_LIST_MAX", 2)  # so that they are parked behind runs as well
        assert play.play(story) == expected
    return play


@pytest.mark.pure
@pytest.mark.promise("order", "missing")
@settings(max_examples=150)
@example("q", [("first", "accept", 1), ("lose", "", 2)], 1)
@example("q", [("grant", "", 8), ("first", "accept", 3), ("one", "release", 2), ("first", "accept", 8)], 1)
@example("q", [("post", "durable", 1), ("post", "volatile", 3), ("grant", "", 8), ("grant", "", 8)], 1)
@example("q", [("browse", "", 3), ("grant", "", 8), ("settled", "", 8)], 1)
@example("topic", [("grant", "", 8), ("first", "accept", 3), ("lose", "", 2)], 1)
@example("few", [("grant", "", 8), ("first", "accept", 2), ("first", "accept", 1), ("first", "accept", 2)], 1)
@example("locked", [("grant", "", 8), ("pass time", "", 3), ("pass time", "", 3), ("grant", "", 8)], 1)
@example(
    "ordered", [("grant", "", 4), ("first", "fail", 1), ("grant", "", 8), ("pass time", "", 5), ("grant", "", 8)], 1
)
@example(
    "q", [("receiver", "tight", 2), ("post", "large", 2), ("post", "large", 4), ("grant", "", 8), ("grant", "", 8)], 1
)
@example("q", [("watch", "", 8), ("post", "volatile", 4), ("grant", "", 8), ("first", "accept", 8)], 1)
@example("q", [("foreign", "volatile", 2), ("foreign", "volatile", 4), ("grant", "", 8), ("grant", "", 8)], 1)
@example("q", [("in turns", "", 2), ("in turns", "", 2), ("in turns", "", 4), ("grant", "", 8), ("grant", "", 8)], 1)
@example("latest", [("post", "valued", 2), ("post", "valued", 2), ("post", "valued", 4), ("grant", "", 8)], 1)
@example("q", [("post", "volatile", 3), ("grant", "", 8)], 4)
@example("q", [*RECORDED, ("first", "accept", 15), ("one", "release", 2), ("first", "accept", 8)], 1)
@example("q", [*RECORDED, ("lose sender", "", 2), ("first", "accept", 3), ("lose", "", 2), ("grant", "", 8)], 1)
@example("few", [*RECORDED, *[("first", "accept", 3)] * 6], 1)
@example("q", [*RECORDED, ("known", "", 4), ("first", "accept", 15)], 1)
@example("q", [("series", "durable", 8), ("known", "", 8), ("grant", "", 8), ("first", "accept", 15)], 1)
@example("q", [("series", "durable", 8), ("purge", "", 2), ("grant", "", 8)], 1)
@example("q", [("series", "durable", 8), ("watch", "", 8), ("grant", "", 8), ("first", "reject", 5)], 1)
@example("locked", [("series", "durable", 8), ("grant", "", 20), ("pass time", "", 6), ("first", "accept", 9)], 1)
@example("latest", [("series", "durable", 8), ("grant", "", 20), ("first", "accept", 9)], 1)
@example("q", [("purge", "", 2), ("hasty", "durable", 8), ("hasty", "volatile", 8), ("grant", "", 60)], 1)
@example("q", [("purge", "", 2), ("hasty", "durable", 8), ("watch", "", 30), ("grant", "", 8)], 1)
@example("q", [("hasty", "durable", 8), ("known", "", 4), ("grant", "", 60), ("first", "accept", 9)], 1)
@example("q", [("series", "durable", 8), ("watch", "", 1), *HELD_AND_RELEASED], 1)
@example("q", [("series", "volatile", 8), ("watch", "", 1), *HELD_AND_RELEASED], 1)
@example("q", [*RECORDED, ("foreign", "durable", 2), ("foreign", "durable", 4), ("first", "accept", 15)], 1)
@example("q", [("post", "new", 2), ("post", "twice", 6), ("post", "again", 8), ("grant", "", 20)], 1)
@example("q", [("post", "new durable", 2), ("post", "twice durable", 6), ("post", "again durable", 8)], 1)
@example("forgetful", [("post", "new", 2), *[("post", "again", 8)] * 4], 1)
@example("q", [("series", "reused", 8), ("series", "reused", 7)], 1)
@example("q", [("series", "reused durable", 8), ("series", "reused durable", 7)], 1)
@example("q", [("series", "again", 8), *[("post", "again", 8)] * 2], 1)
@example("q", [("series", "again durable", 8), *[("post", "again durable", 8)] * 2], 1)
@example("topic", [("series", "twice", 8), ("series", "twice durable", 8)], 1)
@example("more forgetful", [("series", "new", 2), ("post", "again", 8)], 1)
@example("more forgetful", [("series", "new", 8), ("series", "twice durable", 8)], 1)
@example("careless", [("post", "new durable", 2), ("post", "twice durable", 8)], 1)
@given(st.sampled_from(ADDRESSES), steps, st.sampled_from([1, 4]))
def test_a_run_is_its_messages(address: str, story: Story, least: int) -> None:
    both(address, story, least)


def test_messages_do_go_as_runs() -> None:
    """Else the other tests here would compare one way with itself."""
    assert both("q", []).runs
    assert both("topic", []).runs


@pytest.mark.pure
@pytest.mark.parametrize(
    ("posted", "taken_together", "given_together"),
    [
        (RECORDED, (8, 8), 8),
        ([("grant", "", 40), *[("post", "new durable", count) for count in (2, 2, 8)]], (8, 8), 8),
        ([("grant", "", 40), *[("post", "twice durable", count) for count in (2, 2, 8)]], (4, 8), 4),
    ],
    ids=["plain", "identified", "repeated"],
)
def test_durable_messages_are_taken_and_given_together(
    monkeypatch: pytest.MonkeyPatch, posted: Story, taken_together: tuple[int, int], given_together: int
) -> None:
    """Likewise."""
    taken, given = [], []
    together, hand_run = Runs.recorded, Sending.hand_run

    def recorded(runs: Runs, producer: Any, run: Any) -> tuple[MessageRun, int] | None:
        found = together(runs, producer, run)
        if found is not None:
            taken.append((found[0].count, found[1]))
        return found

    def handed(sending: Sending, queue: Any, consumer: Any, run: MessageRun) -> int:
        before = consumer.peer.unwritten_bytes
        count = hand_run(sending, queue, consumer, run)
        written = count * run.heads().head_bytes + sum(map(len, run.rests))
        assert consumer.peer.unwritten_bytes - before == written
        if run.recorded is not None:
            given.append(count)
        return count

    monkeypatch.setattr(Runs, "recorded", recorded)
    monkeypatch.setattr(Sending, "hand_run", handed)
    both("q", posted)
    assert max(taken) == taken_together
    assert max(given) == given_together


@pytest.mark.pure
def test_durable_messages_that_wait_behind_others_are_given_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Likewise, where one by one would be a group of objects."""
    given: list[int] = []
    send_group = Sending._send_group

    def sent(sending: Sending, consumer: Any, messages: Any) -> bool:
        before = consumer.peer.unwritten_bytes
        together = send_group(sending, consumer, messages)
        written = sum(len(sending.payload(message)) for message in messages)
        assert consumer.peer.unwritten_bytes - before == written * together
        given.append(len(messages) * together)
        return together

    monkeypatch.setattr(Sending, "_send_group", sent)
    both("q", [*[("post", "durable", count) for count in (2, 2, 8)], ("browse", "", 8), ("grant", "", 40)])
    assert max(given) >= 8


PARKED: Story = [("first", "accept", 9), *[("post", "durable", 2)] * 14]


@pytest.mark.pure
@pytest.mark.parametrize(
    "taken",
    [
        [("grant", "", 60), ("first", "accept", 40)],
        [("grant", "", 5), ("one", "release", 2), ("grant", "", 9), ("first", "accept", 60)],
        [("grant", "", 20), ("lose", "", 2), ("grant", "", 60), ("first", "fail", 30), ("first", "accept", 60)],
        [("grant", "", 20), ("known", "", 30), ("watch", "", 9), ("grant", "", 40), ("watch on", "", 60)],
        [("receiver", "second", 2), ("grant", "", 20), ("first", "accept", 9), ("first", "accept", 60)],
        [("grant", "", 3), ("purge", "", 2), *PARKED, ("grant", "", 60)],
    ],
)
def test_parked_messages_come_back_together(monkeypatch: pytest.MonkeyPatch, taken: Story) -> None:
    """Likewise."""
    read, run_of = [], Paging._run

    def noted(paging: Paging, *given: Any) -> MessageRun | None:
        run = run_of(paging, *given)
        read.append(0 if run is None else run.count)
        return run

    monkeypatch.setattr(Paging, "_run", noted)
    both("deep", [*PARKED, *taken])
    assert sum(read) >= 4


@pytest.mark.pure
@pytest.mark.parametrize(("kind", "least"), [("new", 8), ("twice", 4)])
def test_volatile_messages_with_ids_are_taken_together(monkeypatch: pytest.MonkeyPatch, kind: str, least: int) -> None:
    """Likewise."""
    taken, together = [], Runs.of

    def of(runs: Runs, producer: Any, run: Any) -> list[MessageRun]:
        found = together(runs, producer, run)
        taken.append(sum(one.count for one in found))
        return found

    monkeypatch.setattr(Runs, "of", of)
    both("q", [("grant", "", 40), *[("post", kind, count) for count in (2, 2, 8)]])
    assert max(taken) >= least


# -- for one of several ----------------------------------------------------------------------------------------------

rivals = st.one_of(
    st.tuples(st.just("grant"), st.just(""), counts),
    st.tuples(st.just("rivals"), st.sampled_from(["accept", "accept", "release"]), counts),
    st.tuples(st.just("first"), st.sampled_from(["accept"] * 3 + list(OUTCOMES)), counts),
    st.tuples(
        st.sampled_from(["lose", "detach", "browse", "purge", "pass time", "drain", "lose sender"]), st.just(""), counts
    ),
)


def rivalry(kinds: list[str], selectors: list[str]) -> st.SearchStrategy[Story]:
    """Return stories of messages of these kinds, for consumers with these selectors."""
    mixed = st.tuples(st.just("mixed"), st.sampled_from(kinds), counts)
    rival = st.tuples(st.just("rival"), st.sampled_from(selectors), counts)
    receiver = st.tuples(st.just("receiver"), st.sampled_from([*selectors, selectors[0], "tight"]), counts)
    return st.lists(st.one_of(mixed, mixed, rivals, rivals, rival, receiver), min_size=8, max_size=40)


CHOSEN: Story = [("receiver", "green", 2), ("rival", "red", 8), ("rival", "blue", 8), ("grant", "", 8)]
SHARED: Story = [("purge", "", 2), ("rival", "", 8), ("rival", "", 8), ("grant", "", 8)]
BY_PRIORITY: Story = [
    ("purge", "", 2),
    ("rival", "", 6),
    ("grant", "", 6),
    ("mixed", "groups", 1),
    ("mixed", "slow groups", 8),
    ("mixed", "groups", 6),
    ("rivals", "accept", 4),
]
OVER_AND_OVER: Story = [*CHOSEN, *[("mixed", "colours", 8), ("rivals", "accept", 8), ("grant", "", 8)] * 4]


@pytest.mark.pure
@pytest.mark.promise("order", "missing")
@settings(max_examples=200)
@example("q", [*CHOSEN, ("mixed", "colours", 8), ("rivals", "accept", 6), ("mixed", "colours", 8)])
@example("few", [*CHOSEN, ("mixed", "colours", 8), ("rivals", "accept", 6), ("grant", "", 9), ("rivals", "accept", 6)])
@example("q", [*SHARED, ("mixed", "groups", 8), ("rivals", "accept", 6), ("lose", "", 2), ("grant", "", 60)])
@example("q", [*SHARED, ("mixed", "groups", 4), ("mixed", "groups", 8), ("rivals", "release", 6), ("grant", "", 9)])
@example("q", [("mixed", "groups", 8), ("grant", "", 3), ("rival", "", 9), ("grant", "", 9)])
@example("q", OVER_AND_OVER)
@example("q", BY_PRIORITY)
@given(
    st.sampled_from(["q", "q", "q", "few", "small", "tried", "ordered", "locked"]),
    st.one_of(
        rivalry(["colours"], ["green", "red", "blue"]),
        rivalry(["colours"], ["no blue", "red", "urgent"]),
    ),
)
def test_a_run_goes_to_whom_each_of_its_messages_would(address: str, story: Story) -> None:
    both(address, story)


@pytest.mark.pure
@pytest.mark.parametrize(
    ("story", "together"),
    [
        ([*CHOSEN, ("mixed", "colours", 8)], 16),
        (OVER_AND_OVER, 32),
        ([*SHARED, ("mixed", "groups", 8), ("mixed", "groups", 8)], 16),
    ],
)
def test_messages_for_one_of_several_do_go_together(
    monkeypatch: pytest.MonkeyPatch, story: Story, together: int
) -> None:
    """Likewise."""
    given: list[int] = []
    give_run = Pass.give_run

    def noted(pass_: Pass, consumer: Any, run: MessageRun) -> None:
        given.append(run.count)
        give_run(pass_, consumer, run)

    monkeypatch.setattr(Pass, "give_run", noted)
    both("q", story)
    assert sum(given) >= together


# -- the backlog ------------------------------------------------------------------------------------------------------

QUEUE = Queue(1, "q", "q", AddressPolicy(), auto_created=True)
PAYLOADS = {priority: Message(b"x", durable=False, priority=priority).encode() for priority in (0, 4, 9)}
moves = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["run", "run", "post"]), st.sampled_from([4, 4, 4, 9, 0]), st.integers(1, 5)),
        st.tuples(
            st.sampled_from(
                [
                    "take run",
                    "take run",
                    "take",
                    "put back",
                    "return",
                    "leave",
                    "leave list",
                    "late",
                    "rank",
                    "look",
                ]
            ),
            st.just(0),
            st.integers(1, 6),
        ),
    ),
    min_size=15,
    max_size=60,
)


class Waiting:
    """A backlog beside a sorted list of priorities and sequences."""

    def __init__(self) -> None:
        self.backlog = Backlog()
        self.model: list[tuple[int, int]] = []
        self.taken: list[Held] = []
        self.skipped: list[tuple[int, int]] = []
        self.next = 1

    def make(self, priority: int, sequence: int) -> Held:
        return Held(sequence, QUEUE, NodeState.AVAILABLE, b"", 0, 0, priority, 0, 0, 0)

    def move(self, name: str, priority: int, count: int) -> None:
        backlog, model = self.backlog, self.model
        sequences = range(self.next + 1, self.next + 1 + count)
        match name:
            case "run" | "post":
                self.skipped.append((-priority, self.next))
                self.next += count + 1
                model += [(-priority, sequence) for sequence in sequences]
                if name == "post":
                    backlog.extend([self.make(priority, sequence) for sequence in sequences])
                    return
                template = learn_template(read_posting(PAYLOADS[priority]))
                assert template is not None
                payloads = [PAYLOADS[priority]] * count
                backlog.extend_run(MessageRun(QUEUE, sequences, template, payloads, count, 1, 0))
            case "late" if self.skipped:
                place = self.skipped.pop(count % len(self.skipped))
                model.append(place)
                backlog.add(self.make(-place[0], place[1]))
            case "take run":
                if (run := backlog.next_run()) is not None:
                    before = run.count
                    run = backlog.take_run(count)
                    assert run.count == min(before, count)
                    self.took(run.each())
            case "take" | "put back":
                run, waiting = backlog.next_run(), len(model)
                got = backlog.take(count)
                assert bool(got) is bool(waiting)
                assert len(got) == min(count, waiting) or run is not None or backlog.next_run() is not None
                if name == "put back":
                    backlog.put_back(got)
                else:
                    self.took(got)
            case "return" if self.taken:
                one = self.taken.pop(count % len(self.taken))
                one.state = NodeState.AVAILABLE
                model.append((-one.priority, one.sequence))
                backlog.add(one)
            case "leave" | "leave list":  # the latter from where it waits, without a look at the others
                lists = (part for lane in backlog._lanes for part in lane.parts if isinstance(part, list))
                waiting = list(backlog.next_messages()) if name == "leave" else list(chain.from_iterable(lists))
                there = [one for one in waiting if one.state is NodeState.AVAILABLE]
                if there:
                    one = there[count % len(there)]
                    model.remove((-one.priority, one.sequence))
                    one.state = NodeState.ARCHIVED
                    backlog.left()
            case "rank":
                runs = runs_in(backlog)
                priority, sequence = min(model, default=(0, 0))
                assert backlog.next_rank() == (rank_of(-priority, sequence) if model else BEYOND)
                assert runs_in(backlog) == runs
            case "look":
                seen = [(-one.priority, one.sequence) for one in backlog.next_messages(count)]
                assert seen == sorted(model)[:count]
            case _:
                pass

    def took(self, messages: list[Held]) -> None:
        places = [(-one.priority, one.sequence) for one in messages]
        assert places == sorted(self.model)[: len(places)]
        for one, place in zip(messages, places, strict=True):
            self.model.remove(place)
            one.state = NodeState.ACQUIRED
            self.taken.append(one)


@pytest.mark.promise("order")
@settings(max_examples=share(300))
@given(moves)
def test_a_backlog_with_runs_is_a_sorted_list(story: list[tuple[str, int, int]]) -> None:
    waiting = Waiting()
    for name, priority, count in story:
        waiting.move(name, priority, count)
        assert waiting.backlog.count == len(waiting.model)
    while waiting.backlog.count:
        waiting.took(waiting.backlog.take(1_000))
    assert not waiting.model
