"""What a receiver asks for when it wants more than an address: held to what Qpid JMS sends."""

from __future__ import annotations

import pytest

from acquit.client.sources import NO_LOCAL, SELECTOR, is_queue_for_topic, make_source, not_applied
from acquit.client.subscriptions import Subscription
from acquit.protocol.definitions import DeleteOnClose, Source
from acquit.protocol.types import Described, Symbol, ULong
from tests.support.server import receiver_spec


@pytest.mark.parametrize(
    ("changes", "named", "durable", "expiry", "mode", "capabilities"),
    [
        ({}, True, 0, "link-detach", None, ()),
        ({"topic": True}, True, 0, "link-detach", None, ("topic",)),
        ({"browse": True}, True, 0, "link-detach", "copy", ()),
        ({"subscription": Subscription(name="s")}, True, 2, "never", "copy", ("topic",)),
        ({"subscription": Subscription(name="s", shared=True)}, True, 2, "never", "copy", ("topic", "shared")),
        (
            {"subscription": Subscription(name="s", shared=True, durable=False)},
            False,
            0,
            "link-detach",
            None,
            ("topic", "shared", "global"),
        ),
    ],
)
def test_sources(
    changes: dict[str, object], named: bool, durable: int, expiry: str, mode: str | None, capabilities: tuple[str, ...]
) -> None:
    source = make_source(receiver_spec(**changes), (), named=named)  # type: ignore[arg-type]
    assert (source.durable, source.expiry_policy, source.distribution_mode) == (durable, expiry, mode)
    assert source.capabilities == capabilities
    assert not source.dynamic


@pytest.mark.parametrize(("topic", "capability"), [(False, "temporary-queue"), (True, "temporary-topic")])
def test_a_temporary_node_is_asked_for_without_an_address(topic: bool, capability: str) -> None:
    source = make_source(receiver_spec(None, name="r", topic=topic), (), named=False)  # type: ignore[arg-type]
    assert source.address is None
    assert source.dynamic
    assert source.dynamic_node_properties == {"lifetime-policy": DeleteOnClose()}
    assert source.capabilities == (capability,)


def test_a_filter_counts_as_applied_by_its_descriptor_under_any_key() -> None:
    source = make_source(receiver_spec(selector="a = 1", no_local=True), (), named=False)
    assert source.filter == {
        SELECTOR: Described(Symbol("apache.org:selector-filter:string"), "a = 1"),
        NO_LOCAL: Described(Symbol("apache.org:no-local-filter:list"), []),
    }
    assert not_applied(source.filter, {"x": Described(ULong(0x0000_468C_0000_0004), "a = 1")}) == [NO_LOCAL]
    assert not_applied(source.filter, None) == [SELECTOR, NO_LOCAL]


@pytest.mark.parametrize(
    ("asked", "said", "refused"),
    [
        ({"topic": True}, ("queue",), True),
        ({"subscription": Subscription(name="s", shared=True)}, ("queue",), True),
        ({"address": None, "topic": True}, ("temporary-queue",), True),
        ({"topic": True}, (), False),
        ({"topic": True}, ("queue", "topic"), False),
        ({}, ("queue",), False),
    ],
)
def test_a_queue_is_no_topic(asked: dict[str, object], said: tuple[str, ...], refused: bool) -> None:
    spec = receiver_spec(**{"name": "r", **asked})  # type: ignore[arg-type]
    assert is_queue_for_topic(spec, Source(capabilities=tuple(map(Symbol, said)))) is refused
    assert not is_queue_for_topic(spec, None)
