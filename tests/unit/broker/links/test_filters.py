"""Filters are known by their descriptors, and only those that are applied come back."""

from __future__ import annotations

import pytest

from acquit.broker.links.filters import NOTHING, read_filters
from acquit.broker.selector import Fields
from acquit.errors import SelectorError
from acquit.protocol.types import Described, Symbol, UInt, ULong

SELECTOR = Symbol("apache.org:selector-filter:string")
NO_LOCAL = Symbol("apache.org:no-local-filter:list")
DIRECT = Symbol("apache.org:legacy-amqp-direct-binding:string")
TOPIC = Symbol("apache.org:legacy-amqp-topic-binding:string")
CODES = {
    SELECTOR: ULong(0x0000468C00000004),
    NO_LOCAL: ULong(0x0000468C00000003),
    DIRECT: ULong(0x0000468C00000000),
    TOPIC: ULong(0x0000468C00000001),
}


@pytest.mark.parametrize("asked", [None, {}, {Symbol("x"): None}])
def test_no_filter(asked: dict[str, object] | None) -> None:
    assert read_filters(asked) is NOTHING
    assert NOTHING.selector is None and not NOTHING.no_local and NOTHING.echo is None


@pytest.mark.parametrize("descriptor", [SELECTOR, CODES[SELECTOR], str(SELECTOR)])
@pytest.mark.parametrize("key", ["jms-selector", "apache.org:selector-filter:string", "no-local", "whatever"])
def test_a_selector_under_any_key(key: str, descriptor: str | int) -> None:
    asked = {Symbol(key): Described(descriptor, "a = 1")}
    applied = read_filters(asked)
    assert applied.selector is not None and applied.selector.text == "a = 1"
    assert applied.selector.matches(Fields({"a": 1})) and not applied.selector.matches(Fields({"a": 2}))
    assert applied.echo == asked and not applied.no_local


@pytest.mark.parametrize("descriptor", [NO_LOCAL, CODES[NO_LOCAL]])
@pytest.mark.parametrize("value", [[], "NoLocalFilter{}", None, True])
def test_no_local(descriptor: object, value: object) -> None:
    asked = {Symbol("no-local"): Described(descriptor, value)}  # type: ignore[arg-type]
    applied = read_filters(asked)
    assert applied.no_local and applied.selector is None and applied.echo == asked


@pytest.mark.parametrize("by_code", [False, True])
def test_legacy_filters_look_at_the_subject(by_code: bool) -> None:
    for descriptor, value, taken, left in ((DIRECT, "it's", "it's", "it"), (TOPIC, "a.*.#", "a.b.c", "a")):
        asked = {Symbol("f"): Described(CODES[descriptor] if by_code else descriptor, value)}
        applied = read_filters(asked)
        assert applied.selector is not None and applied.echo == asked
        assert applied.selector.matches(Fields({"JMSType": taken}))
        assert not applied.selector.matches(Fields({"JMSType": left}))
        assert not applied.selector.matches(Fields())
        assert applied.selector.needs_body


def test_a_message_must_pass_all_filters() -> None:
    applied = read_filters(
        {
            Symbol("a"): Described(SELECTOR, "a = 1"),
            Symbol("b"): Described(CODES[SELECTOR], "b = 1"),
            Symbol("c"): Described(DIRECT, "s"),
        }
    )
    assert applied.selector is not None and applied.echo is not None and len(applied.echo) == 3
    assert applied.selector.identifiers == {"a", "b", "JMSType"}
    assert applied.selector.text == "(a = 1) AND (b = 1) AND (JMSType = 's')"
    for a in (1, 2):
        for b in (1, 2):
            for subject in ("s", "t"):
                message = Fields({"a": a, "b": b, "JMSType": subject})
                assert applied.selector.matches(message) is ((a, b, subject) == (1, 1, "s"))


def test_only_what_is_applied_is_echoed() -> None:
    known = {Symbol("jms-selector"): Described(SELECTOR, "a = 1")}
    unknown = {
        Symbol("xquery"): Described(ULong(0x0000468C00000005), "true()"),
        Symbol("headers"): Described(ULong(0x0000468C00000002), {}),
        Symbol("odd"): Described([1], "x"),
        Symbol("none"): None,
    }
    assert read_filters(known | unknown).echo == known
    assert read_filters(unknown) is NOTHING


@pytest.mark.parametrize("value", ["a = 1", Symbol("x"), 5, True, [Described(SELECTOR, "a = 1")]])
def test_a_filter_without_a_descriptor_is_refused(value: object) -> None:
    """3.5.8. It would be left out, and its receiver given what it did not ask for."""
    with pytest.raises(SelectorError, match="described"):
        read_filters({Symbol("jms-selector"): value})


def test_an_empty_selector_is_applied_and_selects_everything() -> None:
    asked = {Symbol("jms-selector"): Described(SELECTOR, " ")}
    applied = read_filters(asked)
    assert applied.selector is None and applied.echo == asked


@pytest.mark.parametrize(
    ("descriptor", "value", "message"),
    [
        (SELECTOR, "a =", "selector, character 4: found the end"),
        (CODES[SELECTOR], "a =", "selector, character 4: found the end"),
        (SELECTOR, 5, r"the filter 'f' \(apache.org:selector-filter:string\) must have a string, not 5"),
        (SELECTOR, None, "must have a string, not None"),
        (DIRECT, [], "must have a string"),
        (TOPIC, b"a.b", "must have a string"),
        (TOPIC, "a." * 1_000, "at most 1,024"),
    ],
)
def test_a_filter_that_cannot_be_applied(descriptor: object, value: object, message: str) -> None:
    with pytest.raises(SelectorError, match=message) as refused:
        read_filters({Symbol("f"): Described(descriptor, value)})  # type: ignore[arg-type]
    assert refused.value.condition == "amqp:invalid-field"


PORTION = Symbol("acquit:portion-filter:list")


def portion(*value: object) -> dict[str, object]:
    return {Symbol("share"): Described(PORTION, list(value))}


def test_shares_are_disjoint_about_equal_and_end_at_a_sequence() -> None:
    for parts in (1, 2, 3, 8):
        for step in (1, 2, 8):  # producers that take turns
            shares = []
            for part in range(parts):
                applied = read_filters(portion(ULong(step * 8_000), UInt(parts), UInt(part)), browses=True)
                assert applied.portion is not None and applied.echo is not None
                shares.append([n for n in range(step, step * 9_000, step) if applied.portion.has(n)])
            assert sorted(n for share in shares for n in share) == list(range(step, step * 8_000 + 1, step))
            assert max(map(len, shares)) < 1.1 * 8_000 / parts


def test_a_share_is_for_browsers() -> None:
    assert read_filters(portion(ULong(1), UInt(1), UInt(0))) is NOTHING


def test_a_second_share_is_refused_and_not_passed_over() -> None:
    asked = portion(ULong(9), UInt(2), UInt(0)) | {Symbol("other"): Described(PORTION, [ULong(9), UInt(2), UInt(1)])}
    with pytest.raises(SelectorError, match="the filter 'other' .* is the second of its kind"):
        read_filters(asked, browses=True)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "value", [(), (1, 2), (1, 0, 0), (1, 2, 2), (1, 2, -1), (-1, 2, 0), ("1", 2, 0), (1, 10_001, 0)]
)
def test_a_share_that_is_none(value: tuple[object, ...]) -> None:
    with pytest.raises(SelectorError, match=r"acquit:portion-filter:list must have a list of a sequence, a number"):
        read_filters(portion(*value), browses=True)
