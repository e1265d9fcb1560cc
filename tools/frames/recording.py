"""Runs the script of a picture and records the frames that really go between client and broker.

Theory of operation. A broker runs in this process, and `acquit.testing.Proxy` before it, which keeps the frames that
pass. The script says what the program does and which frames follow from that; a line is

    receiver = session.receiver("orders")     a call: it is run as it stands, and drawn as it stands
    = message.body                            what the call gave: this expression is drawn, with its value
    ! CreditExhausted                         the call above raises this, and that is drawn
    > attach                                  the client's next frame: must be such a one, is drawn with its fields
    < transfer transfer                       the broker's next frames
    (> begin)                                 in brackets: frames, or a call, that are there and not drawn
    # 2 acquired, 1 available                 the state of the queue: asked of the broker until it is so
    @ m1, m2                                  what is in the receiver's buffer: looked at until it is so
    ~                                         the connection is cut
    (stall)                                   from now on nothing that the broker says arrives
    (resume)                                  until now
    -- words                                  a remark

So nothing can be drawn that was not there, and no frame can be left out: a frame of another kind than the script's
next line says ends the run, with both named. The only freedom is which of two directions is drawn first where their
frames cross. Numbers that differ from run to run (tags, transaction ids, names of links) are not drawn, or replaced by
what they stand for: a delivery is called by its message's body.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, Self

import acquit
from acquit.protocol.definitions import (
    Attach,
    Coordinator,
    Declare,
    Declared,
    Detach,
    Discharge,
    Disposition,
    Flow,
    Modified,
    RcvSettleMode,
    Role,
    SndSettleMode,
    Source,
    Target,
    TransactionalState,
    Transfer,
)
from acquit.protocol.message import Message
from acquit.testing.frames import SIDES, PassedFrame, Side
from acquit.testing.proxy import Proxy

WAIT_S: Final = 10.0
"""How long the next frame, or a state of the queue, may take."""

GOODBYE: Final = ("disposition", "detach", "end")
"""What may follow the script, when the connection is closed, besides flows that take credit back."""

MARKS: Final[dict[str, Side]] = {">": "client", "<": "broker"}


class Different(Exception):
    """The exchange was not the one that the script describes."""


class Kind(IntEnum):
    """What a line of a picture is."""

    CALL = 0
    RESULT = 1
    FROM_CLIENT = 2
    FROM_BROKER = 3
    STATE = 4
    BUFFER = 5
    CUT = 6
    REMARK = 7


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a picture: its words, and for a frame what else is in it."""

    kind: Kind
    text: str
    details: tuple[str, ...] = ()


# -- what is said of a frame ---------------------------------------------------------------------------------------


