"""kill -9 of the broker under requests from many threads: every reply is the right one, and no wait is forgotten.

Replies to a fixed address all come in the end. Those to a temporary node come, or the request ends with
ReplyAddressLost and is made again.
"""

from __future__ import annotations

import random
import threading
import time
from pathlib import Path

import pytest

import acquit
from acquit import errors
from acquit.demo.children import Children
from acquit.testing import Proxy
from tests.support.endpoint import BrokerProcess

THREADS = 4
KILLS = 2
PROGRESS = 20
"""Replies between one kill and the next, at least."""
TIMEOUT_S = 60.0


class Asking(threading.Thread):
    """Asks one question after another."""

    def __init__(self, name: str, requester: acquit.Requester, stop: threading.Event) -> None:
        super().__init__(name=name, daemon=True)
        self._requester = requester
        self._stop_asking = stop
        self.answered = 0
        self.lost = 0
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            while not self._stop_asking.is_set():
                text = f"{self.name} {self.answered}"
                try:
                    reply = self._requester.request(text, timeout=TIMEOUT_S)
                except errors.ReplyAddressLost:
                    self.lost += 1
                    continue
                assert reply.text == text.upper()
                self.answered += 1
        except BaseException as why:
            self.failure = why


@pytest.mark.parametrize(
    ("fixed", "mode"),
    [
        (False, "individual"),
        pytest.param(True, "transacted", marks=pytest.mark.slow),
        pytest.param(False, "transacted", marks=pytest.mark.slow),
        pytest.param(True, "individual", marks=pytest.mark.slow),
    ],
)
def test_requests_while_the_broker_is_killed(tmp_path: Path, rng: random.Random, fixed: bool, mode: str) -> None:
    with Children(tmp_path / "logs") as children:
        broker = BrokerProcess(children, tmp_path / "broker", tmp_path / "endpoint")
        broker.start()
        stop = threading.Event()
        with (
            Proxy(broker.url) as proxy,
            acquit.connect(proxy.url) as serving,
            acquit.connect(proxy.url) as asking,
            serving.session(mode) as session,
            session.responder("service", lambda request: request.text.upper()) as responder,
            asking.session() as requests,
            requests.requester("service", reply_to="replies" if fixed else None) as requester,
        ):
            threads = [Asking(f"thread {number}", requester, stop) for number in range(THREADS)]
            for thread in threads:
                thread.start()
            for _ in range(KILLS):
                wait_for(threads, sum(thread.answered for thread in threads) + PROGRESS + rng.randrange(PROGRESS))
                broker.kill()
                broker.start()
                proxy.retarget(broker.url)
            wait_for(threads, sum(thread.answered for thread in threads) + PROGRESS)
            stop.set()
            for thread in threads:
                thread.join(TIMEOUT_S)
                assert not thread.is_alive()
            assert [thread.failure for thread in threads] == [None] * THREADS
            assert (requester.pending, requester.unknown_replies, responder.done) == (0, 0, False)
            if fixed:
                assert sum(thread.lost for thread in threads) == 0
        assert broker.stop() == 0


def wait_for(threads: list[Asking], answered: int) -> None:
    ends_at = time.monotonic() + TIMEOUT_S
    while sum(thread.answered for thread in threads) < answered:
        assert time.monotonic() < ends_at, "no progress"
        assert all(thread.failure is None for thread in threads), [thread.failure for thread in threads]
        time.sleep(0.01)
