"""Settlement of deliveries: what consumers say of them, and what it means when they say nothing.

An outcome reaches a message through the delivery that holds it; `delivery.context` is the message until then, None
afterwards, so what comes late finds nothing. Accepting is the hot path: it is written out here, with the effects of
its row. Every other outcome is decided by `queue.decide` and performed by `life.apply`.

Two things take a message from a consumer that says nothing: its lock runs out, or its queue is purged while it has it.
What it says later is stale, and it is told so by our own outcome in place of its own.

On a link in rcv-settle-mode second the receiver waits to hear that we know. For durable messages we know once the
record of the outcome is synced, and only then settle: that is what the capability `acquit:durable-settlement` promises.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Final

from acquit.broker.dispatching.consumers import Consumer
from acquit.broker.intake.shaping import merge_annotations
from acquit.broker.life import EXCLUDED_MAX, Account
from acquit.broker.links.endpoints import verdict_of
from acquit.broker.message import COPY, DURABLE, OVERHEAD_BYTES, Message
from acquit.broker.nodes.node import whole
from acquit.broker.queue import (
    ENDINGS,
    LEFT_BEHIND,
    LOSSES,
    RETURNS,
    Ending,
    NodeEvent,
    NodeState,
    Verdict,
    decide,
    step,
)
from acquit.broker.tally import HoldEnd
from acquit.broker.transact.retirement import Retirement
from acquit.errors import StoreFull
from acquit.ledger.events import CONNECTION_LOST, UNDELIVERABLE_HERE, EventKind
from acquit.ledger.records import AttemptNote, Cause
from acquit.protocol.codec import encode
from acquit.protocol.constants import ACCEPTED
from acquit.protocol.definitions import (
    Accepted,
    AmqpCondition,
    Error,
    Modified,
    Received,
    Rejected,
)

if TYPE_CHECKING:
    from acquit.broker.life import Life
    from acquit.broker.links.terminus import SourceTerminus
    from acquit.broker.message_run import MessageGroup, MessageRun
    from acquit.broker.outcomes.letters import Letters
    from acquit.protocol.delivery import Delivery, DeliveryState, SentRun

_ACQUIRED = NodeState.ACQUIRED
_ACCEPT: Final = step(NodeState.ACQUIRED, NodeEvent.ACCEPT)
_WHEN_ACCEPTED: Final = _ACCEPT.next
_ACCEPTED: Final = int(_ACCEPT.record)
_ENDED_ACCEPTED: Final = int(HoldEnd.ACCEPTED)
_FAILED: Final = Modified(delivery_failed=True)
_COPIED: Final = frozenset({NodeEvent.REJECT, NodeEvent.FAIL_LAST, NodeEvent.RETURN_LAST})
"""Events that post a copy elsewhere."""
_PACED: Final = frozenset({NodeEvent.RELEASE_LATER, NodeEvent.MODIFY_LATER})
_DELAYED: Final = {
    event: step(NodeState.ACQUIRED, event).failures for event in (NodeEvent.FAIL_LATER, NodeEvent.LEAVE_COUNTED_LATER)
}
"""Events after which a redelivery delay runs, and how many failures each adds."""
_TAKEN: Final = Rejected(Error(AmqpCondition.RESOURCE_DELETED, "the message was removed from its queue meanwhile"))
"""The answer to an outcome of a message that was purged, or moved, while it was acquired."""
SAID_BYTES_MAX: Final = 1 << 20
"""Bytes that one outcome of many messages may add to all of them together: annotations, or the words of an error."""
SHORT_MAX: Final = 100
"""Bytes of it that each message may have in any case."""
TEXT_MAX: Final = 1_024
"""Characters of an error's description that are kept with a message."""
ANNOTATIONS_BYTES_MAX: Final = 16_384
"""Annotations of one *modified* outcome that are kept with a message."""
MERGED_BYTES_MAX: Final = 4 * ANNOTATIONS_BYTES_MAX
"""Annotations of all of them together: *modified* without delivery-failed may come any number of times."""


