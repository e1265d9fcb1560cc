"""Hold the words of the sources to two rules of CONTRIBUTING: how a docstring begins, and one class name for one thing.

A docstring begins with a verb (what a function does) or with the noun (what a thing is), so that it is understood by
who does not know the thing yet. `OPENINGS` are the words that begin neither: questions, conjunctions, and pronouns that
stand for something the reader has not met. A class name that several modules use is in `TWINS`, with the reason why.

    python tools/check_words.py              prints each fault, and exits 1
    python tools/check_words.py PART ...     prints such docstrings of broker/intake or client alone
"""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent

OPENINGS: Final = frozenset(
    # Questions.
    "what which who whom whose where when why how whether is are was has have does did may can must will".split()
    # Pronouns without a referent, and those that stand for anybody.
    + "it its he his they their this that these those there here one ones either neither".split()
    + "another others same such somebody something someone nobody nothing everybody everything anybody anything".split()
    # Conjunctions, prepositions and adverbs.
    + "and but or nor so if unless until while as because of in on at by for from with without to into about".split()
    + "after before behind beside between through during under over out up not only also still now then else".split()
)
"""Lower case; a docstring begins with none of them. "Have" and "has" open orders to oneself and questions alike."""

_FACES: Final = "one API with two faces, asyncio and blocking"
_RECORD: Final = "the journal's record of it is called as it is, as all in ledger/records are"
_QPID: Final = "qpid.messaging calls it so, which compat/qpid mirrors"

TWINS: Final[dict[str, str]] = {
    # The specification's words: the engine's, and those of what users and the broker make of it.
    "Connection": f"the specification's; {_FACES}; {_QPID}",
    "Session": f"the specification's; {_FACES}; {_QPID}",
    "Link": f"the specification's; {_QPID}",
    "Coordinator": "the specification's terminus, and what answers there",
    "Disposition": f"the specification's performative; {_QPID}",
    "Field": "the specification's, of a composite and of a message",
    "Message": f"the specification's, which users send; the broker's, in a queue; {_QPID}",
    "Role": "the specification's, of an end of a link; the configuration's, of a user",
    "Target": "the specification's terminus; the node that a posting is for",
    # The API of users.
    "Sender": f"{_FACES}; {_QPID}",
    "Receiver": f"{_FACES}; {_QPID}",
    "Listener": f"{_FACES}, and the protocol by which a receiver sees either",
    "Requester": _FACES,
    "Responder": _FACES,
    "LinkSession": f"{_FACES}: the session of a Requester or Responder",
    "ReceivedMessage": _FACES,
    "Receipt": _FACES,
    "SendReceipt": _FACES,
    "ConnectionClosed": f"an error of the API; {_QPID}",
    "DecodeError": f"an error of the API; {_QPID}",
    "EncodeError": f"an error of the API; {_QPID}",
    "NotFound": f"an error of the API; {_QPID}",
    "LinkDetached": "the engine's event, and the error that users get for it",
    "SessionEnded": "the engine's event, and the error that users get for it",
    "Identity": "a message's, in the API; a posting's, which the broker makes of it",
    "Subscription": "a topic's, as users name it and as the broker has it",
    # The journal's.
    "Actor": _RECORD,
    "Posting": _RECORD,
    "Queue": _RECORD,
    "Transaction": f"a client's, and the broker's of it; {_RECORD}",
    "Event": "the engine's, which drivers handle; the journal's, as its format's page says",
    "Life": "the broker's, which performs the table of a message's life; the audit's public account of one",
    "Verdict": "on a message, of a consumer; on a transaction, a name of the journal's format",
}
"""Class name: why more than one module defines it."""


def docstrings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield the line and text of each docstring: of the module, its classes and functions, and their attributes."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            before: ast.stmt | None = None
            for statement in node.body:
                text = statement.value if isinstance(statement, ast.Expr) else None
                described = before is None or isinstance(before, ast.Assign | ast.AnnAssign)
                if described and isinstance(text, ast.Constant) and isinstance(text.value, str):
                    yield statement.lineno, text.value
                before = statement


def part_of(path: Path) -> str:
    """Return the part that a module of ``src`` belongs to: ``client``, or ``broker/intake`` in the two largest."""
    parts = path.with_suffix("").parts
    deep = parts[0] == "acquit" and len(parts) > 3 and parts[1] in ("broker", "spark")
    return "/".join(parts[1:3] if deep else parts[1:2] if parts[0] == "acquit" else parts[:1])


def begins_badly(text: str) -> bool:
    """True if a docstring's first word is one of `OPENINGS`."""
    words = text.split(maxsplit=1)
    return bool(words) and words[0].strip(".,:;*").lower() in OPENINGS


def list_openings(source_root: Path) -> dict[str, list[str]]:
    """Return one line for each docstring that begins badly, by part."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in sorted(source_root.rglob("*.py")):
        place = path.relative_to(source_root)
        for line, text in docstrings(ast.parse(path.read_text(encoding="utf-8"))):
            if begins_badly(text):
                found[part_of(place)].append(f"src/{place}:{line}: {text.strip().splitlines()[0]}")
    return found


def list_twins(source_root: Path) -> dict[str, list[str]]:
    """Return the modules that define each class name which more than one module defines; private names too."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in sorted(source_root.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                found[node.name.lstrip("_")].append(str(path.relative_to(source_root)))
    return {name: sorted(set(places)) for name, places in found.items() if len(set(places)) > 1}


def check(source_root: Path) -> list[str]:
    """Return one line for each fault, and one for each part that has docstrings at fault."""
    found: list[str] = []
    for part, lines in list_openings(source_root).items():
        found += [f"{part}: {len(lines)} docstrings begin with neither verb nor noun", *lines]
    twins = list_twins(source_root)
    found += [f"class {name}: in {', '.join(places)}" for name, places in twins.items() if name not in TWINS]
    found += [f"class {name}: in TWINS, but not in several modules" for name in TWINS if name not in twins]
    return found


def main() -> int:
    """Print the faults; exit code 1 if there are any."""
    if parts := sys.argv[1:]:
        openings = list_openings(ROOT / "src")
        print(*(line for part in parts for line in openings.get(part, [])), sep="\n")
        return 0
    found = check(ROOT / "src")
    print(*found, sep="\n", end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
