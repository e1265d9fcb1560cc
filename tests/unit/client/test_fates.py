"""Asking what became of a transaction: what is asked, and what is made of each answer."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from acquit import errors
from acquit.client.fates import FateQuery, Origin, TransactionFate, check_txn_id
from acquit.client.options import ConnectOptions
from acquit.protocol import events as ev
from acquit.protocol.definitions import Error, Rejected
from acquit.protocol.extensions import BROKER_ID
from acquit.protocol.message import Message
from tests.support.server import Rig, Server

HERE = UUID(int=1)
TXN = b"\x01\x02"
KEPT = 60_000


class Stage:
    """A session with an acquit broker, as far as its properties say, and a question."""

    def __init__(self, properties: dict[str, object] | None = None, **limits: int) -> None:
        self.server = Server(properties={BROKER_ID: HERE} if properties is None else properties)
        self.server.options = replace(self.server.options, **limits)  # type: ignore[arg-type]  # all of them are numbers
        self.rig = Rig(self.server)
        self.session = self.rig.session()

    def ask(self, origin: Origin | None = None) -> FateQuery:
        query = FateQuery(self.session, TXN, origin)
        self.rig.run()
        return query

    def answer(self, body: object, *, status: object = 200) -> None:
        self.server.offer("$management", Message(body, application_properties={"statusCode": status}))
        self.rig.run()


@pytest.fixture
def stage() -> Stage:
    return Stage()


def test_what_is_asked(stage: Stage) -> None:
    query = stage.ask()
    (taken,) = stage.server.taken
    request = Message.decode(taken.payload)
    assert request.application_properties == {
        "operation": "READ",
        "type": "acquit:transaction",
        "name": "0102",
    }
    answers = stage.rig.peer.sending
    assert answers.target is not None
    assert request.reply_to == answers.target.address
    assert not query.done.done


@pytest.mark.parametrize(
    ("fate", "known"),
    [
        ("committed", TransactionFate.COMMITTED),
        ("rolled-back", TransactionFate.ROLLED_BACK),
        ("unknown", TransactionFate.UNKNOWN),
        ("something new", TransactionFate.UNKNOWN),
    ],
)
def test_answers(stage: Stage, fate: str, known: TransactionFate) -> None:
    query = stage.ask()
    stage.answer({"fate": fate, "kept_ms": KEPT})
    assert query.done.done
    assert query.done.failure is None
    assert query.answer is known
    assert stage.rig.peer.engine.sessions[0].links == []  # it cleans up
    assert stage.session.errands == {}


@pytest.mark.parametrize(("body", "status"), [({"fate": "committed"}, 403), (None, 200), ("committed", 200)])
def test_an_answer_that_is_none(stage: Stage, body: object, status: int) -> None:
    query = stage.ask()
    stage.answer(body, status=status)
    assert (query.done.done, query.answer) == (True, TransactionFate.UNKNOWN)


def test_an_answer_that_is_no_message(stage: Stage) -> None:
    query = stage.ask()
    stage.rig.peer.sending.send(b"x", b"no section")
    stage.rig.run()
    assert (query.done.done, query.answer) == (True, TransactionFate.UNKNOWN)


def test_what_is_not_known_of_a_young_transaction_was_rolled_back(stage: Stage) -> None:
    query = stage.ask(Origin.of(stage.rig.core))
    stage.answer({"fate": "unknown", "kept_ms": KEPT})
    assert query.answer is TransactionFate.ROLLED_BACK


def test_what_is_not_known_of_an_old_one_is_not_known(stage: Stage) -> None:
    now = Origin.of(stage.rig.core)
    for origin in (
        now._replace(monotonic_s=now.monotonic_s - KEPT / 1000),
        now._replace(wall_s=stage.rig.wall_s - KEPT / 1000),  # the machine has slept
        now._replace(broker_id=UUID(int=2)),  # the broker that knew is another one
    ):
        query = stage.ask(origin)
        stage.answer({"fate": "unknown", "kept_ms": KEPT})
        assert query.answer is TransactionFate.UNKNOWN
    stage.rig.wall_s += KEPT / 1000
    query = stage.ask(now)
    stage.answer({"fate": "unknown", "kept_ms": KEPT})
    assert query.answer is TransactionFate.UNKNOWN, "as told by the driver's clock"
    stage.rig.wall_s = now.wall_s
    query = stage.ask(now)
    stage.answer({"fate": "unknown"})
    assert query.answer is TransactionFate.UNKNOWN


@pytest.mark.parametrize("properties", [{}, {"product": "another"}])
def test_another_product_is_not_asked(properties: dict[str, object]) -> None:
    stage = Stage(properties)
    query = stage.ask()
    assert (query.done.done, query.answer) == (True, TransactionFate.UNKNOWN)
    assert stage.server.all(ev.LinkRequested) == []


def test_a_node_that_may_not_be_asked(stage: Stage) -> None:
    stage.server.refusals["$management"] = Error("amqp:unauthorized-access")
    query = stage.ask()
    assert (query.done.done, query.answer) == (True, TransactionFate.UNKNOWN)
    assert stage.session.errands == {}


def test_a_request_that_is_refused(stage: Stage) -> None:
    stage.server.verdict = lambda delivery: Rejected(Error("amqp:unauthorized-access"))
    query = stage.ask()
    assert (query.done.done, query.answer) == (True, TransactionFate.UNKNOWN)


def test_who_loses_the_connection_has_to_ask_again(stage: Stage) -> None:
    query = stage.ask()
    stage.rig.cut()
    with pytest.raises(errors.ConnectionLost):
        query.done.check()
    assert stage.session.errands == {}


def test_a_question_for_which_there_is_one_handle_alone_leaves_nothing_behind() -> None:
    stage = Stage(handle_max=0)
    with pytest.raises(errors.LocalProtocolError, match="handle"):
        FateQuery(stage.session, TXN)
    assert stage.session.errands == {}
    stage.rig.run()
    assert stage.rig.peer.engine.sessions[0].links == []
    stage.rig.receiver(stage.session).attached.check()


@pytest.mark.parametrize("txn_id", ["0102", None, b""])
def test_what_names_no_transaction(txn_id: object) -> None:
    with pytest.raises(errors.ConfigurationError, match="txn_id"):
        check_txn_id(txn_id)


@pytest.mark.parametrize(
    ("as_jms", "raised"), [(False, errors.TransactionInDoubt), (True, errors.TransactionRolledBack)]
)
def test_what_a_commit_in_doubt_raises(as_jms: bool, raised: type[errors.TransactionFailed]) -> None:
    rig = Rig(options=ConnectOptions(in_doubt_is_rolled_back=as_jms))
    rig.server.commits = lambda discharge: None  # never answered
    session = rig.session("transacted")
    assert session.transactions is not None
    rig.send(rig.sender(session))
    rig.run()
    ending = session.transactions.end(commit=True)
    rig.run()
    session.transactions.give_up(ending, " in time")
    assert type(ending.error()) is raised
