"""Who may do what, where: the rights by themselves, and as links of a broker meet them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acquit.broker.access.permissions import KNOWN_MAX, Permissions, build_permissions
from acquit.broker.configuration import parse_options
from acquit.broker.nodes.addresses import matches
from acquit.broker.options import PERMISSIONS, BrokerOptions, Role, Security, User
from acquit.errors import ConfigurationError
from acquit.protocol.definitions import Accepted, AmqpCondition, Rejected, Source, Target
from acquit.protocol.extensions import EXISTING, PORTION_FILTER
from acquit.protocol.link import Link
from acquit.protocol.message import Message
from acquit.protocol.types import Described, Symbol, UInt, ULong
from tests.support.broker_world import Client, World
from tests.support.transacting import Controller

SECURITY = Security(
    users={
        "ada": User(roles=("clerk", "auditor")),
        "bob": User(roles=("clerk",)),
        "eve": User(),
    },
    roles={
        "clerk": Role(send=("orders.#",), consume=("orders.new",), create=("orders.*",)),
        "auditor": Role(browse=("#",), consume=("audit",)),
        "anonymous": Role(send=("inbox",), create=("inbox",)),
    },
)


@pytest.mark.promise("access")
@pytest.mark.parametrize(
    ("user", "permission", "address", "allowed"),
    [
        ("ada", "send", "orders", True),
        ("ada", "send", "orders.eu.urgent", True),
        ("ada", "send", "orders.eu::orders.eu", True),
        ("ada", "send", "invoices", False),
        ("ada", "send", "invoices::orders", False),
        ("ada", "browse", "anything.at.all", True),
        ("ada", "consume", "audit", True),
        ("bob", "consume", "audit", False),
        ("bob", "browse", "orders.new", False),
        ("bob", "create", "orders.eu", True),
        ("bob", "create", "orders.eu.urgent", False),
        ("bob", "delete", "orders.new", False),
        ("eve", "send", "orders", False),
        ("mallory", "send", "orders", False),
        (None, "send", "inbox", True),
        (None, "consume", "inbox", False),
    ],
)
def test_rights(user: str | None, permission: str, address: str, allowed: bool) -> None:
    rights = Permissions(SECURITY).of(user)
    for _ in range(2):  # the answer that is kept is the answer
        assert rights.may(permission, address) is allowed
        assert (rights.refusal(permission, address) is None) is allowed


@pytest.mark.parametrize(
    ("pattern", "covered", "not_covered"),
    [
        ("#", ["a", "a.b", "#", "*", "a.#.b", "*.*"], []),
        ("*", ["a", "*"], ["#", "a.b", "*.*", "a.*", "a.#"]),
        ("a.*", ["a.b", "a.*"], ["a", "a.#", "*.b", "#", "*.*", "a.*.*", "#.b"]),
        ("a.#", ["a", "a.b", "a.*", "a.#", "a.*.c.#"], ["#", "*", "*.b", "b", "#.a"]),
        ("#.b", ["b", "a.b", "*.b", "#.b", "b.b"], ["#", "b.#", "b.*", "a.*"]),
        ("a.#.b.*", ["a.b.c", "a.#.b.c", "a.x.b.b.*"], ["a.b", "a.#.b", "a.#.b.#", "a.b.#"]),
    ],
)
def test_a_pattern_that_is_subscribed_to_must_be_covered_whole(
    pattern: str, covered: list[str], not_covered: list[str]
) -> None:
    """Or a role for one word would be one for all that can be said with more."""
    for address in covered:
        assert matches(pattern, address), address
    for address in not_covered:
        assert not matches(pattern, address), address


WORDS = st.lists(st.sampled_from(["a", "b", "*", "#"]), min_size=1, max_size=4).map(".".join)
PLAIN_WORDS = st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=5).map(".".join)


@settings(max_examples=500)
@given(WORDS, WORDS, PLAIN_WORDS)
def test_what_is_covered_gives_no_more(pattern: str, subscribed: str, address: str) -> None:
    if matches(pattern, subscribed) and matches(subscribed, address):
        assert matches(pattern, address)


def test_a_refusal_says_who_what_and_where() -> None:
    permissions = Permissions(SECURITY)
    assert permissions.of("eve").refusal("send", "orders") == (
        "'eve' may not send at orders: no role gives the permission"
    )
    assert "who comes in anonymously may not" in str(permissions.of(None).refusal("manage", "x"))
    assert len(str(permissions.of("eve").refusal("send", "x" * 5_000))) < 300


@pytest.mark.parametrize(
    ("owner", "user", "address", "refused"),
    [
        (None, "ada", "orders", False),
        ("ada", "ada", "orders", False),
        ("eve", "ada", "orders", True),
        ("eve", "ada", "managed::eve/audit", False),
        ("eve", None, "orders", True),
    ],
)
def test_what_another_user_subscribed_to_is_for_who_manages_it(
    owner: str | None, user: str | None, address: str, refused: bool
) -> None:
    rights = Permissions(
        Security(users={"ada": User(roles=("r",))}, roles={"r": Role(browse=("#",), manage=("managed",))})
    ).of("ada")
    assert (rights.refusal_of_others(owner, user, address) is not None) == refused


def test_without_roles_everybody_may_do_everything() -> None:
    permissions = build_permissions(Security(users={"ada": User()}))
    for user in ("ada", "mallory", None):
        assert permissions.of(user).unlimited
        assert all(permissions.of(user).may(permission, "anywhere") for permission in PERMISSIONS)
        assert permissions.of(user).everywhere("manage")


def test_no_role_for_those_who_come_in_anonymously() -> None:
    rights = Permissions(Security(roles={"clerk": Role(send=("#",))})).of(None)
    assert not any(rights.may(permission, "anywhere") for permission in PERMISSIONS)


def test_a_role_that_there_is_not() -> None:
    with pytest.raises(ConfigurationError, match=r"^users\.ada\.roles: no role 'cleric'; there are clerk$"):
        Permissions(Security(users={"ada": User(roles=("cleric",))}, roles={"clerk": Role()}))
    with pytest.raises(ConfigurationError, match="there are no roles at all"):
        Permissions(Security(users={"ada": User(roles=("cleric",))}))


def test_a_pattern_that_is_none() -> None:
    with pytest.raises(ConfigurationError, match=r"^send: expected words between dots.*'orders#'"):
        Role(send=("orders", "orders#"))


def test_answers_are_kept_within_a_bound() -> None:
    rights = Permissions(SECURITY).of("ada")
    for number in range(3 * KNOWN_MAX):
        assert rights.may("send", f"orders.{number}")
    assert len(rights._known) <= KNOWN_MAX


def test_rights_that_are_the_same() -> None:
    one, other = Permissions(SECURITY), Permissions(SECURITY)
    assert one.of("bob") == other.of("bob")
    assert one.of("bob") != other.of("ada")
    assert one.of("mallory") == other.of("trudy"), "neither has any"


def test_from_a_file() -> None:
    options = parse_options(
        """
        [roles.clerk]
        send = ["orders.#"]

        [users.ada]
        password = "x"
        roles = ["clerk"]
        """
    )
    rights = build_permissions(options.security).of("ada")
    assert rights.may("send", "orders.eu") and not rights.may("consume", "orders.eu")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[roles.r]\nsend = 'orders'", r"security.roles.*r.*send: expected a list of texts, found 'orders'"),
        ("[roles.r]\nsend = [1]", r"send.*: expected a text, found 1"),
        ("[roles.r]\nfly = ['x']", r"fly: no such key; there are send, consume"),
        ("[roles.r]\nsend = ['a..b']", r"send: expected words between dots"),
        ("[users.ada]\nroles = 'clerk'", r"roles: expected a list of texts"),
    ],
)
def test_mistakes_in_a_file(text: str, complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=complaint):
        parse_options(text)


# -- links


def world_of(**permissions: tuple[str, ...]) -> World:
    """A broker where whoever comes in, anonymously as all do there, has these permissions."""
    return World(BrokerOptions(security=Security(roles={"anonymous": Role(**permissions)})))


def refused(client: Client, link: Link) -> str:
    """What the link was detached with."""
    error = client.detached[link].error
    assert error is not None
    assert error.condition == "amqp:unauthorized-access"
    return str(error.description)


@pytest.mark.promise("access")
def test_a_sender_needs_send_and_where_there_is_nothing_create() -> None:
    world = world_of(send=("orders.#",), create=("orders.new",))
    client = world.client()
    allowed = client.sender("orders.new", "allowed")
    assert "may not send at invoices" in refused(client, client.sender("invoices", "nowhere"))
    assert "may not create at orders.old" in refused(client, client.sender("orders.old", "no queue"))
    assert list(world.core.queues.by_name) == ["orders.new"]
    client.post_all(allowed, Message(b"others are not affected"))
    assert allowed not in client.detached


@pytest.mark.promise("access")
def test_a_receiver_needs_consume_or_browse() -> None:
    world = world_of(send=("q", "r"), create=("q", "r"), consume=("q",), browse=("r",))
    client = world.client()
    for address in "qr":
        client.post_all(client.sender(address, f"to {address}"), Message(address))
    taking, looking = client.receiver("q", "taking", credit=5), client.receiver("r", "looking", credit=5, browse=True)
    assert "may not browse at q" in refused(client, client.receiver("q", "browser", browse=True))
    assert "may not consume at r" in refused(client, client.receiver("r", "consumer"))
    world.settle()
    assert (client.bodies(taking), client.bodies(looking)) == (["q"], ["r"])


@pytest.mark.promise("access")
def test_each_message_on_the_anonymous_terminus_is_judged_by_itself() -> None:
    world = world_of(send=("q",), create=("q",))
    client = world.client()
    link = client.sender(None)
    there, elsewhere, again = client.post(
        link, Message(b"1", to="q", durable=True), Message(b"2", to="r"), Message(b"3", to="q")
    )
    world.settle()
    refusal = client.outcome(elsewhere)
    assert isinstance(refusal, Rejected) and refusal.error is not None
    assert refusal.error.condition == "amqp:unauthorized-access"
    assert "may not send at r" in str(refusal.error.description)
    assert isinstance(client.outcome(there), Accepted) and isinstance(client.outcome(again), Accepted)
    assert link not in client.detached
    client.post(link, Message(b"4", to="r"), settled=True)
    world.settle()
    assert "may not send at r" in refused(client, link), "nobody waits for its answer"


def test_where_the_broker_itself_sends_needs_no_permission() -> None:
    world = world_of(send=("q",), create=("q",), consume=("q",))
    client = world.client()
    client.post_all(client.sender("q"), Message(b"x", durable=True))
    receiver = client.receiver("q", credit=1)
    world.settle()
    client.held(receiver)[0].settle(Rejected())
    world.settle()
    assert world.core.queues.by_name["DLQ"].live == 1


def test_a_subscriber_needs_consume_for_all_it_subscribes_to() -> None:
    world = world_of(consume=("news.*",), create=("news.#",), send=("news.#",))
    client = world.client()
    allowed = [client.subscriber(topic, topic) for topic in ("news.eu", "news.*")]
    for topic in ("news", "news.#", "#", "sport"):
        link = client.subscriber(topic, f"refused {topic}")
        assert f"may not consume at {topic}" in refused(client, link)
    client.post(client.publisher("news.eu", "eu"), Message("x"))
    client.post(client.publisher("news.eu.fr", "fr"), Message("y"))
    world.settle()
    assert [client.bodies(link) for link in allowed] == [["x"], ["x"]]
    assert "may not send at sport" in refused(client, client.publisher("sport", "sports"))


def test_a_qualified_name_needs_what_its_address_needs() -> None:
    world = world_of(consume=("news",), create=("news",))
    client = world.client()
    client.subscriber("news", "one", durable=True)
    name = "news::client/one"
    assert "may not browse at news" in refused(client, client.receiver(name, "browser", browse=True))
    assert "may not send at news" in refused(client, client.sender(name, "sender"))
    assert "may not consume at sport" in refused(client, client.receiver("sport::client/one", "elsewhere"))


@pytest.mark.promise("access")
def test_nobody_ends_a_subscription_that_they_may_not_consume_from() -> None:
    """Names of containers and subscriptions are what a client says. Who takes another's ends it at its old address."""
    world = World()
    owner = world.client("app")
    link = owner.subscriber("secret", "durable", durable=True)
    owner.detach(link, closed=False)
    owner.post(owner.publisher("secret"), Message("kept", durable=True))
    world.settle()
    owner.close()

    thief = world.client("app")
    thief.peer.rights = Permissions(Security(roles={"anonymous": Role(consume=("public",), create=("public",))})).of(
        None
    )
    taking_over = thief.subscriber("public", "durable", durable=True)
    told = refused(thief, taking_over)
    assert "may not consume from the subscription 'durable'" in told
    ending = thief.subscriber(None, "durable")
    assert refused(thief, ending) == told
    assert "secret" not in told
    assert world.core.queues.by_name["secret::app/durable"].live == 1


