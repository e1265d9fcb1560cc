"""Secrets that can be told from everything else, and the search for what is left of them.

A run is given many, each in one place; then all that it wrote is looked through. Eight characters of one in a row are
enough to find it: what shortens long values still shows their beginning. So are they in hexadecimal, in base 64 at each
offset, and as UTF-16; percent signs and escapes stand around them, for all but two of its characters are plain.
"""

from __future__ import annotations

import base64
import re
import secrets
import string
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

WINDOW: Final = 8
KEY_BEGINS: Final = 48
"""Characters in base 64: names of algorithms, which stand in certificates as well."""
EMPTY: Final = re.compile(rb"\0{64,}")
"""What a file that is written ahead has."""


def make_secret(special: str = "") -> str:
    """A password of sixteen letters and digits, with `special` in the midst."""
    drawn = "".join(secrets.choice(string.ascii_letters + string.digits) for _ in range(16))
    return f"{drawn[:8]}{special}{drawn[8:]}"


def traces(secret: str) -> Iterator[tuple[str, bytes]]:
    """What it leaves, in whatever way it is written, and the name of that way."""
    raw = secret.encode()
    for begin in range(max(1, len(raw) - WINDOW + 1)):
        window = raw[begin : begin + WINDOW]
        if window.isascii():
            yield "as it is", window
            yield "as UTF-16", window.decode().encode("utf-16-le")
        yield "in hexadecimal", window.hex().encode()
        yield "in hexadecimal", window.hex().upper().encode()
    for before in range(3):
        # Without the characters that what is around it decides.
        shifted = base64.b64encode(b"\0" * before + raw).rstrip(b"=")[3:-2]
        yield "in base 64", shifted
        yield "in base 64", shifted.translate(bytes.maketrans(b"+/", b"-_"))


def found(known: dict[str, str], data: bytes) -> list[str]:
    """Which of these secrets, by their names, are in the data, and how. One pass, however many there are."""
    beginnings: dict[bytes, list[tuple[str, bytes]]] = {}
    for name, secret in known.items():
        for way, trace in traces(secret):
            beginnings.setdefault(trace[:WINDOW], []).append((f"{name} {way}", trace))
    data = EMPTY.sub(b"\0", data)
    return sorted(
        {
            what
            for begin in range(len(data) - WINDOW + 1)
            if (window := data[begin : begin + WINDOW]) in beginnings
            for what, trace in beginnings[window]
            if data.startswith(trace, begin)
        }
    )


def found_below(known: dict[str, str], folder: Path, but: Iterable[Path] = ()) -> list[str]:
    """Which are in a file below the folder, or in the name of one, but for files where they belong."""
    spared = set(but)
    return [
        f"{path.relative_to(folder)}: {what}"
        for path in sorted(folder.rglob("*"))
        if path not in spared
        for what in found(known, str(path).encode() + (path.read_bytes() if path.is_file() else b""))
    ]


def key_lines(pem: Path) -> dict[str, str]:
    """The lines of a private key, each a secret of its own, but for what keys of its kind begin with."""
    _, _, rest = pem.read_text().partition("PRIVATE KEY-----\n")
    lines = rest.partition("-----END")[0][KEY_BEGINS:].split()
    return {f"{pem.name}, line {number} of the key": line for number, line in enumerate(lines, 1)}
