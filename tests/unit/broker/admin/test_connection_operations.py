"""The broker in figures, and its connections, as users see and close them."""

from __future__ import annotations

import pytest

from acquit.broker.access.permissions import EVERYTHING, Permissions, Rights
from acquit.broker.admin.connection_operations import REASON_MAX
from acquit.broker.admin.later import Later, RequestFailure
from acquit.broker.admin.operations import operation, perform
from acquit.broker.admin.requests import ROWS_MAX, ManagementRequest
from acquit.broker.inspect import CONNECTION_COLUMNS, QUEUE_COLUMNS
from acquit.broker.options import AddressRule, BrokerOptions, Role, Security, User
from acquit.protocol.definitions import Source, Target
from acquit.protocol.message import Message
from tests.support.broker_world import Client, World, durable, live_of, posted


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
    answers = client.begun.attach_receiver(  # type: ignore[attr-defined]
        "answers", source=Source("$management"), target=Target("me")
    )
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
