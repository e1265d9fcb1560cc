"""What hostile peers can do to a broker with the things it offers: nothing that anybody else would notice.

As `test_hostile_peers`, for transactions, topics, nodes made on request, selectors, groups, locks, management, logins
and reloads, and against one `acquit serve` for all tests. The witness never stops sending and receiving there. It must
not wait for longer than WITNESS_WAIT_S, and after each test the broker must be as large as at first, but for GROWTH_KB.
In the end its log holds no error, and its ledger balances.
"""

from __future__ import annotations

import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest

import acquit
from acquit.protocol.composite import encode_composite
from acquit.protocol.constants import AMQP_HEADER, SASL_HEADER
from acquit.protocol.definitions import (
    Accepted,
    Attach,
    Begin,
    Close,
    Coordinator,
    Declare,
    Declared,
    DeleteOnClose,
    DeleteOnNoLinks,
    Detach,
    Discharge,
    Disposition,
    End,
    Flow,
    Received,
    Rejected,
    Role,
    SaslInit,
    SaslResponse,
    Source,
    Target,
    TerminusDurability,
    TerminusExpiryPolicy,
    TransactionalState,
    Transfer,
)
from acquit.protocol.frames import SASL_FRAME, encode_frame
from acquit.protocol.message import AmqpValue, Message
from acquit.protocol.types import Described, ULong
from tests.support.raw_socket import WINDOW, RawSocket

pytestmark = pytest.mark.promise("fairness")

WITNESS_WAIT_S: Final = 5.0
"""The longest that one send or receive of the witness may take."""
GROWTH_KB: Final = 96 * 1024
"""How much larger the broker's process may be than before anybody came: for thousands of queues, nearly all of it."""

EVERYTHING: Final = "".join(f'{may} = ["#"]\n' for may in ("send", "consume", "browse", "create", "delete", "manage"))
GUEST: Final = "".join(f'{may} = ["guest.#"]\n' for may in ("send", "consume", "create"))
CONFIG: Final = f"""
[roles.anonymous]
{EVERYTHING}
[security]
refusal_delay_ms = 1
login_delay_ms_max = 0
anonymous = "loopback"
[connection]
handshake_timeout_ms = 2_000
[[address]]
match = "locked.#"
lock_duration_ms = 20
"""
USERS: Final = f"""
[roles.guest]
{GUEST}
[roles.fallen]
{GUEST}
[users.gone]
password = "x"
roles = ["guest"]
[users.demoted]
password = "x"
roles = ["fallen"]
"""
RELOADED: Final = """
[roles.guest]
send = ["guest.#"]
[roles.fallen]
browse = ["nothing"]
[users.demoted]
password = "x"
roles = ["fallen"]
"""


