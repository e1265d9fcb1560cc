"""The blocking API: the same as the asyncio API, from threads, over sockets."""

from __future__ import annotations

import dataclasses
import inspect
import subprocess
import sys
import threading
import time
import types
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

import acquit
from acquit import aio, errors
from acquit.client import blocking, requests_blocking, threads
from acquit.client.blocking import sender as blocking_sender
from acquit.client.options import ConnectOptions
from acquit.client.receipts import ReceiptStatus
from acquit.client.threads import loop_thread
from acquit.client.with_closing import BlockingClosable
from acquit.protocol import events as ev
from acquit.protocol.definitions import Accepted, Error, Modified, Rejected, Released
from tests.support.server import Server, ThreadedServer, serving
from tests.support.signalled import signalled_at_each_call

LONG = 30.0
SOON = 0.01


@pytest.fixture
def server() -> Iterator[ThreadedServer]:
    with serving(Server()) as running:
        yield running


@pytest.fixture
def connection(server: ThreadedServer) -> Iterator[acquit.Connection]:
    # What restores a lost connection is tested elsewhere: here its loss is the end.
    with acquit.connect(server.url, options=acquit.ConnectOptions(reconnect=None)) as connection:
        yield connection


def body(message: acquit.ReceivedMessage | None) -> object:
    assert message is not None
    return message.body


def in_thread(function: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=function, daemon=True)
    thread.start()
    return thread


# -- the two surfaces --------------------------------------------------------------------------------------------------

NAMES = sorted(set(aio.__all__))
CLASSES = [name for name in NAMES if inspect.isclass(getattr(aio, name))]


def parameters(function: Callable[..., object]) -> list[tuple[str, object, object]]:
    return [(p.name, p.kind, p.default) for p in inspect.signature(function).parameters.values()]


def test_both_have_the_same_names() -> None:
    modules = (f"{blocking.__name__}.", requests_blocking.__name__)
    named = {name: getattr(acquit, name) for name in acquit.__all__}  # loaded when they are asked for
    here = {name for name, thing in named.items() if getattr(thing, "__module__", "").startswith(modules)}
    assert here == set(NAMES)


@pytest.mark.parametrize("name", CLASSES)
def test_both_have_the_same_methods_with_the_same_arguments(name: str) -> None:
    ours, theirs = getattr(acquit, name), getattr(aio, name)
    public = {attribute for attribute in dir(theirs) if not attribute.startswith("_")}
    assert {attribute for attribute in dir(ours) if not attribute.startswith("_")} == public
    for attribute in public:
        mine, other = inspect.getattr_static(ours, attribute), inspect.getattr_static(theirs, attribute)
        assert type(mine) is type(other), attribute
        if isinstance(mine, types.FunctionType):
            assert parameters(mine) == parameters(other), attribute
        if isinstance(mine, types.FunctionType | property):
            assert inspect.getdoc(mine), attribute


@pytest.mark.parametrize("name", CLASSES)
def test_what_may_wait_is_awaited_there_and_not_here(name: str) -> None:
    """Whatever is a coroutine function of the asyncio API is a plain one here; what opens something can be awaited."""
    ours, theirs = getattr(acquit, name), getattr(aio, name)
    for attribute, mine in vars(ours).items():
        if attribute.startswith("_") or not isinstance(mine, types.FunctionType):
            continue
        assert not inspect.iscoroutinefunction(mine)
        other = inspect.getattr_static(theirs, attribute)
        opens = attribute in ("session", "sender", "receiver", "requester", "responder", "transaction")
        returns_at_once = attribute in ("start_listener", "add_done_callback", "prepare")
        assert inspect.iscoroutinefunction(other) or opens or returns_at_once, attribute


def test_connect_is_the_same() -> None:
    assert parameters(acquit.connect) == parameters(aio.connect)


# -- sending -----------------------------------------------------------------------------------------------------------


def test_send_returns_accepted_or_raises(server: ThreadedServer, connection: acquit.Connection) -> None:
    sender = connection.session().sender("q")
    assert sender.send(b"x") == Accepted()
    server.server.verdict = lambda delivery: Rejected(Error("amqp:not-allowed", "no"))
    with pytest.raises(errors.MessageRejected, match="no"):
        sender.send(b"x")
    assert (sender.address, sender.remote_properties) == ("q", {})


