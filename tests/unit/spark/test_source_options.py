"""The options of the streaming source: what they are when nothing is said, what does not go together, and the page."""

from __future__ import annotations

from pathlib import Path

import pytest

from acquit.errors import ConfigurationError
from acquit.spark.decoding import BodyAs
from acquit.spark.options import default_text
from acquit.spark.source_options import OPTIONS, SourceOptions
from acquit.spark.spool import MissingIdentity, Poison

GOOD = {"url": "amqp://localhost:5672", "spool": "/mnt/spool"}


def test_defaults() -> None:
    options = SourceOptions.parse({**GOOD, "address": "orders"})
    assert (options.parts, options.poison, options.missing_identity) == (2, Poison.COLUMN, MissingIdentity.FAIL)
    assert options.identity_retention_ms == 7 * 24 * 3600 * 1000
    assert (options.password(), options.selector, options.body_as) == (None, None, BodyAs.BYTES)


def test_one_address_is_taken_as_it_is_and_several_are_separated_by_commas() -> None:
    assert SourceOptions.parse({**GOOD, "address": "a, b"}).queues == ("a, b",)
    assert SourceOptions.parse({**GOOD, "addresses": " a, b,,a "}).queues == ("a", "b")


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({}, "option address is missing: the queue to read; or name several with addresses"),
        ({"address": "a", "addresses": "b"}, "option address is given, and addresses too"),
        ({"addresses": ", ,"}, "expected names of queues separated by commas"),
        ({"address": "a", "bodySchema": "id BIGINT"}, "bodySchema is given without bodyAs = json"),
        ({"address": "a", "bodyAs": "xml"}, "expected one of bytes, text, json"),
    ],
)
def test_what_does_not_go_together(wrong: dict[str, str], reason: str) -> None:
    with pytest.raises(ConfigurationError, match=reason):
        SourceOptions.parse({**GOOD, **wrong})


def test_the_page_repeats_the_reference() -> None:
    page = (Path(__file__).resolve().parents[3] / "docs" / "spark.md").read_text()
    for option in OPTIONS:
        default = "required" if option.required else default_text(SourceOptions, option) or "–"
        assert f"| `{option.name}` | {default} | {option.meaning} |\n" in page


def test_every_field_has_its_option() -> None:
    assert {option.field for option in OPTIONS} == set(SourceOptions.__dataclass_fields__)
    assert {option.name for option in OPTIONS if option.required} == {"url", "spool"}
