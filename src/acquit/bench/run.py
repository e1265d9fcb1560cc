"""A measurement, performed: connections, senders and receivers on one event loop.

The node that is measured is a temporary one of the first connection, so that the broker removes it whatever becomes of
us. What is durable needs a durable queue: one that the caller names, or, on acquit, one that is made here and deleted.
A queue that the caller names must be empty, and is left empty.
"""

from __future__ import annotations

import asyncio
import itertools
import time
import uuid
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Final

from acquit.bench.plan import STAMP_BYTES, BenchPlan, BenchResult, BenchStalled, Scenario
from acquit.client.aio import Connection, ReceivedMessage, Receiver, Sender, SendReceipt, Session
from acquit.client.management import ManagementFailed
from acquit.client.modes import MODES, AckMode, AckScope
from acquit.client.options import DeliveryMode
from acquit.errors import AcquitError, ConfigurationError, NotSent
from acquit.protocol.definitions import Accepted
from acquit.protocol.extensions import EXISTING, MANAGEMENT_NODE, QUEUE
from acquit.protocol.message import Message

Progress = Callable[[int, int], object]
"""Called with how much is done and how much there is to do: messages, or seconds."""

_TICK_S: Final = 0.05
_BATCH: Final = 200
"""Messages that are taken from a receiver, and acknowledged, at once."""
_ANSWER_S: Final = 10.0
_LEAVES_S: Final = 2.0
"""Seconds that the links of a measurement that failed have at least to close in order."""
_FULL_S: Final = 2.0
"""Seconds without credit after which a queue from which nobody receives is full."""
_OK: Final = range(200, 300)
_UNRECEIVED: Final = (Scenario.SEND, Scenario.RECEIVE)
"""Scenarios in which nobody receives while messages are posted."""
_NS: Final = 1_000_000_000


async def measure(
    connect: Callable[[], Awaitable[Connection]],
    plan: BenchPlan,
    *,
    queue: str | None = None,
    progress: Progress = lambda done, total: None,
) -> BenchResult:
    """Measure as `plan` says, over connections made by `connect`, through `queue` or a node of its own.

    Leaves nothing behind, also when it is cancelled. Raises BenchStalled when nothing moves for the plan's `stall_s`,
    ConfigurationError where the queue is not empty or the broker can make none, and what a connection raises.
    """
    if plan.scenario is Scenario.FAN_OUT and queue is not None:
        raise ConfigurationError("fan-out has a topic of its own, and takes no queue")
    async with AsyncExitStack() as stack:
        connections = [await stack.enter_async_context(await connect()) for _ in range(plan.connections)]
        session = await stack.enter_async_context(connections[0].session(AckMode.INDIVIDUAL))
        if queue is not None:
            await _check_empty(session, queue)
            emptying = _afterwards(partial(_empty, connections[0], queue), f"messages are left in {queue}")
            await stack.enter_async_context(emptying)
        elif plan.durable:
            queue = await stack.enter_async_context(_made(connections[0]))
        elif plan.scenario is not Scenario.FAN_OUT:
            # A temporary node lives as long as the link that had it made: this one, which takes no message.
            queue = (await stack.enter_async_context(session.receiver(None, prefetch=0))).address
        return await _Measurement(plan, queue).perform(connections, progress)


async def _cut_off(connections: list[Connection], patience_s: float) -> None:
    """Cut the connections off when that time is over. Links and sessions that wait for a broker that hangs to close
    them, each for itself, end with them."""
    await asyncio.sleep(patience_s)
    _ = await asyncio.gather(*(connection.close(0) for connection in connections))


@asynccontextmanager
async def _afterwards(undo: Callable[[], Awaitable[None]], left: str) -> AsyncIterator[None]:
    """Undo what a measurement has done, however it ended. Where it had stalled, and that fails, too, say what is
    left."""
    stalled: BenchStalled | None = None
    try:
        yield
    except BenchStalled as error:
        stalled = error
        raise
    finally:
        try:
            await undo()
        except AcquitError:
            if stalled is None:
                raise
            raise BenchStalled(f"{stalled}; {left}") from stalled


@asynccontextmanager
async def _made(connection: Connection) -> AsyncIterator[str]:
    """Give a durable queue of acquit that is there meanwhile."""
    product = connection.remote_properties.get("product")
    if product != "acquit":
        raise ConfigurationError(
            f"durable messages need a durable queue, which {product or 'this broker'} cannot be asked to make and "
            "delete: name one that is there (--queue)"
        )
    name = f"acquit-bench.{uuid.uuid4().hex}"
    await _manage(connection, "CREATE", name)
    async with _afterwards(partial(_manage, connection, "DELETE", name), f"its queue {name} is left"):
        yield name


