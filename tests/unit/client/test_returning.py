"""Sessions and links that come back, and a peer that does not answer, or refuses what it may grant a little later."""

from __future__ import annotations

import pytest

from acquit import ConnectOptions, MemoryStore, Reconnect, errors
from acquit.client.receiving import ReceiverCore
from acquit.client.sending import SenderCore
from acquit.protocol import events as ev
from acquit.protocol.constants import ACCEPTED
from acquit.protocol.definitions import AmqpCondition, ConnectionCondition, Detach, Discharge, Error
from acquit.protocol.endpoint import Link
from acquit.protocol.extensions import RESUME
from acquit.protocol.receiver import ReceivingLink
from acquit.protocol.sender import SendingLink
from tests.support.server import Rig, ServerConnection
from tests.support.wire import frames_in

STILL_THERE = Error(AmqpCondition.INTERNAL_ERROR, "AMQ229200: Maximum Consumer Limit Reached")


class Returned:
    """A rig with a session, a sender and a receiver, whose connection can be lost."""

    def __init__(self, *, mode: str = "individual", prefetch: int = 10, safely: bool = False, **reconnect: int) -> None:
        """`safely`: both links are exactly once."""
        policy = Reconnect(**({"delay_ms": 100, "delay_max_ms": 400, "outage_max_ms": 5_000} | reconnect))  # type: ignore[arg-type]  # numbers
        self.rig = Rig(options=ConnectOptions(answer_timeout_ms=2_000), reconnect=policy)
        stores: dict[str, object] = {}
        if safely:
            self.rig.server.link_capabilities = (RESUME,)
            stores["exactly_once"] = MemoryStore()
        self.session = self.rig.session(mode)
        self.sender = self.rig.sender(self.session, "s", **stores)
        self.receiver = self.rig.receiver(self.session, "r", prefetch=prefetch, **stores)
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

    def come_back_refused(self, *, run: bool = True) -> None:
        """The connection is lost and restored, and both links are refused until `let_in`."""
        self.lose()
        self.rig.server.refusals |= dict.fromkeys("rs", STILL_THERE)
        self.rig.restore(run=run)

    def let_in(self) -> None:
        """The links are granted when they are tried again, which they are."""
        self.rig.server.refusals.clear()
        self.pass_by(0.5)
        assert not self.rig.core.refused

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


# -- what was asked of a link that is refused --------------------------------------------------------------------------


@pytest.mark.parametrize("safely", [False, True], ids=["plain", "exactly once"])
@pytest.mark.parametrize("when", ["before the answer", "refused"])
def test_a_drain_ends_where_its_link_is_refused(when: str, safely: bool) -> None:
    case = Returned(safely=safely)
    case.come_back_refused(run=False)
    if when == "refused":
        case.rig.run()
    drained = case.receiver.drain()
    case.rig.run()
    assert drained.failure is not None and drained.failure.kind is errors.ConnectionLost
    assert drained.failure.message == (
        "the receiver from 'r' was refused as the connection was restored: "
        f"AMQ229200: Maximum Consumer Limit Reached ({AmqpCondition.INTERNAL_ERROR})"
    )
    assert case.receiver.failure is None
    case.let_in()
    case.receiver.begin_wait()  # a drain leaves it without credit until then
    assert case.works()
    case.receiver.end_wait()
    again = case.receiver.drain()
    case.rig.run()
    assert again is not drained and again.done and again.failure is None


def test_a_pull_whose_time_is_over_does_not_keep_a_link_that_is_refused_from_credit() -> None:
    case = Returned(prefetch=0)
    case.receiver.begin_wait()
    case.come_back_refused(run=False)
    case.receiver.end_wait()
    case.rig.run()
    assert case.receiver.drained is not None and case.receiver.drained.done
    case.let_in()
    case.rig.server.offer("r", b"m")
    case.rig.run()
    assert case.receiver.take() is None  # nobody waits
    case.receiver.begin_wait()
    case.rig.run()
    assert case.receiver.take() is not None


