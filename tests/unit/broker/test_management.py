"""The management node's answers."""

from __future__ import annotations

from acquit.broker.inspect import QUEUE_COLUMNS, BrokerSnapshot, QueueSnapshot
from acquit.broker.management import answer, reply_address
from acquit.broker.options import Role, Security, User
from acquit.broker.permissions import EVERYTHING, Permissions, Rights
from acquit.protocol.message import Message


class FakeBroker:
    """Two queues, and a note of what was purged by whom."""

    def __init__(self) -> None:
        self.purged: list[tuple[str, str | None]] = []

    def snapshot(self) -> BrokerSnapshot:
        queues = (
            QueueSnapshot(name="orders", address="orders", available=3, acquired=2, entered=9, accepted=4),
            QueueSnapshot(name="DLQ", address="DLQ"),
        )
        return BrokerSnapshot(broker_id="b", last_sequence=9, accepting=True, queues=queues)

    def purge(self, queue: str, user: str | None) -> int:
        self.purged.append((queue, user))
        return 5


def ask(
    broker: FakeBroker, body: object = None, rights: Rights = EVERYTHING, **properties: object
) -> tuple[int, str, object]:
    request = Message(body, message_id="7", reply_to="me", application_properties=properties).encode()
    assert reply_address(request) == "me"
    reply = Message.decode(answer(request, broker, "ada", rights))
    assert reply.correlation_id == "7"
    properties = reply.application_properties
    return int(str(properties["statusCode"])), str(properties["statusDescription"]), reply.body


def test_query_gives_a_table_of_all_queues() -> None:
    status, _, body = ask(FakeBroker(), operation="QUERY", type="acquit:queue")
    assert status == 200
    assert isinstance(body, dict)
    assert body["attributeNames"] == list(QUEUE_COLUMNS)
    rows = [dict(zip(body["attributeNames"], row, strict=True)) for row in body["results"]]
    assert [(row["name"], row["depth"], row["available"], row["accepted"]) for row in rows] == [
        ("orders", 5, 3, 4),
        ("DLQ", 0, 0, 0),
    ]


def test_query_gives_only_what_is_asked_for() -> None:
    status, _, body = ask(FakeBroker(), {"attributeNames": ["depth", "name"]}, operation="QUERY", type="acquit:queue")
    assert (status, body) == (200, {"attributeNames": ["depth", "name"], "results": [[5, "orders"], [0, "DLQ"]]})


def test_query_refuses_an_attribute_that_is_none() -> None:
    status, text, _ = ask(FakeBroker(), {"attributeNames": ["colour"]}, operation="QUERY", type="acquit:queue")
    assert status == 400
    assert "depth" in text


def test_read() -> None:
    status, _, body = ask(FakeBroker(), operation="READ", type="acquit:queue", name="orders")
    assert status == 200
    assert isinstance(body, dict)
    assert body["acquired"] == 2
    status, _, body = ask(FakeBroker(), operation="READ", type="acquit:broker")
    assert (status, body) == (200, {"broker_id": "b", "last_sequence": 9, "accepting": True})


def test_purge_names_the_queue_and_who_asked() -> None:
    broker = FakeBroker()
    assert ask(broker, operation="PURGE", type="acquit:queue", name="orders")[::2] == (200, {"purged": 5})
    assert broker.purged == [("orders", "ada")]


def test_what_is_not_there_or_not_said() -> None:
    broker = FakeBroker()
    assert ask(broker, operation="PURGE", type="acquit:queue", name="nothing")[0] == 404
    assert ask(broker, operation="PURGE", type="acquit:queue")[0] == 400
    assert ask(broker, operation="DELETE", type="acquit:queue", name="orders")[0] == 501
    assert broker.purged == []


def test_bytes_that_are_no_message_get_an_answer_too() -> None:
    reply = Message.decode(answer(b"\xde\xad", FakeBroker(), None, EVERYTHING))
    assert reply.application_properties["statusCode"] == 400


def rights(**permissions: tuple[str, ...]) -> Rights:
    return Permissions(Security(users={"ada": User(roles=("r",))}, roles={"r": Role(**permissions)})).of("ada")


def test_who_may_not_see_a_queue_does_not_see_it() -> None:
    for seen in (rights(browse=("orders",)), rights(manage=("orders",))):
        status, _, body = ask(
            FakeBroker(), {"attributeNames": ["name"]}, rights=seen, operation="QUERY", type="acquit:queue"
        )
        assert (status, body) == (200, {"attributeNames": ["name"], "results": [["orders"]]})
        assert ask(FakeBroker(), rights=seen, operation="READ", type="acquit:queue", name="orders")[0] == 200
        for name in ("DLQ", "there is none"):
            status, text, body = ask(FakeBroker(), rights=seen, operation="READ", type="acquit:queue", name=name)
            assert (status, body) == (403, None)
            assert text == f"'ada' may not browse at {name}: no role gives the permission"


def test_who_may_not_manage_a_queue_does_not_purge_it() -> None:
    broker, asker = FakeBroker(), rights(browse=("#",), consume=("#",), delete=("#",), manage=("orders",))
    assert ask(broker, rights=asker, operation="PURGE", type="acquit:queue", name="DLQ")[0] == 403
    assert broker.purged == []
    assert ask(broker, rights=asker, operation="PURGE", type="acquit:queue", name="orders")[0] == 200
    assert broker.purged == [("orders", "ada")]
    status, text, _ = ask(broker, rights=asker, operation="PURGE", type="acquit:queue")
    assert status == 403 and "'#'" in text
    assert ask(broker, rights=rights(manage=("#",)), operation="PURGE", type="acquit:queue")[0] == 400


def test_what_everybody_may_know() -> None:
    assert ask(FakeBroker(), rights=rights(), operation="READ", type="acquit:broker")[0] == 200
