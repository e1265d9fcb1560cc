"""What a forked child must let go of, and what it does not lose."""

from __future__ import annotations

import contextlib
import gc
import os
import resource
import socket
from pathlib import Path

from acquit import forks
from tests.support.forking import FORKING, in_child

pytestmark = FORKING


def is_null(descriptor: int) -> bool:
    return os.fstat(descriptor).st_rdev == os.stat(os.devnull).st_rdev


def test_a_child_has_the_null_device_where_its_parent_has_what_it_keeps(tmp_path: Path) -> None:
    with open(tmp_path / "kept", "w+b") as file, open(tmp_path / "other", "w+b") as other, socket.socket() as listening:
        assert forks.keep_here(file) is file
        forks.keep_here(listening)
        listening.bind(("127.0.0.1", 0))
        listening.listen()

        def check() -> None:
            for descriptor in (file.fileno(), listening.fileno()):
                assert is_null(descriptor)
                assert not os.get_inheritable(descriptor), "a program that the child starts has none of it"
            assert not is_null(other.fileno())
            listening.close()
            file.write(b"of the child")
            file.close()

        in_child(check)
        file.write(b"of the parent")
        file.flush()
        assert (tmp_path / "kept").read_bytes() == b"of the parent"
        with socket.create_connection(listening.getsockname()):
            pass


def test_what_is_closed_or_forgotten_is_kept_no_more(tmp_path: Path) -> None:
    closed, closed_file, forgotten = socket.socket(), open(tmp_path / "closed", "wb"), socket.socket()  # noqa: SIM115
    for thing in (closed, closed_file, forgotten):
        forks.keep_here(thing)
    numbers = {closed.fileno(), closed_file.fileno(), forgotten.fileno()}
    closed.close()
    closed_file.close()
    forgotten.close()
    del forgotten
    gc.collect()
    with contextlib.ExitStack() as others:
        there = [others.enter_context(open(tmp_path / f"{number}", "wb")) for number in range(20)]
        assert numbers <= {one.fileno() for one in there}

        def check() -> None:
            assert not any(is_null(one.fileno()) for one in there)

        in_child(check)


def test_a_child_lets_go_though_it_may_open_nothing_more(tmp_path: Path) -> None:
    with open(tmp_path / "one", "wb") as one, open(tmp_path / "two", "wb") as two:

        def check() -> None:
            while (free := os.dup(0)) < max(one.fileno(), two.fileno()):
                pass  # so that no number below is free
            os.close(free)
            _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
            resource.setrlimit(resource.RLIMIT_NOFILE, (free, hard))
            forks.let_go([one.fileno(), two.fileno()])
            assert is_null(one.fileno()) and is_null(two.fileno())

        in_child(check)


def test_where_nothing_is_open_nothing_is_done() -> None:
    before = os.listdir("/dev/fd")
    forks.let_go([])
    assert os.listdir("/dev/fd") == before
