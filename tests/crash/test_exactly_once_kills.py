"""kill -9 of producer, consumer and broker, one or several at once, under load: each message's effect exactly once."""

from __future__ import annotations

import contextlib
import random
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from acquit.demo.children import Children
from tests.crash.test_kills import assert_ledger_holds
from tests.support import exactly_once_program
from tests.support.endpoint import BrokerProcess

pytestmark = pytest.mark.promise("exactly-once")

PRODUCER, CONSUMER, BROKER = "producer", "consumer", "broker"
VICTIMS = ((PRODUCER,), (CONSUMER,), (BROKER,), (CONSUMER, BROKER), (PRODUCER, BROKER), (PRODUCER, CONSUMER, BROKER))
CONFIG = """
[[address]]
match = "#"
max_delivery_attempts = 0
"""


class Players:
    """The three processes, of which any may be gone for a while."""

    def __init__(self, folder: Path, count: int, children: Children) -> None:
        self.folder, self.count = folder, count
        (folder / "acquit.toml").write_text(CONFIG)
        self.broker = BrokerProcess(children, folder / "data", folder / "endpoint", config=folder / "acquit.toml")
        self.broker.start()
        self.port = int(self.broker.url.rpartition(":")[2])
        self.programs: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str) -> None:
        role = ["produce", str(self.folder), str(self.count)] if name == PRODUCER else ["consume", str(self.folder)]
        with (self.folder / f"{name}.log").open("ab") as log:
            program = [sys.executable, "-P", "-W", "error", exactly_once_program.__file__, *role]
            self.programs[name] = subprocess.Popen(program, stderr=log)

    def kill(self, victims: tuple[str, ...]) -> None:
        for name in victims:
            if name == BROKER:
                self.broker.kill()
            else:
                self.programs[name].kill()
                self.programs[name].wait()

    def revive(self, victims: tuple[str, ...]) -> None:
        for name in victims:
            if name == BROKER:
                self.broker.start(self.port)
            else:
                self.start(name)

    def end(self) -> None:
        for program in self.programs.values():
            program.kill()
            program.wait()

    def effects(self) -> Counter[int]:
        with contextlib.closing(sqlite3.connect(self.folder / "in.db", timeout=30)) as database:
            if not database.execute("SELECT 1 FROM sqlite_master WHERE name = 'orders'").fetchone():
                return Counter()
            return Counter(number for (number,) in database.execute("SELECT number FROM orders"))

    def logs(self) -> str:
        return "\n".join((self.folder / f"{name}.log").read_text()[-2_000:] for name in self.programs)


def run(folder: Path, rng: random.Random, kills: int, count: int) -> None:
    with Children(folder / "logs") as children:
        players = Players(folder, count, children)
        try:
            players.start(PRODUCER)
            players.start(CONSUMER)
            for _ in range(kills):
                time.sleep(rng.choice((0.02, 0.1, 0.3, 0.6)) * rng.random() * 2)  # at any moment, which is the point
                victims = rng.choice(VICTIMS)
                players.kill(victims)
                players.revive(rng.sample(victims, len(victims)))  # type: ignore[arg-type]
            assert players.programs[PRODUCER].wait(120) == 0, players.logs()
            deadline = time.monotonic() + 120
            while len(players.effects()) < count and time.monotonic() < deadline:
                time.sleep(0.1)
            (folder / "finish").touch()
            assert players.programs[CONSUMER].wait(60) == 0, players.logs()
            effects = players.effects()
            assert effects == Counter(range(count)), (effects - Counter(range(count)), count - len(effects))
            players.broker.stop()
        finally:
            players.end()
    assert_ledger_holds(folder / "data")


def test_killed_a_few_times_each_effect_happens_once(tmp_path: Path, rng: random.Random) -> None:
    run(tmp_path, rng, 6, 300)


@pytest.mark.slow
def test_killed_again_and_again_each_effect_happens_once(tmp_path: Path, rng: random.Random, soak_rounds: int) -> None:
    run(tmp_path, rng, 10 * soak_rounds, 400 * soak_rounds)
