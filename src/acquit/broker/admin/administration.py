"""The operations on a running broker besides sending and receiving.

Every request is performed in small steps, one a turn, so that a queue of a million messages is purged or moved while
everybody else is served. Who asked is in the journal, as the actor of each message's event.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from acquit.broker.admin.examining import STATES, Examination, Examined, MessagePage, examined, in_full
from acquit.broker.admin.later import Later, RequestFailure
from acquit.broker.admin.marks_listing import MarksListing
from acquit.broker.admin.moving import Move
from acquit.broker.admin.purging import ChosenPurge, Purge
from acquit.broker.admin.redriving import Redrive, Redriven
from acquit.broker.admin.schedule import Cancel, Listing, Scheduled, all_of, found_by_id, found_by_sequence
from acquit.broker.admin.trends import Trends
from acquit.broker.admin.turns import InTurns
from acquit.broker.admin.walking import EVERYTHING, choose
from acquit.broker.inspect import MarkSnapshot
from acquit.broker.intake.limits import full
from acquit.broker.intake.posting import Posted
from acquit.broker.links.terminus import SourceTerminus
from acquit.broker.nodes.addresses import plain_fault
from acquit.broker.nodes.queues import check_address, check_generated
from acquit.broker.refusal import Refused
from acquit.broker.selector import compile_selector
from acquit.ledger.history import History
from acquit.protocol.definitions import AmqpCondition, ConnectionCondition, Error
from acquit.protocol.extensions import MANAGEMENT_NODE
from acquit.protocol.link import Link
from acquit.protocol.types import Value

if TYPE_CHECKING:
    from acquit.broker.access.permissions import Rights
    from acquit.broker.admin.adopting import Adoption
    from acquit.broker.admin.connections import Connections
    from acquit.broker.admin.figures import Figures
    from acquit.broker.admin.survey import Surveys
    from acquit.broker.auditing import Auditor
    from acquit.broker.inspect import TerminusSnapshot
    from acquit.broker.intake.duplicates import Duplicates
    from acquit.broker.intake.entering import Entering
    from acquit.broker.intake.marks import Marks
    from acquit.broker.intake.posting import Poster
    from acquit.broker.life import Life
    from acquit.broker.links.peers import Peer
    from acquit.broker.links.termini import Termini
    from acquit.broker.nodes.addresses import Policies
    from acquit.broker.nodes.finding import Nodes
    from acquit.broker.nodes.node import Queue
    from acquit.broker.nodes.operator_rules import OperatorRules
    from acquit.broker.nodes.pausing import Pauses
    from acquit.broker.nodes.queues import Queues
    from acquit.broker.nodes.removal import Removal
    from acquit.broker.nodes.topics import Topics
    from acquit.broker.transact.transactions import Transactions
    from acquit.ledger.history import Asked
    from acquit.ledger.records import MessageId


class Administration:
    """The operations that the management node performs."""

    def __init__(
        self,
        life: Life,
        entering: Entering,
        queues: Queues,
        topics: Topics,
        removal: Removal,
        duplicates: Duplicates,
        termini: Termini,
        transactions: Transactions,
        connections: Connections,
        end_link: Callable[[Link, Error], None],
        put_out: Callable[[Peer, Error], None],
        figures: Figures,
        surveys: Surveys,
        pauses: Pauses,
        auditor: Auditor,
        nodes: Nodes,
        poster: Poster,
        rules: OperatorRules,
        policies: Policies,
        adoption: Adoption,
        marks: Marks,
    ) -> None:
        """`end_link` detaches a link with an error, `put_out` closes a connection as one that is lost."""
        self._termini = termini
        self._pauses = pauses
        self._transactions = transactions
        self._end_link = end_link
        self._put_out = put_out
        self.figures = figures
        self.surveys = surveys
        self.auditor = auditor
        self._connections = connections
        self.reload: Callable[[str], Later[list[Value]]] = no_configuration
        """Reads the configuration again for the peer with this address; what has changed. The server's."""
        self.history: Callable[[Asked, int], Later[History]] = no_history
        """Reads what became of a message from the journal, of which no more than so many bytes. The server's."""
        self._life = life
        self._scribe = life.scribe
        self._entering = entering
        self._queues = queues
        self._topics = topics
        self._removal = removal
        self._duplicates = duplicates
        self._nodes = nodes
        self._poster = poster
        self.rules = rules
        """The rules that operators gave."""
        self.policies = policies
        """The policies in force."""
        self.adoption = adoption
        """The coming of queues to the policies that have changed."""
        self._marks = marks
        self._purges, self._walks, self._examinations = InTurns(), InTurns(), InTurns()
        self.trends = Trends(queues)
        """The depth and traffic of queues over the last hours."""

    def run(self) -> bool:
        """Go on with what has been begun. True if there is more that can be done at once."""
        more = self.adoption.run()
        more = self._purges.run() or more
        more = self._examinations.run() or more
        more = self.surveys.run() or more
        return self._walks.run() or more

    # -- connections ---------------------------------------------------------------------------------------------------

    def close_connection(self, number: int, reason: str) -> bool:
        """Close the connection with this number, once the answer has left. False if there is none."""
        peer = self._connections.find(number)
        if peer is not None:
            self._connections.close(peer, reason)
        return peer is not None

    def link_address(self, connection: int, number: int) -> str | None:
        """Return the address of a link of a connection; None if there is no such link."""
        found = self._connections.link(connection, number)
        return None if found is None else found.address

    def detach_link(self, connection: int, number: int, reason: str) -> None:
        """Detach a link of a connection, once the answer has left."""
        found = self._connections.link(connection, number)
        if found is not None:
            self._connections.detach(found, reason)

    def marks(self, after: str, limit: int) -> Later[list[MarkSnapshot]]:
        """Return the marks of senders above some id, by id, so many at most. Raises RequestFailure where too many
        ask."""
        found = Later[list[MarkSnapshot]]()
        self._walks.begin(MarksListing(self._marks, after, limit, found.finish))
        return found

    # -- addresses ----------------------------------------------------------------------------------------------------

    def put_rule(self, match: str, settings: Mapping[str, object]) -> Later[str]:
        """Give addresses that match other settings, or take that back; the pattern, once it is durable and all queues
        go by it. Raises ConfigurationError or Refused."""
        self.rules.put(match, settings)
        put = Later[str]()
        self.adoption.when_done(lambda: self._scribe.once_durable(put.finish, match))
        return put

    def publish(self, name: str, payload: bytes, user: str | None, rights: Rights) -> Later[Posted]:
        """Post a message to a queue or topic that is there, to the queue where both are, as all operations by name do;
        what came of it, once it is durable. Raises RequestFailure, Refused, DecodeError or StoreFull."""
        target = self._queues.by_name.get(name) or self._topics.by_address.get(name) or self._nodes.known(name, None)
        if target is None:
            raise RequestFailure(404, f"there is no queue or topic {name!r}")
        posted = self._poster.publish(target, payload, self._actor(user, target.address), rights)
        told = Later[Posted]()
        self._scribe.once_durable(told.finish, posted)
        return told

    # -- queues -------------------------------------------------------------------------------------------------------

    def create(self, name: str, user: str | None, *, topic: bool) -> Later[str]:
        """Make a queue, or a topic, that stays until somebody deletes it; its name, once that is durable. Raises
        Refused, and RequestFailure where there is one, whoever may see it; that is the result where no sync has made
        sure of the one that is there."""
        made = Later[str]()
        known = self._topics.by_address.get(name) if topic else self._queues.by_name.get(name)
        if known is not None:
            failure = RequestFailure(409, f"there is a {'topic' if topic else 'queue'} {name!r} already")
            if known.number not in self._queues.unsynced:
                raise failure
            self._scribe.once_durable(made.finish, failure)
            return made
        self._check_makeable(name, user, topic=topic)
        if topic:
            self._topics.make(name, self._actor(user, name), auto_created=False)
        else:
            self._queues.make(name, name, self._actor(user, name), auto_created=False)
        self._scribe.once_durable(made.finish, name)
        return made

    def delete(self, name: str, user: str | None) -> Later[str]:
        """Delete a queue or topic with all that is in it, whoever uses it; its name, once that is done and durable.
        What its address remembers of ids goes too: who makes it again makes another. Raises Refused."""
        queue, topic = self._queues.by_name.get(name), self._topics.by_address.get(name)
        going: list[Queue] = []
        if queue is not None:
            going = [queue]
            self._removal.remove(queue, self._actor(user, queue.address))
        elif topic is not None:
            going = list(topic.queues)
            self._removal.remove_topic(topic, self._actor(user, topic.address))
            if self._topics.by_address.get(name) is topic:
                raise full(None)
        if name not in self._queues.by_name and name not in self._topics.by_address:
            self._duplicates.forget(name)
        deleted = Later[str]()
        left = set(going)

        def gone(one: Queue) -> None:
            left.discard(one)
            if not left:
                self._scribe.once_durable(deleted.finish, name)

        for one in going:
            self._removal.when_gone(one, gone)
        if not going:
            self._scribe.once_durable(deleted.finish, name)
        return deleted

    def pause(self, name: str, how: str, user: str | None) -> Later[str]:
        """Pause a queue or topic, or resume it; for whom it is paused now, once that is durable. Raises Refused."""
        node = self._queues.by_name.get(name) or self._topics.by_address[name]
        self._pauses.pause(node, how, user)
        paused = Later[str]()
        self._scribe.once_durable(paused.finish, how)
        return paused

    # -- messages -----------------------------------------------------------------------------------------------------

    def purge(
        self,
        queue: str,
        user: str | None,
        *,
        messages_max: int | None = None,
        selector: str | None = None,
        sequences: frozenset[int] | None = None,
    ) -> Later[int]:
        """Remove what is in the queue and not acquired, or what is chosen of that, over some turns where it is much;
        how many messages, once that is done and durable. Raises SelectorError."""
        node = self._queues.by_name[queue]
        choice = choose(selector, sequences, messages_max)
        purged = Later[int]()
        actor = self._actor(user, node.address)
        if choice == EVERYTHING:
            self._purges.begin(Purge(self._life, node, actor, purged.finish))
        else:
            self._walks.begin(ChosenPurge(self._life, node, choice, actor, purged.finish))
        return purged

    def scheduled(self, queue: str, after: int, limit: int) -> Later[list[Scheduled]]:
        """Return the next messages of the queue, above this sequence, that wait for their time. Raises
        RequestFailure."""
        listing = Listing(self._queues.by_name[queue], after, limit)
        self._examinations.begin(listing)
        return listing.result

    def examine(
        self, queue: str, *, states: str, after: int, limit: int, selector: str | None
    ) -> Later[MessagePage[Examined]]:
        """Return the next messages of the queue that are in these states (a key of `examining.STATES`), above this
        sequence. Raises SelectorError."""
        actors = self._scribe.recorder.table.actors
        examination = Examination(
            self._life,
            self._queues.by_name[queue],
            self._termini.held_of,
            self._transactions.retired_of,
            lambda message: examined(message, actors),
            states=STATES[states],
            after=after,
            limit=limit,
            selector=None if selector is None else compile_selector(selector),
        )
        self._examinations.begin(examination)
        return examination.result

    @property
    def room_bytes(self) -> int:
        """The memory that is left for an answer."""
        return self._life.memory.left

    def read_message(self, queue: str, sequence: int, bytes_max: int) -> Later[MessagePage[dict[Value, Value]]]:
        """Return one message of the queue in full, whoever has it (`examining.in_full`); an empty page where it is not
        there."""
        scribe, known = self._scribe, self._life.parking.look(sequence)
        examination = Examination(
            self._life,
            self._queues.by_name[queue],
            self._termini.held_of,
            self._transactions.retired_of,
            lambda message: in_full(message, scribe.recorder.table.actors, scribe.time_us // 1000, bytes_max),
            states=STATES["all"],
            after=sequence - 1,
            limit=1,
            among=None if known is None else (known,),
        )
        self._examinations.begin(examination)
        return examination.result

    def cancel(
        self, queue: str, user: str | None, *, sequence: int | None = None, message_id: MessageId | None = None
    ) -> Later[int]:
        """Remove what waits for its delivery time: this message, those of this id, or all; how many, once that is
        durable: what somebody was told is cancelled does not come after a crash."""
        node = self._queues.by_name[queue]
        if sequence is not None:
            messages = found_by_sequence(node, sequence)
        else:
            messages = all_of(node) if message_id is None else found_by_id(node, message_id)
        cancelled = Later[int]()
        if messages:
            self._purges.begin(Cancel(self._life, node, messages, self._actor(user, node.address), cancelled.finish))
        else:
            cancelled.finish(0)
        return cancelled

    def rotate(self) -> Later[int]:
        """Close the open segment of the journal; its number, once the next one is on the disk. Raises StoreFull."""
        closed, journal = Later[int](), self._scribe.journal
        journal.turn()
        self._scribe.when_synced(lambda: closed.finish(journal.segments[-1].number - 1))
        return closed

    def move(
        self,
        source: str,
        target: str,
        user: str | None,
        *,
        messages_max: int | None,
        selector: str | None,
        sequences: frozenset[int] | None = None,
    ) -> Later[int]:
        """Move messages that wait in a queue into another, made if its policy allows; how many were. `sequences`: none
        but these. Raises Refused or SelectorError."""
        node = self._queues.by_name[source]
        choice = choose(selector, sequences, messages_max)
        other = self._queues.by_name.get(target)
        made = other is None
        if other is None:
            self._check_implied(target)
            self.create(target, user, topic=False)
            other = self._queues.by_name[target]
        moved = Later[int]()

        def done(count: int, why: str) -> None:
            told = RequestFailure(507, f"{why}: {count} messages were moved before") if why else count
            if made:
                self._scribe.once_durable(moved.finish, told)  # the queue is there to stay, whatever is in it
            else:
                moved.finish(told)

        move = Move(
            self._life,
            self._entering,
            node,
            other,
            choice,
            actor=self._actor(user, node.address),
            done=done,
        )
        self._walks.begin(move)
        return moved

    def redrive(
        self,
        queue: str,
        user: str | None,
        refusal: Callable[[str], str | None],
        *,
        messages_max: int | None = None,
        selector: str | None = None,
        sequences: frozenset[int] | None = None,
        dry_run: bool = False,
    ) -> Later[Redriven]:
        """Move dead letters that wait in a queue back to where each died; what became of them, once that is done and
        durable. `refusal`: why the user may not manage an address; None if it may. Raises SelectorError."""
        node = self._queues.by_name[queue]
        choice = choose(selector, sequences, messages_max)
        redriven = Later[Redriven]()
        made = False

        def find(name: str, make: bool) -> Queue | None:
            nonlocal made
            origin = self._queues.by_name.get(name)
            if reason := refusal(name if origin is None else origin.address):
                raise Refused(reason, condition=AmqpCondition.UNAUTHORIZED_ACCESS)
            if origin is None:
                self._check_makeable(name, user, topic=False)
                check_generated(name)
                self._check_implied(name)
                if make:
                    self.create(name, user, topic=False)
                    origin, made = self._queues.by_name[name], True
            return origin

        def done(told: Redriven) -> None:
            failure = RequestFailure(507, f"{told.why}: {told.redriven} letters were redriven before")
            if made:
                self._scribe.once_durable(redriven.finish, failure if told.why else told)
            else:
                redriven.finish(failure if told.why else told)

        actor = self._actor(user, node.address)
        self._walks.begin(
            Redrive(self._life, self._entering, node, choice, find, actor=actor, dry_run=dry_run, done=done)
        )
        return redriven

    # -- transactions and termini -------------------------------------------------------------------------------------

    def fate(self, txn_id: bytes, user: str | None) -> Later[tuple[str, int]]:
        """Return what became of a transaction of this user, and for how many milliseconds that is known. One that is
        live is fenced first: what its client has sent and we have not read does not count any more."""
        transaction = self._transactions.live(txn_id, user or "")
        if transaction is not None:
            fenced = Error(ConnectionCondition.CONNECTION_FORCED, "the fate of its transaction was asked for")
            self._put_out(transaction.peer, fenced)
        later = Later[tuple[str, int]]()

        def tell() -> None:
            fate = self._transactions.fate(txn_id, user or "")
            if fate is None:
                self._scribe.when_synced(tell)
            else:
                later.finish((fate, self._transactions.fates_kept_ms))

        tell()
        return later

    def termini(self) -> list[TerminusSnapshot]:
        """Return the termini that outlive their links."""
        return self._termini.snapshots()

    def end_terminus(self, identity: str) -> Later[int]:
        """End a terminus, and the link on it: what it holds goes back as from a lost connection. How many messages
        that is, once the end is durable."""
        terminus = self._termini.find(identity)
        assert terminus is not None
        held, link = terminus.attached, getattr(terminus.attached, "link", None)
        count = len(terminus.messages) if isinstance(terminus, SourceTerminus) else 0
        self._termini.end(terminus)
        if held is not None:
            count += getattr(held, "held", 0)
        if isinstance(link, Link):
            self._end_link(link, Error(AmqpCondition.RESOURCE_DELETED, "the terminus was ended by an administrator"))
        ended = Later[int]()
        self._scribe.once_durable(ended.finish, count)
        return ended

    # -- its own ------------------------------------------------------------------------------------------------------

    def _check_makeable(self, name: str, user: str | None, *, topic: bool) -> None:
        """Raise Refused unless it can be the name of a queue or topic, and there may be one more."""
        check_address(name, topic=topic)
        if fault := plain_fault(name):
            raise Refused(fault, condition=AmqpCondition.INVALID_FIELD)
        self._queues.check_number(user)

    def _check_implied(self, name: str) -> None:
        """Raise Refused where nobody has said that a queue of this name shall be made, and none is: its policy makes
        none, or there is a topic. What is posted there went to that until now, and would go to the queue."""
        if name in self._topics.by_address:
            raise Refused(f"{name!r} is a topic, which holds nothing", condition=AmqpCondition.INVALID_FIELD)
        self._queues.check_policy(name)

    def _actor(self, user: str | None, address: str) -> int:
        return self._scribe.declare("", MANAGEMENT_NODE, user, address)


def no_history(asked: Asked, bytes_max: int) -> Later[History]:
    """Answer who asks what became of a message where no thread can read the journal."""
    later = Later[History]()
    later.finish(RequestFailure(501, "this broker reads no histories"))
    return later


def no_configuration(asker: str) -> Later[list[Value]]:
    """Answer a reload of a broker that was started without a configuration file."""
    later = Later[list[Value]]()
    later.finish(
        RequestFailure(409, "this broker was started without a configuration file: there is nothing to read again")
    )
    return later


__all__ = ["Administration", "no_configuration", "no_history"]
