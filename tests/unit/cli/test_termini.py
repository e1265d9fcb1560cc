from __future__ import annotations

import pytest

import acquit
from acquit.cli.exits import Exit
from tests.support.shell import Shell


def test_no_termini(shell: Shell) -> None:
    with acquit.Broker() as broker:
        assert shell("termini", "--url", broker.url).out == "no termini outlive their links\n"


def test_termini_are_shown_and_ended(shell: Shell) -> None:
    store = acquit.MemoryStore()
    with acquit.Broker() as broker, acquit.connect(broker.url, container_id="shop") as other:
        with acquit.connect(broker.url, container_id="app") as connection:
            session = connection.session("individual")
            session.sender("q").send("one")
            receiver = session.receiver("q", name="in", exactly_once=store)
            assert receiver.receive(timeout=5) is not None
            (row,) = shell("termini", "--url", broker.url, "--json").documents
            assert (row["role"], row["node"], row["container"], row["link"]) == ("source", "q", "app", "in")
            assert row["attached"] is True
            assert "attached" in shell("termini", "--url", broker.url).out
            ran = shell("termini", "end", str(row["identity"]), "--url", broker.url, "--yes")
            assert (ran.code, ran.out) == (Exit.OK, f"{row['identity']}: ended, 1 message given back\n")
            again = other.session("individual").receiver("q").receive(timeout=5)
            assert again is not None
            assert again.body == "one"
        assert shell("termini", "--url", broker.url, "--json").documents == []
        missing = shell("termini", "end", "00", "--url", broker.url, "--yes")
        assert missing.code != Exit.OK
        assert "there is no terminus '00'" in missing.err


def test_the_broker_may_be_named_before_the_command(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACQUIT_URL", "amqp://127.0.0.1:1")
    with acquit.Broker() as broker:
        assert "there is no terminus '00'" in shell("termini", "--url", broker.url, "end", "00", "--yes").err
