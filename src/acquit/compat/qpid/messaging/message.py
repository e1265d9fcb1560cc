"""A message as its author and its reader see it, and what can be said of one that was received."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from acquit.compat.qpid.messaging.constants import Constant

if TYPE_CHECKING:
    from acquit.client.blocking import ReceivedMessage
    from acquit.compat.qpid.messaging.endpoints import Receiver

MAP: Final = "amqp/map"
LIST: Final = "amqp/list"
TEXT: Final = "text/plain"


class _Unspecified:
    def __repr__(self) -> str:
        return "UNSPECIFIED"


UNSPECIFIED: Final = _Unspecified()
"""The content type is to follow from the content."""

_SHOWN: Final = ("id", "subject", "user_id", "reply_to", "correlation_id", "priority", "ttl")


def get_type(content: object) -> str | None:
    """The content type that follows from a content: None for bytes, and for what has none."""
    if isinstance(content, str):
        return TEXT
    if isinstance(content, Mapping):
        return MAP
    if isinstance(content, list | tuple):
        return LIST
    return None


class Message:
    """A message: content, standard fields, and properties of the application.

    `content` is a str, bytes, dict, list or None; numbers, bools and UUIDs travel as well. `content_type` follows from
    it: ``text/plain``, None, ``amqp/map``, ``amqp/list``. `id` and `correlation_id` are a str, UUID, int or bytes;
    `ttl` is in seconds; `priority` is 0 to 255, 4 where nothing is said. `durable` None is what the sender's option
    says, else False: then the broker keeps it in memory alone. `redelivered`: somebody may have seen it before.
    """

    def __init__(
        self,
        content: object = None,
        content_type: str | _Unspecified | None = UNSPECIFIED,
        id: object = None,
        subject: str | None = None,
        user_id: str | bytes | None = None,
        reply_to: str | None = None,
        correlation_id: object = None,
        durable: bool | None = None,
        priority: int | None = None,
        ttl: float | None = None,
        properties: dict[str, object] | None = None,
    ) -> None:
        self.id = id
        self.subject = subject
        self.user_id = user_id
        self.reply_to = reply_to
        self.correlation_id = correlation_id
        self.durable = durable
        self.priority = priority
        self.ttl = ttl
        self.redelivered = False
        self.properties: dict[str, object] = {} if properties is None else properties
        self.content_type = get_type(content) if isinstance(content_type, _Unspecified) else content_type
        self.content = content
        self._receiver: Receiver | None = None
        self._delivery: ReceivedMessage | None = None

    def __repr__(self) -> str:
        said = [f"{name}={value!r}" for name in _SHOWN if (value := getattr(self, name)) is not None]
        said += [
            f"{name}={value!r}" for name in ("durable", "redelivered", "properties") if (value := getattr(self, name))
        ]
        if self.content_type != get_type(self.content):
            said.append(f"content_type={self.content_type!r}")
        if self.content is not None:
            said.append(f"content={self.content!r}" if said else repr(self.content))
        return f"Message({', '.join(said)})"


class Disposition:
    """The outcome that `Session.acknowledge` gives a message instead of *accepted*: its type is RELEASED or REJECTED.

    Options of REJECTED are `code` and `text`, which the broker keeps with the dead letter; of RELEASED
    `set_redelivered`: it counts as an attempt that failed.
    """

    def __init__(self, type: Constant | None, **options: object) -> None:
        self.type = type
        self.options = options

    def __repr__(self) -> str:
        return f"Disposition({', '.join([repr(self.type), *(f'{k}={v!r}' for k, v in self.options.items())])})"


__all__ = ["Disposition", "Message"]
