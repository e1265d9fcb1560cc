"""`acquit user`: the users file by commands."""

from __future__ import annotations

import json
from pathlib import Path

import click
import pytest

from acquit.broker.access.users import Verifier
from acquit.broker.access.users_file import load_users
from tests.support.shell import Shell


def test_add_list_passwd_roles_remove(shell: Shell, tmp_path: Path) -> None:
    where = ("--data", tmp_path / "data")
    assert shell("user", "list", *where).out == "no users\n"
    ran = shell("user", "add", "ada", "--role", "clerk", "--role", "auditor", "--password-stdin", *where, stdin="one\n")
    assert (ran.code, ran.out) == (0, "ada: added\n")
    assert "users.toml is written; a running broker knows it after `acquit config reload`" in ran.err
    path = tmp_path / "data" / "users.toml"
    ada = load_users(path).users["ada"]
    assert ada.roles == ("clerk", "auditor")
    assert Verifier.parse(ada.password).matches("one")
    assert "one" not in path.read_text()

    assert shell("user", "passwd", "ada", "--password-stdin", *where, stdin="two words \r\n").code == 0
    again = load_users(path).users["ada"]
    assert Verifier.parse(again.password).matches("two words ")
    assert again.roles == ada.roles

    assert shell("user", "add", "cert", "--no-password", *where).code == 0
    assert shell("user", "roles", "cert", "--role", "clerk", *where).out == "cert: clerk\n"
    listed = [json.loads(line) for line in shell("user", "list", "--json", *where).out.splitlines()]
    assert listed == [
        {"user": "ada", "password": True, "roles": ["clerk", "auditor"]},
        {"user": "cert", "password": False, "roles": ["clerk"]},
    ]
    table = shell("user", "list", *where).out
    assert "certificate" in table and "SCRAM" not in table

    assert shell("user", "remove", "ada", *where).out == "ada: removed\n"
    assert list(load_users(path).users) == ["cert"]


@pytest.mark.parametrize(
    ("configuration", "known"), [("[roles.clerk]\n[roles.auditor]\n", "auditor, clerk"), ("", "no roles at all")]
)
def test_a_role_that_the_configuration_has_not_is_refused(
    shell: Shell, tmp_path: Path, configuration: str, known: str
) -> None:
    config = tmp_path / "acquit.toml"
    config.write_text(configuration)
    where = ("--data", tmp_path, "--config", config)
    refusal = f"acquit: {config}: users.ada.roles: no role 'clark'; there are {known}\n"
    ran = shell("user", "add", "ada", "--role", "clark", "--no-password", *where)
    assert (ran.code, ran.out, ran.err) == (2, "", refusal)
    assert not (tmp_path / "users.toml").exists()
    ran = shell("user", "add", "ada", "--no-password", *where)
    assert ran.code == 0 and "--config" not in ran.err
    assert shell("user", "roles", "ada", "--role", "clark", *where).err == refusal
    assert load_users(tmp_path / "users.toml").users["ada"].roles == ()


def test_a_role_that_is_in_the_configuration(shell: Shell, tmp_path: Path) -> None:
    config = tmp_path / "acquit.toml"
    config.write_text("[roles.clerk]\nsend = ['#']\n")
    ran = shell("user", "add", "ada", "--role", "clerk", "--no-password", "--data", tmp_path, "--config", config)
    assert ran.code == 0 and "--config" not in ran.err
    assert shell("config", "check", config, "--data", tmp_path).code == 0


