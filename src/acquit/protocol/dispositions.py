"""Dispositions on their way out, gathered into ranges (2.7.6).

A thousand deliveries settled alike in one wake-up are one frame. They are gathered in *runs*: as long as role, settled
and state stay the same, only delivery-ids are collected; a run is written as one disposition for each stretch of
consecutive ids. Ids that were not asked for are never spanned, also when they are long settled.

Within a run the order is free, as it says the same of all; runs keep their order, so two things said of one delivery
arrive as they were said. What must not overtake them (detach, end, close, and transfers once a transactional state is
among them: a discharge is a transfer) makes the session write them first.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, Final

from acquit.protocol.composite import encode_composite
from acquit.protocol.definitions import Accepted, Declared, DeliveryState, Released, Role, TransactionalState
from acquit.protocol.serial import MASK

_STATE_BYTES: Final[dict[type, bytes]] = {
    type(None): b"\x40",
    Accepted: encode_composite(Accepted()),
    Released: encode_composite(Released()),
}

# What each transaction takes one of, around an id as brokers give them.
_ID: Final = bytes(16)
_DECLARED: Final = encode_composite(Declared(_ID)).removesuffix(_ID)
_PROVISIONAL, _, _OUTCOME = encode_composite(TransactionalState(_ID, Accepted())).partition(_ID)

# Frame header, the composite's descriptor and list (list8 for the usual states), then role, first, last, settled, and
# whatever encodes the state.
_HEAD: Final = struct.Struct(">IBBH3s")
_LIST8: Final = struct.Struct(">BBB")
_LIST32: Final = struct.Struct(">BII")
_FIELDS: Final = struct.Struct(">BBIBIB")
_DESCRIPTOR: Final = b"\x00\x53\x15"
_FIELD_COUNT: Final = 5
_LIST8_BYTES_MAX: Final = 255
FRAME_OVERHEAD: Final = _HEAD.size + _LIST32.size + _FIELDS.size
"""The most octets of a disposition frame besides its state."""

_HALF: Final = 1 << 31


def encode_state(state: DeliveryState | None) -> bytes:
    """The encoding of a delivery state. Raises EncodeError for what is none."""
    known = _STATE_BYTES.get(state.__class__)
    if known is not None:
        return known
    if isinstance(state, Declared | TransactionalState):
        said: Any = state  # as somebody's program made it
        txn_id = said.txn_id
        if isinstance(txn_id, bytes) and len(txn_id) == len(_ID):
            if isinstance(state, Declared):
                return _DECLARED + txn_id
            if state.outcome.__class__ is Accepted:
                return _PROVISIONAL + txn_id + _OUTCOME
    return encode_composite(state)


class DispositionRuns:
    """The dispositions of one session that wait to be written."""

    __slots__ = ("_ids", "_role", "_runs", "_settled", "_state")

    def __init__(self) -> None:
        self._runs: list[tuple[Role, bool, bytes, list[int]]] = []
        self._role = Role.SENDER
        self._settled = False
        self._state = b""
        self._ids: list[int] = []

    def __bool__(self) -> bool:
        return bool(self._runs)

    def run(self, role: Role, settled: bool, state: bytes) -> list[int]:
        """Return the list to append delivery-ids to, of which this role, settled and state are to be said next."""
        if self._runs and self._state == state and self._settled is settled and self._role is role:
            return self._ids
        self._role, self._settled, self._state = role, settled, state
        self._ids = []
        self._runs.append((role, settled, state, self._ids))
        return self._ids

    def take_frames(self, channel: int) -> list[bytes]:
        """The frames for all that waits, in order; nothing waits afterwards."""
        frames = []
        for role, settled, state, ids in self._runs:
            role_code, settled_code = 0x41 if role else 0x42, 0x41 if settled else 0x42
            size = _FIELDS.size + len(state)
            if size < _LIST8_BYTES_MAX:
                head = _LIST8.pack(0xC0, size + 1, _FIELD_COUNT)
            else:
                head = _LIST32.pack(0xD0, size + 4, _FIELD_COUNT)
            head = _HEAD.pack(_HEAD.size + len(head) + size, 2, 0, channel, _DESCRIPTOR) + head
            for first, last in ranges(ids):
                frames.append(head + _FIELDS.pack(role_code, 0x70, first, 0x70, last, settled_code) + state)
        self._runs = []
        self._ids = []
        return frames


def ranges(ids: list[int]) -> Iterator[tuple[int, int]]:
    """The stretches of consecutive serial numbers in `ids`, which must lie within half the circle. Sorts `ids`."""
    if not ids:
        return
    start = ids[0]
    ids.sort()
    if ids[-1] - ids[0] >= _HALF:  # they wrap around: order them as seen from half-way round
        ids.sort(key=lambda serial: (serial - start + _HALF) & MASK)
    first = last = ids[0]
    if ids[-1] == (first + len(ids) - 1) & MASK and len(ids) == len(set(ids)):
        yield first, ids[-1]
        return
    for serial in ids:
        if serial == (last + 1) & MASK:
            last = serial
        elif serial != last:
            yield first, last
            first = last = serial
    yield first, last


__all__ = ["FRAME_OVERHEAD", "DispositionRuns", "encode_state", "ranges"]
