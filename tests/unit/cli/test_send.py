from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import acquit
from acquit.broker import server
from acquit.broker.options import AddressRule, BrokerOptions
from acquit.cli import connecting, send
from acquit.cli.exits import Exit
from tests.support.shell import Shell
from tests.unit.cli.test_serve import serving, url_of


def sent(at_broker: Shell, address: str) -> list[dict[str, Any]]:
    """What waits at `address`."""
    return at_broker("browse", address, "--json").documents


def test_arguments_are_messages_and_their_outcomes_are_told(at_broker: Shell, address: str) -> None:
    ran = at_broker("send", address, "one", "two", "--property", "customer=9", "--property", "eq=a=b", "--subject", "s")
    assert (ran.code, ran.out) == (Exit.OK, f"{address}: 2 accepted\n")
    first, second = sent(at_broker, address)
    assert (first["body"], second["body"]) == ("one", "two")
    assert first["durable"] is True
    assert first["properties"] == {"customer": "9", "eq": "a=b"}
    assert first["subject"] == "s"


def test_options_of_a_message(at_broker: Shell, address: str) -> None:
    at_broker("send", address, "x", "--volatile", "--ttl", "60.5", "--id", "m", "--priority", 7)
    (message,) = sent(at_broker, address)
    assert message["durable"] is False
    assert message["message_id"] == "m"
    assert message["priority"] == 7
    assert 0 < message["ttl_ms"] <= 60_500


def test_a_delay_is_refused_by_a_broker_that_would_deliver_at_once(
    shell: Shell, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "CAPABILITIES", ("ANONYMOUS-RELAY",))
    with acquit.Broker() as broker:
        monkeypatch.setenv("ACQUIT_URL", broker.url)
        ran = shell("send", address, "x", "--delay", "60")
        assert (ran.code, ran.out) == (Exit.USAGE, "")
        assert "--delay: this broker does not offer DELAYED_DELIVERY, and would deliver at once" in ran.err
        assert sent(shell, address) == []


def test_several_messages_have_numbered_ids(at_broker: Shell, address: str) -> None:
    at_broker("send", address, "a", "b", "--id", "m")
    assert [message["message_id"] for message in sent(at_broker, address)] == ["m-1", "m-2"]


def test_files_are_binary_data_under_their_names(at_broker: Shell, address: str, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("{}")
    (tmp_path / "b").write_bytes(b"\xff\x00")
    assert at_broker("send", address, "--file", tmp_path / "a.json", "--file", tmp_path / "b").code == Exit.OK
    first, second = sent(at_broker, address)
    assert (first["subject"], first["content_type"], first["body"]) == ("a.json", "application/json", "{}")
    assert (second["subject"], second["content_type"]) == ("b", "application/octet-stream")
    assert (second["body"], second["body_type"]) == ({"base64": "/wA="}, "data")


def test_all_of_standard_input_is_one_message(at_broker: Shell, address: str) -> None:
    assert at_broker("send", address, stdin="two\nlines").code == Exit.OK
    assert [message["body"] for message in sent(at_broker, address)] == ["two\nlines"]


def test_lines(at_broker: Shell, address: str) -> None:
    assert at_broker("send", address, "--lines", stdin="one\ntwo\n").out == f"{address}: 2 accepted\n"
    assert [message["body"] for message in sent(at_broker, address)] == ["one", "two"]


def test_nothing_to_send(at_broker: Shell, address: str) -> None:
    ran = at_broker("send", address, "--json-lines", stdin="\n")
    assert (ran.code, ran.out) == (Exit.OK, f"{address}: nothing to send\n")


def test_what_is_received_as_json_can_be_sent(at_broker: Shell, address: str) -> None:
    at_broker("send", address, "one", "two", "--id", "m", "--property", "k=v")
    printed = at_broker("receive", address, "--json", "--count", 2).out
    ran = at_broker("send", f"{address}.copy", "--json-lines", "--json", stdin=printed)
    assert ran.documents[0]["accepted"] == 2
    for before, after in zip(map(json.loads, printed.splitlines()), sent(at_broker, f"{address}.copy"), strict=True):
        for told in ("delivery", "annotations"):
            before.pop(told, None)
            after.pop(told, None)
        assert before == after


def test_a_wrong_line_is_named_and_what_came_before_it_is_reported(at_broker: Shell, address: str) -> None:
    ran = at_broker("send", address, "--json-lines", stdin='{"body": 1}\n{"body": 2}\n{"boddy": 3}\n{"body": 4}\n')
    assert ran.code == Exit.USAGE
    assert ran.out == f"{address}: 2 accepted\n"
    assert ran.err.startswith("acquit: line 3 of standard input: boddy: no such field; expected body,")
    assert len(ran.err.splitlines()) == 1


def test_a_value_without_an_encoding_is_named_and_what_came_before_it_is_reported(
    at_broker: Shell, address: str
) -> None:
    ran = at_broker("send", address, "--json-lines", stdin='{"body": 1}\n{"properties": {"a": [1]}}\n')
    assert (ran.code, ran.out) == (Exit.USAGE, f"{address}: 1 accepted\n")
    assert "application_properties['a']" in ran.err
    assert len(ran.err.splitlines()) == 1


@pytest.mark.parametrize("wrong", ['{"body": "\\ud800"}', '{"body": 2, "message_id": -1}'])
def test_a_message_that_cannot_be_encoded_is_told_from_the_others(at_broker: Shell, address: str, wrong: str) -> None:
    ran = at_broker("send", address, "--json-lines", stdin=f'{{"body": 1}}\n{wrong}\n{{"body": 3}}\n')
    assert (ran.code, ran.out) == (Exit.USAGE, f"{address}: 1 accepted\n")
    assert ran.err.startswith("acquit: message 2: ")
    assert len(ran.err.splitlines()) == 1


def test_bytes_that_are_no_text(at_broker: Shell, address: str) -> None:
    ran = at_broker("send", address, stdin=b"\xff\xfe")
    assert ran.code == Exit.USAGE
    assert ran.err == "acquit: standard input is not text in utf-8; --file /dev/stdin sends it as it is\n"


@pytest.mark.parametrize(
    ("option", "stdin"),
    [
        ("--lines", b"one\ntwo \xff\nthree\n"),
        ("--json-lines", b'{"body": "one"}\n{"body": "\xff"}\n{"body": "three"}\n'),
    ],
)
def test_the_line_that_is_no_text_is_named(at_broker: Shell, address: str, option: str, stdin: bytes) -> None:
    ran = at_broker("send", address, option, stdin=stdin)
    assert (ran.code, ran.out) == (Exit.USAGE, f"{address}: 1 accepted\n")
    assert ran.err.startswith("acquit: line 2 of standard input is not text in utf-8")
    assert [message["body"] for message in sent(at_broker, address)] == ["one"]


def test_more_messages_than_may_be_in_flight(at_broker: Shell, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(send, "IN_FLIGHT_MAX", 10)
    lines = "".join(f"{number}\n" for number in range(55))
    assert at_broker("send", address, "--lines", "--json", stdin=lines).documents == [
        {
            "address": address,
            "sent": 55,
            "accepted": 55,
            "rejected": 0,
            "released": 0,
            "modified": 0,
            "in_doubt": 0,
            "not_sent": 0,
        }
    ]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--json-lines", "--lines"], "give one of them"),
        (["x", "--property", "novalue"], "expected KEY=VALUE, found 'novalue'"),
        (["x", "--ttl", "-1"], "--ttl"),
        (["x", "--priority", "256"], "--priority"),
        (["--file", "nowhere"], "does not exist"),
    ],
)
def test_wrong_usage(shell: Shell, arguments: list[str], complaint: str) -> None:
    ran = shell("send", "a", *arguments)
    assert ran.code == Exit.USAGE
    assert complaint in ran.err


