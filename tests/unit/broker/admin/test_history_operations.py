"""What became of a message, as the management node tells it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from acquit.broker.access.permissions import EVERYTHING, Permissions, Rights
from acquit.broker.admin.history_operations import read_history
from acquit.broker.admin.later import Later, RequestFailure
from acquit.broker.admin.operations import operation, perform
from acquit.broker.admin.requests import ManagementRequest
from acquit.broker.options import AddressRule, BrokerOptions, Role, Security, User
from acquit.ledger.history import Asked, History, history
from acquit.protocol.constants import ACCEPTED
from acquit.protocol.definitions import Error, Modified, Rejected
from acquit.protocol.message import Message
from acquit.protocol.types import ULong
from tests.support.broker_world import DATA, World, durable, posted


class FakeBroker:
    """The journal of a world that is still."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.asked: list[int] = []
        self.auditor = world.core.auditor
        self.figures = world.core.administration.figures

    def history(self, asked: Asked, bytes_max: int) -> Later[History]:
        self.asked.append(bytes_max)
        later = Later[History]()
        later.finish(
            history(
                DATA,
                sequence=asked.sequence,
                message_id=asked.message_id,
                duplicate_id=asked.duplicate_id,
                disk=self.world.disk,
            )
        )
        return later


def ask(world: World, body: object, rights: Rights = EVERYTHING) -> tuple[int, Any]:
    """Status and answer, or reason."""
    request = ManagementRequest(FakeBroker(world), "ada", rights, None, body)  # type: ignore[arg-type]
    results: list[Any] = []
    try:
        result = perform(operation("READ", "acquit:history"), request)
    except RequestFailure as failure:
        return failure.status, str(failure)
    assert isinstance(result, Later)
    result.when_finished(results.append)
    (found,) = results
    Message({"answer": None if isinstance(found, RequestFailure) else found}).encode()  # it can be sent
    return (found.status, str(found)) if isinstance(found, RequestFailure) else (200, found)


def rights(*permissions: str, match: str = "q") -> Rights:
    role = Role(**dict.fromkeys(permissions, (match,)))
    return Permissions(Security(users={"ada": User(roles=("r",))}, roles={"r": role})).of("ada")


@pytest.fixture
def world() -> World:
    """1 became the dead letter 3, and 2 was accepted after an attempt that failed."""
    world, client = posted(
        "q",
        durable(b"dead", message_id="m-1"),
        durable(b"fine", message_id=ULong(7), application_properties={"_AMQ_DUPL_ID": "d-2"}),
        options=BrokerOptions(address=(AddressRule("q", {"dead_letter_address": "DLQ"}),)),
    )
    link = client.receiver("q", credit=2)
    world.settle()
    dead, fine = client.held(link)
    dead.settle(Rejected(Error("app:bad", "no JSON")))
    fine.settle(Modified(delivery_failed=True))
    link.grant(1)
    world.settle()
    client.held(link)[0].settle(ACCEPTED)
    world.settle()
    return world


def test_a_life_is_told_step_by_step(world: World) -> None:
    status, answer = ask(world, {"sequence": 2})
    assert status == 200
    (life,) = answer["lives"]
    assert (life["sequence"], life["message_id"], life["address"], life["standing"]) == (2, 7, "q", "accepted")
    assert [(step["event"], step["delivery_count"], step["queue"]) for step in life["steps"]] == [
        ("posted", 0, "q"),
        ("acquired", 0, "q"),
        ("modified", 1, "q"),
        ("acquired", 1, "q"),
        ("accepted", 1, "q"),
    ]
    assert {step["who"] for step in life["steps"]} == {"client sender", "client receiver"}
    assert life["steps"][2]["time_us"] == world.now_us
    assert life["steps"][0]["flags"] == ["durable"]
    assert {name: answer[name] for name in ("complete", "stopped", "hidden", "truncated", "gone_segments")} == {
        "complete": True,
        "stopped": None,
        "hidden": 0,
        "truncated": False,
        "gone_segments": [],
    }


@pytest.mark.parametrize("body", [{"sequence": 1}, {"sequence": 3}, {"message_id": "m-1"}], ids=repr)
def test_copies_are_told_with_it(world: World, body: object) -> None:
    status, answer = ask(world, body)
    assert status == 200
    original, letter = answer["lives"]
    assert (original["sequence"], original["became"], original["standing"]) == (1, 3, "dead-lettered")
    assert (letter["sequence"], letter["came_from"], letter["standing"]) == (3, 1, "live")
    end = original["steps"][-1]
    assert (end["cause"], end["condition"], end["description"]) == ("rejected", "app:bad", "no JSON")
    assert letter["steps"][0]["who"] is None


@pytest.mark.parametrize(
    ("body", "sequences"),
    [({"duplicate_id": "d-2"}, [2]), ({"message_id": ULong(7)}, [2]), ({"message_id": "7"}, None)],
    ids=repr,
)
def test_by_the_ids_of_a_message(world: World, body: object, sequences: list[int] | None) -> None:
    status, answer = ask(world, body)
    assert status == (404 if sequences is None else 200)
    assert sequences is None or [life["sequence"] for life in answer["lives"]] == sequences


