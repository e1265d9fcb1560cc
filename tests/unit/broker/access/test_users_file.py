"""The users file: what it says, who may read it, and edits at once."""

from __future__ import annotations

import os
import stat
import threading
import traceback
from pathlib import Path

import pytest

from acquit.broker.access.users import Verifier
from acquit.broker.access.users_file import UsersFile, editing, format_users, load_users, parse_users
from acquit.broker.options import User
from acquit.errors import ConfigurationError
from tests.support.owners import Owners

VERIFIER = str(Verifier.of("s3cret"))


def test_what_is_written_is_read() -> None:
    content = UsersFile(
        users={
            "ada": User(password=VERIFIER, roles=("clerk", 'say "x"')),
            'böb "x" \\': User(),
            "with.dot": User(roles=("a\x7fb",)),
        },
        decoy_key="AAAA",
    )
    again = parse_users(format_users(content))
    assert again == content
    assert again.secret == b"\0\0\0"


def test_an_edit_is_whole_and_for_the_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder" / "users.toml"
    before = os.umask(0)
    try:
        with editing(path) as content:
            content.users["ada"] = User(password=VERIFIER)
    finally:
        os.umask(before)
    assert {one.name: stat.S_IMODE(one.stat().st_mode) for one in path.parent.iterdir()} == {
        "users.toml": 0o600,
        "users.toml.lock": 0o600,
    }
    for folder in (path.parent, path.parent.parent):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    key = load_users(path).secret
    assert len(key) == 32
    with editing(path) as content:
        del content.users["ada"]
    assert load_users(path) == UsersFile(users={}, decoy_key=content.decoy_key)
    assert load_users(path).secret == key, "it stays, or nobody's salts would change with every edit"


def test_what_a_killed_edit_left_is_no_hindrance_and_lends_no_mode(tmp_path: Path) -> None:
    path = tmp_path / "users.toml"
    left = tmp_path / "users.toml.new"
    left.write_text("half of")
    left.chmod(0o666)
    with editing(path) as content:
        content.users["ada"] = User()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(load_users(path).users) == ["ada"]


def test_an_edit_by_root_leaves_the_file_to_its_owner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Or the broker, which is somebody else, could not read it any more."""
    owners = Owners(monkeypatch)
    path = tmp_path / "data" / "users.toml"
    with editing(path) as content:
        content.users["ada"] = User()
    assert owners.handed_over == ["data", "users.toml.lock", "users.toml.new"]
    stat_ = Path.stat

    def of_another(self: Path, *, follow_symlinks: bool = True) -> os.stat_result:
        found = stat_(self, follow_symlinks=follow_symlinks)
        return os.stat_result((*found[:4], 7, 8, *found[6:10])) if self == path else found

    monkeypatch.setattr(Path, "stat", of_another)
    with editing(path) as content:
        content.users["bob"] = User()
    assert owners.given["users.toml.new"] == (7, 8), "those of the file that it replaces"
    assert sorted(load_users(path).users) == ["ada", "bob"]


def test_an_edit_that_fails_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "users.toml"
    with editing(path) as content:
        content.users["ada"] = User(password=VERIFIER)
    text = path.read_text()
    with pytest.raises(ZeroDivisionError), editing(path) as content:  # noqa: PT012 - it is the editing that must undo it
        content.users.clear()
        1 / 0  # noqa: B018
    with pytest.raises(ConfigurationError, match="SASLprep"), editing(path) as content:
        content.users["\u0007"] = User()
    with pytest.raises(ConfigurationError, match="not a password verifier"), editing(path) as content:
        content.users["bob"] = User(password="in the clear")
    assert path.read_text() == text


def test_a_name_that_is_no_text_is_not_written(tmp_path: Path) -> None:
    """Names from a command line are whatever octets there are."""
    path = tmp_path / "users.toml"
    with editing(path) as content:
        content.users["ada"] = User()
    before = path.read_bytes()
    with pytest.raises(ConfigurationError, match="users.toml: "), editing(path) as content:
        content.users["bob"] = User(roles=("b\udcff",))
    assert path.read_bytes() == before


def test_of_edits_at_once_none_is_lost(tmp_path: Path) -> None:
    path = tmp_path / "users.toml"

    def add(first: int) -> None:
        for number in range(first, first + 10):
            with editing(path) as content:
                content.users[f"user{number}"] = User()

    threads = [threading.Thread(target=add, args=(10 * number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(load_users(path).users) == 40


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("users =", "expected TOML"),
        ("[users.ada]\npassword = 'hunter22'", "users.ada.password: not a password verifier"),
        ("[users.ada]\npassword = 12345678", "password: expected a text"),
        ("[users.ada]\npassword = 'SCRAM-SHA-256$4096:hunter22'", "users.ada.password: not a password verifier"),
        ("[users.ada]\nroles = 'clerk'", "roles: expected a list of texts"),
        ("[users.ada]\ncolour = 'red'", "colour: no such key; there are password, roles"),
        ("decoy_key = '!'", "decoy_key: expected base64"),
        ("colour = 'red'", "colour: no such key; there are users, decoy_key"),
        ("[users.'']\n", "a user name has at least one character"),
    ],
)
def test_mistakes_are_named_and_repeat_no_secret(tmp_path: Path, text: str, complaint: str) -> None:
    path = tmp_path / "users.toml"
    path.write_text(text)
    with pytest.raises(ConfigurationError) as caught:
        load_users(path)
    said = str(caught.value)
    assert said.startswith(f"{path}: ")
    assert complaint in said
    told = "".join(traceback.format_exception(caught.value))
    assert "hunter22" not in told and "12345678" not in told


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        load_users(tmp_path / "none")
    with pytest.raises(ConfigurationError, match="cannot be read"):
        load_users(tmp_path)
    (tmp_path / "latin").write_bytes(b"# \xff")
    with pytest.raises(ConfigurationError, match="expected UTF-8, found byte 0xff"):
        load_users(tmp_path / "latin")
    with pytest.raises(ConfigurationError, match="cannot be written"), editing(tmp_path / "latin" / "users.toml"):
        pass
