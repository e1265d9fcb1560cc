"""Control links: what may be asked, and how what goes wrong is told."""

from __future__ import annotations

import pytest

from acquit.broker.transact.coordinator import CAPABILITIES, CREDIT
from acquit.protocol.definitions import (
    Accepted,
    Coordinator,
    Declare,
    Declared,
    Discharge,
    Rejected,
    TransactionalState,
)
from acquit.protocol.events import DeliveriesReceived, Event, StatesReceived
from acquit.protocol.message import AmqpValue, Message
from tests.support.broker_world import Client, World, durable, live_of
from tests.support.transacting import Controller, control_message


@pytest.fixture
def client() -> Client:
    return World().client()


def test_what_it_can_do(client: Client) -> None:
    controller = Controller(client)
    answer = controller.link.remote_attach
    assert answer is not None
    assert isinstance(answer.target, Coordinator)
    assert set(answer.target.capabilities) == {
        "amqp:local-transactions",
        "amqp:multi-txns-per-ssn",
        "amqp:multi-ssns-per-txn",
    }
    assert set(CAPABILITIES) == set(answer.target.capabilities)
    assert controller.link.credit == CREDIT


def test_credit_comes_back(client: Client) -> None:
    controller = Controller(client)
    ids = set()
    for _ in range(3 * CREDIT):
        txn = controller.declare()
        ids.add(txn)
        assert controller.commit(txn) is None
    assert len(ids) == 3 * CREDIT


@pytest.mark.parametrize("fail", [True, False], ids=["rollback", "commit"])
def test_a_discharge_is_answered_before_what_it_makes_available_is_sent(
    client: Client, monkeypatch: pytest.MonkeyPatch, fail: bool
) -> None:
    world = client.world
    controller = Controller(client)
    client.post(client.sender("q"), durable(b"x"))
    receiver = client.receiver("q", credit=10)
    world.settle()
    heard: list[str] = []
    hear = client.hear

    def listen(events: list[Event]) -> None:
        for event in events:
            if isinstance(event, DeliveriesReceived):
                heard.append("message")
            elif isinstance(event, StatesReceived) and isinstance(event.state, Accepted):
                heard.append("answer")
        hear(events)

    monkeypatch.setattr(client, "hear", listen)
    txn = controller.declare()
    if fail:
        controller.retire(txn, *client.held(receiver))
    else:
        controller.post(client.sender("q", "second"), txn, durable(b"y"))
    heard.clear()
    controller.discharge(txn, fail=fail)
    world.settle()
    assert heard == ["answer", "message"]


def test_an_empty_transaction_leaves_nothing_in_the_journal(client: Client) -> None:
    controller = Controller(client)
    client.world.settle()
    end = client.world.opened.journal.end
    assert controller.commit(controller.declare()) is None
    controller.roll_back(controller.declare())
    assert client.world.opened.journal.end == end


@pytest.mark.parametrize(
    ("outcomes", "rejected"),
    [((), True), (("amqp:accepted:list", "amqp:rejected:list"), True), (("amqp:accepted:list",), False)],
)
def test_a_discharge_that_fails_says_so(client: Client, outcomes: tuple[str, ...], rejected: bool) -> None:
    controller = Controller(client, outcomes=outcomes)
    sender = client.sender(None)
    txn = controller.declare()
    controller.post(sender, txn, durable("a", to="q"))
    controller.post(sender, txn, durable("to nobody"), settled=True)
    sent = controller.discharge(txn)
    client.world.settle()
    if rejected:
        answer = client.outcome(sent)
        assert isinstance(answer, Rejected)
        error = answer.error
        assert controller.link not in client.detached
    else:
        error = client.detached[controller.link].error
    assert error is not None
    assert error.condition == "amqp:transaction:rollback"
    assert live_of(client.world, "q") == 0
    client.world.check_journal()


@pytest.mark.parametrize(
    ("payload", "condition"),
    [
        (Message(b"bytes").encode(), "amqp:decode-error"),
        (Message(AmqpValue("text")).encode(), "amqp:decode-error"),
        (control_message(Accepted()), "amqp:decode-error"),
        (control_message(Declare())[:-1], "amqp:decode-error"),
        (b"", "amqp:decode-error"),
        (control_message(Declare(global_id=b"xa")), "amqp:not-implemented"),
        (control_message(Discharge(bytes(16), True)), "amqp:transaction:unknown-id"),
        (control_message(Discharge(b"", False)), "amqp:transaction:unknown-id"),
    ],
)
def test_what_is_refused(client: Client, payload: bytes, condition: str) -> None:
    controller = Controller(client)
    (sent,) = client.post(controller.link, payload)
    client.world.settle()
    answer = client.outcome(sent)
    assert isinstance(answer, Rejected)
    assert answer.error is not None
    assert answer.error.condition == condition
    assert isinstance(client.outcome(controller.ask(Declare())), Declared)


