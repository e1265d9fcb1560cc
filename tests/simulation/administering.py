"""A user who asks the management node to purge, move and cancel while everybody else works."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import count
from random import Random
from typing import TYPE_CHECKING, Any, Final

from acquit import Message
from acquit.errors import SendFailed
from acquit.protocol.extensions import MANAGEMENT_NODE
from tests.simulation.facts import Violation
from tests.simulation.places import COLOURS, Place
from tests.simulation.sweeps import Act

if TYPE_CHECKING:
    from tests.simulation.users import Holder
    from tests.simulation.world import World

ANSWER_S: Final = 4.0
FINE: Final = frozenset({200, 404, 507})
"""Done; not there yet; no room."""

Draw = Callable[[Random, Place, Place], tuple[Act, str, str, Any]]
"""What to ask about a place (and perhaps another): operation, type and body."""


def _purge(rng: Random, place: Place, other: Place) -> tuple[Act, str, str, Any]:
    return Act("purge", place.name), "PURGE", "acquit:queue", None


def _cancel(rng: Random, place: Place, other: Place) -> tuple[Act, str, str, Any]:
    return Act("cancel", place.name), "CANCEL", "acquit:message", {"all": True}


def _move(rng: Random, place: Place, other: Place) -> tuple[Act, str, str, Any]:
    colour = rng.choice(("", *COLOURS))
    most = rng.choice((0, 0, 1, 5))
    body: dict[str, object] = {"to": other.name}
    if colour:
        body["selector"] = f"colour = '{colour}'"
    if most:
        body["max"] = most
    return Act("move", place.name, other.name, colour, partial=most > 0), "MOVE", "acquit:queue", body


ACTS: Final[tuple[tuple[Draw, int], ...]] = ((_purge, 2), (_cancel, 2), (_move, 5))
"""And how often each is drawn."""


async def administer(world: World, holder: Holder) -> None:
    """Ask for one thing after the other. Of the first address nothing is asked: what is there has no such excuse."""
    rng, oracle = world.rng, world.oracle
    assert holder.connection is not None
    session = await holder.connection.session()
    reply_to = f"{holder.name}-answers"
    answers = await session.receiver(MANAGEMENT_NODE, target=reply_to, prefetch=5)
    requests = await session.sender(MANAGEMENT_NODE)
    for number in count():
        await asyncio.sleep(rng.random())
        if not world.working:
            return
        place, other = rng.sample(world.places[1:], 2)
        (draw,) = rng.choices([one for one, _ in ACTS], [weight for _, weight in ACTS])
        act, operation, kind, body = draw(rng, place, other)
        identity, token, asked = f"{holder.token}-{number}", holder.token, oracle.asks(act)
        properties = {"operation": operation, "type": kind, "name": place.name}
        request = Message(body, message_id=identity, reply_to=reply_to, application_properties=properties)
        try:
            await requests.send(request, timeout=ANSWER_S)
        except SendFailed:
            continue
        while (answer := await answers.receive(timeout=ANSWER_S)) is not None and answer.correlation_id != identity:
            pass
        if answer is None or token != holder.token:
            continue  # it may have been asked twice
        status = answer.application_properties["statusCode"]
        if status not in FINE:
            raise Violation(f"management: {operation} {place.name} {body} is answered with {answer}")
        if status == 200:
            oracle.done(act, asked)


__all__ = ["administer"]