def test_sends_are_pipelined(server: ThreadedServer, connection: acquit.Connection) -> None:
    sender = connection.session().sender("q", buffer_messages=50)
    receipts = [sender.send(str(number), wait=False) for number in range(1_000)]
    sender.flush(LONG)
    assert all(receipt.done for receipt in receipts)
    assert [receipt.result() for receipt in receipts] == [Accepted()] * 1_000
    assert server.server.bodies() == [str(number) for number in range(1_000)]


def test_several_threads_may_share_a_sender(server: ThreadedServer, connection: acquit.Connection) -> None:
    sender = connection.session().sender("q", buffer_messages=10)

    def send(thread: int) -> None:
        for number in range(100):
            sender.send(f"{thread}-{number}", wait=number % 2 == 0)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(send, range(4)))
    sender.flush(LONG)
    sent = [str(text).split("-") for text in server.server.bodies()]
    assert len(sent) == 400
    for thread in "0123":
        assert [int(number) for by, number in sent if by == thread] == list(range(100))  # each in its order


def test_without_credit_nothing_leaves(connection: acquit.Connection, server: ThreadedServer) -> None:
    server.server.credit = 0
    sender = connection.session().sender("q", buffer_messages=1)
    with pytest.raises(errors.NotSent, match="the message never left"):
        sender.send(b"x", timeout=SOON)
    sender.send(b"y", wait=False)
    with pytest.raises(errors.NotSent, match="the outgoing buffer of the sender to 'q' had no room within 0.01 s"):
        sender.send(b"z", wait=False, timeout=SOON)
    server.call(lambda: (server.server.connection.receiving.grant(5), server.server.connection.touch()))
    assert sender.send(b"z") == Accepted()
    assert server.server.bodies() == [b"y", b"z"]


