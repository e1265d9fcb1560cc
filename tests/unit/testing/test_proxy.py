"""A proxy that does harm on command, between two sockets of the test's own and before a real broker."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator

import pytest

import acquit
from acquit.errors import AcquitError, ConfigurationError
from acquit.protocol.composite import encode_composite
from acquit.protocol.constants import AMQP_HEADER
from acquit.protocol.definitions import Accepted, Begin, Declare, Disposition, End, Open, Role, TransactionalState
from acquit.protocol.frames import HEARTBEAT, encode_frame
from acquit.testing import PassedFrame, Proxy

OPEN = encode_frame(0, encode_composite(Open(container_id="one")))
BEGIN = encode_frame(
    3, encode_composite(Begin(remote_channel=None, next_outgoing_id=0, incoming_window=1, outgoing_window=1))
)
END = encode_frame(3, encode_composite(End()))


class Ends:
    """The two programs at the ends of a proxy: `client` has connected, `broker` is what it reached."""

    def __init__(self, proxy: Proxy, listener: socket.socket) -> None:
        self.proxy = proxy
        self.listener = listener
        self.client, self.broker = self.connect()

    def connect(self) -> tuple[socket.socket, socket.socket]:
        """Gives the two once the proxy has joined them, which it does after the kernel has connected both."""
        before = self.proxy.connections
        client = socket.create_connection(("127.0.0.1", self.proxy.port), 10)
        broker, _ = self.listener.accept()
        broker.settimeout(10)
        until(lambda: self.proxy.connections > before)
        return client, broker


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(10)
        yield listener


@pytest.fixture
def ends(listener: socket.socket) -> Iterator[Ends]:
    with Proxy(f"amqp://127.0.0.1:{listener.getsockname()[1]}") as proxy:
        ends = Ends(proxy, listener)
        with ends.client, ends.broker:
            yield ends


def read_to_end(end: socket.socket) -> bytes:
    found = b""
    while data := end.recv(65536):
        found += data
    return found


def read(end: socket.socket, count: int) -> bytes:
    found = b""
    while len(found) < count:
        data = end.recv(count - len(found))
        assert data, f"ended after {found!r}"
        found += data
    return found


def assert_silent(ends: Ends, end: socket.socket) -> None:
    """Nothing comes, and no end: the proxy's loop has had its turns since."""
    for _ in range(20):
        assert ends.proxy.connections == 1
    end.setblocking(False)
    try:
        with pytest.raises(BlockingIOError):
            end.recv(1)
    finally:
        end.settimeout(10)


def until(condition: Callable[[], bool]) -> None:
    """Wait for what no event tells."""
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


# -- frames pass and are recorded --------------------------------------------------------------------------------------


def test_octets_pass_both_ways_in_any_split_and_frames_are_recorded(ends: Ends) -> None:
    for octet in AMQP_HEADER + OPEN + HEARTBEAT:
        ends.client.sendall(bytes([octet]))
    assert read(ends.broker, len(AMQP_HEADER + OPEN + HEARTBEAT)) == AMQP_HEADER + OPEN + HEARTBEAT
    ends.broker.sendall(AMQP_HEADER + OPEN + BEGIN)
    assert read(ends.client, len(AMQP_HEADER + OPEN + BEGIN)) == AMQP_HEADER + OPEN + BEGIN
    ends.proxy.wait_for("begin")
    assert [(frame.by, frame.channel, frame.name) for frame in ends.proxy.frames] == [
        ("client", 0, "header"),
        ("client", 0, "open"),
        ("client", 0, "empty"),
        ("broker", 0, "header"),
        ("broker", 0, "open"),
        ("broker", 3, "begin"),
    ]
    (opened,) = ends.proxy.passed("open", by="client")
    assert opened.performative == Open(container_id="one")


