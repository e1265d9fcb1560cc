"""kill -9 of a real broker at any moment from exec on, over journals from the least to the default size.

`make soak ARGS="-k many_lives --log-cli-level=INFO"` shows how it goes. Its seed repeats the choices, not what the
machine makes of them.
"""

from __future__ import annotations

import logging
import random
from pathlib import Path

import pytest

from acquit.demo.children import Children
from tests.crash.restarts import JOURNALS, KILLS, Lives
from tests.crash.test_kills import assert_ledger_holds

pytestmark = pytest.mark.promise("durable", "missing")

CHECK_EVERY = 10
"""Lives between two looks at the ledger."""
_log = logging.getLogger(__name__)


@pytest.mark.slow
def test_a_broker_that_is_killed_as_it_starts_loses_nothing(tmp_path: Path, rng: random.Random) -> None:
    run(tmp_path, "tiny", rng, ["segment", "segment", "traffic"] * 3)


@pytest.mark.slow
@pytest.mark.parametrize("journal", JOURNALS)
def test_many_lives_lose_nothing(journal: str, tmp_path: Path, rng: random.Random, soak_rounds: int) -> None:
    run(tmp_path, journal, rng, rng.choices(KILLS, k=5 * soak_rounds))


def run(folder: Path, journal: str, rng: random.Random, kills: list[str]) -> None:
    """Live once for each of `kills`, and compare what is left with what the client was told."""
    with Children(folder / "logs") as children:
        lives = Lives(folder, journal, rng, children)
        account = lives.account
        lives.begin()
        for number, kill in enumerate(kills, start=1):
            lives.live(kill)
            assert account.problems == [], f"{number} lives, the last one ended by {kill}"
            if number % CHECK_EVERY == 0:
                assert_ledger_holds(lives.data)
                _log.info("%s: %d lives, %d answers", journal, number, account.answered)
        lives.end()
        assert account.problems == []
        assert_ledger_holds(lives.data)
        _log.info("%s: killed by %s; %d at a new segment", journal, dict(lives.kills), lives.struck)
