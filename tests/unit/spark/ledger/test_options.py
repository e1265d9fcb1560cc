"""Options: each wrong one is named, with what was given and what is expected."""

from __future__ import annotations

from pathlib import Path

import pytest

from acquit.errors import ConfigurationError
from acquit.spark.ledger.options import OPTIONS, LedgerOptions, Missing, Table, Verify

GOOD = {"folders": "/data/broker-a, /data/broker-b"}


def test_defaults() -> None:
    options = LedgerOptions.parse(GOOD)
    assert options.folders == (Path("/data/broker-a"), Path("/data/broker-b"))
    assert (options.table, options.missing, options.verify) == (Table.EVENTS, Missing.FAIL, Verify.FULL)
    assert (options.since_us, options.until_us, options.queues, options.details) == (None, None, None, False)


def test_each_option_is_read_in_any_case() -> None:
    options = LedgerOptions.parse(
        {
            "FOLDERS": "/a,/a",
            "Table": "SEGMENTS",
            "since": "1970-01-01T00:00:01",
            "until": "1970-01-01T01:00:02.5+01:00",
            "queue": "orders, parts",
            "missing": "Allow",
            "verify": "quick",
            "details": "True",
        }
    )
    assert options.folders == (Path("/a"),)
    assert (options.table, options.missing, options.verify) == (Table.SEGMENTS, Missing.ALLOW, Verify.QUICK)
    assert (options.since_us, options.until_us) == (1_000_000, 2_500_000)
    assert options.queues == {"orders", "parts"}
    assert options.details


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({}, "option folders is missing"),
        ({"folders": " , "}, "absolute paths"),
        ({"folders": "data"}, "absolute paths"),
        ({**GOOD, "folder": "/a"}, "option folder is not known; did you mean folders"),
        ({**GOOD, "zzz": "/a"}, "there are folders, table"),
        ({**GOOD, "since": "yesterday"}, "option since = 'yesterday': expected a time"),
        ({**GOOD, "until": "2026-01-01", "since": "2026-01-01"}, "since is not before"),
        ({**GOOD, "queue": ","}, "expected names"),
        ({**GOOD, "missing": "maybe"}, "expected fail or allow"),
        ({**GOOD, "verify": "no"}, "expected full or quick"),
        ({**GOOD, "table": "rows"}, "expected events or segments"),
        ({**GOOD, "details": "1"}, "expected true or false"),
    ],
)
def test_what_is_wrong_is_said(options: dict[str, str], says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        LedgerOptions.parse(options)


def test_the_page_repeats_the_reference() -> None:
    page = (Path(__file__).resolve().parents[4] / "docs" / "ledger-source.md").read_text()
    for option in OPTIONS:
        assert f"| `{option.name}` | {option.default} | {option.meaning} |\n" in page
    assert {option.field for option in OPTIONS} == set(LedgerOptions.__dataclass_fields__)


def test_the_defaults_are_those_that_are_told() -> None:
    defaults = LedgerOptions.parse(GOOD)
    told = {option.name: option.default for option in OPTIONS if option.default}
    assert LedgerOptions.parse({**GOOD, **told}) == defaults
