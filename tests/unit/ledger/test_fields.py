"""Plain fields."""

from __future__ import annotations

from struct import Struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acquit.ledger.fields import FieldReader, blob_field, text_field


@given(st.text(max_size=50), st.binary(max_size=50), st.integers(0, 2**32 - 1))
def test_fields_come_back_in_order(text: str, blob: bytes, number: int) -> None:
    layout = Struct("<I")
    reader = FieldReader(text_field(text) + blob_field(blob) + layout.pack(number) + b"rest")
    assert (reader.text(), reader.blob(), reader.struct(layout)) == (text, blob, (number,))
    assert (reader.left, reader.raw(4), reader.left) == (4, b"rest", 0)


@pytest.mark.parametrize("data", [b"", b"\x01", b"\x05\x00abc", b"\x02\x00\xff\xfe"])
def test_what_is_not_there_or_no_text(data: bytes) -> None:
    with pytest.raises(ValueError, match="field of|utf-8"):
        FieldReader(data).text()


def test_a_field_that_is_too_long() -> None:
    assert len(blob_field(bytes(65535))) == 65537
    with pytest.raises(ValueError, match="65536 bytes; at most 65535"):
        text_field("x" * 65536)
