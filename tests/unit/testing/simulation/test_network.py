"""The network of simulations: what arrives of a direction that is cut."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from acquit.testing.simulation.loops import Process, Scheduler
from acquit.testing.simulation.network import Network, TcpConnection


class Hearing(asyncio.Protocol):
    """Remembers what it was told."""

    def __init__(self) -> None:
        self.heard = b""

    def data_received(self, data: bytes) -> None:
        self.heard += data


@pytest.mark.parametrize("after", [0, 3])
def test_nothing_arrives_behind_a_cut(after: int) -> None:
    scheduler = Scheduler(Random(1))
    network = Network(scheduler)
    client, server = Process(scheduler, "client"), Process(scheduler, "server")
    hearing = Hearing()
    link = TcpConnection(network, client, server, 1, asyncio.Protocol())
    network.accept(link, lambda: hearing)
    link.client.write(b"before")
    link.server.into.cut(after)
    link.client.write(b"behind")
    link.cut(notices=(False, False))
    scheduler.run_for(1.0)
    assert hearing.heard == b"before"[:after]
