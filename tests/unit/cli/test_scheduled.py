from __future__ import annotations

import pytest

import acquit
from acquit.cli.exits import Exit
from tests.support.shell import Shell

HOUR_MS = 3_600_000


def post_later(url: str, address: str, *message_ids: str) -> None:
    with acquit.connect(url) as connection, connection.session() as session, session.sender(address) as sender:
        for message_id in message_ids:
            delay = {"x-opt-delivery-delay": HOUR_MS}
            sender.send(acquit.Message("later", message_id=message_id, annotations=delay))


@pytest.fixture
def waiting(at_broker: Shell, broker: acquit.Broker, address: str) -> str:
    post_later(broker.url, address, "one", "two", "three")
    return address


def test_what_waits_is_shown(at_broker: Shell, waiting: str) -> None:
    rows = at_broker("scheduled", "list", waiting, "--json").documents
    assert [row["message_id"] for row in rows] == ["one", "two", "three"]
    assert {row["waits_for"] for row in rows} == {"delivery-time"}
    assert all(row["due_at_ms"] - row["posted_at_ms"] == HOUR_MS for row in rows)
    shown = at_broker("scheduled", "list", waiting, "--limit", 2).out.splitlines()
    assert shown[0].split()[:2] == ["sequence", "message"]
    assert len([line for line in shown if "delivery-time" in line]) == 2


def test_one_is_cancelled(at_broker: Shell, waiting: str) -> None:
    ran = at_broker("scheduled", "cancel", waiting, "--message-id", "two")
    assert (ran.code, ran.out) == (Exit.OK, f"{waiting}: 1 message cancelled\n")
    (first, third) = at_broker("scheduled", "list", waiting, "--json").documents
    assert at_broker("scheduled", "cancel", waiting, "--sequence", third["sequence"], "--json").documents == [
        {"queue": waiting, "cancelled": 1}
    ]
    assert [row["sequence"] for row in at_broker("scheduled", "list", waiting, "--json").documents] == [
        first["sequence"]
    ]
    again = at_broker("scheduled", "cancel", waiting, "--message-id", "two")
    assert again.code == Exit.FAILED
    assert again.err.startswith("acquit: nothing in ")


def test_all_are_cancelled(at_broker: Shell, waiting: str) -> None:
    assert at_broker("scheduled", "cancel", waiting, "--all").out == f"{waiting}: 3 messages cancelled\n"
    assert at_broker("scheduled", "list", waiting).out == f"{waiting}: nothing waits for its time\n"


@pytest.mark.parametrize("options", [(), ("--all", "--sequence", "1"), ("--message-id", "x", "--all")])
def test_what_to_cancel_must_be_named_in_one_way(at_broker: Shell, options: tuple[str, ...]) -> None:
    ran = at_broker("scheduled", "cancel", "q", *options)
    assert ran.code == Exit.USAGE
    assert "one of --message-id, --sequence and --all" in ran.err


def test_pages(at_broker: Shell, waiting: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("acquit.cli.scheduled.PAGE", 2)
    assert len(at_broker("scheduled", "list", waiting, "--json").documents) == 3


def test_a_delay_is_given_at_the_shell(at_broker: Shell, address: str) -> None:
    assert at_broker("send", address, "x", "--delay", 3600, "--id", "later").code == Exit.OK
    (row,) = at_broker("scheduled", "list", address, "--json").documents
    assert (row["message_id"], row["due_at_ms"] - row["posted_at_ms"]) == ("later", HOUR_MS)
