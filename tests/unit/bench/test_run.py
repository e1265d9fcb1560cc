from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import Any, Self

import pytest

import acquit
from acquit.bench.plan import BenchPlan, BenchResult, BenchStalled, Scenario
from acquit.bench.run import PostingPace, measure
from acquit.broker.options import AddressRule, BrokerOptions
from acquit.client.management import converse
from acquit.client.modes import AckMode
from acquit.errors import ConfigurationError
from acquit.protocol.extensions import QUEUE
from tests.support.served import Served


def measured(broker: acquit.Broker, queue: str | None = None, **values: Any) -> BenchResult:
    plan = BenchPlan(**{"scenario": Scenario.END_TO_END, "size_bytes": 100, **values})

    async def connect() -> acquit.aio.Connection:
        return await acquit.aio.connect(broker.url, options=acquit.ConnectOptions(close_timeout_ms=300))

    return asyncio.run(measure(connect, plan, queue=queue))


def names(broker: acquit.Broker) -> set[str]:
    return {queue.name for queue in broker.inspect().queues}


@pytest.mark.parametrize("scenario", [one for one in Scenario if one is not Scenario.LATENCY])
def test_each_message_is_counted_and_nothing_stays(broker: acquit.Broker, scenario: Scenario) -> None:
    before = names(broker)
    result = measured(broker, scenario=scenario, count=1000, connections=2, consumers=3)
    copies = {Scenario.SEND: 0, Scenario.FAN_OUT: 3}.get(scenario, 1)
    assert (result.sent, result.accepted, result.received) == (1000, 1000, 1000 * copies)
    assert result.whole and result.seconds > 0 and result.cpu_share > 0
    assert result.latency.count == {Scenario.RECEIVE: 0}.get(scenario, 1000 * (copies or 1))
    assert result.peer.startswith("acquit ")
    assert names(broker) == before


@pytest.mark.parametrize("mode", [mode for mode in AckMode if mode is not AckMode.TRANSACTED])
def test_every_mode_acknowledges(broker: acquit.Broker, mode: AckMode) -> None:
    """With less credit than messages: what is not acknowledged gives none back."""
    assert measured(broker, count=300, mode=mode, credit=10).received == 300


def test_a_rate_is_kept(broker: acquit.Broker) -> None:
    result = measured(broker, scenario=Scenario.LATENCY, count=21, rate=200.0)
    assert result.whole
    assert result.seconds >= 0.1  # the last is due then


def test_a_message_waits_from_when_it_was_due() -> None:
    """A broker that stops is seen in all that was due meanwhile, and not only in the message that it stopped at."""
    now, late = 0, 3_000_000

    async def sleep(seconds: float) -> None:
        nonlocal now
        now += round(seconds * 1e9) + late  # as timers do

    async def main() -> list[int]:
        nonlocal now
        pace = PostingPace(0, 100.0, lambda: now, sleep)
        stamps = [await pace.wait(0), await pace.wait(1)]
        now += 35_000_000  # nothing can be sent
        return [*stamps, *[await pace.wait(number) for number in range(2, 6)]]

    # Woken at 13 ms by a late timer; then, at 48 ms, late by the broker's fault until what is due at 50 ms.
    assert [stamp / 1e6 for stamp in asyncio.run(main())] == [0, 13, 20, 30, 40, 53]


def test_seconds_end_it(broker: acquit.Broker) -> None:
    result = measured(broker, seconds=0.1)
    assert result.whole and result.sent > 0


@pytest.mark.timeout(30)
def test_seconds_end_it_before_the_next_is_due(broker: acquit.Broker) -> None:
    result = measured(broker, scenario=Scenario.LATENCY, seconds=0.1, rate=0.001)
    assert result.whole and result.sent == 1


