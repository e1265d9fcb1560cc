"""Messages that wait for their delivery time: listed, cancelled, and still there after a restart."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

import pytest

from acquit.broker.admin import purging, schedule
from acquit.broker.admin.purging import STEP
from acquit.broker.admin.schedule import LISTED_MAX
from acquit.protocol.constants import ACCEPTED
from acquit.protocol.definitions import Modified, Source, Target
from acquit.protocol.message import Message
from acquit.protocol.types import ULong
from tests.support.broker_world import Client, World, durable, live_of, posted

DELAY_MS = 60_000


def later(body: object, message_id: object = None, delay_ms: int = DELAY_MS, **fields: object) -> Message:
    return durable(body, message_id=message_id, annotations={"x-opt-delivery-delay": delay_ms}, **fields)


def ask(client: Client, operation: str, body: object = None, name: str | None = "q") -> tuple[int, Any]:
    """Status and body of the management node's answer."""
    world = client.world
    answers = client.begun.attach_receiver("answers", source=Source("$management"), target=Target("me"))
    answers.grant(1)
    sender = client.sender("$management", "ask")
    properties = {"operation": operation, "type": "acquit:message"}
    if name is not None:
        properties["name"] = name
    client.post(sender, Message(body, message_id="1", reply_to="me", application_properties=properties))
    world.settle()
    answer = Message.decode(client.received[answers][-1].payload)
    answers.detach()
    sender.detach()
    world.settle()
    return answer.application_properties["statusCode"], answer.body  # type: ignore[return-value]


IDS = ["text", 7, UUID(int=5), b"octets"]


@pytest.mark.parametrize("restart", ["", "crash", "stop", "checkpoint"])
@pytest.mark.parametrize("message_id", IDS, ids=repr)
def test_a_scheduled_message_is_cancelled_by_its_id(message_id: object, restart: str) -> None:
    world = World()
    client = world.client()
    sender = client.sender("q")
    client.post(sender, later(b"cancelled", ULong(7) if message_id == 7 else message_id), later(b"kept", "other"))
    world.settle()
    if restart == "checkpoint":
        reader = client.receiver("busy", "busy", credit=1_000)
        busy = client.sender("busy", "b")
        for _ in range(40):
            client.post(busy, *(durable(bytes(5_000)) for _ in range(5)))
            world.settle()
            for delivery in client.received.pop(reader):
                delivery.settle(ACCEPTED)
        world.settle()
    if restart:
        world = world.stop() if restart == "stop" else world.crash()
        client = world.client()
    assert ask(client, "CANCEL", {"message_id": ULong(7) if message_id == 7 else message_id}) == (200, {"cancelled": 1})
    queue = world.core.snapshot().queue("q")
    assert queue is not None
    assert (queue.purged, queue.scheduled, queue.depth) == (1, 1, 1)
    world.check_journal()
    status, _ = ask(client, "CANCEL", {"message_id": ULong(7) if message_id == 7 else message_id})
    assert status == 404
    receiver = client.receiver("q", credit=5)
    world.advance(DELAY_MS)
    world.settle()
    assert client.bodies(receiver) == [b"kept"]


def test_what_waits_is_listed_in_order_and_by_pages() -> None:
    world = World()
    client = world.client()
    for number in range(5):
        client.post(client.sender("q", f"s{number}"), later(b"x" * number, f"id {number}", DELAY_MS - number))
    world.settle()
    status, answer = ask(client, "QUERY", {"limit": 3})
    assert status == 200
    names = answer["attributeNames"]
    assert names == ["sequence", "message_id", "due_at_ms", "posted_at_ms", "size_bytes", "waits_for"]
    rows = [dict(zip(names, row, strict=True)) for row in answer["results"]]
    assert [row["message_id"] for row in rows] == ["id 0", "id 1", "id 2"]
    now_ms = world.now_us // 1_000
    assert rows[1]["due_at_ms"] == now_ms + DELAY_MS - 1
    assert rows[1]["posted_at_ms"] == now_ms
    assert rows[1]["waits_for"] == "delivery-time"
    _, answer = ask(client, "QUERY", {"after": rows[-1]["sequence"]})
    assert [row[1] for row in answer["results"]] == ["id 3", "id 4"]


def test_by_sequence_and_all_of_them() -> None:
    world, client = posted("q", *(later(b"x", "same") for _ in range(4)), durable(b"at once", message_id="same"))
    sequences = sorted(world.core.queues.by_name["q"].scheduled)
    assert ask(client, "CANCEL", {"sequence": sequences[2]}) == (200, {"cancelled": 1})
    assert ask(client, "CANCEL", {"sequence": sequences[2]})[0] == 404
    assert ask(client, "CANCEL", {"message_id": "same"}) == (200, {"cancelled": 3})
    assert ask(client, "CANCEL", {"all": True}) == (200, {"cancelled": 0})
    client.post(client.sender("q", "again"), later(b"x"), later(b"y"))
    world.settle()
    assert ask(client, "CANCEL", {"all": True}) == (200, {"cancelled": 2})
    assert live_of(world, "q") == 1
    assert world.core.queues.by_name["q"].scheduled_ids == {}
    world.check_journal()


