"""The pictures of docs/pictures: what is drawn in each. `recording` says what the lines of a script mean."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, kw_only=True, slots=True)
class Picture:
    """One picture."""

    name: str
    """Of its file."""
    title: str
    script: str
    setup: str = ""
    """What is run before, and not drawn."""
    posted: tuple[str, ...] = ("m1", "m2", "m3")
    """The bodies that wait in the queue *orders*."""


_FAILING: Final = """
def handler(message):
    if message.delivery_count == 0:
        raise ValueError("the first attempt fails")
    message.accept()
    receiver.close()
"""

_FAILING_FOR_GOOD: Final = """
def handler(message):
    receiver.close()
    raise ValueError("too late")
"""

PICTURES: Final = (
    Picture(
        name="auto",
        title="Mode AUTO: each message is accepted as receive returns it",
        script="""
            (session = connection.session("auto"))
            (> begin)
            (< begin)
            receiver = session.receiver("orders", prefetch=2)
            > attach flow
            < attach flow transfer transfer
            # 1 available, 2 acquired
            @ m1, m2
            message = receiver.receive()
            = message.body
            > disposition flow
            < transfer
            # 2 acquired, 1 accepted
            @ m2, m3
            message = receiver.receive()
            = message.body
            > disposition flow
            # 1 acquired, 2 accepted
        """,
    ),
    Picture(
        name="auto-listener",
        title="Mode AUTO with a listener that fails once: modified(delivery-failed), and the message comes again",
        posted=("m1",),
        setup=_FAILING,
        script="""
            (session = connection.session("auto"))
            (> begin)
            (< begin)
            (receiver = session.receiver("orders"))
            (> attach flow)
            (< attach flow)
            < transfer
            (@ m1)
            receiver.listen(handler)
            -- the handler raises
            > disposition
            < transfer
            -- the handler is called again, and accepts
            > disposition
            # 1 accepted
        """,
    ),
    Picture(
        name="pre-ack-listener",
        title="Mode PRE_ACK with a listener that fails: the message was accepted before",
        posted=("m1",),
        setup=_FAILING_FOR_GOOD,
        script="""
            (session = connection.session("pre-ack"))
            (> begin)
            (< begin)
            (receiver = session.receiver("orders"))
            (> attach flow)
            (< attach flow)
            < transfer
            # 1 acquired
            (@ m1)
            receiver.listen(handler)
            > disposition
            -- only now the handler is called, and raises
            # 1 accepted
        """,
    ),
    Picture(
        name="client",
        title="Mode CLIENT: one acknowledge for all that was handed out, and the broker answers it",
        script="""
            (session = connection.session("client"))
            (> begin)
            (< begin)
            receiver = session.receiver("orders", prefetch=2)
            > attach flow
            < attach flow transfer transfer
            (@ m1, m2)
            first = receiver.receive()
            = first.body
            second = receiver.receive()
            = second.body
            # 1 available, 2 acquired
            third = receiver.receive(timeout=0.1)
            ! CreditExhausted
            receipt = session.acknowledge()
            > disposition flow
            < transfer disposition
            = receipt.status.name
            # 1 acquired, 2 accepted
            @ m3
        """,
    ),
    Picture(
        name="individual",
        title="Mode INDIVIDUAL: each message by itself, in any order",
        script="""
            (session = connection.session("individual"))
            (> begin)
            (< begin)
            receiver = session.receiver("orders", prefetch=3)
            > attach flow
            < attach flow transfer transfer transfer
            (@ m1, m2, m3)
            m1, m2, m3 = receiver.receive_many(3)
            # 3 acquired
            receipt = m2.acknowledge()
            > disposition flow
            < disposition
            = receipt.status.name
            # 2 acquired, 1 accepted
            receipt = m1.reject("orders:unknown-item")
            > disposition flow
            < disposition
            = receipt.status.name
            # 1 acquired, 1 accepted, 1 dead-lettered
        """,
    ),
    Picture(
        name="second",
        title="rcv-settle-mode second: an acknowledgement that is itself answered",
        posted=("m1",),
        script="""
            (session = connection.session("individual"))
            (> begin)
            (< begin)
            (receiver = session.receiver("orders"))
            > attach
            (> flow)
            < attach
            (< flow)
            < transfer
            (@ m1)
            message = receiver.receive()
            receipt = message.accept()
            -- the outcome, not yet settled
            > disposition
            -- the broker syncs its journal, then settles
            < disposition
            -- both ends may forget the delivery now
            = receipt.status.name
            # 1 accepted
        """,
    ),
    Picture(
        name="dups-ok",
        title="Mode DUPS_OK: as AUTO, but acknowledgements are gathered",
        script="""
            (session = connection.session("dups-ok"))
            (> begin)
            (< begin)
            receiver = session.receiver("orders", prefetch=50)
            > attach flow
            < attach flow transfer transfer transfer
            (@ m1, m2, m3)
            messages = receiver.receive_many(3)
            = len(messages)
            # 3 acquired
            -- 100 ms, or 100 messages, after the first
            > disposition
            # 3 accepted
        """,
    ),
    Picture(
        name="no-ack",
        title="Mode NO_ACK: the broker settles a message as it sends it",
        script="""
            (session = connection.session("no-ack"))
            (> begin)
            (< begin)
            receiver = session.receiver("orders", prefetch=2)
            > attach flow
            < attach flow transfer transfer
            # 1 available, 2 consumed
            @ m1, m2
            message = receiver.receive()
            = message.body
            > flow
            < transfer
            # 3 consumed
            @ m2, m3
            message.accept()
            ! Unreliable
        """,
    ),
    Picture(
        name="transacted-commit",
        title="Mode TRANSACTED: a message taken and one posted, in one transaction that is committed",
        posted=("m1",),
        script="""
            session = connection.session("transacted")
            (> begin)
            (< begin)
            > attach
            < attach flow
            (receiver = session.receiver("orders"))
            > attach flow
            (< attach flow)
            < transfer
            (sender = session.sender("invoices"))
            (> attach)
            (< attach flow)
            (@ m1)
            message = receiver.receive()
            = message.body
            > transfer
            < disposition
            sender.send("invoice for m1")
            > transfer
            < disposition
            # 1 acquired
            session.commit()
            > disposition transfer
            < disposition
            # 1 accepted
        """,
    ),
    Picture(
        name="transacted-rollback",
        title="Mode TRANSACTED: a rollback, after which the message comes again",
        posted=("m1", "m2"),
        script="""
            (session = connection.session("transacted"))
            (> begin)
            (< begin)
            (> attach)
            (< attach flow)
            (receiver = session.receiver("orders", prefetch=2))
            (> attach flow)
            (< attach flow)
            < transfer transfer
            (@ m1, m2)
            (sender = session.sender("invoices"))
            (> attach)
            (< attach flow)
            message = receiver.receive()
            = message.body
            > transfer flow
            < disposition
            sender.send("invoice for m1")
            > transfer
            < disposition
            session.rollback()
            > disposition disposition flow
            < transfer
            > transfer disposition
            < disposition
            -- it is over: messages are wanted again
            > flow
            < transfer transfer
            # 2 acquired
        """,
    ),
    Picture(
        name="prefetch-0",
        title="Prefetch 0: one credit for each receive, taken back by drain at its timeout",
        posted=("m1",),
        script="""
            (session = connection.session("auto"))
            (> begin)
            (< begin)
            receiver = session.receiver("orders", prefetch=0)
            > attach
            < attach flow
            # 1 available
            message = receiver.receive(timeout=5)
            > flow
            < transfer
            = message.body
            > disposition
            # 1 accepted
            message = receiver.receive(timeout=0.1)
            > flow
            -- 0.1 s later
            > flow
            < flow
            = message
        """,
    ),
    Picture(
        name="close",
        title="Closing a receiver: what is left of it",
        script="""
            (session = connection.session("client"))
            (> begin)
            (< begin)
            (receiver = session.receiver("orders", prefetch=3))
            (> attach flow)
            (< attach flow)
            < transfer transfer transfer
            (@ m1, m2, m3)
            message = receiver.receive()
            = message.body
            @ m2, m3
            receiver.close()
            > flow disposition disposition
            < disposition disposition
            > detach
            < detach
            # 3 available
        """,
    ),
    Picture(
        name="answer-lost",
        title="An answer that is lost with the connection: the receipt says UNKNOWN",
        posted=("m1",),
        script="""
            (session = connection.session("individual"))
            (> begin)
            (< begin)
            (receiver = session.receiver("orders"))
            (> attach flow)
            (< attach flow)
            < transfer
            (@ m1)
            message = receiver.receive()
            (stall)
            receipt = message.accept(sync=False)
            > disposition
            # 1 accepted
            ~
            (resume)
            status = receipt.result()
            = status.name
            -- the client connects again
            > open
            < open
            (> begin)
            (< begin)
            > attach flow
            < attach flow
            -- it was applied: m1 does not come again
        """,
    ),
    Picture(
        name="reconnect-receive",
        title="A connection lost before the acknowledgement: the message comes again, the old receipt says STALE",
        posted=("m1", "m2"),
        script="""
            (session = connection.session("individual"))
            (> begin)
            (< begin)
            (receiver = session.receiver("orders", prefetch=2))
            (> attach flow)
            (< attach flow)
            < transfer transfer
            (@ m1, m2)
            old = receiver.receive()
            = old.body
            # 2 acquired
            ~
            > open
            < open
            > begin attach flow
            < begin attach
            < transfer transfer
            (< flow)
            (@ m1, m2)
            receipt = old.accept()
            = receipt.status.name
            new = receiver.receive()
            = new.body
            = new.delivery_count
            receipt = new.accept()
            > disposition flow
            < disposition
            = receipt.status.name
            # 1 acquired, 1 accepted
        """,
    ),
    Picture(
        name="exactly-once-receive",
        title="Exactly once, receiving: the connection is lost before the outcome was told, and the link resumes",
        posted=("m1", "m2"),
        setup="import acquit\nstore = acquit.MemoryStore()",
        script="""
            (session = connection.session("individual"))
            (> begin)
            (< begin)
            receiver = session.receiver("orders", name="in", prefetch=2, exactly_once=store)
            > attach
            < attach flow
            > flow
            < transfer transfer
            (@ m1, m2)
            message = receiver.receive()
            = message.body
            # 2 acquired
            ~
            > open
            < open
            > begin attach
            < begin attach flow
            > flow
            < transfer transfer
            # 2 acquired
            receipt = message.accept()
            > disposition flow
            < disposition
            = receipt.status.name
            # 1 acquired, 1 accepted
        """,
    ),
    Picture(
        name="exactly-once-send",
        title="Exactly once, sending: the answer to a send is lost, and the broker's unsettled map tells it",
        posted=(),
        setup="import acquit\nstore = acquit.MemoryStore()",
        script="""
            (session = connection.session())
            (> begin)
            (< begin)
            sender = session.sender("orders", name="out", exactly_once=store)
            > attach
            < attach flow
            (stall)
            receipt = sender.send("m1", wait=False)
            > transfer
            # 1 available
            ~
            (resume)
            > open
            < open
            > begin attach
            < begin attach flow
            > transfer
            receipt.result()
            = receipt.outcome
            # 1 available
        """,
    ),
    Picture(
        name="reconnect-send",
        title="A connection lost before the answer to a send: the message is sent again, with its message id",
        posted=(),
        script="""
            (session = connection.session())
            (> begin)
            (< begin)
            (sender = session.sender("orders"))
            (> attach)
            (< attach flow)
            (stall)
            receipt = sender.send("m1", wait=False)
            > transfer
            # 1 available
            ~
            (resume)
            > open
            < open
            > begin
            < begin
            > attach
            < attach flow
            > transfer
            < disposition
            receipt.result()
            = receipt.outcome
            # 2 available
            -- twice in the queue, with the same message id
        """,
    ),
    Picture(
        name="request-reply",
        title="A request and its reply: a temporary queue for the replies, told apart by correlation id",
        posted=(),
        setup="""
elsewhere = acquit.connect(broker.url, options=acquit.ConnectOptions(reconnect=None))
responder = elsewhere.session().responder("prices", lambda request: f"{request.body}: 19.90")
""",
        script="""
            (session = connection.session())
            (> begin)
            (< begin)
            requester = session.requester("prices")
            > attach flow
            < attach
            (< flow)
            > attach
            < attach flow
            reply = requester.request("lamp")
            > transfer
            < disposition
            -- a responder, on another connection, sends the reply
            < transfer
            = reply.body
            (elsewhere.close())
        """,
    ),
    Picture(
        name="send",
        title="Sending: unsettled, and answered when the broker has the message on its disk",
        posted=(),
        script="""
            (session = connection.session())
            (> begin)
            (< begin)
            sender = session.sender("orders")
            > attach
            < attach flow
            outcome = sender.send("m1")
            > transfer
            < disposition
            # 1 available
            receipt = sender.send("m2", wait=False)
            > transfer
            < disposition
            receipt.result()
            = receipt.outcome
            # 2 available
        """,
    ),
)
