"""A user who pauses queues and topics, and resumes them, while everybody else works."""

from __future__ import annotations

import asyncio
from itertools import count
from typing import TYPE_CHECKING, Any

import acquit.aio
from acquit import Message
from acquit.errors import SendFailed
from acquit.protocol.extensions import MANAGEMENT_NODE
from tests.simulation.administering import ANSWER_S, FINE
from tests.simulation.facts import Violation
from tests.simulation.places import Place

if TYPE_CHECKING:
    from tests.simulation.users import Holder
    from tests.simulation.world import World


class Asking:
    """Requests of one connection to pause and to resume."""

    def __init__(self, connection: acquit.aio.Connection, name: str) -> None:
        self._connection = connection
        self._name = name
        self._numbers = count()

    async def begin(self) -> None:
        """Attach what is needed for that."""
        session = await self._connection.session()
        self._answers = await session.receiver(MANAGEMENT_NODE, target=f"{self._name}-answers", prefetch=5)
        self._requests = await session.sender(MANAGEMENT_NODE)

    async def ask(self, place: Place, how: str) -> int | None:
        """Pause an address, or resume it; the status of the answer, None where none came."""
        identity = f"{self._name}-{next(self._numbers)}"
        about: dict[str, Any] = {"operation": "UPDATE", "type": "acquit:queue", "name": place.name}
        reply_to = f"{self._name}-answers"
        request = Message({"paused": how}, message_id=identity, reply_to=reply_to, application_properties=about)
        try:
            await self._requests.send(request, timeout=ANSWER_S)
        except SendFailed:
            return None
        while (answer := await self._answers.receive(timeout=ANSWER_S)) is not None:
            if answer.correlation_id == identity:
                status: int = answer.application_properties["statusCode"]
                if status not in FINE:
                    raise Violation(f"management: to pause {place.name} for {how} is answered with {answer}")
                return status
        return None


async def pause(world: World, holder: Holder) -> None:
    """Pause one address after the other for a while. What was asked on a connection that was lost may be done late, so
    of an address that was to be resumed then nothing is promised any more."""
    rng, oracle = world.rng, world.oracle
    assert holder.connection is not None
    asking, token = Asking(holder.connection, holder.token), holder.token
    await asking.begin()
    while world.working:
        await asyncio.sleep(rng.random() * 0.5)
        place = rng.choice((*world.places, *world.topics))
        how = "producers" if place.topic else rng.choice(("producers", "consumers", "both"))
        status = await asking.ask(place, how)
        if token != holder.token:
            return
        if status == 200 and place.name not in world.resuming:
            oracle.pauses(place.name, how)
        await asyncio.sleep(rng.choice((0.0, 0.1, 1.0, 4.0)))
        oracle.resumes(place.name)
        world.resuming.add(place.name)
        status = await asking.ask(place, "none")
        if token != holder.token:
            return
        if status is not None:
            world.resuming.discard(place.name)


def resume_all(world: World) -> None:
    """Resume everything, at rest, as by HTTP: connections may have no room for two links."""
    administration = world.server._core.administration
    for place in (*world.places, *world.topics):
        world.oracle.resumes(place.name)
        if administration.figures.node(place.name) is not None:
            administration.pause(place.name, "none", None)
    world.server._turn()


__all__ = ["pause", "resume_all"]
