"""Where the management node's answers go."""

from __future__ import annotations

import pytest

from acquit.broker.access.permissions import Permissions
from acquit.broker.admin.management_node import RequestLink
from acquit.broker.options import AddressRule, BrokerOptions, ConnectionLimits, Role, Security, User
from acquit.protocol.constants import ACCEPTED
from acquit.protocol.definitions import Rejected, Source, Target
from acquit.protocol.delivery import Delivery
from acquit.protocol.link import ReceivingLink, SendingLink
from acquit.protocol.message import Message
from tests.support.broker_world import Client, World, durable, live_of, posted
from tests.support.transacting import Controller

MANAGER = Security(
    users={"ada": User(roles=("r",))},
    roles={"r": Role(manage=("#",), create=("#",), send=("mine",), consume=("#",), browse=("#",))},
)


def replies_to(client: Client, *, credit: int = 50) -> ReceivingLink:
    """A link from a node made for it, as clients have for answers."""
    link = client.begun.attach_receiver("replies", source=Source(dynamic=True), target=Target())
    assert isinstance(link, ReceivingLink)
    link.grant(credit)
    client.world.carry()
    return link


def address_of(link: ReceivingLink) -> str:
    assert link.source is not None
    return str(link.source.address)


def ask(
    client: Client, link: SendingLink, reply_to: str, operation: str = "READ", name: str = "q", **fields: object
) -> Delivery:
    message = Message(
        None,
        reply_to=reply_to,
        application_properties={"operation": operation, "type": "acquit:queue", "name": name},
        **fields,  # type: ignore[arg-type]
    )
    (sent,) = client.post(link, message)
    return sent


def refusal(client: Client, sent: Delivery) -> str:
    outcome = client.outcome(sent)
    assert isinstance(outcome, Rejected), outcome
    assert outcome.error is not None
    return str(outcome.error.condition)


def rights(world: World, client: Client) -> None:
    client.peer.rights = Permissions(MANAGER).of("ada")


def test_answers_come_to_a_node_made_for_them() -> None:
    world, client = posted("q", durable(1))
    replies = replies_to(client)
    requests = client.sender("$management", "requests")
    sent = ask(client, requests, address_of(replies), correlation_id="17", message_id="other")
    ask(client, requests, address_of(replies), "PURGE", message_id="18")
    ask(client, requests, address_of(replies), "CREATE", name="new", message_id="19")
    world.settle()
    assert client.outcome(sent) == ACCEPTED
    answers = [Message.decode(delivery.payload) for delivery in client.received[replies]]
    assert [(one.correlation_id, one.application_properties["statusCode"]) for one in answers] == [
        ("17", 200),
        ("18", 200),
        ("19", 201),
    ]
    assert answers[1].body == {"purged": 1}
    assert not any(one.durable for one in answers)


def test_each_request_is_a_turn() -> None:
    """A connection may send sixteen at once, and each may be long."""
    world = World()
    client = world.client()
    client.sender("$management", "asks")
    (asking,) = [found for found in client.peer.links if isinstance(found, RequestLink)]
    assert asking.link.predicted_cost > ConnectionLimits().turn_cost_max


def test_an_answer_that_waits_for_the_disk_waits_for_it_on_this_way_too() -> None:
    world, client = posted("q", durable(1))
    replies = replies_to(client)
    requests = client.sender("$management", "requests")
    world.settle()
    ask(client, requests, address_of(replies), "PURGE")
    world.carry()
    assert replies not in client.received
    world.settle()
    assert len(client.received[replies]) == 1


def test_who_has_a_node_for_answers_needs_no_permission_to_send_there() -> None:
    world = World()
    client, other = world.client("one"), world.client("two")
    client.post_all(client.sender("q"), durable(1))
    client.post_all(client.sender("mine", "to mine"), durable("before"))
    replies, foreign = replies_to(client), replies_to(other)
    requests = client.sender("$management", "requests")
    rights(world, client)
    own = ask(client, requests, address_of(replies))
    permitted = ask(client, requests, "mine")
    refused = [ask(client, requests, address, "PURGE") for address in (address_of(foreign), "q")]
    world.settle()
    assert client.outcome(own) == client.outcome(permitted) == ACCEPTED
    assert [refusal(client, sent) for sent in refused] == ["amqp:unauthorized-access"] * 2
    assert (len(client.received[replies]), live_of(world, "mine"), live_of(world, "q")) == (1, 2, 1)
    assert foreign not in other.received


