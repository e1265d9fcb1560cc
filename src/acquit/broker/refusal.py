"""The error with which the broker refuses a link, or one posting."""

from __future__ import annotations

from acquit.errors import RemoteProtocolError


class Refused(RemoteProtocolError):
    """A link or a posting that is not taken, with the condition for the peer; nothing of it is left."""


__all__ = ["Refused"]
