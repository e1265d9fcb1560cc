"""The Spark batch source's links on brokers that we did not write, without Spark: what is looked at stays, and who
cannot look is told so instead of consuming."""

from __future__ import annotations

import uuid

import pytest

from acquit import Message
from acquit.errors import ConfigurationError
from acquit.spark.browse import BrowsePart, browse, plan_browse
from acquit.spark.browse_options import BrowseOptions
from acquit.spark.columns import MessageColumns
from tests.interop.foreign import ForeignBroker

pytestmark = pytest.mark.interop

VARIABLE = "ACQUIT_TEST_BROWSE_PASSWORD"
MESSAGES = 500


@pytest.fixture
def address(foreign: ForeignBroker) -> str:
    address = foreign.queue(f"browse-{uuid.uuid4().hex[:12]}")
    with foreign.connect() as connection, connection.session() as session, session.sender(address) as sender:
        for number in range(MESSAGES):
            sender.send(Message(f"m{number}", message_id=str(number), application_properties={"n": number}), wait=False)
        sender.flush()
    return address


def options(foreign: ForeignBroker, monkeypatch: pytest.MonkeyPatch, address: str, **more: str) -> BrowseOptions:
    given = {"url": foreign.url, "address": address}
    if foreign.username is not None and foreign.password is not None:
        monkeypatch.setenv(VARIABLE, foreign.password)
        given |= {"user": foreign.username, "credential": f"env:{VARIABLE}"}
    return BrowseOptions.parse(given | more)


def seen(foreign: ForeignBroker, chosen: BrowseOptions) -> list[str]:
    (part,) = plan_browse(chosen)
    if foreign.name != "acquit":
        assert part == BrowsePart(address=part.address, broker=None), "one task, and no sequences"
    batches = browse(chosen, part, MessageColumns(part.address))
    return [one for batch in batches for one in batch.column("message_id").to_pylist()]


def test_a_queue_is_looked_at_or_that_is_refused(
    foreign: ForeignBroker, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = options(foreign, monkeypatch, address)
    everything = [str(number) for number in range(MESSAGES)]
    if foreign.name == "rabbitmq":
        with pytest.raises(ConfigurationError, match=f"does not let {address} be looked at"):
            plan_browse(chosen)
    else:
        assert seen(foreign, chosen) == everything
        assert seen(foreign, chosen) == everything, "nothing was taken"
        assert seen(foreign, options(foreign, monkeypatch, address, selector="n >= 400")) == everything[400:]
    with foreign.connect() as connection, connection.session("individual") as session:
        receiver = session.receiver(address)
        for number in range(MESSAGES):
            message = receiver.receive(timeout=10)
            assert message is not None and message.message_id == str(number)
            message.accept()
