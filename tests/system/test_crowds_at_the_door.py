"""A crowd in front of `acquit serve`, or one user with all the connections there are: others come in all the same."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import pytest

import acquit
from acquit.broker.options import BrokerOptions, Http, Tls
from acquit.errors import ConnectionFailed
from acquit.protocol.constants import AMQP_HEADER, SASL_HEADER
from acquit.store.options import JournalOptions
from acquit.transport.tls import TlsStream
from tests.support.served import Served

pytestmark = pytest.mark.promise("fairness")

NEWCOMER_S: Final = 5.0
"""Far more than a newcomer takes, and far less than those half-open sockets have."""
TLS: Final = Path(__file__).parents[1] / "support" / "tls"
CROWD: Final = 20
USERS: Final = """
[connection]
handshake_timeout_ms = 600_000
[users.ada]
password = "x"
[users.bob]
password = "x"
"""


@contextmanager
def newcomer(served: Served, user: str = "") -> Iterator[acquit.Connection]:
    options = acquit.ConnectOptions(connect_timeout_ms=int(1_000 * NEWCOMER_S), reconnect=None)
    with acquit.connect(served.url.replace("//", f"//{user}"), options=options) as connection:
        yield connection


@pytest.mark.parametrize(
    ("said", "waits"),
    [
        (b"", True),
        (b"A", True),
        (SASL_HEADER, True),
        (AMQP_HEADER, False),  # there are users: who does not log in is answered, and closed, at once
        (AMQP_HEADER + b"\0\0\2\0\2\0\0\0", False),
    ],
)
def test_half_open_sockets_keep_nobody_out(tmp_path: Path, said: bytes, waits: bool) -> None:
    with Served(tmp_path, USERS) as served, ExitStack() as crowd:
        for _ in range(400):
            one = crowd.enter_context(socket.create_connection(("127.0.0.1", served.port)))
            one.sendall(said)
        with newcomer(served, "ada:x@") as connection:
            connection.session().sender("q").send(b"x", timeout=NEWCOMER_S)
        assert (1 if waits else 0) <= len(served.lines("gave way")) <= 4


def test_one_user_does_not_keep_the_others_out(tmp_path: Path) -> None:
    with Served(tmp_path, USERS + "[limits]\nconnections_max = 40\n") as served, ExitStack() as stack:
        for _ in range(30):
            stack.enter_context(newcomer(served, "ada:x@"))
        for _ in range(20):
            with pytest.raises(ConnectionFailed, match="as many as one user may have"), newcomer(served, "ada:x@"):
                pass
        with newcomer(served, "bob:x@") as connection:
            connection.session().sender("q").send(b"x", timeout=NEWCOMER_S)
        assert 1 <= len(served.lines("a connection is refused")) <= 4


def test_without_descriptors_it_goes_on_for_those_who_are_there(tmp_path: Path) -> None:
    """With a limit that the crowd alone would use up: nothing of the journal fails, and the log stays small."""
    with Served(tmp_path, descriptors=128) as served, newcomer(served) as witness, ExitStack() as crowd:
        while not (too_low := served.lines("the limit of open files is too low")):
            time.sleep(0.01)  # the log has a thread of its own
        (told,) = too_low
        assert "connections_max = 1024" in str(told)
        session = witness.session()
        sender, receiver = session.sender("q"), session.receiver("q")
        refused = 0
        for _ in range(150):
            try:
                crowd.enter_context(newcomer(served))
            except ConnectionFailed as exc:
                refused += "as many as there may be" in str(exc)
        for _ in range(150):
            crowd.enter_context(socket.create_connection(("127.0.0.1", served.port)))
        assert 50 < refused < 150
        longest = 0.0
        for number in range(50):
            began = time.monotonic()
            sender.send(acquit.Message(b"%d" % number, durable=True), timeout=NEWCOMER_S)
            assert receiver.receive(timeout=NEWCOMER_S) is not None
            longest = max(longest, time.monotonic() - began)
        assert longest < NEWCOMER_S
        crowd.close()
        assert served.log.stat().st_size < 500_000
        assert not served.lines("Traceback")
        with newcomer(served) as connection:
            connection.session().sender("q").send(b"x", timeout=NEWCOMER_S)


@pytest.mark.parametrize("where", ["broker", "http"])
def test_of_a_crowd_that_begins_tls_at_once_one_does_in_each_round(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first holds up the loop until all others have said their hello."""
    rounds = [0]
    began: list[TlsStream] = []
    held, go_on = threading.Event(), threading.Event()
    shake_hands = TlsStream._shake_hands

    def tick(loop: asyncio.AbstractEventLoop) -> None:
        rounds.append(0)
        if not done.is_set():
            loop.call_soon(tick, loop)

    def counting(stream: TlsStream) -> None:
        if not stream._incoming.pending:
            began.append(stream)
        elif held.is_set():
            rounds[-1] += 1
            if sum(rounds) == CROWD - 1:
                done.set()
        else:
            tick(asyncio.get_running_loop())
            held.set()
            assert go_on.wait(60)
        shake_hands(stream)

    done = threading.Event()
    tls = Tls(certificate_file=str(TLS / "certificate.pem"), key_file=str(TLS / "key.pem"))
    options = BrokerOptions(tls=tls, http=Http(port=0), journal=JournalOptions.small())
    with acquit.Broker(config=options) as broker, ExitStack() as stack:
        port = broker.port if where == "broker" else urlsplit(broker.http_url).port
        monkeypatch.setattr(TlsStream, "_shake_hands", counting)
        crowd = [stack.enter_context(socket.create_connection(("127.0.0.1", port))) for _ in range(CROWD)]
        while len(began) < CROWD:
            time.sleep(0.01)  # until all are taken
        for one in crowd:
            one.sendall(hello())
            assert held.wait(60)
        go_on.set()
        assert done.wait(60)
    assert max(rounds) <= 2, "one in each round, which may begin in the midst of ours"


def hello() -> bytes:
    """What a client of TLS begins with."""
    outgoing = ssl.MemoryBIO()
    tls = ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        tls.do_handshake()
    return outgoing.read()
