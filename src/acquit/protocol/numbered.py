"""Numbered messages, an extension of ours: how a sender with a mark says each message's place (docs/duplicates.md).

The link property ``acquit:sender-mark`` names the mark. Each message bears the delivery annotation
``x-opt-acquit-place``: a binary of batch, index and digest. It is meant for the broker alone, which takes it off.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, TypeAlias

from acquit.errors import DecodeError
from acquit.protocol.extensions import PLACE, SENDER_MARK
from acquit.protocol.sections import DELIVERY_ANNOTATIONS, MESSAGE_ANNOTATIONS, map_value, scan_sections

Place: TypeAlias = tuple[int, int, int]
"""Place of one message: batch, index within the batch, and the sender's own digest, which is kept with the mark, told,
and compared when the message at the mark comes again. Places of one mark are compared by their batch, then by their
index."""

_PLACE: Final = Struct(">QQI")
_ENTRY: Final = b"\xa3" + bytes((len(PLACE),)) + PLACE.encode() + b"\xa0" + bytes((_PLACE.size,))
_SECTION: Final = b"\x00\x53\x71\xc1" + bytes((1 + len(_ENTRY) + _PLACE.size, 2)) + _ENTRY
"""Delivery annotations that say nothing but the place, as `place_section` encodes them, up to the value."""


def place_section(place: Place) -> bytes:
    """Delivery annotations that say the place, and nothing else: they stand right behind the header."""
    return _SECTION + _PLACE.pack(*place)


def take_place(payload: bytes) -> tuple[Place, bytes]:
    """The place of a message, and the message without its delivery annotations, which are for us alone. Raises
    DecodeError where it says none."""
    at = 5 + payload[4] if payload.startswith(b"\x00\x53\x70\xc0") and len(payload) > 4 else 0
    if payload.startswith(_SECTION, at):
        value_at = at + len(_SECTION)
        after = value_at + _PLACE.size
        value: object = payload[value_at:after]
    else:
        bounds = scan_sections(payload).bounds
        at, after = bounds[DELIVERY_ANNOTATIONS], bounds[MESSAGE_ANNOTATIONS]
        value = map_value(payload[at:after], PLACE) if at != after else None
    if not isinstance(value, bytes) or len(value) != _PLACE.size:
        raise DecodeError(
            f"on a link with a mark ({SENDER_MARK}) each message says its place: the delivery annotation {PLACE}, "
            f"a binary of {_PLACE.size} bytes"
        )
    return _PLACE.unpack(value), payload[:at] + payload[after:]
