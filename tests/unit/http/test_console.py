"""The files of the console, and the policy that they come with."""

from __future__ import annotations

import re
from importlib import resources
from pathlib import Path

import pytest
from fastapi import FastAPI

from acquit.broker.admin.troubles import TROUBLES
from acquit.http.console import FILES, add_console

STATIC = resources.files("acquit.http") / "static"


def test_every_file_is_served_and_no_other() -> None:
    app = FastAPI()
    before = len(app.routes)
    add_console(app)
    assert len(app.routes) - before == len(FILES)
    assert {name for name, _ in FILES.values()} == {entry.name for entry in STATIC.iterdir()}
    assert not any(path in app.openapi()["paths"] for path in FILES)


def test_each_trouble_of_a_queue_has_its_words_in_the_console_and_on_the_page() -> None:
    names = [name for name, _ in TROUBLES]
    words = (STATIC / "console.js").read_text().split("const TROUBLES = {", 1)[1].split("};", 1)[0]
    assert re.findall(r'^  "([\w-]+)": \[', words, re.MULTILINE) == names
    page = (Path(__file__).parents[3] / "docs" / "administration.md").read_text()
    assert ", ".join(f"`{name}`" for name in names) in " ".join(page.split())


@pytest.mark.parametrize("name", [name for name, _ in FILES.values()])
def test_no_file_names_another_host_or_writes_markup(name: str) -> None:
    text = (STATIC / name).read_text()
    assert set(re.findall(r"\w+://[^\s\"'`)]+", text)) <= {"http://www.w3.org/2000/svg"}
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(| on\w+=", text)
