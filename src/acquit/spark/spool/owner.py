"""Owner of a spool: the query, and the source of that, which it serves.

`owner` is created by the first task of the first query, put-if-absent, and says which query it is: one checkpoint
folder has one query id, for ever. A query with another id is refused.

`source` is created by the first task, too, once the spool is its query's: a query may have several sources, whose tasks
all bear its id. A source's number is made as it begins its first epoch, and is in its offsets from then on. Two sources
on one spool would take each other's rows for their own.

When the checkpoint is lost and the spool is not, a person may give the spool to the next query that comes
(`spool.repair`, option take-over). Then `owner` is replaced, and names no query, but a fresh id of the spool and the
epoch after which the next query begins; whoever comes first creates ``owner-ID``, put-if-absent again. So a claim is
never a replacement, and two queries that come at once cannot both get it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final
from uuid import UUID, uuid4

from acquit.errors import NOT_WHAT_WAS_WRITTEN, SpoolDamaged, SpoolOwned, SpoolVersionUnsupported
from acquit.spark.spool.entries import LogTotals
from acquit.spark.spool.log import Log, LogState
from acquit.spark.spool.store import SpoolStore, StoreDoubt

FORMAT: Final = 1
"""Format of this file, which is not that of the log."""
_UUID_LENGTH: Final = 36
OWNER = "owner"
SOURCE = "source"


@dataclass(frozen=True, slots=True, kw_only=True)
class SpoolOwner:
    """Owner of a spool, as its files say together."""

    query: str | None
    """None: the spool was given up, and nobody has taken it since."""
    spool: str
    """The spool's own id."""
    begins_after: int = 0
    """The epoch after which its query began."""
    previous: tuple[str, ...] = ()
    """Queries that it belonged to, oldest first."""


def read_owner(store: SpoolStore) -> SpoolOwner | None:
    """None when nobody has come yet, or the file is lost (`refuse_lost_owner`). Raises SpoolDamaged when a file is not
    ours."""
    owner = _read(store, OWNER)
    if owner is None or owner.query is not None:
        return owner
    heir = _read(store, _heir_name(owner))
    return owner if heir is None else heir


def refuse_lost_owner(store: SpoolStore, state: LogState) -> None:
    """Raise SpoolDamaged where there is no `owner`, though the log has publications: who publishes has claimed the
    spool before. (A driver may raise the floor before any task has come.)"""
    if (state.decided or state.totals != LogTotals()) and store.get(OWNER) is None:
        raise SpoolDamaged(
            f"spool {store.place}: the file `{OWNER}` is missing, so nobody can tell whose its rows are: restore it, "
            "or give the spool to the next query that comes: see `acquit spool repair --take-over`"
        )


def claim(store: SpoolStore, query: str) -> SpoolOwner:
    """Make `query` the owner if there is none; raise SpoolOwned if there is another, and SpoolDamaged if it is lost."""
    for _ in range(3):
        owner = read_owner(store)
        if owner is not None and owner.query is not None:
            if owner.query != query:
                raise SpoolOwned(
                    f"spool {store.place} belongs to the query {owner.query}, this is {query}. A spool serves one "
                    "query, which is one checkpoint folder: name another `spool`, or start with the checkpoint of "
                    f"{owner.query}. {what_if_lost(store.place)}"
                )
            return owner
        if owner is not None and query in owner.previous:
            raise SpoolOwned(
                f"spool {store.place} was taken from the query {query} with `acquit spool repair --take-over`, and is "
                "kept for a query with a new checkpoint: this one must not go on"
            )
        if owner is None:
            refuse_lost_owner(store, Log(store).read())
            name, fresh = OWNER, SpoolOwner(query=query, spool=uuid4().hex)
        else:
            name = _heir_name(owner)
            fresh = SpoolOwner(query=query, spool=owner.spool, begins_after=owner.begins_after, previous=owner.previous)
        try:
            store.put_if_absent(name, _encode(fresh))
        except StoreDoubt:
            pass  # reading it back tells
    raise SpoolDamaged(f"spool {store.place}: cannot create the file `owner`")


def read_source(store: SpoolStore) -> int | None:
    """None when the spool serves no source yet that has a number: it gets one with the next epoch. Raises SpoolDamaged
    when the file is not ours."""
    data = store.get(SOURCE)
    if data is None:
        return None
    try:
        source = int(data)
    except ValueError:
        source = -1
    if source < 0 or data != _source_line(source):
        raise SpoolDamaged(
            f"spool {store.place}: the file `{SOURCE}` is not ours: expected the number of a source. Restore it; or, "
            "if no other query and no other source uses the spool, remove it: the next task writes it again"
        )
    return source


