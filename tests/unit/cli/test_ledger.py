from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

import pytest

import acquit
from acquit.cli.exits import Exit
from acquit.ledger.events import Event, EventFlag, EventKind
from acquit.ledger.records import Actor, Attempt, AuditLine, Cause, MessageId, Queue, encode_id, encode_posting_meta
from acquit.ledger.recovery import OpenedJournal, close_journal, open_journal, write_now
from tests.support.bad_sectors import lose_sectors
from tests.support.shell import Shell

SECOND_US = 1_000_000
BEGIN_US = 1_767_225_600 * SECOND_US  # 2026-01-01


@dataclass
class Author:
    """Writes a journal as a broker would."""

    opened: OpenedJournal
    now_us: int = BEGIN_US

    def tick(self) -> int:
        self.now_us += SECOND_US
        return self.now_us

    def post(self, queue: int, payload: bytes, message_id: MessageId | None, origin: int = 0) -> tuple[int, int]:
        """Post to a queue, or dead-letter from `origin`: its sequence and fingerprint."""
        kind = EventKind.DEAD_LETTERED_IN if origin else EventKind.POSTED
        sequence = self.opened.sequences.take(self.now_us)
        meta = encode_posting_meta(b"orders", encode_id(message_id))
        _, fingerprint = self.opened.recorder.posted(
            sequence, queue, payload, meta, self.tick(), kind=kind, origin=origin
        )
        return sequence, fingerprint

    def change(self, kind: EventKind, sequence: int, fingerprint: int, queue: int = 1, **event: int) -> None:
        self.opened.recorder.transition(kind, sequence, queue, fingerprint, self.tick(), **event)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Two runs. #1 was accepted in the second; #2 was rejected and is now #3 in DLQ; one with a uuid is live."""
    folder = tmp_path / "data"
    author = Author(open_journal(folder, sequence_block=100))
    recorder = author.opened.recorder
    recorder.append(Queue(BEGIN_US, 1, "orders", "orders"))
    recorder.append(Queue(BEGIN_US, 2, "DLQ", "DLQ"))
    recorder.append(Actor(BEGIN_US, 7, "shop", "link-1", "alice", "orders"))
    first = author.post(1, b"one order", "o-1")
    second = author.post(1, b"another", "o-2")
    author.change(EventKind.ACQUIRED, *first, actor=7)
    author.change(EventKind.MODIFIED, *first, actor=7, attempt=1, flags=EventFlag.DURABLE | EventFlag.CONNECTION_LOST)
    author.change(EventKind.ACQUIRED, *second, actor=7)
    dead, _ = author.post(2, b"another", "o-2", origin=second[0])
    event = Event(second[0], dead, author.tick(), second[1], 1, 7, EventKind.DEAD_LETTERED, EventFlag.DURABLE, 1, 0)
    recorder.append(Attempt(event, Cause.REJECTED, "acquit:rejected", "no such customer"))
    write_now(recorder)
    close_journal(recorder, author.tick())

    again = Author(open_journal(folder, sequence_block=100), author.now_us)
    again.change(EventKind.ACCEPTED, *first)
    again.post(1, b"third", UUID(int=3))
    write_now(again.opened.recorder)
    close_journal(again.opened.recorder, again.tick())
    return folder


def test_the_life_of_a_message_over_a_restart(shell: Shell, data: Path) -> None:
    ran = shell("ledger", "show", "1", "--data", data)
    assert ran.code == Exit.OK
    head, _, *events = ran.out.splitlines()
    assert head == "#1  id o-1  orders  9 bytes  accepted"
    told = [" ".join(line.split()) for line in events]
    assert told == [
        "2026-01-01T00:00:01.000Z posted orders the broker",
        "2026-01-01T00:00:03.000Z acquired orders shop link-1 alice",
        "2026-01-01T00:00:04.000Z modified orders 1 shop link-1 alice connection-lost",
        "-- the broker was started again --",
        "2026-01-01T00:00:09.000Z accepted orders the broker",
    ]


