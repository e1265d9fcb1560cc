"""python-qpid-proton and rhea with topics, subscriptions, nodes made on request, and the anonymous terminus.

Each test has one library as `client` and the other as `other`, and runs both ways round.
"""

from __future__ import annotations

import base64
import hashlib
import random

import pytest

from tests.interop.conftest import Look, MortalServer, Server
from tests.interop.peer import Event, Peer, ids, texts

pytestmark = pytest.mark.interop

TOPIC = ["topic"]
SHARED = ["topic", "shared", "global"]
QUEUE = ["queue"]
CONFIGURATION = 1
"""terminus-durability configuration (3.5.5): what the broker says where a client asks for unsettled-state."""
SENDER_SETTLES = 1
"""snd-settle-mode settled (2.8.2)."""
RECEIVER_SECOND = 1
"""rcv-settle-mode second (2.8.3)."""
DELETE_ON_NO_LINKS = "amqp:delete-on-no-links:list"


# ---- volatile subscriptions


@pytest.mark.promise("topics")
def test_every_subscription_gets_every_message(clients: tuple[Peer, Peer], address: str) -> None:
    client, other = clients
    for peer, link in ((client, "one"), (client, "two"), (other, "three")):
        opened = peer.receiver(link, address, capabilities=TOPIC, credit=10)
        assert "topic" in opened["capabilities"]
        assert opened["durability"] == 0
    names = [f"m{number}" for number in range(10)]
    other.post(address, *texts(*names), capabilities=TOPIC)
    for peer, link in ((client, "one"), (client, "two"), (other, "three")):
        arrived = peer.take(link, 10)
        assert ids(arrived) == names
        assert all(message["durable"] and message["delivery_count"] == 0 for message in arrived)


def test_subscription_has_what_is_sent_while_it_is_there(clients: tuple[Peer, Peer], address: str) -> None:
    client, other = clients
    other.post(address, *texts("before"), capabilities=TOPIC)
    client.receiver("in", address, capabilities=TOPIC, credit=10)
    other.post(address, *texts("meanwhile"))
    assert ids(client.take("in", 1)) == ["meanwhile"]
    client.detach("in")
    other.post(address, *texts("after"))
    client.receiver("again", address, credit=10)
    assert client.rest("again") == []


def test_capability_says_whether_the_queue_or_the_topic_of_a_name_is_meant(
    clients: tuple[Peer, Peer], address: str
) -> None:
    client, other = clients
    client.receiver("topic", address, capabilities=TOPIC)
    opened = client.receiver("queue", address, capabilities=QUEUE)
    assert "queue" in opened["capabilities"]
    other.post(address, *texts("to the topic"), capabilities=TOPIC)
    other.post(address, *texts("to the queue"), capabilities=QUEUE)
    assert ids(client.rest("topic")) == ["to the topic"]
    assert ids(client.rest("queue")) == ["to the queue"]


def test_wildcards(clients: tuple[Peer, Peer], address: str) -> None:
    client, other = clients
    client.receiver("word", f"{address}.*.eu", capabilities=TOPIC)
    client.receiver("words", f"{address}.#", capabilities=TOPIC)
    client.receiver("exact", f"{address}.new.eu", capabilities=TOPIC)
    for where in ("new.eu", "old.eu", "new.us", "new.eu.fr"):
        other.post(f"{address}.{where}", *texts(where), capabilities=TOPIC)
    assert ids(client.rest("word")) == ["new.eu", "old.eu"]
    assert ids(client.rest("words")) == ["new.eu", "old.eu", "new.us", "new.eu.fr"]
    assert ids(client.rest("exact")) == ["new.eu"]


def test_nobody_can_send_to_a_pattern(clients: tuple[Peer, Peer], address: str) -> None:
    client, _ = clients
    refused = client.refused("sender", "out", f"{address}.*", capabilities=TOPIC)
    assert refused["condition"].startswith("amqp:")
    assert f"{address}.*" in refused["description"]


