from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from acquit.demo import checks
from acquit.demo.checks import DECODE_ERROR, DESCRIPTION_CHARS_MAX, PRECONDITION_FAILED, check, content_type, parse

GOOD = {
    "a.py": b"x = '\\d'\n",
    "latin.py": b"# -*- coding: latin-1 -*-\n# caf\xe9\n",
    "a.json": b'{"a": [1, null]}',
    "utf16.json": '{"a": "ü"}'.encode("utf-16"),
    "a.toml": 'a = "ü"\n'.encode(),
    "anything.txt": b"\xff\x00",
    "py": b"not ( python",
    "empty.py": b"",
}
BAD = {
    "python2.py": b"print 'x'\n",
    "nul.py": b"\x00",
    "coding.py": b"# -*- coding: nonsense -*-\n",
    "latin1.py": b"name = 'caf\xe9'\n",
    "deep.py": b"(" * 5000 + b")" * 5000,
    "cut.json": b'{"a": ',
    "empty.json": b"",
    "deep.json": b"[" * 200_000,
    "twice.toml": b"a = 1\na = 2\n",
    "latin1.toml": b'a = "\xe9"\n',
}


@pytest.mark.parametrize("name", GOOD)
def test_accepts_what_is_what_it_claims(name: str) -> None:
    assert parse(name, GOOD[name]) is None


@pytest.mark.parametrize("name", BAD)
def test_complains_about_what_is_not(name: str) -> None:
    complaint = parse(name, BAD[name])
    assert complaint is not None
    assert complaint.condition == DECODE_ERROR
    assert complaint.description.startswith("not ")
    assert len(complaint.description) <= DESCRIPTION_CHARS_MAX


def test_content_types_follow_the_name() -> None:
    assert content_type("a/b.py") == "text/x-python"
    assert content_type("a.toml/b") == "application/octet-stream"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "a.py").write_bytes(b"x = 1\n")
    (tmp_path / "empty.txt").write_bytes(b"")
    return tmp_path


SHA256 = hashlib.sha256(b"x = 1\n").hexdigest()


@pytest.mark.parametrize("body", [b"x = 1\n", b"x ="])
def test_a_file_that_is_as_it_was_posted_passes(root: Path, body: bytes) -> None:
    assert check(root, path="a.py", sha256=SHA256, body=body) is None


def test_an_empty_file_passes_with_an_empty_body(root: Path) -> None:
    assert check(root, path="empty.txt", sha256=hashlib.sha256(b"").hexdigest(), body=b"") is None


@pytest.mark.parametrize("body", [b"", b"y = 1\n", b"x = 1\n\n"])
def test_a_body_that_is_not_its_beginning_does_not(root: Path, body: bytes) -> None:
    complaint = check(root, path="a.py", sha256=SHA256, body=body)
    assert complaint is not None
    assert complaint.condition == PRECONDITION_FAILED


def test_a_file_that_changed_does_not(root: Path) -> None:
    (root / "a.py").write_bytes(b"x = 2\n")
    complaint = check(root, path="a.py", sha256=SHA256, body=b"x =")
    assert complaint is not None
    assert (complaint.condition, "changed" in complaint.description) == (PRECONDITION_FAILED, True)


def test_a_file_that_is_gone_does_not(root: Path) -> None:
    (root / "a.py").unlink()
    complaint = check(root, path="a.py", sha256=SHA256, body=b"x =")
    assert complaint is not None
    assert complaint.condition == PRECONDITION_FAILED


def test_every_sample_is_broken_and_written_where_it_is_said(tmp_path: Path) -> None:
    written = checks.write_samples(tmp_path / "samples")
    assert {path.name: path.read_bytes() for path in written} == checks.SAMPLES
    assert all(parse(path.name, path.read_bytes()) is not None for path in written)


def test_sees_a_broken_file_in_a_likely_place(tmp_path: Path) -> None:
    (tmp_path / "test" / "deep").mkdir(parents=True)
    (tmp_path / "test" / "deep" / "badsyntax.py").write_bytes(b"print 'x'\n")
    assert checks.has_poison(tmp_path)


def test_sees_none_where_the_tests_were_stripped(tmp_path: Path) -> None:
    (tmp_path / "test").mkdir()
    (tmp_path / "test" / "bad_but_fine.py").write_bytes(b"x = 1\n")
    (tmp_path / "elsewhere.py").write_bytes(b"print 'x'\n")
    assert not checks.has_poison(tmp_path)
