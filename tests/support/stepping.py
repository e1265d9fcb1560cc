"""Cancelling an operation at every one of its awaits, and the account of all messages afterwards.

A scenario is a coroutine function that does its operation through a `Cut`, which cancels it as it suspends for the n-th
time: either while it waits (``woken=False``), or when what it waited for has come but it has not run since
(``woken=True``), which is where a message or a turn can be lost. `at_every_await` plays the scenario for every n until
the operation ends before it is cancelled.

The bytes of a `SlowRig` take turns of the loop, so that an operation waits at each step of an exchange.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any, Generic, TypeVar, cast

from acquit import aio
from acquit.client.aio import KINDS
from acquit.client.driver import Driver
from acquit.client.options import ConnectOptions
from acquit.protocol import events as ev
from acquit.protocol.definitions import Accepted, TransactionalState
from acquit.protocol.delivery import Delivery, is_outcome
from acquit.protocol.link import SendingLink
from acquit.protocol.settlement import Phase
from tests.support.server import Rig, RigDriver, Server

T = TypeVar("T")

LONG = 30.0
"""Seconds after which a scenario that hangs fails."""


class Cut:
    """Runs one operation, and cancels it at its await number `at`, counted from 1."""

    def __init__(self, at: int, *, woken: bool) -> None:
        self.at = at
        self.woken = woken
        self.reached = False

    async def __call__(self, operation: Awaitable[T]) -> T | None:
        """What the operation returns; None where it was cancelled."""

        async def run() -> T:
            return await _Stepped(operation, self)

        task = asyncio.create_task(run())
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            assert self.reached, "nobody cancelled it"
            return None
        finally:
            assert task.done()
            assert not self.reached or task.cancelled() or task.exception() is not None, "it swallowed its cancellation"

    def __repr__(self) -> str:
        return f"cancelled at await {self.at}{', which had ended' if self.woken else ''}"


class _Stepped(Generic[T]):
    """Awaits something, and counts how often that suspends."""

    def __init__(self, awaited: Awaitable[T], cut: Cut) -> None:
        self._awaited = awaited
        self._cut = cut

    def __await__(self) -> Generator[Any, Any, T]:
        steps = self._awaited.__await__()
        task = asyncio.current_task()
        assert task is not None
        send: Callable[[], Any] = lambda: next(steps)  # noqa: E731 -- what to do next
        for number in itertools.count(1):
            try:
                future = send()
            except StopIteration as stop:
                return cast(T, stop.value)
            if number == self._cut.at:
                self._cut.reached = True
                if self._cut.woken and future is not None:
                    # Called before the task's own callback: it is done, and the task has not gone on.
                    future.add_done_callback(lambda _: task.cancel())
                else:
                    task.cancel()
            try:
                value = yield future
            except BaseException as exc:
                send = _thrower(steps, exc)
            else:
                send = _sender(steps, value)
        raise AssertionError("never reached")


def _thrower(steps: Generator[Any, Any, Any], exc: BaseException) -> Callable[[], Any]:
    return lambda: steps.throw(exc)


def _sender(steps: Generator[Any, Any, Any], value: object) -> Callable[[], Any]:
    return lambda: steps.send(value)


def at_every_await(scenario: Callable[[Cut], Coroutine[Any, Any, None]]) -> int:
    """Play a scenario for each await of its operation, and return how many there are."""
    awaits = 0
    for woken in (False, True):
        for at in range(1, 1_000):
            cut = Cut(at, woken=woken)

            async def limited(cut: Cut = cut) -> None:
                async with asyncio.timeout(LONG):
                    await scenario(cut)

            try:
                asyncio.run(limited())
            except BaseException as exc:
                exc.add_note(repr(cut))
                raise
            if not cut.reached:
                break
            awaits = max(awaits, at)
    return awaits


async def turns(count: int) -> None:
    """Let all tasks run, and bytes move, so many times."""
    for _ in range(count):
        await asyncio.sleep(0)


class SlowRig(Rig):
    """A rig whose bytes take turns of the loop, once it is `slow`."""

    slow = False
    moving = False

    def run(self) -> None:
        if not self.slow:
            super().run()
            return
        assert self.loop is not None
        self.core.process(self.now)
        if not self.moving:
            self.moving = True
            self.loop.call_soon(self._step)

    def _step(self) -> None:
        assert self.loop is not None
        self.moving = self.carry()
        if self.moving:
            self.loop.call_soon(self._step)


class Accounted:
    """An asyncio session over a slow rig, and what became of every message that the server sent or was sent."""

    def __init__(self, mode: str, *, server: Server | None = None, **options: int) -> None:
        self.rig = SlowRig(server, ConnectOptions(**options))  # type: ignore[arg-type]  # numbers all
        self.rig.core.kinds = KINDS
        self.driver = cast(Driver, RigDriver(self.rig))
        self.session = aio.Session(self.rig.session(mode), self.driver)
        if self.session._core.transactions is not None:
            self.session._core.transactions.open()
            self.rig.run()
        self.delivered: list[Delivery] = []
        transfer = self.rig.peer._transfer

        def noting(link: SendingLink, payload: bytes, settled: bool | None) -> Delivery:
            delivery = transfer(link, payload, settled)
            self.delivered.append(delivery)
            return delivery

        self.rig.peer._transfer = noting  # type: ignore[method-assign]

    def offer(self, count: int, first: int = 0) -> None:
        """Messages for the queue ``q``, whose bodies are their numbers."""
        self.rig.server.offer("q", *(str(number) for number in range(first, first + count)))
        self.rig.run()

    def fates(self, committed: list[bytes] | None = None) -> dict[str, Counter[object]]:
        """The bodies of what was delivered, by what became of them: ``accepted``, ``again`` (the broker delivers them
        again), ``held`` (nobody has decided)."""
        said: dict[Delivery, object] = {}
        for event in self.rig.server.all(ev.StatesReceived):
            if isinstance(event.link, SendingLink) and (
                is_outcome(event.state) or isinstance(event.state, TransactionalState)
            ):
                for delivery in event.deliveries:
                    assert delivery not in said, f"two outcomes for {delivery.context!r}"
                    said[delivery] = event.state
        fates: dict[str, Counter[object]] = {"accepted": Counter(), "again": Counter(), "held": Counter()}
        for delivery in self.delivered:
            state = said.get(delivery)
            if isinstance(state, TransactionalState):
                state = state.outcome if state.txn_id in (committed or ()) else None
                fate = "accepted" if isinstance(state, Accepted) else "again"
            elif state is not None:
                fate = "accepted" if isinstance(state, Accepted) else "again"
            else:
                fate = "again" if delivery.phase == Phase.LOST else "held"
            fates[fate][delivery.context] += 1
        return fates

    def waiting(self) -> Counter[object]:
        """What is in the queue still."""
        from acquit.protocol.message import Message

        return Counter(Message.decode(payload).body for payload in self.rig.server.queues["q"])

    async def settled(self) -> None:
        """Wait until nobody has anything more to say."""
        await turns(2)
        while self.rig.moving:
            await turns(1)


def numbers(*counts: int) -> Counter[object]:
    """The bodies of so many messages; with two numbers, from the first to before the second."""
    return Counter(str(number) for number in range(*counts))
