"""What operators did and were refused, in the journal."""

from __future__ import annotations

from types import SimpleNamespace

from acquit.broker.auditing import LINES_PER_S, REFUSALS_PER_S, TEXT_MAX, TOO_MANY, Auditor
from acquit.broker.options import AddressRule, BrokerOptions
from acquit.ledger.audit_lines import read_audit
from acquit.ledger.records import AuditLine
from acquit.protocol.message import Message
from acquit.store.reading import FolderReader
from tests.support.broker_world import DATA, START_US, World, after_kill, durable, posted


def lines(world: World) -> list[AuditLine]:
    """Those on the disk, after a second."""
    world.core.tick(world.now_us)
    world.settle()
    return list(read_audit(FolderReader(DATA, after_kill(world.disk))))


def told(world: World) -> list[tuple[str, str]]:
    return [(line.action, line.result) for line in lines(world)]


def test_an_operation_is_recorded_with_who_asked_and_what_came_of_it() -> None:
    world, _ = posted("q", durable(1), durable(2))
    client = world.client("admin", user="ada")
    requests = client.sender("$management", "requests")
    for operation in ("PURGE", "READ", "EXPLODE"):
        properties = {"operation": operation, "type": "acquit:queue", "name": "q"}
        queue = client.receiver("answers", f"for {operation}")
        client.post(requests, Message(None, reply_to="answers", application_properties=properties))
        client.detach(queue)
    assert lines(world) == [AuditLine(START_US, "PURGE acquit:queue", "ada", "admin", "q", "purged 2")]
    world.check_journal()
    assert told(world.crash()) == [("PURGE acquit:queue", "purged 2")]


def test_a_link_that_is_refused_is_recorded() -> None:
    world = World(BrokerOptions(address=(AddressRule("#", {"create": False}),)))
    world.client("shop").receiver("nowhere", "x" * 1_000)
    (line,) = lines(world)
    assert (line.action, line.user, line.peer, line.target) == ("attach", "", "shop", "x" * TEXT_MAX)
    assert line.result.startswith("refused: amqp:not-found")


def test_of_a_flood_the_number_is_recorded() -> None:
    world = World()
    heard: list[bool] = []
    world.core.auditor.tell = lambda refused, by, particulars: heard.append(refused)
    for _ in range(LINES_PER_S + 500):
        world.core.auditor.performed("PURGE acquit:queue", None, "here:1", "q", "refused", refused=True)
    assert heard == [True] * (LINES_PER_S + 500)
    *first, last = lines(world)
    assert [one.action for one in first] == ["PURGE acquit:queue"] * LINES_PER_S
    assert (last.action, last.count) == ("suppressed", 500)
    assert len(lines(world)) == LINES_PER_S + 1
    world.core.auditor.refused("login", None, "here:1", "PLAIN", "refused")
    assert told(world)[-1] == ("login", "refused")


def test_a_flood_that_goes_on_fills_no_disk() -> None:
    world = World()
    batches = []
    for _ in range(30):
        for _ in range(100):
            world.core.auditor.refused("login", None, "here:1", "PLAIN", "refused")
            batches.append(world.sync())
        world.core.tick(world.now_us)
        batches.append(world.sync())
    assert sum(batches) <= 30 + 1, "refusals wait for each other"
    found = lines(world)
    logins = [one for one in found if one.action == "login"]
    assert len(logins) == LINES_PER_S + 29 * REFUSALS_PER_S
    assert sum(one.count for one in found) == 3_000


def test_a_clean_stop_takes_nothing_with_it() -> None:
    world = World()
    world.core.auditor.refused("login", None, "here:1", "PLAIN", "refused")
    assert told(world.stop()) == [("login", "refused")]


def test_no_flood_hides_what_somebody_did() -> None:
    world = World()
    auditor = world.core.auditor
    for _ in range(LINES_PER_S + 5):
        auditor.refused("login", None, "there:1", "PLAIN", "refused")
        auditor.performed("PURGE acquit:queue", "bob", "here:2", "q", "purged 0", refused=False)
    auditor.performed("PURGE acquit:queue", "ada", "here:1", "orders", "purged 9", refused=False)
    world.settle()
    crashed = read_audit(FolderReader(DATA, after_kill(world.disk)))
    assert [one.result for one in crashed] == LINES_PER_S * ["purged 0"] + ["purged 9"], "refusals may wait, this not"
    suppressed = [(line.user, line.count) for line in lines(world) if line.action == "suppressed"]
    assert sorted(suppressed) == [("", 5), ("bob", 5)]


def test_a_full_disk_has_no_room_for_it() -> None:
    written: list[object] = []
    recorder = SimpleNamespace(append=written.append)
    scribe = SimpleNamespace(journal=SimpleNamespace(full=True), recorder=recorder, time_us=1)
    auditor = Auditor(scribe)  # type: ignore[arg-type]
    auditor.refused("login", None, "here:1", "PLAIN", "refused")
    auditor.performed("PURGE acquit:queue", "ada", "here:1", "q", "purged 1", refused=False)
    auditor.tick()
    assert written == []
    scribe.journal.full = False
    auditor.refused("login", None, "here:1", "PLAIN", "refused")
    auditor.tick()
    assert written == [
        AuditLine(1, "login", "", "here:1", "PLAIN", "refused"),
        AuditLine(1, "suppressed", "ada", "", "", TOO_MANY, 1),
        AuditLine(1, "suppressed", "", "", "", TOO_MANY, 1),
    ]
