"""Frames from and to bytes (specification 2.3).

A frame is eight octets of header (size, data offset in words, type, channel), an extended header that nobody uses and
we skip, and a body: one performative and, for a transfer, a payload. A frame without a body only says that the peer
is alive (2.4.5). The decoder takes bytes as they come, in any split, and gives frames as soon as they are whole.

Bounds. A size is checked when its four octets are there, before anything waits for the rest, so the buffer never holds
more than the maximum frame size and what one `feed` brought.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple, NoReturn, TypeAlias

from acquit.errors import FramingError
from acquit.protocol.composite import decode_composite
from acquit.protocol.definitions import MIN_MAX_FRAME_SIZE, Performative, SaslPerformative

AMQP_FRAME: Final = 0x00
SASL_FRAME: Final = 0x01

_HEADER = struct.Struct(">IBBH")
_HEADER_BYTES: Final = 8
_SIZE_BYTES: Final = 4

FrameBody: TypeAlias = Performative | SaslPerformative

_BODIES: Final[dict[int, frozenset[type]]] = {
    AMQP_FRAME: frozenset(Performative.__args__),
    SASL_FRAME: frozenset(SaslPerformative.__args__),
}


class Frame(NamedTuple):
    """A frame that came in whole. `performative` is None where the body is empty; `payload` is what follows it."""

    type: int
    channel: int
    performative: FrameBody | None
    payload: bytes


def encode_frame(channel: int, body: bytes, frame_type: int = AMQP_FRAME) -> bytes:
    """A frame around an encoded performative (and payload); an empty body makes a heartbeat. Bytes 6 and 7 of a SASL
    frame are ignored by the peer (5.3.1): give channel 0."""
    return _HEADER.pack(_HEADER_BYTES + len(body), 2, frame_type, channel) + body


HEARTBEAT: Final = encode_frame(0, b"")


class FrameDecoder:
    """Cuts a stream into frames.

    Call `feed` with what arrived, then iterate until it ends; what is left is the begin of a frame. `frame_type` is
    the one that may come (assign SASL_FRAME during the security layer, whose frames are at most 512 octets, 5.3.1).
    Iterating raises FramingError for what is no frame or exceeds `max_frame_size`, and DecodeError for a body that is
    no performative of that type; nothing further can be read after either.
    """

    def __init__(self, max_frame_size: int, frame_type: int = AMQP_FRAME) -> None:
        self.max_frame_size = max_frame_size
        self.frame_type = frame_type
        # Frames are cut out of `data` at `offset`. Public for `fastpath`, which takes whole frames by moving `offset`.
        self.data = b""
        self.offset = 0
        self._partial = bytearray()  # a frame that takes several feeds grows here, so that each octet is copied once
        self._needed = _SIZE_BYTES  # octets without which there is nothing to look at

    def feed(self, data: bytes) -> None:
        """Take bytes in any split."""
        if self._partial:
            self._partial += data
            if len(self._partial) >= self._needed:
                self.data = bytes(self._partial)
                self._partial = bytearray()
            return
        if self.offset < len(self.data):
            data = self.data[self.offset :] + data
        self.offset = 0
        if len(data) >= self._needed:
            self.data = data
        else:
            self.data = b""
            self._partial += data

    @property
    def buffered(self) -> int:
        """Octets that were fed and not yet given out as frames."""
        return len(self.data) - self.offset + len(self._partial)

    def take_rest(self) -> bytes:
        """Hand over what is buffered, unread: the protocol header that follows the last SASL frame (5.3.2)."""
        rest = bytes(self._partial) + self.data[self.offset :]
        self._partial = bytearray()
        self.data = b""
        self.offset = 0
        self._needed = _SIZE_BYTES
        return rest

    def __iter__(self) -> Iterator[Frame]:
        # All state is on self before each yield: the connection may change `frame_type`, or take the rest, in between.
        while True:
            data, start = self.data, self.offset
            if len(data) - start < _HEADER_BYTES:
                self._needed = self._check_size_so_far(data, start)
                return
            size, words, frame_type, channel = _HEADER.unpack_from(data, start)
            body = start + 4 * words
            end = start + size
            if size > self.max_frame_size or words < 2 or body > end or frame_type != self.frame_type:
                self._refuse(size, words, frame_type)
            if end > len(data):
                self._needed = size
                return
            self.offset = end
            self._needed = _SIZE_BYTES
            if body == end:
                if frame_type == SASL_FRAME:
                    raise FramingError("a SASL frame without a body (5.3.1)")
                yield Frame(frame_type, channel, None, b"")
                continue
            performative, offset = decode_composite(data, body, end)
            if type(performative) not in _BODIES[frame_type]:
                raise FramingError(f"a {type(performative).__name__} may not stand in a frame of type {frame_type}")
            yield Frame(frame_type, channel, performative, data[offset:end])  # type: ignore[arg-type]  # just checked

    def _refuse(self, size: int, words: int, frame_type: int) -> NoReturn:
        if size > self.max_frame_size:
            raise FramingError(f"a frame of {size} octets, more than the maximum of {self.max_frame_size}")
        if words < 2:
            raise FramingError(f"a data offset of {words} words, must be at least 2")
        if size < 4 * words:
            raise FramingError(f"a frame of {size} octets with a data offset of {4 * words}")
        raise FramingError(f"a frame of type 0x{frame_type:02x} where type 0x{self.frame_type:02x} must come")

    def _check_size_so_far(self, data: bytes, start: int) -> int:
        """Refuse an impossible size without waiting for the rest of its header; say when it is worth looking again."""
        if len(data) - start < _SIZE_BYTES:
            return _SIZE_BYTES
        size = int.from_bytes(data[start : start + _SIZE_BYTES], "big")
        if not _HEADER_BYTES <= size <= self.max_frame_size:
            raise FramingError(f"a frame of {size} octets, must be in {_HEADER_BYTES}..{self.max_frame_size}")
        return _HEADER_BYTES


SASL_MAX_FRAME_SIZE: Final = MIN_MAX_FRAME_SIZE
"""SASL frames may not be larger (5.3.1), as nothing has been negotiated yet."""