def test_selector_and_no_local_of_a_subscription(clients: tuple[Peer, Peer], address: str) -> None:
    client, _ = clients
    opened = client.receiver("blue", address, capabilities=TOPIC, selector="colour = 'blue'")
    assert opened["filters"] == [{"proton": "selector", "rhea": "jms-selector"}[client.kind]]
    opened = client.receiver("foreign", address, capabilities=TOPIC, no_local=True)
    assert opened["filters"] == ["no-local"]
    for peer in clients:
        for colour in ("red", "blue"):
            name = f"{colour} of {'client' if peer is client else 'other'}"
            peer.post(address, *texts(name, application_properties={"colour": colour}))
    assert ids(client.rest("blue")) == ["blue of client", "blue of other"]
    assert ids(client.rest("foreign")) == ["red of other", "blue of other"]


def test_message_that_no_subscription_takes_is_accepted_and_counted(
    clients: tuple[Peer, Peer], address: str, look: Look
) -> None:
    client, _ = clients
    client.post(address, *texts("a", "b"), capabilities=TOPIC)
    assert look(address)["unrouted"] == 2


def test_large_messages_to_many_subscriptions(client: Peer, other: Peer, server: Server, address: str) -> None:
    body = random.Random(1).randbytes(300_000)
    client.connect(server.port, max_frame_size=1024)
    other.connect(server.port)
    links = [f"in {number}" for number in range(5)]
    for peer in (client, other):
        for link in links:
            peer.receiver(link, address, capabilities=TOPIC, credit=3)
    large = {"id": "large", "body": {"data": base64.b64encode(body).decode()}, "durable": True}
    client.post(address, *texts("before"), large, *texts("after"), capabilities=TOPIC)
    for peer in (client, other):
        for link in links:
            arrived = peer.take(link, 3)
            assert ids(arrived) == ["before", "large", "after"]
            assert arrived[1]["body"] == {"data_bytes": len(body), "sha256": hashlib.sha256(body).hexdigest()}


def test_settle_modes_of_subscriptions(clients: tuple[Peer, Peer], address: str, look: Look) -> None:
    client, other = clients
    client.receiver("before", address, capabilities=TOPIC, snd_settle_mode=SENDER_SETTLES, credit=10)
    client.receiver("second", address, capabilities=TOPIC, rcv_settle_mode=RECEIVER_SECOND, credit=10)
    client.receiver("rejects", address, capabilities=TOPIC, credit=10)
    other.sender("out", address, capabilities=TOPIC, snd_settle_mode=SENDER_SETTLES)
    other.send("out", *texts("a", "b"))
    assert [message["settled"] for message in client.expect_many(2, "message", link="before")] == [True, True]
    client.expect_many(2, "message", link="second")
    client.settle("second", 0, 1, settled=False)
    for number in (0, 1):
        client.expect("settled", link="second", delivery=number)
    client.expect_many(2, "message", link="rejects")
    client.settle("rejects", 0, outcome="rejected", condition="test:unfit", description="for a reason")
    client.settle("rejects", 1, outcome="released")
    assert ids(client.rest("rejects")) == ["b"], "an outcome is of one copy alone"
    client.receiver("dead", "DLQ", selector=f"\"m.x-opt-ORIG-ADDRESS\" = '{address}'", credit=2)
    (letter,) = client.take("dead", 1)
    assert letter["id"] == "a"
    client.barrier("DLQ")
    assert client.seen("message") == []


def test_volatile_subscription_ends_with_its_link_however_that_ends(
    clients: tuple[Peer, Peer], address: str, look: Look
) -> None:
    client, other = clients
    before = look.names()
    client.receiver("closes", address, capabilities=TOPIC)
    client.receiver("detaches", address, capabilities=TOPIC)
    client.do("session", session="ends")
    client.receiver("session ends", address, capabilities=TOPIC, session="ends")
    other.receiver("connection ends", address, capabilities=TOPIC)
    assert len(look.names() - before) == 5, "the topic and four subscriptions"
    client.detach("closes")
    client.detach("detaches", closed=False)
    client.do("end", session="ends")
    client.expect("session_close", session="ends")
    other.reset()
    assert look.names() - before == {address}


# ---- durable subscriptions


