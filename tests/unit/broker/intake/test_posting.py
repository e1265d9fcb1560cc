"""What becomes of a posting that is refused: by every reason, in a transaction and out of one; and of one that the
broker is to know again, though no queue keeps it on the disk."""

from __future__ import annotations

import pytest

from acquit.broker.access.permissions import Permissions
from acquit.broker.intake.posting import TOGETHER_MIN
from acquit.broker.intake.reader import JMS_DESTINATION
from acquit.broker.links.endpoints import Producer
from acquit.broker.options import AddressRule, BrokerOptions
from acquit.broker.options.security import Role, Security, User
from acquit.protocol.costs import FAN_COST, FAN_FREE, PREDICTED_COST, RUN_FAN_COST, SINGLE_COST
from acquit.protocol.definitions import (
    Accepted,
    RcvSettleMode,
    Rejected,
    Source,
    Target,
    TransactionalState,
)
from acquit.protocol.extensions import RESUME, SENDER_MARK
from acquit.protocol.link import SendingLink
from acquit.protocol.message import Message
from acquit.protocol.types import Byte
from tests.support.broker_world import Client, World, durable, live_of
from tests.support.transacting import Controller
from tests.unit.broker.intake.test_marks import placed
from tests.unit.broker.links.test_termini import LASTING, resume_to

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
    "too large": (durable("x" * 1_000, to="small"), "amqp:link:message-size-exceeded"),
    "delayed until soon": (
        Message("x", to="good", annotations={"x-opt-delivery-delay": "soon"}),
        "amqp:invalid-field",
    ),
    "misspelt": (Message("x", to="good", annotations={"x-opt-delivery-dealy": 5}), "amqp:not-implemented"),
    "to no kind of destination": (Message("x", to="good", annotations={"x-opt-jms-dest": 7}), "amqp:invalid-field"),
    "to what is no number": (Message("x", to="good", annotations={"x-opt-jms-dest": "queue"}), "amqp:invalid-field"),
    "nonsense": (b"\x00\x53\x99\x40", "amqp:decode-error"),
}
CONDITIONS = {"full": REFUSED["full"][1], "small": REFUSED["too large"][1]}
"""By the address that has no room, and the one that never has."""
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
    client.world.make()
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
        assert client.detached[link].error.condition == CONDITIONS[address]
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


# -- what the broker is to know again ---------------------------------------------------------------------------------


def remembered(client: Client, way: str, tags: tuple[bytes, ...] = ()) -> SendingLink:
    """A sender to the topic "t", of which the broker remembers the delivery-tags or the mark."""
    topic = ("topic",)
    if way == "mark":
        return client.sender(None, target=Target("t", capabilities=topic), properties={SENDER_MARK: "query:0"})
    link = client.begun.attach_sender(
        "sender",
        source=Source("here"),
        target=Target("t", capabilities=topic, **LASTING),
        rcv_settle_mode=RcvSettleMode.SECOND,
        unsettled=dict.fromkeys(tags) or None,
        desired_capabilities=(RESUME,),
    )
    client.world.settle()
    return link


PLAIN: dict[str, object] = {}
ENDS: dict[str, object] = {"ttl_ms": 60_000}
FIELDS = {"plain": [PLAIN] * 3, "with an end": [ENDS] * 3, "both": [PLAIN, PLAIN, ENDS]}
"""Messages that come as a group, and such as come by themselves."""


@pytest.mark.parametrize("way", ["tags", "mark"])
@pytest.mark.parametrize("fields", FIELDS.values(), ids=FIELDS)
def test_what_is_to_be_known_again_is_answered_once_the_disk_knows_it(
    way: str, fields: list[dict[str, object]]
) -> None:
    """No subscription keeps it on the disk. It comes once, also to one that began after a crash."""
    world = World()
    world.client("reader").subscriber("t", "passing")
    client = world.client("sender")
    link = remembered(client, way)
    first, *messages = [placed(0, index, **one) for index, one in enumerate([fields[-1], *fields])]
    client.post_all(link, first)
    client.post_all(client.sender("elsewhere", "other"), durable("x"))
    client.post(client.sender("elsewhere", "another"), durable("x"))
    world.carry()
    earlier = world.core.scribe.take_batch()
    assert earlier is not None
    sent = client.post(link, *messages)
    world.carry()
    earlier.write_and_sync()
    world.core.synced(world.opened.journal.complete(earlier), world.now_us)
    world.carry()
    assert [one in client.answers for one in sent] == [False] * 3
    world.settle()
    assert [client.answers[one][0] for one in sent] == [Accepted()] * 3
    world = world.crash()
    world.client("reader").subscriber("t", "lasting", durable=True)
    client = world.client("sender")
    tags = tuple(one.tag for one in sent)
    link = remembered(client, way, tags)
    if way == "tags":
        assert link.remote_attach is not None
        assert link.remote_attach.unsettled == dict.fromkeys(tags, Accepted())
    else:
        client.post_all(link, *messages)
        assert [client.outcome(one) for one in client.answers] == [Accepted()] * 3
    (queue,) = (name for name in world.core.queues.by_name if name.startswith("t::"))
    assert live_of(world, queue) == 0
    world.check_journal()


