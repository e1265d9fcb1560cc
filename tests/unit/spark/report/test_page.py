from __future__ import annotations

from datetime import timedelta

import pytest

from acquit.spark.report import Choice, page_of, render
from acquit.spark.report.faults import ANOMALIES_MAX
from acquit.spark.report.queues import REASONS_MAX, ROWS_MAX
from acquit.spark.report.said import Mood, Page
from tests.support.audit_tables import BROKER, START, Row, account_of, balanced, minute, reconciliation, tables

OTHER = "0a1b2c3d-1111-4222-8333-944455566677"


def page(choice: Choice | None = None, **rows: list[Row]) -> Page:
    return page_of(tables(**rows), choice or Choice())


def anomaly(kind: str, sequence: int = 1, queue: str = "orders") -> Row:
    return {"broker": BROKER, "queue": queue, "sequence": sequence, "kind": kind, "detail": "so", "segment": 3}


def test_nothing_at_all_is_said_to_be_nothing() -> None:
    found = page()
    assert (found.mood, found.verdict) == (Mood.NOTE, "Nothing to account for")
    assert found.brokers == found.anomalies == found.coverage == []


def test_all_is_well() -> None:
    found = page(balance=[balanced("orders", posted=5, accepted=3)], minutes=[minute(0, posted=5, accepted=3)])
    assert (found.mood, found.because) == (Mood.GOOD, [])
    (broker,) = found.brokers
    (row,) = broker.rows
    assert (row["posted"], row["accepted"], row["live"]) == (5, 3, 2)
    assert (row["left_or_live"], row["off"]) == (5, 0)
    assert broker.account["charts"] == []  # the only queue has them
    assert [chart.title for chart in broker.sections[0]["charts"]][:3] == ["Rate", "Latency", "Depth"]


@pytest.mark.parametrize(
    ("state", "mood"), [("differs", Mood.BAD), ("incomplete", Mood.NOTE), ("something new", Mood.BAD)]
)
def test_one_queue_that_does_not_balance_decides(state: str, mood: Mood) -> None:
    wrong = {**balanced("wrong", posted=1), "state": state, "detail": "why"}
    found = page(balance=[balanced("a", posted=9), wrong, balanced("z")])
    assert found.mood is mood
    assert found.because


def test_an_account_that_does_not_add_up_says_by_how_much() -> None:
    wrong = {**balanced("orders", posted=10, accepted=4), "live": 9, "state": "differs"}
    (row,) = page(balance=[wrong]).brokers[0].rows
    assert (row["entered"], row["left_or_live"], row["off"]) == (10, 13, -3)


@pytest.mark.parametrize("kind", ["retired-twice", "gap", "of a newer version"])
def test_anomalies_that_are_faults_decide(kind: str) -> None:
    found = page(balance=[balanced("orders")], anomalies=[anomaly(kind)])
    assert (found.mood, found.because) == (Mood.BAD, [f"{kind}: 1"])


def test_anomalies_that_are_notes_do_not() -> None:
    found = page(balance=[balanced("orders")], anomalies=[anomaly("backward-clock"), anomaly("deleted-by-retention")])
    assert found.mood is Mood.GOOD
    assert [kind.mood for kind in found.anomalies] == [Mood.NOTE, Mood.NOTE]


def test_a_reconciliation_that_differs_decides_and_an_answered_doubt_does_not() -> None:
    rows = tables(balance=[balanced("orders"), balanced("payments")])
    assert page_of(rows, Choice(), [reconciliation({"missing": 1})]).mood is Mood.BAD
    assert page_of(rows, Choice(), [reconciliation({"in-doubt-posted": 4})]).mood is Mood.GOOD
    unmatched = page_of(rows, Choice(), [reconciliation({"unmatched": 4})])
    assert (unmatched.mood, unmatched.because) == (
        Mood.NOTE,
        ["/lake/orders and the ledger of orders cannot be matched from what is left"],
    )
    other = Choice(queues=("payments",))
    assert page_of(rows, other, [reconciliation({"missing": 1})]).reconciliations == []


