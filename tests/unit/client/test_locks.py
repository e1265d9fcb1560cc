from __future__ import annotations

import signal
import threading

from acquit.client.locks import UserLock
from tests.support.signalled import interrupted_at_each_call

LONG = 30.0


def is_free(lock: UserLock) -> bool:
    """Whether another thread can take the lock."""
    taken: list[bool] = []

    def take() -> None:
        taken.append(lock.acquire(blocking=False))
        if taken[0]:
            lock.release()

    thread = threading.Thread(target=take)
    thread.start()
    thread.join(LONG)
    return taken == [True]


def test_no_interrupt_leaves_it_taken() -> None:
    lock = UserLock()
    done: list[int] = []

    def take() -> None:
        with lock:
            done.append(1)
            len(done)

    def check() -> None:
        assert is_free(lock)

    interrupted_at_each_call(take, check)


def test_no_interrupt_of_a_second_taking_gives_back_or_keeps_the_first() -> None:
    lock = UserLock()
    within: list[bool] = []

    def take() -> None:
        with lock:
            try:
                with lock:
                    len(within)
            finally:
                within.append(lock._is_owned())  # type: ignore[attr-defined]

    def check() -> None:
        assert all(within)
        assert is_free(lock)

    interrupted_at_each_call(take, check)


def test_an_interrupt_of_a_thread_that_waits_takes_nothing() -> None:
    lock = UserLock()
    held, over = threading.Lock(), threading.Lock()
    held.acquire()
    over.acquire()

    def hold() -> None:
        with lock:
            held.release()
            over.acquire()

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    holder = threading.Thread(target=hold)
    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        holder.start()
        held.acquire()
        signal.setitimer(signal.ITIMER_REAL, 0.5)
        try:
            with lock:
                raise AssertionError("the holder has it")
        except KeyboardInterrupt:
            pass
        assert not is_free(lock)
    finally:
        signal.signal(signal.SIGALRM, before)
        over.release()
        holder.join(LONG)
    assert is_free(lock)
