"""Connections of sources, sinks and pipelines to a broker, and the recognition of an acquit broker.

All connect patiently: a broker that is being restarted is no reason to fail a query. No connection is restored by the
client: who loses one must know what was read or posted on it, so a task fails, and Spark runs it again, or it connects
anew by itself, as the sink does.
"""

from __future__ import annotations

import logging
import ssl
import time
from collections.abc import Callable, Mapping
from typing import Final
from uuid import UUID

from acquit.client.blocking import Connection, connect
from acquit.client.options import ConnectOptions
from acquit.errors import AuthenticationFailed, ConnectionFailed
from acquit.protocol.extensions import BROKER_ID, PORTION_FILTER
from acquit.protocol.types import Described, Symbol, UInt, ULong, Value
from acquit.spark.options import SparkConnectionOptions

logger = logging.getLogger("acquit.spark")

CLOSE_TIMEOUT_S: Final = 5.0
"""Seconds that a close waits for the broker's close. Whoever closes has all answers that matter."""
_RETRY_FIRST_S: Final = 0.1
_RETRY_MAX_S: Final = 2.0
_MESSAGE_BYTES_MAX: Final = 1 << 30
"""A column of a batch holds 2 GiB; the broker's own limit is most likely lower."""


def connect_patiently(
    options: SparkConnectionOptions,
    *,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> Connection:
    """Connect, trying again while the broker cannot be reached, for `connectTimeout`.

    Raises ConnectionFailed naming the broker and the last reason; at once where its certificate is not trusted, and so
    AuthenticationFailed and ConfigurationError.
    """
    password = options.password()
    ssl_context = options.ssl_context()
    ends_at = clock() + options.connect_timeout_ms / 1000
    pause_s = _RETRY_FIRST_S
    while True:
        left_ms = max(1, int((ends_at - clock()) * 1000))
        try:
            return connect(
                options.url,
                username=options.user,
                password=password,
                ssl_context=ssl_context,
                options=ConnectOptions(
                    connect_timeout_ms=min(left_ms, 10_000),
                    answer_timeout_ms=options.ack_timeout_ms,
                    ack_timeout_ms=options.ack_timeout_ms,
                    max_message_size=_MESSAGE_BYTES_MAX,
                    reconnect=None,
                ),
            )
        except AuthenticationFailed:
            raise
        except ConnectionFailed as error:
            if isinstance(error.__cause__, ssl.SSLCertVerificationError):
                raise ConnectionFailed(f"{error}; the option ca says whom to trust") from error
            if clock() + pause_s >= ends_at:
                raise ConnectionFailed(
                    f"cannot reach the broker at {options.url} within {options.connect_timeout_ms / 1000:g} s "
                    f"(option connectTimeout): {error}"
                ) from error
            logger.info("the broker at %s cannot be reached (%s); trying again in %g s", options.url, error, pause_s)
        sleep(pause_s)
        pause_s = min(2 * pause_s, _RETRY_MAX_S)


def broker_id(connection: Connection) -> UUID | None:
    """The identity of an acquit broker; None for others."""
    value = connection.remote_properties.get(BROKER_ID)
    return value if isinstance(value, UUID) else None


def portion_filter(until: int, parts: int = 1, part: int = 0) -> Mapping[str, object]:
    """Return the filter by which an acquit broker shows a browser one share of the messages up to sequence `until`."""
    portion: list[Value] = [ULong(until), UInt(parts), UInt(part)]
    return {"portion": Described(Symbol(PORTION_FILTER), portion)}
