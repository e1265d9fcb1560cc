"""Power loss of a real broker: images of its folder, rebuilt from the system calls that it was seen to make.

`tests/properties/test_journal_power_loss.py` does this at the store's own seam, with every step and millions of
histories. Here nothing of ours lies between the broker and what is recorded: a sync that the store believes to have
asked for, and that no system call asks for, shows here alone.
"""

from __future__ import annotations

import logging
import random
import shutil
from pathlib import Path

import pytest

from tests.crash.power import Image, Recording, check, images

_log = logging.getLogger(__name__)

JOURNALS = ("least", "least", "tiny", "small", "medium")
"""One recording each; the first twice, because most happens there."""
STEPS = 150


def record(folder: Path, journal: str, rng: random.Random) -> Recording:
    """Three lives: the second is killed at work, so that what the third finds was perhaps never synced."""
    folder.mkdir()
    recording = Recording(folder, journal, rng)
    recording.live(rng.randint(STEPS // 3, STEPS), kill=rng.random() < 0.5)
    recording.live(rng.randint(STEPS // 3, STEPS), kill=True)
    recording.live(rng.randint(1, STEPS), kill=False)
    assert recording.diary.problems == []
    return recording


def look(recording: Recording, image: Image, folder: Path) -> list[str]:
    """What does not hold of this image; its folder is left behind if anything does not."""
    try:
        problems = check(image, folder, recording.config)
    except Exception as why:
        problems = [f"{type(why).__name__}: {why}"]
    if not problems:
        shutil.rmtree(folder)
    return problems


@pytest.mark.promise("durable")
@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(JOURNALS)))
def test_no_loss_of_power_takes_what_was_told(
    number: int, tmp_path: Path, rng: random.Random, soak_rounds: int
) -> None:
    recording = record(tmp_path / "recorded", JOURNALS[number], rng)
    for at, image in enumerate(images(recording, 5 * soak_rounds, rng)):
        problems = look(recording, image, tmp_path / f"image-{at}")
        assert problems == [], f"{image.where}: see {tmp_path}"
    _log.info("%s: %d answers, %d images", JOURNALS[number], recording.diary.answered, 5 * soak_rounds)


@pytest.mark.promise("durable")
@pytest.mark.slow
@pytest.mark.parametrize("forgotten", ["O_DSYNC", "fsync", "fdatasync"])
def test_a_sync_that_is_forgotten_is_noticed(forgotten: str, tmp_path: Path, rng: random.Random) -> None:
    """The same broker, taken for one that does not make this call: some image must lack something."""
    recording = record(tmp_path / "recorded", "least", rng)
    suspects = images(recording, 100, rng, deaf_to=frozenset({forgotten}))
    assert any(look(recording, image, tmp_path / f"image-{at}") for at, image in enumerate(suspects))