@pytest.mark.parametrize("address", ["t", "q"])
@pytest.mark.parametrize("fields", [PLAIN, ENDS], ids=["plain", "with an end"])
@pytest.mark.parametrize("together", [False, True])
def test_a_volatile_message_is_accepted_with_the_durable_ones_below_it(
    address: str, fields: dict[str, object], together: bool
) -> None:
    """As *accepted* says of a mark, and what is above it alone as well."""
    world = World()
    world.client("reader").subscriber("t", "passing")
    client = world.client("sender")
    link = remembered(client, "mark") if address == "t" else client.sender("q", properties={SENDER_MARK: "query:0"})
    world.settle()
    client.post_all(link, placed(0, 0))  # so that the journal knows who sends
    sent = []
    for some in ([1, 2, 3],) if together else ([1], [2], [3]):
        sent += client.post(link, *[placed(0, number, durable=number == 1, **fields) for number in some])
        world.carry()
    assert [one in client.answers for one in sent] == [False] * 3
    world.settle()
    assert [client.outcome(one) for one in sent] == [Accepted()] * 3


@pytest.mark.parametrize(
    ("way", "settled", "lasts"), [("tags", True, True), ("tags", False, False), ("mark", True, True)]
)
@pytest.mark.parametrize("fields", FIELDS.values(), ids=FIELDS)
def test_what_nobody_is_to_hear_of_again_waits_for_nothing(
    way: str, fields: list[dict[str, object]], settled: bool, lasts: bool
) -> None:
    world = World()
    world.client("reader").subscriber("t", "passing")
    client = world.client("sender")
    link = remembered(client, way)
    world.settle()
    messages = [placed(0, index, durable=lasts, **one) for index, one in enumerate(fields)]
    sent = client.post(link, *messages, settled=settled)
    world.carry()
    assert not world.core.scribe._waiting
    assert [one in client.answers for one in sent] == [not settled] * 3


@pytest.mark.parametrize("fields", [PLAIN, ENDS], ids=["plain", "with an end"])
def test_who_waits_for_an_answer_gets_none_sooner_beside_what_is_settled(fields: dict[str, object]) -> None:
    world = World()
    world.client("reader").subscriber("t", "passing")
    client = world.client("sender")
    link = remembered(client, "tags")
    world.settle()
    client.post(link, placed(0, 0, **fields), settled=True)
    (sent,) = client.post(link, placed(0, 1, **fields))
    world.carry()
    assert sent not in client.answers
    world.settle()
    assert client.answers[sent] == (Accepted(), False)
    assert any(world.core.postings.counts)
    assert world.core.postings.counts[-1] == 0


def test_the_tag_of_what_repeats_what_is_on_the_disk_is_there_as_well() -> None:
    """Its repetition is recorded, though it would be in memory alone itself."""
    world = World()
    client = world.client("sender")
    first, again = (
        Message(b"x", durable=lasts, application_properties={"_AMQ_DUPL_ID": "d"}) for lasts in (True, False)
    )
    client.post_all(client.sender("q", "plain"), first)
    (sent,) = client.post(resume_to(client, None), again)
    world.settle()
    assert client.answers[sent] == (Accepted(), False)
    world = world.crash()
    attach = resume_to(world.client("sender"), {sent.tag: None}).remote_attach
    assert attach is not None
    assert attach.unsettled == {sent.tag: Accepted()}
    assert live_of(world, "q") == 1


def test_a_group_that_enters_before_its_mark_is_recorded_waits_for_the_batch_with_the_mark() -> None:
    """Not for the one that is being synced: a message that comes by itself ends the group within one read."""
    world = World()
    client = world.client("sender")
    link = client.sender("q", properties={SENDER_MARK: "query:0"})
    client.post_all(link, placed(0, 0, durable=False))
    client.post(client.sender("q", "other"), durable("x"))
    world.carry()
    earlier = world.core.scribe.take_batch()
    assert earlier is not None
    fields = [PLAIN, PLAIN, ENDS]
    sent = client.post(link, *[placed(0, number, durable=False, **one) for number, one in enumerate(fields, 1)])
    world.carry()
    earlier.write_and_sync()
    world.core.synced(world.opened.journal.complete(earlier), world.now_us)
    world.carry()
    assert [one in client.answers for one in sent] == [False] * 3
    world.settle()
    assert [client.outcome(one) for one in sent] == [Accepted()] * 3


