"""Messages that nobody took: dead letters and expired messages, copied to where somebody looks.

The copy is a new posting, and copy and original name each other in the journal, in one batch. It keeps the bare message
byte for byte, but for absolute-expiry-time (3.2.4), which is gone: receivers look at it themselves, and Qpid JMS would
take no message that has expired already. Its header says durable and priority as before; its time to live is gone and
its count starts at 0; its annotations say where it came from, as Artemis writes it, and what was tried:

    x-opt-ORIG-ADDRESS, x-opt-ORIG-QUEUE, x-opt-ORIG-MESSAGE-ID, x-opt-ACTUAL-EXPIRY (expired ones)
    x-opt-acquit-attempts: [{when, consumer, outcome, cause, condition, description}, ...], oldest first
    x-opt-acquit-origin: the sequence it had there

and where it was rejected with an error, that is in the delivery annotations as *rejected* (3.4.3).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from acquit.broker.intake.shaping import (
    DELIVERY_DELAY,
    DELIVERY_TIME,
    read_posting,
    transfer_header,
)
from acquit.broker.message import Message
from acquit.errors import DecodeError
from acquit.ledger.events import EventKind
from acquit.ledger.records import AttemptNote, Cause
from acquit.protocol.definitions import Error, SectionCode
from acquit.protocol.extensions import ACQUIRED_COUNT, ATTEMPTS, ORIGIN, POSTED_AT, SEQUENCE
from acquit.protocol.rope import behind
from acquit.protocol.sections import (
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
    PropertyIndex,
    scan_sections,
    splice_annotations,
    without_property,
)
from acquit.protocol.types import Described, Symbol, Timestamp, ULong, Value

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from acquit.broker.intake.entering import Entering
    from acquit.broker.nodes.node import Queue
    from acquit.broker.scribe import Scribe
    from acquit.ledger.records import Actor

ORIG_ADDRESS = "x-opt-ORIG-ADDRESS"
ORIG_QUEUE = "x-opt-ORIG-QUEUE"
ORIG_MESSAGE_ID = "x-opt-ORIG-MESSAGE-ID"
ACTUAL_EXPIRY = "x-opt-ACTUAL-EXPIRY"

_OUTCOMES = {Cause.REJECTED: "rejected", Cause.RELEASED: "released"}
"""Names of outcomes by cause; all others count as modified(delivery-failed)."""


class Letters:
    """Makes the copies."""

    def __init__(self, scribe: Scribe, entering: Entering, queue_of: Callable[[str], Queue]) -> None:
        """`queue_of`: the queue of a dead letter or expiry address, made if it is not there."""
        self._scribe = scribe
        self._entering = entering
        self._queue_of = queue_of

    def copy(self, message: Message, address: str, kind: EventKind, last: AttemptNote | None = None) -> int:
        """Post a copy of the message, whose body is in memory, to `address`; the copy's sequence.

        `last` is the attempt that sent it there, if one did. Raises StoreFull where even the reserve is used up.
        """
        assert message.body is not None
        queue = self._queue_of(address)
        payload = self._payload(message, kind, last)
        posting = read_posting(payload)
        copy = self._entering.enter(
            queue, payload, posting, address=queue.address, kind=kind, origin=message.sequence, essential=True
        )
        return copy.sequence

    def _payload(self, message: Message, kind: EventKind, last: AttemptNote | None) -> bytes:
        body, front = message.body, message.front()
        assert body is not None
        sections = scan_sections(front)
        message_id, expiry = sections.property_values(PropertyIndex.MESSAGE_ID, PropertyIndex.ABSOLUTE_EXPIRY_TIME)
        source = message.queue
        annotations: dict[str, object] = {
            ORIG_ADDRESS: source.address,
            ORIG_QUEUE: source.name,
            ORIGIN: ULong(message.sequence),
        }
        if message_id is not None:
            annotations[ORIG_MESSAGE_ID] = message_id
        if kind is EventKind.EXPIRED_IN:
            annotations[ACTUAL_EXPIRY] = Timestamp(self._scribe.time_us // 1000)
        attempts = () if message.extra is None else message.extra.attempts
        if last is not None:
            attempts = (*attempts, last)
        if attempts:
            annotations[ATTEMPTS] = [
                describe_attempt(attempt, self._scribe.recorder.table.actors) for attempt in attempts
            ]
        start, end = sections.bounds[MESSAGE_ANNOTATIONS], sections.bounds[PROPERTIES]
        # A delivery time of the original has passed; what it was is not what the copy waits for.
        spliced = splice_annotations(
            front[start:end],
            annotations,
            remove=(SEQUENCE, POSTED_AT, ACQUIRED_COUNT, DELIVERY_TIME, DELIVERY_DELAY),
        )
        before = front[:start]
        if last is not None and last.cause == Cause.REJECTED and last.condition.isascii() and last.condition:
            # 3.4.3: the error of *rejected* is placed in the delivery annotations.
            error: list[Value] = [Symbol(last.condition), last.description or None]
            told = {"rejected": Described(ULong(Error.DESCRIPTOR), error)}
            try:
                before = splice_annotations(before, told, code=SectionCode.DELIVERY_ANNOTATIONS)
            except DecodeError:  # nobody has looked at them before, and what makes no sense is nobody's to keep
                before = splice_annotations(b"", told, code=SectionCode.DELIVERY_ANNOTATIONS)
        header = transfer_header(message.told_durable, message.priority, True, 0, None)
        properties, rest_at = b"", end
        if expiry is not None:
            rest_at = sections.bounds[PROPERTIES + 1]
            properties = without_property(front[end:rest_at], PropertyIndex.ABSOLUTE_EXPIRY_TIME)
        return bytes(header + before + spliced + properties + behind(body, rest_at))


def describe_attempt(attempt: AttemptNote, actors: Mapping[int, Actor]) -> dict[Value, Value]:
    """Return what is told of an attempt that ended without success. `actors`: those that the journal names."""
    known = actors.get(attempt.actor)
    outcome = _OUTCOMES.get(Cause(attempt.cause), "modified")
    told: dict[Value, Value] = {
        "when": Timestamp(attempt.time_us // 1000),
        "consumer": "" if known is None else f"{known.container}/{known.link}",
        "outcome": Symbol(outcome),
        "cause": Cause(attempt.cause).name.lower().replace("_", "-"),
    }
    if attempt.condition:
        told["condition"] = Symbol(attempt.condition) if attempt.condition.isascii() else attempt.condition
    if attempt.description:
        told["description"] = attempt.description
    return told


__all__ = [
    "ACTUAL_EXPIRY",
    "ATTEMPTS",
    "ORIGIN",
    "ORIG_ADDRESS",
    "ORIG_MESSAGE_ID",
    "ORIG_QUEUE",
    "Letters",
    "describe_attempt",
]
