"""Termini that outlive their links: what a peer left unsettled is kept for it until it attaches again (2.6.13).

Theory of operation. A link is *resumable* where its peer asks for it: by the capability ``acquit:resume``, a terminus
with durable=unsettled-state, and rcv-settle-mode second. Then we offer the capability, too. The terminus is named by
user, container, link name and direction (2.6.1). It has an identity of its own and is keyed state of the journal; an
attach is answered only when all that was recorded before, this state included, is on the disk.

*Sources* (peers that receive). A message that is acquired here is recorded before its first frame leaves, so that no
crash makes it available while the peer may have acted on it. Its tag follows from what the journal knows of it
(`terminus.delivery_tag`), so nothing more need be recorded for the tag to survive. When the link has gone, what it held
is SUSPENDED: held by the terminus, visible to nobody. When it is attached again, both unsettled maps are compared, and
`protocol.resumption` says for each tag what we do (`resuming`). A tag that we do not know is settled: its outcome was
recorded, or it would be here. What was taken from the peer (its lock ran out) keeps its tag and its outcome until the
peer has shown that it heard.

*Targets* (peers that send). A posting is recorded together with its tag, and the tag is forgotten when the peer has
settled it, which shows that it knows. So a peer that attaches again learns from our map what was posted, and sends the
rest, once.

A terminus whose link has gone ends after its timeout, which the peer asks for and `limits.terminus_kept_ms_max` bounds.
What a source held is given back then, as from a lost connection; the tags of a target are forgotten. An attach without
an unsettled map (null) begins anew and ends the old terminus at once (2.7.3).
"""

from __future__ import annotations

import secrets
from collections import deque
from heapq import heapify, heappop, heappush
from itertools import chain, islice, takewhile
from typing import TYPE_CHECKING, Final, TypeVar

from acquit.broker.inspect import TerminusSnapshot
from acquit.broker.links.peers import terminus_text
from acquit.broker.links.terminus import (
    IDENTITY_BYTES,
    NAME_BYTES_MAX,
    TAG_KEY,
    SourceTerminus,
    TargetTerminus,
    TerminusName,
    decode_terminus,
    delivery_tag,
    granted_ms,
)
from acquit.broker.queue import NodeEvent, NodeState
from acquit.broker.refusal import Refused
from acquit.errors import StoreFull
from acquit.ledger.records import Namespace, State, StateDeleted
from acquit.protocol.composite import decode_composite, encode_composite
from acquit.protocol.constants import ACCEPTED
from acquit.protocol.definitions import AmqpCondition
from acquit.protocol.serial import distance

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from acquit.broker.dispatching.consumers import Consumer
    from acquit.broker.life import Life
    from acquit.broker.links.endpoints import WaitingLink
    from acquit.broker.links.peers import Peer
    from acquit.broker.message import Message
    from acquit.broker.options import BrokerLimits
    from acquit.protocol.constants import Outcome
    from acquit.protocol.delivery import Delivery, DeliveryState
    from acquit.protocol.endpoint import Link

GROUP_MAX: Final = 500
"""Tags that one entry of the journal remembers."""
STEP: Final = 200
"""Messages of an ending terminus that are given back in one turn."""

_T = TypeVar("_T", SourceTerminus, TargetTerminus)


