"""Plain fields: texts and byte strings behind a 16-bit length, read back with every bound checked."""

from __future__ import annotations

from struct import Struct
from typing import Final

_LENGTH: Final = Struct("<H")
TEXT_BYTES_MAX: Final = 0xFFFF


def blob_field(value: bytes) -> bytes:
    """Raises ValueError above 65535 bytes."""
    if len(value) > TEXT_BYTES_MAX:
        raise ValueError(f"a field of {len(value)} bytes; at most {TEXT_BYTES_MAX} fit")
    return _LENGTH.pack(len(value)) + value


def text_field(value: str) -> bytes:
    """Raises ValueError above 65535 bytes of UTF-8."""
    return blob_field(value.encode())


class FieldReader:
    """Takes fields off the front of `data`. Every method raises ValueError past the end or on bad UTF-8."""

    __slots__ = ("data", "offset")

    def __init__(self, data: bytes, offset: int = 0) -> None:
        self.data = data
        self.offset = offset

    @property
    def left(self) -> int:
        return len(self.data) - self.offset

    def raw(self, length: int) -> bytes:
        end = self.offset + length
        if end > len(self.data):
            raise ValueError(f"a field of {length} bytes, of which {self.left} are there")
        value = self.data[self.offset : end]
        self.offset = end
        return value

    def blob(self) -> bytes:
        (length,) = _LENGTH.unpack(self.raw(2))
        return self.raw(length)

    def text(self) -> str:
        return self.blob().decode()

    def struct(self, layout: Struct) -> tuple[int, ...]:
        """The fields of one fixed layout of integers."""
        return layout.unpack(self.raw(layout.size))
