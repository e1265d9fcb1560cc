"""Lives of messages, as fixed-width rows that can be put together piece by piece.

A *life* is what some of a message's events say about it: when and how it entered its queue, how often and when first it
was acquired, when and how it was retired. One event is a life; `merge` puts the pieces of each message together in the
order of the journal, and does not mind in which pieces they come: the pieces of a segment, those of many segments, and
those beside what an earlier run left open, give the same lives. That is what makes the audit parallel and incremental.

A life is *complete* when it has its posting and its retirement. What comes to a message after its retirement, and
postings beyond the first, are no part of its life: `merge` sets them apart as *extras*.

The row::

    sequence, queue, broker         the message; `broker` is the broker's number in this audit
    entered, entered_us, origin     kind and time of the posting, and the copy it came from; kind 0: not in these pieces
    acquired, acquired_us           how often it was handed out to a consumer, and when first
    returned                        how often it came back (RELEASED, MODIFIED)
    attempt                         the highest delivery-count that was recorded
    retired, retired_us, became     kind and time of the retirement, and the copy it became; kind 0: not in these pieces
    first_us, last_us, last         times of the first and the last event in the journal's order, and the last one's
    kind size, crc                       fingerprint, which every event repeats
    first_segment, last_segment     where the first and the last event stand
    flags                           LifeFlag
"""

from __future__ import annotations

from enum import IntFlag
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from acquit.ledger.events import EventKind
from acquit.spark.ledger.segments import Events, Mask, entering, retiring

LIFE: Final = np.dtype(
    [
        ("sequence", "<u8"),
        ("origin", "<u8"),
        ("became", "<u8"),
        ("entered_us", "<i8"),
        ("acquired_us", "<i8"),
        ("retired_us", "<i8"),
        ("first_us", "<i8"),
        ("last_us", "<i8"),
        ("first_segment", "<u8"),
        ("last_segment", "<u8"),
        ("queue", "<u4"),
        ("size", "<u4"),
        ("crc", "<u4"),
        ("acquired", "<u4"),
        ("returned", "<u4"),
        ("broker", "<u2"),
        ("attempt", "<u2"),
        ("entered", "u1"),
        ("retired", "u1"),
        ("last", "u1"),
        ("flags", "u1"),
    ]
)
Lives = npt.NDArray[np.void]

NO_LIVES: Final = np.zeros(0, LIFE)
SLICE_BITS: Final = 20
"""Pieces of one message meet where `bucket_of` its broker, queue and sequence >> 20 says."""
_LAST_KIND: Final = EventKind.RESUMED
_MIX: Final = (np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F), np.uint64(0x165667B19E3779F9))


class LifeFlag(IntFlag):
    """Flags of a life: what is wrong with it, or known of it."""

    BACKWARD = 0x01
    """An event has an earlier time than the one before it in the journal."""
    ALTERED = 0x02
    """Events disagree on the message's size or checksum."""
    EARLY = 0x04
    """Events stand before the posting."""
    COUNTED = 0x80
    """Note, and no fault: the first acquisition is in the counters."""


WRONG: Final = LifeFlag.BACKWARD | LifeFlag.ALTERED | LifeFlag.EARLY


class Merged(NamedTuple):
    """See the module's text."""

    lives: Lives
    """Lives, one for each message, by broker, queue and sequence."""
    extras: Lives


def of_events(events: Events, segment: int, broker: int) -> Lives:
    """A life for each event that belongs to one, in the same order. Of kinds that are none (READ, and what happens
    beside the queues) there is none."""
    kinds = events["kind"]
    events = events[(kinds >= EventKind.POSTED) & (kinds <= _LAST_KIND)]
    kinds = events["kind"]
    lives = np.zeros(len(events), LIFE)
    entered, retired = entering(events), retiring(events)
    # A link that settles before it sends acquires and consumes in one event.
    acquired = (kinds == EventKind.ACQUIRED) | (kinds == EventKind.CONSUMED)
    times = events["time_us"]
    for name in ("sequence", "queue", "size", "crc", "attempt"):
        lives[name] = events[name]
    for name in ("first_us", "last_us"):
        lives[name] = times
    for mine, kind, time, link in (
        (entered, "entered", "entered_us", "origin"),
        (retired, "retired", "retired_us", "became"),
    ):
        lives[kind] = np.where(mine, kinds, 0)
        lives[time] = np.where(mine, times, 0)
        lives[link] = np.where(mine, events["origin"], 0)
    lives["acquired"] = acquired
    lives["acquired_us"] = np.where(acquired, times, 0)
    lives["returned"] = (kinds == EventKind.RELEASED) | (kinds == EventKind.MODIFIED)
    lives["last"] = kinds
    lives["first_segment"] = lives["last_segment"] = segment
    lives["broker"] = broker
    return lives


