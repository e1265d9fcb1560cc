"""A peer on a real socket that says what it likes, frame by frame, whatever it was answered.

What comes back is decoded and kept in `heard`, and read while we write, so that neither side waits for the other; with
`reading=False` nothing is ever read. That the broker ends the conversation is an answer: `over`, and writing on does
nothing.
"""

from __future__ import annotations

import selectors
import socket
import time
from collections.abc import Callable, Sequence
from typing import Final, Self, TypeVar

from acquit.protocol.composite import encode_composite
from acquit.protocol.constants import AMQP_HEADER, SASL_HEADER
from acquit.protocol.definitions import (
    Attach,
    Begin,
    Close,
    Coordinator,
    Detach,
    End,
    Flow,
    Open,
    Performative,
    Role,
    SaslInit,
    SaslPerformative,
    Source,
    Target,
    Transfer,
)
from acquit.protocol.delivery import DeliveryState
from acquit.protocol.frames import SASL_FRAME, FrameDecoder, encode_frame

TIMEOUT_S: Final = 20.0
WINDOW: Final = 0x7FFFFFFF
BARRIER: Final = 200

T = TypeVar("T")


class RawSocket:
    """See the module. `user` logs in with PLAIN, NAME:PASSWORD; without, anonymously. A session is begun on channel
    0."""

    def __init__(self, port: int, *, user: str = "", container: str = "hostile", reading: bool = True) -> None:
        self.socket = socket.socket()
        if not reading:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self.socket.settimeout(TIMEOUT_S)
        self.socket.connect(("127.0.0.1", port))
        self.socket.setblocking(False)
        self.reading = reading
        self.over = False
        self.heard: list[Performative | SaslPerformative | None] = []
        self._decoder = FrameDecoder(0xFFFF_FFFF)
        self._greeting: bytes | None = b""
        self._handles: dict[str, int] = {}
        self._theirs: dict[int, int] = {}
        self._limits: dict[int, int] = {}
        self._counts: dict[int, int] = {}
        self._next_id = 0
        name, _, password = user.partition(":")
        init = SaslInit("PLAIN", f"\0{name}\0{password}".encode()) if user else SaslInit("ANONYMOUS", b"")
        self.write(SASL_HEADER + encode_frame(0, encode_composite(init), SASL_FRAME) + AMQP_HEADER)
        self.say(Open(container), Begin(None, 0, WINDOW, WINDOW))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.socket.close()

    def say(self, *said: Performative, payload: bytes = b"", channel: int = 0) -> None:
        """Send performatives, each with this payload."""
        self.write(b"".join(encode_frame(channel, encode_composite(one) + payload) for one in said))

    def write(self, data: bytes) -> None:
        """Send bytes. Fails where the broker takes none for long, unless we do not read either: then what it does not
        take is dropped."""
        left = memoryview(data)
        deadline = time.monotonic() + TIMEOUT_S
        with selectors.DefaultSelector() as ready:
            ready.register(self.socket, selectors.EVENT_WRITE | (selectors.EVENT_READ if self.reading else 0))
            while left and not self.over:
                found = ready.select(TIMEOUT_S if self.reading else 0.05)
                if not found and not self.reading:
                    return
                assert found and time.monotonic() < deadline, f"the broker does not take {len(left)} bytes"
                for _, event in found:
                    try:
                        if event & selectors.EVENT_READ:
                            self._read()
                        if event & selectors.EVENT_WRITE and not self.over:
                            left = left[self.socket.send(left) :]
                    except (ConnectionResetError, BrokenPipeError):
                        self.over = True

    def _read(self) -> None:
        try:
            data = self.socket.recv(1 << 20)
        except BlockingIOError:
            return
        except ConnectionResetError:
            data = b""
        self.over = self.over or not data
        if self._greeting is not None:  # SASL is over when AMQP's header comes
            self._greeting += data
            _, found, data = self._greeting.partition(AMQP_HEADER)
            if not found:
                return
            self._greeting = None
        self._decoder.feed(data)
        for frame in self._decoder:
            self._take(frame.performative)

    def _take(self, said: Performative | SaslPerformative | None) -> None:
        self.heard.append(said)
        match said:
            case Attach(name=name, handle=handle, role=Role.RECEIVER) if name in self._handles:
                self._theirs[handle] = self._handles[name]
            case Flow(handle=int() as handle, delivery_count=count, link_credit=credit) if handle in self._theirs:
                self._limits[self._theirs[handle]] = (count or 0) + (credit or 0)
            case _:
                pass

    def wait(self, until: Callable[[], object]) -> None:
        """Read until this is so, or the conversation is over."""
        deadline = time.monotonic() + TIMEOUT_S
        with selectors.DefaultSelector() as ready:
            ready.register(self.socket, selectors.EVENT_READ)
            while not self.over and not until():
                assert ready.select(max(0.0, deadline - time.monotonic())), f"nothing more came after {self.heard[-5:]}"
                self._read()

    def barrier(self) -> None:
        """Until the broker has read all that we said: it has answered a begin that came after it."""
        begun = self.count(Begin)
        self.say(Begin(None, 0, WINDOW, WINDOW), End(), channel=BARRIER)
        self.wait(lambda: self.count(Begin) > begun)

    def all(self, kind: type[T]) -> list[T]:
        """What was heard of this kind."""
        return [one for one in self.heard if isinstance(one, kind)]

    def count(self, kind: type) -> int:
        """How many of them."""
        return sum(isinstance(one, kind) for one in self.heard)

    def receiver(self, handle: int, source: Source | None, *, credit: int = 1_000, name: str = "") -> None:
        """Attach a receiving link and give it credit."""
        self.say(
            Attach(name or f"r{handle}", handle, Role.RECEIVER, source=source, target=Target("me")),
            Flow(0, WINDOW, 0, WINDOW, handle, 0, credit),
        )

    def sender(self, handle: int, target: Target | Coordinator, *, source: Source | None = None) -> None:
        """Attach a sending link, and wait for credit, or for its refusal."""
        refused = self.count(Detach)
        self._counts[handle] = 0
        self._handles[f"s{handle}"] = handle
        self.say(
            Attach(
                f"s{handle}",
                handle,
                Role.SENDER,
                source=source or Source("here"),
                target=target,
                initial_delivery_count=0,
            )
        )
        if self.reading:
            self.wait(lambda: handle in self._limits or self.count(Detach) > refused)

    def post(
        self,
        handle: int,
        payloads: Sequence[bytes],
        *,
        state: DeliveryState | None = None,
        settled: bool = False,
        more: bool = False,
    ) -> None:
        """Send messages as credit comes; those that are not read send all at once. Ends early if the link does."""
        ended = self.count(Detach) + self.count(End)
        done = 0
        while done < len(payloads) and not self.over:
            room = len(payloads)
            if self.reading:
                self.wait(
                    lambda: (
                        self._limits.get(handle, 0) > self._counts[handle]
                        or self.count(Detach) + self.count(End) > ended
                    )
                )
                room = self._limits.get(handle, 0) - self._counts[handle]
                if room <= 0:
                    return
            wave = payloads[done : done + room]
            frames = []
            for payload in wave:
                id_ = self._next_id
                self._next_id += 1
                transfer = Transfer(handle, id_, id_.to_bytes(4, "big"), 0, settled, more, state=state)
                frames.append(encode_frame(0, encode_composite(transfer) + payload))
            self._counts[handle] += len(wave)
            done += len(wave)
            self.write(b"".join(frames))

    def go_on(self, handle: int, payload: bytes) -> None:
        """One more frame of a message that was posted with `more`, and does not end."""
        self.say(Transfer(handle, more=True), payload=payload)

    @property
    def reason(self) -> str | None:
        """The condition of the close that was heard."""
        return next((one.error.condition for one in self.all(Close) if one.error is not None), None)


__all__ = ["TIMEOUT_S", "WINDOW", "RawSocket"]
