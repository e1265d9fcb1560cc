"""What tests of lost connections share: both APIs behind one, cuts to choose from, and what passed as an account.

A test is written once, against the blocking API. `Asyncio` offers the same with `acquit.aio`: each call is a coroutine
on a loop of its own, awaited from the test's thread, so that user code and the client share a loop as in a program.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import io
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

import acquit
from acquit import ConnectOptions, Message
from acquit.client.reconnecting import ConnectionEvent, ConnectionEventKind, Reconnect
from acquit.protocol.definitions import Accepted, Disposition, Role, TransactionalState, Transfer
from acquit.testing import PassedFrame, Proxy, Rule

LONG = 20.0
"""Seconds that nothing here takes: who waits so long hangs."""

CONNECTED, INTERRUPTED, RESTORED, FAILED = (
    ConnectionEventKind.CONNECTED,
    ConnectionEventKind.INTERRUPTED,
    ConnectionEventKind.RESTORED,
    ConnectionEventKind.FAILED,
)


def fast(**changes: Any) -> ConnectOptions:
    """Options that reconnect at once, and try again where the first connect fails."""
    policy: dict[str, Any] = {
        "delay_ms": 1,
        "delay_max_ms": 20,
        "jitter": 0,
        "first_rounds": 5,
        "outage_max_ms": 20_000,
    }
    policy |= changes.pop("reconnect", {})
    return ConnectOptions(reconnect=Reconnect(**policy), **changes)


# -- both APIs ---------------------------------------------------------------------------------------------------------


class Story:
    """The events of one connection, as they were told."""

    def __init__(self) -> None:
        self.events: list[ConnectionEvent] = []
        self._told = threading.Condition()

    def __call__(self, event: ConnectionEvent) -> None:
        with self._told:
            self.events.append(event)
            self._told.notify_all()

    @property
    def kinds(self) -> list[ConnectionEventKind]:
        return [event.kind for event in self.events]

    def wait_for(self, kind: ConnectionEventKind, n: int = 1) -> ConnectionEvent:
        """The n-th of a kind."""
        with self._told:
            assert self._told.wait_for(lambda: self.kinds.count(kind) >= n, LONG), (kind, self.events)
            return [event for event in self.events if event.kind is kind][n - 1]


class Blocking:
    """`acquit.connect`."""

    name = "blocking"

    def connect(self, url: str | Sequence[str], **arguments: Any) -> Any:
        return acquit.connect(url, **arguments)

    def close(self) -> None:
        """Nothing to end."""


class Asyncio:
    """`acquit.aio.connect`, and all that comes of it, from a thread."""

    name = "asyncio"

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="test-asyncio", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()
        self.loop.run_until_complete(self.loop.shutdown_default_executor())
        self.loop.close()

    def connect(self, url: str | Sequence[str], **arguments: Any) -> Any:
        return self.call(acquit.aio.connect, (url,), arguments)

    def call(self, function: Callable[..., Any], arguments: Sequence[Any], named: dict[str, Any]) -> Any:
        async def run() -> Any:
            result = function(*map(_bare, arguments), **{key: _bare(value) for key, value in named.items()})
            return await result if inspect.isawaitable(result) else result

        running = asyncio.run_coroutine_threadsafe(run(), self.loop)
        try:
            return self._wrap(running.result(5 * LONG))
        except TimeoutError:
            if running.done():
                raise
            raise AssertionError(f"{function} {arguments} {named} hangs in:\n{self._stacks()}") from None

    def _stacks(self) -> str:
        told = io.StringIO()
        for task in asyncio.all_tasks(self.loop):
            task.print_stack(file=told)
        return told.getvalue()

    def _wrap(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self._wrap(each) for each in value]
        # An exception, an outcome and an int are what they are in both.
        return (
            Awaited(self, value)
            if type(value).__module__.startswith(("acquit.client.aio.", "acquit.client.requests"))
            else value
        )

    def close(self) -> None:
        """End the loop."""
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()


class Awaited:
    """An object of `acquit.aio`: what its methods give is awaited."""

    def __init__(self, api: Asyncio, bare: Any) -> None:
        self._api = api
        self._bare = bare

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._bare, name)
        if not callable(value):
            return value
        return lambda *arguments, **named: self._api.call(value, arguments, named)

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def _bare(value: Any) -> Any:
    return value._bare if isinstance(value, Awaited) else value


@contextlib.contextmanager
def running(name: str) -> Iterator[Blocking | Asyncio]:
    """One of the two."""
    api = Blocking() if name == "blocking" else Asyncio()
    try:
        yield api
    finally:
        api.close()


# -- cuts --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cut:
    """Where a connection is to be lost."""

    place: str
    name: str
    n: int
    by: str
    fields: dict[str, object] = field(default_factory=dict)

    def set(self, proxy: Proxy) -> Rule:
        return getattr(proxy, self.place)(self.name, self.n, by=self.by, **self.fields).cut()  # type: ignore[no-any-return]

    @property
    def passes(self) -> bool:
        """Whether the frame arrives."""
        return self.place == "after"

    def __str__(self) -> str:
        fields = "".join(f"-{getattr(value, '__name__', value)}" for value in self.fields.values())
        return f"{self.place}-{self.by}-{self.name}{fields}-{self.n}"


def cuts(*points: tuple[str, str, int] | tuple[str, str, int, dict[str, object]]) -> list[Any]:
    """Parameters: before, within and after each of these frames, given as (by, name, n, fields)."""
    made = [
        Cut(place, name, n, by, *fields)  # type: ignore[arg-type]
        for by, name, n, *fields in points
        for place in ("before", "within", "after")
    ]
    return [pytest.param(cut, id=str(cut)) for cut in made]


def in_turns(points: Sequence[Any], *variants: tuple[object, ...]) -> list[Any]:
    """Parameters: each of these cuts, after one of the variants if there are any. Every third is for `make test`:
    frames of each kind, each of the three places and all variants are among those. The others are for `make soak`, and
    what every variant makes of every cut, the simulation tries."""
    made = []
    for number, point in enumerate(points):
        variant = variants[(number + number // 3) % len(variants)] if variants else ()
        marks = () if (number - number // 3) % 3 == 0 else pytest.mark.slow
        made.append(
            pytest.param(*variant, *point.values, id="-".join([*map(_name, variant), str(point.id)]), marks=marks)
        )
    return made


def _name(value: object) -> str:
    return str(getattr(value, "name", value))


# -- the account -------------------------------------------------------------------------------------------------------


def arrived(proxy: Proxy) -> Counter[object]:
    """How often each message that stands in one frame reached the broker, by its body; what is transacted is not."""
    return Counter(
        Message.decode(frame.payload).body
        for frame in proxy.passed("transfer", by="client")
        if frame.control is None and not isinstance(frame.performative.state, TransactionalState)  # type: ignore[union-attr]
    )


def accepted(proxy: Proxy) -> Counter[object]:
    """How often *accepted* for each message reached the broker, by the body that had been delivered. One link only."""
    bodies: dict[tuple[int, int, int], object] = {}
    found: Counter[object] = Counter()
    for frame in proxy.frames:
        said = frame.performative
        if frame.by == "broker" and isinstance(said, Transfer) and said.delivery_id is not None:
            bodies[frame.connection, frame.channel, said.delivery_id] = Message.decode(frame.payload).body
        if frame.by == "client" and isinstance(said, Disposition) and said.role is Role.RECEIVER:
            last = said.first if said.last is None else said.last
            if isinstance(said.state, Accepted):
                # One that has its outcome may be settled once more (rcv-settle-mode second): that is no other.
                keys = [(frame.connection, frame.channel, number) for number in range(said.first, last + 1)]
                found.update(bodies.pop(key) for key in keys if key in bodies)
    return found


def drain(broker: acquit.Broker, address: str) -> list[Any]:
    """All that is in a queue, taken out over a connection of our own."""
    found: list[Any] = []
    until(lambda: acquired(broker, address) == 0, "deliveries of lost connections go back")
    with acquit.connect(broker.url) as connection, connection.session() as session:
        receiver = session.receiver(address, prefetch=0)
        while live(broker, address) > 0:
            message = receiver.receive(LONG)
            assert message is not None
            found.append(message)
            until(lambda: acquired(broker, address) == 0, "its acknowledgement")
    return found


def dead_letters(broker: acquit.Broker, address: str) -> list[Any]:
    """What of this address is in the dead letter queue, which all tests of the broker share."""
    with acquit.connect(broker.url) as connection, connection.session() as session:
        browser = session.receiver("DLQ", browse=True, prefetch=1_000)
        found: list[Any] = []
        assert browser.drain(LONG)
        while many := browser.receive_many(1_000, 0):
            found += many
            assert browser.drain(LONG)
        return [letter for letter in found if letter.annotations.get("x-opt-ORIG-ADDRESS") == address]


def live(broker: acquit.Broker, address: str) -> int:
    """How many messages are in a queue, acquired ones too."""
    queue = broker.inspect().queue(address)
    return 0 if queue is None else queue.depth


def acquired(broker: acquit.Broker, address: str) -> int:
    """How many of them are with a consumer."""
    queue = broker.inspect().queue(address)
    return 0 if queue is None else queue.acquired


def until(condition: Callable[[], object], what: str, timeout_s: float = LONG) -> None:
    """Wait for what nobody tells."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"waited {timeout_s:g} s for: {what}"
        time.sleep(0.002)