async def _manage(connection: Connection, operation: str, name: str) -> None:
    """Ask the broker to make or delete a queue. Raises ManagementFailed where it does not."""
    request = Message(None, application_properties={"operation": operation, "type": QUEUE, "name": name})
    async with connection.session() as session, session.requester(MANAGEMENT_NODE) as requester:
        answer = await requester.request(request, timeout=_ANSWER_S)
    status = answer.application_properties.get("statusCode")
    if status not in _OK:
        raise ManagementFailed(f"{operation} {name}: {answer.application_properties.get('statusDescription')}")


async def _check_empty(session: Session, queue: str) -> None:
    """Raise ConfigurationError where there is a message in the queue, which is released."""
    async with session.receiver(queue, prefetch=1, capabilities=(EXISTING,)) as receiver:
        _ = await receiver.drain(_ANSWER_S)
        message = await receiver.receive(0)
        if message is not None:
            _ = await message.release()
            raise ConfigurationError(f"{queue!r} is not empty, and a measurement would take what is in it")


async def _empty(connection: Connection, queue: str) -> None:
    """Take what is in the queue."""
    async with connection.session() as session, session.receiver(queue, prefetch=_BATCH) as receiver:
        empty = 0
        while empty < 2:  # after a drain, the first receive that waits grants credit for the next
            _ = await receiver.drain(_ANSWER_S)
            empty = 0 if await receiver.receive_many(_BATCH, 0) else empty + 1