def test_faults_come_before_traffic_and_the_rest_has_no_charts() -> None:
    busy = [minute(0, f"busy-{number}", posted=100 + number) for number in range(5)]
    wrong = minute(0, "wrong", posted=1)
    balance = [account_of([row]) for row in busy] + [account_of([wrong], state="differs")]
    (broker,) = page(Choice(top=3), minutes=[*busy, wrong], balance=balance).brokers
    assert [row["queue"] for row in broker.sections] == ["wrong", "busy-4", "busy-3"]
    assert [bool(row["anchor"]) for row in broker.rows] == [True] * 3 + [False] * 3
    assert len(broker.account["charts"]) == 5
    assert (broker.account["entered"], broker.account["state"]) == (100 + 101 + 102 + 103 + 104 + 1, "differs")


def test_many_queues_and_anomalies_are_bounded_and_said() -> None:
    balance = [balanced(f"queue-{number:05}") for number in range(ROWS_MAX + 5)]
    found = page(balance=balance, anomalies=[anomaly("gap", number) for number in range(ANOMALIES_MAX + 7)])
    (broker,) = found.brokers
    assert (len(broker.rows), broker.rows_left_out) == (ROWS_MAX, 5)
    (kind,) = found.anomalies
    assert (kind.count, len(kind.shown)) == (ANOMALIES_MAX + 7, ANOMALIES_MAX)


def test_an_anomaly_has_the_history_of_its_message_in_order() -> None:
    def step(segment: int, index: int, kind: str, queue: str = "orders") -> Row:
        time = START + timedelta(seconds=index)
        named = {"broker": BROKER, "queue": queue, "sequence": 1, "segment": segment, "index": index, "time": time}
        return {**named, "kind": kind, "attempt": 1, "cause": "rejected", "condition": "orders:not-json"}

    histories = [step(2, 0, "DEAD_LETTERED"), step(1, 9, "ACQUIRED"), step(1, 1, "POSTED"), step(1, 1, "POSTED", "b")]
    found = page(anomalies=[anomaly("retired-twice")], histories=histories)
    (one,) = found.anomalies[0].shown
    assert [each["kind"] for each in one["steps"]] == ["POSTED", "ACQUIRED", "DEAD_LETTERED"]
    html = render(found)
    assert "<td>dead-lettered</td>" in html
    assert "<td>rejected: orders:not-json</td>" in html
    assert "<b>queue orders, message 1, segment 3</b>" in html


def test_reasons_of_dead_letters_beyond_the_first_are_one() -> None:
    count = REASONS_MAX + 2
    dead = [
        {**minute(0), "cause": "rejected", "condition": f"orders:{number}", "count": 10 * number}
        for number in range(1, count + 1)
    ]
    found = page(minutes=[minute(0, dead_lettered=1)], dead_letters=dead, balance=[balanced("orders")])
    chart = found.brokers[0].sections[0]["charts"][4]
    assert chart.title == "Dead letters"
    assert chart.names[0] == f"orders:{count} ({10 * count})"
    assert chart.names[-1] == "2 other reasons (30)"


def test_dead_letters_are_those_of_their_queue_and_broker() -> None:
    rows = [minute(0, "a", dead_lettered=3), minute(0, "b", dead_lettered=4), minute(0, "a", OTHER, dead_lettered=5)]
    dead = [{**row, "cause": "rejected", "condition": "odd", "count": row["dead_lettered"]} for row in rows]
    found = page(minutes=rows, dead_letters=dead, balance=[account_of([row]) for row in rows])
    shown = {broker.name: broker for broker in found.brokers}
    assert shown[BROKER].account["charts"][4].names == ("odd (7)",)
    assert [row["charts"][4].names for row in shown[BROKER].sections] == [("odd (4)",), ("odd (3)",)]
    assert [row["charts"][4].names for row in shown[OTHER].sections] == [("odd (5)",)]


