from __future__ import annotations

import pytest

from acquit.client.options import ConnectOptions, check_max_messages, check_text, link_name
from acquit.errors import ConfigurationError
from acquit.protocol.definitions import Released
from tests.support.server import receiver_spec, sender_spec


@pytest.mark.parametrize(
    "name",
    ["connect_timeout_ms", "answer_timeout_ms", "close_timeout_ms", "ack_timeout_ms", "send_timeout_ms"],
)
@pytest.mark.parametrize("value", [0, -1, 1.5, "1", True, None, 2**31])
def test_a_time_that_is_none_is_named(name: str, value: object) -> None:
    with pytest.raises(ConfigurationError, match=f"{name} must be a whole number from 1 to"):
        ConnectOptions(**{name: value})  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["unsettled_max", "ack_capacity"])
@pytest.mark.parametrize("value", [0, -1, 1.5, "1", True, None, 2**31])
def test_a_bound_that_is_none_is_named(name: str, value: object) -> None:
    with pytest.raises(ConfigurationError, match=f"{name} must be a whole number from 1 to"):
        ConnectOptions(**{name: value})  # type: ignore[arg-type]


def test_an_idle_timeout_of_zero_means_never() -> None:
    assert ConnectOptions(idle_timeout_ms=0).idle_timeout_ms == 0
    with pytest.raises(ConfigurationError, match="idle_timeout_ms"):
        ConnectOptions(idle_timeout_ms=-1)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"prefetch": -1}, "prefetch must be a whole number from 0"),
        ({"prefetch": 2.0}, "prefetch must be"),
        ({"prefetch_bytes": 0}, "prefetch_bytes must be"),
        ({"address": ""}, "the address of a receiver must be a string that is not empty, got ''"),
        ({"address": 5}, "the address of a receiver must be"),
        ({"selector": " "}, "selector must be a text"),
        ({"default_outcome": "released"}, r"default_outcome must be an outcome, such as Released\(\) .*got 'released'"),
        ({"default_outcome": Released}, "default_outcome must be an outcome"),
    ],
)
def test_a_receiver_that_makes_no_sense(changes: dict[str, object], complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=complaint):
        receiver_spec(**changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"buffer_messages": 0}, "buffer_messages must be"),
        ({"buffer_bytes": 0}, "buffer_bytes must be"),
        ({"address": ""}, "the address of a sender must be"),
        ({"delivery_mode": "persistent"}, "delivery_mode must be DeliveryMode.PERSISTENT or NON_PERSISTENT, got 'pers"),
    ],
)
def test_a_sender_that_makes_no_sense(changes: dict[str, object], complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=complaint):
        sender_spec(**changes)  # type: ignore[arg-type]


def test_the_anonymous_sender_has_no_address() -> None:
    assert sender_spec(None).what == "the anonymous sender"  # type: ignore[arg-type]
    assert sender_spec("orders").what == "the sender to 'orders'"


def test_a_number_of_messages() -> None:
    check_max_messages(1)
    with pytest.raises(ConfigurationError, match="max_messages must be a whole number from 1"):
        check_max_messages(0)


def test_link_names_are_never_the_same() -> None:
    assert len({link_name("orders") for _ in range(100)}) == 100
    assert link_name("orders").startswith("orders-")
    assert link_name(None).startswith("anonymous-")


def test_a_text_that_cannot_be_sent_is_refused_unseen() -> None:
    """It would break the login; what Python says of it has the whole of it, which may be a password."""
    with pytest.raises(ConfigurationError, match="password must be a text that UTF-8 can encode") as caught:
        check_text("password", "s3cret\udc80")
    assert caught.value.__context__ is None
    check_text("password", "s3crèt")
    check_text("password", None)
