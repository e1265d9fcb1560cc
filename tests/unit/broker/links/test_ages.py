"""How old deliveries are that wait for an outcome."""

from __future__ import annotations

from types import SimpleNamespace

from acquit.broker.links.ages import NOTES_MAX, Ages

SECOND = 1_000_000


class FakeSession(SimpleNamespace):
    """As much of a session as ages look at."""

    __hash__ = object.__hash__  # type: ignore[assignment]
    outgoing: dict[int, object]
    next_delivery_id: int

    @property
    def oldest_outgoing(self) -> int | None:
        return next(iter(self.outgoing), None)


def session(next_delivery_id: int, *outgoing: int) -> FakeSession:
    return FakeSession(outgoing=dict.fromkeys(outgoing), next_delivery_id=next_delivery_id)


def oldest(ages: Ages, one: FakeSession, time_us: int) -> int:
    return ages.oldest_ms([one], time_us)  # type: ignore[list-item]


def look(ages: Ages, one: FakeSession, time_us: int) -> None:
    ages.look([one], time_us)  # type: ignore[list-item]


def test_the_age_is_told_from_the_looks_since_it_was_sent() -> None:
    ages, one = Ages(), session(5, 4)
    assert oldest(ages, one, 0) == 0
    look(ages, one, 10 * SECOND)
    one.outgoing[5], one.next_delivery_id = None, 6
    look(ages, one, 20 * SECOND)
    assert oldest(ages, one, 25 * SECOND) == 15_000
    del one.outgoing[4]
    assert oldest(ages, one, 25 * SECOND) == 5_000
    one.outgoing.clear()
    assert oldest(ages, one, 25 * SECOND) == 0
    look(ages, one, 26 * SECOND)
    one.outgoing[6], one.next_delivery_id = None, 7
    assert oldest(ages, one, 30 * SECOND) == 0  # sent since the last look


def test_delivery_ids_wrap_around() -> None:
    ages, one = Ages(), session(1, (1 << 32) - 1, 0)
    look(ages, one, SECOND)
    assert oldest(ages, one, 3 * SECOND) == 2_000


def test_a_clock_that_is_set_ages_nothing() -> None:
    ages, one = Ages(), session(5, 4)
    look(ages, one, 10 * SECOND)
    ages.shift(-7 * SECOND)
    assert oldest(ages, one, 4 * SECOND) == 1_000


def test_one_that_is_held_for_long_has_few_notes_and_nearly_its_age() -> None:
    ages, one = Ages(), session(1, 0)
    for second in range(5_000):
        one.next_delivery_id = second + 1
        one.outgoing = dict.fromkeys((0, second))
        look(ages, one, second * SECOND)
    (notes,) = ages._notes.values()
    assert len(notes) <= NOTES_MAX
    assert oldest(ages, one, 5_000 * SECOND) == 5_000_000
    one.outgoing = {2_500: None}
    assert 1_700_000 < oldest(ages, one, 5_000 * SECOND) <= 2_500_000