def test_what_a_message_became_is_told_with_it(shell: Shell, data: Path) -> None:
    ran = shell("ledger", "show", "o-2", "--data", data)
    assert "#2  id o-2  orders  7 bytes  dead-lettered" in ran.out
    assert "became #3" in ran.out
    assert "rejected; acquit:rejected: no such customer" in ran.out
    assert "#3  id o-2  orders  7 bytes  live" in ran.out
    assert "from #2" in ran.out


def test_who_read_a_message_of_a_non_destructive_queue(shell: Shell, data: Path) -> None:
    author = Author(open_journal(data, sequence_block=100), BEGIN_US + 3_600 * SECOND_US)
    posted = author.post(1, b"a price", "p-1")
    for outcome in (1, 5):
        author.change(EventKind.READ, *posted, actor=7, origin=outcome)
    write_now(author.opened.recorder)
    close_journal(author.opened.recorder, author.tick())
    (life,) = shell("ledger", "show", "p-1", "--data", data, "--json").documents
    assert life["end"] is None
    read = [(step["event"], step["why"]) for step in life["steps"][1:]]
    assert read == [("read", "accepted"), ("read", "modified, delivery failed")]


def test_a_life_as_json(shell: Shell, data: Path) -> None:
    original, copy = shell("ledger", "show", "2", "--data", data, "--json").documents
    assert (original["sequence"], original["end"], original["became"]) == (2, "dead_lettered", 3)
    assert (copy["sequence"], copy["end"], copy["came_from"]) == (3, None, 2)
    assert [step["event"] for step in original["steps"]] == ["posted", "acquired", "dead_lettered"]
    assert original["steps"][2]["why"] == "rejected; acquit:rejected: no such customer; became #3"
    assert original["message_id"] == "o-2"


@pytest.mark.parametrize("name", ["4", "#4", str(UUID(int=3))])
def test_a_message_is_found_by_whatever_names_it(shell: Shell, data: Path, name: str) -> None:
    sequence = shell("ledger", "show", str(UUID(int=3)), "--data", data, "--json").documents[0]["sequence"]
    name = name.replace("4", str(sequence)) if len(name) < 3 else name
    assert shell("ledger", "show", name, "--data", data, "--json").documents[0]["sequence"] == sequence


def test_a_message_that_is_not_there(shell: Shell, data: Path) -> None:
    ran = shell("ledger", "show", "nobody", "--data", data)
    assert (ran.code, ran.out) == (Exit.FAILED, "")
    assert ran.err == f"acquit: no message nobody in {data}, whose journal reaches back to segment 1\n"


@pytest.mark.parametrize("name", [str(2**64), f"#{2**64}", "1" * 5_000])
def test_no_message_has_a_number_that_none_can_have(shell: Shell, data: Path, name: str) -> None:
    ran = shell("ledger", "show", name, "--data", data)
    assert (ran.code, ran.out) == (Exit.FAILED, "")
    assert ran.err.startswith(f"acquit: no message {name} in ")


def test_a_name_that_is_no_text(shell: Shell, data: Path) -> None:
    ran = shell("ledger", "show", os.fsdecode(b"\xff"), "--data", data)
    assert (ran.code, ran.out) == (Exit.USAGE, "")
    assert ran.err == "acquit: expected a sequence, or an id in UTF-8, found '\\udcff'\n"


def test_a_number_may_be_meant_as_an_id(shell: Shell, data: Path) -> None:
    assert shell("ledger", "show", "1", "--id", "--data", data).code == Exit.FAILED


def test_the_balance(shell: Shell, data: Path) -> None:
    ran = shell("ledger", "balance", "--data", data)
    assert ran.code == Exit.OK
    told = [" ".join(line.split()) for line in ran.out.splitlines()]
    assert told == [
        "queue entered posted dead-lettered-in = live available + accepted + dead-lettered",
        "orders 3 3 0 1 1 1 1",
        "DLQ 1 0 1 1 1 0 0",
        "total 4 3 1 2 2 1 1",
        "balanced",
    ]


def test_the_balance_as_json(shell: Shell, data: Path) -> None:
    orders, dead, verdict = shell("ledger", "balance", "--data", data, "--json").documents
    assert (orders["queue"], orders["entered"], orders["live"]) == ("orders", 3, 1)
    assert orders["by_exit"] == {"accepted": 1, "dead_lettered": 1}
    assert dead["by_entry"] == {"dead_lettered_in": 1}
    assert verdict == {"balanced": True, "held": 0, "anomalies": []}


