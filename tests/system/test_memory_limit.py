"""`limits.memory_bytes_max` holds: what the process has is not much more, whatever clients post, or begin to post.

FACTOR and BASE_MIB are what docs/queue-limits.md promises.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest

import acquit
from acquit.errors import AcquitError
from acquit.protocol.definitions import Detach, Target
from tests.support.raw_socket import RawSocket
from tests.support.served import Served

pytestmark = pytest.mark.promise("bounded")

FACTOR: Final = 1.5
BASE_MIB: Final = 96
NEEDS_PROC: Final = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc")


def fill(served: Served, most: int, ttl_ms: int | None) -> int:
    """Post durable messages of 100 bytes until one is not taken, or so many are; how many were."""
    options = acquit.ConnectOptions(close_timeout_ms=500)
    taken = 0
    with acquit.connect(served.url, options=options) as connection, connection.session() as session:
        sender = session.sender("deep")
        message = acquit.Message(bytes(100), durable=True, ttl_ms=ttl_ms)
        while taken < most:
            for receipt in [sender.send(message, wait=False) for _ in range(1_000)]:
                try:
                    receipt.result(timeout=3)
                except AcquitError:
                    return taken
                taken += 1
    return taken


def check_deep_queue(folder: Path, memory_mib: int) -> None:
    """It takes as many as memory allows, refuses the others, and hands out what it took. They have a time to live, so
    that none is parked."""
    most = memory_mib * (1 << 20) // 400
    with Served(folder, f"[limits]\nmemory_bytes_max = {memory_mib << 20}\n") as served:
        taken = fill(served, most + 2_000, 1 << 30)
        assert 0.8 * most < taken <= most
        assert served.peak_mib() < BASE_MIB + FACTOR * memory_mib
        with acquit.connect(served.url) as connection, connection.session() as session:
            receiver = session.receiver("deep")
            for _ in range(2_000):
                assert receiver.receive(timeout=20) is not None
            session.sender("deep").send(acquit.Message(b"room again", durable=True), timeout=20)
    assert not [line for line in served.lines() if line.get("level") in ("error", "critical")]


@NEEDS_PROC
def test_a_deep_queue_is_refused_more_before_memory_is_out(tmp_path: Path) -> None:
    check_deep_queue(tmp_path, 16)


@NEEDS_PROC
def test_a_deep_queue_of_parked_messages_takes_more(tmp_path: Path) -> None:
    """Twice as many as would fit as objects, in the same memory, and all come in order after a restart."""
    memory_mib = 16
    most = 2 * memory_mib * (1 << 20) // 400
    config = f"[limits]\nmemory_bytes_max = {memory_mib << 20}\n"
    with Served(tmp_path, config) as served:
        assert fill(served, most, None) >= most
        assert served.peak_mib() < BASE_MIB + FACTOR * memory_mib
    with Served(tmp_path, config) as served:
        with acquit.connect(served.url) as connection, connection.session() as session:
            before = 0
            receiver = session.receiver("deep")
            for _ in range(20_000):
                message = receiver.receive(timeout=20)
                assert message is not None
                assert message.sequence is not None and message.sequence > before
                before = message.sequence
        assert served.peak_mib() < BASE_MIB + FACTOR * memory_mib


@NEEDS_PROC
@pytest.mark.slow
def test_a_very_deep_queue_is_refused_more_before_memory_is_out(tmp_path: Path) -> None:
    check_deep_queue(tmp_path, 256)


def half_sent(folder: Path, memory_mib: int, connections: int) -> None:
    """Each connection begins messages on several links and ends none."""
    with (
        Served(folder, f"[limits]\nmemory_bytes_max = {memory_mib << 20}\n") as served,
        ExitStack() as stack,
        acquit.connect(served.url) as witness,
        witness.session() as session,
    ):
        sender, receiver = session.sender("witness"), session.receiver("witness")
        peers = []
        for number in range(connections):
            peer = stack.enter_context(RawSocket(served.port, container=f"half {number}"))
            peers.append(peer)
            peer.sender(0, Target("q"))
            piece = bytes(60_000)
            peer.post(0, [piece], more=True)
            for _ in range(memory_mib * (1 << 20) // connections // len(piece) * 2):
                peer.go_on(0, piece)
            peer.barrier()
            sender.send(b"%d" % number, timeout=20)
            assert receiver.receive(timeout=20) is not None
        for peer in peers:
            peer.barrier()
        assert sum(peer.count(Detach) for peer in peers) >= len(peers) // 2
        assert served.peak_mib() < BASE_MIB + FACTOR * memory_mib


@NEEDS_PROC
def test_messages_that_are_not_ended_are_bounded(tmp_path: Path) -> None:
    half_sent(tmp_path, 32, 6)


@NEEDS_PROC
@pytest.mark.slow
def test_many_messages_that_are_not_ended_are_bounded(tmp_path: Path) -> None:
    half_sent(tmp_path, 256, 12)
