"""The tracer of the streaming source: of the user's own making, for nobody else knows where spans go from a worker.

The option `tracer` names a function, ``module:function``. Each Python process that reads a queue calls it once, before
it reads, and tells what it returns of each lot of messages that it takes, and of outcomes. Without the option nothing
is loaded, and each of these places costs one look at an attribute.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from acquit.errors import ConfigurationError

if TYPE_CHECKING:
    from acquit.client.receipts import SettlementReceipt
    from acquit.protocol.definitions import Accepted, Rejected
    from acquit.protocol.message import Message


class BatchTracer(Protocol):
    """An observer of what a worker takes: `acquit.telemetry.OpenTelemetry`. `where` is the broker's ``host:port``."""

    def received_together(self, messages: Sequence[Message], address: str, where: str, since_ns: int) -> None:
        """Messages, at least one, were taken from `address`, from `since_ns` (since the epoch) until now."""

    def settled(
        self,
        messages: Sequence[Message],
        address: str,
        outcome: Accepted | Rejected,
        receipt: SettlementReceipt,
        where: str,
    ) -> None:
        """Messages were given an outcome; the receipt tells what the broker answers."""


def read_tracer(text: str) -> str:
    """Return the name of a function, ``module:function``. Raises ValueError for what is none."""
    module, _, function = text.partition(":")
    if not function.isidentifier() or not all(part.isidentifier() for part in module.split(".")):
        raise ValueError("module:function, as in jobs.tracing:telemetry")
    return text


@functools.cache
def load_tracer(name: str) -> BatchTracer:
    """Return what the function of this name returns, made once in this process.

    Raises ConfigurationError where it cannot be imported, and for what is no tracer; what it raises goes on.
    """
    module, _, function = name.partition(":")
    try:
        make = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError) as error:
        raise ConfigurationError(f"option tracer = {name!r}: a worker cannot import it: {error}") from error
    tracer: BatchTracer = make()
    if not (hasattr(tracer, "received_together") and hasattr(tracer, "settled")):
        raise ConfigurationError(f"option tracer = {name!r}: expected it to return OpenTelemetry(...), got {tracer!r}")
    return tracer


__all__ = ["BatchTracer", "load_tracer", "read_tracer"]
