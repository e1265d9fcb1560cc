"""kill -9 of a consumer at every step of docs/effectively-once.md: each message is in its database exactly once.

Killed are the consumer, at named points and at any moment; the broker; and, in effect, the sender, whose answer is lost
so that it sends again.
"""

from __future__ import annotations

import contextlib
import random
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import acquit
from acquit import Message
from acquit.broker.configuration import parse_options
from acquit.demo.children import Children
from acquit.errors import AcquitError
from acquit.testing import Proxy
from tests.support import inbox_program
from tests.support.endpoint import BrokerProcess, publish_url
from tests.support.inbox_program import POINTS, QUEUE

pytestmark = pytest.mark.promise("done-once")

# Each kill is a failed attempt at the first message in the queue: it must not be dead-lettered for that.
CONFIG = """
[[address]]
match = "#"
max_delivery_attempts = 0
"""
MESSAGES = 20


@contextlib.contextmanager
def consumer(
    folder: Path, mode: str, batch: int, *, inbox: str = "sql", kill: str = "-"
) -> Iterator[subprocess.Popen[bytes]]:
    module, root = inbox_program.__name__, Path(inbox_program.__file__).parents[2]
    program = [sys.executable, "-W", "error", "-m", module, str(folder), mode, str(batch), inbox, kill]
    with (folder / "stderr").open("ab") as errors, subprocess.Popen(program, stderr=errors, cwd=root) as process:
        try:
            yield process
        finally:
            process.kill()


def status(folder: Path, mode: str, batch: int, *, inbox: str = "sql", kill: str = "-") -> int:
    with consumer(folder, mode, batch, inbox=inbox, kill=kill) as process:
        return process.wait(60)


def processed(folder: Path) -> Counter[int]:
    with contextlib.closing(sqlite3.connect(folder / "work.db", timeout=30)) as database:
        if not database.execute("SELECT 1 FROM sqlite_master WHERE name = 'orders'").fetchone():
            return Counter()  # the consumer, who makes it, has been killed before
        return Counter(number for (number,) in database.execute("SELECT number FROM orders"))


def post(url: str, count: int) -> None:
    with acquit.connect(url) as connection:
        sender = connection.session().sender(QUEUE)
        for number in range(count):
            sender.send(Message(number, message_id=f"order-{number}"))


def each_once(count: int) -> Counter[int]:
    return Counter(range(count))


@pytest.mark.parametrize(("mode", "batch"), [("individual", 1), ("individual", 3), ("client", 3)])
def test_killed_at_every_step_each_message_is_processed_once(tmp_path: Path, mode: str, batch: int) -> None:
    with acquit.Broker(config=parse_options(CONFIG)) as broker:
        publish_url(tmp_path / "endpoint", broker.url)
        post(broker.url, MESSAGES)
        for point in POINTS:
            # A kill at "committed" leaves what the next consumer passes "duplicate" with.
            number = 1 if point == "duplicate" else 2
            assert status(tmp_path, mode, batch, kill=f"{point}:{number}") == -signal.SIGKILL, point
        (tmp_path / "finish").touch()
        assert status(tmp_path, mode, batch) == 0, (tmp_path / "stderr").read_text()
        assert processed(tmp_path) == each_once(MESSAGES)
        assert broker.inspect().queue(QUEUE).depth == 0


def test_the_same_message_may_kill_its_consumer_at_every_step(tmp_path: Path) -> None:
    with acquit.Broker(config=parse_options(CONFIG)) as broker:
        publish_url(tmp_path / "endpoint", broker.url)
        post(broker.url, 1)
        for point in POINTS[:-1]:  # behind the last one it is not there any more
            assert status(tmp_path, "individual", 1, kill=f"{point}:1") == -signal.SIGKILL, point
        (tmp_path / "finish").touch()
        assert status(tmp_path, "individual", 1) == 0, (tmp_path / "stderr").read_text()
        assert processed(tmp_path) == each_once(1)
        assert broker.inspect().queue(QUEUE).depth == 0


def test_without_an_inbox_the_same_kills_make_duplicates(tmp_path: Path) -> None:
    """What the inbox is for; and that the kills are where they hurt."""
    with acquit.Broker(config=parse_options(CONFIG)) as broker:
        publish_url(tmp_path / "endpoint", broker.url)
        post(broker.url, 3)
        assert status(tmp_path, "individual", 1, inbox="none", kill="committed:2") == -signal.SIGKILL
        (tmp_path / "finish").touch()
        assert status(tmp_path, "individual", 1, inbox="none") == 0, (tmp_path / "stderr").read_text()
        assert processed(tmp_path) == Counter({0: 1, 1: 2, 2: 1})


def test_what_was_sent_again_because_the_answer_was_lost_is_processed_once(tmp_path: Path) -> None:
    with acquit.Broker() as broker, Proxy(broker.url) as proxy:
        for number in range(5):
            proxy.before("disposition", by="broker").cut()
            send_until_answered(proxy.url, number)
        # The broker cannot tell: it has two postings for each, with two sequences.
        assert broker.inspect().queue(QUEUE).depth == 10
        publish_url(tmp_path / "endpoint", broker.url)
        (tmp_path / "finish").touch()
        assert status(tmp_path, "individual", 1) == 0, (tmp_path / "stderr").read_text()
        assert processed(tmp_path) == each_once(5)
        assert broker.inspect().queue(QUEUE).depth == 0