def test_what_waits_for_another_attempt_is_listed_and_not_cancelled() -> None:
    from acquit.broker.options import AddressRule, BrokerOptions

    world = World(BrokerOptions(address=(AddressRule("#", {"redelivery_delay_ms": 9_000}),)))
    client = world.client()
    receiver = client.receiver("q", credit=5)
    client.post(client.sender("q"), later(b"x", "it"))
    world.settle()
    world.advance(DELAY_MS)
    world.settle()
    client.received[receiver][0].settle(Modified(delivery_failed=True))
    world.settle()
    _, answer = ask(client, "QUERY")
    ((sequence, _, _, _, _, waits_for),) = answer["results"]
    assert waits_for == "redelivery"
    assert ask(client, "CANCEL", {"sequence": sequence})[0] == 404
    assert ask(client, "CANCEL", {"message_id": "it"})[0] == 404
    assert ask(client, "CANCEL", {"all": True}) == (200, {"cancelled": 0})
    world.check_journal()


@pytest.mark.parametrize(
    "body",
    [None, {}, {"sequence": "1"}, {"sequence": -1}, {"sequence": True}, {"message_id": None}, {"message_id": -1},
     {"message_id": 1.5}, {"all": False}, {"all": 1}, {"sequence": 1, "all": True}, [1], "all"],
    ids=repr,
)  # fmt: skip
def test_a_request_that_names_nothing_is_refused(body: object) -> None:
    world, client = posted("q", later(b"x"))
    assert ask(client, "CANCEL", body) == (400, None)
    assert live_of(world, "q") == 1


@pytest.mark.parametrize(
    "body", [{"limit": 0}, {"limit": LISTED_MAX + 1}, {"limit": "9"}, {"after": -1}, {"after": None}], ids=repr
)
def test_a_listing_has_bounds(body: Mapping[str, object]) -> None:
    _, client = posted("q", later(b"x"))
    assert ask(client, "QUERY", body)[0] == 400


def test_queues_that_are_not_there() -> None:
    client = World().client()
    assert ask(client, "QUERY", name="nowhere")[0] == 404
    assert ask(client, "CANCEL", {"all": True}, name=None)[0] == 400


def test_many_are_cancelled_over_some_turns() -> None:
    world = World()
    client = world.client()
    annotations = {"x-opt-delivery-delay": DELAY_MS}
    client.post_all(client.sender("q"), *(Message(b"", annotations=annotations) for _ in range(STEP + 500)))
    told: list[object] = []
    world.core.administration.cancel("q", None).when_finished(told.append)
    assert live_of(world, "q") == 500
    world.carry()
    assert live_of(world, "q") == 0
    assert told == [STEP + 500]


def test_it_is_said_although_all_of_it_is_durable_before_the_last_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("acquit.broker.admin.purging.STEP", 2)
    world, _ = posted("q", later(b"x"), later(b"y"))
    told: list[object] = []
    world.core.administration.cancel("q", None).when_finished(told.append)
    while world.sync():  # no turn in between
        pass
    assert told == []
    world.carry()
    assert told == [2]


def test_it_is_said_when_it_is_durable() -> None:
    world, _ = posted("q", later(b"x"))
    told: list[object] = []
    world.core.administration.cancel("q", None).when_finished(told.append)
    world.carry()
    assert (live_of(world, "q"), told) == (0, [])
    assert live_of(world.crash(), "q") == 1
    world.settle()
    assert told == [1]
    assert live_of(world.crash(), "q") == 0


def test_what_has_become_available_meanwhile_is_delivered_and_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(purging, "STEP", 1)
    world, client = posted("q", *[durable(n, annotations={"x-opt-delivery-delay": 60_000}) for n in range(3)])
    later = world.core.administration.cancel("q", None)
    world.now_us += 60_001_000  # the time has come before the second step
    world.core.tick(world.now_us)
    link = client.receiver("q", credit=10)
    world.settle()
    told: list[object] = []
    later.when_finished(told.append)
    assert told == [3 - len(client.bodies(link))]
    assert client.bodies(link)


def test_a_long_list_is_looked_through_in_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedule, "PASSED", 4)
    world, _ = posted("q", *[later(n) for n in range(10)])
    sequences = sorted(world.core.queues.by_name["q"].scheduled)
    listing = world.core.administration.scheduled("q", sequences[1], 3)
    told: list[list[int]] = []
    listing.when_finished(lambda found: told.append([one.sequence for one in found]))  # type: ignore[union-attr]
    turns = 0
    while world.core.administration.run():
        turns += 1
    assert (told, turns) == ([sequences[2:5]], 1)
