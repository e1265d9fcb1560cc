from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from acquit.cli import connecting, receive
from acquit.cli.exits import Exit
from acquit.cli.options import MODES
from acquit.client.modes import AckMode, find_mode
from tests.support.shell import Shell
from tests.unit.cli.test_serve import serving, url_of


def test_the_modes_are_those_of_the_client_but_one() -> None:
    assert {find_mode(mode).name for mode in MODES} == {*AckMode} - {AckMode.TRANSACTED}


def test_messages_are_printed_and_gone(at_broker: Shell, address: str) -> None:
    at_broker("send", address, "one", "two")
    ran = at_broker("receive", address, "--count", 2)
    assert ran.code == Exit.OK
    assert [line for line in ran.out.splitlines() if not line.startswith("#")] == ["one", "two"]
    assert at_broker("browse", address).out == ""


def test_json_holds_everything(at_broker: Shell, address: str) -> None:
    at_broker("send", address, "one", "--id", "m", "--property", "k=v")
    (document,) = at_broker("receive", address, "--count", 1, "--json").documents
    assert (document["body"], document["body_type"], document["message_id"]) == ("one", "value", "m")
    assert document["delivery"]["delivery_count"] == 0
    assert document["delivery"]["redelivered"] is False
    assert isinstance(document["delivery"]["sequence"], int)


def test_fewer_than_asked_for_is_a_failure(at_broker: Shell, address: str) -> None:
    at_broker("send", address, "one")
    ran = at_broker("receive", address, "--count", 2, "--timeout", 0.2)
    assert ran.code == Exit.FAILED
    assert "1 of 2 messages came within 0.2 s" in ran.err


def test_an_empty_queue_is_no_failure_when_no_count_was_asked_for(at_broker: Shell, address: str) -> None:
    at_broker("send", address, "one")
    assert at_broker("receive", address, "--timeout", 0.2).code == Exit.OK
    assert at_broker("receive", address, "--timeout", 0.2).code == Exit.OK


@pytest.mark.parametrize(("outcome", "failures"), [("release", 0), ("modify", 1)])
def test_what_is_returned_is_there_again(at_broker: Shell, address: str, outcome: str, failures: int) -> None:
    at_broker("send", address, "one")
    at_broker("receive", address, "--count", 1, "--outcome", outcome)
    (document,) = at_broker("receive", address, "--count", 1, "--json").documents
    assert document["delivery"]["delivery_count"] == failures


def test_what_is_rejected_is_in_the_dead_letter_queue(at_broker: Shell, address: str) -> None:
    at_broker("send", address, "one", "--id", address)
    at_broker("receive", address, "--count", 1, "--outcome", "reject", "--reason", "no such customer")
    dead = [
        document for document in at_broker("browse", "DLQ", "--json").documents if document["message_id"] == address
    ]
    assert len(dead) == 1
    assert "no such customer" in str(dead[0]["annotations"])


@pytest.mark.parametrize("mode", ["individual", "client", "auto", "no-ack"])
def test_every_mode_takes_the_message(at_broker: Shell, address: str, mode: str) -> None:
    at_broker("send", address, "one")
    ran = at_broker("receive", address, "--count", 1, "--mode", mode)
    assert (ran.code, ran.out.splitlines()[-1]) == (Exit.OK, "one")
    assert at_broker("browse", address).out == ""


def test_browsing_leaves_messages_where_they_are(at_broker: Shell, address: str) -> None:
    at_broker("send", address, "one", "two")
    for _ in range(2):
        assert [document["body"] for document in at_broker("browse", address, "--json").documents] == ["one", "two"]
    assert [document["body"] for document in at_broker("browse", address, "--json", "--limit", 1).documents] == ["one"]


def test_browsing_without_a_wait_shows_what_is_there(at_broker: Shell, address: str) -> None:
    at_broker("send", address, "one", "two")
    ran = at_broker("browse", address, "--timeout", 0, "--json")
    assert (ran.code, [document["body"] for document in ran.documents]) == (Exit.OK, ["one", "two"])


