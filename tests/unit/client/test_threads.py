from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

import acquit
from acquit import EntryKind, StoreEntry, errors
from acquit.broker.options import AddressRule, BrokerOptions
from acquit.client import threads
from acquit.client.core import ClientCore
from acquit.client.receipts import Promise, ReceiptStatus
from acquit.client.threads import Gate, loop_thread, wait
from acquit.protocol import events as ev
from acquit.protocol.definitions import Accepted, Rejected
from acquit.testing import Proxy
from tests.support.forking import FORKING, in_child
from tests.support.server import Server, serving
from tests.support.signalled import interrupted_at_each_call, signalled_at_each_call

LONG = 30.0
SOON = 0.01

pytestmark = FORKING


def test_there_is_one_loop_thread_and_it_is_a_daemon() -> None:
    assert loop_thread() is loop_thread()
    (thread,) = [thread for thread in threading.enumerate() if thread.name == "acquit"]
    assert thread.daemon


def test_a_child_makes_connections_of_its_own() -> None:
    with serving(Server()) as server, acquit.connect(server.url):

        def check() -> None:
            assert [thread.name for thread in threading.enumerate()] == ["MainThread"]
            with acquit.connect(server.url) as connection:
                assert connection.session().sender("q").send(b"from the child") == Accepted()

        in_child(check)
        assert server.server.bodies() == [b"from the child"]


def test_the_parent_s_connection_is_refused_in_the_child_and_lives_on_in_the_parent() -> None:
    with serving(Server()) as server, acquit.connect(server.url) as connection:
        session, transacted = connection.session("individual"), connection.session("transacted")
        sender, receiver = session.sender("p"), session.receiver("q")
        requester = session.requester("p")
        server.offer("q", b"a", b"b")
        message = receiver.receive(LONG)
        assert message is not None

        def check() -> None:
            for use in (
                connection.session,
                lambda: session.sender("r"),
                lambda: sender.send(b"x"),
                receiver.receive,
                lambda: next(receiver),
                lambda: receiver.listen(print),
                sender.flush,
                receiver.drain,
                transacted.commit,
            ):
                with pytest.raises(errors.ConnectionLost, match="before the process was forked: connect again"):
                    use()
            assert message.accept().status is ReceiptStatus.STALE
            with pytest.raises(ZeroDivisionError), transacted.transaction():
                raise ZeroDivisionError  # which is what is heard of: the transaction is rolled back by itself
            for thing in (receiver, sender, requester, session, connection):
                thing.close()

        in_child(check)
        assert message.accept().status is ReceiptStatus.ANSWERED
        assert sender.send(b"still here") == Accepted()
        second = receiver.receive(LONG)
        assert second is not None and second.body == b"b"
        assert server.server.bodies() == [b"still here"]


def test_a_listener_is_the_parent_s_and_a_child_has_callbacks_of_its_own() -> None:
    with serving(Server()) as server, acquit.connect(server.url) as connection:
        session = connection.session()
        receiver, sender = session.receiver("q"), session.sender("p")
        handled: list[object] = []
        begun = threading.Event()
        called = threading.Event()
        sender.send(b"x", wait=False).add_done_callback(lambda _: called.set())
        assert called.wait(LONG)

        def handle(message: acquit.ReceivedMessage) -> None:
            handled.append(message.body)
            begun.set()

        with receiver.start_listener(handle, concurrency=3) as listener:

            def check() -> None:
                assert [thread.name for thread in threading.enumerate()] == ["MainThread"]
                with pytest.raises(errors.ConnectionLost, match="before the process was forked"):
                    listener.wait()
                assert not listener.stop()  # there is nobody to be waited for
                with acquit.connect(server.url) as own:
                    done = threading.Event()
                    own.session().sender("p").send(b"y", wait=False).add_done_callback(lambda _: done.set())
                    assert done.wait(LONG)

            in_child(check)
            server.offer("q", b"a")
            assert begun.wait(LONG)
        assert handled == [b"a"]


