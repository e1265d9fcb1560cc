"""``acquit bench``: how fast a broker is, measured from here with our own client."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import click

from acquit.cli.connecting import BrokerAt, broker_options, opens_within
from acquit.cli.exits import Exit
from acquit.cli.options import MODES, RATE_MAX, FiniteRange, json_option, seconds
from acquit.cli.output import counted, counting, emit_json, remark

if TYPE_CHECKING:
    from acquit.bench.plan import BenchResult
    from acquit.protocol.jsonform import Json

SCENARIOS: Final = ("send", "receive", "end-to-end", "latency", "fan-out")
SECONDS: Final = 10.0
SECONDS_MIN: Final = 0.1
"""Time for a message to come back. In less a broker has done nothing yet, and nothing can be said of it."""
RECEIVED: Final = 30_000
"""Messages that `receive` posts before, if nobody says how many."""
RATE: Final = 1_000.0
BUSY: Final = 0.9
"""Cores beyond which it may be this client that limits the rate."""
NS_IN_MS: Final = 1_000_000


@click.command()
@click.argument("scenario", type=click.Choice(SCENARIOS), default="end-to-end")
@click.option("--size", "size_bytes", type=click.IntRange(8), default=1024, show_default=True, help="Bytes of a body.")
@click.option("--count", type=click.IntRange(1), metavar="N", help="End after so many messages.")
@seconds(None, "End after so long.  [default: 10, if there is no --count]", name="--seconds", least=SECONDS_MIN)
@click.option("--durable", is_flag=True, help="Each message is on the broker's disk before it is accepted.")
@click.option(
    "--rate",
    type=FiniteRange(0, RATE_MAX, min_open=True),
    metavar="N",
    help="With latency: messages a second, over all connections.  [default: 1000]",
)
@click.option("--credit", type=click.IntRange(1), default=500, show_default=True, help="What a receiver is sent ahead.")
@click.option(
    "--in-flight",
    type=click.IntRange(1),
    default=500,
    show_default=True,
    help="Messages that a sender has under way; 1 waits for each.",
)
@click.option("--mode", type=click.Choice(MODES), default="auto", show_default=True, help="How receivers acknowledge.")
@click.option(
    "--connections",
    type=click.IntRange(1, 1000),
    default=1,
    show_default=True,
    help="Connections, each with a sender and a receiver.",
)
@click.option(
    "--consumers",
    type=click.IntRange(1, 1000),
    metavar="N",
    help="With fan-out: how many consumers get a copy of each message.  [default: 10]",
)
@click.option("--queue", metavar="NAME", help="Through this queue, which must be empty, and not one of its own.")
@seconds(
    30.0, "Give up when nothing moves for so long, or where no connection opens (at most 10 s).", least=SECONDS_MIN
)
@broker_options
@json_option
def bench(
    scenario: str,
    size_bytes: int,
    count: int | None,
    seconds_s: float | None,
    durable: bool,
    rate: float | None,
    credit: int,
    in_flight: int,
    mode: str,
    connections: int,
    consumers: int | None,
    queue: str | None,
    timeout_s: float,
    broker: BrokerAt,
    as_json: bool,
) -> int:
    """Measure how fast the broker at URL, of any kind, takes and delivers messages.

    SCENARIO is end-to-end (the default), send, receive, latency (at the rate of --rate) or fan-out (a topic and its
    consumers). It uses a queue of its own, which is gone afterwards, also after Ctrl-C. Exit code 1 where a message was
    not accepted, or did not come.
    """
    from acquit.bench.plan import BenchPlan, Scenario
    from acquit.bench.run import measure
    from acquit.client.modes import find_mode

    if count is not None and seconds_s is not None:
        raise click.UsageError("--count and --seconds both say when it ends: give one of them")
    if scenario == "receive":
        if seconds_s is not None:
            raise click.UsageError("receive takes what was posted before: give it --count, and not --seconds")
        count = count or RECEIVED
    for option, value, owner in (("--rate", rate, "latency"), ("--consumers", consumers, "fan-out")):
        if value is not None and scenario != owner:
            raise click.UsageError(f"{option} belongs to the scenario {owner}")
    plan = BenchPlan(
        scenario=Scenario(scenario),
        size_bytes=size_bytes,
        count=count,
        seconds=None if count is not None else SECONDS if seconds_s is None else seconds_s,
        durable=durable,
        rate=(rate or RATE) if scenario == "latency" else None,
        credit=credit,
        in_flight=in_flight,
        mode=find_mode(mode).name,
        connections=connections,
        consumers=consumers or 10,
        stall_s=timeout_s,
    )
    connect = broker.connector(opens_within(timeout_s))
    with counting(scenario, None) as counter:
        result = asyncio.run(measure(connect, plan, queue=queue, progress=counter.at))
    if as_json:
        emit_json(_document(result))
    else:
        _show(result)
    if result.refused:
        remark(f"{counted(result.refused, 'message')} not accepted; the first: {result.refusal}")
    if result.full:
        remark(f"the queue was full after {counted(result.accepted, 'message')}: only these were measured")
    if result.received != result.expected:
        remark(f"{result.received:,} messages came, and {result.expected:,} should have")
    return Exit.OK if result.whole else Exit.FAILED


def _percentiles(result: BenchResult) -> dict[str, float]:
    """Milliseconds by the name of the percentile; none where nothing was timed."""
    from acquit.bench.plan import PERCENTILES

    times = result.latency
    if not times.count:
        return {}
    found = {name: times.percentile_ns(percent) for name, percent in PERCENTILES.items()}
    return {name: round(time_ns / NS_IN_MS, 3) for name, time_ns in {**found, "max": times.max_ns}.items()}


def _document(result: BenchResult) -> dict[str, Json]:
    plan = result.plan
    return {
        "scenario": plan.scenario.value,
        "broker": result.peer,
        "size_bytes": plan.size_bytes,
        "durable": plan.durable,
        "mode": plan.mode.name.lower().replace("_", "-"),
        "connections": plan.connections,
        "receivers": plan.receivers,
        "credit": plan.credit,
        "in_flight": plan.in_flight,
        "rate": plan.rate,
        "sent": result.sent,
        "accepted": result.accepted,
        "refused": result.refused,
        "full": result.full,
        "received": result.received,
        "seconds": round(result.seconds, 3),
        "messages_per_s": round(result.rate, 1),
        "bytes_per_s": round(result.rate * plan.size_bytes),
        "latency_ms": dict(_percentiles(result)),
        "client_cpu": round(result.cpu_share, 2),
    }


def _show(result: BenchResult) -> None:
    """Four lines for people."""
    plan = result.plan
    messages = result.received if plan.copies else result.accepted
    kind = "durable" if plan.durable else "volatile"
    parties = [counted(plan.connections, "connection"), counted(plan.receivers, "receiver"), f"mode {plan.mode.name}"]
    click.echo(f"{result.peer}: {plan.scenario}, {plan.size_bytes:,} bytes, {kind}, {', '.join(parties)}")
    click.echo(
        f"rate     {result.rate:,.0f} messages/s, {result.rate * plan.size_bytes / 1e6:,.1f} MB/s "
        f"({counted(messages, 'message')} in {result.seconds:.2f} s)"
    )
    times = "  ".join(f"{name} {time_ms:,.3f}" for name, time_ms in _percentiles(result).items())
    if times:
        click.echo(f"latency  {times} ms")
    if result.cpu_share > BUSY:
        click.echo(f"client   {result.cpu_share:.0%} of a core: it may be what limits the rate")
