"""The tables about the client that people wrote say what its tables and options say."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

import acquit
from acquit.client.modes import FAILED, MODES, SYNONYMS, AckMode, AckScope, CreditReturn, Mode, find_mode
from acquit.client.reconnecting import ConnectionEventKind, Reconnect
from acquit.client.url import FAILOVER_OPTIONS
from acquit.protocol.constants import RELEASED
from acquit.protocol.definitions import RcvSettleMode

DOCS = Path(__file__).resolve().parents[2] / "docs"


def table(page: str, heading: str) -> list[list[str]]:
    """The rows of the first table under a heading, its head included."""
    text = (DOCS / page).read_text().split(f"## {heading}\n", 1)[1]
    lines = re.search(r"(?:^\|.*\n)+", text, re.MULTILINE)
    assert lines is not None
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[0].splitlines()]
    return [rows[0], *rows[2:]]


def page_of(mode: AckMode) -> str:
    return f"mode-{mode.name.lower().replace('_', '-')}.md"


def side_by_side() -> dict[AckMode, dict[str, str]]:
    """Each mode's column of modes.md."""
    head, *rows = table("modes.md", "All of them side by side")
    modes = [AckMode[re.match(r"\[(\w+)\]", cell)[1]] for cell in head[1:]]
    return {mode: {row[0]: row[number] for row in rows} for number, mode in enumerate(modes, 1)}


def values(mode: AckMode) -> list[int]:
    return [mode.value, *(value for value, name in SYNONYMS.items() if name is mode)]


@pytest.mark.parametrize("mode", MODES.values(), ids=lambda mode: mode.name.name)
def test_the_modes_side_by_side(mode: Mode) -> None:
    said = side_by_side()[mode.name]
    assert said["value"] == ", ".join(map(str, values(mode.name)))
    assert ("no effect" in said["`acknowledge`"]) == (mode.scope is AckScope.NOTHING)
    assert ("on acknowledgement" in said["credit comes back"]) == (mode.credit is CreditReturn.ON_ACKNOWLEDGEMENT)
    assert ("unsettled_max" in said["credit comes back"]) == mode.bounded
    assert said["snd-settle-mode"] == mode.snd_settle_mode.name.lower()
    if mode.reliable:
        assert said["rcv-settle-mode asked for"] == mode.rcv_settle_mode.name.lower()
        assert (said["the broker answers"] == "yes") == (mode.rcv_settle_mode is RcvSettleMode.SECOND)
        assert said["closing: still in the buffer"] == "released"
        assert mode.left_in_buffer == RELEASED
        # What is accepted before it is handed out, or in a transaction that a close rolls back, has nothing left.
        exceptions = {AckMode.TRANSACTED: "rolled back", AckMode.PRE_ACK: "–"}
        expected = exceptions.get(mode.name, "modified(delivery-failed)")
        assert said["closing: handed out, no outcome"] == expected
        assert mode.name in exceptions or mode.left_handed_out == FAILED
    else:
        assert said["closing: still in the buffer"] == "lost"


@pytest.mark.parametrize("mode", AckMode, ids=lambda mode: mode.name)
def test_the_page_of_a_mode(mode: AckMode) -> None:
    text = (DOCS / page_of(mode)).read_text()
    assert text.startswith(f"# Mode {mode.name}:")
    _, naming, *_ = text.split("\n\n")
    named = re.match(r'`AckMode\.(\w+)`, `"([\w-]+)"`, ([\d and]+)\.', naming)
    assert named is not None, naming
    assert AckMode[named[1]] is mode
    assert [int(value) for value in named[3].split(" and ")] == values(mode)
    assert find_mode(named[2]).name is mode
    for part in ("**Who wants it:**", "## In a program", "## On the wire", "## What happens when", "## Pitfalls"):
        assert part in text, part
    assert re.search(r"\*\*(?:A|No) receipt", text)
    assert "pictures/" in text


def test_every_option_of_reconnection_with_its_default() -> None:
    said = {
        row[0].strip("`"): row[1].strip("`").replace(",", "")
        for row in table("reconnecting.md", "How it is restored")[1:]
    }
    assert said == {field.name: str(getattr(Reconnect(), field.name)) for field in fields(Reconnect)}


def test_every_failover_option_that_is_understood() -> None:
    said = {
        name for row in table("reconnecting.md", "Several hosts")[1:] for name in re.findall(r"failover\.\w+", row[0])
    }
    assert said == set(FAILOVER_OPTIONS)


def test_every_kind_of_event() -> None:
    said = {row[0].strip("`") for row in table("reconnecting.md", "Being told")[1:]}
    assert said == {kind.name for kind in ConnectionEventKind}


@pytest.mark.parametrize("page", ["from-jms.md", "from-artemisnetclient.md", "from-proton.md"])
def test_pages_for_who_comes_from_elsewhere_name_what_exists(page: str) -> None:
    """Names of acquit in the right columns: classes, methods, options and arguments."""
    text = (DOCS / page).read_text()
    for name in re.findall(r"acquit\.([A-Z]\w+)", text):
        assert hasattr(acquit, name), name
    known = {
        name
        for kind in (acquit.Connection, acquit.Session, acquit.Sender, acquit.Receiver, acquit.Listener)
        for name in dir(kind)
    } | {
        name
        for kind in (acquit.Message, acquit.ReceivedMessage, acquit.Receipt, acquit.SendReceipt)
        for name in dir(kind)
    }
    for line in text.splitlines():
        if line.startswith("| ") and line.count(" | ") == 1:
            here = line.split(" | ")[1]
            for kind, name in re.findall(r"`(session|sender|receiver|message|receipt|listener)\.(\w+)", here):
                assert name in known, f"{kind}.{name}"
