"""A session: the windows, links and transfers of one pair of channels (specification 2.5).

Theory of operation. A session has three layers, each on top of the one before: `delivery.SessionDeliveries` knows
its deliveries and settles them, `session_base.SessionBase` writes and keeps to the windows, and `Session` here attaches
links and takes the peer's frames. Deliveries, links and the session that carries them need only what is below them.

A session that fails says end with an error, and ignores what comes until the peer's end. Methods under "for the
connection" are for the engine's own modules.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from acquit.errors import FramingError, LocalProtocolError
from acquit.protocol.allocation import LowestFree
from acquit.protocol.connection_base import ConnectionBase, Event
from acquit.protocol.credit import remote_window
from acquit.protocol.definitions import (
    AmqpCondition,
    Attach,
    Begin,
    Coordinator,
    Detach,
    Disposition,
    End,
    Error,
    Flow,
    LinkCondition,
    RcvSettleMode,
    Role,
    SessionCondition,
    SndSettleMode,
    Source,
    Target,
    Transfer,
)
from acquit.protocol.delivery import AnyLink
from acquit.protocol.endpoint import Link, LinkState, Unsettled
from acquit.protocol.receiver import ReceivingLink
from acquit.protocol.sender import SendingLink
from acquit.protocol.serial import MASK
from acquit.protocol.session_base import Properties, SessionBase, SessionState
from acquit.protocol.types import Described


@dataclass(slots=True)
class SessionBegun(Event):
    """A session is usable both ways: the peer began it, or answered our begin. Links may be attached."""

    session: Session


@dataclass(slots=True)
class SessionEnded(Event):
    """The session is over, and every link on it. Its unsettled deliveries have phase LOST.

    `remote`: the peer ended it; otherwise we did, by `Session.end` or, with `error`, because of what the peer sent.
    """

    session: Session
    error: Error | None
    remote: bool


class Session(SessionBase):
    """AMQP session. Made by `Connection.begin`, or by the peer's begin (SessionBegun). `context` is the application's.

    `channel` is ours; `remote_begin` is the peer's begin, None before it came.
    """

    __slots__ = (
        "_awaiting",
        "_end_told",
        "_handles",
        "_links",
        "_named",
        "context",
        "input_handles",
        "remote_channel",
    )

    def __init__(self, connection: ConnectionBase, channel: int) -> None:
        super().__init__(connection, channel)
        self.remote_channel: int | None = None
        self.context: object = None

        self._links: dict[Link, None] = {}
        self._named: dict[tuple[str, Role], Link] = {}  # by name and our role; of several, the last attached
        self._awaiting: dict[tuple[str, Role], Link] = {}  # those we attached and the peer has not answered
        self._handles = LowestFree()
        self.input_handles: dict[int, Link] = {}
        self._end_told = False

    # -- for the application

    @property
    def links(self) -> list[Link]:
        """The links attached, attaching or detaching; once the session has ended, those that it took with it, until
        `release`."""
        return list(self._links)

    def attach_sender(
        self,
        name: str,
        *,
        source: Source | None = None,
        target: Target | Coordinator | None = None,
        snd_settle_mode: SndSettleMode = SndSettleMode.MIXED,
        rcv_settle_mode: RcvSettleMode = RcvSettleMode.FIRST,
        initial_delivery_count: int = 0,
        unsettled: Unsettled | None = None,
        incomplete_unsettled: bool = False,
        max_message_size: int | None = None,
        offered_capabilities: Sequence[str] = (),
        desired_capabilities: Sequence[str] = (),
        properties: Properties | None = None,
        context: object = None,
    ) -> SendingLink:
        """Attach a link to send on. LinkAttached or LinkDetached follows. It has no credit before the peer grants some.

        Raises LocalProtocolError, with nothing sent, if the name is in use for a sending link of this session, also one
        that the peer asks for, no handle is left, the attach does not fit the peer's frame, or the session is ending.
        """
        link = SendingLink(self, name, self._handles.peek(), context)
        self._attach(
            link,
            Attach(
                name,
                link.handle,
                Role.SENDER,
                snd_settle_mode,
                rcv_settle_mode,
                source,
                target,
                unsettled,
                incomplete_unsettled,
                initial_delivery_count,
                max_message_size,
                tuple(offered_capabilities),
                tuple(desired_capabilities),
                properties,
            ),
        )
        return link

    def attach_receiver(
        self,
        name: str,
        *,
        source: Source | None = None,
        target: Target | None = None,
        snd_settle_mode: SndSettleMode = SndSettleMode.MIXED,
        rcv_settle_mode: RcvSettleMode = RcvSettleMode.FIRST,
        unsettled: Unsettled | None = None,
        incomplete_unsettled: bool = False,
        max_message_size: int | None = None,
        offered_capabilities: Sequence[str] = (),
        desired_capabilities: Sequence[str] = (),
        properties: Properties | None = None,
        context: object = None,
    ) -> ReceivingLink:
        """Attach a link to receive on; as `attach_sender`. `grant` may be called at once.

        `max_message_size` (bytes, 0 for no limit) defaults to the connection's.
        """
        link = ReceivingLink(self, name, self._handles.peek(), context)
        self._attach(
            link,
            Attach(
                name,
                link.handle,
                Role.RECEIVER,
                snd_settle_mode,
                rcv_settle_mode,
                source,
                target,
                unsettled,
                incomplete_unsettled,
                None,
                max_message_size,
                tuple(offered_capabilities),
                tuple(desired_capabilities),
                properties,
            ),
        )
        return link

    def end(self, error: Error | None = None) -> None:
        """End the session and its links. SessionEnded follows when the peer has answered; what it says before is
        ignored. Does nothing if the session is ended or ending."""
        if self.writable:
            self._send_end(error)

    def release(self) -> None:
        """Let go of links and deliveries, after what SessionEnded says was acted upon: `Connection.release`, for one
        session. Who still has one of them may look at it."""
        for link in self._links:
            link.context = None
        for known in (self._links, self._named, self._awaiting, self.input_handles, self.outgoing, self.incoming):
            known.clear()
        self.connection.forget_session(self)
        self.context = None

    # -- for links and deliveries

    def fail(self, condition: str, description: str) -> None:
        """The peer broke the rules of the session: end it, and ignore what it sends until it has answered."""
        if not self.writable:
            return
        error = Error(condition, description)
        self._send_end(error)
        self._tell_end(error, remote=False)

    def tell_senders(self) -> None:
        """Tell the senders that there is room where there was none, in the window or among the unsettled."""
        for link in self._links:
            if isinstance(link, SendingLink) and link.credit > 0 and link.half_written is None:
                link.tell_credit()

    # -- for the connection

    def on_begun(self, begin: Begin, remote_channel: int) -> bool:
        """The peer began its half: the windows are known to both. False if we have ended ours meanwhile."""
        self.remote_begin = begin
        self.remote_channel = remote_channel
        self._next_incoming_id = begin.next_outgoing_id
        if self.state is SessionState.BEGIN_SENT:
            self.state = SessionState.MAPPED
            self.remote_incoming_window = begin.incoming_window
            return True
        return False

    def attach_held(self) -> None:
        """The peer's begin says which handles it takes: attach the links that wait for that. Those above its highest
        end, and nothing is said of them (2.7.2)."""
        held = list(self.held.items())
        self.held.clear()
        for link, frames in held:
            assert isinstance(link, Link)
            if link.handle <= self._remote_handle_max:
                for performative in frames:
                    if isinstance(performative, Flow):
                        performative.next_incoming_id = self._next_incoming_id
                    self.write(performative)
                continue
            del self._awaiting[link.name, link.role]
            self.drop(link)
            link.give_up(Error(AmqpCondition.RESOURCE_LIMIT_EXCEEDED, _no_handle_left(self._remote_handle_max)))
        if held:
            self.mark_dirty()

    def on_frame(self, performative: object, payload: bytes) -> None:
        """Take a frame of this session. What comes after we ended is ignored, but for the peer's end."""
        if isinstance(performative, End):
            self._on_end(performative)
        elif self.state is not SessionState.MAPPED:
            return
        elif isinstance(performative, Transfer):
            self._on_transfer(performative, payload)
        elif isinstance(performative, Disposition):
            self._on_disposition(performative)
        elif isinstance(performative, Flow):
            self._on_flow(performative)
        elif isinstance(performative, Attach):
            self._on_attach(performative)
        elif isinstance(performative, Detach):
            link = self._link_of(performative.handle)
            if link is not None:
                link.on_detach(performative)
                if link.state is LinkState.DETACHED and self.mapped:
                    self._unmap(link)

    def lose(self) -> None:
        """The connection is over, and the session with it."""
        self._end_told = True
        self._close()

    # -- its own

    def _attach(self, link: Link, attach: Attach) -> None:
        if not self.writable:
            raise LocalProtocolError("the session is ending or has ended")
        key = (link.name, link.role)
        if key in self._named:
            raise LocalProtocolError(f"the name {link.name!r} is in use on this session")
        handle_max = self.connection.options.handle_max
        if self.remote_begin is not None:
            handle_max = min(handle_max, self.remote_begin.handle_max)
        if link.handle > handle_max:
            raise LocalProtocolError(_no_handle_left(handle_max))
        link.send_attach(attach)
        self._awaiting[key] = link
        self._add(link)

    def _add(self, link: Link) -> None:
        self._handles.take()
        self._links[link] = None
        self._named[link.name, link.role] = link

    def _unmap(self, link: Link) -> None:
        """The peer has detached the link: its handle is free, and ours unless we still owe it an answer."""
        assert link.remote_handle is not None
        del self.input_handles[link.remote_handle]
        if not link.end_owed:
            self.drop(link)

    def drop(self, link: AnyLink) -> None:
        """Forget a link; its handle is free."""
        assert isinstance(link, Link)
        del self._links[link]
        self.owe_no_flow(link)
        self._handles.free(link.handle)
        key = (link.name, link.role)
        if self._named.get(key) is link:
            del self._named[key]

    def _link_of(self, handle: int) -> Link | None:
        link = self.input_handles.get(handle)
        if link is None:
            if handle in self.errant_handles:
                self.fail(SessionCondition.ERRANT_LINK, f"handle {handle} is of a link detached with an error")
            else:
                self.fail(SessionCondition.UNATTACHED_HANDLE, f"no link is attached with handle {handle}")
        return link

    def _on_attach(self, attach: Attach) -> None:
        if attach.handle > self.connection.options.handle_max:
            raise FramingError(f"handle {attach.handle} is above {self.connection.options.handle_max} (2.7.2)")
        if attach.handle in self.input_handles:
            self.fail(SessionCondition.HANDLE_IN_USE, f"handle {attach.handle} is in use")
            return
        self.errant_handles.discard(attach.handle)
        link = self._awaiting.pop((attach.name, Role(1 - attach.role)), None)
        if link is not None:
            self.input_handles[attach.handle] = link
            link.on_attach(attach)
            return
        if self._handles.peek() > min(self.connection.options.handle_max, self._remote_handle_max):
            self.fail(AmqpCondition.RESOURCE_LIMIT_EXCEEDED, "no handle is left to answer this attach with")
            return
        kind = SendingLink if attach.role == Role.RECEIVER else ReceivingLink
        link = kind(self, attach.name, self._handles.peek(), None)
        self._add(link)
        self.input_handles[attach.handle] = link
        link.on_request(attach)

    @property
    def _remote_handle_max(self) -> int:
        assert self.remote_begin is not None
        return self.remote_begin.handle_max

    def _on_transfer(self, transfer: Transfer, payload: bytes) -> None:
        if self.incoming_window <= 0:
            self.fail(SessionCondition.WINDOW_VIOLATION, "a transfer beyond the incoming window (2.5.6)")
            return
        self.count_incoming(1)
        link = self._link_of(transfer.handle)
        if link is None:
            return
        if isinstance(link, ReceivingLink) and not link.in_delivery:
            if transfer.delivery_id is None or transfer.delivery_tag is None:
                self.fail(
                    AmqpCondition.INVALID_FIELD, "a first transfer needs a delivery-id and a delivery-tag (2.7.5)"
                )
                return
            expected = self.next_incoming_delivery_id
            if expected is not None and transfer.delivery_id != expected:
                self.fail(AmqpCondition.INVALID_FIELD, f"delivery-id {transfer.delivery_id} where {expected} is next")
                return
            self.next_incoming_delivery_id = (transfer.delivery_id + 1) & MASK
            if link.state is LinkState.ATTACH_RECEIVED:
                link.fail(LinkCondition.TRANSFER_LIMIT_EXCEEDED, "a delivery before any link-credit (2.6.7)")
        if isinstance(transfer.state, Described):
            self.fail(AmqpCondition.NOT_IMPLEMENTED, "a delivery state of an unknown type")
            return
        link.on_transfer(transfer, payload)

    def _on_flow(self, flow: Flow) -> None:
        window = remote_window(
            flow.next_incoming_id, flow.incoming_window, self.next_outgoing_id, self._initial_outgoing_id
        )
        if window is None:
            self.fail(SessionCondition.WINDOW_VIOLATION, "a flow that counts transfers we have not sent (2.5.6)")
            return
        self._next_incoming_id = flow.next_outgoing_id
        reopened = window > 0 and self.remote_incoming_window <= 0
        self.remote_incoming_window = window
        if flow.handle is not None:
            link = self._link_of(flow.handle)
            if link is None:
                return
            if link.state is LinkState.ATTACHED:
                link.on_flow(flow)
                if flow.echo and link.state is LinkState.ATTACHED:
                    self.owe_flow(link)
            elif link.state is LinkState.ATTACH_RECEIVED:
                link.early_flow = flow
        elif flow.echo:
            self._session_flow_owed = True
            self.mark_dirty()
        if reopened:
            self.tell_senders()
            if self._half_written:
                self.mark_dirty()

    def _on_disposition(self, disposition: Disposition) -> None:
        first = disposition.first
        last = first if disposition.last is None else disposition.last
        if isinstance(disposition.state, Described):
            self.fail(AmqpCondition.NOT_IMPLEMENTED, "a delivery state of an unknown type")
        else:
            self.hear_range(disposition.role, first, last, disposition.settled, disposition.state)

    def _on_end(self, end: End) -> None:
        remote = self.state is not SessionState.END_SENT
        if remote:
            self._send_end(None)
        self._tell_end(end.error, remote=remote)
        self._close()

    def _send_end(self, error: Error | None) -> None:
        self.stop_sending()
        self.write(End(self.fit_error(error)))
        self.state = SessionState.END_SENT

    def _tell_end(self, error: Error | None, *, remote: bool) -> None:
        if not self._end_told:
            self._end_told = True
            self._lose_links()
            self.events.append(SessionEnded(self, error, remote))

    def _close(self) -> None:
        self.stop_sending()
        self.state = SessionState.ENDED
        self._lose_links()

    def _lose_links(self) -> None:
        for link in self._links:
            link.lose()
        self.lose_all()


def _no_handle_left(handle_max: int) -> str:
    return f"no handle is left on this session: the highest is {handle_max}"


__all__ = ["Session", "SessionBegun", "SessionEnded", "SessionState"]
