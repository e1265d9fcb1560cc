"""Attaching and detaching, which both roles of a link share (specification 2.6.1 to 2.6.6).

Theory of operation. Both ends attach, each under a handle of its own, and both ends detach; that is the same for
senders and receivers, whoever came first. The flow of messages, where they differ, is in `sender.py` and `receiver.py`.

A link writes through its session, which owns the windows, the delivery-ids and the maps of unsettled deliveries. What
a peer does wrong here ends the link (`fail`), or, where the damage is the session's, the session. Frames that were on
their way when we detached are ignored until the peer's detach; they still count in the session.

Methods under "for the session" are for the engine's own modules.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, TypeAlias

from acquit.errors import FrameTooLarge, LocalProtocolError
from acquit.protocol.connection_base import Event
from acquit.protocol.definitions import (
    AmqpCondition,
    Attach,
    Coordinator,
    Detach,
    Error,
    Flow,
    RcvSettleMode,
    Role,
    SndSettleMode,
    Source,
    Target,
    Transfer,
)
from acquit.protocol.delivery import Delivery, DeliveryState
from acquit.protocol.link_base import LinkBase
from acquit.protocol.session_base import Properties, SessionBase
from acquit.protocol.types import Described

TAG_BYTES_MAX: Final = 32
"""Longest delivery-tag (2.8.7)."""

UINT_MAX: Final = 0xFFFF_FFFF

Unsettled: TypeAlias = Mapping[bytes, DeliveryState | None]


class LinkState(IntEnum):
    """States of a link (2.6.3 to 2.6.6)."""

    ATTACH_SENT = 0
    """We attached; the peer has not answered."""
    ATTACH_RECEIVED = 1
    """The peer attached; the application has not answered (LinkRequested)."""
    ATTACHED = 2
    """Both ends attached."""
    DETACH_SENT = 3
    """We detached; what still comes is ignored until the peer answers."""
    DETACHED = 4
    """Final state. The object may be kept; its verbs do nothing."""


class Link(LinkBase[SessionBase]):
    """Base of both roles of a link. Made by `Session.attach_sender` and `attach_receiver`, or by a peer's attach.

    `local_attach` and `remote_attach` are the attaches of both ends; what deliveries see of a link is in `LinkBase`.
    """

    __slots__ = (
        "_credit_told",
        "_ended_told",
        "_refused",
        "_requested",
        "early_flow",
        "end_owed",
        "ends_later",
        "local_attach",
        "remote_attach",
        "remote_handle",
        "state",
    )

    def __init__(self, session: SessionBase, name: str, handle: int, context: object) -> None:
        super().__init__(session, name, handle, context)
        self.state = LinkState.ATTACH_SENT
        self.local_attach: Attach | None = None
        self.remote_attach: Attach | None = None
        self.remote_handle: int | None = None
        self.early_flow: Flow | None = None  # what the peer said before we answered its attach
        self._refused = False  # the peer answered our attach without a terminus: its detach must follow (2.6.3)
        self._requested = False  # the application has been asked, and has not answered
        self._credit_told = -1
        self._ended_told = False
        self.ends_later = False
        """True if the application answers the peer's detach (`answer_end`) where that closes the link in order."""
        self.end_owed = False
        """True while the peer waits for that answer."""

    # -- for the application

    @property
    def remote_max_message_size(self) -> int:
        """The largest message, in bytes, that the peer takes; 0 for no limit (2.7.3)."""
        return (self.remote_attach.max_message_size or 0) if self.remote_attach is not None else 0

    def unsettled(self) -> list[Delivery]:
        """The link's deliveries that neither end has settled, oldest first. Takes time in all those of the session."""
        if not self.unsettled_count:
            return []
        return [delivery for delivery in self.session.map_of(self.role).values() if delivery.link is self]

    def accept_attach(
        self,
        *,
        source: Source | None = None,
        target: Target | Coordinator | None = None,
        snd_settle_mode: SndSettleMode | None = None,
        rcv_settle_mode: RcvSettleMode | None = None,
        initial_delivery_count: int = 0,
        unsettled: Unsettled | None = None,
        incomplete_unsettled: bool = False,
        max_message_size: int | None = None,
        offered_capabilities: Sequence[str] = (),
        desired_capabilities: Sequence[str] = (),
        properties: Properties | None = None,
    ) -> None:
        """Answer LinkRequested: yes. What is left out is as the peer asked for it.

        `max_message_size` (bytes; 0 for no limit) defaults to the connection's on receiving links. Does nothing if the
        peer has gone meanwhile. Raises LocalProtocolError if the link was not requested, or was answered. An answer
        that does not fit the peer's frames ends the session (amqp:frame-size-too-small): nothing shorter can be said.
        """
        asked = self._request_to_answer()
        if asked is None:
            return
        answered = self._answer(
            Attach(
                self.name,
                self.handle,
                self.role,
                asked.snd_settle_mode if snd_settle_mode is None else snd_settle_mode,
                asked.rcv_settle_mode if rcv_settle_mode is None else rcv_settle_mode,
                asked.source if source is None else source,
                asked.target if target is None else target,
                unsettled,
                incomplete_unsettled,
                initial_delivery_count,
                max_message_size,
                tuple(offered_capabilities),
                tuple(desired_capabilities),
                properties,
            )
        )
        self._requested = False
        if answered:
            self.state = LinkState.ATTACHED
            self._agree(asked)
            if self.early_flow is not None:
                self.on_flow(self.early_flow)
                if self.early_flow.echo:
                    self.session.owe_flow(self)
                self.early_flow = None

    def refuse(self, error: Error) -> None:
        """Answer LinkRequested: no. Attach without our terminus, then detach, closed, with `error` (2.6.3).

        LinkDetached follows when the peer has answered. Does nothing if it has gone meanwhile.
        """
        asked = self._request_to_answer()
        if asked is not None:
            self._requested = False
            if self._answer(self._refusal(asked)):
                self._send_detach(error, closed=True)

    def detach(self, error: Error | None = None, *, closed: bool = True) -> None:
        """Detach. LinkDetached follows when the peer has answered; until then dispositions still arrive.

        A half-written or half-read delivery is given up. Does nothing if the link is detached or detaching. Raises
        LocalProtocolError on a link that waits for `accept_attach` or `refuse`.
        """
        if self.state is LinkState.ATTACH_RECEIVED:
            raise LocalProtocolError(f"link {self.name!r} was requested: accept or refuse it")
        if self.state in (LinkState.ATTACH_SENT, LinkState.ATTACHED) and self.session.writable:
            self._send_detach(error, closed=closed)

    def answer_end(self) -> None:
        """Answer the peer's detach, of which LinkDetached told. Does nothing where no answer is owed (`end_owed`), or
        the session has ended meanwhile."""
        if self.end_owed:
            self.end_owed = False
            if self.session.writable:
                self.session.write_in_order(Detach(self.handle, True))
                self.session.drop(self)

    # -- for the session

    def send_attach(self, attach: Attach) -> None:
        """Write our attach, after filling in what depends on the role; before the peer's begin has said which handles
        it takes, keep it for then, but for the lowest handle. Raises before anything has changed."""
        if self.role == Role.SENDER:
            attach.initial_delivery_count = attach.initial_delivery_count or 0
        else:
            attach.initial_delivery_count = None
            if attach.max_message_size is None:
                attach.max_message_size = self.session.connection.options.max_message_size
        if not attach.max_message_size:
            attach.max_message_size = None
        if self.handle and self.session.remote_begin is None:
            self.session.hold(self, attach)
        else:
            self.session.write(attach)
        self.local_attach = attach
        self.snd_settle_mode = attach.snd_settle_mode
        self.rcv_settle_mode = attach.rcv_settle_mode
        self.source = attach.source if isinstance(attach.source, Source) else None
        self.target = attach.target if isinstance(attach.target, Target | Coordinator) else None
        self._local_attach_sent(attach)

    def on_request(self, attach: Attach) -> None:
        """The peer attached first: ask the application, unless the attach is refused at once for what it says."""
        self.remote_attach = attach
        self.remote_handle = attach.handle
        self.state = LinkState.ATTACH_RECEIVED
        self.ends_later = self.session.connection.ends_later
        self._ended_told = True  # of a link that nobody hears of, nobody hears the end
        if self._check_remote(attach):
            self._ended_told = False
            self._requested = True
            self.session.events.append(LinkRequested(self))

    def on_attach(self, attach: Attach) -> None:
        """The peer answered our attach."""
        self.remote_attach = attach
        self.remote_handle = attach.handle
        if self.state is not LinkState.ATTACH_SENT:
            return  # we have detached meanwhile; its detach will follow
        self.state = LinkState.ATTACHED
        if not self._check_remote(attach):
            return
        if (attach.source if self.role else attach.target) is None:
            self._refused = True
            return
        self._agree(attach)
        if self.role == Role.RECEIVER and attach.rcv_settle_mode is RcvSettleMode.FIRST:
            # A sender that answers *second* with *first* does not support it (2.7.3): it would never settle what waits
            # for its answer.
            self.rcv_settle_mode = RcvSettleMode.FIRST
        self.session.events.append(LinkAttached(self))

    def on_detach(self, detach: Detach) -> None:
        """The peer detached: answer it, unless it answers us, or the application does so later."""
        if self.state is LinkState.DETACH_SENT:
            self._finish(detach, remote=False)
            return
        if self.state is LinkState.ATTACH_RECEIVED:  # gone before the application answered
            assert self.remote_attach is not None
            if not self._answer(self._refusal(self.remote_attach)):
                return
        self.end_owed = self.ends_later and detach.closed and detach.error is None
        if not self.end_owed:
            self.session.write_in_order(Detach(self.handle, detach.closed or self._refused))
        self._finish(detach, remote=True)

    def fail(self, condition: str, description: str) -> None:
        """The peer broke the rules of this link: detach it, and ignore what it sends until it has answered."""
        if self.state >= LinkState.DETACH_SENT:
            return
        if self.state is LinkState.ATTACH_RECEIVED:
            assert self.remote_attach is not None
            if not self._answer(self._refusal(self.remote_attach)):
                return
        error = Error(condition, description)
        self._send_detach(error, closed=True)
        self._tell_end(True, error, remote=False)

    def give_up(self, error: Error) -> None:
        """Our attach was never sent, and cannot be."""
        self.state = LinkState.DETACHED
        self._stop()
        self._tell_end(True, error, remote=False)

    def lose(self) -> None:
        """The session is over, and the link with it; nobody is told twice."""
        self.state = LinkState.DETACHED
        self._ended_told = True
        self._stop()

    def on_flow(self, flow: Flow) -> None:
        """Take the link's part of a flow."""
        raise NotImplementedError

    def on_transfer(self, transfer: Transfer, payload: bytes) -> None:
        """Take a transfer. Only receivers get any."""
        raise NotImplementedError

    # -- its own

    def _request_to_answer(self) -> Attach | None:
        """The attach to answer, or None if the peer has gone since it asked."""
        if not self._requested:
            raise LocalProtocolError(f"link {self.name!r} is no request that waits for an answer")
        if self.state is LinkState.ATTACH_RECEIVED and self.session.writable:
            return self.remote_attach
        self._requested = False
        return None

    def _local_attach_sent(self, attach: Attach) -> None:
        """Set what the role takes from our own attach."""

    def _check_remote(self, attach: Attach) -> bool:
        if isinstance(attach.source, Described) or isinstance(attach.target, Described):
            self.fail(AmqpCondition.NOT_IMPLEMENTED, "a source or target of an unknown type")
            return False
        return True

    def _agree(self, attach: Attach) -> None:
        """Each end says what is true of its own side (2.6.3, 2.7.3)."""
        if self.role == Role.SENDER:
            self.rcv_settle_mode = attach.rcv_settle_mode
            self.target = attach.target if isinstance(attach.target, Target | Coordinator) else None
        else:
            self.snd_settle_mode = attach.snd_settle_mode
            self.source = attach.source if isinstance(attach.source, Source) else None

    def _answer(self, attach: Attach) -> bool:
        """Answer the peer's attach. False if the answer fits no frame, and the session has ended for that."""
        try:
            self.send_attach(attach)
        except FrameTooLarge as exc:
            self.session.fail(AmqpCondition.FRAME_SIZE_TOO_SMALL, str(exc))
            return False
        return True

    def _refusal(self, asked: Attach) -> Attach:
        """The answer that has no terminus on our side (2.6.3)."""
        refusal = Attach(self.name, self.handle, self.role, asked.snd_settle_mode, asked.rcv_settle_mode)
        if self.role == Role.SENDER and isinstance(asked.target, Target | Coordinator):
            refusal.target = asked.target
        if self.role == Role.RECEIVER and isinstance(asked.source, Source):
            refusal.source = asked.source
        return refusal

    def _send_detach(self, error: Error | None, *, closed: bool) -> None:
        detach = Detach(self.handle, closed, self.session.fit_error(error))
        if self in self.session.held:
            self.session.hold(self, detach)
        else:
            self.session.write_in_order(detach)
        self.session.owe_no_flow(self)
        self.state = LinkState.DETACH_SENT
        self.closing = closed or error is not None
        if error is not None and self.remote_handle is not None:
            self.session.errant_handles.add(self.remote_handle)
        self._stop()

    def _stop(self) -> None:
        """No more messages either way."""
        raise NotImplementedError

    def _finish(self, detach: Detach, *, remote: bool) -> None:
        assert self.remote_handle is not None
        self.state = LinkState.DETACHED
        self._stop()
        if detach.error is not None:
            self.session.errant_handles.add(self.remote_handle)
        closed = self.closing or detach.closed or self._refused or detach.error is not None
        self._tell_end(closed, detach.error, remote=remote)

    def _tell_end(self, closed: bool, error: Error | None, *, remote: bool) -> None:
        if self._ended_told:
            return
        self._ended_told = True
        unsettled = self.unsettled()
        if closed:
            self.session.lose_deliveries(unsettled)
        self.session.events.append(LinkDetached(self, closed, error, remote, unsettled))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} {self.state.name}>"


