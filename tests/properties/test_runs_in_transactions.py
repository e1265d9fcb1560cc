"""Messages that transactions post and accept together become what they become one by one, whatever happens to
some of them, or to their transaction."""

from __future__ import annotations

import copy
import secrets
from collections import Counter
from collections.abc import Callable
from functools import partial
from itertools import count as counting
from random import Random
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from acquit.broker.dispatching.sending import Sending
from acquit.broker.intake.runs import Runs
from acquit.broker.nodes.node import Queue
from acquit.broker.options import AddressRule, BrokerOptions, TransactionLimits
from acquit.broker.transact.transactions import Transactions
from acquit.protocol.definitions import (
    Accepted,
    DeliveryState,
    Modified,
    RcvSettleMode,
    Rejected,
    Released,
    TransactionalState,
)
from acquit.protocol.link import ReceivingLink, SendingLink
from acquit.protocol.message import Message
from tests.support.broker_world import Client, World
from tests.support.transacting import Controller

OPTIONS = BrokerOptions(
    address=(
        AddressRule("few", {"prefetch_max": 3}),
        AddressRule("small", {"messages_max": 14, "full_policy": "reject"}),
        AddressRule("narrow", {"bytes_max": 3_000, "full_policy": "reject"}),
        AddressRule("tried", {"max_delivery_attempts": 2}),
        AddressRule("locked", {"lock_duration_ms": 500}),
        AddressRule("ring", {"ring_size": 6}),
    ),
    transactions=TransactionLimits(postings_max=16, bytes_max=2_000, retirements_max=9, idle_timeout_ms=2_000),
)
ADDRESSES = ["q", "q", "q", "q", "few", "small", "narrow", "tried", "locked", "ring"]
KINDS: dict[str, Callable[[bytes], Message]] = {
    "volatile": partial(Message, durable=False),
    "durable": partial(Message, durable=True),
    "urgent": partial(Message, durable=False, priority=9),
    "large": lambda body: Message(body * 40, durable=False),
    "grouped": partial(Message, durable=False, group_id="g"),
    "passing": partial(Message, durable=False, ttl_ms=300),
    "same": lambda body: Message(body, durable=False, application_properties={"_AMQ_DUPL_ID": str(int(body) // 3)}),
}
OUTCOMES: dict[str, DeliveryState] = {
    "accept": Accepted(),
    "release": Released(),
    "fail": Modified(delivery_failed=True),
    "reject": Rejected(),
}
Step = tuple[str, str, int]
Story = list[Step]
BEGUN: Story = [("held", "volatile", 1), ("held", "volatile", 2), ("commit", "", 0)]
"""The broker learns what the messages are like."""

counts = st.integers(1, 8)
steps = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["held"] * 4 + ["held settled"]), st.sampled_from(["volatile", "durable"]), counts),
        st.tuples(st.just("held"), st.sampled_from(list(KINDS)), counts),
        st.tuples(st.just("post"), st.sampled_from(["volatile", "durable", *KINDS]), counts),
        st.tuples(st.just("foreign"), st.just("volatile"), counts),
        st.tuples(st.just("grant"), st.just(""), counts),
        st.tuples(st.just("retire"), st.sampled_from(["accept"] * 6 + list(OUTCOMES)), counts),
        st.tuples(st.sampled_from(["retire unsettled", "retire one"]), st.sampled_from(list(OUTCOMES)), counts),
        st.tuples(st.sampled_from(["accept", "accept"]), st.just(""), counts),
        st.tuples(st.sampled_from(["commit", "commit", "commit", "roll back"]), st.just(""), counts),
        st.tuples(
            st.sampled_from(
                [
                    *("lose", "detach", "steal", "watch", "no local", "purge", "pass time", "pause", "delete"),
                    *("look", "lose sender"),
                ]
            ),
            st.just(""),
            counts,
        ),
        st.tuples(st.just("receiver"), st.sampled_from(["", "second", "presettled"]), counts),
        st.tuples(st.just("sender"), st.sampled_from(["", "second"]), counts),
    ),
    min_size=6,
    max_size=30,
)


