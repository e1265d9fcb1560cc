from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

import acquit
from acquit.broker.options import BrokerOptions, Role, Security, User
from acquit.cli.exits import Exit
from acquit.store.journal import SegmentedJournal
from acquit.store.options import JournalOptions
from tests.support.shell import Shell


@pytest.fixture
def own() -> Iterator[acquit.Broker]:
    """A broker whose queues are this test's alone."""
    with acquit.Broker() as broker:
        yield broker


def guarded(**roles: Role) -> acquit.Broker:
    """Return a broker with one user for each role, of its name and with the password x."""
    users = {name: User(password="x", roles=(name,)) for name in roles}
    return acquit.Broker(
        config=BrokerOptions(security=Security(users=users, roles=roles), journal=JournalOptions.small())
    )


def test_one_screen_says_how_the_broker_is(shell: Shell, own: acquit.Broker) -> None:
    shell("send", "left", "one", "two", "--url", own.url)
    ran = shell("status", "--url", own.url)
    assert (ran.code, ran.err) == (Exit.OK, "")
    labels = {text[:12].strip() for text in ran.out.splitlines()}
    assert labels >= {"acquit", "broker", "connections", "queues", "memory", "disk", "sync", "loop", "trouble"}
    assert " s, accepting messages" in ran.out
    assert "left: 2 wait and nobody receives" in ran.out
    assert max(map(len, ran.out.splitlines())) <= 100


def test_status_for_machines(shell: Shell, own: acquit.Broker) -> None:
    (calm,) = shell("status", "--json", "--url", own.url).documents
    assert (calm["accepting"], calm["in_trouble"], calm["warnings"]) == (True, [], [])
    assert calm["connections"] == 1
    assert calm["disk"]["free_bytes"] > 0
    shell("send", "left", "one", "--url", own.url)
    (document,) = shell("status", "--json", "--url", own.url).documents
    assert document["in_trouble"] == [{"queue": "left", "troubles": ["1 wait and nobody receives"]}]


def test_of_many_queues_in_trouble_the_first_are_named(shell: Shell, own: acquit.Broker) -> None:
    with acquit.connect(own.url) as connection, connection.session() as session:
        for number in range(12):
            session.sender(f"q{number}").send("x")
    assert "and 2 more" in shell("status", "--url", own.url).out


def test_who_may_see_little_is_told_so(shell: Shell) -> None:
    with guarded(clerk=Role(send=("#",)), reader=Role(browse=("orders.#",))) as broker:
        at = f"@127.0.0.1:{broker.port}"
        clerk = shell("status", "--url", f"amqp://clerk:x{at}")
        assert clerk.code == Exit.FAILED
        assert "accepting messages" in clerk.out
        assert clerk.err.count("\n") == 1 and "'clerk' may not see any queue" in clerk.err
        reader = shell("status", "--url", f"amqp://reader:x{at}")
        assert (reader.code, "disk" in reader.out) == (Exit.OK, False)
        assert "all addresses" in reader.err
        assert shell("health", "--url", f"amqp://clerk:x{at}").code == Exit.OK


def test_health_of_a_broker_that_takes_messages(at_broker: Shell) -> None:
    ran = at_broker("health")
    assert (ran.code, ran.out.partition(";")[0].strip(), ran.err) == (Exit.OK, "healthy", "")
    (document,) = at_broker("health", "--json").documents
    assert (document["healthy"], document["code"]) == (True, 0)


def test_health_of_a_broker_that_refuses(shell: Shell, own: acquit.Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SegmentedJournal, "full", True)
    ran = shell("health", "--url", own.url)
    (document,) = shell("health", "--json", "--url", own.url).documents
    monkeypatch.undo()
    assert (ran.code, ran.out) == (
        Exit.REFUSING,
        "refusing: the disk is full: postings are refused until there is room\n",
    )
    assert (document["healthy"], document["code"]) == (False, 5)


def test_health_where_nobody_answers(shell: Shell, unused_port: int) -> None:
    ran = shell("health", "--url", f"amqp://127.0.0.1:{unused_port}")
    assert ran.code == Exit.UNREACHABLE
    assert ran.out.startswith("unhealthy: ") and ran.out.count("\n") == 1


def test_health_does_not_wait_for_a_broker_that_hangs(shell: Shell) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        ran = shell("health", "--url", f"amqp://127.0.0.1:{port}", "--timeout", 0.1)
    assert ran.code == Exit.UNREACHABLE


def test_health_of_who_is_not_let_in(shell: Shell) -> None:
    with guarded(clerk=Role(send=("#",))) as broker:
        ran = shell("health", "--url", f"amqp://clerk:wrong@127.0.0.1:{broker.port}")
    assert (ran.code, ran.out.startswith("unhealthy: ")) == (Exit.FAILED, True)


def test_health_of_a_url_that_is_none(shell: Shell) -> None:
    ran = shell("health", "--url", "nonsense")
    assert (ran.code, ran.out) == (Exit.USAGE, "")
