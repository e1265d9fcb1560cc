"""A connection as its sessions and links see it: where they write, where their events go, and what limits them.

`connection.Connection` is the rest of it. It knows its sessions and links, and they know no more of it than this.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from acquit.errors import FrameTooLarge
from acquit.protocol.composite import encode_composite
from acquit.protocol.costs import Turn
from acquit.protocol.definitions import Error, Open
from acquit.protocol.frames import AMQP_FRAME, encode_frame
from acquit.protocol.options import MAX_FRAME_SIZE_MIN, ConnectionOptions

_FRAME_HEADER: Final = struct.Struct(">IBBH")
_HEADER_BYTES: Final = 8
"""Bytes of a frame's header; the body follows."""
_ERROR_FRAME_OVERHEAD: Final = 64
"""More than any detach, end or close takes besides its error."""
_CONDITION_CHARACTERS_MAX: Final = 100
DESCRIPTION_BYTES_MAX: Final = 256
"""Bytes left of a description that is cut; with the limit above, an error fits the smallest frame size there is."""


class Event:
    """Event that the engine reports to the code that drives it; all kinds are in `events`."""

    __slots__ = ()


@dataclass(slots=True)
class ConnectionOpened(Event):
    """Both opens are exchanged: sessions may begin. `open` is the peer's."""

    open: Open


@dataclass(slots=True)
class ConnectionEnded(Event):
    """The connection is over, and everything on it. Exactly one, and the last event.

    `lost`: without a close from the peer, so that what was in flight is in doubt. `remote`: the peer ended it; False
    where we did, by `close` or because of what it sent. `authentication`: SASL refused us, or we the peer.
    `foreign`: the peer's first bytes are of another protocol, or another version of AMQP: nothing was refused.
    """

    error: Error | None
    lost: bool
    remote: bool
    authentication: bool = False
    foreign: bool = False


class Flushed(Protocol):
    """A session, to the connection that takes its output."""

    def flush(self, budget_bytes: int) -> None:
        """Write what waits, and about `budget_bytes` of deliveries larger than a frame."""


class ConnectionBase:
    """Half of a connection that its sessions and links use.

    `remote_open` is the peer's open, `context` the application's.
    """

    def __init__(self, options: ConnectionOptions, *, server: bool) -> None:
        self.options = options
        self.server = server
        self.remote_open: Open | None = None
        self.context: object = None
        self.count_assembled: Callable[[int], bool] | None = None
        """Told of each change in the bytes of deliveries that have begun to arrive and not ended. False is a refusal:
        the link on which they come is ended with amqp:resource-limit-exceeded."""

        self.ends_later = False
        """True if the application answers the end of links that the peer asks for, until it says of one that it does
        not (`Link.ends_later`)."""
        self.events: list[Event] = []
        """Engine's own: where events gather until they are handed over."""
        self.event_batch = 0
        """Engine's own: which handing-over is next, so that CreditChanged comes once in each."""
        self.out: list[bytes] = []
        """Engine's own: output, in order. Always the same list, so that links may hold it."""
        self.assembled_bytes = 0
        """Bytes of deliveries that have begun to arrive and not ended."""
        self.turn = Turn(options.turn_cost_max)
        """Budget for what the peer asks, in the units of `costs`. Code that acts on events may spend of it, too."""
        self.unfinished: Callable[[], None] | None = None
        """Engine's own: what is left to do of a frame that was cut off at the end of a turn, which sets it anew where
        there is more. No frame is taken before all is done."""
        self.peer_frame_size_max = MAX_FRAME_SIZE_MIN
        """The largest frame the peer takes, in bytes; before its open, what every peer must take."""
        self.frame_size_max = MAX_FRAME_SIZE_MIN
        """The largest transfer frame that we write: no larger, so that links take turns."""
        self.dirty: list[Flushed] = []
        """Engine's own: the sessions that have gathered output."""

    @property
    def writable(self) -> bool:
        """True if frames of sessions may be written."""
        raise NotImplementedError

    def forget_link(self, link: object) -> None:
        """The link's transfers will look different from what was learned of them, or no more come."""
        raise NotImplementedError

    def forget_session(self, session: object) -> None:
        """Forget the session's dispositions: its channel may be another session's now."""
        raise NotImplementedError

    def write(self, channel: int, body: bytes) -> None:
        """Write a frame. Raises FrameTooLarge, with nothing written, for one the peer does not take."""
        if _HEADER_BYTES + len(body) > self.peer_frame_size_max:
            self.check_size(body)
        self.out.append(encode_frame(channel, body))

    def check_size(self, body: bytes) -> None:
        """Raise FrameTooLarge for a frame that the peer does not take."""
        size = _HEADER_BYTES + len(body)
        if size > self.peer_frame_size_max:
            raise FrameTooLarge(f"a frame of {size} bytes; the peer takes {self.peer_frame_size_max}")

    def write_frame(self, channel: int, head: bytes, payload: bytes) -> None:
        """Write a transfer, whose size the caller has seen to."""
        self.out.append(_FRAME_HEADER.pack(_HEADER_BYTES + len(head) + len(payload), 2, AMQP_FRAME, channel) + head)
        if payload:
            self.out.append(payload)

    def write_raw(self, frames: list[bytes]) -> None:
        """Write whole frames."""
        self.out += frames

    def fit_error(self, error: Error | None) -> Error | None:
        """`error`, without its info and the end of its description where the peer's frame is too small for them."""
        if error is None or len(encode_composite(error)) + _ERROR_FRAME_OVERHEAD <= self.peer_frame_size_max:
            return error
        description = (error.description or "").encode()[:DESCRIPTION_BYTES_MAX].decode(errors="ignore")
        return Error(error.condition[:_CONDITION_CHARACTERS_MAX], description)

    def assemble(self, byte_count: int) -> bool:
        """Count bytes of unfinished deliveries, up or down. False above a limit, ours or the application's."""
        self.assembled_bytes += byte_count
        allowed = self.count_assembled is None or self.count_assembled(byte_count)
        return allowed and self.assembled_bytes <= self.options.assembly_bytes_max

    @property
    def assembling(self) -> bool:
        """True if a delivery has begun to arrive, and not ended."""
        return self.assembled_bytes > 0


__all__ = ["DESCRIPTION_BYTES_MAX", "ConnectionBase", "ConnectionEnded", "ConnectionOpened", "Event"]
