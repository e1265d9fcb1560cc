"""Repair of a spool by hand, planned first and carried out after, so that a dry run shows the very plan.

==================  ===================================================================================================
remove              files that nobody will ask for: costs nothing. With `stopped`, the word of a person that no query
                    is running on the spool, those of attempts that died under way as well
forget              a run of identities that is missing or damaged is struck from the log, so that the query can go on;
                    costs the recognition of its messages
take over           the checkpoint is lost, the spool is not: it is given to the next query that comes, with all its
                    identities. What is published above the floor was acknowledged, and only a person can know whether
                    the table has it: `TakeOver.REPLAY` has the new query give those rows again (they appear twice if
                    the table has them), `TakeOver.FINISH` never again (they are lost if it has not)
==================  ===================================================================================================

An entry of the log that is missing or altered cannot be repaired: nobody knows what it said, and its data file does not
tell which of its rows were skipped. So nothing that it may have named is removed, and its number is given to no other
entry. Restore the spool, or start a new query with a new spool and a new checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final
from uuid import uuid4

from acquit.errors import SpoolDamaged, SpoolError
from acquit.spark.spool import wall_clock_ms
from acquit.spark.spool.entries import FloorRaised
from acquit.spark.spool.housekeeping import RetentionOptions, write_checkpoint
from acquit.spark.spool.log import Log
from acquit.spark.spool.owner import OWNER, SOURCE, give_up
from acquit.spark.spool.store import SpoolStore
from acquit.spark.spool.verify import Damage, LenientLog, SpoolVerification, verify

_CHECKPOINTS_MAX: Final = 100
_FOR_EVER: Final = RetentionOptions(identity_retention_ms=1 << 60, identity_limit=1 << 60)


class TakeOver(StrEnum):
    """Treatment, by the new query, of rows that are published and not known to be in the table."""

    REPLAY = "replay"
    FINISH = "finish"


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairOptions:
    """Options of a repair, as a person asks for it."""

    stopped: bool = False
    """No query is running on the spool."""
    forget: bool = False
    """Strike runs of identities that are damaged."""
    take_over: TakeOver | None = None
    """Implies `stopped`."""


@dataclass(frozen=True, slots=True)
class Action:
    """Step of a repair, and what it costs."""

    what: str
    name: str
    cost: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Repair:
    """The plan, and what it leaves."""

    actions: tuple[Action, ...]
    left: tuple[Damage, ...]
    """Damage that these options do not repair."""
    done: bool
    """False for a dry run."""


def repair(
    store: SpoolStore, options: RepairOptions, *, dry_run: bool = False, now_ms: Callable[[], int] = wall_clock_ms
) -> Repair:
    """Plan what `options` ask for and, unless it is a dry run, do it. May be done again after it was killed.

    Raises SpoolDamaged when a take-over is asked for and the log cannot be read to its end, SpoolOwned when a query
    claims the spool in the middle of one, SpoolError when a query that is running leaves no room for what is asked.
    """
    found = verify(store)
    whole = not any(one.is_entry for one in found.damage)
    forgotten = [one for one in found.damage if one.run is not None] if options.forget and whole else []
    left = [one for one in found.damage if one not in forgotten]
    actions = [Action("forget", one.name, one.cost) for one in forgotten]
    if options.take_over is not None:
        actions += _plan_take_over(store, found, left, options.take_over)
        left = [
            one
            for one in left
            if one.name not in (OWNER, SOURCE) and not (one.name.startswith("data/") and _finishes(options))
        ]
    removed = [*found.leftovers, *(found.unpublished if options.stopped or options.take_over else ())]
    actions += [Action("remove", name) for name in removed]
    if not dry_run:
        if forgotten:
            _forget(store, now_ms())
        if options.take_over is not None:
            _take_over(store, options.take_over)
        for name in removed:
            store.remove(name)
    return Repair(actions=tuple(actions), left=tuple(left), done=not dry_run)


def _forget(store: SpoolStore, now_ms: int) -> None:
    """Write a checkpoint of the log as it can be read; nothing else is forgotten by it. Raises SpoolError where a
    query is always faster to the next number of the log."""
    log = LenientLog(store)
    for _ in range(_CHECKPOINTS_MAX):
        if write_checkpoint(store, log, _FOR_EVER, now_ms)[1]:
            return
    raise SpoolError(f"spool {store.place}: a query is busy with it: stop it, or try again")


def _finishes(options: RepairOptions) -> bool:
    return options.take_over is TakeOver.FINISH


def _plan_take_over(
    store: SpoolStore, found: SpoolVerification, left: Sequence[Damage], take_over: TakeOver
) -> Iterator[Action]:
    log = next((one for one in left if one.is_entry or one.run is not None), None)
    if log is not None:
        raise SpoolDamaged(f"spool {store.place}: {log.name}: {log.problem}: no query can take it over as it is")
    rows = sum(one.totals.rows for one in found.state.decided.values())
    epochs = sorted({epoch for epoch, _ in found.state.decided})
    held = f"{rows} rows of epochs {epochs[0]} to {epochs[-1]}" if epochs else "nothing"
    costs = {
        TakeOver.REPLAY: f"the new query gives {held} again: they appear twice if the table has them",
        TakeOver.FINISH: f"the new query never gives {held}: they are lost unless the table has them",
    }
    before = "nobody" if found.owner is None else found.owner.query or "nobody"
    yield Action("take over", OWNER, f"from {before}; {costs[take_over]}")


def _take_over(store: SpoolStore, take_over: TakeOver) -> None:
    log = Log(store)
    state = log.read()
    if take_over is TakeOver.FINISH:
        last = max((epoch for epoch, _ in state.decided), default=state.floor)
        nonce = uuid4().hex
        state = log.append(lambda latest: FloorRaised(floor=last, nonce=nonce) if latest.floor < last else None)
    give_up(store, state.floor)
