"""Write docs/pictures/*.svg: the frames that pass between client and broker, recorded from real exchanges.

python tools/generate_frames.py [--check] [NAME ...]

`frames.pictures` has a script for each picture, which is run against a broker in this process. With --check nothing is
written, and the exit code is 1 when a committed picture is not what its exchange gives, or when there is one that no
script makes. NAME: only these.
"""

from __future__ import annotations

import argparse
import logging
import sys
from pathlib import Path

from frames.drawing import draw
from frames.pictures import PICTURES, Picture
from frames.recording import Different, record

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "pictures"

ATTEMPTS = 20
"""An exchange can go another way on a machine that stands still in the middle of it: a timer fires first (DUPS_OK's
100 ms), or two frames that were written as one are read as two. So a picture is of an exchange that has happened, and
one that does not happen in so many attempts is out of date."""


def make(picture: Picture, committed: str | None) -> str:
    """The picture, as `committed` has it if that can be had. Raises Different where the script is not followed."""
    made, error = "", None
    for _ in range(ATTEMPTS):
        try:
            made = draw(picture.title, record(picture.script, setup=picture.setup, posted=picture.posted))
        except Different as different:
            error = different
        else:
            if committed in (made, None):
                return made
    if not made and error is not None:
        raise error
    return made


def main() -> int:
    """Write the pictures, or compare them; exit code 1 on a difference."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="only compare")
    parser.add_argument("names", nargs="*", metavar="NAME", help="pictures to make; by default all")
    arguments = parser.parse_args()
    differing = 0
    # What the client warns of is what some pictures show.
    logging.disable(logging.CRITICAL)
    FOLDER.mkdir(exist_ok=True)
    for picture in PICTURES:
        if arguments.names and picture.name not in arguments.names:
            continue
        path = FOLDER / f"{picture.name}.svg"
        committed = path.read_text(encoding="utf-8") if path.exists() else None
        try:
            made = make(picture, committed)
        except Different as different:
            print(f"docs/pictures/{path.name}: {different}")
            differing = 1
            continue
        if not arguments.check:
            path.write_text(made, encoding="utf-8")
        elif made != committed:
            print(f"docs/pictures/{path.name} is not what tools/generate_frames.py writes: run make generate")
            differing = 1
    for path in sorted(FOLDER.glob("*.svg")):
        if path.stem not in {picture.name for picture in PICTURES}:
            print(f"docs/pictures/{path.name} has no script in tools/frames/pictures.py")
            differing = 1
    return differing


if __name__ == "__main__":
    sys.exit(main())
