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


def test_a_dry_run_moves_nothing(letters: Shell) -> None:
    before = sequences(letters)
    (told,) = letters("dlq", "redrive", "--dry-run", "--json").documents
    assert (told["dry_run"], told["redriven"], told["by_origin"]) == (True, 3, {"orders": 2, "bills": 1})
    assert told["without_origin"] == 1
    assert sequences(letters) == before
    assert letters("dlq", "redrive", "--dry-run").out == (
        "DLQ: 3 letters would go back, 2 to orders, 1 to bills; without an origin, and left there: 1\n"
    )


def test_each_letter_goes_back_to_where_it_died(letters: Shell) -> None:
    ran = letters("dlq", "redrive", "--yes")
    assert ran.out.startswith("DLQ: 3 letters sent back, 2 to orders, 1 to bills; ")
    assert ran.code == Exit.FAILED  # one has no origin
    assert len(sequences(letters)) == 1
    assert [row["body"] for row in letters("browse", "orders", "--json").documents] == ["one", "two"]
    assert [row["body"] for row in letters("browse", "bills", "--json").documents] == ["three"]


def test_what_was_sent_back_died_here_before(letters: Shell) -> None:
    letter = sequences(letters)[0]
    assert letters("dlq", "redrive", letter, "--yes").code == Exit.OK
    told = f"  died here before: rejected: acquit:rejected: no orders today; sent back as a copy of #{letter}"
    assert told in letters("browse", "orders").out.splitlines()
    (found,) = letters("browse", "orders", "--json").documents
    assert told in letters("message", "show", "orders", found["annotations"]["x-opt-acquit-sequence"]).out.splitlines()


def test_redrive_asks_first(letters: Shell) -> None:
    before = sequences(letters)
    ran = letters("dlq", "redrive", stdin="n\n")
    assert (ran.code, ran.out) == (Exit.FAILED, "")
    assert "3 letters would go back, 2 to orders, 1 to bills" in ran.err and "Send them back?" in ran.err
    assert sequences(letters) == before
    assert letters("dlq", "redrive", "--selector", "\"m.x-opt-ORIG-QUEUE\" = 'bills'", stdin="y\n").code == Exit.OK
    assert len(sequences(letters)) == len(before) - 1


def test_letters_are_chosen(letters: Shell) -> None:
    first, second, *_ = sequences(letters)
    (told,) = letters("dlq", "redrive", second, "--yes", "--json").documents
    assert told["by_origin"] == {"orders": 1}
    assert first in sequences(letters) and second not in sequences(letters)
    ran = letters("dlq", "redrive", second, "--yes")
    assert (ran.code, ran.out) == (Exit.FAILED, "DLQ: 0 letters sent back\n")
    assert ran.err == "not all of these sequences are letters in 'DLQ'\n"
    (told,) = letters("dlq", "redrive", "--max", 1, "--yes", "--json").documents
    assert told["redriven"] == 1
    assert letters("dlq", "redrive", "--selector", "x ==", "--yes").code == Exit.USAGE


def test_letters_that_cannot_go_back_say_why(shell: Shell) -> None:
    from acquit.broker.options import AddressRule, BrokerOptions

    options = BrokerOptions(address=(AddressRule("closed", {"create": False}),))
    with acquit.Broker(config=options) as broker:
        at = ("--url", broker.url)
        shell("queues", "create", "closed", *at)
        shell("send", "closed", "one", *at)
        shell("receive", "closed", "--count", 1, "--outcome", "reject", *at)
        shell("queues", "delete", "closed", "--yes", *at)
        ran = shell("dlq", "redrive", "--yes", *at)
        assert (ran.code, ran.out) == (Exit.FAILED, "DLQ: 0 letters sent back\n")
        assert ran.err.startswith("1 letter of closed cannot go there: ")


def test_a_letter_that_is_not_there_is_a_failure(letters: Shell) -> None:
    assert letters("dlq", "redrive", 1_000_000, "--yes").code == Exit.FAILED
