"""What earlier versions of acquit wrote opens in this one, with exactly what was in it.

`kept/` has folders that the acquit of some day wrote (`keep.py`): the data folder of a broker that was killed, the
spool of a stream between two batches, and what they hold, as that acquit saw it.
"""

from __future__ import annotations

import dataclasses
import json
import tarfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from zlib import crc32

import pytest
from pyspark.sql.streaming.datasource import ReadMaxRows
from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType

import acquit
from acquit.broker.configuration import load_options
from acquit.broker.machine import MACHINE
from acquit.broker.options import TransactionLimits
from acquit.broker.options.checks import TIME_MS_MAX
from acquit.broker.server import Server
from acquit.client.sending import Encoded
from acquit.ledger.records import RecordKind
from acquit.ledger.verify import verify
from acquit.protocol.extensions import SENDER_MARK
from acquit.protocol.numbered import place_section
from acquit.spark import stream
from acquit.spark.source import AcquitDataSource
from acquit.store.reading import FolderReader
from acquit.store.record import walk
from tests.formats.names import NAMES, names
from tests.formats.write import CONTAINER, JOURNAL, balance, looked_at

KEPT_US = 1_795_500_000_000_000
"""A day after the first folders were kept, 2026-11-24: what is added later was written when the clock was ahead."""
KEPT = sorted((Path(__file__).parent / "kept").glob("*.tar.xz"))
pytestmark = pytest.mark.promise("formats")


