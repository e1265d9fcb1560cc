"""Counters of the queues that have no series of their own."""

from __future__ import annotations

from acquit.broker.admin.others import VIEWS_MAX, LookAtOthers, OtherViews

A, B, C = (False, 1), (False, 2), (True, 1)


def told(look: LookAtOthers, **counted: tuple[float, bool]) -> float:
    nodes = {"a": A, "b": B, "c": C}
    for name, (count, among_others) in counted.items():
        look.see(nodes[name], [count], among_others=among_others)
    (total,) = look.end()
    return total


def test_they_count_what_is_counted_among_the_others_and_nothing_else() -> None:
    views = OtherViews(1)
    assert told(views.look("v"), a=(40, False), b=(7, True)) == 0, "what was before the first look is no increase"
    assert told(views.look("v"), a=(40, True), b=(8, False)) == 0, "who comes in, or goes, moves nothing"
    assert told(views.look("v"), a=(42, True), b=(11, False)) == 2
    assert told(views.look("v"), b=(12, True)) == 3, "nor who is deleted"
    assert told(views.look("v"), b=(12, True), c=(5, True)) == 8, "of who is new, all is"
    assert told(views.look("v"), a=(9, False), b=(12, True), c=(6, True)) == 9
    assert told(views.look("v")) == 9


def test_each_view_counts_for_itself_and_the_oldest_begins_again() -> None:
    views = OtherViews(1)
    for count in (1, 3):
        for view in range(VIEWS_MAX):
            assert told(views.look(view), a=(count, True)) == count - 1
    assert told(views.look("one more"), a=(3, True)) == 0
    assert told(views.look(1), a=(4, True)) == 3
    assert told(views.look(0), a=(4, True)) == 0


def test_two_looks_at_once_count_once() -> None:
    views = OtherViews(1)
    told(views.look("v"), a=(1, True))
    one, other = views.look("v"), views.look("v")
    assert told(one, a=(5, True)) == 4
    assert told(other, a=(6, True)) == 4
    assert told(views.look("v"), a=(6, True)) == 5
