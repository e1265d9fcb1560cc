"""Messages that no client of ours would write."""

from __future__ import annotations


def with_creation_time(created: bytes) -> bytes:
    """A durable message with these octets where its creation time, the tenth property, would be (3.2.4)."""
    fields = b"\x40" * 9 + created + b"\x40" * 3
    properties = b"\x00\x53\x73\xc0" + bytes((len(fields) + 1, 13)) + fields
    return b"\x00\x53\x70\xc0\x02\x01\x41" + properties + b"\x00\x53\x75\xa0\x01x"
