"""The transactions of python-qpid-proton (`proton.reactor.Transaction`), whose control link lists no outcomes."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from proton import Delivery, Message
from proton.handlers import MessagingHandler, TransactionHandler
from proton.reactor import Container

import acquit
from tests.interop.conftest import Look, Server

pytestmark = pytest.mark.interop

TIMEOUT_S = 20
ADDRESSES = iter(f"proton-transactions-{number}" for number in range(1_000))


@pytest.fixture
def addresses() -> tuple[str, str]:
    """Where messages come from, and where they go."""
    return next(ADDRESSES), next(ADDRESSES)


@dataclass
class Step:
    """One transaction: so many messages are retired and posted in it, and then it ends."""

    take: int = 0
    post: tuple[str, ...] = ()
    commit: bool = True
    outcome: int | None = None
    """None: as `Transaction.accept` does it."""


@dataclass
class Story(MessagingHandler, TransactionHandler):  # type: ignore[misc]  # proton has no types
    """Steps, one after the other, over one connection."""

    url: str
    source: str
    target: str
    steps: list[Step]
    settle_before_discharge: bool = False
    told: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        MessagingHandler.__init__(self, prefetch=0, auto_accept=False, auto_settle=True)
        self.at = -1
        self.transaction: Any = None
        self.taken: list[Any] = []

    def run(self) -> Story:
        thread = threading.Thread(target=self._run)
        thread.start()
        thread.join(TIMEOUT_S)
        assert not thread.is_alive(), f"after {self.told}: {self.errors}"
        return self

    def _run(self) -> None:
        self.container = Container(self)
        self.container.run()

    # -- proton's events ----------------------------------------------------------------------------------------------

    def on_start(self, event: Any) -> None:
        self.connection = event.container.connect(self.url, allowed_mechs="ANONYMOUS", reconnect=False)
        self.sender = event.container.create_sender(self.connection, self.target)
        self.receiver = event.container.create_receiver(self.connection, self.source)
        self.next()

    def next(self) -> None:
        self.at += 1
        if self.at < len(self.steps):
            self.taken = []
            self.container.declare_transaction(
                self.connection, handler=self, settle_before_discharge=self.settle_before_discharge
            )
        else:
            self.connection.close()

    def on_transaction_declared(self, event: Any) -> None:
        self.transaction = event.transaction
        step = self.steps[self.at]
        for body in step.post:
            self.transaction.send(self.sender, Message(body=body, durable=True))
        if step.take:
            self.receiver.flow(step.take)
        else:
            self.end()

    def on_message(self, event: Any) -> None:
        step = self.steps[self.at]
        self.taken.append(event.message.body)
        if step.outcome is None:
            self.transaction.accept(event.delivery)
        else:
            self.transaction.update(event.delivery, step.outcome)
            event.delivery.settle()
        if len(self.taken) == step.take:
            self.end()

    def end(self) -> None:
        if self.steps[self.at].commit:
            self.transaction.commit()
        else:
            self.transaction.abort()

    def on_transaction_committed(self, event: Any) -> None:
        self.told.append("committed")
        self.next()

    def on_transaction_aborted(self, event: Any) -> None:
        self.told.append("aborted")
        self.next()

    def on_transaction_commit_failed(self, event: Any) -> None:
        self.told.append("commit failed")
        self.next()

    def on_link_error(self, event: Any) -> None:
        self.errors.append(str(event.link.remote_condition))
        self.connection.close()

    def on_transport_error(self, event: Any) -> None:
        self.errors.append(str(event.transport.condition))


@pytest.fixture
def session(server: Server) -> Iterator[acquit.Session]:
    with acquit.connect(server.url) as connection:
        yield connection.session()


def fill(session: acquit.Session, address: str, *bodies: str) -> None:
    with session.sender(address) as sender:
        for body in bodies:
            sender.send(acquit.Message(body, durable=True))


@pytest.mark.promise("transactions")
def test_what_is_committed_and_what_is_aborted(
    server: Server, session: acquit.Session, addresses: tuple[str, str], look: Look
) -> None:
    source, target = addresses
    fill(session, source, "a", "b", "c")
    steps = [
        Step(take=1, post=("one",)),
        Step(take=1, post=("never", "never"), commit=False),
        Step(take=2, post=("two", "three")),
    ]
    story = Story(server.url, source, target, steps).run()
    assert story.errors == []
    assert story.told == ["committed", "aborted", "committed"]
    look.until(source, depth=0, accepted=3)
    look.until(target, depth=3, entered=3)


@pytest.mark.parametrize("commit", [True, False])
def test_deliveries_that_are_settled_before_the_discharge(
    server: Server, session: acquit.Session, addresses: tuple[str, str], look: Look, commit: bool
) -> None:
    source, target = addresses
    fill(session, source, "a", "b")
    story = Story(server.url, source, target, [Step(take=2, commit=commit)], settle_before_discharge=True).run()
    assert story.told == ["committed" if commit else "aborted"]
    look.until(source, depth=0 if commit else 2, acquired=0)


@pytest.mark.parametrize(
    ("outcome", "depth", "dead"), [(Delivery.REJECTED, 0, 1), (Delivery.RELEASED, 1, 0), (Delivery.MODIFIED, 1, 0)]
)
def test_other_outcomes(
    server: Server, session: acquit.Session, addresses: tuple[str, str], look: Look, outcome: int, depth: int, dead: int
) -> None:
    source, target = addresses
    fill(session, source, "a")
    story = Story(server.url, source, target, [Step(take=1, outcome=outcome)]).run()
    assert story.told == ["committed"]
    look.until(source, depth=depth, dead_lettered=dead)


def test_a_commit_that_fails_is_told(server: Server, addresses: tuple[str, str]) -> None:
    """As rejected, although the control link does not say that it knows this outcome."""
    source, target = addresses
    with acquit.connect(server.url) as connection:
        fill(connection.session(), source, "a")

    class Failing(Story):
        def end(self) -> None:
            self.transaction.id = bytes(16)  # of no transaction
            self.transaction.commit()

    story = Failing(server.url, source, target, [Step(post=("x",))]).run()
    assert story.told == ["commit failed"]


def test_many_in_one_transaction(
    server: Server, session: acquit.Session, addresses: tuple[str, str], look: Look
) -> None:
    source, target = addresses
    bodies = tuple(f"m{number}" for number in range(500))
    fill(session, source, *bodies)
    story = Story(server.url, source, target, [Step(take=500, post=bodies)]).run()
    assert story.told == ["committed"]
    look.until(source, depth=0, accepted=500)
    look.until(target, depth=500)
