"""The management node's answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

import pytest

from acquit.broker.access.permissions import EVERYTHING, Permissions, Rights
from acquit.broker.admin.later import Later, RequestFailure
from acquit.broker.admin.management import answer, reply_address
from acquit.broker.admin.operations import operation, perform
from acquit.broker.admin.redriving import Redriven
from acquit.broker.admin.requests import VALUES_MAX, ManagementRequest
from acquit.broker.admin.trends import TrendPoint
from acquit.broker.inspect import QUEUE_COLUMNS, BrokerSnapshot, QueueSnapshot
from acquit.broker.options import Role, Security, User
from acquit.broker.refusal import Refused
from acquit.errors import StoreFull
from acquit.protocol.codec import EncodedList
from acquit.protocol.message import Message
from acquit.protocol.types import Array, Described, Value

T = TypeVar("T")


class FakeAuditor:
    """What was performed, by whom, and what came of it."""

    def __init__(self) -> None:
        self.lines: list[tuple[object, ...]] = []

    def performed(self, action: str, user: str | None, peer: str, target: str, result: str, *, refused: bool) -> None:
        self.lines.append((action, user, target, result, refused))


class FakeBroker:
    """Two queues, and a note of what was purged by whom."""

    def __init__(self, *, full: bool = False) -> None:
        self.full = full
        self.purged: list[tuple[str, str | None]] = []
        self.done: list[tuple[object, ...]] = []
        self.auditor = FakeAuditor()

    def nodes(self) -> BrokerSnapshot:
        queues = (
            QueueSnapshot(name="orders", address="orders", consumers=1, available=3, acquired=2, entered=9, accepted=4),
            QueueSnapshot(name="DLQ", address="DLQ"),
        )
        return BrokerSnapshot(broker_id="b", last_sequence=9, accepting=True, queues=queues)

    def all_queues(self, *, of: Callable[[str], bool]) -> Iterator[QueueSnapshot | None]:
        return (queue if of(queue.address) else None for queue in self.nodes().queues)

    warnings = ()

    def table(self, found: Iterator[list[Value] | None]) -> Later[EncodedList]:
        rows = EncodedList()
        rows.add([row for row in found if row is not None])
        return ready(rows)

    def node(self, name: str) -> QueueSnapshot | None:
        return self.nodes().queue(name)

    def going_with(self, name: str) -> tuple[int, int]:
        node = self.node(name)
        assert node is not None
        return node.depth, node.links

    @property
    def figures(self) -> FakeBroker:
        return self

    surveys = figures

    def row(self, found: QueueSnapshot) -> dict[str, object]:
        return {column: getattr(found, column) for column in QUEUE_COLUMNS}

    def rotate(self) -> Later[int]:
        if self.full:
            raise StoreFull("the disk is full")
        return ready(7)

    def purge(self, queue: str, user: str | None, **choice: object) -> Later[int]:
        self.purged.append((queue, user))
        self.done.append(("purge", *choice.values()))
        return ready(5)

    def create(self, name: str, user: str | None, *, topic: bool) -> Later[str]:
        if name == "no":
            raise Refused("no", condition="amqp:not-found")
        if name == "there":
            raise RequestFailure(409, "there is one")
        self.done.append(("create", name, user, topic))
        return ready(name)

    def delete(self, name: str, user: str | None) -> Later[str]:
        self.done.append(("delete", name, user))
        return ready(name)

    def move(
        self,
        source: str,
        target: str,
        user: str | None,
        *,
        messages_max: int | None,
        selector: str | None,
        sequences: frozenset[int] | None = None,
    ) -> Later[int]:
        self.done.append(("move", source, target, user, messages_max, selector, sequences))
        self.later = Later[int]()
        return self.later

    def redrive(
        self, queue: str, user: str | None, refusal: Callable[[str], str | None], **choice: object
    ) -> Later[Redriven]:
        self.done.append(("redrive", queue, user, refusal("b"), choice))
        return ready(Redriven({"a": 2}, {"b": 1}, {"b": "no"}, 4, ""))

    def pause(self, name: str, how: str, user: str | None) -> Later[str]:
        self.done.append(("pause", name, how, user))
        return ready(how)

    @property
    def trends(self) -> FakeBroker:
        return self

    def points(self, queue: str) -> list[TrendPoint]:
        return [TrendPoint(9, 5, 4, 3, 2)]

    def reload(self, asker: str) -> Later[list[object]]:
        return ready([{"key": "a", "old": 1, "new": 2}])


def ready(result: T) -> Later[T]:
    later = Later[T]()
    later.finish(result)
    return later


def ask(
    broker: FakeBroker, body: object = None, rights: Rights = EVERYTHING, **properties: object
) -> tuple[int, str, object]:
    request = Message(body, message_id="7", reply_to="me", application_properties=properties).encode()
    assert reply_address(request) == "me"
    answered = answer(request, broker, "ada", rights)  # type: ignore[arg-type]
    if isinstance(answered, Later):
        encoded: list[object] = []
        answered.when_finished(encoded.append)
        (answered,) = encoded or (b"",)
    assert isinstance(answered, bytes)
    reply = Message.decode(answered)
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
    assert (status, body) == (
        200,
        {"attributeNames": ["depth", "name"], "results": [[5, "orders"], [0, "DLQ"]], "warnings": []},
    )


def test_query_refuses_an_attribute_that_is_none() -> None:
    status, text, _ = ask(FakeBroker(), {"attributeNames": ["colour"]}, operation="QUERY", type="acquit:queue")
    assert status == 400
    assert "depth" in text


def test_read() -> None:
    status, _, body = ask(FakeBroker(), operation="READ", type="acquit:queue", name="orders")
    assert status == 200
    assert isinstance(body, dict)
    assert body["acquired"] == 2


def test_a_request_about_one_queue_looks_at_no_other() -> None:
    class Crowded(FakeBroker):
        def nodes(self) -> BrokerSnapshot:
            raise AssertionError("all queues were looked at")

        def node(self, name: str) -> QueueSnapshot | None:
            return FakeBroker().node(name)

    everything = rights(browse=("#",), manage=("#",))
    for verb, status in (("READ", 200), ("PURGE", 200), ("DELETE", 204)):
        for who in (EVERYTHING, everything):
            asked = {"operation": verb, "type": "acquit:queue"}
            assert ask(Crowded(), None, who, **asked, name="orders")[0] == status
            assert ask(Crowded(), None, who, **asked, name="nothing")[0] == 404


def begin_move(broker: FakeBroker) -> None:
    properties: dict[str, object] = {"operation": "MOVE", "type": "acquit:queue", "name": "orders"}
    request = Message({"to": "there"}, reply_to="me", application_properties=properties).encode()
    assert isinstance(answer(request, broker, "ada", EVERYTHING), Later)  # type: ignore[arg-type]


def test_what_changes_something_is_recorded_once_it_is_done() -> None:
    broker = FakeBroker()
    ask(broker, operation="QUERY", type="acquit:queue")
    ask(broker, operation="READ", type="acquit:queue", name="orders")
    ask(broker, operation="READ", type="acquit:queue", name="none")
    assert broker.auditor.lines == []
    ask(broker, operation="PURGE", type="acquit:queue", name="orders")
    begin_move(broker)
    assert broker.auditor.lines == [("PURGE acquit:queue", "ada", "orders", "purged 5", False)]
    broker.later.finish(3)
    ask(broker, operation="DELETE", type="acquit:queue", name="orders")
    assert broker.auditor.lines[1:] == [
        ("MOVE acquit:queue", "ada", "orders", "moved 3", False),
        ("DELETE acquit:queue", "ada", "orders", "messages 5, links 1", False),
    ]


def test_what_is_refused_is_recorded() -> None:
    broker = FakeBroker()
    ask(broker, operation="PURGE", type="acquit:queue", name="none")
    begin_move(broker)
    broker.later.finish(RequestFailure(507, "full"))
    ask(broker, operation="READ", type="acquit:queue", name="DLQ", rights=rights(browse=("orders",)))
    assert [(action, refused) for action, *_, refused in broker.auditor.lines] == [
        ("PURGE acquit:queue", True),
        ("MOVE acquit:queue", True),
        ("READ acquit:queue", True),
    ]
    assert [str(line[3])[:12] for line in broker.auditor.lines] == ["refused: 404", "refused: 507", "refused: 403"]


def test_purge_names_the_queue_and_who_asked() -> None:
    broker = FakeBroker()
    assert ask(broker, operation="PURGE", type="acquit:queue", name="orders")[::2] == (200, {"purged": 5})
    assert broker.purged == [("orders", "ada")]


def test_what_is_not_there_or_not_said() -> None:
    broker = FakeBroker()
    assert ask(broker, operation="PURGE", type="acquit:queue", name="nothing")[0] == 404
    assert ask(broker, operation="PURGE", type="acquit:queue")[0] == 400
    assert ask(broker, operation="PAINT", type="acquit:queue", name="orders")[0] == 501
    assert broker.purged == []


def test_bytes_that_are_no_message_get_an_answer_too() -> None:
    reply = Message.decode(answer(b"\xde\xad", FakeBroker(), None, EVERYTHING))  # type: ignore[arg-type]
    assert reply.application_properties["statusCode"] == 400


def rights(**permissions: tuple[str, ...]) -> Rights:
    return Permissions(Security(users={"ada": User(roles=("r",))}, roles={"r": Role(**permissions)})).of("ada")


def test_who_may_not_see_a_queue_does_not_see_it() -> None:
    for seen in (rights(browse=("orders",)), rights(manage=("orders",))):
        status, _, body = ask(
            FakeBroker(), {"attributeNames": ["name"]}, rights=seen, operation="QUERY", type="acquit:queue"
        )
        assert (status, body) == (200, {"attributeNames": ["name"], "results": [["orders"]], "warnings": []})
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


def test_what_concerns_the_whole_broker_has_no_name_to_hide_behind() -> None:
    status, text, _ = ask(
        FakeBroker(), rights=rights(manage=("orders",)), operation="RELOAD", type="acquit:broker", name="orders"
    )
    assert status == 403 and "'#'" in text


# -- queues -----------------------------------------------------------------------------------------------------------


def test_create() -> None:
    broker = FakeBroker()
    assert ask(broker, operation="CREATE", type="acquit:queue", name="new")[::2] == (201, {"name": "new"})
    assert ask(broker, {"kind": "topic"}, operation="CREATE", type="acquit:queue", name="orders")[0] == 201
    assert broker.done == [("create", "new", "ada", False), ("create", "orders", "ada", True)]
    assert ask(broker, operation="CREATE", type="acquit:queue", name="there")[0] == 409
    assert ask(broker, operation="CREATE", type="acquit:queue")[0] == 400
    assert ask(broker, {"kind": "tub"}, operation="CREATE", type="acquit:queue", name="x")[0] == 400
    assert ask(broker, operation="CREATE", type="acquit:queue", name="no")[0] == 404


def test_delete() -> None:
    broker = FakeBroker()
    assert ask(broker, operation="DELETE", type="acquit:queue", name="nothing")[0] == 404
    status, text, _ = ask(broker, {"if_unused": True}, operation="DELETE", type="acquit:queue", name="orders")
    assert (status, text) == (409, "'orders' is in use: it has 1 links")
    status, text, _ = ask(broker, {"if_empty": True}, operation="DELETE", type="acquit:queue", name="orders")
    assert (status, text) == (409, "'orders' is not empty: it has 5 messages")
    assert ask(broker, {"if_full": True}, operation="DELETE", type="acquit:queue", name="orders")[0] == 400
    assert broker.done == []
    assert ask(broker, operation="DELETE", type="acquit:queue", name="orders")[::2] == (204, {})
    both = {"if_unused": True, "if_empty": True}
    assert ask(broker, both, operation="DELETE", type="acquit:queue", name="DLQ")[0] == 204
    assert broker.done == [("delete", "orders", "ada"), ("delete", "DLQ", "ada")]


def test_what_went_with_it_is_beside_the_empty_body() -> None:
    request = Message(None, application_properties={"operation": "DELETE", "type": "acquit:queue", "name": "orders"})
    answered = answer(request.encode(), FakeBroker(), "ada", EVERYTHING)  # type: ignore[arg-type]
    assert isinstance(answered, Later)
    replies: list[bytes] = []
    answered.when_finished(replies.append)  # type: ignore[arg-type]
    reply = Message.decode(replies[0])
    said = {"messages": 5, "links": 1, "statusCode": 204, "statusDescription": "No Content"}
    assert (reply.body, reply.application_properties) == ({}, said)


def test_a_move_is_answered_when_it_has_ended() -> None:
    broker = FakeBroker()
    request = Message(
        {"to": "orders", "max": 7, "selector": "a = 1", "sequences": [9, 4, 4]},
        message_id="9",
        application_properties={"operation": "MOVE", "type": "acquit:queue", "name": "DLQ"},
    )
    answered = answer(request.encode(), broker, "ada", EVERYTHING)  # type: ignore[arg-type]
    assert isinstance(answered, Later)
    assert broker.done == [("move", "DLQ", "orders", "ada", 7, "a = 1", frozenset({4, 9}))]
    replies: list[bytes] = []
    answered.when_finished(replies.append)  # type: ignore[arg-type]
    assert replies == []
    broker.later.finish(3)
    reply = Message.decode(replies[0])
    assert (reply.body, reply.correlation_id) == ({"moved": 3}, "9")


def test_a_move_that_failed() -> None:
    broker = FakeBroker()
    request = Message({"to": "x"}, application_properties={"operation": "MOVE", "type": "acquit:queue", "name": "DLQ"})
    answered = answer(request.encode(), broker, None, EVERYTHING)  # type: ignore[arg-type]
    assert isinstance(answered, Later)
    broker.later.finish(RequestFailure(507, "full"))
    replies: list[bytes] = []
    answered.when_finished(replies.append)  # type: ignore[arg-type]
    assert Message.decode(replies[0]).application_properties == {"statusCode": 507, "statusDescription": "full"}


def test_a_redrive_tells_of_each_origin() -> None:
    broker = FakeBroker()
    asker = rights(manage=("DLQ", "a"))
    body = {"selector": "a = 1", "sequences": [4], "max": 9, "dry_run": True}
    assert ask(broker, body, asker, operation="REDRIVE", type="acquit:queue", name="DLQ")[2] == {
        "redriven": 2,
        "by_origin": {"a": 2},
        "without_origin": 4,
        "left": {"b": 1},
        "reasons": {"b": "no"},
    }
    ((what, queue, user, refused, choice),) = broker.done
    assert (what, queue, user) == ("redrive", "DLQ", "ada")
    assert "may not manage at b" in str(refused)
    assert choice == {"dry_run": True, "messages_max": 9, "selector": "a = 1", "sequences": frozenset({4})}
    assert ask(broker, None, rights(browse=("#",)), operation="REDRIVE", type="acquit:queue", name="DLQ")[0] == 403
    for wrong in ({"to": "a"}, {"max": 0}, {"sequences": ["a"]}, {"dry_run": 1}):
        assert ask(broker, wrong, operation="REDRIVE", type="acquit:queue", name="DLQ")[0] == 400


def test_the_history_of_a_queue() -> None:
    broker = FakeBroker()
    status, _, body = ask(broker, operation="QUERY", type="acquit:queue-history", name="orders")
    assert (status, body) == (
        200,
        {
            "step_ms": 60_000,
            "attributeNames": ["time_ms", "depth", "entered", "retired", "acquired"],
            "points": [[9, 5, 4, 3, 2]],
        },
    )
    nothing = rights(send=("#",))
    assert ask(broker, rights=nothing, operation="QUERY", type="acquit:queue-history", name="orders")[0] == 403


def test_a_queue_is_paused_by_who_may_manage_it() -> None:
    broker = FakeBroker()
    told = ask(broker, {"paused": "both"}, rights(manage=("DLQ",)), operation="UPDATE", type="acquit:queue", name="DLQ")
    assert (told[0], told[2], broker.done) == (200, {"paused": "both"}, [("pause", "DLQ", "both", "ada")])
    for wrong in (None, {}, {"paused": "all"}, {"paused": True}, {"paused": "none", "more": 1}):
        assert ask(broker, wrong, operation="UPDATE", type="acquit:queue", name="DLQ")[0] == 400
    may_browse = rights(browse=("#",))
    assert ask(broker, {"paused": "none"}, may_browse, operation="UPDATE", type="acquit:queue", name="DLQ")[0] == 403
    assert ask(broker, {"paused": "none"}, operation="UPDATE", type="acquit:queue", name="none")[0] == 404


def test_a_purge_of_what_is_chosen() -> None:
    broker = FakeBroker()
    body = {"selector": "a = 1", "sequences": [4], "max": 9}
    assert ask(broker, body, operation="PURGE", type="acquit:queue", name="DLQ")[2] == {"purged": 5}
    assert broker.done == [("purge", 9, "a = 1", frozenset({4}))]
    assert ask(broker, {"max": 0}, operation="PURGE", type="acquit:queue", name="DLQ")[0] == 400


def test_moves_that_make_no_sense() -> None:
    broker = FakeBroker()
    numbers = [{"to": "x", "sequences": given} for given in (7, ["a"], [-1], [1] * 10_001)]
    bodies = [None, {}, {"to": "DLQ"}, {"to": "x", "max": 0}, {"to": "x", "max": True}, {"to": "x", "how": "fast"}]
    for body in (*bodies, *numbers):
        assert ask(broker, body, operation="MOVE", type="acquit:queue", name="DLQ")[0] == 400, body
    assert broker.done == []


def test_who_may_create_and_delete() -> None:
    for asker in (rights(create=("new",)), rights(manage=("#",))):
        assert ask(FakeBroker(), rights=asker, operation="CREATE", type="acquit:queue", name="new")[0] == 201
    assert (
        ask(FakeBroker(), rights=rights(delete=("#",)), operation="CREATE", type="acquit:queue", name="new")[0] == 403
    )
    may_delete = rights(delete=("orders",), browse=("#",))
    assert ask(FakeBroker(), rights=may_delete, operation="DELETE", type="acquit:queue", name="orders")[0] == 204
    assert ask(FakeBroker(), rights=may_delete, operation="DELETE", type="acquit:queue", name="DLQ")[0] == 403


def test_a_move_needs_the_rights_of_both_queues() -> None:
    asker = rights(manage=("DLQ",))
    status, text, _ = ask(
        FakeBroker(), {"to": "orders"}, rights=asker, operation="MOVE", type="acquit:queue", name="DLQ"
    )
    assert status == 403
    assert "orders" in text


def test_reload() -> None:
    status, _, body = ask(FakeBroker(), operation="RELOAD", type="acquit:broker")
    assert (status, body) == (200, {"changes": [{"key": "a", "old": 1, "new": 2}]})
    assert ask(FakeBroker(), rights=rights(manage=("a",)), operation="RELOAD", type="acquit:broker")[0] == 403


def test_rotate() -> None:
    assert ask(FakeBroker(), operation="ROTATE", type="acquit:broker")[::2] == (200, {"closed": 7})
    assert ask(FakeBroker(full=True), operation="ROTATE", type="acquit:broker")[:2] == (507, "the disk is full")
    assert ask(FakeBroker(), rights=rights(manage=("a",)), operation="ROTATE", type="acquit:broker")[0] == 403


def test_who_may_see_no_queue_is_told_so() -> None:
    """And not that there is none."""
    status, text, _ = ask(FakeBroker(), rights=rights(send=("#",)), operation="QUERY", type="acquit:queue", name="")
    assert status == 403 and "may not see any queue" in text


@pytest.mark.parametrize(
    "body",
    [
        {"body": [1] * VALUES_MAX},
        {"body": [[]] * VALUES_MAX},
        {"body": dict.fromkeys(range(VALUES_MAX))},
        {"body": Array(bool, (True,) * VALUES_MAX)},
        {"body": Described("a", [1] * VALUES_MAX)},
    ],
    ids=["list", "lists", "map", "array", "described"],
)
def test_more_values_than_a_request_may_hold_are_refused_before_anything_is_done(body: object) -> None:
    broker = FakeBroker()
    with pytest.raises(RequestFailure, match="at most 12,000 values") as refused:
        perform(operation("PUBLISH", "acquit:queue"), ManagementRequest(broker, "ada", EVERYTHING, "a", body))  # type: ignore[arg-type]
    assert refused.value.status == 400
    assert (broker.done, broker.auditor.lines) == ([], [])


@pytest.mark.parametrize("at", ["name", "body"])
def test_half_a_pair_of_surrogates_is_refused_before_anything_is_done(at: str) -> None:
    """JSON can say it; AMQP and the journal cannot, and would fail half way."""
    broker = FakeBroker()
    name, body = ("a\ud800", None) if at == "name" else ("new", {"kind": "topic", "more": ["a\ud800"]})
    with pytest.raises(RequestFailure, match="half a pair of surrogates") as refused:
        perform(operation("CREATE", "acquit:queue"), ManagementRequest(broker, "ada", EVERYTHING, name, body))  # type: ignore[arg-type]
    assert refused.value.status == 400
    str(refused.value).encode()
    assert (broker.done, broker.auditor.lines) == ([], [])
