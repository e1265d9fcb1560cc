"""Looking at the messages of a queue, in any state and place, and at one in full."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest

from acquit.broker.admin import examining, message_operations, turns
from acquit.broker.admin.examining import STEP, Examined
from acquit.broker.options import AddressRule, BrokerLimits, BrokerOptions
from acquit.broker.queue import NodeState
from acquit.protocol.constants import ACCEPTED
from acquit.protocol.definitions import Error, Modified, Rejected, Source, Target
from acquit.protocol.link import ReceivingLink, SendingLink
from acquit.protocol.message import Message
from tests.support.broker_world import Client, World, durable, posted
from tests.support.transacting import Controller
from tests.unit.broker.links.test_termini import resume_from

PAGED = BrokerOptions(address=(AddressRule("#", {"full_policy": "page", "bytes_max": 1}),))
"""All bodies are read back from the journal."""


NUMBERS = count()


def begin(
    client: Client, operation: str, body: object, name: str | None = "q", *, sender: SendingLink | None = None
) -> ReceivingLink:
    """Ask; the link for the answer."""
    number = next(NUMBERS)
    answers = client.begun.attach_receiver(
        f"answers{number}", source=Source("$management"), target=Target(f"me{number}")
    )
    answers.grant(1)
    if sender is None:
        sender = client.sender("$management", f"ask{number}")
    properties = {"operation": operation, "type": "acquit:message"} | ({} if name is None else {"name": name})
    client.post(sender, Message(body, message_id="1", reply_to=f"me{number}", application_properties=properties))
    assert isinstance(answers, ReceivingLink)
    return answers


def told(client: Client, answers: ReceivingLink) -> tuple[int, Any]:
    client.world.settle()
    answer = Message.decode(client.received[answers][-1].payload)
    status = answer.application_properties["statusCode"]
    return status, answer.body if status == 200 else answer.application_properties["statusDescription"]  # type: ignore[return-value]


def ask(client: Client, operation: str, body: object, name: str | None = "q") -> tuple[int, Any]:
    return told(client, begin(client, operation, body, name))


def rows(client: Client, state: str = "all", name: str = "q", **body: object) -> list[Examined]:
    status, answer = ask(client, "QUERY", {"state": state, **body}, name)
    assert status == 200, answer
    assert answer["attributeNames"] == list(Examined._fields)
    return [Examined(*row) for row in answer["results"]]


@pytest.fixture(params=[BrokerOptions(), PAGED], ids=["in memory", "paged out"])
def mixed(request: pytest.FixtureRequest) -> Client:
    """A queue with messages in all states: 1 is suspended, 2 acquired, 3 and 5 available, 4 scheduled."""
    world = World(request.param)
    client = world.client()
    sender = client.sender("q")
    client.post_all(sender, durable(b"one", message_id="first", priority=6))
    lost = world.client("lost", user="ada")
    link = resume_from(lost, None)
    assert len(lost.received[link]) == 1
    lost.lose()
    client.post_all(sender, durable(b"two"))
    client.receiver("q", "busy", credit=1)
    world.settle()
    later = {"x-opt-delivery-delay": 1_000}
    client.post_all(sender, durable(b"three"), durable(b"four", annotations=later), durable(b"five", priority=9))
    return client


def test_messages_are_shown_in_each_state(mixed: Client) -> None:
    found = rows(mixed)
    assert [row.sequence for row in found] == [1, 2, 3, 4, 5]
    assert [row.state for row in found] == ["suspended", "acquired", "available", "scheduled", "available"]
    assert [row.holder for row in found] == ["ada:lost/receiver", "client/busy", None, None, None]
    assert [row.priority for row in found] == [6, 4, 4, 4, 9]
    assert [row.message_id for row in found] == ["first", None, None, None, None]
    now_ms = mixed.world.now_us // 1000
    assert {row.posted_at_ms for row in found} == {now_ms}
    assert [row.due_at_ms for row in found] == [0, 0, 0, now_ms + 1_000, 0]
    assert {(row.reason, row.origin, row.origin_queue) for row in found} == {(None, None, None)}
    for state in ("suspended", "acquired", "available", "scheduled"):
        assert rows(mixed, state) == [row for row in found if row.state == state]


def test_nothing_is_changed_by_looking(mixed: Client) -> None:
    before = {(one.sequence, one.state, one.body is None) for one in mixed.world.core.life.live.values()}
    rows(mixed)
    ask(mixed, "READ", {"sequence": 3})
    assert {(one.sequence, one.state, one.body is None) for one in mixed.world.core.life.live.values()} == before


def test_pages_follow_each_other(mixed: Client) -> None:
    seen: list[int] = []
    after: int | None = 0
    while after is not None:
        status, answer = ask(mixed, "QUERY", {"state": "all", "after": after, "limit": 2})
        assert status == 200
        assert 1 <= len(answer["results"]) <= 2
        seen += [row[0] for row in answer["results"]]
        after = answer["next_after"]
        assert after is None or after == seen[-1]
    assert seen == [1, 2, 3, 4, 5]


def test_a_selector_chooses_and_without_a_state_looks_at_what_waits() -> None:
    _world, client = posted("q", *[durable(b"x", application_properties={"n": n}) for n in range(6)], options=PAGED)
    assert [row.sequence for row in rows(client, "available", selector="n > 3 OR n = 1")] == [2, 5, 6]
    assert ask(client, "QUERY", {"selector": "n > 3"}) == (
        200,
        {"attributeNames": list(Examined._fields), "results": [], "next_after": None},
    )
    status, why = ask(client, "QUERY", {"state": "all", "selector": "n >"})
    assert (status, "selector" in why) == (400, True)


@pytest.mark.parametrize("bound", ["LOOKED_AT_MAX", "BYTES_MAX"])
def test_a_page_ends_where_enough_was_looked_at(monkeypatch: pytest.MonkeyPatch, bound: str) -> None:
    monkeypatch.setattr(examining, bound, 4 if bound == "LOOKED_AT_MAX" else 4_000)
    monkeypatch.setattr(examining, "READ_AT_ONCE", 1)
    _, client = posted("q", *[durable(bytes(990), application_properties={"n": n}) for n in range(10)], options=PAGED)
    found: list[int] = []
    after, pages = 0, 0
    while after is not None:
        _, answer = ask(client, "QUERY", {"state": "available", "selector": "n = 1 OR n = 8", "after": after})
        found += [row[0] for row in answer["results"]]
        after, pages = answer["next_after"], pages + 1
    assert (found, pages) == ([2, 9], 3)


def test_a_page_is_found_in_steps_and_one_examination_has_its_turn_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(examining, "STEP", 10)
    _, client = posted("q", *[durable(b"x") for _ in range(95)])
    client.receiver("q", "busy", credit=45)
    client.world.settle()
    passed: list[int] = []
    portions = examining._portions

    def counted(items: list[object]) -> Any:
        for portion in portions(items):
            passed.append(len(portion))
            yield portion

    monkeypatch.setattr(examining, "_portions", counted)
    turns = 0
    run = client.world.core.administration.run

    def turn() -> bool:
        nonlocal turns
        before = len(passed)
        more = run()
        turns += len(passed) > before
        assert len(passed) - before <= 1
        return more

    monkeypatch.setattr(client.world.core.administration, "run", turn)
    sender = client.sender("$management", "asks")
    answers = [begin(client, "QUERY", {"state": "all", "limit": 60}, sender=sender) for _ in range(3)]
    for one in answers:
        status, answer = told(client, one)
        assert (status, [row[0] for row in answer["results"]]) == (200, list(range(1, 61)))
    assert max(passed) == 10
    assert turns >= 3 * 9 - 1


def test_too_many_at_once_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "GOING_MAX", 1)
    monkeypatch.setattr(turns, "WAITING_MAX", 0)
    _, client = posted("q", *[durable(b"x") for _ in range(3)])
    sender = client.sender("$management", "asks")
    answers = [begin(client, "QUERY", {"state": "all"}, sender=sender) for _ in range(2)]
    assert sorted(told(client, one)[0] for one in answers) == [200, 503]
    assert ask(client, "QUERY", {"state": "all"})[0] == 200


@pytest.mark.parametrize("ended", [False, True], ids=["link there", "link gone"])
@pytest.mark.parametrize("settled", [True, False], ids=["settled", "unsettled"])
@pytest.mark.parametrize("is_durable", [True, False], ids=["durable", "volatile"])
def test_what_a_transaction_has_the_outcome_of_is_still_acquired(is_durable: bool, settled: bool, ended: bool) -> None:
    world, client = posted("q", *[Message(body, durable=is_durable) for body in (b"x", b"y", b"z")])
    controller = Controller(client)
    link = client.receiver("q", "busy", credit=2)
    world.settle()
    controller.retire(controller.declare(), *client.held(link), settled=settled)
    if ended:
        client.detach(link)
    world.settle()
    assert [(row.sequence, row.holder) for row in rows(client, "acquired")] == [(n, "client/busy") for n in (1, 2)]
    assert [row.sequence for row in rows(client)] == [1, 2, 3]
    assert ask(client, "READ", {"sequence": 2})[1]["holder"] == "client/busy"


def test_what_came_back_and_what_is_set_aside_is_in_its_place() -> None:
    world, client = posted("q", *[durable(bytes((n,)), application_properties={"n": n}) for n in range(6)])
    link = client.receiver("q", "busy", credit=3)
    world.settle()
    for delivery in client.held(link):
        delivery.settle(Modified(delivery_failed=True))
    client.detach(link)
    world.settle()
    expected = [*((n, 1) for n in (1, 2, 3)), *((n, 0) for n in (4, 5, 6))]
    assert [(row.sequence, row.delivery_count) for row in rows(client, "available")] == expected
    client.receiver("q", "picky", credit=10, selector="n = 77")
    world.settle()
    assert len(world.core.queues.by_name["q"].aside) == 6
    assert [(row.sequence, row.delivery_count) for row in rows(client, "available")] == expected


def test_volatile_messages_of_a_link_that_is_away_are_shown() -> None:
    world, client = posted("q", Message("a"), Message("b"))
    lost = world.client("lost")
    resume_from(lost, None)
    assert [row.state for row in rows(client)] == ["acquired", "acquired"]
    lost.lose()
    assert [(row.state, row.holder) for row in rows(client)] == [("suspended", "lost/receiver")] * 2


def test_a_full_page_says_that_there_is_more_in_what_was_read_already() -> None:
    _, client = posted("q", *[durable(b"x", application_properties={"n": n}) for n in range(4)])
    body = {"state": "all", "selector": "n > 0", "limit": 2}
    assert [ask(client, "QUERY", body | {"after": after})[1]["next_after"] for after in (0, 2, 3)] == [3, None, None]


@pytest.mark.pure
def test_bodies_are_read_as_far_as_their_bytes_allow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(examining, "STEP_BYTES", 1)
    world, client = posted("q", *[durable(b"x") for _ in range(4)], options=PAGED)
    wanted: list[int] = []
    want = world.core.memory.want
    monkeypatch.setattr(
        world.core.memory, "want", lambda *args: (want(*args), wanted.append(len(world.core.memory.wanted)))
    )
    assert len(rows(client)) == 4
    assert wanted == [1, 1, 1, 1]


DEAD = BrokerOptions(
    address=(
        AddressRule("q", {"dead_letter_address": "DLQ", "expiry_address": "EXP", "max_delivery_attempts": 2}),
        AddressRule("#", {"full_policy": "page", "bytes_max": 1}),
    )
)


def test_a_dead_letter_has_its_reason_and_origin() -> None:
    world, client = posted("q", durable(b"rejected"), durable(b"failed"), durable(b"late", ttl_ms=50), options=DEAD)
    link = client.receiver("q", credit=2)
    world.settle()
    rejected, failed = client.held(link)
    rejected.settle(Rejected(Error("app:bad", "line 3: no JSON")))
    failed.settle(Modified(delivery_failed=True))
    link.grant(1)
    world.settle()
    client.held(link)[0].settle(Modified(delivery_failed=True))
    world.settle()
    world.advance(100)
    world.settle()
    dead = rows(client, name="DLQ")
    assert [(row.reason, row.origin, row.origin_queue) for row in dead] == [
        ("rejected: app:bad: line 3: no JSON", 1, "q"),
        ("modified", 2, "q"),
    ]
    assert [(row.reason, row.origin) for row in rows(client, name="EXP")] == [("expired", 3)]


@pytest.mark.parametrize("attempts", [7, [], [7], [{"cause": 7}], ["x"]], ids=repr)
def test_annotations_that_a_producer_made_up_hurt_nobody(attempts: object) -> None:
    annotations = {"x-opt-acquit-attempts": attempts, "x-opt-acquit-origin": "seven", "x-opt-ORIG-QUEUE": 7}
    _, client = posted("q", durable(b"x", annotations=annotations))
    (row,) = rows(client)
    assert (row.reason or None, row.origin, row.origin_queue) == (None, None, None)


# -- one in full -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sequence", [1, 2, 3, 4, 5])
def test_one_message_is_read_in_full_whoever_has_it(mixed: Client, sequence: int) -> None:
    status, found = ask(mixed, "READ", {"sequence": sequence})
    assert status == 200
    row = {name: found[name] for name in Examined._fields}
    assert row == rows(mixed)[sequence - 1]._asdict()
    message = Message.decode(found["message"])
    assert message.body == [b"one", b"two", b"three", b"four", b"five"][sequence - 1]
    assert message.annotations["x-opt-acquit-sequence"] == sequence
    assert (message.durable, message.priority, message.first_acquirer) == (True, row["priority"], sequence > 2)
    assert found["attempts"] == []


def test_attempts_are_told_with_times_and_reasons() -> None:
    world, client = posted("q", durable(b"x"), options=PAGED)
    link = client.receiver("q", "busy", credit=1)
    world.settle()
    client.held(link)[0].settle(Modified(delivery_failed=True, message_annotations={"x-why": "busy"}))
    world.settle()
    world.advance(5)
    client.detach(link)
    world.settle()
    _, found = ask(client, "READ", {"sequence": 1})
    (attempt,) = found["attempts"]
    assert (attempt["consumer"], attempt["outcome"], attempt["cause"]) == ("client/busy", "modified", "modified")
    assert attempt["when"] == world.now_us // 1000 - 5
    message = Message.decode(found["message"])
    assert (message.delivery_count, message.annotations["x-why"]) == (1, "busy")


def test_a_volatile_message_is_read_as_well() -> None:
    world, client = posted("q", Message("a"), Message("b"))
    client.receiver("q", "busy", credit=1)
    world.settle()
    assert [ask(client, "READ", {"sequence": n})[1]["holder"] for n in (1, 2)] == ["client/busy", None]


def test_a_large_message_is_described_alone() -> None:
    _, client = posted("q", durable(bytes(10_000)))
    status, found = ask(client, "READ", {"sequence": 1, "bytes_max": 5_000})
    assert (status, found["size_bytes"] > 10_000, found["message"]) == (200, True, None)


@pytest.mark.parametrize(
    ("body", "name", "status"),
    [
        ({"sequence": 99}, "q", 404),
        ({"sequence": 1}, "other", 404),
        ({"sequence": 2}, "q", 404),
        ({"sequence": 1}, None, 400),
        ({"sequence": 0}, "q", 400),
        ({"sequence": True}, "q", 400),
        ({"sequence": "1"}, "q", 400),
        ({"number": 1}, "q", 400),
        ({}, "q", 400),
        (None, "q", 400),
    ],
)
def test_what_is_not_there_is_not_read(body: object, name: str | None, status: int) -> None:
    _world, client = posted("q", durable(b"x"))
    client.post_all(client.sender("r", "r"), durable(b"of another queue"))
    assert ask(client, "READ", body, name)[0] == status


@pytest.mark.parametrize(
    "body",
    [
        {"state": "lost"},
        {"state": "all", "limit": 0},
        {"state": "all", "limit": 1_001},
        {"state": "all", "after": -1},
        {"state": "all", "before": 7},
        {"state": 7},
        {"selector": 7},
    ],
    ids=repr,
)
def test_a_page_that_makes_no_sense_is_refused(body: object) -> None:
    _, client = posted("q", durable(b"x"))
    assert ask(client, "QUERY", body)[0] == 400


def test_what_leaves_while_it_is_read_is_left_out() -> None:
    world, client = posted("q", durable(b"x"), durable(b"y"), options=PAGED)
    link = client.receiver("q", "busy", credit=1)
    world.settle()
    core = world.core
    later = core.administration.examine("q", states="all", after=0, limit=10, selector=None)
    pages: list[Any] = []
    later.when_finished(pages.append)
    while not core.memory.wanted:
        core.administration.run()
    reads = core.take_reads()
    client.held(link)[0].settle(ACCEPTED)
    world.core.handle(client.peer, client.server.receive_data(client.engine.data_to_send(), world.now_s), world.now_us)
    for lot in reads:
        core.loaded(
            lot,
            [None if one.sequence == 1 else world.opened.journal.read(one.position).payload for one in lot.messages],
        )
    world.settle()
    assert [row.sequence for row in pages[0].rows] == [2]


def test_what_is_acquired_while_it_is_read_is_not_available() -> None:
    world, _client = posted("q", durable(b"x"), durable(b"y"), options=PAGED)
    pages: list[Any] = []
    later = world.core.administration.examine("q", states="available", after=0, limit=10, selector=None)
    later.when_finished(pages.append)
    while not world.core.memory.wanted:
        world.core.administration.run()
    queue = world.core.queues.by_name["q"]
    message = queue.backlog.take(1)[0]
    message.state, queue.acquired = NodeState.ACQUIRED, 1
    world.settle()
    assert [row.sequence for row in pages[0].rows] == [2]


def test_a_queue_that_is_deleted_meanwhile_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(examining, "STEP", 1)
    world, _client = posted("q", *[durable(b"x") for _ in range(5)])
    answers = world.core.administration.examine("q", states="all", after=0, limit=10, selector=None)
    ends: list[Any] = []
    answers.when_finished(ends.append)
    world.core.administration.delete("q", None)
    world.settle()
    assert ends[0].status == 404


def test_answers_that_wait_count_as_memory() -> None:
    world, client = posted(
        "q", durable(bytes(200_000)), options=BrokerOptions(limits=BrokerLimits(memory_bytes_max=1 << 20))
    )
    before = world.core.memory.bytes
    link = client.begun.attach_receiver("lazy", source=Source("$management"), target=Target("lazy"))
    sender = client.sender("$management", "asks")
    properties = {"operation": "READ", "type": "acquit:message", "name": "q"}
    request = Message({"sequence": 1}, message_id="1", reply_to="lazy", application_properties=properties)
    for _ in range(8):
        client.post(sender, request)
        world.settle()
    assert before + 600_000 < world.core.memory.bytes <= 1 << 20
    link.grant(10)
    world.settle()
    statuses = [Message.decode(one.payload).application_properties["statusCode"] for one in client.received[link]]
    assert statuses[:3] == [200, 200, 200]
    assert statuses[-1] == 507
    assert world.core.memory.bytes == before


def test_answers_of_a_link_that_has_gone_are_forgotten() -> None:
    world, client = posted("q", durable(bytes(200_000)))
    before = world.core.memory.bytes
    client.begun.attach_receiver("lazy", source=Source("$management"), target=Target("lazy"))
    properties = {"operation": "READ", "type": "acquit:message", "name": "q"}
    request = Message({"sequence": 1}, message_id="1", reply_to="lazy", application_properties=properties)
    client.post(client.sender("$management", "asks"), request)
    world.settle()
    assert world.core.memory.bytes > before + 200_000
    client.lose()
    world.settle()
    assert world.core.memory.bytes == before


def test_the_bounds_fit_together() -> None:
    assert examining.EXAMINED_MAX <= examining.LOOKED_AT_MAX
    assert message_operations.READ_BYTES_MAX <= examining.BYTES_MAX
    assert STEP > examining.READ_AT_ONCE
