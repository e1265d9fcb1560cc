"""A connection through a proxy: two sockets, and a task for each direction that carries frames from one to the other.

A direction reads what is there, cuts it into frames and hands each over whole, asking the rules before and after it.
A frame is recorded when its last octet has been given to the kernel of this machine.

How a connection is cut. With FIN, both peers read everything that has passed and then the end: the proxy shuts its
writing side down and reads on without passing anything, because closing a socket with unread octets in it would send a
reset, and a reset can destroy what the peer has not read yet. So what had passed before a cut is known exactly. With a
reset it is not, as when a machine fails.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from typing import Final

from acquit.testing.frames import SIDES, PassedFrame, Side, Splitter
from acquit.testing.recording import Recording
from acquit.testing.rules import Place, Rule

READ_BYTES: Final = 1 << 16
SLICE_S: Final = 0.02
"""A throttled direction writes this often."""
DRAIN_S: Final = 10.0
"""Seconds for which our socket stays open after a cut, where peers do not close theirs."""

_OTHER: Final[dict[Side, Side]] = {"client": "broker", "broker": "client"}
AT_ONCE: Final = struct.pack("ii", 1, 0)
"""SO_LINGER with no time: close sends a reset."""


class Pace:
    """The pace of one direction."""

    def __init__(self) -> None:
        self.moving = asyncio.Event()
        self.moving.set()
        self.delay_s = 0.0
        self.bytes_per_s: float | None = None


class ProxyState:
    """The state that all wires of a proxy share. On its loop only, but for the recording."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self.paces: dict[Side, Pace] = {side: Pace() for side in SIDES}
        self.rules: list[Rule] = []
        self.fired: list[Rule] = []

    def rules_at(self, place: Place) -> list[Rule]:
        """Return the rules set at this place, in the order of setting."""
        return [rule for rule in self.rules if rule.place is place]

    async def fire(self, rule: Rule, wire: ProxiedConnection, frame: PassedFrame) -> None:
        """Fire a rule at its frame."""
        self.rules.remove(rule)
        self.fired.append(rule)
        await rule.fire(wire, frame)


class ProxiedConnection:
    """A connection from its accept to the end of both sockets. `run` carries it; `cut` ends it."""

    def __init__(self, number: int, client: socket.socket, broker: socket.socket, control: ProxyState) -> None:
        self.number = number
        self._ends: dict[Side, socket.socket] = {"client": client, "broker": broker}
        self._control = control
        self._loop = asyncio.get_running_loop()
        self._carriers: list[asyncio.Task[None]] = []
        self.over = False
        for end in (client, broker):
            end.setblocking(False)
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    async def run(self) -> None:
        """Carry until both directions have ended; the sockets are closed afterwards."""
        try:
            self._carriers = [asyncio.create_task(self._carry(by)) for by in SIDES]
            await asyncio.wait(self._carriers)
            if self.over:
                async with asyncio.timeout(DRAIN_S):
                    await asyncio.gather(*(self._drain(end) for end in self._ends.values()))
        except TimeoutError:
            pass
        finally:
            for carrier in self._carriers:
                carrier.cancel()
            for end in self._ends.values():
                end.close()

    def cut(self, *, reset: bool) -> None:
        """End it on both sides, now. Nothing passes any more."""
        if self.over:
            return
        self.over = True
        for carrier in self._carriers:
            if carrier is not asyncio.current_task():
                carrier.cancel()
        for end in self._ends.values():
            # A peer that has gone already needs no end.
            with contextlib.suppress(OSError):
                if reset:
                    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, AT_ONCE)
                    self._release(end)
                else:
                    end.shutdown(socket.SHUT_WR)

    def _release(self, end: socket.socket) -> None:
        self._loop.remove_reader(end.fileno())
        self._loop.remove_writer(end.fileno())
        end.close()

    async def _carry(self, by: Side) -> None:
        source, sink = self._ends[by], self._ends[_OTHER[by]]
        pace = self._control.paces[by]
        splitter = Splitter()
        try:
            while data := await self._loop.sock_recv(source, READ_BYTES):
                if pace.delay_s:
                    await asyncio.sleep(pace.delay_s)
                for raw in splitter.feed(data):
                    await self._hand_over(PassedFrame(self.number, by, raw), sink, pace)
                    if self.over:
                        return
            await pace.moving.wait()
            await self._write(sink, splitter.rest, pace)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            self.cut(reset=True)

    async def _hand_over(self, frame: PassedFrame, sink: socket.socket, pace: Pace) -> None:
        await self._apply(Place.BEFORE, frame)
        if self.over:
            return
        # A rule or a control call may have stalled this direction, before or while that was waited for.
        await pace.moving.wait()
        for rule in self._control.rules_at(Place.WITHIN):
            if rule.hears(frame):
                await self._control.fire(rule, self, frame)
                return
        await self._write(sink, frame.raw, pace)
        self._control.recording.add(frame)
        await self._apply(Place.AFTER, frame)

    async def _apply(self, place: Place, frame: PassedFrame) -> None:
        for rule in self._control.rules_at(place):
            if rule.hears(frame):
                await self._control.fire(rule, self, frame)
                if self.over:
                    return

    async def cut_within(self, frame: PassedFrame, octets: int, *, reset: bool) -> None:
        """Pass the first octets of this frame, and cut."""
        await self._loop.sock_sendall(self._ends[_OTHER[frame.by]], frame.raw[:octets])
        self.cut(reset=reset)

    async def _write(self, sink: socket.socket, data: bytes, pace: Pace) -> None:
        offset = 0
        while pace.bytes_per_s is not None and offset < len(data):
            size = max(1, int(pace.bytes_per_s * SLICE_S))
            await self._loop.sock_sendall(sink, data[offset : offset + size])
            await asyncio.sleep(min(size, len(data) - offset) / pace.bytes_per_s)
            offset += size
        if offset < len(data):
            await self._loop.sock_sendall(sink, data[offset:] if offset else data)

    async def _drain(self, end: socket.socket) -> None:
        if end.fileno() == -1:
            return
        with contextlib.suppress(OSError):
            while await self._loop.sock_recv(end, READ_BYTES):
                pass
