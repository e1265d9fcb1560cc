"""The users file: users and their verifiers, kept by `acquit user` and read by the broker.

It is TOML, with the tables that users have in a configuration, and the secret that salts for unknown users are made
from::

    decoy_key = "..."

    [users."alice"]
    password = "SCRAM-SHA-256$4096:..."
    roles = ["clerk"]

One without users has the empty table ``[users]``, which says so: one that was cut off at its head has not.

A password in the clear is refused. The file is readable for its owner alone, and written whole or not at all: into a
file beside it, which then takes its place. Who edits it holds a lock, so that of two edits at once none is lost; who
reads it needs none.
"""

from __future__ import annotations

import base64
import binascii
import fcntl
import json
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from acquit.broker.access.users import Users, Verifier
from acquit.broker.configuration import read_text, read_toml, structure
from acquit.broker.options import User
from acquit.errors import ConfigurationError
from acquit.store.ownership import hand_over, make_file, make_folder

NAME: Final = "users.toml"
"""Name of the users file in a data folder."""
_HEAD: Final = "# Kept by `acquit user`.\n"
_KEY_BYTES: Final = 32


@dataclass(kw_only=True, slots=True)
class UsersFile:
    """The contents of a users file."""

    users: dict[str, User] = field(default_factory=dict)
    decoy_key: str = field(default="", repr=False)
    """A key in base64; see `users.Users`. Empty: there is none."""
    states_users: bool = field(default=False, init=False, compare=False)
    """True if the file has the table of users, and be it empty."""

    @property
    def secret(self) -> bytes:
        """The key itself."""
        return base64.b64decode(self.decoy_key, validate=True)


def load_users(path: Path) -> UsersFile:
    """The users in a file. Raises ConfigurationError where it cannot be read, is no users file, or says what cannot be;
    FileNotFoundError where it is not there."""
    return parse_users(read_text(path), str(path))


def parse_users(text: str, source: str = "users") -> UsersFile:
    """The users in the text of a file; `source` names it in errors. Raises ConfigurationError, which repeats no
    password and no verifier."""
    document = read_toml(text, source)
    found = structure(document, UsersFile, source)
    found.states_users = "users" in document
    try:
        _ = found.secret
    except (ValueError, binascii.Error):
        raise ConfigurationError(f"{source}: decoy_key: expected base64") from None
    for name, user in found.users.items():
        if user.password:
            try:
                Verifier.parse(user.password)
            except ConfigurationError as error:
                raise ConfigurationError(f"{source}: users.{name}.password: {error}") from None
    try:
        Users(dict.fromkeys(found.users, ""))
    except ConfigurationError as error:
        raise ConfigurationError(f"{source}: {error}") from None
    return found


def format_users(content: UsersFile) -> str:
    """The text of a file."""
    lines = [_HEAD, f"decoy_key = {_quoted(content.decoy_key)}\n"]
    if not content.users:
        lines.append("\n[users]\n")
    for name, user in sorted(content.users.items()):
        lines.append(f"\n[users.{_quoted(name)}]\n")
        if user.password:
            lines.append(f"password = {_quoted(user.password)}\n")
        if user.roles:
            lines.append(f"roles = [{', '.join(map(_quoted, user.roles))}]\n")
        if user.any_user_id:
            lines.append("any_user_id = true\n")
    return "".join(lines)


@contextmanager
def editing(path: Path) -> Iterator[UsersFile]:
    """The users of a file, to be changed: what they are at the end is written, unless an exception comes before.

    Waits for others who edit it. A file, and its folder, that are not there are made. Raises ConfigurationError as
    `load_users` does, and where nothing can be written.
    """
    try:
        for level in reversed([level for level in path.parents if not level.exists()]):
            make_folder(level)
        lock = make_file(path.with_name(f"{path.name}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot be written: {error.strerror}") from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            content = load_users(path)
        except FileNotFoundError:
            content = UsersFile()
        if not content.decoy_key:
            content.decoy_key = base64.b64encode(secrets.token_bytes(_KEY_BYTES)).decode()
        yield content
        text = format_users(content)
        parse_users(text, str(path))  # nothing is written that could not be read
        try:
            data = text.encode()
        except UnicodeEncodeError as error:  # a name from a command line need be no text
            found = text[error.start : error.end]
            raise ConfigurationError(f"{path}: expected names that UTF-8 can encode, found {found!r}") from None
        try:
            _replace(path, data)
        except OSError as error:
            raise ConfigurationError(f"{path}: cannot be written: {error.strerror}") from error
    finally:
        os.close(lock)


def _replace(path: Path, data: bytes) -> None:
    """Whole or not at all, and on the disk; owner and group stay. The caller has the lock."""
    new = path.with_name(f"{path.name}.new")
    new.unlink(missing_ok=True)  # of somebody who was killed; with whatever mode it had
    fd = make_file(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC)
    with os.fdopen(fd, "wb") as file:
        with suppress(FileNotFoundError):
            hand_over(fd, path.stat())
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _quoted(text: str) -> str:
    # JSON's strings are TOML's but for DEL, which TOML wants escaped.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


__all__ = ["NAME", "UsersFile", "editing", "format_users", "load_users", "parse_users"]
