"""The form of a posting and of its forwarded copy.

Both are *reproducible*: made from the manifest alone, so that every attempt to post a file, and every attempt to
forward it, is the same bare message byte for byte, under the same message id. That is what lets a reader at the end
recognise a second copy as a copy. (Same id and other bytes would be two different messages, and both would be kept.)
What differs between attempts, such as who forwarded it, is in the logs and not in the message.
"""

from __future__ import annotations

from dataclasses import dataclass

from acquit import Message
from acquit.demo.checks import content_type
from acquit.demo.manifest import Manifest, ManifestEntry, head
from acquit.errors import DecodeError
from acquit.protocol.types import Symbol, Timestamp

FILES = "files"
"""Queue where producers post and workers acquire."""
INGEST = "ingest"
"""Queue where workers forward the files that passed, and from which the table is filled."""
DEAD_LETTERS = "DLQ"
"""The broker's dead letter address out of the box."""

HEAD_BYTES_MAX = 4096
POSTED = "posted"
CHECKED = "checked"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileFacts:
    """The facts about its file that a message carries."""

    identity: str
    path: str
    size: int
    mtime_ms: int
    sha256: str
    head: bytes


def posting(manifest: Manifest, entry: ManifestEntry) -> Message:
    """The durable message for one file. Reads the head of the file; raises OSError when that fails."""
    with manifest.locate(entry.path).open("rb") as stream:
        # Three more bytes than are kept show whether the cut would fall inside a character.
        content = stream.read(HEAD_BYTES_MAX + 3)
    return Message(
        durable=True,
        message_id=entry.identity,
        subject=POSTED,
        content_type=Symbol(content_type(entry.path)),
        # When the manifest was frozen and not when this attempt is made: see the module's first paragraph.
        creation_time=Timestamp(manifest.frozen_at_ms),
        application_properties={
            "path": entry.path,
            "size": entry.size,
            "mtime": Timestamp(entry.mtime_ms),
            "sha256": entry.sha256,
        },
        body=head(content, HEAD_BYTES_MAX),
    )


def forwarded(row: FileFacts, frozen_at_ms: int) -> Message:
    """The durable message that says: this file was checked and is what it claims to be."""
    return Message(
        durable=True,
        message_id=row.identity,
        subject=CHECKED,
        content_type=Symbol(content_type(row.path)),
        creation_time=Timestamp(frozen_at_ms),
        application_properties={
            "path": row.path,
            "size": row.size,
            "mtime": Timestamp(row.mtime_ms),
            "sha256": row.sha256,
        },
        body=row.head,
    )


def read(message: Message) -> FileFacts:
    """The row a posting or a forwarded copy describes. Raises DecodeError when it is neither."""
    properties = message.application_properties or {}
    identity, path, sha256 = message.message_id, properties.get("path"), properties.get("sha256")
    size, mtime, body = properties.get("size"), properties.get("mtime"), message.body
    if not (
        isinstance(identity, str)
        and isinstance(path, str)
        and isinstance(sha256, str)
        and isinstance(size, int)
        and isinstance(mtime, int)
        and isinstance(body, bytes)
    ):
        raise DecodeError("expected a message with path, size, mtime and sha256 as application properties")
    return FileFacts(identity=identity, path=path, size=int(size), mtime_ms=int(mtime), sha256=sha256, head=body)
