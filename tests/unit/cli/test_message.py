"""What became of one message, asked of a running broker at the shell."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

import acquit
from acquit.cli import message as module
from acquit.cli.exits import Exit
from tests.support.shell import Shell


@pytest.fixture
def settled(broker: acquit.Broker, address: str) -> int:
    """A message that came back once and was accepted then; its sequence."""
    duplicate = {"_AMQ_DUPL_ID": f"dupl-{address}"}
    with acquit.connect(broker.url) as connection:
        session = connection.session("individual")
        sent = acquit.Message("x", message_id=f"id-{address}", application_properties=duplicate)
        session.sender(address).send(sent)
        receiver = session.receiver(address)
        first = receiver.receive(timeout=5)
        assert first is not None
        first.modify(delivery_failed=True)
        again = receiver.receive(timeout=5)
        assert again is not None
        again.accept()
        sequence = again.annotations["x-opt-acquit-sequence"]
        assert isinstance(sequence, int)
        return sequence


@pytest.mark.parametrize("way", ["--sequence", "--message-id", "--duplicate-id"])
def test_a_life_is_told(at_broker: Shell, settled: int, address: str, way: str) -> None:
    named = {"--sequence": settled, "--message-id": f"id-{address}", "--duplicate-id": f"dupl-{address}"}[way]
    (life,) = at_broker("message", "history", way, named, "--json").documents
    assert (life["sequence"], life["standing"], life["message_id"]) == (settled, "accepted", f"id-{address}")
    events = [(step["event"], step["delivery_count"]) for step in life["steps"]]
    assert events == [("posted", 0), ("acquired", 0), ("modified", 1), ("acquired", 1), ("accepted", 1)]
    shown = at_broker("message", "history", way, named)
    assert (shown.code, shown.err) == (Exit.OK, "")
    assert f"#{settled}" in shown.out
    assert [word for word in ("posted", "acquired", "modified", "accepted") if word not in shown.out] == []


def test_it_is_what_the_ledger_tells(shell: Shell, tmp_path: Path) -> None:
    with acquit.Broker(tmp_path) as broker:
        with acquit.connect(broker.url) as connection:
            session = connection.session("individual")
            session.sender("q").send(acquit.Message("x", message_id="one"))
            received = session.receiver("q").receive(timeout=5)
            assert received is not None
            received.reject("app:bad", "no JSON")
        (life,) = shell("message", "history", "--sequence", 1, "--url", broker.url, "--json").documents[:1]
        (same,) = shell("ledger", "show", 1, "--data", tmp_path, "--json").documents[:1]
    assert life == same


@pytest.mark.parametrize("message_id", [7_777, UUID(int=77)])
def test_an_id_that_looks_like_a_number_or_uuid_is_found(
    at_broker: Shell, broker: acquit.Broker, address: str, message_id: int | UUID
) -> None:
    with acquit.connect(broker.url) as connection, connection.session() as session:
        session.sender(address).send(acquit.Message("x", message_id=message_id))
    ran = at_broker("message", "history", "--message-id", message_id, "--json")
    assert [life["address"] for life in ran.documents][-1] == address


@pytest.mark.parametrize("named", ["nobody", "1" * 5_000])
def test_what_is_not_there_is_one_line(at_broker: Shell, named: str) -> None:
    ran = at_broker("message", "history", "--message-id", named)
    assert ran.code == Exit.FAILED
    assert ran.err.startswith("acquit: the journal, which reaches back to segment 1, has no such message")
    assert ran.err.count("\n") == 1


@pytest.mark.parametrize("options", [(), ("--sequence", 1, "--message-id", "x")])
def test_the_message_is_named_in_one_way(at_broker: Shell, options: tuple[object, ...]) -> None:
    ran = at_broker("message", "history", *options)
    assert (ran.code, "by one of --sequence" in ran.err) == (Exit.USAGE, True)


def test_what_was_left_out_is_told(at_broker: Shell, settled: int, monkeypatch: pytest.MonkeyPatch) -> None:
    first = module._first

    def part(*arguments: Any) -> dict[str, Any]:
        told = {"stopped": "time", "stopped_in_segment": 4, "gone_segments": [1, 2], "left_out": 3, "hidden": 1}
        return {**first(*arguments), **told, "truncated": True}

    monkeypatch.setattr(module, "_first", part)
    ran = at_broker("message", "history", "--sequence", settled, "--json")
    assert ran.code == Exit.OK
    for words in ("limit of time", "segment 4", "2 segments left", "3 events more", "1 copy in queues", "more than"):
        assert words in ran.err
