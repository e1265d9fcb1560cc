"""The pictures of docs/pictures tell of exchanges as their scripts say them, and each is shown on a page. That they are
of exchanges that happen is held by `make check-generated`.
"""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
PICTURES = sorted((ROOT / "docs" / "pictures").glob("*.svg"))


@pytest.fixture
def recording(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    import frames.recording

    # A script that is not followed need not take long to be seen.
    monkeypatch.setattr(frames.recording, "WAIT_S", 1.0)
    return frames.recording


def test_every_picture_is_on_a_page() -> None:
    pages = "".join(page.read_text() for page in (ROOT / "docs").glob("*.md"))
    shown = set(re.findall(r"!\[[^\]]+\]\(pictures/([\w-]+)\.svg\)", pages))
    assert shown == {path.stem for path in PICTURES}


@pytest.mark.parametrize(
    ("script", "complaint"),
    [
        ("session = connection.session()\n > attach", "the script says attach, and there was .* Begin"),
        ("session = connection.session()\n > begin\n < begin\n > attach", "says attach by the client, and nothing"),
        ("session = connection.session()\n connection.session()\n", "does not say, before connection.session.*Begin"),
        ("session = connection.session()", "does not say .* Begin"),
        ("# 2 available", "says orders: 2 available, and it is 1 available"),
        ("connection.session('no such mode')\n ! NotFound", "raised ConfigurationError"),
        ("connection.session\n ! NotFound", "did not raise NotFound"),
    ],
)
def test_a_script_that_is_not_what_happens_makes_no_picture(recording: ModuleType, script: str, complaint: str) -> None:
    with pytest.raises(recording.Different, match=complaint):
        recording.record(script, posted=("m1",))


def test_a_frame_is_drawn_with_what_is_in_it(recording: ModuleType) -> None:
    lines = recording.record(
        """
        (session = connection.session())
        (> begin)
        (< begin)
        (sender = session.sender("orders"))
        (> attach)
        (< attach flow)
        sender.send("m1")
        > transfer
        < disposition
        # 1 available
        """
    )
    assert [(line.kind.name, line.text, line.details) for line in lines] == [
        ("CALL", 'sender.send("m1")', ()),
        ("FROM_CLIENT", "transfer", ("m1",)),
        ("FROM_BROKER", "disposition", ("m1", "accepted", "settled")),
        ("STATE", "orders: 1 available", ()),
    ]