def test_a_send_that_waited_for_room_is_measured_again_as_the_peer_may_be_another(
    connection: acquit.Connection, server: ThreadedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.server.credit = 0
    sender = connection.session().sender("q", buffer_messages=1)
    sender.send(b"x", wait=False)
    core, wait = sender._core, sender._room.wait

    def wait_while_another_peer_comes(may_go_on: Callable[[], bool], timeout: float | None) -> bool:
        server.call(lambda: (server.server.connection.receiving.grant(5), server.server.connection.touch()))
        came = wait(may_go_on, timeout)
        core.message_bytes_max = 1_000
        return came

    monkeypatch.setattr(sender, "_room", types.SimpleNamespace(wait=wait_while_another_peer_comes))
    with pytest.raises(errors.MessageTooLarge, match=r"has 20\d\d bytes, the sender to 'q' takes at most 1000"):
        sender.send(b"y" * 2_000, wait=False)
    assert sender.send(b"z") == Accepted()
    assert server.server.bodies() == [b"x", b"z"]


def test_an_interrupted_send_that_has_not_left_is_taken_back(
    connection: acquit.Connection, server: ThreadedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.server.credit = 0
    sender = connection.session().sender("q")

    def interrupt(*_: object) -> bool:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(blocking_sender, "wait", interrupt)
        loop_thread().call(partial(time.sleep, 0.2))  # it is late to hear of the interrupt
        with pytest.raises(KeyboardInterrupt):
            sender.send(b"x")
    assert not sender._core.queue
    server.call(lambda: (server.server.connection.receiving.grant(5), server.server.connection.touch()))
    assert sender.send(b"y") == Accepted()
    assert server.server.bodies() == [b"y"]


def test_without_an_answer_it_is_in_doubt(server: ThreadedServer, connection: acquit.Connection) -> None:
    server.server.verdict = lambda delivery: None
    sender = connection.session().sender("q")
    with pytest.raises(errors.DeliveryInDoubt, match="no outcome within 0.5 s"):
        sender.send(b"x", timeout=0.5)
    receipt = sender.send(b"x", wait=False)
    with pytest.raises(errors.DeliveryInDoubt):
        receipt.result(0)
    server.cut()


def test_every_wait_ends_at_the_loss(server: ThreadedServer, connection: acquit.Connection) -> None:
    server.server.verdict = lambda delivery: None
    session = connection.session("individual")
    sender, receiver = session.sender("p"), session.receiver("q")
    full = session.sender("f", buffer_messages=1)
    server.offer("q", b"a")
    message = receiver.receive(LONG)
    assert message is not None
    server.server.answers = False
    waits: list[Callable[[], object]] = [
        lambda: sender.send(b"x"),
        receiver.receive,
        lambda: receiver.receive(LONG),
        lambda: next(receiver),
        lambda: receiver.listen(print),
        lambda: [full.send(b"x", wait=False) for _ in range(1_000)],
        message.accept,
    ]
    ends: dict[int, object] = {}

    def wait(index: int) -> None:
        try:
            ends[index] = waits[index]()
        except errors.AcquitError as exc:
            ends[index] = exc

    threads = [in_thread(lambda index=index: wait(index)) for index in range(len(waits))]  # type: ignore[misc]
    while not server.server.taken or not server.server.all(ev.StatesReceived):
        server.call(lambda: None)
    server.cut()
    for thread in threads:
        thread.join(LONG)
    receipt = ends.pop(6)
    assert isinstance(receipt, acquit.Receipt) and receipt.status is ReceiptStatus.UNKNOWN
    kinds = [type(ends[index]) for index in range(6)]
    assert kinds == [errors.DeliveryInDoubt] + [errors.ConnectionLost] * 5
    assert connection.closed


# -- receiving ---------------------------------------------------------------------------------------------------------


def test_receive_waits_and_times_out(server: ThreadedServer, connection: acquit.Connection) -> None:
    receiver = connection.session("individual").receiver("q")
    assert receiver.receive(0) is None
    assert receiver.receive(SOON) is None
    received: list[object] = []
    thread = in_thread(lambda: received.append(body(receiver.receive())))
    server.offer("q", b"a", b"b", b"c")
    thread.join(LONG)
    assert received == [b"a"]
    assert [m.body for m in receiver.receive_many(5, LONG)] == [b"b", b"c"]
    assert receiver.receive_many(5, SOON) == []
    assert (receiver.address, receiver.remote_properties) == ("q", {})


def test_several_threads_share_a_receiver(server: ThreadedServer, connection: acquit.Connection) -> None:
    receiver = connection.session("individual").receiver("q", prefetch=7)
    seen: list[object] = []
    lock = threading.Lock()

    def consume() -> None:
        for message in receiver:
            with lock:
                seen.append(message.body)
            message.accept(sync=False)

    threads = [in_thread(consume) for _ in range(3)]
    numbers = [str(number) for number in range(300)]
    server.offer("q", *numbers)
    while len(seen) < 300:
        server.call(lambda: None)
    receiver.close()
    for thread in threads:
        thread.join(LONG)
    assert sorted(seen, key=lambda text: int(str(text))) == numbers
    accepted = [name for name, state, _ in server.server.outcomes() if state == Accepted()]
    assert sorted(accepted) == sorted(numbers)


def test_a_message_is_settled_once_whichever_thread_tries(
    server: ThreadedServer, connection: acquit.Connection
) -> None:
    receiver = connection.session("individual").receiver("q")
    server.offer("q", *[b"x"] * 50)
    for message in receiver.receive_many(50, LONG):
        barrier = threading.Barrier(3)

        def settle(_: int, message: acquit.ReceivedMessage = message, barrier: threading.Barrier = barrier) -> bool:
            barrier.wait()
            try:
                message.accept(sync=False)
            except errors.AlreadySettled:
                return False
            return True

        with ThreadPoolExecutor(3) as pool:
            assert sum(pool.map(settle, range(3))) == 1


def test_prefetch_zero(server: ThreadedServer, connection: acquit.Connection) -> None:
    receiver = connection.session("individual").receiver("q", prefetch=0)
    assert receiver.receive(0) is None
    assert receiver.receive(SOON) is None
    server.offer("q", b"a", b"b")
    assert body(receiver.receive(LONG)) == b"a"
    assert len(server.server.queues["q"]) == 1
    assert body(receiver.receive(0)) == b"b"


def test_prefetch_zero_waits_for_the_credit_of_a_peer_that_answers_no_more_and_not_for_ever(
    server: ThreadedServer,
) -> None:
    """As in an outage that nobody has noticed: within answer_timeout_ms behind its own time-out."""
    server.server.drains = False
    options = acquit.ConnectOptions(reconnect=None, answer_timeout_ms=200)
    with acquit.connect(server.url, options=options) as connection:
        receiver = connection.session("individual").receiver("q", prefetch=0)
        assert receiver.receive(SOON) is None


def test_at_the_limit(server: ThreadedServer, connection: acquit.Connection) -> None:
    receiver = connection.session("client").receiver("q", prefetch=1)
    server.offer("q", b"a", b"b")
    first = receiver.receive(LONG)
    with pytest.raises(errors.CreditExhausted):
        receiver.receive(SOON)
    assert first is not None
    assert first.acknowledge().status is ReceiptStatus.ANSWERED
    assert body(receiver.receive(LONG)) == b"b"


def test_auto_and_listening(server: ThreadedServer, connection: acquit.Connection) -> None:
    receiver = connection.session().receiver("q")
    handled: list[object] = []

    def handle(message: acquit.ReceivedMessage) -> None:
        handled.append(message.body)
        if message.body == b"bad":
            raise ValueError
        if message.body == b"last":
            receiver.close()

    server.offer("q", b"good", b"bad", b"last", b"never")
    receiver.listen(handle)
    assert handled == [b"good", b"bad", b"last"]
    outcomes = {name: state for name, state, _ in server.server.outcomes()}
    assert outcomes == {
        b"good": Accepted(),
        b"bad": Modified(delivery_failed=True),
        b"last": Modified(delivery_failed=True),  # it closed its own receiver before it returned
        b"never": Released(),
    }


def test_verbs(server: ThreadedServer, connection: acquit.Connection) -> None:
    session = connection.session("individual")
    receiver = session.receiver("q")
    server.offer("q", b"a", b"b", b"c", b"d", b"e", b"f")
    a, b, c, d, e, f = receiver.receive_many(6, LONG)
    assert a.accept().status is ReceiptStatus.ANSWERED
    assert b.reject("amqp:decode-error", "no").status is ReceiptStatus.ANSWERED
    assert c.release().status is ReceiptStatus.ANSWERED
    assert d.modify(undeliverable_here=True).status is ReceiptStatus.ANSWERED
    receipt = session.settle([e], Released(), sync=False)
    assert receipt.result(LONG) is ReceiptStatus.ANSWERED
    assert session.recover() == 1
    assert receiver.receive() is f
    assert session.acknowledge(f).count == 1
    assert [state for _, state, _ in server.server.outcomes()] == [
        Accepted(),
        Rejected(Error("amqp:decode-error", "no")),
        Released(),
        Modified(undeliverable_here=True),
        Released(),
        Accepted(),
    ]


def test_drain_and_refresh(server: ThreadedServer, connection: acquit.Connection) -> None:
    receiver = connection.session("individual").receiver("q", prefetch=5)
    server.offer("q", b"a")
    assert receiver.drain(LONG)
    assert body(receiver.receive(0)) == b"a"
    server.call(lambda: server.server.connection.sending.offer(7))
    assert receiver.refresh(LONG)
    assert receiver.available == 7


# -- opening and closing -----------------------------------------------------------------------------------------------


def test_who_waits_goes_on_waiting_over_somebody_else_s_drain(
    server: ThreadedServer, connection: acquit.Connection
) -> None:
    receiver = connection.session("individual").receiver("q")
    got: list[object] = []
    thread = in_thread(lambda: got.append(body(receiver.receive(LONG))))
    while not receiver._gate.has_waiters:
        time.sleep(0.001)
    assert receiver.drain(LONG)
    server.offer("q", b"a")
    thread.join(LONG)
    assert got == [b"a"]


def test_a_connection_tells_about_both_ends(connection: acquit.Connection) -> None:
    assert connection.remote_container_id == "server"
    assert connection.container_id.startswith("acquit-")
    assert (connection.remote_properties, connection.remote_capabilities) == ({}, ())
    session = connection.session(2)
    assert session.mode is acquit.AckMode.CLIENT
    session.close()
    with pytest.raises(errors.SessionEnded):
        session.sender("q")


def test_leaving_a_block_closes_in_order(server: ThreadedServer) -> None:
    with (
        acquit.connect(server.url) as connection,
        connection.session("individual") as session,
        session.sender("p") as sender,
        session.receiver("q") as receiver,
    ):
        receipt = sender.send(b"x", wait=False)
        server.offer("q", b"a", b"b")
        body(receiver.receive(LONG))
    assert receipt.outcome == Accepted()
    assert connection.closed
    assert [state for _, state, _ in server.server.outcomes()] == [Released(), Modified(delivery_failed=True)]
    (ended,) = server.server.all(ev.ConnectionEnded)
    assert not ended.lost
    for thing in (receiver, sender, session, connection):
        thing.close()


def test_a_wrong_password_is_an_error_of_its_own() -> None:
    with serving(Server(users={"ann": "secret"})) as server:
        url = f"amqp://ann:wrong@{server.where}"
        with pytest.raises(errors.AuthenticationFailed, match=f"{server.where} refused to authenticate us"):
            acquit.connect(url)
        with pytest.raises(errors.AuthenticationFailed):
            acquit.connect(server.url)
        with acquit.connect(url, password="secret") as connection:
            assert not connection.closed


def test_nobody_answers() -> None:
    with serving(Server()) as server:
        where = server.where
    with pytest.raises(errors.ConnectionFailed, match=f"cannot connect to {where}: Connection refused"):
        acquit.connect(f"amqp://{where}")


def test_an_option_that_makes_no_sense() -> None:
    with pytest.raises(errors.ConfigurationError, match="max_frame_size must be a whole number from 512"):
        acquit.connect("amqp://localhost", options=ConnectOptions(max_frame_size=1))


def test_heartbeats_go_on_while_the_program_computes() -> None:
    server = Server()
    server.options = dataclasses.replace(server.options, idle_timeout_ms=500)  # gives up who is silent for a second
    with serving(server) as running, acquit.connect(running.url) as connection:
        sender = connection.session().sender("q")
        ends_at = time.monotonic() + 1.2
        while time.monotonic() < ends_at:
            sum(range(1_000))
        assert sender.send(b"still here") == Accepted()


def test_a_program_that_ends_without_closing_ends() -> None:
    program = "import acquit, sys; acquit.connect(sys.argv[1]).session('client').receiver('q'); print('done')"
    with serving(Server()) as server:
        command = [sys.executable, "-c", program, server.url]
        result = subprocess.run(command, capture_output=True, text=True, timeout=LONG, check=True)
        assert (result.stdout, result.stderr) == ("done\n", "")
        server.call_and_wait(server.server.connection.closed.wait)
        (ended,) = server.server.all(ev.ConnectionEnded)
        assert ended.lost


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")  # interrupted on its way to `run`
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # interrupted while it collects garbage
@pytest.mark.parametrize("what", ["receiver", "sender", "session", "requester", "connection"])
def test_an_interrupt_anywhere_in_an_opening_leaves_nothing_open(
    what: str, server: ThreadedServer, connection: acquit.Connection
) -> None:
    session = connection.session("individual")
    openings: dict[str, Callable[[], BlockingClosable]] = {
        "receiver": partial(session.receiver, "q"),
        "sender": partial(session.sender, "q"),
        "session": connection.session,
        "requester": partial(session.requester, "q", reply_to="r"),
        "connection": partial(acquit.connect, server.url),
    }
    opening = False

    def interrupt() -> None:
        if opening:
            raise KeyboardInterrupt

    def left() -> int:
        drivers = [driver for driver in list(threads._drivers) if not driver.core.closed.done]
        sessions = [session for driver in drivers for session in driver.core.sessions]
        return len(drivers) + sum(1 + len(it.senders) + len(it.receivers) for it in sessions)

    def open_and_close() -> None:
        nonlocal opening
        opened = None
        try:
            opening = True
            opened = openings[what]()
            opening = False
        except KeyboardInterrupt:
            opening = False
        sys.setprofile(None)
        if opened is not None:
            opened.close()
        ends_at = time.monotonic() + LONG
        while left() > before and time.monotonic() < ends_at:
            time.sleep(0.001)
        assert left() <= before

    before = left()
    signalled_at_each_call(open_and_close, interrupt)


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")  # interrupted on its way to `run`
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # interrupted while it collects garbage
@pytest.mark.parametrize("what", ["commit", "commit after an interrupted one", "flush"])
def test_an_interrupt_anywhere_leaves_a_failure_to_the_next_call_to_tell_once(
    what: str, server: ThreadedServer, connection: acquit.Connection
) -> None:
    """Also where it comes just as the answer does: nobody has heard of that yet."""
    transacted = what != "flush"
    session = connection.session("transacted" if transacted else "auto")
    sender = session.sender("q")
    refused = Rejected(Error("amqp:transaction:rollback" if transacted else "amqp:not-allowed", "no"))
    wait = session.commit if transacted else sender.flush
    waiting = False

    def interrupt() -> None:
        if waiting:
            raise KeyboardInterrupt

    def fail_and_wait() -> None:
        nonlocal waiting
        server.server.commits = lambda discharge: refused
        server.server.verdict = lambda delivery: Accepted() if transacted else refused
        receipt = sender.send(b"x", wait=False)
        if what == "commit after an interrupted one":
            loop_thread().run(session._aio._ended(None, commit=True))
        told = 0
        try:
            waiting = True
            wait()
        except KeyboardInterrupt:
            waiting = False
        except (errors.TransactionRolledBack, errors.MessageRejected):
            waiting = False
            told += 1
        sys.setprofile(None)
        assert threads.wait(receipt, LONG) or transacted
        for _ in range(2):
            try:
                wait()
            except (errors.TransactionRolledBack, errors.MessageRejected):
                told += 1
        assert told == 1

    signalled_at_each_call(fail_and_wait, interrupt)