def test_who_may_create_may_have_a_node_made_and_use_it() -> None:
    world = world_of(create=("temporary.queue.*",))
    client = world.client()
    link = client.begun.attach_receiver("own", source=Source(None, dynamic=True), target=Target("here"))
    link.grant(1)
    world.carry()
    address = link.source.address
    assert address.startswith("temporary.queue.")
    assert f"may not send at {address}" in refused(client, client.sender(address))
    topic = client.sender(None, "topic", target=Target(None, dynamic=True, capabilities=("topic",)))
    assert "may not create at temporary.topic." in refused(client, topic)

    other = world.client("other")
    other.peer.rights = Permissions(Security(roles={"anonymous": Role(send=("temporary.queue.*",))})).of(None)
    other.post(other.sender(address), Message("answer"))
    world.settle()
    assert client.bodies(link) == ["answer"]


@pytest.mark.parametrize("address", ["orders", None], ids=["link", "anonymous terminus"])
@pytest.mark.parametrize("roles", [{}, {"all": Role(send=("#",), create=("#",))}], ids=["without roles", "with roles"])
def test_a_message_says_no_other_user_than_who_sends_it(roles: dict[str, Role], address: str | None) -> None:
    users = {
        "ada": User(roles=tuple(roles)),
        "bridge": User(roles=tuple(roles), any_user_id=True),
    }
    world = World(BrokerOptions(security=Security(users=users, roles=roles)))
    for user, user_id, taken in (
        ("ada", b"ada", True),
        ("ada", None, True),
        ("ada", b"eve", False),
        ("bridge", b"eve", True),
    ):
        client = world.client(f"{user}-{user_id!r}", user=user)
        message = Message("x", message_id="1", user_id=user_id, to="orders", durable=True)
        (delivery,) = client.post(client.sender(address), message)
        world.settle()
        outcome = client.outcome(delivery)
        assert isinstance(outcome, Accepted) == taken, (user, user_id)
        if not taken:
            assert isinstance(outcome, Rejected)
            assert outcome.error is not None and outcome.error.condition == AmqpCondition.UNAUTHORIZED_ACCESS


