from __future__ import annotations

from typing import Any

import pytest

import acquit
from acquit.cli.connecting import BrokerAt
from acquit.cli.figures import RATES, TROUBLE, TROUBLES, Look, Row, look, ordered, rank, troubles, with_rates
from acquit.cli.management import management
from acquit.client.management import Management, ManagementFailed


def row(name: str = "q", **columns: Any) -> Row:
    return {"name": name, "kind": "queue", "depth": 0, "available": 0, "entered": 0, "consumers": 0, **columns}


@pytest.mark.parametrize(
    ("columns", "told"),
    [
        ({}, []),
        ({"consumers": 1, "available": 5}, []),
        ({"available": 1_234}, ["1,234 wait and nobody receives"]),
        ({"consumers": 1, "available": 2, "undeliverable": 2}, ["2 undeliverable to its consumers"]),
        ({"paused": "both"}, ["paused: both"]),
        ({"paused": "none"}, []),
        ({"suspended": 3, "available": 1}, ["1 wait and nobody receives", "3 held for links that are away"]),
    ],
)
def test_what_is_wrong_with_a_queue(columns: dict[str, Any], told: list[str]) -> None:
    assert troubles(row(**columns)) == told
    assert (rank(row(**columns)) == len(TROUBLES)) == (not told)


def test_rates_are_of_what_entered_and_what_left() -> None:
    before = Look(10.0, {}, [row(entered=100, depth=10), row("gone")])
    now = Look(12.0, {}, [row(entered=140, depth=20), row("new", entered=5, depth=5)])
    old, new = with_rates(now, before)
    assert [old[name] for name in RATES] == [20.0, 15.0]
    assert [new[name] for name in RATES] == [None, None]
    assert [with_rates(now, None)[0][name] for name in RATES] == [None, None]


def test_a_queue_that_was_made_again_has_no_negative_rate() -> None:
    (made,) = with_rates(Look(2.0, {}, [row(entered=1)]), Look(1.0, {}, [row(entered=50, depth=50)]))
    assert made[RATES[0]] == 0.0


def test_a_look_sees_more_queues_than_one_answer_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("acquit.cli.figures._PAGE", 3)
    names = [f"q{number}" for number in range(7)]
    with acquit.Broker() as broker:
        with acquit.connect(broker.url) as connection, connection.session() as session:
            for name in names:
                session.sender(name).send("x")
        with management(BrokerAt((broker.url,)), 5.0) as node:
            seen = look(node)
    assert [found["name"] for found in seen.queues] == names
    assert seen.whole


def test_an_answer_without_figures() -> None:
    class Odd(Management):
        def __init__(self) -> None:
            pass

        def request(self, *arguments: object, **more: object) -> object:
            return None

    with pytest.raises(ManagementFailed, match="not a map"):
        look(Odd())


def test_rows_are_ordered_by_a_column_or_by_trouble() -> None:
    rows = [
        row("calm", depth=9, consumers=1, available=9, rate=None),
        row("small", depth=1, available=1, rate=2.0),
        row("stuck", depth=3, consumers=1, available=3, undeliverable=3, rate=1.0),
        row("large", depth=5, available=5, rate=None),
    ]

    def names(column: str, *, descending: bool = False) -> list[str]:
        return [found["name"] for found in ordered(rows, column, descending=descending)]

    assert names("depth") == ["small", "stuck", "large", "calm"]
    assert names("name", descending=True) == ["stuck", "small", "large", "calm"]
    assert names("rate") == ["stuck", "small", "calm", "large"]
    assert names("rate", descending=True) == ["small", "stuck", "calm", "large"]
    assert names(TROUBLE) == ["stuck", "large", "small", "calm"]