def test_a_pull_goes_on_where_its_link_is_refused() -> None:
    case = Returned(prefetch=0)
    case.receiver.begin_wait()
    case.come_back_refused()
    case.let_in()
    case.rig.server.offer("r", b"m")
    case.rig.run()
    assert case.receiver.take() is not None


@pytest.mark.parametrize("when", ["before the answer", "refused"])
def test_a_rollback_does_not_wait_for_the_credit_of_a_link_that_is_refused(when: str) -> None:
    case = Returned(mode="transacted")
    transactions = case.session.transactions
    assert transactions is not None
    case.come_back_refused(run=False)
    if when == "refused":
        case.rig.run()
    other = case.rig.sender(case.session, "o", run=False)
    case.rig.send(other)
    for _ in range(2):  # the transaction is declared, and nothing more is heard
        case.rig.core.process(case.rig.now)
        case.rig.carry()
    ending = transactions.end(commit=False)
    case.rig.run()
    assert ending.done and transactions.ending is None
    assert [asked.fail for asked in case.rig.server.controlled if isinstance(asked, Discharge)] == [True]
    case.let_in()
    assert case.works()


def test_exactly_once_links_that_are_refused_as_they_come_back_resume_what_they_have() -> None:
    case = Returned(safely=True)
    case.rig.server.offer("r", b"m")
    case.rig.server.verdict = lambda delivery: None
    sent = case.rig.send(case.sender)
    case.rig.run()
    case.come_back_refused()
    assert len(case.receiver.buffer) == case.receiver.held == 1  # ours still: the broker's map will say so
    assert not sent.done
    case.rig.server.verdict = lambda delivery: ACCEPTED
    case.let_in()
    assert sent.outcome == ACCEPTED
    assert case.attaches(case.receiver) == case.attaches(case.sender) == 2
    assert case.works()


@pytest.mark.parametrize("mode", ["individual", "transacted"])
def test_a_send_that_has_not_left_says_that_its_link_is_refused(mode: str) -> None:
    case = Returned(mode=mode)
    case.come_back_refused()
    sent = case.rig.send(case.sender)
    case.rig.run()
    case.sender.withdraw(sent, 0.5)
    with pytest.raises(errors.NotSent) as not_sent:
        sent.value()
    assert str(not_sent.value) == (
        "the sender to 's' was refused as the connection was restored: AMQ229200: Maximum Consumer Limit Reached "
        f"({AmqpCondition.INTERNAL_ERROR}), and not attached within 0.5 s: the message never left"
    )


def _attach_to_nothing(connection: ServerConnection, link: Link) -> None:
    """Answer without a terminus, and use the link all the same."""
    assert link.remote_attach is not None
    if isinstance(link, SendingLink):
        link.remote_attach.source = None
        link.accept_attach()
        for _ in range(2):
            connection.send(link, b"m")
    else:
        assert isinstance(link, ReceivingLink)
        link.remote_attach.target = None
        link.accept_attach()
        link.grant(10)


@pytest.mark.parametrize("runs", [False, True], ids=["messages", "runs"])
def test_what_goes_over_a_link_that_is_refused_then_is_sent_again(runs: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    case = Returned()
    case.receiver = receiver = case.rig.receiver(case.session, "t", in_runs=runs)
    case.rig.server.verdict = lambda delivery: None
    with monkeypatch.context() as patched:
        patched.setattr(ServerConnection, "_attach", _attach_to_nothing)
        case.lose()
        case.rig.restore()
    sent = case.rig.send(case.sender)
    case.rig.run()
    assert (len(receiver.buffer), receiver.held, case.sender.in_flight) == (2, 2, 1)
    for link in case.rig.peer.links(Link):
        link.detach(STILL_THERE)
    case.rig.run()
    assert (len(receiver.buffer), receiver.held, case.sender.in_flight) == (0, 0, 0)
    assert not sent.done
    case.rig.server.verdict = lambda delivery: ACCEPTED
    case.let_in()
    assert sent.outcome == ACCEPTED
    assert receiver.link.credit == receiver.spec.prefetch
