"""The part of an audit that a page is about."""

from __future__ import annotations

import pytest

from acquit.spark.report.choice import Choice


@pytest.mark.parametrize(
    ("pattern", "taken"),
    [
        ("orders", {"orders"}),
        ("orders[eu]", {"orders[eu]"}),
        ("orders[*", {"orders[eu]"}),
        ("[!x]*", set()),
        ("order?", {"orders"}),
        ("*", {"orders", "ordersu", "orders[eu]", "ORDERS"}),
    ],
)
def test_asterisk_and_question_mark_alone_are_patterns(pattern: str, taken: set[str]) -> None:
    names = ("orders", "ordersu", "orders[eu]", "ORDERS")
    assert {name for name in names if Choice(queues=[pattern]).takes(queue=name)} == taken
