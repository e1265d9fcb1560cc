"""What becomes of a posting that is refused: by every reason, in a transaction and out of one."""

from __future__ import annotations

import pytest

from acquit.broker.access.permissions import Permissions
from acquit.broker.options import AddressRule, BrokerOptions
from acquit.broker.options.security import Role, Security, User
from acquit.protocol.definitions import Accepted, Rejected, Source, Target, TransactionalState
from acquit.protocol.link import SendingLink
from acquit.protocol.message import Message
from tests.support.broker_world import Client, World, durable, live_of
from tests.support.transacting import Controller

OPTIONS = BrokerOptions(
    address=(
        AddressRule("closed", {"create": False}),
        AddressRule("full", {"messages_max": 1, "full_policy": "reject"}),
        AddressRule("small", {"bytes_max": 200, "full_policy": "reject"}),
    )
)
SECURITY = Security(
    users={"ada": User(roles=("clerk",))},
    roles={"clerk": Role(send=("good", "full", "small", "closed"), create=("good", "full", "small"))},
)

REFUSED = {
    "unknown": (durable("x", to="closed"), "amqp:not-found"),
    "nowhere": (durable("x"), "amqp:not-found"),
    "forbidden": (durable("x", to="private"), "amqp:unauthorized-access"),
    "full": (durable("x", to="full"), "amqp:resource-limit-exceeded"),
    "too large": (durable("x" * 1_000, to="small"), "amqp:resource-limit-exceeded"),
    "delayed until soon": (
        Message("x", to="good", annotations={"x-opt-delivery-delay": "soon"}),
        "amqp:invalid-field",
    ),
    "misspelt": (Message("x", to="good", annotations={"x-opt-delivery-dealy": 5}), "amqp:not-implemented"),
    "to no kind of destination": (Message("x", to="good", annotations={"x-opt-jms-dest": 7}), "amqp:invalid-field"),
    "to what is no number": (Message("x", to="good", annotations={"x-opt-jms-dest": "queue"}), "amqp:invalid-field"),
    "nonsense": (b"\x00\x53\x99\x40", "amqp:decode-error"),
}
ENDING = {"settled": (True, ()), "without the outcome": (False, ("amqp:accepted:list",))}
"""How a sender says that it cannot be told *rejected*: it settled its message, or lists other outcomes."""


@pytest.fixture
def world() -> World:
    world = World(OPTIONS)
    world.core.permissions = Permissions(SECURITY)
    filling = world.client("client")
    filling.peer.rights = world.core.permissions.of("ada")
    filling.post_all(filling.sender("full"), durable("in"))
    return world


@pytest.fixture
def client(world: World) -> Client:
    client = world.client()
    client.peer.rights = world.core.permissions.of("ada")
    return client


def attach(client: Client, address: str | None = None, outcomes: tuple[str, ...] = ()) -> SendingLink:
    link = client.begun.attach_sender("posting", source=Source("here", outcomes=outcomes), target=Target(address))
    assert isinstance(link, SendingLink)
    client.world.carry()
    return link


def send(client: Client, link: SendingLink, message: Message | bytes, txn: bytes | None, settled: bool) -> object:
    payload = message if isinstance(message, bytes) else message.encode()
    state = None if txn is None else TransactionalState(txn)
    delivery = link.send(b"the tag", payload, settled=settled, state=state)
    client.world.settle()
    return delivery


@pytest.mark.parametrize("in_transaction", [False, True])
@pytest.mark.parametrize("why", REFUSED)
def test_the_anonymous_terminus_rejects_with_the_delivery_that_it_is_about(
    world: World, client: Client, why: str, in_transaction: bool
) -> None:
    message, condition = REFUSED[why]
    txn = Controller(client).declare() if in_transaction else None
    link = attach(client)
    sent = send(client, link, message, txn, settled=False)
    outcome, settled = client.answers[sent]
    if in_transaction:
        assert isinstance(outcome, TransactionalState)
        assert outcome.txn_id == txn
        outcome = outcome.outcome
    assert isinstance(outcome, Rejected)
    assert outcome.error is not None
    assert (outcome.error.condition, outcome.error.info) == (condition, {"delivery-tag": b"the tag"})
    assert settled
    assert not client.detached


@pytest.mark.parametrize("ending", ENDING)
@pytest.mark.parametrize("in_transaction", [False, True])
@pytest.mark.parametrize("why", REFUSED)
def test_it_ends_the_link_of_a_sender_that_cannot_be_told(
    world: World, client: Client, why: str, in_transaction: bool, ending: str
) -> None:
    message, condition = REFUSED[why]
    settled, outcomes = ENDING[ending]
    controller = Controller(client) if in_transaction else None
    txn = None if controller is None else controller.declare()
    link = attach(client, outcomes=outcomes)
    sent = send(client, link, message, txn, settled)
    error = client.detached[link].error
    assert error is not None
    assert (error.condition, error.info) == (condition, {"delivery-tag": b"the tag"})
    assert sent not in client.answers
    assert client.ended is None
    if controller is not None:
        failed = controller.commit(txn)
        assert failed is not None
        assert failed.condition == "amqp:transaction:rollback"


@pytest.mark.parametrize("in_transaction", [False, True])
@pytest.mark.parametrize("outcomes", [(), ("amqp:rejected:list",), ("amqp:accepted:list",)])
@pytest.mark.parametrize("address", ["full", "small"])
def test_a_link_to_an_address_is_told_by_the_same_rule(
    world: World, client: Client, address: str, outcomes: tuple[str, ...], in_transaction: bool
) -> None:
    controller = Controller(client) if in_transaction else None
    txn = None if controller is None else controller.declare()
    link = attach(client, address, outcomes)
    message = durable("x" * 1_000)
    sent = send(client, link, message, txn, settled=False)
    if outcomes == ("amqp:accepted:list",):
        assert client.detached[link].error.condition == "amqp:resource-limit-exceeded"
        assert sent not in client.answers
        assert controller is None or controller.commit(txn) is not None
    else:
        outcome = client.answers[sent][0]
        assert isinstance(outcome.outcome if in_transaction else outcome, Rejected)
        assert link not in client.detached
        assert controller is None or controller.commit(txn) is None
    assert live_of(world, address) == (address == "full")


@pytest.mark.parametrize("in_transaction", [False, True])
@pytest.mark.parametrize("earlier", [[], [b"\x00\x53\x75\xa0\x01x"]])
def test_a_message_of_no_bytes_is_refused(
    world: World, client: Client, earlier: list[bytes], in_transaction: bool
) -> None:
    """3.2: a message is sections. `earlier`: what its link has learned the look of messages from."""
    txn = Controller(client).declare() if in_transaction else None
    link = attach(client, "good")
    client.post(link, *earlier)
    sent = send(client, link, b"", txn, settled=False)
    outcome = client.answers[sent][0]
    outcome = outcome.outcome if isinstance(outcome, TransactionalState) else outcome
    assert isinstance(outcome, Rejected)
    assert outcome.error is not None
    assert outcome.error.condition == "amqp:decode-error"
    assert live_of(world, "good") == len(earlier)
    assert link not in client.detached


def test_a_message_without_a_body_is_taken(world: World, client: Client) -> None:
    """Some clients send nothing but properties, and every broker takes it."""
    link = attach(client, "good")
    sent = send(client, link, b"\x00\x53\x73\xc0\x04\x01\xa1\x01a", None, settled=False)
    assert client.outcome(sent) == Accepted()
