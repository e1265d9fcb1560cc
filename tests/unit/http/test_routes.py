"""Routes that look at messages and at what became of them, and what each refuses."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import acquit
from acquit.broker.options import BrokerOptions, Role, Security, User
from acquit.http import models
from acquit.http.routes import ROUTES
from acquit.protocol import extensions
from tests.support.http import ask, basic

API = "/api/v1"
ROOT, EVE = basic("root", "toor"), basic("eve", "eve")


@pytest.fixture(scope="module")
def broker() -> Iterator[acquit.Broker]:
    """Two queues with five messages each, the first of which was tried once and then is a dead letter."""
    security = Security(
        users={"root": User(password="toor", roles=("all",)), "eve": User(password="eve", roles=("some",))},
        roles={"all": Role(manage=("#",), send=("#",), consume=("#",), create=("#",)), "some": Role(browse=("mine",))},
        refusal_delay_ms=0,
    )
    with acquit.Broker(http_port=0, config=BrokerOptions(security=security).with_small_journal()) as running:
        with acquit.connect(running.url, username="root", password="toor") as connection:
            session = connection.session(mode="individual")
            for name in ("mine", "theirs"):
                sender = session.sender(name)
                for number in range(5):
                    properties = {"colour": "red" if number % 2 else "blue"}
                    body = f"{name} {number}"
                    sender.send(
                        acquit.Message(
                            body, durable=True, message_id=f"{name}-{number}", application_properties=properties
                        )
                    )
            receiver = session.receiver("mine", prefetch=0)
            message = receiver.receive(timeout=20)
            assert message is not None
            message.reject("shop:no-price", "it has none")
            receiver.close()
        yield running


def test_messages_come_in_pages_by_state_and_selector(broker: acquit.Broker) -> None:
    path = f"{API}/queues/mine/messages"
    first = ask(broker.http_url, f"{path}?limit=2", headers=EVE).json
    assert models.PageOfMessages.model_validate(first).model_dump() == first
    assert [row["message_id"] for row in first["items"]] == ["mine-1", "mine-2"]
    rest = ask(broker.http_url, f"{path}?after={first['next_after']}", headers=EVE).json
    assert [row["message_id"] for row in rest["items"]] == ["mine-3", "mine-4"]
    assert rest["next_after"] is None
    red = ask(broker.http_url, f"{path}?state=available&selector=colour%20%3D%20%27red%27", headers=EVE).json["items"]
    assert [row["message_id"] for row in red] == ["mine-1", "mine-3"]
    assert ask(broker.http_url, f"{path}?state=acquired", headers=EVE).json["items"] == []


def test_one_message_in_full(broker: acquit.Broker) -> None:
    (row,) = ask(broker.http_url, f"{API}/queues/DLQ/messages", headers=ROOT).json["items"]
    path = f"{API}/queues/DLQ/message?sequence={row['sequence']}"
    found = ask(broker.http_url, path, headers=ROOT).json
    assert models.OneMessage.model_validate(found).model_dump() == found
    assert (found["content"]["body"], found["content"]["properties"]["message_id"]) == ("mine 0", "mine-0")
    assert found["content"]["application_properties"] == {"colour": "blue"}
    assert "shop:no-price: it has none" in found["reason"]
    assert ask(broker.http_url, f"{path}&bytes_max=10", headers=ROOT).json["content"] is None


@pytest.mark.parametrize("key", ["sequence", "message_id"])
def test_what_became_of_a_message(broker: acquit.Broker, key: str) -> None:
    value = {"sequence": 1, "message_id": "mine-0"}[key]
    found = ask(broker.http_url, f"{API}/history?{key}={value}", headers=ROOT).json
    assert models.MessageHistory.model_validate(found).model_dump() == found
    assert [step["event"] for step in found["lives"][0]["steps"]][-1] == "dead-lettered"
    assert found["complete"] is True
    mine = ask(broker.http_url, f"{API}/history?{key}={value}", headers=EVE).json
    assert (len(mine["lives"]), mine["hidden"]) == (1, len(found["lives"]) - 1)


def test_the_last_hours_of_a_queue(broker: acquit.Broker) -> None:
    broker.advance(120_000)
    found = ask(broker.http_url, f"{API}/queues/mine/history", headers=EVE).json
    assert models.QueueTrend.model_validate(found).model_dump() == found
    last = dict(zip(found["attributeNames"], found["points"][-1], strict=True))
    assert last["depth"] == 4


@pytest.mark.parametrize("rest", ["", "/messages", "/message?sequence=1", "/history", "/scheduled"])
def test_who_may_not_look_at_a_queue_sees_nothing_of_it(broker: acquit.Broker, rest: str) -> None:
    answer = ask(broker.http_url, f"{API}/queues/theirs{rest}", headers=EVE)
    assert answer.status == 403
    assert "'eve' may not browse at theirs" in answer.detail


@pytest.mark.parametrize(
    ("path", "status", "said"),
    [
        ("/queues/mine/messages?state=dead", 400, "state"),
        ("/queues/mine/messages?selector=1%20%2B", 400, "selector"),
        ("/queues/mine/messages?limit=0", 400, "limit"),
        ("/queues/mine/messages?after=-1", 400, "after"),
        ("/queues/mine/messages?colour=red", 400, "colour"),
        ("/queues/none/messages", 404, "there is no queue 'none'"),
        ("/queues/mine/message", 400, "sequence"),
        ("/queues/mine/message?sequence=0", 400, "sequence"),
        ("/queues/mine/message?sequence=4711", 404, "no message"),
        ("/queues/mine/message?sequence=1&bytes_max=99999999", 400, "bytes_max"),
        ("/queues/none/history", 404, "there is no queue"),
        ("/history", 400, "sequence"),
        ("/history?sequence=1&message_id=x", 400, "sequence"),
        ("/history?sequence=4711", 404, "no such message"),
        ("/history?message_id=nobody", 404, "no such message"),
        ("/connections?after=x", 400, "after"),
        ("/connections/x", 405, "Not Allowed"),
        ("/links?after=x", 400, "two numbers"),
    ],
)
def test_what_cannot_be_looked_at_is_said(broker: acquit.Broker, path: str, status: int, said: str) -> None:
    answer = ask(broker.http_url, API + path, headers=ROOT)
    assert answer.status == status
    assert said in answer.detail


def test_of_another_queue_s_message_nothing_is_told(broker: acquit.Broker) -> None:
    hidden = ask(broker.http_url, f"{API}/history?message_id=theirs-0", headers=EVE)
    assert hidden == ask(broker.http_url, f"{API}/history?message_id=nobody", headers=EVE)._replace(
        headers=hidden.headers
    )
    assert hidden.status == 404


def test_a_topic_has_no_messages(broker: acquit.Broker) -> None:
    assert ask(broker.http_url, f"{API}/queues/news", "PUT", {"kind": "topic"}, ROOT).status == 201
    for rest in ("/messages", "/message?sequence=1", "/history", "/scheduled"):
        assert "is a topic" in ask(broker.http_url, f"{API}/queues/news{rest}", headers=ROOT).detail


def test_every_route_of_a_queue_takes_a_name_that_no_path_can_have() -> None:
    for route in ROUTES:
        if route.path.startswith("/queues/{name}"):
            assert route.query is not None
            assert issubclass(route.query, models.NamedQuery), route
        assert route.kind in vars(extensions).values()
