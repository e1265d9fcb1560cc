from __future__ import annotations

from collections.abc import Iterator

import pytest

import acquit
from acquit.cli.exits import Exit
from tests.support.shell import Shell


@pytest.fixture
def letters(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shell]:
    """The shell at a broker of its own, with two dead letters of `orders`, one of `bills`, and no letter."""
    with acquit.Broker() as broker:
        monkeypatch.setenv("ACQUIT_URL", broker.url)
        for queue, bodies in (("orders", ("one", "two")), ("bills", ("three",))):
            shell("send", queue, *bodies, "--id", queue)
            shell("receive", queue, "--count", len(bodies), "--outcome", "reject", "--reason", f"no {queue} today")
        shell("send", "DLQ", "posted here")
        yield shell


def sequences(shell: Shell) -> list[int]:
    return [row["sequence"] for row in shell("dlq", "list", "--json").documents]


def test_no_letter_was_ever_made(shell: Shell) -> None:
    with acquit.Broker() as broker:
        assert shell("dlq", "list", "--url", broker.url).out == "DLQ: no dead letters\n"
        ran = shell("dlq", "list", "--queue", "DQL", "--url", broker.url)
        assert (ran.code, ran.err) == (Exit.FAILED, "acquit: there is no queue 'DQL'\n")


def test_letters_are_listed_with_origin_and_reason(letters: Shell) -> None:
    found = letters("dlq", "list", "--json").documents
    assert [row["origin_queue"] for row in found] == ["orders", "orders", "bills", None]
    assert found[0]["reason"] == "rejected: acquit:rejected: no orders today"
    assert [row["origin"] for row in found][-1] is None
    lines = letters("dlq", "list").out.splitlines()
    assert lines[0].split("  ")[0] == "sequence"
    assert "no orders today" in lines[1] and "bills" in lines[3]
    assert len(letters("dlq", "list", "--limit", 1, "--json").documents) == 1
    chosen = letters("dlq", "list", "--selector", "\"m.x-opt-ORIG-QUEUE\" = 'bills'", "--json").documents
    assert [row["origin_queue"] for row in chosen] == ["bills"]


def test_a_letter_in_full_with_its_history(letters: Shell) -> None:
    first = sequences(letters)[0]
    (found,) = letters("dlq", "show", first, "--json").documents
    (attempt,) = found["history"]
    assert (attempt["outcome"], attempt["description"]) == ("rejected", "no orders today")
    shown = letters("dlq", "show", first).out
    assert f"#{first} in DLQ: available" in shown
    assert "  died in orders as #" in shown
    assert "attempts before" in shown and "acquit:rejected: no orders today" in shown
    assert shown.endswith("body (value)\none\n")


def test_browsing_says_where_a_letter_died_and_why(letters: Shell) -> None:
    lines = letters("browse", "DLQ").out.splitlines()
    assert sum(line.startswith("  died in orders as #") for line in lines) == 2
    assert any("rejected: acquit:rejected: no bills today" in line for line in lines)