@pytest.fixture(params=KEPT, ids=lambda path: path.name.partition(".")[0])
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A copy of what was kept, to be written to."""
    with tarfile.open(request.param) as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path


@pytest.fixture
def facts(kept: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((kept / "facts.json").read_text())
    return found


@pytest.fixture
def broker(kept: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[acquit.Broker]:
    """It goes on with what was kept, at the time of that: some of it waits for days, and some is forgotten then."""
    ahead_us = time.time_ns() // 1000 - KEPT_US
    machine = dataclasses.replace(MACHINE, wall_us=lambda: time.time_ns() // 1000 - ahead_us)
    monkeypatch.setitem(Server.__init__.__kwdefaults__, "machine", machine)
    fates = TransactionLimits(fates_kept_ms=TIME_MS_MAX)
    options = dataclasses.replace(load_options(kept / "acquit.toml"), journal=JOURNAL, transactions=fates)
    with acquit.Broker(kept / "data", config=options) as broker:
        yield broker


@pytest.fixture
def connection(broker: acquit.Broker) -> Iterator[acquit.Connection]:
    with acquit.connect(broker.url) as connection:
        yield connection


def within(old: Any, new: Any) -> bool:
    """Is all of `old` in `new`, which may say more?"""
    if isinstance(old, dict):
        return isinstance(new, dict) and all(key in new and within(value, new[key]) for key, value in old.items())
    if isinstance(old, list):
        return isinstance(new, list) and len(old) == len(new) and all(map(within, old, new))
    return bool(old == new)


def test_the_ledger_verifies_and_balances_as_then(kept: Path, facts: dict[str, Any]) -> None:
    assert verify(kept / "data").problems == ()
    assert within(facts["balance"], balance(kept / "data"))


def test_a_side_file_of_another_version_is_as_good_as_none(kept: Path, facts: dict[str, Any]) -> None:
    for path in (kept / "data").rglob("*.events"):
        data = bytearray(path.read_bytes())
        data[8:12] = (9).to_bytes(4, "little")
        data[124:128] = crc32(data[:124]).to_bytes(4, "little")
        path.write_bytes(data)
    assert within(facts["balance"], balance(kept / "data"))
    """It goes on with what was kept, however long ago that was."""
    fates = TransactionLimits(fates_kept_ms=TIME_MS_MAX)
    options = dataclasses.replace(load_options(kept / "acquit.toml"), journal=JOURNAL, transactions=fates)
    acquit.Broker(kept / "data", config=options).close()
    assert within(facts["balance"], balance(kept / "data"))


def test_a_broker_has_the_messages_that_were_there(facts: dict[str, Any], connection: acquit.Connection) -> None:
    assert {queue: looked_at(connection, queue) for queue in facts["queues"]} == facts["queues"]


def test_what_is_taken_and_posted_now_balances_with_what_was_there(
    kept: Path, facts: dict[str, Any], broker: acquit.Broker
) -> None:
    with acquit.connect(broker.url) as connection:
        session = connection.session()
        for queue, messages in facts["queues"].items():
            receiver = session.receiver(queue, prefetch=0)
            if queue == "read":
                continue
            for _, body, *_ in messages:
                taken = receiver.receive(timeout=10)
                assert taken is not None and str(taken.body).removeprefix("b'").startswith(body[:4])
            assert receiver.receive(timeout=0) is None
        session.sender("orders").send("now")
    broker.close()
    assert verify(kept / "data").problems == ()
    *queues, total = balance(kept / "data")
    assert total["balanced"]
    assert [queue["live"] for queue in queues if queue["queue"] == "orders"] == [1]


def test_ids_marks_fates_and_subscriptions_are_remembered(
    facts: dict[str, Any], broker: acquit.Broker, connection: acquit.Connection
) -> None:
    if not facts["later"]:
        pytest.skip("there were none yet")
    session = connection.session("individual")
    session.sender("orders").send(acquit.Message("with an id", application_properties={"_AMQ_DUPL_ID": "once"}))
    assert looked_at(connection, "orders") == facts["queues"]["orders"]
    sender = session.sender("numbered", properties={SENDER_MARK: "a-sender"})
    for index in (1, 2):
        body = f"row {index}".encode()
        head, data = b"\x00\x53\x70\xc0\x02\x01\x41", b"\x00\x53\x75\xa0" + bytes((len(body),)) + body
        sender.send(Encoded(head + place_section((7, index, 1)) + data))  # type: ignore[arg-type]
    assert [row[1] for row in looked_at(connection, "numbered")] == ["row 0", "row 1", "row 2"]
    for txn_id, fate in (
        (facts["transactions"]["commit"], "COMMITTED"),
        (facts["transactions"]["rollback"], "ROLLED_BACK"),
    ):
        assert connection.transaction_fate(bytes.fromhex(txn_id)).name == fate
    with acquit.connect(broker.url, container_id=CONTAINER) as reader:
        receiver = reader.session().receiver("news.eu", subscription=acquit.Subscription(name="reader"))
        assert [receiver.receive(timeout=10).body for _ in facts["subscription"]] == facts["subscription"]  # type: ignore[union-attr]
        assert receiver.receive(timeout=0) is None


def test_attempts_that_failed_then_count_now(facts: dict[str, Any], connection: acquit.Connection) -> None:
    """The first of the queue has failed as often as its delivery-count says, of the ten times that it may."""
    _, body, count, _ = facts["queues"]["orders"][0]
    session = connection.session("individual")
    receiver = session.receiver("orders", prefetch=0)
    attempts = 0
    while (taken := receiver.receive(timeout=10)) is not None and taken.body == body:
        attempts += 1
        taken.modify(delivery_failed=True)
    assert (count, attempts) in ((1, 9), (2, 8))
    receiver.close()
    assert body in [letter for _, letter, *_ in looked_at(connection, "DLQ")]


def test_a_stream_goes_on_where_it_was(
    kept: Path, facts: dict[str, Any], broker: acquit.Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    then = facts["spool"]
    context = SimpleNamespace(getLocalProperty=lambda name: then["query"])
    monkeypatch.setattr(stream, "TaskContext", SimpleNamespace(get=lambda: context))
    columns = (("message_id", StringType()), ("sequence", LongType()), ("body", BinaryType()))
    options = {"url": broker.url, "address": "stream", "spool": str(kept / "spool"), "parts": "1"}
    reader = AcquitDataSource(options).streamReader(StructType([StructField(*column) for column in columns]))

    def rows(start: dict[str, int], end: dict[str, int]) -> list[list[object]]:
        batches = [batch for part in reader.partitions(start, end) for batch in reader.read(part)]  # type: ignore[arg-type]
        return [[row["message_id"], row["sequence"], row["body"].decode()] for b in batches for row in b.to_pylist()]

    _, first, second = then["offsets"]
    assert rows(first, second) == then["rows"][1], "the batch of which Spark has not heard, once more"
    third = dict(reader.latestOffset(second, ReadMaxRows(10)))
    reader.commit(second)
    assert [row[2] for row in rows(second, third)] == ["row 6"]
    reader.stop()


def test_every_kind_of_record_is_in_what_is_kept(tmp_path: Path) -> None:
    found: Counter[int] = Counter()
    for number, path in enumerate(KEPT):
        with tarfile.open(path) as archive:
            archive.extractall(tmp_path / str(number), filter="data")
        reader = FolderReader(tmp_path / str(number) / "data")
        contents = reader.contents()
        for segment in (*contents.archive, *contents.journal):
            with reader.open(segment) as opened:
                for head, batch in opened.batches():
                    found.update(record.kind for record in walk(head, bytes(batch)))
    assert set(RecordKind) - set(found) == set(), "ask for another archive: see keep.py"


def test_no_name_that_others_rely_on_is_gone_and_new_ones_are_listed() -> None:
    listed, found = set(NAMES.read_text().splitlines()), set(names())
    assert listed - found == set(), "somebody relies on these"
    assert found - listed == set(), "make generate adds them"
