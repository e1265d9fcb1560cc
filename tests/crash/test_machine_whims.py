"""What machines do to programs besides killing them: clocks that are set, processes that stand still, memory that ends.

All of it happens to a real `acquit serve`, or to a client in a process of its own.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

import pytest

import acquit
from tests.crash.test_kills import assert_ledger_holds
from tests.support.draining import take_all
from tests.support.machines import WrongClock, memory_group
from tests.support.served import Served, standing_still

pytestmark = pytest.mark.slow

HOUR_S: Final = 3_600
SMALL: Final = "[journal]\nsegment_bytes = 1_048_576\n"
ALL_IN_MEMORY: Final = '[[address]]\nmatch = "work"\nmemory_bytes_max = 536_870_912\n'
"""More than a group of processes has: with the default of 64 MiB the broker just fits into 104 MB, and lives."""
IDLE: Final = f"{SMALL}[connection]\nidle_timeout_ms = 1_000\n"
STILL_S: Final = 4.0
"""How long a process stands still: longer than both sides wait for a sign of life."""


def left_in(served: Served) -> list[str]:
    """The ids of the messages that are there, in order, for a broker that starts on the same folder."""
    with acquit.Broker(served.data, config=served.config) as broker, acquit.connect(broker.url) as connection:
        found = [str(message.message_id) for message in take_all(connection.session().receiver("work"))]
    assert_ledger_holds(served.data)
    return found


@pytest.mark.promise("durable")
def test_a_clock_that_is_set_loses_nothing(tmp_path: Path, rng: random.Random, soak_rounds: int) -> None:
    """By seconds, hours and years, back and forth, at work and while the broker is down. What has no ttl
    stays, in its order, and no connection is lost."""
    clock = WrongClock(tmp_path)
    posted: list[str] = []
    taken: list[str] = []
    for _ in range(2):
        clock.set(rng.choice((-HOUR_S, 0, HOUR_S)))
        served = Served(tmp_path, SMALL, prefix=clock.prefix)
        options = acquit.ConnectOptions(reconnect=None)
        with served, acquit.connect(served.url, options=options) as connection:
            session = connection.session("individual")
            sender, receiver = session.sender("work"), session.receiver("work", prefetch=1)
            for _ in range(soak_rounds):
                clock.set(rng.choice((-10, -1, 1, 10)) * rng.choice((1, 60, HOUR_S, 24 * HOUR_S, 8_760 * HOUR_S)))
                for _ in range(5):
                    posted.append(str(len(posted)))
                    sender.send(acquit.Message(b"x", durable=True, message_id=posted[-1]), timeout=20)
                for _ in range(2):
                    message = receiver.receive(timeout=20)
                    assert message is not None
                    assert message.accept().status is acquit.ReceiptStatus.APPLIED
                    taken.append(str(message.message_id))
            clock.set(0)
        assert served.lines("the clock was set forward") and served.lines("the clock was set back")
        assert_ledger_holds(served.data)
    assert taken + left_in(served) == posted


@pytest.mark.promise("durable")
def test_a_broker_that_stands_still_loses_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Its clients take it for dead and come back; each send has one outcome, and each message is there once."""
    config = f'{IDLE}[[address]]\nmatch = "work"\nduplicate_detection = "message-id"\n'
    posted: list[str] = []
    served = Served(tmp_path, config)
    options = acquit.ConnectOptions(idle_timeout_ms=1_000, connect_timeout_ms=2_000)
    with served, acquit.connect(served.url, options=options) as connection:
        sender = connection.session().sender("work")
        for _ in range(3):
            receipts = []
            for _ in range(200):
                posted.append(str(len(posted)))
                receipts.append(sender.send(acquit.Message(b"x", durable=True, message_id=posted[-1]), wait=False))
            with standing_still(served.process):
                time.sleep(STILL_S)
            for receipt in receipts:
                receipt.result(timeout=30)
    assert caplog.text.count("it will be restored") >= 1
    assert sorted(left_in(served), key=int) == posted


CONSUMER: Final = """
import sys, acquit
options = acquit.ConnectOptions(idle_timeout_ms=1_000)
connection = acquit.connect(sys.argv[1], options=options)
receiver = connection.session("individual").receiver("work", prefetch=5)
message = receiver.receive(timeout=20)
print(message.message_id, flush=True)
sys.stdin.readline()
print(message.accept().status.name, flush=True)
"""


@pytest.mark.promise("redelivered")
def test_a_client_that_stands_still_gives_back_what_it_held(tmp_path: Path) -> None:
    """Another gets it, counted as delivered once more; the first one's acknowledgement is stale when it wakes up."""
    served = Served(tmp_path, IDLE)
    with served, acquit.connect(served.url) as connection:
        session = connection.session()
        session.sender("work").send(acquit.Message(b"x", durable=True, message_id="1"), timeout=20)
        client = subprocess.Popen(
            [sys.executable, "-c", CONSUMER, served.url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert client.stdin is not None and client.stdout is not None
        try:
            assert client.stdout.readline() == "1\n"
            with standing_still(client):
                message = session.receiver("work").receive(timeout=20)
                assert message is not None and message.delivery_count == 1
            time.sleep(1.0)  # until it has seen that its connection is gone, or the acknowledgement tells it
            client.stdin.write("\n")
            client.stdin.flush()
            assert client.stdout.readline() in ("STALE\n", "UNKNOWN\n")
        finally:
            client.kill()
            client.communicate()
    assert left_in(served) == []


@pytest.mark.promise("durable")
def test_memory_that_ends_kills_and_loses_nothing(tmp_path: Path) -> None:
    """A group of processes with less memory than the broker was told to use: the kernel kills it, as `kill -9` does."""
    accepted = []
    with memory_group(100 << 20) as prefix:
        served = Served(tmp_path, SMALL + ALL_IN_MEMORY, prefix=prefix)
        try:
            with acquit.connect(served.url, options=acquit.ConnectOptions(reconnect=None)) as connection:
                sender = connection.session().sender("work")
                with suppress(acquit.AcquitError):
                    for number in range(200):
                        message = acquit.Message(os.urandom(1 << 20), durable=True, message_id=str(number))
                        sender.send(message, timeout=60)
                        accepted.append(str(number))
            assert served.process.wait(20) == -signal.SIGKILL
        finally:
            served.process.kill()
            served.process.wait()
            assert served.process.stdout is not None
            served.process.stdout.close()
    assert len(accepted) > 10
    found = left_in(served)
    assert found[: len(accepted)] == accepted
    assert len(found) <= len(accepted) + 1


@pytest.mark.promise("fairness")
def test_a_broker_stays_below_what_it_was_told(tmp_path: Path) -> None:
    """In a group that has what docs/queue-limits.md says the process takes, and not more, it refuses and lives."""
    with memory_group((96 + 96) << 20) as prefix:
        served = Served(tmp_path, f"{SMALL}[limits]\nmemory_bytes_max = {64 << 20}\n", prefix=prefix)
        refused = taken = 0
        with served, acquit.connect(served.url) as connection:
            sender = connection.session().sender("work")
            while refused < 5:
                message = acquit.Message(os.urandom(1 << 20))
                try:
                    sender.send(message, delivery_mode=acquit.DeliveryMode.NON_PERSISTENT, timeout=2)
                    taken += 1
                except (acquit.MessageRejected, acquit.NotSent):
                    refused += 1
            assert 32 < taken <= 64
            with connection.session() as session:
                assert session.receiver("work").receive(timeout=20) is not None