@dataclass(slots=True)
class Namer:
    """Says what a frame is, with the names that its numbers stand for."""

    links: dict[tuple[int, Side, int], str] = field(default_factory=dict)
    deliveries: dict[tuple[int, Side, int], str] = field(default_factory=dict)
    transactions: dict[bytes, str] = field(default_factory=dict)
    correlations: dict[object, str] = field(default_factory=dict)
    sources: set[tuple[int, int]] = field(default_factory=set)
    """Links on which the broker sends, by its handles."""

    def line(self, frame: PassedFrame) -> Line:
        """The line that draws it."""
        kind = Kind.FROM_CLIENT if frame.by == "client" else Kind.FROM_BROKER
        return Line(kind, frame.name, tuple(self._details(frame)))

    def _details(self, frame: PassedFrame) -> list[str]:
        match frame.performative:
            case Attach() as attach:
                return self._attach(frame, attach)
            case Flow(handle=int(handle)) as flow:
                return self._flow(frame, flow, handle)
            case Transfer() as transfer:
                return self._transfer(frame, transfer)
            case Disposition() as disposition:
                return self._disposition(frame, disposition)
            case Detach() as detach:
                name = self.links.pop((frame.connection, frame.by, detach.handle))
                return [name, *(["closed"] if detach.closed else [])]
            case _:
                return []

    def _attach(self, frame: PassedFrame, attach: Attach) -> list[str]:
        receives = attach.role is Role.RECEIVER
        match attach.source, attach.target:
            case _, Coordinator():
                name = "the coordinator"
            case Source(dynamic=True), _:
                name = "a temporary queue"
            case Source(address=str(address)), _ if receives == (frame.by == "client"):
                name = address
            case _, Target(address=str(address)):
                name = address
            case _:
                name = "a link"
        self.links[frame.connection, frame.by, attach.handle] = name
        second = attach.rcv_settle_mode is RcvSettleMode.SECOND
        if frame.by == "broker":
            if not receives:
                self.sources.add((frame.connection, attach.handle))
            return [name, *(["rcv-settle-mode second"] if second and not receives else [])]
        if not receives:
            return [f"sender to {name}"]
        details = [f"receiver from {name}"]
        if attach.snd_settle_mode is SndSettleMode.SETTLED:
            details.append("snd-settle-mode settled")
        else:
            details += ["snd-settle-mode unsettled", f"rcv-settle-mode {'second' if second else 'first'}"]
        if isinstance(attach.source, Source) and attach.source.default_outcome is not None:
            details.append(f"default-outcome {outcome_words(attach.source.default_outcome)}")
        return details

    def _flow(self, frame: PassedFrame, flow: Flow, handle: int) -> list[str]:
        credit = [f"link-credit {flow.link_credit}"]
        if flow.drain:
            return [*credit, "drain"]
        if frame.by == "broker" and (frame.connection, handle) in self.sources:
            # It repeats the credit that it knew of as it wrote this, which differs from run to run.
            return [f"available {flow.available}"]
        return credit

    def _transfer(self, frame: PassedFrame, transfer: Transfer) -> list[str]:
        details = []
        match frame.control:
            case Declare():
                name = "declare"
            case Discharge() as discharge:
                name = f"discharge of {self._transaction(discharge.txn_id)}"
                details.append(f"fail {'true' if discharge.fail else 'false'}")
            case _:
                message = Message.decode(frame.payload)
                name = str(message.body)
                if message.header.delivery_count:
                    details.append(f"delivery-count {message.header.delivery_count}")
                if message.reply_to is not None:
                    details.append("with a reply-to")
                if message.correlation_id is not None:
                    known = self.correlations
                    details.append(f"correlation-id {known.setdefault(message.correlation_id, f'C{len(known) + 1}')}")
        assert transfer.delivery_id is not None
        self.deliveries[frame.connection, frame.by, transfer.delivery_id] = name
        if isinstance(transfer.state, TransactionalState):
            details.append(f"in {self._transaction(transfer.state.txn_id)}")
        return [name, *details, *(["settled"] if transfer.settled else [])]

    def _disposition(self, frame: PassedFrame, disposition: Disposition) -> list[str]:
        about: Side = frame.by if disposition.role is Role.SENDER else "broker" if frame.by == "client" else "client"
        first, last = disposition.first, disposition.last if disposition.last is not None else disposition.first
        names = [self.deliveries[frame.connection, about, number] for number in range(first, last + 1)]
        details = [names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}"]
        match disposition.state:
            case TransactionalState(txn_id=txn_id, outcome=outcome):
                details += [outcome_words(outcome), f"in {self._transaction(txn_id)}"]
            case Declared(txn_id=txn_id):
                details.append(f"declared {self._transaction(txn_id)}")
            case None:
                pass
            case outcome:
                details.append(outcome_words(outcome))
        return [*details, *(["settled"] if disposition.settled else [])]

    def _transaction(self, txn_id: bytes) -> str:
        return self.transactions.setdefault(bytes(txn_id), f"T{len(self.transactions) + 1}")


def outcome_words(outcome: object) -> str:
    """An outcome as the specification writes it."""
    match outcome:
        case Modified(delivery_failed=failed, undeliverable_here=here):
            said = [*(["delivery-failed"] if failed else []), *(["undeliverable-here"] if here else [])]
            return f"modified({', '.join(said)})"
        case None:
            return "no outcome"
        case _:
            return type(outcome).__name__.lower()


def is_amqp(frame: PassedFrame) -> bool:
    """Whether it is one that pictures are about: not of SASL, no header, no heartbeat."""
    return frame.performative is not None and not frame.name.startswith("sasl-")


def is_farewell(performative: object) -> bool:
    """Whether it only says that nothing more is wanted."""
    return isinstance(performative, Flow) and not performative.link_credit


# -- running a script ----------------------------------------------------------------------------------------------