class Side:
    """A client with one transaction after the other."""

    def __init__(self, world: World, name: str) -> None:
        self.client: Client = world.client(name)
        self.client.begun.next_delivery_id = 1_000  # wide, so that they are predicted
        self.controller = Controller(self.client)
        self.txn = self.controller.declare()

    def discharge(self, *, fail: bool) -> None:
        """End its transaction, and begin another."""
        self.controller.discharge(self.txn, fail=fail)
        if self.controller.link not in self.client.detached:
            self.txn = self.controller.declare()
        else:
            self.controller = Controller(self.client, "another control")
            self.txn = self.controller.declare()


class Play:
    """A broker, with one who posts in transactions and one who retires in transactions, and all that was seen."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.world = World(OPTIONS)
        self.seen: list[object] = []
        self.number = 0
        self.names = counting()
        self.sending = Side(self.world, "sending")
        self.receiving = Side(self.world, "receiving")
        self.link: ReceivingLink
        self.sender: SendingLink
        self.attach_receiver("")
        self.attach_sender("")

    def attach_receiver(self, kind: str) -> None:
        options: dict[str, Any] = {"presettled": True} if kind == "presettled" else {}
        if kind == "second":
            options["second"] = True
        self.link = self.receiving.client.receiver(self.address, f"from-{next(self.names)}", credit=4, **options)

    def attach_sender(self, kind: str) -> None:
        mode = RcvSettleMode.SECOND if kind == "second" else RcvSettleMode.FIRST
        self.sender = self.sending.client.sender(self.address, f"to-{next(self.names)}", rcv_settle_mode=mode)

    def play(self, story: Story) -> list[object]:
        for verb, kind, count in [*BEGUN, *story]:
            self.step(verb, kind, count)
            self.world.carry()
            if count % 2:
                self.world.settle()
            self.world.check()
            self.look()
        self.world.settle()
        self.world.check_journal()
        self.look()
        for queue in self.world.core.queues.by_name.values():
            waiting = list(queue.backlog.next_messages())
            self.seen.append([(message.sequence, message.priority, message.flags, message.body) for message in waiting])
            extras = [message.extra for message in waiting]
            self.seen.append([extra and (extra.group, extra.closes_group, extra.poster) for extra in extras])
        return self.seen

    def step(self, verb: str, kind: str, count: int) -> None:
        world, sending, receiving, link = self.world, self.sending, self.receiving, self.link
        held = receiving.client.held(link)
        match verb:
            case "held" | "held settled" | "post":
                messages = []
                for _ in range(min(count, self.sender.credit)):
                    self.number += 1
                    messages.append(KINDS[kind](b"%04d" % self.number))
                if not self.sender.sendable:
                    self.attach_sender("")
                elif verb == "post":
                    sending.client.post(self.sender, *messages)
                else:
                    sending.controller.post(self.sender, sending.txn, *messages, settled=verb == "held settled")
            case "foreign":  # in another format, whatever it is
                for _ in range(min(count, self.sender.credit)):
                    self.number += 1
                    payload = KINDS[kind](b"%04d" % self.number).encode()
                    state = TransactionalState(sending.txn)
                    self.sender.send(b"f%03d" % self.number, payload, message_format=7, state=state)
            case "grant":
                link.grant(link.credit + count)
            case "retire" | "retire unsettled" if held:
                second = link.rcv_settle_mode is RcvSettleMode.SECOND
                settled = verb == "retire" and not second
                receiving.controller.retire(receiving.txn, *held[:count], outcome=OUTCOMES[kind], settled=settled)
            case "retire one" if held:
                one = held[count % len(held)]
                settled = link.rcv_settle_mode is RcvSettleMode.FIRST
                receiving.controller.retire(receiving.txn, one, outcome=OUTCOMES[kind], settled=settled)
            case "accept" if held:
                link.session.settle_all(held[:count], Accepted())
            case "commit":
                sending.discharge(fail=False)
                receiving.discharge(fail=False)
            case "roll back":
                for side in (sending, receiving)[: count % 3]:
                    side.discharge(fail=True)
            case "lose":
                receiving.client.lose()
                self.receiving = Side(world, "receiving")
                self.attach_receiver("")
            case "lose sender":
                sending.client.lose()
                self.sending = Side(world, "sending")
                self.attach_sender("")
            case "detach" | "receiver":
                receiving.client.detach(link)
                self.attach_receiver(kind)
            case "sender":
                sending.client.detach(self.sender)
                self.attach_sender(kind)
            case "steal":  # in one read with what is said of what it holds
                for delivery in held[:count]:
                    delivery.settle(Accepted())
                link.detach()
                world.carry()
                self.attach_receiver("")
            case "watch":
                receiving.client.receiver(self.address, f"watch-{next(self.names)}", credit=count, browse=True)
            case "no local":
                receiving.client.receiver(self.address, f"other-{next(self.names)}", credit=1, no_local=True)
            case "purge":
                world.purge(self.address)
            case "pause":
                queue = world.core.queues.by_name[self.address]
                world.core.administration.pause(self.address, "none" if queue.producers_paused else "producers", None)
            case "delete" if count == 8:
                world.core.removal.remove(world.core.queues.by_name[self.address], 0)
                world.settle()
                self.attach_receiver("")
                self.attach_sender("")
            case "look":  # as an operator does, or the checkpoint
                for sequence in sorted(world.core.holdings.sequences())[-count:]:
                    assert world.core.holdings.live(sequence) is not None
            case "pass time":
                world.advance(150 * count)
            case _:
                pass

    def look(self) -> None:
        """See what clients and accounts say."""
        core = self.world.core
        for client in (self.sending.client, self.receiving.client):
            for link, deliveries in client.received.items():
                self.seen.append((link.name, [(one.payload, one.phase) for one in deliveries], link.credit))
            answers = sorted(client.answers.items(), key=lambda answer: answer[0].delivery_id)
            self.seen.append([(one.delivery_id, str(state), settled) for one, (state, settled) in answers])
            self.seen.append([link.name for link in client.detached])
        for queue in core.queues.by_name.values():
            accounts = queue.live, queue.bytes, queue.memory_bytes, queue.acquired, queue.backlog.count, queue.pending
            self.seen.append((queue.name, *accounts, queue.held, queue.held_bytes, list(queue.counts)))
            self.seen.append([(one.held, one.tag) for one in queue.consumers])
        self.seen.append(copy.deepcopy(core.scribe._uncounted))
        self.seen.append((core.transactions.postings.memory_bytes, core.memory.bytes, core.life.live_count))
        self.seen.append([(one.bytes, one.posted, one.outcomes, str(one.failed)) for one in core.transactions])
        for client in self.world.clients:
            for session in client.server.sessions:
                links = [(link.name, link.unsettled_count, link.credit) for link in session.links]
                self.seen.append((links, session.outgoing_count, session.oldest_outgoing, session.next_outgoing_id))


def never(runs: Runs, producer: object, *, durable: bool) -> list[Queue]:
    return []


def played(address: str, story: Story, *, hot: bool) -> list[object]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(secrets, "token_bytes", Random(0).randbytes)
        if not hot:
            patch.setattr(Runs, "queues", never)
            patch.setattr(Sending, "_send_group", lambda *_: False)
            patch.setattr(Transactions, "run", lambda *_: None)
            patch.setattr(Transactions, "retire_run", lambda *_: False)
        return Play(address).play(story)


POSTED: Story = [("held", "volatile", 6), ("commit", "", 1)]
TAKEN: Story = [*POSTED, ("grant", "", 8), ("accept", "", 4)]
"""What is left of it is one run."""
LASTING: Story = [("accept", "", 8), ("held", "durable", 1), ("held", "durable", 6), ("commit", "", 1)]
"""The broker learns what durable ones are like, and holds those together: a receiver is given one, and a run of six."""


@pytest.mark.pure
@pytest.mark.promise("transactions")
@settings(max_examples=150)
@example("q", [*POSTED, ("grant", "", 8), ("retire", "accept", 8), ("commit", "", 1)])
@example("q", [*POSTED, ("grant", "", 8), ("retire", "accept", 3), ("roll back", "", 2), ("grant", "", 8)])
@example("q", [*POSTED, ("grant", "", 8), ("retire", "accept", 3), ("detach", "", 1), ("roll back", "", 2)])
@example("q", [*POSTED, ("grant", "", 8), ("retire", "accept", 3), ("lose", "", 1), ("grant", "", 8)])
@example("q", [*POSTED, *POSTED, ("grant", "", 8), ("retire", "accept", 8), ("retire", "accept", 8), ("commit", "", 1)])
@example("q", [*POSTED, ("grant", "", 8), ("retire", "accept", 3), ("pass time", "", 8), ("pass time", "", 8)])
@example("q", [*TAKEN, ("retire", "accept", 5), *[("pass time", "", 8)] * 3])
@example("q", [*TAKEN, ("pass time", "", 8), ("retire", "accept", 5), ("pass time", "", 8)])
@example("q", [("held", "volatile", 6), ("pass time", "", 8), ("pass time", "", 8), ("commit", "", 1)])
@example("q", [("held", "volatile", 6), ("watch", "", 4), ("commit", "", 1), ("grant", "", 8)])
@example("q", [("held", "volatile", 6), ("no local", "", 4), ("commit", "", 1), ("grant", "", 8)])
@example("q", [("held", "volatile", 6), ("held", "durable", 2), ("held", "volatile", 6), ("commit", "", 2)])
@example("q", [*POSTED, ("held", "durable", 2), ("commit", "", 1), ("grant", "", 8), ("retire", "accept", 8)])
@example("q", [("held", "volatile", 6), ("delete", "", 8), ("commit", "", 1)])
@example("q", [*POSTED, ("grant", "", 8), ("retire", "accept", 4), ("delete", "", 8), ("commit", "", 1)])
@example("q", [*POSTED, ("grant", "", 8), ("retire", "accept", 4), ("delete", "", 8), ("roll back", "", 2)])
@example("few", [*POSTED, *[("retire", "accept", 3), ("commit", "", 1)] * 3])
@example("q", [("held", "volatile", 8), ("held", "volatile", 8), ("held", "volatile", 8), ("commit", "", 1)])
@example("small", [*POSTED, *[("held", "volatile", 6)] * 3, ("commit", "", 1)])
@example("narrow", [*POSTED, *[("held", "large", 8)] * 3, ("commit", "", 1)])
@example("q", [("held", "urgent", 2), ("held", "volatile", 4), ("held", "urgent", 8), ("commit", "", 1)])
@example("q", [("held", "large", 2), ("held", "large", 8), ("held", "large", 8), ("commit", "", 1)])
@example("q", [("held", "large", 2), ("held", "large", 8), ("held", "large", 4), ("commit", "", 1)])
@example("narrow", [*[("held", "large", 8), ("commit", "", 2)] * 3, ("held", "large", 8), ("commit", "", 1)])
@example("q", [("held", "grouped", 2), ("held", "grouped", 8), ("commit", "", 2)])
@example("q", [("foreign", "volatile", 2), ("foreign", "volatile", 6), ("commit", "", 2)])
@example("q", [("sender", "second", 1), ("held", "volatile", 2), ("held", "volatile", 6), ("commit", "", 1)])
@example("q", [("held settled", "volatile", 2), ("held settled", "volatile", 6), ("commit", "", 1), ("grant", "", 8)])
@example("q", [("held settled", "volatile", 8), ("held settled", "volatile", 8), ("held settled", "volatile", 8)])
@example("q", [*LASTING, ("grant", "", 8), ("retire", "accept", 8), ("commit", "", 1)])
@example(
    "q",
    [
        *LASTING,
        ("grant", "", 8),
        ("retire", "accept", 1),
        ("commit", "", 1),
        ("retire", "accept", 6),
        ("commit", "", 1),
    ],
)
@example("q", [*LASTING, ("grant", "", 8), ("retire", "accept", 3), ("roll back", "", 2), ("grant", "", 8)])
@example("q", [*LASTING, ("grant", "", 8), ("retire", "accept", 3), ("detach", "", 1), ("roll back", "", 2)])
@example("q", [*LASTING, ("grant", "", 8), ("retire", "accept", 3), ("lose", "", 1), ("grant", "", 8)])
@example("q", [*LASTING, ("grant", "", 8), ("retire", "accept", 3), ("pass time", "", 8), ("pass time", "", 8)])
@example("q", [*LASTING, ("grant", "", 8), ("retire", "accept", 5), ("delete", "", 8), ("commit", "", 1)])
@example("q", [*LASTING, ("grant", "", 8), ("retire", "accept", 5), ("look", "", 8), ("commit", "", 1)])
@example("q", [*LASTING, ("grant", "", 8), ("retire", "accept", 5), ("look", "", 8), ("delete", "", 8)])
@example("q", [*LASTING, ("grant", "", 8), ("retire", "accept", 5), ("look", "", 8), ("roll back", "", 2)])
@example("q", [*LASTING, *LASTING, ("roll back", "", 1), ("held", "durable", 5), ("roll back", "", 1)])
@example("q", [*LASTING, ("held", "durable", 5), ("look", "", 8), ("commit", "", 1), ("grant", "", 8)])
@example("q", [*LASTING, ("held", "durable", 3), ("held", "volatile", 2), ("held", "durable", 3), ("commit", "", 1)])
@example("q", [*LASTING, ("detach", "", 1), ("held", "durable", 6), ("commit", "", 2), ("grant", "", 8)])
@example("q", [*LASTING, ("held", "durable", 6), ("no local", "", 4), ("commit", "", 1), ("grant", "", 8)])
@example("q", [*LASTING, ("held", "durable", 6), ("watch", "", 4), ("commit", "", 1), ("grant", "", 8)])
@example("ring", [*LASTING, ("held", "durable", 8), ("commit", "", 1), ("grant", "", 8)])
@example("small", [*LASTING, *[("held", "durable", 6)] * 3, ("commit", "", 1)])
@example("q", [*LASTING, ("held settled", "durable", 8), ("held settled", "durable", 8), ("commit", "", 1)])
@given(st.sampled_from(ADDRESSES), steps)
def test_what_is_held_together_is_what_is_held_singly(address: str, story: Story) -> None:
    assert played(address, story, hot=True) == played(address, story, hot=False)


@pytest.mark.pure
@pytest.mark.parametrize("posted", [POSTED, LASTING])
def test_they_are_held_and_retired_together(posted: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the other test would compare one way with itself."""
    taken: Counter[str] = Counter()
    for name in ("hold_run", "retire_run"):
        whole = getattr(Transactions, name)

        def counted(*arguments: object, whole: Any = whole, name: str = name) -> bool:
            done: bool = whole(*arguments)
            taken[name] += done
            return done

        monkeypatch.setattr(Transactions, name, counted)
    story: Story = [*posted, ("grant", "", 8), ("retire", "accept", 8), ("commit", "", 1)]
    assert played("q", story, hot=True) == played("q", story, hot=False)
    assert taken["hold_run"] >= 1
    assert taken["retire_run"] >= 1
