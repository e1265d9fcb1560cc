"""What operators say of addresses: values that cannot be, and what is on record of the others."""

from __future__ import annotations

import pytest

from acquit.broker.access.permissions import EVERYTHING
from acquit.broker.admin.later import Later, RequestFailure
from acquit.broker.admin.operations import operation, perform
from acquit.broker.admin.requests import ManagementRequest
from acquit.protocol.types import UInt
from tests.support.broker_world import World


def update(world: World, settings: object) -> object:
    request = ManagementRequest(world.core.administration, "ada", EVERYTHING, "orders", {"settings": settings})
    return perform(operation("UPDATE", "acquit:address"), request)


@pytest.mark.parametrize("value", [None, [1], {"a": 1}, b"x"])
def test_a_value_that_is_no_setting_changes_nothing(value: object) -> None:
    world = World()
    with pytest.raises(RequestFailure, match="a setting is") as caught:
        update(world, {"dead_letter_address": value})
    assert caught.value.status == 400
    assert world.core.policies.policy_of("orders").dead_letter_address == "DLQ"


def test_what_was_set_is_on_record(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    recorded: list[str] = []

    def performed(action: str, user: str, peer: str, target: str, result: str, *, refused: bool) -> None:
        recorded.append(f"{action} {target}: {result}")

    monkeypatch.setattr(world.core.auditor, "performed", performed)
    later = update(world, {"max_delivery_attempts": UInt(3), "create": False})
    assert isinstance(later, Later)
    world.settle()
    assert recorded == ["UPDATE acquit:address orders: match orders, settings (max_delivery_attempts 3, create False)"]
