"""What a broker's configuration says of addresses, as python-qpid-proton and rhea meet it."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.interop.conftest import Look, Server, serve
from tests.interop.peer import Peer, ids, texts

pytestmark = pytest.mark.interop

LOCK_S = 0.5
DELAY_S = 0.1
LIMIT = 3
GROUP_ENDS = 2**32 - 1
ACTIVE_CONSUMER = "active_consumer"
CONFIG = f"""
address = [
    {{ match = "locks.#", lock_duration_ms = {LOCK_S * 1000:.0f} }},
    {{ match = "read.#", non_destructive = true }},
    {{ match = "exclusive.#", consumers = "exclusive" }},
    {{ match = "single.#", consumers = "single-active" }},
    {{ match = "pair.#", consumers_max = 1, browsers_max = 1 }},
    {{ match = "value.#", last_value = true }},
    {{ match = "ring.#", ring_size = {LIMIT} }},
    {{ match = "reject.#", messages_max = {LIMIT}, full_policy = "reject" }},
    {{ match = "block.#", messages_max = {LIMIT} }},
    {{ match = "drop.#", messages_max = {LIMIT}, full_policy = "drop-oldest" }},
    {{ match = "retry.#", redelivery_delay_ms = {DELAY_S * 1000:.0f}, max_delivery_attempts = 2 }},
    {{ match = "brief.#", default_ttl_ms = 20, expiry_address = "gone" }},
    {{ match = "prefetch.#", prefetch_max = 2 }},
    {{ match = "news.#", routing = "multicast", unroutable = "release" }},
    {{ match = "passing.#", auto_delete = true }},
]
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A broker whose addresses are of many kinds."""
    yield from serve(tmp_path_factory.mktemp("policies"), CONFIG)


def numbered(count: int, **fields: object) -> list[dict[str, object]]:
    return texts(*(f"m{number}" for number in range(count)), **fields)


# ---- who gets a message


def test_groups_stay_together_and_move_on(clients: tuple[Peer, Peer], address: str) -> None:
    client, other = clients
    client.receiver("one", address, credit=20)
    other.receiver("two", address, credit=20)
    sent = [(f"{group}{number}", group) for number in range(3) for group in "abcd"]
    client.post(address, *({"id": name, "group_id": group, "durable": True} for name, group in sent))
    client.barrier(address)
    other.barrier(address)
    first = client.seen("message", link="one")
    second = other.seen("message", link="two")
    assert len(first) + len(second) == len(sent)
    for part in (first, second):
        assert part, "there are groups for both"
        assert ids(part) == [name for name, group in sent if group in {message["group_id"] for message in part}]
    kept = ids(second)
    client.detach("one")
    assert ids(other.take("two", len(sent)))[len(kept) :] == ids(first), "with its consumer, a group changes hands"


def test_last_message_of_a_group_frees_it(clients: tuple[Peer, Peer], address: str) -> None:
    client, other = clients
    client.receiver("one", address, credit=2)
    client.post(address, {"id": "a", "group_id": "g"})
    client.expect("message", link="one", id="a")
    other.receiver("two", address, credit=5)
    client.post(address, {"id": "z", "group_id": "g", "group_sequence": GROUP_ENDS})
    client.expect("message", link="one", id="z")
    client.post(address, {"id": "b", "group_id": "g"})
    assert other.expect("message", link="two")["id"] == "b"


def test_higher_priorities_first(clients: tuple[Peer, Peer], address: str) -> None:
    client, other = clients
    priorities = [0, 9, 4, 5, 9, 0, 7]
    sent = [{"id": f"m{number}", "priority": priority} for number, priority in enumerate(priorities)]
    client.post(address, *sent)
    other.receiver("in", address)
    arrived = other.rest("in")
    assert [message["priority"] for message in arrived] == sorted(priorities, reverse=True)
    assert ids(arrived) == ["m1", "m4", "m6", "m3", "m2", "m0", "m5"]


def test_consumers_of_higher_priority_first(clients: tuple[Peer, Peer], address: str) -> None:
    client, other = clients
    client.receiver("low", address, credit=10)
    other.receiver("high", address, properties={"priority": 10}, credit=2)
    client.receiver("lower", address, properties={"priority": -3}, credit=10)
    client.post(address, *numbered(4))
    assert ids(other.take("high", 2)) == ["m0", "m1"]
    assert ids(client.take("low", 2)) == ["m2", "m3"]
    client.barrier(address)
    assert client.seen("message") == []


def test_exclusive_consumer(clients: tuple[Peer, Peer], address: str) -> None:
    client, other = clients
    address = f"exclusive.{address}"
    client.receiver("one", address, credit=10)
    refused = other.refused("receiver", "two", address)
    assert (refused["condition"], address in refused["description"]) == ("amqp:resource-locked", True)
    other.post(address, *texts("a"))
    assert ids(client.take("one", 1)) == ["a"]
    client.detach("one")
    other.receiver("three", address, credit=10)
    client.post(address, *texts("b"))
    assert ids(other.take("three", 1)) == ["b"]


def test_single_active_consumer_and_who_takes_over(clients: tuple[Peer, Peer], address: str, look: Look) -> None:
    client, other = clients
    address = f"single.{address}"
    client.receiver("active", address, credit=2)
    other.receiver("waits", address, credit=10)
    other.receiver("is next", address, properties={"priority": 1}, credit=10)
    client.post(address, *numbered(4))
    assert ids(client.expect_many(2, "message", link="active")) == ["m0", "m1"]
    other.barrier(address)
    assert other.seen("message") == []
    client.settle("active", 0)
    active = look(address)[ACTIVE_CONSUMER]
    client.detach("active")
    successor = other.take("is next", 3)
    assert ids(successor) == ["m1", "m2", "m3"], "in order, with what the first one had not settled"
    assert look(address)[ACTIVE_CONSUMER] != active
    other.detach("is next")
    client.post(address, *texts("last"))
    assert ids(other.take("waits", 1)) == ["last"]


def test_so_many_consumers_and_browsers(clients: tuple[Peer, Peer], address: str) -> None:
    client, other = clients
    address = f"pair.{address}"
    for link, mode in (("consumer", "move"), ("browser", "copy")):
        client.receiver(link, address, distribution_mode=mode)
        refused = other.refused("receiver", link, address, distribution_mode=mode)
        assert refused["condition"] == "amqp:resource-limit-exceeded"
        assert link in refused["description"]


def test_no_more_than_it_may_hold(clients: tuple[Peer, Peer], address: str) -> None:
    client, other = clients
    address = f"prefetch.{address}"
    other.receiver("in", address, credit=10)
    client.post(address, *numbered(4))
    assert ids(other.expect_many(2, "message", link="in")) == ["m0", "m1"]
    other.barrier(address)
    assert other.seen("message") == []
    other.settle("in", 0)
    assert other.expect("message", link="in")["id"] == "m2"


def test_reading_removes_nothing(clients: tuple[Peer, Peer], address: str, look: Look) -> None:
    client, other = clients
    address = f"read.{address}"
    client.post(address, *numbered(3))
    for peer in (client, other, client):
        peer.receiver("in", address)
        assert ids(peer.rest("in")) == ["m0", "m1", "m2"]
        peer.detach("in")
    assert look(address)["depth"] == 3


# ---- attempts, and when they end


def test_lock_runs_out(clients: tuple[Peer, Peer], address: str, look: Look) -> None:
    client, other = clients
    address = f"locks.{address}"
    client.post(address, *texts("a"))
    client.receiver("slow", address, credit=1)
    client.expect("message", link="slow")
    begun = time.monotonic()
    other.receiver("quick", address, credit=1)
    again = other.expect("message", link="quick")
    assert time.monotonic() - begun > LOCK_S / 2
    assert (again["id"], again["delivery_count"], again["first_acquirer"]) == ("a", 1, False)
    client.barrier(address)
    client.do("state", link="slow", delivery=0)
    told = client.expect("state", link="slow")
    assert (told["outcome"], told["failed"], told["settled"]) == ("modified", True, False)
    client.settle("slow", 0)
    client.barrier(address)
    assert look(address)["accepted"] == 0, "the attempt was over: what is said of it later changes nothing"
    other.settle("quick", 0)
    look.until(address, depth=0, accepted=1)
    other.post(address, *texts("b"))
    client.do("credit", link="slow", credit=1)
    assert client.expect("message", link="slow")["id"] == "b", "the link goes on"


def test_lock_begins_again_with_a_disposition_of_state_received(clients: tuple[Peer, Peer], address: str) -> None:
    client, other = clients
    address = f"locks.{address}"
    clock = f"clock.{address}"
    client.receiver("clock", clock, credit=1)
    other.post(address, *texts("renewed", "not"))
    client.receiver("in", address, credit=2)
    client.expect_many(2, "message", link="in")
    other.post(clock, *texts("some time later", deliver_after_ms=int(LOCK_S * 500)))
    client.expect("message", link="clock")
    client.settle("in", 0, outcome="received", settled=False)
    other.receiver("next", address, credit=2)
    assert ids(other.expect_many(2, "message", link="next")) == ["not", "renewed"]


def test_pause_between_attempts_and_the_last_one(clients: tuple[Peer, Peer], address: str) -> None:
    client, other = clients
    address = f"retry.{address}"
    client.post(address, *texts(address))
    other.receiver("in", address, credit=2)
    other.expect("message", link="in")
    begun = time.monotonic()
    other.settle("in", 0, outcome="modified", failed=True)
    assert other.expect("message", link="in")["delivery_count"] == 1
    assert time.monotonic() - begun > DELAY_S / 2
    client.receiver("dead", "DLQ", selector=f"JMSMessageID = '{address}'", credit=1)
    other.settle("in", 1, outcome="modified", failed=True)
    (letter,) = client.take("dead", 1)
    assert letter["annotations"]["x-opt-ORIG-ADDRESS"] == address


@pytest.mark.parametrize("default", [False, True], ids=["time to live", "the address's"])
def test_what_expires_is_moved(clients: tuple[Peer, Peer], address: str, default: bool) -> None:
    client, other = clients
    address = f"{'brief' if default else 'lasting'}.{address}"
    other.receiver("expired", "gone" if default else "ExpiryQueue", selector=f"JMSMessageID = '{address}'", credit=1)
    client.post(address, *texts(address, **({} if default else {"ttl_s": 0.02})))
    (message,) = other.take("expired", 1)
    assert message["annotations"]["x-opt-ORIG-ADDRESS"] == address
    client.receiver("in", address)
    assert client.rest("in") == []


def test_delivery_at_a_time_and_after_a_while(clients: tuple[Peer, Peer], address: str, look: Look) -> None:
    client, other = clients
    other.receiver("in", address, credit=10)
    later_ms = int(time.time() * 1000) + 200
    client.post(
        address,
        *texts("last", deliver_at_ms=later_ms),
        *texts("second", deliver_after_ms=100),
        *texts("first"),
    )
    assert look(address)["scheduled"] in (0, 1, 2)
    assert ids(other.take("in", 3)) == ["first", "second", "last"]
    assert time.time() * 1000 >= later_ms


# ---- what a queue keeps


def test_posting_that_comes_twice(clients: tuple[Peer, Peer], address: str, look: Look) -> None:
    client, other = clients
    twice = {"id": "a", "body": {"value": "a"}, "application_properties": {"_AMQ_DUPL_ID": "one"}, "durable": True}
    client.post(address, twice, twice)
    other.post(address, twice)
    other.post(address, twice | {"id": "b", "application_properties": {"_AMQ_DUPL_ID": "two"}})
    client.receiver("in", address)
    assert ids(client.rest("in")) == ["a", "b"]
    assert look(address)["duplicates"] == 2


def test_last_value(clients: tuple[Peer, Peer], address: str) -> None:
    client, other = clients
    address = f"value.{address}"
    for name, key in (("a1", "a"), ("b1", "b"), ("a2", "a"), ("none", None), ("a3", "a")):
        properties = {} if key is None else {"_AMQ_LVQ_NAME": key}
        client.post(address, *texts(name, application_properties=properties))
    other.receiver("in", address)
    assert ids(other.rest("in")) == ["b1", "none", "a3"]


@pytest.mark.parametrize("kind", ["ring", "drop"])
def test_oldest_gives_way(clients: tuple[Peer, Peer], address: str, look: Look, kind: str) -> None:
    client, other = clients
    address = f"{kind}.{address}"
    client.post(address, *numbered(LIMIT + 2))
    look.until(address, displaced=2)
    other.receiver("in", address)
    assert ids(other.rest("in")) == [f"m{number + 2}" for number in range(LIMIT)]


def test_full_queue_rejects(clients: tuple[Peer, Peer], address: str) -> None:
    client, other = clients
    address = f"reject.{address}"
    client.post(address, *numbered(LIMIT))
    client.sender("out", address)
    client.send("out", *texts("too many"))
    refused = client.expect("outcome", link="out", delivery=0)
    assert (refused["outcome"], refused["condition"]) == ("rejected", "amqp:resource-limit-exceeded")
    assert address in refused["description"]
    other.receiver("in", address)
    assert len(other.rest("in")) == LIMIT
    other.barrier(address)
    client.send("out", *texts("fits"))
    client.expect("outcome", link="out", delivery=1, outcome="accepted")


def test_full_queue_gives_no_credit(clients: tuple[Peer, Peer], address: str) -> None:
    client, other = clients
    address = f"block.{address}"
    client.do("sender", link="out", address=address)
    client.expect("link_open", link="out")
    sent = 0
    while sent < LIMIT:
        credit = client.expect("credit", link="out")["credit"]
        assert sent + credit <= LIMIT
        client.send("out", *numbered(credit))
        for number in range(sent, sent + credit):
            client.expect("outcome", link="out", delivery=number, outcome="accepted")
        sent += credit
    client.barrier(address)
    assert all(event["credit"] == 0 for event in client.seen("credit", link="out"))
    other.receiver("in", address)
    assert len(other.rest("in")) == LIMIT
    while client.expect("credit", link="out")["credit"] == 0:
        pass
    client.send("out", *texts("next"))
    client.expect("outcome", link="out", delivery=LIMIT, outcome="accepted")


def test_queue_that_goes_when_nobody_uses_it(clients: tuple[Peer, Peer], address: str, look: Look) -> None:
    client, other = clients
    address = f"passing.{address}"
    client.receiver("in", address)
    other.post(address, *texts("a"))
    client.detach("in")
    assert look.is_there(address), "it is not empty"
    other.receiver("in", address)
    assert ids(other.rest("in")) == ["a"]
    other.detach("in")
    assert not look.is_there(address)


# ---- addresses that are topics to whoever does not say


def test_address_may_be_a_topic_by_configuration(clients: tuple[Peer, Peer], address: str) -> None:
    client, _other = clients
    address = f"news.{address}"
    for peer in clients:
        assert "topic" in peer.receiver("in", address, credit=10)["capabilities"]
    client.post(address, *texts("a", "b"))
    for peer in clients:
        assert ids(peer.take("in", 2)) == ["a", "b"]


def test_unroutable_is_released_where_the_address_says_so(clients: tuple[Peer, Peer], address: str) -> None:
    client, other = clients
    address = f"news.{address}"
    client.sender("out", address)
    client.send("out", *texts("nobody"))
    client.expect("outcome", link="out", delivery=0, outcome="released")
    other.receiver("in", address, credit=10)
    client.send("out", *texts("somebody"))
    client.expect("outcome", link="out", delivery=1, outcome="accepted")
    assert ids(other.take("in", 1)) == ["somebody"]


# ---- the management node


class Asking:
    """Requests to the management node with a peer, as its README says them."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        peer.sender("requests", "$management")
        peer.receiver("answers", "$management", target="my answers", credit=100)

    def __call__(self, operation: str, name: str, body: object = None) -> tuple[object, object]:
        properties = {"operation": operation, "type": "acquit:queue", "name": name}
        request = {"application_properties": properties, "reply_to": "my answers", "body": {"value": body}}
        self._peer.send("requests", {"id": f"{operation} {name}", **request})
        (answer,) = self._peer.take("answers", 1)
        assert answer["correlation_id"] == f"{operation} {name}"
        return answer["application_properties"]["statusCode"], answer["body"]["value"]


