"""Kills: `make spark-crash`. Both brokers, each as a place where a test gets a queue."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import acquit
from tests.interop.artemis import Artemis
from tests.interop.java import PeerMissing, in_ci
from tests.sparkcrash.pipelines import Chain, Queue, Way
from tests.support.cluster import StandaloneCluster

BROKERS = ("acquit", "artemis")
FORMATS = ("delta", "parquet")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    folder = Path(__file__).parent
    for item in items:
        if item.path.parent == folder:
            item.add_marker(pytest.mark.sparkcrash)
            item.add_marker(pytest.mark.timeout(900))
            # PySpark leaves sockets and threads to the garbage collector.
            item.add_marker(pytest.mark.filterwarnings("default"))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """What the rounds (``--spark-crash-rounds``) make different."""
    rounds = metafunc.config.getoption("--spark-crash-rounds")
    if "chain" in metafunc.fixturenames:
        chains = [
            Chain(broker, FORMATS[(number + place) % 2], (number // 2 + place) % 2, number)
            for number in range(rounds)
            for place, broker in enumerate(BROKERS)
        ]
        metafunc.parametrize("chain", chains, ids=lambda one: f"{one.broker}-{one.kind}-{one.number}")
    if "zombie" in metafunc.fixturenames:
        zombies = [("publishing", "delta"), ("published", "parquet"), ("drained", "parquet"), ("data-written", "delta")]
        metafunc.parametrize("zombie", zombies[:rounds], ids=lambda one: f"{one[0]}-{one[1]}")
    if "way" in metafunc.fixturenames:
        ways = [
            Way(broker, FORMATS[(number + place + streaming) % 2], streaming)
            for number in range(min(rounds, 2))
            for place, broker in enumerate(BROKERS)
            for streaming in (False, True)
        ]
        metafunc.parametrize(
            "way", ways, ids=lambda one: f"{one.broker}-{one.kind}-{'trigger' if one.streaming else 'now'}"
        )


@pytest.fixture(scope="session")
def artemis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Artemis]:
    """One that cannot be had here skips the test; in CI that is a failure."""
    with contextlib.ExitStack() as stack:
        try:
            broker = stack.enter_context(Artemis(tmp_path_factory.mktemp("artemis")))
            broker.start()
        except PeerMissing as missing:
            (pytest.fail if in_ci() else pytest.skip)(str(missing))
        yield broker


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneCluster]:
    """For all tests of one process."""
    with StandaloneCluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.fixture
def queue_at(request: pytest.FixtureRequest, address: str) -> Callable[[str], Queue]:
    """A queue of the test's own at the broker of this name."""

    def make(name: str) -> Queue:
        if name == "acquit":
            broker: acquit.Broker = request.getfixturevalue("broker")
            return Queue(url=broker.url, address=address)
        artemis: Artemis = request.getfixturevalue("artemis")
        artemis.queue(address)
        return Queue(url=artemis.url, address=address, user=artemis.username, password=artemis.password)

    return make