@pytest.mark.parametrize(
    ("cause", "condition", "said"),
    [
        ("REJECTED", "orders:no-stock", "orders:no-stock"),
        ("REJECTED", None, "rejected without an error"),
        ("MODIFIED", None, "too many attempts, the last one failed"),
        ("CONNECTION_LOST", None, "too many attempts, the last one: connection lost"),
        ("LOCK_EXPIRED", None, "too many attempts, the last one: lock expired"),
        ("DETACHED", "amqp:link:detach-forced", "too many attempts, the last one: amqp:link:detach-forced"),
        ("RELEASED", None, "released too often"),
        (None, "(others)", "(others)"),
        (None, None, "no reason on record"),
    ],
)
def test_why_letters_died_is_said_in_words(cause: str | None, condition: str | None, said: str) -> None:
    dead = [{**minute(0), "cause": cause, "condition": condition, "count": 3}]
    found = page(minutes=[minute(0, dead_lettered=3)], dead_letters=dead, balance=[balanced("orders")])
    assert found.brokers[0].sections[0]["charts"][4].names == (f"{said} (3)",)


def test_what_is_chosen() -> None:
    rows = [minute(0, "orders", posted=1), minute(0, "payments.in", posted=2), minute(0, "orders", OTHER, posted=4)]
    balance = [account_of([row]) for row in rows]
    coverage = [{"broker": broker, "missing": [4, 5, 7], "deleted": None} for broker in (BROKER, OTHER)]
    given = {"minutes": rows, "balance": balance, "coverage": coverage, "anomalies": [anomaly("gap")]}
    one = page(Choice(brokers=(OTHER[:8],)), **given)
    assert [broker.name for broker in one.brokers] == [OTHER]
    assert one.anomalies == []
    assert [covered["missing"] for covered in one.coverage] == [[4, 5, 7]]
    paid = page(Choice(queues=("pay*", "none")), **given)
    assert [row["queue"] for broker in paid.brokers for row in broker.rows] == ["payments.in"]
    assert "pay*" in paid.left_out


def test_a_queue_without_a_name_or_balance_is_shown() -> None:
    nameless = {**minute(0, posted=1), "queue": None}
    (broker,) = page(minutes=[nameless]).brokers
    (row,) = broker.rows
    assert (row["queue"], row["state"], row["mood"]) == ("(no name on record)", "unknown", Mood.BAD)


def test_an_unknown_start_is_not_taken_for_an_empty_queue() -> None:
    rows = [minute(0, posted=3, depth_change=3)]
    known = page(minutes=rows, balance=[account_of(rows, live=10)])
    unknown = page(minutes=rows, balance=[account_of(rows, live=10, state="incomplete")])
    assert "10 at the end" in known.brokers[0].sections[0]["charts"][2].summary
    assert "3 at the end" in unknown.brokers[0].sections[0]["charts"][2].summary


def test_queues_of_one_name_are_one() -> None:
    first = balanced("orders", posted=5, accepted=5)
    again = {**balanced("orders", posted=2, accepted=1), "state": "incomplete", "detail": "why"}
    (broker,) = page(balance=[first, again]).brokers
    (row,) = broker.rows
    assert tuple(row[name] for name in ("entered", "live", "state", "detail")) == (7, 1, "incomplete", "why")
    assert (broker.account["entered"], broker.account["detail"]) == (7, "")
    (row,) = page(balance=[first, {**again, "live": None}]).brokers[0].rows
    assert (row["entered"], row["live"], row["left_or_live"]) == (7, None, None)


@pytest.mark.parametrize("time_us", [1 << 60, -(1 << 60)])
def test_a_time_in_no_calendar_is_shown_as_it_is(time_us: int) -> None:
    step = {"broker": BROKER, "queue": "orders", "sequence": 1, "segment": 3, "time": time_us, "kind": "ACQUIRED"}
    found = page(
        minutes=[minute(0, posted=1), {**minute(0, posted=1), "minute": time_us // 60_000_000 * 60_000_000}],
        dead_letters=[{**minute(0), "minute": time_us // 60_000_000 * 60_000_000, "count": 1}],
        coverage=[{"broker": BROKER, "first_time": time_us, "last_time": time_us}],
        anomalies=[{**anomaly("retired-twice"), "time": time_us}],
        histories=[step],
    )
    assert found.span == f"{time_us} µs to {time_us} µs UTC"
    assert found.left_out == "1 minute is too far off to be drawn."
    assert found.brokers[0].sections[0]["charts"]
    assert render(found).count(f">{time_us} µs<") == 4  # of the journal twice, of the anomaly, of its step
