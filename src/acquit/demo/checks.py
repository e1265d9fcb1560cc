"""The check of a file against its name: the workers' job, and the source of the demo's poison.

A name that ends in ``.py`` claims to be Python, ``.json`` JSON, ``.toml`` TOML. Every Python installation that kept its
tests holds files that break the claim on purpose (``bad_coding.py``, Python 2 samples, ``tomllib``'s invalid
documents): nobody had to invent broken input. Files with other names claim nothing and only have their hash checked.

A complaint travels as the error of the *rejected* outcome (3.4.3), and from there into the dead letter.
"""

from __future__ import annotations

import ast
import hashlib
import json
import tomllib
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import PurePosixPath

from acquit.demo.manifest import Manifest

DECODE_ERROR = "amqp:decode-error"
"""The content is not what the name claims (2.8.15)."""
PRECONDITION_FAILED = "amqp:precondition-failed"
"""The file is not the one that was posted any more (2.8.15)."""
DESCRIPTION_CHARS_MAX = 300


@dataclass(frozen=True, slots=True)
class Complaint:
    """The reason why a file is rejected: an AMQP error condition and a sentence for people."""

    condition: str
    description: str


def _python(content: bytes, path: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # invalid escapes and the like are remarks, not failures
        ast.parse(content, path)


def _json(content: bytes, path: str) -> None:
    json.loads(content)


def _toml(content: bytes, path: str) -> None:
    tomllib.loads(content.decode("utf-8"))


CLAIMS: dict[str, tuple[str, str, Callable[[bytes, str], None]]] = {
    # suffix: (what it claims to be, content type, parser)
    ".py": ("Python", "text/x-python", _python),
    ".json": ("JSON", "application/json", _json),
    ".toml": ("TOML", "application/toml", _toml),
}
UNCLAIMED_CONTENT_TYPE = "application/octet-stream"


def content_type(path: str) -> str:
    """The MIME type that the name claims."""
    claim = CLAIMS.get(PurePosixPath(path).suffix)
    return UNCLAIMED_CONTENT_TYPE if claim is None else claim[1]


def parse(path: str, content: bytes) -> Complaint | None:
    """None when `content` parses as what `path` claims, or when it claims nothing."""
    claim = CLAIMS.get(PurePosixPath(path).suffix)
    if claim is None:
        return None
    language, _, parser = claim
    try:
        parser(content, path)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as why:
        # The parsers' own refusals are ValueErrors and SyntaxErrors; the other two are how they refuse depth.
        return Complaint(DECODE_ERROR, f"not {language}: {why}"[:DESCRIPTION_CHARS_MAX])
    return None


def check(manifest: Manifest, *, path: str, sha256: str, body: bytes) -> Complaint | None:
    """Read the file that a message names, compare it with what was posted, and parse it.

    None means: the file is the one the manifest froze, `body` is its beginning, and it is what it claims to be.
    """
    try:
        content = manifest.locate(path).read_bytes()
    except OSError as why:
        return Complaint(PRECONDITION_FAILED, f"cannot be read any more: {why.strerror}")
    if hashlib.sha256(content).hexdigest() != sha256:
        return Complaint(PRECONDITION_FAILED, "changed since the manifest was frozen")
    if not content.startswith(body) or (content and not body):
        return Complaint(PRECONDITION_FAILED, "the message does not carry the beginning of the file")
    return parse(path, content)
