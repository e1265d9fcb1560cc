"""Count the functions and modules that one message passes in the broker, and keep the count in ARCHITECTURE.md.

    python tools/way_of_a_message.py                what is on the way, as a table (--json: for programs)
    python tools/way_of_a_message.py --functions    the functions themselves, in the order of their first calls
    python tools/way_of_a_message.py --write        put the table between the lines ``<!-- way of a message -->``
    python tools/way_of_a_message.py --check        exit 1 if what stands there is off by more than a twentieth

A broker's core runs on a disk in memory, without sockets and threads. Each way begins with the bytes that arrive and
ends with those of the answer, the sync in between included. The first message of a link is counted apart: from it the
engine learns the shape of the frames that follow. Comprehensions are part of the function that they stand in, as in
Python 3.12 they are; functions that the standard library makes (those of dataclasses) have no source, and do not count.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final

import acquit
from acquit.broker import parking
from acquit.protocol.constants import ACCEPTED

ROOT: Final = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.support.broker_world import Client, World, durable  # noqa: E402  # which is found from here on

PAGE: Final = ROOT / "ARCHITECTURE.md"
TABLE: Final = re.compile(r"(<!-- way of a message -->\n)(.*?)(<!-- end of way -->)", re.DOTALL)
TOLERANCE: Final = 0.05
"""Share by which a figure of the page may be off: it is to be true, and not to change with every function."""
NUMBER: Final = re.compile(r"\d+")
WARMING: Final = 20
"""Messages before the one that is counted in the steady state."""
STEPS: Final = (
    "a durable message is posted",
    "a durable message is posted, and handed to a consumer that waits",
    "a consumer accepts a durable message",
)
_SOURCE: Final = f"{Path(acquit.__file__).parent}/"
_COMPREHENSIONS: Final = frozenset({"<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>"})


@dataclass(slots=True)
class Way:
    """Functions that were called, in the order of their first calls."""

    calls: dict[CodeType, int] = field(default_factory=dict)

    def walk(self, steps: Callable[[], None]) -> None:
        """Call `steps`, and count what it calls."""
        before = sys.getprofile()
        sys.setprofile(self._called)
        try:
            steps()
        finally:
            sys.setprofile(before)

    def _called(self, frame: FrameType, event: str, argument: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_name not in _COMPREHENSIONS and module_of(code):
            self.calls[code] = self.calls.get(code, 0) + 1

    @property
    def modules(self) -> list[str]:
        """Modules of these functions."""
        return sorted({module_of(code) for code in self.calls})

    def figures(self) -> dict[str, int]:
        """Return how many functions, modules and calls there are."""
        return {"functions": len(self.calls), "modules": len(self.modules), "calls": sum(self.calls.values())}


def module_of(code: CodeType) -> str:
    """Return the module of acquit that a function stands in; "" for all else, and for the disk in memory."""
    name = code.co_filename.removeprefix(_SOURCE)
    if name == code.co_filename or name == "store/memory.py":
        return ""
    return name.removesuffix(".py").replace("/", ".")


class Broker:
    """A broker that has one queue, a client that posts to it, and where it is wanted one that receives."""

    def __init__(self, *, consumer: bool) -> None:
        self.world = World(sizes=parking.SIZES)
        self.poster = self.world.client("poster")
        self.sender = self.poster.sender("q")
        self.receiving = self.world.client("receiver") if consumer else None
        if self.receiving is not None:
            self.receiver = self.receiving.receiver("q", credit=1_000, second=True)
        self.world.settle()

    def post(self, way: Way) -> Way:
        """Post a durable message."""
        self.poster.post(self.sender, durable(b"x" * 100))
        return self._exchange(way, self.poster)

    def acknowledge(self, way: Way) -> Way:
        """Accept the oldest message that the consumer holds."""
        assert self.receiving is not None
        self.receiving.held(self.receiver)[0].settle(ACCEPTED)
        return self._exchange(way, self.receiving)

    def _exchange(self, way: Way, client: Client) -> Way:
        """Bring the broker what a client has to say, and count its way until all are answered."""
        world, core, sent = self.world, self.world.core, client.engine.data_to_send()
        answers: list[tuple[Client, bytes]] = []

        def steps() -> None:
            core.handle(client.peer, client.server.receive_data(sent, world.now_s), world.now_us)
            core.turn(world.now_us)
            core.take_touched()
            batch = core.scribe.take_batch()
            assert batch is not None
            batch.write_and_sync()
            core.synced(world.opened.journal.complete(batch), world.now_us)
            core.turn(world.now_us)
            touched = core.take_touched()
            answers.extend((one, one.server.data_to_send()) for one in world.clients if one.server in touched)

        way.walk(steps)
        assert any(one is client and data for one, data in answers), "there is no answer"
        for one, data in answers:
            one.hear(one.engine.receive_data(data, world.now_s))
        world.settle()
        return way


def ways() -> dict[str, tuple[Way, Way]]:
    """Return the way of the first message and of one in the steady state, for each of `STEPS`."""
    _all_ways()  # what is made once in a process, and kept, is on nobody's way
    return _all_ways()


def _all_ways() -> dict[str, tuple[Way, Way]]:
    alone, waited_for = Broker(consumer=False), Broker(consumer=True)
    steps = dict(zip(STEPS, (alone.post, waited_for.post, waited_for.acknowledge), strict=True))
    rounds = [{name: step(Way()) for name, step in steps.items()} for _ in range(WARMING + 1)]
    return {name: (rounds[0][name], rounds[-1][name]) for name in steps}


def table(found: dict[str, tuple[Way, Way]]) -> str:
    """Return the figures as a table of Markdown."""
    rows = [
        "| from the bytes that arrive to those of the answer | functions | of modules | calls |",
        "|---|---|---|---|",
    ]
    for name, pair in found.items():
        for way, which in zip(pair, ("the first of its link", "in the steady state"), strict=True):
            rows.append(f"| {name}: {which} | {' | '.join(map(str, way.figures().values()))} |")
    return "\n".join(rows) + "\n"


def faults(page: str, fresh: str) -> list[str]:
    """Return the rows of the page that are not those of the fresh table, or are off by too much."""
    found = TABLE.search(page)
    if found is None:
        raise SystemExit(f"{PAGE.name} has no table between the lines of {TABLE.pattern}")
    stands, is_now = found[2].splitlines(), fresh.splitlines()
    if len(stands) != len(is_now):
        return is_now
    return [new for old, new in zip(stands, is_now, strict=True) if not _alike(old, new)]


def _alike(old: str, new: str) -> bool:
    """True if two rows say the same, but for figures that are off by little."""
    before, now = (list(map(int, NUMBER.findall(row))) for row in (old, new))
    if NUMBER.sub("", old) != NUMBER.sub("", new):
        return False
    return all(abs(one - other) <= TOLERANCE * other for one, other in zip(before, now, strict=True))


def main() -> int:
    """Print the figures, write them to the page, or compare them with it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--json", action="store_true", help="print the figures as JSON")
    how.add_argument("--functions", action="store_true", help="print the functions of the steady state, in their order")
    how.add_argument("--write", action="store_true", help=f"write the table into {PAGE.name}")
    how.add_argument("--check", action="store_true", help="write nothing; exit 1 if the page is off by too much")
    asked = parser.parse_args()
    found = ways()
    fresh = table(found)
    if asked.json:
        print(json.dumps({name: {"first": a.figures(), "steady": b.figures()} for name, (a, b) in found.items()}))
    elif asked.functions:
        for name, (_, steady) in found.items():
            print(f"{name}:", *(f"{module_of(code)}  {code.co_qualname}" for code in steady.calls), sep="\n    ")
    elif asked.write:
        page = PAGE.read_text(encoding="utf-8")
        if faults(page, fresh):
            PAGE.write_text(TABLE.sub(lambda match: match[1] + fresh + match[3], page), encoding="utf-8")
    elif asked.check:
        if off := faults(PAGE.read_text(encoding="utf-8"), fresh):
            print(
                f"{PAGE.name}: the way of a message has become another; `make generate` counts it again", *off, sep="\n"
            )
            return 1
    else:
        print(fresh, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
