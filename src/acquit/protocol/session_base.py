"""Output of a session, and the windows that it keeps to (specification 2.5.6): the half that links use.

Theory of operation. A session carries transfer frames in both directions within two windows. Ours to the peer is fixed
(`incoming_window_frames`) and renewed by a flow when half of it is used: what bounds memory is link-credit and the
assembly limit, not the window, because the engine hands over what arrives. The peer's to us is what its flows say.

What is said to the peer is gathered: dispositions as runs of ids, flows as "this link owes one", and both are written
when output is taken (`flush`) or when a frame goes out that they must precede.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from enum import IntEnum
from typing import Protocol, TypeAlias

from acquit.protocol.composite import encode_composite
from acquit.protocol.connection_base import ConnectionBase, Event
from acquit.protocol.definitions import Begin, Error, Flow, Performative
from acquit.protocol.delivery import AnyLink
from acquit.protocol.received_runs import SessionRuns
from acquit.protocol.serial import MASK

Properties: TypeAlias = Mapping[str, object]


class SessionState(IntEnum):
    """States of a session (2.5.5)."""

    BEGIN_SENT = 0
    """We began; the peer has not answered. Links may be attached already."""
    MAPPED = 1
    """Both ends have begun."""
    END_SENT = 2
    """We ended; what still comes is ignored until the peer answers."""
    ENDED = 3
    """Final state. The object may be kept; its verbs do nothing, and `attach_...` is refused."""


class Unfinished(Protocol):
    """A delivery of which some is written, to the session that writes the rest of it: `sender.HalfWritten`."""

    def next_frame(self, frame_size_max: int) -> tuple[bytes, bytes, bool]:
        """Return the next transfer's performative, its part of the payload, and whether that is the last."""


