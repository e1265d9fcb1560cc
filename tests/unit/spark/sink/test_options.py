"""The options of the sink: what is missing, wrong or unknown is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from acquit.errors import ConfigurationError
from acquit.spark.options import default_text
from acquit.spark.sink.options import OPTIONS, Guarantee, RejectedRows, SinkOptions

URL = "amqp://127.0.0.1:5672"


def test_what_is_not_said_is_as_the_table_says() -> None:
    options = SinkOptions.parse({"url": URL})
    assert options.guarantee is Guarantee.EXACTLY_ONCE
    assert options.rejected is RejectedRows.FAIL
    assert (options.durable, options.in_flight_max, options.duplicate_window) == (True, 2_000, None)


def test_keys_in_any_case_and_the_checkpoint_of_the_query() -> None:
    given = {"URL": URL, "Guarantee": "At-Least-Once", "maxinflightbytes": "1m", "checkpointLocation": "/x"}
    options = SinkOptions.parse(given)
    assert options.guarantee is Guarantee.AT_LEAST_ONCE
    assert options.in_flight_bytes == 1 << 20


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, "option url is missing"),
        ({"url": URL, "adress": "q"}, "did you mean address?"),
        ({"url": URL, "guarantee": "twice"}, "one of exactly-once, at-least-once"),
        ({"url": URL, "password": "secret"}, "credential = env:NAME"),
        ({"url": URL, "topic": "true"}, "option topic is given without the option address"),
        ({"url": URL, "runId": "x" * 201}, "at most 200 characters"),
        ({"url": URL, "report": "relative"}, "an absolute path"),
        ({"url": URL, "duplicateWindow": "0"}, "a number from 1"),
    ],
)
def test_what_is_wrong_is_named(given: dict[str, str], expected: str) -> None:
    with pytest.raises(ConfigurationError, match=expected.replace("?", r"\?")):
        SinkOptions.parse(given)


def test_each_field_has_an_option() -> None:
    assert {option.field for option in OPTIONS} == set(SinkOptions.__dataclass_fields__)


def test_the_page_repeats_the_reference() -> None:
    page = (Path(__file__).resolve().parents[4] / "docs" / "spark-sink.md").read_text()
    for option in OPTIONS:
        default = "required" if option.required else default_text(SinkOptions, option) or "–"
        assert f"| `{option.name}` | {default} | {option.meaning} |\n" in page
