"""What brokers do with links that are to be resumed (2.6.13): durable, never expiring, with an unsettled map.

Our client uses such a link where the broker offers to resume it, and refuses it elsewhere. Here it also goes on
elsewhere, to see what would come of that.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

import acquit
from acquit import AckMode, DeliveryInDoubt
from acquit.client import resuming
from acquit.errors import AcquitError, EndpointError, SessionEnded
from acquit.protocol.definitions import Attach, Detach, Source
from acquit.testing import Proxy
from tests.interop.foreign import ForeignBroker
from tests.interop.foreign_looks import PATIENCE_S, rest, take
from tests.interop.observations import Observer

pytestmark = [pytest.mark.interop, pytest.mark.promise("exactly-once")]

NOTHING_S = 0.3
"""For what must not come: the broker has told before that it keeps it for somebody."""
COUNTS = {1: "once", 2: "twice"}
ENDED = "ends the session"


@pytest.fixture
def queue(foreign: ForeignBroker) -> str:
    return foreign.queue(f"resumed-{uuid.uuid4().hex[:12]}")


def test_exactly_once_is_granted_or_refused(foreign: ForeignBroker, queue: str, observe: Observer) -> None:
    """Never a silent downgrade: both links, or neither."""
    refusals = []
    for direction in ("sender", "receiver"):
        with foreign.connect() as connection:
            attach = getattr(connection.session(AckMode.INDIVIDUAL), direction)
            try:
                attach(queue, name=f"exactly-{direction}", exactly_once=acquit.MemoryStore())
            except (EndpointError, SessionEnded) as refused:
                refusals.append(str(refused))
    assert len(refusals) in (0, 2)
    observe("resumes", not refusals, "; ".join(refusals))


@dataclass
class Holder:
    """A connection of our client that comes back when it is cut, and insists on links that resume."""

    proxy: Proxy
    session: acquit.Session
    exactly_once: acquit.MemoryStore = field(default_factory=acquit.MemoryStore)

    def answer(self, number: int) -> Attach:
        """The broker's attach of this number."""
        answer = self.proxy.wait_for("attach", number, by="broker", timeout_s=PATIENCE_S).performative
        assert isinstance(answer, Attach)
        return answer


@pytest.fixture
def holder(foreign: ForeignBroker, monkeypatch: pytest.MonkeyPatch) -> Iterator[Holder]:
    monkeypatch.setattr(resuming, "refusal", lambda link: None)
    with Proxy(foreign.url) as proxy:
        container = f"holder-{uuid.uuid4().hex[:12]}"
        connection = foreign.connect(url=proxy.url, container_id=container, options=acquit.ConnectOptions())
        yield Holder(proxy, connection.session(AckMode.INDIVIDUAL))
        with contextlib.suppress(AcquitError):  # what a broker has refused is not in order
            connection.close()


def test_a_receiver_that_is_to_be_kept(foreign: ForeignBroker, queue: str, holder: Holder, observe: Observer) -> None:
    with foreign.connect() as other, other.session() as session, session.sender(queue) as sender:
        sender.send("a")
    try:
        receiver = holder.session.receiver(queue, name="kept", exactly_once=holder.exactly_once, prefetch=1)
    except SessionEnded as ended:
        for capability in ("kept", "attached_again"):
            observe(capability, ENDED, str(ended))
        return
    source = holder.answer(1).source
    assert isinstance(source, Source)
    observe("kept", source.durable.name.lower().replace("_", "-"))

    held = take(receiver)
    holder.proxy.cut()
    answer = holder.answer(2)
    keeps = held.delivery_tag in (answer.unsettled or {})
    if keeps:
        holder.proxy.wait_for("transfer", by="broker", resume=True, timeout_s=PATIENCE_S)
    with foreign.connect() as other, other.session() as session, session.receiver(queue) as elsewhere:
        others = elsewhere.receive(timeout=NOTHING_S if keeps else PATIENCE_S)
    whose = "the message is kept for it" if others is None else "others get the message"
    if keeps:
        seen = "with the broker's map; the delivery is resumed"
    elif answer.source is not None:
        seen = "without a map"
    else:
        detach = holder.proxy.wait_for("detach", by="broker", timeout_s=PATIENCE_S).performative
        assert isinstance(detach, Detach) and detach.error is not None
        seen = f"refused ({detach.error.condition})"
    observe("attached_again", f"{seen}; {whose}")


def test_a_send_whose_answer_was_lost(foreign: ForeignBroker, queue: str, holder: Holder, observe: Observer) -> None:
    try:
        sender = holder.session.sender(queue, name="kept", exactly_once=holder.exactly_once)
    except SessionEnded as ended:
        observe("sent_again", ENDED, str(ended))
        return
    holder.proxy.before("disposition", by="broker").cut()
    try:
        sender.send("a", timeout=PATIENCE_S)
        said = "accepted"
    except DeliveryInDoubt:
        said = "in doubt"
    with foreign.connect() as other, other.session(AckMode.AUTO) as session, session.receiver(queue) as elsewhere:
        found = [take(elsewhere), *rest(elsewhere)]
    observe("sent_again", f"{said}, and there {COUNTS[len(found)]}")
