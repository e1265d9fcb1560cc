"""Exactly-once links of the client: senders and receivers that resume what was unsettled when their link was lost.

Theory of operation. A link that is given a store (`stores`) asks the broker to keep its terminus (``acquit:resume``,
2.6.13). When the connection is lost nothing is given up: messages that were handed out stay valid, receipts stay open,
sends stay what they are. Each attach carries our unsettled map, the broker's answer carries its own, and the two decide
(`protocol.resumption`)::

    receiver                             the broker's map has the tag        it does not, and is complete
    ─────────────────────────────────    ────────────────────────────────    ────────────────────────────────
    outcome decided (and stored)         the broker resumes it, applies      the broker had applied it: APPLIED
                                         the outcome, and settles: APPLIED
    handed out, or in the buffer         the broker resumes it: the same     taken away: STALE
                                         message goes on
    not known any more (a restart)       the broker sends it again           -

    sender
    ─────────────────────────────────
    transferred, no outcome heard        its outcome is there: it is         never arrived: it is sent again,
                                         confirmed, and settled              under the same tag

A map that no frame holds is told in parts, and the link is detached and attached with the next part until both maps are
complete; nothing new is sent before. Each makes ours smaller: what the broker has is settled, what it is known to lack
(`lacking`) is gone, or has yet to be sent. A receiver's part names what is decided, as what is not would only come to
wait again, and what the broker has named and we do not know: that comes again.

The broker names the identity of its terminus. If it is not the one that the store knows, the terminus was ended
meanwhile (its time was over, its queue was deleted): then nobody can tell what became of what was unsettled, and that
is what the receipts say.

An outcome is safe in the store before it is told, a message before it is transferred, and a send is forgotten in the
store before it is settled: only then does the broker forget it, too. So a crash of either side, or of both, between any
two steps leaves one of the cases above.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import TYPE_CHECKING, Final

from acquit.client.entries import EntryKind, StoreEntry, forget
from acquit.client.failures import Failure
from acquit.client.receipts import Milestone, ReceiptStatus, SendPromise, SettlementReceipt
from acquit.client.received import TAKEN_BACK, MessageCore, describe
from acquit.client.receiving import ReceiverCore
from acquit.client.resumable import MapExchange, identity_of, incomplete_maps, lacking, map_room, refusal
from acquit.client.sending import PreparedMessage, SenderCore, StoredPayload
from acquit.client.sources import make_source
from acquit.errors import ConfigurationError, LinkDetached
from acquit.protocol.composite import encode_composite
from acquit.protocol.definitions import (
    Accepted,
    AmqpCondition,
    Error,
    RcvSettleMode,
    SndSettleMode,
    Source,
    Target,
    TerminusDurability,
    TerminusExpiryPolicy,
)
from acquit.protocol.delivery import Delivery, DeliveryState, is_outcome
from acquit.protocol.extensions import RESUME
from acquit.protocol.resumption import first_fitting

if TYPE_CHECKING:
    from acquit.client.entries import DeliveryStore
    from acquit.client.inbox import Cursor
    from acquit.client.options import DeliveryMode, ReceiverSpec, SenderSpec
    from acquit.client.received import SessionCoreBase
    from acquit.protocol.body import Content
    from acquit.protocol.constants import Outcome
    from acquit.protocol.message import Message

RECEIPTS_MAX: Final = 1_000
"""Receipts of a receiver that may be kept before it is worth looking which have ended."""


class _HeldDelivery:
    """A delivery of an exactly-once receiver that the broker has not settled."""

    __slots__ = ("message", "outcome", "receipt")

    def __init__(self, message: MessageCore | None, outcome: Outcome | None = None) -> None:
        self.message = message
        """None: known from the store alone, decided in an earlier life of the program."""
        self.outcome = outcome
        self.receipt: SettlementReceipt | None = None


class ResumingReceiver(ReceiverCore):
    """A receiver whose deliveries are resumed."""

    __slots__ = (
        "_expected",
        "_held",
        "_identity",
        "_maps",
        "_receipts",
        "_refusal",
        "_store",
        "_told",
        "_unknown",
        "_wanted",
    )

    resumes = True

    def __init__(self, session: SessionCoreBase, spec: ReceiverSpec) -> None:
        super().__init__(session, spec)
        assert spec.exactly_once is not None
        self._store: DeliveryStore = spec.exactly_once
        known = self._store.load(spec.name)
        self._identity = known.identity
        self._held: dict[bytes, _HeldDelivery] = {
            tag: _HeldDelivery(None, outcome) for tag, outcome in known.outcomes.items()
        }
        self._told: dict[bytes, DeliveryState | None] = {}
        """Outcomes that the last attach named and the peer's map answered, without what is settled since; before the
        peer has answered, all that were decided then."""
        self._wanted: list[bytes] = []
        """Tags that the peer's last map had, and we hold: where our next one has parts, they come first."""
        self._unknown: list[bytes] = []
        """Tags that the peer's last map had and we do not hold, where it does not send them before ours names them."""
        self._maps = MapExchange()
        self._receipts: dict[SettlementReceipt, None] = {}
        """Receipts that may be open."""
        self._refusal: Failure | None = None
        """The reason why we detach a link that the peer has granted; whoever waits hears it when that is done."""
        self._expected: set[bytes] = set()
        """Tags that the broker is still to resume on this link."""

    # -- user side -----------------------------------------------------------------------------------------------------

    def decide(self, messages: Sequence[MessageCore], outcome: Outcome, receipt: SettlementReceipt) -> None:
        """Store the outcome of messages, which were claimed before, and tell it when that is safe."""
        session = self.session
        encoded = encode_composite(outcome)
        name = self.spec.name
        receipt.lasting = True
        self._receipts[receipt] = None
        if len(self._receipts) > 2 * RECEIPTS_MAX:
            for ended in [one for one in list(self._receipts) if one.done]:  # other threads may come between
                self._receipts.pop(ended, None)
        entries = [StoreEntry(EntryKind.OUTCOME, name, one.delivery_tag, encoded) for one in messages]

        def safe(error: BaseException | None) -> None:
            if error is None:
                session.core.post((session.settle_safely, messages, outcome, receipt))
            else:
                receipt.expire(f"the outcome could not be stored: {error}")

        session.core.post((session.decided, messages))
        try:
            self._store.write(entries, safe)
        except ConfigurationError:  # it is closed: the receipt is nobody's
            self._receipts.pop(receipt, None)
            raise

    # -- loop side: life -----------------------------------------------------------------------------------------------

    def attach(self) -> None:
        """Attach with what is unsettled here, or, where nothing can ever have been, without a map (2.7.3)."""
        spec, mode, engine = self.spec, self.mode, self.session.engine
        named, incomplete = self._map()
        self._maps.begin((named, incomplete))
        self._told = self._decided()
        source = make_source(spec, OUTCOMES_ASKED, named=self.session.core.named, default_outcome=mode.default_outcome)
        source.durable = TerminusDurability.UNSETTLED_STATE
        source.expiry_policy = TerminusExpiryPolicy.NEVER
        self.link = engine.attach_receiver(
            spec.name,
            source=source,
            target=Target(address=spec.target),
            snd_settle_mode=SndSettleMode.UNSETTLED,
            rcv_settle_mode=RcvSettleMode.SECOND,
            unsettled=named if named or self._identity or self._store.durable else None,
            incomplete_unsettled=incomplete,
            desired_capabilities=(RESUME,),
            properties=spec.properties,
            context=self,
        )
        self._silent = True  # what is to be resumed comes first, and how much that is the answer tells

    def _decided(self) -> dict[bytes, DeliveryState | None]:
        return {tag: held.outcome for tag, held in self._held.items() if held.outcome is not None}

    def _map(self) -> tuple[dict[bytes, DeliveryState | None], bool]:
        """Return our unsettled map, and whether that is not all of it: where ours or the peer's has parts, it has what
        is decided, as far as that fits. The rest would only be sent again, to wait for the user as it does here."""
        room_bytes = map_room(self.session.core.engine)
        named, incomplete = first_fitting({tag: held.outcome for tag, held in self._held.items()}, (), room_bytes)
        if incomplete or self._maps.cut:
            ours = {**dict.fromkeys(self._unknown), **self._decided()}
            return first_fitting(ours, self._wanted, room_bytes)[0], True
        return named, False

    def on_attached(self) -> None:
        """Compare the two maps."""
        if self._maps.leaving:
            self.detach()
            return
        if (refused := refusal(self.link)) is not None:
            self._refusal = Failure(LinkDetached, f"{self.spec.what} was detached by us: {refused}")
            self.link.detach(Error(AmqpCondition.NOT_IMPLEMENTED, refused))
            return
        identity = identity_of(self.link)
        if identity != self._identity:
            self._begin_anew(identity)
        answer = self.link.remote_attach
        assert answer is not None
        theirs = answer.unsettled or {}
        gone = lacking(self.link, self._held)
        for tag in gone:
            self._over(tag, self._held[tag], None)
        self._forget(gone)
        asked = self.link.local_attach
        assert asked is not None
        named = theirs.keys() & (asked.unsettled or {}).keys()
        self._told = {tag: outcome for tag, outcome in self._told.items() if tag in named}
        self._wanted = [tag for tag in theirs if tag in self._held]
        new = [tag for tag, state in theirs.items() if tag not in self._held and not is_outcome(state)]
        self._expected = named if asked.incomplete_unsettled else {*self._wanted, *new}
        self._unknown = [tag for tag in new if tag not in self._expected]
        super().on_attached()
        self._maps.compare(answer)
        self.session.core.short_of_credit[self] = None
        self._attach_again()

    def top_up(self) -> None:
        """Grant credit; at the close, for what is still to be resumed."""
        super().top_up()
        if self.closing and self._maps.stands(self.link) and self.link.credit < self.resumptions:
            self.link.grant(self.resumptions)

    def _begin_anew(self, identity: bytes) -> None:
        """The broker keeps another terminus than we know of: this is the first time, or the other one was ended."""
        name, entries = self.spec.name, []
        if self._identity:
            for tag, held in self._held.items():
                entries += forget(EntryKind.OUTCOME, name, [tag])
                self._lost(held)
            self._held.clear()
            self._told.clear()
            self._wanted.clear()
        self._identity = identity
        self._store.write([*entries, StoreEntry(EntryKind.IDENTITY, name, b"", identity)])

    def _lost(self, held: _HeldDelivery) -> None:
        reason = "the broker had ended the terminus, and cannot tell what became of it"
        if held.receipt is not None:
            held.receipt.note(ReceiptStatus.UNKNOWN, 1, reason)
        if held.message is not None:
            self._drop(held.message)

    def _drop(self, message: MessageCore) -> None:
        """A message is not ours any more: it is taken out of the buffer, or whoever has it will hear so."""
        message.delivery.context = TAKEN_BACK
        if self.take_out(message):
            self.give_back(message)

    @property
    def kept(self) -> list[MessageCore]:
        """The messages that are here without an outcome: the broker holds them for us."""
        found = self._held.values()
        return [held.message for held in found if held.message is not None and held.outcome is None]

    def on_interrupted(self, failure: Failure) -> None:
        """The connection is lost: what is here stays ours."""
        self._expected.clear()
        self._maps.compared = False
        if self.drained is not None:
            self.drained.fail(failure)
        self.notify()

    def detach(self) -> None:
        """Leave the terminus to the next link of this name, or, where nothing outlives us, end it. An attach that is
        not answered in time is given up by us, not by the user: what an earlier link left stays."""
        self.closing = True
        if self.failure is None and self.session.out_of_reach(self):
            self.session.forget(self, Failure(LinkDetached, f"{self.spec.what} was closed by us", orderly=True))
        elif self._maps.again:
            self._maps.leaving = True
        elif self.failure is None:
            lasts = self._store.durable or self.spec.subscription is not None
            self.link.detach(closed=not lasts and (self.attached.done or not self._identity))
        else:
            self.detached.succeed()

    # -- loop side: messages -------------------------------------------------------------------------------------------

    def on_deliveries(self, deliveries: list[Delivery]) -> None:
        """Messages arrived: new ones, and those that the broker resumes."""
        fresh: list[Delivery] = []
        for delivery in deliveries:
            self._expected.discard(delivery.tag)
            held = self._held.get(delivery.tag)
            if held is None:
                fresh.append(delivery)
            else:
                self._resumed(delivery, held)
        if fresh:
            super().on_deliveries(fresh)
        self.session.say_all()  # outcomes that were decided since the attach
        self._attach_again()
        self.session.core.short_of_credit[self] = None

    def _take_in(self, messages: list[MessageCore]) -> None:
        for message in messages:
            self._held[message.delivery_tag] = _HeldDelivery(message)
        super()._take_in(messages)

    def _resumed(self, delivery: Delivery, held: _HeldDelivery) -> None:
        message = held.message
        if message is not None:
            delivery.payload = message.payload  # whoever has the message has read it already
            message.delivery = delivery
        theirs = delivery.remote_state
        if delivery.settled:
            self._over(delivery.tag, held, theirs)
            self._forget((delivery.tag,))
        elif theirs is not None and is_outcome(theirs):  # it was taken away, and this is what holds (example 13)
            self._over(delivery.tag, held, theirs)
            self._forget((delivery.tag,))
            self.session.engine.settle_all((delivery,), theirs)
        elif held.outcome is not None:
            delivery.context = held.receipt
            if self._told.get(delivery.tag) == held.outcome:
                delivery.local_state = held.outcome  # our map has told it: the broker settles when it is applied
            else:
                self.session.say(held.outcome, delivery)

    def on_aborted(self, tag: bytes) -> None:
        """The broker cannot resume a delivery: its outcome came from elsewhere (examples 11 and 14)."""
        self._expected.discard(tag)
        held = self._held.get(tag)
        if held is not None:
            self._over(tag, held, None)
            self._forget((tag,))
        self.session.core.short_of_credit[self] = None
        self._attach_again()

    def on_settled(self, deliveries: list[Delivery]) -> None:
        """The broker has settled deliveries: nobody asks for them again."""
        known = [delivery.tag for delivery in deliveries if delivery.tag in self._held]
        self._forget(known)
        self._attach_again()

    def settle(self, message: MessageCore, outcome: Outcome, receipt: SettlementReceipt) -> None:
        """Tell the outcome of a message, now or as the link is attached again."""
        core = self.session.core
        delivery = message.delivery
        held = self._held.get(delivery.tag)
        if held is None or held.message is not message or delivery.context is TAKEN_BACK:
            receipt.note(ReceiptStatus.STALE, 1, self.session.why_stale(message))
            return
        held.outcome, held.receipt = outcome, receipt
        core.await_answer(receipt)
        if self.failure is not None:
            receipt.note(ReceiptStatus.UNKNOWN, 1, self.failure.message)
        elif not core.interrupted and not delivery.over and delivery.tag not in self._expected:
            delivery.context = receipt
            self.session.say(outcome, delivery)
        else:
            self._attach_again()

    def _over(self, tag: bytes, held: _HeldDelivery, theirs: object) -> None:
        """A delivery is settled: by our outcome, or, if the broker says another, by that."""
        told = self._told.get(tag)
        agreed = told is not None and (theirs is None or type(theirs) is type(told))
        if held.receipt is not None:
            if agreed:
                held.receipt.note(self.session.core.answer_means, 1)
            else:
                how = f", as {describe(theirs)}" if theirs is not None else ""
                held.receipt.note(ReceiptStatus.STALE, 1, f"the peer had settled it before{how}")
        if held.message is not None and not agreed:
            self._drop(held.message)

    def _forget(self, tags: Sequence[bytes]) -> None:
        for tag in tags:
            self._held.pop(tag, None)
            self._told.pop(tag, None)
        self._write_forgotten(tags)

    def _write_forgotten(self, tags: Sequence[bytes]) -> None:
        if tags:
            self._store.write(forget(EntryKind.OUTCOME, self.spec.name, tags))

    @property
    def resumptions(self) -> int:
        """Credit that deliveries which are resumed use up, beside the prefetch."""
        return len(self._expected)

    def _attach_again(self) -> None:
        """Attach once more, where not all of a map fitted its frame, what both have named is settled, and there is
        something else to say."""
        if self._maps.unfinished(self.link) and not self._expected and not self._told:
            self._maps.go_on(self.link, self._map())

    def attaches_again(self, lost: list[Delivery]) -> bool:
        """True if the link was detached to be attached once more, which it is now."""
        if not self._maps.again:
            return False
        self.session.engine.lose_deliveries(lost)
        self.attach()
        return True

    def open_receipts(self) -> list[SettlementReceipt]:
        """Receipts that wait for the store, or for the peer's answer."""
        return [receipt for receipt in list(self._receipts) if not receipt.done]

    def on_ended(self, failure: Failure) -> None:
        """The link is over: what was decided and not answered stays in the store."""
        for receipt in self.open_receipts():
            receipt.expire(failure.message)
        super().on_ended(self._refusal or failure)


