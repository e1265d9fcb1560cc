"""The object store, against an S3 server in this process: a name comes to exist once, and doubt is told as doubt."""

from __future__ import annotations

import random

import pytest
import s3fs

from acquit.errors import SpoolError, SpoolUnfit
from acquit.spark.columns import MessageColumns
from acquit.spark.spool import RetentionOptions, Spool, objects
from acquit.spark.spool.objects import ObjectStore
from acquit.spark.spool.store import StoreDoubt
from acquit.spark.spool.verify import verify
from tests.support.queue_double import QueueDouble, bodies, part, posting
from tests.support.s3 import SECRET, Fault, Server


@pytest.fixture
def store(bucket: str, monkeypatch: pytest.MonkeyPatch) -> ObjectStore:
    # Two tries by the client, none by the library below it: enough to see both, and no long pauses.
    monkeypatch.setattr(s3fs.S3FileSystem, "retries", 2)
    monkeypatch.setattr(objects, "_ATTEMPTS", 1)
    return ObjectStore(f"s3://{bucket}/spools/orders/")


@pytest.mark.promise("spool-store")
def test_a_second_write_of_one_name_is_refused(store: ObjectStore) -> None:
    assert store.put_if_absent("log/1", b"first")
    assert not store.put_if_absent("log/1", b"second")
    assert store.get("log/1") == b"first"
    assert store.names("log") == ["1"]


def test_what_is_not_there(store: ObjectStore) -> None:
    assert store.get("log/1") is None
    assert store.view("data/1") is None
    assert store.names("log") == []
    store.remove("log/1")
    store.sync("log")


def test_files_are_read_and_listed_as_they_are_now(store: ObjectStore) -> None:
    store.put("data/1", memoryview(b"a"), b"bc")
    store.put("data/empty", b"", durable=False)
    view, empty = store.view("data/1"), store.view("data/empty")
    assert view is not None and bytes(view) == b"abc" and view.readonly
    assert empty is not None and bytes(empty) == b""
    assert sorted(store.names("data")) == ["1", "empty"]
    store.remove("data/1")
    assert store.names("data") == ["empty"]
    assert store.names("") == [], "a folder is no file"


