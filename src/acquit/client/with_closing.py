"""Closing at the end of ``async with`` and of ``with``, for all that can be closed."""

from __future__ import annotations

from types import TracebackType
from typing import Protocol, Self

from acquit.client.waiting import Closable


class BlockingClosable(Protocol):
    """An object that is closed by a thread."""

    def close(self) -> None:
        """Close it."""
        ...


class AsyncClosing:
    """An object that ``async with`` closes at its end."""

    __slots__ = ()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self: Closable,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()


class Closing:
    """An object that ``with`` closes at its end."""

    __slots__ = ()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self: BlockingClosable,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