def test_a_lock_that_a_waiting_thread_held_does_not_hang_the_child() -> None:
    """Threads that wait for messages have their gate's lock for a moment each time they look."""
    with serving(Server()) as server, acquit.connect(server.url) as connection:
        receiver = connection.session().receiver("q")
        held, go_on = threading.Event(), threading.Event()

        def look() -> bool:
            held.set()  # with the lock
            return go_on.wait(LONG)

        waiting = threading.Thread(target=receiver._gate.wait, args=(look, LONG))
        waiting.start()
        assert held.wait(LONG)

        def check() -> None:
            with pytest.raises(errors.ConnectionLost, match="before the process was forked"):
                receiver.receive()

        in_child(check)
        go_on.set()
        waiting.join()


def test_a_child_does_not_keep_the_parent_s_socket_open() -> None:
    """When the parent goes, the broker must notice, though a child still lives."""
    with serving(Server()) as server:
        connection = acquit.connect(server.url, options=acquit.ConnectOptions(reconnect=None))
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                os.close(writing)
                os.read(reading, 1)  # until the parent has seen what it wanted to see
            finally:
                os._exit(0)
        os.close(reading)
        descriptor = connection._aio._driver.pump.fileno()
        assert descriptor is not None
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, descriptor)  # as if this process were gone
        os.close(null)
        gone = server.server.connection.closed
        server.call_and_wait(gone.wait)
        (ended,) = server.server.all(ev.ConnectionEnded)
        assert ended.lost
        os.close(writing)
        os.waitpid(child, 0)
        loop_thread().call(connection._aio._driver.pump.abort)


# -- the end of the interpreter ----------------------------------------------------------------------------------------

OPENED = """
import sys
from acquit import ConnectionLost, connect

url = sys.argv[1]

def opened():
    with connect(url) as connection:
        session, transacted = connection.session("individual"), connection.session("transacted")
        receiver = session.receiver("q")
        with session.requester("p") as requester, session.sender("p") as sender, transacted.transaction():
            yield from uses(connection, session, receiver, sender, requester)

def uses(connection, session, receiver, sender, requester):
    try:
        yield
    finally:
        for use in (
            lambda: connect(url),
            connection.session,
            lambda: sender.send("x"),
            lambda: sender.send("x", wait=False).result(),
            lambda: next(receiver),
            lambda: receiver.receive(10),
            lambda: receiver.listen(print),
            lambda: receiver.start_listener(print),
            lambda: requester.request("x"),
        ):
            try:
                use()
            except ConnectionLost as lost:
                assert "the interpreter ends" in str(lost), lost
            else:
                print("not refused")
        print("closed", flush=True)

stream = opened()
next(stream)
print("open", flush=True)
"""


def test_a_finalizer_at_the_end_of_the_interpreter_waits_for_nothing() -> None:
    """The loop thread stands still by then, and would never answer."""
    with serving(Server()) as server:
        command = [sys.executable, "-c", OPENED, server.url]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=LONG, check=False)
        assert (ran.stdout, ran.stderr) == ("open\nclosed\n", "")


def test_a_finalizer_starts_no_thread() -> None:
    program = """
from acquit import ConnectionLost, connect
class Late:
    def __del__(self):
        try:
            connect("amqp://127.0.0.1:1")
        except ConnectionLost as lost:
            print(lost)
late = Late()
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=LONG, check=False)
    assert (ran.stdout.strip(), ran.stderr) == (threads.EXITING, "")


SENDS = """
import sys
import acquit
from acquit.client import threads

threads.EXIT_S = float(sys.argv[2])
connection = acquit.connect(sys.argv[1])
sender = connection.session(sys.argv[3]).sender("q")
for number in range(20):
    sender.send(b"x", wait=False)
