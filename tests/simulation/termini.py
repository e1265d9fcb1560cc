"""What the oracle knows of exactly-once links: who holds what over lost connections, and what was decided of it.

A *terminus* is what the broker keeps for a link (2.6.13). It holds what its receiver was given, whichever connection
that is on, until an outcome is told, or until its time is over while nobody is attached to it, or somebody ends it. All
else follows: what it holds is nobody else's, comes again as the same delivery, and an outcome that is safe in a store
(`stores`) is what became of the message.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from acquit.client.receipts import ReceiptStatus
from tests.simulation.facts import Copy, Held, Seen, Sent, Violation

if TYPE_CHECKING:
    from tests.simulation.oracle import Oracle

RETIRING: Final = frozenset({"accept", "reject"})
FAILING: Final = frozenset({"fail"})
"""Outcomes after which a message is gone, or an attempt has failed."""
MARGIN_MS: Final = 2


class Decision(NamedTuple):
    """An outcome that is safe in a store."""

    verb: str
    sequence: int
    retiring: int
    """What `Oracle.retires` made of it."""


@dataclass(eq=False, slots=True)
class Terminus:
    """One life of it: one that was ended and made again is another."""

    name: str
    """Of the client and the link."""
    number: int
    identity: bytes = b""
    """As the broker told the client; empty before that."""
    former: set[bytes] = field(default_factory=set)
    """The identities of its lives that are over. A store that lags tells of them late."""
    token: str = ""
    """The connection on which it was attached last."""
    away_s: float | None = 0.0
    """Since when its link may be gone; None: it is there."""
    over: bool = False
    """It may have ended: what it held then may be anybody's."""
    ended: bool = False
    """Somebody has ended it, or asked for that."""
    life: int = 0
    """Of the program."""
    tags: dict[bytes, Seen] = field(default_factory=dict)
    """What came under each delivery-tag."""
    decided: dict[bytes, Decision] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.name}!{self.number}"

    def __eq__(self, other: object) -> bool:
        """Whether it is the same, in this run or in another one of the same case."""
        return isinstance(other, Terminus) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(self.name)