def test_other_sections_are_ignored(client: Client) -> None:
    controller = Controller(client)
    header = Message(None, durable=True, ttl_ms=5, message_id="x").encode()
    body_at = header.index(b"\x00\x53\x77")
    (sent,) = client.post(controller.link, header[:body_at] + control_message(Declare()))
    client.world.settle()
    assert isinstance(client.outcome(sent), Declared)


@pytest.mark.parametrize("request_", [Declare(), Discharge(bytes(16), False)])
def test_a_settled_message_ends_the_link(client: Client, request_: object) -> None:
    """4.2, 4.3: its sender could not hear what became of it."""
    controller = Controller(client)
    controller.ask(request_, settled=True)
    error = client.detached[controller.link].error
    assert error is not None
    assert error.condition == "amqp:not-allowed"


def leave(controller: Controller, way: str) -> None:
    """End the control link in order, or what it stands on."""
    match way:
        case "detach":
            controller.link.detach(closed=True)
        case "end":
            controller.client.begun.end()
        case _:
            controller.client.engine.close()


WAYS = ("detach", "end", "close")


@pytest.mark.parametrize("lasting", [False, True], ids=["volatile", "durable"])
@pytest.mark.parametrize("way", WAYS)
def test_a_commit_in_one_read_with_the_end_is_a_commit(client: Client, way: str, lasting: bool) -> None:
    """It was sent unsettled, and asked for before the end."""
    world = client.world
    controller = Controller(client)
    sender, txn = client.sender("q"), controller.declare()
    controller.post(sender, txn, Message("x", durable=lasting))
    with world.in_one_read():
        controller.discharge(txn)
        leave(controller, way)
    world.settle()
    assert live_of(world, "q") == 1
    if lasting:
        assert live_of(world.crash(), "q") == 1
    world.check_journal()


@pytest.mark.parametrize("way", WAYS)
def test_what_is_refused_in_one_read_with_the_end_takes_nothing_along(client: Client, way: str) -> None:
    """The refusal would have been told as *rejected*, which ends no other transaction of the link."""
    world = client.world
    controller = Controller(client)
    sender, txn = client.sender("q"), controller.declare()
    controller.post(sender, txn, durable("x"))
    left = controller.declare()
    controller.post(sender, left, durable("rolled back"))
    with world.in_one_read():
        controller.discharge(b"unknown")
        controller.discharge(txn)
        leave(controller, way)
    world.settle()
    assert live_of(world, "q") == 1
    assert not len(world.core.transactions)


@pytest.mark.parametrize("fail", [True, False])
def test_a_discharge_in_the_middle_of_a_message_ends_the_link(client: Client, fail: bool) -> None:
    """4.4.1."""
    controller = Controller(client)
    other = Controller(client, "another")
    sender = client.sender("q")
    txn, kept = controller.declare(), other.declare()
    controller.post(sender, txn, durable("before"))
    large = sender.send(b"large", durable("x" * 200_000).encode(), state=TransactionalState(txn))
    assert not sender.sendable  # it goes out in pieces, in turns with other links
    controller.link.send(b"discharge", control_message(Discharge(txn, fail)))
    world = client.world
    data = client.engine.data_to_send()
    for part in (
        data[: client.server.options.max_frame_size + 500],
        data[client.server.options.max_frame_size + 500 :],
    ):
        world.core.handle(client.peer, client.server.receive_data(part, world.now_s), world.now_us)
    world.settle()
    error = client.detached[controller.link].error
    assert error is not None
    assert error.condition == "amqp:transaction:rollback"
    answer = client.outcome(large)
    assert isinstance(answer, Rejected)
    assert answer.error is not None
    assert answer.error.condition == "amqp:transaction:unknown-id"
    assert other.commit(kept) is None
    assert live_of(client.world, "q") == 0


def test_a_flow_that_acquires_in_a_transaction_is_not_implemented(client: Client) -> None:
    world = client.world
    controller = Controller(client)
    receiver = client.receiver("q")
    client.post_all(client.sender("q"), durable("a"))
    txn = controller.declare()
    receiver.grant(1, properties={"txn-id": txn})
    world.settle()
    error = client.detached[receiver].error
    assert error is not None
    assert error.condition == "amqp:not-implemented"
    assert world.core.queues.by_name["q"].available == 1
    assert controller.commit(txn) is None
