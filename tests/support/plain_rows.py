"""Rows of messages by the long way alone, to hold the short way (`acquit.spark.plain`) to it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from unittest import mock

import numpy as np

from acquit.spark import columns
from acquit.spark.plain import Mask
from acquit.spark.spool.drain import Identified

Identify = Callable[[list[bytes], bytes], tuple[Mask, Identified]]


@contextlib.contextmanager
def nothing_is_plain() -> Iterator[None]:
    """No message is plain, whatever it looks like."""

    def long_way(identify: Identify) -> Identify:
        def identified(payloads: list[bytes], key: bytes) -> tuple[Mask, Identified]:
            plain, found = identify(payloads, key)
            return np.zeros_like(plain), found

        return identified

    with (
        mock.patch.object(columns, "identify_posted", long_way(columns.identify_posted)),
        mock.patch.object(columns, "identify_named", long_way(columns.identify_named)),
    ):
        yield