def test_no_broker(shell: Shell, unused_port: int) -> None:
    ran = shell("send", "a", "x", "--url", f"amqp://127.0.0.1:{unused_port}")
    assert ran.code == Exit.UNREACHABLE
    assert len(ran.err.splitlines()) == 1
    assert f"127.0.0.1:{unused_port}" in ran.err


def test_a_queue_that_is_full_is_told_from_an_answer_that_is_missing(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    rule = AddressRule("full", {"messages_max": 2, "full_policy": "block"})
    with acquit.Broker(config=BrokerOptions(address=(rule,))) as broker:
        monkeypatch.setenv("ACQUIT_URL", broker.url)
        ran = shell("send", "full", "one", "two", "three", "four", "--timeout", "1")
        never = "not sent: the peer gave no credit within 1 s: the message never left"
        assert ran.err.splitlines() == [f"message 3: {never}", f"message 4: {never}"]
        assert (ran.code, ran.out) == (Exit.FAILED, "full: 2 accepted, 2 not sent\n")
        assert broker.inspect().queue("full").depth == 2  # type: ignore[union-attr]


def test_a_large_message_for_a_full_queue_stops_no_other(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    rule = AddressRule("full", {"messages_max": 1, "full_policy": "block"})
    with acquit.Broker(config=BrokerOptions(address=(rule,))) as broker:
        monkeypatch.setenv("ACQUIT_URL", broker.url)
        lines = "".join(f"{kind * 9_000_000}\n" for kind in "abc")
        ran = shell("send", "full", "--lines", "--timeout", "1.5", stdin=lines)
        assert (ran.code, ran.out) == (Exit.FAILED, "full: 1 accepted, 2 not sent\n")


def interrupted_behind(lines: str) -> Iterator[str]:
    yield from lines
    raise KeyboardInterrupt


@pytest.mark.parametrize("full", [False, True])
def test_an_interrupt_says_what_became_of_what_was_sent(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, full: bool
) -> None:
    monkeypatch.setattr(connecting, "LEAVES_S", 1.0 if full else 30.0)
    monkeypatch.setattr(send, "input_lines", lambda hint: interrupted_behind("abcd"))
    rule = AddressRule("q", {"messages_max": 2, "full_policy": "block"} if full else {})
    with acquit.Broker(config=BrokerOptions(address=(rule,))) as broker:
        monkeypatch.setenv("ACQUIT_URL", broker.url)
        ran = shell("send", "q", "--lines")
        assert ran.out == ("q: 2 accepted, 2 not sent\n" if full else "q: 4 accepted\n")
        assert (ran.code, broker.inspect().queue("q").depth) == (Exit.INTERRUPTED, 2 if full else 4)  # type: ignore[union-attr]


def test_what_was_not_answered_before_an_interrupt_is_in_doubt(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connecting, "LEAVES_S", 0.1)
    with serving(tmp_path) as (process, ready):

        def lines(hint: str) -> Iterator[str]:
            yield "a"
            process.send_signal(signal.SIGSTOP)
            yield from interrupted_behind("b")

        monkeypatch.setattr(send, "input_lines", lines)
        ran = shell("send", "q", "--lines", "--json", "--url", url_of(ready))
        (said,) = ran.documents
        assert (ran.code, said["sent"], said["accepted"] + said["in_doubt"]) == (Exit.INTERRUPTED, 2, 2)
        assert said["in_doubt"] >= 1


def test_an_interrupt_before_anything_is_sent_says_nothing_of_it(
    at_broker: Shell, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(send, "input_lines", lambda hint: interrupted_behind(""))
    ran = at_broker("send", address, "--lines")
    assert (ran.code, ran.out) == (Exit.INTERRUPTED, "")
