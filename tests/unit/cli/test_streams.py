"""Commands whose streams are not what they are in a shell: closed, or in another encoding."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import acquit
from acquit.cli.exits import Exit
from tests.support.shell import Ran, Shell


def in_shell(redirections: str, *arguments: str, stdin: bytes = b"", **environment: str) -> Ran:
    """Run ``acquit`` in a process of its own, with the redirections of a shell."""
    ran = subprocess.run(
        ["/bin/sh", "-c", f'"$@" {redirections}', "sh", sys.executable, "-m", "acquit", *arguments],
        input=stdin,
        capture_output=True,
        env={**os.environ, **environment},
        timeout=60,
        check=False,
    )
    return Ran(ran.returncode, ran.stdout.decode(errors="surrogateescape"), ran.stderr.decode())


# -- closed


@pytest.mark.parametrize("command", ["receive", "browse", "queues", "send"])
def test_nothing_is_done_where_nobody_could_see_it(at_broker: Shell, address: str, command: str) -> None:
    at_broker("send", address, "one")
    arguments = [command, *[address] * (command != "queues"), *["two"] * (command == "send")]
    ran = in_shell(">&-", *arguments)
    assert (ran.code, ran.err.count("\n")) == (Exit.FAILED, 1)
    assert ran.err.startswith("acquit: standard output is closed")
    (row,) = [row for row in at_broker("queues", "--json").documents if row["name"] == address]
    assert (row["available"], row["entered"]) == (1, 1)


@pytest.mark.parametrize(
    "command",
    [
        ("send", "q"),
        ("send", "q", "--lines"),
        ("send", "q", "--json-lines"),
        ("purge", "q"),
        ("queues", "delete", "q"),
        ("send", "q", "x", "--user", "eve"),
        ("user", "add", "eve", "--data", "{}"),
        ("user", "add", "eve", "--data", "{}", "--password-stdin"),
    ],
    ids=" ".join,
)
def test_closed_input_is_said_in_one_line(broker: acquit.Broker, tmp_path: Path, command: tuple[str, ...]) -> None:
    ran = in_shell("<&-", *(part.format(tmp_path) for part in command), ACQUIT_URL=broker.url)
    assert ran.code == Exit.USAGE
    assert "Traceback" not in ran.err
    assert any(text in ran.err.splitlines()[-1] for text in ("standard input is ", "a terminal to ask on")), ran.err


# -- another encoding


@pytest.mark.parametrize("locale", [{"LC_ALL": "C"}, {"LC_ALL": "C.UTF-8"}, {"PYTHONIOENCODING": "utf-8:strict"}])
def test_what_is_no_text_is_said_in_every_locale(broker: acquit.Broker, locale: dict[str, str]) -> None:
    for arguments, what in (((), ""), (("--lines",), "line 1 of ")):
        ran = in_shell("", "send", "q", *arguments, stdin=b"\xff\xfe", ACQUIT_URL=broker.url, **locale)
        assert (ran.code, ran.err) == (
            Exit.USAGE,
            f"acquit: {what}standard input is not text in utf-8; --file /dev/stdin sends it as it is\n",
        )


@pytest.mark.parametrize("encoding", ["latin-1", "ascii"])
@pytest.mark.parametrize("command", ["browse", "receive"])
def test_what_an_encoding_lacks_is_written_out(at_broker: Shell, address: str, encoding: str, command: str) -> None:
    text = "5 \u20ac, \u4e2d \U0001f600, \xe4"
    at_broker("send", address, text, text, "--subject", text, "--property", f"{text}={text}")
    ran = in_shell("", command, address, *["--count", "1"] * (command == "receive"), PYTHONIOENCODING=encoding)
    assert (ran.code, ran.err) == (Exit.OK, "")
    assert text in ran.out or text.encode(encoding, "backslashreplace") in ran.out.encode(errors="surrogateescape")
    ran = in_shell("", command, address, "--json", PYTHONIOENCODING=encoding)
    assert (ran.code, ran.err) == (Exit.OK, "")
    assert [document["body"] for document in ran.documents] == [text] * (1 if command == "receive" else 2)
    if command == "receive":
        assert at_broker("browse", address).out == ""


def test_a_table_is_shown_in_every_encoding() -> None:
    with acquit.Broker() as broker, acquit.connect(broker.url) as connection:
        connection.session().sender("\u20ac")
        ran = in_shell("", "queues", ACQUIT_URL=broker.url, PYTHONIOENCODING="latin-1")
    assert (ran.code, ran.err) == (Exit.OK, "")
    assert "\\u20ac" in ran.out


# -- no size


def test_a_terminal_without_columns_shows_what_there_is(broker: acquit.Broker) -> None:
    ran = in_shell("", "health", ACQUIT_URL=broker.url, COLUMNS="0")
    assert (ran.code, ran.out, ran.err) == (Exit.OK, "healthy\n", "")
    assert in_shell("", "status", ACQUIT_URL=broker.url, COLUMNS="0").out.startswith("acquit ")


# -- full


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("command", ["receive {0}", "receive {0} --json", "queues", "send {0} two", "--help"])
def test_an_output_that_is_full_is_named(at_broker: Shell, address: str, command: str, unbuffered: str) -> None:
    at_broker("send", address, "one")
    ran = in_shell("> /dev/full", *command.format(address).split(), PYTHONUNBUFFERED=unbuffered)
    assert ran.err == "acquit: standard output: [Errno 28] No space left on device\n"
    assert ran.code == Exit.FAILED, "and not 120, which is Python's"
    assert len(at_broker("browse", address, "--json").documents) == (2 if "send" in command else 1)


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_file_that_is_full_is_not_taken_for_the_output(tmp_path: Path, unbuffered: str) -> None:
    ran = in_shell("", "serve", "--data", "/dev/full/data", PYTHONUNBUFFERED=unbuffered)
    assert ran.code != Exit.OK
    assert "standard output" not in ran.err


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("receive {0} --timeout 0.1 --count 1", Exit.FAILED),
        ("queues --url amqp://127.0.0.1:1", Exit.UNREACHABLE),
        ("queues --nonsense", Exit.USAGE),
        ("queues", Exit.OK),
    ],
)
def test_a_full_standard_error_does_not_change_the_code(
    at_broker: Shell, address: str, command: str, code: Exit, unbuffered: str
) -> None:
    at_broker("send", address, "one")
    at_broker("receive", address)
    assert in_shell("2> /dev/full", *command.format(address).split(), PYTHONUNBUFFERED=unbuffered).code == code
