"""Sessions and links that come back, and a peer that does not answer."""

from __future__ import annotations

from acquit import ConnectOptions, errors
from acquit.protocol.constants import ACCEPTED
from acquit.protocol.definitions import Detach
from tests.support.server import Rig
from tests.support.wire import frames_in


class Returned:
    """A rig with a session, a sender and a receiver, whose connection can be lost."""

    def __init__(self) -> None:
        self.rig = Rig(options=ConnectOptions(answer_timeout_ms=2_000), restores=True)
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

    def works(self) -> bool:
        """True if a message comes through, both ways."""
        sent = self.rig.send(self.sender)
        self.rig.server.offer("r", b"m")
        self.rig.run()
        return sent.outcome == ACCEPTED and self.receiver.take() is not None


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