@dataclass(slots=True)
class LinkRequested(Event):
    """The peer attached a link: answer with `link.accept_attach` or `link.refuse`. `link.remote_attach` is its wish."""

    link: Link


@dataclass(slots=True)
class LinkAttached(Event):
    """The peer answered our attach and has a terminus for it. (A refusal comes as LinkDetached alone.)"""

    link: Link


@dataclass(slots=True)
class LinkDetached(Event):
    """The link is detached at both ends, or will be with `Link.answer_end`; its handle is free then.

    `closed`: destroyed; otherwise only suspended, and its termini may live on. `remote`: the peer began it; otherwise
    we did, by `Link.detach` or, with `error`, because of what the peer sent. `unsettled`: the link's deliveries that
    neither end had settled. When the link was closed or failed they have phase LOST: nobody can dispose of them any
    more. When it was only suspended they still can be, by either end, as long as the session lasts (2.7.6).
    """

    link: Link
    closed: bool
    error: Error | None
    remote: bool
    unsettled: list[Delivery]


@dataclass(slots=True)
class FlowReceived(Event):
    """A flow that carried properties, or that answers an echo we asked for."""

    link: Link
    flow: Flow


__all__ = [
    "TAG_BYTES_MAX",
    "UINT_MAX",
    "FlowReceived",
    "Link",
    "LinkAttached",
    "LinkDetached",
    "LinkRequested",
    "LinkState",
    "Unsettled",
]