def test_durable_messages_get_a_durable_queue(broker: acquit.Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    before = names(broker)
    entered = broker.inspect().last_sequence
    result = measured(broker, count=10, durable=True)
    assert result.whole
    assert names(broker) == before
    assert broker.inspect().last_sequence >= entered + 10


def test_a_queue_with_messages_is_left_alone(broker: acquit.Broker, address: str) -> None:
    with acquit.connect(broker.url) as connection, connection.session() as session:
        session.sender(address).send("mine")
        with pytest.raises(ConfigurationError, match="not empty"):
            measured(broker, queue=address, count=10)
        message = session.receiver(address).receive(timeout=5)
        assert message is not None and (message.body, message.delivery_count) == ("mine", 0)


@pytest.mark.parametrize("scenario", [Scenario.SEND, Scenario.END_TO_END])
def test_a_queue_that_is_named_is_left_empty(broker: acquit.Broker, address: str, scenario: Scenario) -> None:
    with acquit.connect(broker.url) as connection, connection.session() as session:
        session.sender(address)
        assert measured(broker, scenario=scenario, queue=address, count=500, durable=True).whole
    (queue,) = [queue for queue in broker.inspect().queues if queue.name == address]
    assert (queue.depth, queue.entered) == (0, 500)


def test_what_is_cancelled_leaves_nothing(broker: acquit.Broker) -> None:
    before = names(broker)

    async def main() -> None:
        begun = asyncio.Event()

        async def connect() -> acquit.aio.Connection:
            return await acquit.aio.connect(broker.url)

        plan = BenchPlan(scenario=Scenario.SEND, seconds=600, durable=True)
        task = asyncio.create_task(measure(connect, plan, progress=lambda done, total: begun.set()))
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert names(broker) == before


def test_what_does_not_move_is_given_up(broker: acquit.Broker) -> None:
    with acquit.connect(broker.url) as connection, converse(connection, 10) as node:
        node.request("CREATE", QUEUE, name="paused")
        node.request("UPDATE", QUEUE, name="paused", body={"paused": "consumers"})
        with pytest.raises(BenchStalled, match="0 received of"):
            measured(broker, "paused", count=500, stall_s=0.3)
        node.request("DELETE", QUEUE, name="paused")


def test_a_broker_that_hangs_is_left_soon(tmp_path: Path) -> None:
    """Each link and each session would be waited for, one after the other."""
    stopped = False
    options = acquit.ConnectOptions(close_timeout_ms=5_000)
    plan = BenchPlan(scenario=Scenario.FAN_OUT, consumers=8, count=1 << 30, stall_s=0.5)

    def stop(done: int, total: int) -> None:
        nonlocal stopped
        if done and not stopped:
            stopped = True
            served.process.send_signal(signal.SIGSTOP)

    async def main(url: str) -> None:
        await measure(lambda: acquit.aio.connect(url, options=options), plan, progress=stop)

    with Served(tmp_path) as served:
        try:
            with pytest.raises(BenchStalled, match="nothing came for 0.5 s"):
                asyncio.run(asyncio.wait_for(main(served.url), 25))
        finally:
            served.process.send_signal(signal.SIGCONT)


def test_no_patience_at_all_is_no_endless_loop(broker: acquit.Broker) -> None:
    with pytest.raises(BenchStalled, match="nothing came for 0 s"):
        measured(broker, scenario=Scenario.SEND, count=50_000, stall_s=0.0)


@pytest.mark.parametrize(("scenario", "received"), [(Scenario.SEND, 0), (Scenario.RECEIVE, 10)])
@pytest.mark.parametrize("connections", [1, 3])
def test_a_queue_that_is_full_ends_the_posting(scenario: Scenario, received: int, connections: int) -> None:
    """What had no credit by then is not posted later, when the receivers make room."""
    options = BrokerOptions(address=(AddressRule("#", {"messages_max": 10, "full_policy": "block"}),))
    with acquit.Broker(config=options) as broker:
        result = measured(broker, scenario=scenario, count=5000, connections=connections, stall_s=1.0)
    assert result.full
    assert (result.accepted, result.received) == (10, received)
    assert result.sent == result.accepted + result.refused
    assert result.seconds < 1.0  # the silence before it was given up is not measured


def test_what_is_refused_is_counted_with_its_reason() -> None:
    options = BrokerOptions(address=(AddressRule("#", {"messages_max": 10, "full_policy": "reject"}),))
    with acquit.Broker(config=options) as broker:
        result = measured(broker, scenario=Scenario.SEND, count=50)
    assert (result.accepted, result.refused, result.whole) == (10, 40, False)
    assert "full" in result.refusal or "resource-limit" in result.refusal


def test_a_broker_that_cannot_make_a_durable_queue(broker: acquit.Broker) -> None:
    class Elsewhere:
        def __init__(self) -> None:
            self.remote_properties = {"product": "another"}

        async def __aenter__(self) -> Self:
            return self

        async def __aexit__(self, *exc: object) -> None: ...

        def session(self, mode: AckMode) -> Elsewhere:
            return self

    async def connect() -> Any:
        return Elsewhere()

    plan = BenchPlan(scenario=Scenario.END_TO_END, count=1, durable=True)
    with pytest.raises(ConfigurationError, match="which another cannot be asked to make"):
        asyncio.run(measure(connect, plan))
    with pytest.raises(ConfigurationError, match="takes no queue"):
        asyncio.run(measure(connect, BenchPlan(scenario=Scenario.FAN_OUT, count=1), queue="x"))
