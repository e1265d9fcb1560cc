from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from acquit.errors import ConfigurationError
from acquit.spark.report import AuditTables, Choice, page_of, render, report
from tests.support.audit_tables import BROKER, START, Row, account_of, day, minute, tables

HOSTILE = "<script>alert('x')</script>&amp;\"$a_1$ \x07 \u202e \ufffe"
VOID = {"meta", "link", "input", "path", "use"}


class Reading(HTMLParser):
    """What elements there are; that they are closed in order."""

    def __init__(self) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.tags: list[str] = []
        self.references: list[str] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag not in VOID:
            self.open.append(tag)
        for name, value in attrs:
            assert not name.startswith("on"), (tag, name)
            if name == "id":
                self.ids.append(value or "")
            if name in ("href", "src", "action", "srcset"):
                self.references.append(value or "")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag


def read(html: str) -> Reading:
    reading = Reading()
    reading.feed(html)
    reading.close()
    return reading


def hostile() -> AuditTables:
    rows = [{**row, "queue": HOSTILE} for row in day("x", 1, minutes=60)]
    named: Row = {"broker": BROKER, "queue": HOSTILE, "sequence": 1}
    return tables(
        minutes=rows,
        balance=[account_of(rows, state="differs", detail=HOSTILE)],
        dead_letters=[{**minute(0), **named, "cause": HOSTILE, "condition": None, "count": 3}],
        anomalies=[{**named, "kind": HOSTILE, "detail": HOSTILE, "segment": 1, "time": START}],
        histories=[{**named, "segment": 1, "index": 0, "time": START, "kind": HOSTILE, "actor": HOSTILE}],
        coverage=[{"broker": BROKER, "folder": HOSTILE, "events": 1}],
    )


@pytest.mark.parametrize("given", [tables(), hostile()], ids=["empty", "hostile"])
def test_the_page_is_whole_and_alone(given: AuditTables) -> None:
    html = render(page_of(given, Choice(title=HOSTILE)))
    reading = read(html)
    assert reading.open == []
    assert len(reading.ids) == len(set(reading.ids))
    assert not {"script", "iframe", "img", "object", "embed", "foreignobject"} & set(reading.tags)
    for reference in reading.references:
        assert reference == "data:," or reference[1:] in reading.ids, reference
    assert set(re.findall(r"url\(#([^)]+)\)", html)) <= set(reading.ids)
    assert not re.search(r"url\((?!#)|@import|https?:(?!//www\.w3\.org/)", html)


def test_pictures_are_named_described_and_of_the_page() -> None:
    html = render(page_of(hostile(), Choice()))
    reading = read(html)
    pictures = reading.tags.count("svg")
    assert pictures >= 4
    assert len(re.findall(r'<svg [^>]*role="img"', html)) == pictures
    for name in re.findall(r'aria-(?:labelledby|describedby)="([^"]+)"', html):
        assert name in reading.ids
    assert not re.search(r"#0[01a]0[01a]0\d", html)  # no colour but those of the page
    assert "var(--s1)" in html
    assert "font-family: 'DejaVu" not in html


def test_the_same_tables_make_the_same_page() -> None:
    choice = Choice()
    assert render(page_of(hostile(), choice)) == render(page_of(hostile(), choice))


def test_what_cannot_be_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="top: expected 0 or more"):
        report(tmp_path, tmp_path / "out.html", top=-1)
