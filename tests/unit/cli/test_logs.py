from __future__ import annotations

import fcntl
import json
import logging
import os
import sys

import pytest
import structlog

from acquit.cli import logs


def test_json_lines_look_the_same_whoever_wrote_them(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("json", "info")
    structlog.get_logger("acquit.broker").info("connection opened", peer="127.0.0.1:5", sessions=2)
    logging.getLogger("acquit.transport").warning("slow peer %s", "a", extra={"peer": "127.0.0.1:6"})
    out, err = capsys.readouterr()
    first, second = map(json.loads, err.splitlines())
    assert out == ""
    assert {**first, "timestamp": ""} == {
        "event": "connection opened",
        "peer": "127.0.0.1:5",
        "sessions": 2,
        "level": "info",
        "logger": "acquit.broker",
        "timestamp": "",
    }
    assert (second["event"], second["level"], second["logger"]) == ("slow peer a", "warning", "acquit.transport")
    assert second["peer"] == "127.0.0.1:6"
    assert first.keys() == {"sessions", *second.keys()}


def test_an_exception_is_in_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("json", "info")
    try:
        raise ValueError("odd")
    except ValueError:
        structlog.get_logger("acquit.broker").exception("stopped")
    (shown,) = capsys.readouterr().err.splitlines()
    assert "ValueError: odd" in json.loads(shown)["exception"]


@pytest.mark.parametrize(("level", "shown"), [("debug", 3), ("info", 2), ("warning", 1), ("error", 0)])
def test_the_level_is_kept(level: str, shown: int, capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("json", level)
    for name in ("debug", "info", "warning"):
        getattr(structlog.get_logger("acquit.broker"), name)("said")
        getattr(logging.getLogger("acquit.store"), name)("said")
    assert len(capsys.readouterr().err.splitlines()) == 2 * shown


def test_lines_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("console", "info")
    structlog.get_logger("acquit.broker").info("connection opened", peer="127.0.0.1:5")
    shown = capsys.readouterr().err
    assert "connection opened" in shown and "peer=127.0.0.1:5" in shown
    assert "\x1b" not in shown


@pytest.mark.parametrize("log_format", logs.FORMATS)
def test_tracebacks_print_no_local_variables(log_format: str, capsys: pytest.CaptureFixture[str]) -> None:
    """They hold bytes of the wire, and passwords."""
    logs.configure(log_format, "info")

    def verify(response: bytes) -> None:
        raise ValueError("odd")

    try:
        verify(b"\0ada\0hunter2-" + b"is-not-shown")
    except ValueError:
        structlog.get_logger("acquit.broker").exception("stopped")
        logging.getLogger("acquit.broker").exception("stopped")
    shown = capsys.readouterr().err
    assert shown.count("ValueError: odd") == 2
    assert "hunter2-is-not-shown" not in shown


def test_what_is_lost_is_counted(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nobody reads. It is said as soon as somebody does."""
    read, write = os.pipe()
    fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, 4_096)
    monkeypatch.setattr(logs, "LINES_MAX", 3)
    said = logging.getLogger("acquit.broker")
    with open(write, "w") as full, open(read) as reader:
        monkeypatch.setattr(sys, "stderr", full)
        logs.configure("json", "info")
        with logs.apart():
            for _ in range(8):
                said.info("x" * 2_000)
            lines = []
            while "lost" not in (line := json.loads(reader.readline())["event"]):
                lines.append(line)
    lost = int(line.split()[0])
    assert lost and line == f"{lost} lines of the log are lost: nobody read it"
    assert len(lines) + lost <= 8
