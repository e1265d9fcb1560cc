"""An inbox against a model: whatever comes in whatever order, with rollbacks, crashes and a window."""

from __future__ import annotations

import sqlite3
from collections import OrderedDict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acquit.client.identity import Identity
from acquit.client.inbox import Inbox, InboxVerdict, SqlInbox

pytestmark = pytest.mark.promise("done-once")

NAMES = ["string:a", "string:b", "ulong:1", None]
BODIES = ["x", "y"]


class Delivered:
    """What the inbox is asked about; its identity is made by `identify` below."""

    def __init__(self, scope: str, name: str | None, body: str) -> None:
        self.identity = Identity(scope, name, body) if name is not None else None


def identify(message: Delivered) -> Identity | None:
    return message.identity


messages = st.builds(Delivered, st.sampled_from(["q", "r"]), st.sampled_from(NAMES), st.sampled_from(BODIES))


def verdict(known: set[Identity], identity: Identity | None) -> InboxVerdict:
    """What it must say."""
    if identity is None:
        return InboxVerdict.UNIDENTIFIED
    if identity in known:
        return InboxVerdict.DUPLICATE
    others = any((other.scope, other.name) == (identity.scope, identity.name) for other in known)
    return InboxVerdict.CHANGED if others else InboxVerdict.NEW


@given(st.lists(st.one_of(messages, st.sampled_from(["commit", "rollback", "restart"])), max_size=60))
def test_in_a_database_exactly_what_was_committed_is_known(steps: list[Delivered | str]) -> None:
    database = sqlite3.connect(":memory:")
    inbox = SqlInbox(database, identify=identify)
    committed: set[Identity] = set()
    known: set[Identity] = set()
    for step in steps:
        match step:
            case "commit":
                database.commit()
                committed = set(known)
            case "rollback":
                database.rollback()
                known = set(committed)
            case "restart":  # the process is gone, and its transaction with it; the database is not
                database.rollback()
                known = set(committed)
                inbox = SqlInbox(database, identify=identify)
            case Delivered() as message:
                assert inbox.remember(message, database.cursor()) is verdict(known, message.identity)  # type: ignore[arg-type]
                if message.identity is not None:
                    known.add(message.identity)
    assert database.execute("SELECT count(*) FROM acquit_inbox").fetchone() == (len(known),)
    database.close()


@given(st.integers(1, 5), st.lists(st.tuples(messages, st.booleans(), st.integers(0, 3)), max_size=60))
def test_in_memory_the_latest_are_known(window: int, steps: list[tuple[Delivered, bool, int]]) -> None:
    now = 0.0
    inbox = Inbox(window, age_max_s=10, identify=identify, clock=lambda: now)
    known: OrderedDict[Identity, float] = OrderedDict()
    for message, works, passes_s in steps:
        now += passes_s
        while known and now - next(iter(known.values())) > 10:
            known.popitem(last=False)
        expected = verdict(set(known), message.identity)
        try:
            with inbox.once(message) as first:  # type: ignore[arg-type]
                assert first is expected
                if not works:
                    raise ZeroDivisionError
        except ZeroDivisionError:
            works = False
        if message.identity is not None and expected:
            known[message.identity] = now
            if len(known) > window:
                known.popitem(last=False)
            if not works:
                known.pop(message.identity, None)
    assert len(inbox) == len(known)
    assert all(bool(inbox.remember(Delivered(i.scope, i.name, i.digest))) is False for i in tuple(known))  # type: ignore[arg-type]
