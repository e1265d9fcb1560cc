"""The column `exact`: what other columns lose of a message because they say it as text, and how the sink restores it.

`message_id` is text, and so are the values of `application_properties` and `annotations`, because a column has one
type: the uuid, the ulong and the string that look alike are one there, and so are int 5, long 5 and "5". The column
`exact` has what was lost, as an AMQP map, and is null where nothing was, as in most messages. Its keys are `footer`
(the section as it was sent) and names of columns:

- `message_id`, `correlation_id`: where they are no text.
- `application_properties`, `annotations`: the whole map, where a value or a key is none; without our own annotations.
- `expires_at`: where it is beyond what a TIMESTAMP can hold.
- `address`: where the message says the address that was read. The column has that also where it says nothing.
- `body`: the sections of the body as they were sent, where the column is JSON, or put together of several.

Whoever changes a column means what it says then: the sink takes a value of `exact` only while it still makes the text
that the column has.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from acquit.errors import DecodeError
from acquit.protocol import sections as s
from acquit.protocol.codec import decode, encode
from acquit.protocol.sections import Sections
from acquit.protocol.types import Value

NOTHING: Final[Mapping[str, Value]] = {}
_TEXTS: Final = (str, type(None))


def lost_of_map(entries: Mapping[Value, Value], key: type) -> dict[Value, Value] | None:
    """The entries, unless all of them are text under keys of the type `key`."""
    if all(type(value) in _TEXTS and type(name) is key for name, value in entries.items()):
        return None
    return dict(entries)


def exact_of(sections: Sections, lost: Mapping[str, Value], *, whole_body: bool) -> bytes | None:
    """The column, of what the other columns lose: values by their names, None where they do not. `whole_body`: the body
    is one piece of the message, so that its column has it."""
    found: dict[Value, Value] = {name: value for name, value in lost.items() if value is not None}
    if sections.has(s.BODY) and not whole_body:
        found["body"] = sections.section(s.BODY)
    if sections.has(s.FOOTER):
        found["footer"] = sections.section(s.FOOTER)
    return encode(found) if found else None


@lru_cache(maxsize=256)
def read_exact(column: bytes | None) -> Mapping[str, Value]:
    """Return the values that `exact_of` wrote. Raises DecodeError."""
    if column is None:
        return NOTHING
    value, end = decode(column)
    if not isinstance(value, dict) or end != len(column):
        raise DecodeError("the column exact is no AMQP map")
    return {str(name): found for name, found in value.items()}


__all__ = ["NOTHING", "exact_of", "lost_of_map", "read_exact"]
