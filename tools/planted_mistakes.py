"""The mistakes that `tools/planted.py` plants to measure what the simulation sees.

Each is one that somebody could make: passages of the product, word for word, and what stands there instead. A passage
occurs once in its file; who changes it there is told by `make check`, and changes it here. A mistake must break a
promise that users can notice: what cannot be seen from outside is none.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Edit:
    """One passage, and what takes its place."""

    path: str
    """Below src/acquit."""
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class Planted:
    """One mistake."""

    name: str
    breaks: str
    """The promise that it breaks, in a sentence."""
    edits: tuple[Edit, ...]


def _one(name: str, breaks: str, path: str, old: str, new: str) -> Planted:
    return Planted(name, breaks, (Edit(path, old, new),))


MISTAKES: tuple[Planted, ...] = (
    # -- the client's core ---------------------------------------------------------------------------------------------
    _one(
        "receipt applied one step early",
        "an acknowledgement that is *applied* was synced: its message never comes again",
        "client/session.py",
        "        if answered:\n            self.core.await_answer(receipt)\n",
        "        if answered:\n            receipt.note(self.core.answer_means, answered)\n",
    ),
    _one(
        "buffer kept over a cut",
        "what was prefetched on a connection that is lost belongs to whoever the broker gives it to next",
        "client/receiving.py",
        "        if self._reliable:\n            self.buffer.clear()\n        self.held = self.held_bytes = 0\n"
        "        if self.drained is not None:\n            self.drained.fail(failure)  #",
        "        self.held = self.held_bytes = 0\n"
        "        if self.drained is not None:\n            self.drained.fail(failure)  #",
    ),
    _one(
        "acknowledgement that leaves out the last",
        "session.acknowledge() settles all that was handed out",
        "client/received.py",
        "            wanted: Iterable[MessageCore] = list(self.handed_out.values())\n",
        "            wanted: Iterable[MessageCore] = list(self.handed_out.values())[:-1]\n",
    ),
    _one(
        "failed listener that acknowledges",
        "a message whose listener failed comes again",
        "client/receiving.py",
        "        outcome = mode.listener_returned if failed is None else mode.listener_failed\n",
        "        outcome = mode.listener_returned\n",
    ),
    Planted(
        "time-out that says too much",
        "a send that ended with NotSent never arrives",
        (
            Edit(
                "client/receipts.py",
                "            return TimeOver(timeout_s).error(left=True)\n",
                "            return TimeOver(timeout_s).error(left=False)\n",
            ),
            Edit(
                "client/receipts.py",
                "            return failure.error(left=self.transferred)\n",
                "            return failure.error(left=False)\n",
            ),
        ),
    ),
    _one(
        "transaction begun anew on a cut",
        "what was done in a transaction before its connection was lost is committed with it, or it is rolled back",
        "client/transacting.py",
        "            if received or transaction.heard_of or ends:\n",
        "            if received or ends:\n",
    ),
    _one(
        "commit in doubt taken for rolled back",
        "a transaction that is said to be rolled back happened in no part",
        "client/transacting.py",
        "            if ends and transaction.fate is None and transaction not in unsent:\n",
        "            if ends and transaction.fate is None and transaction in unsent:\n",
    ),
    _one(
        "fate read the wrong way",
        "a transaction that is said to be committed happened whole",
        "client/transacting.py",
        '                TransactionEvent.ROLLED_BACK,\n                f"{ending.reason}; the broker says',
        '                TransactionEvent.COMMITTED,\n                f"{ending.reason}; the broker says',
    ),
    _one(
        "window off by one",
        "a peer gets no more transfers than it has given credit for",
        "protocol/credit.py",
        "    return min(max(0, link_credit_rcv - distance(known, delivery_count_snd)), MASK)\n",
        "    return min(max(0, link_credit_rcv + 1 - distance(known, delivery_count_snd)), MASK)\n",
    ),
    # -- links that resume ---------------------------------------------------------------------------------------------
    _one(
        "outcome told before it is safe",
        "an outcome of an exactly-once receiver is in its store before the broker hears of it",
        "client/resuming.py",
        "        self._store.write(entries, safe)\n",
        "        safe(None)\n",
    ),
    _one(
        "send forgotten as it is transferred",
        "what was handed to an exactly-once sender is posted, whatever is killed",
        "client/resuming.py",
        "            self._unsettled.update(zip(tags[:sent], promises, strict=False))\n",
        "            self._unsettled.update(zip(tags[:sent], promises, strict=False))\n"
        "            self._store.write(forget(EntryKind.SEND, self.spec.name, tags[:sent]))\n",
    ),
    _one(
        "tag not recorded with its posting",
        "what an exactly-once sender sends again after a crash is posted once",
        "broker/links/termini.py",
        "            self._remember(*terminus.record(posted[at : at + GROUP_MAX]))\n",
        "            terminus.record(posted[at : at + GROUP_MAX])\n",
    ),
    _one(
        "suspended given back at once",
        "what a terminus holds is nobody else's while it lasts",
        "broker/links/termini.py",
        "        terminus.since_ms = max(1, self._scribe.time_us // 1000)\n        self._record(terminus)\n",
        "        terminus.since_ms = max(1, self._scribe.time_us // 1000)\n        self._give_back(terminus)\n",
    ),
    _one(
        "taken forgotten with the answer",
        "a receiver hears that its outcome was not performed, also when the answer is lost with the connection",
        "broker/links/termini.py",
        "(settled or taken[one.tag] == state)",
        "True",
    ),
    _one(
        "send left out of the map too soon",
        "what a sender's store still has is posted once, also when it was heard of, and the program killed, meanwhile",
        "client/resuming.py",
        "        engine = self.session.engine\n\n        def settle() -> None:\n",
        "        for tag in tags:\n            self._unsettled.pop(tag, None)\n"
        "        engine = self.session.engine\n\n        def settle() -> None:\n",
    ),
    _one(
        "refusal that ends a terminus",
        "what a terminus holds stays there when its link is refused as it comes back",
        "broker/links/receivers.py",
        "                self._termini.refused(waiting)\n",
        "",
    ),
    # -- intake --------------------------------------------------------------------------------------------------------
    _one(
        "accept before sync",
        "a durable message whose posting was answered *accepted* survives a kill and a loss of power",
        "broker/intake/posting.py",
        "            scribe.when_synced(self._synced, pending, session, deliveries)\n",
        "            self._synced(pending, session, deliveries)\n",
    ),
    _one(
        "refused, and taken all the same",
        "a message that was refused is nowhere",
        "broker/intake/posting.py",
        "            self._admit(arrival)\n            durable = self._entering.enter_all(arrival)\n",
        "            durable = self._entering.enter_all(arrival)\n            self._admit(arrival)\n",
    ),
    _one(
        "duplicate not remembered",
        "a message whose id is known with the same body enters once",
        "broker/intake/duplicates.py",
        "        self._windows.remember(identity.address, entry, Position(position))\n",
        "        pass\n",
    ),
    _one(
        "waiter not woken",
        "a sender that gets no credit for want of room gets some when there is room again",
        "broker/links/crediting.py",
        "            del self._starved[producer]\n            self._starved[producer] = None\n"
        "            self.top_up(producer)\n",
        "            del self._starved[producer]\n            self._starved[producer] = None\n",
    ),
    # -- dispatch ------------------------------------------------------------------------------------------------------
    _one(
        "requeue at the wrong end",
        "a message that comes back stands at its old place",
        "broker/dispatching/backlog.py",
        "        if lane.last > message.sequence:\n",
        "        if False:\n",
    ),
    _one(
        "a message in hand is parked",
        "a message has one object, whoever has it in hand",
        "broker/parking.py",
        "            if _references(messages, index) != _ALONE or not _is_plain(messages[index]):\n",
        "            if not _is_plain(messages[index]):\n",
    ),
    _one(
        "a parked message is said to be where it was",
        "a segment leaves the journal when nothing live stands in it",
        "broker/holdings.py",
        "        before = self._parking.rows.move(sequence, position)\n",
        "        before = self._parking.rows.move(sequence, Position(self._parking.rows.find(sequence).position)) "
        "if sequence in self._parking.rows else None\n",
    ),
    _one(
        "a restart forgets that a parked message may have been acquired",
        "who gets a message first is told so, nobody else",
        "broker/recovery.py",
        "        maybe += lot.sequences[: bisect_left(lot.sequences, certain[lot.queue])]\n",
        "",
    ),
    _one(
        "a restart takes what expires for what does not",
        "a message whose time to live is over is not handed out",
        "ledger/fold.py",
        "_special(run, kinds, (attempts, expiries, dues), address_bytes, id_bytes)",
        "_special(run, kinds, (attempts, dues), address_bytes, id_bytes)",
    ),
    _one(
        "a restart passes over what was posted behind something special",
        "what was acknowledged is there after a restart",
        "ledger/fold.py",
        "            begin = end + 1\n",
        "            begin = end + 2\n",
    ),
    _one(
        "double dispatch",
        "a message has one holder at a time",
        "broker/dispatching/choosing.py",
        "            queue.aside.remove(message)\n            self._give(queue, pass_, consumer, message, group)\n",
        "            self._give(queue, pass_, consumer, message, group)\n",
    ),
    _one(
        "barrier ignored on the second dispatch path",
        "where redelivery blocks its queue, nothing behind a message that waits for another attempt is handed out",
        "broker/dispatching/choosing.py",
        "                stop = self.looks <= 0 or not pass_.goes_on() or place >= barrier\n",
        "                stop = self.looks <= 0 or not pass_.goes_on()\n",
    ),
    _one(
        "mark behind what is handed out",
        "a message that somebody had is never called fresh, also after a crash",
        "ledger/sequences.py",
        "            self._asked[queue] = up_to, self._recorder.append(Dispatched(time_us, queue, up_to, doubtful))\n",
        "            self._asked[queue] = up_to, self._recorder.append("
        "Dispatched(time_us, queue, sequence - 1, doubtful))\n",
    ),
    _one(
        "sent before it is recorded as consumed",
        "a message goes once to receivers that settle on arrival, also over a crash",
        "broker/dispatching/sending.py",
        "        if durable or consumer.reserved > len(consumer.outbox) + len(outgoing):\n"
        "            self._scribe.hand_out_when_synced(self._recorded, consumer, outgoing)\n        else:\n"
        "            self._recorded(consumer, outgoing)\n",
        "        self._recorded(consumer, outgoing)\n",
    ),
    # -- outcomes, expiry ----------------------------------------------------------------------------------------------
    _one(
        "outcome answered before the sync",
        "an acknowledgement that is *applied* was synced: its message never comes again",
        "broker/outcomes/settling.py",
        "        if durable:\n            self._scribe.once_durable(self._settle, consumer, deliveries, state)\n"
        "        else:\n            self._settle(consumer, deliveries, state)\n",
        "        self._settle(consumer, deliveries, state)\n",
    ),
    _one(
        "time-out that answers twice",
        "what is said of a message after its lock ran out is stale, and told so",
        "broker/outcomes/settling.py",
        "        return stale or None\n\n    def _answer_all(",
        "        return None\n\n    def _answer_all(",
    ),
    _one(
        "dead letter without its origin's end",
        "a message that became a dead letter is not in its queue any more",
        "broker/outcomes/settling.py",
        "            if not origin:  # not even",
        "            if origin:  # not even",
    ),
    _one(
        "no delay where a dead letter finds no room",
        "what failed and stays for want of room waits for its redelivery delay",
        "broker/outcomes/settling.py",
        "event = NodeEvent.FAIL_LATER if policy.redelivery_delay_ms else NodeEvent.FAIL",
        "event = NodeEvent.FAIL",
    ),
    _one(
        "dead letter that is not posted",
        "a message that failed as often as it may, or was rejected, is in the dead letter queue",
        "broker/outcomes/settling.py",
        "            origin = self._copy(message, account)\n            if not origin:  #",
        "            origin = message.sequence\n            if not origin:  #",
    ),
    _one(
        "expired without a copy",
        "what expires goes to the expiry address",
        "broker/outcomes/expiry.py",
        "                origin = self._letters.copy(message, address, EventKind.EXPIRED_IN)\n",
        "                origin = message.sequence\n",
    ),
    _one(
        "time to live of the address forgotten",
        "a message is not handed out, and not left, after its time to live",
        "broker/intake/shaping.py",
        "    if ttl_ms is None and posting.absolute_expiry_ms is None and policy.default_ttl_ms:\n",
        "    if ttl_ms is None and posting.absolute_expiry_ms is None and policy.ttl_ms_max:\n",
    ),
    _one(
        "failure that does not count",
        "the delivery-count of a message tells of each attempt that failed",
        "broker/life.py",
        "        counted = row.attempts > 0 and message.attempt < ATTEMPT_MAX\n",
        "        counted = row.attempts > 0 and message.attempt < 1\n",
    ),
    _one(
        "memory not given back",
        "a queue that is empty takes no memory",
        "broker/outcomes/settling.py",
        "        memory.leave_all(queue, count, bodies, held_bytes)\n",
        "        memory.leave_all(queue, count, bodies, held_bytes - bodies)\n",
    ),
    # -- transactions --------------------------------------------------------------------------------------------------
    _one(
        "commit answered before the sync",
        "a transaction that is said to be committed happened whole, also over a crash",
        "broker/transact/transactions.py",
        "        scribe.when_synced(self._committed, transaction, entered, answer)\n",
        "        self._committed(transaction, entered, answer)\n",
    ),
    _one(
        "forgotten transaction on a cut",
        "what a transaction held is given back when its connection is lost",
        "broker/transact/transactions.py",
        "            self.roll_back(transaction, ending if ending in LOSSES else Ending.SETTLED)\n",
        "            if ending not in LOSSES:\n                self.roll_back(transaction, Ending.SETTLED)\n",
    ),
    _one(
        "commit without its retirements",
        "of a transaction all is recorded: what it retired does not come back with a restart",
        "broker/transact/transactions.py",
        '        events += b"".join(self._accepting_event(one) for one in accepted if one.message.flags & DURABLE)\n',
        '        events += b""\n',
    ),
    _one(
        "rollback that posts",
        "what a transaction that was rolled back posted is nowhere",
        "broker/transact/transactions.py",
        "        self.postings.roll_back(transaction)\n",
        "        for lot in self.postings.lots(transaction):\n            self.postings.enter(lot)\n"
        "            self._entering.available(lot.messages)\n",
    ),
    # -- the store -----------------------------------------------------------------------------------------------------
    _one(
        "segment opened without sync",
        "a durable message whose posting was answered *accepted* survives a loss of power",
        "store/writer.py",
        "        self._next = (path, self._folder.disk.open(path, OpenMode.SYNCED), header)\n",
        "        self._next = (path, self._folder.disk.open(path, OpenMode.WRITE), header)\n",
    ),
    _one(
        "torn batch taken for whole",
        "of a batch that was torn by a loss of power nothing happened",
        "store/record.py",
        "    return len(data) == head.length and crc32(data[8:64], crc32(memoryview(data)[64:])) == head.crc\n",
        "    return len(data) == head.length\n",
    ),
    _one(
        "short write not continued",
        "a write that the disk takes in part is written whole before anything is answered",
        "store/disk.py",
        "    while done < len(data):\n        step = file.write(data[done:], offset + done)\n",
        "    while not done:\n        step = file.write(data[done:], offset + done)\n",
    ),
    _one(
        "on after a failed sync",
        "after an error of the disk nothing is accepted that the disk may have forgotten",
        "store/writer.py",
        "            elif isinstance(ours, StoreFailed):\n                self.failure = ours\n"
        "            raise ours from error\n",
        "            elif isinstance(ours, StoreFailed):\n                return\n            raise ours from error\n",
    ),
    # -- ledger, checkpoint --------------------------------------------------------------------------------------------
    Planted(
        "the census by base",
        "a segment leaves when nothing live stands in it, also behind one in which nothing was written",
        (
            Edit(
                "store/writer.py",
                "        return not self.sealed and not self.cut and self.valid_bytes == HEADER_BYTES\n",
                "        return False\n",
            ),
            Edit(
                "ledger/census.py",
                "                at = bisect_right(self._bases, position)\n",
                "                at = self._bases.index(self._bases[bisect_right(self._bases, position) - 1]) + 1\n",
            ),
            Edit(
                "ledger/checkpoint.py",
                "        self._staying = bool(messages)\n        return not messages\n",
                "        self._staying = bool(messages)\n        return True\n",
            ),
        ),
    ),
    Planted(
        "LEFT before COPIED",
        "a segment leaves when all that is live in it was copied forward",
        (
            Edit(
                "ledger/checkpoint.py",
                "        return BodyRead(self._journal, wanted, 0) if wanted else None\n",
                "        return BodyRead(self._journal, wanted, segment.number)\n",
            ),
            Edit(
                "ledger/checkpoint.py",
                "        self._staying = bool(messages)\n        return not messages\n",
                "        self._staying = bool(messages)\n        return True\n",
            ),
        ),
    ),
    _one(
        "state that stays behind",
        "a queue is there after a restart, however long ago it was made",
        "ledger/checkpoint.py",
        "            self._keys = deque(self._recorder.table.stale(segment.end))\n",
        "            self._keys = deque()\n",
    ),
    _one(
        "count lost on the way forward",
        "the delivery-count of a message outlives the segment that told of it",
        "broker/recovery.py",
        "SUSPENDED if message.state is NodeState.SUSPENDED else 0),\n        message.attempt,\n",
        "SUSPENDED if message.state is NodeState.SUSPENDED else 0),\n        0,\n",
    ),
    _one(
        "sequences used twice",
        "a sequence names one message, over any crash",
        "ledger/recovery.py",
        "        first = first_of_copy(reserved, draw) if restored else reserved + 1\n",
        "        first = max(1, reserved + 1 - sequence_block + 64)\n",
    ),
    _one(
        "topic's copies not recorded",
        "a message of a topic is in each durable subscription after a restart",
        "broker/scribe.py",
        '            self.recorder.copies(b"".join(events))\n',
        '            self.recorder.copies(b"".join(events[1:]))\n',
    ),
    _one(
        "volatile subscription passed over",
        "what is accepted while a volatile subscription stands comes to it",
        "broker/nodes/finding.py",
        "            matching.append(queue)\n",
        "            if queue.durable or not matching:\n                matching.append(queue)\n",
    ),
    _one(
        "volatile subscription that stays",
        "a volatile subscription goes with its last link, and so does what is in it",
        "broker/nodes/subscriptions.py",
        "not queue.consumers and (destroyed or not subscription.durable):\n",
        "not queue.consumers and (destroyed if subscription.durable else not subscription.shared):\n",
    ),
    # -- runs ----------------------------------------------------------------------------------------------------------
    _one(
        "run that was never had",
        "what somebody had is not called fresh when it comes back, also out of a run",
        "broker/message_run.py",
        "(_ACQUIRED, DISPATCHED)",
        "(_ACQUIRED, 0)",
    ),
    # -- recovery ------------------------------------------------------------------------------------------------------
    _one(
        "count lost on restart",
        "the delivery-count of a message survives a restart",
        "broker/recovery.py",
        "    message.attempt = kept.attempt\n",
        "    message.attempt = 0\n",
    ),
    _one(
        "fresh after a restart",
        "a message that somebody had is never called fresh, also after a crash",
        "broker/recovery.py",
        "        if sequence < certain[number]:\n            message.flags |= DISPATCHED\n",
        "",
    ),
    _one(
        "delivery time lost on restart",
        "a message is not handed out before its delivery time",
        "broker/recovery.py",
        "NodeState.SCHEDULED if kept.due_at_ms > now_ms else",
        "NodeState.SCHEDULED if 0 > now_ms else",
    ),
    _one(
        "acquired by nobody after a restart",
        "what somebody had acquired when the broker was killed can be had again",
        "broker/recovery.py",
        "        if kept.actor:\n            returned.append((message, kept.actor))\n",
        "        if kept.actor:\n            message.state = NodeState.ACQUIRED\n",
    ),
)


__all__ = ["MISTAKES", "Edit", "Planted"]
