from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest

import acquit
from acquit import AckMode
from acquit.demo.manifest import Manifest, ManifestEntry
from acquit.demo.messages import FILES, INGEST
from acquit.demo.sheet import Accounts, Sheet, draw_up, read

A, B, C = (ManifestEntry(path=name, size=1, mtime_ms=0, sha256=name * 64) for name in "abc")
MANIFEST = Manifest(root=Path("/"), frozen_at_ms=0, entries=(A, B, C), left_out={})


def accounts(
    *,
    posted: Iterable[ManifestEntry] = (A, B, C),
    forwarded: Iterable[ManifestEntry] = (A, B),
    dead: Iterable[ManifestEntry] = (C,),
) -> Accounts:
    return Accounts(
        posted=Counter(entry.identity for entry in posted),
        forwarded=Counter(entry.identity for entry in forwarded),
        dead_lettered=Counter(entry.identity for entry in dead),
        redelivered=2,
        balanced=True,
        story=None,
        verified=True,
    )


def row(entry: ManifestEntry) -> tuple[str, str]:
    return entry.path, entry.sha256


def test_it_holds_when_each_file_is_in_the_table_or_dead_lettered() -> None:
    sheet = draw_up(MANIFEST, accounts(), [row(A), row(B)])
    assert sheet.holds
    assert (sheet.files, sheet.posted, sheet.in_table, sheet.dead_lettered, sheet.redelivered) == (3, 3, 2, 1, 2)
    assert (sheet.lost, sheet.doubled, sheet.posted_again, sheet.forwarded_again) == ((), (), 0, 0)


def test_copies_on_the_way_are_shown_and_are_no_doubles() -> None:
    sheet = draw_up(MANIFEST, accounts(posted=(A, A, A, B, C), forwarded=(A, B, B), dead=(C, C)), [row(A), row(B)])
    assert sheet.holds
    assert (sheet.posted, sheet.posted_again, sheet.forwarded_again, sheet.dead_lettered) == (3, 2, 1, 1)


@pytest.mark.parametrize(
    ("rows", "lost", "doubled", "strangers"),
    [
        ([row(A)], (B.identity,), (), ()),
        ([row(A), row(B), row(B)], (), (B.identity,), ()),
        ([row(A), row(B), row(C)], (), (C.identity,), ()),
        ([row(A), (B.path, "f" * 64)], (B.identity,), (), (f"{B.path}#{'f' * 12}",)),
    ],
    ids=["lost", "twice in the table", "in the table and dead-lettered", "changed on the way"],
)
def test_it_does_not_hold(
    rows: list[tuple[str, str]], lost: tuple[str, ...], doubled: tuple[str, ...], strangers: tuple[str, ...]
) -> None:
    sheet = draw_up(MANIFEST, accounts(), rows)
    assert (sheet.lost, sheet.doubled, sheet.strangers) == (lost, doubled, strangers)
    assert not sheet.holds


@pytest.mark.parametrize("field", ["balanced", "verified"])
def test_it_does_not_hold_when_the_ledger_disagrees_with_itself(field: str) -> None:
    honest = accounts()
    crooked = Accounts(**{name: getattr(honest, name) for name in honest.__slots__} | {field: False})
    assert not draw_up(MANIFEST, crooked, [row(A), row(B)]).holds


def test_as_json_has_every_count_and_the_names_of_what_is_wrong() -> None:
    plain = draw_up(MANIFEST, accounts(), [row(A)]).as_json()
    assert (plain["lost"], plain["lost_files"], plain["holds"]) == (1, (B.identity,), False)
    assert set(Sheet.__dataclass_fields__) <= set(plain)


def test_the_journal_tells_who_entered_where_and_what_came_again(tmp_path: Path) -> None:
    with acquit.Broker(tmp_path) as broker, acquit.connect(broker.url) as connection:
        sender = connection.session().sender(FILES)
        for identity in ("a", "b", "b", "c"):
            sender.send(acquit.Message(identity, durable=True, message_id=identity))
        session = connection.session(AckMode.INDIVIDUAL)
        receiver = session.receiver(FILES)
        first = receiver.receive(timeout=10)
        assert first is not None
        first.modify(delivery_failed=True)
        for _ in range(4):
            message = receiver.receive(timeout=10)
            assert message is not None
            if message.body == "c":
                message.reject("amqp:decode-error", "no good")
                continue
            session.sender(INGEST).send(acquit.Message(message.body, durable=True, message_id=message.message_id))
            message.accept()
    found = read(tmp_path)
    assert found.posted == {"a": 1, "b": 2, "c": 1}
    assert found.forwarded == {"a": 1, "b": 2}
    assert found.dead_lettered == {"c": 1}
    assert (found.redelivered, found.story) == (1, first.sequence)
    assert found.balanced
    assert found.verified
