from __future__ import annotations

import threading

import pytest

from acquit import errors
from acquit.cli.exits import Exit, exit_of, one_line


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.ConfigurationError("port: expected an integer"), Exit.USAGE),
        (errors.EncodeError("no encoding"), Exit.USAGE),
        (errors.ConnectionLost("lost"), Exit.UNREACHABLE),
        (errors.ConnectTimeout("no open"), Exit.UNREACHABLE),
        (ConnectionRefusedError("refused"), Exit.UNREACHABLE),
        (errors.AuthenticationFailed("refused"), Exit.FAILED),
        (errors.NotFound("no such address"), Exit.FAILED),
        (errors.StoreMissing("no data folder"), Exit.USAGE),
        (errors.StoreLocked("in use"), Exit.FAILED),
        (errors.StoreCorrupt("bad", path="0001.seg", offset=8), Exit.UNSOUND),
        (errors.DeliveryInDoubt("unknown"), Exit.FAILED),
        (PermissionError("data"), Exit.FAILED),
        (MemoryError(), Exit.FAILED),
        (RuntimeError("can't start new thread"), Exit.FAILED),
        (RuntimeError("a defect"), None),
        (ZeroDivisionError(), None),
        (ValueError("a defect"), None),
    ],
)
def test_which_failure_gets_which_code(error: Exception, code: Exit | None) -> None:
    assert exit_of(error) == code


def test_every_class_of_the_tree_has_a_code() -> None:
    def below(kind: type[Exception]) -> list[type[Exception]]:
        return [kind, *(found for sub in kind.__subclasses__() for found in below(sub))]

    for kind in below(errors.AcquitError):
        assert exit_of(kind.__new__(kind)) is not None, kind


def test_python_says_of_threads_what_is_expected() -> None:
    """No system lends a stack as large as all of the addresses that a process has."""
    before = threading.stack_size(1 << 47)
    try:
        with pytest.raises(RuntimeError) as caught:
            threading.Thread(target=print).start()
    finally:
        threading.stack_size(before)
    assert one_line(caught.value).startswith("no more threads: raise the limit of processes")


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (errors.NotFound("no such address\n  'x'", condition="amqp:not-found"), "no such address 'x' (amqp:not-found)"),
        (errors.NotFound("amqp:not-found: x", condition="amqp:not-found"), "amqp:not-found: x"),
        (errors.SessionEnded(""), "SessionEnded"),
        (FileNotFoundError(2, "No such file or directory", "/a\nb"), "/a b: No such file or directory"),
        (OSError(18, "Invalid cross-device link", b"/a", None, "/b"), "/a to /b: Invalid cross-device link"),
        (OSError(9, "Bad file descriptor", 5), "[Errno 9] Bad file descriptor: 5"),
        (OSError(28, "No space left on device"), "[Errno 28] No space left on device"),
        (MemoryError(), "out of memory: the machine, its container or ulimit -v lends no more"),
    ],
)
def test_a_failure_is_one_line(error: Exception, text: str) -> None:
    assert one_line(error) == text
