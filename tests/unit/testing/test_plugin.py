"""The fixtures that pytest gets from acquit, used by a test suite of somebody else."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]

SUITE = """
import acquit

def test_it_is_there_and_empty(acquit_broker, acquit_broker_url):
    assert acquit_broker.url == acquit_broker_url
    with acquit.connect(acquit_broker_url) as connection:
        connection.session().sender("orders").send("one")
        assert connection.session().receiver("orders").receive(10).body == "one"

def test_it_is_this_test_s_own(acquit_broker):
    assert acquit_broker.inspect().queue("orders") is None

def test_the_proxy_is_before_it(acquit_proxy, acquit_broker_url):
    assert acquit_proxy.url != acquit_broker_url
    with acquit.connect(acquit_proxy.url) as connection:
        connection.session().sender("orders").send("one")
    assert len(acquit_proxy.passed("transfer")) == 1
"""

OPTIONS = """
from contextlib import suppress

import pytest
import acquit
from acquit.broker.options import AddressRule, BrokerOptions

@pytest.fixture
def acquit_broker_options():
    return BrokerOptions(address=(AddressRule("closed", {"create": False}),))

def test_options(acquit_broker_url):
    with acquit.connect(acquit_broker_url) as connection, pytest.raises(acquit.NotFound):
        connection.session().sender("closed")

def test_the_journal_stays_small(acquit_broker_url, tmp_path_factory):
    with acquit.connect(acquit_broker_url) as connection:
        connection.session().sender("orders").send("one")
    files, blocks = 0, 0
    for file in tmp_path_factory.getbasetemp().rglob("*"):
        with suppress(FileNotFoundError):  # the broker renames a segment when it is prewritten
            files, blocks = files + file.is_file(), blocks + file.stat().st_blocks
    assert files and blocks * 512 < 100_000_000
"""


def run(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def run_suite(suite: str, folder: Path) -> subprocess.CompletedProcess[str]:
    (folder / "test_suite.py").write_text(suite)
    # By its module, so that it does not matter how acquit was installed here.
    plugin = ("-p", "no:acquit", "-p", "acquit.testing.plugin")
    return run("-m", "pytest", "-q", "-p", "no:cacheprovider", *plugin, folder=folder)


def test_fixtures(tmp_path: Path) -> None:
    done = run_suite(SUITE, tmp_path)
    assert "3 passed" in done.stdout, done.stdout + done.stderr


def test_a_suite_chooses_options(tmp_path: Path) -> None:
    done = run_suite(OPTIONS, tmp_path)
    assert "2 passed" in done.stdout, done.stdout + done.stderr


def test_pytest_finds_it_by_an_entry_point() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["pytest11"] == {"acquit": "acquit.testing.plugin"}


def test_a_suite_that_does_not_use_it_loads_no_broker_and_no_proxy(tmp_path: Path) -> None:
    program = "import sys, acquit.testing.plugin; print(*sys.modules)"
    done = run("-c", program, folder=tmp_path)
    loaded = set(done.stdout.split())
    assert "acquit.testing.plugin" in loaded, done.stderr
    assert not loaded & {
        "acquit.broker",
        "acquit.embedded",
        "acquit.testing.proxy",
        "acquit.store",
        "structlog",
        "click",
    }