class _Measurement:
    """The measurement while it is under way, and the only writer of its result."""

    def __init__(self, plan: BenchPlan, address: str | None) -> None:
        self._plan = plan
        self._address = address
        """None until the first subscriber has had a topic made."""
        self._result = BenchResult(plan)
        self._posted = asyncio.Event()
        """Set when all is posted, and answered."""
        self._posting = plan.connections
        """Senders that are not done."""
        self._begun_ns = self._last_ns = 0
        self._tasks: list[asyncio.Task[None]] = []

    async def perform(self, connections: list[Connection], progress: Progress) -> BenchResult:
        """Post, receive, and wait for all of it."""
        plan = self._plan
        shown = connections[0].remote_properties
        self._result.peer = f"{shown.get('product', 'unknown')} {shown.get('version', '')}".strip()
        try:
            async with AsyncExitStack() as stack:
                try:
                    await self._work(stack, connections, progress)
                except BaseException:
                    self._run([_cut_off(connections, max(_LEAVES_S, min(_ANSWER_S, plan.stall_s)))])
                    raise
        finally:
            await self._end()
        return self._result

    async def _work(self, stack: AsyncExitStack, connections: list[Connection], progress: Progress) -> None:
        plan, result = self._plan, self._result
        before = plan.scenario is Scenario.RECEIVE
        if before:
            senders = [await self._sender(stack, connection) for connection in connections]
            self._begin()
            self._run(self._post(sender, index) for index, sender in enumerate(senders))
            await self._finish(self._posted.is_set, lambda done, total: None)
            self._begin()  # a receiver's first messages come as soon as it is there
        used_s = time.process_time()
        sharing = itertools.islice(itertools.cycle(connections), plan.receivers)
        work = [self._take(*await self._receiver(stack, connection)) for connection in sharing]
        if not before:
            senders = [await self._sender(stack, connection) for connection in connections]
            work += [self._post(sender, index) for index, sender in enumerate(senders)]
            used_s = time.process_time()
            self._begin()
        self._run(work)
        await self._finish(self._all_there, progress)
        result.seconds = max(1, self._last_ns - self._begun_ns) / _NS
        result.cpu_share = (time.process_time() - used_s) / result.seconds

    async def _sender(self, stack: AsyncExitStack, connection: Connection) -> Sender:
        session = await stack.enter_async_context(connection.session())
        delivery = DeliveryMode.PERSISTENT if self._plan.durable else DeliveryMode.NON_PERSISTENT
        sender = session.sender(self._address, delivery_mode=delivery, topic=self._plan.scenario is Scenario.FAN_OUT)
        return await stack.enter_async_context(sender)

    async def _receiver(self, stack: AsyncExitStack, connection: Connection) -> tuple[Session, Receiver]:
        plan = self._plan
        session = await stack.enter_async_context(connection.session(plan.mode))
        receiver = await stack.enter_async_context(
            session.receiver(self._address, prefetch=plan.credit, topic=plan.scenario is Scenario.FAN_OUT)
        )
        self._address = receiver.address
        return session, receiver

    def _begin(self) -> None:
        """Start the clock."""
        self._begun_ns = self._last_ns = time.perf_counter_ns()

    def _run(self, work: Iterable[Coroutine[object, object, None]]) -> None:
        self._tasks += [asyncio.create_task(job) for job in work]

    async def _end(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _all_there(self) -> bool:
        """Return whether all is posted, answered and received."""
        return self._posted.is_set() and self._result.received >= self._result.expected

    async def _finish(self, over: Callable[[], bool], progress: Progress) -> None:
        """Wait until it is `over`. Raises what a task raised, and BenchStalled."""
        plan, result = self._plan, self._result
        stall_ns = int(max(plan.stall_s, 2 / plan.rate if plan.rate else 0.0) * _NS)
        while not over():
            await asyncio.sleep(_TICK_S)
            for task in self._tasks:
                if task.done() and not task.cancelled() and (error := task.exception()) is not None:
                    raise error
            now = time.perf_counter_ns()
            if plan.seconds is not None:
                progress(min(int((now - self._begun_ns) / _NS), int(plan.seconds)), int(plan.seconds))
            elif plan.count is not None:
                done = result.received if plan.copies else result.accepted
                progress(done, plan.count * (plan.copies or 1))
            if now - self._last_ns > stall_ns:
                raise BenchStalled(
                    f"nothing came for {stall_ns / _NS:g} s: {result.sent} sent, {result.accepted} accepted, "
                    f"{result.received} received of {result.expected}"
                )

    async def _post(self, sender: Sender, index: int) -> None:
        """Post this sender's share, and hear of its outcomes, until all is posted or the queue is full."""
        plan = self._plan
        # Where somebody receives, there will be room. It is a wait, however short: others have to have their turn.
        full_s = max(_TICK_S, min(_FULL_S, plan.stall_s / 2)) if plan.scenario in _UNRECEIVED else None
        outcomes = _Outcomes(self, full_s)
        work = [asyncio.create_task(job) for job in (outcomes.hear(), self._send(sender, index, outcomes))]
        self._tasks += work
        _ = await asyncio.wait(work, return_when=asyncio.FIRST_COMPLETED)
        for task in work:
            task.cancel()
        if outcomes.full:
            self._result.full = True
            self._result.sent -= outcomes.left
            await sender.close(0)  # what has not left would follow as soon as there is room
        self._posting -= 1
        if not self._posting:
            self._posted.set()

    async def _send(self, sender: Sender, index: int, outcomes: _Outcomes) -> None:
        plan = self._plan
        clock = time.perf_counter_ns
        padding = bytes(plan.size_bytes - STAMP_BYTES)
        share = itertools.count() if plan.count is None else range(index, plan.count, plan.connections)
        until_ns = None if plan.seconds is None else self._begun_ns + int(plan.seconds * _NS)
        pace = None if plan.rate is None else PostingPace(self._begun_ns, plan.rate / plan.connections)
        for number, _ in enumerate(share):
            await outcomes.room(plan.in_flight)
            if until_ns is not None and pace is not None and pace.due_ns(number) >= until_ns:
                break  # it is not waited for
            stamp_ns = clock() if pace is None else await pace.wait(number)
            if until_ns is not None and stamp_ns >= until_ns:
                break
            receipt = await sender.send(stamp_ns.to_bytes(STAMP_BYTES, "big") + padding, wait=False)
            self._result.sent += 1
            outcomes.expect(receipt, stamp_ns)
        await outcomes.room(1)

    def heard(self, receipt: SendReceipt, stamp_ns: int, now_ns: int) -> bool:
        """Count the outcome of a message; False if it was not accepted."""
        self._last_ns = now_ns
        if not isinstance(receipt.outcome, Accepted):
            self._result.refused += 1
            return False
        self._result.accepted += 1
        if not self._plan.copies:
            self._result.latency.add(now_ns - stamp_ns)
        return True

    def refused(self, error: AcquitError) -> None:
        """Keep the reason of the first message that was not accepted."""
        self._result.refusal = self._result.refusal or str(error)

    async def _take(self, session: Session, receiver: Receiver) -> None:
        """Receive and acknowledge until it is over."""
        result = self._result
        timed = self._plan.scenario is not Scenario.RECEIVE
        acknowledge = _ACKNOWLEDGE.get(MODES[self._plan.mode].scope)
        while True:
            messages = await receiver.receive_many(_BATCH)
            now_ns = time.perf_counter_ns()
            for message in messages:
                body = message.body
                if not isinstance(body, bytes) or len(body) < STAMP_BYTES:
                    raise ConfigurationError(f"{self._address!r} has messages of others")
                if timed:
                    result.latency.add(now_ns - int.from_bytes(body[:STAMP_BYTES], "big"))
            result.received += len(messages)
            self._last_ns = now_ns
            if acknowledge is not None:
                await acknowledge(session, messages)


class PostingPace:
    """The times at which messages of a given rate are due, from `begun_ns` on.

    A message's time begins when it is due. What keeps it from being sent then, such as a broker that answers nobody, is
    time that it has spent waiting. Only where our own timer wakes us late the message begins when we woke.
    """

    __slots__ = ("_begun_ns", "_clock", "_pause_ns", "_sleep", "_woke_ns")

    def __init__(
        self,
        begun_ns: int,
        rate: float,
        clock: Callable[[], int] = time.perf_counter_ns,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._begun_ns = self._woke_ns = begun_ns
        self._pause_ns = _NS / rate
        self._clock = clock
        self._sleep = sleep

    def due_ns(self, number: int) -> int:
        """Return when message `number` is due."""
        return self._begun_ns + int(number * self._pause_ns)

    async def wait(self, number: int) -> int:
        """Wait until message `number` is due, and return when its time begins, in nanoseconds."""
        due_ns = self.due_ns(number)
        now_ns = self._clock()
        if now_ns < due_ns:
            await self._sleep((due_ns - now_ns) / _NS)
            self._woke_ns = self._clock()
        return max(due_ns, self._woke_ns)


class _Outcomes:
    """Sends of one sender that are not answered yet, in their order. With `full_s`, the queue is *full* if the oldest
    has had no credit for so many seconds; without it, credit is waited for."""

    def __init__(self, run: _Measurement, full_s: float | None) -> None:
        self.full = False
        self._run = run
        self._full_s = full_s
        self._waiting: deque[tuple[SendReceipt, int]] = deque()
        self._more = asyncio.Event()
        self._fewer = asyncio.Event()

    @property
    def left(self) -> int:
        """Return how many are not answered."""
        return len(self._waiting)

    async def room(self, limit: int) -> None:
        """Wait until fewer than `limit` are not answered."""
        while len(self._waiting) >= limit:
            self._fewer.clear()
            await self._fewer.wait()

    def expect(self, receipt: SendReceipt, stamp_ns: int) -> None:
        """Add one that was sent."""
        self._waiting.append((receipt, stamp_ns))
        self._more.set()

    async def hear(self) -> None:
        """Tell the run of each outcome as it comes, until the queue is full."""
        waiting = self._waiting
        while True:
            while not waiting:
                self._more.clear()
                await self._more.wait()
            oldest = waiting[0][0]
            try:
                await oldest.result(self._full_s)
            except AcquitError as error:
                if not oldest.done:
                    self.full = isinstance(error, NotSent)
                    if self.full:
                        return
                    continue  # it is under way, and takes long
                self._run.refused(error)
            now_ns = time.perf_counter_ns()
            while waiting and waiting[0][0].done:
                receipt, stamp_ns = waiting.popleft()
                if not self._run.heard(receipt, stamp_ns, now_ns):
                    try:
                        await receipt.result()
                    except AcquitError as error:
                        self._run.refused(error)
            self._fewer.set()


async def _settle(session: Session, messages: list[ReceivedMessage]) -> None:
    _ = await session.settle(messages, Accepted(), sync=False)


async def _acknowledge(session: Session, messages: list[ReceivedMessage]) -> None:
    _ = await session.acknowledge(messages[-1], sync=False)


_ACKNOWLEDGE: Final[dict[AckScope, Callable[[Session, list[ReceivedMessage]], Awaitable[None]]]] = {
    AckScope.MESSAGE: _settle,
    AckScope.SESSION: _acknowledge,
}
"""Calls that a mode takes beside receiving, by what its `acknowledge` means."""
