"""The names of what acquit says on the wire beyond AMQP 1.0, each of them once, for broker, client and Spark alike.

A peer that knows none of them loses nothing but what they offer. Names of properties and capabilities begin with
``acquit:``, those of annotations with ``x-opt-acquit-`` (3.2.10: for anyone to ignore).
"""

from __future__ import annotations

from typing import Final

# -- of a connection (open, 2.7.1) -------------------------------------------------------------------------------------

BROKER_ID: Final = "acquit:broker-id"
"""Property, a uuid: of the broker's journal. What is known by a sequence or a transaction id is so within one."""

DURABLE_SETTLEMENT: Final = "acquit:durable-settlement"
"""Capability: on a link in rcv-settle-mode second an outcome is answered only when it is on the disk."""

# -- of a link (attach, 2.7.3) -----------------------------------------------------------------------------------------

SENDER_MARK: Final = "acquit:sender-mark"
"""Property of an attach: from the sender the name, from the broker where the mark is. A capability as well. See
`protocol.numbered`."""

LAST_SEQUENCE: Final = "acquit:last-sequence"
"""Property, a ulong, of the broker's answer to a receiver: the last sequence that it has given by now."""

LOCK_DURATION: Final = "acquit:lock-duration-ms"
"""Property, a uint, of the broker's answer to a receiver: how long its locks last. Absent where they do not end."""

ACTIVE: Final = "acquit:active"
"""Property, a boolean, of the broker's answer to a receiver of a queue that serves one at a time: is it that one?"""

PORTION_FILTER: Final = "acquit:portion-filter:list"
"""Filter of a browser: a share of a queue, which others complete. A list: the last sequence, of how many parts, and
which."""

CREATE_ON_DEMAND: Final = "create-on-demand"
"""Capability of a terminus, as Qpid's clients have it: make the node if it does not exist. Our broker makes nodes
unasked, unless their policy says otherwise."""

RESUME: Final = "acquit:resume"
"""Capability of an attach: the terminus outlives its link, and what is unsettled there is resumed (2.6.13). Both ends
must name it: a client that asks for durable=unsettled-state alone, as JMS clients do, would leave messages held."""

TERMINUS: Final = "acquit:terminus"
"""Property of the broker's answer to a link of `RESUME`, a binary: the identity of the terminus. Under another identity
than before, a delivery that the broker does not know was not settled but forgotten."""

EXISTING: Final = "acquit:existing"
"""Capability of a source: refuse the link, with amqp:not-found, where the node does not exist, and make none."""

# -- of a message (3.2.2, 3.2.3) ---------------------------------------------------------------------------------------

SEQUENCE: Final = "x-opt-acquit-sequence"
"""Message annotation, a ulong: the name of the message within one broker."""

POSTED_AT: Final = "x-opt-acquit-posted-at"
"""Message annotation, a timestamp: when the broker took it."""

ACQUIRED_COUNT: Final = "x-opt-acquit-acquired-count"
"""Message annotation, a uint: how often it was acquired and given back, whether that counts as an attempt or not."""

ATTEMPTS: Final = "x-opt-acquit-attempts"
"""Message annotation of a dead letter, a list of maps: what became of each attempt."""

ORIGIN: Final = "x-opt-acquit-origin"
"""Message annotation, a ulong, of a dead letter and of what was moved: the sequence that it had before."""

PLACE: Final = "x-opt-acquit-place"
"""Delivery annotation of a numbered message. See `protocol.numbered`."""

# -- of the management node (AMQP Management 1.0, working draft 11) ----------------------------------------------------

MANAGEMENT_NODE: Final = "$management"

QUEUE: Final = "acquit:queue"
"""Type of entity, as are those below: a queue."""
ADDRESS: Final = "acquit:address"
"""The treatment of messages at an address, or at all that match a pattern."""
MARK: Final = "acquit:sender-mark-entity"
"""The mark of a sender whose postings are numbered."""
QUEUE_HISTORY: Final = "acquit:queue-history"
"""The depth and traffic of a queue over the last hours."""
BROKER: Final = "acquit:broker"
"""The broker itself."""
METRICS: Final = "acquit:metrics"
"""The figures of it and of its queues, for monitoring."""
CONNECTION: Final = "acquit:connection"
"""A connection to it."""
LINK: Final = "acquit:link"
"""A link of a connection."""
MESSAGE: Final = "acquit:message"
"""A message in a queue."""
HISTORY: Final = "acquit:history"
"""The history of a message, by the journal."""
TERMINUS_ENTITY: Final = "acquit:terminus-entity"
"""The terminus of a resumable link, which outlives it."""
TRANSACTION: Final = "acquit:transaction"
"""A transaction: one that is open, or of which a client has not heard how it ended."""
