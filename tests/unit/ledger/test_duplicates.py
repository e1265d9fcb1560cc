"""Windows of duplicate ids: what they keep, what they forget, and that a checkpoint carries them on."""

from __future__ import annotations

from random import Random

import pytest

from acquit.ledger import duplicates
from acquit.ledger.duplicates import (
    BLOCK_IDS,
    ID_BYTES_MAX,
    LIMIT,
    Known,
    Window,
    WindowEntry,
    Windows,
    block_record,
    encode_id_extras,
    read_id_extras,
    window_id,
)
from acquit.ledger.records import Extra, Namespace, State, encode_extras
from acquit.store.interface import Position


def entry(sequence: int, body: int = 1, identity: bytes | None = None) -> WindowEntry:
    return WindowEntry(sequence, body, b"s%d" % sequence if identity is None else identity)


def filled(count: int, *, limit: int = LIMIT, address: str = "a") -> Windows:
    windows = Windows()
    windows.limit(address, limit)
    for sequence in range(1, count + 1):
        windows.remember(address, entry(sequence), Position(sequence * 10))
    return windows


def test_an_id_and_a_body_are_known_once_they_were_posted() -> None:
    windows = filled(3)
    assert windows.look_up("a", b"s2", 1) == (Known.REPEATED, 2)
    assert windows.look_up("a", b"s2", 9) == (Known.REUSED, 0)
    assert windows.look_up("a", b"s4", 1) == (Known.NEW, 0)
    assert windows.look_up("b", b"s2", 1) == (Known.NEW, 0)


@pytest.mark.parametrize("limit", [2 * BLOCK_IDS + 1, 3 * BLOCK_IDS, LIMIT])
@pytest.mark.parametrize("added", [1, BLOCK_IDS - 1, BLOCK_IDS, 2 * BLOCK_IDS + 1])
def test_many_that_are_remembered_together_are_remembered_as_one_by_one(limit: int, added: int) -> None:
    before = BLOCK_IDS + 7
    together, singly = filled(before, limit=limit), filled(before, limit=limit)
    outlasts = [
        sequence for (sequence, *_) in together.by_address["a"] if together.by_address["a"].outlasts(sequence, added)
    ]
    entries = [entry(sequence) for sequence in range(before + 1, before + 1 + added)]
    positions = [Position(one.sequence * 10) for one in entries]
    together.remember_all("a", entries, positions)
    for one, position in zip(entries, positions, strict=True):
        singly.remember("a", one, position)
    assert together == singly and together.ids == singly.ids
    for place in (0, 2_600, 100_000):
        assert list(together.stale(Position(place))) == list(singly.stale(Position(place)))
    for sequence in range(1, before + 1 + added):
        assert together.look_up("a", b"s%d" % sequence, 1) == singly.look_up("a", b"s%d" % sequence, 1)
    assert {one.sequence for one in singly.by_address["a"]}.issuperset(outlasts)
    if limit == LIMIT:
        assert len(outlasts) == before
    elif limit == 3 * BLOCK_IDS and added == 2 * BLOCK_IDS + 1:
        assert outlasts == list(range(BLOCK_IDS + 1, before + 1)), "as closely as blocks say"


def test_each_body_under_an_id_is_remembered() -> None:
    windows = Windows()
    for sequence, body in ((1, 7), (2, 8), (3, 9)):
        windows.remember("a", entry(sequence, body, b"sx"), Position(sequence))
    assert [windows.look_up("a", b"sx", body) for body in (7, 8, 9)] == [
        (Known.REPEATED, 1),
        (Known.REPEATED, 2),
        (Known.REPEATED, 3),
    ]
    assert windows.look_up("a", b"sx", 10)[0] is Known.REUSED
    windows.limit("a", 2)
    assert windows.look_up("a", b"sx", 7)[0] is Known.REUSED
    assert windows.look_up("a", b"sx", 8) == (Known.REPEATED, 2)
    windows.limit("a", 1)
    windows.limit("a", 0)
    assert windows.look_up("a", b"sx", 9)[0] is Known.NEW
    assert windows.ids == 0


def test_the_oldest_are_forgotten() -> None:
    windows = filled(1_000, limit=300)
    assert windows.ids == 300
    assert [one.sequence for one in windows.by_address["a"]] == list(range(701, 1_001))
    assert windows.look_up("a", b"s700", 1)[0] is Known.NEW
    assert windows.look_up("a", b"s701", 1)[0] is Known.REPEATED


