"""The message as its author and its reader see it (specification 3.2).

Theory of operation. A `Message` is made of the specification's sections. One that was received keeps its encoded
sections and decodes each when it is first asked for, so who only reads the body pays for little else, and a section
that was never looked at is sent on as it came, byte for byte. Each section is an attribute; the fields of *header* and
*properties* are attributes of the message as well.

The body says which kind of section it becomes::

    bytes            one data section                        (3.2.6)
    Data             several data sections
    AmqpSequence     one or more amqp-sequence sections      (3.2.7)
    AmqpValue        an amqp-value section, explicitly       (3.2.8)
    FileBody         one data section, read from a file as the message is encoded
    anything else    an amqp-value section: str, None, numbers, list, dict, Described...
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Final, Generic, Self, TypedDict, TypeVar, Unpack, cast, overload

from acquit.errors import BodyError, DecodeError, EncodeError
from acquit.protocol import _decoder as d
from acquit.protocol import _encoder as e
from acquit.protocol import body as b
from acquit.protocol import jms
from acquit.protocol import sections as s
from acquit.protocol.body import AmqpSequence, AmqpValue, Body, Content, Data, FileBody
from acquit.protocol.composite import encode_composite
from acquit.protocol.definitions import Header, MessageId, Properties, SectionCode
from acquit.protocol.jms import JmsKind
from acquit.protocol.sections import Sections, encode_header, scan_sections
from acquit.protocol.types import Array, Byte, Described, Symbol, Timestamp, ULong, Value

T = TypeVar("T")


class _Section(Generic[T]):
    """A section, decoded when first asked for and then an ordinary attribute (this has no __set__ on purpose)."""

    def __init__(self, load: Callable[[Sections], T], doc: str) -> None:
        self._load = load
        self.__doc__ = doc

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, message: None, owner: type) -> Self: ...
    @overload
    def __get__(self, message: Message, owner: type) -> T: ...
    def __get__(self, message: Message | None, owner: type) -> Self | T:
        if message is None:
            return self
        value = message.__dict__[self._name] = self._load(message._sections)
        return value


class _Field(Generic[T]):
    """A field of the header or of the properties, as an attribute of the message."""

    def __init__(self, section: str, name: str, doc: str) -> None:
        self._section = section
        self._name = name
        self.__doc__ = doc

    @overload
    def __get__(self, message: None, owner: type) -> Self: ...
    @overload
    def __get__(self, message: Message, owner: type) -> T: ...
    def __get__(self, message: Message | None, owner: type) -> Self | T:
        if message is None:
            return self
        return cast(T, getattr(getattr(message, self._section), self._name))

    def __set__(self, message: Message, value: T) -> None:
        setattr(getattr(message, self._section), self._name, value)


class _Misnomer:
    """A name by which other APIs call an attribute: set here, it would go nowhere."""

    def __init__(self, right: str) -> None:
        self._right = right

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, message: Message | None, owner: type) -> Self:
        if message is None:
            return self
        raise self._error()

    def __set__(self, message: Message, value: object) -> None:
        raise self._error()

    def _error(self) -> AttributeError:
        return AttributeError(f"a message has no {self._name!r}: it is {self._right}")


_NOTHING: Final = scan_sections(b"")
_ABSENT: Final = object()
LARGE_BYTES: Final = 64 * 1024
"""Bytes from which on a body is copied straight into the message, and not into its section first."""


def _datetime(time_ms: int | None) -> datetime | None:
    return None if time_ms is None else Timestamp(time_ms).datetime()


def _annotations(rank: int) -> Callable[[Sections], dict[str, object]]:
    """Keys are symbols, or ulongs, which are reserved (3.2.10); strings are taken for symbols."""
    return lambda sections: _checked(sections.decode_map(rank), (str, ULong))


def _application_properties(sections: Sections) -> dict[str, object]:
    """Keys are strings (3.2.5). Values that may not be there are read all the same, but not written again."""
    return _checked(sections.decode_map(s.APPLICATION_PROPERTIES), (str,))


def _checked(found: dict[Value, Value], keys: tuple[type, ...]) -> dict[str, object]:
    for key in found:
        if not isinstance(key, keys):
            raise DecodeError(f"{key!r:.80} may not be a key of this section")
    return cast("dict[str, object]", found)


def _load_body(sections: Sections) -> Body:
    """The body, by its kind."""
    payload = sections.payload
    offset, end = sections.bounds[s.BODY], sections.bounds[s.BODY + 1]
    code = sections.body_code
    if code == SectionCode.DATA:
        # The one data section of nearly every message: no step into the general reader.
        if payload[offset + 1] == 0x53:
            if payload[offset + 3] == 0xA0 and offset + 5 + payload[offset + 4] == end:
                return payload[offset + 5 : end]
            if payload[offset + 3] == 0xB0 and offset + 8 + d.uint32_at(payload, offset + 4) == end:
                return payload[offset + 8 : end]
        parts = cast("list[bytes]", _values(payload, offset, end))
        return parts[0] if len(parts) == 1 else Data(tuple(parts))
    if code == SectionCode.AMQP_SEQUENCE:
        return AmqpSequence(tuple(cast("list[list[Value]]", _values(payload, offset, end))))
    if code == SectionCode.AMQP_VALUE:
        value = _values(payload, offset, end)[0]
        return AmqpValue(value) if type(value) is bytes else value
    return None


def _values(payload: bytes, offset: int, end: int) -> list[Value]:
    """The values of adjoining sections, whose ends `scan_sections` has checked.

    They share one scope: many small sections must not multiply its allowance.
    """
    values: list[Value] = []
    scope = d.Scope(end - offset)
    try:
        while offset < end:
            offset = d.skip(payload, offset + 1, end)
            value, offset = d.READERS[payload[offset]](payload, offset + 1, scope)
            values.append(value)
    except d.MALFORMED as exc:
        raise d.malformed("body", exc) from exc
    return values


class MessageFields(TypedDict, total=False):
    """Fields of a message besides its body: the keyword arguments of `Message`."""

    durable: bool
    priority: int
    ttl_ms: int | None
    first_acquirer: bool
    delivery_count: int
    message_id: MessageId | None
    user_id: bytes | None
    to: str | None
    subject: str | None
    reply_to: str | None
    correlation_id: MessageId | None
    content_type: str | None
    content_encoding: str | None
    absolute_expiry_time: int | None
    creation_time: int | None
    group_id: str | None
    group_sequence: int | None
    reply_to_group_id: str | None
    delivery_annotations: Mapping[str, object] | None
    annotations: Mapping[str, object] | None
    application_properties: Mapping[str, object] | None
    footer: Mapping[str, object] | None


class Message:
    """A message to send, or one that was received.

    Ids are a str, UUID, bytes, or an int (a ulong). Times are milliseconds since the Unix epoch, `ttl_ms` is
    milliseconds from sending. Keys of annotations are symbols, for which a plain str is taken; those that begin with
    ``x-opt-`` may be ignored by who does not know them (3.2.10). Keys of application properties are strings, their
    values simple types, no list, map or array (3.2.5).

    Reading an attribute of a received message raises DecodeError where that section is malformed; `encode` raises
    EncodeError for what AMQP cannot hold.
    """

    header = _Section(Sections.decode_header, "How to treat the message; changes on the way (3.2.1).")
    delivery_annotations = _Section(_annotations(s.DELIVERY_ANNOTATIONS), "For the next hop only (3.2.2).")
    annotations = _Section(
        _annotations(s.MESSAGE_ANNOTATIONS), "Message annotations: about the infrastructure (3.2.3)."
    )
    properties = _Section(Sections.decode_properties, "The standard properties; never change on the way (3.2.4).")
    application_properties = _Section(_application_properties, "The application's own properties (3.2.5).")
    body = _Section(_load_body, "The content; which kind of section it is, see the module.")
    footer = _Section(_annotations(s.FOOTER), "What could only be computed at the end, such as a hash (3.2.9).")

    durable = _Field[bool]("header", "durable", "Must survive the loss of any one node that takes it.")
    priority = _Field[int]("header", "priority", "0 to 255, higher is more urgent; 4 is normal.")
    ttl_ms = _Field["int | None"]("header", "ttl", "Milliseconds for which the message is live, from when it was sent.")
    first_acquirer = _Field[bool]("header", "first_acquirer", "Nobody has acquired the message before.")
    delivery_count = _Field[int]("header", "delivery_count", "Earlier attempts to deliver that failed.")

    message_id = _Field["MessageId | None"]("properties", "message_id", "Unique for the author.")
    user_id = _Field["bytes | None"]("properties", "user_id", "Who made the message; a broker may check it.")
    to = _Field["str | None"]("properties", "to", "The address of the node it is meant for.")
    subject = _Field["str | None"]("properties", "subject", "What it is about.")
    reply_to = _Field["str | None"]("properties", "reply_to", "The address for an answer.")
    correlation_id = _Field["MessageId | None"]("properties", "correlation_id", "Often the id of what this answers.")
    content_type = _Field["str | None"]("properties", "content_type", "MIME type of data sections (RFC 2046).")
    content_encoding = _Field["str | None"]("properties", "content_encoding", "Such as gzip; of data sections only.")
    absolute_expiry_time = _Field["int | None"]("properties", "absolute_expiry_time", "When it is of no use any more.")
    creation_time = _Field["int | None"]("properties", "creation_time", "When it was made.")
    group_id = _Field["str | None"]("properties", "group_id", "The group of messages that it belongs to.")
    group_sequence = _Field["int | None"]("properties", "group_sequence", "Its place in the group, serial (RFC 1982).")
    reply_to_group_id = _Field["str | None"]("properties", "reply_to_group_id", "The group for answers.")

    ttl = _Misnomer("`ttl_ms`, in milliseconds")
    expiration = _Misnomer("`ttl_ms`, in milliseconds from sending, or `expires_at`")
    id = _Misnomer("`message_id`")
    content = _Misnomer("`body`")
    data = _Misnomer("`body`")
    headers = _Misnomer("`application_properties`")
    delivery_mode = _Misnomer("`durable`, or the `delivery_mode` of the send")
    timestamp = _Misnomer("`creation_time`, or `created_at`")

    def __init__(
        self,
        body: Content | None = None,
        *,
        durable: bool = False,
        priority: int = 4,
        ttl_ms: int | None = None,
        first_acquirer: bool = False,
        delivery_count: int = 0,
        message_id: MessageId | None = None,
        user_id: bytes | None = None,
        to: str | None = None,
        subject: str | None = None,
        reply_to: str | None = None,
        correlation_id: MessageId | None = None,
        content_type: str | None = None,
        content_encoding: str | None = None,
        absolute_expiry_time: int | None = None,
        creation_time: int | None = None,
        group_id: str | None = None,
        group_sequence: int | None = None,
        reply_to_group_id: str | None = None,
        delivery_annotations: Mapping[str, object] | None = None,
        annotations: Mapping[str, object] | None = None,
        application_properties: Mapping[str, object] | None = None,
        footer: Mapping[str, object] | None = None,
    ) -> None:
        self._sections = _NOTHING
        self.header = Header(durable, priority, ttl_ms, first_acquirer, delivery_count)
        self.properties = Properties(
            message_id,
            user_id,
            to,
            subject,
            reply_to,
            correlation_id,
            content_type,
            content_encoding,
            absolute_expiry_time,
            creation_time,
            group_id,
            group_sequence,
            reply_to_group_id,
        )
        self.body = cast("Body", body)
        # A map that nobody gave is not made here: _Section makes it of the empty _NOTHING when it is asked for.
        if delivery_annotations is not None:
            self.delivery_annotations = _mapping("delivery_annotations", delivery_annotations)
        if annotations is not None:
            self.annotations = _mapping("annotations", annotations)
        if application_properties is not None:
            self.application_properties = _mapping("application_properties", application_properties)
        if footer is not None:
            self.footer = _mapping("footer", footer)

    @classmethod
    def from_json(
        cls, value: object, *, default: Callable[[object], object] | None = None, **fields: Unpack[MessageFields]
    ) -> Self:
        """A message whose body says `value` in JSON: one data section in UTF-8, of content type ``application/json``
        unless that is given. `default` makes what JSON does not have of values that it does, as for `json.dumps`.

        Raises EncodeError for a value that has no JSON form; NaN and the infinities have none.
        """
        fields.setdefault("content_type", "application/json")
        return cls(b.to_json(value, default), **fields)

    @classmethod
    def from_file(cls, file: str | Path | b.BinaryReader, **fields: Unpack[MessageFields]) -> Self:
        """A message whose body is the content of a file, as one data section.

        The file, a path or one that is open for reading bytes, is read when the message is sent, in chunks and into the
        buffer that it is sent from: that is all the memory it takes. Then OSError says that it cannot be read. See
        `FileBody`.
        """
        return cls(FileBody(file), **fields)

    @classmethod
    def decode(cls, payload: bytes) -> Self:
        """The message in `payload` (message-format 0).

        Raises DecodeError where its sections cannot be found; what is inside of them is decoded, and can turn out
        malformed, when an attribute is first read.
        """
        return cls.of_sections(scan_sections(payload))

    @classmethod
    def of_sections(cls, sections: Sections) -> Self:
        """The message whose sections have been found already."""
        message = cls.__new__(cls)
        message._sections = sections
        return message

    def encode(self) -> bytes:
        """The bytes to transfer (message-format 0). Sections that were not looked at go out as they came in.

        Raises EncodeError naming the section for what AMQP cannot hold.
        """
        return self.encode_with({})

    def encode_with(self, instead: Mapping[str, bytes]) -> bytes:
        """Encode the message with other sections, by name and encoded, in place of some of its own."""
        known = self.__dict__
        if type(self) is Message and not _ATTRIBUTES.issuperset(known):
            raise _misspelt(min(known.keys() - _ATTRIBUTES))
        bounds = self._sections.bounds
        parts: list[bytes | memoryview] = []
        for rank, (name, write) in enumerate(_WRITERS):
            if name in instead:
                parts.append(instead[name])
            elif name in known:
                written = write(known[name])
                if isinstance(written, bytes):
                    parts.append(written)
                else:  # a large body: its pieces meet in the one buffer that is made of all
                    parts.extend(written)
            elif bounds[rank] != bounds[rank + 1]:
                parts.append(memoryview(self._sections.payload)[bounds[rank] : bounds[rank + 1]])
        return b.join(parts) if type(known.get("body")) is FileBody else b"".join(parts)

    # -- the body, as programs want it ---------------------------------------------------------------------------------

    @property
    def text(self) -> str:
        """The body as text: a string as it is, data by the charset of the content type, by default UTF-8.

        Raises BodyError where it is neither, or no such text; DecodeError where it is malformed.
        """
        body = self.body
        return body if type(body) is str else b.text_of(body, self.content_type, self.content_encoding)

    def json(self) -> object:
        """Return what the body says in JSON, whether it is data or a string. Of the content type only the charset is
        asked for, by default UTF-8.

        Raises BodyError, a ValueError, where it is no text, or no JSON, and says where; DecodeError where the body is
        malformed.
        """
        return b.json_of(self.body, self.content_type, self.content_encoding)

    def body_views(self) -> list[memoryview]:
        """The body's data sections without a copy: views of the message as it was transferred.

        Raises BodyError for a body of another kind, DecodeError where it is malformed.
        """
        known = self.__dict__.get("body", _ABSENT)
        if known is _ABSENT:
            found = b.views(self._sections)
            if found is not None:
                return found
            known = self.body
        if type(known) is bytes:
            return [memoryview(known)]
        if isinstance(known, Data):
            return [memoryview(part) for part in known.parts]
        raise BodyError(f"{b.describe(known)}, and has no data sections to view")

    def save_body(self, file: str | Path | b.BinaryWriter) -> int:
        """Write the body to a file: data sections one after another, or a string as UTF-8. Returns how many bytes.

        A path is made, or emptied first; a file that is open for writing bytes is written to where it stands. Nothing
        is decoded or joined, so it takes no memory beyond the message. Raises BodyError for a body of another kind,
        DecodeError where it is malformed, and OSError.
        """
        if "body" in self.__dict__ or self._sections.body_code != SectionCode.DATA:
            body = self.body.value if isinstance(self.body, AmqpValue) else self.body
            if isinstance(body, str):
                return b.save([body.encode()], file)
        return b.save(self.body_views(), file)

    # -- times and kinds -----------------------------------------------------------------------------------------------

    @property
    def created_at(self) -> datetime | None:
        """`creation_time` as a datetime in UTC, which may be set to any datetime that has a time zone."""
        return _datetime(self.creation_time)

    @created_at.setter
    def created_at(self, when: datetime | None) -> None:
        self.creation_time = None if when is None else Timestamp.of(when)

    @property
    def expires_at(self) -> datetime | None:
        """`absolute_expiry_time` as a datetime in UTC, which may be set to any datetime that has a time zone."""
        return _datetime(self.absolute_expiry_time)

    @expires_at.setter
    def expires_at(self, when: datetime | None) -> None:
        self.absolute_expiry_time = None if when is None else Timestamp.of(when)

    @property
    def jms_kind(self) -> JmsKind:
        """The kind of message that a JMS client sees: as the annotation ``x-opt-jms-msg-type`` says, else as body and
        content type do. Setting it writes the annotation; raises BodyError where the body cannot be read as that."""
        return jms.kind_of(self.annotations.get(jms.ANNOTATION), self.body, self.content_type)

    @jms_kind.setter
    def jms_kind(self, kind: JmsKind) -> None:
        jms.check_fits(JmsKind(kind), self.body)
        self.annotations[jms.ANNOTATION] = Byte(kind)

    def __eq__(self, other: object) -> bool:
        """Do both say the same? How they are encoded does not count."""
        if not isinstance(other, Message):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name, _ in _WRITERS)

    __hash__ = None  # type: ignore[assignment]  # it can be changed

    def __repr__(self) -> str:
        said = [f"{self.body!r:.60}"]
        for section in (self.header, self.properties):
            said += [
                f"{field.name}={getattr(section, field.name)!r}"
                for field in section.FIELDS
                if getattr(section, field.name) != field.default
            ]
        said += [
            f"{name}={getattr(self, name)!r:.200}"
            for name in ("delivery_annotations", "annotations", "application_properties", "footer")
            if getattr(self, name)
        ]
        return f"{type(self).__name__}({', '.join(said)})"


_ATTRIBUTES: Final = frozenset({"_sections", *(name for name, what in vars(Message).items() if type(what) is _Section)})
"""Attributes that a message stores; all other names that it has stand for something in these."""


def _misspelt(name: str) -> EncodeError:
    from difflib import get_close_matches

    names = [name for name, what in vars(Message).items() if isinstance(what, _Section | _Field | property)]
    meant = get_close_matches(name, names, 1)
    hint = f"did you mean {meant[0]!r}?" if meant else "what is meant for the receiver goes in `application_properties`"
    return EncodeError(f"a message has no {name!r}: {hint}")


# -- encoding, section by section -------------------------------------------------------------------------------------


def _mapping(name: str, value: object) -> dict[str, object]:
    if not isinstance(value, Mapping):
        raise EncodeError(f"{name} must be a mapping, got {value!r:.80}")
    return dict(value)


def _write_header(header: Header) -> bytes:
    return encode_header(header.durable, header.priority, header.ttl, header.first_acquirer, header.delivery_count)


_EMPTY_PROPERTIES: Final = encode_composite(Properties())


def _write_properties(properties: Properties) -> bytes:
    section = encode_composite(properties)
    return b"" if section == _EMPTY_PROPERTIES else section


def _map_writer(name: str, code: int, check: Callable[[object, object], object]) -> Callable[[object], bytes]:
    start = b"\x00" + e.ulong_bytes(code)

    def write(value: object) -> bytes:
        if value is not None and not isinstance(value, Mapping):
            raise EncodeError(f"{name} must be a mapping, got {value!r:.80}")
        if not value:
            return b""
        items = bytearray()
        key = None
        try:
            for key, item in cast("dict[object, object]", value).items():
                e.write_value(items, check(key, item), d.DEPTH_MAX)
                e.write_value(items, item, d.DEPTH_MAX)
        except e.UNENCODABLE as exc:
            raise EncodeError(f"{name}[{key!r:.80}]: {exc}") from exc
        return start + e.compound_bytes(1, 2 * len(cast("dict[object, object]", value)), items)

    return write


def _annotation_key(key: object, item: object) -> object:
    """3.2.10: a symbol, for which a plain str is taken; the ulongs are reserved but pass."""
    if type(key) is str:
        return Symbol(key)
    if isinstance(key, Symbol | ULong):
        return key
    raise EncodeError("the key of an annotation is a symbol")


def _property_key(key: object, item: object) -> object:
    """3.2.5: strings, and simple values."""
    if not isinstance(key, str):
        raise EncodeError("the key of an application property is a string")
    if isinstance(item, list | tuple | dict | Array | Described):
        raise EncodeError("an application property is a simple value, no list, map, array or described value")
    return str(key)


def _write_body(body: object) -> bytes | list[bytes | memoryview]:
    if type(body) is bytes:  # exactly: a Decimal32 is a kind of bytes too
        if len(body) >= LARGE_BYTES:
            return _data_pieces((body,))
        return b"\x00\x53\x75" + e.binary_bytes(body)
    if isinstance(body, bytearray | memoryview):
        view = memoryview(body)
        return _data_pieces((view.cast("B") if view.c_contiguous else bytes(view),))
    if isinstance(body, Data):
        return _data_pieces(body.parts)
    if isinstance(body, AmqpSequence):
        return _write_several(b"\x00\x53\x76", [e.encode(list(items)) for items in body.lists])
    if isinstance(body, FileBody):
        return cast("list[bytes | memoryview]", [body])  # for `join`
    return s.VALUE_HEAD + e.encode(body.value if isinstance(body, AmqpValue) else body)


def _data_pieces(parts: tuple[bytes | memoryview, ...]) -> list[bytes | memoryview]:
    """Data sections in pieces, so that the next to copy them is who joins the message."""
    pieces: list[bytes | memoryview] = []
    for part in parts:
        size = len(part)
        if size > b.SECTION_BYTES_MAX:
            raise EncodeError(f"a body of {size} bytes; a data section holds {b.SECTION_BYTES_MAX} at most")
        pieces.append(s.data_head(size))
        pieces.append(part)
    if not pieces:
        raise EncodeError("a body is at least one section (3.2)")
    return pieces


def _write_several(start: bytes, values: list[bytes]) -> bytes:
    if not values:
        raise EncodeError("a body is at least one section (3.2)")
    return b"".join([start + value for value in values])


_WRITERS: Final = cast(
    "tuple[tuple[str, Callable[[object], bytes | list[bytes | memoryview]]], ...]",
    (
        ("header", _write_header),
        (
            "delivery_annotations",
            _map_writer("delivery_annotations", SectionCode.DELIVERY_ANNOTATIONS, _annotation_key),
        ),
        ("annotations", _map_writer("annotations", SectionCode.MESSAGE_ANNOTATIONS, _annotation_key)),
        ("properties", _write_properties),
        (
            "application_properties",
            _map_writer("application_properties", SectionCode.APPLICATION_PROPERTIES, _property_key),
        ),
        ("body", _write_body),
        ("footer", _map_writer("footer", SectionCode.FOOTER, _annotation_key)),
    ),
)
"""Attribute and encoder of each section, by rank."""


__all__ = ["AmqpSequence", "AmqpValue", "Body", "Content", "Data", "FileBody", "Message", "MessageFields"]
