"""The audit's page in Chromium: it fits a phone, asks for nothing but itself, and has nothing to complain of."""

from __future__ import annotations

from pathlib import Path

import pytest

from acquit.spark.audit.reconciled import Example, Finding
from acquit.spark.report import Choice, page_of, render
from tests.support.audit_tables import BROKER, START, Row, account_of, balanced, day, minute, reconciliation, tables
from tests.support.chromium import Tab

HOSTILE = "<script>document.title = 'ran'</script><img src=http://127.0.0.1:9/x onerror=alert(1)>"
LONG = "invoices" * 30
OTHER = "0a1b2c3d-1111-4222-8333-944455566677"


@pytest.fixture
def tab(browser: Tab) -> Tab:
    return browser


def full_page() -> str:
    queues = [day("orders", 1), day(HOSTILE, 2), day(LONG, 3), day("telemetry", 4, broker=OTHER, load=90_000)]
    named: Row = {"broker": BROKER, "queue": HOSTILE, "sequence": 1}
    anomalies = [{**named, "kind": kind, "detail": HOSTILE + LONG, "segment": 1} for kind in ("retired-twice", "gap")]
    histories = [
        {**named, "segment": 1, "index": at, "time": START, "kind": "ACQUIRED", "actor": LONG, "cause": HOSTILE}
        for at in range(20)
    ]
    coverage = [
        {"broker": broker, "folder": LONG, "first_segment": 1, "last_segment": 9, "missing": [], "unclean_stops": 1}
        for broker in (BROKER, OTHER)
    ]
    found = reconciliation(
        {"posted-though-refused": 1 << 60},
        place=LONG,
        queue=HOSTILE,
        identity="message_id",
        ledger_rows=1 << 60,
        examples=(
            Example(finding=Finding.POSTED_THOUGH_REFUSED, broker=BROKER, identity=LONG, ledger=LONG, other=HOSTILE),
        ),
    )
    more = [balanced(f"queue-{number}") for number in range(200)]
    audit = tables(
        minutes=[row for queue in queues for row in queue],
        balance=[*(account_of(queue, state="differs", detail=LONG) for queue in queues), *more],
        dead_letters=[{**minute(at), **named, "cause": f"{LONG}{at % 9}", "count": 2} for at in range(700)],
        anomalies=anomalies,
        histories=histories,
        coverage=coverage,
    )
    return render(page_of(audit, Choice(title=HOSTILE + LONG), [found]))


PAGES = {"full": full_page, "empty": lambda: render(page_of(tables(), Choice()))}


@pytest.mark.interop
@pytest.mark.timeout(180)
@pytest.mark.parametrize("which", PAGES)
@pytest.mark.parametrize("width", [320, 390, 768, 1280])
def test_a_page_fits_and_keeps_to_itself(tab: Tab, tmp_path: Path, which: str, width: int) -> None:
    page = tmp_path / "report.html"
    page.write_text(PAGES[which](), encoding="utf-8")
    tab.complaints.clear()
    tab.requests.clear()
    for dark in (False, True):
        tab.open(page, width, 844, dark=dark)
        # What is folded counts as well.
        tab.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
        assert tab.evaluate("document.documentElement.scrollWidth") <= width
        outside = """[...document.querySelectorAll('body *')].filter(each =>
            !each.closest('.wide') && !each.closest('svg') && each.getBoundingClientRect().right > innerWidth + 1
            && getComputedStyle(each).position !== 'absolute' && !each.closest('thead')
        ).map(each => each.outerHTML.slice(0, 80))"""
        assert tab.evaluate(outside) == []
    assert tab.complaints == []
    assert set(tab.requests) <= {page.as_uri(), "data:,"}
    assert tab.evaluate("document.title") != "ran"


@pytest.mark.interop
@pytest.mark.timeout(180)
def test_text_of_charts_is_readable_on_a_phone_and_in_the_dark(tab: Tab, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    page.write_text(full_page(), encoding="utf-8")
    heights = """[...document.querySelectorAll('details[open] svg text')].map(each =>
        each.getBoundingClientRect().height / each.getBBox().height * parseFloat(getComputedStyle(each).fontSize))"""
    tab.open(page, 390, 844)
    assert min(tab.evaluate(heights)) >= 10.5
    colours = (
        "[getComputedStyle(document.body).backgroundColor, getComputedStyle(document.querySelector('svg text')).fill]"
    )
    light = tab.evaluate(colours)
    tab.open(page, 390, 844, dark=True)
    dark = tab.evaluate(colours)
    assert light[0] != dark[0]
    assert light[1] != dark[1]


@pytest.mark.interop
@pytest.mark.timeout(180)
def test_one_broker_can_be_looked_at_alone(tab: Tab, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    page.write_text(full_page(), encoding="utf-8")
    shown = "[...document.querySelectorAll('section.broker')].filter(each => each.offsetParent !== null).length"
    tab.open(page, 1280, 900)
    assert tab.evaluate(shown) == 2
    tab.evaluate("document.getElementById('show-b2').click()")
    assert tab.evaluate(shown) == 1
