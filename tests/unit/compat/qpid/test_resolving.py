"""What an address asks of a link of AMQP 1.0."""

from __future__ import annotations

import logging

import pytest

from acquit.client.subscriptions import Subscription
from acquit.compat.qpid.messaging.exceptions import InvalidOption, MalformedAddress
from acquit.compat.qpid.resolving import DIRECT_BINDING, TOPIC_BINDING, Asserted, Direction, plan
from acquit.protocol.types import Described, Symbol, ULong


def test_a_name_is_a_name() -> None:
    for found in (plan("orders", "sender"), plan("orders", "receiver")):
        assert (found.address, found.subject, found.name, found.capabilities) == ("orders", None, None, ())
        assert not (found.topic or found.unreliable or found.creates or found.deletes or found.browse)
        assert found.asserted is found.selector is found.filters is found.subscription is None


@pytest.mark.parametrize("option", ["create", "delete", "assert"])
@pytest.mark.parametrize("policy", ["always", "sender", "receiver", "never"])
@pytest.mark.parametrize("direction", ["sender", "receiver"])
def test_policies_say_who_does_it(option: str, policy: str, direction: Direction) -> None:
    found = plan(f"q; {{{option}: {policy}}}", direction)
    does = policy in ("always", direction)
    assert found.creates is (does and option == "create")
    assert found.deletes is (does and option == "delete")
    assert found.asserted == (Asserted(kind=None, durable=None) if does and option == "assert" else None)
    assert found.capabilities == (("create-on-demand",) if found.creates else ())


def test_the_type_of_a_node() -> None:
    assert plan("q; {node: {type: queue}}", "receiver").capabilities == ("queue",)
    assert plan("t; {node: {type: topic}}", "sender").topic
    assert plan("amq.topic", "receiver").topic and plan("amq.direct", "sender").topic
    assert not plan("amq.topic; {node: {type: queue}}", "receiver").topic
    asserted = plan("t; {assert: always, node: {type: topic, durable: True}}", "sender").asserted
    assert asserted == Asserted(kind="topic", durable=True)


@pytest.mark.parametrize(
    ("address", "unreliable"),
    [
        ("q", False),
        ("q; {mode: browse}", True),
        ("q; {mode: browse, link: {reliability: at-least-once}}", False),
        ("t; {node: {type: topic}}", True),
        ("t; {node: {type: topic}, link: {name: s, durable: True}}", False),
        ("q; {link: {reliability: unreliable}}", True),
        ("q; {link: {reliability: at-most-once}}", True),
        ("q; {link: {reliability: at-least-once}}", False),
        ("q; {link: {reliability: reliable}}", False),
    ],
)
def test_reliability(address: str, unreliable: bool) -> None:
    assert plan(address, "receiver").unreliable is unreliable


def test_senders_are_reliable_unless_they_say_otherwise() -> None:
    assert not plan("t; {node: {type: topic}}", "sender").unreliable
    assert plan("q; {link: {reliability: unreliable}}", "sender").unreliable


def test_exactly_once_is_said_to_be_less(caplog: pytest.LogCaptureFixture) -> None:
    assert not plan("q; {link: {reliability: exactly-once}}", "receiver").unreliable
    assert "exactly-once is at-least-once" in caplog.text


def test_subjects_are_defaults_or_filters() -> None:
    sending = plan("news/sport", "sender")
    assert (sending.subject, sending.filters) == ("sport", None)
    assert plan("news/sport", "receiver").filters == {"subject": Described(DIRECT_BINDING, "sport")}
    assert plan("news/sport.*", "receiver").filters == {"subject": Described(TOPIC_BINDING, "sport.*")}
    assert plan("news/#", "receiver").filters is None


def test_selectors_and_filters() -> None:
    found = plan(
        "q; {link: {selector: \"colour = 'red'\", filter: [{name: a, descriptor: 'x:y', value: 1},"
        " {name: b, descriptor: 7, value: [2]}]}}",
        "receiver",
    )
    assert found.selector == "colour = 'red'"
    assert found.filters == {"a": Described(Symbol("x:y"), 1), "b": Described(ULong(7), [2])}


def test_link_names() -> None:
    assert plan("q; {link: {name: mine}}", "receiver").name == "mine"
    durable = "t; {node: {type: topic}, link: {name: s, durable: True}}"
    assert plan(durable, "receiver").subscription == Subscription(name="s", durable=True, shared=True)
    assert plan(durable, "receiver").name is None
    assert plan(durable, "receiver", named=True).subscription == Subscription(name="s", durable=True, shared=False)
    shared = "t; {link: {name: s, durable: True, x-declare: {exclusive: False}}}"
    assert plan(shared, "receiver", named=True).subscription == Subscription(name="s", durable=True, shared=True)


