"""What is given together in a pass over those who wait has room where it goes, and a turn has an end."""

from __future__ import annotations

import pytest

from acquit.broker.dispatching import choosing
from acquit.broker.dispatching.consumers import Consumer
from acquit.broker.dispatching.passes import Pass
from acquit.broker.intake.runs import Runs
from acquit.broker.message_run import MessageRun
from acquit.broker.nodes.node import Queue
from acquit.broker.options import AddressRule, BrokerOptions
from acquit.protocol.constants import ACCEPTED
from acquit.protocol.definitions import Modified
from acquit.protocol.link import ReceivingLink, SendingLink
from acquit.protocol.message import Message
from tests.support.broker_world import SHALLOW, Client, World

RED, BLUE = "red", "blue"


def coloured(number: int, colour: str) -> Message:
    return Message(b"%04d" % number, durable=False, application_properties={"colour": colour})


class Rivals:
    """Two consumers, links of one session, each with a selector of its own."""

    def __init__(self, least: int = 1, window: int = 1_000) -> None:
        self.world = World(sizes=SHALLOW._replace(run=least))
        self.receiving = self.world.client("receiving", window=window)
        self.links: list[ReceivingLink] = [
            self.receiving.receiver("q", colour, selector=f"colour = '{colour}'") for colour in (RED, BLUE)
        ]
        self.sending: Client = self.world.client("sending")
        self.sending.begun.next_delivery_id = 1_000  # wide, so that they are predicted
        self.sender: SendingLink = self.sending.sender("q")
        self.posted = 0

    def post(self, *colours: str) -> None:
        for colour in colours:
            self.posted += 1
            self.sending.post(self.sender, coloured(self.posted, colour))
        self.world.carry()

    def grant(self, credit: int) -> None:
        for link in self.links:
            link.grant(credit)

    def received(self) -> list[int]:
        return [len(self.receiving.bodies(link)) for link in self.links]


def test_what_one_was_given_before_a_run_for_another_uses_up_the_room_of_their_session() -> None:
    rivals = Rivals(least=6, window=10)
    rivals.grant(2)
    rivals.post(RED, RED)
    rivals.post(BLUE, BLUE)
    rivals.post(RED)
    rivals.world.settle()
    rivals.world.core.queues.by_name["q"].backlog.lay_out()  # as where somebody browses
    rivals.post(RED, RED)
    rivals.post(RED, RED)
    rivals.post(*[BLUE] * 8)
    rivals.grant(100)
    rivals.world.settle()
    assert rivals.received() == [7, 10]


@pytest.mark.parametrize("near", [100, *range(6, 17)])
def test_delivery_ids_that_end_between_the_runs_of_a_session(near: int) -> None:
    rivals = Rivals()
    rivals.grant(8)
    rivals.post(RED, BLUE)
    rivals.post(RED, BLUE)
    for link in rivals.links:
        link.session.settle_all(rivals.receiving.held(link), ACCEPTED)
    rivals.world.settle()
    for session in rivals.receiving.server.sessions:
        session.next_delivery_id = (1 << 32) - near
    rivals.receiving.begun.next_incoming_delivery_id = (1 << 32) - near
    rivals.post(*[RED, BLUE] * 6)
    rivals.world.settle()
    assert rivals.received() == [8, 8]


@pytest.mark.parametrize("selector", ["t LIKE '%_b'", "t LIKE '%_b' OR t LIKE '%_c'"])
def test_what_like_costs_ends_a_turn_and_not_all_turns(selector: str) -> None:
    world = World(sizes=SHALLOW._replace(run=1))
    client = world.client()
    link = client.receiver("q", "a", selector=selector, credit=100)
    other = client.receiver("q", "b", selector="t LIKE '%_b' AND t LIKE '%a%'", credit=3)
    sender = client.sender("q")
    number = 0
    for several in (2, 2, 8):
        for _ in range(several):
            number += 1
            properties = {"t": "a" * 5_000 + "b"}
            client.post(sender, Message(b"%d" % number, durable=False, application_properties=properties))
        world.carry()
    world.settle()
    assert len(client.bodies(link)) + len(client.bodies(other)) == number


