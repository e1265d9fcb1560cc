"""Identities of messages: what makes two deliveries the same message, by which an inbox knows them again.

Theory of operation. A consumer meets one message twice for one of two reasons, and they leave different traces:

*Delivered again.* The broker has one message and hands it out once more, because it never heard the outcome. From our
broker both deliveries have one ``x-opt-acquit-sequence``; their message id, if there is one, is the same as well.

*Sent again.* A sender lost its connection before the answer, and posted once more. The broker has two messages, with
two sequences and one message id: only the id tells. (A broker with duplicate detection has one, but not every broker
has that, and not every address of ours asks for it.)

So the **message id** is the better name, as it covers both, and it is what counts where there is one. The sequence is
for messages without: it covers what was delivered again, and what was sent again without an id nobody can tell. One
name for each message is enough; to remember both would double the rows and find nothing more.

How far a name reaches:

- A message id is unique for its author (3.2.4), who does not know how many nodes a message goes to: each subscription
  of a topic has a copy under the same id, and each is to be processed. So an id belongs to the **address** that it is
  received from, with the name of the subscription where there is one. It does not belong to a broker: what is sent
  again after a failover reaches another one.
- A sequence is unique in one broker for ever, over all its addresses, and each copy has its own. So it belongs to the
  **broker**: to the id of its data (``acquit:broker-id``, which a restored backup keeps, as it keeps the sequences),
  or, if the broker does not say that, to its container-id. (Brokers that are made of one backup share the id, and draw
  where their sequences begin: docs/backup.md says how likely it is that two use the same.)
- The four types that an id may have (3.2.11 to 3.2.14) are told apart: the string "1", the ulong 1, a uuid and the
  same 16 bytes as binary are different ids.

**The body counts, too.** Some programs give one id to different messages (a constant, a counter that begins again).
To filter those would be to lose them, so a name holds only together with a digest of the body, as it was transferred:
the same name with another body is another message. Properties do not count: a program that sends an order again may
well give it a new time.

What this cannot tell: two messages that share the id *and* the body, and are meant to be two ("tick", under the id
"1", every minute). Who cannot have their sender repaired names them by something else: see `identify`.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final

from acquit.client.received import MessageCore
from acquit.errors import ConfigurationError
from acquit.protocol.definitions import MessageId
from acquit.protocol.extensions import BROKER_ID
from acquit.protocol.sections import BODY, PropertyIndex

NAME_MAX: Final = 200
"""Characters of a scope or a name; longer ones, and those that are not all printable, are replaced by a digest, so that
every database can keep them as they are."""


@dataclass(frozen=True, slots=True)
class Identity:
    """The name of a message: equal for two deliveries of the same one.

    `scope` is the address, or for a sequence ``acquit:`` and the broker's id; `name` is the type and value of the id,
    such as ``string:order-17``, or ``sequence:4711``; `digest` is of the body (BLAKE2b, 32 hexadecimal digits).
    Scope and name are printable, and have at most 200 characters.
    """

    scope: str
    name: str
    digest: str


def identify(message: MessageCore, *, id: MessageId | None = None, scope: str | None = None) -> Identity | None:  # noqa: A002
    """The identity of a received message, None where it has neither a message id nor a sequence.

    `id` takes the place of the message id: a number of the business, such as that of an order, that a program which
    begins anew gives to the same order again. `scope` takes the place of the address, for one consumer that receives
    under several names of one queue. Raises DecodeError for a message whose sections, or whose id, are malformed.
    """
    if not isinstance(message, MessageCore):
        raise ConfigurationError(f"a received message is expected, got {message!r}")
    sections = message.sections
    bounds = sections.bounds
    name = id if id is not None else sections.property_values(PropertyIndex.MESSAGE_ID)[0]
    if name is not None:
        where, named = scope if scope is not None else _address(message), typed(name)
    elif (sequence := message.sequence) is not None:
        where, named = f"acquit:{_broker(message)}", f"sequence:{sequence}"
    else:
        return None
    body = memoryview(sections.payload)[bounds[BODY] : bounds[BODY + 1]]
    return Identity(_storable(where), _storable(named), blake2b(body, digest_size=16).hexdigest())


def typed(name: object) -> str:
    """An id with its type: each of the four (3.2.11 to 3.2.14) has ids of its own."""
    match name:
        case str():
            return f"string:{name}"
        case bytes():
            return f"binary:{name.hex()}"
        case uuid.UUID():
            return f"uuid:{name}"
        case _:
            return f"ulong:{name}"


def _address(message: MessageCore) -> str:
    receiver = message.receiver
    spec = receiver.spec
    if spec.subscription is not None:
        return f"{receiver.address}::{spec.subscription.name}"
    # A subscription without a name is of one receiver alone: others of the same topic have copies of their own.
    return f"{receiver.address}::{spec.name}" if spec.topic else receiver.address


def _broker(message: MessageCore) -> str:
    """Return the id of the broker that sent the message, whatever the receiver is connected to by now."""
    remote = message.delivery.link.session.connection.remote_open
    assert remote is not None
    return str((remote.properties or {}).get(BROKER_ID) or remote.container_id)


def _storable(text: str) -> str:
    if len(text) <= NAME_MAX and text.isprintable():
        return text
    kind, _, _ = text.partition(":")
    return f"{kind[:20] if kind.isprintable() else ''}#{blake2b(text.encode(), digest_size=32).hexdigest()}"