@pytest.mark.promise("topics")
def test_durable_subscription(clients: tuple[Peer, Peer], server: Server, address: str, look: Look) -> None:
    client, other = clients
    container = f"container-{address}"
    queue = f"{address}::{container}/sub"

    def subscribe(session: str) -> Event:
        client.do("session", session=session)
        asked = {"capabilities": TOPIC, "durable_subscription": True}
        return client.receiver("sub", address, session=session, **asked)

    client.reset()
    client.connect(server.port, container_id=container)
    opened = subscribe("first")
    assert opened["durability"] == CONFIGURATION
    assert opened["source"] == address
    client.detach("sub", closed=False)
    other.post(address, *texts("while detached", "and another"), capabilities=TOPIC)
    subscribe("second")
    assert ids(client.rest("sub")) == ["while detached", "and another"]
    client.reset()  # the connection is closed with the link open
    other.post(address, *texts("while away"))
    client.connect(server.port, container_id=container)
    subscribe("third")
    assert ids(client.rest("sub")) == ["while away"]
    assert look.is_there(queue)
    client.detach("sub", closed=True)
    assert not look.is_there(queue), "a closed link ends its subscription"


def test_subscription_is_of_its_container(clients: tuple[Peer, Peer], address: str) -> None:
    _, other = clients
    for peer in clients:
        peer.receiver("sub", address, capabilities=TOPIC, durable_subscription=True)
    other.post(address, *texts("a"), capabilities=TOPIC)
    for peer in clients:
        assert ids(peer.rest("sub")) == ["a"]
        peer.detach("sub")


def test_other_filter_is_another_subscription(clients: tuple[Peer, Peer], address: str) -> None:
    client, other = clients
    asked = {"capabilities": TOPIC, "durable_subscription": True}
    client.receiver("sub", address, selector="colour = 'red'", **asked)
    other.post(address, *texts("old", application_properties={"colour": "red"}), capabilities=TOPIC)
    client.detach("sub", closed=False)
    client.do("session", session="second")
    client.receiver("sub", address, session="second", selector="colour = 'blue'", **asked)
    other.post(address, *texts("red", application_properties={"colour": "red"}))
    other.post(address, *texts("blue", application_properties={"colour": "blue"}))
    assert ids(client.rest("sub")) == ["blue"]
    client.detach("sub")


@pytest.mark.promise("topics")
def test_subscriptions_outlive_the_broker(mortal: MortalServer, client: Peer, other: Peer, address: str) -> None:
    container, shared = f"container-{address}", f"shared-{address}"

    def subscribe() -> None:
        asked = {"durable_subscription": True, "session": "subscriptions"}
        client.do("session", session="subscriptions")
        client.receiver("own", address, capabilities=TOPIC, selector="colour = 'red'", **asked)
        client.receiver(shared, address, capabilities=SHARED, **asked)

    def post(name: str) -> None:
        for colour in ("red", "blue"):
            message = texts(f"{name} {colour}", application_properties={"colour": colour})
            other.post(address, *message, capabilities=TOPIC)

    client.connect(Server(mortal.url).port, container_id=container)
    other.connect(Server(mortal.url).port)
    subscribe()
    post("before")
    client.do("credit", link="own", credit=1)
    client.expect("message", link="own", id="before red")
    mortal.kill_and_restart()
    for peer in (client, other):
        peer.expect("disconnected")
        peer.reset()
    other.connect(Server(mortal.url).port)
    post("after")
    client.connect(Server(mortal.url).port, container_id=container)
    subscribe()
    own = client.rest("own")
    assert ids(own) == ["before red", "after red"]
    assert ids(client.rest(shared)) == ["before red", "before blue", "after red", "after blue"]
    client.detach("own")
    client.detach(shared)


def test_client_that_reconnects_by_itself_has_its_subscription_again(
    mortal: MortalServer, client: Peer, other: Peer, address: str
) -> None:
    client.connect(Server(mortal.url).port, reconnect=True)
    other.connect(Server(mortal.url).port)
    client.receiver("sub", address, capabilities=TOPIC, durable_subscription=True)
    other.post(address, *texts("before"), capabilities=TOPIC)
    mortal.kill_and_restart()
    client.expect("connection_open")
    client.expect("link_open", link="sub")
    other.expect("disconnected")
    other.reset()
    other.connect(Server(mortal.url).port)
    other.post(address, *texts("after"))
    assert ids(client.rest("sub")) == ["before", "after"]


