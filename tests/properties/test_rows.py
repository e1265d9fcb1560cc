"""Messages kept as columns against a dictionary of them, whatever comes and goes, in whatever order."""

from __future__ import annotations

from array import array
from collections.abc import Iterator

from hypothesis import given, settings
from hypothesis import strategies as st

from acquit.ledger.events import DISPATCHED
from acquit.ledger.live import LiveMessage, Notes
from acquit.ledger.live_messages import LiveMessages
from acquit.ledger.rows import PlainRow, PlainRows, Stretch
from acquit.store.interface import Position
from tests.support.examples import share

CHUNK = 4_096
SEQUENCES = [*range(1, 40), *range(CHUNK - 20, CHUNK + 20), 5 * CHUNK, 5 * CHUNK + 1, 1 << 60]
KINDS = (
    "add",
    "add",
    "add run",
    "extend",
    "extend",
    "take",
    "take all",
    "take all",
    "discard",
    "discard run",
    "acquire",
    "mark",
    "move",
)
steps = st.lists(st.tuples(st.sampled_from(KINDS), st.sampled_from(SEQUENCES), st.integers(1, 1 << 40)), max_size=60)


def row(sequence: int, number: int) -> PlainRow:
    """A row; from one number to the next but one field of those is another by which rows make a lot."""
    queue, actor, flags, priority = (number >> bit & 1 for bit in range(4))
    fields = 1 + 70_000 * queue, actor, 0x8F * flags, 9 * priority
    return PlainRow(sequence, Position(number), number << 20, -number, *fields)


def rows_ever(model: dict[int, PlainRow], looks: list[tuple[Iterator[int], list[int]]]) -> set[int]:
    """The sequences that are or were there: a row that is struck out may still be in the way."""
    return {one for _, expected in looks for one in expected} | model.keys()


