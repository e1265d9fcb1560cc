"""The controller's side of transactions, for clients of `broker_world`."""

from __future__ import annotations

from acquit.protocol.composite import encode_composite
from acquit.protocol.constants import ACCEPTED, Outcome
from acquit.protocol.definitions import (
    Accepted,
    Coordinator,
    Declare,
    Declared,
    Discharge,
    Error,
    Rejected,
    Source,
    TransactionalState,
)
from acquit.protocol.delivery import Delivery, DeliveryState
from acquit.protocol.link import SendingLink
from acquit.protocol.message import Message
from tests.support.broker_world import Client

OUTCOMES = ("amqp:accepted:list", "amqp:rejected:list")


def control_message(request: object) -> bytes:
    """An amqp-value section with it."""
    return b"\x00\x53\x77" + encode_composite(request)


class Controller:
    """One control link of a client."""

    def __init__(
        self,
        client: Client,
        name: str = "control",
        *,
        outcomes: tuple[str, ...] = OUTCOMES,
        session: object = None,
    ) -> None:
        self.client = client
        self.world = client.world
        begun = client.begun if session is None else session
        link = begun.attach_sender(
            name, source=Source("here", outcomes=outcomes), target=Coordinator(("amqp:local-transactions",))
        )
        assert isinstance(link, SendingLink)
        self.link = link
        self.world.carry()

    def ask(self, request: object, *, settled: bool = False) -> Delivery:
        """Send a request to the coordinator; nothing is waited for."""
        self.client.tags += 1
        sent = self.link.send(self.client.tags.to_bytes(4, "big"), control_message(request), settled=settled)
        self.world.carry()
        return sent

    def declare(self) -> bytes:
        """A new transaction: its id."""
        answer = self.client.outcome(self.ask(Declare()))
        assert isinstance(answer, Declared), answer
        return answer.txn_id

    def ask_declare(self) -> Delivery:
        """Ask for a new transaction; the disk does nothing."""
        return self.ask(Declare())

    def declared(self, sent: Delivery) -> bytes | None:
        """The transaction that was asked for; None where it was refused, or the answer waits."""
        answer = self.client.outcome(sent)
        return answer.txn_id if isinstance(answer, Declared) else None

    def discharge(self, txn_id: bytes, *, fail: bool = False) -> Delivery:
        """Ask for the end; the disk does nothing."""
        return self.ask(Discharge(txn_id, fail))

    def commit(self, txn_id: bytes) -> Error | None:
        """Commit and wait. None, or why it was refused."""
        return self._end(self.discharge(txn_id))

    def roll_back(self, txn_id: bytes) -> None:
        """Roll back: that cannot be refused."""
        assert self._end(self.discharge(txn_id, fail=True)) is None

    def _end(self, sent: Delivery) -> Error | None:
        self.world.settle()
        answer = self.client.outcome(sent)
        if isinstance(answer, Rejected):
            assert answer.error is not None
            return answer.error
        assert isinstance(answer, Accepted), answer
        return None

    # -- transactional work -------------------------------------------------------------------------------------------

    def post(
        self, link: SendingLink, txn_id: bytes, *messages: Message | bytes, settled: bool = False
    ) -> list[Delivery]:
        """Post in the transaction; nothing is waited for."""
        sent = []
        for message in messages:
            self.client.tags += 1
            payload = message if isinstance(message, bytes) else message.encode()
            tag = self.client.tags.to_bytes(4, "big")
            sent.append(link.send(tag, payload, settled=settled, state=TransactionalState(txn_id)))
        self.world.carry()
        return sent

    def provisional(self, sent: Delivery) -> Outcome | None:
        """The outcome that was told of a posting, as of its transaction; None where there is none yet."""
        state, _ = self.client.answers.get(sent, (None, False))
        if state is None:
            return None
        assert isinstance(state, TransactionalState), state
        return state.outcome  # type: ignore[return-value]

    def retire(
        self,
        txn_id: bytes,
        *deliveries: Delivery,
        outcome: DeliveryState | None = ACCEPTED,
        settled: bool = True,
    ) -> None:
        """Give deliveries an outcome in the transaction."""
        state = TransactionalState(txn_id, outcome)
        for delivery in deliveries:
            if settled:
                delivery.settle(state)
            else:
                delivery.update(state)
        self.world.carry()


__all__ = ["OUTCOMES", "Controller", "control_message"]
