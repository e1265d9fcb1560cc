"""``acquit user``: who may log in. Keeps the users file, of which a broker reads what is needed to check a password.

A password is asked for, or read from standard input; never taken from the command line, where every process of the
machine could read it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from acquit.cli.exits import Exit
from acquit.cli.lazy import WholeGroup
from acquit.cli.options import PathType, config_option, json_option, own_data_option
from acquit.cli.output import emit_json, remark, table
from acquit.cli.streams import input_lines
from acquit.errors import ConfigurationError

if TYPE_CHECKING:
    from acquit.broker.options import User

Command = TypeVar("Command", bound=Callable[..., object])


def file_options(command: Command) -> Command:
    """``--data`` and ``--file``: where the users file is."""
    command = click.option(
        "--file",
        "file",
        type=PathType(dir_okay=False),
        envvar="ACQUIT_USERS_FILE",
        show_envvar=True,
        metavar="FILE",
        help="The users file, where the broker's configuration names one (users_file).",
    )(command)
    return own_data_option("The broker's folder of data, whose users.toml is meant.")(command)


def stdin_option(command: Command) -> Command:
    """``--password-stdin``."""
    return click.option(
        "--password-stdin", is_flag=True, help="Take the password from the first line of standard input."
    )(command)


def role_options(command: Command) -> Command:
    """``--role``, and ``--config``: where roles are."""
    command = config_option("The broker's configuration: a ROLE that it has not is refused.")(command)
    return click.option(
        "--role", "roles", multiple=True, metavar="ROLE", help="A role of the broker's configuration; may be repeated."
    )(command)


@click.group(cls=WholeGroup)
def user() -> None:
    """Say who may log in, and with which roles."""


@user.command("add")
@click.argument("name")
@role_options
@stdin_option
@click.option("--no-password", is_flag=True, help="No password: this user logs in by TLS certificate alone.")
@file_options
def add(
    name: str,
    roles: tuple[str, ...],
    config: Path | None,
    password_stdin: bool,
    no_password: bool,
    data: Path,
    file: Path | None,
) -> int:
    """Add the user NAME."""
    from acquit.broker.access.users_file import editing
    from acquit.broker.options import User

    if no_password and password_stdin:
        raise click.UsageError("--no-password and --password-stdin exclude each other")
    _check_name(name)
    _check_roles(name, roles, config)
    path = _path(data, file)
    _check_absent(path, name)
    verifier = "" if no_password else _verifier(name, stdin=password_stdin)
    with editing(path) as content:
        if name in content.users:
            raise ConfigurationError(f"{path}: there is a user {name!r} already")
        first = not content.users
        content.users[name] = User(password=verifier, roles=roles)
    _done(f"{name}: added", path)
    if first:
        remark('with a first user, peers that do not log in are refused unless security.anonymous = "loopback"')
    return Exit.OK


@user.command("remove")
@click.argument("name")
@file_options
def remove(name: str, data: Path, file: Path | None) -> int:
    """Remove the user NAME."""
    from acquit.broker.access.users_file import editing

    path = _path(data, file)
    with editing(path) as content:
        _known(content.users, name, path)
        del content.users[name]
    _done(f"{name}: removed", path)
    return Exit.OK


@user.command("passwd")
@click.argument("name")
@stdin_option
@file_options
def passwd(name: str, password_stdin: bool, data: Path, file: Path | None) -> int:
    """Give the user NAME another password."""
    from dataclasses import replace

    from acquit.broker.access.users_file import editing

    path = _path(data, file)
    _known(_users(path), name, path)
    verifier = _verifier(name, stdin=password_stdin)
    with editing(path) as content:
        content.users[name] = replace(_known(content.users, name, path), password=verifier)
    _done(f"{name}: has another password", path)
    return Exit.OK


@user.command("roles")
@click.argument("name")
@role_options
@file_options
def roles_(name: str, roles: tuple[str, ...], config: Path | None, data: Path, file: Path | None) -> int:
    """Give the user NAME these roles instead of those it had; without --role none."""
    from dataclasses import replace

    from acquit.broker.access.users_file import editing

    _check_roles(name, roles, config)
    path = _path(data, file)
    with editing(path) as content:
        content.users[name] = replace(_known(content.users, name, path), roles=roles)
    _done(f"{name}: {', '.join(roles) or 'no roles'}", path)
    return Exit.OK


@user.command("list")
@file_options
@json_option
def list_(data: Path, file: Path | None, as_json: bool) -> int:
    """List the users, their roles, and how they can log in. Shows no secret."""
    users = sorted(_users(_path(data, file)).items())
    if as_json:
        for name, known in users:
            emit_json({"user": name, "password": bool(known.password), "roles": list(known.roles)})
    elif users:
        table(
            ["user", "roles", "logs in with"],
            [
                [name, ", ".join(known.roles) or "–", "password" if known.password else "certificate"]
                for name, known in users
            ],
        )
    else:
        click.echo("no users")
    return Exit.OK


def _path(data: Path, file: Path | None) -> Path:
    from acquit.broker.access.users_file import NAME

    return file if file is not None else data / NAME


def _users(path: Path) -> dict[str, User]:
    from acquit.broker.access.users_file import load_users

    try:
        return load_users(path).users
    except FileNotFoundError:
        return {}


def _known(users: dict[str, User], name: str, path: Path) -> User:
    if name not in users:
        raise ConfigurationError(f"{path}: there is no user {name!r}")
    return users[name]


def _check_absent(path: Path, name: str) -> None:
    """Refuse a name that the users file has already, before a password is asked for."""
    if name in _users(path):
        raise ConfigurationError(f"{path}: there is a user {name!r} already")


def _check_name(name: str) -> None:
    from acquit.broker.access.users import Users

    Users({name: ""})


def _check_roles(name: str, roles: tuple[str, ...], config: Path | None) -> None:
    """Refuse roles that a broker with this configuration would refuse, at its start and when it reloads."""
    from acquit.broker.access.permissions import build_permissions, naming
    from acquit.broker.configuration import load_options
    from acquit.broker.options import Security, User

    if not roles:
        return  # there is nothing to check, and a broken configuration is no reason to let somebody keep roles
    if config is None:
        remark(
            f"acquit: a broker whose configuration has no role {', '.join(map(repr, roles))} refuses the file; "
            "--config FILE checks it"
        )
        return
    known = load_options(config).security.roles
    with naming(config):
        build_permissions(Security(users={name: User(roles=roles)}, roles=known))


def _verifier(name: str, *, stdin: bool) -> str:
    """Return the verifier of the password that is given now."""
    from acquit.broker.access.users import Verifier

    if stdin:
        password = next(input_lines(), "").rstrip("\r\n")
    elif not _at_terminal():
        raise click.UsageError("standard input is no terminal to ask for a password: use --password-stdin")
    else:
        password = click.prompt(f"Password of {name}", hide_input=True, confirmation_prompt=True, err=True)
    if not password:
        raise click.UsageError("expected a password, found nothing")
    return str(Verifier.of(password))


def _at_terminal() -> bool:
    return sys.stdin.isatty()


def _done(what: str, path: Path) -> None:
    click.echo(what)
    remark(f"acquit: {path} is written; a running broker knows it after `acquit config reload`")
