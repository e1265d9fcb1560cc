"""Questions to a running broker (`acquit.client.management`), over a connection of the command's own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from acquit.cli.connecting import BrokerAt
from acquit.client.management import Management, converse


@contextmanager
def management(broker: BrokerAt, timeout_s: float) -> Iterator[Management]:
    """A conversation with a broker, closed at the end."""
    with broker.connect() as connection, converse(connection, timeout_s) as conversation:
        yield conversation
