"""Bodies that are more than one Python value, and bodies as text, as JSON and in files.

Theory of operation. Which section a body becomes is said in `message`; here are the kinds that need a class of their
own, and what programs do with bodies all day. None of it guesses silently: a body that is not what was asked for raises
`BodyError`, which says what it is instead.

**Large bodies.** The engine sends a message from one buffer that holds it whole, and delivers it as one, so the least
that a message of *n* bytes takes is *n* on either side, and `ConnectOptions.max_message_size` bounds it. More is not
needed: `join` writes a file into that buffer in chunks, and `views` shows the body of a received message where it
lies, so that it can be written to a file without being decoded, which would make a second one. (Files are the one
effect in this package: to hand them to who performs effects would be to hand over the buffer as well.)
"""

from __future__ import annotations

import codecs
import io
import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final, Protocol, TypeAlias, cast

from acquit.errors import BodyError, EncodeError
from acquit.protocol import _decoder as d
from acquit.protocol.definitions import SectionCode
from acquit.protocol.jsonform import read_json
from acquit.protocol.sections import BODY, Sections
from acquit.protocol.types import Encodable, Value

CHUNK_BYTES: Final = 256 * 1024
SECTION_BYTES_MAX: Final = 0xFFFF_FFFF
"""A data section is a binary, whose size has four bytes (1.6.19)."""


@dataclass(frozen=True, slots=True)
class Data:
    """A body of any number of data sections but one (one is plain bytes). Their borders mean nothing to AMQP."""

    parts: tuple[bytes, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "parts", tuple(self.parts))

    def __bytes__(self) -> bytes:
        return b"".join(self.parts)


@dataclass(frozen=True, slots=True)
class AmqpSequence:
    """A body of amqp-sequence sections, each a list of values."""

    lists: tuple[list[Value], ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "lists", tuple(self.lists))


@dataclass(frozen=True, slots=True)
class AmqpValue:
    """An amqp-value section for what would not become one by itself: bytes."""

    value: Value


class BinaryReader(Protocol):
    """A file that is open for reading bytes."""

    def read(self, size: int, /) -> bytes | None:
        """Return up to `size` bytes; b"" at the end."""


class BinaryWriter(Protocol):
    """A file that is open for writing bytes."""

    def write(self, data: memoryview, /) -> object:
        """Write them."""


@dataclass(frozen=True, slots=True)
class FileBody:
    """The content of a file as one data section. It is read when the message is encoded, that is when it is sent: it
    must not change before. A path is opened then; a file that is open already is read from where it stands to its end,
    and one that cannot seek can be sent once.
    """

    file: str | Path | BinaryReader

    def copy_into(self, out: io.BytesIO) -> None:
        """Append the section. Raises EncodeError for what a section cannot hold, and OSError."""
        if isinstance(self.file, str | Path):
            with open(self.file, "rb") as opened:
                _copy_file(opened, out)
        else:
            _copy_file(self.file, out)


Body: TypeAlias = Value | Data | AmqpSequence | AmqpValue | FileBody
"""Bodies that messages have when they are read."""

Content: TypeAlias = Encodable | Data | AmqpSequence | AmqpValue | FileBody
"""Bodies that programs may give to a message, but for None."""


def _measure(file: IO[bytes]) -> tuple[int | None, int]:
    """Return the file's position, None if it cannot seek, and the number of bytes from there to its end."""
    try:
        start = file.tell()
        end = file.seek(0, io.SEEK_END)
        file.seek(start)
    except (AttributeError, OSError):
        return None, 0
    return start, end - start


def _copy_file(file: BinaryReader, out: io.BytesIO) -> None:
    start, size = _measure(cast("IO[bytes]", file))
    head = out.tell()
    out.write(b"\x00\x53\x75\xb0\x00\x00\x00\x00")
    content = out.tell()
    if size > SECTION_BYTES_MAX:
        raise EncodeError(f"a file of {size} bytes; a data section holds {SECTION_BYTES_MAX} at most")
    if size:
        # All the room at once: a buffer that grows is copied as it does.
        out.seek(content + size - 1)
        out.write(b"\x00")
        out.seek(content)
    while chunk := _read(file):
        out.write(chunk)
    end = out.tell()
    out.truncate()  # it may have been shorter than it said
    if end - content > SECTION_BYTES_MAX:
        raise EncodeError(f"a file of {end - content} bytes; a data section holds {SECTION_BYTES_MAX} at most")
    out.seek(head + 4)
    out.write((end - content).to_bytes(4))
    out.seek(end)
    if start is not None:
        cast("IO[bytes]", file).seek(start)  # so that it can be sent again


def _read(file: BinaryReader) -> bytes:
    chunk: object = file.read(CHUNK_BYTES)
    if isinstance(chunk, bytes):
        return chunk
    # A text, or nothing from a file that does not wait; to take that for the end would be to cut the body off.
    raise EncodeError(f"a file for a body must be open for reading bytes, and wait for them; read gave {chunk!r:.40}")


