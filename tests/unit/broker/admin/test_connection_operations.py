"""The broker in figures, and its connections, as users see and close them."""

from __future__ import annotations

import pytest

from acquit.broker.access.permissions import EVERYTHING, Permissions, Rights
from acquit.broker.admin import figures
from acquit.broker.admin.connection_operations import REASON_MAX
from acquit.broker.admin.later import Later, RequestFailure
from acquit.broker.admin.operations import operation, perform
from acquit.broker.admin.requests import ROWS_MAX, ManagementRequest
from acquit.broker.inspect import CONNECTION_COLUMNS, LINK_COLUMNS, QUEUE_COLUMNS, TRANSACTION_COLUMNS
from acquit.broker.options import AddressRule, BrokerOptions, Role, Security, User
from acquit.protocol.definitions import Source, Target
from acquit.protocol.message import Message
from tests.support.broker_world import Client, World, durable, live_of, posted
from tests.support.transacting import Controller


def rights(user: str | None = "ada", **permissions: tuple[str, ...]) -> Rights:
    security = Security(
        users={"ada": User(roles=("r",))}, roles={"r": Role(**permissions), "anonymous": Role(**permissions)}
    )
    return Permissions(security).of(user)


def ask(
    world: World,
    verb: str,
    kind: str,
    name: str | None = None,
    body: object = None,
    *,
    user: str | None = None,
    allowed: Rights = EVERYTHING,
) -> dict[str, object]:
    request = ManagementRequest(world.core.administration, user, allowed, name, body)
    result: object = perform(operation(verb, f"acquit:{kind}"), request)
    if isinstance(result, Later):
        results: list[object] = []
        result.when_finished(results.append)
        (result,) = results
    assert isinstance(result, dict)
    return result


def refused(*arguments: object, **options: object) -> tuple[int, str]:
    with pytest.raises(RequestFailure) as failure:
        ask(*arguments, **options)  # type: ignore[arg-type]
    return failure.value.status, str(failure.value)


def rows(table: dict[str, object]) -> list[dict[str, object]]:
    names, results = table["attributeNames"], table["results"]
    assert isinstance(names, list) and isinstance(results, list)
    return [dict(zip(names, row, strict=True)) for row in results]


def connections(world: World, body: object = None, **options: object) -> list[dict[str, object]]:
    return rows(ask(world, "QUERY", "connection", None, body, **options))  # type: ignore[arg-type]


# -- the broker -------------------------------------------------------------------------------------------------------


def test_the_broker_in_figures() -> None:
    world, client = posted("q", durable(1), durable(2), Message(3))
    client.receiver("q", credit=2)
    client.publisher("topic")
    world.settle()
    found = ask(world, "READ", "broker")
    assert (found["queues"], found["topics"], found["connections"], found["links"]) == (1, 1, 1, 3)
    assert (found["unsettled"], found["transactions"], found["last_sequence"]) == (2, 0, 3)
    assert found["memory_bytes"] == world.core.memory.bytes > 0
    assert found["memory_bytes_max"] == world.options.limits.memory_bytes_max
    disk = found["disk"]
    assert isinstance(disk, dict)
    assert (disk["free_bytes"], disk["refusing"], disk["why"]) == (None, False, "")
    assert disk["segments"] == len(world.opened.journal.segments) and disk["journal_bytes"] > 0
    assert (found["warnings"], found["accepting"], found["version"]) == ([], True, found["version"])


def test_who_may_not_look_everywhere_sees_little_of_the_broker() -> None:
    world = World()
    few = {"broker_id", "last_sequence", "accepting", "warnings"}
    assert ask(world, "READ", "broker", allowed=rights(browse=("a",))).keys() == few
    for seen in (rights(browse=("#",)), rights(manage=("#",))):
        assert ask(world, "READ", "broker", allowed=seen).keys() > few


# -- connections ------------------------------------------------------------------------------------------------------


