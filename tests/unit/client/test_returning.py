"""Sessions and links that come back, and a peer that does not answer, or refuses what it may grant a little later."""

from __future__ import annotations

import pytest

from acquit import ConnectOptions, Reconnect, errors
from acquit.client.receiving import ReceiverCore
from acquit.client.sending import SenderCore
from acquit.protocol import events as ev
from acquit.protocol.constants import ACCEPTED
from acquit.protocol.definitions import AmqpCondition, ConnectionCondition, Detach, Error
from tests.support.server import Rig
from tests.support.wire import frames_in

STILL_THERE = Error(AmqpCondition.INTERNAL_ERROR, "AMQ229200: Maximum Consumer Limit Reached")


class Returned:
    """A rig with a session, a sender and a receiver, whose connection can be lost."""

    def __init__(self, **reconnect: int) -> None:
        policy = Reconnect(**({"delay_ms": 100, "delay_max_ms": 400, "outage_max_ms": 5_000} | reconnect))  # type: ignore[arg-type]  # numbers
        self.rig = Rig(options=ConnectOptions(answer_timeout_ms=2_000), reconnect=policy)
        self.session = self.rig.session("individual")
        self.sender = self.rig.sender(self.session, "s")
        self.receiver = self.rig.receiver(self.session, "r")
        self.said = b""
        self.rig.tap = self._tap  # type: ignore[method-assign]  # what it is for

    def _tap(self, data: bytes) -> None:
        self.said += data

    @property
    def detaches(self) -> list[Detach]:
        return [said for _, said, _ in frames_in(self.said) if isinstance(said, Detach)]

    def lose(self) -> None:
        self.rig.cut()
        self.rig.server.heard.clear()
        self.said = b""

    def pass_by(self, seconds: float, step_s: float = 0.05) -> None:
        """Time passes, and both ends act all the while."""
        for _ in range(round(seconds / step_s)):
            self.rig.advance(step_s)
            self.rig.run()

    def attaches(self, link: SenderCore | ReceiverCore) -> int:
        """How often the server was asked for a link."""
        return sum(event.link.name == link.spec.name for event in self.rig.server.all(ev.LinkRequested))

    def works(self) -> bool:
        """True if a message comes through, both ways."""
        sent = self.rig.send(self.sender)
        self.rig.server.offer("r", b"m")
        self.rig.run()
        return sent.outcome == ACCEPTED and self.receiver.take() is not None


# -- no answer ---------------------------------------------------------------------------------------------------------


def test_a_link_whose_attach_is_not_answered_ends_when_the_time_is_over() -> None:
    case = Returned()
    waiting = case.rig.send(case.sender)
    case.lose()
    case.rig.server.silent = True
    case.rig.restore()
    case.said = b""
    restored_at = case.rig.now
    assert case.rig.core.next_deadline() == restored_at + 2.0
    case.pass_by(1.9)
    assert case.sender.failure is case.receiver.failure is None
    case.pass_by(0.2)
    for link in (case.sender, case.receiver):
        assert link.failure is not None and link.failure.kind is errors.LinkDetached
        assert link.failure.message == (
            f"the peer did not answer the attach of {link.spec.what} within 2 s of the connection being restored"
        )
    assert isinstance(waiting.error(), errors.AcquitError)
    assert [detach.closed for detach in case.detaches] == [False, False]  # a durable subscription stays
    assert case.session.failure is None and case.session.senders == case.session.receivers == []
    case.rig.server.silent = False
    again = case.rig.sender(case.session, "another")
    assert again.attached.done and again.failure is None


def test_a_session_whose_begin_is_not_answered_ends_when_the_time_is_over() -> None:
    case = Returned()
    other = case.rig.session()
    case.lose()
    case.rig.restore(run=False)
    case.rig.advance(1.9)
    assert case.session.failure is None
    case.rig.advance(0.2)
    assert case.session.failure is not None and case.session.failure.kind is errors.SessionEnded
    assert case.session.failure.message == (
        "the peer did not answer the begin of the session within 2 s of the connection being restored"
    )
    assert case.receiver.failure == case.session.failure
    assert other.failure is not None and case.rig.core.sessions == []
    case.rig.run()  # the answers come late, and nobody minds
    assert case.rig.core.failure is None
    assert case.rig.session().begun.failure is None


def test_what_was_answered_has_no_limit_any_more() -> None:
    case = Returned()
    case.lose()
    case.rig.restore()
    assert case.rig.core.next_deadline() is None
    case.pass_by(10.0, 1.0)
    assert case.works()