def test_a_balance_that_does_not_hold_is_an_exit_code(shell: Shell, data: Path) -> None:
    author = Author(open_journal(data))
    author.change(EventKind.ACCEPTED, 1, 9 << 32)  # a second time
    write_now(author.opened.recorder)
    close_journal(author.opened.recorder, author.tick())
    ran = shell("ledger", "balance", "--data", data)
    assert ran.code == Exit.UNSOUND
    assert "NOT balanced" in ran.out
    assert "orders: 3 entered and 3 were retired, which leaves 0; 1 are live" in ran.err
    assert "ACCEPTED of message 1, which is not live" in ran.err


def test_verify_and_head(shell: Shell, data: Path) -> None:
    head = shell("ledger", "head", "--data", data).out.strip()
    ran = shell("ledger", "verify", "--data", data, "--against", head)
    assert ran.code == Exit.OK
    assert f"head {head}\nthe journal is whole\n" in ran.out
    document = shell("ledger", "head", "--data", data, "--json").documents[0]
    assert document["head"] == head
    *segments, verdict = shell("ledger", "verify", "--data", data, "--json").documents
    assert [segment["segment"] for segment in segments] == [1, 2]
    assert verdict == {"whole": True, "head": head, "problems": [], "left_behind": []}


def test_damage_is_named(shell: Shell, data: Path) -> None:
    segment = min((data / "journal").glob("*1.segment*"), default=None) or min((data / "journal").iterdir())
    content = bytearray(segment.read_bytes())
    content[content.index(b"one order")] ^= 1
    segment.write_bytes(content)
    ran = shell("ledger", "verify", "--data", data)
    assert ran.code == Exit.UNSOUND
    assert "segment 1:" in ran.err
    ran = shell("ledger", "balance", "--data", data)
    assert ran.code == Exit.UNSOUND
    assert len(ran.err.splitlines()) == 1
    assert str(segment) in ran.err and "offset" in ran.err


@pytest.mark.parametrize("command", ["balance", "show 1", "verify"])
def test_damage_in_the_newest_segment_is_no_torn_tail(shell: Shell, tmp_path: Path, command: str) -> None:
    """What was written behind it proves that it had been there: a broker refuses such a journal, and so does a look."""
    author = Author(open_journal(tmp_path / "data"))
    author.change(EventKind.POSTED, 1, 9 << 32)
    for _ in range(2):
        write_now(author.opened.recorder)
        author.change(EventKind.ACQUIRED, 1, 9 << 32)
    (segment,) = (tmp_path / "data" / "journal").glob("*.seg")
    content = bytearray(segment.read_bytes())
    content[5000] ^= 1
    segment.write_bytes(content)
    ran = shell("ledger", *command.split(), "--data", tmp_path / "data")
    assert ran.code == Exit.UNSOUND
    assert "destroyed after it was synced" in ran.err
    author.opened.journal.close()


def test_a_journal_that_lacks_messages(shell: Shell, tmp_path: Path) -> None:
    """It is refused until somebody decides; then the loss is a term of the balance."""
    data = tmp_path / "data"
    author = Author(open_journal(data))
    author.opened.recorder.append(Queue(1, 1, "orders", "orders"))
    author.change(EventKind.POSTED, 1, 9 << 32)  # an event without a posting: there is no such message
    close_journal(author.opened.recorder, author.tick())
    ran = shell("serve", "--data", data, "--port", 0)
    assert ran.code == Exit.UNSOUND
    assert len(ran.err.splitlines()) == 1
    assert "orders: 1 entered and 0 were retired, which leaves 1; 0 are live" in ran.err
    assert "--accept-loss" in ran.err
    assert shell("ledger", "verify", "--data", data).code == Exit.UNSOUND
    assert shell("ledger", "balance", "--data", data).code == Exit.UNSOUND
    opened = open_journal(data, accept_loss=True)
    close_journal(opened.recorder, author.tick())
    ran = shell("ledger", "balance", "--data", data)
    assert ran.code == Exit.UNSOUND, "the event itself does not fit"
    assert [" ".join(line.split()) for line in ran.out.splitlines()][:2] == [
        "queue entered = live + lost",
        "orders 1 0 1",
    ]
    document, _ = shell("ledger", "balance", "--data", data, "--json").documents
    assert (document["lost"], document["mismatch"]) == (1, None)