def test_what_our_client_sends_again_by_itself_is_processed_once(tmp_path: Path) -> None:
    """Messages without an id: the client gives each one that its repetition shares."""
    with acquit.Broker() as broker, Proxy(broker.url) as proxy, acquit.connect(proxy.url) as connection:
        sender = connection.session().sender(QUEUE)
        for number in range(5):
            proxy.before("disposition", by="broker").cut()
            assert sender.send(Message(number)) is not None
        assert broker.inspect().queue(QUEUE).depth == 10
        publish_url(tmp_path / "endpoint", broker.url)
        (tmp_path / "finish").touch()
        assert status(tmp_path, "client", 3) == 0, (tmp_path / "stderr").read_text()
        assert processed(tmp_path) == each_once(5)
        assert broker.inspect().queue(QUEUE).depth == 0


def test_consumers_that_share_the_table_process_each_message_once(tmp_path: Path) -> None:
    """Two processes, and of each message two postings next to each other, so that both are often worked on at once."""
    count = 200
    with acquit.Broker(config=parse_options(CONFIG)) as broker, contextlib.ExitStack() as opened:
        publish_url(tmp_path / "endpoint", broker.url)
        with acquit.connect(broker.url) as connection:
            sender = connection.session().sender(QUEUE)
            for number in range(count):
                for _ in range(2):
                    sender.send(Message(number, message_id=f"order-{number}"), wait=False)
            sender.flush()
        (tmp_path / "finish").touch()
        workers = [opened.enter_context(consumer(tmp_path, mode, 1)) for mode in ("individual", "client")]
        assert [worker.wait(60) for worker in workers] == [0, 0], (tmp_path / "stderr").read_text()
        assert processed(tmp_path) == each_once(count)
        assert broker.inspect().queue(QUEUE).depth == 0


def send_until_answered(url: str, number: int) -> int:
    """As programs do that see to it by themselves; how often it was sent."""
    for attempt in range(1, 100):
        try:
            with acquit.connect(url, options=acquit.ConnectOptions(reconnect=None)) as connection:
                connection.session().sender(QUEUE).send(Message(number, message_id=f"order-{number}"), timeout=10)
            return attempt
        except AcquitError:
            continue
    raise AssertionError("never answered")


@pytest.mark.slow
def test_broker_and_consumer_killed_at_any_moment(tmp_path: Path, rng: random.Random, soak_rounds: int) -> None:
    """A sender that never gives up; the broker and the consumer are killed in turns, a random while after there was
    some progress. The proxy is the address that stays."""
    (tmp_path / "config.toml").write_text(CONFIG)
    with Children(tmp_path / "logs") as children, contextlib.ExitStack() as opened:
        broker = BrokerProcess(children, tmp_path / "broker", tmp_path / "broker-url", config=tmp_path / "config.toml")
        broker.start()
        proxy = opened.enter_context(Proxy(broker.url))
        publish_url(tmp_path / "endpoint", proxy.url)
        stop = threading.Event()
        sent: list[int] = []

        def send() -> None:
            while not stop.is_set():
                with contextlib.suppress(AcquitError), acquit.connect(proxy.url) as connection:
                    sender = connection.session().sender(QUEUE)
                    while not stop.is_set():
                        sender.send(Message(len(sent), message_id=f"order-{len(sent)}"), timeout=10)
                        sent.append(len(sent))

        sending = threading.Thread(target=send, daemon=True)
        sending.start()
        worker = opened.enter_context(consumer(tmp_path, "individual", 3))
        wait_for((tmp_path / "work.db").exists)
        for number in range(max(4, soak_rounds)):
            goal = sum(processed(tmp_path).values()) + rng.randrange(20, 60)
            wait_for(lambda goal=goal: sum(processed(tmp_path).values()) >= goal)
            if number % 2:
                worker.kill()
                worker = opened.enter_context(consumer(tmp_path, ["individual", "client"][number // 2 % 2], 3))
            else:
                broker.kill()
                broker.start()
                proxy.retarget(broker.url)
        stop.set()
        sending.join(60)
        assert not sending.is_alive()
        wait_for(lambda: processed(tmp_path).keys() >= set(sent))
        (tmp_path / "finish").touch()
        assert worker.wait(60) == 0, (tmp_path / "stderr").read_text()
        assert broker.stop() == 0
    done = processed(tmp_path)
    assert {number: times for number, times in done.items() if times != 1} == {}
    assert len(done) - len(sent) <= 1, "the last one may have had no answer"


def wait_for(what: Callable[[], bool]) -> None:
    ends_at = time.monotonic() + 60
    while True:
        with contextlib.suppress(sqlite3.OperationalError):  # the table is not there yet
            if what():
                return
        assert time.monotonic() < ends_at, "no progress"
        time.sleep(0.02)