@settings(max_examples=share(300))
@given(steps)
def test_the_columns_are_a_dictionary(story: list[tuple[str, int, int]]) -> None:
    rows, model = PlainRows(), dict[int, PlainRow]()
    looks: list[tuple[Iterator[int], list[int]]] = []
    for name, sequence, number in story:
        known = model.get(sequence)
        if name.startswith("add"):
            for one in range(sequence, sequence + (number % 200 if "run" in name else 1)):
                assert rows.add(*row(one, number)) == (one not in model)
                model.setdefault(one, row(one, number))
        elif name == "extend":
            new = [row(one, number)._replace(actor=0) for one in range(sequence, sequence + number % 200 + 1)]
            if number % 5 == 0:
                new.append(new[0])
            columns = zip(*((*one[:5], one.priority << 8 | one.flags) for one in new), strict=True)
            in_order = number % 5 != 0
            if rows.extend(*columns):
                assert in_order
                assert not any(one.sequence in model for one in new)
                model |= {one.sequence: one for one in new}
            elif in_order:  # something is in one of their chunks, and not before them
                chunks = {one.sequence // CHUNK for one in new}
                assert any(one >= sequence for one in rows_ever(model, looks) if one // CHUNK in chunks)
        elif name == "take all":
            asked = range(sequence, sequence + number % 200 + 1, 1 + number % 3)
            assert rows.take_all(asked) == [model.pop(one) for one in asked if one in model]
        elif name == "take":
            assert rows.take(sequence) == model.pop(sequence, None)
        elif name.startswith("discard"):
            for one in range(sequence, sequence + (number % 200 if "run" in name else 1)):
                assert rows.discard(one) == (model.pop(one, None) is not None)
        elif name == "acquire":
            assert rows.acquire(sequence, number & 0xFFFF) == (known is not None)
            if known is not None:
                model[sequence] = known._replace(actor=number & 0xFFFF, flags=known.flags | DISPATCHED)
        elif name == "move":
            assert rows.move(sequence, Position(number)) == (None if known is None else known.position)
            if known is not None:
                model[sequence] = known._replace(position=Position(number))
        elif known is not None:
            rows.mark(sequence, 0x40)
            model[sequence] = known._replace(flags=known.flags | 0x40)
        looks.append((rows.sequences(), sorted(model)))
        assert rows.find(sequence) == model.get(sequence)
        assert rows.positions(SEQUENCES) == [model[one].position if one in model else 0 for one in SEQUENCES]
        backwards = [*range(sequence + 5, max(0, sequence - 5), -1)]
        assert rows.positions(backwards) == [model[one].position if one in model else 0 for one in backwards]
        assert (sequence in rows) == (sequence in model)
        assert len(rows) == len(model)
    for look, expected in looks:
        assert list(look) == expected, "what was there when it began"
    assert [rows.find(sequence) for sequence in rows.sequences()] == [one for _, one in sorted(model.items())]
    found = [
        (sequence, position, fingerprint, lot.queue, lot.actor, lot.flags, lot.priority)
        for lot in rows.lots()
        for sequence, position, fingerprint in zip(lot.sequences, lot.positions, lot.fingerprints, strict=True)
    ]
    assert sorted(found) == [
        (one.sequence, one.position, one.fingerprint, one.queue, one.actor, one.flags, one.priority)
        for _, one in sorted(model.items())
    ]
    assert all(lot.sequences == sorted(lot.sequences) for lot in rows.lots())
    assert sum(lot.size_bytes for lot in rows.lots()) == sum(one.fingerprint >> 32 for one in model.values())
    assert rows._chunks.keys() == {sequence // CHUNK for sequence in model}, "what is empty takes no room"


def message(sequence: int, number: int) -> LiveMessage:
    """A message that is plain, or has one thing about it that a row cannot say."""
    fields = {
        0: {"attempt": 1},
        1: {"expires_at_ms": 5},
        2: {"due_at_ms": 5},
        3: {"transaction": 7},
        4: {"notes": Notes(returns=1)},
    }.get(number % 12, {})
    position = Position(0 if number % 12 == 5 else number)
    return LiveMessage(sequence, number & 0xFF, position, number << 8, 1, actor=number % 3, **fields)  # type: ignore[arg-type]


@settings(max_examples=share(200))
@given(steps)
def test_live_messages_are_a_dictionary(story: list[tuple[str, int, int]]) -> None:
    kept, model = LiveMessages(), dict[int, LiveMessage]()
    for name, sequence, number in story:
        if name.startswith("add"):
            kept[sequence] = message(sequence, number)
            model[sequence] = message(sequence, number)
        elif name == "acquire":
            known = model.get(sequence)
            assert kept.acquire(sequence, number & 0xFF) == (known is not None)
            if known is not None:
                known.actor = number & 0xFF
                known.flags |= DISPATCHED
        elif name == "extend":
            pass
        elif name.startswith("take"):
            assert kept.pop(sequence, None) == model.pop(sequence, None)
        elif name.startswith("discard"):
            assert kept.drop(sequence) == (model.pop(sequence, None) is not None)
        elif name == "move":
            found = kept.get(sequence)
            assert found == model.get(sequence)
            if found is not None:  # whoever asks for one may change it
                found.due_at_ms = model[sequence].due_at_ms = number
        else:
            assert kept.look(sequence) == model.get(sequence)
        assert (sequence in kept) == (sequence in model)
        assert len(kept) == len(model)
        assert {one.sequence: one for one in kept.copies()} == model
        assert sorted(kept) == sorted(model)
    assert kept == model


def test_what_is_read_together_is_kept_together() -> None:
    """Rows are kept in chunks: a stretch is of one."""
    rows = PlainRows()
    for sequence in [*range(4_090, 4_103), 4_105]:
        rows.add(sequence, sequence, 7 << 32, sequence * 3, 1, 0, 1, 4)
    first = rows.beginning(list(rows.sequences()))
    assert first == range(4_090, 4_096)
    assert rows.stretch(first, 1, 4) == Stretch(
        array("Q", first), array("Q", [7 << 32] * 6), array("q", [sequence * 3 for sequence in first])
    )
    rows.leave_out(first)
    second = rows.beginning(list(rows.sequences()))
    assert second == range(4_096, 4_103)
    assert rows.stretch(second, 1, 5) is rows.stretch(second, 3, 4) is None
    rows.acquire(4_100, 9)
    assert rows.stretch(second, 3, 4) is rows.stretch(second, 1, 4) is None
    assert len(rows) == 8