def test_long_listings_are_read_to_their_end(store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    real = s3fs.S3FileSystem._call_s3

    async def two_a_page(fs: s3fs.S3FileSystem, method: str, **kwargs: object) -> object:
        return await real(fs, method, **kwargs, **({"MaxKeys": 2} if method == "list_objects_v2" else {}))

    for number in range(5):
        store.put(f"data/{number}", b"")
    monkeypatch.setattr(s3fs.S3FileSystem, "_call_s3", two_a_page)
    assert sorted(store.names("data")) == ["0", "1", "2", "3", "4"]


def test_a_put_whose_answer_is_lost_finds_itself(store: ObjectStore, s3_server: Server) -> None:
    s3_server.faults[:] = [Fault.LOST_ANSWER]
    assert store.put_if_absent("log/1", b"ours")
    assert s3_server.faults == []


@pytest.mark.parametrize(
    ("faults", "there"),
    [
        # More than any layer of the client tries.
        ([Fault.LOST_REQUEST] * 20, None),
        ([Fault.LOST_ANSWER] * 20, b"ours"),
        ([Fault.BUSY], None),
        ([Fault.CONFLICT], None),
    ],
)
def test_without_an_answer_that_says_so_it_is_a_doubt(
    store: ObjectStore, s3_server: Server, faults: list[Fault], there: bytes | None
) -> None:
    s3_server.faults[:] = faults
    with pytest.raises(StoreDoubt, match="cannot tell whether log/1 was created"):
        store.put_if_absent("log/1", b"ours")
    assert len(s3_server.faults) < len(faults)
    s3_server.faults.clear()
    assert store.get("log/1") == there


@pytest.mark.promise("spool-store")
def test_who_cannot_read_back_what_refused_it_is_in_doubt(
    store: ObjectStore, s3_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.put_if_absent("log/1", b"first")
    monkeypatch.setattr(s3_server, "method", "GET")
    s3_server.faults[:] = [Fault.LOST_ANSWER] * 20
    with pytest.raises(StoreDoubt, match="cannot tell whether log/1 was created by us"):
        store.put_if_absent("log/1", b"second")


def test_a_bucket_that_is_not_there_is_an_error_and_not_an_empty_spool(store: ObjectStore) -> None:
    missing = ObjectStore("s3://no-such-bucket-here/spool")
    for attempt in (
        lambda: missing.get("owner"),
        lambda: missing.names("log"),
        lambda: missing.put("data/1", b""),
        lambda: missing.put_if_absent("owner", b"x"),
    ):
        with pytest.raises(SpoolError, match=r"spool s3://no-such-bucket-here/spool: cannot .*NoSuchBucket") as caught:
            attempt()
        assert not isinstance(caught.value, StoreDoubt)


def test_a_store_that_cannot_be_reached_is_named_without_its_secret(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    s3fs.S3FileSystem.clear_instance_cache()
    with pytest.raises(SpoolError, match=r"spool s3://b/p: cannot read owner: .*127\.0\.0\.1:9") as caught:
        ObjectStore("s3://b/p").get("owner")
    assert SECRET not in str(caught.value)


@pytest.mark.promise("spool-store")
def test_a_page_of_something_else_is_no_answer(
    store: ObjectStore, s3_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a proxy or another service gives it for whatever is asked: no empty listing, and nothing written."""
    store.put("log/1", b"ours")
    monkeypatch.setattr(s3_server, "page", b"<html><body>Welcome</body></html>")
    for attempt in (lambda: store.names("log"), lambda: store.put("data/1", b"x")):
        with pytest.raises(SpoolError, match="does not answer as S3 does; is the endpoint right"):
            attempt()
    with pytest.raises(StoreDoubt, match="cannot tell whether log/2 was created: .* as S3 does"):
        store.put_if_absent("log/2", b"x")


def test_a_store_proves_itself_and_leaves_nothing(store: ObjectStore, s3_server: Server) -> None:
    s3_server.faults[:] = [Fault.LOST_ANSWER]
    Spool(store).prove()
    assert s3_server.faults == [] and store.names("probes") == []


def test_a_store_without_conditional_writes_is_found_out(
    store: ObjectStore, s3_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s3_server, "conditions", False)
    with pytest.raises(SpoolUnfit, match=r"spool s3://.* lets one name be written twice .*If-None-Match"):
        Spool(store).prove()


def test_a_store_that_lists_late_is_found_out(store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "names", lambda _: [])
    with pytest.raises(SpoolUnfit, match="does not list what it has just been given"):
        Spool(store).prove()


def test_what_no_object_holds_is_refused_before_it_is_sent(store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects, "OBJECT_BYTES_MAX", 3)
    with pytest.raises(SpoolError, match="data/1 has 4 bytes, and an object holds 3: use a smaller maxBytesPerBatch"):
        store.put("data/1", b"fo", b"ur")


def test_every_message_is_a_row_once_though_answers_are_lost_all_the_time(
    store: ObjectStore, s3_server: Server, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """The protocol on the real client: what the model says of doubt (`tests.support.spool_world`) is what it gives."""
    monkeypatch.setattr(s3fs.core, "S3_RETRYABLE_ERRORS", ())  # or nearly all of it would be mended below us
    chance = random.Random(seed)
    faults = [*Fault, *([None] * 12)]
    table: list[bytes] = []
    failures = 0
    queue = QueueDouble()
    for epoch in range(1, 9):
        queue.post(*(posting(10 * epoch + number) for number in range(3)))
        while True:
            s3_server.faults[:] = chance.choices(faults, k=1_000)
            spool = Spool(ObjectStore(store.place), RetentionOptions(checkpoint_entries=3))
            try:
                spool.finish(epoch - 1)
                spool.check_plan(epoch, spool.plan(epoch))
                spool.claim("query")
                rows = bodies(spool.take(part(epoch), queue.attach, MessageColumns("queue")))
                break
            except SpoolError:
                failures += 1  # and Spark runs it again, in another process
        table += rows
    s3_server.faults.clear()
    assert sorted(table) == sorted(f"m{10 * epoch + number}".encode() for epoch in range(1, 9) for number in range(3))
    assert queue.available == [] and failures
    assert verify(store).damage == ()