def test_a_long_id_is_kept_as_its_hash() -> None:
    long, other = b"s" + bytes(ID_BYTES_MAX), b"s" + bytes(ID_BYTES_MAX + 1)
    assert window_id(long) != window_id(other)
    assert len(window_id(b"s" + bytes(60_000))) == 33
    assert window_id(b"sshort") == b"sshort"


def checkpoint(windows: Windows, before: int, at: int) -> list[State]:
    """What is written again, in steps, with postings in between being no concern of it."""
    written = []
    for key in list(windows.stale(Position(before))):
        record = windows.renewed(key, Position(before), 5)
        assert record is not None
        windows.set(record, Position(at))
        written.append(record)
    return written


def test_a_checkpoint_writes_what_only_older_records_tell() -> None:
    windows = filled(BLOCK_IDS * 2 + 10, limit=100_000)
    windows.set(windows.limit_record("a", 1_000, 1), Position(5))
    before = Position(BLOCK_IDS * 10 + 15)  # in the second block
    written = checkpoint(windows, before, 100_000)
    assert len(written) == 3
    assert not list(windows.stale(before))
    copy = Windows()
    copy.begin_in_the_middle()
    for record in written:
        copy.set(record, Position(1))
    copy.all_known()
    assert [one.sequence for one in copy.by_address["a"]] == list(range(1, BLOCK_IDS * 2 + 1))
    assert copy.by_address["a"].limit == 1_000


def test_what_was_set_again_meanwhile_is_not_written_twice() -> None:
    windows = filled(5)
    (key,) = windows.stale(Position(1_000))
    record = windows.renewed(key, Position(1_000), 5)
    assert record is not None
    windows.set(record, Position(2_000))
    assert windows.renewed(key, Position(1_000), 5) is None
    windows.forget(b"a")
    assert windows.renewed(key, Position(10_000), 5) is None


def test_no_limit_is_applied_before_it_is_known() -> None:
    windows = Windows()
    windows.begin_in_the_middle()
    for sequence in range(LIMIT + 5):
        windows.remember("a", entry(sequence + 1), Position(sequence))
    assert windows.ids == LIMIT + 5
    windows.all_known()
    assert windows.ids == LIMIT
    assert windows.by_address["a"].limit == LIMIT


def test_ids_that_a_transaction_held() -> None:
    windows = filled(2)
    windows.set(block_record("a", [entry(3), entry(4)], 1), Position(100))
    windows.remember("a", entry(5), Position(110))
    assert [one.sequence for one in windows.by_address["a"]] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("value", [b"\1", b"\1" * 20, b""])
def test_records_that_make_no_sense(value: bytes) -> None:
    key = b"a\0" + bytes(8)
    with pytest.raises(ValueError, match=r"field"):
        Windows().set(State(1, Namespace.DUPLICATES, key if value else b"a", value), Position(1))


