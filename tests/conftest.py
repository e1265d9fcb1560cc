"""What all tests share: one seed, one Hypothesis profile, a broker in this process.

The seed is printed at the top of every run. It is 1 unless ``ACQUIT_TEST_SEED`` (``make test SEED=7``) says otherwise,
so that a red run is red again; only the soak tests draw their own. Random choices in tests come from the `rng` fixture,
which depends on the seed and the test's own name, never on what ran before.
"""

from __future__ import annotations

import contextlib
import gc
import hashlib
import io
import logging
import os
import random
import signal
import sys
import tempfile
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from tests.support.examples import Soak
from tests.support.shell import Ran, Shell

if TYPE_CHECKING:
    from xdist.remote import Producer
    from xdist.scheduler import LoadScopeScheduling
    from xdist.workermanage import WorkerController

    import acquit

SEED = pytest.StashKey[int]()
DRAWN = "acquit_seed"
"""What the processes of pytest-xdist are told."""

SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""For a JVM that ends before its second compiler has paid off: Spark takes half of the processor time."""

# Derandomized: the examples depend on the test alone. A slow machine is no failure, hence no deadline.
settings.register_profile(
    "acquit",
    derandomize=True,
    deadline=None,
    max_examples=100,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--soak-rounds", type=int, default=20, help="rounds (kills, replayed power losses, schedules) of each soak test"
    )
    parser.addoption(
        "--spark-crash-rounds",
        type=int,
        default=1,
        help="rounds of the kills of Spark, each two chains of kills: four have every point with each broker, table "
        "format and trigger, and more is the same again",
    )


def pytest_configure(config: pytest.Config) -> None:
    os.environ.pop("PYTHONUNBUFFERED", None)  # as containers set it: it hid what waits for the lock of a buffer
    given = os.environ.get("ACQUIT_TEST_SEED", "")
    soaking = config.option.markexpr == "slow"
    if hasattr(config, "workerinput"):
        seed = config.workerinput[DRAWN]
    elif given:
        seed = int(given)
    elif soaking:
        seed = random.SystemRandom().randrange(1_000_000)
    else:
        seed = 1
    config.stash[SEED] = seed
    if soaking:
        Soak.seed, Soak.rounds = seed, config.option.soak_rounds
    settings.load_profile("acquit")
    # A shell has what it runs in the background ignore ctrl-C, and so would all that tests interrupt.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # So has nohup with the end of a terminal.
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
    # PySpark's logger gives each handler that is added to it a format of its own, pytest's as well, which adds itself
    # to every logger that passes nothing on.
    with contextlib.suppress(ImportError):
        from pyspark.logger import PySparkLogger

        PySparkLogger.addHandler = logging.Logger.addHandler


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: WorkerController) -> None:
    """The processes of one run have one seed, the one that is printed."""
    node.workerinput[DRAWN] = node.config.stash[SEED]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    # A soak test works through its rounds: it is stuck only when it takes far longer than they do.
    timeout_s = 300 + 60 * int(config.getoption("--soak-rounds"))
    for item in items:
        if item.get_closest_marker("slow") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(timeout_s))


def pytest_collection_finish() -> None:
    """Ten thousand tests stay to the end: the garbage collector need not look at them again and again."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling:
    """Which tests go together to one process of `make test`, with the fixtures that they share, in their order.

    pytest-xdist's own groups need a part of pytest's items that pytest 9.2 has no more.
    """
    from xdist.scheduler import LoadScopeScheduling

    class Together(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return together(nodeid)

    return Together(config, log)


OTHER_BROKERS = {
    f"tests/interop/test_{name}.py" for name in ("artemis", "broker_j", "spark_sink", "spring", "the_brokers_page")
}


def together(nodeid: str) -> str:
    """A file; all of Spark's, for there is one session; all that need the cluster; whole programs that are killed one
    by one; all that look at other brokers, and what compares the pages with all that these saw."""
    file = nodeid.partition("::")[0]
    if file.startswith("tests/spark/"):
        return "spark"
    if file in ("tests/sparkcrash/test_cluster.py", "tests/sparkcrash/test_packaging.py"):
        return "cluster"
    if file in ("tests/sparkcrash/test_everything_killed.py", "tests/sparkcrash/test_zombies.py"):
        return nodeid
    if file.startswith("tests/interop/test_foreign_") or file in OTHER_BROKERS:
        return "other brokers"
    return file


def pytest_report_header(config: pytest.Config) -> str:
    from acquit._version import native

    build = "native" if native() else "pure"
    return f"acquit: {build}, seed {config.stash[SEED]} (make test SEED={config.stash[SEED]} repeats it)"


@pytest.fixture(scope="session", autouse=True)
def temporary_files(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The system's temporary folder, for this process and those that it starts, is one of pytest's: whoever is killed
    leaves there what it had, and pytest removes the folders of earlier runs. Java knows no TMPDIR: Spark's is told."""
    folder = tmp_path_factory.mktemp("temporary")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(folder))
        patch.setattr(tempfile, "tempdir", None)
        patch.setenv("SPARK_SUBMIT_OPTS", f"-Djava.io.tmpdir={folder} {SHORT_LIVED}")
        yield


@pytest.fixture(scope="session")
def seed(pytestconfig: pytest.Config) -> int:
    """The seed of this run."""
    return pytestconfig.stash[SEED]


@pytest.fixture
def rng(seed: int, request: pytest.FixtureRequest) -> random.Random:
    """A source of random choices of this test's own, repeated by the seed."""
    digest = hashlib.sha256(f"{seed}:{request.node.nodeid}".encode()).digest()
    return random.Random(int.from_bytes(digest[:8], "big"))


@pytest.fixture(scope="session")
def soak_rounds(pytestconfig: pytest.Config) -> int:
    """How many rounds a soak test runs."""
    return int(pytestconfig.getoption("--soak-rounds"))


@pytest.fixture(scope="session")
def broker() -> Iterator[acquit.Broker]:
    """A durable broker in this process, on a port of its own, shared by the run: use an `address` of your own."""
    import acquit

    with acquit.Broker() as running:
        yield running


@pytest.fixture
def address(request: pytest.FixtureRequest) -> str:
    """An address that no other test uses."""
    return "test." + hashlib.sha256(request.node.nodeid.encode()).hexdigest()[:16]


@pytest.fixture
def logging_as_before() -> Iterator[None]:
    """`acquit serve` sets the logging of its process up."""
    import structlog

    root = logging.getLogger()
    before = root.handlers[:], root.level
    yield
    root.handlers[:], root.level = before
    structlog.reset_defaults()


@pytest.fixture
def shell(logging_as_before: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Shell:
    """The `acquit` command, run in this process, with its output caught."""
    from acquit.cli.app import run

    def execute(*arguments: object, stdin: str | bytes = "") -> Ran:
        monkeypatch.setattr(
            sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode() if isinstance(stdin, str) else stdin), "utf-8")
        )
        capsys.readouterr()
        heard = signal.pthread_sigmask(signal.SIG_BLOCK, ())
        handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
        try:
            code = run([str(argument) for argument in arguments])
        finally:  # `acquit serve` hears none as its process ends, nor would processes that a test starts
            for number, handler in handlers.items():
                signal.signal(number, handler)
            signal.pthread_sigmask(signal.SIG_SETMASK, heard)
        return Ran(code, *capsys.readouterr())

    return execute
