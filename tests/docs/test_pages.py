"""Every example in README.md and docs/ runs.

The python blocks of a page are one program, run in order in a process of their own and in an empty folder, against a
broker of their own: ``amqp://127.0.0.1:5672`` in the text stands for its URL. Of a console block the lines that begin
with ``$ acquit`` are run, and must exit with 0.

Blocks that are ``staged`` speak of folders, queues and a Spark session that are put there first, in
tests/spark/test_pages.py. What cannot run says so in its fence (``python no-run``), and here, with the reason.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import acquit
from tests.support.pages import PAGES, ROOT, URL, all_blocks, blocks, name_of
from tests.support.shell import Shell

CLUSTER = "a cluster: tests/sparkcrash/test_packaging.py does as the page says, on one of its own"
ELSEWHERE = "needs what is not part of acquit, and no extra brings"
NO_RUN = {
    ("docs/backup.md", "$ acquit backup acquit-data /backups/monday"): "a broker of yours, and a place for its copies",
    ("docs/backup.md", "$ acquit restore /backups/monday"): "the same, and it ends with a broker that goes on",
    ("docs/brokers.md", "import acquit"): "RabbitMQ; tests/interop/test_rabbitmq.py runs it there",
    ("docs/http.md", "$ pip install 'acquit[http]'"): "installs something, and goes on until it is stopped",
    ("docs/index.md", "$ acquit serve --data data"): "goes on until it is stopped",
    ("docs/ingest.md", "$ spark-submit --master spark://host:7077 "): "tests/spark/test_pages.py, as it is slow",
    ("docs/locks.md", "for part in work(message):"): "a sketch around work of yours",
    ("docs/locks.md", "def on_message(self, event):"): ELSEWHERE,
    ("docs/qpid-messaging.md", "$ python -m acquit.compat.qpid drain.py "): "a program of yours",
    ("docs/reload.md", "$ acquit config check acquit.toml"): "a broker that was started with a file of yours",
    ("docs/security.md", "import ssl"): "certificates of yours",
    ("docs/spark-cluster.md", "# ingest_orders.py"): CLUSTER,
    ("docs/spark-cluster.md", "$ python3 -m venv /opt/acquit"): CLUSTER,
    ("docs/spark-cluster.md", "$ export PYSPARK_PYTHON=/opt/acquit/bin/python"): CLUSTER,
    ("docs/spark-cluster.md", "$ spark-submit --master spark://master:7077 $("): CLUSTER,
    ("docs/spark-cluster.md", "$ python3 -m pip install --target acquit-packages "): CLUSTER,
    ("docs/spark-cluster.md", "$ export PYTHONPATH=acquit-packages"): CLUSTER,
    ("docs/spark-cluster.md", "$ docker build "): "a container engine and Kubernetes",
    ("docs/spark-cluster.md", "import os"): "a notebook on a cluster of yours",
    ("docs/spark-sizing.md", "$ python benchmarks/bench_spark_sizing.py "): "a benchmark",
    ("docs/spark-tutorial.md", "$ acquit pipeline ingest orders ./orders "): "goes on until it is interrupted",
    ("docs/testing.md", "import acquit"): "a file of tests; tests/docs/test_blocks_that_others_run.py",
    ("docs/transactions.md", "from proton import Message"): ELSEWHERE,
}
"""The examples that are not run: how they begin, on which page, and why. There are no others."""


def pages_with(language: str) -> list[object]:
    return [
        pytest.param(page, id=name_of(page))
        for page in PAGES
        if any(block.language == language for block in blocks(page))
    ]


@pytest.mark.parametrize("page", pages_with("python"))
def test_python_blocks(page: Path, tmp_path: Path) -> None:
    run_program(page, "", tmp_path)


@pytest.mark.slow
def test_the_tutorial_of_spark_starts_its_own(tmp_path: Path) -> None:
    """Elsewhere its blocks run in the session of all tests, and a newcomer has none."""
    run_program(ROOT / "docs" / "spark-tutorial.md", "staged", tmp_path, limit_s=300)


def run_program(page: Path, how: str, folder: Path, *, limit_s: int = 100) -> None:
    # Blank lines in place of the prose, so that a traceback names the line of the page.
    program = ""
    for block in blocks(page, how):
        if block.language == "python":
            program += "\n" * (block.line - 1 - program.count("\n")) + block.text
    script = folder / page.name
    with acquit.Broker() as broker:
        script.write_text(program.replace(URL, broker.url))
        done = subprocess.run(
            [sys.executable, "-W", "error", str(script)],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=limit_s,
            check=False,
        )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("page", pages_with("console"))
def test_console_blocks(page: Path, tmp_path: Path, shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NO_COLOR", "1")
    with acquit.Broker(tmp_path / "data") as broker:
        monkeypatch.setenv("ACQUIT_URL", broker.url)
        for block in blocks(page):
            for line in block.text.splitlines() if block.language == "console" else ():
                if line.startswith("$ acquit "):
                    ran = shell(*shlex.split(line.removeprefix("$ acquit ").replace(URL, broker.url)))
                    assert ran.code == 0, (line, ran)


def test_what_is_not_run_has_a_reason() -> None:
    """An example that nothing runs is one that nobody knows to be right."""
    left = dict(NO_RUN)
    for page in PAGES:
        for block in all_blocks(page):
            assert block.how in ("", "staged", "no-run"), (name_of(page), block)
            if block.how == "no-run":
                named = [key for key in left if key[0] == name_of(page) and block.text.startswith(key[1])]
                assert named, f"{name_of(page)}, line {block.line}: say in NO_RUN why it cannot be run"
                del left[named[0]]
    assert not left, f"no longer on its page: {left}"
