"""Blocks of `Session.transaction`, one after the other and one inside the other."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

import acquit
from acquit import aio, errors


class Stage:
    """A transacted session of a broker in this process."""

    def __init__(self, broker: acquit.Broker, connection: acquit.Connection) -> None:
        self.broker = broker
        self.session = connection.session("transacted")
        self.copies = self.session.sender("copies")
        self.entered = 0

    @property
    def depth(self) -> int:
        return next(queue.depth for queue in self.broker.inspect().queues if queue.name == "copies")


@pytest.fixture
def stage() -> Iterator[Stage]:
    with acquit.Broker() as broker, acquit.connect(broker.url) as connection:
        yield Stage(broker, connection)


@pytest.mark.parametrize("by_hand", [False, True])
def test_a_block_inside_another_is_refused_before_anything_is_done(stage: Stage, by_hand: bool) -> None:
    def inner() -> None:
        with stage.session.transaction():
            stage.entered += 1

    with stage.session.transaction():
        stage.copies.send("outer")
        with pytest.raises(errors.LocalProtocolError, match="cannot be in another one of the same session"):
            inner()
        assert stage.depth == 0
        if by_hand:
            stage.session.rollback()
            stage.copies.send("outer again")
    assert stage.entered == 0
    assert stage.depth == 1
    inner()  # the outer one is over
    with pytest.raises(ZeroDivisionError), stage.session.transaction():
        raise ZeroDivisionError
    inner()
    assert stage.entered == 2


def test_a_block_inside_another_is_refused_with_asyncio(stage: Stage) -> None:
    async def main() -> None:
        async with aio.connect(stage.broker.url) as connection:
            session = await connection.session("transacted")
            copies = await session.sender("copies")
            async with session.transaction():
                await copies.send("outer")
                with pytest.raises(errors.LocalProtocolError, match="cannot be in another one of the same session"):
                    async with session.transaction():
                        stage.entered += 1
                await session.commit()
                await copies.send("outer again")
            async with session.transaction():
                await copies.send("another")

    asyncio.run(main())
    assert stage.entered == 0
    assert stage.depth == 3
