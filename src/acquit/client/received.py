"""A message that was received, before anyone says how to wait for anything.

It is the message with all its attributes, decoded when they are asked for, and the handle on its delivery. Which verb
means what is in `modes`; what may be said only once is guarded by `SessionCoreBase.claim`.

A message knows its receiver, that its session, and this what it handed out. So `ReceiverBase` and `SessionCoreBase` are
here as well: what messages, and all that is around a session, see of the two. The rest is in `receiving` and `session`.
"""

from __future__ import annotations

import copy
import re
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final, Protocol, Unpack, cast

from acquit.client.acknowledging import Unanswered
from acquit.client.core_base import CoreBase
from acquit.client.failures import Failure
from acquit.client.modes import MODES, AckMode, AckScope, Mode
from acquit.client.options import ReceiverSpec, check_flag
from acquit.client.receipts import ReceiptStatus, SettlementReceipt
from acquit.errors import (
    AcquitError,
    AlreadySettled,
    ConfigurationError,
    DecodeError,
    LocalProtocolError,
    SessionEnded,
    Unreliable,
)
from acquit.protocol.body import Content
from acquit.protocol.codec import decode
from acquit.protocol.constants import ACCEPTED
from acquit.protocol.definitions import Accepted, AmqpCondition, Error, Modified, Received, Rejected
from acquit.protocol.delivery import Delivery, Outcome
from acquit.protocol.extensions import SEQUENCE
from acquit.protocol.link import ReceivingLink
from acquit.protocol.message import Message, MessageFields
from acquit.protocol.sections import MESSAGE_ANNOTATIONS, Sections, map_value, scan_sections
from acquit.protocol.session import Session
from acquit.protocol.types import Described

FIRST_ACQUIRER_FIELD: Final = 3
REJECTED: Final = "acquit:rejected"
"""The condition of a rejection that has only a text."""


class _LazySections:
    """Finds the sections when the first attribute is asked for: who only passes messages on never pays for it."""

    def __get__(self, message: MessageCore | None, owner: type) -> Sections:
        assert message is not None
        sections = message.__dict__["_sections"] = scan_sections(message.delivery.payload)
        return sections


