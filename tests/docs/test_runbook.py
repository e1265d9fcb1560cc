"""The runbook has a section for each alert, in its order, with all four parts, and names commands that there are."""

from __future__ import annotations

import re
import shlex

import click
import pytest
import yaml

from acquit.cli.app import acquit as cli
from tests.support.deployed import DEPLOY
from tests.support.pages import ROOT

RULES = yaml.safe_load((DEPLOY / "prometheus" / "alerts.yaml").read_text())["groups"][0]["rules"]
PAGE = (ROOT / "docs" / "runbook.md").read_text()
SECTIONS = dict(re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL))
COMMANDS = sorted(set(re.findall(r"`acquit ([a-z][^`]*)`", PAGE)))


def test_there_is_a_section_for_each_alert_and_no_other() -> None:
    assert list(SECTIONS) == [rule["alert"] for rule in RULES]


def test_the_page_about_monitoring_lists_each() -> None:
    page = (ROOT / "docs" / "monitoring.md").read_text()
    rows = {
        name: severity
        for alerts, severity in re.findall(r"^\| (\[Acquit.*?) \| (\w+) \|", page, re.MULTILINE)
        for name in re.findall(r"\[(\w+)\]", alerts)
    }
    assert rows == {rule["alert"]: rule["labels"]["severity"] for rule in RULES}


@pytest.mark.parametrize("alert", SECTIONS)
def test_a_section_says_what_it_means_and_what_to_do_and_not_to_do(alert: str) -> None:
    text = SECTIONS[alert]
    assert "**It means** " in text and "**Do not** " in text
    if "as for [" not in text and "| reason |" not in text:
        assert "**Look at** " in text and "**Do** " in text


@pytest.mark.parametrize("line", COMMANDS)
def test_the_commands_are_ours(line: str) -> None:
    """Parsed, not run: names in capitals stand for what an operator fills in."""
    words = [{"ID": "1", "SEQUENCE": "1"}.get(word, word) for word in shlex.split(line)]
    command: click.Command = cli
    parent = None
    while isinstance(command, click.Group) and words:
        context = click.Context(command, parent=parent, info_name=command.name)
        found = command.get_command(context, words[0])
        if found is None:
            break
        command, parent, words = found, context, words[1:]
    assert command is not cli
    assert not (isinstance(command, click.Group) and words and not words[0].startswith("-"))
    known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    assert {word.partition("=")[0] for word in words if word.startswith("-")} <= known
