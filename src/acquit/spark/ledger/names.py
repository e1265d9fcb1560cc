"""Names of queues and links: what their numbers stand for, as of a segment.

Numbers are declared by QUEUE and ACTOR records and never reused. What a segment does not declare itself was declared
before it, and not arbitrarily long before: when a segment leaves the recovery set, what is still in use of it has been
declared again. So the search goes back segment by segment until all is found, at most to the newest that a LEFT record
in the segments passed on the way says has left. Where it meets one that is not there any more, it goes forward, to
where that one left: there its declarations were repeated. A number that is found nowhere has no name.

Such records are few among very many. Where a segment is not read record by record anyway, they are found by the bytes
that begin each, in its batches (whose checksums are verified); a batch that has such bytes somewhere is taken apart,
for a message may contain anything. What a closed segment declares is kept for the next task of this process.
"""

from __future__ import annotations

import struct
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple
from uuid import UUID

from acquit.ledger.records import Actor, Queue, RecordKind
from acquit.spark.ledger.chain import Segment
from acquit.store.interface import Record
from acquit.store.reading import FolderReader
from acquit.store.record import StoreKind, split_events
from acquit.store.segment import SegmentHeader, decode_left

_MARK: Final = bytes((1, 0, 0)) + bytes(16)
"""Bytes behind the kind in each of these records: version 1, no flags, an event without sequence and origin."""
_KEPT: Final = 512


class QueueName(NamedTuple):
    """A queue, by its number."""

    name: str
    address: str


class ActorName(NamedTuple):
    """A link or user, by its number."""

    link: str
    container: str
    user: str


@dataclass(slots=True)
class Names:
    """Names that one segment declares, or that are known at one."""

    queues: dict[int, QueueName] = field(default_factory=dict)
    actors: dict[int, ActorName] = field(default_factory=dict)
    left: int = 0
    """The newest segment of which it says that it left the recovery set."""

    def note(self, records: Iterable[Record]) -> None:
        """Take note of what is declared in records that tell of no message. Raises ValueError, struct.error."""
        for record in records:
            if record.kind == RecordKind.QUEUE:
                queue = Queue.decode(record)
                self.queues[queue.number] = QueueName(queue.name, queue.address)
            elif record.kind == RecordKind.ACTOR:
                actor = Actor.decode(record)
                self.actors[actor.number] = ActorName(actor.link, actor.container, actor.user)
            elif record.kind == StoreKind.LEFT:
                self.left = max(self.left, decode_left(record.meta))


_kept: OrderedDict[tuple[UUID, int, int], Names] = OrderedDict()
"""Names that closed segments declare, by store, number and epoch."""


def names_at(segment: Segment, queues: set[int], actors: set[int]) -> Names:
    """The names of these numbers, as of `segment`. Raises StoreFailed, and StoreCorrupt for a damaged header."""
    reader = FolderReader(segment.folder)
    found = Names()
    left, number = 0, segment.number
    while number > left:
        declared = _declared(reader, number)
        if declared is None:
            break
        if _take(found, declared, queues, actors):
            return found
        if number != segment.number:
            # What left during the segment itself was perhaps still in use when it began.
            left = max(left, declared.left)
        number -= 1
    lost, number = number, segment.number
    while lost > left:
        declared = _declared(reader, number)
        if declared is None or _take(found, declared, queues, actors) or declared.left >= lost:
            break
        number += 1
    return found


def declared_at(segment: Segment) -> Names:
    """Return what this segment itself declares; free of cost where this process has just read all of it. Raises
    StoreError where it is not there any more, StoreFailed, StoreCorrupt."""
    declared = _declared(FolderReader(segment.folder), segment.number)
    if declared is None:
        raise segment.gone()
    return declared


def _take(found: Names, declared: Names, queues: set[int], actors: set[int]) -> bool:
    """Add what of these numbers was not known yet. Is all known?"""
    for number in queues & declared.queues.keys() - found.queues.keys():
        found.queues[number] = declared.queues[number]
    for number in actors & declared.actors.keys() - found.actors.keys():
        found.actors[number] = declared.actors[number]
    return queues <= found.queues.keys() and actors <= found.actors.keys()


def _declared(reader: FolderReader, number: int) -> Names | None:
    """Return what a segment declares; None where it is not there any more."""
    try:
        opened = reader.open(number)
    except KeyError:
        return None
    with opened as segment:
        header = segment.header
        names = _kept.get((header.store, number, header.epoch))
        if names is not None:
            return names
        names = Names()
        for head, data in segment.batches():
            if _MARK in data:
                try:
                    names.note(split_events(data, head.records)[1])
                except (struct.error, ValueError) as error:
                    raise segment.corrupt(f"segment {number}: {error}") from error
        if segment.seal is not None:
            keep(header, names)
        return names


def keep(header: SegmentHeader, names: Names) -> None:
    """Remember what a closed segment declares."""
    _kept[header.store, header.number, header.epoch] = names
    while len(_kept) > _KEPT:
        _kept.popitem(last=False)
