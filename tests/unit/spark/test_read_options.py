"""What every way to read queues takes, and what does not go together there: of a stream and of a batch alike."""

from __future__ import annotations

import pytest

from acquit.errors import ConfigurationError
from acquit.spark.browse_options import OPTIONS as BROWSE_OPTIONS
from acquit.spark.browse_options import BrowseOptions
from acquit.spark.read_options import READ_OPTIONS, ReadOptions, poison_option
from acquit.spark.source_options import OPTIONS as SOURCE_OPTIONS
from acquit.spark.source_options import SourceOptions
from acquit.spark.spool import Poison

KINDS = {BrowseOptions: {"url": "amqp://h"}, SourceOptions: {"url": "amqp://h", "spool": "/s"}}
BOTH = pytest.mark.parametrize("kind", list(KINDS))


@BOTH
def test_one_address_is_taken_as_it_is_and_several_are_separated_by_commas(
    kind: type[BrowseOptions | SourceOptions],
) -> None:
    assert kind.parse({**KINDS[kind], "address": "a, b"}).queues == ("a, b",)
    assert kind.parse({**KINDS[kind], "addresses": " a, b,,a "}).queues == ("a", "b")


@BOTH
@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({}, "option address is missing: the queue to read; or name several with addresses"),
        ({"address": "a", "addresses": "b"}, "option address is given, and addresses too"),
        ({"addresses": ", ,"}, "expected names of queues separated by commas"),
        ({"addresses": ",".join(map(str, range(1_001)))}, "at most 1000"),
        ({"address": "a", "bodySchema": "id BIGINT"}, "bodySchema is given without bodyAs = json"),
        ({"address": "a", "bodyAs": "xml"}, "expected one of bytes, text, json"),
        ({"address": "a", "credential": "env:X"}, "without the option user"),
    ],
)
def test_what_does_not_go_together(
    kind: type[BrowseOptions | SourceOptions], wrong: dict[str, str], reason: str
) -> None:
    with pytest.raises(ConfigurationError, match=reason):
        kind.parse({**KINDS[kind], **wrong})


def test_only_a_stream_makes_queues_by_default() -> None:
    assert SourceOptions.parse({**KINDS[SourceOptions], "address": "a"}).create is True
    assert BrowseOptions.parse({**KINDS[BrowseOptions], "address": "a"}).create is False


def test_a_batch_cannot_reject() -> None:
    reject = {"address": "a", "poison": "reject"}
    assert SourceOptions.parse({**KINDS[SourceOptions], **reject}).poison is Poison.REJECT
    with pytest.raises(ConfigurationError, match=r"option poison = 'reject': expected one of column, fail"):
        BrowseOptions.parse({**KINDS[BrowseOptions], **reject})


def test_each_option_is_said_once() -> None:
    for options in (BROWSE_OPTIONS, SOURCE_OPTIONS):
        assert options[: len(READ_OPTIONS)] == READ_OPTIONS
        assert len({option.name for option in options}) == len(options)
    assert {option.field for option in READ_OPTIONS} | {"poison"} == set(ReadOptions.__dataclass_fields__)
    meaning = poison_option(Poison.REJECT, Poison.FAIL).meaning
    assert meaning == "a message that cannot be parsed: reject (to the broker), or fail"