class SessionBase(SessionRuns):
    """Half of a session that its links use. `remote_begin` is the peer's begin, None before it came."""

    __slots__ = (
        "_dirty",
        "_flows",
        "_half_written",
        "_initial_outgoing_id",
        "_next_incoming_id",
        "_session_flow_owed",
        "errant_handles",
        "held",
        "incoming_window",
        "next_outgoing_id",
        "out",
        "remote_begin",
        "remote_incoming_window",
        "state",
    )

    def __init__(self, connection: ConnectionBase, channel: int) -> None:
        super().__init__(connection, channel)
        options = connection.options
        self.out = connection.out
        self.state = SessionState.BEGIN_SENT
        self.remote_begin: Begin | None = None

        self.next_outgoing_id = options.initial_serial
        self._initial_outgoing_id = options.initial_serial
        self.incoming_window = options.incoming_window_frames
        self._next_incoming_id = 0
        self.remote_incoming_window = 0
        """Transfer frames the peer will take now (2.5.6)."""
        self.errant_handles: set[int] = set()  # of links that were detached with an error, at most handle_max

        self.held: dict[AnyLink, list[Performative]] = {}
        """Links whose handle the peer may not take, as it has not begun, with what is to be written for each then."""
        self._flows: dict[AnyLink, None] = {}
        self._session_flow_owed = False
        self._half_written: deque[Unfinished] = deque()
        self._dirty = False

    @property
    def events(self) -> list[Event]:
        """Events of the connection that wait to be handed over."""
        return self.connection.events

    @property
    def writable(self) -> bool:
        """True if frames may be written on the session."""
        return self.state <= SessionState.MAPPED and self.connection.writable

    @property
    def mapped(self) -> bool:
        """True if both ends have begun and neither has ended."""
        return self.state is SessionState.MAPPED

    @property
    def may_send(self) -> bool:
        """True if the session has room for a delivery: in the peer's window, and among the unsettled."""
        return self.remote_incoming_window > 0 and self.outgoing_count < self.unsettled_max

    @property
    def room(self) -> int:
        """Deliveries of one frame each that it has room for; none where that is not above 0."""
        return min(self.remote_incoming_window, self.unsettled_max - self.outgoing_count)

    def write(self, performative: Performative) -> None:
        """Write a frame. Raises FrameTooLarge, with nothing written, if the peer does not take frames that large."""
        self.connection.write(self.channel, encode_composite(performative))

    def write_in_order(self, performative: Performative) -> None:
        """Write a frame after all dispositions that wait."""
        self.flush_dispositions()
        self.write(performative)

    def hold(self, link: AnyLink, performative: Performative) -> None:
        """Keep a frame of a link until the peer has begun. Raises FrameTooLarge as `write` does."""
        self.connection.check_size(encode_composite(performative))
        self.held.setdefault(link, []).append(performative)

    def write_transfer(self, head: bytes, payload: bytes) -> None:
        """Write a transfer frame. The caller has seen that the window is open."""
        self.next_outgoing_id = (self.next_outgoing_id + 1) & MASK
        self.remote_incoming_window -= 1
        self.connection.write_frame(self.channel, head, payload)

    def write_flow(self, link: AnyLink | None = None, *, properties: Properties | None = None) -> None:
        """Write a flow, of a link or of the session alone; either renews our incoming window (2.5.6)."""
        options = self.connection.options
        flow = Flow(
            None if self.remote_begin is None else self._next_incoming_id,
            options.incoming_window_frames,
            self.next_outgoing_id,
            options.outgoing_window_frames,
            properties=properties,
        )
        if link is not None:
            flow.handle = link.handle
            flow.delivery_count, flow.link_credit, flow.available, flow.drain, flow.echo = link.flow_fields()
            self._flows.pop(link, None)
        if self.held and link is not None and link in self.held:
            self.hold(link, flow)
        else:
            self.write(flow)
        self.incoming_window = options.incoming_window_frames
        self._session_flow_owed = False

    def mark_dirty(self) -> None:
        """Note that something waits to be written with the next output."""
        if not self._dirty:
            self._dirty = True
            self.connection.dirty.append(self)

    def owe_flow(self, link: AnyLink) -> None:
        """A flow of this link is to be written with the next output."""
        self._flows[link] = None
        self.mark_dirty()

    def owe_no_flow(self, link: AnyLink) -> None:
        """The link's handle is about to go: a flow for it would be an error."""
        self._flows.pop(link, None)

    def add_half_written(self, half: Unfinished) -> None:
        """The rest of this delivery is to be written as there is room."""
        self._half_written.append(half)
        self.mark_dirty()

    def drop_half_written(self, half: Unfinished) -> None:
        """Drop a half-written delivery whose link is gone: nothing of it can be written any more."""
        with suppress(ValueError):  # the session may have dropped them all
            self._half_written.remove(half)

    def stop_sending(self) -> None:
        """Write the dispositions that wait, and nothing afterwards: an end or a close is next, or nothing at all.

        What is half written is given up.
        """
        if self.writable:
            self.flush_dispositions()
        self.remote_incoming_window = 0
        self._half_written.clear()
        self._flows.clear()
        self.held.clear()

    def fit_error(self, error: Error | None) -> Error | None:
        """`error`, without its info and the end of its description where the peer's frame is too small for them."""
        return self.connection.fit_error(error)

    def drop(self, link: AnyLink) -> None:
        """Forget a link that is detached at both ends; its handle is free."""
        raise NotImplementedError

    def count_incoming(self, frames: int) -> None:
        """Count transfer frames that came, and owe a flow when half of the window is used."""
        self._next_incoming_id = (self._next_incoming_id + frames) & MASK
        self.incoming_window -= frames
        if not self._session_flow_owed and self.incoming_window * 2 <= self.connection.options.incoming_window_frames:
            self._session_flow_owed = True
            self.mark_dirty()

    # -- for the connection

    def flush(self, budget_bytes: int) -> None:
        """Write what waits: dispositions, flows, and about `budget_bytes` of half-written deliveries, in turns."""
        self._dirty = False
        if not self.writable:
            return
        if self.held:
            for link in [link for link in self._flows if link not in self.held]:
                self.write_flow(link)
            return
        for link in list(self._flows):
            if link.role and not link.credit:
                # Before the dispositions: who gives messages back and wants no more must not get the same ones again.
                self.write_flow(link)
        self.flush_dispositions()
        for link in list(self._flows):
            self.write_flow(link)
        if self._session_flow_owed:
            self.write_flow()
        while self._half_written and self.remote_incoming_window > 0:
            if budget_bytes <= 0:
                self.mark_dirty()
                break
            half = self._half_written.popleft()
            head, chunk, last = half.next_frame(self.connection.frame_size_max)
            self.write_transfer(head, chunk)
            budget_bytes -= len(head) + len(chunk)
            if not last:
                self._half_written.append(half)


__all__ = ["Properties", "SessionBase", "SessionState"]
