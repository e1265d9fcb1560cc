"""Admission of connections beyond the login: Enforcing Connection Uniqueness 1.0 (OASIS).

A container that asks to be the only connection of its name, as JMS clients do for their client id, excludes all others
of its name and user for as long as it is connected, also those that do not ask: *strong* detection, which our open
says. What becomes of two is up to the one that was there first, where it has asked, and otherwise to the one that
comes:

    refuse-connection  0  the new one is refused: amqp:invalid-field, ``invalid-field: container-id`` in the info
    close-existing     1  those that are there are closed: amqp:resource-locked, ``sole-connection-enforcement: true``

Connections of which none has asked may have one name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from acquit.broker.links.peers import Enforcement
from acquit.protocol.definitions import AmqpCondition, Error
from acquit.protocol.types import Symbol, UInt

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from acquit.broker.links.peers import Peer
    from acquit.protocol.definitions import Open

SOLE_CONNECTION: Final = "sole-connection-for-container"
"""Open capability, asked for and offered."""
ENFORCEMENT_POLICY: Final = "sole-connection-enforcement-policy"
"""Open property, asked for; said in the answer where it is *close-existing*."""
DETECTION_POLICY: Final = "sole-connection-detection-policy"
"""Open property, of our open."""
STRONG: Final = UInt(0)


def gate(
    peer: Peer, of_container: Callable[[str | None, str], Collection[Peer]], put_out: Callable[[Peer, Error], None]
) -> Callable[[Open], Error | None]:
    """Return the function for `Connection.admit` of `peer`: given an open, the error that refuses it, or None.

    `of_container` gives the connections that a user's container has opened; `put_out` closes one of them.
    """

    def refusal(opening: Open) -> Error | None:
        try:
            asked = _enforcement(opening)
        except ValueError:
            return Error(
                AmqpCondition.INVALID_FIELD,
                f"{ENFORCEMENT_POLICY} must be the uint 0 (refuse) or 1 (close those that are there)",
                {"invalid-field": Symbol("properties")},
            )
        container = opening.container_id
        alike = of_container(peer.engine.user, container)
        if asked is None and len(alike) > 1:
            alike = ()  # who asked to be the only one would be: none of several did
        rivals = {other: asked if other.enforcement is None else other.enforcement for other in alike}
        if Enforcement.REFUSE_CONNECTION in rivals.values():
            return Error(
                AmqpCondition.INVALID_FIELD,
                f"container {container!r:.200} has a connection, and one of the two asks to be the only one",
                {"invalid-field": Symbol("container-id")},
            )
        for other, enforcement in rivals.items():
            if enforcement is Enforcement.CLOSE_EXISTING:
                put_out(
                    other,
                    Error(
                        AmqpCondition.RESOURCE_LOCKED,
                        f"container {container!r:.200} has a newer connection, and one of the two asks to be the only",
                        {"sole-connection-enforcement": True},
                    ),
                )
        peer.enforcement = asked
        if asked is Enforcement.CLOSE_EXISTING:
            peer.engine.open_properties = {ENFORCEMENT_POLICY: UInt(asked)}
        return None

    return refusal


def _enforcement(opening: Open) -> Enforcement | None:
    """Return the enforcement that an open asks for, or None. Raises ValueError for a value that is no policy."""
    if SOLE_CONNECTION not in opening.desired_capabilities:
        return None
    said = (opening.properties or {}).get(ENFORCEMENT_POLICY)
    if said is None:
        return Enforcement.REFUSE_CONNECTION
    if isinstance(said, bool) or not isinstance(said, int):
        raise ValueError(said)
    return Enforcement(said)


__all__ = ["DETECTION_POLICY", "ENFORCEMENT_POLICY", "SOLE_CONNECTION", "STRONG", "gate"]
