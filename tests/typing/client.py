"""What a type checker knows of the client. `make check` reads this with mypy; nothing here is run."""

from __future__ import annotations

from typing import assert_type

import acquit
from acquit import aio


def receive(receiver: acquit.Receiver, timeout: float | None) -> None:
    """Without a time-out there is always a message."""
    assert_type(receiver.receive(), acquit.ReceivedMessage)
    assert_type(receiver.receive(None), acquit.ReceivedMessage)
    assert_type(receiver.receive(timeout=None), acquit.ReceivedMessage)
    assert_type(receiver.receive(5), acquit.ReceivedMessage | None)
    assert_type(receiver.receive(timeout=0.5), acquit.ReceivedMessage | None)
    assert_type(receiver.receive(timeout), acquit.ReceivedMessage | None)


async def receive_in_a_task(receiver: aio.Receiver, timeout: float | None) -> None:
    """Without a time-out there is always a message."""
    assert_type(await receiver.receive(), aio.ReceivedMessage)
    assert_type(await receiver.receive(None), aio.ReceivedMessage)
    assert_type(await receiver.receive(timeout=None), aio.ReceivedMessage)
    assert_type(await receiver.receive(5), aio.ReceivedMessage | None)
    assert_type(await receiver.receive(timeout=0.5), aio.ReceivedMessage | None)
    assert_type(await receiver.receive(timeout), aio.ReceivedMessage | None)


def version() -> None:
    """The version is a text, although it is looked up when it is asked for."""
    assert_type(acquit.__version__, str)
