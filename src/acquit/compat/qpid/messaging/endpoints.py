"""Connections, sessions, senders and receivers, under the name that the API gives their module."""

from __future__ import annotations

from acquit.compat.qpid.connection import Connection
from acquit.compat.qpid.endpoint import Endpoint
from acquit.compat.qpid.links import Receiver, Sender
from acquit.compat.qpid.session import Session

__all__ = ["Connection", "Endpoint", "Receiver", "Sender", "Session"]
