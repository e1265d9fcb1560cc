from __future__ import annotations

from pathlib import Path

from acquit.demo import samples
from acquit.demo.checks import parse


def test_every_sample_is_broken() -> None:
    assert all(parse(name, content) is not None for name, content in samples.FILES.items())


def test_writes_them_under_its_prefix(tmp_path: Path) -> None:
    extra = samples.write(tmp_path / "samples")
    assert extra == {samples.PREFIX: tmp_path / "samples"}
    assert {path.name for path in (tmp_path / "samples").iterdir()} == set(samples.FILES)


def test_sees_a_broken_file_in_a_likely_place(tmp_path: Path) -> None:
    (tmp_path / "test").mkdir()
    (tmp_path / "test" / "badsyntax.py").write_bytes(b"print 'x'\n")
    assert samples.has_poison(tmp_path)


def test_sees_none_where_the_tests_were_stripped(tmp_path: Path) -> None:
    (tmp_path / "test").mkdir()
    (tmp_path / "test" / "bad_but_fine.py").write_bytes(b"x = 1\n")
    (tmp_path / "elsewhere.py").write_bytes(b"print 'x'\n")
    assert not samples.has_poison(tmp_path)
