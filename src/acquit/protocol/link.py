"""Links: the two roles of a link endpoint (specification 2.6)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING

from acquit.protocol._definitions import Attach, Coordinator, Error, RcvSettleMode, Role, SndSettleMode, Source, Target

if TYPE_CHECKING:
    from acquit.protocol.delivery import Delivery, DeliveryState
    from acquit.protocol.session import Session


class LinkState(IntEnum):
    """Where a link is in its life (2.6.3 to 2.6.6)."""

    ATTACH_SENT = 0
    """We attached; the peer has not answered."""
    ATTACH_RECEIVED = 1
    """The peer attached; the application has not answered (LinkRequested)."""
    ATTACHED = 2
    """Both ends attached."""
    DETACH_SENT = 3
    """We detached; what still comes is ignored until the peer answers."""
    DETACHED = 4
    """Over. The object may be kept; its verbs do nothing."""


class Link:
    """What both roles share. Made by `Session.attach_sender` and `attach_receiver`, or by a peer's attach.

    `source` is as the sending end describes it, `target` as the receiving end does (2.6.3); before the peer's attach,
    as we asked. `context` is the application's. The modes are as negotiated.
    """

    __slots__ = (
        "context",
        "local_attach",
        "name",
        "rcv_settle_mode",
        "remote_attach",
        "role",
        "session",
        "snd_settle_mode",
        "source",
        "state",
        "target",
    )

    session: Session
    name: str
    role: Role
    state: LinkState
    source: Source | None
    target: Target | Coordinator | None
    snd_settle_mode: SndSettleMode
    rcv_settle_mode: RcvSettleMode
    local_attach: Attach | None
    remote_attach: Attach | None
    context: object

    @property
    def remote_max_message_size(self) -> int:
        """The largest message, in bytes, that the peer takes; 0 for no limit (2.7.3)."""
        raise NotImplementedError

    def unsettled(self) -> list[Delivery]:
        """The link's deliveries that neither end has settled, oldest first. Takes time in all those of the session."""
        raise NotImplementedError

    def accept_attach(
        self,
        *,
        source: Source | None = None,
        target: Target | Coordinator | None = None,
        snd_settle_mode: SndSettleMode | None = None,
        rcv_settle_mode: RcvSettleMode | None = None,
        initial_delivery_count: int = 0,
        unsettled: Mapping[bytes, DeliveryState | None] | None = None,
        incomplete_unsettled: bool = False,
        max_message_size: int | None = None,
        offered_capabilities: Sequence[str] = (),
        desired_capabilities: Sequence[str] = (),
        properties: Mapping[str, object] | None = None,
    ) -> None:
        """Answer LinkRequested: yes. What is left out is as the peer asked for it.

        `max_message_size` (bytes; receiving links) defaults to the connection's. Does nothing on the wire if the peer
        has gone meanwhile. Raises LocalProtocolError if the link was answered before.
        """
        raise NotImplementedError

    def refuse(self, error: Error) -> None:
        """Answer LinkRequested: no. Attach without our terminus, then detach, closed, with `error` (2.6.3)."""
        raise NotImplementedError

    def detach(self, error: Error | None = None, *, closed: bool = True) -> None:
        """Detach. LinkDetached follows when the peer has answered; until then dispositions still arrive.

        A half-written or half-read delivery is given up. Does nothing if the link is detached or detaching.
        """
        raise NotImplementedError


class SendingLink(Link):
    """A link whose sender we are.

    `credit`: messages the peer will take now; `drain`: it wants them now or never, see `drained`; `delivery_count` as
    in 2.6.7.
    """

    __slots__ = ("available", "credit", "delivery_count", "drain")

    credit: int
    drain: bool
    delivery_count: int
    available: int

    @property
    def sendable(self) -> bool:
        """Whether `send` would be taken now: attached, credit, window, room for unsettled, no half-written delivery."""
        raise NotImplementedError

    def send(
        self,
        tag: bytes,
        payload: bytes,
        *,
        settled: bool | None = None,
        state: DeliveryState | None = None,
        message_format: int = 0,
        resume: bool = False,
        context: object = None,
    ) -> Delivery:
        """Send one message: `payload` is its encoded sections, passed on byte for byte.

        `settled` defaults to what the link's snd-settle-mode says. `tag` (at most 32 bytes) must be unique among the
        link's unsettled deliveries: the engine passes it on and does not check. A message larger than a frame or the
        session's window is cut, and the rest is written as the peer makes room, in turns with other links; until then
        this link is not `sendable`. Uses one credit. Raises LocalProtocolError, with nothing sent, where not
        `sendable`, for a tag too long, a message larger than `remote_max_message_size`, or against the settle mode.
        """
        raise NotImplementedError

    def abort(self, delivery: Delivery) -> bool:
        """Give up a delivery that is half written (2.6.14). False if it was completely written, or never begun here."""
        raise NotImplementedError

    def drained(self) -> None:
        """Give back the credit that is left: there is nothing (more) to send for this drain (2.6.7)."""
        raise NotImplementedError

    def offer(self, available: int) -> None:
        """Tell the peer how many messages wait for credit here."""
        raise NotImplementedError


class ReceivingLink(Link):
    """A link whose receiver we are. `credit` is what is left of what we granted; `available` is what the sender says."""

    __slots__ = ("available", "credit", "delivery_count", "drain", "max_message_size")

    credit: int
    drain: bool
    delivery_count: int
    available: int
    max_message_size: int

    def grant(self, credit: int, *, echo: bool = False, properties: Mapping[str, object] | None = None) -> None:
        """Set the link-credit: the peer may send this many more messages, counted from what has arrived (2.6.7).

        Ends a drain. The flow goes out with the next output, one for all grants until then. Less than before is
        allowed: what the peer sent before it heard is taken as usual. `echo` asks the peer for its state
        (FlowReceived); not every peer answers.
        """
        raise NotImplementedError

    def drain_credit(self) -> None:
        """Ask the sender to use the credit at once or give it back. LinkDrained follows when none is left."""
        raise NotImplementedError
