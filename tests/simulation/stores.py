"""Stores of exactly-once links that the world keeps for its clients, and that tell the oracle what is safe in them.

`KeptStore` lies on the disk of a client: it outlives the client's process, and what was written and not synced when
that is killed is there in part. A `ToldMemoryStore` outlives connections alone.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from itertools import chain
from random import Random
from typing import TYPE_CHECKING, Any, Final

from acquit import MemoryStore
from acquit.client.entries import Done, EntryKind, LinkEntries, StoreEntry, apply_entry, copied
from acquit.protocol.composite import decode_composite
from acquit.protocol.definitions import Accepted, Modified, Rejected
from acquit.protocol.message import Message
from tests.simulation.facts import Violation

if TYPE_CHECKING:
    from tests.simulation.world import World

SYNC_S: Final = (0.0, 0.001, 0.001, 0.02, 0.3)
"""How long a sync takes."""
LAG_S: Final = (0.3, 1.0, 3.0, 6.0)
"""How long it takes until sends are forgotten, where that waits in a database that the user's own commits keep busy."""
LAG_SHARE: Final = 0.5
"""Of the clients whose store does."""


def _verb(value: bytes) -> str:
    """The outcome that an entry says, as users call it."""
    outcome = decode_composite(value)[0]
    if isinstance(outcome, Modified):
        return "fail" if outcome.delivery_failed else "modify"
    return "accept" if isinstance(outcome, Accepted) else "reject" if isinstance(outcome, Rejected) else "release"


def _forgets(entry: StoreEntry) -> bool:
    """Whether an entry forgets a send. What tells the oracle of a terminus comes in its usual time."""
    return entry.kind is EntryKind.SEND and entry.value is None


def _on_its_loop(done: Done) -> Done:
    """Let a program hear on its own loop that an entry is safe, also where another one reads what is written before."""
    own = asyncio.get_running_loop()

    def heard(error: Exception | None) -> None:
        if asyncio.get_running_loop() is own:
            done(error)
        else:
            own.call_soon(done, error)

    return heard


def key_of(payload: bytes) -> str:
    """What a stored message was sent as."""
    return str(Message.decode(payload).body).partition(" ")[0]


class _Telling:
    """Tells the oracle what is safe."""

    def __init__(self, world: World, client: str) -> None:
        self._world = world
        self._client = client

    def hear(self, entries: Sequence[StoreEntry]) -> None:
        """Note what the client knows, and its store does not yet."""
        for kind, link, _, value in entries:
            if kind is EntryKind.IDENTITY and value is not None:
                self._world.oracle.termini.learns(f"{self._client}/{link}", value)

    def tell(self, entries: Sequence[StoreEntry]) -> None:
        """These are."""
        termini = self._world.oracle.termini
        try:
            for kind, link, _, value in entries:  # where it is another terminus, nothing else says anything
                if kind is EntryKind.IDENTITY and value is not None:
                    termini.identified(f"{self._client}/{link}", value)
            for kind, link, tag, value in entries:
                if kind is EntryKind.OUTCOME and value is None:
                    termini.forgotten(f"{self._client}/{link}", tag)
                elif kind is EntryKind.OUTCOME and value is not None:
                    termini.decided(f"{self._client}/{link}", tag, _verb(value))
        except Violation as why:  # which the client would take for a failure of the store
            self._world.scheduler.failures.append(why)


class KeptStore:
    """On a disk."""

    durable = True

    def __init__(self, world: World, client: str) -> None:
        self.links: dict[str, LinkEntries] = {}
        self._rng: Random = world.rng
        own = Random(f"{world.case.seed} {client}")
        self._lag: Random | None = own if own.random() < LAG_SHARE else None
        self._told = _Telling(world, client)
        self._pending: deque[tuple[list[StoreEntry], Done | None]] = deque()

    def load(self, link: str) -> LinkEntries:
        """Return the entries of a link, with all that was written before."""
        self._commit(len(self._pending))
        return copied(self.links.get(link, LinkEntries()))

    @property
    def behind(self) -> bool:
        """True if sends are still there whose outcome its program has heard."""
        return any(_forgets(entry) for entries, _ in self._pending for entry in entries)

    def written(self, link: str) -> LinkEntries:
        """Return the entries of a link as they will be. Its program is not told that they are safe."""
        links = {link: copied(self.links.get(link, LinkEntries()))}
        for entry in chain.from_iterable(entries for entries, _ in self._pending):
            if entry.link == link:
                apply_entry(links, entry)
        return links[link]

    def write(self, entries: Sequence[StoreEntry], done: Done | None = None) -> None:
        """Change entries: that is safe a little later, in order, together with what comes meanwhile."""
        self._told.hear(entries)
        self._pending.append((list(entries), None if done is None else _on_its_loop(done)))
        if len(self._pending) == 1:
            self._sync_later()

    def _sync_later(self) -> None:
        delay_s = self._rng.choice(SYNC_S)
        if self._lag is not None and all(map(_forgets, chain.from_iterable(one for one, _ in self._pending))):
            delay_s = self._lag.choice(LAG_S)
        asyncio.get_running_loop().call_later(delay_s, self._sync, len(self._pending))

    def _sync(self, count: int) -> None:
        self._commit(min(count, len(self._pending)))
        if self._pending:
            self._sync_later()

    def _commit(self, count: int) -> None:
        for _ in range(count):
            entries, done = self._pending.popleft()
            for entry in entries:
                apply_entry(self.links, entry)
            self._told.tell(entries)
            if done is not None:
                done(None)

    def write_within(self, _: Any, entry: StoreEntry) -> None:
        """Write as part of a transaction of the user's: all that a program does in one turn is one transaction."""
        apply_entry(self.links, entry)
        self._told.tell([entry])

    def crash(self) -> None:
        """Its process is killed: some of what was not synced is there all the same."""
        kept = self._rng.randint(0, len(self._pending))
        self._pending = deque((entries, None) for entries, _ in self._pending)
        self._commit(kept)
        self._pending.clear()


class ToldMemoryStore(MemoryStore):
    """In memory."""

    behind = False

    def __init__(self, world: World, client: str) -> None:
        super().__init__()
        self._told = _Telling(world, client)

    def written(self, link: str) -> LinkEntries:
        """Return the entries of a link."""
        return self.load(link)

    def write(self, entries: Sequence[StoreEntry], done: Done | None = None) -> None:
        """Change entries."""
        super().write(entries)
        self._told.tell(entries)
        if done is not None:
            done(None)


__all__ = ["KeptStore", "ToldMemoryStore", "key_of"]
