"""The connection of a requester is cut before, within and after each frame of an exchange.

To a fixed address the reply comes all the same. To a temporary node either it had come, or the wait ends at once and
says so. In both cases the next request is answered, over the next connection.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import acquit
from acquit import errors
from acquit.testing import Proxy
from acquit.testing.rules import Rule

LONG = 30.0
TO_A_NODE = [("client", "transfer"), ("broker", "disposition"), ("broker", "transfer")]
TO_A_QUEUE = [*TO_A_NODE, ("client", "disposition")]
CASES = [(False, *frame) for frame in TO_A_NODE] + [(True, *frame) for frame in TO_A_QUEUE]


@pytest.fixture(scope="module")
def broker() -> Iterator[acquit.Broker]:
    with (
        acquit.Broker() as broker,
        acquit.connect(broker.url) as connection,
        connection.session("individual") as session,
        session.responder("service", lambda request: request.text.upper()),
    ):
        yield broker


@pytest.mark.parametrize("place", ["before", "within", "after"])
@pytest.mark.parametrize(("fixed", "by", "frame"), CASES)
def test_a_cut_at_each_frame(broker: acquit.Broker, fixed: bool, by: str, frame: str, place: str) -> None:
    replies = f"replies.{by}.{frame}.{place}" if fixed else None
    with (
        Proxy(broker.url) as proxy,
        acquit.connect(proxy.url) as connection,
        connection.session() as session,
        session.requester("service", reply_to=replies) as requester,
    ):
        assert requester.request("warm", timeout=LONG).text == "WARM"
        # Frames of this exchange that are still under way are not the ones that are meant.
        proxy.wait_for("disposition", by="broker")
        if fixed:
            proxy.wait_for("disposition", by="client")
        rule: Rule = getattr(proxy, place)(frame, by=by).cut()
        reply = None
        try:
            reply = requester.request("cut", timeout=LONG)
        except errors.ReplyAddressLost as error:
            lost = error
        rule.wait()
        if reply is not None:
            assert reply.text == "CUT"
        else:
            assert not fixed
            assert lost.accepted in (True, None)
        assert requester.request("again", timeout=LONG).text == "AGAIN"
        assert requester.pending == 0