def test_browsing_goes_to_the_end_of_a_long_queue(at_broker: Shell, address: str) -> None:
    at_broker("send", address, "--lines", stdin="x\n" * 250)
    assert len(at_broker("browse", address, "--json").documents) == 250
    assert len(at_broker("browse", address, "--json", "--limit", 180).documents) == 180


def test_a_long_body_is_cut_for_people_only(at_broker: Shell, address: str) -> None:
    at_broker("send", address, "x" * 5000)
    assert "3000 characters more; --json shows all" in at_broker("browse", address).out
    assert at_broker("browse", address, "--json").documents[0]["body"] == "x" * 5000


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--outcome", "release", "--mode", "auto"], "needs --mode individual"),
        (["--reason", "x"], "belongs to --outcome reject"),
        (["--count", "0"], "--count"),
    ],
)
def test_wrong_usage(shell: Shell, arguments: list[str], complaint: str) -> None:
    ran = shell("receive", "a", *arguments)
    assert ran.code == Exit.USAGE
    assert complaint in ran.err


@pytest.mark.parametrize("command", ["browse", "receive"])
def test_a_selector_says_which(at_broker: Shell, address: str, command: str) -> None:
    at_broker("send", address, "one", "--property", "colour=red")
    at_broker("send", address, "two", "--property", "colour=blue")
    found = at_broker(command, address, "--selector", "colour = 'blue'", "--json").documents
    assert [row["body"] for row in found] == ["two"]
    ran = at_broker(command, address, "--selector", "colour ==")
    assert ran.code == Exit.USAGE, "as `move` and `dlq` have it"
    assert "selector, character 9" in ran.err
    assert len(ran.err.splitlines()) == 1


@pytest.mark.parametrize("command", ["receive", "browse"])
def test_a_mistyped_queue_is_not_made(at_broker: Shell, address: str, command: str) -> None:
    at_broker("send", address, "one")
    mistyped = f"{address}x"
    ran = at_broker(command, mistyped)
    assert (ran.code, ran.out) == (Exit.FAILED, "")
    assert ran.err.startswith(f"acquit: there is no queue '{mistyped}'; did you mean {address}")
    assert len(ran.err.splitlines()) == 1
    assert mistyped not in [row["name"] for row in at_broker("queues", "--json").documents]


def test_receive_makes_a_queue_when_told_to(at_broker: Shell, address: str) -> None:
    assert at_broker("receive", address, "--create", "--timeout", 0).code == Exit.OK
    assert address in [row["name"] for row in at_broker("queues", "--json").documents]


@pytest.mark.parametrize("command", [("browse", "--timeout", 0.5), ("receive", "--mode", "no-ack")])
def test_a_broker_that_answers_no_more_is_no_empty_queue(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[object, ...]
) -> None:
    monkeypatch.setattr(receive, "ANSWERS_S_MAX", 0.5)
    with serving(tmp_path) as (process, ready):
        where = ("q", "--url", url_of(ready))
        assert shell("send", *where, "--id", "one").code == Exit.OK
        monkeypatch.setattr(receive, "emit_json", lambda document: process.send_signal(signal.SIGSTOP))
        begun_s = time.monotonic()
        ran = shell(command[0], *where, *command[1:], "--json")
        took_s = time.monotonic() - begun_s
    assert (ran.code, ran.err.count("\n")) == (Exit.UNREACHABLE, 1)
    assert "q: the broker d" in ran.err and "not answer" in ran.err
    assert took_s < 10, "links, session and connection were not closed one after the other"


def test_an_interrupt_does_not_wait_long_for_a_broker_that_answers_no_more(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connecting, "LEAVES_S", 0.1)
    with serving(tmp_path) as (process, ready):

        def interrupted(document: object) -> None:
            process.send_signal(signal.SIGSTOP)
            raise KeyboardInterrupt

        where = ("q", "--url", url_of(ready))
        assert shell("send", *where, "--id", "one").code == Exit.OK
        monkeypatch.setattr(receive, "emit_json", interrupted)
        begun_s = time.monotonic()
        assert shell("receive", *where, "--follow", "--json").code == Exit.INTERRUPTED
        assert time.monotonic() - begun_s < 9
