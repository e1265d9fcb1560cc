"""The files of the console, and the policy that they come with."""

from __future__ import annotations

import re
from importlib import resources

import pytest
from fastapi import FastAPI

from acquit.http.console import FILES, add_console

STATIC = resources.files("acquit.http") / "static"


def test_every_file_is_served_and_no_other() -> None:
    app = FastAPI()
    before = len(app.routes)
    add_console(app)
    assert len(app.routes) - before == len(FILES)
    assert {name for name, _ in FILES.values()} == {entry.name for entry in STATIC.iterdir()}
    assert not any(path in app.openapi()["paths"] for path in FILES)


@pytest.mark.parametrize("name", [name for name, _ in FILES.values()])
def test_no_file_names_another_host_or_writes_markup(name: str) -> None:
    text = (STATIC / name).read_text()
    assert set(re.findall(r"\w+://[^\s\"'`)]+", text)) <= {"http://www.w3.org/2000/svg"}
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(| on\w+=", text)
