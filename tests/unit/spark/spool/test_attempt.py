"""One attempt at a part: what is drained, published, settled and given back. Schedules are in tests/properties."""

from __future__ import annotations

from pathlib import Path

import pytest

from acquit.errors import MessageUnusable, SpoolDamaged, SpoolFenced
from acquit.spark.columns import MessageColumns
from acquit.spark.spool import FolderStore, MissingIdentity, Outcome, Poison, Spool
from acquit.spark.spool import attempt as attempt_module
from tests.support.queue_double import QueueDouble, bodies, part, posting

READER = MessageColumns("queue")


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    return Spool(FolderStore(tmp_path / "spool"))


def test_drain_publish_settle_replay(spool: Spool, tmp_path: Path) -> None:
    queue = QueueDouble(posting(1), posting(2))
    result = spool.take(part(), queue.attach, READER)
    assert bodies(result) == [b"m1", b"m2"] and not result.replayed
    assert set(queue.outcomes().values()) == {Outcome.ACCEPTED} and len(queue.settled) == 2

    # Another process reads it again, and asks no broker.
    again = Spool(FolderStore(tmp_path / "spool")).take(part(), queue.attach, READER)
    assert bodies(again) == [b"m1", b"m2"] and again.replayed
    assert queue.attached == 1


def test_an_empty_part_is_decided_too(spool: Spool) -> None:
    queue = QueueDouble()
    first = spool.take(part(), queue.attach, READER)
    assert bodies(first) == [] and first.publication.ended and first.publication.data is None
    queue.post(posting(1))
    assert bodies(spool.take(part(), queue.attach, READER)) == [], "a replay drains nothing"


def test_limits_end_a_part_early(spool: Spool) -> None:
    queue = QueueDouble(*(posting(number) for number in range(1, 10)))
    few = spool.take(part(rows_max=4), queue.attach, READER)
    assert len(bodies(few)) == 4 and not few.publication.ended
    heavy = spool.take(part(2, bytes_max=1), queue.attach, READER)
    assert len(bodies(heavy)) == 1 and not heavy.publication.ended, "the message that passes the limit is the last"
    rest = spool.take(part(3), queue.attach, READER)
    assert bodies(rest) == [f"m{number}".encode() for number in range(6, 10)] and rest.publication.ended


def test_what_comes_again_is_set_aside_and_settled(spool: Spool) -> None:
    queue = QueueDouble(posting(1), posting(2))
    spool.take(part(), queue.attach, READER)
    queue.post(posting(2), posting(3))
    result = spool.take(part(2), queue.attach, READER)
    assert bodies(result) == [b"m3"] and result.publication.totals.set_aside == 1
    assert len(queue.settled) == 4


def test_the_same_id_with_other_content_is_kept_and_counted(spool: Spool) -> None:
    queue = QueueDouble(posting(0, b"one", message_id="a"), broker_id=None)
    spool.take(part(), queue.attach, READER)
    queue.post(posting(0, b"two", message_id="a"))
    result = spool.take(part(2), queue.attach, READER)
    assert bodies(result) == [b"two"]
    assert (result.publication.totals.conflicts, result.publication.totals.set_aside) == (1, 0)


def test_two_deliveries_on_one_link_are_two_messages_unless_the_broker_says_which_posting(spool: Spool) -> None:
    foreign = QueueDouble(*[posting(0, b"same", message_id="a")] * 2, broker_id=None)
    assert bodies(spool.take(part(), foreign.attach, READER)) == [b"same", b"same"]
    ours = QueueDouble(posting(1), posting(1))
    result = spool.take(part(2), ours.attach, READER)
    assert bodies(result) == [b"m1"] and result.publication.totals.set_aside == 1
    assert len(ours.settled) == 2


@pytest.mark.parametrize("damaged", [False, True])
def test_a_repeated_posting_gets_the_outcome_of_its_first_delivery(spool: Spool, damaged: bool) -> None:
    queue = QueueDouble(*[posting(1, damaged=damaged)] * 2)
    spool.take(part(poison=Poison.REJECT), queue.attach, READER)
    expected = Outcome.REJECTED if damaged else Outcome.ACCEPTED
    assert [outcome for _, outcome in queue.settled] == [expected, expected]


def test_poison_as_a_column(spool: Spool) -> None:
    bad = posting(2, damaged=True)
    queue = QueueDouble(posting(1), bad)
    result = spool.take(part(), queue.attach, READER)
    rows = [row for batch in result.batches for row in batch.to_pylist()]
    assert [row["corrupt"] for row in rows] == [None, bad] and rows[1]["sequence"] == 2
    assert result.publication.totals.corrupt == 1 and queue.outcomes()[bad] == Outcome.ACCEPTED