class Settling:
    """Performs outcomes."""

    def __init__(
        self,
        life: Life,
        letters: Letters,
        take: Callable[[SourceTerminus, Iterable[bytes], DeliveryState], None],
        tell: Callable[[Consumer, Iterable[bytes]], None],
    ) -> None:
        """`take` is told of delivery-tags of a resumable link whose message was taken from it, `tell` of those of such
        a link that were just settled."""
        self._take = take
        self._tell = tell
        self._life = life
        self._scribe = life.scribe
        self._memory = life.memory
        self._letters = letters
        self.random = Random(life.scribe.time_us)
        """Source of the jitter of delays."""

    # -- what is said -------------------------------------------------------------------------------------------------

    def heard(self, consumer: Consumer, deliveries: list[Delivery], state: DeliveryState | None, settled: bool) -> None:
        """A disposition of the receiver, in no transaction."""
        if state.__class__ is Accepted:
            stale = None if settled else self._stale(consumer, deliveries)
            durable = self._accept(consumer, deliveries)
            if not settled:
                self._answer_all(consumer, deliveries, state, durable, stale)
        elif settled or verdict_of(state) is not None:
            for delivery in deliveries:
                if delivery.context.__class__ is Retirement:
                    delivery.context.said_outside(state)
            self._decide(consumer, deliveries, state, Ending.SETTLED, answer=not settled)
        elif isinstance(state, Received) and (locks := whole(consumer.queue).locks) is not None:
            locks.renew(deliveries, self._scribe.time_us // 1000)
        self._may_have_more(consumer)

    def run_accepted(self, run: MessageRun, *, recorded: bool = False) -> bool:
        """*Accepted*, of all messages of a run. True if one of them is durable. `recorded`: a commit has the events."""
        consumer, queue, count = run.holder, run.queue, run.count
        assert isinstance(consumer, Consumer)  # nobody else holds runs
        if run.laid_out is not None:  # by somebody who looked at them since this was said
            held = [message for message in run.laid_out if message.holder is consumer]
            durable = self._accept_held(consumer, held, recorded=recorded)
            self._may_have_more(consumer)
            return durable
        self._memory.leave_run(run)
        run.end()
        self._count_accepted(consumer, count, run.payload_bytes)
        if run.recorded is None:
            self._scribe.volatile_events(_ACCEPTED, queue, count)
        else:
            self._life.run_left(run, run.recorded)
            if recorded:
                queue.counts[_ACCEPTED] += count
            else:
                self._scribe.run_events(_ACCEPTED, run, self._scribe.actor_number(consumer))
        self._may_have_more(consumer)
        return run.recorded is not None

    def group_accepted(self, group: MessageGroup) -> bool:
        """*Accepted*, of all messages of a group. True if one of them is durable."""
        consumer = group.consumer
        assert isinstance(consumer, Consumer)  # nobody else is given groups
        durable = self._accept_held(consumer, group.messages)
        self._may_have_more(consumer)
        return durable

    def answer_run(self, run: SentRun, *, durable: bool) -> None:
        """Settle deliveries that were accepted together, whose receiver waits for that."""
        run.heard = True  # their messages are nobody's any more
        if durable:
            self._scribe.once_durable(self._settle_run, run)
        else:
            self._settle_run(run)

    def _settle_run(self, run: SentRun) -> None:
        session = run.link.session
        session.settle_sent(run, ACCEPTED)
        self._life.touch(session.connection)

    def _may_have_more(self, consumer: Consumer) -> None:
        """Let a consumer that has settled something have more, where the policy limits what it holds."""
        if consumer.queue.policy.prefetch_max:
            consumer.stand_in_line()
            self._life.dirty[consumer.queue] = None

    def ended(self, consumer: Consumer, deliveries: Sequence[Delivery], ending: Ending) -> None:
        """The link is gone, and with it `deliveries`, which nobody settled. Of those whose outcome a transaction has,
        that outcome stays its affair."""
        for delivery in deliveries:
            if isinstance(delivery.context, Retirement):
                delivery.context.settled = True
        self._decide(consumer, list(deliveries), None, ending, answer=False)

    def lock_expired(self, consumer: Consumer, deliveries: list[Delivery]) -> None:
        """Fail deliveries that have been held for longer than their lock lasts, and tell the consumer. It keeps the
        delivery until it settles it, or its link ends; what it says then changes nothing."""
        held = self._take_held(consumer, deliveries)
        if not held:
            return
        account = Account(Cause.LOCK_EXPIRED, self._scribe.actor_number(consumer))
        for delivery in held:
            delivery.context = _FAILED
        if consumer.resumable is None:
            self._tell_failed(consumer, held)
            self._perform_all(held, Verdict.FAILED, account, Ending.LOCK_EXPIRED)
            return
        self._take(consumer.resumable, [delivery.tag for delivery in held], _FAILED)
        durable = {delivery: message for delivery, message in held.items() if message.durable}
        if durable:
            self._fail_taken(consumer, durable, account)
        if len(durable) < len(held):
            # Nothing of these is recorded but that they were taken, and whoever has one next is given it at once: a
            # broker that was killed before that is safe would take what their first holder says for applied.
            volatile = {delivery: message for delivery, message in held.items() if delivery not in durable}
            self._scribe.once_durable(self._fail_taken, consumer, volatile, account)

    def _fail_taken(self, consumer: Consumer, held: dict[Delivery, Message], account: Account) -> None:
        """Fail deliveries of a resumable link whose lock has run out."""

        def performed(_: list[Delivery]) -> None:
            self._scribe.once_durable(self._tell_failed, consumer, held)

        self._perform_all(held, Verdict.FAILED, account, Ending.LOCK_EXPIRED, performed)

    def _tell_failed(self, consumer: Consumer, deliveries: Iterable[Delivery]) -> None:
        """Tell that their lock has run out; on a resumable link once the journal knows, for a broker that was killed
        before would resume them, and their peer would have forgotten them."""
        for delivery in deliveries:
            delivery.update(_FAILED)
        self._life.touch(consumer.link.session.connection)

    def conclude(
        self, consumer: Consumer, deliveries: list[Delivery], state: DeliveryState | None, ending: Ending
    ) -> None:
        """An outcome, or the lack of one, that nobody waits to hear of: what a transaction decides."""
        self._decide(consumer, deliveries, state, ending, answer=False)

    def accept_recorded(self, consumer: Consumer, deliveries: list[Delivery]) -> None:
        """ACCEPT, for which a commit has the events."""
        self._accept(consumer, deliveries, recorded=True)
        self._may_have_more(consumer)

    def lacking(self, outcomes: Iterable[tuple[Consumer, Message, DeliveryState | None]]) -> list[Message]:
        """The messages whose bodies must be read before these outcomes can be performed in one turn."""
        lacking = []
        for consumer, message, state in outcomes:
            verdict = verdict_of(state)
            if verdict is None:
                verdict = verdict_of(consumer.default_outcome)
            if self._lacks_body(message, ENDINGS[Ending.SETTLED] if verdict is None else verdict, Ending.SETTLED):
                lacking.append(message)
        return lacking

    def once_read(self, messages: list[Message], then: Callable[[], None]) -> None:
        """Go on when the bodies of all these are in memory."""
        missing = set(messages)

        def read(message: Message) -> None:
            missing.discard(message)
            if not missing:
                then()

        for message in messages:
            self._memory.want(message, read)

    def restarted(self, message: Message, actor: int) -> None:
        """The last run ended while `actor` had acquired it."""
        account = Account(Cause.CONNECTION_LOST, actor, CONNECTION_LOST)
        self._give_back(message, ENDINGS[Ending.RESTARTED], account, Ending.RESTARTED)

    def _give_back(self, message: Message, verdict: Verdict, account: Account, ending: Ending) -> None:
        """Perform what a loss means to a message that no delivery has, once its body is there if that takes it."""
        if not self._lacks_body(message, verdict, ending):
            self._perform(message, verdict, account, ending)
            return
        state = message.state

        def read(_: Message) -> None:
            if message.state is state:  # and has not left; somebody else who had it read may have let it go already
                self._give_back(message, verdict, account, ending)

        self._memory.want(message, read)

    def terminus_ended(self, message: Message, terminus: SourceTerminus) -> None:
        """Give back what a terminus held whose link did not come back in time: its default-outcome (3.5.3) applies, and
        without one the attempt counts, as for a lost connection."""
        verdict = verdict_of(terminus.default_outcome)
        account = Account(Cause.CONNECTION_LOST, terminus.number, CONNECTION_LOST)
        self._give_back(message, Verdict.FAILED if verdict is None else verdict, account, Ending.CONNECTION_LOST)

    def _accept(self, consumer: Consumer, deliveries: list[Delivery], *, recorded: bool = False) -> bool:
        """ACCEPT for all that are still held. True if any of them is durable. `recorded`: a commit says so."""
        held: list[Message] = []
        for delivery in deliveries:
            message = delivery.context
            if message.__class__ is Message and message.holder is consumer:
                delivery.context = None
                held.append(message)
            elif message.__class__ is Retirement:
                message.said_outside(ACCEPTED)
        return self._accept_held(consumer, held, recorded=recorded)

    def _accept_held(self, consumer: Consumer, messages: Sequence[Message], *, recorded: bool = False) -> bool:
        """The same for messages that the consumer does hold, and that no delivery has any more."""
        queue = consumer.queue
        memory, life = self._memory, self._life
        durable: list[Message] = []
        payload_bytes = live_bytes = bodies = held_bytes = 0
        for message in messages:
            message.holder = None
            message.state = _WHEN_ACCEPTED
            size = message.fingerprint >> 32
            payload_bytes += size
            flags = message.flags
            if flags & DURABLE:
                durable.append(message)
                if not flags & COPY:
                    live_bytes += size
            if message.body is not None:
                bodies += 1
                held_bytes += size
                message.body = None
            if message.expires_at_ms:
                life.timers.forget(message)
        live = life.objects
        for message in durable:
            del live[message.sequence]
        life.occupancy.left_together([message.position for message in durable])
        life.live_bytes -= live_bytes
        count = len(messages)
        volatile = count - len(durable)
        held_bytes += bodies * OVERHEAD_BYTES
        self._count_accepted(consumer, count, payload_bytes)
        memory.leave_all(queue, count, bodies, held_bytes)
        if durable and recorded:
            queue.counts[_ACCEPTED] += len(durable)
        elif durable:
            self._scribe.events(_ACCEPTED, queue, durable, self._scribe.actor_number(consumer))
        if volatile:
            self._scribe.volatile_events(_ACCEPTED, queue, volatile)
        return bool(durable)

    def _count_accepted(self, consumer: Consumer, count: int, payload_bytes: int) -> None:
        """Count so many messages as no longer held, nor in the queue."""
        queue = consumer.queue
        consumer.held -= count
        queue.acquired -= count
        queue.tally.ended[_ENDED_ACCEPTED] += count
        if consumer.timed is not None and consumer.timed.holder is not consumer:
            consumer.end_timing(self._scribe.time_us)
        queue.bytes -= payload_bytes

    def _decide(
        self,
        consumer: Consumer,
        deliveries: list[Delivery],
        state: DeliveryState | None,
        ending: Ending,
        *,
        answer: bool,
    ) -> None:
        """Perform an outcome, or in its place the source's default-outcome, or what the ending means without one."""
        verdict = verdict_of(state)
        if verdict is None:
            state = consumer.default_outcome
            verdict = verdict_of(state)
        if verdict is Verdict.ACCEPTED:
            self._accept(consumer, deliveries)
            return
        if verdict is None:
            verdict, state = ENDINGS[ending], None
        stale = self._stale(consumer, deliveries) if answer else None
        held = self._take_held(consumer, deliveries)
        if not held and not answer:
            return  # thousands of links may end that hold nothing: their names need not be recorded
        account = _within_reason(self._account(consumer, state, ending), len(held))

        def performed(otherwise: list[Delivery]) -> None:
            """`otherwise`: those that became a failed attempt in place of what was said."""
            durable = any(message.durable for message in held.values())
            if otherwise and consumer.resumable is not None:
                self._take(consumer.resumable, [delivery.tag for delivery in otherwise], _FAILED)
            others = dict.fromkeys(otherwise, _FAILED)
            self._answer_all(consumer, deliveries, state, durable, {**others, **stale} if stale else others)

        self._perform_all(held, verdict, account, ending, performed if answer else None)

    def _perform_all(
        self,
        held: dict[Delivery, Message],
        verdict: Verdict,
        account: Account,
        ending: Ending,
        then: Callable[[list[Delivery]], None] | None = None,
    ) -> None:
        """Do what the verdict means to all of them, once the bodies that it takes have been read."""
        lacking = [
            message
            for message in held.values()
            if message.state is _ACQUIRED and self._lacks_body(message, verdict, ending)
        ]
        if lacking:  # at first, or again: somebody else who had one of them read may have let it go
            self.once_read(lacking, lambda: self._perform_all(held, verdict, account, ending, then))
            return
        otherwise = [
            delivery
            for delivery, message in held.items()
            if message.state is _ACQUIRED and not self._perform(message, verdict, account, ending)
        ]
        if then is not None:
            then(otherwise)

    @staticmethod
    def _stale(consumer: Consumer, deliveries: list[Delivery]) -> dict[Delivery, DeliveryState] | None:
        """Return the deliveries whose message was taken from the consumer, with what became of it, or None."""
        stale: dict[Delivery, DeliveryState] = {}
        for delivery in deliveries:
            message = delivery.context
            if message.__class__ is not Message or message.holder is not consumer:
                stale[delivery] = _FAILED if message is _FAILED else delivery.local_state or _TAKEN
        return stale or None

    def _answer_all(
        self,
        consumer: Consumer,
        deliveries: list[Delivery],
        state: DeliveryState | None,
        durable: bool,
        others: Mapping[Delivery, DeliveryState] | None,
    ) -> None:
        """The receiver waits for us to settle: with its own outcome, and for `others` with what has become of them."""
        if not others:
            self._answer(consumer, deliveries, state, durable)
            return
        as_said = [delivery for delivery in deliveries if delivery not in others]
        if as_said:
            self._answer(consumer, as_said, state, durable)
        for delivery, told in others.items():  # what took a message may not be synced yet
            self._answer(consumer, [delivery], told, durable=True)

    def _answer(
        self, consumer: Consumer, deliveries: list[Delivery], state: DeliveryState | None, durable: bool
    ) -> None:
        """The receiver waits for us to settle."""
        if durable:
            self._scribe.once_durable(self._settle, consumer, deliveries, state)
        else:
            self._settle(consumer, deliveries, state)

    def _settle(self, consumer: Consumer, deliveries: list[Delivery], state: DeliveryState | None) -> None:
        session = consumer.link.session
        session.settle_all(deliveries, state)
        if consumer.resumable is not None and consumer.resumable.taken:
            self._tell(consumer, [delivery.tag for delivery in deliveries])
        self._life.touch(session.connection)

    # -- what it means ------------------------------------------------------------------------------------------------

    def _event(self, message: Message, verdict: Verdict, ending: Ending) -> NodeEvent:
        policy = message.queue.policy
        lost = ending in LOSSES
        left = ending in LEFT_BEHIND and not (lost and policy.connection_loss == "dead-letter")
        if verdict is Verdict.FAILED and ending is Ending.DETACHED and policy.orderly_close != "count":
            verdict = Verdict.MODIFIED
        if verdict in RETURNS:
            times_max, times = policy.max_releases, message.releases
            delayed = self._paced_until(message) > 0
        else:
            times_max, times = policy.max_delivery_attempts, message.failures
            delayed = policy.redelivery_delay_ms > 0 and (lost or not left)
        return decide(
            verdict,
            left=left,
            last=0 < times_max <= times + 1,
            dead_letter=bool(policy.dead_letter_address),
            delayed=delayed,
        )

    def _paced_until(self, message: Message) -> int:
        """Return when a message that is released may be offered again, in milliseconds since the epoch; 0: at once. Its
        first releases are free; then each waits until some time after the one before it has passed, so that a consumer
        that releases whatever it gets keeps nobody busy, and one that releases now and then notices nothing."""
        extra = message.extra
        if extra is None or not extra.returned_ms:
            return 0
        now_ms = self._scribe.time_us // 1000
        # It returned before now: a clock that was set back since must not say otherwise.
        until_ms = min(extra.returned_ms, now_ms) + message.queue.policy.release_delay(message.releases + 1)
        return until_ms if until_ms * 1000 > self._scribe.time_us else 0

    def _lacks_body(self, message: Message, verdict: Verdict, ending: Ending) -> bool:
        return message.body is None and self._event(message, verdict, ending) in _COPIED

    def _perform(self, message: Message, verdict: Verdict, account: Account, ending: Ending) -> bool:
        """Do to an acquired message what the verdict means under its address's policy. False: it counts as a failed
        attempt instead, for there was no room for its dead letter."""
        message.queue.tally.end(verdict, ending)
        event = wanted = self._event(message, verdict, ending)
        origin = due_at_ms = 0
        policy = message.queue.policy
        if event in _COPIED:
            origin = self._copy(message, account)
            if not origin:  # not even the reserve has room: it stays here, and the next attempt decides
                event = NodeEvent.FAIL_LATER if policy.redelivery_delay_ms else NodeEvent.FAIL
        if event in _DELAYED:
            failures = message.failures + _DELAYED[event]
            delay_ms = policy.redelivery_delay(failures, self.random.random())
            due_at_ms = self._scribe.time_us // 1000 + delay_ms
        elif event in _PACED:
            due_at_ms = self._paced_until(message)
        if event not in _COPIED:
            account = self._keep_what_was_said(message, account)
        self._life.apply(message, event, account, origin=origin, due_at_ms=due_at_ms)
        return event is wanted

    def _keep_what_was_said(self, message: Message, account: Account) -> Account:
        """Keep what *modified* says: annotations, and that this consumer shall not see the message again (3.4.5).
        Return the account of what is kept, for the journal to say the same."""
        if account.annotations:
            extra = message.need_extra()
            if sum(map(len, extra.annotations)) + len(account.annotations) > MERGED_BYTES_MAX:
                account = replace(account, annotations=b"")
        if account.annotations:
            extra.annotations = (*extra.annotations, account.annotations)
            if message.body is not None:
                message.body = merge_annotations(message.body, account.annotations)
        if account.excluded:
            excluded = message.need_extra().excluded
            if account.excluded not in excluded and len(excluded) >= EXCLUDED_MAX:
                return replace(account, excluded="", flags=account.flags & ~UNDELIVERABLE_HERE)
            self._life.exclude(message, account.excluded)
        return account

    def _copy(self, message: Message, account: Account) -> int:
        """Post the dead letter; its sequence, 0 where there is no room."""
        last = AttemptNote(
            self._scribe.time_us,
            account.actor,
            EventKind.DEAD_LETTERED,
            account.cause,
            account.condition,
            account.description,
        )
        address = message.queue.policy.dead_letter_address
        try:
            return self._letters.copy(message, address, EventKind.DEAD_LETTERED_IN, last)
        except StoreFull:
            self._scribe.exhausted = True
            return 0

    def _take_held(self, consumer: Consumer, deliveries: Iterable[Delivery]) -> dict[Delivery, Message]:
        """The messages that these deliveries still hold; they hold them no more."""
        held: dict[Delivery, Message] = {}
        for delivery in deliveries:
            message = delivery.context
            if isinstance(message, Message) and message.holder is consumer:
                delivery.context = None
                held[delivery] = message
        return held

    def _account(self, consumer: Consumer, state: DeliveryState | None, ending: Ending) -> Account:
        """Return why the attempt ended, for the journal and the message's history."""
        actor = self._scribe.actor_number(consumer)
        flags = CONNECTION_LOST if ending in LOSSES else 0
        left = None
        if ending in LEFT_BEHIND:
            left = Cause.CONNECTION_LOST if flags else Cause.DETACHED
        match state:
            case Rejected(error=error):
                condition = "" if error is None else str(error.condition)[:TEXT_MAX]
                description = "" if error is None else (error.description or "")[:TEXT_MAX]
                return Account(Cause.REJECTED, actor, flags, condition, description)
            case Modified(undeliverable_here=here, message_annotations=annotations):
                over = consumer.over if consumer.resumable is None else consumer.resumable.over
                here = here and not over  # a transaction says it of a terminus that is no more
                return Account(
                    left or Cause.MODIFIED,
                    actor,
                    flags | (UNDELIVERABLE_HERE if here else 0),
                    excluded=consumer.terminus if here else "",
                    annotations=_encode_annotations(annotations),
                )
            case _:
                return Account(left or Cause.RELEASED, actor, flags)


def _within_reason(account: Account, messages: int) -> Account:
    """Shorten what is said of very many messages at once. It is kept with each of them, and one frame is not to become
    gigabytes."""
    share = SAID_BYTES_MAX // max(1, messages)
    if len(account.annotations) + len(account.condition) + len(account.description) <= share:
        return account
    kept = max(SHORT_MAX, share // 2)
    annotations = account.annotations if len(account.annotations) <= kept else b""
    return replace(
        account, annotations=annotations, condition=account.condition[:kept], description=account.description[:kept]
    )


def _encode_annotations(annotations: Mapping[str, object] | None) -> bytes:
    """Encode the annotations of a *modified* outcome, to be kept; b"" where there are none, or more than is kept."""
    encoded = encode(dict(annotations)) if annotations else b""
    return encoded if len(encoded) <= ANNOTATIONS_BYTES_MAX else b""


__all__ = ["Settling"]