class Served:
    """An `acquit serve` in a process of its own."""

    def __init__(self, folder: Path) -> None:
        self.data, self.config, self.log = folder / "data", folder / "acquit.toml", folder / "log"
        self.config.write_text(CONFIG + USERS)
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "acquit", "serve", "--host", "127.0.0.1", "--port", "0"),
                    *("--data", str(self.data), "--config", str(self.config), "--log-format", "json"),
                ],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        assert self.process.stdout is not None
        ready = self.process.stdout.readline()
        found = re.search(r"amqp://\S+:(\d+)", ready)
        assert found, (ready, self.log.read_text())
        self.url, self.port = found.group(), int(found.group(1))
        self.size_before_kb = self.size_kb()

    def size_kb(self) -> int:
        """VmRSS."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+)", status).group(1))  # type: ignore[union-attr]  # it is always there

    def sockets(self) -> int:
        """Sockets that the process has open."""
        folder = f"/proc/{self.process.pid}/fd"
        count = 0
        for name in os.listdir(folder):
            try:
                count += os.readlink(f"{folder}/{name}").startswith("socket:")
            except FileNotFoundError:
                pass  # closed meanwhile
        return count

    def ledger(self, command: str) -> subprocess.CompletedProcess[str]:
        """`acquit ledger COMMAND` of a stopped broker."""
        return subprocess.run(
            [sys.executable, "-m", "acquit", "ledger", command, "--data", str(self.data)],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )


class Witness:
    """A client that behaves, on a thread: one message there and back after the other."""

    def __init__(self, served: Served) -> None:
        self.rounds = 0
        self.failure: BaseException | None = None
        self._stop = threading.Event()
        self._went_on = threading.Condition()
        self._thread = threading.Thread(target=self._run, args=(served.url,), name="witness")
        self._thread.start()

    def _run(self, url: str) -> None:
        try:
            with acquit.connect(url) as connection, connection.session() as session:
                sender, receiver = session.sender("witness"), session.receiver("witness")
                while not self._stop.wait(0.01):  # its pace: the others are to have the machine
                    body = b"%d" % self.rounds
                    sender.send(body, timeout=WITNESS_WAIT_S)
                    received = receiver.receive(timeout=WITNESS_WAIT_S)
                    assert received is not None, "nothing came back"
                    assert received.body == body
                    with self._went_on:
                        self.rounds += 1
                        self._went_on.notify_all()
        except BaseException as exc:
            with self._went_on:
                self.failure = exc
                self._went_on.notify_all()

    def went_on(self) -> None:
        """It has done two more rounds, and had none that failed."""
        with self._went_on:
            wanted = self.rounds + 2
            assert self._went_on.wait_for(lambda: self.failure or self.rounds >= wanted, 4 * WITNESS_WAIT_S)
        assert self.failure is None, repr(self.failure)

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()
        assert self.failure is None, repr(self.failure)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Served, Witness]]:
    served = Served(tmp_path_factory.mktemp("hostile"))
    try:
        witness = Witness(served)
        try:
            witness.went_on()
            yield served, witness
        finally:
            witness.stop()
        served.process.terminate()
        assert served.process.wait(timeout=60) == 0
    finally:
        served.process.kill()
        served.process.wait()
        if served.process.stdout is not None:
            served.process.stdout.close()
    lines = [json.loads(line) for line in served.log.read_text().splitlines()]
    assert [line for line in lines if line["level"] in ("error", "critical")] == []
    for command in ("verify", "balance"):
        done = served.ledger(command)
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(autouse=True)
def undisturbed(running: tuple[Served, Witness]) -> Iterator[None]:
    """What is the same after each test."""
    served, witness = running
    sockets = served.sockets()
    yield
    witness.went_on()
    assert eventually(lambda: served.sockets() <= sockets), "the broker keeps sockets of peers that are gone"
    assert served.size_kb() - served.size_before_kb <= GROWTH_KB


@pytest.fixture
def served(running: tuple[Served, Witness]) -> Served:
    return running[0]


def eventually(holds: object, timeout_s: float = 60.0) -> bool:
    """Ask until it holds; False when it did not in time."""
    deadline = time.monotonic() + timeout_s
    pause = threading.Event()
    while not holds():  # type: ignore[operator]
        if time.monotonic() > deadline:
            return False
        pause.wait(0.02)
    return True


def read_queues(served: Served) -> dict[str, dict[str, object]]:
    """The broker's queues by name, as its management node tells."""
    with acquit.connect(served.url) as connection, connection.session() as session:
        answers, requests = session.receiver("$management", target="me"), session.sender("$management")
        properties = {"operation": "QUERY", "type": "acquit:queue"}
        requests.send(acquit.Message(None, message_id="1", reply_to="me", application_properties=properties))
        answer = answers.receive(timeout=20)
        assert answer is not None
        body = answer.body
        assert isinstance(body, dict)
        return {
            row[body["attributeNames"].index("name")]: dict(zip(body["attributeNames"], row, strict=True))
            for row in body["results"]
        }


def subscriptions(served: Served, address: str) -> int:
    """Subscriptions of addresses that begin so."""
    return sum(name.startswith(address) and "::" in name for name in read_queues(served))


def control(request: object) -> bytes:
    return b"\x00\x53\x77" + encode_composite(request)  # type: ignore[arg-type]


def declared(peer: RawSocket) -> list[bytes]:
    return [said.state.txn_id for said in peer.all(Disposition) if isinstance(said.state, Declared)]


def rejections(peer: RawSocket) -> int:
    return sum(isinstance(said.state, Rejected) for said in peer.all(Disposition))


COORDINATOR: Final = Coordinator(("amqp:local-transactions",))


# -- transactions


