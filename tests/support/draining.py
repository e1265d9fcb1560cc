"""Everything that a queue has for a receiver."""

from __future__ import annotations

from collections.abc import Iterator

import acquit

_LONG_S = 60.0
_SHORT_S = 0.05


def take_each(receiver: acquit.Receiver, most: int = 1) -> Iterator[acquit.ReceivedMessage]:
    """Until the broker says that there is no more: a while without a message may be one that the disk took. `most`: so
    many are received at once."""
    while True:
        messages = receiver.receive_many(most, _SHORT_S)  # who waits grants credit
        if not messages:
            assert receiver.drain(_LONG_S), "the broker does not answer"
            messages = receiver.receive_many(most, 0)
            if not messages:
                return
        yield from messages


def take_all(receiver: acquit.Receiver) -> list[acquit.ReceivedMessage]:
    """The same, as a list."""
    return list(take_each(receiver, 1_000))
