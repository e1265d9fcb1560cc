"""Messages come in: what was delivered to a producer's link becomes messages in a queue.

A volatile message is available at once, and answered at once. A durable one is recorded; it is PENDING, and its sender
hears nothing, until the batch with its record is synced. What cannot be taken is refused by its own delivery: rejected
with the reason where the sender waits for an answer, the link detached with it where it does not.

`receive` is the hot path: deliveries to one queue come in groups, most of them are plain (a `Template` says so
without a look, or else `Posting.plain`), and what is the same for all of a group is done once. Those to a topic become
a `Fan`, a group for each of its queues. Every other message is an `Arrival`, and takes these steps: where does it go,
is there room in all of these queues, and then into each of them (`entering`). What is sent in a transaction is held by
that until it is committed.
"""

from __future__ import annotations

from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Final, NamedTuple

from acquit.broker.denials import Denials
from acquit.broker.durations import Durations
from acquit.broker.intake.arrival import Arrival
from acquit.broker.intake.entering import note_group
from acquit.broker.intake.fan import Fan
from acquit.broker.intake.limits import Room, admit, check_paused, check_size, full, note_value
from acquit.broker.intake.reader import PostingReader
from acquit.broker.intake.runs import Runs
from acquit.broker.intake.shaping import read_posting
from acquit.broker.links.endpoints import takes_rejected
from acquit.broker.message import DURABLE, OBJECT_BYTES, OVERHEAD_BYTES, Message
from acquit.broker.nodes.node import Queue, whole
from acquit.broker.queue import NodeEvent, NodeState, step
from acquit.broker.refusal import Refused
from acquit.errors import DecodeError, RemoteProtocolError, StoreFull
from acquit.ledger.recorder import RECORD_BYTES
from acquit.protocol.constants import ACCEPTED
from acquit.protocol.costs import PREDICTED_COST, SINGLE_COST
from acquit.protocol.definitions import (
    AmqpCondition,
    Error,
    LinkCondition,
    RcvSettleMode,
    Rejected,
    Released,
    TransactionalState,
    TransactionCondition,
)
from acquit.protocol.extensions import MANAGEMENT_NODE, RESUME
from acquit.protocol.numbered import take_place
from acquit.protocol.sections import HEADER_HEAD

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from acquit.broker.access.permissions import Rights
    from acquit.broker.intake.duplicates import Duplicates
    from acquit.broker.intake.entering import Entering
    from acquit.broker.intake.marks import Claim, Mark, Marks
    from acquit.broker.intake.shaping import Posting
    from acquit.broker.intake.templates import Template
    from acquit.broker.life import Life
    from acquit.broker.links.endpoints import Producer
    from acquit.broker.links.termini import Termini
    from acquit.broker.links.terminus import TargetTerminus
    from acquit.broker.message_run import MessageRun
    from acquit.broker.nodes.finding import Nodes
    from acquit.broker.nodes.topics import Topic
    from acquit.broker.options.limits import ConnectionLimits
    from acquit.broker.transact.transaction import Transaction
    from acquit.broker.transact.transactions import Transactions
    from acquit.protocol.delivery import Delivery, Outcome, ReceivedRun
    from acquit.protocol.numbered import Place
    from acquit.protocol.session import Session

_PENDING: Final = step(NodeState.NEW, NodeEvent.POST_DURABLE).next
_AVAILABLE: Final = step(NodeState.NEW, NodeEvent.POST_VOLATILE).next
TOGETHER_MIN: Final = 25
"""Messages that were taken together, and more, after which the next ones of their link are counted as such; of fewer,
each may be between others that are taken one by one."""
_TAG_IN_USE: Final = "the delivery-tag of a delivery that is not settled (2.6.12)"


