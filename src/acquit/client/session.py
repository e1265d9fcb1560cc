"""A session of the client's core: its mode, its links, and what it handed out.

Theory of operation. `handed_out` holds what the session handed out and nobody acknowledged, in order. Taking a message
out of it is the claim to decide its outcome: it succeeds once, whoever tries, in whatever thread. What follows is said
on the loop side, where outcomes gather as long as they are the same: what was acknowledged one by one is one
disposition.

When the connection is interrupted (see `core`), the session stays as it is. `since` tells the messages of the old
connection from those of the present one, and `restore` begins it again, with all its links.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from acquit.client.core_base import CoreBase
from acquit.client.failures import Failure
from acquit.client.fates import FateQuery, Origin
from acquit.client.modes import FAILED, AckScope, CreditReturn, Mode
from acquit.client.options import ReceiverSpec, SenderSpec, check_subscription
from acquit.client.receipts import Milestone, ReceiptStatus, SettlementReceipt
from acquit.client.received import TAKEN_BACK, Kinds, MessageCore, ReceiverBase, SessionCoreBase, describe
from acquit.client.receiving import ReceiverCore, lose
from acquit.client.resumable import check_exactly_once, check_receiving
from acquit.client.resuming import ResumingReceiver, ResumingSender
from acquit.client.run_receiving import RunReceiverCore
from acquit.client.sending import SenderCore
from acquit.client.transacted_sending import TransactedSender
from acquit.client.transacting import SessionTransactions
from acquit.errors import LinkDetached, LocalProtocolError, ResourceLocked, SessionEnded
from acquit.protocol.constants import ACCEPTED, RELEASED, Outcome
from acquit.protocol.definitions import AmqpCondition, Modified, Target
from acquit.protocol.delivery import Delivery, ReceivedRun, is_outcome
from acquit.protocol.settlement import Phase

if TYPE_CHECKING:
    from acquit.client.subscriptions import Subscription

_ANSWERED: Final = frozenset((Phase.UNSETTLED_SECOND, Phase.OFFERED_SECOND))
"""Deliveries whose sender will answer our outcome: rcv-settle-mode second, of the link or of the transfer (2.7.5)."""


class SessionCore(SessionCoreBase):
    """A session: its mode, its links, and what it handed out."""

    def __init__(self, core: CoreBase, mode: Mode, kinds: Kinds) -> None:
        super().__init__(core, mode, kinds)
        self.begun = Milestone()
        self.ended = Milestone()
        self.senders: list[SenderCore] = []
        self.receivers: list[ReceiverCore] = []
        self.transactions: SessionTransactions | None = None
        if mode.transacted:
            self.transactions = SessionTransactions(self, self.senders, self.receivers)
        self._lazy_max = min(mode.lazy_messages, max(1, core.options.unsettled_max // 2))
        self._hurried = False
        self._blocks = [None]
        """The one block that may be entered, while none is: taken and given back at once, whichever threads do so."""

    # -- user side -----------------------------------------------------------------------------------------------------

    def recover(self) -> int:
        """Put what was handed out and not acknowledged back to the front of the buffers, in order. Return how many.

        Only in modes where the user acknowledges: elsewhere nothing is left to be recovered. Raises LocalProtocolError
        in TRANSACTED, where that is what a rollback does.
        """
        if self.transactions is not None:
            raise LocalProtocolError("recover is not for sessions in mode TRANSACTED: roll back")
        if self.mode.scope is AckScope.NOTHING:
            return 0
        claimed = [message for message in list(self.handed_out.values()) if self.claim(message)]
        if claimed:
            self.core.post((self._recover, claimed))
        return len(claimed)

    @contextmanager
    def block(self) -> Iterator[None]:
        """A block that ends a transaction. Raises LocalProtocolError inside another."""
        try:
            self._blocks.pop()
        except IndexError:
            raise LocalProtocolError(
                "a block of session.transaction() cannot be in another one of the same session: its end would commit "
                "what the outer one has done so far"
            ) from None
        try:
            yield
        finally:
            self._blocks.append(None)

    # -- loop side: life -----------------------------------------------------------------------------------------------

    def add_sender(self, spec: SenderSpec) -> SenderCore:
        """Attach a sender."""
        self.check()
        transactions = self.transactions
        check_exactly_once(self, spec)
        sender: SenderCore
        if transactions is not None:
            sender = TransactedSender(self, spec, transactions)
        else:
            sender = SenderCore(self, spec) if spec.exactly_once is None else ResumingSender(self, spec)
        sender.attach()
        self.senders.append(sender)
        return sender

    def add_receiver(self, spec: ReceiverSpec) -> ReceiverCore:
        """Attach a receiver."""
        self.check()
        if spec.subscription is not None:
            name = spec.subscription.link_name(self.core.receiver_names(), named=self.core.named)
            spec = replace(spec, name=name)
        check_exactly_once(self, spec)
        check_receiving(self, spec)
        receiver: ReceiverCore
        if spec.in_runs:
            receiver = RunReceiverCore(self, spec)
        else:
            receiver = ReceiverCore(self, spec) if spec.exactly_once is None else ResumingReceiver(self, spec)
        receiver.attach()
        self.receivers.append(receiver)
        return receiver

    def ask_fate(self, txn_id: bytes, origin: Origin | None = None) -> FateQuery:
        """Ask the peer what became of a transaction, which was declared at `origin` if that is known."""
        if self.failure is not None:
            raise self.failure.error()
        return FateQuery(self, txn_id, origin)

    def remove_subscription(self, subscription: Subscription) -> SubscriptionRemoval:
        """Delete a subscription of a topic at the peer. Raises ResourceLocked where a receiver of this session has it:
        its link may bear the name that the removal needs; LinkDetached where the peer has none that have a name."""
        self.check()
        check_subscription(subscription)
        if self.core.peer.repeats_source:
            what = f"the subscription {subscription.name!r} is not there: the peer keeps none that have a name"
            raise LinkDetached(what, condition=AmqpCondition.NOT_IMPLEMENTED)
        for receiver in self.receivers:
            held = receiver.spec.subscription
            if held is not None and held.name == subscription.name and receiver.failure is None:
                what = f"the subscription {subscription.name!r} has a receiver on this session: close that first"
                raise ResourceLocked(what, condition=AmqpCondition.RESOURCE_LOCKED)
        return SubscriptionRemoval(self, subscription)

    def on_ended(self, failure: Failure) -> None:
        """The session is over, by itself or with its connection, and its links with it."""
        if self.failure is not None:
            return
        self.failure = failure
        self.core.gathering.pop(self, None)
        if self.transactions is not None:
            self.transactions.on_session_ended(failure)
        lost = self.engine.unsettled()
        for sender in tuple(self.senders):
            sender.on_ended(failure, [delivery for delivery in lost if delivery.link is sender.link])
        lose(lost, failure.message)
        for receiver in tuple(self.receivers):
            receiver.on_ended(failure)
        self.senders.clear()
        self.receivers.clear()
        for errand in tuple(self.errands):
            errand.on_ended(failure)
        self.begun.fail(failure)
        self.ended.succeed()

    def on_interrupted(self, failure: Failure) -> None:
        """The connection is lost, and will be restored."""
        if self.closing:
            self.on_ended(failure)
            return
        self._about.clear()
        self._hurried = False
        self.core.gathering.pop(self, None)
        self.since = self.number
        closing: list[SenderCore | ReceiverCore] = [*self.senders, *self.receivers]
        for link in closing:
            if link.closing:
                self.forget(link, failure)
        lost = self.engine.unsettled()
        for sender in self.senders:
            sender.on_interrupted([delivery for delivery in lost if delivery.link is sender.link])
        resumed = {receiver.link for receiver in self.receivers if receiver.resumes}
        lose([delivery for delivery in lost if delivery.link not in resumed], failure.message)
        self._renumber([message for receiver in self.receivers for message in receiver.kept])
        for receiver in self.receivers:
            receiver.on_interrupted(failure)
        for errand in tuple(self.errands):
            errand.on_ended(failure)
        if self.transactions is not None:
            self.transactions.on_interrupted(failure)

    def _renumber(self, kept: Iterable[MessageCore]) -> None:
        """Give messages that stay ours the numbers of the next connection: in the order in which they were handed out,
        which acknowledgements go by, and then in that in which they came."""
        by_number = {message.number: message for message in sorted(kept, key=attrgetter("number"))}
        handed_out = self.handed_out
        first = [number for number in list(handed_out) if number in by_number]
        for before in dict.fromkeys([*first, *by_number]):
            message, after = by_number[before], self.take_number()
            if before in handed_out:
                # Whoever claims the message meanwhile, in another thread, does it under the one number or the other.
                handed_out[after] = message
                message.number = after
                if handed_out.pop(before, None) is None:
                    handed_out.pop(after, None)
            else:
                message.number = after

    def forget(self, link: object, failure: Failure) -> None:
        """A link is gone, without a word of the peer."""
        if isinstance(link, SenderCore):
            link.on_ended(failure, [d for d in self.engine.unsettled() if d.link is link.link])
            self.senders.remove(link)
        elif isinstance(link, ReceiverCore):
            link.on_ended(failure)
            self.receivers.remove(link)

    def restore(self) -> None:
        """Begin again on the core's new engine, with all links. What this peer has no room for ends, and only that."""
        try:
            self.engine = self.core.engine.begin()
        except LocalProtocolError as exc:
            self.on_ended(Failure(SessionEnded, f"the session was ended by us: {exc}"))
            return
        self.engine.context = self
        links: list[SenderCore | ReceiverCore] = [*self.senders, *self.receivers]
        for link in links:
            self.attach_again(link)
        if self.transactions is not None:
            self.transactions.restore()

    def attach_again(self, link: SenderCore | ReceiverCore) -> None:
        """Attach a link that was attached before; end it where that cannot be said to this peer."""
        try:
            link.attach()
        except LocalProtocolError as exc:
            self.forget(link, Failure(LinkDetached, f"{link.spec.what} was detached by us: {exc}"))

    def end(self) -> None:
        """End it; `ended` ends when that is done."""
        self.closing = True
        if self.failure is None and self.core.interrupted:
            self.on_ended(Failure(SessionEnded, "the session was closed by us", orderly=True))
            self.core.forget_session(self)
        elif self.failure is None:
            self.engine.end()
        else:
            self.ended.succeed()

    # -- loop side: acknowledgement ------------------------------------------------------------------------------------

    def after_batch(self, now: float) -> None:
        """All that user code has asked for since the last time is done, in a session that is not eager."""
        if self.transactions is not None:
            self.transactions.advance()
        elif self._hurried or len(self._about) >= self._lazy_max:
            self.say_gathered()
        elif self._about and self not in self.core.gathering:
            self.core.gathering[self] = now + self.mode.lazy_ms / 1000

    def say_gathered(self) -> None:
        """Acknowledge what has waited for more of its kind."""
        self._hurried = False
        self.core.gathering.pop(self, None)
        self.say_all()
        for receiver in self.receivers:
            self.core.short_of_credit[receiver] = None

    def _settle(self, messages: Sequence[MessageCore], outcome: Outcome, receipt: SettlementReceipt) -> None:
        if self.transactions is not None:
            self.transactions.settle(messages, outcome, receipt)
            return
        self._hurried = True
        sent = answered = 0
        for message in messages:
            delivery = message.delivery
            if message.number < self.since or delivery.over or delivery.context is TAKEN_BACK:
                receipt.note(ReceiptStatus.STALE, 1, self.why_stale(message))
                continue
            if delivery.phase in _ANSWERED:
                delivery.context = receipt
                answered += 1
            else:
                sent += 1
            self.say(outcome, delivery)
        if sent:
            self.core.await_written(receipt, sent)
        if answered:
            self.core.await_answer(receipt)
        if self.mode.credit is CreditReturn.ON_ACKNOWLEDGEMENT:
            for message in messages:
                message.receiver.give_back(message)
                self.core.short_of_credit[message.receiver] = None

    def settle_safely(self, messages: Sequence[MessageCore], outcome: Outcome, receipt: SettlementReceipt) -> None:
        """Tell the outcome of messages of a receiver that resumes, which its store has now."""
        for message in messages:
            receiver = message.receiver
            assert isinstance(receiver, ResumingReceiver)
            receiver.settle(message, outcome, receipt)

    def decided(self, messages: Sequence[MessageCore]) -> None:
        """Return the credit of messages whose outcome is being stored: others may come meanwhile."""
        for message in messages:
            message.receiver.give_back(message)
            self.core.short_of_credit[message.receiver] = None

    def on_answers(self, deliveries: list[Delivery], state: object, settled: bool) -> None:
        """The peer told a state of deliveries that we received."""
        if not settled:
            if is_outcome(state):
                self._on_taken_back(deliveries, state)
            return
        for delivery in deliveries:
            receipt = delivery.context
            if isinstance(receipt, SettlementReceipt):
                delivery.context = None
                self._answer(receipt, delivery.local_state, state, 1)
            elif receipt is not TAKEN_BACK:
                self._withdraw(delivery)
        receiver = deliveries[0].link.context
        if isinstance(receiver, ResumingReceiver):
            receiver.on_settled(deliveries)
        if isinstance(receiver, ReceiverCore) and receiver.short_of_answers:
            self.core.short_of_credit[receiver] = None

    def on_run_answered(self, run: ReceivedRun, state: object) -> None:
        """The peer has settled deliveries that came together, and had our outcome."""
        if isinstance(run.context, SettlementReceipt):
            self._answer(run.context, run.local_state, state, len(run.tags))
        receiver = run.link.context
        if isinstance(receiver, ReceiverCore) and receiver.short_of_answers:
            self.core.short_of_credit[receiver] = None

    def _answer(self, receipt: SettlementReceipt, said: object, state: object, count: int) -> None:
        # A peer that settles without a state agrees (2.6.12); one that names another outcome was faster.
        if state is None or _agree(said, state):
            receipt.note(self.core.answer_means, count)
        else:
            receipt.note(ReceiptStatus.STALE, count, f"the peer had settled it before, as {describe(state)}")

    def _on_taken_back(self, deliveries: list[Delivery], state: object) -> None:
        # A spontaneous outcome of the sender (a lock that ran out): it is settled when we confirm it (2.6.12). What we
        # have decided meanwhile stands; the sender's answer will tell whose word came first.
        undecided = [delivery for delivery in deliveries if not isinstance(delivery.context, SettlementReceipt)]
        for delivery in undecided:
            delivery.context = TAKEN_BACK
            self._withdraw(delivery)
        self.engine.settle_all(undecided, state)  # type: ignore[arg-type]  # is_outcome has looked at it

    def _withdraw(self, delivery: Delivery) -> None:
        receiver = delivery.link.context
        if isinstance(receiver, ReceiverCore) and receiver.withdraw(delivery):
            self.core.short_of_credit[receiver] = None

    def _recover(self, messages: list[MessageCore]) -> None:
        by_receiver: dict[ReceiverBase, list[MessageCore]] = {}
        for message in messages:
            receiver = message.receiver
            if message.number < self.since:
                continue  # the broker delivers it again
            if message.delivery.over or message.delivery.context is TAKEN_BACK:
                receiver.give_back(message)
                self.core.short_of_credit[receiver] = None
            else:
                by_receiver.setdefault(receiver, []).append(message)
        for receiver, its_own in by_receiver.items():
            receiver.put_back(its_own)

    def settle_leftovers(self, receiver: ReceiverCore) -> None:
        """Give what was not acknowledged, at the close of `receiver`, the outcomes that the mode says, or the
        default-outcome that the link was attached with."""
        receiver.begin_close()
        if receiver.failure is not None:
            return
        self.say_all()
        if isinstance(receiver, RunReceiverCore):
            receiver.settle_leftovers()
            return
        handed_out = [m for m in list(self.handed_out.values()) if m.receiver is receiver and self.claim(m)]
        buffered = receiver.empty_buffer()
        if self.transactions is not None:
            # What was handed out stays part of the transaction; what was not never was.
            self.engine.settle_all([message.delivery for message in buffered], RELEASED)
            self.settle(handed_out, self._leave(receiver, ACCEPTED if self.mode.commits_all else FAILED))
            return
        wanted = receiver.spec.default_outcome
        handed_out += [message for message in buffered if message.attempts]  # and put back by `recover`
        buffered = [message for message in buffered if not message.attempts]
        if buffered and (outcome := self.mode.left_in_buffer) is not None:
            self.settle(buffered, wanted or outcome)
        if handed_out and (outcome := self.mode.left_handed_out) is not None:
            self.settle(handed_out, self._leave(receiver, wanted or outcome))

    @staticmethod
    def _leave(receiver: ReceiverCore, outcome: Outcome) -> Outcome:
        receiver.left_as = copy.copy(outcome)
        return receiver.left_as