def test_an_end_passes_with_what_was_begun_and_the_other_direction_stays(ends: Ends) -> None:
    ends.client.sendall(AMQP_HEADER + OPEN[:10])
    ends.client.shutdown(socket.SHUT_WR)
    assert read_to_end(ends.broker) == AMQP_HEADER + OPEN[:10]
    ends.broker.sendall(AMQP_HEADER)
    ends.broker.close()
    assert read_to_end(ends.client) == AMQP_HEADER


def test_what_is_no_amqp_passes_as_it_comes(ends: Ends) -> None:
    hello = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"
    ends.client.sendall(hello)
    assert read(ends.broker, len(hello)) == hello
    assert ends.proxy.wait_for().name == "bytes"


def test_a_reset_passes_as_a_reset(ends: Ends) -> None:
    ends.client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    ends.client.close()
    with pytest.raises(ConnectionResetError):
        ends.broker.recv(1)


# -- cuts --------------------------------------------------------------------------------------------------------------


def test_a_cut_now_ends_both_sides_and_new_connections_pass(ends: Ends) -> None:
    ends.client.sendall(AMQP_HEADER)
    ends.proxy.wait_for("header")
    ends.proxy.cut()
    assert read_to_end(ends.broker) == AMQP_HEADER
    assert read_to_end(ends.client) == b""
    client, broker = ends.connect()
    with client, broker:
        client.sendall(AMQP_HEADER)
        assert read(broker, 8) == AMQP_HEADER
        assert ends.proxy.wait_for("header", 2).connection == 1
        assert ends.proxy.connections == 1


def test_a_cut_may_be_a_reset(ends: Ends) -> None:
    ends.client.sendall(AMQP_HEADER)
    assert read(ends.broker, 8) == AMQP_HEADER
    ends.proxy.cut(reset=True)
    for end in (ends.client, ends.broker):
        with pytest.raises(ConnectionResetError):
            end.recv(1)


