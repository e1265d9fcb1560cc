from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

import acquit
from acquit.cli.exits import Exit
from tests.support.shell import Shell


@pytest.mark.parametrize("scenario", ["send", "receive", "end-to-end", "fan-out"])
def test_a_document_for_machines(at_broker: Shell, scenario: str) -> None:
    ran = at_broker("bench", scenario, "--count", 200, "--size", 50, "--json")
    (found,) = ran.documents
    assert ran.code == Exit.OK
    assert (found["scenario"], found["size_bytes"], found["sent"], found["accepted"]) == (scenario, 50, 200, 200)
    assert found["received"] == {"send": 0, "fan-out": 2000}.get(scenario, 200)
    assert found["messages_per_s"] > 0
    assert set(found["latency_ms"]) == (set() if scenario == "receive" else {"p50", "p99", "p99.9", "max"})
    assert list(found["latency_ms"].values()) == sorted(found["latency_ms"].values())


def test_lines_for_people(at_broker: Shell) -> None:
    ran = at_broker("bench", "latency", "--count", 20, "--rate", 500, "--mode", "individual")
    assert ran.code == Exit.OK
    first, rate, latency, *_ = ran.out.splitlines()
    assert "latency, 1,024 bytes, volatile, 1 connection, 1 receiver, mode INDIVIDUAL" in first
    assert rate.startswith("rate ") and "(20 messages in " in rate
    assert "p50 " in latency and "p99.9 " in latency and latency.endswith(" ms")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--count", "1", "--seconds", "1"], "give one of them"),
        (["receive", "--seconds", "1"], "--count"),
        (["--rate", "5"], "belongs to the scenario latency"),
        (["--consumers", "5"], "belongs to the scenario fan-out"),
        (["fan-out", "--durable", "--count", "1"], "not durable"),
        (["--size", "7"], "--size"),
        (["--seconds", "0"], "--seconds': expected a number from 0.1 "),
        (["--seconds", "1e-9"], "--seconds': expected a number from 0.1 "),
        (["--timeout", "0"], "--timeout': expected a number from 0.1 "),
        (["sideways"], "sideways"),
    ],
)
def test_wrong_usage(shell: Shell, arguments: list[str], complaint: str) -> None:
    ran = shell("bench", *arguments)
    assert ran.code == Exit.USAGE
    assert complaint in ran.err


def test_no_broker(shell: Shell, unused_port: int) -> None:
    assert shell("bench", "--url", f"amqp://127.0.0.1:{unused_port}").code == Exit.UNREACHABLE


def test_what_was_refused_is_a_failure(shell: Shell) -> None:
    from acquit.broker.options import AddressRule, BrokerOptions

    options = BrokerOptions(address=(AddressRule("#", {"messages_max": 10, "full_policy": "reject"}),))
    with acquit.Broker(config=options) as broker:
        ran = shell("bench", "send", "--count", 50, "--url", broker.url)
    assert ran.code == Exit.FAILED
    assert ran.err.startswith("40 messages not accepted; the first: ")


def test_a_full_queue_is_told(shell: Shell) -> None:
    from acquit.broker.options import AddressRule, BrokerOptions

    options = BrokerOptions(address=(AddressRule("#", {"messages_max": 10, "full_policy": "block"}),))
    with acquit.Broker(config=options) as broker:
        ran = shell("bench", "receive", "--count", 5000, "--timeout", 1, "--json", "--url", broker.url)
    (found,) = ran.documents
    assert (found["full"], found["received"]) == (True, 10)
    assert ran.err == "the queue was full after 10 messages: only these were measured\n"


def test_interrupted_it_leaves_nothing() -> None:
    with acquit.Broker() as broker:
        command = [sys.executable, "-m", "acquit", "bench", "send", "--durable", "--seconds", "600"]
        with subprocess.Popen(command, env={**os.environ, "ACQUIT_URL": broker.url}, stderr=subprocess.PIPE) as process:
            while not any(queue.depth for queue in broker.inspect().queues):
                assert process.poll() is None
            process.send_signal(signal.SIGINT)
            _, told = process.communicate(timeout=60)
        assert (process.returncode, told.strip()) == (Exit.INTERRUPTED, b"")
        assert not broker.inspect().queues
