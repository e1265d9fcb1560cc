"""The links of ``$management``: requests come in on one, answers go to their *reply-to*.

That is one of two things. The target address of the client's own receiving link from ``$management``: no node is made
for the answers then, and the broker finds the link by it. Or a queue, usually one that the client has had made for
itself (a dynamic source, as most clients ask for replies): it gets the answer as an ordinary volatile message. Whose
own it is not needs the permission to send there.

Answers that wait are bounded, for credit as in a queue: a client that asks on and never takes an answer is refused,
before anything is done for it. Their bytes count as memory, and where none is left requests are refused as well.

A request is performed at once, and cannot be taken back: one in a transaction (4.4.1) is refused, and fails its
transaction, which would otherwise be committed without it.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from acquit.broker.admin.later import Later, RequestFailure
from acquit.broker.admin.management import answer, reply_address
from acquit.broker.dispatching import tags
from acquit.broker.dispatching.consumers import held_back
from acquit.broker.intake.limits import admit
from acquit.broker.links.peers import Actor, Peer
from acquit.broker.nodes.node import Queue
from acquit.broker.refusal import Refused
from acquit.errors import DecodeError, StoreFull
from acquit.protocol.constants import ACCEPTED
from acquit.protocol.definitions import (
    AmqpCondition,
    Error,
    LinkCondition,
    Rejected,
    TransactionalState,
    TransactionCondition,
)
from acquit.protocol.extensions import MANAGEMENT_NODE

if TYPE_CHECKING:
    from acquit.broker.admin.administration import Administration
    from acquit.broker.intake.entering import Entering
    from acquit.broker.life import Life
    from acquit.broker.nodes.queues import Queues
    from acquit.broker.transact.transactions import Transactions
    from acquit.protocol.delivery import Delivery
    from acquit.protocol.link import ReceivingLink, SendingLink

REQUEST_CREDIT: Final = 16
REQUEST_COST: Final = 10_000
"""Cost of a request: a turn of its own, as the largest, and the longest answers, take the loop some milliseconds."""
ANSWER_BYTES: Final = 256
"""Bytes of a short answer: while a queue has no room for that, no request is performed whose answer would go there."""


class RequestLink(Actor):
    """A client's link for requests."""

    __slots__ = ("awaited", "link")

    def __init__(self, peer: Peer, link: ReceivingLink) -> None:
        super().__init__(peer, link.name, MANAGEMENT_NODE)
        self.link = link
        self.awaited = 0
        """Answers that will be posted to queues later."""


class ReplyLink(Actor):
    """A client's link for answers."""

    __slots__ = ("awaited", "link", "outbox", "tag", "target", "waiting_bytes")

    def __init__(self, peer: Peer, link: SendingLink, target: str | None) -> None:
        super().__init__(peer, link.name, MANAGEMENT_NODE)
        self.link = link
        self.target = target
        self.tag = 0
        self.awaited = 0
        """Answers that will be there later."""
        self.outbox: deque[bytes] = deque()
        self.waiting_bytes = 0
        """The bytes of what is in the outbox."""

    def send(self) -> bool:
        """Send what waits, as far as credit reaches. True if more could go once this is written."""
        link = self.link
        limit = link.remote_max_message_size
        while self.outbox and link.sendable:
            if limit and len(self.outbox[0]) > limit:
                link.detach(Error(LinkCondition.MESSAGE_SIZE_EXCEEDED, f"an answer has {len(self.outbox[0])} bytes"))
                self.outbox.clear()
                self.waiting_bytes = 0
                break
            self.tag = self.tag + tags.STEP & tags.MASK
            self.waiting_bytes -= len(self.outbox[0])
            link.send(tags.encode(self.tag), self.outbox.popleft())
        if link.drain and link.credit and not self.outbox:
            link.drained()
        return bool(self.outbox) and held_back(self.peer, link)


