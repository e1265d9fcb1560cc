"""The files of the console, and the policy that they come with."""

from __future__ import annotations

import json
import re
import subprocess
from importlib import resources
from pathlib import Path

import pytest
from fastapi import FastAPI

from acquit.broker.admin.troubles import TROUBLES
from acquit.http.console import FILES, add_console
from tests.support.syscalls import require

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


def run(tmp_path: Path, name: str, script: str) -> object:
    """Return what a script gives to `told`, which finds the exports of a file of the console in `it`."""
    node = require("node")
    (tmp_path / "it.mjs").write_text((STATIC / name).read_text())
    (tmp_path / "run.mjs").write_text(
        f"const told = (value) => console.log(JSON.stringify(value));\nconst it = await import('./it.mjs');\n{script}"
    )
    ran = subprocess.run([node, str(tmp_path / "run.mjs")], capture_output=True, text=True, timeout=60, check=True)
    return json.loads(ran.stdout)


def test_whole_numbers_that_a_browser_would_round_are_shown_with_all_their_digits(tmp_path: Path) -> None:
    answer = r'{"id": 18446744073709551615, "n": [-9007199254740993, 9007199254740991, 1.5, 1e21, 0.12345678901234567]'
    answer += r', "text 9007199254740993": "\"9007199254740993\\"}'
    script = f"""
globalThis.fetch = async () => ({{ ok: true, status: 200, text: async () => {json.dumps(answer)} }});
told(await it.message("q", 1));
"""
    assert run(tmp_path, "api.js", script) == {
        "id": "18446744073709551615",
        "n": ["-9007199254740993", 9007199254740991, 1.5, 1e21, 0.12345678901234567],
        "text 9007199254740993": '"9007199254740993\\',
    }


def test_a_time_that_no_calendar_has_is_shown_as_a_number(tmp_path: Path) -> None:
    """A sender may name it, and it must not keep an operator from the page of the queue."""
    script = "told([0, null, 1500, 9e15, '9223372036854775807'].map(it.clock));"
    assert run(tmp_path, "dom.js", script) == [
        "",
        "",
        "1970-01-01 00:00:01.500 UTC",
        "9000000000000000 ms",
        "9223372036854775807 ms",
    ]
