"""A mutator of bytes that knows where binary protocols break, and a reader of corpora.

No coverage feedback and no dependency: a seeded generator of changes that keep most of an input intact, so that what
is broken lies behind checks which pass. A corpus file holds one input as hex digits; blank space is skipped, and what
follows a ``#`` says what the input is.
"""

from __future__ import annotations

import random
from pathlib import Path

CORPUS = Path(__file__).parent / "corpus"

OCTETS = bytes(
    [
        *(0x00, 0x01, 0x02, 0x04, 0x7F, 0x80, 0xFE, 0xFF),  # sizes and counts
        *(0x40, 0x41, 0x42, 0x43, 0x44, 0x45, 0x50, 0x52, 0x53, 0x55, 0x56, 0x60, 0x70, 0x73, 0x80, 0x98),  # codes
        *(0xA0, 0xA1, 0xA3, 0xB0, 0xB1, 0xB3, 0xC0, 0xC1, 0xD0, 0xD1, 0xE0, 0xF0),
        *range(0x10, 0x19),  # descriptors
        *range(0x70, 0x79),
    ]
)
WORDS = [n.to_bytes(4, "big") for n in (0, 1, 7, 8, 255, 256, 65535, 65536, 2**24, 2**31 - 1, 2**31, 2**32 - 1)]


def corpus(folder: str) -> dict[str, bytes]:
    """Name and bytes of each input in a folder of the corpus."""
    return {path.stem: read(path) for path in sorted((CORPUS / folder).glob("*.hex"))}


def read(path: Path) -> bytes:
    """The bytes of one corpus file."""
    return bytes.fromhex("".join(line.partition("#")[0] for line in path.read_text().splitlines()))


def mutate(rng: random.Random, data: bytes, other: bytes) -> bytes:
    """`data` with a few changes; `other` is another input, to splice with."""
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 2, 3, 5))):
        at = rng.randrange(len(changed) + 1)
        match rng.randrange(9):
            case 0 if changed:
                changed[at % len(changed)] ^= 1 << rng.randrange(8)
            case 1 if changed:
                changed[at % len(changed)] = rng.choice(OCTETS)
            case 2:
                changed[at : at + 4] = rng.choice(WORDS)
            case 3:
                changed[at:at] = rng.choice(OCTETS).to_bytes(1, "big")
            case 4:
                del changed[at : at + rng.randrange(1, 5)]
            case 5:
                del changed[at:]
            case 6:
                end = min(len(changed), at + rng.randrange(1, 40))
                changed[at:at] = bytes(changed[at:end]) * rng.choice((1, 2, 50))
            case 7:
                cut = rng.randrange(len(other) + 1)
                changed[at:] = other[cut:]
            case _ if changed:
                size = at % len(changed)
                changed[size] = (changed[size] + rng.choice((-2, -1, 1, 2))) % 256
    return bytes(changed[:LENGTH_MAX])


LENGTH_MAX = 20_000
"""Runs that repeat must not grow without end."""