class Exchange:
    """A broker, a proxy, a connection through it, and the lines of the picture so far."""

    def __init__(self, setup: str, posted: tuple[str, ...]) -> None:
        self.lines: list[Line] = []
        self._namer = Namer()
        self._taken: dict[Side, int] = {"client": 0, "broker": 0}
        self._broker = acquit.Broker()
        self._proxy = Proxy(self._broker.url)
        self._names: dict[str, object] = {"acquit": acquit, "broker": self._broker}
        with acquit.connect(self._broker.url) as connection:
            sender = connection.session().sender("orders")
            for body in posted:
                sender.send(body)
        options = acquit.ConnectOptions(reconnect=acquit.Reconnect(delay_ms=1))
        self._connection = acquit.connect(self._proxy.url, options=options)
        self._names["connection"] = self._connection
        self._take("client", ["open"], drawn=False)
        self._take("broker", ["open"], drawn=False)
        exec(setup, self._names)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._proxy.resume()
        self._connection.close()
        self._proxy.close()
        self._broker.close()

    def run(self, script: str) -> list[Line]:
        """Perform a script; gives the lines of its picture. Raises Different."""
        lines = [line for line in (raw.strip() for raw in script.splitlines()) if line]
        for number, line in enumerate(lines):
            following = lines[number + 1] if number + 1 < len(lines) else ""
            self._perform(line, following[1:].strip() if following.startswith("!") else None)
        # Whatever was not in the script shows here: the goodbye comes behind it.
        self._connection.close()
        for side in SIDES:
            while (frame := self._next(side, "close")).name != "close":
                if frame.name not in GOODBYE and not is_farewell(frame.performative):
                    raise Different(f"the script does not say {frame}")
        return self.lines

    def _perform(self, line: str, error: str | None) -> None:
        drawn = not (line.startswith("(") and line.endswith(")"))
        if not drawn:
            line = line[1:-1]
        mark, rest = line[0], line[1:].strip()
        match mark:
            case ">" | "<":
                self._take(MARKS[mark], rest.split(), drawn=drawn)
            case "=":
                self.lines.append(Line(Kind.RESULT, f"{rest}: {eval(rest, self._names)}"))
            case "!":
                self.lines.append(Line(Kind.RESULT, f"raises {rest}"))
            case "#":
                self._await("orders:", self._state, rest)
                self.lines.append(Line(Kind.STATE, f"orders: {rest}"))
            case "@":
                self._await("in the buffer:", self._buffered, rest)
                if drawn:
                    self.lines.append(Line(Kind.BUFFER, f"in the buffer: {rest}"))
            case "~":
                self._proxy.cut(reset=True)
                self.lines.append(Line(Kind.CUT, "the connection is lost"))
            case "-":
                self.lines.append(Line(Kind.REMARK, line.removeprefix("--").strip()))
            case _ if line == "stall":
                self._proxy.stall("broker")
            case _ if line == "resume":
                self._proxy.resume()
            case _:
                self._call(line, error, drawn=drawn)

    def _call(self, line: str, error: str | None, *, drawn: bool) -> None:
        for side in SIDES:
            passed = self._proxy.passed(by=side, where=is_amqp)
            if len(passed) > self._taken[side]:
                raise Different(f"the script does not say, before {line}: {passed[self._taken[side]]}")
        if drawn:
            self.lines.append(Line(Kind.CALL, line))
        try:
            exec(line, self._names)
        except acquit.AcquitError as raised:
            if error != type(raised).__name__:
                raise Different(f"{line} raised {type(raised).__name__}: {raised}") from raised
        else:
            if error is not None:
                raise Different(f"{line} did not raise {error}")

    def _take(self, side: Side, names: list[str], *, drawn: bool) -> None:
        for name in names:
            frame = self._next(side, name)
            if frame.name != name:
                raise Different(f"the script says {name}, and there was {frame}")
            line = self._namer.line(frame)
            if drawn:
                self.lines.append(line)

    def _next(self, side: Side, name: str) -> PassedFrame:
        self._taken[side] += 1
        try:
            return self._proxy.wait_for(None, self._taken[side], by=side, where=is_amqp, timeout_s=WAIT_S)
        except TimeoutError:
            raise Different(f"the script says {name} by the {side}, and nothing came") from None

    def _await(self, what: str, look: Callable[[], str], wanted: str) -> None:
        ends_at = time.monotonic() + WAIT_S
        while (found := look()) != wanted:
            if time.monotonic() > ends_at:
                raise Different(f"the script says {what} {wanted}, and it is {found}")
            time.sleep(0.002)

    def _buffered(self) -> str:
        receiver = self._names["receiver"]
        assert isinstance(receiver, acquit.Receiver)
        return ", ".join(str(message.body) for message in list(receiver._core.buffer)) or "nothing"

    def _state(self) -> str:
        queue_ = self._broker.inspect().queue("orders")
        assert queue_ is not None
        counts = {
            "available": queue_.available,
            "acquired": queue_.acquired,
            "accepted": queue_.accepted,
            "consumed": queue_.consumed,
            "dead-lettered": queue_.dead_lettered,
        }
        return ", ".join(f"{count} {name}" for name, count in counts.items() if count) or "nothing"


def record(script: str, *, setup: str = "", posted: tuple[str, ...] = ()) -> list[Line]:
    """The lines of a picture, from an exchange made for it. Raises Different where it is not the one described."""
    with Exchange(setup, posted) as exchange:
        return exchange.run(script)


__all__ = ["Different", "Kind", "Line", "record"]
