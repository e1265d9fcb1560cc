"""A user who begins and ends one subscription after the other, and looks whether one that has ended is there again."""

from __future__ import annotations

import asyncio
from itertools import count
from typing import TYPE_CHECKING, Final

from acquit import Subscription
from acquit.errors import LinkDetached, NotFound
from tests.simulation.facts import Violation

if TYPE_CHECKING:
    from tests.simulation.users import Holder
    from tests.simulation.world import World

QUIET: Final = "quiet"
"""A topic to which nobody posts."""


async def leave(world: World, holder: Holder) -> None:
    """Each has a name of its own, which is asked for on one connection alone: what that had sent may be read late."""
    rng = world.rng
    assert holder.connection is not None
    session = await holder.connection.session()
    for number in count():
        for name in world.ended[-3:]:
            await _look(session, name)
        await asyncio.sleep(rng.random() * 0.3)
        if not world.working:
            return
        token, name = holder.token, f"{holder.token}-{number}".replace("#", ".")
        subscription = Subscription(name=name, durable=True)
        try:
            receiver = await session.receiver(QUIET, subscription=subscription)
            await receiver.close()
            await session.unsubscribe(subscription)
        except LinkDetached:  # there is no room for it
            continue
        if holder.token == token:
            world.ended.append(name)
            world.oracle.happened("ended")


async def _look(session: object, name: str) -> None:
    try:
        await session.unsubscribe(Subscription(name=name, durable=True))  # type: ignore[attr-defined]
    except NotFound:
        return
    raise Violation(f"ended: the subscription {name} is there again, although its client was told that it has ended")


__all__ = ["leave"]