def test_who_may_not_send_there_does_not_learn_whether_a_reply_to_is_there() -> None:
    world, client = posted("q", durable(1))
    client.publisher("t", "to t")
    requests = client.sender("$management", "requests")
    rights(world, client)
    told = {}
    for reply_to in ("q", "t", "nowhere", "mine"):
        sent = ask(client, requests, reply_to, "PURGE")
        world.settle()
        told[reply_to] = refusal(client, sent)
    assert told == {
        **dict.fromkeys(("q", "t", "nowhere"), "amqp:unauthorized-access"),
        "mine": "amqp:precondition-failed",
    }
    assert live_of(world, "q") == 1


def test_no_queue_is_made_for_an_answer_and_subscriptions_are_none() -> None:
    world = World()
    client = world.client()
    client.subscriber("t", "s", durable=True)
    client.sender("q")
    requests = client.sender("$management", "requests")
    subscription = next(queue.name for queue in world.core.queues.by_name.values() if queue.subscription is not None)
    for reply_to in ("nowhere", "t", subscription, "$management", ""):
        sent = ask(client, requests, reply_to, "DELETE")
        world.settle()
        assert refusal(client, sent) == "amqp:precondition-failed", reply_to
    assert "q" in world.core.queues.by_name
    assert "nowhere" not in world.core.queues.by_name


def test_nothing_is_done_where_the_answer_finds_no_room() -> None:
    world, client = posted(
        "q",
        durable(1),
        options=BrokerOptions(address=(AddressRule("answers", {"messages_max": 2, "full_policy": "reject"}),)),
    )
    client.post_all(client.sender("answers", "to answers"), durable(1))
    requests = client.sender("$management", "requests")
    first, second = ask(client, requests, "answers"), ask(client, requests, "answers", "PURGE")
    world.settle()
    assert client.outcome(first) == ACCEPTED
    assert refusal(client, second) == "amqp:resource-limit-exceeded"
    assert (live_of(world, "answers"), live_of(world, "q")) == (2, 1)


def test_an_answer_whose_queue_has_gone_meanwhile_is_nobodys() -> None:
    world, client = posted("q", durable(1))
    replies = replies_to(client)
    requests = client.sender("$management", "requests")
    world.settle()
    ask(client, requests, address_of(replies), "PURGE")
    world.carry()
    client.detach(replies)
    world.settle()
    assert address_of(replies) not in world.core.queues.by_name
    assert live_of(world, "q") == 0


def test_answers_that_queues_are_to_get_later_are_bounded() -> None:
    world = World()
    world.core._management.requests_max = 2
    client = world.client()
    client.sender("q")
    replies = replies_to(client)
    requests = client.sender("$management", "requests")
    world.settle()
    sent = [ask(client, requests, address_of(replies), "CREATE", name=f"new.{number}") for number in range(3)]
    world.carry()
    assert refusal(client, sent[2]) == "amqp:resource-limit-exceeded"
    assert "new.2" not in world.core.queues.by_name
    world.settle()
    assert len(client.received[replies]) == 2
    last = ask(client, requests, address_of(replies))
    world.settle()
    assert client.outcome(last) == ACCEPTED


@pytest.mark.parametrize("settled", [False, True], ids=["unsettled", "settled"])
@pytest.mark.parametrize("ends", ["commits", "rolls back"])
def test_nothing_is_done_in_a_transaction_which_cannot_be_committed_then(settled: bool, ends: str) -> None:
    world, client = posted("q", durable(1))
    replies, controller = replies_to(client), Controller(client)
    requests, sender = client.sender("$management", "requests"), client.sender("other", "to other")
    world.settle()
    txn_id = controller.declare()
    controller.post(sender, txn_id, durable(2))
    purge = Message(
        None,
        reply_to=address_of(replies),
        application_properties={"operation": "PURGE", "type": "acquit:queue", "name": "q"},
    )
    (sent,) = controller.post(requests, txn_id, purge, settled=settled)
    world.settle()
    assert settled or refusal(client, sent) == "amqp:not-implemented"
    if ends == "commits":
        error = controller.commit(txn_id)
        assert error is not None
        assert str(error.condition) == "amqp:transaction:rollback"
        assert "$management" in str(error.description)
    else:
        controller.roll_back(txn_id)
    assert (live_of(world, "q"), live_of(world, "other")) == (1, 0)
    assert replies not in client.received
    ask(client, requests, address_of(replies), "PURGE")
    world.settle()
    assert live_of(world, "q") == 0, "outside a transaction it is performed as ever"


def test_a_request_in_a_transaction_that_there_is_not_is_refused_alike() -> None:
    world, client = posted("q", durable(1))
    replies, controller = replies_to(client), Controller(client)
    requests = client.sender("$management", "requests")
    world.settle()
    (sent,) = controller.post(requests, b"none", durable(None, reply_to=address_of(replies)))
    world.settle()
    assert refusal(client, sent) == "amqp:not-implemented"
