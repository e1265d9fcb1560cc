"""A message that was received, before anyone says how to wait for anything.

It is the message with all its attributes, decoded when they are asked for, and the handle on its delivery. Which verb
means what is in `modes`; what may be said only once is guarded by `SessionCore.claim`.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, Unpack, cast

from acquit.errors import AlreadySettled, ConfigurationError, DecodeError, LocalProtocolError, Unreliable
from acquit.protocol._definitions import Error, Modified, Rejected
from acquit.protocol.body import Body
from acquit.protocol.codec import decode
from acquit.protocol.delivery import Delivery, Outcome
from acquit.protocol.extensions import SEQUENCE
from acquit.protocol.message import Message, MessageFields
from acquit.protocol.sections import MESSAGE_ANNOTATIONS, Sections, map_value, scan_sections
from acquit.protocol.types import Described

if TYPE_CHECKING:
    from acquit.client.receipts import SettlementReceipt
    from acquit.client.receiving import ReceiverCore

FIRST_ACQUIRER_FIELD: Final = 3


class _LazySections:
    """Finds the sections when the first attribute is asked for: who only passes messages on never pays for it."""

    def __get__(self, message: MessageCore | None, owner: type) -> Sections:
        assert message is not None
        sections = message.__dict__["_sections"] = scan_sections(message._delivery.payload)
        return sections


class MessageCore(Message):
    """A received message. Equal only to itself: a copy delivered again is another delivery."""

    __slots__ = ("_attempts", "_delivery", "_number", "_outcome", "_receiver")

    _sections = _LazySections()

    def __init__(self, receiver: ReceiverCore, delivery: Delivery, number: int) -> None:
        self._receiver = receiver
        self._delivery = delivery
        self._number = number
        self._outcome: Outcome | None = None
        self._attempts = 0

    @property
    def payload(self) -> bytes:
        """The whole message as it was transferred, all its sections, byte for byte."""
        return self._delivery.payload

    @property
    def delivery_tag(self) -> bytes:
        """The tag of this delivery (2.6.12): another one each time the message is delivered."""
        return self._delivery.tag

    @property
    def message_format(self) -> int:
        """0 unless the sender uses a format of its own (2.7.5), which only `payload` can tell about then."""
        return self._delivery.message_format

    @property
    def settled(self) -> bool:
        """Whether this delivery has its outcome, by us or by the peer; always so on an unreliable link."""
        return self._outcome is not None or self._delivery.settled

    @property
    def delivery_count(self) -> int:  # type: ignore[override]  # what the broker counted cannot be set here
        """Earlier attempts to deliver that failed: the broker's count, and `recover` in this session."""
        return self.header.delivery_count + self._attempts

    @property
    def sequence(self) -> int | None:
        """The name of the message in our broker (``x-opt-acquit-sequence``); None from other brokers."""
        section = self._sections.section(MESSAGE_ANNOTATIONS)
        value = map_value(section, SEQUENCE) if section else None
        return int(value) if isinstance(value, int) else None

    @property
    def redelivered(self) -> bool:
        """Whether somebody may have seen this message before.

        True when an attempt failed, or when the broker says that it was acquired before, if it is one that keeps that
        up to date (ours, RabbitMQ 4). The specification's default for *first-acquirer* is false (3.2.1), so from any
        other broker its absence, or its falsity, says nothing.
        """
        if self.delivery_count > 0:
            return True
        return self._receiver.session.core.peer.keeps_first_acquirer and self._first_acquirer() is False

    def _first_acquirer(self) -> bool | None:
        section = self._sections.header
        if not section:
            return None
        described, _ = decode(section)
        fields = cast(list[object], described.value) if isinstance(described, Described) else []
        value = fields[FIRST_ACQUIRER_FIELD] if len(fields) > FIRST_ACQUIRER_FIELD else None
        return value if isinstance(value, bool) else None

    def make_reply(self, body: Message | Body = None, **fields: Unpack[MessageFields]) -> Message:
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

    # -- for the verbs in aio and blocking -----------------------------------------------------------------------------

    def _settle(self, outcome: Outcome) -> SettlementReceipt:
        """Give this delivery its outcome. Raises Unreliable and AlreadySettled."""
        session = self._receiver.session
        session.core.check_outcome(outcome)
        self._check_reliable()
        if not session.claim(self):
            raise self._already_settled()
        return session.settle([self], outcome)

    def _renew(self) -> SettlementReceipt:
        """Say that this delivery is being worked on. Raises Unreliable and AlreadySettled."""
        session = self._receiver.session
        self._check_reliable()
        if self._number not in session.handed_out:
            raise self._already_settled()
        receipt = session.core.kinds.receipt(1)
        session.core.post((session.renew, self, receipt))
        return receipt

    def _check_reliable(self) -> None:
        receiver = self._receiver
        if not receiver.mode.reliable:
            how = "unreliable" if receiver.spec.unreliable else f"in mode {receiver.mode.name.name}"
            raise Unreliable(
                f"{receiver.spec.what} is {how}: the broker settled the message as it sent it; use AUTO, CLIENT or "
                "INDIVIDUAL to have a say"
            )

    def _already_settled(self) -> AlreadySettled:
        said = f"as {describe(self._outcome)}" if self._outcome is not None else "by the peer"
        return AlreadySettled(f"this delivery is settled already, {said}; the first outcome stands")

    def __eq__(self, other: object) -> bool:
        return self is other

    __hash__ = object.__hash__  # type: ignore[assignment]  # a delivery has an identity, a Message has none

    def __repr__(self) -> str:
        try:
            shown = super().__repr__()
        except DecodeError as exc:
            shown = f"{type(self).__name__}(malformed: {exc})"
        return f"<{shown} tag={self.delivery_tag.hex()}{' settled' if self.settled else ''}>"


def rejected(error: Error | str | None, description: str | None) -> Rejected:
    """The outcome of `reject`. A condition is a symbol like ``amqp:decode-error``; the default one says nothing."""
    if isinstance(error, Error):
        return Rejected(error)
    if error is None and description is None:
        return Rejected()
    return Rejected(Error(error if error is not None else "acquit:rejected", description))


def modified(delivery_failed: bool, undeliverable_here: bool, annotations: Mapping[str, object] | None) -> Modified:
    """The outcome of `modify`. What is not set stays null, which means false (3.4.5)."""
    return Modified(delivery_failed or None, undeliverable_here or None, annotations)


def describe(outcome: object) -> str:
    """The name of an outcome, for people."""
    return type(outcome).__name__.lower()