def test_a_coordinator_that_is_told_nonsense(served: Served) -> None:
    rng = random.Random(30)
    nonsense = [
        b"",
        b"\xde\xad",
        control(Accepted()),
        control(Declare(5)),
        control(Discharge(b"")),
        control(Discharge(rng.randbytes(60_000))),
        control(Declare())[:-1],
        control(Declare()) * 2,
        Message("what").encode(),
        b"\x00\x53\x77" + b"\x00" * 5_000 + b"\x40",
        *(b"\x00\x53\x77\x00\x53\x32" + rng.randbytes(rng.randrange(60)) for _ in range(20)),
    ]
    for payload in nonsense:
        for settled in (False, True):
            with RawSocket(served.port) as peer:
                peer.sender(0, COORDINATOR)
                peer.post(0, [payload], settled=settled)
                peer.barrier()
                refused = rejections(peer) + peer.count(Detach) + peer.count(End) + peer.count(Close)
                assert refused or payload.startswith(control(Declare())), payload[:100]
                assert not settled or peer.count(Detach) + peer.count(Close)


def test_transactions_of_others_cannot_be_touched(served: Served) -> None:
    with RawSocket(served.port, container="owner") as owner:
        owner.sender(0, COORDINATOR)
        owner.post(0, [control(Declare())])
        owner.wait(lambda: declared(owner))
        (txn_id,) = declared(owner)
        owner.sender(1, Target("foreign"))
        owner.post(1, [Message("in it").encode()], state=TransactionalState(txn_id))
        for kind in range(4):
            with RawSocket(served.port) as thief:
                thief.sender(0, COORDINATOR)
                thief.sender(1, Target("foreign"))
                match kind:
                    case 0:
                        thief.post(0, [control(Discharge(txn_id, fail)) for fail in (True, False)] * 10)
                        thief.wait(lambda: rejections(thief) == 20)
                        assert rejections(thief) == 20
                    case 1:
                        thief.post(1, [Message("not in it").encode()] * 10, state=TransactionalState(txn_id))
                    case 2:
                        thief.post(1, [b"\x00\x53\x75\xa0\x7fhalf"], state=TransactionalState(txn_id), more=True)
                    case _:
                        thief.receiver(2, Source("foreign"))
                        thief.say(Disposition(Role.RECEIVER, 0, 1 << 20, True, TransactionalState(txn_id, Accepted())))
                thief.barrier()
        owner.post(0, [control(Discharge(txn_id, False))])
        owner.wait(lambda: any(isinstance(said.state, Accepted) for said in owner.all(Disposition)))
        assert any(isinstance(said.state, Accepted) for said in owner.all(Disposition))
    assert read_queues(served)["foreign"]["depth"] == 1


def test_a_thousand_transactions_that_nobody_ends(served: Served) -> None:
    """And whose last messages are cut off in the middle."""
    with ExitStack() as stack:
        peers = [stack.enter_context(RawSocket(served.port)) for _ in range(4)]
        for peer in peers:
            peer.sender(0, COORDINATOR)
            peer.sender(1, Target("open"))
            peer.post(0, [control(Declare())] * 300)
            peer.wait(lambda: len(declared(peer)) + rejections(peer) == 300)  # noqa: B023
            assert (len(declared(peer)), rejections(peer)) == (256, 44)
            for txn_id in declared(peer):
                peer.post(1, [Message(b"x" * 1_000).encode()] * 3, state=TransactionalState(txn_id))
            peer.post(
                1, [b"\x00\x53\x75\xb0\x00\x10\x00\x00" + b"x" * 50_000], state=TransactionalState(txn_id), more=True
            )
            peer.barrier()
    assert eventually(
        lambda: read_queues(served)["open"]["depth"] == 0 and not read_queues(served)["open"]["consumers"]
    )


# -- topics


TOPIC: Final = ("topic",)


def durable(address: str) -> Source:
    return Source(address, TerminusDurability.UNSETTLED_STATE, TerminusExpiryPolicy.NEVER, capabilities=TOPIC)


