from __future__ import annotations

import pytest

import acquit
from acquit.cli import examining
from acquit.cli.examining import rows
from acquit.cli.exits import Exit
from acquit.client.management import converse
from acquit.protocol.message import Message
from tests.support.shell import Shell


@pytest.fixture
def sequence(at_broker: Shell, address: str) -> int:
    """The sequence of a message in the queue `address`."""
    at_broker("send", address, "no order", "--id", "o-1", "--property", "customer=9", "--subject", "new")
    (found,) = at_broker("browse", address, "--json").documents
    number: int = found["delivery"]["sequence"]
    return number


def test_every_section_of_a_message(at_broker: Shell, address: str, sequence: int) -> None:
    ran = at_broker("message", "show", address, sequence, "--json")
    (found,) = ran.documents
    assert (ran.code, found["queue"], found["sequence"], found["state"]) == (Exit.OK, address, sequence, "available")
    sections = found["message"]
    assert sections["header"]["durable"] is True
    assert sections["properties"] == {"message_id": "o-1", "subject": "new"}
    assert sections["application_properties"] == {"customer": "9"}
    assert sections["annotations"]["x-opt-acquit-sequence"] == sequence
    assert (sections["body"], sections["body_type"], sections["footer"]) == ("no order", "value", {})
    assert (found["attempts"], found["history"]) == ([], [])


def test_a_message_for_people(at_broker: Shell, address: str, sequence: int) -> None:
    lines = at_broker("message", "show", address, sequence).out.splitlines()
    assert lines[0].startswith(f"#{sequence} in {address}: available, ")
    assert {"  message_id: o-1", "  subject: new", "  customer: 9", "  durable: true"} <= set(lines)
    assert lines[-2:] == ["body (value)", "no order"]


def test_a_message_that_somebody_has(at_broker: Shell, broker: acquit.Broker, address: str, sequence: int) -> None:
    with (
        acquit.connect(broker.url, container_id="packing") as connection,
        connection.session("individual") as session,
        session.receiver(address, name="desk") as receiver,
    ):
        message = receiver.receive(timeout=5)
        assert message is not None
        message.modify(delivery_failed=True).result()
        assert receiver.receive(timeout=5) is not None
        shown = at_broker("message", "show", address, sequence).out
    assert "acquired" in shown and "  held by: packing/desk" in shown
    assert "attempts here" in shown and "packing/desk  modified" in shown


def test_what_is_not_there(at_broker: Shell, address: str, sequence: int) -> None:
    ran = at_broker("message", "show", address, sequence + 1_000_000)
    assert (ran.code, ran.err) == (
        Exit.FAILED,
        f"acquit: {address!r} has no message with the sequence {sequence + 1_000_000}\n",
    )
    ran = at_broker("message", "show", f"{address}x", sequence)
    assert ran.code == Exit.FAILED
    assert f"did you mean {address}" in ran.err


def test_a_section_that_is_malformed_hides_no_other() -> None:
    # Application properties with a number as a key; an amqp-value of null.
    sections = examining._sections(Message.decode(bytes.fromhex("005374c1050254015401 00537740")))
    assert str(sections["application_properties"]).endswith("may not be a key of this section")
    assert (sections["body"], sections["body_type"]) == (None, "value")


def test_pages_are_asked_for_one_after_the_other(
    at_broker: Shell, broker: acquit.Broker, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(examining, "PAGE", 2)
    at_broker("send", address, "one", "two", "--property", "colour=red")
    at_broker("send", address, "three", "four", "five")
    with acquit.connect(broker.url) as connection, converse(connection, 5) as node:
        assert len(list(rows(node, address))) == 5
        assert len(list(rows(node, address, limit=3))) == 3
        assert len(list(rows(node, address, selector="colour = 'red'"))) == 2


def test_what_is_larger_than_an_answer(capsys: pytest.CaptureFixture[str]) -> None:
    examining.tell("q", {"sequence": 1, "state": "available", "size_bytes": 9, "message": None}, as_json=False)
    assert "too large for an answer" in capsys.readouterr().out