def test_what_is_told_of_a_connection() -> None:
    world, _ = posted("q", durable(1), durable(2))
    properties = {"product": "a library", "version": "1.2" * 100, "else": 7}
    other = world.client("shop", user="ada", properties=properties)
    held = other.receiver("q", "holds", credit=1)
    other.receiver("q", "starves")
    world.settle()
    world.core.tick(world.now_us)
    world.now_us += 5_000_000
    world.core.tick(world.now_us)
    one, two = connections(world)
    assert list(two) == list(CONNECTION_COLUMNS)
    assert (one["container"], one["user"], one["product"], one["links"]) == ("client", None, "", 1)
    assert (one["unsettled"], one["oldest_unsettled_ms"], one["credit_starved"]) == (0, 0, 0)
    assert (two["container"], two["user"], two["product"]) == ("shop", "ada", "a library")
    assert two["version"] == ("1.2" * 100)[:256]
    assert (two["sessions"], two["links"], two["unsettled"]) == (1, 2, 1)
    assert (two["oldest_unsettled_ms"], two["since_ms"]) == (5_000, 5_000)
    assert two["credit_starved"] == 2  # the first one has used its credit, and a message waits
    assert (two["writable"], two["buffered_bytes"], two["tls"], two["mechanism"]) == (True, 0, "", "")
    other.reading = False
    held.session.settle_all(other.held(held), None)
    held.grant(10)
    world.carry()
    assert int(str(connections(world)[1]["buffered_bytes"])) > 0


def test_connections_come_in_pages_of_what_is_asked_for() -> None:
    world = World()
    clients = [world.client(f"c{number}") for number in range(5)]
    clients[1].lose()
    body: dict[str, object] = {"attributeNames": ["container", "id"], "limit": 2}
    first = ask(world, "QUERY", "connection", None, body)
    assert first == {"attributeNames": ["container", "id"], "results": [["c0", 1], ["c2", 3]]}
    assert ask(world, "QUERY", "connection", None, body | {"after": 3})["results"] == [["c3", 4], ["c4", 5]]
    assert ask(world, "QUERY", "connection", None, body | {"after": 5})["results"] == []


@pytest.mark.parametrize(
    "body",
    [
        {"limit": 0},
        {"limit": ROWS_MAX + 1},
        {"limit": "2"},
        {"after": "x"},
        {"after": True},
        {"attributeNames": ["colour"]},
    ],
)
def test_pages_that_there_are_not(body: object) -> None:
    assert refused(World(), "QUERY", "connection", None, body)[0] == 400


def test_one_sees_the_connections_of_ones_own_user() -> None:
    world = World()
    for user in ("ada", "bob", None):
        world.client(f"of {user}", user=user)
    own = connections(world, user="ada", allowed=rights(manage=("q",)))
    assert [row["container"] for row in own] == ["of ada"]
    assert len(connections(world, user=None, allowed=rights(None, manage=("#",)))) == 3
    status, text = refused(world, "QUERY", "connection", allowed=rights(None, manage=("q",)))
    assert status == 403 and "may not see any connection" in text


def test_a_connection_is_closed_with_the_reason_and_what_it_held_goes_back() -> None:
    world, _ = posted("q", durable(1), options=BrokerOptions(address=(AddressRule("#", {"max_delivery_attempts": 1}),)))
    other = world.client("shop", user="ada")
    other.receiver("q", credit=1)
    world.settle()
    assert ask(world, "DELETE", "connection", "2", {"reason": "stuck since noon"}) == {"closed": True}
    assert other.ended is None  # at the end of the turn
    world.settle()
    assert other.ended is not None and other.ended.error is not None
    assert other.ended.error.condition == "amqp:connection:forced"
    assert other.ended.error.description == "stuck since noon"
    (message,) = world.core.life.live.values()
    assert (live_of(world, "q"), message.attempt) == (1, 0)
    assert refused(world, "DELETE", "connection", "2")[0] == 404
    assert [row["id"] for row in connections(world)] == [1]
    world.check()


def test_one_that_goes_by_itself_is_not_closed_as_well() -> None:
    world = World()
    client = world.client()
    assert ask(world, "DELETE", "connection", "1") == {"closed": True}
    client.lose()
    world.settle()