def test_poison_rejected_and_rejected_again_when_it_comes_again(spool: Spool) -> None:
    bad = posting(2, damaged=True)
    queue = QueueDouble(posting(1), bad, posting(3))
    result = spool.take(part(poison=Poison.REJECT), queue.attach, READER)
    assert bodies(result) == [b"m1", b"m3"] and result.publication.totals.rejected == 1
    assert queue.outcomes()[bad] == Outcome.REJECTED
    queue.post(bad)
    later = spool.take(part(2, poison=Poison.COLUMN), queue.attach, READER)
    assert bodies(later) == [] and queue.settled[-1] == (bad, Outcome.REJECTED)


def test_poison_that_stops_everything(spool: Spool) -> None:
    queue = QueueDouble(posting(1), posting(2, damaged=True))
    with pytest.raises(MessageUnusable, match="1 of 2 messages cannot be parsed"):
        spool.take(part(poison=Poison.FAIL), queue.attach, READER)
    assert len(queue.available) == 2 and spool.state().decided == {}


def test_a_message_without_identity(spool: Spool) -> None:
    queue = QueueDouble(posting(0), broker_id=None)
    with pytest.raises(MessageUnusable, match="1 of 1 messages have no identity"):
        spool.take(part(), queue.attach, READER)
    assert len(queue.available) == 1
    lenient = part(missing_identity=MissingIdentity.AT_LEAST_ONCE)
    result = spool.take(lenient, queue.attach, READER)
    assert bodies(result) == [b"m0"] and result.publication.totals.unidentified == 1


def test_available_now_takes_nothing_newer_and_gives_it_back(spool: Spool, monkeypatch: pytest.MonkeyPatch) -> None:
    # Newer ones in front, as with priorities.
    queue = QueueDouble(posting(9), posting(1), posting(8), posting(2))
    result = spool.take(part(until_sequence=5), queue.attach, READER)
    assert bodies(result) == [b"m1", b"m2"] and result.publication.ended
    assert queue.available == [posting(9), posting(8)]
    monkeypatch.setattr(attempt_module, "NEWER_MAX", 1)
    queue.post(*(posting(number) for number in range(10, 20)))
    assert spool.take(part(2, until_sequence=5), queue.attach, READER).publication.ended
    assert len(queue.available) == 12


def test_the_loser_gives_everything_back_and_replays_the_winner(spool: Spool, tmp_path: Path) -> None:
    queue = QueueDouble(posting(1), posting(2))

    def attach_late() -> object:
        drain = queue.attach()
        # While this attempt holds nothing yet, its copy on another worker finishes.
        winner = QueueDouble(posting(7))
        Spool(FolderStore(tmp_path / "spool")).take(part(), winner.attach, READER)
        return drain

    result = spool.take(part(), attach_late, READER)  # type: ignore[arg-type]
    assert bodies(result) == [b"m7"] and result.replayed
    assert len(queue.available) == 2 and not queue.settled
    assert len(list((tmp_path / "spool" / "data").iterdir())) == 2, "the loser's file waits for the floor"


def test_unanswered_settlements_leave_no_acknowledgement(spool: Spool) -> None:
    queue = QueueDouble(posting(1))
    queue.answers = False
    spool.take(part(), queue.attach, READER)
    status = spool.status()
    assert (status.published, status.unacknowledged, status.totals.rows, status.remembered) == (1, 1, 1, 1)


def test_finished_epochs_are_refused(spool: Spool) -> None:
    queue = QueueDouble(posting(1))
    spool.take(part(), queue.attach, READER)
    spool.finish(1)
    with pytest.raises(
        SpoolFenced, match=r"epoch 1 part 0 is finished \(the floor is 1\).*restore the newer checkpoint"
    ):
        spool.take(part(), queue.attach, READER)
    assert queue.attached == 1


def test_a_missing_data_file_is_named(spool: Spool, tmp_path: Path) -> None:
    spool.take(part(), QueueDouble(posting(1)).attach, READER)
    for file in (tmp_path / "spool" / "data").iterdir():
        file.unlink()
    with pytest.raises(SpoolDamaged, match=r"data/1-0-.*the rows of epoch 1 part 0, is missing"):
        spool.take(part(), QueueDouble().attach, READER)
