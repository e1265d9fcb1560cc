"""What a hostile or broken peer can do to a broker: lose its own connection, and nothing else.

Every test here speaks raw bytes over a real socket. After each, a witness (a well-behaved connection that was open the
whole time) sends and receives a message on the same broker: nobody else noticed.
"""

from __future__ import annotations

import random
import socket
import struct
from collections.abc import Iterator
from contextlib import closing

import pytest

import acquit

pytestmark = pytest.mark.promise("fairness")

AMQP_HEADER = b"AMQP\x00\x01\x00\x00"
SASL_HEADER = b"AMQP\x03\x01\x00\x00"

OPEN, BEGIN, ATTACH, FLOW, TRANSFER, DISPOSITION, DETACH, END, CLOSE = range(0x10, 0x19)
SASL_INIT = 0x41


def described_list(descriptor: int, *fields: bytes) -> bytes:
    content = b"".join(fields)
    return b"\x00\x53" + bytes([descriptor]) + b"\xd0" + struct.pack(">II", len(content) + 4, len(fields)) + content


def frame(body: bytes, *, channel: int = 0, kind: int = 0, size: int | None = None, doff: int = 2) -> bytes:
    return struct.pack(">IBBH", 8 + len(body) if size is None else size, doff, kind, channel) + body


def string(text: str) -> bytes:
    return b"\xa1" + bytes([len(text)]) + text.encode()


def symbol(text: str) -> bytes:
    return b"\xa3" + bytes([len(text)]) + text.encode()


def uint(value: int) -> bytes:
    return b"\x70" + struct.pack(">I", value)


TRUE, FALSE, NULL = b"\x41", b"\x42", b"\x40"

SASL_ANONYMOUS = SASL_HEADER + frame(described_list(SASL_INIT, symbol("ANONYMOUS")), kind=1)
OPEN_FRAME = frame(described_list(OPEN, string("hostile"), string("localhost")))
BEGIN_FRAME = frame(described_list(BEGIN, NULL, uint(0), uint(2048), uint(2048)))
SENDER_FRAME = frame(
    described_list(
        ATTACH,
        string("s"),
        uint(0),
        FALSE,
        b"\x50\x00",
        b"\x50\x00",
        described_list(0x28, string("here")),
        described_list(0x29, string("hostile.queue")),
        NULL,
        NULL,
        uint(0),
    )
)
OPENED = SASL_ANONYMOUS + AMQP_HEADER + OPEN_FRAME
BEGUN = OPENED + BEGIN_FRAME
ATTACHED = BEGUN + SENDER_FRAME


def transfer(
    *, delivery_id: int = 0, handle: int = 0, tag: bytes = b"t", more: bytes = FALSE, payload: bytes = b""
) -> bytes:
    fields = (uint(handle), uint(delivery_id), b"\xa0" + bytes([len(tag)]) + tag, uint(0), FALSE, more)
    return frame(described_list(TRANSFER, *fields) + payload)


BODY = b"\x00\x53\x75\xa0\x05hello"


def exchange(port: int, data: bytes, *, half_close: bool = False) -> bytes:
    """Send `data` and return all that comes back until the broker closes the socket, for `half_close` at our end.

    What follows the attach of a sender is sent when there is credit for it: a flow has come back.
    """
    answer = bytearray()
    with closing(socket.create_connection(("127.0.0.1", port), timeout=20)) as peer:
        try:
            if data.startswith(ATTACHED):
                peer.sendall(ATTACHED)
                while bytes((0x00, 0x53, FLOW)) not in answer:
                    answer += peer.recv(65536)
                data = data.removeprefix(ATTACHED)
            peer.sendall(data)
            if half_close:
                peer.shutdown(socket.SHUT_WR)
            while chunk := peer.recv(65536):
                answer += chunk
        except (ConnectionResetError, BrokenPipeError):
            pass  # the broker closed while we were still talking: that is an answer too
    return bytes(answer)


