"""The short way to a row: for messages of an acquit broker that say the same as one that was read before.

`spark.columns` reads a message section by section. Most messages of a queue differ in nothing but their sequence, the
time of posting, the message-id and the body; what else they say, they say with the same bytes. So what the long way
found in one message, a *pattern*, is remembered under those bytes, and holds for the next message that has them.

A message is *plain* when it is laid out like this, each part in its short form::

    header | our annotations, and no others | properties, beginning with a message-id | application-properties or none
    | one data section, or one value that is a string or binary | nothing behind it

Anything else is None here, and goes the long way. What stands in a pattern is taken from the row that the long way
made, so the two cannot disagree about the meaning of bytes; a property test holds them to the same rows. A pattern that
varies all the time (a creation-time in each message) costs a look-up that fails; `PATTERNS_MAX` bounds what is kept.
"""

from __future__ import annotations

from struct import Struct, error
from typing import Final, NamedTuple

PATTERNS_MAX: Final = 1_024

_HEADER: Final = b"\x00\x53\x70\xc0"
_BEFORE_SEQUENCE: Final = b"\x00\x53\x72\xc1\x42\x04\xa3\x15x-opt-acquit-sequence\x80"
_BEFORE_TIME: Final = b"\xa3\x16x-opt-acquit-posted-at\x83"
_OWN: Final = Struct(f">Q{len(_BEFORE_TIME)}sq")
_OWN_BYTES: Final = len(_BEFORE_SEQUENCE) + _OWN.size
assert _BEFORE_SEQUENCE[4] == _OWN_BYTES - 5
_PROPERTIES: Final = b"\x00\x53\x73\xc0"
_STR8: Final = 0xA1
_APPLICATION_PROPERTIES: Final = b"\x00\x53\x74"
_MAP8: Final = 0xC1
_MAP32: Final = 0xD1
_UINT32: Final = Struct(">I").unpack_from

_BODIES: Final = {
    b"\x00\x53\x75\xa0": False,
    b"\x00\x53\x77\xa0": False,
    b"\x00\x53\x77\xa1": False,
    b"\x00\x53\x75\xb0": True,
    b"\x00\x53\x77\xb0": True,
    b"\x00\x53\x77\xb1": True,
}
"""How a body of one piece begins, and whether its size has four bytes."""
_TEXTS: Final = frozenset((0xA1, 0xB1))
_SEQUENCE_MAX: Final = (1 << 63) - 1


class Plain(NamedTuple):
    """What varies in a plain message, and where."""

    payload: bytes
    pattern: tuple[bytes, int, int, bytes]
    """All that does not vary: header, number of properties, how long they are behind the message-id, and everything
    from there to the form of the body. Together they say where one section ends and the next begins."""
    sequence: int
    posted_ms: int
    message_id: str
    properties_at: int
    """Where the bare message begins."""
    body_at: int


def read_plain(payload: bytes) -> Plain | None:
    """Take the message apart; None where it is not plain. Never raises."""
    try:
        start = 5 + payload[4] if payload.startswith(_HEADER) else 0
        if not payload.startswith(_BEFORE_SEQUENCE, start):
            return None
        sequence, between, posted_ms = _OWN.unpack_from(payload, start + len(_BEFORE_SEQUENCE))
        at = start + _OWN_BYTES
        if between != _BEFORE_TIME or not payload.startswith(_PROPERTIES, at) or payload[at + 6] != _STR8:
            return None
        end = at + 5 + payload[at + 4]
        id_end = at + 8 + payload[at + 7]
        if id_end > end or not payload[at + 5]:
            return None
        body = end
        if payload.startswith(_APPLICATION_PROPERTIES, end):
            form = payload[end + 3]
            if form == _MAP8:
                body = end + 5 + payload[end + 4]
            elif form == _MAP32:
                body = end + 8 + _UINT32(payload, end + 4)[0]
        wide = _BODIES.get(payload[body : body + 4])
        if wide is None:
            return None
        if wide:
            content = body + 8
            size = _UINT32(payload, body + 4)[0]
        else:
            content = body + 5
            size = payload[body + 4]
        if content + size != len(payload) or not 0 < sequence <= _SEQUENCE_MAX:
            return None
        if payload[body + 3] in _TEXTS and not payload[content:].isascii():
            return None
        message_id = payload[at + 8 : id_end].decode()
    except (IndexError, UnicodeDecodeError, error):
        return None
    pattern = (payload[:start], payload[at + 5], end - id_end, payload[id_end : body + 4])
    return Plain(payload, pattern, sequence, posted_ms, message_id, at, content)
