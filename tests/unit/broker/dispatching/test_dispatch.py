"""Selectors on links: what is granted, what is refused, who gets what, and what it costs to find it."""

from __future__ import annotations

import sys
from itertools import pairwise
from types import FrameType
from typing import Any

import pytest

from acquit.broker.dispatching import choosing, dispatch
from acquit.broker.dispatching.sending import Sending
from acquit.broker.message_run import MessageRun
from acquit.broker.outcomes.leaving import GIVEN_BACK_MAX
from acquit.broker.selector import Selector
from acquit.protocol.constants import ACCEPTED, RELEASED
from acquit.protocol.definitions import Modified, Source, Target, TransactionalState
from acquit.protocol.message import Message
from acquit.protocol.types import Described, Symbol, ULong
from tests.support.broker_world import World, durable
from tests.support.transacting import Controller

SELECTOR = ULong(0x0000_468C_0000_0004)


def numbered(count: int) -> list[Message]:
    return [Message(f"m{number}", durable=True, application_properties={"n": number}) for number in range(count)]


def test_only_applied_filters_come_back() -> None:
    world = World()
    client = world.client()
    known = {Symbol("mine"): Described(SELECTOR, "n > 1")}
    unknown = {Symbol("xquery"): Described(ULong(0x0000_468C_0000_0005), "true()")}
    link = client.begun.attach_receiver(
        "receiver", source=Source("orders", filter=known | unknown), target=Target("there")
    )
    world.make()
    assert link.source.filter == known


@pytest.mark.parametrize("browse", [False, True])
def test_a_bad_selector_ends_its_link_only(browse: bool) -> None:
    world = World()
    client = world.client()
    good = client.receiver("orders", "good", credit=10)
    bad = client.receiver("orders", "bad", selector="n ==", browse=browse)
    error = client.detached[bad].error
    assert error is not None and error.condition == "amqp:invalid-field"
    assert error.description == "selector, character 4: found '=', expected a name, a literal or ("
    client.post(client.sender("orders"), Message("one"))
    world.settle()
    assert client.bodies(good) == ["one"]


def test_each_gets_what_matches_and_the_rest_stays() -> None:
    world = World()
    client = world.client()
    even = client.receiver("orders", "even", credit=100, selector="n % 2 = 0")
    three = client.receiver("orders", "three", credit=100, selector="n = 3")
    client.post_all(client.sender("orders"), *numbered(6))
    assert client.bodies(even) == ["m0", "m2", "m4"]
    assert client.bodies(three) == ["m3"]
    anybody = client.receiver("orders", "anybody", credit=100)
    world.settle()
    assert client.bodies(anybody) == ["m1", "m5"]


def test_a_browser_sees_what_matches() -> None:
    world = World()
    client = world.client()
    client.post_all(client.sender("orders"), *numbered(6))
    browser = client.receiver("orders", "browser", credit=100, browse=True, selector="n BETWEEN 2 AND 4")
    world.settle()
    assert client.bodies(browser) == ["m2", "m3", "m4"]
    assert world.core.queues.by_name["orders"].live == 6


def test_a_message_that_comes_back_is_judged_anew() -> None:
    world = World()
    client = world.client()
    fresh = client.receiver("orders", "fresh", credit=100, selector="NOT JMSRedelivered")
    again = client.receiver("orders", "again", credit=100, selector="JMSXDeliveryCount = 2")
    marked = client.receiver("orders", "marked", credit=100, selector="m.x-opt-mark = 'seen'")
    client.post_all(client.sender("orders"), Message("one", durable=True))
    [first] = client.held(fresh)
    first.settle(RELEASED)
    world.settle()
    [first] = client.held(fresh)  # released: not an attempt that failed
    first.settle(Modified(delivery_failed=True))
    world.settle()
    [second] = client.held(again)
    second.settle(Modified(delivery_failed=True, message_annotations={Symbol("x-opt-mark"): "seen"}))
    world.settle()
    [third] = client.held(marked)
    third.settle(ACCEPTED)
    world.settle()
    assert world.core.queues.by_name["orders"].live == 0


def test_the_header_of_the_queue_counts_not_that_of_the_sender() -> None:
    world = World()
    client = world.client()
    facts = "JMSPriority = 9 AND JMSDeliveryMode = 'PERSISTENT' AND JMSXDeliveryCount = 1 AND AMQAddress = 'orders'"
    link = client.receiver("orders", credit=100, selector=facts)
    client.post_all(client.sender("orders"), Message("one", durable=True, priority=9, delivery_count=5))
    assert client.bodies(link) == ["one"]


