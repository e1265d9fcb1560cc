"""Which rows of the product's tables a run reaches: each lookup is noted while `noted` lasts.

The tables are replaced by ones that look the same and note who is asked for. A row that no world reaches is a defect of
the world, unless `UNREACHABLE` or `NEVER_ASKED` say why.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum
from types import ModuleType
from typing import Any, Final, NamedTuple

from acquit.broker import queue
from acquit.broker.message import Message
from acquit.broker.queue import NodeEvent, NodeState
from acquit.client import modes
from acquit.protocol import settlement
from acquit.protocol.settlement import Input, Phase

Row = tuple[str, str, str]
"""Table, state and event (or mode)."""

UNREACHABLE: Final[dict[str, str]] = {
    "RESTART": "recovery reads what it means from the fold",
    "RESTART_VOLATILE": "recovery reads what it means from the fold",
}
"""States and events that cannot occur, and why."""

_HELD: Final = "a posting in a transaction is no message yet: `transact.held_postings` goes by the rows without asking"
_WAITS: Final = "who lets expire, purges or moves takes what waits: the rest is looked at when it comes back"
_RESUMED: Final = "what is suspended is resumed before its outcome is applied"
_CURSOR: Final = "a browser reads by a cursor of its own: nothing changes, and nobody asks"
_NEXT_FRAME: Final = "a frame that is not the first asks only if it ends something"
_NO_WORD: Final = (
    "client and broker settle with their outcome, where they receive, and tell no progress, where they send"
)
_NO_MAP: Final = "what is settled is in no map: what is said of it is not looked up"
_BUILT: Final = "neither client nor broker gives a message up half-way"
_WHOLE: Final = "who decides has the whole message: no frame of it follows"
_TAKEN_BACK: Final = (
    "a client renews nothing that it knows is taken back, and a broker tells a state only where its sender settles last"
)
NEVER_ASKED: Final[dict[Row, str]] = {
    ("a message at a node", "NEW", "POST_HELD"): _HELD,
    ("a message at a node", "HELD", "COMMIT"): _HELD,
    ("a message at a node", "HELD", "ROLL_BACK"): _HELD,
    ("a message at a node", "AVAILABLE", "BROWSE"): _CURSOR,
    **{
        ("a message at a node", state.name, event.name): _WAITS
        for state in (NodeState.PENDING, NodeState.ACQUIRED, NodeState.SUSPENDED)
        for event in (NodeEvent.EXPIRE, NodeEvent.PURGE, NodeEvent.MOVE)
    },
    **{
        ("a message at a node", NodeState.SUSPENDED.name, event.name): _RESUMED
        for event in (NodeEvent.ACCEPT, NodeEvent.REJECT, NodeEvent.REJECT_NOWHERE)
    },
    **{
        ("settlement, sender", phase.name, input_.name): _NEXT_FRAME
        for phase in Phase
        for input_ in (Input.TRANSFER, Input.TRANSFER_SETTLED)
        if phase is not Phase.NEW
    },
    **{
        ("settlement, receiver", phase.name, Input.RECV_TRANSFER.name): _NEXT_FRAME
        for phase in Phase
        if phase is not Phase.NEW
    },
    **{("settlement, sender", phase.name, Input.UPDATE.name): _NO_WORD for phase in Phase},
    **{("settlement, sender", phase.name, Input.ABORT.name): _BUILT for phase in Phase},
    **{("settlement, receiver", phase.name, Input.DECIDE.name): _NO_WORD for phase in Phase},
    **{("settlement, receiver", Phase.DECIDED.name, input_.name): _NO_WORD for input_ in Input},
    ("settlement, receiver", Phase.OFFERED.name, Input.UPDATE.name): _TAKEN_BACK,
    ("settlement, receiver", Phase.DECIDED_SECOND.name, Input.RECV_TRANSFER_SETTLED.name): _WHOLE,
    ("settlement, receiver", Phase.DECIDED_SECOND.name, Input.RECV_ABORT.name): _WHOLE,
    ("settlement, sender", Phase.SETTLED.name, Input.RECV_STATE.name): _NO_MAP,
    ("settlement, sender", Phase.SETTLED.name, Input.RECV_OUTCOME.name): _NO_MAP,
    **{
        (table, Phase.SETTLED.name, input_.name): _NO_MAP
        for table in ("settlement, sender", "settlement, receiver")
        for input_ in (Input.RECV_SETTLED, Input.LOSE)
    },
}
"""Rows that are true, and that nobody looks up."""


def _noting(table: str, state: IntEnum, events: type[IntEnum], steps: tuple[Any, ...], seen: Counter[Row]) -> Any:
    """The steps of one state, which note what they are asked for."""

    class Noting(tuple[Any, ...]):
        __slots__ = ()

        def __getitem__(self, event: Any) -> Any:
            seen[table, state.name, events(event).name] += 1
            return tuple.__getitem__(self, event)

    return Noting(steps)


class Table(NamedTuple):
    """A table `[state][event]`, and where it is."""

    name: str
    module: ModuleType
    attribute: str
    states: type[IntEnum]
    events: type[IntEnum]


TABLES: Final = (
    Table("a message at a node", queue, "STEPS", NodeState, NodeEvent),
    Table("settlement, sender", settlement, "SENDER_STEPS", Phase, Input),
    Table("settlement, receiver", settlement, "RECEIVER_STEPS", Phase, Input),
)

SHORTCUTS: Final = {
    (NodeState.PENDING, NodeState.AVAILABLE): NodeEvent.SYNCED,
    (NodeState.AVAILABLE, NodeState.ACQUIRED): NodeEvent.ACQUIRE,
    (NodeState.AVAILABLE, NodeState.ARCHIVED): NodeEvent.CONSUME,
    (NodeState.ACQUIRED, NodeState.ARCHIVED): NodeEvent.ACCEPT,
}
"""What the hot paths do without asking the table, told by the state before and after. (AVAILABLE to ARCHIVED may be one
that the table is asked for as well: CONSUME is counted too often, and never where there are no such receivers.)"""


@contextmanager
def _shortcuts_noted(seen: Counter[Row]) -> Iterator[None]:
    """Count also the rows that the hot paths take without asking the table."""
    state = Message.__dict__["state"]

    def write(message: Message, after: NodeState) -> None:
        try:
            before = state.__get__(message, Message)
        except AttributeError:  # it is being made
            before = NodeState.NEW
        event = SHORTCUTS.get((before, after))
        if event is not None:
            seen[TABLES[0].name, before.name, event.name] += 1
        state.__set__(message, after)

    Message.state = property(state.__get__, write)  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        Message.state = state


class _Modes(dict[Any, Any]):
    """The acknowledgement modes."""

    def __init__(self, found: dict[Any, Any], seen: Counter[Row]) -> None:
        super().__init__(found)
        self._seen = seen

    def __getitem__(self, mode: Any) -> Any:
        self._seen["acknowledgement modes", mode.name, ""] += 1
        return super().__getitem__(mode)


def is_explained(row: Row) -> bool:
    """Whether a row is not to be reached: then it must not be."""
    return bool(UNREACHABLE.keys() & set(row)) or row in NEVER_ASKED


def all_rows() -> list[Row]:
    """Every row that there is and that can be reached."""
    rows = [
        (name, state.name, event.name)
        for name, module, attribute, states, events in TABLES
        for state in states
        for event in events
        if getattr(module, attribute)[state][event] is not None
    ]
    rows += [("acknowledgement modes", mode.name, "") for mode in modes.MODES]
    return [row for row in rows if not is_explained(row)]


@contextmanager
def noted() -> Iterator[Counter[Row]]:
    """Count the lookups of each row, wherever the product does them."""
    seen: Counter[Row] = Counter()
    others: list[tuple[object, object]] = [(modes.MODES, _Modes(modes.MODES, seen))]
    for name, module, attribute, states, events in TABLES:
        steps = getattr(module, attribute)
        others.append((steps, tuple(_noting(name, state, events, steps[state], seen) for state in states)))
    replaced = [
        (module, attribute, table)
        for module in list(sys.modules.values())
        if module is not None and module.__name__.startswith("acquit.")
        for attribute, value in list(vars(module).items())
        for table, other in others
        if value is table
    ]
    by_id = {id(table): other for table, other in others}
    for module, attribute, table in replaced:
        setattr(module, attribute, by_id[id(table)])
    try:
        with _shortcuts_noted(seen):
            yield seen
    finally:
        for module, attribute, table in replaced:
            setattr(module, attribute, table)


__all__ = ["UNREACHABLE", "Row", "all_rows", "is_explained", "noted"]
