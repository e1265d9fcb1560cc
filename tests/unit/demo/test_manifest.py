from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acquit.demo.manifest import Manifest, ManifestEntry, freeze, head
from acquit.errors import ConfigurationError


def tree(root: Path, **files: bytes) -> Path:
    for name, content in files.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return root


def frozen(root: Path, *, files_max: int = 100, extra: list[Path] | None = None) -> Manifest:
    return freeze(root, files_max=files_max, file_bytes_max=1000, now_ms=7, extra=extra or ())


def test_lists_files_by_path_with_size_and_hash(tmp_path: Path) -> None:
    tree(tmp_path, b=b"second", a__x=b"first")
    manifest = frozen(tmp_path)
    assert [entry.path for entry in manifest.entries] == ["a/x", "b"]
    assert manifest.entries[0].sha256 == hashlib.sha256(b"first").hexdigest()
    assert [entry.size for entry in manifest.entries] == [5, 6]
    assert sum(manifest.left_out.values()) == 0


def test_leaves_out_caches_links_and_large_files_and_counts_them(tmp_path: Path) -> None:
    tree(tmp_path, a=b"1", big=b"x" * 1001, cache=b"")
    tree(tmp_path / "__pycache__", a=b"1")
    (tmp_path / "link").symlink_to(tmp_path / "a")
    (tmp_path / "nowhere").symlink_to(tmp_path / "missing")
    manifest = frozen(tmp_path)
    assert [entry.path for entry in manifest.entries] == ["a", "cache"]
    assert (manifest.left_out["links"], manifest.left_out["too_large"]) == (2, 1)


def test_a_name_that_is_not_unicode_is_counted_and_left_out(tmp_path: Path) -> None:
    tree(tmp_path, a=b"1")
    try:
        (tmp_path / "caf\udce9").write_bytes(b"2")
    except OSError:
        pytest.skip("this file system stores Unicode names only")
    manifest = frozen(tmp_path)
    assert [entry.path for entry in manifest.entries] == ["a"]
    assert manifest.left_out["name_not_unicode"] == 1


def test_above_the_limit_every_nth_file_is_taken(tmp_path: Path) -> None:
    tree(tmp_path, **{f"f{number:02}": b"" for number in range(10)})
    manifest = frozen(tmp_path, files_max=4)
    assert [entry.path for entry in manifest.entries] == ["f00", "f03", "f06", "f09"]
    assert manifest.left_out["above_files_max"] == 6


def test_files_of_elsewhere_are_listed_whatever_the_limit(tmp_path: Path) -> None:
    first, second = tree(tmp_path / "one", a=b"1"), tree(tmp_path / "two", z=b"2", y=b"3")
    manifest = frozen(first, files_max=1, extra=sorted(second.iterdir()))
    assert [(manifest.root / entry.path).read_bytes() for entry in manifest.entries] == [b"3", b"2", b"1"]
    assert [entry.path for entry in manifest.entries] == [str(second / "y"), str(second / "z"), "a"]


def test_saved_and_loaded_it_is_the_same(tmp_path: Path) -> None:
    manifest = frozen(tree(tmp_path / "in", **{"a b": b"1", "ü\u2028": b"2"}))
    target = tmp_path / "manifest.jsonl"
    digest = manifest.save(target)
    assert digest == hashlib.sha256(target.read_bytes()).hexdigest()
    assert Manifest.load(target) == manifest


@pytest.mark.parametrize("make", [lambda root: root / "missing", lambda root: tree(root / "empty", x__y=b"") / "x/y"])
def test_refuses_what_is_not_a_folder(tmp_path: Path, make: object) -> None:
    assert callable(make)
    with pytest.raises(ConfigurationError, match="expected a folder"):
        frozen(make(tmp_path))


def test_refuses_a_folder_without_files(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="at least one readable file"):
        frozen(tmp_path)


def test_identity_is_path_and_hash() -> None:
    one = ManifestEntry(path="a", size=1, mtime_ms=0, sha256="0" * 64)
    assert one.identity != ManifestEntry(path="b", size=1, mtime_ms=0, sha256="0" * 64).identity
    assert one.identity != ManifestEntry(path="a", size=1, mtime_ms=0, sha256="1" * 64).identity
    assert one.identity == ManifestEntry(path="a", size=1, mtime_ms=9, sha256="0" * 64).identity


@given(st.text(max_size=12), st.integers(min_value=1, max_value=40))
def test_the_head_of_a_text_is_text(text: str, limit: int) -> None:
    content = text.encode()
    cut = head(content, limit)
    assert content.startswith(cut)
    assert len(cut) <= limit
    cut.decode()
    # No character that would have fitted was left out.
    assert len(cut) == len(content) or len(cut) > limit - 4


@given(st.binary(max_size=20), st.integers(min_value=1, max_value=20))
def test_the_head_of_anything_is_its_beginning_and_not_empty(content: bytes, limit: int) -> None:
    cut = head(content, limit)
    assert content.startswith(cut)
    assert len(cut) <= limit


def test_bytes_that_are_no_text_are_cut_at_the_limit() -> None:
    assert head(b"\x80" * 10, 6) == b"\x80" * 6
