"""A session: the windows, the link handles and the delivery-ids of one pair of channels (specification 2.5)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING

from acquit.protocol._definitions import Begin, Coordinator, Error, RcvSettleMode, SndSettleMode, Source, Target

if TYPE_CHECKING:
    from acquit.protocol.connection import Connection
    from acquit.protocol.delivery import Delivery, DeliveryState
    from acquit.protocol.link import Link, ReceivingLink, SendingLink


class SessionState(IntEnum):
    """Where a session is in its life (2.5.5)."""

    BEGIN_SENT = 0
    MAPPED = 1
    END_SENT = 2
    ENDED = 3


class Session:
    """One session. Made by `Connection.begin`, or by the peer's begin (SessionBegun). `context` is the application's."""

    __slots__ = ("connection", "context", "links", "remote_begin", "state")

    connection: Connection
    state: SessionState
    remote_begin: Begin | None
    links: list[Link]
    context: object

    @property
    def remote_incoming_window(self) -> int:
        """Transfer frames the peer will take now (2.5.6)."""
        raise NotImplementedError

    def attach_sender(
        self,
        name: str,
        *,
        source: Source | None = None,
        target: Target | Coordinator | None = None,
        snd_settle_mode: SndSettleMode = SndSettleMode.MIXED,
        rcv_settle_mode: RcvSettleMode = RcvSettleMode.FIRST,
        initial_delivery_count: int = 0,
        unsettled: Mapping[bytes, DeliveryState | None] | None = None,
        incomplete_unsettled: bool = False,
        max_message_size: int | None = None,
        offered_capabilities: Sequence[str] = (),
        desired_capabilities: Sequence[str] = (),
        properties: Mapping[str, object] | None = None,
        context: object = None,
    ) -> SendingLink:
        """Attach a link to send on. LinkAttached or LinkDetached follows. It has no credit before the peer grants some.

        Raises LocalProtocolError if the name is in use for a sending link of this session, no handle is left, the
        attach does not fit the peer's frame, or the session is ending.
        """
        raise NotImplementedError

    def attach_receiver(
        self,
        name: str,
        *,
        source: Source | None = None,
        target: Target | None = None,
        snd_settle_mode: SndSettleMode = SndSettleMode.MIXED,
        rcv_settle_mode: RcvSettleMode = RcvSettleMode.FIRST,
        unsettled: Mapping[bytes, DeliveryState | None] | None = None,
        incomplete_unsettled: bool = False,
        max_message_size: int | None = None,
        offered_capabilities: Sequence[str] = (),
        desired_capabilities: Sequence[str] = (),
        properties: Mapping[str, object] | None = None,
        context: object = None,
    ) -> ReceivingLink:
        """Attach a link to receive on; as `attach_sender`. `grant` may be called at once."""
        raise NotImplementedError

    def settle_all(self, deliveries: Iterable[Delivery], state: DeliveryState | None = None) -> int:
        """`Delivery.settle` for many of this session (of any of its links), much faster. Returns how many were in time."""
        raise NotImplementedError

    def unsettled(self) -> list[Delivery]:
        """All deliveries of the session, of both directions, that neither end has settled."""
        raise NotImplementedError

    def end(self, error: Error | None = None) -> None:
        """End the session and its links. SessionEnded follows when the peer has answered."""
        raise NotImplementedError