def test_subscription_taken_over_by_its_container(clients: tuple[Peer, Peer], server: Server, address: str) -> None:
    client, other = clients
    container = f"container-{address}"
    asked = {"capabilities": TOPIC, "durable_subscription": True, "credit": 2}
    for peer in clients:
        peer.reset()
        peer.connect(server.port, container_id=container)
    client.receiver("sub", address, **asked)
    other.post(address, *texts("a", "b"), capabilities=TOPIC)
    client.expect_many(2, "message", link="sub")
    client.settle("sub", 0)
    client.barrier(address)
    other.receiver("sub", address, **asked)
    assert client.expect("link_close", link="sub")["condition"] == "amqp:link:stolen"
    (again,) = other.take("sub", 1)
    assert again["id"] == "b"
    other.detach("sub")


# ---- shared subscriptions


@pytest.mark.parametrize("durable", [True, False])
def test_shared_by_two_containers(clients: tuple[Peer, Peer], address: str, durable: bool) -> None:
    client, _ = clients
    name = f"shared-{address}-{durable}"
    for peer in clients:
        opened = peer.receiver(name, address, capabilities=SHARED, durable_subscription=durable, credit=20)
        assert {"topic", "shared", "global"} <= set(opened["capabilities"])
    client.receiver("alone", address, capabilities=TOPIC)
    names = [f"m{number:02}" for number in range(20)]
    client.post(address, *texts(*names), capabilities=TOPIC)
    parts = [ids(peer.rest(name)) for peer in clients]
    assert sorted(str(name) for part in parts for name in part) == names
    assert all(parts), "both have a share"
    assert ids(client.rest("alone")) == names
    for peer in clients:
        peer.detach(name)


def test_those_who_share_want_the_same(clients: tuple[Peer, Peer], address: str) -> None:
    client, other = clients
    name = f"shared-{address}"
    client.receiver(name, address, capabilities=SHARED, selector="a = 1")
    for number, asked in enumerate(({"selector": "a = 2"}, {})):
        refused = other.refused("receiver", f"{name}|{number}", address, capabilities=SHARED, **asked)
        assert refused["condition"].startswith("amqp:")
        assert name in refused["description"]
    other.receiver(name, address, capabilities=SHARED, selector="a = 1", credit=1)
    other.post(address, *texts("x", application_properties={"a": 1}), capabilities=TOPIC)
    assert ids(other.take(name, 1)) == ["x"]


def test_shared_durable_subscription_outlives_its_links(clients: tuple[Peer, Peer], address: str, look: Look) -> None:
    client, other = clients
    name = f"shared-{address}"
    asked = {"capabilities": SHARED, "durable_subscription": True}
    client.receiver(name, address, **asked)
    client.detach(name, closed=False)
    client.post(address, *texts("a"), capabilities=TOPIC)
    assert look(f"{address}::{name}")["available"] == 1
    other.receiver(name, address, **asked)
    assert ids(other.rest(name)) == ["a"]
    other.detach(name)


def test_queue_of_a_subscription_by_its_qualified_name(clients: tuple[Peer, Peer], address: str) -> None:
    client, other = clients
    queue = f"{address}::all-{address}"
    client.post(address, *texts("before"), capabilities=TOPIC)
    opened = client.receiver("in", queue, capabilities=TOPIC)
    assert opened["source"] == queue
    other.post(address, *texts("a", "b"), capabilities=TOPIC)
    client.do("credit", link="in", credit=1)
    assert ids(client.take("in", 1)) == ["a"]
    other.receiver("in", queue)
    assert ids(other.rest("in")) == ["b"]


# ---- nodes made on request


