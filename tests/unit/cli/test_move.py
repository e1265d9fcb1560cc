from __future__ import annotations

from acquit.cli.exits import Exit
from tests.support.shell import Shell


def test_messages_are_moved(at_broker: Shell, address: str) -> None:
    at_broker("send", address, "one", "two", "three")
    ran = at_broker("move", address, f"{address}.b", "--max", 2, "--create")
    assert (ran.code, ran.out) == (Exit.OK, f"{address}: 2 messages moved to {address}.b\n")
    assert [row["body"] for row in at_broker("browse", f"{address}.b", "--json").documents] == ["one", "two"]
    assert at_broker("move", address, f"{address}.b", "--json").documents == [
        {"source": address, "target": f"{address}.b", "moved": 1}
    ]


def test_one_message_is_no_messages(at_broker: Shell, address: str) -> None:
    at_broker("send", address, "one")
    assert at_broker("move", address, f"{address}.b", "--create").out == f"{address}: 1 message moved to {address}.b\n"
    assert at_broker("purge", f"{address}.b", "--yes").out == f"{address}.b: 1 message purged\n"


def test_a_selector_says_which(at_broker: Shell, address: str) -> None:
    at_broker("send", address, "one", "two", "--property", "colour=red")
    at_broker("send", address, "three", "--property", "colour=blue")
    assert at_broker("move", address, f"{address}.b", "--selector", "colour = 'blue'", "--create").code == Exit.OK
    assert [row["body"] for row in at_broker("browse", f"{address}.b", "--json").documents] == ["three"]
    ran = at_broker("move", address, f"{address}.b", "--selector", "colour =")
    assert ran.code == Exit.USAGE
    assert ran.err.startswith("acquit: selector, character 9: ")
    assert len(ran.err.splitlines()) == 1


def test_a_queue_is_not_moved_into_itself(at_broker: Shell, address: str) -> None:
    at_broker("send", address, "one")
    ran = at_broker("move", address, address)
    assert ran.code == Exit.USAGE
    assert ran.err == f"acquit: '{address}' cannot be moved into itself: expected another queue\n"


def test_a_mistyped_target_is_not_made(at_broker: Shell, address: str) -> None:
    at_broker("send", address, "one")
    at_broker("send", f"{address}.archive", "old")
    ran = at_broker("move", address, f"{address}.archiv")
    assert ran.code == Exit.FAILED
    assert ran.err.startswith(f"acquit: there is no queue '{address}.archiv'; did you mean {address}.archive")
    names = [row["name"] for row in at_broker("queues", "--json").documents]
    assert f"{address}.archiv" not in names
    assert [row["body"] for row in at_broker("browse", address, "--json").documents] == ["one"]


def test_moving_from_what_is_not_there(at_broker: Shell) -> None:
    ran = at_broker("move", "nobody.knows", "x")
    assert ran.code == Exit.FAILED
    assert ran.err == "acquit: there is no queue 'nobody.knows'\n"
