"""The Spark source's own links and driver on brokers that we did not write, without Spark: several addresses,
AvailableNow on brokers that do not say what is there, selectors, and what is refused."""

from __future__ import annotations

import uuid
from pathlib import Path

import pyarrow as pa
import pytest

from acquit import Message
from acquit.errors import ConfigurationError
from acquit.spark.columns import MessageColumns
from acquit.spark.driver import Offset, StreamDriver
from acquit.spark.link import QueueDrain, QueueProbe
from acquit.spark.source_options import SourceOptions
from acquit.spark.spool import FolderStore, Spool
from tests.interop.foreign import ForeignBroker

pytestmark = pytest.mark.interop

VARIABLE = "ACQUIT_TEST_SOURCE_PASSWORD"
SCHEMA = pa.schema([("queue", pa.string()), ("message_id", pa.string()), ("body", pa.binary())])


@pytest.fixture
def addresses(foreign: ForeignBroker) -> list[str]:
    stem = f"source-{uuid.uuid4().hex[:12]}"
    return [foreign.queue(f"{stem}-{name}") for name in "abc"]


def options(
    foreign: ForeignBroker, monkeypatch: pytest.MonkeyPatch, root: Path, addresses: list[str], **more: str
) -> SourceOptions:
    given = {"url": foreign.url, "addresses": ",".join(addresses), "spool": str(root), "drainTimeout": "10s"}
    if foreign.username is not None and foreign.password is not None:
        monkeypatch.setenv(VARIABLE, foreign.password)
        given |= {"user": foreign.username, "credential": f"env:{VARIABLE}"}
    return SourceOptions.parse(given | more)


def post(foreign: ForeignBroker, address: str, *ids: str, **properties: object) -> None:
    with foreign.connect() as connection, connection.session() as session, session.sender(address) as sender:
        for one in ids:
            sender.send(Message(f"body of {one}", message_id=one, application_properties=dict(properties)))


def read(options: SourceOptions, rows_max: int) -> list[tuple[str, str]]:
    """Queue and id of each row of an AvailableNow run on a new checkpoint."""
    spool = Spool(FolderStore(options.spool), options.retention)
    driver = StreamDriver(options, spool, QueueProbe(options))
    driver.begin_available_now()
    start: Offset = driver.initial_offset()
    found = []
    while (end := driver.latest_offset(start, rows_max)) != start:
        driver.commit(start)
        for planned in driver.partitions(start, end):
            part, address = planned.part, planned.address
            reader = MessageColumns(address, options.identity_field)
            result = spool.take(part, lambda: QueueDrain(options, address, part.rows_max, part.bytes_max), reader)  # noqa: B023
            found += [row for batch in reader.select(result.batches, SCHEMA) for row in batch.to_pylist()]
        start = end
        assert start["epoch"] < 20, "it must end"
    driver.stop()
    assert all(row["body"] == f"body of {row['message_id']}".encode() for row in found)
    return [(row["queue"], row["message_id"]) for row in found]


def test_several_addresses_are_read_to_their_ends_each_message_once(
    foreign: ForeignBroker, addresses: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    posted = {(addresses[0], f"id-{number}") for number in range(7)} | {(addresses[2], "id-0"), (addresses[2], "x")}
    for address, one in sorted(posted):
        post(foreign, address, one)
    chosen = options(foreign, monkeypatch, tmp_path / "spool", addresses)
    found = read(chosen, 6)
    assert len(found) == len(posted) and set(found) == posted
    assert [one for queue, one in found if queue == addresses[0]] == [f"id-{number}" for number in range(7)]


def test_a_selector_is_applied_or_refused(
    foreign: ForeignBroker, addresses: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = addresses[0]
    post(foreign, address, "red-1", "red-2", colour="red")
    post(foreign, address, "blue", colour="blue")
    chosen = options(foreign, monkeypatch, tmp_path / "spool", [address], selector="colour = 'red'")
    if foreign.can.selector:
        assert read(chosen, 100) == [(address, "red-1"), (address, "red-2")]
    else:
        with pytest.raises(ConfigurationError, match=f"option selector: the broker at {foreign.url} does not apply"):
            read(chosen, 100)
    rest = options(foreign, monkeypatch, tmp_path / "other", [address])
    assert len(read(rest, 100)) == (1 if foreign.can.selector else 3), "nothing else was taken"


def test_depth_is_told_by_acquit_alone(
    foreign: ForeignBroker, addresses: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    post(foreign, addresses[1], "one")
    probe = QueueProbe(options(foreign, monkeypatch, tmp_path, addresses))
    depths = [probe.available(address) for address in addresses]
    assert depths == ([0, 1, 0] if probe.broker_id is not None else [None, None, None])
    probe.close()