class MessageCore(Message):
    """A received message. Equal only to itself: a copy delivered again is another delivery."""

    __slots__ = ("attempts", "delivery", "number", "outcome", "receiver")

    _sections = _LazySections()

    def __init__(self, receiver: ReceiverBase, delivery: Delivery, number: int) -> None:
        self.receiver = receiver
        self.delivery = delivery
        self.number = number
        self.outcome: Outcome | None = None
        self.attempts = 0

    @property
    def sections(self) -> Sections:
        """The encoded sections of the message."""
        return self._sections

    @property
    def payload(self) -> bytes:
        """The whole message as it was transferred, all its sections, byte for byte."""
        return self.delivery.payload

    @property
    def delivery_tag(self) -> bytes:
        """The tag of this delivery (2.6.12): another one each time the message is delivered."""
        return self.delivery.tag

    @property
    def message_format(self) -> int:
        """0 unless the sender uses a format of its own (2.7.5), which only `payload` can tell about then."""
        return self.delivery.message_format

    @property
    def settled(self) -> bool:
        """True if this delivery has its outcome, by us or by the peer; always so on an unreliable link. False for one
        that was lost with its connection before that: the broker delivers it again."""
        return self.outcome is not None or self.delivery.settled

    @property
    def was_left(self) -> bool:
        """True if a close gave this delivery its outcome, because nobody had: see `SessionCore.settle_leftovers`."""
        return self.outcome is not None and self.outcome is self.receiver.left_as

    @property
    def delivery_count(self) -> int:  # type: ignore[override]  # what the broker counted cannot be set here
        """Earlier attempts to deliver that failed: the broker's count, and `recover` in this session."""
        return self.header.delivery_count + self.attempts

    @property
    def sequence(self) -> int | None:
        """The name of the message in our broker (``x-opt-acquit-sequence``); None where it has none, as from other
        brokers, unless they keep what it had."""
        section = self._sections.section(MESSAGE_ANNOTATIONS)
        value = map_value(section, SEQUENCE) if section else None
        return int(value) if isinstance(value, int) else None

    @property
    def redelivered(self) -> bool:
        """True if somebody may have seen this message before.

        True when an attempt failed, or when the broker says that it was acquired before, if it is one that keeps that
        up to date (ours, RabbitMQ 4). The specification's default for *first-acquirer* is false (3.2.1), so from any
        other broker its absence, or its falsity, says nothing.
        """
        if self.delivery_count > 0:
            return True
        return self.receiver.session.core.peer.keeps_first_acquirer and self._first_acquirer() is False

    def _first_acquirer(self) -> bool | None:
        section = self._sections.header
        if not section:
            return None
        described, _ = decode(section)
        fields = cast(list[object], described.value) if isinstance(described, Described) else []
        value = fields[FIRST_ACQUIRER_FIELD] if len(fields) > FIRST_ACQUIRER_FIELD else None
        return value if isinstance(value, bool) else None

    def make_reply(self, body: Message | Content | None = None, **fields: Unpack[MessageFields]) -> Message:
        """A reply to this request, for a sender to the anonymous terminus (``session.sender(None)``).

        It goes `to` where the request's `reply_to` says, and its `correlation_id` is the request's, or, where that has
        none, its message id, as JMS programs expect. `body` may be a message, of which what it says itself stands, and
        then there are no `fields`. Raises LocalProtocolError where the request does not say where a reply goes.
        """
        if self.reply_to is None:
            raise LocalProtocolError("the request does not say where a reply goes (reply-to)")
        if isinstance(body, Message) and fields:
            raise ConfigurationError(f"a message has its own fields: set {', '.join(fields)} there")
        reply = copy.copy(body) if isinstance(body, Message) else Message(body, **fields)
        reply.properties = copy.copy(reply.properties)
        if reply.to is None:
            reply.to = self.reply_to
        if reply.correlation_id is None:
            reply.correlation_id = self.correlation_id if self.correlation_id is not None else self.message_id
        return reply

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle and copy as a plain `Message`, as one to send: another process has neither the link nor the delivery,
        and cannot acknowledge it."""
        return Message.of_sections, (self._sections,), vars(self.as_new())

    def as_new(self) -> Message:
        """Return the message as one to send, without its delivery annotations."""
        message = Message.of_sections(self._sections)
        message.__dict__.update({name: value for name, value in self.__dict__.items() if name != "_sections"})
        message.delivery_annotations = {}
        return message

    # -- for the verbs in aio and blocking -----------------------------------------------------------------------------

    def decide(self, outcome: Outcome) -> SettlementReceipt:
        """Give this delivery its outcome. Raises Unreliable and AlreadySettled."""
        session = self.receiver.session
        session.core.check_outcome(outcome)
        self._check_reliable()
        if not session.claim(self):
            raise self.already_settled()
        return session.settle([self], outcome)

    def renew(self) -> SettlementReceipt:
        """Say that this delivery is being worked on. Raises Unreliable and AlreadySettled."""
        session = self.receiver.session
        self._check_reliable()
        if self.number not in session.handed_out:
            raise self.already_settled()
        receipt = session.kinds.receipt(1)
        session.core.post((session.renew, self, receipt))
        return receipt

    def _check_reliable(self) -> None:
        receiver = self.receiver
        if not receiver.mode.reliable:
            how = "unreliable" if receiver.spec.unreliable else f"in mode {receiver.mode.name.name}"
            raise Unreliable(
                f"{receiver.spec.what} is {how}: the broker settled the message as it sent it; use AUTO, CLIENT or "
                "INDIVIDUAL to have a say"
            )

    def already_settled(self) -> AlreadySettled:
        """Return the error of a second outcome."""
        if self.was_left:
            core, session = self.receiver.session.core, self.receiver.session
            closed = "connection" if core.closing else "session" if session.closing else "receiver"
            return AlreadySettled(
                f"the {closed} was closed while this message had no outcome: it ended as {describe(self.outcome)}"
                f"{'' if isinstance(self.outcome, Accepted) else ', and the broker delivers it again'}; "
                "give messages their outcome before the close"
            )
        if self.attempts and not self.settled:
            return AlreadySettled("`recover` has put this message back: receive it again before it gets an outcome")
        said = f"as {describe(self.outcome)}" if self.outcome is not None else "by the peer"
        return AlreadySettled(f"this delivery is settled already, {said}; the first outcome stands")

    def handed_over(self) -> None:
        """Return the credit of a message that left the buffer, and say the outcome of its mode, if any (loop side)."""
        receiver = self.receiver
        session = receiver.session
        if self.number < session.since:
            return
        receiver.give_back(self)
        session.core.short_of_credit[receiver] = None
        if self.outcome is not None:
            session.say(self.outcome, self.delivery)

    def __eq__(self, other: object) -> bool:
        return self is other

    __hash__ = object.__hash__  # type: ignore[assignment]  # a delivery has an identity, a Message has none

    def __repr__(self) -> str:
        try:
            shown = super().__repr__()
        except DecodeError as exc:
            shown = f"{type(self).__name__}(malformed: {exc})"
        return f"<{shown} tag={self.delivery_tag.hex()}{' settled' if self.settled else ''}>"


@dataclass(frozen=True, slots=True)
class Kinds:
    """The classes of what users see: the driver's, which know how to wait."""

    message: type[MessageCore]
    receipt: type[SettlementReceipt]


