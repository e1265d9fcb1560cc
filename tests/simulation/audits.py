"""What must be true of a broker whatever its users were told: looked at from within, while it runs and at rest.

These are not promises about any one message, so the oracle does not know them: the books of the journal balance at
every seal, the disk that is in use is bounded, and nobody waits for a message that waits for nobody.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

from acquit.ledger.records import RecordKind
from acquit.ledger.verify import verify
from acquit.protocol.message import Message
from acquit.store.reading import FolderReader
from acquit.store.record import walk
from acquit.testing.simulation.system import DATA
from tests.simulation.facts import Violation
from tests.simulation.places import COLOURS

if TYPE_CHECKING:
    from acquit.broker.core import Core
    from acquit.broker.dispatching.consumers import Consumer
    from acquit.broker.message import Message as Kept
    from acquit.broker.nodes.node import Queue
    from acquit.store.options import JournalOptions
    from tests.simulation.world import World

LOOKS: Final = 4
LOOK_S: Final = 0.1
LOOK_AT: Final = 50
"""Messages of a queue that are looked at."""
SELECTORS: Final = {None: COLOURS, **{f"colour = '{colour}'": (colour,) for colour in COLOURS}}
"""What users select by, and the colours that match."""
SEGMENTS_BESIDE: Final = 4
"""Segments that may be there beside what lives and what the options ask for: the one that is written, and some that
are on their way out."""
SMALL_BYTES: Final = 64 * 1024
"""Segments that are smaller may be filled by the summary of one that leaves, so that one waits for the other."""
LAZY: Final = 8
"""Segments leave one by one as the log grows, and wait at rest: they may be those of what lived while it grew by so
many times what recovery may read."""
MESSAGE_BYTES: Final = 1_024
"""What the journal needs for a message beside its body, state included."""

BODIES: Final = frozenset({RecordKind.POSTING, RecordKind.COPIED})
ERASING_S: Final = 70.0
"""The time that the erasing of many segments takes beside, and the minute that it waits where it found no room."""

Standing = tuple[str, int, "Consumer"]


def check_books(world: World) -> None:
    """Each segment against its seal, each seal against the one before, and what is live against all of it."""
    found = verify(DATA, disk=world.disk.after_kill())
    if found.problems:
        raise Violation(f"books: {found.problems}")


def live_bytes(core: Core) -> int:
    """What the journal needs for all that lives."""
    return core.holdings.live_bytes + core.holdings.live_count * MESSAGE_BYTES


def check_disk(world: World) -> None:
    """What recovery would read, and what the folder takes, is bounded by the options and by what lives, or did."""
    options: JournalOptions = world.options.journal
    core, journal = world.server._core, world.server._opened.journal
    live = live_bytes(core)
    largest = max(options.segment_bytes, *(segment.file_bytes for segment in journal.segments))
    recovered = journal.end - next(one.base for one in journal.segments if one.number > journal.left_through)
    if options.segment_bytes < SMALL_BYTES:
        return
    usual = max(options.recovery_bytes_max, 2 * live)
    begin = journal.end - LAZY * usual
    first = next((at for at, (end, _) in enumerate(world.lived) if end >= begin), len(world.lived))
    # What the last look before that found may have lived until it.
    lived = max((then for _, then in world.lived[max(first - 1, 0) :]), default=live)
    bound = max(LAZY * usual, 2 * lived) + largest
    if recovered > bound:
        raise Violation(f"disk: recovery would read {recovered} bytes, of at most {bound}; {live} are live")
    beside = (options.reserve_segments + options.spare_segments + SEGMENTS_BESIDE) * largest
    most = (bound + options.archive_bytes_max) * 4 // 3 + beside + options.stubs_max * MESSAGE_BYTES * 4
    if world.disk.used_bytes > most:
        raise Violation(f"disk: {world.disk.used_bytes} bytes are used, of at most {most}")


def check_erased(world: World) -> None:
    """Where bodies are to be erased, none but those of live messages is on the disk after that time."""
    after_s = world.options.journal.erase_bodies_after_s
    if not after_s:
        return
    world.scheduler.run_for(after_s + ERASING_S)
    holdings = world.server._core.holdings
    live = {message.position for sequence in holdings.sequences() if (message := holdings.live(sequence)) is not None}
    reader = FolderReader(DATA, world.disk.after_kill())
    contents = reader.contents()
    for number in (*contents.archive, *contents.journal):
        with reader.open(number) as segment:
            for head, data in segment.batches():
                for record in walk(head, data):
                    body = record.kind in BODIES and record.position not in live and record.payload.strip(b"\0")
                    if body:
                        raise Violation(f"erased: segment {number} has the body of a record of kind {record.kind}")


def check_credit(world: World) -> None:
    """Nothing goes wrong: no consumer with credit and no message that it may have both stand for long."""
    both = _standing(world)
    for _ in range(LOOKS):
        world.scheduler.run_for(LOOK_S)
        both &= _standing(world)
    if both:
        name, sequence, consumer = min(both, key=lambda found: found[:2])
        raise Violation(f"credit: {sequence} stands in {name}, and so does {consumer.terminus} with {consumer.link!r}")


def _standing(world: World) -> set[Standing]:
    """Who could be given what, now."""
    if not world.up or world.broker is None or world.broker.dead:
        return set()
    core: Core = world.server._core
    return {found for queue in core.queues.by_name.values() for found in _of(queue)}


def _of(queue: Queue) -> set[Standing]:
    if queue.held_up or queue.barrier is not None or queue.blocked_groups:
        return set()
    consumers = [consumer for consumer in queue.consumers if _is_ready(queue, consumer)]
    messages = [*islice(queue.backlog.next_messages(), LOOK_AT), *islice(queue.aside, LOOK_AT)] if consumers else []
    return {
        (queue.name, message.sequence, consumer)
        for message in messages
        for consumer in consumers
        if _may_have(queue, message, consumer)
    }


def _is_ready(queue: Queue, consumer: Consumer) -> bool:
    policy = queue.policy
    served = policy.consumers == "shared" or consumer is queue.active
    room = not policy.prefetch_max or consumer.held < policy.prefetch_max
    credit = consumer.link.sendable and consumer.link.credit > consumer.reserved
    return served and room and credit and consumer.peer.open_to_more


def _may_have(queue: Queue, message: Kept, consumer: Consumer) -> bool:
    interest = consumer.interest
    if message.body is None or interest is None or interest.wants.no_local or interest.wants.bytes_max:
        return False
    said = Message.decode(message.body)
    owner = None
    if queue.groups is not None and said.group_id is not None and queue.policy.message_groups:
        owner = queue.groups.owner(said.group_id)
    colour = (said.application_properties or {}).get("colour")
    excluded = message.extra is not None and consumer.terminus in message.extra.excluded
    return owner in (None, consumer) and not excluded and colour in SELECTORS.get(interest.wants.selector, ())


__all__ = ["check_books", "check_credit", "check_disk", "check_erased"]