"""


def run_to_the_end(server: str, *arguments: str, then: str = "") -> str:
    """Run `SENDS` as a program, and return what it says on stderr."""
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", SENDS + then, server, *arguments]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=LONG, check=False)
    assert (ran.stdout, ran.returncode) == ("", 0)
    return ran.stderr


def test_what_was_sent_without_waiting_does_not_vanish_with_the_program() -> None:
    with serving(Server()) as server:
        assert run_to_the_end(server.url, "20", "auto") == ""
        assert server.server.bodies() == [b"x"] * 20


def test_sends_without_an_outcome_at_the_end_of_the_program_are_logged_in_time() -> None:
    with serving(Server()) as server:
        server.server.verdict = lambda delivery: None
        said = run_to_the_end(server.url, "0.2", "auto")
        assert "20 sends have no outcome: 0 never left, 20 may or may not be taken" in said


def test_sends_that_failed_unheard_at_the_end_of_the_program_are_logged() -> None:
    with serving(Server()) as server:
        server.server.verdict = lambda delivery: Rejected()
        said = run_to_the_end(server.url, "20", "auto")
        assert said.startswith("20 sends of the sender to 'q' failed and nobody asked their receipts")


def test_a_thread_that_does_not_answer_holds_no_end_up() -> None:
    stuck = """
import threading
threads._ANSWERS_S = 0.0
threads.loop_thread().call(threading.Event().wait)
"""
    with serving(Server()) as server:
        assert "the thread that sends does not answer" in run_to_the_end(server.url, "0.1", "auto", then=stuck)


def test_a_child_waits_for_no_sends_of_its_parent() -> None:
    forks = """
import os
if os.fork() == 0:
    threads.LoopThread.run_for = None  # never called
    sys.exit()
os.wait()
"""
    with serving(Server()) as server:
        assert run_to_the_end(server.url, "20", "auto", then=forks) == ""
        assert server.server.bodies() == [b"x"] * 20


EMBEDDED = """
import atexit
import sys
import threading
import acquit
from acquit.client import threads

threads.EXIT_S = 1_000
interrupted = threading.Event()
broker = acquit.Broker()
depth = lambda: print(broker.inspect().queue("q").depth)
atexit.register(depth)
connection = acquit.connect(broker.url, on_event=lambda event: event.kind.name == "INTERRUPTED" and interrupted.set())
sender = connection.session().sender("q")
if sys.argv[1] == "interrupted":
    atexit.unregister(depth)
    broker.close()
    assert interrupted.wait(30)
for number in range(20):
    sender.send(b"x", wait=False)
"""


@pytest.mark.parametrize(
    ("ends", "depth", "said"),
    [("connected", "20\n", ""), ("interrupted", "", "20 sends have no outcome: 20 never left")],
)
def test_the_end_of_a_program_with_a_broker_in_it(ends: str, depth: str, said: str) -> None:
    """What is sent is waited for before that broker ends, and an interrupted connection holds no end up."""
    command = [sys.executable, "-c", EMBEDDED, ends]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=LONG, check=False)
    assert (ran.returncode, ran.stdout) == (0, depth)
    assert said in ran.stderr
    assert said or "no outcome" not in ran.stderr


YOUNGER = """
import sys
import threading
import acquit
from acquit.client import threads

threads.EXIT_S = 1_000
restored = threading.Event()
broker = acquit.Broker(sys.argv[1])
options = acquit.ConnectOptions(reconnect=acquit.Reconnect(delay_ms=10, delay_max_ms=100))
on_event = lambda event: event.kind.name == "RESTORED" and restored.set()
connection = acquit.connect(broker.url, options=options, on_event=on_event)
sender = connection.session().sender("q")
port = int(broker.url.rpartition(":")[2])
broker.close()
broker = acquit.Broker(sys.argv[1], port=port)
assert restored.wait(30)
for number in range(20):
    sender.send(b"x", wait=False)
"""


def test_a_broker_that_is_younger_than_the_connection_ends_after_it(tmp_path: Path) -> None:
    command = [sys.executable, "-c", YOUNGER, str(tmp_path)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=LONG, check=False)
    assert (ran.returncode, "no outcome" in ran.stderr) == (0, False), ran.stderr
    with acquit.Broker(tmp_path) as broker:
        queue = broker.inspect().queue("q")
        assert queue is not None
        assert queue.depth == 20


STORED = """
import sys
import time
import acquit
from acquit.client import threads

class Slow(acquit.FileStore):
    def write(self, entries, done=None):
        sends = any(entry.kind is acquit.EntryKind.SEND for entry in entries)
        super().write(entries, done and (lambda error: (sends and time.sleep(0.5), done(error))))