def refuse_other_source(store: SpoolStore, source: int | None) -> bool:
    """Raise SpoolOwned where the spool serves another source than this one; None: a source that has no number yet.
    Returns whether it serves this one already. Raises as `read_source`."""
    found = read_source(store)
    if found is None or found == source:
        return found is not None
    owner = read_owner(store)
    query = None if owner is None else owner.query
    whose = "was begun by another source" if query is None else f"belongs to the query {query}"
    raise SpoolOwned(
        f"spool {store.place} {whose}, and this is another query, or another source of that one. A spool "
        "serves one source of one query, which is one checkpoint folder: name another `spool`, or start with "
        f"the checkpoint that belongs to this one. {what_if_lost(store.place)}"
    )


def claim_source(store: SpoolStore, source: int) -> None:
    """Make `source` the one that the spool serves if there is none; raise SpoolOwned if there is another."""
    for _ in range(3):
        if refuse_other_source(store, source):
            return
        try:
            store.put_if_absent(SOURCE, _source_line(source))
        except StoreDoubt:
            pass  # reading it back tells
    raise SpoolDamaged(f"spool {store.place}: cannot create the file `{SOURCE}`")


def give_up(store: SpoolStore, begins_after: int) -> SpoolOwner:
    """Give the spool to the query that comes next, which begins after that epoch. No query may be running on it.

    Whose it was is forgotten where the file cannot be read. Raises SpoolOwned when a query claims it at that moment.
    """
    try:
        owner = read_owner(store)
    except SpoolDamaged:
        owner = None
    previous = () if owner is None else (*owner.previous, *([] if owner.query is None else [owner.query]))
    free = SpoolOwner(query=None, spool=uuid4().hex, begins_after=begins_after, previous=previous)
    # Killed in between, it belongs to nobody, and this can be done again.
    store.remove(OWNER)
    store.remove(SOURCE)
    # It may exist by our own first try.
    if not store.put_if_absent(OWNER, _encode(free)) and (found := _read(store, OWNER)) != free:
        by = "somebody else" if found is None or found.query is None else f"the query {found.query}"
        raise SpoolOwned(f"spool {store.place}: {by} took it while it was given up: stop it, and do this again")
    for name in store.names(""):
        # Whoever has come meanwhile keeps it.
        if name.startswith(f"{OWNER}-") and name != _heir_name(free):
            store.remove(name)
    return free


def what_if_lost(place: str) -> str:
    """Return what a user can do whose checkpoint is gone."""
    return (
        "If that query and its checkpoint are gone for good, see `acquit spool repair --take-over`, or remove the "
        f"spool {place}: what it had taken and not yet acknowledged may then appear twice"
    )


def _source_line(source: int) -> bytes:
    return f"{source}\n".encode()


def _heir_name(owner: SpoolOwner) -> str:
    return f"{OWNER}-{owner.spool}"


def _read(store: SpoolStore, name: str) -> SpoolOwner | None:
    data = store.get(name)
    if data is None:
        return None
    try:
        fields = json.loads(data)
        if fields["format"] != FORMAT:
            raise SpoolVersionUnsupported(
                f"spool {store.place}: spool format {fields['format']}; this version of acquit reads format {FORMAT}"
            )
        if fields["acquit"] != "spool" or UUID(fields["spool"]).hex != fields["spool"]:
            raise ValueError("of something else")
        query, previous = fields["query"], fields.get("previous", ())
        for one in (*previous, *([] if query is None else [query])):
            # Spark's ids are uuids: what is as long as one is one, or was altered.
            if not isinstance(one, str) or not one or (len(one) == _UUID_LENGTH and str(UUID(one)) != one):
                raise ValueError(f"{one!r:.60} is no id of a query")
        return SpoolOwner(
            query=query,
            spool=fields["spool"],
            begins_after=int(fields.get("begins_after", 0)),
            previous=tuple(previous),
        )
    except NOT_WHAT_WAS_WRITTEN as error:
        raise SpoolDamaged(f"spool {store.place}: the file `{name}` is not ours: {error}") from error


def _encode(owner: SpoolOwner) -> bytes:
    return json.dumps(
        {
            "acquit": "spool",
            "format": FORMAT,
            "query": owner.query,
            "spool": owner.spool,
            "begins_after": owner.begins_after,
            "previous": owner.previous,
        }
    ).encode()