class ReceiverBase:
    """A receiver as messages and the session see it."""

    __slots__ = ("closing", "failure", "left_as", "mode", "session", "spec")

    link: ReceivingLink
    resumes = False
    """True for a receiver whose deliveries outlive their connection (`resuming`)."""

    def __init__(self, session: SessionCoreBase, spec: ReceiverSpec) -> None:
        self.session = session
        self.spec = spec
        self.mode: Mode = MODES[AckMode.NO_ACK] if spec.unreliable else session.mode
        self.failure: Failure | None = None
        self.closing = False
        self.left_as: Outcome | None = None
        """The outcome that its close gave what was handed out and had none: an object of its own, to be told from one
        that somebody gave."""

    @property
    def kept(self) -> list[MessageCore]:
        """The messages that stay its own when the connection is lost."""
        return []

    @property
    def address(self) -> str:
        """Address of the source, as the peer says it."""
        source = self.link.source
        return (source.address if source is not None else None) or self.spec.address or ""

    def give_back(self, message: MessageCore) -> None:
        """The credit of a message comes back."""
        raise NotImplementedError

    def put_back(self, messages: list[MessageCore]) -> None:
        """Recover: handed-out messages go back to the front of the buffer, in the order they were handed out."""
        raise NotImplementedError

    def top_up(self) -> None:
        """Grant what can be granted."""
        raise NotImplementedError

    def pause(self) -> None:
        """Take back what credit is left, and grant none until somebody waits for a message (loop side)."""
        raise NotImplementedError

    def decide(self, messages: Sequence[MessageCore], outcome: Outcome, receipt: SettlementReceipt) -> None:
        """Store the outcome of messages, and tell it when that is safe (of a receiver that resumes)."""
        raise NotImplementedError


class Errand(Protocol):
    """A task of the session that is under way on links of its own."""

    def on_ended(self, failure: Failure) -> None:
        """A link of it is over, or the session with all of them."""


class Transacting(Protocol):
    """The transactions of a session (`transacting.SessionTransactions`), to its links."""

    @property
    def refusal(self) -> AcquitError | None:
        """The error of what would be done in the current transaction; None while that can be committed."""

    def advance(self) -> None:
        """Do what can be done now."""

    def open_receipts(self) -> list[SettlementReceipt]:
        """Receipts of outcomes that are not said yet."""


TAKEN_BACK: Final = object()
"""The context of a delivery that the peer has given an outcome to of its own accord."""


