from __future__ import annotations

from pathlib import Path

import pytest

from acquit.cli.exits import Exit
from acquit.spark import report as package
from tests.support.audit_tables import account_of, day, tables
from tests.support.shell import Shell


@pytest.fixture
def audit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "audit"
    folder.mkdir()
    orders, payments = day("orders", 1, minutes=30), day("payments", 2, minutes=30)
    given = tables(minutes=[*orders, *payments], balance=[account_of(orders), account_of(payments)])

    def read(source: Path) -> object:
        assert source == folder
        return given

    monkeypatch.setattr(package, "read_tables", read)
    return folder


def test_a_page_is_written_and_narrowed_down(shell: Shell, audit: Path, tmp_path: Path) -> None:
    out = tmp_path / "page.html"
    done = shell("pipeline", "report", audit, out)
    assert done.code == Exit.OK
    assert done.out == f"{out}: {out.stat().st_size:,} bytes\n"
    assert "payments" in out.read_text()
    assert (
        shell("pipeline", "report", audit, out, "--queue", "ord*", "--title", "Of orders", "--top", "0").code == Exit.OK
    )
    assert "payments" not in out.read_text()
    assert "<h1>Of orders</h1>" in out.read_text()
    assert "<svg" in out.read_text()  # the broker's own
    assert list(tmp_path.glob(".page*")) == []


def test_a_folder_without_an_audit_is_said_in_a_line(shell: Shell, tmp_path: Path) -> None:
    done = shell("pipeline", "report", tmp_path, tmp_path / "page.html")
    assert (done.code, done.err.count("\n")) == (Exit.USAGE, 1)
    assert "has no audit" in done.err
    assert not (tmp_path / "page.html").exists()


def test_a_file_that_cannot_be_written(shell: Shell, audit: Path, tmp_path: Path) -> None:
    done = shell("pipeline", "report", audit, tmp_path / "nowhere" / "page.html")
    assert done.code == Exit.USAGE
    assert done.err.endswith(f"nowhere/page.html: there is no folder {tmp_path / 'nowhere'}\n")


def test_a_page_of_nothing_is_not_written(shell: Shell, audit: Path, tmp_path: Path) -> None:
    """It would say that all is well."""
    done = shell("pipeline", "report", audit, tmp_path / "page.html", "--queue", "ordres*")
    assert (done.code, done.err.count("\n")) == (Exit.USAGE, 1)
    assert "it has nothing of queues ordres*" in done.err
    assert not (tmp_path / "page.html").exists()
