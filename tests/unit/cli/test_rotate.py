"""`acquit rotate`."""

from __future__ import annotations

from pathlib import Path

import acquit
from tests.support.shell import Shell


def test_rotate(shell: Shell, tmp_path: Path) -> None:
    with acquit.Broker(tmp_path) as broker:
        assert shell("rotate", "--url", broker.url).out == "segment 1 is closed\n"
        assert shell("rotate", "--url", broker.url, "--json").documents == [{"closed": 2}]
    assert [path.stem for path in sorted((tmp_path / "journal").glob("*.seg"))] == [f"{n:020}" for n in (1, 2, 3)]