def test_the_connection_that_asked_hears_the_answer_first() -> None:
    world = World()
    client: Client = world.client()
    requests = client.sender("$management", "requests")
    answers = client.begun.attach_receiver("answers", source=Source("$management"), target=Target("me"))
    answers.grant(5)
    world.carry()
    properties = {"operation": "DELETE", "type": "acquit:connection", "name": "1"}
    client.post(requests, Message(None, message_id="1", reply_to="me", application_properties=properties))
    world.settle()
    assert client.bodies(answers) == [{"closed": True}]
    assert client.ended is not None and client.ended.error is not None
    assert client.ended.error.description == "closed by an administrator"


@pytest.mark.parametrize(
    ("name", "body", "status"),
    [
        (None, None, 400),
        ("x", None, 400),
        ("-1", None, 400),
        ("1" * 5_000, None, 400),
        ("7", None, 404),
        ("1", {"reason": "x" * (REASON_MAX + 1)}, 400),
        ("1", {"why": "x"}, 400),
    ],
)
def test_what_is_not_closed(name: str | None, body: object, status: int) -> None:
    world = World()
    world.client()
    assert refused(world, "DELETE", "connection", name, body)[0] == status
    assert refused(world, "DELETE", "connection", name, body, user="ada", allowed=rights(manage=("q",)))[0] == 403
    assert len(connections(world)) == 1


# -- links ------------------------------------------------------------------------------------------------------------


def links(world: World, body: object = None, **options: object) -> list[dict[str, object]]:
    return rows(ask(world, "QUERY", "link", None, body, **options))  # type: ignore[arg-type]


def test_what_is_told_of_a_link() -> None:
    world, client = posted("q", *(durable(number) for number in range(300)))
    client.receiver("q", "takes", credit=200, second=True)
    client.receiver("q", "looks", credit=3, browse=True, presettled=True)
    world.settle()
    world.core.tick(world.now_us)
    world.now_us += 7_000_000
    world.core.tick(world.now_us)
    sends, takes, looks = links(world)
    assert list(takes) == list(LINK_COLUMNS)
    assert [row["id"] for row in (sends, takes, looks)] == ["1.1", "1.2", "1.3"]
    assert {row["node"] for row in (sends, takes, looks)} == {"q"}
    assert (sends["role"], sends["mode"], sends["delivered"], sends["unsettled"]) == ("sender", "", 300, 0)
    assert (sends["oldest_unsettled_ms"], int(str(sends["credit"])) > 0) == (None, True)
    assert (takes["role"], takes["mode"], takes["delivered"], takes["unsettled"]) == ("receiver", "consume", 200, 200)
    assert (takes["oldest_unsettled_ms"], takes["credit"], takes["name"]) == (7_000, 0, "takes")
    assert (takes["snd_settle_mode"], takes["rcv_settle_mode"]) == ("unsettled", "second")
    assert (looks["mode"], looks["delivered"], looks["snd_settle_mode"]) == ("browse", 3, "settled")
    assert (looks["unsettled"], looks["oldest_unsettled_ms"]) == (0, 0)


def test_the_search_for_the_oldest_delivery_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    world, client = posted("q", *(durable(number) for number in range(5)))
    for name in "one", "two":
        client.receiver("q", name, credit=2)
        world.settle()
    world.core.tick(world.now_us)
    monkeypatch.setattr(figures, "LOOKED_MAX", 3)
    assert [row["oldest_unsettled_ms"] for row in links(world)] == [None, 0, None]


def test_links_come_in_pages_and_of_one_connection_or_node() -> None:
    world = World()
    one, two = world.client("one"), world.client("two")
    for client in (one, two):
        for node in ("a", "b"):
            client.sender(node, f"to {node}")
    one.publisher("news")
    names: dict[str, object] = {"attributeNames": ["id", "node"]}

    def told(body: dict[str, object], **options: object) -> object:
        return ask(world, "QUERY", "link", None, names | body, **options)["results"]  # type: ignore[arg-type]

    assert told({"limit": 2}) == [["1.1", "a"], ["1.2", "b"]]
    assert told({"limit": 2, "after": "1.2"}) == [["1.3", "news"], ["2.1", "a"]]
    assert told({"connection": 2}) == [["2.1", "a"], ["2.2", "b"]]
    assert told({"node": "b"}) == [["1.2", "b"], ["2.2", "b"]]
    assert told({"node": "b"}, allowed=rights(browse=("a",))) == []
    assert told({}, allowed=rights(manage=("a",))) == [["1.1", "a"], ["2.1", "a"]]
    for body in ({"after": "1"}, {"connection": "1"}, {"node": 1}):
        assert refused(world, "QUERY", "link", None, body)[0] == 400
    assert refused(world, "QUERY", "link", allowed=rights(send=("#",)))[0] == 403


