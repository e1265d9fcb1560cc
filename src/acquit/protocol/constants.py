"""Values that everyone shares: outcomes without fields, and the union of outcomes."""

from __future__ import annotations

from typing import Final, TypeAlias

from acquit.protocol.definitions import Accepted, Modified, Rejected, Released

Outcome: TypeAlias = Accepted | Rejected | Released | Modified
"""Outcome that can settle a message (3.4). *Declared* is formally one too, but only of a coordinator (4.5.5)."""

ACCEPTED: Final = Accepted()
RELEASED: Final = Released()

AMQP_HEADER: Final = b"AMQP\x00\x01\x00\x00"
"""Opens a connection without, or behind, a security layer (2.2)."""

SASL_HEADER: Final = b"AMQP\x03\x01\x00\x00"
"""Opens the SASL security layer (5.3.1)."""

TLS_HEADER: Final = b"AMQP\x02\x01\x00\x00"
"""Opens the TLS security layer inside of a connection (5.2.1). It is for whoever owns the socket: what follows
are TLS's bytes, and then another header."""
