"""What a message may cost the broker: entries, sections, nesting. Work is counted, not timed."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest

from acquit.broker.intake.shaping import check_cost, read_posting
from acquit.broker.options import ConnectionLimits
from acquit.broker.refusal import Refused
from acquit.errors import DecodeError
from acquit.protocol.definitions import AmqpCondition
from acquit.protocol.sections import map_value, scan_sections

pytestmark = pytest.mark.promise("fairness")

BODY = b"\x00\x53\x75\xa0\x01x"
LIMITS = ConnectionLimits()


def entries(count: int) -> bytes:
    items = b"".join(b"\xa3\x04" + b"%04x" % (at & 0xFFFF) + b"\x40" for at in range(count))
    return b"\xd1" + (4 + len(items)).to_bytes(4, "big") + (2 * count).to_bytes(4, "big") + items


def check(payload: bytes) -> None:
    check_cost(payload, LIMITS.message_entries_max, LIMITS.message_sections_max)


def calls(work: Callable[[], object]) -> int:
    """How many calls of functions, Python's and C's, a piece of work makes."""
    made = 0

    def count(*_: object) -> None:
        nonlocal made
        made += 1

    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
    return made


def refusing(work: Callable[..., object], *arguments: object) -> Callable[[], None]:
    """A piece of work that ends in a refusal."""

    def refused() -> None:
        with pytest.raises(DecodeError):
            work(*arguments)

    return refused


@pytest.mark.parametrize(
    ("code", "name"),
    [
        (0x71, "delivery annotations"),
        (0x72, "message annotations"),
        (0x74, "application properties"),
        (0x78, "a footer"),
    ],
)
def test_a_map_with_too_many_entries_is_refused_without_a_look_at_them(code: int, name: str) -> None:
    def message(count: int) -> bytes:
        section = b"\x00\x53" + bytes((code,)) + entries(count)
        return BODY + section if code == 0x78 else section + BODY

    def refused() -> None:
        with pytest.raises(Refused, match=f"^{name} with 100,000 entries: at most 4,096 are taken$") as found:
            check(large)
        assert found.value.condition == AmqpCondition.RESOURCE_LIMIT_EXCEEDED

    check(message(4_096))
    large = message(100_000)
    assert calls(refused) < 50_000


def test_a_body_of_too_many_sections_is_refused() -> None:
    check(BODY * 4_096)
    with pytest.raises(DecodeError, match="more sections than the limit"):
        check(BODY * 4_097)
    assert calls(refusing(check, BODY * 1_000_000)) < 50_000


def test_a_large_body_costs_no_more_than_a_small_one() -> None:
    large = b"\x00\x53\x75\xb0" + (32 << 20).to_bytes(4, "big") + bytes(32 << 20)
    check(large)
    assert calls(lambda: (check(large), read_posting(large))) < 50_000


@pytest.mark.parametrize("pattern", [b"\x00", b"\x00\x40"], ids=["descriptors", "values"])
def test_descriptions_of_descriptions_end_soon(pattern: bytes) -> None:
    with pytest.raises(DecodeError, match="nested deeper"):
        check(b"\x00\x53\x77" + pattern * 1_000_000)


def test_a_descriptor_that_is_a_long_list_is_not_decoded() -> None:
    nulls = b"\xd0" + (4 + 100_000).to_bytes(4, "big") + (100_000).to_bytes(4, "big") + b"\x40" * 100_000
    assert calls(refusing(scan_sections, b"\x00" + nulls + b"\x40")) < 50_000


def test_a_value_that_is_looked_for_and_is_a_long_list_is_not_decoded() -> None:
    nulls = b"\xd0" + (4 + 100_000).to_bytes(4, "big") + (100_000).to_bytes(4, "big") + b"\x40" * 100_000
    pairs = b"\xa3\x01k" + nulls
    section = b"\x00\x53\x72\xd1" + (4 + len(pairs)).to_bytes(4, "big") + (2).to_bytes(4, "big") + pairs
    assert calls(refusing(map_value, section, "k")) < 50_000