def test_a_broken_configuration_is_in_nobodys_way_where_no_role_is_given(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, config = tmp_path / "users.toml", tmp_path / "acquit.toml"
    assert shell("user", "add", "bob", "--role", "clerk", "--no-password", "--data", tmp_path).code == 0
    config.write_text("[roles\n")
    monkeypatch.setenv("ACQUIT_CONFIG", str(config))
    assert shell("user", "roles", "bob", "--role", "clerk", "--data", tmp_path).code == 2
    assert shell("user", "roles", "bob", "--data", tmp_path).out == "bob: no roles\n"
    assert shell("user", "add", "al", "--no-password", "--data", tmp_path).out == "al: added\n"
    assert {name: user.roles for name, user in load_users(path).users.items()} == {"bob": (), "al": ()}


def test_roles_that_nobody_checks_are_told_of(shell: Shell, tmp_path: Path) -> None:
    ran = shell("user", "add", "ada", "--role", "clerk", "--no-password", "--data", tmp_path)
    assert (ran.code, ran.err.splitlines()[0]) == (
        0,
        "acquit: a broker whose configuration has no role 'clerk' refuses the file; --config FILE checks it",
    )


def test_a_file_of_its_own(shell: Shell, tmp_path: Path) -> None:
    path = tmp_path / "etc" / "people.toml"
    assert shell("user", "add", "ada", "--password-stdin", "--file", path, stdin="x").code == 0
    assert list(load_users(path).users) == ["ada"]


@pytest.mark.parametrize(
    ("arguments", "stdin", "complaint"),
    [
        (("add", "ada", "--password-stdin"), "x\n", "there is a user 'ada' already"),
        (("add", "eve", "--password-stdin"), "\n", "expected a password, found nothing"),
        (("add", "eve", "--password-stdin"), b"\xff\n", "line 1 of standard input is not text in utf-8"),
        (("add", "eve", "--password-stdin"), "bell\a\n", "this password cannot be used"),
        (("add", "eve"), "secret\n", "use --password-stdin"),
        (("add", "eve", "--no-password", "--password-stdin"), "", "exclude each other"),
        (("add", "be\all", "--no-password"), "", "no user name"),
        (("add", "", "--no-password"), "", "at least one character"),
        (("remove", "eve"), "", "there is no user 'eve'"),
        (("passwd", "eve", "--password-stdin"), "x\n", "there is no user 'eve'"),
        (("roles", "eve"), "", "there is no user 'eve'"),
    ],
)
def test_what_cannot_be(
    shell: Shell, tmp_path: Path, arguments: tuple[str, ...], stdin: str | bytes, complaint: str
) -> None:
    assert shell("user", "add", "ada", "--no-password", "--data", tmp_path).code == 0
    before = (tmp_path / "users.toml").read_text()
    ran = shell("user", *arguments, "--data", tmp_path, stdin=stdin)
    assert ran.code == 2
    assert complaint in ran.err
    assert "secret" not in ran.err and "bell" not in ran.err
    assert (tmp_path / "users.toml").read_text() == before


def test_a_damaged_file_is_left_as_it_is(shell: Shell, tmp_path: Path) -> None:
    path = tmp_path / "users.toml"
    path.write_text("[users.ada]\npassword = 'hunter22'\n")
    ran = shell("user", "add", "bob", "--no-password", "--data", tmp_path)
    assert ran.code == 2
    assert "users.ada.password: not a password verifier" in ran.err and "hunter22" not in ran.err
    assert path.read_text() == "[users.ada]\npassword = 'hunter22'\n"


def test_a_password_is_asked_for_twice_where_there_is_a_terminal(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[dict[str, object]] = []

    def prompt(text: str, **options: object) -> str:
        asked.append({"text": text, **options})
        return "typed"

    monkeypatch.setattr(click, "prompt", prompt)
    monkeypatch.setattr("acquit.cli.user._at_terminal", lambda: True)
    assert shell("user", "add", "ada", "--data", tmp_path).code == 0
    assert asked == [{"text": "Password of ada", "hide_input": True, "confirmation_prompt": True, "err": True}]
    assert Verifier.parse(load_users(tmp_path / "users.toml").users["ada"].password).matches("typed")


def test_no_command_takes_a_password_as_an_argument(shell: Shell) -> None:
    for command in ("add", "passwd"):
        assert "--password " not in shell("user", command, "--help").out
