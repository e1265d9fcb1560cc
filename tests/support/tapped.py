"""An asyncio session over a rig whose frames are read: each that the client writes is a short line of text.

::

    attach receiver unsettled/second        the link, and the settle modes that it asks for
    flow 4 [drain] [echo]                   link-credit
    0-2 accepted [settled]                  a disposition about the deliveries 0 to 2
    transfer durable [settled] [state]      a message
    detach [closed], end, close

Session flows (no handle) and heartbeats are left out: when the window is renewed is the engine's affair.
"""

from __future__ import annotations

from typing import cast

from acquit import aio
from acquit.client.aio import KINDS
from acquit.client.driver import Driver
from acquit.client.options import ConnectOptions
from acquit.protocol.constants import AMQP_HEADER
from acquit.protocol.definitions import (
    Accepted,
    Attach,
    Begin,
    Close,
    Detach,
    Disposition,
    End,
    Flow,
    Modified,
    Rejected,
    Role,
    TransactionalState,
    Transfer,
)
from acquit.protocol.message import Message
from tests.support.server import Rig, RigDriver, Server
from tests.support.wire import frames_in


class TappedRig(Rig):
    """Keeps what the client wrote, in lines."""

    def __init__(self, server: Server | None = None, options: ConnectOptions | None = None) -> None:
        self.lines: list[str] = []
        self.opened = False
        super().__init__(server, options)

    def tap(self, data: bytes) -> None:
        if not self.opened:  # what comes before the header of AMQP itself is SASL
            _, header, data = data.partition(AMQP_HEADER)
            self.opened = bool(header)
        for _, performative, payload in frames_in(data):
            line = told(performative, payload)
            if line is not None:
                self.lines.append(line)


def told(performative: object, payload: bytes) -> str | None:
    """One frame as a line."""
    match performative:
        case Attach(role=Role.RECEIVER):
            return f"attach receiver {performative.snd_settle_mode.name}/{performative.rcv_settle_mode.name}".lower()
        case Attach():
            return "attach sender"
        case Flow(handle=int()):
            extra = " drain" * bool(performative.drain) + " echo" * bool(performative.echo)
            return f"flow {performative.link_credit}{extra}"
        case Disposition(first=first, last=last):
            which = f"{first}" if last is None or last == first else f"{first}-{last}"
            return f"{which} {named(performative.state)}{' settled' * bool(performative.settled)}"
        case Transfer():
            state = f" {named(performative.state)}" if performative.state is not None else ""
            return f"transfer {kind_of(payload)}{' settled' * bool(performative.settled)}{state}"
        case Detach():
            return "detach closed" if performative.closed else "detach"
        case Begin() | End() | Close():
            return type(performative).__name__.lower()
        case _:
            return None


def named(state: object) -> str:
    """A state, in a word or two."""
    match state:
        case TransactionalState(outcome=None):
            return "in transaction"
        case TransactionalState(outcome=outcome):
            return f"{named(outcome)} in transaction"
        case Modified(delivery_failed=True):
            return "failed"
        case Accepted() | Rejected() | Modified():
            return type(state).__name__.lower()
        case _:
            return type(state).__name__.lower()


def kind_of(payload: bytes) -> str:
    """What a transfer carries, as far as it matters here."""
    body = Message.decode(payload)
    if body.header.durable:
        return "durable"
    name = type(body.body).__name__
    return "volatile" if name in ("str", "bytes") else "control"


class Tapped:
    """The session, its queue ``q``, and what was written since one looked."""

    def __init__(self, mode: str | int = "auto", *, server: Server | None = None, **options: int) -> None:
        self.rig = TappedRig(server, ConnectOptions(**options))  # type: ignore[arg-type]  # numbers all
        self.rig.core.kinds = KINDS
        self.driver = cast(Driver, RigDriver(self.rig))
        self.session = aio.Session(self.rig.session(mode), self.driver)  # type: ignore[arg-type]  # as `find_mode`
        if self.session._core.transactions is not None:
            self.session._core.transactions.open()
        self.lines()

    def lines(self) -> list[str]:
        """What was written since the last look."""
        self.rig.run()
        lines, self.rig.lines = self.rig.lines, []
        return lines

    async def receiver(self, messages: int = 0, **changes: object) -> aio.Receiver:
        """A receiver, so many messages in its queue, and nothing of that in `lines`."""
        receiver = await self.session.receiver("q", **changes)  # type: ignore[arg-type]  # of the right types
        self.offer(messages)
        self.lines()
        return receiver

    def offer(self, count: int) -> None:
        """Messages whose bodies are the letters from a on."""
        self.rig.server.offer("q", *(chr(97 + number) for number in range(count)))
        self.rig.run()


async def take(receiver: aio.Receiver, count: int) -> list[aio.ReceivedMessage]:
    """Messages that must be there."""
    taken = []
    for _ in range(count):
        if not receiver._core.buffer:
            receiver._driver.act()
        taken.append(await receiver.receive(0))
    assert None not in taken, f"{taken.index(None)} of {count} were there"
    return cast(list[aio.ReceivedMessage], taken)
