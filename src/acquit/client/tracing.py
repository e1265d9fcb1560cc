"""The interface of an observer of a client's messages, and what a send carries meanwhile.

Theory of operation. A connection may have one `Tracer`. It hears of a send before the message is encoded, so that the
message can carry the context of the send to whoever receives it; of each message that is handed out; of the time in
which a listener has one; and of outcomes. It is called on the threads of user code, and must not wait. Without a
tracer, each of these places costs one look at an attribute. `acquit.telemetry` is the tracer of OpenTelemetry.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from acquit.client.receipts import SettlementReceipt
    from acquit.protocol.delivery import Outcome
    from acquit.protocol.message import Message


class SendTrace(Protocol):
    """A send, to a tracer."""

    def end(self, error: BaseException | None) -> None:
        """The send has ended: accepted, or in `error`. May be called more than once, from any thread; the first call
        counts."""


class Tracer(Protocol):
    """An observer of the messages of a connection. `where` is the peer's ``host:port``."""

    def begin_send(self, message: Message, address: str | None, where: str) -> tuple[Message, SendTrace]:
        """A message is about to be sent. Return the message to send in its place, which must be a copy if it differs,
        and the trace to end."""

    def received(self, message: Message, address: str, where: str) -> None:
        """A message from `address` was handed out to user code."""

    def processing(self, message: Message, address: str, where: str) -> AbstractContextManager[object]:
        """Return the context in which a listener handles a message."""

    def settled(
        self, messages: Sequence[Message], address: str, outcome: Outcome, receipt: SettlementReceipt, where: str
    ) -> None:
        """Messages were given an outcome by user code; the receipt tells what the peer answers."""


class TracedPayload(bytes):
    """The payload of a send that is traced."""

    trace: SendTrace


__all__ = ["SendTrace", "TracedPayload", "Tracer"]
