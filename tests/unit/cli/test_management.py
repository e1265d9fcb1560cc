"""What commands ask of a broker."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module

import pytest

from acquit.cli.exits import Exit
from acquit.cli.management import lasting
from tests.support.shell import Shell


def test_who_interrupts_it_hears_that_the_broker_goes_on(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(KeyboardInterrupt), lasting():
        raise KeyboardInterrupt
    assert capsys.readouterr().err == "acquit: interrupted; the broker goes on with what it was asked for\n"


def test_what_is_answered_needs_no_remark(capsys: pytest.CaptureFixture[str]) -> None:
    with lasting():
        pass
    with pytest.raises(ValueError, match="no"), lasting():
        raise ValueError("no")
    assert capsys.readouterr().err == ""


class Interrupted:
    """A conversation in which somebody interrupts what changes something."""

    def request(self, operation: str, kind: str, *, name: str, body: object = None) -> object:
        if operation in ("READ", "QUERY"):
            return {}
        raise KeyboardInterrupt

    ask = request


@pytest.mark.parametrize(
    "arguments",
    [
        ["move", "a", "b"],
        ["purge", "a", "--yes"],
        ["queues", "delete", "a", "--yes"],
        ["dlq", "redrive", "--yes"],
        ["scheduled", "cancel", "a", "--all"],
    ],
)
def test_each_command_says_so(shell: Shell, monkeypatch: pytest.MonkeyPatch, arguments: list[str]) -> None:
    @contextmanager
    def management(*_: object) -> Iterator[Interrupted]:
        yield Interrupted()

    module = import_module(f"acquit.cli.{'queues' if arguments[0] == 'purge' else arguments[0]}")
    monkeypatch.setattr(module, "management", management)
    ran = shell(*arguments)
    assert (ran.code, ran.out) == (Exit.INTERRUPTED, "")
    assert "the broker goes on" in ran.err