def test_one_in_ten_thousand_is_found_with_a_look_at_each(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = 0
    matches = Selector.matches

    def counted(self: Selector, fields: object) -> bool:
        nonlocal looks
        looks += 1
        return matches(self, fields)  # type: ignore[arg-type]

    monkeypatch.setattr(Selector, "matches", counted)
    world = World()
    client = world.client()
    rare = client.receiver("orders", "rare", credit=1, selector="n = 9999 OR n = 5000")
    client.post_all(client.sender("orders"), *numbered(10_000))
    for expected in ("m5000", "m9999"):
        [found] = client.held(rare)
        assert Message.decode(found.payload).body == expected
        found.settle(ACCEPTED)
        world.settle()
        rare.grant(1)
        world.settle()
    assert not client.held(rare)
    assert looks < 10_000 * 1.2 + 100


def test_nothing_is_kept_of_a_presettled_link_that_ends_before_the_sync() -> None:
    world = World()
    client = world.client()
    client.post(client.sender("q"), durable("kept by nobody"))
    world.settle()
    queue = world.core.queues.by_name["q"]
    link = client.receiver("q", presettled=True, credit=10)
    while queue.live:
        world.carry()
        world.sync()
        world.core.turn(world.now_us)
    assert world.core.scribe.pending
    client.detach(link)
    world.settle()
    assert not client.bodies(link)
    assert not queue.emptying
    assert world.fold().messages == {}


@pytest.mark.pure
def test_a_turn_hands_out_so_many_and_queues_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that had no turn in one are first in the next: a queue with a million messages keeps no other waiting."""
    monkeypatch.setattr(dispatch, "HANDED_MAX", 20)
    world = World()
    poster, client = world.client("poster"), world.client()
    names = ["long", "short"]
    for name, count in zip(names, (200, 5), strict=True):
        poster.post_all(poster.sender(name, name), *(Message(f"m{number}") for number in range(count)))
    links = {name: client.receiver(name, name) for name in names}
    for link in links.values():
        link.grant(1_000)
    received = []
    for _ in range(40):
        world._exchange(client)
        world.core.turn(world.now_us)
        received.append([len(client.bodies(link)) for link in links.values()])
    world.settle()
    assert [len(client.bodies(link)) for link in links.values()] == [200, 5]
    steps = [sum(now) - sum(then) for then, now in pairwise(received)]
    assert max(steps) <= 2 * (20 + dispatch.SHARE_MAX)
    assert next(counts for counts in received if counts[1])[0] < 200


@pytest.mark.pure
@pytest.mark.parametrize(
    ("body_bytes", "count", "consumers", "most"),
    [
        (10, 200, 1, 200),
        (10, 200, 2, 100),
        (10, 700, 1, dispatch.HANDED_MAX),
        (2_500, 200, 1, 104),
        (20_000, 200, 1, dispatch.SHARE_MAX),
    ],
)
def test_a_share_of_what_came_together_is_bounded_by_bytes_and_by_the_turn(
    monkeypatch: pytest.MonkeyPatch, body_bytes: int, count: int, consumers: int, most: int
) -> None:
    handed: list[int] = []
    hand_run = Sending.hand_run

    def noted(sending: Sending, queue: Any, consumer: Any, run: MessageRun) -> int:
        handed.append(run.count)
        return hand_run(sending, queue, consumer, run)

    monkeypatch.setattr(Sending, "hand_run", noted)
    world = World()
    client = world.client()
    sender = client.sender("q")
    for number in (1, 2, count):  # the first ones are learnt from
        client.post_all(sender, *[Message(bytes(body_bytes), durable=False)] * number)
    links = [client.receiver("q", f"c{number}") for number in range(consumers)]
    for link in links:
        link.grant(1_000)
    world.settle()
    assert max(handed) == most
    assert sum(len(client.bodies(link)) for link in links) == count + 3


@pytest.mark.parametrize(("consumers", "count"), [(2, 1_000), (3, 1_000), (2, 3_000), (8, 2_000)])
def test_those_who_wait_alike_get_alike_of_what_came_together(consumers: int, count: int) -> None:
    """A turn may end before all of it is handed out: nobody's share depends on when that was."""
    world = World()
    client, poster = world.client(), world.client("poster")
    sender = poster.sender("q")
    for number in (1, 2, *[1_000] * (count // 1_000)):
        poster.post_all(sender, *[Message(b"m", durable=False)] * number)
    links = [client.receiver("q", f"c{number}") for number in range(consumers)]
    for link in links:
        link.grant(5_000)
    world.settle()
    got = [len(client.bodies(link)) for link in links]
    assert sum(got) == count + 3
    assert max(got) - min(got) <= max(2 * dispatch.SHARE_MAX, dispatch.HANDED_MAX // consumers)


def lines_to_serve(count: int) -> int:
    """How many lines of acquit it takes to look at so many queues that are woken together, in as many turns as that
    has."""
    world = World()
    client = world.client()
    for number in range(count):
        client.sender(f"q{number}", f"s{number}")
    queues = world.core.queues.by_name.values()
    assert len(queues) == count
    lines = 0

    def trace(frame: FrameType, event: str, _arg: object) -> Any:
        nonlocal lines
        lines += event == "line"
        return trace if "/acquit/" in frame.f_code.co_filename else None

    world.core.life.dirty.update(dict.fromkeys(queues))
    before = sys.gettrace()
    sys.settrace(trace)
    try:
        while world.core.turn(world.now_us):
            pass
    finally:
        sys.settrace(before)
    return lines


@pytest.mark.pure
def test_queues_that_wait_for_their_turn_cost_nothing_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "HANDED_MAX", 5)
    few, many = lines_to_serve(50), lines_to_serve(500)
    assert many < 11 * few, "ten times the queues in ten times the turns"


@pytest.mark.pure
def test_a_turn_judges_so_many_of_a_long_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    """A consumer who looks for what is not there has the queue looked through in many turns."""
    monkeypatch.setattr(choosing, "LOOKS_MAX", 50)
    judged: list[int] = []
    place = choosing.Choosing._place

    def count(self: choosing.Choosing, *arguments: object) -> bool:
        judged[-1] += 1
        return place(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(choosing.Choosing, "_place", count)
    run = dispatch.Dispatch.run

    def turn(self: dispatch.Dispatch) -> bool:
        judged.append(0)
        return run(self)

    monkeypatch.setattr(dispatch.Dispatch, "run", turn)
    world = World()
    client = world.client()
    client.post_all(client.sender("orders"), *(Message(str(number)) for number in range(400)))
    client.receiver("orders", credit=1, selector="number = 1")
    world.settle()
    assert sum(judged) >= 400
    assert max(judged) <= 50


# -- what others hold when a browser begins ---------------------------------------------------------------------------


@pytest.mark.parametrize("closed", ["before", "after", "never"])
@pytest.mark.parametrize("settled", [False, True])
@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("lasting", [False, True])
def test_a_browser_sees_what_a_transaction_gives_back_that_had_it_when_it_began(
    closed: str, settled: bool, together: bool, lasting: bool
) -> None:
    world = World()
    client = world.client()
    client.begun.next_delivery_id = 1_000
    sender = client.sender("orders")
    for _ in range(3):
        client.post_all(sender, *[Message(str(number), durable=lasting) for number in range(4)])
    link = client.receiver("orders", credit=12)
    world.settle()
    controller = Controller(client)
    txn = controller.declare()
    accepted = TransactionalState(txn, ACCEPTED)
    if together and settled:
        link.session.settle_all(client.held(link), accepted)
    else:
        for delivery in client.held(link):
            delivery.settle(accepted) if settled else delivery.update(accepted)
    world.settle()
    if closed == "before":
        link.detach()
        world.settle()
    browser = client.receiver("orders", "browser", browse=True, credit=100)
    world.settle()
    assert client.bodies(browser) == []
    if closed == "after":
        link.detach()
        world.settle()
    controller.roll_back(txn)
    world.settle()
    if closed == "never":
        link.detach()
        world.settle()
    assert sorted(map(str, client.bodies(browser))) == sorted("0123" * 3)


def test_a_browser_that_comes_while_a_consumer_gives_back_much_sees_all() -> None:
    world = World()
    client = world.client()
    client.post_all(client.sender("orders"), *numbered(3 * GIVEN_BACK_MAX))
    link = client.receiver("orders", credit=1_000)
    world.settle()
    browser = world.client("other").begun.attach_receiver(
        "browser", source=Source("orders", distribution_mode="copy"), target=Target("there")
    )
    world.settle()
    link.detach()
    browser.grant(1_000)
    world.settle()
    (other,) = [one for one in world.clients if browser in one.received]
    assert other.bodies(browser) == [f"m{number}" for number in range(3 * GIVEN_BACK_MAX)]