@pytest.fixture(scope="module")
def broker() -> Iterator[acquit.Broker]:
    with acquit.Broker() as running:
        yield running


@pytest.fixture
def witness(broker: acquit.Broker) -> Iterator[None]:
    with acquit.connect(broker.url) as connection, connection.session() as session:
        sender = session.sender("witness")
        receiver = session.receiver("witness")
        yield
        sender.send(b"still here", timeout=20)
        received = receiver.receive(timeout=20)
        assert received is not None and received.body == b"still here"


# What the peer says, and the condition its connection, session or link must hear before it ends.
NONSENSE: dict[str, tuple[bytes, str | None]] = {
    "another protocol": (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", None),
    "another version": (b"AMQP\x00\x00\x09\x01", None),
    "frame smaller than its header": (OPENED + struct.pack(">IBBH", 7, 2, 0, 0), "amqp:connection:framing-error"),
    "data offset inside the header": (OPENED + frame(b"", doff=1), "amqp:connection:framing-error"),
    "data offset beyond the frame": (OPENED + frame(b"", doff=9), "amqp:connection:framing-error"),
    "frame above max-frame-size": (OPENED + frame(b"", size=0x7FFFFFFF), "amqp:connection:framing-error"),
    "performative before open": (SASL_ANONYMOUS + AMQP_HEADER + BEGIN_FRAME, "amqp:"),
    "second open": (OPENED + OPEN_FRAME, "amqp:"),
    "open without a container id": (SASL_ANONYMOUS + AMQP_HEADER + frame(described_list(OPEN)), "amqp:decode-error"),
    "unknown performative": (OPENED + frame(described_list(0x7F)), "amqp:"),
    "body that is not a described type": (OPENED + frame(b"\x43"), "amqp:decode-error"),
    "list that claims more than the frame": (
        OPENED + frame(b"\x00\x53\x11\xd0\x00\x00\x10\x00\x00\x00\x00\x04"),
        "amqp:decode-error",
    ),
    "list that claims four billion fields": (
        OPENED + frame(b"\x00\x53\x11\xd0\x00\x00\x00\x05\xff\xff\xff\xff\x40"),
        "amqp:decode-error",
    ),
    "array of four billion nothings": (
        OPENED
        + frame(
            described_list(BEGIN, NULL, uint(0), uint(1), uint(1), NULL, b"\xf0\x00\x00\x00\x05\xff\xff\xff\xff\x40")
        ),
        "amqp:decode-error",
    ),
    "deep nesting": (OPENED + frame(b"\x00" * 20_000 + b"\x43"), "amqp:decode-error"),
    "bad utf-8": (
        SASL_ANONYMOUS + AMQP_HEADER + frame(described_list(OPEN, b"\xa1\x02\xff\xfe")),
        "amqp:decode-error",
    ),
    "frame on a channel never begun": (OPENED + frame(described_list(FLOW), channel=9), "amqp:"),
    "transfer on a handle never attached": (BEGUN + transfer(handle=7, payload=BODY), "amqp:session:unattached-handle"),
    "handle in use": (ATTACHED + SENDER_FRAME.replace(string("s"), string("z"), 1), "amqp:session:handle-in-use"),
    "transfer without a delivery-id": (
        ATTACHED + frame(described_list(TRANSFER, uint(0)) + BODY),
        "amqp:",
    ),
    "delivery-id that jumps": (
        ATTACHED + transfer(payload=BODY) + transfer(delivery_id=77, tag=b"u", payload=BODY),
        "amqp:",
    ),
    "payload that is no message": (ATTACHED + transfer(payload=b"\xde\xad\xbe\xef"), "amqp:decode-error"),
    "sections in the wrong order": (
        ATTACHED + transfer(payload=BODY + b"\x00\x53\x70\xc0\x02\x01\x41"),
        "amqp:decode-error",
    ),
}


@pytest.mark.parametrize("name", NONSENSE)
def test_nonsense_ends_its_own_connection_with_a_condition(name: str, broker: acquit.Broker, witness: None) -> None:
    data, condition = NONSENSE[name]
    # An error of a session or link leaves the connection to us, and one that was understood waits for our close.
    ours = condition is None or data.startswith(BEGUN) or name in ("performative before open", "second open")
    answer = exchange(broker.port, data, half_close=ours)
    if condition is None:
        # 2.2: a peer that speaks something else is told what we speak, and the socket is closed.
        assert answer in (b"", AMQP_HEADER, SASL_HEADER), answer
    else:
        assert condition.encode() in answer, answer


def test_disposition_over_the_whole_id_space_is_cheap_and_harmless(broker: acquit.Broker, witness: None) -> None:
    everything = frame(described_list(DISPOSITION, TRUE, uint(0), uint(0x7FFFFFFE), TRUE, described_list(0x24)))
    close = frame(described_list(CLOSE))
    answer = exchange(broker.port, BEGUN + everything * 50 + close)
    assert bytes([0x00, 0x53, CLOSE]) in answer


def test_random_bytes(broker: acquit.Broker, witness: None) -> None:
    rng = random.Random(20)
    for _ in range(40):
        prefix = rng.choice((b"", SASL_HEADER, SASL_ANONYMOUS, OPENED, BEGUN, ATTACHED))
        exchange(broker.port, prefix + rng.randbytes(rng.randrange(1, 4000)), half_close=True)


def test_mutated_conversations(broker: acquit.Broker, witness: None) -> None:
    rng = random.Random(21)
    conversation = ATTACHED + transfer(payload=BODY) + frame(described_list(CLOSE))
    for _ in range(150):
        mutated = bytearray(conversation)
        for _ in range(rng.randrange(1, 6)):
            position = rng.randrange(len(mutated))
            match rng.randrange(3):
                case 0:
                    mutated[position] = rng.randrange(256)
                case 1:
                    del mutated[position : position + rng.randrange(1, 9)]
                case _:
                    mutated[position:position] = rng.randbytes(rng.randrange(1, 9))
        exchange(broker.port, bytes(mutated), half_close=True)


def test_a_crowd_that_connects_and_says_nothing_keeps_nobody_out(broker: acquit.Broker, witness: None) -> None:
    crowd = [socket.create_connection(("127.0.0.1", broker.port), timeout=20) for _ in range(100)]
    try:
        with acquit.connect(broker.url) as connection, connection.session() as session:
            session.sender("crowd").send(b"through", timeout=20)
    finally:
        for peer in crowd:
            peer.close()


def test_a_consumer_that_never_reads_does_not_grow_the_broker(broker: acquit.Broker, witness: None) -> None:
    """A link with endless credit whose socket is never read: what it is owed waits in the queue, not in memory."""
    receiver = frame(
        described_list(
            ATTACH,
            string("r"),
            uint(0),
            TRUE,
            NULL,
            b"\x50\x00",
            described_list(0x28, string("slow")),
            described_list(0x29, string("me")),
        )
    )
    window = 0x7FFFFFFF
    begin = frame(described_list(BEGIN, NULL, uint(0), uint(window), uint(window)))
    flow = frame(described_list(FLOW, uint(0), uint(window), uint(0), uint(window), uint(0), uint(0), uint(0x7FFFFFFF)))
    with closing(socket.socket()) as peer:
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        peer.connect(("127.0.0.1", broker.port))
        peer.sendall(OPENED + begin + receiver + flow)
        body = b"x" * 10_000
        with acquit.connect(broker.url) as connection, connection.session() as session:
            sender = session.sender("slow")
            for _ in range(20):
                receipts = [sender.send(body, wait=False) for _ in range(100)]
                for receipt in receipts:
                    receipt.result(timeout=20)
            slow = next(queue for queue in broker.inspect().queues if queue.name == "slow")
            # 20 MB were posted; what left for the peer fits in socket buffers and the transport's high-water mark.
            assert slow.acquired * len(body) < 8_000_000
            assert slow.depth == 2_000
