"""Closing at the end of ``async with`` and of ``with``, for all that can be closed."""

from __future__ import annotations

from types import TracebackType
from typing import Self


class AsyncClosing:
    """An object that ``async with`` closes at its end."""

    __slots__ = ()

    async def close(self) -> None:
        """Close it."""
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()


class Closing:
    """An object that ``with`` closes at its end."""

    __slots__ = ()

    def close(self) -> None:
        """Close it."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