@pytest.mark.parametrize(("place", "octets"), [("before", b""), ("within", BEGIN[: len(BEGIN) // 2]), ("after", BEGIN)])
def test_a_rule_fires_exactly_at_its_frame(ends: Ends, place: str, octets: bytes) -> None:
    """Whatever was pipelined behind the frame does not pass."""
    rule = getattr(ends.proxy, place)("begin", 3, by="client").cut()
    ends.broker.sendall(AMQP_HEADER + BEGIN + BEGIN + BEGIN)  # not by the client
    assert read(ends.client, 8 + 3 * len(BEGIN))
    ends.client.sendall(AMQP_HEADER + OPEN + BEGIN + BEGIN + END + BEGIN + END + BEGIN)
    assert read_to_end(ends.broker) == AMQP_HEADER + OPEN + BEGIN + BEGIN + END + octets
    assert read_to_end(ends.client) == b""
    assert rule.wait().raw == BEGIN
    assert len(ends.proxy.passed("begin", by="client")) == (3 if place == "after" else 2)


def test_so_many_octets_of_a_frame(ends: Ends) -> None:
    ends.proxy.within("open").cut(5)
    ends.client.sendall(AMQP_HEADER + OPEN)
    assert read_to_end(ends.broker) == AMQP_HEADER + OPEN[:5]


def test_what_has_passed_is_read_even_by_a_peer_that_goes_on_writing(ends: Ends) -> None:
    rule = ends.proxy.after("begin", by="client").cut()
    ends.client.sendall(AMQP_HEADER + BEGIN)
    rule.wait()
    ends.broker.sendall(OPEN * 1000)  # a closed socket would answer it with a reset
    assert read_to_end(ends.broker) == AMQP_HEADER + BEGIN


def test_a_rule_fires_once_and_counts_over_connections(ends: Ends) -> None:
    rule = ends.proxy.before("begin", 2).cut()
    ends.client.sendall(AMQP_HEADER + BEGIN)
    assert read(ends.broker, 8 + len(BEGIN))
    assert not rule.fired
    for octets in (b"", BEGIN):  # the second begin is cut, the third passes
        client, broker = ends.connect()
        with client, broker:
            client.sendall(AMQP_HEADER + BEGIN)
            assert read(broker, 8) == AMQP_HEADER
            client.shutdown(socket.SHUT_WR)
            assert read_to_end(broker) == octets
    assert rule.fired
    assert rule.wait().connection == 1


def test_a_cancelled_rule_does_not_fire(ends: Ends) -> None:
    assert ends.proxy.before("begin").cut().cancel()
    ends.client.sendall(AMQP_HEADER + BEGIN)
    assert read(ends.broker, 8 + len(BEGIN)) == AMQP_HEADER + BEGIN


def test_a_rule_whose_frame_is_there_cannot_be_cancelled(ends: Ends) -> None:
    begun, may_end = threading.Event(), threading.Event()

    def hold(frame: PassedFrame) -> None:
        begun.set()
        assert may_end.wait(10)

    rule = ends.proxy.before("begin").call(hold)
    ends.client.sendall(AMQP_HEADER + BEGIN)
    assert begun.wait(10)
    assert not rule.fired
    assert not rule.cancel()
    may_end.set()
    assert rule.wait().name == "begin"
    assert not rule.cancel()


def test_fields_and_functions_select(ends: Ends) -> None:
    settled = Disposition(role=Role.RECEIVER, first=5, settled=True, state=TransactionalState(b"t", Accepted()))
    frames = [
        encode_frame(0, encode_composite(Disposition(role=Role.RECEIVER, first=4))),
        encode_frame(0, encode_composite(settled)),
    ]
    ends.client.sendall(AMQP_HEADER + b"".join(frames))
    ends.proxy.wait_for("disposition", 2)
    assert len(ends.proxy.passed("disposition", role=Role.RECEIVER)) == 2
    for conditions in (
        {"settled": True},
        {"state": TransactionalState},
        {"state": settled.state},
        {"first": 5, "last": None},
    ):
        (found,) = ends.proxy.passed("disposition", **conditions)  # type: ignore[arg-type]  # fields
        assert found.performative == settled
    assert ends.proxy.passed("disposition", role=Role.SENDER) == []
    assert ends.proxy.passed(where=lambda frame: frame.size == len(frames[1]))[0].raw == frames[1]


def test_names_and_fields_that_do_not_exist_are_refused_at_once(ends: Ends) -> None:
    with pytest.raises(ValueError, match=r"no frame is called 'tranfser'; expected one of header, open"):
        ends.proxy.before("tranfser")
    with pytest.raises(ValueError, match=r"end has no field 'settled'; expected one of error"):
        ends.proxy.after("end", settled=True)
    with pytest.raises(ValueError, match="'client' or 'broker', not by 'server'"):
        ends.proxy.passed(by="server")  # type: ignore[arg-type]  # on purpose
    with pytest.raises(ValueError, match="counted from 1"):
        ends.proxy.before("end", 0).cut()
    with pytest.raises(ValueError, match="more than 0"):
        ends.proxy.throttle(0)


def test_a_called_function_sees_the_frame_before_it_has_passed(ends: Ends) -> None:
    seen: list[PassedFrame] = []

    def look(frame: PassedFrame) -> None:
        seen.append(frame)
        assert not ends.proxy.passed("begin")
        ends.proxy.stall()

    rule = ends.proxy.before("begin").call(look)
    ends.client.sendall(AMQP_HEADER + BEGIN)
    assert rule.wait() is seen[0]
    assert read(ends.broker, 8) == AMQP_HEADER
    assert_silent(ends, ends.broker)
    ends.proxy.resume()
    assert read(ends.broker, len(BEGIN)) == BEGIN


def test_a_called_function_may_cut_its_own_connection(ends: Ends) -> None:
    rule = ends.proxy.before("begin").call(lambda frame: ends.proxy.cut())
    ends.client.sendall(AMQP_HEADER + BEGIN)
    assert read_to_end(ends.broker) == AMQP_HEADER
    rule.wait()


def test_what_a_called_function_raises_is_raised_where_the_rule_is_waited_for(ends: Ends) -> None:
    rule = ends.proxy.after("begin").call(lambda frame: 1 / 0)
    ends.client.sendall(AMQP_HEADER + BEGIN)
    with pytest.raises(ZeroDivisionError):
        rule.wait()
    assert read(ends.broker, 8 + len(BEGIN))


def test_what_nobody_waited_for_is_raised_by_the_close(listener: socket.socket) -> None:
    proxy = Proxy(f"amqp://127.0.0.1:{listener.getsockname()[1]}")
    rule = proxy.after("header").call(lambda frame: 1 / 0)
    with socket.create_connection(("127.0.0.1", proxy.port)) as client:
        client.sendall(AMQP_HEADER)
        until(lambda: rule.fired)
    with pytest.raises(ZeroDivisionError):
        proxy.close()


# -- slow and stuck ----------------------------------------------------------------------------------------------------


def test_a_stalled_connection_stays_and_says_nothing(ends: Ends) -> None:
    ends.proxy.stall()
    ends.client.sendall(AMQP_HEADER)
    ends.broker.sendall(AMQP_HEADER)
    ends.broker.shutdown(socket.SHUT_WR)
    assert_silent(ends, ends.broker)
    assert_silent(ends, ends.client)
    ends.proxy.resume()
    assert read(ends.broker, 8) == AMQP_HEADER
    assert read_to_end(ends.client) == AMQP_HEADER


def test_one_side_alone_is_stalled(ends: Ends) -> None:
    ends.proxy.stall("broker")
    ends.broker.sendall(AMQP_HEADER)
    ends.client.sendall(AMQP_HEADER)
    assert read(ends.broker, 8) == AMQP_HEADER
    assert_silent(ends, ends.client)


def test_a_stall_at_a_frame(ends: Ends) -> None:
    rule = ends.proxy.after("open").stall()
    ends.client.sendall(AMQP_HEADER + OPEN + BEGIN)
    assert read(ends.broker, 8 + len(OPEN)) == AMQP_HEADER + OPEN
    rule.wait()
    assert_silent(ends, ends.broker)
    ends.proxy.cut()
    assert read_to_end(ends.broker) == b""


def test_a_delay_holds_each_chunk(ends: Ends) -> None:
    ends.proxy.delay(30, "client")
    began = time.monotonic()
    ends.client.sendall(AMQP_HEADER)
    assert read(ends.broker, 8) == AMQP_HEADER
    assert time.monotonic() - began >= 0.03
    ends.proxy.resume()


def test_a_throttle_passes_so_much_and_loses_nothing(ends: Ends) -> None:
    ends.proxy.throttle(20_000)
    frame = encode_frame(1, bytes(2_000))
    began = time.monotonic()
    ends.client.sendall(frame)
    assert read(ends.broker, len(frame)) == frame
    assert time.monotonic() - began >= 0.08
    ends.proxy.throttle(None)


# -- the door ----------------------------------------------------------------------------------------------------------


def test_a_door_that_refuses_and_opens_again(ends: Ends) -> None:
    ends.proxy.refuse()
    ends.proxy.refuse()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", ends.proxy.port), 10)
    ends.client.sendall(AMQP_HEADER)
    assert read(ends.broker, 8) == AMQP_HEADER  # who is in stays in
    ends.proxy.accept()
    ends.proxy.accept()
    client, broker = ends.connect()
    client.close()
    broker.close()


def test_a_broker_that_is_not_there_and_one_that_has_moved(ends: Ends) -> None:
    with socket.socket() as nobody, socket.create_server(("127.0.0.1", 0)) as elsewhere:
        nobody.bind(("127.0.0.1", 0))
        ends.proxy.retarget(f"amqp://127.0.0.1:{nobody.getsockname()[1]}")
        with socket.create_connection(("127.0.0.1", ends.proxy.port), 10) as client:
            assert client.recv(1) == b""
        ends.proxy.retarget(f"amqp://127.0.0.1:{elsewhere.getsockname()[1]}")
        with socket.create_connection(("127.0.0.1", ends.proxy.port), 10) as client:
            elsewhere.settimeout(10)
            broker, _ = elsewhere.accept()
            with broker:
                client.sendall(AMQP_HEADER)
                assert read(broker, 8) == AMQP_HEADER


def test_its_url_is_the_broker_s_with_its_own_port() -> None:
    with Proxy("amqps://someone:p%40ss@localhost") as proxy:
        assert proxy.url == f"amqps://someone:p%40ss@127.0.0.1:{proxy.port}"
    with pytest.raises(ConfigurationError):
        Proxy("http://localhost")


def test_a_closed_proxy_is_closed(ends: Ends) -> None:
    ends.proxy.stall()
    ends.proxy.close()
    ends.proxy.close()
    with pytest.raises(ConnectionResetError):
        ends.client.recv(1)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", ends.proxy.port), 10)
    with pytest.raises(AcquitError, match="closed"):
        ends.proxy.cut()


def test_a_connection_that_is_just_being_made_ends_with_the_proxy() -> None:
    making = threading.Event()

    async def never() -> socket.socket:
        making.set()
        await asyncio.Event().wait()
        raise AssertionError

    with Proxy("amqp://127.0.0.1:1") as proxy:
        proxy._connect = never  # type: ignore[method-assign]
        with socket.create_connection(("127.0.0.1", proxy.port), 10) as client:
            assert making.wait(10)
            proxy.close()
            with pytest.raises(ConnectionResetError):
                client.recv(1)


# -- what has passed ---------------------------------------------------------------------------------------------------


def test_waiting_for_a_frame_that_does_not_come_says_what_did(ends: Ends) -> None:
    ends.client.sendall(AMQP_HEADER + BEGIN)
    ends.proxy.wait_for("begin")
    with pytest.raises(TimeoutError, match=r"2 of begin by the client did not pass within 0.01 s: 1 did"):
        ends.proxy.wait_for("begin", 2, by="client", timeout_s=0.01)
    with pytest.raises(TimeoutError, match=r"before begin\(handle_max=5\), number 2 \(2 missing\)"):
        ends.proxy.before("begin", 2, handle_max=5).cut().wait(0.01)
    ends.proxy.forget()
    assert ends.proxy.frames == []
    ends.client.sendall(END)
    assert ends.proxy.wait_for().name == "end"


def test_the_record_is_bounded(listener: socket.socket) -> None:
    url = f"amqp://127.0.0.1:{listener.getsockname()[1]}"
    for proxy in (Proxy(url, frames_max=10), Proxy(url, bytes_max=10 * len(HEARTBEAT))):
        with proxy:
            ends = Ends(proxy, listener)
            with ends.client, ends.broker:
                for _ in range(100):
                    ends.client.sendall(HEARTBEAT)
                ends.client.sendall(END)
                proxy.wait_for("end")
                assert 5 <= len(proxy.frames) <= 10
                assert proxy.frames[-1].name == "end"


# -- before a real broker ----------------------------------------------------------------------------------------------


def test_a_client_and_a_broker_at_its_ends(broker: acquit.Broker, address: str) -> None:
    with Proxy(broker.url) as proxy, acquit.connect(proxy.url) as connection:
        with connection.session("transacted") as session:
            session.sender(address).send("x")
            session.commit()
            declared = proxy.wait_for("declare", by="client")
            assert isinstance(declared.control, Declare)
            assert declared.name == "transfer"
            assert proxy.passed("discharge", fail=False)
            assert not proxy.passed("discharge", fail=True)
        names = [frame.name for frame in proxy.frames if frame.by == "client"]
        assert names[:5] == ["header", "sasl-init", "header", "open", "begin"]
        assert {frame.name for frame in proxy.frames} >= {"sasl-outcome", "attach", "flow", "disposition"}
        assert "Transfer(" in str(proxy.passed("transfer", state=TransactionalState)[0])
    assert proxy.passed("close", by="broker")
