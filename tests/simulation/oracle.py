"""What must be true of messages, written from the promises alone: what each party was told, and what follows.

The oracle knows nothing of the broker's inside. Clients tell it what they did and what they were told, as it happens.
A *key* names what was sent (a body begins with it); a *copy* is one message in one queue, told apart by the broker's
sequence, for a send that is repeated after a lost connection may enter twice, and a topic's enters each subscription.

What it holds everything to is `RULES`; a violation begins with the name of the rule that is broken.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Final

from tests.simulation.facts import Copy, Held, Posting, Seen, Sent, Transaction, Violation, Wall, terminus
from tests.simulation.places import Place
from tests.simulation.sweeps import Act, Sweep, Sweeps
from tests.simulation.termini import Termini, Terminus

RULES: Final = {
    "lost": (
        "what was answered accepted is in each queue it went to, is a dead letter or expired, was retired or displaced",
        "durable",
        "at-least-once",
        "topics",
    ),
    "passing": (
        "what is accepted while a volatile subscription stands comes to it while its link lives; nothing from before",
        "topics",
    ),
    "again": (
        "a copy whose retirement was *applied* never comes again, and no other retirement of it is applied",
        "answered",
        "no-lies",
    ),
    "never": ("what is delivered was sent, was not refused, and is where it was sent to, whole", "no-lies"),
    "void": ("what a transaction that was rolled back posted is nowhere", "transactions", "no-lies"),
    "whole": ("a committed transaction happened whole; of one in doubt all, or nothing", "transactions"),
    "holder": (
        "a copy has one holder while the connections of both hold; so have a group, and a queue that serves one",
        "one-holder",
    ),
    "once": ("a copy goes once to receivers that settle on arrival; a browser sees each copy once", "at-most-once"),
    "order": (
        "copies that nobody had come in the order of their sequences; what is at rest by priority, and then so",
        "order",
    ),
    "blocked": ("where redelivery blocks its queue, nothing behind what waits for another attempt comes", "order"),
    "count": (
        "the delivery-count tells of every failure and of no other; what failed as often as it may comes no more",
        "attempts",
    ),
    "letter": (
        "a dead letter was rejected, or failed too often, where it says it was; what was rejected and told so is one",
        "attempts",
    ),
    "time": ("nothing comes before its time or its delay, or after its time to live, or expires before that",),
    "lock": (
        "nobody has a copy before the lock of who had it has run out; what it says after that is stale",
        "one-holder",
        "answered",
    ),
    "here": ("what a receiver said is undeliverable here does not come to it again", "one-holder"),
    "recover": ("what a session recovers comes again to it before anything else, in order", "no-lies"),
    "room": ("a queue has no more consumers than it may have", "bounded"),
    "swept": (
        "what waited when a purge, a move or a cancel was asked for is not there after it; what was moved is one",
        "no-lies",
    ),
    "paused": (
        "what is paused hands out nothing that was sent since, or accepts nothing, over restarts, until it is resumed",
    ),
    "unique": ("what duplicate detection knows enters once", "duplicates"),
    "bounded": ("a queue that is full holds no more, and a last-value queue has one of each value", "bounded"),
    "exactly": ("what was sent exactly once enters each queue once", "exactly-once"),
    "resumed": (
        "what a terminus holds comes to its receiver as the same delivery, and not again when its outcome is safe",
        "exactly-once",
    ),
    "ended": ("a subscription of which its client was told that it has ended is not there again", "topics"),
    "suspended": (
        "a terminus lasts as long as it was promised, nothing stays suspended for longer, and all comes to an end",
        "exactly-once",
    ),
    "receipt": ("what an exactly-once receiver is told of its outcomes is true", "exactly-once", "no-lies"),
}
"""Each rule: what it says, and the promises of docs/guarantees.md that it stands for."""

DEAD_LETTERS: Final = "DLQ"
EXPIRED: Final = "ExpiryQueue"
MARGIN_MS: Final = 2
"""Times are in whole milliseconds, rounded more than once."""
LATE_S: Final = 0.05
"""So much later than it is due may something be done by a broker that does not stand still."""


class Oracle:
    """See above."""

    def __init__(self, once: str, places: Iterable[Place], now: Callable[[], float], wall: Wall) -> None:
        """`once`: the queue of which receivers settle on arrival. What is under way to one of them may be lost."""
        self._once = once
        self._places = {place.name: place for place in places}
        self.now = now
        self.wall = wall
        self.postings: dict[str, Posting] = {}
        self.copies: dict[int, Copy] = {}
        self.void: set[str] = set()
        self.counts: Counter[str] = Counter()
        self.in_doubt_of: list[Transaction] = []
        self._subscriptions: defaultdict[str, list[str]] = defaultdict(list)
        """Queues of a topic that last, and are known to be there."""
        self.subscriptions: dict[str, None] = {}
        """All that may be there, in the order in which they were asked for."""
        self._watching: dict[tuple[str, object], str] = {}
        """Links of subscriptions that go with them, by queue and holder, and the colour that each has asked for."""
        self._begun_s: dict[str, float] = {}
        """When the first link of each was asked for."""
        self._linked: defaultdict[str, set[object]] = defaultdict(set)
        """By queue: those of its links that may still be there."""
        self._links: defaultdict[object, list[object]] = defaultdict(list)
        """By connection: what else is lost with it."""
        self._passing: set[str] = set()
        """Queues of those that have several."""
        self._broken: set[object] = set()
        self._selected: set[str] = set()
        self._deaths_s: list[float] = []
        """When brokers ended, one way or another."""
        self._breaks = 0
        """Connections that were lost: each may have added one to the delivery-count of any message."""
        self._latest: dict[object, int] = {}
        """The newest copy that each holder received and that nobody had had before."""
        self._owners: dict[tuple[str, str | None], object] = {}
        """Who has a group, or a queue with one consumer."""
        self._browsed: set[tuple[object, int]] = set()
        self._retirings = 0
        self._sweeps = Sweeps()
        self._paused: dict[str, tuple[str, float]] = {}
        """Addresses that are paused for certain: for whom, and when that was told."""
        self.termini = Termini(self)
        self._newest = 0
        """The highest sequence that anybody has seen."""
        self.no_room_until_s = 0.0
        """Until then the disk may have refused what was to be written."""
        self.stood_still: Callable[[], float] = lambda: 0.0
        """Until when the broker stood still last."""
        self.is_cut: Callable[[str], bool] = lambda connection: False
        """Whether a connection has no other end any more, which its client may not know yet."""
        self._shunning: set[tuple[str, int]] = set()
        """Who has said, or is about to, that a copy is undeliverable here, on whichever connection."""
        self._shunned: set[tuple[object, int]] = set()
        """Who was told that this is applied."""
        self._recovered: dict[object, deque[int]] = {}
        """By holder: what comes to it next."""
        self._attached: defaultdict[str, set[object]] = defaultdict(set)
        """By queue: who is known to have been given a link to receive from it."""
        self._waiting: defaultdict[str, dict[int, tuple[float, float]]] = defaultdict(dict)
        """By queue: copies that wait for another attempt and hold up what is behind them; when that was said, and when
        it was told to be so."""

    def place(self, queue: str) -> Place:
        """The address of this queue."""
        return self._places[queue.partition("::")[0]]

    def happened(self, what: str) -> None:
        """Count it."""
        self.counts[what] += 1

    # -- senders -------------------------------------------------------------------------------------------------------

    def sends(self, posting: Posting) -> None:
        """A client is about to send."""
        self.happened("sent")
        posting.sent_s = self.now()
        topic = self.place(posting.queue).topic
        posting.queues = tuple(self._subscriptions[posting.queue]) if topic else (posting.queue,)
        posting.watched = {
            one
            for one, colour in self._watching.items()
            if one[0].partition("::")[0] == posting.queue and colour in ("", posting.colour)
        }
        self.postings[posting.key] = posting

    def answered(self, key: str, known: Sent) -> None:
        """It was told what became of that. What was sent twice is refused if it was both times."""
        self.happened(known.name.lower())
        posting = self.postings[key]
        if known is Sent.ACCEPTED:
            self._check_paused(posting, "producers", "is accepted")
        if posting.known is not Sent.ACCEPTED:
            posting.known = known
            posting.told_s = self.now()
            if posting.delay_ms:
                posting.due_ms = self.wall.between_ms(posting.sent_s)[0] + posting.delay_ms

    # -- receivers -----------------------------------------------------------------------------------------------------

    def subscribes(self, queue: str) -> None:
        """A client asks for a subscription that lasts."""
        self.subscriptions[queue] = None

    def subscribed(self, queue: str) -> None:
        """It was told that there is one."""
        mine = self._subscriptions[queue.partition("::")[0]]
        if queue not in mine:
            mine.append(queue)

    def joins(self, queue: str, holder: object, link: object, *, shared: bool) -> None:
        """A client asks, on this connection, for a link of a subscription that goes with its links: it holds by itself
        what comes on it."""
        if shared:
            self._passing.add(queue)
        if not self._linked[queue]:
            self._begun_s[queue] = self.now()
        self._linked[queue].add(link)
        self._links[holder].append(link)
        if holder in self._broken:
            self._broken.add(link)

    def watches(self, queue: str, link: object, colour: str) -> None:
        """It was told that it has one."""
        if link not in self._broken:
            self._watching[queue, link] = colour

    def leaves(self, queue: str, link: object, unsettled: Iterable[int]) -> None:
        """It is about to detach: what it holds, and these that it has in hand, goes back as failed."""
        self._watching.pop((queue, link), None)
        for sequence in {*unsettled, *(one for one, copy in self.copies.items() if copy.holder is link)}:
            self.fails(sequence)
        self._broken.add(link)
        self._forget_waiting()

    def _forget_waiting(self) -> None:
        """A subscription of which no link is known to be there may have gone, with what waited in it."""
        there = {queue for queue, _ in self._watching}
        for queue in [queue for queue in self._waiting if queue in self._begun_s and queue not in there]:
            del self._waiting[queue]

    def is_broken(self, holder: object) -> bool:
        """Whether what this one was given may be given to others."""
        return holder in self._broken

    def left(self, queue: str, link: object) -> None:
        """It was told that it is detached."""
        self._linked[queue].discard(link)

    def silent(self, queue: str, link: object, since_s: float) -> None:
        """All that had come was dealt with then, and nothing has come to it since, while its link was there and had
        credit."""
        mine, place = (queue, link), self.place(queue)
        if mine not in self._watching or any(one[0] == queue for one in self._watching if one != mine):
            return  # others may have it in their buffers
        self.happened("silent")
        if place.displaces or place.settings.get("redelivery_blocks", "none") != "none":
            return  # it may have given way, or wait behind what waits until the time of day is another
        if "locks" in place.traits and place.attempts_max:
            return  # its lock may have run out in a buffer as often as it may
        for posting in self.postings.values():
            due = posting.known is Sent.ACCEPTED and posting.told_s < since_s
            if due and mine in posting.watched and not (posting.ttl_ms or posting.delay_ms):
                self.happened("passed")
                if not any(self.copies[one].queue == queue for one in posting.copies):
                    raise Violation(f"passing: {posting.key} was accepted, and did not come to {link} from {queue}")

    def _check_begun(self, posting: Posting, queue: str) -> None:
        before = posting.told_s < self._begun_s.get(queue, 0.0)
        if before and "unique" not in self.place(queue).traits:  # there another of its postings may come after it
            raise Violation(f"passing: {posting.key} was accepted before {queue} began, and comes to it")

    def selects(self, queue: str) -> None:
        """A client will not have some of its messages: what was meant for it may come to another, behind later ones."""
        self._selected.add(queue)

    def may_be_missing(self, queue: str) -> bool:
        """Whether nobody was ever told that this subscription is there."""
        return queue in self.subscriptions and queue not in self._subscriptions[queue.partition("::")[0]]

    def _was_sent(self, seen: Seen) -> Posting:
        """What this is a copy of."""
        posting = self.postings.get(seen.key)
        if posting is None or seen.body.partition(" ")[2].strip("x"):
            raise Violation(f"never: {seen.sequence} has the body {seen.body[:40]!r}, which nobody sent")
        if posting.known is Sent.REFUSED:
            raise Violation(f"never: {seen.key} was refused, and is there as {seen.sequence}")
        if (seen.origin_queue or seen.queue).partition("::")[0] not in self._sweeps.reaches(posting.queue):
            raise Violation(f"never: {seen.key} was sent to {posting.queue}, and is in {seen.queue} ({seen})")
        if seen.key in self.void:
            raise Violation(f"void: {seen.key} was rolled back, and is there as {seen.sequence}")
        if posting.transaction is not None:
            self._resolve(posting.transaction, committed=True, because=f"{seen.key} is there")
        self._newest = max(self._newest, seen.sequence)
        if seen.origin and not seen.origin_queue:
            self._was_moved(seen)
        return posting

    def _was_moved(self, seen: Seen) -> None:
        """This is what became of another copy."""
        copy = self.copies.get(seen.origin)
        if copy is not None:
            self.termini.look(copy)
        if copy is None or copy.moved or "locks" in self.place(copy.queue).traits:
            return
        if copy.state is Held.RETIRED or (copy.state is Held.YES and copy.holder is not None):
            raise Violation(f"swept: {seen.origin} ({seen.key}) was {copy.state.name}, and was moved: {seen}")
        if copy.taker is not None and copy.taker.committing:
            self._resolve(copy.taker, committed=False, because=f"{seen.origin} ({seen.key}) was moved")
        copy.moved = True

    def _check_swept(self, seen: Seen, posting: Posting, since_s: float) -> None:
        """`since_s`: it stood in its queue then, and nobody had had it."""
        if seen.origin or seen.queue != posting.queue:
            return
        due_s = self.wall.reached_s(posting.due_ms, posting.sent_s)
        sweep = self._sweeps.took(seen.queue, seen.sequence, posting.colour, posting.told_s, due_s, since_s=since_s)
        died_s = max(self._deaths_s, default=0.0)
        if sweep is not None and self.place(seen.queue).displaces and sweep.answered_s < died_s:
            return  # it was displaced before, which the broker had not recorded: nothing was done to it
        if sweep is not None:
            raise Violation(f"swept: {seen.sequence} ({seen.key}) is in {seen.queue} after {sweep}")

    def asks(self, act: Act) -> tuple[float, float, int]:
        """A client is about to ask for this. Returns what `done` needs to know."""
        before = self._sweeps.until_s(act), self.now(), self._newest
        self._sweeps.asks(act)
        return before

    def done(self, act: Act, asked: tuple[float, float, int]) -> None:
        """It was told that this is done."""
        self.happened(f"{act.kind} done")
        before_s, asked_s, newest = asked
        self._sweeps.answered(Sweep(act, newest, asked_s, self.now()), before_s)

    def pauses(self, address: str, how: str) -> None:
        """A client was told that this is paused, for producers, consumers or both."""
        self.happened("paused")
        self._paused[address] = how, self.now()

    def resumes(self, address: str) -> None:
        """It is about to ask that this be resumed."""
        self._paused.pop(address, None)

    def _check_paused(self, posting: Posting, whom: str, what: str) -> None:
        how, since_s = self._paused.get(posting.queue, ("none", 0.0))
        if how in (whom, "both") and posting.sent_s > since_s:
            raise Violation(f"paused: {posting.queue} is paused for {how} since {since_s}, and {posting.key} {what}")

    def browses(self, seen: Seen, browser: object) -> None:
        """A client looks at a message."""
        self.happened("browsed")
        self._was_sent(seen)
        if (browser, seen.sequence) in self._browsed:
            raise Violation(f"once: {browser} saw {seen.sequence} ({seen.key}) twice")
        self._browsed.add((browser, seen.sequence))

    def arrives(
        self,
        seen: Seen,
        holder: object,
        *,
        on_arrival: bool = False,
        asked_s: float | None = None,
        terminus: Terminus | None = None,
        tag: bytes = b"",
    ) -> None:
        """A client has got a message. `on_arrival`: it is settled so; `asked_s`: before that it was not under way;
        `terminus`: it holds what comes, under this tag, over lost connections."""
        self.happened("delivered")
        sequence, key, queue = seen.sequence, seen.key, seen.queue
        posting, place = self._was_sent(seen), self.place(queue)
        if queue == posting.queue:
            self._check_paused(posting, "consumers", f"comes to {holder}")
        self._check_begun(posting, queue)
        posting.copies.add(sequence)
        copy = self.copies.get(sequence)
        if copy is None:
            copy = self.copies[sequence] = Copy(key, queue)
        if copy.key != key or copy.queue != queue:
            raise Violation(f"never: {sequence} was {copy.key} in {copy.queue}, and is {key} in {queue}")
        if posting.exactly and not seen.origin and queue not in self._sweeps.targets:
            self._check_exactly(posting, queue)
        self.termini.look(copy)
        again = terminus is not None and tag in terminus.tags
        connection = str(holder).partition("/")[0]
        if self.is_cut(connection):
            self.connection_broke(connection)
        if terminus is not None:
            if not self.termini.arrives(terminus, tag, seen, copy):
                return
            holder = terminus
        elif holder in self._broken:
            copy.failures_max += 1  # if its connection lasts all the same, and is closed over it, that is a failure
            return
        self._check_recovered(sequence, holder)
        if (holder, sequence) in self._shunned:
            raise Violation(f"here: {sequence} ({key}) comes to {holder}, who said that it is undeliverable here")
        if "locks" in place.traits and seen.count < copy.count_seen:
            return  # its lock ran out before this holder looked at it, and another has had it since
        copy.count_seen = seen.count
        taker, copy.taker = copy.taker, None
        if taker is not None and taker.committing:
            self._resolve(taker, committed=False, because=f"{sequence} ({key}) comes again")
        if copy.state in (Held.RETIRED, Held.MAYBE_RETIRED) and "locks" in place.traits:
            return  # its lock ran out before this holder looked at it, and another has, or may have, retired it
        if copy.state is Held.RETIRED or copy.moved:
            raise Violation(f"again: {sequence} ({key}) was retired or moved, and comes again")
        if copy.state is Held.YES and copy.holder is not None and copy.holder is not holder:
            if "locks" not in place.traits:
                raise Violation(f"holder: {sequence} ({key}) has {copy.holder} and {holder}")
            if self.now() < copy.locked_until_s - MARGIN_MS / 1000:
                left_s = copy.locked_until_s - self.now()
                raise Violation(f"lock: {sequence} ({key}) goes to {holder}; {copy.holder} has it for {left_s:.3f} s")
            copy.failures_max += 1
            copy.count_max += 1
        copy.arrivals += 1
        if "locks" not in place.traits:
            copy.retiring.clear()
        if on_arrival:
            copy.state = Held.RETIRED
            return
        copy.state, copy.holder, copy.keeper = Held.YES, holder, terminus
        copy.sole = terminus if copy.arrivals == 1 or copy.sole is terminus else None
        copy.locked_until_s = max(asked_s or 0.0, posting.sent_s) + place.lock_s
        copy.runs_out_s = self.now() + place.lock_s
        if terminus is None:
            self._check_owner(posting, place, seen, holder)
        self._check_counts(seen, copy, place)
        self._check_time(seen, posting, copy, place, asked_s)
        if seen.fresh and asked_s is not None:
            self._check_swept(seen, posting, asked_s)
        if not again:
            self._check_blocked(seen, max(asked_s or 0.0, posting.sent_s, copy.free_s))
        if seen.fresh and not again and posting.durable and not posting.delay_ms and queue not in self._selected:
            # What is kept in memory alone waits for the disk only in a transaction: whatever does not overtakes it.
            waits = queue in self._begun_s and posting.transaction is not None
            line = holder, queue, posting.priority, posting.group, waits, 0 if terminus is None else terminus.life
            if sequence < self._latest.get(line, 0):
                raise Violation(f"order: {sequence} ({key}) came behind {self._latest[line]} to {holder}")
            self._latest[line] = sequence

    def _may_enter_again(self, posting: Posting, queue: str) -> bool:
        """Whether it may be twice in this queue, though it was sent exactly once, or has an id.

        A subscription that goes with its links gives out at once what it has, in memory alone. A broker that dies
        before the delivery-tag, or the id, is on the disk knows nothing of that posting, and its sender was told
        nothing: it is posted once more, and enters the same subscription, whose reader has come back. An id of what
        no queue keeps on the disk is not there either."""
        until_s = posting.told_s if posting.exactly else math.inf
        return queue in self._begun_s and any(posting.sent_s <= died_s <= until_s for died_s in self._deaths_s)

    def _check_exactly(self, posting: Posting, queue: str) -> None:
        copies = [one for one in posting.copies if self.copies[one].queue == queue and not self.copies[one].moved]
        if len(copies) > 1 and not self._may_enter_again(posting, queue):
            raise Violation(f"exactly: {posting.key} entered {queue} as {sorted(copies)}")

    def _check_recovered(self, sequence: int, holder: object) -> None:
        again = self._recovered.get(holder)
        if again:
            expected = again.popleft()
            if expected != sequence:
                raise Violation(f"recover: {sequence} came to {holder}, and {expected} was to come first")

    def _check_owner(self, posting: Posting, place: Place, seen: Seen, holder: object) -> None:
        single = "single" in place.traits
        if single or posting.group is not None:
            what = seen.queue, None if single else posting.group
            owner = self._owners.get(what)
            if not single and (terminus(owner), seen.sequence) in self._shunning:
                return  # it goes to another one, and binds nothing
            if not single and seen.queue in self._selected:
                return  # moved to where some ask for one colour: what of the group they reject goes to another one
            if owner is not None and owner is not holder and owner not in self._broken:
                raise Violation(f"holder: {what} has {owner}, and {posting.key} went to {holder}")
            self._owners[what] = holder

    def _check_counts(self, seen: Seen, copy: Copy, place: Place) -> None:
        what = f"{seen.sequence} ({seen.key})"
        if seen.count < copy.count_min:
            raise Violation(f"count: {what} has {seen.count}, and had {copy.count_min} failures")
        if seen.count > copy.count_max + self._breaks and "locks" not in place.traits:
            raise Violation(f"count: {what} has {seen.count}, of at most {copy.count_max} + {self._breaks} lost")
        # Where a lock runs out, what its first holder has not looked at yet may have come to another before.
        if seen.fresh and copy.arrivals > 1 and copy.sole is None and "locks" not in place.traits:
            raise Violation(f"count: {what} says that nobody had it")
        if 0 < place.attempts_max <= copy.failures:
            raise Violation(f"count: {what} failed {copy.failures} of {place.attempts_max} times, and comes again")

    def _check_time(self, seen: Seen, posting: Posting, copy: Copy, place: Place, asked_s: float | None) -> None:
        what = f"{seen.sequence} ({seen.key})"
        earliest, latest = self.wall.between_ms(posting.sent_s)
        if earliest + posting.delay_ms - latest > MARGIN_MS:
            raise Violation(f"time: {what} comes {earliest + posting.delay_ms - latest} ms before its time")
        if copy.failed_at_s is not None and "delays" in place.traits:
            earliest, latest = self.wall.between_ms(copy.failed_at_s)
            early_ms = earliest + place.settings["redelivery_delay_ms"] - latest
            copy.failed_at_s = None
            if early_ms > MARGIN_MS:
                raise Violation(f"time: {what} comes {early_ms} ms before its delay is over")
        if posting.ttl_ms and asked_s is not None:
            over_ms = self.wall.between_ms(asked_s)[0] - seen.posted_at_ms - posting.ttl_ms
            if over_ms > MARGIN_MS:
                raise Violation(f"time: {what} is given out {over_ms} ms after it expired")

    def _check_blocked(self, seen: Seen, since_s: float) -> None:
        """`since_s`: later than this it was given to who has it."""
        for sequence, (said_s, told_s) in list(self._waiting[seen.queue].items()):
            earliest, latest = self.wall.between_ms(said_s)
            over = earliest + self.place(seen.queue).settings["redelivery_delay_ms"] - latest <= MARGIN_MS
            if over or self._sweeps.may_have_taken(seen.queue, said_s):
                del self._waiting[seen.queue][sequence]
                continue
            before = -self.postings[self.copies[sequence].key].priority, sequence
            if told_s < since_s and before < (-seen.priority, seen.sequence):
                raise Violation(f"blocked: {seen.sequence} ({seen.key}) comes while {sequence} waits before it")

    def attached(self, queue: str, holder: object) -> None:
        """A client was given a link to receive from this queue; it asked for it as this holder."""
        mine = self._attached[queue]
        mine -= self._broken
        if holder not in self._broken:
            mine.add(holder)
        most = self.place(queue).settings.get("consumers_max", 0)
        if 0 < most < len(mine) and "::" not in queue:
            raise Violation(f"room: {queue} has {len(mine)} consumers of at most {most}: {mine}")

    def recovers(self, holder: object, sequences: Sequence[int]) -> None:
        """A session is about to recover these, in the order in which it got them."""
        expected = [*sequences, *self._recovered.pop(holder, ())]
        copies = [self.copies[one] for one in expected]
        certain = all(copy.state is Held.YES and copy.holder is holder for copy in copies)
        if certain and not any("locks" in self.place(copy.queue).traits for copy in copies):
            self._recovered[holder] = deque(expected)

    def renews(self, sequence: int) -> None:
        """The holder is about to renew its lock."""
        self.copies[sequence].runs_out_s = math.inf

    def renewed(self, sequence: int, holder: object, said_s: float) -> None:
        """The broker has heard of that by now."""
        self.happened("renewed")
        copy = self.copies[sequence]
        if copy.state is Held.YES and copy.holder is holder:
            lock_s = self.place(copy.queue).lock_s
            copy.runs_out_s = self.now() + lock_s
            if self.now() <= copy.locked_until_s:
                copy.locked_until_s = said_s + lock_s

    def ran_out(self, sequence: int, holder: object) -> bool:
        """Whether what this one says of it now comes when its lock has certainly run out."""
        copy = self.copies[sequence]
        mine = copy.holder is holder and max(self.stood_still(), self.no_room_until_s) < copy.runs_out_s
        return "locks" in self.place(copy.queue).traits and mine and copy.runs_out_s + LATE_S < self.now()

    def applied(self, seen: Seen, said_s: float, *, late: bool, retires: bool) -> None:
        """What was said of this delivery is applied. `late`: as `ran_out` had it then."""
        copy = self.copies[seen.sequence]
        copy.free_s = max(copy.free_s, said_s)  # if it is not, another may have it already, and not know yet
        if late:
            raise Violation(f"lock: {seen.sequence} ({seen.key}): its lock had run out, and what was said is applied")
        if retires and seen.count < copy.count_seen:
            raise Violation(f"lock: {seen.sequence} ({seen.key}) was delivered again before what was said is applied")

    def shuns(self, sequence: int, holder: object) -> None:
        """The holder is about to say that it is undeliverable here."""
        self._shunning.add((terminus(holder), sequence))
        self.selects(self.copies[sequence].queue)

    def shunned(self, sequence: int, holder: object) -> None:
        """It was told that this is applied."""
        self._shunned.add((holder, sequence))

    def gives_back(self, sequence: int) -> None:
        """The holder has let go of it, or is about to: it may come again at any time."""
        copy = self.copies[sequence]
        copy.releases_max += 1
        if copy.state is Held.YES:
            copy.state, copy.holder = Held.NO, None

    def fails(self, sequence: int) -> None:
        """The holder says that its attempt failed, or is about to."""
        copy = self.copies[sequence]
        copy.failures_max += 1
        copy.count_max += 1
        self.gives_back(sequence)

    def failed(self, sequence: int, count: int, said_s: float) -> None:
        """It was told that this is applied. `count`: what the message had; `said_s`: when it said so."""
        self.happened("failed")
        copy = self.copies[sequence]
        # Where there is no room for a dead letter, the message stays where it is.
        copy.failures += said_s > self.no_room_until_s
        copy.count_min = max(copy.count_min, count + 1)
        place, posting = self.place(copy.queue), self.postings[copy.key]
        # Where its lock had run out by then, it failed at that moment: what is told is the same.
        copy.failed_at_s = min(said_s, copy.locked_until_s) if "locks" in place.traits else said_s
        lasts = posting.durable and not posting.ttl_ms and not place.displaces and "locks" not in place.traits
        more = not 0 < place.attempts_max <= count + 1 + self._breaks
        if place.settings.get("redelivery_blocks") == "queue" and lasts and more:
            self._waiting[copy.queue][sequence] = said_s, self.now()

    def retires(self, sequence: int, *, rejects: bool = False) -> int:
        """The holder says accepted, or rejected: from now on it may be gone. Returns a number for what it hears."""
        self._retirings += 1
        copy = self.copies[sequence]
        copy.maybe_rejected |= rejects
        copy.failures_max += rejects  # where there is no room for its dead letter, this was a failed attempt
        copy.count_max += rejects
        if copy.state is not Held.RETIRED:
            copy.state, copy.holder = Held.MAYBE_RETIRED, None
            copy.retiring.add(self._retirings)
        return self._retirings

    def retired(self, sequence: int, *, rejected: bool = False) -> None:
        """It was told that this is applied."""
        self.happened("rejected" if rejected else "retired")
        copy = self.copies[sequence]
        if copy.state is Held.RETIRED or copy.moved:
            raise Violation(f"again: {sequence} ({copy.key}) was retired or moved, and is retired again")
        copy.state = Held.RETIRED
        copy.rejected |= rejected

    def stale(self, sequence: int, retiring: int) -> None:
        """It was told that this had no effect."""
        self.happened("stale")
        copy = self.copies[sequence]
        copy.retiring.discard(retiring)
        if copy.state is Held.MAYBE_RETIRED and not copy.retiring:
            copy.state = Held.NO

    def broker_died(self) -> None:
        """What it had done and not recorded is undone: attempts that nobody was told of count no more."""
        self._deaths_s.append(self.now())
        for copy in self.copies.values():
            copy.count_seen = min(copy.count_seen, copy.count_min)

    def connection_broke(self, holder: object) -> None:
        """One of its ends may know that it is gone: whatever this one holds may be given to others, and what still
        comes out of its buffer may have been."""
        self.termini.broke(str(holder))
        lost = {holder, *self._links.pop(holder, ())}
        self._broken |= lost
        self._breaks += 1
        self._watching = {one: colour for one, colour in self._watching.items() if one[1] not in lost}
        self._forget_waiting()
        for copy in self.copies.values():
            if copy.holder in lost:
                copy.holder = None
                if copy.state is Held.YES:
                    copy.state = Held.NO
                    copy.failures_max += 1

    # -- transactions --------------------------------------------------------------------------------------------------

    def posts(self, posting: Posting, transaction: Transaction) -> None:
        """A client is about to send in a transaction."""
        self.sends(posting)
        transaction.posts.append(posting.key)

    def takes(self, seen: Seen, holder: object, transaction: Transaction) -> None:
        """A client has got a message in a transaction."""
        self.arrives(seen, holder)
        copy = self.copies[seen.sequence]
        if copy.holder is holder:
            copy.taker = transaction
            transaction.takes.append(seen.sequence)
        else:
            transaction.late.append(seen.sequence)

    def commits(self, transaction: Transaction) -> None:
        """A client is about to commit it: what becomes of that, one side may know before the other."""
        transaction.committing = True
        for key in transaction.posts:
            self.postings[key].transaction = transaction
        for sequence in transaction.takes:
            if self.copies[sequence].taker is transaction:
                transaction.retirings[sequence] = self.retires(sequence)
        for sequence in transaction.late:
            self.retires(sequence)

    def committed(self, transaction: Transaction) -> None:
        """Its commit was answered so."""
        self.happened("committed")
        self._resolve(transaction, committed=True, because="the commit was answered")
        for key in transaction.posts:
            self.answered(key, Sent.ACCEPTED)

    def rolled_back(self, transaction: Transaction) -> None:
        """It was rolled back, as far as the client was told."""
        self.happened("rolled back")
        self._resolve(transaction, committed=False, because="the client was told that it was rolled back")

    def in_doubt(self, transaction: Transaction) -> None:
        """Nobody told."""
        self.happened("in doubt")
        self.in_doubt_of.append(transaction)

    def _undo(self, transaction: Transaction, because: str) -> None:
        for key in transaction.posts:
            self.void.add(key)
            if self.postings[key].copies:
                raise Violation(f"void: {transaction.name}: {because}, and {key} was delivered")
        for sequence in (*transaction.takes, *transaction.late):
            copy = self.copies[sequence]
            copy.failures_max += 1
            copy.count_max += 1
            if copy.taker is transaction:
                copy.holder, copy.taker = None, None
                copy.retiring.discard(transaction.retirings.get(sequence, 0))
                # It may have come again, on a connection that is lost as well or to a terminus, and have been retired.
                if copy.state is not Held.RETIRED and (copy.state is not Held.MAYBE_RETIRED or not copy.retiring):
                    copy.state = Held.NO

    def _resolve(self, transaction: Transaction, *, committed: bool, because: str) -> None:
        """Something shows what became of one in doubt."""
        if transaction.known is None:
            transaction.known = committed
            if committed:
                for sequence in transaction.takes:
                    if self.copies[sequence].taker is not transaction:
                        raise Violation(f"whole: {transaction.name}: {because}, and {sequence} came again before")
                    self.retired(sequence)
                for sequence in transaction.late:
                    self.retired(sequence)
            else:
                self._undo(transaction, because)
        elif transaction.known is not committed:
            known = "committed" if transaction.known else "rolled back"
            raise Violation(f"whole: {transaction.name} was {known}: {because}")

    # -- the end -------------------------------------------------------------------------------------------------------

    def drained(self, found: Mapping[str, Sequence[Seen]], rested_s: float) -> None:
        """All that is in queues, in the order in which it came. `rested_s`: since when nothing happens any more."""
        for copy in self.copies.values():
            self.termini.look(copy)
        letters, expired = found[DEAD_LETTERS], found[EXPIRED]
        present = {(seen.key, seen.origin_queue or seen.queue) for group in found.values() for seen in group}
        for queue, group in found.items():
            for seen in group:
                self._was_sent(seen)
            if queue not in (DEAD_LETTERS, EXPIRED):
                self._check_left(queue, group, rested_s)
        for moved in (letters, expired):
            origins = Counter(seen.origin for seen in moved)
            for seen in moved:
                if origins[seen.origin] > 1:
                    raise Violation(
                        f"letter: {seen.origin} ({seen.key}) is {origins[seen.origin]} times in {seen.queue}"
                    )
        for seen in letters:
            self._check_letter(seen)
        for seen in expired:
            self._check_expired(seen)
        self._check_present(present, {seen.origin for seen in letters})
        self._check_unique(found)

    def _check_left(self, queue: str, group: Sequence[Seen], rested_s: float) -> None:
        place = self.place(queue)
        for seen in group:
            posting, copy = self.postings[seen.key], self.copies.get(seen.sequence)
            if seen.fresh:
                self._check_swept(seen, posting, rested_s)
            if copy is not None:
                if copy.state is Held.RETIRED or copy.moved:
                    raise Violation(f"again: {seen.sequence} ({seen.key}) was retired, and is there")
                if copy.taker is not None and copy.taker.committing:
                    self._resolve(copy.taker, committed=False, because=f"{seen.sequence} ({seen.key}) is there")
                self._check_counts(seen, copy, place)
            over_ms = self.wall.between_ms(rested_s)[0] - seen.posted_at_ms - posting.ttl_ms
            if posting.ttl_ms and over_ms > MARGIN_MS:
                raise Violation(f"time: {seen.sequence} ({seen.key}) is there {over_ms} ms after it expired")
        line = [(-seen.priority, seen.sequence) for seen in group]
        if line != sorted(line):
            at = next(number for number, pair in enumerate(pairwise(line)) if pair[0] > pair[1])
            raise Violation(f"order: at rest {group[at + 1]} comes behind {group[at]}")
        if queue in self._sweeps.targets:  # a limit refuses nothing that is moved
            return
        if place.messages_max and len(group) > place.messages_max:
            raise Violation(f"bounded: {queue} holds {len(group)} messages of at most {place.messages_max}")
        values = Counter(self.postings[seen.key].value for seen in group)
        del values[None]
        if "last_value" in place.traits and values and max(values.values()) > 1:
            raise Violation(f"bounded: {queue} holds {values}")

    def _check_letter(self, seen: Seen) -> None:
        place, copy = self.place(seen.origin_queue), self.copies.get(seen.origin)
        what = f"{seen.origin} ({seen.key})"
        if place.drops:
            raise Violation(f"letter: {what} is a dead letter, and its address has none")
        failures = copy.failures_max if copy is not None else 0
        if place.settings.get("connection_loss") == "dead-letter" or "locks" in place.traits:
            failures += self._breaks + (place.attempts_max if "locks" in place.traits else 0)
        tired = "releases" in place.traits
        if copy is not None and copy.state is Held.RETIRED and not copy.maybe_rejected:
            raise Violation(f"letter: {what} was accepted, and is a dead letter")
        if not ((copy is not None and copy.maybe_rejected) or tired or 0 < place.attempts_max <= failures):
            raise Violation(f"letter: {what} was not rejected, and failed at most {failures} of {place.attempts_max}")
        if copy is not None and copy.taker is not None and copy.taker.committing and not copy.maybe_rejected:
            self._resolve(copy.taker, committed=False, because=f"{what} is a dead letter")

    def _check_expired(self, seen: Seen) -> None:
        posting, copy = self.postings[seen.key], self.copies.get(seen.origin)
        what = f"{seen.origin} ({seen.key})"
        if copy is not None and copy.state is Held.RETIRED:
            raise Violation(f"again: {what} was retired, and is in the expiry queue")
        if self.place(seen.origin_queue).drops:
            raise Violation(f"time: {what} is in the expiry queue, and its address has none")
        if not posting.ttl_ms:
            raise Violation(f"time: {what} has no time to live, and is in the expiry queue")
        if seen.ended_at_ms < self.wall.between_ms(posting.sent_s)[0] + posting.ttl_ms - MARGIN_MS:
            raise Violation(f"time: {what} expired at {seen.ended_at_ms}, which is too early")

    def _check_present(self, present: set[tuple[str, str]], letters: set[int]) -> None:
        for posting in self.postings.values():
            if posting.known is not Sent.ACCEPTED or not posting.durable or posting.queue == self._once:
                continue
            if self._may_miss(posting):
                continue
            for queue in posting.queues:
                queues = self._sweeps.reaches(queue)
                copies = [self.copies[one] for one in posting.copies if self.copies[one].queue in queues]
                gone = {copy.state for copy in copies} & {Held.RETIRED, Held.MAYBE_RETIRED}
                if not gone and not any((posting.key, one) in present for one in queues):
                    raise Violation(f"lost: {posting.key} was accepted into {queue}; copies {posting.copies}")
        for sequence, copy in self.copies.items():
            posting, place = self.postings[copy.key], self.place(copy.queue)
            dead = copy.rejected or 0 < place.attempts_max <= copy.failures
            lasts = posting.durable and (not place.topic or copy.queue in self._subscriptions[place.name])
            if dead and lasts and not place.drops and sequence not in letters:
                raise Violation(f"letter: {sequence} ({copy.key}) was rejected or failed, and is no dead letter")
        for transaction in self.in_doubt_of:
            posts = [self.postings[key] for key in transaction.posts]
            seen = {
                (posting.key, queue): any((posting.key, one) in present for one in self._sweeps.reaches(queue))
                or any(self.copies[one].queue in self._sweeps.reaches(queue) for one in posting.copies)
                for posting in posts
                if not self._may_miss(posting)
                for queue in posting.queues
            }
            if len(set(seen.values())) > 1 or (transaction.known is True and not all(seen.values())):
                raise Violation(f"whole: of {transaction.name}, in doubt, {seen}")

    def _may_miss(self, posting: Posting) -> bool:
        """Whether what was accepted may be gone, because it gave way, or because somebody asked for that."""
        places = [self.place(queue) for queue in self._sweeps.reaches(posting.queue)]
        displaced = any(place.displaces for place in places)
        tired = any(place.attempts_max or "releases" in place.traits for place in places)
        dropped = any(place.drops for place in places) and (tired or posting.ttl_ms > 0)
        return displaced or dropped or self._sweeps.may_miss(posting.queue, posting.sent_s, later=posting.delay_ms > 0)

    def _check_unique(self, found: Mapping[str, Sequence[Seen]]) -> None:
        copies: defaultdict[tuple[str, str], set[int]] = defaultdict(set)
        for sequence, copy in self.copies.items():
            copies[copy.key, copy.queue].add(sequence)
        for group in found.values():
            for seen in group:
                copies[seen.key, seen.origin_queue or seen.queue].add(seen.origin or seen.sequence)
        for (key, queue), sequences in copies.items():
            if queue in self._passing:  # what was in it, and its id, may be forgotten, and both begin anew
                continue
            if self._deaths_s and not self.postings[key].durable:  # its id is nowhere but in the memory that is gone
                continue
            if queue in self._sweeps.targets or len(sequences) == 1:
                continue
            if self._may_enter_again(self.postings[key], queue):
                continue
            if self.postings[key].exactly:
                raise Violation(f"exactly: {key} entered {queue} as {sorted(sequences)}")
            if "unique" in self.place(queue).traits:
                raise Violation(f"unique: {key} entered {queue} as {sorted(sequences)}")


__all__ = ["DEAD_LETTERS", "EXPIRED", "RULES", "Oracle"]