# -- what it costs of a turn ------------------------------------------------------------------------------------------


def cost_of_next(client: Client, name: str) -> int:
    """What the next message on a link costs of a turn, if it looks like the one before."""
    (producer,) = (one for one in client.peer.links if isinstance(one, Producer) and one.link.name == name)
    return producer.link.predicted_cost


def test_what_is_taken_together_costs_less_of_a_turn() -> None:
    world = World(BrokerOptions(address=(AddressRule("lv", {"last_value": True}),)))
    client = world.client()
    plain, single = client.sender("q", "plain"), client.sender("lv", "single")
    assert cost_of_next(client, "plain") == cost_of_next(client, "single") == SINGLE_COST
    for message in (durable("x"), Message("x")):
        client.post_all(plain, *[message] * TOGETHER_MIN)
        client.post_all(single, *[message] * TOGETHER_MIN)
        assert (cost_of_next(client, "plain"), cost_of_next(client, "single")) == (PREDICTED_COST, SINGLE_COST)
    client.post_all(plain, durable("x", annotations={"x-opt-delivery-delay": 60_000}))
    assert cost_of_next(client, "plain") == SINGLE_COST
    client.post_all(plain, *[durable("x")] * (TOGETHER_MIN - 1))
    assert cost_of_next(client, "plain") == SINGLE_COST, "it may go on like that"
    client.post_all(plain, *[durable("x")] * TOGETHER_MIN)
    assert cost_of_next(client, "plain") == PREDICTED_COST
    world.settle()
    world.check_journal()


@pytest.mark.parametrize(("queues", "beyond"), [(FAN_FREE, 0), (FAN_FREE + 5, 5)])
def test_a_message_for_many_queues_costs_more_of_a_turn(queues: int, beyond: int) -> None:
    world = World()
    client = world.client()
    for number in range(queues):
        client.subscriber("t", f"subscriber-{number}")
    sender = client.publisher("t", "fan")
    assert cost_of_next(client, "fan") == SINGLE_COST + FAN_COST * beyond
    client.post_all(sender, Message("x", ttl_ms=1_000))
    assert cost_of_next(client, "fan") == SINGLE_COST + FAN_COST * beyond
    for message, cost in ((durable("x"), FAN_COST), (Message("x"), RUN_FAN_COST)):
        for _ in range(2):
            with world.in_one_read():
                client.post(sender, *[message] * TOGETHER_MIN)
            world.settle()
        assert cost_of_next(client, "fan") == PREDICTED_COST + cost * beyond
    anonymous = client.sender(None, "anonymous")
    client.post_all(anonymous, Message("x", to="t", annotations={JMS_DESTINATION: Byte(1)}))
    assert cost_of_next(client, "anonymous") == SINGLE_COST + FAN_COST * beyond


def test_a_message_costs_by_the_queues_that_the_one_before_went_to() -> None:
    world = World()
    client = world.client()
    for number in range(FAN_FREE + 5):
        client.subscriber("t.x" if number < FAN_FREE else "t.*", f"subscriber-{number}")
    wide = SINGLE_COST + FAN_COST * 5
    together, anonymous = client.publisher("t.x", "together"), client.sender(None, "anonymous")
    for _ in range(2):
        with world.in_one_read():
            client.post(together, *[durable("x")] * TOGETHER_MIN)
        world.settle()
    assert cost_of_next(client, "together") == PREDICTED_COST + FAN_COST * 5
    to_topic = Message("x", to="t.x", annotations={JMS_DESTINATION: Byte(1)})
    for other in (Message("x", to="q"), Message("x", to="t.*")):  # the latter is refused
        client.post_all(anonymous, to_topic)
        assert cost_of_next(client, "anonymous") == wide
        client.post_all(anonymous, other)
        assert cost_of_next(client, "anonymous") == SINGLE_COST
    control = Controller(client)
    control.post(anonymous, control.declare(), to_topic)
    assert cost_of_next(client, "anonymous") == wide


def test_what_a_transaction_holds_together_costs_less_of_a_turn() -> None:
    world = World()
    client = world.client()
    control, sender = Controller(client), client.sender("q", "plain")
    txn_id = control.declare()
    for _ in range(TOGETHER_MIN):
        control.post(sender, txn_id, durable("x"))
    assert cost_of_next(client, "plain") == SINGLE_COST
    with world.in_one_read():
        for _ in range(TOGETHER_MIN):
            control.post(sender, txn_id, durable("x"))
    assert cost_of_next(client, "plain") == PREDICTED_COST
