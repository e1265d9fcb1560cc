"""Which queues are made, and which are not."""

from __future__ import annotations

import pytest

from acquit.protocol._definitions import AmqpCondition, Target
from acquit.protocol.link import Link
from tests.support.broker_world import Client, World


def temporary_address(client: Client) -> str:
    """Of a queue that a client had made for itself, and that is gone."""
    link = client.begun.attach_sender("maker", target=Target(dynamic=True))  # type: ignore[attr-defined]
    client.world.settle()
    address = link.remote_attach.target.address
    client.detach(link)
    client.world.settle()
    assert address not in client.world.core.queues.by_name
    return str(address)


@pytest.mark.parametrize("role", ["sender", "receiver"])
def test_a_temporary_address_is_not_made_again(role: str) -> None:
    world = World()
    client = world.client()
    address = temporary_address(client)
    link: Link = getattr(client, role)(address)
    world.settle()
    error = client.detached[link].error
    assert error is not None
    assert error.condition == AmqpCondition.NOT_FOUND
    assert address not in world.core.queues.by_name