def test_management_by_messages(clients: tuple[Peer, Peer], address: str) -> None:
    client, other = clients
    ask = Asking(client)
    assert ask("CREATE", address) == (201, {"name": address})
    other.post(address, *numbered(3, application_properties={"part": 1}), *texts("last"))
    status, found = ask("READ", address)
    assert isinstance(found, dict)
    assert (status, found["depth"], found["name"]) == (200, 4, address)
    assert ask("MOVE", address, {"to": f"{address}.moved", "selector": "part = 1", "max": 2}) == (200, {"moved": 2})
    other.receiver("moved", f"{address}.moved")
    assert ids(other.rest("moved")) == ["m0", "m1"]
    assert ask("PURGE", address) == (200, {"purged": 2})
    assert ask("READ", f"{address}.nothing")[0] == 404


def test_queue_is_deleted_under_its_links(clients: tuple[Peer, Peer], address: str) -> None:
    client, other = clients
    other.receiver("in", address, credit=1)
    other.sender("out", address)
    client.post(address, *numbered(2))
    other.expect("message", link="in", id="m0")
    assert Asking(client)("DELETE", address) == (204, {})
    for link in ("in", "out"):
        assert other.expect("link_close", link=link)["condition"] == "amqp:resource-deleted"
    other.post(address, *texts("a new queue"))