@pytest.mark.promise("access")
@pytest.mark.parametrize("address", ["orders", None], ids=["link", "anonymous terminus"])
def test_nor_in_a_transaction(address: str | None) -> None:
    world = World(BrokerOptions(security=Security(users={"ada": User()})))
    client = world.client(user="ada")
    controller = Controller(client)
    txn_id = controller.declare()
    sender = client.sender(address)
    good, bad = controller.post(
        sender, txn_id, *(Message("x", user_id=user_id, to="orders", durable=True) for user_id in (b"ada", b"eve"))
    )
    world.settle()
    assert isinstance(controller.provisional(good), Accepted)
    refusal = controller.provisional(bad)
    assert isinstance(refusal, Rejected)
    assert refusal.error is not None and refusal.error.condition == AmqpCondition.UNAUTHORIZED_ACCESS
    assert controller.commit(txn_id) is None
    receiver = client.receiver("orders", credit=5)
    world.settle()
    assert client.bodies(receiver) == ["x"]


@pytest.mark.parametrize("mode", [None, "copy"])
@pytest.mark.parametrize("address", ["there", "nowhere"])
def test_who_has_no_rights_does_not_learn_what_is_there(address: str, mode: str | None) -> None:
    """A link to an existing node only (`EXISTING`) is told the same of one that is there and one that is not."""
    world = world_of(send=("there",), create=("there",))
    client = world.client()
    client.sender("there")
    link = client.begun.attach_receiver(
        "curious", source=Source(address, distribution_mode=mode, capabilities=(EXISTING,)), target=Target()
    )
    world.settle()
    assert f"at {address}" in refused(client, link)


@pytest.mark.promise("access")
@pytest.mark.parametrize(("mode", "portion"), [(None, False), ("copy", False), ("copy", True)])
def test_nor_whether_it_is_a_topic(mode: str | None, portion: bool) -> None:
    """A browser of a topic is told that it would be a consumer, or that there is nothing to look at: not this one."""
    world = world_of(send=("queue", "topic"), create=("queue", "topic"))
    client = world.client()
    client.sender("queue", "to queue")
    client.publisher("topic", "to topic")
    name = Symbol(PORTION_FILTER)
    filters: dict[str, object] = {name: Described(name, [ULong(8), UInt(2), UInt(0)])} if portion else {}
    told = set()
    for address in ("queue", "topic", "nowhere"):
        source = Source(address, distribution_mode=mode, filter=filters)
        link = client.begun.attach_receiver(f"from {address}", source=source, target=Target())
        world.settle()
        told.add(refused(client, link).replace(address, "it"))
    assert len(told) == 1