@pytest.mark.parametrize("address", ["#", "#replies", " #; {create: always, delete: always, node: {type: queue}}"])
def test_a_hash_is_a_dynamic_node(address: str) -> None:
    found = plan(address, "receiver")
    assert found.address is None and found.capabilities == () and not found.deletes
    assert plan(r"\#x", "receiver").address == "#x"
    with pytest.raises(InvalidOption, match="receive from '#'"):
        plan(address, "sender")


@pytest.mark.parametrize(
    ("address", "complaint"),
    [
        ("q; {creat: always}", "error in options: creat: no such option; expected one of create, delete, assert"),
        ("q; {1: x}", "error in options: 1: no such option"),
        ("q; {'a\\nb': x}", r"error in options: 'a\\nb': no such option"),
        (
            "q; {create: often}",
            "error in options: create: expected one of always, sender, receiver, never, got 'often'",
        ),
        ("q; {node: x}", "error in options: node: expected a map, got 'x'"),
        ("q; {node: {type: exchange}}", "node.type: expected one of queue, topic"),
        ("q; {node: {durable: 1}}", "node.durable: expected True or False, got 1"),
        ("q; {link: {name: 1}}", "link.name: expected a string, got 1"),
        ("q; {link: {reliability: maybe}}", "link.reliability: expected one of unreliable"),
        ("q; {mode: look}", "mode: expected one of browse, consume, got 'look'"),
        ("q; {link: {filter: 1}}", "link.filter: expected a map or a list of maps"),
        ("q; {link: {filter: [{name: a}]}}", "link.filter: expected name, descriptor and value"),
        ("q; {link: {filter: {name: a, descriptor: [], value: 1}}}", "a descriptor is a number or a string"),
        ("q; {link: {filter: {name: a, descriptor: -1, value: 1}}}", "link.filter: ulong must be in"),
        ("t; {node: {type: topic}, link: {durable: True}}", "link.durable: a durable subscription needs a name"),
        ("t; {link: {durable: True, name: 'a|b'}}", "link.name: the name of a subscription"),
        ("q; {node: {x-bindings: [{key: x}]}}", "node.x-bindings has no meaning in AMQP 1.0"),
        ("q; {link: {x-bindings: [{key: x}]}}", "link.x-bindings has no meaning in AMQP 1.0"),
        ("q; {link: {x-subscribe: {exclusive: True}}}", "link.x-subscribe has no meaning in AMQP 1.0"),
        ("q; {create: always, node: {x-declare: {arguments: {qpid.max_count: 5}}}}", "set messages_max in the broker"),
        ("q; {create: always, node: {x-declare: {alternate-exchange: x}}}", "set dead_letter_address in the broker"),
        ("q; {create: always, node: {x-declare: {alternate_exchange: x}}}", "set dead_letter_address in the broker"),
        ("q; {create: always, node: {x-declare: {bindings: [1]}}}", "node.x-declare: bindings has no meaning"),
        ("q; {link: {x-declare: {arguments: {a: 1}}}}", "link.x-declare.arguments: a has no meaning in AMQP 1.0"),
    ],
)
def test_what_is_not_there_is_named(address: str, complaint: str) -> None:
    with pytest.raises(InvalidOption) as caught:
        plan(address.replace("qpid.max_count", "'qpid.max_count'"), "receiver")
    assert complaint.replace("\\\\", "\\") in str(caught.value)


@pytest.mark.parametrize("option", ["mode: browse", "link: {selector: x}", "link: {filter: []}"])
def test_what_is_for_receivers_is_refused_for_senders(option: str) -> None:
    with pytest.raises(InvalidOption):
        plan(f"q; {{{option}}}", "sender")


def test_what_only_concerns_the_life_of_a_queue_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    declared = "node: {x-declare: {auto-delete: True, exclusive: True, arguments: {}, bindings: []}}"
    with caplog.at_level(logging.WARNING, "qpid.messaging"):
        plan(f"q; {{create: receiver, {declared}}}", "sender")
        assert caplog.text == ""  # it declares nothing
        plan(f"q; {{create: receiver, {declared}}}", "receiver")
        assert "node.x-declare: auto-delete, exclusive passed over" in caplog.text
        plan("q; {link: {timeout: 10}}", "receiver")
        assert "link.timeout is passed over" in caplog.text


@pytest.mark.parametrize("address", [None, 7, "", "q; {", "q\x00"])
def test_what_cannot_be_read_is_malformed(address: str) -> None:
    with pytest.raises(MalformedAddress):
        plan(address, "receiver")
