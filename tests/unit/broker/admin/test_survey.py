"""Surveys of all queues find what a snapshot does, a few things a turn, also while things come and go."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

from acquit.broker.access.permissions import EVERYTHING
from acquit.broker.admin.later import Later, RequestFailure
from acquit.broker.admin.operations import operation, perform
from acquit.broker.admin.requests import ManagementRequest
from acquit.broker.admin.survey import LISTED_COLUMNS, LOOKED_AT, MEASURED, ROWS_AT_ONCE, TOTALS, QueueOrder, Surveys
from acquit.broker.admin.survey_operations import ORDERS
from acquit.broker.admin.troubles import OLD_MS, TROUBLES
from acquit.broker.inspect import QUEUE_COLUMNS
from acquit.broker.nodes.node import Queue
from acquit.broker.snapshots import QUEUE_FIGURES
from acquit.broker.tally import NO_TALLY
from acquit.ledger.events import EventKind
from acquit.protocol.codec import EncodedList, encode
from acquit.protocol.message import Message
from tests.support.broker_world import World, durable, live_of
from tests.unit.broker.admin.test_connection_operations import ask, refused, rights, rows

COUNT = 2 * LOOKED_AT + 7


@pytest.fixture(scope="module")
def world() -> World:
    """More queues than one turn looks at, with from 0 to 3 messages, some of them held, a topic and dead letters."""
    world, pick = World(), random.Random(1)
    client = world.client("shop")
    for number in range(COUNT):
        link = client.sender(f"q{number:03}.{pick.choice('abc')}", f"s{number}")
        for _ in range(number % 4):
            client.post_all(link, durable(number) if number % 2 else Message(number))
        if number % 10 == 3:
            client.receiver(link.remote_attach.target.address, f"r{number}", credit=1 + number % 3)  # type: ignore[union-attr]
    client.post_all(client.sender("DLQ", "dead"), durable("late"), durable("later"))
    client.publisher("news", "p")
    world.settle()
    world.advance(2_000)
    return world


def finished(world: World, later: Later[Any]) -> Any:
    found: list[Any] = []
    later.when_finished(found.append)
    for _ in range(1_000):
        if found:
            return found[0]
        world.core.administration.run()
    raise AssertionError("it does not end")


def listed(world: World, body: dict[str, object], **options: Any) -> dict[str, Any]:
    request = ask_later(world, body, **options)
    return finished(world, request)  # type: ignore[no-any-return]


def ask_later(world: World, body: dict[str, object], **options: Any) -> Later[Any]:
    allowed = options.get("allowed", EVERYTHING)
    kind = options.get("kind", "queue")
    request = ManagementRequest(world.core.administration, None, allowed, None, body)
    result = perform(operation("READ" if kind == "metrics" else "QUERY", f"acquit:{kind}"), request)
    assert isinstance(result, Later)
    return result


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("sort", ORDERS)
def test_a_page_is_a_part_of_all_of_them_in_order(world: World, sort: str, descending: bool) -> None:
    whole = rows(listed(world, {"sort": sort, "descending": descending, "limit": 1_000}))
    snapshot = {(row.name, row.kind): row for row in world.core.snapshot().queues}
    assert len(whole) == len(snapshot)
    for row in whole:
        found = snapshot[row["name"], row["kind"]]  # type: ignore[index]
        assert {name: row[name] for name in QUEUE_COLUMNS} == {name: getattr(found, name) for name in QUEUE_COLUMNS}
    order = [name for name, _ in TROUBLES]
    if sort == "trouble":
        keys = [([name in row["troubles"] for name in order], row["depth"]) for row in whole]  # type: ignore[operator]
    else:
        keys = [row[sort] for row in whole]  # type: ignore[misc]
    assert keys == sorted(keys, reverse=descending)
    for offset, limit in ((0, 7), (LOOKED_AT - 1, 45), (len(whole) - 3, 20), (len(whole) + 1, 1)):
        body = {"sort": sort, "descending": descending, "offset": offset, "limit": limit}
        page = listed(world, body)
        assert rows(page) == whole[offset : offset + limit]
        assert page["total"] == len(whole)


def test_only_what_is_asked_for_is_listed_and_counted(world: World) -> None:
    snapshot = world.core.snapshot().queues
    page = listed(world, {"contains": ".a", "totals": True, "attributeNames": ["name", "troubles"]})
    mine = [row for row in snapshot if ".a" in row.name]
    assert page["attributeNames"] == ["name", "troubles"]
    assert [row["name"] for row in rows(page)] == [row.name for row in mine]
    assert page["total"] == len(mine)
    assert {name: page["totals"][name] for name in TOTALS if name != "retired"} == {
        name: sum(getattr(row, name) for row in mine) for name in TOTALS if name != "retired"
    }
    assert page["totals"]["entered"] - page["totals"]["retired"] == page["totals"]["depth"]
    (letters,) = rows(listed(world, {"dead_letters": True}))
    assert (letters["name"], letters["dead_letters"], letters["troubles"]) == ("DLQ", True, ["dead-letters"])
    assert listed(world, {"dead_letters": False})["totals"] == {}


def test_who_may_see_few_queues_is_told_of_these_alone(world: World) -> None:
    few = rights(browse=("*.b",))
    page = listed(world, {"sort": "depth", "limit": 1_000}, allowed=few)
    assert page["total"] == len(page["results"]) > 5
    assert all(str(row["name"]).endswith(".b") for row in rows(page))
    measured = listed(world, {"limit": 3}, allowed=few, kind="metrics")
    assert measured["queues"] == page["total"]
    assert all(name.endswith(".b") for name, *_ in measured["results"])
    told = {"attributeNames", "results", "other", "queues"}
    assert measured.keys() == told | {"broker_id", "accepting", "warnings"}
    for everything in (rights(browse=("#",)), rights(manage=("#",))):
        assert listed(world, {}, allowed=everything, kind="metrics").keys() > measured.keys() | {"connections"}
    nobody = rights(send=("#",))
    for verb, kind in (("QUERY", "queue"), ("READ", "metrics")):
        assert refused(world, verb, kind, body={"limit": 1}, allowed=nobody)[0] == 403


@pytest.mark.parametrize("limit", [0, 1, 20, 1_000])
def test_rows_and_the_sums_of_the_others_are_all_that_there_is(world: World, limit: int) -> None:
    found = listed(world, {"limit": limit}, kind="metrics")
    snapshot = world.core.snapshot()
    assert found["attributeNames"] == ["name", "is_topic", "oldest_age_ms", *MEASURED]
    assert (len(found["results"]), found["queues"]) == (min(limit, len(snapshot.queues)), len(snapshot.queues))
    assert (found["other"] is None) == (limit >= len(snapshot.queues))
    by_name = {row.name: row for row in snapshot.queues}
    tallied = {queue.name: tally_of(queue) for queue in world.core.queues.by_name.values()}
    for name, is_topic, age_ms, *figures in found["results"]:
        assert (is_topic, age_ms) == (by_name[name].kind == "topic", by_name[name].oldest_age_ms)
        assert figures[: len(QUEUE_FIGURES)] == [getattr(by_name[name], figure) for figure in QUEUE_FIGURES]
        assert figures[len(QUEUE_FIGURES) :] == tallied.get(name, list(NO_TALLY))
    everything = [*found["results"], *([found["other"]] if found["other"] else [])]
    sums = [sum(column) for column in zip(*(row[3:] for row in everything), strict=True)]
    assert sums[: len(QUEUE_FIGURES)] == [
        sum(getattr(row, figure) for row in snapshot.queues) for figure in QUEUE_FIGURES
    ]
    assert sums[len(QUEUE_FIGURES) :] == pytest.approx([sum(column) for column in zip(*tallied.values(), strict=True)])
    assert sums[MEASURED.index("acquisitions")] > 5
    assert max(row[2] for row in everything) == max(row.oldest_age_ms for row in snapshot.queues) > 0
    shown = {name for name, *_ in found["results"]}
    if shown:
        least = min(by_name[name].depth for name in shown)
        assert all(row.depth <= least for row in snapshot.queues if row.name not in shown)
    connections = snapshot.connections
    assert found["connections"] == {
        "connections": len(connections),
        "blocked": 0,
        "sessions": sum(one.sessions for one in connections),
        "links": sum(one.links for one in connections),
        "unsettled": sum(one.unsettled for one in connections),
        "starved": sum(one.credit_starved for one in connections),
        "oldest_unsettled_ms": max(one.oldest_unsettled_ms for one in connections),
    }
    assert found["connections"]["unsettled"] > 5


def test_counters_of_the_others_only_grow() -> None:
    """A queue with dead letters of long ago falls out of the fullest, is emptied, and is deleted."""
    world = World()
    client = world.client()
    admin = world.core.administration
    for name, count in (("old", 3), ("a", 2), ("b", 1)):
        client.post_all(client.sender(name, name), *(durable(number) for number in range(count)))
    world.settle()

    def other(figure: str, limit: int = 1) -> float:
        found = listed(world, {"limit": limit, "increasing": True}, kind="metrics")["other"]
        value: float = found[3 + MEASURED.index(figure)]
        return value

    assert (other("entered"), other("available")) == (0, 3), "what is now is summed up as ever"
    admin.purge("old", None)
    finish(world)
    assert (other("entered"), other("purged"), other("available")) == (0, 3, 1)
    client.post_all(client.sender("b", "more"), durable(1))
    client.post_all(client.sender("c", "new"), durable(1))
    world.settle()
    assert (other("entered"), other("available")) == (2, 3)
    admin.delete("old", None)
    admin.delete("c", None)
    world.settle()
    finish(world)
    assert other("entered") == 2
    plain = listed(world, {"limit": 1}, kind="metrics")["other"]
    assert plain[3 + MEASURED.index("entered")] == 2, "the sum of what is there"
    assert other("entered", limit=0) == 0, "with other rows, it is another series"


def finish(world: World) -> None:
    while world.core.administration.run():
        pass
    world.settle()


def tally_of(queue: Queue) -> list[float]:
    counts, tally = queue.counts, queue.tally
    acquired = counts[EventKind.ACQUIRED] + counts[EventKind.CONSUMED]
    stays = [value for stay in (tally.in_queue, tally.held) for value in (stay.sum_s, *stay.counts)]
    return [acquired, counts[EventKind.READ], tally.redelivered, *tally.ended, *stays]


@pytest.mark.parametrize(("kind", "body"), [("queue", {"sort": "depth"}), ("metrics", {"limit": 5})])
def test_a_turn_looks_at_a_few(world: World, kind: str, body: dict[str, object]) -> None:
    looked: list[str] = []

    class Watched:
        who, unlimited, sees_broker = "ada", False, True

        def may(self, permission: str, address: str) -> bool:
            looked.append(address)
            return True

        def anywhere(self, permission: str) -> bool:
            return True

    later, found = ask_later(world, body, kind=kind, allowed=Watched()), list[object]()
    later.when_finished(found.append)
    turns = 0
    while not found:
        before = len(looked)
        world.core.administration.run()
        assert len(looked) - before <= LOOKED_AT
        turns += 1
    assert turns > COUNT // LOOKED_AT
    assert len(looked) == len(world.core.snapshot().queues)


def test_what_comes_and_goes_meanwhile() -> None:
    world = World()
    client = world.client()
    for number in range(LOOKED_AT + 5):
        client.sender(f"q{number:03}", f"s{number}")
    page, measured = ask_later(world, {"sort": "name", "limit": 1_000}), ask_later(world, {}, kind="metrics")
    world.core.administration.run()
    world.core.administration.run()
    for name in ("q000", f"q{LOOKED_AT + 4:03}"):
        world.core.administration.delete(name, None)
    client.sender("new", "new")
    world.settle()
    names = [row["name"] for row in rows(finished(world, page))]
    assert names == sorted(names)
    assert set(names) <= {f"q{number:03}" for number in range(LOOKED_AT + 5)}
    assert finished(world, measured)["queues"] == LOOKED_AT + 5


def test_those_under_way_take_turns(world: World) -> None:
    found: list[object] = []
    for _ in range(20):
        ask_later(world, {"sort": "depth"}).when_finished(found.append)
    assert found == []
    while world.core.administration.run():
        pass
    assert len(found) == 20
    assert not any(isinstance(one, RequestFailure) for one in found)


@pytest.mark.parametrize(
    "body",
    [
        {"sort": "colour"},
        {"sort": 7},
        {"descending": 1},
        {"offset": -1},
        {"sort": "name", "limit": 0},
        {"sort": "name", "limit": 1_001},
        {"sort": "name", "after": ""},
        {"sort": "name", "attributeNames": ["colour"]},
    ],
)
def test_what_is_no_order_is_refused(world: World, body: dict[str, object]) -> None:
    assert refused(world, "QUERY", "queue", body=body)[0] == 400


@pytest.mark.parametrize("limit", [-1, 100_001, True, "x"])
def test_what_is_no_number_of_rows_is_refused(world: World, limit: object) -> None:
    assert refused(world, "READ", "metrics", body={"limit": limit})[0] == 400


def test_troubles() -> None:
    world = World()
    client = world.client()

    def troubles(name: str) -> object:
        return ask(world, "READ", "queue", name)["troubles"]

    client.post_all(client.sender("q"), durable(1), durable(2))
    assert troubles("q") == ["no-consumer"]
    world.core.administration.pause("q", "consumers", None)
    world.now_us += (OLD_MS + 1_000) * 1_000
    world.settle()
    assert troubles("q") == ["no-consumer", "paused", "old"]
    world.core.administration.pause("q", "none", None)
    receiver = client.receiver("q", credit=2)
    world.settle()
    assert live_of(world, "q") == 2
    assert troubles("q") == []
    client.publisher("news")
    world.core.administration.pause("news", "producers", None)
    world.settle()
    assert troubles("news") == ["paused"]
    client.detach(receiver)
    row = ask(world, "READ", "queue", "q")
    assert set(row) == set(LISTED_COLUMNS)
    assert row["dead_letters"] is False


def test_a_row_of_what_has_just_gone_says_no_trouble(world: World) -> None:
    surveys: Surveys = world.core.administration.surveys
    gone = world.core.snapshot().queues[0].__class__(name="gone", address="gone")
    assert surveys.row(gone)["troubles"] == []
    assert QueueOrder().sort == "name"


@pytest.mark.parametrize("page", [{}, {"limit": 1_000}])
def test_a_table_of_all_queues_is_made_a_few_rows_in_a_turn(
    world: World, page: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []
    encoded = EncodedList.add

    def add(self: EncodedList, items: list[Any]) -> None:
        made.extend(item[0] for item in items)
        encoded(self, items)

    monkeypatch.setattr(EncodedList, "add", add)
    answers: list[Any] = []
    ask_later(world, {"attributeNames": ["name", "address", "depth"], **page}).when_finished(answers.append)
    before = 0
    while not answers:
        assert len(made) - before <= ROWS_AT_ONCE
        before = len(made)
        world.core.administration.run()
    nodes = world.core.snapshot().queues
    assert before > ROWS_AT_ONCE and len(made) == len(nodes)
    (answer,) = answers
    found = sorted(nodes, key=lambda node: node.name) if page else nodes
    assert answer["results"] == [[node.name, node.address, node.depth] for node in found]
    assert encode(answer["results"]) == encode(list(answer["results"]))
    assert ("warnings" in answer) is not bool(page)


def test_a_table_has_a_bounded_number_of_queues_looked_at_in_a_turn_that_nobody_may_see(world: World) -> None:
    looked: list[str] = []

    def of(address: str) -> bool:
        looked.append(address)
        return False

    figures = world.core.administration.figures
    for found in (figures.all_queues(of=of), figures.queues("", 5, of=of)):
        looked.clear()
        answers: list[Any] = []
        tables: Iterator[list[Any] | None] = (None if one is None else [one.name] for one in found)
        world.core.administration.surveys.table(tables).when_finished(answers.append)
        while not answers:
            before = len(looked)
            world.core.administration.run()
            assert len(looked) - before <= ROWS_AT_ONCE
        assert answers == [[]] and len(looked) == len(world.core.snapshot().queues)


def test_what_goes_while_a_table_is_made_is_left_out(world: World) -> None:
    answers: list[Any] = []
    names = [node.name for node in world.core.snapshot().queues if node.kind == "queue"]
    ask_later(world, {"attributeNames": ["name"]}).when_finished(answers.append)
    world.core.removal.remove(world.core.queues.by_name[names[-1]], 0)
    world.settle()
    assert [names[-1]] not in answers[0]["results"] and [names[0]] in answers[0]["results"]