def test_links_of_no_node_are_shown_to_who_may_manage_all() -> None:
    world = World()
    client = world.client()
    client.sender("$management", "requests")
    client.sender(None, "anywhere")
    assert [row["node"] for row in links(world)] == ["$management", ""]
    assert links(world, allowed=rights(browse=("#",))) == []
    assert refused(world, "DELETE", "link", "1.1", allowed=rights(browse=("#",)))[0] == 404
    assert ask(world, "DELETE", "link", "1.2", allowed=rights(manage=("#",))) == {"detached": True}


def test_a_link_is_detached_with_the_reason_and_what_it_held_goes_back() -> None:
    world, client = posted("q", durable(1))
    link = client.receiver("q", credit=1)
    other = client.receiver("q", "other")
    world.settle()
    for name, status in (("1.9", 404), ("9.1", 404), ("1", 400), ("x.y", 400)):
        assert refused(world, "DELETE", "link", name)[0] == status
    assert refused(world, "DELETE", "link", "1.2", allowed=rights(browse=("q",)))[0] == 403
    assert refused(world, "DELETE", "link", "1.2", allowed=rights(manage=("r",)))[0] == 404
    assert ask(world, "DELETE", "link", "1.2", {"reason": "hangs"}, allowed=rights(manage=("q",))) == {"detached": True}
    assert ask(world, "DELETE", "link", "1.2") == {"detached": True}  # twice is once
    assert not client.detached
    world.settle()
    error = client.detached[link].error
    assert error is not None and (error.condition, error.description) == (
        "amqp:link:detach-forced",
        "closed by an administrator",
    )
    assert world.core.queues.by_name["q"].available == 1
    other.grant(1)
    world.settle()
    assert len(client.held(other)) == 1
    world.check()


def test_a_link_that_waits_for_its_answer_keeps_its_number() -> None:
    world = World()
    client = world.client()
    client.subscriber("news", durable=True)
    client.subscriber("news", "other", durable=True)
    assert [row["id"] for row in links(world)] == ["1.1", "1.2"]


# -- transactions -----------------------------------------------------------------------------------------------------


def test_what_is_told_of_a_transaction() -> None:
    world, client = posted("q", durable(1))
    controller = Controller(client)
    txn_id = controller.declare()
    sender = client.sender("to", "to")
    controller.post(sender, txn_id, durable("x"), durable("y"))
    world.settle()
    world.now_us += 3_000_000
    world.core.tick(world.now_us)
    (row,) = rows(ask(world, "QUERY", "transaction"))
    assert list(row) == list(TRANSACTION_COLUMNS)
    assert (row["id"], row["connection"], row["container"]) == (txn_id.hex(), 1, "client")
    assert (row["age_ms"], row["idle_ms"], row["postings"], row["outcomes"]) == (3_000, 3_000, 2, 0)
    assert row["failed"] == ""
    assert refused(world, "QUERY", "transaction", allowed=rights(manage=("q",)))[0] == 403
    controller.discharge(txn_id)
    world.settle()
    assert rows(ask(world, "QUERY", "transaction")) == []


# -- queues in pages --------------------------------------------------------------------------------------------------


def test_queues_come_in_pages_by_name() -> None:
    world = World()
    client = world.client()
    for name in ("d", "a", "c", "b"):
        client.sender(name, name)
    client.publisher("b2")
    found = rows(ask(world, "QUERY", "queue", None, {"limit": 3}))
    assert [row["name"] for row in found] == ["a", "b", "b2"] and list(found[0]) == list(QUEUE_COLUMNS)
    only = {"attributeNames": ["name"], "after": "b2"}
    assert ask(world, "QUERY", "queue", None, only)["results"] == [["c"], ["d"]]
    assert ask(world, "QUERY", "queue", None, only, allowed=rights(browse=("d",)))["results"] == [["d"]]
    assert len(rows(ask(world, "QUERY", "queue"))) == 5
