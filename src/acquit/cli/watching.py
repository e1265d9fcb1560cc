"""Looks at a running broker, again and again, over restarts of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from acquit.cli.connecting import BrokerAt
from acquit.cli.exits import one_line
from acquit.cli.figures import Look, look
from acquit.client.management import converse
from acquit.errors import AuthenticationFailed, DeliveryInDoubt, EndpointError, SendFailed, Unauthorized

RETRY_S: Final = 1.0
"""Seconds between two attempts to connect again."""
_LOST: Final = (EndpointError, DeliveryInDoubt, SendFailed, OSError)
_FINAL: Final = (AuthenticationFailed, Unauthorized)


@dataclass(frozen=True, slots=True)
class Seen:
    """A look, and the one before it on the same connection, if there was one."""

    now: Look
    before: Look | None


@dataclass(frozen=True, slots=True)
class Missed:
    """A look that failed, because the broker is away or does not answer."""

    reason: str


def watch(
    broker: BrokerAt, timeout_s: float, interval_s: float, wait: Callable[[float], bool]
) -> Iterator[Seen | Missed]:
    """Yield a look each `interval_s` seconds, until `wait` returns True; it waits so many seconds, or until that is to
    end. A broker that goes away is tried again each `RETRY_S`.

    Raises what the first look raises, and later what no second attempt would mend: a user who is not let in any more,
    an answer that makes no sense."""
    connect = broker.opener(timeout_s)
    met = False
    while True:
        before = None
        try:
            with connect() as connection, converse(connection, timeout_s) as node:
                while True:
                    now = look(node)
                    met = True
                    yield Seen(now, before)
                    before = now
                    if wait(interval_s):
                        return
        except _LOST as error:
            if not met or isinstance(error, _FINAL):
                raise
            yield Missed(one_line(error))
        if wait(RETRY_S):
            return