class SessionCoreBase:
    """A session as its messages, links and transactions see it: its mode, and what it handed out."""

    engine: Session
    transactions: Transacting | None

    def __init__(self, core: CoreBase, mode: Mode, kinds: Kinds) -> None:
        self.core = core
        self.mode = mode
        self.kinds = kinds
        self.failure: Failure | None = None
        self.closing = False
        self.errands: dict[Errand, None] = {}
        """Tasks that are under way on links of their own."""
        self.handed_out: OrderedDict[int, MessageCore] = OrderedDict()
        """Handed out and not acknowledged, in the order of handing out, by their number. Acknowledgements take the
        oldest: to get to the first of a dict means to pass over all that ever left it."""
        self.number = 0
        """Number of the next message that arrives."""
        self.since = 0
        """The number of the first message that arrived on the present connection: the broker delivers older ones that
        were not acknowledged again, to whomever."""
        self.eager = not (mode.transacted or mode.lazy_messages)
        """True if nothing that was done waits for something else, or for a while."""
        self.unanswered = Unanswered(core)
        """Acknowledgements that nobody waits for."""
        self._said: Outcome | None = None
        self._about: list[Delivery] = []

    def out_of_reach(self, link: object) -> bool:
        """Return True if the peer knows nothing of a link of ours that has not ended: the connection is lost, or the
        link was refused as it came back, and waits to be attached once more."""
        return self.core.interrupted or link in self.core.refused

    # -- user side -----------------------------------------------------------------------------------------------------

    def claim(self, message: MessageCore) -> bool:
        """Take the right to decide the outcome of a message. True for the first who asks."""
        return self.handed_out.pop(message.number, None) is not None

    def settle(self, messages: Sequence[MessageCore], outcome: Outcome) -> SettlementReceipt:
        """Give messages their outcome, which were claimed before."""
        receipt = self.kinds.receipt(len(messages))
        if messages:
            if (tracer := self.core.options.tracer) is not None:
                tracer.settled(messages, messages[0].receiver.address, outcome, receipt, self.core.where)
            resumed: dict[ReceiverBase, list[MessageCore]] = {}
            for message in messages:
                message.outcome = outcome
                if message.receiver.resumes:
                    resumed.setdefault(message.receiver, []).append(message)
            for receiver, its_own in resumed.items():
                receiver.decide(its_own, outcome, receipt)
            if resumed:
                messages = [message for message in messages if not message.receiver.resumes]
            if messages:
                self.core.post((self._settle, messages, outcome, receipt))
        return receipt

    def settle_safely(self, messages: Sequence[MessageCore], outcome: Outcome, receipt: SettlementReceipt) -> None:
        """Tell the outcome of messages of a receiver that resumes, which its store has now (loop side)."""
        raise NotImplementedError

    def decided(self, messages: Sequence[MessageCore]) -> None:
        """Return the credit of messages whose outcome is being stored: others may come meanwhile (loop side)."""
        raise NotImplementedError

    def take_number(self) -> int:
        """Return the number of one more message (loop side)."""
        self.number += 1
        return self.number - 1

    def settle_lazily(self, message: MessageCore, outcome: Outcome) -> None:
        """Give a message, which was claimed before, its outcome with others (user side)."""
        message.outcome = outcome
        self.core.post((self._say_lazily, outcome, message))

    def _say_lazily(self, outcome: Outcome, message: MessageCore) -> None:
        if message.number >= self.since:
            self.say(outcome, message.delivery)

    def acknowledge(self, message: MessageCore | None, whole_session: bool) -> SettlementReceipt:
        """Accept what `acknowledge` means in this mode: `message` and what was handed out before it, `message` alone,
        or without one all that was handed out. `whole_session`: the verb of a message in CLIENT mode, which does not
        stop at that message. Without effect in the other modes.
        """
        scope = self.mode.scope
        if scope is AckScope.NOTHING:
            return self.settle([], ACCEPTED)
        if message is not None:
            if not isinstance(message, MessageCore):
                raise ConfigurationError(f"acknowledge takes a received message, got {message!r}")
            if message.receiver.session is not self:
                raise ConfigurationError("acknowledge takes a message of this session, got one of another")
            if message.was_left:
                raise message.already_settled()
        elif self.closing and not self.handed_out:
            self.check()  # "nothing to acknowledge" would not be all: what there was has gone back
        if message is None or (scope is AckScope.SESSION and whole_session):
            wanted: Iterable[MessageCore] = list(self.handed_out.values())
        elif scope is AckScope.MESSAGE:
            wanted = [message]
        else:
            wanted = self._up_to(message)
        return self.settle([message for message in wanted if self.claim(message)], ACCEPTED)

    def _up_to(self, message: MessageCore) -> list[MessageCore]:
        """All handed out before `message`, and it; nothing where it is acknowledged already."""
        if message.number not in self.handed_out:
            return []
        count = 1
        while True:
            # Other threads may hand out and claim meanwhile, so no iterator outlives the one step of a look.
            oldest = list(islice(self.handed_out.values(), count))
            for place, one in enumerate(oldest, start=1):
                if one is message:
                    return oldest[:place]
            if len(oldest) < count:
                return []
            count *= 4

    def settle_all(self, messages: Iterable[MessageCore], outcome: Outcome) -> SettlementReceipt:
        """Give each of `messages` its outcome; those that have one already are passed over."""
        self.core.check_outcome(outcome)
        given: object = messages
        if not isinstance(given, Iterable):
            raise ConfigurationError(f"messages must be a list of received messages, got {messages!r}")
        messages = list(messages)
        for message in messages:
            if not isinstance(message, MessageCore):
                raise ConfigurationError(f"settle takes received messages, got {message!r}")
            if message.receiver.session is not self:
                raise ConfigurationError("settle takes messages of this session, got one of another")
        return self.settle([message for message in messages if self.claim(message)], outcome)

    def check(self) -> None:
        """Raise why the session cannot be used any more, if that is so."""
        if self.failure is not None:
            raise self.failure.error()
        if self.closing:
            raise SessionEnded("the session is closed")

    # -- loop side -----------------------------------------------------------------------------------------------------

    def give_credit_back(self, message: MessageCore) -> None:
        """A message left the buffer undecided, in a mode where its credit comes back with that."""
        if message.number >= self.since:
            message.receiver.give_back(message)
            self.core.short_of_credit[message.receiver] = None

    def say(self, outcome: Outcome, delivery: Delivery) -> None:
        """Give a delivery its outcome. That is gathered as long as the outcome is the same: what was acknowledged one
        by one is one disposition."""
        if outcome is not self._said:
            self.say_all()
            self._said = outcome
        self._about.append(delivery)

    def say_all(self) -> None:
        """Give the outcomes that have gathered to the engine."""
        if self._about:
            deliveries, self._about = self._about, []
            self.engine.settle_all(deliveries, self._said)

    def renew(self, message: MessageCore, receipt: SettlementReceipt) -> None:
        """Tell the peer that a message is being worked on: progress without an outcome (3.4.1)."""
        delivery = message.delivery
        if message.outcome is not None:
            receipt.note(ReceiptStatus.STALE, 1, f"it was {describe(message.outcome)} meanwhile")
        elif message.number < self.since or delivery.context is TAKEN_BACK or not delivery.update(Received(0, 0)):
            receipt.note(ReceiptStatus.STALE, 1, self.why_stale(message))
        else:
            self.core.await_written(receipt, 1)

    def why_stale(self, message: MessageCore) -> str:
        return self.why_late(message.receiver, message.number, message.delivery.remote_state)

    def why_late(self, receiver: ReceiverBase, number: int, state: object) -> str:
        """Return why an outcome of a message of this number comes too late. `state`: what the peer said of it."""
        failure = receiver.failure
        if failure is None and number < self.since:
            failure = self.core.interruption
        if failure is not None:
            return failure.message
        return f"the peer had settled it before{f', as {describe(state)}' if state is not None else ''}"

    # -- the other half's

    def say_gathered(self) -> None:
        """Acknowledge what has waited for more of its kind."""
        raise NotImplementedError

    def forget(self, link: object, failure: Failure) -> None:
        """A link is gone, without a word of the peer."""
        raise NotImplementedError

    def _settle(self, messages: Sequence[MessageCore], outcome: Outcome, receipt: SettlementReceipt) -> None:
        raise NotImplementedError


