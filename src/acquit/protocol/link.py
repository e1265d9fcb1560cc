"""Links (specification 2.6): the base and the two roles under one name."""

from __future__ import annotations

from acquit.protocol.endpoint import Link, LinkState
from acquit.protocol.receiver import ReceivingLink
from acquit.protocol.sender import SendingLink

__all__ = ["Link", "LinkState", "ReceivingLink", "SendingLink"]