def _agree(said: object, told: object) -> bool:
    """Return True if the peer, which names the outcome `told`, did what was said. A lock that ran out is *modified* as
    well: then the peer says that the attempt failed, whatever else was said."""
    if isinstance(said, Modified) and isinstance(told, Modified):
        flags = [(bool(one.delivery_failed), bool(one.undeliverable_here)) for one in (said, told)]
        return flags[0] == flags[1]
    return told.__class__ is said.__class__


class SubscriptionRemoval:
    """Deletes a subscription: attaches to it without a source, which says that nothing is wanted of it but to be gone,
    and closes the link (as JMS clients do over AMQP 1.0)."""

    def __init__(self, session: SessionCore, subscription: Subscription) -> None:
        named = session.core.named
        self.done = Milestone()
        """Promise that ends when the subscription is gone, or with the reason why that cannot be."""
        self.what = f"the subscription {subscription.name!r}"
        self._session = session
        session.errands[self] = None
        self._link = session.engine.attach_receiver(
            subscription.first_link_name(named=named),
            source=None,
            target=Target(),
            desired_capabilities=subscription.capabilities(named=named),
            context=self,
        )

    def on_attached(self) -> None:
        """The peer has it."""
        self._link.detach(closed=True)

    def on_ended(self, failure: Failure) -> None:
        """The link is over: as we asked for, or because the peer refused, or with its session."""
        self._session.errands.pop(self, None)
        if failure.orderly and issubclass(failure.kind, LinkDetached):
            self.done.succeed()
        else:
            self.done.fail(failure)
