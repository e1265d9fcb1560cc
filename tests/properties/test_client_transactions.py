"""Ends of transactions that are cancelled, timed out or refused at every step of the exchange: nothing happens by half.

The server answers one direction a turn of the loop, so that a commit waits at each of its steps. What it committed is
read from what it heard: postings and outcomes by their transaction, and which of these it committed.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acquit import aio, errors
from acquit.client.aio import KINDS
from acquit.client.driver import Driver
from acquit.protocol.constants import ACCEPTED
from acquit.protocol.definitions import (
    Declare,
    DeliveryState,
    Discharge,
    Error,
    Modified,
    Rejected,
    Released,
    TransactionalState,
)
from acquit.protocol.message import Message
from tests.support.examples import share
from tests.support.server import RigDriver
from tests.support.stepping import SlowRig, turns

TURNS_MAX = 20
"""Turns of the loop after which an undisturbed commit has ended."""


class Books:
    """What the server has to say of messages sent (b) and received (a)."""

    def __init__(self, rig: SlowRig) -> None:
        self.server = rig.server
        self.refusals: list[bool] = []
        self.committed: list[bytes] = []
        rig.server.commits = self._commit

    def _commit(self, discharge: Discharge) -> DeliveryState | None:
        if self.refusals and self.refusals.pop(0):
            return Rejected(Error("amqp:transaction:rollback", "refused"))
        self.committed.append(discharge.txn_id)
        return ACCEPTED

    @property
    def posted(self) -> Counter[object]:
        return Counter(
            Message.decode(delivery.payload).body
            for delivery in self.server.taken
            if isinstance(delivery.remote_state, TransactionalState) and delivery.remote_state.txn_id in self.committed
        )

    @property
    def retired(self) -> Counter[object]:
        return Counter(
            body
            for body, state, _ in self.server.outcomes()
            if isinstance(state, TransactionalState) and state.txn_id in self.committed
        )

    @property
    def given_back(self) -> Counter[object]:
        """What comes again: given back as such, or accepted in a transaction that was not committed."""
        return Counter(
            body
            for body, state, _ in self.server.outcomes()
            if isinstance(state, Released | Modified)
            or (isinstance(state, TransactionalState) and state.txn_id not in self.committed)
        )


class Stage:
    def __init__(self) -> None:
        self.rig = SlowRig()
        self.rig.core.kinds = KINDS
        self.books = Books(self.rig)
        self.driver = cast(Driver, RigDriver(self.rig))
        self.session = aio.Session(self.rig.session("transacted"), self.driver)
        self.number = itertools.count()

    async def attach(self) -> None:
        self.receiver = await self.session.receiver("a", prefetch=3)
        self.sender = await self.session.sender("b")
        self.rig.slow = True

    async def work(self, *, wait: bool = True) -> str:
        """A message is received, one of the same name is sent."""
        name = str(next(self.number))
        self.rig.server.offer("a", name)
        self.rig.run()
        message = await self.receiver.receive(5)
        assert message is not None
        await self.sender.send(str(message.body), wait=wait)  # type: ignore[call-overload]  # either
        return name


async def cancelled(task: asyncio.Task[None]) -> bool:
    """Cancel it. Whether that was in time."""
    task.cancel()
    try:
        await task
    except asyncio.CancelledError:
        return True
    except errors.TransactionFailed:
        pass
    return False


@pytest.mark.parametrize("after", range(TURNS_MAX))
@pytest.mark.parametrize("wait", [True, False])
def test_a_commit_that_is_cancelled_goes_on_and_is_heard_of_by_the_next(after: int, wait: bool) -> None:
    async def main() -> None:
        stage = Stage()
        await stage.attach()
        name = await stage.work(wait=wait)
        task = asyncio.ensure_future(stage.session.commit())
        await turns(after)
        await cancelled(task)
        await stage.session.commit()
        if after:  # at once cancelled, it was never begun, and the second did it all
            assert len(stage.books.committed) == 1
        assert stage.books.posted == stage.books.retired == Counter([name])
        assert stage.books.given_back == Counter()

    asyncio.run(main())


def test_the_turns_are_enough_for_every_step() -> None:
    async def main() -> None:
        stage = Stage()
        await stage.attach()
        await stage.work(wait=False)
        task = asyncio.ensure_future(stage.session.commit())
        await turns(1)
        assert not task.done()
        await turns(TURNS_MAX - 2)
        assert task.done()

    asyncio.run(main())


@pytest.mark.parametrize("after", range(TURNS_MAX))
def test_a_refusal_that_a_cancelled_commit_did_not_hear_is_raised_by_the_next(after: int) -> None:
    async def main() -> None:
        stage = Stage()
        stage.books.refusals = [True]
        await stage.attach()
        name = await stage.work()
        task = asyncio.ensure_future(stage.session.commit())
        await turns(after)
        if await cancelled(task):
            with pytest.raises(errors.TransactionRolledBack, match="refused"):
                await stage.session.commit()
        again = await stage.work()
        await stage.session.commit()
        assert stage.books.posted == stage.books.retired == Counter([again])
        assert stage.books.given_back == Counter([name])

    asyncio.run(main())


@pytest.mark.parametrize("after", range(TURNS_MAX))
def test_rollback_stops_a_cancelled_commit_or_comes_too_late_but_never_by_half(after: int) -> None:
    async def main() -> None:
        stage = Stage()
        await stage.attach()
        name = await stage.work(wait=False)
        task = asyncio.ensure_future(stage.session.commit())
        await turns(after)
        await cancelled(task)
        await stage.session.rollback()
        books = stage.books
        assert books.posted == books.retired
        assert books.retired + books.given_back == Counter([name])
        assert after > 1 or books.given_back  # early enough, it is rolled back
        again = await stage.work()
        await stage.session.commit()
        assert books.posted == books.retired
        assert again in books.retired

    asyncio.run(main())


@pytest.mark.promise("no-lies")
@settings(max_examples=share(200))
@given(
    st.lists(
        st.one_of(
            st.tuples(st.sampled_from(["commit", "rollback"]), st.integers(0, TURNS_MAX)),
            st.tuples(st.sampled_from(["work", "work without waiting"]), st.just(0)),
            st.tuples(st.just("time out"), st.integers(0, 1)),
        ),
        max_size=12,
    ),
    st.lists(st.booleans(), max_size=4),
)
def test_in_any_order_nothing_is_lost_doubled_or_done_by_half(
    schedule: list[tuple[str, int]], refusals: list[bool]
) -> None:
    asyncio.run(play(schedule, refusals))


async def play(schedule: list[tuple[str, int]], refusals: list[bool]) -> None:
    stage = Stage()
    stage.books.refusals = refusals
    await stage.attach()
    names = []
    for what, count in schedule:
        try:
            if what in ("commit", "rollback"):
                task = asyncio.ensure_future(getattr(stage.session, what)())
                await turns(count)
                await cancelled(task)
            elif what == "time out":
                await stage.session.commit(timeout=0)
            else:
                names.append(await stage.work(wait=what == "work"))
        except errors.TransactionFailed:
            pass
    stage.books.refusals = []
    try:
        await stage.session.commit()
    except errors.TransactionFailed:
        pass
    await stage.session.commit()
    stage.rig.slow = False
    stage.rig.run()  # what goes on where nobody waits for it
    books = stage.books
    heard = Counter(type(request) for request in books.server.controlled)
    assert heard[Declare] == heard[Discharge]
    assert books.posted == books.retired
    assert books.retired + books.given_back == Counter(names)