@pytest.mark.slow
def test_storms_of_subscriptions(served: Served) -> None:
    with RawSocket(served.port, container="storm") as peer:
        for number in range(800):
            source = durable(f"storm.{number % 7}") if number % 2 else Source(f"storm.{number}", capabilities=TOPIC)
            peer.receiver(number % 50, source, name=f"storm{number}")
            peer.say(Detach(number % 50, number % 4 != 3))
        peer.wait(lambda: peer.count(Detach) == 800)
        assert peer.count(Detach) == 800
        # Who closes has ended its subscription, also before the answer; who only detaches has subscribed all the same.
        assert eventually(lambda: subscriptions(served, "storm.") == 200)
        for number in range(3, 800, 4):
            peer.say(
                Attach(f"storm{number}", number % 50, Role.RECEIVER, source=None, target=Target("me")),
                Detach(number % 50, True),
            )
        peer.wait(lambda: peer.count(Detach) == 1_000)
    assert eventually(lambda: subscriptions(served, "storm.") == 0)


def test_floods_of_patterns(served: Served) -> None:
    words = ".".join("ab"[number % 2] for number in range(60))
    patterns = [
        "#",
        "*",
        "*.#",
        "#.*.#",
        "#.a.#.b.#.a.#.b.#",
        ".".join(["*"] * 60),
        ".".join(["#"] * 60),
        "#." * 63 + "b",
    ]
    with RawSocket(served.port) as peer, RawSocket(served.port) as posting:
        for number in range(400):
            peer.receiver(number, Source("flood." + patterns[number % len(patterns)], capabilities=TOPIC), credit=10)
        peer.barrier()
        posting.sender(0, Target("flood." + words, capabilities=TOPIC))
        posting.post(0, [Message(b"x").encode()] * 20)
        posting.barrier()
        posting.sender(1, Target(None))
        posting.post(1, [Message(b"x", to=f"flood.{number}.{words[:number]}a").encode() for number in range(0, 100, 2)])
        posting.barrier()


def test_thousands_of_random_addresses(served: Served) -> None:
    rng = random.Random(31)
    with RawSocket(served.port) as peer:
        peer.sender(0, Target(None, capabilities=TOPIC))
        peer.sender(1, Target(None))
        for handle in (0, 1):
            peer.post(handle, [Message(b"x", to=f"random.{rng.randbytes(20).hex()}").encode() for _ in range(2_000)])
        peer.post(
            1, [Message(b"x", to=to).encode() for to in ("", "\0", "x" * 60_000, "#", "::", "$management", "a::b")]
        )
        peer.barrier()


def test_names_of_sixty_thousand_bytes(served: Served) -> None:
    name = "n" * 60_000
    for said in (
        Attach(name, 0, Role.RECEIVER, source=durable("long"), target=Target("me")),
        Attach(name, 0, Role.RECEIVER, source=Source("long"), target=Target("me")),
        Attach(name, 0, Role.RECEIVER, source=None, target=Target("me")),
        Attach("s", 0, Role.RECEIVER, source=durable(name), target=Target("me")),
        Attach("s", 0, Role.RECEIVER, source=Source("long"), target=Target(name)),
        Attach("s", 0, Role.RECEIVER, source=Source(f"long::{name}"), target=Target("me")),
        Attach(name, 0, Role.SENDER, source=Source(name), target=Target("long"), initial_delivery_count=0),
        Attach("s", 0, Role.SENDER, source=Source("x"), target=Target(name), initial_delivery_count=0),
    ):
        for _ in range(5):
            with RawSocket(served.port, container="c" * 5_000) as peer:
                peer.say(said)
                peer.barrier()
    assert max(map(len, read_queues(served))) <= 2_100


# -- nodes on request, selectors, groups, locks


def test_thousands_of_dynamic_nodes(served: Served) -> None:
    with RawSocket(served.port) as peer, RawSocket(served.port) as unread:
        for number in range(2_000):
            lifetime = DeleteOnClose() if number % 2 else DeleteOnNoLinks()
            source = Source(
                dynamic=True,
                dynamic_node_properties={"lifetime-policy": lifetime},
                capabilities=("temporary-topic",) if number % 3 == 0 else (),
            )
            peer.receiver(number, source, credit=1)
        peer.wait(lambda: peer.count(Attach) == 2_000)
        addresses = [
            said.source.address for said in peer.all(Attach) if isinstance(said.source, Source) and said.source.address
        ]
        assert len(addresses) == 2_000
        unread.sender(0, Target(None))
        unread.post(0, [Message(b"x", to=address).encode() for address in addresses])
        unread.barrier()
    assert eventually(lambda: not [name for name in read_queues(served) if name.startswith("temporary")])


