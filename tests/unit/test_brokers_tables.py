"""The generator of the tables about brokers. That they say what was seen, a test of `tests/interop` asserts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.unit.test_tree import load

brokers = load("generate_brokers")

CAPABILITIES = [
    {"name": "browse", "group": "Choosing", "heading": "`browse`"},
    {"name": "login", "group": "Connection", "heading": "who is let in"},
    {"name": "selector", "group": "Choosing", "heading": "`selector`"},
]


def report(**changed: object) -> dict[str, Any]:
    """All brokers were seen to do the same, but for RabbitMQ."""
    seen = {"browse": True, "login": "", "selector": False}
    return {
        "capabilities": CAPABILITIES,
        "brokers": {
            name: {
                "product": f"{name} 1.2.3",
                "observed": {
                    row: {"value": value} for row, value in ((seen | changed) if name == "rabbitmq" else seen).items()
                },
            }
            for name in brokers.BROKERS
        },
    }


def test_a_table_for_each_group_and_a_column_for_each_broker() -> None:
    assert brokers.capability_tables(report(browse="now and then")).splitlines() == [
        "### Choosing",
        "",
        "|  | acquit | Apache Artemis 1.2 | Qpid Broker-J 1.2 | RabbitMQ 1.2 |",
        "|---|---|---|---|---|",
        "| `browse` | yes | yes | yes | now and then |",
        "| `selector` | no | no | no | no |",
        "",
        "### Connection",
        "",
        "|  | acquit | Apache Artemis 1.2 | Qpid Broker-J 1.2 | RabbitMQ 1.2 |",
        "|---|---|---|---|---|",
        "| who is let in | nothing | nothing | nothing | nothing |",
    ]


def test_what_was_not_seen_is_in_no_table() -> None:
    short = report()
    del short["brokers"]["rabbitmq"]["observed"]["browse"]
    del short["brokers"]["artemis"]
    with pytest.raises(brokers.NotSeen, match="browse of artemis, .*selector of artemis, browse of rabbitmq$"):
        brokers.complete(short)


def test_a_page_that_says_something_else_is_stale(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(brokers, "PAGES", {"page.md": brokers.capability_tables})
    page = tmp_path / "page.md"
    page.write_text(f"before\n\n{brokers.BEGIN}\n\n{brokers.END}\n\nafter\n", encoding="utf-8")
    ((path, text),) = brokers.stale(report(), tmp_path).items()
    assert path == page
    assert text.startswith("before") and text.endswith("after\n") and "| `browse` | yes |" in text
    page.write_text(text, encoding="utf-8")
    assert brokers.stale(report(), tmp_path) == {}
    assert brokers.stale(report(browse=False), tmp_path) != {}


@pytest.mark.parametrize("page", ["brokers.md", "guarantees.md"])
def test_the_pages_have_a_place_for_their_tables(page: str) -> None:
    text = (brokers.ROOT / "docs" / page).read_text(encoding="utf-8")
    assert "\n\nhere\n" in brokers.page(text, "here")


GOOD = {
    "survives_kill": True,
    "non_persistent_kept": True,
    "drops_duplicates": True,
    "counts_lost_connection": "yes",
    "counts_failed": True,
    "pre_settled": True,
    "acknowledgement": "applied",
    "kill_counts": True,
    "attempts": "dead letter",
    "rejected": "dead letter",
    "rejected_reason_kept": True,
    "transactions": True,
    "transacted_reject": "dead letter",
    "transacted_release": "again, count 0",
    "transacted_modify": "again, count 1",
    "commit_without_answer": "asked",
    "browse": True,
    "selector": True,
    "durable_subscription": True,
}


def test_every_promise_holds_where_everything_was_seen() -> None:
    assert {promise.holds(GOOD).partition(" ")[0] for promise in brokers.PROMISES} == {"yes"}


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"survives_kill": False}, ["no"]),
        ({"drops_duplicates": False}, ["no: twice"]),
        ({"acknowledgement": "sent"}, ["no (SENT)"]),
        ({"counts_lost_connection": "sometimes"}, ["not always"]),
        ({"counts_failed": False}, ["no", "no"]),
        ({"rejected_reason_kept": False}, ["without the reason"]),
        ({"rejected": "again", "transacted_reject": "again, count 1"}, ["no: again"]),
        ({"transacted_reject": "again, count 0"}, ["only *accepted*"]),
        ({"commit_without_answer": "in doubt"}, ["in doubt"]),
        ({"transactions": False}, ["no", "–", "–"]),
        ({"browse": False}, ["refused"]),
    ],
)
def test_a_promise_that_lacks_its_condition_does_not_hold(changed: dict[str, object], said: list[str]) -> None:
    answers = [promise.holds(GOOD | changed) for promise in brokers.PROMISES]
    assert [answer for answer in answers if not answer.startswith("yes")] == said


def test_a_note_stands_behind_the_cell_of_its_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = brokers.Promise("It is kept.", lambda seen: brokers.yes(seen["browse"]), {"rabbitmq": " ¹"})
    monkeypatch.setattr(brokers, "PROMISES", (kept,))
    assert brokers.promise_table(report()).splitlines()[2:] == ["| It is kept. | yes | yes | yes | yes ¹ |"]