_CONDITION: Final = re.compile(r"[A-Za-z][\w.-]*(:[\w.-]+)+", re.ASCII)
"""A condition has a domain: ``amqp:decode-error``, ``com.example:closed``."""
_WORD: Final = re.compile(r"[!-~]+")
DESCRIPTION_MAX: Final = 1_000
"""Characters of an exception's text that go with a rejection: it is to fit a frame."""


def rejected(error: Error | BaseException | str | None, description: str | None) -> Rejected:
    """The outcome of `reject`. Raises ConfigurationError for what is no error."""
    if not (description is None or isinstance(description, str)):
        raise ConfigurationError(f"description must be a text or None, got {description!r}")
    if error is None:
        return Rejected() if description is None else Rejected(Error(REJECTED, description))
    if isinstance(error, Error):
        if description is not None:
            raise ConfigurationError("an Error has its own description: say it there")
        return Rejected(error)
    if isinstance(error, BaseException):
        condition = getattr(error, "condition", None)
        text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        known = isinstance(condition, str) and _WORD.fullmatch(condition) is not None
        return Rejected(
            Error(
                str(condition) if known else AmqpCondition.INTERNAL_ERROR,
                text[:DESCRIPTION_MAX] if description is None else description,
            )
        )
    if not isinstance(error, str):
        raise ConfigurationError(f"error must be a condition, a text, an exception or an Error, got {error!r}")
    if _CONDITION.fullmatch(error) or (description is not None and _WORD.fullmatch(error)):
        return Rejected(Error(error, description))
    if description is not None:
        raise ConfigurationError(f"error must be a condition such as 'amqp:decode-error' beside a text, got {error!r}")
    return Rejected(Error(REJECTED, error))


def modified(delivery_failed: bool, undeliverable_here: bool, annotations: Mapping[str, object] | None) -> Modified:
    """The outcome of `modify`. What is not set stays null, which means false (3.4.5)."""
    check_flag("delivery_failed", delivery_failed)
    check_flag("undeliverable_here", undeliverable_here)
    return Modified(delivery_failed or None, undeliverable_here or None, annotations)


def describe(outcome: object) -> str:
    """The name of an outcome, for people."""
    return type(outcome).__name__.lower()
