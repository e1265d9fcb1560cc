"""One attempt at a part: what is drained, published, settled and given back. Schedules are in tests/properties."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import cast
from unittest import mock
from uuid import UUID

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from acquit.errors import MessageUnusable, SpoolDamaged, SpoolFenced
from acquit.protocol.message import Message
from acquit.protocol.types import Timestamp, ULong
from acquit.spark.columns import ChosenMessages, MessageColumns
from acquit.spark.spool import (
    FolderStore,
    Identified,
    MissingIdentity,
    Numbers,
    Outcome,
    Poison,
    Result,
    RetentionOptions,
    Spool,
    entries,
)
from acquit.spark.spool import attempt as attempt_module
from tests.support.queue_double import BROKER, DrainDouble, QueueDouble, bodies, part, plain, posting

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


@pytest.mark.parametrize("at_once", [True, False])
def test_what_was_posted_twice_under_the_named_field_is_one_row(spool: Spool, at_once: bool) -> None:
    """By a producer that began anew: its message has another id."""
    first, again = (posting(number, b"same", message_id=f"id-{number}", order=17) for number in (1, 2))
    other = posting(3, b"other", message_id="id-3", order=17)
    reader = MessageColumns("queue", "application-properties.order")
    queue = QueueDouble(first)
    drains = [[again, other]] if at_once else [[], [again], [other]]
    found: list[bytes] = []
    for epoch, more in enumerate(drains, 1):
        queue.post(*more)
        found += bodies(spool.take(part(epoch), queue.attach, reader))
    totals = spool.status().totals
    assert found == [b"same", b"other"] and set(queue.outcomes().values()) == {Outcome.ACCEPTED}
    assert (totals.rows, totals.set_aside, totals.conflicts, len(queue.settled)) == (2, 1, 1, 3)


@pytest.mark.promise("epochs")
def test_a_number_that_a_broker_gives_again_is_another_message(spool: Spool) -> None:
    """As of a copy of its folder that nobody said was one."""
    queue = QueueDouble(plain(1), plain(2))
    spool.take(part(), queue.attach, READER)
    queue.post(plain(1), plain(2, b"other", posted_ms=1_700_000_000_001))
    result = spool.take(part(2), queue.attach, READER)
    assert bodies(result) == [b"other"]
    assert (result.publication.totals.conflicts, result.publication.totals.set_aside) == (1, 1)


@dataclass(frozen=True, slots=True)
class EarlierReader(MessageColumns):
    """What was there when the log had an earlier format."""

    log_format: int = entries.FIRST_FORMAT

    def identify(self, payloads: Sequence[bytes], broker_id: UUID | None) -> Identified:
        found = MessageColumns.identify(self, payloads, broker_id)
        assert found.named.all()
        return found._replace(identities=self.earlier(found.messages, broker_id, self.log_format))


@contextlib.contextmanager
def log_of(log_format: int) -> Iterator[MessageColumns]:
    """An acquit whose log has an earlier format."""
    with mock.patch.object(entries, "FORMAT", log_format):
        yield EarlierReader("queue", log_format=log_format)


def odd(number: int) -> bytes:
    """A posting whose annotations are not as our broker writes them."""
    annotations = {"x-opt-acquit-sequence": ULong(number), "x-opt-acquit-posted-at": Timestamp(5)}
    return Message(b"m%d" % number, annotations=annotations).encode()


@pytest.mark.promise("epochs")
@pytest.mark.parametrize("checkpoint", [True, False])
@pytest.mark.parametrize("log_format", [entries.FIRST_FORMAT, entries.SECOND_FORMAT])
def test_messages_that_a_spool_of_an_earlier_format_has_are_recognised(
    tmp_path: Path, checkpoint: bool, log_format: int
) -> None:
    options = RetentionOptions(checkpoint_entries=1 if checkpoint else 100)
    spool = Spool(FolderStore(tmp_path / "spool"), options)
    taken = [plain(1), plain(2), odd(3), odd(3)[:-1], posting(4)]
    if log_format == entries.SECOND_FORMAT:
        taken.pop(3)  # the same posting: its time says so
    with log_of(log_format) as earlier:
        queue = QueueDouble(*taken)
        rows = len(bodies(spool.take(part(), queue.attach, earlier)))
        spool.finish(1)
    queue.post(*taken, plain(5))
    result = Spool(FolderStore(tmp_path / "spool"), options).take(part(2), queue.attach, READER)
    assert bodies(result) == [b"m5"]
    totals = result.publication.totals
    assert (rows, totals.set_aside, totals.conflicts) == (len(taken), len(taken), 0)


@pytest.mark.promise("epochs")
@pytest.mark.parametrize("log_format", [entries.FIRST_FORMAT, entries.SECOND_FORMAT])
def test_an_earlier_format_is_looked_up_through_checkpoints_and_merges_until_retention_ends_it(
    tmp_path: Path, log_format: int
) -> None:
    """Nearly each epoch has a checkpoint, and each is by a process that knows nothing but the folder."""
    options = RetentionOptions(checkpoint_entries=1, identity_retention_ms=1_000_000)
    now_ms = 0

    def spool() -> Spool:
        return Spool(FolderStore(tmp_path / "spool"), options, now_ms=lambda: now_ms)

    bad, queue = posting(7, damaged=True), QueueDouble(plain(1), plain(2))
    with log_of(log_format) as earlier:
        for epoch, more in enumerate(([], [plain(3)], [bad]), 1):
            queue.post(*more)
            spool().take(part(epoch, poison=Poison.REJECT), queue.attach, earlier)
            if more != [bad]:  # that is in an entry when we come, and not in a run
                spool().finish(epoch)
    for epoch in range(4, 24):
        queue.post(plain(epoch * 10), *([bad] if epoch == 5 else []))
        assert len(bodies(spool().take(part(epoch), queue.attach, READER))) == 1
        spool().finish(epoch)
        assert spool().state().earlier
    assert len(spool().state().runs) < 10, "they were merged"
    others = [plain(number, b"other", posted_ms=1_700_000_000_001) for number in (2, 220)]
    queue.post(plain(1), bad, *others, plain(230), plain(3))
    result = spool().take(part(24), queue.attach, READER)
    assert bodies(result) == [b"other", b"other"]
    assert (result.publication.totals.conflicts, result.publication.totals.set_aside) == (2, 4)
    assert queue.outcomes()[bad] == Outcome.REJECTED, "as it was recorded"
    spool().finish(24)
    now_ms = 2_000_000
    queue.post(plain(999))
    spool().take(part(25), queue.attach, READER)
    spool().finish(25)
    assert not spool().state().earlier


def test_what_the_second_format_says_of_a_posting() -> None:
    """Digests of what an acquit wrote that is not here any more."""
    identified = READER.identify([plain(5), odd(6), posting(7)], BROKER)
    found = READER.earlier(identified.messages, BROKER, entries.SECOND_FORMAT)
    digests = [sha256(b"s" + BROKER.bytes + sequence.to_bytes(8, "big")).digest() for sequence in (5, 6)]
    times = [1_700_000_000_000, 5]
    assert found.identity[:2].tolist() == [int.from_bytes(one[:8], "little") for one in digests]
    assert found.match_low[:2].tolist() == [int.from_bytes(one[8:16], "little") for one in digests]
    assert found.match_high[:2].tolist() == [
        int.from_bytes(one[16:24], "little") ^ time for one, time in zip(digests, times, strict=True)
    ]
    of_first = READER.earlier(identified.messages, BROKER, entries.FIRST_FORMAT)
    assert of_first.identity.tolist() == found.identity.tolist()
    key, bare = b"s" + BROKER.bytes + (6).to_bytes(8, "big"), b"\x00\x53\x75\xa0\x02m6"
    assert odd(6).endswith(bare)
    assert of_first.match_low[1] == int.from_bytes(sha256(key + sha256(bare).digest()).digest()[:8], "little")


@pytest.mark.promise("epochs")
@pytest.mark.parametrize("at_once", [True, False])
def test_conflicts_are_counted_alike_within_a_part_and_over_several(spool: Spool, at_once: bool) -> None:
    payloads = [posting(0, body, message_id="a") for body in (b"one", b"two", b"three")]
    queue = QueueDouble(broker_id=None)
    for epoch, more in enumerate([payloads] if at_once else [[payload] for payload in payloads], 1):
        queue.post(*more)
        spool.take(part(epoch), queue.attach, READER)
    totals = spool.status().totals
    assert (totals.rows, totals.conflicts) == (3, 2)


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


@pytest.mark.promise("poison")
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


@pytest.mark.promise("identity")
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


def test_what_has_no_sequence_is_not_newer_than_anything() -> None:
    queue = QueueDouble(posting(0, b"a", message_id="a"), broker_id=None)
    drained, ended = attempt_module._drain(queue.attach(), part(until_sequence=0), READER)
    assert (drained.count, ended) == (1, True)


def test_what_is_newer_counts_in_bytes_too(spool: Spool) -> None:
    """It is held like the rest, and a link stalls that has handed out all that it may."""
    queue = QueueDouble(*(posting(number, b"x" * 1_000) for number in (9, 8, 1)))
    result = spool.take(part(until_sequence=5, bytes_max=2_000), queue.attach, READER)
    assert bodies(result) == [] and result.publication.ended and len(queue.available) == 3


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


@pytest.mark.promise("one-spool")
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


@pytest.mark.parametrize("where", [0.1, 0.5, 0.9, 1])
def test_rows_that_were_altered_or_cut_short_are_not_given_out(spool: Spool, tmp_path: Path, where: float) -> None:
    """1 is the end: it is cut short there."""
    spool.take(part(), QueueDouble(posting(1)).attach, READER)
    (file,) = (tmp_path / "spool" / "data").iterdir()
    data = bytearray(file.read_bytes())
    if where < 1:
        data[int(len(data) * where)] ^= 1
    file.write_bytes(data if where < 1 else data[:-1])
    with pytest.raises(SpoolDamaged, match=r"data/1-0-.*the rows of epoch 1 part 0: the checksum does not fit"):
        spool.take(part(), QueueDouble().attach, READER)


# -- lots --------------------------------------------------------------------------------------------------------------


@pytest.fixture(params=[1, 3, 100])
def lot(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """How many messages are received at once."""
    monkeypatch.setattr(DrainDouble, "chunk", request.param)
    return int(request.param)


def sequences(result: Result) -> list[int]:
    return [number for batch in result.batches for number in batch.column("sequence").to_pylist()]


CUT = plain(6)[:-1]
MIXED = [plain(1), posting(2), posting(3, damaged=True), plain(4), posting(5), CUT, plain(7)]
"""Read the short way and the long way, in turns; the third and the sixth cannot be parsed."""


@pytest.mark.usefixtures("lot")
@pytest.mark.parametrize("poison", [Poison.COLUMN, Poison.REJECT])
def test_poison_amid_plain_messages_and_others(spool: Spool, poison: Poison) -> None:
    bad = (MIXED[2], MIXED[5])
    queue = QueueDouble(*MIXED)
    result = spool.take(part(poison=poison), queue.attach, READER)
    rows = [row for batch in result.batches for row in batch.to_pylist()]
    if poison is Poison.COLUMN:
        assert [(row["sequence"], row["corrupt"]) for row in rows] == [
            (number, payload if payload in bad else None) for number, payload in enumerate(MIXED, 1)
        ]
    else:
        assert [(row["sequence"], row["corrupt"]) for row in rows] == [(number, None) for number in (1, 2, 4, 5, 7)]
    unusable = Outcome.ACCEPTED if poison is Poison.COLUMN else Outcome.REJECTED
    wanted = {payload: unusable if payload in bad else Outcome.ACCEPTED for payload in MIXED}
    assert queue.outcomes() == wanted and len(queue.settled) == len(MIXED)

    # The answers are lost: all of it comes again, in another order, and is to be the same.
    again = QueueDouble(*reversed(MIXED))
    result = spool.take(part(2, poison=Poison.COLUMN), again.attach, READER)
    assert sequences(result) == [] and result.publication.totals.set_aside == len(MIXED)
    assert again.outcomes() == wanted


@pytest.mark.usefixtures("lot")
def test_poison_amid_others_that_stops_everything(spool: Spool) -> None:
    queue = QueueDouble(*MIXED)
    with pytest.raises(MessageUnusable, match="2 of 7 messages cannot be parsed"):
        spool.take(part(poison=Poison.FAIL), queue.attach, READER)
    assert queue.available == MIXED and not queue.settled and spool.state().decided == {}


@pytest.mark.usefixtures("lot")
def test_repeats_within_a_lot_and_across_lots(spool: Spool) -> None:
    queue = QueueDouble(*(plain(number) for number in (1, 2, 1, 3, 4, 1, 4)))
    result = spool.take(part(), queue.attach, READER)
    assert sequences(result) == [1, 2, 3, 4] and result.publication.totals.set_aside == 3
    assert len(queue.settled) == 7 and set(queue.outcomes().values()) == {Outcome.ACCEPTED}


@pytest.mark.promise("identity")
@pytest.mark.usefixtures("lot")
def test_messages_without_identity_amid_others(spool: Spool) -> None:
    payloads = [posting(0, b"a", message_id="a"), posting(0, b"none"), b"", posting(0, b"b", message_id="b")]
    queue = QueueDouble(*payloads, broker_id=None)
    with pytest.raises(MessageUnusable, match="2 of 4 messages have no identity"):
        spool.take(part(), queue.attach, READER)
    assert queue.available == payloads
    lenient = MissingIdentity.AT_LEAST_ONCE
    result = spool.take(part(missing_identity=lenient), queue.attach, READER)
    assert bodies(result) == [b"a", b"none", None, b"b"] and result.publication.totals.unidentified == 2
    queue.post(*payloads)
    result = spool.take(part(2, missing_identity=lenient), queue.attach, READER)
    assert bodies(result) == [b"none", None] and result.publication.totals.set_aside == 2


@pytest.mark.usefixtures("lot")
def test_a_field_that_names_messages_comes_before_the_sequence(spool: Spool) -> None:
    twice = [plain(1, b"x", message_id="x"), plain(2, b"y", message_id="y"), plain(3, b"x", message_id="x")]
    queue = QueueDouble(*twice)
    result = spool.take(part(), queue.attach, MessageColumns("queue", "message-id"))
    assert sequences(result) == [1, 2] and len(queue.settled) == 3


def test_a_link_that_is_lost_between_lots(spool: Spool) -> None:
    class Lost(DrainDouble):
        def receive(self, rows_max: int) -> Sequence[bytes]:
            if self._held:
                self.detach()
                return []
            return super().receive(rows_max)

        def settle(self, outcomes: Mapping[Outcome, Numbers]) -> bool:
            return False

    queue = QueueDouble(*(plain(number) for number in range(1, 6)))
    result = spool.take(part(), lambda: Lost(queue), READER)
    assert sequences(result) == [1, 2, 3] and not result.publication.ended and len(queue.available) == 5
    assert spool.status().unacknowledged == 1
    result = spool.take(part(2), queue.attach, READER)
    assert sequences(result) == [4, 5] and result.publication.totals.set_aside == 3
    assert len(queue.settled) == 5 and not queue.available


@given(
    st.lists(st.tuples(st.integers(1, 9), st.integers(0, 3)), max_size=12),
    st.sampled_from([1, 2, 3, 100]),
    st.integers(1, 12),
    st.integers(1, 2_000),
    st.sampled_from([None, 5]),
    st.sampled_from([1, 4, 256]),
)
@example([(1, 1), (2, 1), (3, 1)], 100, 12, 2 * len(plain(1, b"x" * 100)), None, 256)
def test_a_part_takes_what_it_would_take_one_by_one(
    given_messages: list[tuple[int, int]], chunk: int, rows_max: int, bytes_max: int, until: int | None, few: int
) -> None:
    payloads = [plain(sequence, b"x" * 100 * size) for sequence, size in given_messages]
    taken: list[bytes] = []
    newer = size = 0
    ended = False
    for (sequence, _), payload in zip(given_messages, payloads, strict=True):
        if len(taken) + newer == rows_max or size >= bytes_max:
            break
        size += len(payload)
        if until is not None and sequence > until:
            newer += 1
        else:
            taken.append(payload)
    else:
        ended = len(taken) + newer < rows_max and size < bytes_max
    ended = ended or newer > 0

    drain = QueueDouble(*payloads).attach()
    drain.chunk = chunk
    work = part(rows_max=rows_max, bytes_max=bytes_max, until_sequence=until)
    with mock.patch.object(attempt_module, "_FEW", few):
        drained, said = attempt_module._drain(drain, work, READER)
    assert ([payloads[number] for numbers in drained.numbers for number in numbers], said) == (taken, ended)
    identified = drained.identified()
    kept = [payload for some in identified.messages for payload in cast("ChosenMessages", some).payloads()]
    assert kept == taken and len(identified.identities) == len(taken)


@pytest.mark.parametrize(("until", "lots"), [(None, [256, 256, 88]), (0, [256, 256, 88]), (1_000, [256, 256, 88])])
def test_few_messages_are_looked_at_together(until: int | None, lots: list[int]) -> None:
    """They come one by one from a queue that is nearly empty."""
    looked_at: list[int] = []

    class Noting(MessageColumns):
        def identify(self, payloads: Sequence[bytes], broker_id: UUID | None) -> Identified:
            looked_at.append(len(payloads))
            return super().identify(payloads, broker_id)

    drain = QueueDouble(*[plain(1 + number, b"x") for number in range(600)]).attach()
    drain.chunk = 1
    work = part(rows_max=1_000, bytes_max=1 << 20, until_sequence=until)
    drained, ended = attempt_module._drain(drain, work, Noting("q"))
    assert (looked_at, ended, drained.count) == (lots, True, 0 if until == 0 else 600)


def test_newer_messages_are_held_up_to_their_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempt_module, "NEWER_MAX", 10)
    queue = QueueDouble(*[plain(1 + number, b"x") for number in range(600)])
    drain = queue.attach()
    drain.chunk = 1
    drained, ended = attempt_module._drain(drain, part(rows_max=1_000, bytes_max=1 << 20, until_sequence=5), READER)
    assert (drained.count, ended, len(queue.available)) == (5, True, 585)