def join(parts: Iterable[bytes | memoryview | FileBody]) -> bytes:
    """Join encoded sections, and files as sections, into one buffer."""
    out = io.BytesIO()
    for part in parts:
        if isinstance(part, FileBody):
            part.copy_into(out)
        else:
            out.write(part)
    return out.getvalue()  # its own buffer, and no copy of it


# -- reading ----------------------------------------------------------------------------------------------------------


def views(sections: Sections) -> list[memoryview] | None:
    """The content of the data sections of an encoded message, where it lies; None where the body is something else.

    Raises DecodeError for one that is malformed.
    """
    if sections.body_code != SectionCode.DATA:
        return None
    payload = sections.payload
    whole = memoryview(payload)
    offset, end = sections.bounds[BODY], sections.bounds[BODY + 1]
    found = []
    try:
        while offset < end:
            value = d.skip(payload, offset + 1, end)
            offset = d.skip(payload, value, end)
            found.append(whole[value + (2 if payload[value] == 0xA0 else 5) : offset])
    except d.MALFORMED as exc:
        raise d.malformed("body", exc) from exc
    return found


def describe(body: object) -> str:
    """Describe a body in words, for messages to people."""
    match body:
        case None:
            return "the message has no body, or null"
        case bytes() | Data() | FileBody():
            return "the body is binary data"
        case AmqpSequence():
            return "the body is a row of lists (amqp-sequence)"
        case AmqpValue():
            return f"the body is {_article(body.value)} (amqp-value)"
        case _:
            return f"the body is {_article(body)} (amqp-value)"


def _article(value: object) -> str:
    return f"a {type(value).__name__}"


def data_of(body: object) -> bytes | None:
    """The octets of a body of data sections, joined; None for any other."""
    if type(body) is bytes:
        return body
    return bytes(body) if isinstance(body, Data) else None


_CHARSET: Final = re.compile(r";\s*charset\s*=\s*\"?([^\s\";]+)", re.IGNORECASE)
_NO_CHARSETS: Final = frozenset(("idna", "punycode", "raw-unicode-escape", "unicode-escape", "undefined"))
"""Encodings that Python knows by name beside charsets: notations, of which two take time by the square of the text's
length. A message names its own charset, and its sender must not choose among these."""


def _is_known(charset: str) -> bool:
    try:
        return codecs.lookup(charset).name not in _NO_CHARSETS
    except (LookupError, ValueError):  # ValueError: a NUL in it
        return False


def text_of(body: object, content_type: str | None, content_encoding: str | None) -> str:
    """A body as text: a string as it is, data sections by the charset of the content type, by default UTF-8.

    Raises BodyError.
    """
    value = body.value if isinstance(body, AmqpValue) else body
    if isinstance(value, str):
        return str(value)
    if (data := data_of(body)) is not None:
        _check_plain(content_encoding)
        named = _CHARSET.search(content_type or "")
        charset = named[1] if named else "utf-8"
        if not _is_known(charset):
            raise BodyError(f"the body is in charset {charset!r}, which is not known here")
        try:
            return data.decode(charset)
        except UnicodeDecodeError as exc:
            raise BodyError(f"the body is no {charset} text: byte {exc.start} of {len(data)}: {exc.reason}") from exc
        except (LookupError, UnicodeError) as exc:
            raise BodyError(f"the body is no {charset} text: {exc}") from exc
    raise BodyError(f"{describe(body)}, and not text")


def json_of(body: object, content_type: str | None, content_encoding: str | None) -> object:
    """The value that a body says in JSON (RFC 8259). Raises BodyError."""
    text = text_of(body, content_type, content_encoding)
    try:
        return read_json(text)
    except json.JSONDecodeError as exc:
        raise BodyError(f"the body is not JSON: {exc}, at {text[exc.pos : exc.pos + 20]!r}") from exc
    except ValueError as exc:
        raise BodyError(f"the body is not JSON: {exc}") from exc
    except RecursionError as exc:
        raise BodyError("the body is JSON that is nested too deeply") from exc


def to_json(value: object, default: Callable[[object], object] | None) -> bytes:
    """A value as JSON in UTF-8. Raises EncodeError for what JSON does not have, NaN among it."""
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=default).encode()
    except (TypeError, ValueError, RecursionError) as exc:
        raise EncodeError(f"the value has no JSON form: {exc}") from exc


def _check_plain(content_encoding: str | None) -> None:
    if content_encoding is not None and content_encoding.lower() not in ("", "identity"):
        raise BodyError(f"the body is compressed (content-encoding {content_encoding}): decompress `body` first")


def save(pieces: Iterable[bytes | memoryview], file: str | Path | BinaryWriter) -> int:
    """Write them to a file, which is made or emptied if it is a path; returns how many bytes. Raises OSError."""
    if isinstance(file, str | Path):
        with open(file, "wb") as opened:
            return save(pieces, opened)
    size = 0
    for piece in pieces:
        view = memoryview(piece)
        size += len(view)
        while len(view):
            written = file.write(view[:CHUNK_BYTES])
            # An unbuffered file may take less than it is given.
            view = view[written if isinstance(written, int) else CHUNK_BYTES :]
    return size
