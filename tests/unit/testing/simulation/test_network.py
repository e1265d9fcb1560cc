"""The network of simulations: what arrives of a direction that is cut."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from acquit.testing.simulation.loops import Process, Scheduler
from acquit.testing.simulation.network import Network, TcpConnection
from acquit.transport.unread import unread


class Hearing(asyncio.Protocol):
    """Remembers what it was told."""

    def __init__(self) -> None:
        self.heard = self.left = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        self.left = unread(self.transport)

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


@pytest.mark.parametrize("left", [False, True])
def test_what_had_arrived_of_a_cut_is_read_before_or_left_in_the_socket(left: bool) -> None:
    ends = [cut_behind(b"before", seed, left) for seed in range(60)]
    assert not any(end.heard if left else end.left for end in ends)
    assert {end.heard + end.left for end in ends} == {b"before"[:size] for size in range(7)}


def cut_behind(data: bytes, seed: int, left: bool) -> Hearing:
    """The end that something was written to before its connection was cut."""
    scheduler = Scheduler(Random(seed))
    network = Network(scheduler)
    client, server = Process(scheduler, "client"), Process(scheduler, "server")
    hearing = Hearing()
    link = TcpConnection(network, client, server, 1, asyncio.Protocol())
    network.accept(link, lambda: hearing)
    link.client.write(data)
    link.cut(notices=(False, True), unread=left)
    scheduler.run_for(1.0)
    return hearing