def post(broker: acquit.Broker, address: str, *bodies: str) -> None:
    """Put messages there, past the proxy."""
    with acquit.connect(broker.url) as connection, connection.session() as session, session.sender(address) as sender:
        for body in bodies:
            sender.send(body)


def assert_one_warning_an_outage(caplog: pytest.LogCaptureFixture, story: Story) -> None:
    """An outage is one line of the client for the operator; what else is said of it is for the debug log."""
    lines = [
        record for record in caplog.records if record.levelno >= logging.WARNING and record.name == "acquit.client"
    ]
    assert len(lines) == story.kinds.count(INTERRUPTED), [line.getMessage() for line in lines]


def assert_in_order(story: Story) -> None:
    """Connected, then interrupted and restored in turns, and failed at the end or not at all."""
    kinds = list(story.kinds)
    assert kinds[0] is CONNECTED
    if kinds[-1] is FAILED:
        kinds.pop()
    assert kinds[1:] == [(INTERRUPTED, RESTORED)[number % 2] for number in range(len(kinds) - 1)]


def opened(proxy: Proxy, connection: int = 0) -> bool:
    """Whether the client has seen the broker's open."""
    return any(frame.connection == connection for frame in proxy.passed("open", by="broker"))


__all__ = [
    "CONNECTED",
    "FAILED",
    "INTERRUPTED",
    "LONG",
    "RESTORED",
    "Asyncio",
    "Awaited",
    "Blocking",
    "Cut",
    "PassedFrame",
    "Story",
    "accepted",
    "acquired",
    "arrived",
    "assert_in_order",
    "assert_one_warning_an_outage",
    "cuts",
    "drain",
    "fast",
    "in_turns",
    "live",
    "opened",
    "post",
    "running",
    "until",
]