threads.EXIT_S = float(sys.argv[3])
connection = acquit.connect(sys.argv[1], container_id="app")
sender = connection.session().sender("q", name="out", exactly_once=Slow(sys.argv[2]))
sender.send(b"x", wait=False)
"""


@pytest.mark.promise("exactly-once")
@pytest.mark.parametrize(
    ("within_s", "said"),
    [
        ("2", "1 exactly-once sends have no outcome: they are in their store, from where the next sender"),
        ("0.1", "1 sends have no outcome: 1 never left, 0 may or may not be taken"),
    ],
)
def test_what_is_in_the_store_at_the_end_of_the_program_is_said_to_be_there(
    tmp_path: Path, within_s: str, said: str
) -> None:
    rule = AddressRule("q", {"messages_max": 1, "full_policy": "block"})
    with acquit.Broker(config=BrokerOptions(address=(rule,))) as broker:
        with acquit.connect(broker.url) as connection:
            connection.session().sender("q").send("full")
        command = [sys.executable, "-W", "ignore", "-c", STORED, broker.url, str(tmp_path / "out"), within_s]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=LONG, check=False)
    assert ran.returncode == 0
    assert said in ran.stderr
    assert ran.stderr.count("no outcome") == 1


FAILING = """
import sys
import acquit

class Own:
    durable, failing = True, False

    def load(self, link):
        return acquit.MemoryStore().load(link)

    def write(self, entries, done=None):
        if self.failing:
            raise RuntimeError("the store of mine is broken")
        if done is not None:
            done(None)

store = Own()
connection = acquit.connect(sys.argv[1], container_id="app")
session = connection.session()
session.sender("q", name="out", exactly_once=store)
plain = session.sender("q")
store.failing = True
for number in range(2_000):
    plain.send(b"x", wait=False)
