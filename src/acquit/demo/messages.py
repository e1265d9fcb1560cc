"""The form of a posting and of its forwarded copy.

Both are *reproducible*: made from the manifest alone, so that every attempt to post a file, and every attempt to
forward it, is the same bare message byte for byte, under the same message id. That is what lets a reader at the end
recognise a second copy as a copy. (Same id and other bytes would be two different messages, and both would be kept.)
What differs between attempts, such as who forwarded it, is in the logs and not in the message.
"""

from __future__ import annotations

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


def posting(manifest: Manifest, entry: ManifestEntry) -> Message:
    """Return the durable message for one file. Reads the head of the file; raises OSError when that fails."""
    with (manifest.root / entry.path).open("rb") as stream:
        content = stream.read(HEAD_BYTES_MAX + 1)  # one more shows whether there is more
    return Message(
        head(content, HEAD_BYTES_MAX),
        durable=True,
        message_id=entry.identity,
        subject="posted",
        content_type=Symbol(content_type(entry.path)),
        creation_time=Timestamp(manifest.frozen_at_ms),  # not when this attempt is made: see above
        application_properties={
            "path": entry.path,
            "size": entry.size,
            "mtime": Timestamp(entry.mtime_ms),
            "sha256": entry.sha256,
        },
    )


def forwarded(message: Message) -> Message:
    """Return the durable message that says: the file of this posting was checked and is what it claims to be."""
    return Message(
        message.body,
        durable=True,
        message_id=message.message_id,
        subject="checked",
        content_type=message.content_type,
        creation_time=message.creation_time,
        application_properties=message.application_properties,
    )


def read(message: Message) -> tuple[ManifestEntry, bytes]:
    """Return the file of a posting or a forwarded copy, and its head. Raises DecodeError when it is neither."""
    match message.application_properties, message.body:
        case {"path": str(path), "size": int(size), "mtime": int(mtime_ms), "sha256": str(sha256)}, bytes(body):
            return ManifestEntry(path=path, size=int(size), mtime_ms=int(mtime_ms), sha256=sha256), body
        case _:
            raise DecodeError("expected a message with path, size, mtime and sha256 as application properties")