class Termini:
    """All termini of the broker that outlive their links."""

    def __init__(self, life: Life, limits: BrokerLimits) -> None:
        self.limits = limits
        self._life = life
        self._scribe = life.scribe
        self._by_name: dict[TerminusName, SourceTerminus | TargetTerminus] = {}
        self._due: list[tuple[int, bytes, SourceTerminus | TargetTerminus]] = []
        """A heap of times in milliseconds since the epoch, one for each suspension; some are over."""
        self._ended: dict[SourceTerminus, None] = {}
        """Termini that have ended and hold something still."""
        self._ending: deque[SourceTerminus] = deque()
        """Termini of these of whose end the journal knows."""

    # -- links --------------------------------------------------------------------------------------------------------

    def granted_ms(self, link: Link) -> int:
        """Return for how long the terminus of a requested link outlives it; 0 where the link is not resumable.

        Raises Refused as `terminus.granted_ms` does.
        """
        asked, frame_bytes = link.remote_attach, link.session.connection.frame_size_max
        assert asked is not None
        return granted_ms(asked, self.limits.terminus_kept_ms_max, frame_bytes) if self.limits.termini_max else 0

    def open_source(
        self, peer: Peer, link_name: str, node: str, timeout_ms: int, default_outcome: Outcome | None, *, anew: bool
    ) -> SourceTerminus:
        """Return the terminus of a link from a queue, recorded as attached. The answer must wait for the next sync.

        `anew`: the peer has no unsettled map, so that a terminus of this name is ended first. Raises Refused.
        """
        name = TerminusName(peer.user, peer.container, link_name, receives=False)
        known = self._known(name, node, SourceTerminus, anew=anew)
        if known is None:
            known = SourceTerminus(
                name, secrets.token_bytes(IDENTITY_BYTES), self._number(name, node), node, timeout_ms
            )
            known.fresh = True
        known.default_outcome = default_outcome
        return self._open(known, timeout_ms)

    def open_target(self, peer: Peer, link_name: str, node: str, timeout_ms: int, *, anew: bool) -> TargetTerminus:
        """Return the terminus of a link to an address, as `open_source` does."""
        name = TerminusName(peer.user, peer.container, link_name, receives=True)
        known = self._known(name, node, TargetTerminus, anew=anew)
        if known is None:
            known = TargetTerminus(
                name, secrets.token_bytes(IDENTITY_BYTES), self._number(name, node), node, timeout_ms
            )
        return self._open(known, timeout_ms)

    def _known(self, name: TerminusName, node: str, kind: type[_T], *, anew: bool) -> _T | None:
        if len(name.encode()) > NAME_BYTES_MAX:
            raise Refused(
                f"a resumable link whose names have more than {NAME_BYTES_MAX} bytes",
                condition=AmqpCondition.NOT_IMPLEMENTED,
            )
        known = self._by_name.get(name)
        if known is None:
            if len(self._by_name) >= self.limits.termini_max:
                raise Refused(
                    f"{self.limits.termini_max} termini outlive their links (limits.termini_max), no more are taken",
                    condition=AmqpCondition.RESOURCE_LIMIT_EXCEEDED,
                )
            return None
        if anew or known.node != node or not isinstance(known, kind):
            self.end(known)
            return None
        return known

    def _number(self, name: TerminusName, node: str) -> int:
        number = self._scribe.declare(name.container, name.link, name.user, node)
        if not number:
            raise Refused("the broker's disk is full: try again later", condition=AmqpCondition.RESOURCE_LIMIT_EXCEEDED)
        return number

    def _open(self, terminus: _T, timeout_ms: int) -> _T:
        terminus.timeout_ms = timeout_ms
        terminus.since_ms = 0
        terminus.busy = terminus.attached is not None  # by the link that this one takes the name of
        if isinstance(terminus, SourceTerminus):
            terminus.told.clear()  # on a session that is no more; what the peer has heard, its map does not name
        self._by_name[terminus.name] = terminus
        self._record(terminus)
        return terminus

    def refused(self, waiting: WaitingLink) -> None:
        """Note that a link was refused after its terminus was opened: what that holds waits for the next link."""
        terminus, waiting.resumable = waiting.resumable, None
        if terminus is not None:
            if terminus.fresh:
                self.end(terminus)
            self.suspended(terminus, waiting)

    def suspend(self, terminus: SourceTerminus, consumer: Consumer, messages: Iterable[Message]) -> None:
        """Take over messages that the consumer of a link that has gone had acquired: some of them in each turn."""
        life, queue = self._life, consumer.queue
        for message in messages:
            if message.holder is not consumer:
                continue
            life.apply(message, NodeEvent.SUSPEND, actor=terminus.number)
            self._hold(terminus, message)
        life.wake(queue)

    def suspended(self, terminus: SourceTerminus | TargetTerminus, link: object) -> None:
        """Note that a link has gone and all that it held is suspended: the terminus begins to expire, if no other link
        has taken it over. `link` is what had `attached` itself."""
        if terminus.attached is not link:
            terminus.busy = False
            waiting, terminus.waiting = terminus.waiting, None
            if waiting is not None:
                waiting()
            return
        terminus.attached = None
        if self._by_name.get(terminus.name) is not terminus:
            self._give_back(terminus)
            return
        terminus.since_ms = max(1, self._scribe.time_us // 1000)
        self._record(terminus)
        self._expire_later(terminus)

    def resume(self, terminus: SourceTerminus, consumer: Consumer, tag: bytes) -> Message | None:
        """Give a suspended message to the consumer of the new link; None if it was taken away meanwhile."""
        message = terminus.messages.pop(tag, None)
        if message is None or message.holder is not terminus:
            return None
        self._life.apply(message, NodeEvent.RESUME, actor=terminus.number)
        message.holder = consumer
        consumer.held += 1
        consumer.queue.acquired += 1
        return message

    # -- what was taken away ------------------------------------------------------------------------------------------

    def take(self, terminus: SourceTerminus, tags: Iterable[bytes], outcome: DeliveryState) -> None:
        """Keep the outcome of deliveries whose message was taken from the peer, until it has heard of it."""
        for tag in tags:
            terminus.taken[tag] = outcome
            self._remember(terminus.tag_key(tag), encode_composite(outcome))

    def tell(self, consumer: Consumer, tags: Iterable[bytes]) -> None:
        """Note that the peer is being told, on this link, what became of deliveries. What was taken from it is not
        forgotten before the peer has shown that it heard: if the connection is lost before that, it would take what we
        do not know any more for performed (2.6.13)."""
        terminus, session = consumer.resumable, consumer.link.session
        if terminus is None or terminus.attached is not consumer:
            return
        session.flush_dispositions()  # no later transfer overtakes them
        terminus.told.update(dict.fromkeys([tag for tag in tags if tag in terminus.taken], session.next_delivery_id))

    def posted_heard(self, terminus: TargetTerminus, deliveries: Iterable[Delivery]) -> None:
        """Forget the tags of postings that the peer has settled."""
        if terminus.answered:
            self.forget(terminus, [delivery.tag for delivery in deliveries])

    def heard(
        self, consumer: Consumer, deliveries: Sequence[Delivery], state: DeliveryState | None, *, settled: bool
    ) -> None:
        """Forget what the peer knows, by what it says of these: it has settled them, or repeats the outcome that it was
        told, or was told of others before these were sent."""
        terminus = consumer.resumable
        if terminus is None or not terminus.taken:
            return
        taken, told = terminus.taken, terminus.told
        known = [one.tag for one in deliveries if one.tag in taken and (settled or taken[one.tag] == state)]
        if told and terminus.attached is consumer:
            first = next(iter(told.values()))
            newest = max(distance(first, one.delivery_id) for one in deliveries)
            known += takewhile(lambda tag: distance(first, told[tag]) <= newest, list(told))
        self.forget(terminus, known)

    def forget(self, terminus: SourceTerminus | TargetTerminus, tags: Iterable[bytes]) -> None:
        """Forget tags: the peer does not ask for them any more."""
        for tag in tags:
            key: bytes | None
            if isinstance(terminus, SourceTerminus):
                terminus.told.pop(tag, None)
                key = terminus.tag_key(tag) if terminus.taken.pop(tag, None) is not None else None
            else:
                key = terminus.forget(tag) if terminus.answered.pop(tag, None) is not None else None
            if key is not None:
                self._keep(StateDeleted(self._scribe.time_us, Namespace.RESUMABLE, key))

    # -- postings -----------------------------------------------------------------------------------------------------

    def posted(self, terminus: TargetTerminus, tags: Iterable[bytes], *, durable: bool) -> None:
        """Record the tags of postings, in the batch with the postings themselves."""
        posted = list(tags)
        terminus.answered.update(dict.fromkeys(posted, ACCEPTED))
        for at in range(0, len(posted) if durable else 0, GROUP_MAX):
            self._remember(*terminus.record(posted[at : at + GROUP_MAX]))

    # -- the end ------------------------------------------------------------------------------------------------------

    def end(self, terminus: SourceTerminus | TargetTerminus) -> None:
        """End a terminus: what it holds goes back, in the turns that follow, and its name is free at once. Twice is
        once: another of that name may be there."""
        if terminus.over:
            return
        name, terminus.over = terminus.name, True
        del self._by_name[name]
        self._keep(StateDeleted(self._scribe.time_us, Namespace.RESUMABLE, name.encode()))
        if isinstance(terminus, SourceTerminus):
            self._life.terminus_over(terminus_text(name.user, name.container, name.link))
        known = terminus.taken if isinstance(terminus, SourceTerminus) else terminus.answered
        self.forget(terminus, list(known))
        if terminus.attached is None:
            self._give_back(terminus)

    def end_all(self, node: str) -> None:
        """End the sources of a queue that is being deleted."""
        for terminus in list(self._by_name.values()):
            if terminus.node == node and isinstance(terminus, SourceTerminus):
                self.end(terminus)

    def _give_back(self, terminus: SourceTerminus | TargetTerminus) -> None:
        """Give back what it holds, once the journal knows of its end: volatile messages have no other record, and over
        a crash who had one first would take it for accepted, as whoever has it next."""
        if isinstance(terminus, SourceTerminus) and terminus.messages:
            self._ended[terminus] = None
            self._scribe.once_durable(self._ending.append, terminus)

    def run(self, give_back: Callable[[Message, SourceTerminus], None]) -> bool:
        """Let expire what is due, and give back some of what ended termini hold. True if there is more."""
        now_ms = self._scribe.time_us // 1000
        while self._due and self._due[0][0] <= now_ms:
            at_ms, _, terminus = heappop(self._due)
            if terminus.since_ms and terminus.since_ms + terminus.timeout_ms == at_ms:
                self.end(terminus)
        left = STEP
        while self._ending and left > 0:
            source = self._ending[0]
            for tag in list(islice(source.messages, left)):
                left -= 1
                message = source.messages.pop(tag)
                if message.holder is source:
                    give_back(message, source)
            if not source.messages:
                del self._ended[self._ending.popleft()]
        return bool(self._ending)

    @property
    def next_ms(self) -> int | None:
        """The time at which `run` is wanted next, in milliseconds since the epoch."""
        return self._due[0][0] if self._due else None

    def clock_set(self, by_ms: int) -> None:
        """Follow a jump of the wall clock, forward or (negative) back: a timeout is a duration."""
        for terminus in self._by_name.values():
            if terminus.since_ms:
                terminus.since_ms = max(1, terminus.since_ms + by_ms)
        self._due = [
            (terminus.since_ms + terminus.timeout_ms, terminus.identity, terminus)
            for terminus in self._by_name.values()
            if terminus.since_ms
        ]
        heapify(self._due)

    def _expire_later(self, terminus: SourceTerminus | TargetTerminus) -> None:
        heappush(self._due, (terminus.since_ms + terminus.timeout_ms, terminus.identity, terminus))

    # -- for administration -------------------------------------------------------------------------------------------

    def snapshots(self) -> list[TerminusSnapshot]:
        """Return all termini as people see them."""
        now_ms = self._scribe.time_us // 1000
        return [_snapshot(terminus, now_ms) for terminus in self._by_name.values()]

    def find(self, identity: str) -> SourceTerminus | TargetTerminus | None:
        """Return the terminus of an identity, 32 hexadecimal digits; None where there is none."""
        return next((one for one in self._by_name.values() if one.identity.hex() == identity), None)

    def held_of(self, node: str) -> Iterator[Message]:
        """Return the messages of a queue that suspended sources hold, and those that have ended."""
        for terminus in chain(self._by_name.values(), self._ended):
            if terminus.node == node and isinstance(terminus, SourceTerminus):
                yield from terminus.messages.values()

    # -- the journal --------------------------------------------------------------------------------------------------

    def restore(self) -> dict[int, SourceTerminus]:
        """Take over what the journal tells of. Return the sources, which hold what their links had, by number."""
        by_identity: dict[bytes, SourceTerminus | TargetTerminus] = {}
        tags: list[tuple[bytes, bytes]] = []
        now_ms = max(1, self._scribe.time_us // 1000)
        for (namespace, key), entry in self._scribe.recorder.table.state.items():
            if namespace != Namespace.RESUMABLE:
                continue
            if key.startswith(TAG_KEY):
                tags.append((key, entry.value))
            else:
                terminus = decode_terminus(key, entry.value)
                terminus.since_ms = min(terminus.since_ms, now_ms) or now_ms
                by_identity[terminus.identity] = self._by_name[terminus.name] = terminus
                self._expire_later(terminus)
        tag_at = len(TAG_KEY) + IDENTITY_BYTES
        for key, value in tags:
            owner = by_identity.get(key[len(TAG_KEY) : tag_at])
            if isinstance(owner, TargetTerminus):
                owner.restore(key, value)
            elif owner is not None:
                owner.taken[key[tag_at:]] = decode_composite(value)[0]  # type: ignore[assignment]  # as `take` wrote it
        return {one.number: one for one in self._by_name.values() if isinstance(one, SourceTerminus)}

    def recovered(self, terminus: SourceTerminus, message: Message) -> None:
        """A message that the terminus held when the last run ended, or that its link had acquired."""
        if message.state is NodeState.ACQUIRED:
            self._life.apply(message, NodeEvent.SUSPEND, actor=terminus.number)
        self._hold(terminus, message)

    @staticmethod
    def _hold(terminus: SourceTerminus, message: Message) -> None:
        message.holder = terminus
        terminus.messages[delivery_tag(message)] = message

    def _record(self, terminus: SourceTerminus | TargetTerminus) -> None:
        self._keep(State(self._scribe.time_us, Namespace.RESUMABLE, terminus.name.encode(), terminus.encode()))

    def _remember(self, key: bytes, value: bytes) -> None:
        self._keep(State(self._scribe.time_us, Namespace.RESUMABLE, key, value))

    def _keep(self, entry: State | StateDeleted) -> None:
        try:
            self._scribe.recorder.keep(entry)
        except StoreFull:
            self._scribe.exhausted = True  # the recorder keeps it, and no batch is taken without it


def _new_identity() -> bytes:
    return secrets.token_bytes(IDENTITY_BYTES)


def _snapshot(terminus: SourceTerminus | TargetTerminus, now_ms: int) -> TerminusSnapshot:
    name = terminus.name
    is_source = isinstance(terminus, SourceTerminus)
    age_ms = max(0, now_ms - terminus.since_ms) if terminus.since_ms else 0
    return TerminusSnapshot(
        identity=terminus.identity.hex(),
        role="source" if is_source else "target",
        node=terminus.node,
        container=name.container,
        link=name.link,
        user=name.user,
        attached=terminus.attached is not None,
        suspended_ms=age_ms,
        ends_in_ms=max(0, terminus.timeout_ms - age_ms) if terminus.since_ms else 0,
        messages=len(terminus.messages) if isinstance(terminus, SourceTerminus) else 0,
        tags=len(terminus.taken if isinstance(terminus, SourceTerminus) else terminus.answered),
    )


__all__ = ["Termini"]
