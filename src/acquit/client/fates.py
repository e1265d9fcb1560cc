"""Asking the broker what became of a transaction, for who lost the answer to its commit (docs/transactions.md).

Theory of operation. All of it is loop side. A `FateQuery` attaches two links to a session of a connection that is open
(not the one that the transaction was declared on: to ask about a live transaction ends its connection), sends one
request to the node ``$management``, and hears one answer::

    attach answers, attach requests ─▶ credit ─▶ request ─▶ answer ─▶ done, both links closed

`done` succeeds when `answer` is known, which is UNKNOWN where the peer is not an acquit broker, refuses, or does not
know; and fails when session or connection end first: then another connection has to ask again.

UNKNOWN can mean more than that. The broker keeps every fate for a time that it names, so what it does not know was not
committed within that time. Who can say that the transaction was declared later than that, at this very broker, knows
that it was rolled back: `Origin` is where and when.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Final, NamedTuple, Self

from acquit.client.core_base import CoreBase
from acquit.client.failures import Failure
from acquit.client.options import link_name
from acquit.client.receipts import Milestone
from acquit.client.received import SessionCoreBase
from acquit.errors import ConfigurationError, DecodeError, LinkDetached, LocalProtocolError
from acquit.protocol.constants import ACCEPTED
from acquit.protocol.definitions import Source, Target
from acquit.protocol.delivery import Delivery, DeliveryState, is_outcome
from acquit.protocol.extensions import BROKER_ID, MANAGEMENT_NODE, TRANSACTION
from acquit.protocol.message import Message

_OK: Final = 200
_TAG: Final = b"0"


class TransactionFate(IntEnum):
    """The fate of a transaction, as a broker tells it."""

    COMMITTED = 0
    """All of it has happened, and is on the disk."""
    ROLLED_BACK = 1
    """None of it has happened, or will."""
    UNKNOWN = 2
    """The broker cannot tell: it is not acquit, does not answer, or has forgotten (it keeps fates for a bounded time);
    or the transaction is another user's."""

    def __str__(self) -> str:
        return self.name


_NAMES: Final = {"committed": TransactionFate.COMMITTED, "rolled-back": TransactionFate.ROLLED_BACK}


def broker_id(core: CoreBase) -> object:
    """Return the id of the peer's journal; None where it is no acquit broker, and cannot be asked."""
    remote = core.engine.remote_open
    return None if remote is None else (remote.properties or {}).get(BROKER_ID)


class Origin(NamedTuple):
    """The broker at which a transaction was declared, and the time. Times are seconds."""

    broker_id: object
    monotonic_s: float
    """Time on the core's clock."""
    wall_s: float

    @classmethod
    def of(cls, core: CoreBase) -> Self:
        """Return the origin of a transaction that is declared here and now."""
        return cls(broker_id(core), core.now, core.wall_clock())

    def age_ms(self, core: CoreBase) -> float:
        """Return the milliseconds since then, by the one of two clocks that says more: the monotonic one may have stood
        still while the machine slept, the other have been set back. Too many of them only leave an answer UNKNOWN."""
        return max(core.now - self.monotonic_s, core.wall_clock() - self.wall_s) * 1000


class FateQuery:
    """A question about one transaction. With its `origin`, an answer of UNKNOWN may mean that it was rolled back.

    Raises LocalProtocolError, and leaves nothing behind, where the session has no handles for its links.
    """

    what = "the question about a transaction"

    def __init__(self, session: SessionCoreBase, txn_id: bytes, origin: Origin | None = None) -> None:
        self.done = Milestone()
        self.answer = TransactionFate.UNKNOWN
        """Once `done` has succeeded."""
        self._session = session
        self._txn_id = txn_id
        self._origin = origin
        self._asked = False
        if broker_id(session.core) is None:
            self.done.succeed()
            return
        self._reply_to = link_name("fate")
        self._answers = session.engine.attach_receiver(
            self._reply_to, source=Source(MANAGEMENT_NODE), target=Target(self._reply_to), context=self
        )
        try:
            self._requests = session.engine.attach_sender(
                link_name("fate"), source=Source(), target=Target(MANAGEMENT_NODE), context=self
            )
        except LocalProtocolError:
            self._answers.context = None  # nobody is there to hear of its end
            self._answers.detach()
            raise
        self._answers.grant(1)
        session.errands[self] = None

    def on_attached(self) -> None:
        """Do nothing: one of the links is there, and credit says when to go on."""

    def pump(self) -> None:
        """Ask, once there is credit."""
        if self._asked or self.done.done or not self._requests.sendable:
            return
        self._asked = True
        request = Message(
            None,
            message_id=self._reply_to,
            reply_to=self._reply_to,
            application_properties={"operation": "READ", "type": TRANSACTION, "name": self._txn_id.hex()},
        )
        self._requests.send(_TAG, request.encode(), settled=False)

    def on_states(self, deliveries: list[Delivery], state: DeliveryState | None, settled: bool) -> None:
        """The request was taken, or refused: then there will be no answer."""
        if is_outcome(state) and not settled:
            self._session.engine.settle_all(deliveries)
        if is_outcome(state) and state != ACCEPTED:
            self._finish(TransactionFate.UNKNOWN)

    def on_deliveries(self, deliveries: list[Delivery]) -> None:
        """The answer."""
        self._session.engine.settle_all(deliveries, ACCEPTED)
        try:
            answer = Message.decode(deliveries[0].payload)
        except DecodeError:
            self._finish(TransactionFate.UNKNOWN)
        else:
            self._finish(self._read(answer))

    def on_ended(self, failure: Failure) -> None:
        """A link is gone, or the session with both."""
        if issubclass(failure.kind, LinkDetached):
            self._finish(TransactionFate.UNKNOWN)
        else:
            self._session.errands.pop(self, None)
            self.done.fail(failure)

    def _read(self, answer: Message) -> TransactionFate:
        body = answer.body
        if answer.application_properties.get("statusCode") != _OK or not isinstance(body, Mapping):
            return TransactionFate.UNKNOWN
        told = _NAMES.get(str(body.get("fate")), TransactionFate.UNKNOWN)
        origin, core = self._origin, self._session.core
        if told is not TransactionFate.UNKNOWN or origin is None or origin.broker_id != broker_id(core):
            return told
        kept_ms = body.get("kept_ms")
        young = isinstance(kept_ms, int) and origin.age_ms(core) < kept_ms
        return TransactionFate.ROLLED_BACK if young else told

    def _finish(self, answer: TransactionFate) -> None:
        if self.done.done:
            return
        self.answer = answer
        self._session.errands.pop(self, None)
        for link in (self._requests, self._answers):
            link.detach()
        self.done.succeed()


def check_txn_id(txn_id: object) -> None:
    """Raise ConfigurationError for what names no transaction."""
    if not isinstance(txn_id, bytes) or not txn_id:
        raise ConfigurationError(
            f"a transaction is named by its id, which is bytes (TransactionFailed.txn_id), got {txn_id!r}"
        )


__all__ = ["FateQuery", "Origin", "TransactionFate", "broker_id", "check_txn_id"]
