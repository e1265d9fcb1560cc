"""What a selector's names mean for one message."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from acquit.broker.message import Message


class Fields(dict[str, object]):
    """Values by name; a name that has none is null."""

    __slots__ = ()

    def __missing__(self, name: str) -> object:
        return None


def fields_of(message: Message) -> Fields:
    """The fields of a message in a queue; its body must be in memory where a selector `needs_body`."""
    raise NotImplementedError


def fields_of_posting(
    payload: bytes, address: str, *, durable: bool, priority: int, expires_at_ms: int, size_bytes: int
) -> Fields:
    """The fields of a message that is not in a queue yet: `payload` is its sections, with or without a header."""
    raise NotImplementedError
