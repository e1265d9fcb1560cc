"""The frames that pass a proxy: one direction of a connection cut into frames, and each frame decoded when it is asked
for.

Theory of operation. A direction begins with a protocol header of eight octets (2.2); frames follow, and where a
security layer ends another header. A frame's size would have to be over a thousand million for its first four octets
to read "AMQP", so that headers and frames are never confused. Where the stream is something else (TLS), or claims a
size that no frame has, what remains of it are octets without bounds and passes as it comes.

Nothing is decoded unless it is asked for, and a frame that cannot be decoded passes like any other: a proxy judges
nobody.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Final, Literal, TypeAlias, get_args

from acquit.errors import DecodeError
from acquit.protocol.composite import decode_composite
from acquit.protocol.definitions import Composite, Declare, Discharge, Performative, SaslPerformative, Transfer
from acquit.protocol.sections import VALUE_HEAD

Side: TypeAlias = Literal["client", "broker"]
"""The sender of a frame."""

SIDES: Final[tuple[Side, ...]] = get_args(Side)

FRAME_BYTES_MAX: Final = 1 << 28
"""No peer sends a larger frame: a size above it says that these are no frames."""

_MAGIC: Final = b"AMQP"
_PREFIX = struct.Struct(">IBBH")


def _name(kind: type[Composite]) -> str:
    return kind.SYMBOL.removeprefix("amqp:").removesuffix(":list")


_PERFORMATIVES: Final[dict[str, type]] = {
    _name(kind): kind for kind in (*get_args(Performative), *get_args(SaslPerformative))
}
_CONTROLS: Final[dict[str, type]] = {_name(kind): kind for kind in (Declare, Discharge)}

NAMES: Final[dict[str, type | None]] = {
    "header": None,
    **_PERFORMATIVES,
    **_CONTROLS,
    "empty": None,
    "unknown": None,
    "bytes": None,
}
"""Names of frames, and the class whose fields each then has."""


class Splitter:
    """A cutter of one direction of a connection: bytes in any split go in, whole frames come out. `rest` is an
    unfinished frame."""

    def __init__(self) -> None:
        self._partial = b""
        self.opaque = False

    @property
    def rest(self) -> bytes:
        """The begin of a frame whose end has not come."""
        return self._partial

    def feed(self, data: bytes) -> list[bytes]:
        """The headers and frames that are whole now; of a stream without bounds, `data`."""
        data = self._partial + data
        found = []
        offset = 0
        while not self.opaque and len(data) - offset >= 8:
            if data.startswith(_MAGIC, offset):
                size = 8
            else:
                size = int.from_bytes(data[offset : offset + 4], "big")
                if not 8 <= size <= FRAME_BYTES_MAX:
                    self.opaque = True
                    break
            if offset + size > len(data):
                break
            found.append(data[offset : offset + size])
            offset += size
        self._partial = data[offset:]
        if self.opaque and self._partial:
            found.append(self._partial)
            self._partial = b""
        return found


@dataclass(frozen=True, eq=False)
class PassedFrame:
    """A frame, or a protocol header, on its way through a proxy. Decoded when it is first asked for."""

    connection: int
    """Number of the proxy's connection, from 0 in the order of their coming."""
    by: Side
    """Sender of the frame."""
    raw: bytes = field(repr=False)
    """All of its octets."""

    @property
    def size(self) -> int:
        """Size in octets."""
        return len(self.raw)

    @property
    def channel(self) -> int:
        """Channel of the session; 0 for frames without one."""
        return int.from_bytes(self.raw[6:8], "big") if self._is_frame else 0

    @cached_property
    def name(self) -> str:
        """Name of the performative, as the specification writes it: ``attach``, ``sasl-init``. Else ``header`` (of a
        protocol), ``empty`` (a heartbeat), ``unknown`` (not decodable), or ``bytes`` (of TLS, say)."""
        if self.raw.startswith(_MAGIC) and len(self.raw) == 8:
            return "header"
        if not self._is_frame:
            return "bytes"
        if self.performative is None:
            return "empty" if self._body_offset == len(self.raw) else "unknown"
        return _name(type(self.performative))

    @property
    def performative(self) -> Composite | None:
        """Decoded, with the fields of its section in the specification; None where there is none."""
        return self._decoded[0]

    @property
    def payload(self) -> bytes:
        """Bytes that follow the performative: of a transfer, the message or a part of it."""
        return self.raw[self._decoded[1] :]

    @cached_property
    def control(self) -> Composite | None:
        """The declare or discharge that a transfer brings to a coordinator (4.5); None for any other frame."""
        if not isinstance(self.performative, Transfer) or not self.payload.startswith(VALUE_HEAD):
            return None
        try:
            found, _ = decode_composite(self.payload, len(VALUE_HEAD))
        except DecodeError:
            return None
        return found if isinstance(found, Declare | Discharge) else None

    @property
    def _is_frame(self) -> bool:
        return len(self.raw) >= 8 and int.from_bytes(self.raw[:4], "big") == len(self.raw)

    @property
    def _body_offset(self) -> int:
        return 4 * self.raw[4]

    @cached_property
    def _decoded(self) -> tuple[Composite | None, int]:
        if not self._is_frame or self._body_offset >= len(self.raw):
            return None, len(self.raw)
        try:
            return decode_composite(self.raw, self._body_offset)
        except DecodeError:
            return None, self._body_offset

    def __str__(self) -> str:
        what = self.control or self.performative or self.name
        return f"connection {self.connection}, channel {self.channel}, by the {self.by}: {what!s:.200}"


@dataclass(frozen=True, slots=True)
class Selection:
    """A choice of frames, by name, sender and condition.

    `name` is one of `NAMES`; ``declare`` and ``discharge`` are the transfers that bring them, and ``transfer`` is every
    one. None is every frame. `by`: of one sender. `fields`: values the performative must have; a class means any of its
    instances. `where` says yes to the frame. Raises ValueError for names and fields that do not exist.
    """

    name: str | None
    by: Side | None
    where: Callable[[PassedFrame], bool] | None
    fields: Mapping[str, object]

    def __post_init__(self) -> None:
        if self.name is not None and self.name not in NAMES:
            raise ValueError(f"no frame is called {self.name!r}; expected one of {', '.join(NAMES)}")
        if self.by is not None and self.by not in SIDES:
            raise ValueError(f"a frame is sent by 'client' or 'broker', not by {self.by!r}")
        if self.name is not None:
            kind = NAMES[self.name]
            known = [each.name for each in fields(kind)] if kind is not None else []
            for given in self.fields:
                if given not in known:
                    expected = ", ".join(known) or "none"
                    raise ValueError(f"{self.name} has no field {given!r}; expected one of {expected}")

    def __call__(self, frame: PassedFrame) -> bool:
        """True if `frame` is selected."""
        if self.by is not None and frame.by != self.by:
            return False
        found: object = frame.performative if self.fields else None
        if self.name in _CONTROLS:
            found = frame.control
            if not isinstance(found, _CONTROLS[self.name]):
                return False
        elif self.name is not None and frame.name != self.name:
            return False
        for key, expected in self.fields.items():
            if not hasattr(found, key):
                return False
            value = getattr(found, key)
            if not (isinstance(value, expected) if isinstance(expected, type) else value == expected):
                return False
        return self.where is None or self.where(frame)

    def __str__(self) -> str:
        conditions = [f"{key}={value!r}" for key, value in self.fields.items()]
        if self.where is not None:
            conditions.append("where ...")
        named = f"{self.name or 'any frame'}" + (f"({', '.join(conditions)})" if conditions else "")
        return named + (f" by the {self.by}" if self.by is not None else "")