@pytest.mark.parametrize("seed", range(80))
def test_a_fold_that_begins_anywhere_ends_with_the_same_windows(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log as a list of records; segments of 40 leave from the front, what mattered in them written again behind.
    A fold over what is left must say what the whole says, and what a plain list of the latest ids says."""
    monkeypatch.setattr(duplicates, "BLOCK_IDS", 5)
    rng = Random(seed)
    live = Windows()
    log: list[tuple[int, object]] = []
    model: dict[str, list[WindowEntry]] = {}
    limits: dict[str, int] = {}

    def record(told: object) -> None:
        position = Position(len(log))
        log.append((len(log), told))
        _apply(live, told, position)

    def post() -> None:
        nonlocal sequence
        sequence += 1
        address = rng.choice("ab")
        new = entry(sequence, rng.randrange(2), b"s%d" % rng.randrange(200))
        if live.look_up(address, new.identity, new.fingerprint)[0] is not Known.REPEATED:
            model.setdefault(address, []).append(new)
            record((address, new))
            model[address] = model[address][-limits.get(address, LIMIT) :]

    first = sequence = 0
    for _ in range(600):
        address = rng.choice("ab")
        roll = rng.random()
        if roll < 0.01:
            limits[address] = rng.choice((3, 30, 80, 80))
            record(live.limit_record(address, limits[address], 1))
            model[address] = model.get(address, [])[-limits[address] :]
        elif roll < 0.015:
            model.pop(address, None)
            limits.pop(address, None)
            record(address.encode())
        else:
            post()
        if len(log) - first > 100 and rng.random() < 0.2:
            first += 40
            for key in list(live.stale(Position(first))):
                if rng.random() < 0.3:  # the world goes on between two steps of a checkpoint
                    post()
                told = live.renewed(key, Position(first), 1)
                if told is not None:
                    record(told)
            assert not list(live.stale(Position(first)))
            if rng.random() < 0.7:  # killed: the next run begins with what a fold of the rest says
                live = _folded(log, first)
        assert {name: list(window) for name, window in live.by_address.items() if len(window)} == {
            name: entries for name, entries in model.items() if entries
        }
    assert _folded(log, first) == live


def _folded(log: list[tuple[int, object]], first: int) -> Windows:
    windows = Windows()
    if first:
        windows.begin_in_the_middle()
    for position, told in log[first:]:
        _apply(windows, told, Position(position))
    windows.all_known()
    return windows


def _apply(windows: Windows, told: object, position: Position) -> None:
    match told:
        case State():
            windows.set(told, position)
        case bytes():
            windows.forget(told)
        case (str() as address, WindowEntry() as new):
            windows.remember(address, new, position)


def test_a_posting_says_its_id_as_other_extras_are_said() -> None:
    identity, body = b"sx" * 100, bytes(range(8))
    extras = [(Extra.DUPLICATE_ID, identity), (Extra.BODY_FINGERPRINT, body)]
    assert encode_id_extras(identity, int.from_bytes(body, "little")) == encode_extras(extras)
    assert encode_id_extras(identity, 0) == encode_extras(extras[:1])


@pytest.mark.parametrize("identity", [b"s", b"sx", bytes(300)])
@pytest.mark.parametrize("body", [1, (1 << 64) - 1])
def test_what_a_posting_says_of_its_id_is_read_back(identity: bytes, body: int) -> None:
    data = b"before" + encode_id_extras(identity, body)
    for behind in (b"", bytes(20)):
        assert read_id_extras(data + behind, 6, len(data)) == (identity, body)


@pytest.mark.parametrize(
    "extras",
    [
        [],
        [(Extra.BODY_FINGERPRINT, bytes(8))],
        [(Extra.DUPLICATE_ID, bytes(12))],
        [(Extra.DUPLICATE_ID, b""), (Extra.BODY_FINGERPRINT, bytes(8))],
        [(Extra.GROUP_ID, b"group"), (Extra.BODY_FINGERPRINT, bytes(8))],
        [(Extra.DUPLICATE_ID, b"sx"), (Extra.GROUP_ID, b"8 octets")],
        [(Extra.DUPLICATE_ID, b"sx"), (Extra.BODY_FINGERPRINT, bytes(4)), (0x90, b"1")],
        [(Extra.DUPLICATE_ID, b"sx"), (Extra.BODY_FINGERPRINT, bytes(8)), (Extra.LAST_VALUE_KEY, b"k")],
    ],
)
def test_other_extras_of_a_posting_are_left_to_others(extras: list[tuple[int, bytes]]) -> None:
    """Whatever stands behind, or nothing."""
    data = encode_extras(extras)
    for behind in (b"", encode_id_extras(b"sx", 1), encode_id_extras(b"sx", 1)[-11:]):
        assert read_id_extras(data + behind, 0, len(data)) is None


def test_half_of_what_a_posting_says_of_its_id_says_nothing() -> None:
    whole = encode_id_extras(b"sx", 1)
    for end in range(len(whole)):
        assert read_id_extras(whole[:end], 0, end) is None


def test_a_posting_that_is_told_twice_is_there_once() -> None:
    """No broker writes such a journal; a reader says so of the message, and has no error of its own."""
    window = Window(10)
    entry = WindowEntry(5, 1, b"sid")
    window.add(entry, Position(1))
    window.add(entry, Position(2))
    assert (len(window), list(window)) == (1, [entry])
    later = WindowEntry(7, 1, b"sid")
    window.add(later, Position(3))
    assert (len(window), list(window)) == (1, [later])
