"""Selectors as python-qpid-proton (`Selector`) and rhea (`filter.selector`) ask for them: on queues, and to look only.

The one names the filter by its symbol, the other by its number, each under a key of its own.
"""

from __future__ import annotations

from collections import Counter

import pytest

from tests.interop.peer import Peer, ids, texts

pytestmark = pytest.mark.interop

KEY = {"proton": "selector", "rhea": "jms-selector"}
"""What each calls its filter."""

PAINTS: list[dict[str, object]] = [
    {"id": "red 5", "subject": "paint", "application_properties": {"colour": "red", "litres": 5}, "priority": 9},
    {"id": "blue 1", "subject": "paint", "application_properties": {"colour": "blue", "litres": 1}},
    {"id": "red 2.5", "application_properties": {"colour": "red", "litres": 2.5}, "durable": True},
    {"id": "nameless", "application_properties": {"litres": -1, "empty": True}, "annotations": {"x-opt-lot": 7}},
    {"id": "bare", "correlation_id": "answer", "reply_to": "somewhere"},
]

MATCHES = [
    ("colour = 'red'", ["red 5", "red 2.5"]),
    ("colour <> 'red'", ["blue 1"]),
    ("colour IS NULL", ["nameless", "bare"]),
    ("litres > 1", ["red 5", "red 2.5"]),
    ("litres BETWEEN -2 AND 1.0", ["blue 1", "nameless"]),
    ("litres = 5.0 OR empty", ["red 5", "nameless"]),
    ("colour IN ('blue', 'green') OR colour LIKE 'r_d' AND litres < 5", ["blue 1", "red 2.5"]),
    ("NOT (litres > 1)", ["blue 1", "nameless"]),
    ("JMSPriority > 4", ["red 5"]),
    ("JMSType = 'paint' AND JMSPriority = 4", ["blue 1"]),
    ("JMSDeliveryMode = 'PERSISTENT'", ["red 2.5"]),
    ("JMSCorrelationID = 'answer' AND JMSReplyTo = 'somewhere'", ["bare"]),
    ("JMSMessageID = 'red 5' OR amqp.message_id = 'bare'", ["red 5", "bare"]),
    ('"m.x-opt-lot" = 7', ["nameless"]),
    ("JMSRedelivered", []),
    (" ", ["red 5", "blue 1", "red 2.5", "nameless", "bare"]),
]

BAD = ["colour = ", "colour == 'red'", "= 1", "colour = 'red", "(a = 1", "a LIKE 1", "1 + 'a' = 2", "a.b c"]


def test_what_matches_is_seen_and_everything_stays(clients: tuple[Peer, Peer], address: str) -> None:
    client, other = clients
    client.post(address, *PAINTS)
    for number, (selector, expected) in enumerate(MATCHES):
        for peer in clients:
            link = f"browser {number}"
            opened = peer.receiver(link, address, selector=selector, distribution_mode="copy")
            assert opened["filters"] == [KEY[peer.kind]]
            assert Counter(ids(peer.rest(link))) == Counter(expected), (peer.kind, selector)
            peer.detach(link)
    other.receiver("all", address)
    assert len(other.rest("all")) == len(PAINTS)


def test_consumers_take_what_they_select_and_leave_the_rest(clients: tuple[Peer, Peer], address: str) -> None:
    client, other = clients
    client.receiver("red", address, selector="colour = 'red'", credit=10)
    other.receiver("late", address, selector="litres IS NULL OR litres < 0", credit=10)
    other.post(address, *PAINTS)
    assert Counter(ids(client.take("red", 2))) == Counter(["red 5", "red 2.5"])
    assert Counter(ids(other.take("late", 2))) == Counter(["nameless", "bare"])
    client.receiver("rest", address)
    assert ids(client.rest("rest")) == ["blue 1"]
    assert client.rest("red") == other.rest("late") == []


def test_credit_is_for_what_matches(clients: tuple[Peer, Peer], address: str) -> None:
    client, other = clients
    for number in range(10):
        other.post(address, *texts(f"m{number}", application_properties={"even": number % 2 == 0}))
    client.receiver("in", address, selector="even", credit=3)
    assert ids(client.take("in", 3)) == ["m0", "m2", "m4"]
    client.barrier(address)
    assert client.seen("message") == []
    assert ids(client.rest("in")) == ["m6", "m8"]


def test_released_goes_to_somebody_else_who_selects_it(clients: tuple[Peer, Peer], address: str) -> None:
    client, other = clients
    client.receiver("in", address, selector="colour = 'red'", credit=1)
    other.post(address, *texts("a", application_properties={"colour": "red"}))
    client.expect("message", link="in", id="a")
    other.receiver("blue", address, selector="colour = 'blue'", credit=1)
    other.receiver("red", address, selector="colour IN ('red')", credit=1)
    client.settle("in", 0, outcome="modified", failed=True, undeliverable=True)
    again = other.expect("message", link="red")
    assert (again["id"], again["delivery_count"]) == ("a", 1)
    other.barrier(address)
    assert other.seen("message") == []


def test_annotations_of_a_modified_message_are_selected_by(clients: tuple[Peer, Peer], address: str) -> None:
    client, other = clients
    other.receiver("looked at", address, selector="\"m.x-opt-look\" = 'again'", credit=1)
    other.post(address, *texts("a"))
    client.receiver("in", address, credit=1)
    client.expect("message", link="in", id="a")
    client.settle("in", 0, outcome="modified", failed=False, annotations={"x-opt-look": "again"})
    assert other.expect("message", link="looked at")["id"] == "a"


@pytest.mark.parametrize("role", ["queue", "topic"])
def test_selector_that_is_none_ends_its_link_only(clients: tuple[Peer, Peer], address: str, role: str) -> None:
    client, other = clients
    for number, selector in enumerate(BAD):
        refused = client.refused("receiver", f"in {number}", address, selector=selector, capabilities=[role])
        assert refused["condition"] == "amqp:invalid-field", selector
        assert "selector" in refused["description"], "it says what is wrong"
    client.receiver("in", address, selector="TRUE", capabilities=[role], credit=1)
    other.post(address, *texts("a"), capabilities=[role])
    assert ids(client.take("in", 1)) == ["a"]


def test_no_local_on_a_queue(clients: tuple[Peer, Peer], address: str) -> None:
    client, other = clients
    opened = client.receiver("in", address, no_local=True, credit=10)
    assert opened["filters"] == ["no-local"]
    client.post(address, *texts("own"))
    other.post(address, *texts("foreign"))
    assert ids(client.take("in", 1)) == ["foreign"]
    other.receiver("in", address)
    assert ids(other.rest("in")) == ["own"]
    assert client.seen("message") == []
