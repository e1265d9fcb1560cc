"""Results that take more than a turn, and the failures of management requests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")
U = TypeVar("U")


class RequestFailure(Exception):
    """The request cannot be answered; `status` is as in HTTP."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class Later(Generic[T]):
    """A result that takes more than this turn."""

    __slots__ = ("_call", "_result")

    def __init__(self) -> None:
        self._result: T | RequestFailure | None = None
        self._call: Callable[[T | RequestFailure], None] | None = None

    def finish(self, result: T | RequestFailure) -> None:
        """Give the result, once."""
        self._result = result
        if self._call is not None:
            self._call(result)

    def when_finished(self, call: Callable[[T | RequestFailure], None]) -> None:
        """`call` it with the result, at once if that is there. Once."""
        if self._result is not None:
            call(self._result)
        else:
            self._call = call

    def also(self, call: Callable[[T | RequestFailure], None]) -> Later[T]:
        """Return the same result, which `call` hears before anybody else."""
        same = Later[T]()

        def tell(result: T | RequestFailure) -> None:
            call(result)
            same.finish(result)

        self.when_finished(tell)
        return same

    def then(self, change: Callable[[T], U | RequestFailure]) -> Later[U]:
        """Return the result as `change` makes it; a failure as it is."""
        changed = Later[U]()
        self.when_finished(
            lambda result: changed.finish(result if isinstance(result, RequestFailure) else change(result))
        )
        return changed


__all__ = ["Later", "RequestFailure"]