@pytest.mark.parametrize("command", ["balance", "verify", "head"])
def test_a_folder_without_a_journal(shell: Shell, tmp_path: Path, command: str) -> None:
    ran = shell("ledger", command, "--data", tmp_path)
    assert ran.code == Exit.USAGE
    assert ran.err == f"acquit: {tmp_path} is not a data folder of acquit: it has no broker.json\n"


@pytest.mark.parametrize("command", [["show", "1"], ["balance"], ["verify"], ["head"], ["audit-log"]])
def test_a_place_that_cannot_be_read(
    shell: Shell, data: Path, monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    path = data / "journal" / f"{2:020}.seg"
    lose_sectors(monkeypatch, path, 4096)
    ran = shell("ledger", *command, "--data", data)
    assert ran.code == Exit.UNSOUND
    assert f"{path}, offset 4096: cannot be read: Input/output error\n" in ran.err
    if command == ["verify"]:
        assert [line.split()[-1] for line in ran.out.splitlines()[1:3]] == ["whole", "damaged"]


def test_a_head_that_is_none(shell: Shell, data: Path) -> None:
    ran = shell("ledger", "verify", "--data", data, "--against", "x")
    assert ran.code == Exit.USAGE
    assert "expected STORE:NUMBER:BYTES:SHA256" in ran.err


def test_queues_of_a_stopped_broker(shell: Shell, data: Path) -> None:
    first, second = shell("queues", "--data", data, "--json").documents
    assert (first["name"], first["depth"], first["entered"]) == ("orders", 1, 3)
    assert (second["name"], second["depth"], second["body_bytes"]) == ("DLQ", 1, 7)
    shown = [" ".join(line.split()) for line in shell("queues", "--data", data).out.splitlines()]
    assert shown == [
        "name depth available acquired body bytes entered",
        "orders 1 1 0 5 3",
        "DLQ 1 1 0 7 1",
    ]


def test_what_was_suppressed_is_told_beside_the_balance(shell: Shell, tmp_path: Path) -> None:
    data = tmp_path / "data"
    with acquit.Broker(data) as broker, acquit.connect(broker.url) as connection, connection.session() as session:
        sender = session.sender("orders")
        for _ in range(3):
            sender.send(acquit.Message("x", message_id="m", application_properties={"_AMQ_DUPL_ID": "one"}))
    orders, _ = shell("ledger", "balance", "--data", data, "--json").documents
    assert (orders["entered"], orders["never_entered"]) == (1, {"duplicate": 2})
    assert "(duplicate)" in shell("ledger", "balance", "--data", data).out
    (life,) = shell("ledger", "show", "m", "--data", data, "--json").documents
    assert [step["event"] for step in life["steps"]].count("duplicate") == 2
    assert "duplicate" in shell("ledger", "show", "m", "--data", data).out


def test_the_audit_log(shell: Shell, tmp_path: Path) -> None:
    folder = tmp_path / "audited"
    opened = open_journal(folder)
    opened.recorder.append(AuditLine(BEGIN_US, "PURGE acquit:queue", "ada", "10.0.0.1:5", "orders", "purged 5"))
    opened.recorder.append(AuditLine(BEGIN_US, "suppressed", "", "", "", "too many", 70))
    write_now(opened.recorder)
    close_journal(opened.recorder, BEGIN_US)
    shown = shell("ledger", "audit-log", "--data", str(folder))
    assert shown.code == Exit.OK
    assert "2026-01-01T00:00:00.000Z" in shown.out and "purged 5" in shown.out and "(70 times)" in shown.out
    first, _ = shell("ledger", "audit-log", "--data", str(folder), "--json").documents
    assert first["user"] == "ada" and first["target"] == "orders" and first["count"] == 1
