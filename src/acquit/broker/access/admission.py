"""Which connections may be opened, beyond who may log in.

A container that asks to be the only connection of its name, as JMS clients do for their client id, is refused while
there is another one of its user: amqp:invalid-field, with ``invalid-field: container-id`` in the error's info. One that
does not ask may have several.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from acquit.protocol._definitions import AmqpCondition, Error
from acquit.protocol.types import Symbol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from acquit.broker.links.endpoints import Peer
    from acquit.protocol._definitions import Open
    from acquit.protocol.connection import Connection

SOLE_CONNECTION: Final = "sole-connection-for-container"
"""Open capability, asked for and offered."""


def gate(engine: Connection, peers: Callable[[], Iterable[Peer]]) -> Callable[[Open], Error | None]:
    """What `Connection.admit` is to be: why this peer may not open a connection, None if it may."""

    def refusal(opening: Open) -> Error | None:
        container, user = opening.container_id, engine.user
        if SOLE_CONNECTION not in opening.desired_capabilities or not any(
            peer.container == container and peer.user == user for peer in peers()
        ):
            return None
        return Error(
            AmqpCondition.INVALID_FIELD,
            f"container {container!r:.200} has a connection, and asks to have no other",
            {"invalid-field": Symbol("container-id")},
        )

    return refusal


__all__ = ["SOLE_CONNECTION", "gate"]
