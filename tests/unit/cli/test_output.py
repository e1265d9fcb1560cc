from __future__ import annotations

import json

import pytest

from acquit.cli.output import counted, counting, emit_json, line, remark, span_text, table, time_text


def test_a_document_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    emit_json({"body": "two\nlines, ü", "n": [1, None]})
    shown = capsys.readouterr().out
    assert shown == '{"body": "two\\nlines, ü", "n": [1, null]}\n'
    assert json.loads(shown) == {"body": "two\nlines, ü", "n": [1, None]}


def test_nothing_in_a_line_is_taken_for_markup(capsys: pytest.CaptureFixture[str]) -> None:
    line(("head  ", "dim"), "[bold]not bold[/bold] [/] :smile:")
    assert capsys.readouterr().out == "head  [bold]not bold[/bold] [/] :smile:\n"


def test_what_others_wrote_commands_no_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    hostile = "a\x1b[2J\x9b1mb\x07\tc\nd"
    line(hostile)  # not a terminal: as it is
    assert "\x1b[2J" in capsys.readouterr().out
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    line(("head ", "bold"), hostile)
    shown = capsys.readouterr().out
    assert "a\\x1b[2J\\x9b1mb\\x07" in shown and "\nd" in shown
    monkeypatch.undo()
    table(["x"], [[hostile]])
    assert "\x1b" not in capsys.readouterr().out


def test_remarks_do_not_disturb_results(capsys: pytest.CaptureFixture[str]) -> None:
    remark("as an aside")
    with counting("counting", 3) as counter:
        counter.advance()
    assert capsys.readouterr().out == ""


def test_what_is_counted_is_one_or_many() -> None:
    assert [counted(count, "file") for count in (0, 1, 1_002)] == ["0 files", "1 file", "1,002 files"]
    assert [counted(count, "batch", "batches") for count in (1, 2)] == ["1 batch", "2 batches"]
    assert counted(None, "file") == "None files"


def test_numbers_are_set_right_and_text_left(capsys: pytest.CaptureFixture[str]) -> None:
    table(["name", "live", "auto"], [["orders", 1234567, True], ["[b]", 8, None]], footer=["", 1234575, ""])
    assert [text.rstrip() for text in capsys.readouterr().out.splitlines()] == [
        "name         live  auto",
        "orders  1,234,567  yes",
        "[b]             8",
        "        1,234,575",
    ]


def test_a_wide_table_is_not_cut_where_there_is_no_screen(capsys: pytest.CaptureFixture[str]) -> None:
    table(["name", "address"], [["n" * 90, "a" * 90]])
    assert f"{'n' * 90}  {'a' * 90}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("time_us", "text"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (1_767_225_600_123_999, "2026-01-01T00:00:00.123Z"),
        (-1, "1969-12-31T23:59:59.999Z"),
        (2**63 - 1, "9223372036854775807 µs"),
    ],
)
def test_times_are_utc_to_the_millisecond(time_us: int, text: str) -> None:
    assert time_text(time_us) == text


@pytest.mark.parametrize(
    ("span_ms", "text"),
    [
        (0, "0 s"),
        (61_999, "1 min 1 s"),
        (3_600_000, "1 h"),
        (3_605_000, "1 h"),
        (90_061_000, "1 d 1 h"),
        (172_800_000, "2 d"),
    ],
)
def test_spans_of_time_have_two_units(span_ms: int, text: str) -> None:
    assert span_text(span_ms) == text