OUTCOMES_ASKED: Final = ("amqp:accepted:list", "amqp:rejected:list", "amqp:released:list", "amqp:modified:list")


class ResumingSender(SenderCore):
    """A sender whose sends are resumed: the outcome of each is heard, and none is posted twice."""

    __slots__ = (
        "_confirming",
        "_identity",
        "_maps",
        "_refusal",
        "_refused",
        "_store",
        "_storing",
        "_unsettled",
    )

    resumes = True

    def __init__(self, session: SessionCoreBase, spec: SenderSpec) -> None:
        super().__init__(session, spec)
        assert spec.exactly_once is not None
        self._store: DeliveryStore = spec.exactly_once
        known = self._store.load(spec.name)
        self._identity = known.identity
        self._tags = _lasting_tags(session.core.wall_clock())
        self._unsettled: dict[bytes, SendPromise] = {}
        """Sends that may have been transferred and are not forgotten in the store, by delivery-tag: each attach has to
        name them, as the peer forgets what it does not name. Those that the peer is known not to have are in the queue
        again, and named no more."""
        self._refused: dict[bytes, DeliveryState | None] = {}
        """Outcomes of sends that the peer did not accept, by delivery-tag. They are told when the store has forgotten
        these: if this program and then the peer were killed before, they would be sent again, and might be posted."""
        self._refusal: Failure | None = None
        """The reason why we detach a link that the peer has granted; whoever waits hears it when that is done."""
        self._maps = MapExchange()
        self._confirming = False
        """Sends whose outcome the peer's map told are being forgotten in the store."""
        self._storing: dict[SendPromise, None] = {}
        """Sends that are on their way into the store: put in by user code, taken out on the store's thread."""
        for tag, payload in known.sends.items():
            promise = self._unsettled[tag] = SendPromise(payload)
            promise.tag, promise.transferred = tag, True
            self._queued_bytes += len(payload)
            self._sent_bytes += len(payload)

    @property
    def lasting(self) -> bool:
        """True if a later life of the program goes on with what has no outcome in this one."""
        return self._store.durable

    def written(self) -> Milestone:
        """Return what is reached when all that was written to the store so far is safe, or will never be. Raises
        ConfigurationError where the store is closed."""
        reached = Milestone()
        self._store.write([], lambda _: self.session.core.post((reached.succeed,)))
        return reached

    @property
    def recovered(self) -> int:
        """The number of sends that an earlier life of the program left without an outcome, and that have none yet."""
        sends = (*self._unsettled.values(), *self.queue)
        return sum(type(promise) is SendPromise and not promise.done for promise in sends)

    # -- user side -----------------------------------------------------------------------------------------------------

    @property
    def has_room(self) -> bool:
        """True if the buffer takes one more, those on their way into the store included."""
        return super().has_room and len(self.queue) + len(self._storing) < self.spec.buffer_messages

    def prepare(
        self, message: Message | Content, cursor: Cursor, delivery_mode: DeliveryMode | None
    ) -> PreparedMessage:
        """Write a message to be sent in the transaction of `cursor`."""
        write_within = getattr(self._store, "write_within", None)
        if write_within is None:
            return super().prepare(message, cursor, delivery_mode)
        payload = StoredPayload(self.encode(message, delivery_mode))
        payload.tag = next(self._tags)
        write_within(cursor, StoreEntry(EntryKind.SEND, self.spec.name, payload.tag, payload))
        return PreparedMessage(payload)

    def enqueue(self, promise: SendPromise) -> None:
        """Store a send, and put it into the buffer when that is safe."""
        if self._tracer is not None:
            self.begin_trace(promise)
        self._queued_bytes += len(promise.payload)
        if isinstance(promise.payload, StoredPayload):
            promise.tag = promise.payload.tag
            self._enter(promise)
            return
        promise.tag = next(self._tags)
        entry = StoreEntry(EntryKind.SEND, self.spec.name, promise.tag, promise.payload)
        self._storing[promise] = None
        promise.storing = True

        def safe(error: BaseException | None) -> None:
            if error is not None:
                self.session.core.post((self._not_stored, promise, error))
                return
            promise.storing = False
            self._enter(promise)
            self._storing.pop(promise)  # when it is in the queue: a flush must see it in one of the two

        try:
            self._store.write([entry], safe)
        except ConfigurationError:  # it is closed
            self._storing.pop(promise)
            self._queued_bytes -= len(promise.payload)
            raise

    def _not_stored(self, promise: SendPromise, error: BaseException) -> None:
        promise.storing = False
        self._storing.pop(promise, None)
        self._sent_bytes += len(promise.payload)
        self._fail(promise, Failure(LinkDetached, f"the message could not be stored, and was not sent: {error}"))
        self.notify()

    def _enter(self, promise: SendPromise) -> None:
        self.queue.append(promise)
        self._ask_to_pump()

    def withdraw(self, promise: SendPromise, timeout_s: float | None = None) -> None:
        """Do nothing: what is stored will be sent, whoever has stopped waiting."""

    def expire(self, promise: SendPromise, timeout_s: float) -> None:
        """Do nothing, as `withdraw`."""

    # -- loop side -----------------------------------------------------------------------------------------------------

    def attach(self) -> None:
        """Attach with the sends that have no outcome, or, where there never can have been any, without a map."""
        spec = self.spec
        self._confirming = False
        ours: dict[bytes, DeliveryState | None] = dict.fromkeys(self._unsettled)
        named, incomplete = first_fitting(ours, (), map_room(self.session.core.engine))
        self._maps.begin(ours.keys())
        capabilities = (*spec.capabilities, "topic") if spec.topic else spec.capabilities
        self.link = self.session.engine.attach_sender(
            spec.name,
            source=Source(outcomes=OUTCOMES_ASKED),
            target=Target(
                address=spec.address,
                durable=TerminusDurability.UNSETTLED_STATE,
                expiry_policy=TerminusExpiryPolicy.NEVER,
                capabilities=capabilities,
            ),
            snd_settle_mode=SndSettleMode.MIXED,
            rcv_settle_mode=RcvSettleMode.SECOND,
            unsettled=named if named or self._identity or self._store.durable else None,
            incomplete_unsettled=incomplete,
            desired_capabilities=(RESUME,),
            properties=spec.properties,
            context=self,
        )

    def on_attached(self) -> None:
        """Compare the two maps."""
        if self._maps.leaving:
            self.detach()
            return
        refused = refusal(self.link)
        identity = identity_of(self.link)
        if refused is None and self._identity and identity != self._identity and self._unsettled:
            refused = (
                f"the broker has ended the terminus that it kept for {self.spec.name!r}, and cannot tell what became "
                f"of {len(self._unsettled)} messages: `forget_terminus` of the store says what to do with them"
            )
        if refused is not None:
            self._refusal = Failure(LinkDetached, f"{self.spec.what} was detached by us: {refused}")
            self.link.detach(Error(AmqpCondition.NOT_IMPLEMENTED, refused))
            return
        if identity != self._identity:
            self._identity = identity
            self._store.write([StoreEntry(EntryKind.IDENTITY, self.spec.name, b"", identity)])
        answer = self.link.remote_attach
        assert answer is not None
        theirs = answer.unsettled or {}
        never_arrived = lacking(self.link, self._unsettled)
        if not incomplete_maps(self.link):
            never_arrived += [tag for tag in self._unsettled if tag in theirs and not is_outcome(theirs[tag])]
        heard: list[bytes] = []
        for tag in sorted(self._unsettled):
            if is_outcome(state := theirs.get(tag)):
                heard.append(tag)
                self._hear(tag, self._unsettled[tag], state)
        self._put_back(never_arrived)
        self._confirming = bool(heard)
        super().on_attached()
        self._maps.compare(answer)
        if heard:
            self._confirm_when_safe(heard)
        self._attach_again()

    def _put_back(self, tags: list[bytes]) -> None:
        """Put sends that the peer does not have, in the order of their tags, back in front of those that never left."""
        queue, promises = self.queue, []
        for tag in tags:
            promise = self._unsettled[tag]
            if not promise.done and tag not in self._refused:  # else it is being forgotten, and never sent again
                del self._unsettled[tag]
                self._sent_bytes -= len(promise.payload)
                promises.append(promise)
        while queue and queue[0].transferred:  # those that an earlier attach has put back
            promises.append(queue.popleft())
        queue.extendleft(sorted(promises, key=lambda promise: promise.tag or b"", reverse=True))

    def on_interrupted(self, lost: list[Delivery]) -> None:
        """The connection is lost: what was sent is resumed."""
        self.in_flight = 0
        self._maps.compared = False

    def give_up_waiting(self, failure: Failure) -> None:
        """Do nothing: what is stored waits for the connection as long as it takes."""

    def pump(self) -> None:
        """Transfer what the peer gives credit for, while both maps are complete (2.7.3)."""
        self._pumps += 1  # before the queue is looked at: what comes after this wakes us again
        if self.failure is not None:
            self.on_ended(self.failure, [])
            return
        queue, link = self.queue, self.link
        if not self.session.core.writable or self.session.core.interrupted or not self.attached.done:
            return
        incomplete = incomplete_maps(link)
        while queue and link.sendable and not incomplete:
            promises = [queue.popleft() for _ in range(min(len(queue), link.room or 1))]
            tags = [promise.tag or b"" for promise in promises]
            payloads = [promise.payload for promise in promises]
            sent = link.send_all(tags, payloads, promises)
            queue.extendleft(reversed(promises[sent:]))
            for promise in promises[:sent]:
                promise.transferred = True
            self._unsettled.update(zip(tags[:sent], promises, strict=False))
            self._sent_bytes += sum(map(len, payloads[:sent]))
            self.in_flight += sent
        if len(queue) <= self.spec.buffer_messages // 2:
            self.notify()

    def on_states(self, deliveries: list[Delivery], state: DeliveryState | None, settled: bool) -> None:
        """The peer told what became of sends. They are forgotten here, durably, and only then settled."""
        if not settled and not is_outcome(state):
            return  # progress
        tags = []
        for delivery in deliveries:
            tag = delivery.tag
            promise = self._unsettled.get(tag)
            if promise is not None and not promise.done and tag not in self._refused:
                self.in_flight -= 1
                tags.append(tag)
                self._hear(tag, promise, state)
        engine = self.session.engine

        def settle() -> None:
            if engine is self.session.engine and self.failure is None:
                engine.settle_all(deliveries)

        self._forget(tags, settle)

    def _hear(self, tag: bytes, promise: SendPromise, state: DeliveryState | None) -> None:
        if promise.done or tag in self._refused:
            return
        if isinstance(state, Accepted):
            promise.settle(state)
        else:
            self._refused[tag] = state

    def _forget(self, tags: list[bytes], then: Callable[[], None]) -> None:
        """Take sends that have an outcome out of the store, and go on when that is safe."""

        def forgotten() -> None:
            for tag in tags:
                self._tell_refused(tag)
                self._unsettled.pop(tag, None)
            then()
            self._attach_again()

        def kept(error: BaseException) -> None:
            failure = Failure(LinkDetached, f"it was refused, and is still in the store, which failed: {error}")
            for tag in [tag for tag in tags if tag in self._refused]:
                promise = self._unsettled[tag]
                self._failed.append(promise)
                promise.fail(failure)

        def safe(error: BaseException | None) -> None:
            self.session.core.post((forgotten,) if error is None else (kept, error))

        self._store.write(forget(EntryKind.SEND, self.spec.name, tags), safe)

    def _tell_refused(self, tag: bytes) -> None:
        promise = self._unsettled.get(tag)
        if tag in self._refused and promise is not None and not promise.done:
            promise.settle(self._refused[tag])
            self._failed.append(promise)
        self._refused.pop(tag, None)

    def _confirm_when_safe(self, tags: list[bytes]) -> None:
        """Forget sends whose outcome the peer's map told, and then resume them settled. One for which there is no
        credit is left out: the peer forgets it with our next map."""
        link = self.link

        def confirm() -> None:
            if self.link is link:
                self._confirming = False
                for tag in tags:
                    if link.sendable:
                        link.send(tag, b"", resume=True, settled=True)

        self._forget(tags, confirm)

    def _attach_again(self) -> None:
        """Attach once more, where not all of a map fitted its frame, what both have named is settled, and ours has
        become smaller."""
        if self._maps.unfinished(self.link) and not self._confirming:
            self._maps.go_on(self.link, self._unsettled.keys())

    def attaches_again(self, lost: list[Delivery]) -> bool:
        """True if the link was detached to be attached once more, which it is now."""
        if not self._maps.again:
            return False
        self.session.engine.lose_deliveries(lost)
        self.attach()
        return True

    def on_ended(self, failure: Failure, lost: list[Delivery]) -> None:
        """The link is over: sends without an outcome stay in the store, and those who wait hear so."""
        failure = self._refusal or failure
        for tag in list(self._refused):
            self._tell_refused(tag)  # their write is under way, and nobody may hear of it any more
        for promise in list(self._unsettled.values()):
            if not promise.done:
                self._failed.append(promise)
                promise.fail(failure)
        super().on_ended(failure, [])

    def unfinished(self) -> list[SendPromise]:
        """All sends that have no end yet."""
        storing = list(self._storing)  # before the queue is looked at, where they go
        return list(dict.fromkeys(p for p in (*self._unsettled.values(), *self.queue, *storing) if not p.done))

    def detach(self) -> None:
        """Leave the terminus to the next link of this name, or, where nothing outlives us, end it."""
        self.closing = True
        if self.failure is None and self.session.out_of_reach(self):
            self.session.forget(self, Failure(LinkDetached, f"{self.spec.what} was closed by us", orderly=True))
        elif self._maps.again:
            self._maps.leaving = True
        elif self.failure is None:
            self.link.detach(closed=not self._store.durable and (self.attached.done or not self._identity))
        else:
            self.detached.succeed()


def _lasting_tags(now_s: float) -> Iterator[bytes]:
    """Yield delivery-tags that no earlier life of the program has used: by time, by chance, and counted."""
    import secrets

    begin = f"{int(now_s * 1000):012x}{secrets.token_hex(2)}".encode()
    return map((begin + b"%08x").__mod__, count())  # no generator: threads that send and `prepare` may ask at once


__all__ = ["ResumingReceiver", "ResumingSender"]