def test_selectors_that_take_long(served: Served) -> None:
    slow = "a LIKE '" + "%a_" * 200 + "b'"
    selectors = [
        slow,
        " OR ".join([slow[:200] + "'"] * 100),
        "NOT (" * 30 + slow + ")" * 30,
        "n IN (" + ",".join(map(repr, map(str, range(400)))) + ")",
    ]
    texts = ["(" * 50_000, "n = " + "9" * 50_000, "a LIKE '" + "%" * 50_000 + "'", "1 = 1 OR " * 6_000 + "1 = 1"]
    with RawSocket(served.port) as peer:
        for number, text in enumerate(selectors * 8 + texts):
            filters = {"jms-selector": Described(ULong(0x0000468C_00000004), text)}
            peer.receiver(number, Source("slow", filter=filters))
            peer.barrier()
        assert not peer.over
        peer.sender(100, Target("slow"))
        peer.post(100, [Message(b"x", application_properties={"a": "a" * 4_000, "n": "x"}).encode()] * 50)
        peer.barrier()
        assert peer.count(Disposition)


def test_groups_with_an_id_for_each_message(served: Served) -> None:
    with RawSocket(served.port) as peer:
        for handle in range(5):
            peer.receiver(handle, Source("groups"), credit=10_000)
        peer.sender(10, Target("groups"))
        peer.post(10, [Message(b"x", group_id=f"{number}" + "g" * 800).encode() for number in range(5_000)])
        peer.post(10, [Message(b"x", group_id="g" * 40_000, group_sequence=0xFFFFFFFF).encode()] * 20)
        peer.barrier()
    with RawSocket(served.port) as peer:  # takes them all, so that they are gone
        peer.receiver(0, Source("groups"), credit=10_000)
        peer.wait(lambda: peer.count(Transfer) >= 5_000)
        peer.say(Disposition(Role.RECEIVER, 0, 1 << 20, True, Accepted()))
        peer.barrier()


def test_locks_that_run_out_while_their_consumer_talks(served: Served) -> None:
    with RawSocket(served.port) as peer:
        peer.sender(10, Target("locked.q"))
        peer.post(10, [Message(b"x").encode()] * 500)
        for handle in range(3):
            peer.receiver(handle, Source("locked.q"))
        for state in (Received(0, 0), Received(0xFFFFFFFF, 1 << 63), Received(0, 0), Accepted()) * 5:
            for first in range(0, 500, 5):
                peer.say(Disposition(Role.RECEIVER, first, first + 1_000, False, state))
            peer.barrier()


# -- management


def request(operation: object, body: object = None, **properties: object) -> bytes:
    return Message(
        AmqpValue(body),  # type: ignore[arg-type]
        reply_to="me",
        message_id="1",
        application_properties={"operation": operation, "type": "acquit:queue", **properties},
    ).encode()


def test_a_management_node_that_is_asked_nonsense(served: Served) -> None:
    rng = random.Random(32)
    deep: object = 1
    for _ in range(12):
        deep = {"kind": [deep]}
    with RawSocket(served.port) as peer:
        peer.receiver(0, Source("$management"))
        peer.sender(1, Target("$management"))
        operations = ("QUERY", "READ", "CREATE", "DELETE", "MOVE", "CANCEL", "x" * 30_000, 5, None, b"x")
        names = ("no such", "", "\0", 5, None, "n" * 30_000)
        bodies = (None, deep, [1], {"to": 5}, {"attributeNames": [{}]}, {5: 5}, "x" * 10_000)
        whole = [(operation, name, body) for operation in operations for name in names for body in bodies]
        for operation, name, body in rng.sample(whole, 60):
            peer.post(1, [request(operation, body, name=name)])
        for type_ in ("acquit:transaction", "acquit:message", "acquit:broker", None, 5):
            peer.post(
                1,
                [
                    request(operation, None, type=type_, name=rng.randbytes(16).hex())
                    for operation in ("READ", "QUERY", "CANCEL")
                ],
            )
        peer.post(1, [rng.randbytes(rng.randrange(200)) for _ in range(30)])
        peer.barrier()


