"""A broker's bookkeeping in a hundred lines of plain Python: no disk, no wire, no order of records, no links.

What each operation means for each queue, as design section 3 has it, and nothing about how it is done. `counts` are
those of the ledger; a queue's balance is `entered == retired + live` by construction here, so comparing the broker's
counts with these compares its meaning.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

ATTEMPTS_MAX = 3
DEAD = "DLQ"


@dataclass(eq=False)
class Copy:
    """One message in one queue."""

    name: str
    durable: bool
    failures: int = 0
    """Attempts that a consumer called failed; those that a lost connection ended are none."""
    acquired: bool = False


@dataclass(eq=False)
class Transaction:
    """What is to happen at its commit."""

    postings: list[tuple[str, str, bool]] = field(default_factory=list)
    outcomes: list[tuple[str, Copy, str]] = field(default_factory=list)


class Books:
    """`topics`: the queues of each topic's subscriptions; `walls`: queues that are read and never emptied."""

    def __init__(self, topics: dict[str, list[str]], walls: set[str]) -> None:
        self.topics, self.walls = topics, walls
        self.queues: dict[str, list[Copy]] = {}
        self.counts: Counter[tuple[str, str]] = Counter()

    def post(self, address: str, name: str, durable: bool) -> None:
        queues = self.topics.get(address, [address])
        for queue in queues:
            self.enter(queue, Copy(name, durable), "entered")
        if not queues:
            self.counts[address, "unrouted"] += 1

    def enter(self, queue: str, copy: Copy, how: str) -> None:
        self.queues.setdefault(queue, []).append(copy)
        self.counts[queue, "entered"] += 1

    def leave(self, queue: str, copy: Copy, how: str) -> None:
        self.queues[queue].remove(copy)
        self.counts[queue, how] += 1

    def take(self, queue: str) -> Copy | None:
        """The next one that nobody has, acquired."""
        for copy in self.queues.get(queue, []):
            if not copy.acquired:
                copy.acquired = True
                return copy
        return None

    def settle(self, queue: str, copy: Copy, outcome: str) -> None:
        """An outcome of an acquired copy: accepted, rejected, released, modified, failed, lost."""
        copy.acquired = False
        copy.failures += outcome == "failed"
        last = queue != DEAD and outcome == "failed" and copy.failures >= ATTEMPTS_MAX
        if outcome == "accepted":
            self.leave(queue, copy, "accepted")
        elif outcome == "rejected" or last:
            self.leave(queue, copy, "dropped" if queue == DEAD else "dead_lettered")
            if queue != DEAD:
                self.enter(DEAD, Copy(copy.name, copy.durable), "entered")

    def commit(self, transaction: Transaction) -> None:
        for posting in transaction.postings:
            self.post(*posting)
        for outcome in transaction.outcomes:
            self.settle(*outcome)

    def roll_back(self, transaction: Transaction) -> None:
        """Outcomes were settled by their receiver: what its source says by default becomes of them, which is failed."""
        for queue, copy, _ in transaction.outcomes:
            self.settle(queue, copy, "failed")

    def purge(self, queue: str) -> None:
        for copy in [copy for copy in self.queues.get(queue, []) if not copy.acquired]:
            self.leave(queue, copy, "purged")

    def move(self, queue: str, to: str) -> None:
        for copy in [copy for copy in self.queues.get(queue, []) if not copy.acquired]:
            self.leave(queue, copy, "moved_out")
            self.enter(to, Copy(copy.name, copy.durable), "entered")

    def lose(self) -> None:
        """All consumers are gone without a word."""
        for queue, copies in self.queues.items():
            for copy in [copy for copy in copies if copy.acquired]:
                self.settle(queue, copy, "lost")

    def crash(self) -> None:
        for queue, copies in self.queues.items():
            for copy in [copy for copy in copies if not copy.durable]:
                self.leave(queue, copy, "lost_volatile")
        self.lose()