"""


def test_a_store_that_fails_at_the_end_of_the_program_ends_no_other_waiting() -> None:
    with acquit.Broker() as broker:
        command = [sys.executable, "-W", "ignore", "-c", FAILING, broker.url]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=LONG, check=False)
        assert ran.returncode == 0
        assert "the store of the sender to 'q' failed as the program ends" in ran.stderr
        assert "Exception ignored in atexit callback" not in ran.stderr
        queue = broker.inspect().queue("q")
        assert queue is not None
        assert queue.depth == 2_000


# -- waiting -----------------------------------------------------------------------------------------------------------


def test_waiting_for_a_promise() -> None:
    promise = Promise()
    assert not wait(promise, 0)
    assert not wait(promise, SOON)
    assert promise._callbacks == []  # who has gone leaves nothing behind
    loop_thread().call(promise.end)
    assert wait(promise, None)
    assert wait(promise, 0)


def test_many_threads_may_wait_for_one_promise() -> None:
    promise = Promise()
    done: list[bool] = []
    threads = [threading.Thread(target=lambda: done.append(wait(promise, LONG))) for _ in range(8)]
    for thread in threads:
        thread.start()
    promise.end()
    for thread in threads:
        thread.join(LONG)
    assert done == [True] * 8


def test_a_gate_opens_for_all_that_wait() -> None:
    gate = Gate()
    state: list[int] = []
    done: list[bool] = []
    threads = [threading.Thread(target=lambda: done.append(gate.wait(lambda: bool(state), LONG))) for _ in range(4)]
    for thread in threads:
        thread.start()
    state.append(1)
    gate.open()
    for thread in threads:
        thread.join(LONG)
    assert done == [True] * 4
    assert not gate.has_waiters


def test_a_gate_that_stays_shut() -> None:
    gate = Gate()
    assert not gate.wait(lambda: False, SOON)
    assert not gate.wait(lambda: False, -1)
    assert gate.wait(lambda: True, 0)


@pytest.mark.parametrize("timeout", [float("inf"), 1e10, 2.0**63, 1e300])
def test_a_timeout_may_be_longer_than_a_lock_can_wait(timeout: float) -> None:
    with serving(Server()) as server, acquit.connect(server.url) as connection, ThreadPoolExecutor(1) as pool:
        server.server.credit = 0
        session = connection.session()
        receiver, sender = session.receiver("q"), session.sender("p", buffer_messages=1)
        received = pool.submit(receiver.receive, timeout)
        reached(lambda: receiver._gate.has_waiters)
        server.offer("q", b"a")
        message = received.result(LONG)
        assert message is not None and message.body == b"a"
        receipt = sender.send(b"x", wait=False)
        sent = pool.submit(sender.send, b"y", timeout=timeout)
        reached(lambda: sender._room.has_waiters)
        server.call(lambda: (server.server.connection.receiving.grant(2), server.server.connection.touch()))
        assert receipt.result(timeout) == sent.result(LONG) == Accepted()


def test_an_error_over_there_is_raised_here() -> None:
    async def fail() -> None:
        raise ValueError("over there")

    with pytest.raises(ValueError, match="over there"):
        loop_thread().run(fail())


def test_a_child_of_an_outage_does_not_keep_the_parent_s_next_socket_open() -> None:
    with acquit.Broker() as broker, Proxy(broker.url) as proxy, acquit.connect(proxy.url) as connection:
        driver = connection._aio._driver
        proxy.stall("broker")
        proxy.cut()  # the next attempt has a socket, and waits for an answer
        # Of the attempt: for a moment there is the socket that was cut as well.
        reached(lambda: (attempt := driver._attempt) is not None and attempt.pump.fileno() is not None)
        assert driver._attempt is not None
        descriptor = driver._attempt.pump.fileno()
        assert descriptor is not None
        child = os.fork()
        if child == 0:
            os._exit(0 if os.fstat(descriptor).st_rdev == os.stat(os.devnull).st_rdev else 1)
        assert os.waitpid(child, 0)[1] == 0
        proxy.resume()


def test_a_message_that_comes_while_a_send_waits_is_there_for_others() -> None:
    with serving(Server()) as server, acquit.connect(server.url) as connection:
        server.server.verdict = lambda delivery: None
        session = connection.session()
        sender, receiver = session.sender("q"), session.receiver("r")
        with ThreadPoolExecutor(1) as pool:
            sent = pool.submit(sender.send, b"x")
            reached(lambda: bool(server.server.taken))
            server.offer("r", b"meanwhile")
            message = receiver.receive(LONG)
            assert message is not None and message.body == b"meanwhile"
            assert not sent.done()
            server.call(lambda: (server.server.taken[0].settle(Accepted()), server.server.connection.touch()))
            assert sent.result(LONG) == Accepted()


@pytest.mark.parametrize("end", ["close", "abort", "cut"])
def test_a_send_that_waits_hears_of_the_end_by_others(end: str) -> None:
    with serving(Server()) as server:
        connection = acquit.connect(server.url, options=acquit.ConnectOptions(reconnect=None))
        server.server.verdict = lambda delivery: None
        sender = connection.session().sender("q")
        with ThreadPoolExecutor(1) as pool:
            sent = pool.submit(sender.send, b"x")
            reached(lambda: bool(server.server.taken))
            if end == "close":
                connection.close(0)
            elif end == "abort":
                loop_thread().call(connection._aio._driver.pump.abort)
            else:
                server.call(server.server.connection.pump.abort)
            with pytest.raises((errors.DeliveryInDoubt, errors.ConnectionLost)):
                sent.result(LONG)
        connection.close(0)


def test_a_send_that_waits_gives_up_when_its_time_is_over() -> None:
    options = acquit.ConnectOptions(close_timeout_ms=100)
    with serving(Server()) as server, acquit.connect(server.url, options=options) as connection:
        server.server.verdict = lambda delivery: None
        sender = connection.session().sender("q")
        with pytest.raises(errors.DeliveryInDoubt):
            sender.send(b"x", timeout=0.5)  # it has left by then, on a busy machine as well
        server.server.verdict = lambda delivery: Accepted()
        assert sender.send(b"y") == Accepted()


def test_a_send_whose_outcome_meets_a_failure_of_ours_ends_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(Server()) as server:
        connection = acquit.connect(server.url, options=acquit.ConnectOptions(reconnect=None))
        sender = connection.session().sender("q")

        def fail(self: ClientCore, events: list[ev.Event], now: float) -> None:
            monkeypatch.undo()
            raise ZeroDivisionError

        monkeypatch.setattr(ClientCore, "handle", fail)
        with pytest.raises(errors.DeliveryInDoubt, match="cut off by an error in this client"):
            sender.send(b"x", timeout=10 * LONG)


def test_a_loop_over_a_receiver_hears_of_a_failure_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(Server()) as server:
        connection = acquit.connect(server.url, options=acquit.ConnectOptions(reconnect=None))
        receiver = connection.session().receiver("q")

        def fail(self: ClientCore, events: list[ev.Event], now: float) -> None:
            monkeypatch.undo()
            raise ZeroDivisionError

        monkeypatch.setattr(ClientCore, "handle", fail)
        server.offer("q", b"a")
        with pytest.raises(errors.ConnectionLost, match="cut off by an error in this client"):
            next(receiver)


def test_a_handler_of_a_signal_may_close_the_connection_in_the_midst_of_a_send(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(Server()) as server:
        connection = acquit.connect(server.url)
        sender = connection.session().sender("q")
        payload = sender._core.encode("x", None)

        def signalled(*_: object) -> bytes:
            signal.raise_signal(signal.SIGUSR1)
            return payload

        before = signal.signal(signal.SIGUSR1, lambda *_: connection.close(LONG))
        try:
            monkeypatch.setattr(type(sender._core), "encode", signalled)
            with pytest.raises(errors.EndpointError):
                sender.send("after", timeout=LONG)
            assert connection.closed
        finally:
            signal.signal(signal.SIGUSR1, before)


def on_the_loop(function: Callable[[], object]) -> None:
    """Have the loop thread call a function, and wait for that."""

    async def call() -> None:
        function()

    assert loop_thread().run_for(call(), 10)


def test_a_handler_of_a_signal_may_use_the_loop_thread_wherever_its_own_thread_waits() -> None:
    with serving(Server()) as server, acquit.connect(server.url) as connection:
        session = connection.session()
        receiver, sender = session.receiver("q"), session.sender("q")
        signalled_at_each_call(lambda: receiver.receive(timeout=SOON), lambda: on_the_loop(receiver._core.notify))
        signalled_at_each_call(lambda: sender.send(b"a"), lambda: on_the_loop(sender._core.notify))
        signalled_at_each_call(sender.flush, sender.flush)


def test_a_handler_of_a_signal_may_wait_for_its_own_send_wherever_it_interrupts_another() -> None:
    with serving(Server()) as server, acquit.connect(server.url) as connection:
        session = connection.session()
        sender, other, receiver = session.sender("q"), session.sender("p"), session.receiver("q")
        for handling in (sender, other):
            signalled_at_each_call(lambda: sender.send(b"a"), partial(handling.send, b"b", timeout=LONG))
            signalled_at_each_call(lambda: sender.send(b"a", wait=False), partial(handling.send, b"b", timeout=LONG))
        signalled_at_each_call(lambda: sender.send(b"a"), lambda: receiver.receive(timeout=0))


def test_an_interrupt_anywhere_in_a_send_leaves_the_connection_able_to_send() -> None:
    with serving(Server()) as server, acquit.connect(server.url) as connection:
        sender = connection.session().sender("q")
        sending = False

        def interrupt() -> None:
            if sending:
                raise KeyboardInterrupt

        def send() -> None:
            nonlocal sending
            try:
                sending = True
                sender.send(b"a")
                sending = False
            except KeyboardInterrupt:
                sending = False
                assert sender.send(b"b", timeout=LONG) == Accepted()

        signalled_at_each_call(send, interrupt)
        with ThreadPoolExecutor() as other:  # which can take the locks that this thread could take twice
            assert other.submit(sender.send, b"c", timeout=LONG).result(LONG) == Accepted()


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")  # interrupted on its way to `run`
@pytest.mark.parametrize("what", ["send later", "callback", "receive", "accept later", "inbox"])
def test_an_interrupt_anywhere_leaves_what_it_struck_to_other_threads(what: str) -> None:
    """A lock that the main thread has for ever would have the other one wait for ever."""
    with serving(Server()) as server, acquit.connect(server.url) as connection:
        session = connection.session("individual")
        sender, receiver = session.sender("p"), session.receiver("q")
        receipt = session.sender("p").send(b"a", wait=False)
        inbox = acquit.Inbox()

        def received() -> acquit.ReceivedMessage:
            server.offer("q", b"a")
            message = receiver.receive(LONG)
            assert message is not None
            return message

        message = received()
        messages = [received() for _ in range(3)]
        works: dict[str, Callable[[], object]] = {
            "send later": lambda: sender.send(b"a", wait=False),
            "callback": lambda: receipt.add_done_callback(lambda receipt: None),
            "receive": lambda: receiver.receive(timeout=SOON),
            "accept later": lambda: messages.pop().accept(sync=False),
            "inbox": lambda: inbox.remember(message),
        }
        with ThreadPoolExecutor(1) as other:

            def look() -> None:
                assert not receiver._gate.has_waiters
                if what == "accept later":
                    messages.extend((received(), received()))
                other.submit(works[what]).result(LONG)
                assert other.submit(sender.send, b"b", timeout=LONG).result(LONG) == Accepted()

            interrupted_at_each_call(works[what], look)


def test_a_handler_of_a_signal_may_stop_what_its_own_thread_listens_to() -> None:
    with serving(Server()) as server, acquit.connect(server.url) as connection:
        receiver = connection.session().receiver("q")

        def stop() -> None:
            for listening in tuple(receiver._core.listeners):
                listening.begin_stop()

        def listen() -> None:
            server.offer("q", b"a")
            receiver.listen(lambda message: stop())

        signalled_at_each_call(listen, lambda: on_the_loop(stop))


@pytest.mark.parametrize("make", [lambda path: acquit.MemoryStore(), acquit.FileStore])
def test_a_handler_of_a_signal_may_wait_while_its_own_thread_writes_to_a_store(
    make: Callable[[Path], acquit.MemoryStore | acquit.FileStore], tmp_path: Path
) -> None:
    store = make(tmp_path / "links")

    def write() -> None:
        for number in range(5):
            store.write([StoreEntry(EntryKind.SEND, "out", b"%d" % number, b"x")])

    write()
    signalled_at_each_call(write, lambda: on_the_loop(write))
    assert len(store.load("out").sends) == 5
    if isinstance(store, acquit.FileStore):
        store.close()


def test_a_handler_of_a_signal_may_acknowledge_while_its_own_thread_does() -> None:
    with serving(Server()) as server, acquit.connect(server.url) as connection:
        receiver = connection.session("individual").receiver("q")

        def received() -> acquit.ReceivedMessage:
            server.offer("q", b"a")
            message = receiver.receive(LONG)
            assert message is not None
            return message

        handlers = [received() for _ in range(50)]
        messages = [received() for _ in range(50)]
        signalled_at_each_call(
            lambda: messages.pop().accept(sync=False),
            lambda: handlers.pop().accept(sync=False),
        )


def reached(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LONG
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_a_connection_that_is_closed_has_told_its_events() -> None:
    told: list[acquit.ConnectionEvent] = []
    gate = threading.Event()
    with serving(Server()) as server:
        threads.callback_thread().call(lambda: gate.wait(LONG) and None)
        connection = acquit.connect(server.url, on_event=told.append)
        late = threading.Thread(target=lambda: (reached(lambda: connection.closed), gate.set()))
        late.start()
        connection.close()
        assert [event.kind for event in told] == [acquit.ConnectionEventKind.CONNECTED]
        late.join()


def test_a_listener_may_close_its_connection() -> None:
    closed = threading.Event()
    connections: list[acquit.Connection] = []

    def close(event: acquit.ConnectionEvent) -> None:
        reached(lambda: bool(connections))
        connections[0].close()
        closed.set()

    with serving(Server()) as server:
        connections.append(acquit.connect(server.url, on_event=close))
        assert closed.wait(LONG)
