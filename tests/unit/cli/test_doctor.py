from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from acquit.broker.configuration import parse_options
from acquit.cli.exits import Exit
from acquit.doctor import folder, machine
from tests.support.shell import Shell

SUBJECTS = {"python", "event loop", "open files", "memory", "clock", "configuration", "file system", "disk", "sync"}


@pytest.fixture(autouse=True)
def on_a_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Temporary folders may be in memory."""
    monkeypatch.setattr(folder, "mounts", lambda: "1 1 8:1 / / rw - ext4 /dev/sda1 rw")


def test_each_finding_is_a_line(shell: Shell, tmp_path: Path) -> None:
    ran = shell("doctor", "--data", tmp_path / "data")
    assert (ran.code, ran.err) == (Exit.OK, "")
    assert {line[:8].strip() for line in ran.out.splitlines()} <= {"ok", "warning"}
    assert {line[9:].partition(":")[0] for line in ran.out.splitlines()} >= SUBJECTS


def test_documents_for_machines(shell: Shell, tmp_path: Path) -> None:
    found = shell("doctor", "--data", tmp_path / "data", "--json").documents
    assert {one["subject"] for one in found} >= SUBJECTS
    assert all((one["advice"] == "") == (one["severity"] == "ok") for one in found)


@pytest.mark.parametrize("command", [("doctor", "--config"), ("config", "check")])
def test_a_configuration_may_come_from_a_pipe(shell: Shell, tmp_path: Path, command: tuple[str, ...]) -> None:
    """As that of `acquit serve`."""
    pipe, end = os.pipe()
    os.write(end, b"[limits]\nqueues_max = 5")
    os.close(end)
    try:
        ran = shell(*command, f"/dev/fd/{pipe}", "--data", tmp_path)
    finally:
        os.close(pipe)
    assert (ran.code, ran.err) == (Exit.OK, "")
    assert re.search(rf"/dev/fd/{pipe}(:| is) valid", ran.out)


def test_a_problem_is_a_failure(shell: Shell, tmp_path: Path) -> None:
    config = tmp_path / "acquit.toml"
    config.write_text("[limits]\nmemory = 5")
    ran = shell("doctor", "--data", tmp_path / "data", "--config", config)
    assert ran.code == Exit.FAILED
    (line,) = [line for line in ran.out.splitlines() if line.startswith("problem")]
    assert "limits.memory" in line and "would not start" in line


def test_a_folder_that_this_user_may_not_read_is_a_finding(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a backup by root leaves it. Tests may be root, who may read everything."""
    (data := tmp_path / "data").mkdir(0o700)
    may = os.access
    monkeypatch.setattr(os, "access", lambda path, mode, **how: Path(path) != data and may(path, mode, **how))
    ran = shell("doctor", "--data", data)
    assert (ran.code, ran.err) == (Exit.FAILED, "")
    assert f"problem  folder: {data} cannot be written by this user; run as the broker's user, or chown it\n" in ran.out
    ran = shell("ledger", "head", "--data", data)
    assert (ran.code, ran.err) == (
        Exit.USAGE,
        f"acquit: {data} is not a data folder of acquit: it has no broker.json\n",
    ), "nor is it a mistake in the command line"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[http]\nport = 0\n",
        "[http]\nport = 0\nconnections_max = 1000\n",
        "[limits]\nconnections_max = 9\nunauthenticated_max = 3\n" + "[[listen]]\nhost = 'localhost'\nport = 0\n" * 5,
    ],
    ids=["alone", "http", "much-http", "listeners"],
)
def test_a_broker_is_content_with_the_limit_that_is_advised(tmp_path: Path, text: str) -> None:
    limit = re.search(r"LimitNOFILE=(\d+)", machine.open_files(0, 0, parse_options(text)).advice)
    assert limit
    config = tmp_path / "acquit.toml"
    config.write_text(text)
    port = "" if "listen" in text else " --port 0"
    serve = f"{sys.executable} -m acquit serve --data {tmp_path}/data --config {config}{port}"
    command = ["sh", "-c", f"ulimit -n {limit[1]}; exec {serve}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert " ready: " in process.stdout.readline()
        process.terminate()
        _, told = process.communicate(timeout=30)
    assert "the limit of open files is too low" not in told