class ManagementNode:
    """Answers requests."""

    def __init__(
        self,
        broker: Administration,
        requests_max: int,
        life: Life,
        entering: Entering,
        queues: Queues,
        transactions: Transactions,
    ) -> None:
        self._broker = broker
        self.requests_max = requests_max
        self._life = life
        self._entering = entering
        self._queues = queues
        self._transactions = transactions
        self._answerable: dict[ReplyLink, None] = {}
        self.waiting_bytes = 0
        """The bytes of all answers that wait on links."""

    def requests(self, peer: Peer, link: ReceivingLink) -> RequestLink:
        """A client attached to ask."""
        link.predicted_cost = REQUEST_COST
        link.grant(REQUEST_CREDIT)
        return RequestLink(peer, link)

    def replies(self, peer: Peer, link: SendingLink, target: str | None) -> ReplyLink:
        """A client attached to hear."""
        return ReplyLink(peer, link, target)

    def receive(self, requests: RequestLink, deliveries: list[Delivery]) -> None:
        """Perform requests: each is settled, and answered at its *reply-to*."""
        for delivery in deliveries:
            error = self._perform(requests, delivery)
            if not delivery.over:
                delivery.settle(ACCEPTED if error is None else Rejected(error))
        if requests.link.credit <= REQUEST_CREDIT // 2:
            requests.link.grant(REQUEST_CREDIT)

    def _refuse_in_transaction(self, peer: Peer, state: TransactionalState) -> Error:
        """Fail the transaction of a request, and return why the request is refused."""
        why = f"requests to {MANAGEMENT_NODE} are not performed in transactions here"
        with suppress(Refused):  # there is no such transaction
            self._transactions.find(peer, state.txn_id).fail(TransactionCondition.TRANSACTION_ROLLBACK, why)
        return Error(AmqpCondition.NOT_IMPLEMENTED, why)

    def _perform(self, requests: RequestLink, delivery: Delivery) -> Error | None:
        peer, payload, state = requests.peer, delivery.payload, delivery.remote_state
        if isinstance(state, TransactionalState):
            return self._refuse_in_transaction(peer, state)
        try:
            mailbox = self._mailbox(peer, reply_address(payload))
            waiting = len(mailbox.outbox) + mailbox.awaited if isinstance(mailbox, ReplyLink) else requests.awaited
            if waiting >= self.requests_max:
                raise Refused("too many answers wait", condition=AmqpCondition.RESOURCE_LIMIT_EXCEEDED)
            if self.waiting_bytes and self._life.memory.left <= 0:
                raise Refused("answers that wait fill the memory", condition=AmqpCondition.RESOURCE_LIMIT_EXCEEDED)
        except (DecodeError, Refused) as exc:
            return Error(exc.condition, exc.description)
        answered = answer(payload, self._broker, peer.user, peer.rights, peer.name)
        counted = mailbox if isinstance(mailbox, ReplyLink) else requests
        counted.awaited += 1

        def finished(encoded: bytes | RequestFailure) -> None:
            counted.awaited -= 1
            if isinstance(encoded, bytes):
                self._answer(mailbox, encoded)

        if isinstance(answered, Later):
            answered.when_finished(finished)
        else:
            finished(answered)
        return None

    def _mailbox(self, peer: Peer, reply_to: str | None) -> ReplyLink | Queue:
        """Return the link or queue that answers of this *reply-to* go to. Raises Refused."""
        for link in peer.links:
            if isinstance(link, ReplyLink) and reply_to is not None and link.target == reply_to:
                return link
        queue = self._queues.by_name.get(reply_to or "")
        owner = None if queue is None or queue.temporary is None else queue.temporary.owner
        if reply_to and not (isinstance(owner, Actor) and owner.peer is peer):
            peer.rights.check("send", reply_to)  # who may not is not told either whether it is there
        if queue is None or queue.subscription is not None:
            raise Refused(
                "reply-to must be the target address of a link of this connection that receives from "
                f"{MANAGEMENT_NODE}, or a queue that is there",
                condition=AmqpCondition.PRECONDITION_FAILED,
            )
        admit(queue, self._life.memory, ANSWER_BYTES, durable=False)
        return queue

    def _answer(self, mailbox: ReplyLink | Queue, encoded: bytes) -> None:
        if isinstance(mailbox, ReplyLink):
            if mailbox in mailbox.peer.links:
                mailbox.outbox.append(encoded)
                mailbox.waiting_bytes += len(encoded)
                self._count(len(encoded))
                self.answerable(mailbox)
        elif self._queues.by_name.get(mailbox.name) is mailbox:
            with suppress(Refused, StoreFull):  # it has become full meanwhile: what was asked for is done all the same
                self._entering.post(mailbox, encoded)

    def answerable(self, replies: ReplyLink) -> None:
        """Note a link that may have answers to send: some wait, or it has credit or room again."""
        self._answerable[replies] = None

    def forget(self, replies: ReplyLink) -> None:
        """Forget a link that has ended."""
        self._answerable.pop(replies, None)
        self._count(-replies.waiting_bytes)
        replies.outbox.clear()
        replies.waiting_bytes = 0

    def _count(self, size: int) -> None:
        """Count bytes that wait from now on, or (negative) wait no more."""
        self.waiting_bytes += size
        self._life.memory.bytes += size

    def send_answers(self) -> bool:
        """Send what can be sent, once a turn. True if more can be after what was produced is written."""
        if not self._answerable:
            return False
        answerable, self._answerable = self._answerable, {}
        for replies in answerable:
            before = replies.waiting_bytes
            if replies.send():
                self._answerable[replies] = None
            self._count(replies.waiting_bytes - before)
            self._life.touch(replies.peer.engine)
        return bool(self._answerable)


__all__ = ["ManagementNode", "ReplyLink", "RequestLink"]