def test_answers_that_nobody_reads(served: Served) -> None:
    """To links with credit and without; of thousands of queues each."""
    with ExitStack() as stack:
        for credit in (0, 1_000, 1_000):
            peer = stack.enter_context(RawSocket(served.port, reading=False))
            peer.receiver(0, Source("$management"), credit=credit)
            peer.sender(1, Target("$management"))
            peer.post(1, [request("QUERY")] * 8)
    assert "witness" in read_queues(served)


# -- logging in, and being put out


def sasl(*said: SaslInit | SaslResponse) -> bytes:
    return b"".join(encode_frame(0, encode_composite(one), SASL_FRAME) for one in said)


def test_logins_that_are_nonsense_or_stop_half_way(served: Served) -> None:

    rng = random.Random(33)
    first = SaslInit("SCRAM-SHA-256", b"n,,n=gone,r=abc")
    garbage = [sasl(SaslInit("SCRAM-SHA-256", rng.randbytes(rng.randrange(400)))) for _ in range(15)] + [
        sasl(first, SaslResponse(rng.randbytes(rng.randrange(400)))) for _ in range(15)
    ]
    with ExitStack() as stack:
        silent = []
        for _ in range(150):
            peer = stack.enter_context(socket.create_connection(("127.0.0.1", served.port), timeout=20))
            peer.sendall(SASL_HEADER + sasl(first))
            silent.append(peer)
        for said in garbage:
            with socket.create_connection(("127.0.0.1", served.port), timeout=20) as peer:
                try:
                    peer.sendall(SASL_HEADER + said + AMQP_HEADER)
                    while peer.recv(65_536):
                        pass
                except (ConnectionResetError, BrokenPipeError):
                    pass
        for peer in silent:  # the broker ends what takes longer than a handshake may
            while peer.recv(65_536):
                pass


def test_a_reload_while_everybody_misbehaves(served: Served) -> None:
    """Who is gone or has lost what it was let in for is put out, also if it reads nothing, and nothing of it stays."""
    with ExitStack() as stack:

        def peer(user: str, *, reading: bool = True) -> RawSocket:
            return stack.enter_context(RawSocket(served.port, user=user, reading=reading))

        before = served.sockets()
        stranger = peer("")
        out = [peer("gone:x"), peer("demoted:x")]
        for number, one in enumerate(out):
            one.sender(0, COORDINATOR)
            one.sender(1, Target("guest.q"))
            one.receiver(2, Source("guest.q"))
            one.post(0, [control(Declare())] * 20)
            one.wait(lambda: len(declared(one)) == 20)  # noqa: B023
            txn_id = declared(one)[0]
            one.post(1, [Message(f"{number}").encode()] * 10)
            one.post(1, [Message("never").encode()] * 10, state=TransactionalState(txn_id))
            one.wait(lambda: one.count(Transfer))  # noqa: B023
            one.post(1, [b"\x00\x53\x75\xa0\x7fhalf"], state=TransactionalState(txn_id), more=True)
            one.barrier()
        unread = peer("gone:x", reading=False)
        unread.receiver(0, Source("guest.full"), credit=100_000)
        unread.sender(1, Target("guest.full"))
        unread.post(1, [Message(b"x" * 20_000).encode()] * 400)
        for _ in range(3):
            stack.enter_context(RawSocket(served.port, user="gone:x", reading=False)).write(b"\x00\x00\x00")
        stranger.sender(0, Target("stranger"))
        stranger.post(0, [b"\x00\x53\x75\xa0\x05he"], more=True)

        served.config.write_text(CONFIG + RELOADED)
        for _ in range(5):
            os.kill(served.process.pid, signal.SIGHUP)
        for one in out:
            one.wait(lambda: one.count(Close))  # noqa: B023
            assert one.reason == "amqp:unauthorized-access"
            one.write(b"\x00" * 50_000)
        assert eventually(lambda: served.sockets() <= before + 1), "who reads nothing is not put out"
        stranger.say(Flow(0, WINDOW, 1, WINDOW, echo=True))
        stranger.barrier()
        assert stranger.reason is None
        with RawSocket(served.port, user="gone:x") as late:
            late.wait(lambda: False)
            assert late.count(Begin) == 0
    depth = read_queues(served)["guest.q"]["depth"]
    assert depth == 20
