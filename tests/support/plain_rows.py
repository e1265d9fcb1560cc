"""Rows of messages by the long way alone, to hold the short way (`acquit.spark.plain`) to it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from unittest import mock

import numpy as np

from acquit.spark import columns
from acquit.spark.plain import Lot


@contextlib.contextmanager
def nothing_is_plain() -> Iterator[None]:
    """No message is plain, nor the first sections of any, whatever it looks like."""
    read_lot = columns.read_lot

    def long_way(payloads: Sequence[bytes], *, ours: bool) -> Lot:
        lot = read_lot(payloads, ours=ours)
        return replace(lot, plain=np.zeros_like(lot.plain), numbered=np.zeros_like(lot.numbered))

    with mock.patch.object(columns, "read_lot", long_way):
        yield