def merge(pieces: Lives) -> Merged:
    """Put the pieces of each message together. Those of one message must be in the journal's order among each other."""
    if not len(pieces):
        return Merged(NO_LIVES, NO_LIVES)
    place = pieces["broker"].astype(np.uint64) << np.uint64(32) | pieces["queue"]
    rows = pieces[np.lexsort((pieces["sequence"], place))]
    starts = _starts(rows)
    retired, entered = rows["retired"] != 0, rows["entered"] != 0
    extra = (_seen_before(retired, starts) > 0) | (entered & (_seen_before(entered, starts) > 0))
    extras = NO_LIVES
    if extra.any():  # never the first piece of a message, so every message keeps one
        extras, rows = rows[extra], rows[~extra]
        starts = _starts(rows)
    if len(starts) == len(rows):
        return Merged(rows, extras)
    return Merged(_put_together(rows, starts), extras)


def _starts(rows: Lives) -> npt.NDArray[np.int64]:
    """Return the place of the first row of each message."""
    new = np.ones(len(rows), np.bool_)
    new[1:] = rows["sequence"][1:] != rows["sequence"][:-1]
    new[1:] |= rows["queue"][1:] != rows["queue"][:-1]
    new[1:] |= rows["broker"][1:] != rows["broker"][:-1]
    return np.flatnonzero(new)


def _seen_before(mask: Mask, starts: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return how many of the message's pieces before each one are in the mask."""
    before: npt.NDArray[np.int64] = np.cumsum(mask) - mask
    lengths = np.diff(starts, append=len(mask))
    return before - np.repeat(before[starts], lengths)


def _put_together(rows: Lives, starts: npt.NDArray[np.int64]) -> Lives:
    lengths = np.diff(starts, append=len(rows))
    last = rows[starts + lengths - 1]
    lives = rows[starts].copy()
    # Of these only one piece has something: its posting, or its retirement.
    for name in ("entered", "entered_us", "origin", "retired", "retired_us", "became"):
        lives[name] = np.add.reduceat(np.ascontiguousarray(rows[name]), starts)
    for name in ("acquired", "returned"):
        lives[name] = np.add.reduceat(np.ascontiguousarray(rows[name]), starts)
    lives["attempt"] = np.maximum.reduceat(np.ascontiguousarray(rows["attempt"]), starts)
    for name in ("last", "last_us", "last_segment"):
        lives[name] = last[name]
    place = np.where(rows["acquired"] > 0, np.arange(len(rows)), len(rows))
    first = np.minimum.reduceat(place, starts)
    lives["acquired_us"] = np.where(first < len(rows), rows["acquired_us"][np.minimum(first, len(rows) - 1)], 0)
    lives["flags"] = np.bitwise_or.reduceat(rows["flags"] | _wrong(rows, starts, lengths), starts)
    return lives


def _wrong(rows: Lives, starts: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64]) -> npt.NDArray[np.uint8]:
    """Return the flags of what is wrong with each piece beside the pieces before it."""
    flags = np.zeros(len(rows), np.uint8)
    inner = np.ones(len(rows), np.bool_)
    inner[starts] = False
    backward = np.zeros(len(rows), np.bool_)
    backward[1:] = rows["first_us"][1:] < rows["last_us"][:-1]
    altered = (rows["size"] != np.repeat(rows["size"][starts], lengths)) | (
        rows["crc"] != np.repeat(rows["crc"][starts], lengths)
    )
    for mask, flag in (
        (backward & inner, LifeFlag.BACKWARD),
        (altered, LifeFlag.ALTERED),
        ((rows["entered"] != 0) & inner, LifeFlag.EARLY),
    ):
        flags[mask] |= np.uint8(flag)
    return flags


def flagged(lives: Lives, flag: LifeFlag) -> Mask:
    """Return which lives have this flag."""
    found: Mask = (lives["flags"] & np.uint8(flag)) != 0
    return found


def complete(lives: Lives) -> Mask:
    """Return which lives have posting and retirement."""
    found: Mask = (lives["entered"] != 0) & (lives["retired"] != 0)
    return found


def bucket_of(lives: Lives, buckets: int) -> npt.NDArray[np.int64]:
    """Return the bucket, of so many, in which the pieces of each of these messages meet."""
    with np.errstate(over="ignore"):
        mixed = (lives["sequence"] >> np.uint64(SLICE_BITS)) * _MIX[0]
        mixed ^= lives["queue"].astype(np.uint64) * _MIX[1]
        mixed ^= lives["broker"].astype(np.uint64) * _MIX[2]
        mixed ^= mixed >> np.uint64(29)
        mixed *= _MIX[0]
        mixed ^= mixed >> np.uint64(32)
    found: npt.NDArray[np.int64] = (mixed % np.uint64(buckets)).astype(np.int64)
    return found


def concatenate(parts: list[Lives]) -> Lives:
    """Return one array of all parts."""
    return np.concatenate(parts) if parts else NO_LIVES