class Termini:
    """All of them."""

    def __init__(self, oracle: Oracle, kept_ms: float = math.inf) -> None:
        self._oracle = oracle
        self.kept_ms = kept_ms
        """For how long a terminus outlives its link."""
        self._by_name: dict[str, Terminus] = {}
        self._given_up: set[str] = set()
        """Links whose client was told that their terminus had ended."""
        self._learnt: dict[str, list[bytes]] = {}
        """Identities of the termini of each link, in the order in which its client heard of them."""
        self._numbers = 0

    # -- links ---------------------------------------------------------------------------------------------------------

    def asks(self, name: str, token: str, *, anew: bool) -> Terminus:
        """A client is about to attach a link. `anew`: it knows of no terminus, and says so, which ends what there
        is."""
        terminus = self._by_name.get(name)
        if terminus is not None and anew:
            self.ends(terminus)
        if terminus is None or anew:
            self._numbers += 1
            terminus = self._by_name[name] = Terminus(name, self._numbers)
        terminus.token = token
        terminus.life += 1
        return terminus

    def attached(self, terminus: Terminus, token: str, identity: bytes) -> None:
        """It was told that this link is there, on this connection, and on the terminus of this identity."""
        if self._oracle.is_broken(token) or terminus.token != token or terminus.identity != identity or terminus.ended:
            return
        self._may_have_ended(terminus)
        if terminus.over:
            self._release(terminus)
        terminus.away_s, terminus.over = None, False

    def moves(self, terminus: Terminus, token: str) -> None:
        """Its connection is another one."""
        self.broke(terminus.token)
        terminus.token = token

    def broke(self, token: str) -> None:
        """A connection may be gone."""
        for terminus in self._by_name.values():
            if terminus.token == token and terminus.away_s is None:
                terminus.away_s = self._oracle.now()

    def ends(self, terminus: Terminus) -> None:
        """Somebody asks for its end."""
        terminus.over = terminus.ended = True
        self._release(terminus)

    def ends_all(self, names: Iterable[str]) -> None:
        """Somebody asks for the end of these."""
        for name in names:
            if name in self._by_name:
                self.ends(self._by_name[name])

    def may_have_ended(self, name: str) -> bool:
        """Whether the terminus of this link may have ended since it was known to be there."""
        terminus = self._by_name.get(name)
        return terminus is None or self._may_have_ended(terminus)

    def _may_have_ended(self, terminus: Terminus) -> bool:
        if not terminus.over and terminus.away_s is not None and terminus.identity:
            earliest, latest = self._oracle.wall.between_ms(terminus.away_s)
            terminus.over = latest - earliest >= self.kept_ms - MARGIN_MS
        return terminus.over

    def learns(self, name: str, identity: bytes) -> None:
        """The client hears which terminus the broker keeps for this link, and tells its store."""
        self._learnt.setdefault(name, []).append(identity)

    def identified(self, name: str, identity: bytes) -> None:
        """It is known which terminus the broker keeps for this link: by the client's store, which may lag behind, or by
        a message."""
        terminus, learnt = self._by_name[name], self._learnt.get(name, [])
        late = terminus.identity in learnt and identity in learnt[: learnt.index(terminus.identity)]
        if late or identity in terminus.former:
            return
        if not terminus.identity:
            terminus.identity = identity
        elif terminus.identity != identity:
            if not self._may_have_ended(terminus):
                raise Violation(f"suspended: {terminus} was ended before its time, and is another one")
            self._release(terminus)
            self._numbers += 1
            # The program has the same object, so that it becomes the new one.
            terminus.former.add(terminus.identity)
            terminus.number, terminus.identity, terminus.over, terminus.ended = self._numbers, identity, False, False
            # It is there, as `attached` tells, or was: a store that lags tells of it when the link may be long gone.
            if terminus.away_s is None:
                terminus.away_s = self._oracle.now()
            terminus.tags.clear()
            terminus.decided.clear()

    # -- what it holds -------------------------------------------------------------------------------------------------

    def look(self, copy: Copy) -> None:
        """What its keeper may have lost is anybody's."""
        keeper = copy.keeper
        if isinstance(keeper, Terminus) and self._may_have_ended(keeper):
            self._free(copy)

    def _release(self, terminus: Terminus) -> None:
        for copy in self._oracle.copies.values():
            if copy.keeper is terminus:
                self._free(copy)

    @staticmethod
    def _free(copy: Copy) -> None:
        copy.keeper = None
        copy.failures_max += 1
        copy.count_max += 1
        if copy.state is Held.RETIRED:
            copy.state = Held.MAYBE_RETIRED
        elif copy.state is Held.YES:
            copy.state, copy.holder = Held.NO, None

    def arrives(self, terminus: Terminus, tag: bytes, seen: Seen, copy: Copy) -> bool:
        """A message has come under this tag. False: nothing more is to be known of it."""
        what, locks = f"{seen.sequence} ({seen.key})", "locks" in self._oracle.place(seen.queue).traits
        if tag in terminus.decided:
            raise Violation(f"resumed: {what} was decided as {tag!r}, and comes to {terminus} again")
        before = terminus.tags.get(tag)
        if before is not None and (before.sequence, before.count) != (seen.sequence, seen.count):
            raise Violation(f"resumed: {tag!r} was {before}, and is {seen}")
        terminus.tags[tag] = seen
        if copy.holder is terminus and before is None and not locks:
            raise Violation(f"resumed: {what} is held by {terminus}, and comes to it as another delivery: {tag!r}")
        if self._may_have_ended(terminus):
            copy.failures_max += 1
            copy.count_max += 1
            return False
        return True

    # -- what stores tell ----------------------------------------------------------------------------------------------

    def decided(self, name: str, tag: bytes, verb: str) -> None:
        """The outcome of a delivery is safe in the store: that is what becomes of it."""
        oracle, terminus = self._oracle, self._by_name[name]
        if tag in terminus.decided or tag not in terminus.tags:
            return
        seen = terminus.tags[tag]
        copy, retiring = oracle.copies[seen.sequence], 0
        oracle.happened("decided")
        mine = copy.holder is terminus
        if verb in RETIRING:
            retiring = oracle.retires(seen.sequence, rejects=verb == "reject")
            # What is rejected comes again where there is no room for its dead letter.
            if mine and verb == "accept" and "locks" not in oracle.place(seen.queue).traits:
                copy.state = Held.RETIRED
            elif copy.keeper is terminus:
                copy.keeper = None
        else:
            if copy.keeper is terminus:
                copy.keeper = None
            if verb in FAILING:
                oracle.fails(seen.sequence)
            else:
                oracle.gives_back(seen.sequence)
        terminus.decided[tag] = Decision(verb, seen.sequence, retiring)

    def forgotten(self, name: str, tag: bytes) -> None:
        """The store was told to forget an outcome: the broker has settled."""
        terminus = self._by_name[name]
        decision = terminus.decided.get(tag)
        if decision is None or self._may_have_ended(terminus):
            return
        copy = self._oracle.copies[decision.sequence]
        if copy.keeper is terminus and decision.verb in RETIRING and copy.state is Held.RETIRED:
            copy.keeper = None
            self._oracle.happened("settled")

    def told(self, terminus: Terminus, tag: bytes, seen: Seen, verb: str, status: ReceiptStatus, said_s: float) -> None:
        """The client was told what became of an outcome."""
        oracle = self._oracle
        copy, decision = oracle.copies[seen.sequence], terminus.decided.get(tag)
        traits = oracle.place(seen.queue).traits
        locks = "locks" in traits
        oracle.happened(f"exactly-once {status.name.lower()}")
        if status is ReceiptStatus.STALE:
            lasts = oracle.postings[seen.key].durable  # what does not may be gone with the broker's process
            # A dead letter without room is a failed attempt instead.
            dies = verb == "reject" or ("releases" in traits and verb not in RETIRING | FAILING)
            full = dies and said_s <= oracle.no_room_until_s
            if decision is not None and lasts and not locks and not full and not self._may_have_ended(terminus):
                raise Violation(f"receipt: {seen} was {terminus}'s, and {verb} is stale")
            if verb in RETIRING and decision is not None:
                oracle.stale(seen.sequence, decision.retiring)
            return
        if status is not ReceiptStatus.APPLIED:
            return
        if decision is None and terminus.tags.get(tag) == seen:
            raise Violation(f"receipt: {seen}: {verb} is applied, and was not safe in the store")
        oracle.applied(seen, said_s, late=False, retires=verb in RETIRING)
        if verb in RETIRING:
            if copy.state is Held.RETIRED and decision is not None and not locks and not copy.moved:
                copy.keeper = None
                copy.rejected |= verb == "reject"
            else:
                oracle.retired(seen.sequence, rejected=verb == "reject")
        elif verb in FAILING:
            oracle.failed(seen.sequence, seen.count, said_s)

    # -- sends ---------------------------------------------------------------------------------------------------------

    def recovered(self, keys: Iterable[str]) -> None:
        """The client was told that all that an earlier life left in the store is accepted."""
        for key in keys:
            self._oracle.happened("recovered")
            self._oracle.answered(key, Sent.ACCEPTED)

    def given_up(self, name: str, keys: Iterable[str]) -> None:
        """The client was told that the broker has ended the terminus, so that these may be sent again."""
        # Killed before its store knew that, the client asks for the same one again, and nobody has another since.
        again = name in self._given_up and not self._by_name[name].identity
        if not again and not self.may_have_ended(name):
            raise Violation(
                f"suspended: {self._by_name[name]} was ended before its time, and {list(keys)} are in doubt"
            )
        for key in keys:
            posting = self._oracle.postings[key]
            posting.exactly = False
            posting.told_s = math.inf  # told or not, it may come again from now on, also to those who came since
        self._by_name.pop(name)
        self._given_up.add(name)


__all__ = ["Decision", "Termini", "Terminus"]
