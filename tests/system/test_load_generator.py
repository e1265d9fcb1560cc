"""The load generator of `make bench-peers` on acquit: each row of its table runs, and a broker's mistakes end a run
with words, so that no figure counts messages that were lost, doubled or misled."""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Final

import pytest

import acquit
from tests.support.pages import ROOT
from tests.support.served import Served
from tests.support.syscalls import require

SHARE: Final = 0.0  # of a row's messages: the least that it takes
CONFIG: Final = """
[[address]]
match = "twice"
duplicate_detection = "off"

[[address]]
match = "spread"
message_groups = false

[[address]]
match = "full"
messages_max = 1
full_policy = "reject"
"""


def _module(name: str) -> ModuleType:
    """A script of benchmarks/, as a module, which finds those beside it."""
    sys.path.insert(0, str(ROOT / "benchmarks"))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(ROOT / "benchmarks"))


bench_peers = _module("bench_peers")
bench_second_broker = _module("bench_second_broker")


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    require("cc")
    return bench_peers.compiled(tmp_path_factory.mktemp("generator"))


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with Served(tmp_path_factory.mktemp("broker"), CONFIG) as broker:
        with acquit.connect(broker.url) as connection:
            connection.session().sender("left").send(acquit.Message(b"x" * 100))
        yield broker


@pytest.fixture
def acquit_there(served: Served) -> bench_peers.Contestant:
    return bench_peers.Contestant("acquit", "acquit", served.port, None, served.process.pid)


@pytest.mark.parametrize("case", bench_peers.CASES, ids=lambda case: case.name)
def test_every_row_runs(case: bench_peers.Case, program: Path, acquit_there: bench_peers.Contestant) -> None:
    rate = 20_000 if case.half_of else case.rate
    figures = acquit_there.run(program, case, SHARE, rate)
    assert list(figures) == ([f"{case.name}, {one}" for one in bench_peers.PERCENTILES] if rate else [case.name])
    assert all(figures.values())


@pytest.mark.parametrize(
    ("address", "options", "said"),
    [
        pytest.param("twice", ["-d", "10"], "message 9 came twice", id="a duplicate"),
        pytest.param("spread", ["-k", "1", "-g", "1", "-x", "2"], "to another receiver than its group", id="a group"),
        pytest.param("full", [], "amqp:resource-limit-exceeded", id="a message refused"),
        pytest.param("left", [], "a message is not of this run", id="a message left over"),
    ],
)
def test_a_mistake_of_the_broker_ends_the_run(
    address: str, options: list[str], said: str, program: Path, served: Served
) -> None:
    command = [str(program), "-p", str(served.port), "-a", address, "-n", "1000", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert said in done.stderr, done.stderr


def test_its_help_names_every_option_that_the_rows_use(program: Path) -> None:
    said = subprocess.run([str(program), "-h"], capture_output=True, text=True, check=True).stdout
    used = {word for case in bench_peers.CASES for word in case.arguments(1.0, 1) if word.startswith("-")}
    assert {line.split()[0] for line in said.splitlines()[1:]} >= used


def _contestants(program: Path, port: int) -> list[bench_peers.Contestant]:
    """acquit, and a peer that nothing listens for."""
    return [bench_peers.Contestant(name, name, where, None, 1) for name, where in (("acquit", port), ("artemis", 1))]


def test_a_peer_that_drops_out_of_a_row_stays_in_the_table(
    program: Path, served: Served, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench_peers, "peak_mib", lambda pid: 1.0)
    contestants = _contestants(program, served.port)
    cases = [case for case in bench_peers.CASES if case.name in {"100 B", "100 B, ten priorities"}]
    contestants[1].figures["100 B, ten priorities"].append(1.0)
    bench_peers.measure(contestants, program, cases, 1, SHARE)
    assert bench_peers.table(contestants, cases) == 0
    assert "artemis, 100 B: dropped out: connecting to port 1: Connection refused." in capsys.readouterr().out
    page = bench_peers.markdown(contestants, cases, 1)
    assert "| none |  |" in page
    assert "- artemis, 100 B: dropped out: connecting to port 1: Connection refused." in page


def test_acquit_dropping_out_ends_it_all(program: Path) -> None:
    with pytest.raises(SystemExit, match="acquit dropped out of 100 B: connecting to port 1"):
        bench_peers.measure(_contestants(program, 1), program, [bench_peers.CASES[0]], 1, SHARE)


def test_more_is_claimed_of_rates_of_the_native_build() -> None:
    for case in bench_peers.CASES:
        assert bench_peers.claimed(case, native=False) == case
        native = bench_peers.claimed(case, native=True)
        assert native.claim == (case.claim if case.timed else {1.2: 2.0, 1.0: 1.5}[case.claim])
        assert bench_peers.name_of(native) == bench_peers.name_of(case)


def test_what_is_made_replaces_what_a_page_has_between_two_marks(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("before\n\n<first>\n\nold\n\n<last>\n\nafter\n")
    bench_peers.put(page, ("<first>", "<last>"), "new\n")
    assert page.read_text() == "before\n\n<first>\n\nnew\n\n<last>\n\nafter\n"


def test_each_way_of_the_second_broker_runs(
    program: Path, acquit_there: bench_peers.Contestant, tmp_path: Path
) -> None:
    with Served(tmp_path) as second:
        another = bench_peers.Contestant("acquit", "acquit", second.port, None, second.process.pid)
        columns = bench_second_broker.ways(acquit_there, another)
        bench_second_broker.measure(columns, program, 1, SHARE)
    for way in columns:
        assert list(way.runs) == [case.name for case in bench_second_broker.CASES]
        assert all(len(run) == len(way.brokers) and all(run) for (run,) in way.runs.values())
    page = bench_second_broker.markdown(columns, 1).splitlines()
    rows = [line for line in page if line.startswith("|")]
    assert len(rows) == 2 + len(bench_second_broker.CASES)
    assert len({row.count("|") for row in rows}) == 1


def test_a_second_broker_counts_with_the_first() -> None:
    first, second = (bench_peers.Contestant(name, name, 1, None, 1) for name in ("first", "second"))
    alone, paired, both = bench_second_broker.ways(first, second)
    for case in bench_second_broker.CASES:
        alone.runs[case.name] = [[100.0], [200.0]]
        paired.runs[case.name] = [[200.0], [200.0]]
        both.runs[case.name] = [[100.0, 100.0], [200.0, 400.0]]
    said = bench_second_broker.markdown([alone, paired, both], 2)
    assert "| 100 B | 150 (100 to 200) | 200 (200 to 200) | 400 (200 to 600) | 2.50 | 2.00 |" in said
