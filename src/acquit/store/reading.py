"""Reading a data folder beside its owner: what the ledger's tools, the audit and the console use.

Nothing is locked and nothing is changed. The broker may be running: then the newest segment ends where its last whole
batch does (what follows is being written), and a segment may move to the archive between being listed and being opened.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from acquit.errors import StoreCorrupt, StoreMissing
from acquit.store.disk import Disk, PosixDisk, folder_error
from acquit.store.folder import STUB, Folder, StoreIdentity
from acquit.store.interface import Replay
from acquit.store.recovery import RecoveryReport, Replayer
from acquit.store.scan import SegmentReader


@dataclass(frozen=True, slots=True)
class FolderContents:
    """Contents of a data folder, by segment number."""

    identity: StoreIdentity
    journal: tuple[int, ...]
    archive: tuple[int, ...]
    stubs: tuple[int, ...]


class SegmentDeleted(KeyError):
    """Retention deleted a segment between its being listed and its being opened."""


class FolderReader:
    """A data folder, read only."""

    def __init__(self, path: Path, disk: Disk | None = None) -> None:
        self.folder = Folder(path, disk if disk is not None else PosixDisk())

    def contents(self) -> FolderContents:
        """Raises StoreMissing when it is no data folder, StoreVersionUnsupported, StoreCorrupt, StoreFailed."""
        identity = self.folder.read_identity()
        if identity is None:
            raise StoreMissing(f"{self.folder.path} is not a data folder of acquit: it has no broker.json")
        try:
            # The journal first: what leaves it in between is then seen twice, not missed.
            journal = self.folder.numbers()
            archive = set(self.folder.numbers(archived=True)) - set(journal)
            stubs = set(self.folder.numbers(archived=True, suffix=STUB)) - archive
        except OSError as error:
            raise folder_error(error, self.folder.path) from error
        return FolderContents(identity, tuple(journal), tuple(sorted(archive)), tuple(sorted(stubs)))

    def journal_contents(self) -> FolderContents:
        """The same of a folder that must have a journal. Raises StoreCorrupt where no segment of it is there."""
        contents = self.contents()
        if not contents.journal:
            raise StoreCorrupt("no segment is there", path=str(self.folder.journal), offset=0)
        return contents

    def open(self, number: int, *, hashing: bool = False) -> SegmentReader:
        """A segment, wherever it is. Raises KeyError when it is in neither place, and StoreCorrupt where it, or what is
        read of it later, is damaged or cannot be read."""
        for archived in (False, True, False, True):
            path = self.folder.segment(number, archived=archived)
            try:
                return SegmentReader(self.folder.disk, path, hashing=hashing, unreadable_is_damage=True)
            except FileNotFoundError:
                continue
        raise KeyError(f"segment {number} is not in {self.folder.path}")

    def was_deleted(self, number: int) -> bool:
        """Return True if what is left begins behind this segment, as it does where retention deleted it."""
        contents = self.contents()
        return number < min((*contents.archive, *contents.journal), default=0)

    def replay(self, replay: Replay, *, archive: bool = False) -> RecoveryReport:
        """Replay what recovery would read, or (with `archive`) as far back as segments reach without a gap.

        Raises StoreCorrupt wherever recovery would: for damage anywhere but at the torn tail of the newest segment, and
        where a segment is missing or is not the one of its place. Raises SegmentDeleted where retention deleted one
        since it was listed: begin again, with another `Replay`.
        """
        contents = self.journal_contents()
        numbers = [*contents.archive, *contents.journal] if archive else list(contents.journal)
        first = len(numbers) - 1
        while first > 0 and numbers[first - 1] == numbers[first] - 1:
            first -= 1
        replayer = Replayer(replay)
        for number in numbers[first:]:
            try:
                segment = self.open(number)
            except KeyError:
                if self.was_deleted(number):
                    raise SegmentDeleted(number) from None
                raise StoreCorrupt(
                    "gone while it was to be read", path=str(self.folder.segment(number)), offset=0
                ) from None
            with segment:
                replayer.segment(segment, number, contents.identity.store)
                segment.check_end(newest=number == numbers[-1])
        return replayer.report
