"""Write a data folder, a spool and what they hold, with the acquit that is on the path: any since the first.

python write.py FOLDER

It uses what was there from the beginning, and looks for the rest: topics, transactions, marks of senders and such are
used where this acquit has them, and `facts.json` says of which of them. What it writes is the same each time but for
ids, times, and what stands in one batch with what.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import shutil
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import acquit
from acquit.broker.configuration import load_options
from acquit.store.options import JournalOptions

JOURNAL = JournalOptions(
    segment_bytes=32 * 1024,
    alignment_bytes=512,
    reserve_segments=1,
    spare_segments=0,
    recovery_bytes_max=96 * 1024,
    archive_bytes_max=448 * 1024,
)
FIRST = '[[address]]\nmatch = "tried"\nmax_delivery_attempts = 2\n'
LATER = """
[security]
anonymous = "loopback"

[users.ada]
password = "lovelace"

[[address]]
match = "news.#"
routing = "multicast"

[[address]]
match = "latest"
last_value = true

[[address]]
match = "ring"
ring_size = 2

[[address]]
match = "read"
non_destructive = true

[[address]]
match = "delayed"
redelivery_delay_ms = 1_000_000_000
"""
"""Settings that the first version did not have."""
QUERY = "6f1f6b0e-0000-4000-8000-000000000001"
CONTAINER = "a-container"
YEAR_2100_MS = 4_102_444_800_000


def main(folder: Path) -> None:
    folder.mkdir(parents=True)
    later = hasattr(acquit, "Subscription")
    file = folder / "acquit.toml"
    file.write_text(FIRST + LATER * later)
    options = dataclasses.replace(load_options(file), journal=JOURNAL)
    data = folder / "stopped"
    facts: dict[str, Any] = {"later": later}
    with acquit.Broker(data, config=options) as broker:
        with acquit.connect(broker.url, **({"container_id": CONTAINER} if later else {})) as connection:
            wear(connection, 40)
            queues(connection)
            if later:
                nodes(connection, facts)
                transactions(connection, facts)
                marks(connection)
                owned(broker.url, facts)
            wear(connection, 24)
            facts["spool"] = spool(broker.url, connection, folder / "spool")
            facts["queues"] = {
                queue.name: looked_at(connection, queue.name)
                for queue in sorted_queues(broker)
                if not is_subscription(queue)
            }
        settle(data)
    facts["balance"] = balance(data)
    (folder / "facts.json").write_text(json.dumps(facts, indent=1, sort_keys=True) + "\n")
    # As a kill leaves it: the last run has not stopped.
    with acquit.Broker(data, config=options) as broker:
        settle(data)
        shutil.copytree(data, folder / "data", ignore=shutil.ignore_patterns("lock", "*.part"))
    shutil.rmtree(data)


def queues(connection: acquit.Connection) -> None:
    """Every outcome there is, beside what stays."""
    session = connection.session("individual")
    sender = session.sender("orders")
    for number in range(10):
        sender.send(message(f"order {number}", message_id=f"id-{number}", priority=number % 3 + 3))
    sender.send(message("with an id", application_properties={"_AMQ_DUPL_ID": "once"}))
    receiver = session.receiver("orders", prefetch=0)
    for act in ("accept", "reject", "release", "modify"):
        taken = receiver.receive(timeout=10)
        assert taken is not None
        if act == "reject":
            taken.reject("orders:wrong", "no such customer")
        elif act == "modify":
            taken.modify(delivery_failed=True, annotations={"x-opt-note": "tried"})
        else:
            getattr(taken, act)()
    receiver.close()
    # One in hand and two ahead, when the link closes over them.
    receiver = session.receiver("orders", prefetch=3)
    assert receiver.receive(timeout=10) is not None
    receiver.close()
    session.sender("tried").send(message("fails twice"))
    tried = session.receiver("tried", prefetch=0)
    for _ in range(2):
        taken = tried.receive(timeout=10)
        assert taken is not None
        taken.modify(delivery_failed=True)
    tried.close()
    session.sender("large").send(message("L" * 20_000))
    session.sender("elsewhere").send(message("not here"))
    receiver = session.receiver("elsewhere", prefetch=0)
    taken = receiver.receive(timeout=10)
    assert taken is not None
    taken.modify(undeliverable_here=True)
    receiver.close()
    session.sender("gone").send(message("volatile"), delivery_mode=acquit.DeliveryMode.NON_PERSISTENT)
    taken = session.receiver("gone", prefetch=0).receive(timeout=10)
    assert taken is not None
    taken.accept()
    session.sender("late").send(message("in the next century", annotations={"x-opt-delivery-time": YEAR_2100_MS}))
    session.close()


def nodes(connection: acquit.Connection, facts: dict[str, Any]) -> None:
    """Topics with durable subscriptions, and queues that displace, delay and are read by all; and a link that is
    refused."""
    session = connection.session("individual")
    with suppress(acquit.errors.AcquitError):
        session.receiver("$no-such-node")
    subscription = acquit.Subscription(name="reader")
    receiver = session.receiver("news.eu", subscription=subscription)
    sender = session.sender("news.eu")
    for number in range(3):
        sender.send(message(f"news {number}"))
    taken = receiver.receive(timeout=10)
    assert taken is not None
    taken.accept()
    receiver.close()
    ended = acquit.Subscription(name="ended")
    session.receiver("news.us", subscription=ended).close()
    session.sender("news.us").send(message("read by nobody"))
    session.unsubscribe(ended)
    facts["subscription"] = ["news 1", "news 2"]
    for address, number in (("latest", 4), ("ring", 4), ("read", 2), ("delayed", 1)):
        sender = session.sender(address)
        for each in range(number):
            sender.send(message(f"{address} {each}", application_properties={"_AMQ_LVQ_NAME": str(each % 2)}))
    for address in ("read", "delayed"):
        receiver = session.receiver(address, prefetch=0)
        taken = receiver.receive(timeout=10)
        assert taken is not None
        if address == "read":
            taken.accept()
        else:
            taken.modify(delivery_failed=True, annotations={"x-opt-note": "tried"})
        receiver.close()
    session.close()


def owned(url: str, facts: dict[str, Any]) -> None:
    """A durable subscription of a user."""
    with acquit.connect(url, container_id=CONTAINER, username="ada", password="lovelace") as connection:
        session = connection.session("individual")
        session.receiver("news.eu", subscription=acquit.Subscription(name="hers")).close()
        session.sender("news.eu").send(message("news 3"))
    facts["subscription"].append("news 3")


def transactions(connection: acquit.Connection, facts: dict[str, Any]) -> None:
    """One that is committed and one that is rolled back, each of a posting and an acknowledgement."""
    for end in ("commit", "rollback"):
        session: Any = connection.session("transacted")
        session.sender("orders").send(message(f"transacted, {end}"))
        facts.setdefault("transactions", {})[end] = session._core.transactions.current.txn_id.hex()
        receiver = session.receiver("orders", prefetch=0)
        assert receiver.receive(timeout=10) is not None
        getattr(session, end)()
        receiver.close()
        session.close()


def marks(connection: acquit.Connection) -> None:
    """A sender that numbers its messages, two of them."""
    from acquit.client.sending import Encoded
    from acquit.protocol.numbered import place_section

    session = connection.session()
    sender = session.sender("numbered", properties={"acquit:sender-mark": "a-sender"})
    for index in range(2):
        body = f"row {index}".encode()
        section = (
            b"\x00\x53\x70\xc0\x02\x01\x41"
            + place_section((7, index, 1))
            + b"\x00\x53\x75\xa0"
            + bytes((len(body),))
            + body
        )
        sender.send(Encoded(section))  # type: ignore[arg-type]
    session.close()


def wear(connection: acquit.Connection, messages: int) -> None:
    """Enough of what comes and goes for segments to leave, and for retention to delete some."""
    session = connection.session("auto")
    sender = session.sender("worn")
    receiver = session.receiver("worn")
    for number in range(messages):
        sender.send(message(f"worn {number} " + "w" * 6_000))
        assert receiver.receive(timeout=10) is not None
    session.close()


def spool(url: str, connection: acquit.Connection, place: Path) -> dict[str, Any]:
    """Two epochs of a stream: one that Spark has committed, and one of which it has not heard."""
    from pyspark.sql.streaming.datasource import ReadMaxRows
    from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType

    from acquit.spark.source import AcquitDataSource

    session = connection.session()
    sender = session.sender("stream")
    for number in range(7):
        sender.send(message(f"row {number}", message_id=f"row-{number}"))
    session.close()
    names = ("acquit.spark.stream", "acquit.spark.source")
    module = importlib.import_module(next(name for name in names if importlib.util.find_spec(name)))
    context = SimpleNamespace(getLocalProperty=lambda name: QUERY)
    columns = {"message_id": StringType(), "sequence": LongType(), "body": BinaryType()}
    schema = StructType([StructField(name, kind) for name, kind in columns.items()])
    options = {"url": url, "address": "stream", "spool": str(place), "parts": "1"}
    reader = AcquitDataSource(options).streamReader(schema)
    offsets, rows = [dict(reader.initialOffset())], []
    with patch.object(module, "TaskContext", SimpleNamespace(get=lambda: context)):
        for _ in range(2):
            start, end = offsets[-1], dict(reader.latestOffset(offsets[-1], ReadMaxRows(3)))
            if rows:
                reader.commit(start)
            batches = [batch for part in reader.partitions(start, end) for batch in reader.read(part)]
            rows.append(
                [[row["message_id"], row["sequence"], row["body"].decode()] for b in batches for row in b.to_pylist()]
            )
            offsets.append(end)
    reader.stop()
    return {"offsets": offsets, "rows": rows, "query": QUERY}


# -- what this acquit calls things -------------------------------------------------------------------------------------


def message(body: str, **fields: Any) -> acquit.Message:
    return acquit.Message(body, **fields)


def sorted_queues(broker: acquit.Broker) -> list[Any]:
    return sorted(broker.inspect().queues, key=lambda queue: queue.name)


def is_subscription(queue: Any) -> bool:
    return queue.name.startswith("news")


def looked_at(connection: acquit.Connection, queue: str) -> list[list[Any]]:
    """What a browser sees: sequence, body, delivery-count, priority, message id."""
    session = connection.session()
    receiver = session.receiver(queue, browse=True, prefetch=0)
    found = []
    while (seen := receiver.receive(timeout=0)) is not None:
        body = seen.body.decode() if isinstance(seen.body, bytes) else seen.body
        found.append([seen.annotations["x-opt-acquit-sequence"], body[:40], seen.delivery_count, seen.priority])
    session.close()
    return found


def settle(data: Path) -> None:
    """Wait until no segment is on its way out."""
    before: object = None
    while before != (now := sorted(path.name for path in data.rglob("*"))):
        before = now
        time.sleep(4)


def balance(data: Path) -> object:
    done = subprocess.run(
        [sys.executable, "-m", "acquit", "ledger", "balance", "--data", str(data), "--json"],
        capture_output=True,
        text=True,
        check=True,
    )
    return (
        json.loads(done.stdout.splitlines()[-1])
        if done.stdout.count("\n") == 1
        else [json.loads(line) for line in done.stdout.splitlines()]
    )


def serve(folder: Path, *, later: bool) -> None:
    """A broker until the end of standard input; its URL is the first line that it prints."""
    file = folder.with_suffix(".toml")
    file.write_text(FIRST + LATER * later)
    with acquit.Broker(folder, config=load_options(file)) as broker:
        print(broker.url, flush=True)  # noqa: T201
        sys.stdin.read()


def talk(url: str, *, later: bool) -> None:
    """A client that does all that both ends know; what it gets is printed."""
    facts: dict[str, Any] = {}
    with acquit.connect(url, **({"container_id": CONTAINER} if later else {})) as connection:
        queues(connection)
        if later:
            nodes(connection, facts)
            transactions(connection, facts)
            marks(connection)
            owned(url, facts)
        print(json.dumps(looked_at(connection, "orders")))  # noqa: T201


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["serve", folder, later]:
            serve(Path(folder), later=later == "later")
        case ["talk", url, later]:
            talk(url, later=later == "later")
        case [folder]:
            main(Path(folder))