# -- refused -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "condition", [AmqpCondition.INTERNAL_ERROR, AmqpCondition.RESOURCE_LOCKED, AmqpCondition.RESOURCE_LIMIT_EXCEEDED]
)
def test_a_link_that_is_refused_as_it_comes_back_is_tried_again(
    condition: str, caplog: pytest.LogCaptureFixture
) -> None:
    case = Returned()
    case.lose()
    case.rig.server.refusals |= dict.fromkeys("rs", Error(condition, "still there"))
    case.rig.restore()
    assert case.attaches(case.receiver) == case.attaches(case.sender) == 1
    case.pass_by(1.0)
    assert case.attaches(case.receiver) == 4  # after 0.1, 0.2 and 0.4 s more
    assert case.receiver.failure is case.sender.failure is None
    case.rig.server.refusals.clear()
    case.pass_by(0.5)
    assert case.works()
    assert case.rig.core.next_deadline() is None and not case.rig.core.refused
    logged = [record.getMessage() for record in caplog.records if "was refused as" in record.getMessage()]
    assert len(logged) == 2
    assert f"still there ({condition})" in logged[0]


def test_a_link_that_is_refused_for_as_long_as_an_outage_may_last_ends() -> None:
    case = Returned()
    case.lose()
    case.rig.server.refusals["r"] = STILL_THERE
    case.pass_by(3.0)
    case.rig.restore()
    case.pass_by(1.9)
    assert case.receiver.failure is None
    case.pass_by(0.2)
    failure = case.receiver.failure
    assert failure is not None and failure.kind is errors.LinkDetached
    assert failure.condition == AmqpCondition.INTERNAL_ERROR and "AMQ229200" in failure.message
    assert case.session.receivers == [] and case.sender.failure is None


def test_a_link_that_is_refused_has_no_more_rounds_than_a_connection() -> None:
    case = Returned(rounds_max=3)
    case.lose()
    case.rig.server.refusals["r"] = STILL_THERE
    case.rig.restore()
    case.pass_by(2.0)
    assert case.attaches(case.receiver) == 3
    assert case.receiver.failure is not None


def test_a_link_that_is_tried_again_and_not_answered_ends() -> None:
    case = Returned()
    case.lose()
    case.rig.server.refusals["r"] = STILL_THERE
    case.rig.restore()
    case.rig.server.silent = True
    case.pass_by(2.0)
    assert case.receiver.failure is None
    case.pass_by(0.2)
    assert case.receiver.failure is not None and "did not answer the attach" in case.receiver.failure.message


@pytest.mark.parametrize("condition", [AmqpCondition.NOT_FOUND, ConnectionCondition.CONNECTION_FORCED])
def test_a_link_that_would_be_refused_again_ends_at_once(condition: str) -> None:
    case = Returned()
    case.lose()
    case.rig.server.refusals["r"] = Error(condition)
    case.rig.restore()
    assert case.receiver.failure is not None and case.receiver.failure.condition == condition


def test_a_link_that_is_refused_the_first_time_ends_at_once() -> None:
    case = Returned()
    case.rig.server.refusals["q"] = STILL_THERE
    new = case.rig.receiver(case.session, "q")
    assert new.failure is not None
    case.rig.server.refusals["p"] = STILL_THERE
    case.rig.server.silent = True
    asked = case.rig.receiver(case.session, "p")
    case.rig.server.silent = False
    case.lose()
    case.rig.restore()
    assert asked.failure is not None  # whoever asked for it still waits to hear


def test_a_link_that_has_come_back_is_not_tried_again_when_it_ends_later() -> None:
    case = Returned()
    case.lose()
    case.rig.restore()
    case.rig.peer.sending.detach(STILL_THERE)
    case.rig.run()
    assert case.receiver.failure is not None


def test_links_that_wait_to_be_tried_again_close_at_once() -> None:
    case = Returned()
    case.lose()
    case.rig.server.refusals |= dict.fromkeys("rs", STILL_THERE)
    case.rig.restore()
    waiting = case.rig.send(case.sender)
    case.sender.detach()
    case.receiver.detach()
    assert case.sender.detached.done and case.receiver.detached.done
    assert waiting.error() is not None
    case.pass_by(1.0)
    assert case.attaches(case.sender) == case.attaches(case.receiver) == 1
    assert not case.rig.core.refused


def test_a_link_that_waits_to_be_tried_again_comes_back_with_the_next_connection() -> None:
    case = Returned()
    case.lose()
    case.rig.server.refusals["r"] = STILL_THERE
    case.rig.restore()
    case.lose()
    assert not case.rig.core.refused
    case.rig.server.refusals.clear()
    case.rig.restore()
    assert case.works()
    case.pass_by(1.0)
    assert case.attaches(case.receiver) == 1