@pytest.mark.pure
@pytest.mark.parametrize("count", [1, 40, 400])
def test_a_turn_has_an_end_whatever_there_is_in_runs(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """However many interests there are, and though all they say of these properties is known."""
    handed: list[int] = []
    give_run = Pass.give_run

    def noted(pass_: Pass, consumer: Consumer, run: MessageRun) -> None:
        handed[-1] += run.count
        give_run(pass_, consumer, run)

    serve = choosing.Choosing.serve

    def turn(self: choosing.Choosing, queue: Queue) -> bool:
        handed.append(0)
        return serve(self, queue)

    world = World()
    client = world.client()
    links = [client.receiver("q", f"c{number}", selector=f"n = {number}") for number in range(count)]
    sender = client.sender("q")
    messages = [Message(b"m", durable=False, application_properties={"n": at % count}) for at in range(3_000)]
    client.post_all(sender, *messages[:1])
    client.post_all(sender, *messages[1:3])
    client.post_all(sender, *messages[3:])
    monkeypatch.setattr(Pass, "give_run", noted)
    monkeypatch.setattr(choosing.Choosing, "serve", turn)
    for link in links:
        link.grant(5)
    world.settle()
    for link in links:
        link.grant(3_000)
    world.settle()
    assert sum(len(client.bodies(link)) for link in links) == 3_000
    assert sum(handed) > 1_000
    assert max(handed) <= 4 * choosing.LOOKS_MAX


@pytest.mark.pure
@pytest.mark.parametrize("posted", [False, True])
@pytest.mark.parametrize("served", [False, True])
@pytest.mark.parametrize("looked", [False, True])
def test_groups_that_a_policy_gives_or_takes_while_their_messages_wait(
    posted: bool, served: bool, looked: bool
) -> None:
    """What came while there were groups has one; whether that counts says the policy of the moment."""

    def options(groups: bool) -> BrokerOptions:
        return BrokerOptions(address=(AddressRule("q", {"message_groups": groups}),))

    def play(runs: bool) -> list[int]:
        with pytest.MonkeyPatch.context() as patch:
            if not runs:
                patch.setattr(Runs, "queues", lambda *given, **named: [])
            world = World(options(posted), sizes=SHALLOW._replace(run=1))
            sending, receiving = world.client("sending"), world.client("receiving")
            sending.begun.next_delivery_id = 1_000
            sender = sending.sender("q")
            for many in (2, 2, 8):
                for _ in range(many):
                    sending.post(sender, Message(b"m", durable=False, group_id="g"))
                world.carry()
            world.settle()
            if looked:
                world.core.apply(options(not posted))
                browser = receiving.receiver("q", "browser", credit=20, browse=True)
                world.settle()
                receiving.detach(browser)
            world.core.apply(options(served))
            links = [receiving.receiver("q", name) for name in ("one", "other")]
            for link in links:
                link.grant(20)
            world.settle()
            return [len(receiving.bodies(link)) for link in links]

    assert play(True) == play(False)


@pytest.mark.parametrize("blocks", ["group", "queue"])
def test_what_waits_for_another_attempt_holds_back_what_comes_in_runs(blocks: str) -> None:
    rule = AddressRule("q", {"redelivery_delay_ms": 400, "redelivery_blocks": blocks})
    world = World(BrokerOptions(address=(rule,)), sizes=SHALLOW._replace(run=1))
    receiving, sending = world.client("receiving"), world.client("sending")
    sending.begun.next_delivery_id = 1_000
    sender = sending.sender("q")
    links = [receiving.receiver("q", name) for name in ("one", "other")]
    for link in links:
        link.grant(50)
    number = 0

    def post(count: int) -> None:
        nonlocal number
        for _ in range(count):
            sending.post(sender, Message(b"%04d" % number, durable=False, group_id="ab"[number % 2]))
            number += 1
        world.carry()

    for count in (2, 2, 4):
        post(count)
    world.settle()
    held = {body: link for link in links for body in receiving.bodies(link)}
    assert len(held) == 8
    failing = held[b"0006"]
    receiving.held(failing)[-1].settle(Modified(delivery_failed=True))
    world.settle()
    for link in links:
        link.session.settle_all(receiving.held(link), ACCEPTED)
    post(8)
    world.settle()
    late = range(8, 16) if blocks == "queue" else range(8, 16, 2)
    assert {body for link in links for body in receiving.bodies(link)}.isdisjoint(b"%04d" % one for one in late)
    world.advance(500)
    world.settle()
    assert receiving.bodies(failing)[-5:] == [b"0006", b"0008", b"0010", b"0012", b"0014"]
    assert sum(len(receiving.bodies(link)) for link in links) == 17
