from __future__ import annotations

import pytest

from acquit.cli.exits import Exit
from tests.support.shell import Shell


@pytest.mark.parametrize(
    ("options", "paused"),
    [((), "both"), (("--producers",), "producers"), (("--consumers",), "consumers")],
)
def test_a_queue_is_paused_and_resumed(at_broker: Shell, address: str, options: tuple[str, ...], paused: str) -> None:
    at_broker("queues", "create", address)

    def now() -> object:
        return next(row["paused"] for row in at_broker("queues", "--json").documents if row["name"] == address)

    assert at_broker("pause", address, *options, "--json").documents == [{"queue": address, "paused": paused}]
    assert now() == paused
    ran = at_broker("resume", address)
    assert (ran.code, ran.out) == (Exit.OK, f"{address}: not paused\n")
    assert now() == "none"


def test_what_is_paused_is_told(at_broker: Shell, address: str) -> None:
    at_broker("send", address, "one")
    ran = at_broker("pause", address, "--consumers")
    assert (ran.code, ran.out) == (Exit.OK, f"{address}: paused for consumers\n")
    assert at_broker("receive", address, "--timeout", 0).out == ""
    troubles = at_broker("status", "--json").documents[0]["in_trouble"]
    assert "paused: consumers" in next(found["troubles"] for found in troubles if found["queue"] == address)
    at_broker("resume", address)
    assert "one" in at_broker("receive", address, "--count", 1).out


def test_pausing_what_is_not_there(at_broker: Shell, address: str) -> None:
    at_broker("queues", "create", address)
    ran = at_broker("pause", address + "x")
    assert (ran.code, ran.out) == (Exit.FAILED, "")
    assert f"did you mean {address}" in ran.err
