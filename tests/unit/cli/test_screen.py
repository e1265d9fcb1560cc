from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from acquit.cli.figures import Look, Row
from acquit.cli.screen import SORTS, View, frame, short
from acquit.cli.watching import Seen

BROKER: dict[str, Any] = {
    "version": "0.1.0",
    "uptime_ms": 11_520_000,
    "accepting": True,
    "warnings": (),
    "connections": 14,
    "links": 31,
    "memory_bytes": 18_300_000,
    "memory_bytes_max": 268_400_000,
    "disk": {"free_bytes": 41_000_000_000, "journal_bytes": 1_100_000_000},
    "sync": {"p99_ms": 6.0},
    "loop_lag_ms": 2.1,
}


def row(name: str, *, depth: int = 0, consumers: int = 1, entered: int = 0, **more: Any) -> Row:
    return {
        "name": name, "kind": "queue", "depth": depth, "available": depth, "acquired": 0, "consumers": consumers,
        "entered": entered, **more,
    }  # fmt: skip


def view(*rows: Row, broker: dict[str, Any] = BROKER, **more: Any) -> View:
    before = [{**found, "entered": 0, "depth": 0} for found in rows]
    return View(Seen(Look(10.0, broker, list(rows)), Look(8.0, broker, before)), 2.0, **more)


def lines(shown: View, width: int, height: int | None = None, now_s: float = 10.0) -> list[str]:
    return [line.plain for line in frame(shown, now_s, width, height)]


MANY = [row(f"orders.region.{number:04}", depth=number, entered=2 * number) for number in range(50)]


@pytest.mark.parametrize(("width", "height"), [(80, 24), (40, 24), (40, 8), (200, 60), (20, 5), (10, 4)])
def test_a_frame_fits_its_terminal(width: int, height: int) -> None:
    hostile = [row("界" * 60, depth=1), row("bell\x07\x1b[2J", depth=1, consumers=0), *MANY]
    shown = frame(view(*hostile, missed="gone " * 40), 99.0, width, height)
    assert len(shown) == height
    assert all(line.cell_len <= width for line in shown)
    assert not any(character < " " for line in shown for character in line.plain)
    assert shown[-1].plain.startswith("q quit")


def test_eighty_columns_show_everything_of_a_queue() -> None:
    shown = lines(view(row("orders", depth=1_234, entered=2_000, consumers=0), row("calm")), 80, 24)
    assert shown[0].startswith("acquit 0.1.0  accepting  up 3 h 12 min  in 1,000/s  out 383/s")
    heads = next(index for index, line in enumerate(shown) if line.split()[:1] == ["queue"])
    assert shown[heads].split() == ["queue", "depth", "in/s", "out/s", "recv", "held", "trouble"]
    assert shown[heads + 1].split()[:7] == ["!", "orders", "1,234", "1,000", "383", "0", "0"]
    assert shown[heads + 1].endswith("1,234 wait and nobody receives"[:12]) or "1,234 wait" in shown[heads + 1]
    assert shown[heads + 2].split()[0] == "calm"


def test_forty_columns_have_the_rates_and_a_mark() -> None:
    shown = lines(view(row("orders", depth=7, consumers=0)), 40, 24)
    heads = next(index for index, line in enumerate(shown) if line.split()[:1] == ["queue"])
    assert shown[heads].split() == ["queue", "depth", "in/s", "out/s"]
    assert shown[heads + 1].split() == ["!", "orders", "7", "0", "0"]


def test_what_has_no_room_is_counted() -> None:
    shown = lines(view(*MANY), 80, 24)
    listed = [line for line in shown if "orders.region" in line]
    (more,) = [line for line in shown if line.startswith("... and ")]
    assert more == f"... and {len(MANY) - len(listed)} more"
    assert len([line for line in lines(view(*MANY), 80) if "orders.region" in line]) == len(MANY)


def test_the_order_is_what_was_asked_for() -> None:
    rows = [row("a", depth=1, entered=9), row("b", depth=3, consumers=0), row("c", depth=2, entered=1)]
    found = {}
    for sort in SORTS:
        shown = lines(view(*rows, sort=sort), 80)
        found[sort.label] = "".join(line.split()[1 if line[0] == "!" else 0] for line in shown[-3:])
    assert found == {"trouble": "bca", "in/s": "acb", "out/s": "abc", "depth": "bca", "name": "abc"}


def test_old_figures_say_since_when() -> None:
    fresh = view(row("q"))
    assert not any("OLD" in line for line in lines(fresh, 100, now_s=14.0))
    (silent,) = [line for line in lines(fresh, 100, now_s=15.5) if "OLD" in line]
    assert "5 s ago: no answer" in silent
    (missed,) = [line for line in lines(replace(fresh, missed="refused"), 100, now_s=11.0) if "OLD" in line]
    assert "1 s ago: refused" in missed


def test_what_somebody_should_see_to_stands_above_the_queues() -> None:
    full = {**BROKER, "accepting": False, "warnings": ("the disk is full",)}
    shown = lines(view(row("q"), broker=full, held=True), 80, 24)
    assert "REFUSING" in shown[0]
    assert "! the disk is full" in shown
    assert "PAUSED: p goes on" in shown
    assert "p go on" in shown[-1]


def test_who_may_see_little_sees_that() -> None:
    little = {"accepting": True, "warnings": ()}
    shown = lines(view(row("q", depth=2), broker=little), 80, 24)
    assert shown[0].startswith("acquit  accepting  in 0/s")
    assert not any("disk" in line for line in shown)


def test_topics_are_no_queues() -> None:
    topic = {**row("news"), "kind": "topic"}
    assert not any("news" in line for line in lines(view(topic, row("q")), 80))


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (None, "-"), (0, "0"), (0.0, "0"), (0.04, "0.0"), (9.94, "9.9"), (9.96, "10"), (99_999, "99,999"),
        (100_000, "100k"), (999_949, "1.0M"), (3_230_000, "3.2M"), (5e10, "50.0G"), (12, "12"),
    ],
)  # fmt: skip
def test_numbers_are_short(number: float | None, text: str) -> None:
    assert short(number) == text
    assert len(short(number)) <= 6
