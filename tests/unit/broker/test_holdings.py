"""The live messages of a broker, as the checkpoint of its journal sees them."""

from __future__ import annotations

import pytest

from acquit.broker.holdings import Holdings
from acquit.protocol.message import Message
from acquit.store.interface import Position
from tests.support.broker_world import World, durable, posted
from tests.support.transacting import Controller


def test_live_is_what_is_durable_in_queues_and_in_transactions() -> None:
    world, client = posted("q", durable(b"one"), durable(b"two"), Message(b"volatile"))
    holdings = world.core.holdings
    queued = set(holdings.sequences())
    assert (len(queued), holdings.live_count) == (2, 2)
    assert holdings.live_bytes == sum(message.size_bytes for message in world.core.life.live.values())
    controller = Controller(client)
    txn_id = controller.declare()
    controller.post(client.sender("q", "in a transaction"), txn_id, durable(b"held"))
    world.settle()
    (held,) = set(holdings.sequences()) - queued
    assert holdings.live_count == 3
    assert holdings.live(held) is not None
    assert list(holdings.positions([held, 10**6, *queued])) == [
        position(holdings, one) for one in (held, 10**6, *queued)
    ]
    assert 0 not in holdings.positions([held, *queued])
    controller.commit(txn_id)
    (committed,) = set(holdings.sequences()) - queued
    assert holdings.live(committed) is not None
    world.core.administration.purge("q", None)
    world.settle()
    assert (holdings.live_count, holdings.live_bytes, list(holdings.sequences())) == (0, 0, [])
    assert holdings.live(committed) is None


def position(holdings: Holdings, sequence: int) -> int:
    message = holdings.live(sequence)
    return 0 if message is None else message.position


def test_a_record_that_was_written_again_stands_there() -> None:
    world, _ = posted("q", durable(b"one"))
    holdings = world.core.holdings
    (message,) = world.core.life.live.values()
    there = Position(message.position + 1)
    holdings.moved(message.sequence, there)
    assert message.position == there


def test_a_segment_that_cannot_leave_is_told_until_it_has(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    holdings = world.core.holdings
    assert (holdings.warning, world.core.snapshot().warnings) == ("", ())
    holdings.stays(7, 3)
    assert "segment 7 stays in the journal" in holdings.warning
    assert world.core.snapshot().warnings == (holdings.warning,)
    holdings.stays(7, 0)
    assert (holdings.warning, world.core.snapshot().warnings) == ("", ())
    assert [record.levelname for record in caplog.records] == ["ERROR", "WARNING"]