class Posted(NamedTuple):
    """The result of a posting."""

    queues: int
    """The queues that the message entered."""
    durable: bool
    """True if something of it is recorded, and its sender must wait for the disk."""
    duplicate: bool = False
    """True if it was there before, and was not posted again."""
    released: bool = False
    """True if no subscription takes it, and its sender is to have it back."""


class Poster:
    """Takes postings."""

    def __init__(
        self,
        life: Life,
        entering: Entering,
        nodes: Nodes,
        duplicates: Duplicates,
        marks: Marks,
        transactions: Transactions,
        termini: Termini,
        limits: ConnectionLimits,
        denials: Denials,
    ) -> None:
        """`nodes` are asked for addresses that a message (not a link) names, and for what a topic goes to."""
        self.reader = PostingReader(life.scribe, nodes, duplicates, limits)
        """Reader of what messages say, and where they go."""
        self._life = life
        self._scribe = life.scribe
        self._memory = life.memory
        self._nodes = nodes
        self._duplicates = duplicates
        self._marks = marks
        self._denials = denials
        self._entering = entering
        self._runs = Runs(life, nodes, duplicates)
        self._transactions = transactions
        self._termini = termini
        self.durations = Durations()
        """Times from the arrival of a durable message until it was on the disk; a group that was synced together counts
        as its first. Those of transactions do not count: they wait for their commit."""

    # -- from links ---------------------------------------------------------------------------------------------------

    def receive(self, producer: Producer, deliveries: Iterable[Delivery]) -> None:
        """Deliveries of one link, in order."""
        queue = producer.queue
        refused: list[Delivery] = []
        if producer.resumable is not None:
            deliveries = self._unposted(producer, producer.resumable, deliveries)
        if producer.mark is not None:
            deliveries = self._unrepeated(producer, producer.mark, deliveries, refused)
        elif producer.link.stateful:
            self._receive_stateful(producer, deliveries)
            return
        if producer.topic is not None and (routes := self._nodes.plain_routes(producer.topic)):
            self._receive_for_topic(producer, producer.topic, routes, deliveries)
            return
        if queue is None or not queue.durable or not queue.plain:
            for delivery in deliveries:
                self._receive_one(producer, delivery)
            return
        scribe = self._scribe
        time_us = scribe.time_us
        now_ms = time_us // 1000
        room = Room(queue, self._memory)
        take_sequence, record = scribe.sequences.take, scribe.recorder.posted
        number, address, live = queue.number, queue.address.encode(), self._life.objects
        entered, templates = self._life.occupancy.entered, producer.templates
        actor = scribe.actor_number(producer)
        offered: list[Message] = []
        answered: list[Delivery] = []
        pending: list[Message] = []
        waiting: list[Delivery] = []
        volatile_bytes = durable_bytes = 0
        for delivery in deliveries:
            payload = delivery.payload
            size = len(payload)
            template = templates.latest
            if template is None or not template.fits(payload):
                template = templates.other(payload)
            known: Template | Posting | None = template
            if known is None or delivery.message_format:
                posting = self.reader.looked(producer, delivery)
                if posting is None or not self.reader.is_plain(queue, posting):
                    # What came before it counts first: each limit is looked at with all that is there.
                    self._enter_group(producer, queue, offered, answered, volatile_bytes)
                    self._enter_group(producer, queue, pending, waiting, durable_bytes)
                    self._receive_one(producer, delivery, posting)
                    offered, answered, pending, waiting = [], [], [], []
                    volatile_bytes = durable_bytes = 0
                    room = Room(queue, self._memory)
                    continue
                known = posting
            durable, priority = known.durable, known.priority
            cost = size + OVERHEAD_BYTES  # as `Room.take`, without a call
            if room.messages < 1 or room.bytes < size or (room.durable if durable else room.volatile) < cost:
                try:
                    check_size(queue, self._memory, size, durable=durable)
                except Refused as exc:
                    self._refuse(producer, [delivery], exc)
                else:
                    refused.append(delivery)
                continue
            room.messages -= 1
            room.bytes -= size
            room.durable -= cost
            room.volatile -= cost
            try:
                sequence = take_sequence(time_us)
                body = known.body(payload, sequence, now_ms)
                if durable:
                    meta = known.meta(address, payload)
                    position, fingerprint = record(sequence, number, payload, meta, time_us, actor=actor)
                    message = Message(
                        sequence, queue, _PENDING, body, fingerprint, DURABLE, priority, time_us, 0, position
                    )
                    live[sequence] = message
                    entered(position)
                    pending.append(message)
                    waiting.append(delivery)
                    durable_bytes += size
                else:
                    message = Message(sequence, queue, _AVAILABLE, body, size << 32, 0, priority, time_us, 0, 0)
                    offered.append(message)
                    answered.append(delivery)
                    volatile_bytes += size
                if known.marked:
                    note_group(message, known.group_of(payload), known.group_sequence)
                    if known.identity is not None:
                        self._duplicates.entered(known.identity, message)
            except StoreFull:
                refused.append(delivery)
        self._enter_group(producer, queue, offered, answered, volatile_bytes)
        self._enter_group(producer, queue, pending, waiting, durable_bytes)
        if refused:
            self._refuse(producer, refused, full(queue, disk=scribe.journal.full))

    def receive_run(self, producer: Producer, run: ReceivedRun) -> None:
        """Deliveries of one link that came together: together, if they are alike, and there is room for all."""
        if not run.whole:
            self.receive(producer, run.deliveries)
        elif run.state is not None:
            if self._transactions.hold_run(producer, run, run.state):
                self._taken_together(producer, len(run.payloads))
            else:
                producer.link.takes_runs = False  # until `_receive_held` finds that they would have been such
                self.receive(producer, run.deliveries)
        elif entering := self._runs.of(producer, run):
            for one in entering:
                self._entering.enter_run(one)
            producer.link.session.settle_run(run, ACCEPTED)
            self._taken_together(producer, len(run.payloads))
            self._learn_size(producer, entering[-1].payload_bytes // entering[-1].count, durable=False)
        else:
            recorded = self._runs.recorded(producer, run)
            if recorded is not None:
                self._enter_recorded(producer, run, *recorded)
            else:
                producer.link.takes_runs = False  # until `receive` finds that they would have been such
                self.receive(producer, run.deliveries)

    def _enter_recorded(self, producer: Producer, run: ReceivedRun, messages: MessageRun, taken: int) -> None:
        """Enter durable messages that were recorded together, and answer all that was `taken` with them: the whole of a
        run or, as the disk is full, so many deliveries."""
        self._taken_together(producer, taken)
        answered: ReceivedRun | list[Delivery] = run if taken == len(run.payloads) else run.deliveries[:taken]
        self._entering.enter_run(messages)
        self._scribe.when_synced(self._run_synced, messages, producer.link.session, answered)
        self._learn_size(producer, messages.payload_bytes // messages.count, durable=True)
        if answered is not run:
            why = full(whole(messages.queue), disk=self._scribe.journal.full)
            self._refuse(producer, run.deliveries[taken:], why)

    def _enter_group(
        self, producer: Producer, queue: Queue, messages: list[Message], deliveries: list[Delivery], payload_bytes: int
    ) -> None:
        """Enter plain messages, all of them durable or none, and answer them: the durable ones once they are synced."""
        if not messages:
            return
        self._entering.enter_group(queue, messages, payload_bytes)
        durable = messages[0].state is _PENDING
        if durable:
            self._life.live_bytes += payload_bytes
        pending = [(queue, messages)] if durable else []
        self._answer_group(producer, pending, deliveries, payload_bytes, durable=durable)

    def _answer_group(
        self,
        producer: Producer,
        pending: list[tuple[Queue, list[Message]]],
        deliveries: list[Delivery],
        payload_bytes: int,
        *,
        durable: bool,
    ) -> None:
        """Answer plain messages that have entered, sent as `durable` or not: once they are synced where some of them,
        `pending`, wait for that, by the queues that they are in."""
        scribe, session = self._scribe, producer.link.session
        if producer.templates.predicts(deliveries[0].payload):  # the next may be like it, all of them
            producer.link.takes_runs = bool(self._runs.queues(producer, durable=bool(pending)))
        self._taken_together(producer, len(deliveries))
        if producer.resumable is not None:
            self._remember(producer.resumable, deliveries, durable=durable)
        if pending:
            scribe.when_synced(self._synced, pending, session, deliveries)
        elif self._waits(producer, deliveries, durable=durable):
            scribe.with_next(self._answer_synced, scribe.time_us, session, deliveries)
        else:
            session.settle_all(deliveries, ACCEPTED)
        self._learn_size(producer, payload_bytes // len(deliveries), durable=bool(pending))

    @staticmethod
    def _waits(producer: Producer, deliveries: Iterable[Delivery], *, durable: bool) -> bool:
        """True if the answer to messages waits for the disk though no queue keeps them there: the broker is to know
        them again. Who was told *accepted* may ask once more over a crash, and what was sent as durable would come to
        subscriptions that have begun since; and by a mark it says so of all that is below."""
        remembered = producer.mark is not None or (durable and producer.resumable is not None)
        return remembered and not all(delivery.over for delivery in deliveries)

    @staticmethod
    def _taken_together(producer: Producer, count: int) -> None:
        """Let its next messages cost less of a turn, where so many could be taken together."""
        if count >= TOGETHER_MIN:
            producer.predict(PREDICTED_COST, 1 if producer.topic is None else producer.topic.fan)

    @staticmethod
    def _learn_size(producer: Producer, average_bytes: int, *, durable: bool) -> None:
        """Learn what its messages are like, which its credit goes by."""
        producer.volatile = not durable
        producer.average_bytes += (average_bytes - producer.average_bytes) // 4

    def _receive_for_topic(
        self, producer: Producer, topic: Topic, routes: list[Queue], deliveries: Iterable[Delivery]
    ) -> None:
        """Deliveries of a link to a topic whose subscriptions treat plain messages alike: those that come one behind
        the other are a `Fan`, and any other enters by itself."""
        container = producer.peer.container
        selective = any(queue.subscription is not None and queue.subscription.filtered for queue in routes)
        queues = routes
        fan: Fan | None = None
        for delivery in deliveries:
            known, posting = self.reader.known(producer, delivery, topic)
            message: Message | None = None
            if known is not None:
                if selective:
                    queues = self._nodes.matching(topic, container, delivery.payload, known)
                if queues:
                    if fan is None or fan.durable is not known.durable:
                        self._enter_fan(producer, fan)
                        actor = self._scribe.actor_number(producer)
                        fan = Fan(self._life, self._entering, topic.address, routes, actor, durable=known.durable)
                    message = fan.add(delivery, known, queues)
            if message is None:
                # As in a group: what came before it counts first.
                self._enter_fan(producer, fan)
                fan = None
                self._receive_one(producer, delivery, posting)
            elif known is not None and known.identity is not None:
                self._duplicates.entered(known.identity, message)
        self._enter_fan(producer, fan)

    def _enter_fan(self, producer: Producer, fan: Fan | None) -> None:
        """Enter what was gathered, and answer it."""
        if fan is not None and fan.deliveries:
            self._answer_group(producer, fan.enter(), fan.deliveries, fan.payload_bytes, durable=fan.durable)

    def _receive_one(self, producer: Producer, delivery: Delivery, posting: Posting | None = None) -> None:
        """Take one delivery, whatever it is."""
        producer.predict(SINGLE_COST, 1)
        try:
            arrival = self.reader.arrival(producer, delivery, posting)
            producer.predict(SINGLE_COST, len(arrival.queues))
            posted = self._post(arrival, releases=not delivery.settled)
        except StoreFull:
            self._refuse(producer, [delivery], full(producer.queue, disk=self._scribe.journal.full))
        except (DecodeError, Refused) as exc:
            self._refuse(producer, [delivery], exc)
        else:
            if posted.released:
                if producer.mark is not None:
                    producer.mark.refused = True
                delivery.link.session.settle_all([delivery], Released())
                return
            if posted.queues:
                self._learn_size(producer, len(delivery.payload), durable=posted.durable)
            durable = posted.durable or arrival.posting.durable
            if producer.resumable is not None:
                self._remember(producer.resumable, [delivery], durable=durable)
            self._accept(delivery, waits=posted.durable or self._waits(producer, [delivery], durable=durable))

    def _post(self, arrival: Arrival, *, releases: bool) -> Posted:
        """Put a message into its queues, or count it where it has been before or nobody takes it. `releases`: it can be
        given back, where that is the policy. Raises DecodeError, Refused or StoreFull, with nothing changed."""
        target = arrival.target
        identity = self._duplicates.check(target, arrival.posting)
        if identity is not None and identity.first:
            durable = self._duplicates.suppress(identity, target, arrival.actor)
            return Posted(0, durable, duplicate=True)
        durable = arrival.posting.durable
        if arrival.queues:
            self._admit(arrival)
            durable = self._entering.enter_all(arrival)
        else:
            check_paused(target)
            assert not isinstance(target, Queue)
            if releases and target.policy.unroutable == "release":
                self._nodes.posted(arrival)
                return Posted(0, durable, released=True)
            self._scribe.unrouted(target, arrival.payload, arrival.actor, durable=durable)
        self._nodes.posted(arrival)
        return Posted(len(arrival.queues), durable)

    def _unposted(
        self, producer: Producer, terminus: TargetTerminus, deliveries: Iterable[Delivery]
    ) -> Iterator[Delivery]:
        """Yield the deliveries of a resumable link that were not posted before. One that the peer resumes was posted:
        the peer hears its outcome once more, and settles it."""
        for delivery in deliveries:
            outcome = terminus.answered.get(delivery.tag)
            if delivery.resumed and delivery.settled:
                self._termini.forget(terminus, (delivery.tag,))
            elif delivery.resumed and outcome is not None:
                delivery.link.session.settle_all([delivery], outcome)
            elif outcome is not None:
                producer.link.detach(Error(AmqpCondition.NOT_ALLOWED, _TAG_IN_USE))
                return
            elif isinstance(delivery.remote_state, TransactionalState):
                self._transactions.fail(producer.peer, delivery.remote_state.txn_id)
                why = Refused(
                    f"a resumable link ({RESUME}) posts in no transaction", condition=AmqpCondition.NOT_ALLOWED
                )
                self._refuse(producer, [delivery], why)
            else:
                yield delivery

    def _remember(self, terminus: TargetTerminus, deliveries: Iterable[Delivery], *, durable: bool) -> None:
        """Remember what was posted, in the batch with the postings, until the peer has settled it. What was lost with
        its session as it came is remembered as well: its sender will ask for it."""
        self._termini.posted(terminus, [one.tag for one in deliveries if not one.settled], durable=durable)

    def _receive_stateful(self, producer: Producer, deliveries: Iterable[Delivery]) -> None:
        """Deliveries of a link that has sent some in transactions."""
        accepted: dict[Transaction, list[Delivery]] = {}
        for state, group in groupby(deliveries, attrgetter("remote_state")):
            if isinstance(state, TransactionalState):
                self._receive_held(producer, group, state, accepted)
            else:
                for delivery in group:
                    self._receive_one(producer, delivery)
        for transaction, held in accepted.items():
            self._transactions.answer_postings(transaction, held, ACCEPTED)

    def _fit(self, producer: Producer, deliveries: Iterable[Delivery]) -> tuple[bool, bool]:
        """Return two answers, for durable messages and for volatile ones: True if there is room for all of them, so
        that none of a group is refused for want of it."""
        queue, scribe = producer.queue, self._scribe
        if queue is None or not queue.durable or not queue.plain or scribe.journal.full:
            return False, False
        sizes = [len(delivery.payload) for delivery in deliveries]
        room = Room(queue, self._memory)
        # An id is in the message and beside it.
        record_bytes = 2 * sum(sizes) + (len(sizes) + 8) * (RECORD_BYTES + len(queue.address) * 4)
        fit = room.fits(len(sizes), sum(sizes), durable=True)
        if not fit or scribe.recorder.room_bytes <= record_bytes:
            return False, False
        return True, room.fits(len(sizes), sum(sizes), durable=False)

    def _unrepeated(
        self, producer: Producer, claim: Claim, deliveries: Iterable[Delivery], refused: Sequence[Delivery]
    ) -> Iterator[Delivery]:
        """Yield those of a link with a mark that were not posted before (`intake.marks`), as far as they may be dealt
        with as a group, of which none is refused for want of room. The others are dealt with here, so that what is
        behind a refused one is refused. `refused`: those of the group that were refused all the same, as when
        sequence numbers have run out until the next sync. At the end the mark is recorded."""
        mark, scribe = claim.mark, self._scribe
        durable_fit, volatile_fit = self._fit(producer, deliveries)
        moved = False
        for delivery in deliveries:
            state = delivery.remote_state
            if isinstance(state, TransactionalState):
                self._transactions.fail(producer.peer, state.txn_id)
                self._refuse(producer, [delivery], claim.in_transaction())
                continue
            if claim.refused:
                self._refuse(producer, [delivery], claim.why())
                continue
            try:
                self.reader.check_cost(delivery.payload)
                place, delivery.payload = take_place(delivery.payload)
                if place[:2] <= mark.at:
                    if place[:2] == mark.at and place[2] != mark.digest:
                        self._refuse(producer, [delivery], claim.other())
                    else:
                        self._repeated(producer, mark, place, delivery)
                    continue
            except (DecodeError, Refused) as exc:
                self._refuse(producer, [delivery], exc)
                continue
            if volatile_fit or (durable_fit and _says_durable(delivery.payload)):
                yield delivery
            else:
                self._receive_one(producer, delivery)
            if refused:
                claim.refused = True
            if not claim.refused:
                mark.at, mark.digest, mark.sequence = place[:2], place[2], scribe.sequences.last
                moved = True
        if moved:
            self._marks.moved(mark)

    def _repeated(self, producer: Producer, mark: Mark, place: Place, delivery: Delivery) -> None:
        """Count and accept a delivery that was posted before."""
        target: Queue | Topic | None = producer.queue or producer.topic
        if target is None:
            try:
                posting = read_posting(delivery.payload)
                target = self._nodes.known(*self.reader.destination(producer, posting))
            except (DecodeError, Refused):
                target = None  # posted it was, wherever that is gone to
        self._marks.suppress(mark, place, delivery.payload, target, self._scribe.actor_number(producer))
        self._accept(delivery, waits=True)

    def _receive_held(
        self,
        producer: Producer,
        deliveries: Iterable[Delivery],
        state: TransactionalState,
        accepted: dict[Transaction, list[Delivery]],
    ) -> None:
        """Deliveries of one transaction in a row: all but that they enter their queues, which is the commit's to do.
        `accepted` is given those that the transaction will post, so that their sender is to hear *accepted*.

        As in `receive`, those that are plain are dealt with as a group."""
        transactions = self._transactions
        try:
            transaction = transactions.find(producer.peer, state.txn_id)
        except Refused as exc:
            for delivery in deliveries:
                self._refuse(producer, [delivery], exc)
            return
        held: list[Delivery] = []
        together = 0
        run = transactions.run(transaction, producer)
        for delivery in deliveries:
            posting = None
            if run is not None:
                known, posting = self.reader.known(producer, delivery, run.queue, transaction)
                if known is not None and run.take(delivery, known):
                    held.append(delivery)
                    together += 1
                    continue
                run.close()
            if self._hold(producer, transaction, delivery, posting):
                held.append(delivery)
            run = transactions.run(transaction, producer)
        if run is not None:
            run.close()
            producer.link.takes_runs = run.predicted
            self._taken_together(producer, together)
        if held:
            accepted.setdefault(transaction, []).extend(held)

    def _hold(
        self, producer: Producer, transaction: Transaction, delivery: Delivery, posting: Posting | None = None
    ) -> bool:
        """Hold a delivery of a transaction, whatever it is. Return True if its sender is to hear *accepted*."""
        producer.predict(SINGLE_COST, 1)
        transactions = self._transactions
        try:
            arrival = self.reader.arrival(producer, delivery, posting)
            producer.predict(SINGLE_COST, len(arrival.queues))
            identity = self._duplicates.check(arrival.target, arrival.posting, transaction)
            if identity is not None and identity.first:
                if self._duplicates.suppress(identity, arrival.target, arrival.actor):
                    transaction.repeats = True
                if delivery.link.rcv_settle_mode is RcvSettleMode.SECOND and not delivery.over:
                    transaction.repeated.append(delivery)
            elif not arrival.queues and arrival.target.policy.unroutable == "release" and not delivery.settled:
                transactions.answer_postings(transaction, [delivery], Released())
                return False
            else:
                self._admit(arrival)
                transactions.hold(transaction, arrival, delivery)
        except StoreFull:
            self._refuse(producer, [delivery], full(producer.queue, disk=self._scribe.journal.full), transaction)
            return False
        except (DecodeError, Refused) as exc:
            self._refuse(producer, [delivery], exc, transaction)
            return False
        producer.average_bytes += (len(delivery.payload) - producer.average_bytes) // 4
        return True

    def publish(self, target: Queue | Topic, payload: bytes, actor: int, rights: Rights) -> Posted:
        """Post a message that no link brought, as if one did.

        Raises DecodeError, Refused or StoreFull, with nothing changed. What was recorded of it is not synced yet.
        """
        if len(payload) > (limit := self.reader.limits.message_bytes_max):
            raise Refused(
                f"the message has {len(payload):,} bytes: at most {limit:,} are taken (connection.message_bytes_max)",
                condition=LinkCondition.MESSAGE_SIZE_EXCEEDED,
            )
        posting = self.reader.look(payload, MANAGEMENT_NODE, rights)
        posted = self._post(self.reader.arrive(payload, MANAGEMENT_NODE, posting, target, actor), releases=True)
        if posted.released:
            raise Refused("no subscription takes the message", condition=AmqpCondition.PRECONDITION_FAILED)
        return posted

    def _admit(self, arrival: Arrival) -> None:
        """Raise Refused unless every queue has room: a message goes to all of them, or to none."""
        check_paused(arrival.target)
        size, memory = len(arrival.payload), self._memory
        note_value(arrival.target.policy, arrival.posting)  # it may find its queues later, when it is committed
        for queue in arrival.queues:
            admit(queue, memory, size, durable=arrival.posting.durable and queue.durable)
            note_value(queue.policy, arrival.posting)
        if len(arrival.queues) == 1:
            return
        cost = size + OVERHEAD_BYTES
        volatile = sum(not (arrival.posting.durable and queue.durable) for queue in arrival.queues)
        if memory.left < cost * volatile + OBJECT_BYTES * (len(arrival.queues) - volatile):
            raise Refused(
                f"no memory for {len(arrival.queues)} copies: try again later",
                condition=AmqpCondition.RESOURCE_LIMIT_EXCEEDED,
            )

    def _accept(self, delivery: Delivery, *, waits: bool) -> None:
        """Answer *accepted*; where it `waits` for what of it is recorded in this turn, after the sync."""
        if waits:
            self._scribe.with_next(self._answer, delivery, self._scribe.time_us)
        else:
            delivery.link.session.settle_all([delivery], ACCEPTED)

    def _refuse(
        self,
        producer: Producer,
        deliveries: list[Delivery],
        why: RemoteProtocolError,
        transaction: Transaction | None = None,
    ) -> None:
        """Reject deliveries, in their transaction if they have one. What cannot be rejected, because its sender has
        settled it, is gone or does not take that outcome, ends the link; its transaction cannot be committed (4.4.4).

        On the anonymous terminus the error names the delivery, so that its sender learns which message it was.
        """
        error = Error(why.condition, why.description)
        self._denials.postings(producer, len(deliveries), why)
        if producer.mark is not None:
            producer.mark.refused = True
        if producer.resumable is not None:
            for delivery in deliveries:
                producer.resumable.answered[delivery.tag] = Rejected(error)
        told = takes_rejected(producer.link)
        rejected = [delivery for delivery in deliveries if told and not delivery.over]
        unanswered = [delivery for delivery in deliveries if not told or delivery.over]
        if producer.queue is None and producer.topic is None:
            for delivery in rejected:
                self._answer_all([delivery], Rejected(_naming(error, delivery)), transaction)
        elif rejected:
            self._answer_all(rejected, Rejected(error), transaction)
        if unanswered:
            if transaction is not None:
                transaction.fail(
                    TransactionCondition.TRANSACTION_ROLLBACK,
                    f"a message was refused that could not be rejected: {error.description}",
                )
            producer.link.detach(_naming(error, unanswered[0]))

    def _answer_all(self, deliveries: list[Delivery], outcome: Outcome, transaction: Transaction | None) -> None:
        if transaction is None:
            deliveries[0].link.session.settle_all(deliveries, outcome)
        else:
            self._transactions.answer_postings(transaction, deliveries, outcome)

    # -- after the sync -----------------------------------------------------------------------------------------------

    def _synced(self, pending: list[tuple[Queue, list[Message]]], session: Session, postings: list[Delivery]) -> None:
        """A group of durable postings without times is on the disk: senders hear so, consumers may have them."""
        self._answer_synced(pending[0][1][0].posted_us, session, postings)
        for queue, messages in pending:
            self._entering.group_synced(queue, messages)

    def _run_synced(self, run: MessageRun, session: Session, postings: list[Delivery] | ReceivedRun) -> None:
        """The same for durable messages that came together."""
        self._answer_synced(run.posted_us, session, postings)
        self._entering.run_synced(run)

    def _answer_synced(self, posted_us: int, session: Session, postings: list[Delivery] | ReceivedRun) -> None:
        waited_s = (self._scribe.time_us - posted_us) / 1e6
        if isinstance(postings, list):
            self.durations.add(waited_s, len(postings))
            session.settle_all(postings, ACCEPTED)
        else:
            self.durations.add(waited_s, len(postings.payloads))
            session.settle_run(postings, ACCEPTED)
        self._life.touch(session.connection)

    def _answer(self, delivery: Delivery, arrived_us: int) -> None:
        self.durations.add((self._scribe.time_us - arrived_us) / 1e6)
        session = delivery.link.session
        session.settle_all([delivery], ACCEPTED)
        self._life.touch(session.connection)


def _naming(error: Error, delivery: Delivery) -> Error:
    """`error`, saying which delivery it is about."""
    return Error(error.condition, error.description, {"delivery-tag": delivery.tag})


def _says_durable(payload: bytes) -> bool:
    """Surely a durable message: one look at its header, as most senders write it."""
    return payload.startswith(HEADER_HEAD) and payload[6:7] == b"\x41"


__all__ = ["Posted", "Poster", "Refused"]
