"""The audit lines of a journal: what operators did, and who was refused. No broker need be running."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from acquit.errors import StoreCorrupt
from acquit.ledger.records import AuditLine, RecordKind
from acquit.store.record import walk

if TYPE_CHECKING:
    from acquit.store.reading import FolderReader

_HEAD = bytes((RecordKind.AUDIT, 1))
"""Kind and version, as a record has them."""


def read_audit(reader: FolderReader) -> Iterator[AuditLine]:
    """Yield the audit lines of all segments that are there, archived ones included, oldest first. Raises StoreCorrupt
    for one that is damaged."""
    contents = reader.journal_contents()
    numbers = sorted({*contents.archive, *contents.journal})
    for number in numbers:
        try:
            segment = reader.open(number)
        except KeyError:
            if reader.was_deleted(number):  # by retention, since it was listed
                continue
            raise StoreCorrupt("gone while it was to be read", path=str(number), offset=0) from None
        with segment:
            try:
                for head, data in segment.batches():
                    if _HEAD in data:
                        yield from (
                            AuditLine.decode(record) for record in walk(head, data) if record.kind == RecordKind.AUDIT
                        )
                segment.check_end(newest=number == numbers[-1])
            except ValueError as error:
                raise segment.corrupt(str(error)) from error


__all__ = ["read_audit"]