def test_a_message_id_is_a_duplicate_id_where_the_address_says_so() -> None:
    rule = AddressRule("q", {"duplicate_detection": "message-id"})
    world, client = posted("q", durable(b"x", message_id="one"), options=BrokerOptions(address=(rule,)))
    client.post_all(client.sender("q", "again"), durable(b"x", message_id="one"))
    client.post_all(client.sender("plain", "other"), durable(b"x", message_id="one"))
    status, answer = ask(world, {"duplicate_id": "one"})
    (life,) = answer["lives"]
    assert (status, life["sequence"]) == (200, 1)
    assert [step["event"] for step in life["steps"]] == ["posted", "duplicate"] or len(life["steps"]) == 1
    _, answer = ask(world, {"message_id": "one"})
    assert [life["address"] for life in answer["lives"]] == ["q", "plain"]


@pytest.mark.parametrize("permissions", [("browse",), ("manage",)])
def test_copies_in_queues_that_the_user_may_not_see_are_counted(world: World, permissions: tuple[str, ...]) -> None:
    status, answer = ask(world, {"sequence": 1}, rights(*permissions))
    assert (status, [life["sequence"] for life in answer["lives"]], answer["hidden"]) == (200, [1], 1)
    status, answer = ask(world, {"sequence": 1}, rights(*permissions, match="DLQ"))
    assert (status, [life["sequence"] for life in answer["lives"]], answer["hidden"]) == (200, [3], 1)


@pytest.mark.parametrize(("permissions", "match"), [(("send", "consume"), "#"), ((), "q")], ids=repr)
def test_who_may_see_no_queue_is_told_so(world: World, permissions: tuple[str, ...], match: str) -> None:
    status, why = ask(world, {"sequence": 2}, rights(*permissions, match=match))
    assert (status, "ada" in why) == (403, True)


@pytest.mark.parametrize(
    ("there", "not_there"), [({"sequence": 2}, {"sequence": 99}), ({"message_id": "m-1"}, {"message_id": "m"})]
)
def test_who_may_not_see_it_cannot_tell_it_from_one_that_there_is_not(
    world: World, there: dict[str, object], not_there: dict[str, object]
) -> None:
    elsewhere = rights("browse", match="other")
    assert ask(world, there)[0] == 200
    assert ask(world, there, elsewhere) == ask(world, not_there, elsewhere)
    assert ask(world, there, elsewhere)[0] == 404
    life = history(DATA, sequence=2, disk=world.disk)
    broker, later = FakeBroker(world), Later[History]()
    later.finish(replace(life, stopped="bytes"))
    broker.history = lambda asked, bytes_max: later  # type: ignore[method-assign]
    told: list[Any] = []
    read_history(ManagementRequest(broker, "ada", elsewhere, None, {"sequence": 2})).when_finished(told.append)  # type: ignore[arg-type]
    assert (told[0]["lives"], told[0]["hidden"]) == ([], 0)


def test_the_permission_for_a_subscription_is_that_of_its_address() -> None:
    world = World()
    client = world.client()
    client.subscriber("news", "sub", durable=True, credit=0)
    client.post_all(client.publisher("news"), durable(b"x"))
    assert [ask(world, {"sequence": 1}, rights("browse", match=match))[0] for match in ("news", "client")] == [200, 404]


@pytest.mark.parametrize(
    "body",
    [
        None,
        {},
        {"sequence": 0},
        {"sequence": True},
        {"sequence": "1"},
        {"sequence": 1, "message_id": "m-1"},
        {"duplicate_id": 1.5},
        {"message_id": -1},
        {"sequence": 1, "bytes_max": -1},
        [1],
    ],
    ids=repr,
)
def test_a_request_that_makes_no_sense_is_refused(world: World, body: object) -> None:
    assert ask(world, body)[0] == 400


def test_what_is_not_known_is_not_there(world: World) -> None:
    status, why = ask(world, {"sequence": 99})
    assert (status, "reaches back to segment 1" in why) == (404, True)


def test_what_was_not_read_to_the_end_is_not_complete(world: World) -> None:
    for found in (
        History((), 1, False, stopped="time", stopped_in=4),
        History(history(DATA, sequence=2, disk=world.disk).lives, 3, False, gone=(1, 2)),
        History(history(DATA, sequence=2, disk=world.disk).lives, 1, False, left_out=7),
        History(history(DATA, sequence=2, disk=world.disk).lives, 1, True),
    ):
        broker = FakeBroker(world)
        later = Later[History]()
        later.finish(found)
        broker.history = lambda asked, bytes_max, later=later: later  # type: ignore[method-assign, misc]
        request = ManagementRequest(broker, None, EVERYTHING, None, {"sequence": 2})  # type: ignore[arg-type]
        answers: list[Any] = []
        read_history(request).when_finished(answers.append)
        assert answers[0]["complete"] is False
        assert answers[0]["stopped_in_segment"] == (found.stopped_in or None)


def test_a_reader_of_a_non_destructive_queue_is_told_with_its_outcome() -> None:
    world, client = posted(
        "q", durable(b"x"), options=BrokerOptions(address=(AddressRule("q", {"non_destructive": True}),))
    )
    link = client.receiver("q", credit=1)
    world.settle()
    client.held(link)[0].settle(ACCEPTED)
    world.settle()
    (life,) = ask(world, {"sequence": 1})[1]["lives"]
    assert [(step["event"], step["origin"]) for step in life["steps"]] == [("posted", 0), ("read", 1)]
