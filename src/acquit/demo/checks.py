"""The check of a file against its name: the workers' job, and the source of the demo's poison.

A name that ends in ``.py`` claims to be Python, ``.json`` JSON, ``.toml`` TOML. Python's own tests hold files that
break the claim on purpose (``bad_coding.py``, Python 2 samples): nobody had to invent broken input. Slim images lack
them: when the default folder is used and has none, the run adds `SAMPLES`, and says so. Files with other names claim
nothing and only have their hash checked. A complaint travels as the error of the *rejected* outcome (3.4.3).
"""

from __future__ import annotations

import ast
import hashlib
import json
import tomllib
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

DECODE_ERROR = "amqp:decode-error"
"""The content is not what the name claims (2.8.15)."""
PRECONDITION_FAILED = "amqp:precondition-failed"
"""The file is not the one that was posted any more (2.8.15)."""
DESCRIPTION_CHARS_MAX = 300
LIKELY = "test/**/bad*.py"
"""Files of CPython that must not parse, among others: a search of the whole tree would parse it twice."""
SAMPLES = {
    "python2.py": b"print 'a statement until 2008'\n",
    "truncated.json": b'{"title": "cut off in the middle of a',
    "twice.toml": b'name = "one"\nname = "two"\n',
    "latin1.py": b"name = 'caf\xe9'\n",
}


@dataclass(frozen=True, slots=True)
class Complaint:
    """The reason why a file is rejected: an AMQP error condition and a sentence for people."""

    condition: str
    description: str


def _python(content: bytes, path: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # invalid escapes and the like are remarks, not failures
        ast.parse(content, path)


Claim = tuple[str, str, Callable[[bytes, str], object]]
"""Language that a name claims, its content type, and the parser of content and path."""
CLAIMS: dict[str, Claim] = {
    ".py": ("Python", "text/x-python", _python),
    ".json": ("JSON", "application/json", lambda content, path: json.loads(content)),
    ".toml": ("TOML", "application/toml", lambda content, path: tomllib.loads(content.decode())),
}
NO_CLAIM: Claim = ("", "application/octet-stream", lambda content, path: None)


def content_type(path: str) -> str:
    """Return the MIME type that the name claims."""
    return CLAIMS.get(PurePosixPath(path).suffix, NO_CLAIM)[1]


def parse(path: str, content: bytes) -> Complaint | None:
    """Return None when `content` parses as what `path` claims, or when it claims nothing."""
    language, _, parser = CLAIMS.get(PurePosixPath(path).suffix, NO_CLAIM)
    try:
        parser(content, path)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as why:
        # The parsers' own refusals are ValueErrors and SyntaxErrors; the other two are how they refuse depth.
        return Complaint(DECODE_ERROR, f"not {language}: {why}"[:DESCRIPTION_CHARS_MAX])
    return None


def check(root: Path, *, path: str, sha256: str, body: bytes) -> Complaint | None:
    """Read the file that a message names, compare it with what was posted, and parse it.

    None means: the file is the one the manifest froze, `body` is its beginning, and it is what it claims to be.
    """
    try:
        content = (root / path).read_bytes()
    except OSError as why:
        return Complaint(PRECONDITION_FAILED, f"cannot be read any more: {why.strerror}")
    if hashlib.sha256(content).hexdigest() != sha256:
        return Complaint(PRECONDITION_FAILED, "changed since the manifest was frozen")
    if not content.startswith(body) or (content and not body):
        return Complaint(PRECONDITION_FAILED, "the message does not carry the beginning of the file")
    return parse(path, content)


def has_poison(root: Path) -> bool:
    """Return whether one of the likely files under `root` fails to parse."""
    return any(parse(path.name, path.read_bytes()) is not None for path in root.glob(LIKELY) if path.is_file())


def write_samples(folder: Path) -> list[Path]:
    """Write `SAMPLES` into a new folder, and return their paths."""
    folder.mkdir()
    for name, content in SAMPLES.items():
        (folder / name).write_bytes(content)
    return list(folder.iterdir())
