from __future__ import annotations

from pathlib import Path

import pytest

from acquit import Message
from acquit.demo.manifest import freeze
from acquit.demo.messages import forwarded, posting, read
from acquit.errors import DecodeError
from acquit.protocol.types import Timestamp


def test_each_attempt_to_post_and_to_forward_is_the_same_message(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x = 1\n")
    manifest = freeze(tmp_path, files_max=1, file_bytes_max=100, now_ms=7)
    (entry,) = manifest.entries
    first, again = (Message.decode(posting(manifest, entry).encode()) for _ in range(2))
    # What the broker writes on one of them.
    again.delivery_count, again.annotations = 2, {"x-opt-acquit-sequence": 9}
    assert read(first) == (entry, b"x = 1\n")
    copies = [forwarded(first).encode(), forwarded(again).encode()]
    assert copies[0] == copies[1]
    copy = Message.decode(copies[0])
    assert read(copy) == read(first)
    assert (copy.subject, copy.message_id, copy.durable) == ("checked", entry.identity, True)
    assert isinstance(copy.application_properties["mtime"], Timestamp)


def test_another_message_is_no_posting() -> None:
    with pytest.raises(DecodeError, match="application properties"):
        read(Message(b"x", application_properties={"path": "a", "size": "1"}))
