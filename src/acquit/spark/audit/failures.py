"""Translation of what made a run on Spark fail into the error that it is."""

from __future__ import annotations

import re
from typing import Final

from acquit.errors import StoreCorrupt
from acquit.spark.session import failure_of, reason_of

_DAMAGE: Final = re.compile(r"(?P<path>.+), offset (?P<offset>\d+): (?P<message>.+)")
"""Pattern of StoreCorrupt's text."""


def cause_of(error: BaseException) -> BaseException:
    """Return the error to raise for one of `acquit.spark.session.QUERY_ERRORS`: the interrupt that made Spark fail on
    the way out; StoreCorrupt for damage that a task found; else PipelineFailed with the reason in one line."""
    context: BaseException | None = error
    while context is not None:
        if isinstance(context, KeyboardInterrupt):
            return context
        context = context.__context__
    damage = _DAMAGE.fullmatch(reason_of(error))
    if damage is None or "acquit.errors.StoreCorrupt: " not in str(error):
        return failure_of(error)
    return StoreCorrupt(damage["message"], path=damage["path"], offset=int(damage["offset"]))