def test_request_and_reply_over_a_dynamic_source(clients: tuple[Peer, Peer], address: str, look: Look) -> None:
    client, other = clients
    other.receiver("requests", address, credit=10)
    other.sender("replies", None)
    opened = client.receiver("replies", None, dynamic=True, credit=10)
    reply_to = opened["source"]
    assert opened["dynamic"] is True
    assert {"queue", "temporary-queue"} <= set(opened["capabilities"])
    client.post(address, *texts("ask", reply_to=reply_to, correlation_id="question 1"))
    (request,) = other.take("requests", 1)
    assert (request["reply_to"], request["correlation_id"]) == (reply_to, "question 1")
    other.send("replies", *texts("answer", to=request["reply_to"], correlation_id=request["correlation_id"]))
    other.expect("outcome", link="replies", delivery=0, outcome="accepted")
    (reply,) = client.take("replies", 1)
    assert (reply["id"], reply["correlation_id"], reply["to"]) == ("answer", "question 1", reply_to)
    client.detach("replies")
    assert not look.is_there(reply_to)
    other.send("replies", *texts("too late", to=reply_to))
    late = other.expect("outcome", link="replies", delivery=1)
    assert (late["outcome"], late["condition"]) == ("rejected", "amqp:not-found")


def test_dynamic_target(clients: tuple[Peer, Peer], look: Look) -> None:
    client, other = clients
    opened = client.sender("out", None, dynamic=True)
    made = opened["target"]
    assert opened["dynamic"] is True
    client.send("out", *texts("a"))
    client.expect("outcome", link="out", outcome="accepted")
    other.receiver("in", made)
    assert ids(other.rest("in")) == ["a"]
    client.detach("out")
    assert other.expect("link_close", link="in")["condition"] == "amqp:resource-deleted"
    assert not look.is_there(made)


def test_lifetime_of_a_dynamic_node(clients: tuple[Peer, Peer], look: Look) -> None:
    client, other = clients
    made = client.receiver("first", None, dynamic=True, lifetime=DELETE_ON_NO_LINKS)["source"]
    other.receiver("second", made)
    client.detach("first")
    client.post(made, *texts("a"))
    assert ids(other.rest("second")) == ["a"]
    other.detach("second")
    assert not look.is_there(made)


def test_dynamic_topic(clients: tuple[Peer, Peer]) -> None:
    client, other = clients
    opened = client.receiver("first", None, dynamic=True, capabilities=TOPIC)
    assert "topic" in opened["capabilities"]
    other.receiver("second", opened["source"])
    other.post(opened["source"], *texts("a", "b"))
    assert ids(client.rest("first")) == ids(other.rest("second")) == ["a", "b"]


# ---- the anonymous terminus


def test_each_message_says_where_it_goes(clients: tuple[Peer, Peer], address: str) -> None:
    client, other = clients
    other.receiver("topic", f"{address}.topic", capabilities=TOPIC)
    other.receiver("queue", f"{address}.queue")
    client.post(
        None,
        *texts("to a queue", to=f"{address}.queue"),
        *texts("to a topic", to=f"{address}.topic"),
        *texts("to a new queue", to=f"{address}.new"),
    )
    assert ids(other.rest("queue")) == ["to a queue"]
    assert ids(other.rest("topic")) == ["to a topic"]
    other.receiver("new", f"{address}.new")
    assert ids(other.rest("new")) == ["to a new queue"]


def test_what_goes_nowhere_is_rejected_and_the_link_stays(clients: tuple[Peer, Peer], address: str) -> None:
    client, other = clients
    client.sender("out", None)
    client.send("out", *texts("nowhere", to=f"closed.{address}"), *texts("unsaid"), *texts("somewhere", to=address))
    nowhere = client.expect("outcome", link="out", delivery=0)
    assert (nowhere["outcome"], nowhere["condition"]) == ("rejected", "amqp:not-found")
    assert f"closed.{address}" in nowhere["description"]
    unsaid = client.expect("outcome", link="out", delivery=1)
    assert unsaid["outcome"] == "rejected"
    assert unsaid["description"]
    client.expect("outcome", link="out", delivery=2, outcome="accepted")
    other.receiver("in", address)
    assert ids(other.rest("in")) == ["somewhere"]
