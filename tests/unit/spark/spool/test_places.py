"""Places of spools: how they are written, which store they get, and what can be told of them beforehand."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from acquit.errors import ConfigurationError, SpoolNotShared
from acquit.spark.spool.places import describe, file_system, open_store, read_place, refuse_private
from acquit.spark.spool.store import FolderStore

MOUNTS = """\
overlay / overlay rw 0 0
tmpfs /dev/shm tmpfs rw 0 0
/dev/sda1 /srv ext4 rw 0 0
filer:/spools /srv/shared\\040spools nfs4 rw 0 0
""".splitlines()


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("/data/spool", "/data/spool"),
        ("file:///data/spool", "/data/spool"),
        ("s3://bucket/spools/orders/", "s3://bucket/spools/orders"),
        ("s3a://bucket/orders", "s3://bucket/orders"),
    ],
)
def test_places_are_read(text: str, place: str) -> None:
    assert read_place(text) == place


@pytest.mark.parametrize(
    "text", ["spool", "hdfs://host/spool", "s3://bucket", "s3://bucket/", "s3:///path", "s3://key:secret@bucket/path"]
)
def test_what_is_no_place_is_refused_with_what_is_expected(text: str) -> None:
    with pytest.raises(ValueError, match="s3://bucket/path") as caught:
        read_place(text)
    assert "secret" not in str(caught.value)


def test_a_folder_gets_the_posix_store(tmp_path: Path) -> None:
    store = open_store(str(tmp_path))
    assert isinstance(store, FolderStore)
    assert store.place == str(tmp_path)


def test_an_object_store_needs_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(ConfigurationError, match=r"s3://b/p needs s3fs .*pip install 'acquit\[s3\]'"):
        open_store("s3://b/p")


@pytest.mark.parametrize(
    ("folder", "kind"),
    [
        ("/elsewhere", "overlay"),
        ("/dev/shm/x", "tmpfs"),
        ("/srv/x", "ext4"),
        ("/srv/shared spools/x", "nfs4"),
        ("/srvx", "overlay"),
    ],
)
def test_the_deepest_mount_says_what_a_folder_is_on(folder: str, kind: str) -> None:
    assert file_system(folder, MOUNTS) == kind


@pytest.mark.promise("shared-spool")
@pytest.mark.parametrize(
    "master", ["k8s://https://api:6443", "yarn", "spark://elsewhere:7077", "spark://10.0.0.9:7077"]
)
def test_what_no_other_machine_can_have_is_refused_for_a_master_elsewhere(master: str) -> None:
    with pytest.raises(SpoolNotShared, match=r"spool /pipelines/spool: that is overlay on .*the master is"):
        refuse_private("/pipelines/spool", master, kind_of=lambda _: "overlay")


@pytest.mark.promise("shared-spool")
@pytest.mark.parametrize(
    ("place", "master", "kind"),
    [
        ("/pipelines/spool", "local[2]", "overlay"),
        ("/pipelines/spool", "spark://127.0.0.1:7077", "overlay"),
        ("/pipelines/spool", "spark://localhost:7077", "tmpfs"),
        ("/pipelines/spool", "yarn", "ext4"),
        ("/pipelines/spool", "yarn", "nfs4"),
        ("/pipelines/spool", "yarn", None),
        ("s3://b/p", "yarn", "overlay"),
    ],
)
def test_what_may_be_shared_is_left_to_the_tasks(place: str, master: str, kind: str | None) -> None:
    refuse_private(place, master, kind_of=lambda _: kind)


def test_a_place_is_described_for_whom_does_not_see_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("acquit.spark.spool.places.file_system", lambda _: "ext4")
    assert describe(str(tmp_path)) == " (there it is on ext4, a disk of that machine)"
    assert describe("s3://b/p") == ""
