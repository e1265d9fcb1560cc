"""Deliveries of a link that was attached again: resumed, confirmed or given up before anything new is sent (2.6.13).

`protocol.resumption` says what is due for a delivery-tag, by our unsettled map and the peer's. Each delivery that is
resumed takes one credit, as a new one does, so they go out as the peer's credit and the bodies in memory allow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from acquit.protocol.resumption import MISSING, ResumeAction, action

if TYPE_CHECKING:
    from collections.abc import Callable

    from acquit.broker.dispatching.consumers import Consumer
    from acquit.broker.dispatching.sending import Sending
    from acquit.broker.life import Life
    from acquit.broker.links.termini import Termini
    from acquit.broker.links.terminus import SourceTerminus
    from acquit.broker.message import Message
    from acquit.protocol.delivery import Delivery, DeliveryState

TURN_MAX: Final = 500
"""Deliveries that one turn resumes on a link."""
READ_AHEAD: Final = 64
"""Bodies that are read together for deliveries that come next."""
_WHOLE: Final = (ResumeAction.SEND, ResumeAction.RESUME)


class Resuming:
    """Goes through the deliveries that consumers resume."""

    def __init__(
        self,
        life: Life,
        sending: Sending,
        termini: Termini,
        heard: Callable[[Consumer, list[Delivery], DeliveryState, bool], None],
    ) -> None:
        """`heard` performs an outcome of the peer, as `Settling.heard` does."""
        self._life = life
        self._sending = sending
        self._termini = termini
        self._heard = heard
        self._unfinished: dict[Consumer, None] = {}

    def begin(self, consumer: Consumer) -> None:
        """Look after a link that was just attached: its first credit may have come before."""
        if consumer.resuming:
            self._unfinished[consumer] = None

    def run(self) -> bool:
        """Go on for those links that more could be done for at once. True if some are left."""
        for consumer in list(self._unfinished):
            self.go_on(consumer)
        return bool(self._unfinished)

    def go_on(self, consumer: Consumer) -> None:
        """Do what is next for a consumer, as far as its credit reaches."""
        self._unfinished.pop(consumer, None)
        link, terminus, resuming = consumer.link, consumer.resumable, consumer.resuming
        if terminus is None or link.context is not consumer or not resuming:
            return
        complete = link.remote_attach is None or not link.remote_attach.incomplete_unsettled
        left = TURN_MAX
        said: list[tuple[object, list[Delivery]]] = []
        while resuming and link.sendable:
            if not left:
                self._unfinished[consumer] = None
                break
            tag, theirs = resuming[0]
            message = terminus.messages.get(tag)
            ours = None if message is not None else terminus.taken.get(tag, MISSING)
            what = MISSING if ours is MISSING else action(ours, theirs, complete=complete)
            if message is not None and message.body is None and what in _WHOLE:
                self._read_ahead(consumer, terminus)
                break
            left -= 1
            resuming.popleft()
            if what is ResumeAction.WAIT:
                continue  # it stays suspended until the peer's next map names it
            if message is not None and what in _WHOLE:
                self._resume(consumer, tag, what is ResumeAction.RESUME)
            elif message is not None:  # its outcome came with the peer's map, as if by a disposition just now
                if not said or said[-1][0] != theirs:
                    said.append((theirs, []))
                said[-1][1].append(self._resume(consumer, tag, True, with_message=False))
            elif ours is not MISSING:
                self._tell(consumer, terminus, tag, ours, what)
        for outcome, deliveries in said:
            self._heard(consumer, deliveries, outcome, False)  # type: ignore[arg-type]  # `resumption` has looked at it
        self._life.touch(link.session.connection)
        if not resuming:
            consumer.stand_in_line()
            self._life.wake(consumer.queue)

    def _resume(self, consumer: Consumer, tag: bytes, resume: bool, *, with_message: bool = True) -> Delivery:
        assert consumer.resumable is not None
        message = self._termini.resume(consumer.resumable, consumer, tag)
        assert message is not None
        self._bind_group(message, consumer)
        payload = self._sending.payload(message) if with_message else b""
        return self._sending.send_acquired(consumer, message, tag, payload, resume=resume)

    @staticmethod
    def _bind_group(message: Message, consumer: Consumer) -> None:
        """Bind the message's group, which was held back while the delivery was suspended, to this consumer. If the
        message is the last of its group, that was freed before: another one of the same name may have begun."""
        queue, extra = consumer.queue, message.extra
        if extra is None or extra.group is None or extra.closes_group or not queue.policy.message_groups:
            return
        queue.hand_out(message, extra.group, consumer)

    def _tell(self, consumer: Consumer, terminus: SourceTerminus, tag: bytes, ours: object, what: object) -> None:
        """Say, or forget, the outcome of a delivery whose message was taken from the peer."""
        link = consumer.link
        match what:
            case ResumeAction.ABORT:
                link.abort_resumed(tag)
                self._termini.tell(consumer, [tag])
            case ResumeAction.SETTLE:
                delivery = link.send(tag, b"", resume=True, settled=False)
                link.session.settle_all([delivery], ours)  # type: ignore[arg-type]
                self._termini.tell(consumer, [tag])
            case ResumeAction.RESTATE:
                delivery = link.send(tag, b"", resume=True, settled=False, state=ours)  # type: ignore[arg-type]
            case ResumeAction.FORGET:
                self._termini.forget(terminus, (tag,))
            case _:
                pass  # the peer's map is incomplete: at its next attach

    def _read_ahead(self, consumer: Consumer, terminus: SourceTerminus) -> None:
        memory = self._life.memory

        def read(_: Message) -> None:
            self._unfinished[consumer] = None
            self._life.wake(consumer.queue)

        for tag, _ in list(consumer.resuming)[:READ_AHEAD]:
            message = terminus.messages.get(tag)
            if message is not None and message.body is None:
                memory.want(message, read)


__all__ = ["Resuming"]
