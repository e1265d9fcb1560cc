"""The links of ``$management``: requests come in on one, answers go out on another of the same connection.

No node is made for the answers. A request's *reply-to* is the target address of the client's own receiving link from
``$management``, and the broker finds it by that. Answers that wait for credit are bounded: a client that asks on and
never takes an answer is refused.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from acquit.broker.endpoints import Actor, Peer, held_back
from acquit.broker.management import NODE, Failure, Later, Managed, answer, reply_address
from acquit.errors import DecodeError
from acquit.protocol._definitions import AmqpCondition, Error, LinkCondition, Rejected
from acquit.protocol.constants import ACCEPTED

if TYPE_CHECKING:
    from acquit.protocol.connection import Connection
    from acquit.protocol.delivery import Delivery
    from acquit.protocol.link import ReceivingLink, SendingLink

REQUEST_CREDIT: Final = 16


class Requests(Actor):
    """A client's link for requests."""

    __slots__ = ("link",)

    def __init__(self, peer: Peer, link: ReceivingLink) -> None:
        super().__init__(peer, link.name, NODE)
        self.link = link


class Replies(Actor):
    """A client's link for answers."""

    __slots__ = ("awaited", "link", "outbox", "tag", "target")

    def __init__(self, peer: Peer, link: SendingLink, target: str | None) -> None:
        super().__init__(peer, link.name, NODE)
        self.link = link
        self.target = target
        self.tag = 0
        self.awaited = 0
        """Answers that will be there later."""
        self.outbox: deque[bytes] = deque()

    def send(self) -> bool:
        """Send what waits, as far as credit reaches. True if more could go once this is written."""
        link = self.link
        limit = link.remote_max_message_size
        while self.outbox and link.sendable:
            if limit and len(self.outbox[0]) > limit:
                link.detach(Error(LinkCondition.MESSAGE_SIZE_EXCEEDED, f"an answer has {len(self.outbox[0])} bytes"))
                self.outbox.clear()
                break
            self.tag += 1
            link.send(self.tag.to_bytes(8, "big"), self.outbox.popleft())
        if link.drain and link.credit and not self.outbox:
            link.drained()
        return bool(self.outbox) and held_back(self.peer, link)


class ManagementNode:
    """Answers requests."""

    def __init__(self, managed: Managed, requests_max: int, touch: Callable[[Connection], None]) -> None:
        self._managed = managed
        self.requests_max = requests_max
        self._touch = touch
        self._answerable: dict[Replies, None] = {}

    def requests(self, peer: Peer, link: ReceivingLink) -> Requests:
        """A client attached to ask."""
        link.grant(REQUEST_CREDIT)
        return Requests(peer, link)

    def replies(self, peer: Peer, link: SendingLink, target: str | None) -> Replies:
        """A client attached to hear."""
        return Replies(peer, link, target)

    def receive(self, requests: Requests, deliveries: list[Delivery]) -> None:
        """Requests arrived: each is settled, and answered on the client's own link."""
        for delivery in deliveries:
            error = self._perform(requests.peer, delivery.payload)
            if not delivery.settled:
                delivery.settle(ACCEPTED if error is None else Rejected(error))
        if requests.link.credit <= REQUEST_CREDIT // 2:
            requests.link.grant(REQUEST_CREDIT)

    def _perform(self, peer: Peer, payload: bytes) -> Error | None:
        try:
            reply_to = reply_address(payload)
        except DecodeError as exc:
            return Error(exc.condition, exc.description)
        replies = next(
            (
                link
                for link in peer.links
                if isinstance(link, Replies) and reply_to is not None and link.target == reply_to
            ),
            None,
        )
        if replies is None:
            return Error(
                AmqpCondition.PRECONDITION_FAILED,
                f"reply-to must be the target address of a link of this connection that receives from {NODE}",
            )
        if len(replies.outbox) + replies.awaited >= self.requests_max:
            return Error(AmqpCondition.RESOURCE_LIMIT_EXCEEDED, "too many answers wait for credit")
        answered = answer(payload, self._managed, peer.user, peer.rights)
        replies.awaited += 1
        if isinstance(answered, Later):
            answered.when_finished(lambda encoded: self._answer(replies, encoded))
        else:
            self._answer(replies, answered)
        return None

    def _answer(self, replies: Replies, encoded: bytes | Failure) -> None:
        replies.awaited -= 1
        if isinstance(encoded, bytes) and replies in replies.peer.links:
            replies.outbox.append(encoded)
            self.answerable(replies)

    def answerable(self, replies: Replies) -> None:
        """It has answers that wait, or credit, or room."""
        self._answerable[replies] = None

    def forget(self, replies: Replies) -> None:
        """Its link has ended."""
        self._answerable.pop(replies, None)

    def send_answers(self) -> bool:
        """Send what can be sent, once a turn. True if more can be after what was produced is written."""
        if not self._answerable:
            return False
        answerable, self._answerable = self._answerable, {}
        for replies in answerable:
            if replies.send():
                self._answerable[replies] = None
            self._touch(replies.peer.engine)
        return bool(self._answerable)


__all__ = ["ManagementNode", "Replies", "Requests"]
