"""The whole demo on a small folder, with its kills, as `acquit demo` runs it."""

from __future__ import annotations

import contextlib
import io
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from acquit.cli.exits import Exit
from acquit.demo import ingest
from acquit.demo.play import EXIT_HOLDS, DemoOptions, run
from acquit.errors import AcquitError, ConfigurationError
from acquit.ledger.events import EventKind
from acquit.ledger.history import history

GOOD, BROKEN = 150, 5


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("files")
    for number in range(GOOD):
        name, content = [
            (f"m{number}.py", f"x = {number}\n"),
            (f"ü{number}.json", json.dumps({"n": number})),
            (f"t{number}.txt", "€" * number * 30),
        ][number % 3]
        (root / str(number % 7)).mkdir(exist_ok=True)
        (root / str(number % 7) / name).write_text(content, encoding="utf-8")
    for number in range(BROKEN):
        (root / f"broken{number}.toml").write_text("a = 1\na = 2\n")
    return root


@pytest.fixture(scope="module")
def played(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], Path]:
    """One run, with its naive twin: what it printed, and where it left everything."""
    data = tmp_path_factory.mktemp("demo") / "data"
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        status = run(DemoOptions(directory=folder, data=data, naive=True, json=True, post_s=1.5))
    assert status == EXIT_HOLDS, said.getvalue()
    return json.loads(said.getvalue()), data


def test_every_file_is_accounted_for_once(played: tuple[dict[str, Any], Path]) -> None:
    balance = played[0]["balance"]
    assert (balance["files"], balance["posted"]) == (GOOD + BROKEN, GOOD + BROKEN)
    assert (balance["in_table"], balance["dead_lettered"]) == (GOOD, BROKEN)
    assert (balance["lost"], balance["doubled"], balance["strangers"]) == (0, 0, [])
    assert balance["ledger_balanced"]
    assert balance["ledger_verified"]
    assert balance["holds"]


def test_the_kills_hit_something(played: tuple[dict[str, Any], Path]) -> None:
    assert played[0]["balance"]["redelivered"] > 0
    assert played[0]["figures"]["held_by_killed_worker"] > 0
    assert played[0]["figures"]["reconnects"] > 0


def test_acknowledging_on_receipt_loses_files_under_the_same_kills(played: tuple[dict[str, Any], Path]) -> None:
    naive = played[0]["naive"]
    assert naive["files"] == GOOD + BROKEN
    assert naive["lost"] > 0
    assert not naive["holds"]


def test_the_story_it_recommends_is_one(played: tuple[dict[str, Any], Path]) -> None:
    document, data = played
    (life,) = [
        life
        for life in history(data / "broker", sequence=document["balance"]["story"]).lives
        if life.sequence == document["balance"]["story"]
    ]
    kinds = [step.kind for step in life.steps]
    assert kinds.count(EventKind.ACQUIRED) > 1
    assert kinds[-1] in (EventKind.ACCEPTED, EventKind.DEAD_LETTERED)


def test_the_commands_it_recommends_work(played: tuple[dict[str, Any], Path]) -> None:
    assert len(played[0]["try"]) >= 3
    for command in played[0]["try"]:
        words = command.split()
        assert words[0] == "acquit"
        finished = subprocess.run(
            [sys.executable, "-m", *words], capture_output=True, text=True, timeout=60, check=False
        )
        assert finished.returncode == 0, (command, finished.stdout, finished.stderr)


def living_children() -> set[psutil.Process]:
    """Return the processes that live below this one."""
    return {child for child in psutil.Process().children(recursive=True) if child.status() != psutil.STATUS_ZOMBIE}


@pytest.mark.slow
@pytest.mark.spark
def test_spark_fills_the_table_and_survives_its_kill(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    system, data = tmp_path / "system", tmp_path / "the data"
    # Another test's Spark may live in this process: its Java machine is a child too.
    before = living_children()
    system.mkdir()
    monkeypatch.setenv("TMPDIR", str(system))
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", f"-Djava.io.tmpdir={system}")
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        status = run(DemoOptions(directory=folder, data=data, spark=True, json=True, post_s=1.0))
    assert status == EXIT_HOLDS, said.getvalue()
    document = json.loads(said.getvalue())
    assert document["table"] == "Delta"
    assert (document["balance"]["in_table"], document["balance"]["dead_lettered"]) == (GOOD, BROKEN)
    assert living_children() - before == set()
    # Of the one that was killed as well.
    assert list(system.iterdir()) == []
    assert not (data / "temporary").exists()


def test_spark_is_missed_before_the_first_message(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ingest, "NEEDED", ("pyspark", "a_package_that_is_not_there"))
    with pytest.raises(AcquitError, match="a_package_that_is_not_there: pip install"):
        run(DemoOptions(directory=folder, data=tmp_path / "data", spark=True, json=True))
    assert not (tmp_path / "data").exists()


@pytest.mark.slow
def test_people_see_the_same_numbers(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert run(DemoOptions(directory=folder, data=tmp_path / "data", post_s=1.0)) == EXIT_HOLDS
    said = capsys.readouterr().out
    assert f"{GOOD + BROKEN} files" in said
    assert "kill -9" in said
    assert "Every file is accounted for, once." in said
    assert f"acquit ledger balance --data {tmp_path / 'data' / 'broker'}" in said


def test_a_folder_with_something_in_it_is_refused(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("")
    with pytest.raises(ConfigurationError, match="expected an empty or absent folder"):
        run(DemoOptions(directory=folder, data=tmp_path, json=True))


@pytest.fixture
def running(folder: Path, tmp_path: Path) -> Iterator[psutil.Process]:
    """A demo in the middle: it has started all of its processes."""
    command = [sys.executable, "-m", "acquit", "demo", str(folder), "--data", str(tmp_path / "data"), "--json"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    whole = psutil.Process(process.pid)
    # A worker that has made its log file is there, and it is the last to be started.
    waiting = 10_000
    while not (tmp_path / "data" / "logs" / "worker-3.log").exists() and waiting and process.poll() is None:
        waiting -= 1
        psutil.wait_procs([whole], timeout=0.01)
    yield whole
    if process.poll() is None:
        process.kill()
    process.wait()


@pytest.mark.parametrize(
    ("number", "status"),
    [(signal.SIGINT, Exit.INTERRUPTED), (signal.SIGTERM, Exit.INTERRUPTED), (signal.SIGKILL, -signal.SIGKILL)],
)
def test_no_process_outlives_it(running: psutil.Process, number: int, status: int) -> None:
    children = running.children(recursive=True)
    assert len(children) >= 6, "a broker, two producers, three workers"
    running.send_signal(number)
    _, alive = psutil.wait_procs(children, timeout=20)
    assert alive == []
    assert running.wait(20) == status
