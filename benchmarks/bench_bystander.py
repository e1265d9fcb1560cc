"""What one peer can do to the others: the latency of a bystander while somebody attacks.

    python benchmarks/bench_bystander.py [--short] [--seconds N] [--only NAME ...] [--broker HOST:PORT]

A broker of its own process is started (or one that runs is given). A bystander sends one message at a time to its own
queue, waits until it is accepted and received, and takes the time. For each attack another process does nothing but
that, as fast as it can; the first row is without any. Everything that an attack needs beforehand (a queue that is full,
messages that were received) is there before the time is taken. An attack that is refused, or of which nothing was seen
to have happened meanwhile, ends the benchmark with an error: a row without an attack would look good.
"""

import argparse
import contextlib
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final

import acquit
from acquit.protocol.composite import encode_composite
from acquit.protocol.constants import AMQP_HEADER
from acquit.protocol.definitions import (
    Accepted,
    Attach,
    Begin,
    Close,
    Detach,
    Disposition,
    End,
    Flow,
    Open,
    Performative,
    RcvSettleMode,
    Role,
    SndSettleMode,
    Source,
    Target,
    Transfer,
)
from acquit.protocol.frames import FrameDecoder, encode_frame
from acquit.protocol.types import Described, Symbol

MANY: Final = 0x7FFF_FFFF
SMALL_MESSAGE: Final = b"\x00\x53\x75\xa0\x01x"


class Peer:
    """A connection without SASL that says whatever it is told to, and reads on a thread of its own."""

    def __init__(self, address: tuple[str, int], *, frame_bytes: int = 65_536) -> None:
        self.socket = socket.create_connection(address)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.changed = threading.Condition()
        self.ended = False
        self.sent = 0
        """Transfer frames."""
        self.window_end = 2_048
        self.credit_end: dict[int, int] = {}
        self.received = 0
        self.last_delivery = -1
        self.heard: Counter[type] = Counter()
        """Frames, by the class of their performative."""
        self.refusal = ""
        """What the broker ended something of ours with."""
        self.deliveries = 0
        """Begun by us."""
        self.frame_bytes = frame_bytes
        self.socket.sendall(AMQP_HEADER)
        self.say(Open(f"attacker-{os.getpid()}-{id(self)}", None, frame_bytes, 255, None), Begin(None, 0, MANY, MANY))
        threading.Thread(target=self._read, daemon=True).start()

    def say(self, *performatives: Performative, repeat: int = 1) -> None:
        """Send these frames, and the whole of it as often as asked, in one piece."""
        self.socket.sendall(b"".join(frame(one) for one in performatives) * repeat)

    def wait(self, condition: Callable[[], bool]) -> None:
        """Until the broker has said what makes this true. Raises ConnectionError where it has ended something."""
        with self.changed:
            self.changed.wait_for(lambda: condition() or self.ended or bool(self.refusal))
        if self.refusal or self.ended:
            raise ConnectionError(self.refusal or "the broker has closed the connection")

    def wait_for(self, kind: type, count: int) -> None:
        """Until it has said so many of these."""
        self.wait(lambda: self.heard[kind] >= count)

    def send(self, handle: int, payload: bytes, *, settled: bool = True) -> None:
        """Send one message, in as many frames as it takes, when there is credit and room in the window for it."""
        chunk = self.frame_bytes - 64
        number = self.deliveries
        self.deliveries += 1
        self.wait(lambda: number < self.credit_end.get(handle, 0))
        tag = number.to_bytes(4, "big")
        for start in range(0, max(1, len(payload)), chunk):
            more = start + chunk < len(payload)
            self.wait(lambda: self.sent < self.window_end)
            self.sent += 1
            transfer = Transfer(handle, number, tag, 0, settled, more) if not start else Transfer(handle, more=more)
            self.socket.sendall(frame(transfer, payload[start : start + chunk]))

    def fill(self, handle: int, payload: bytes, count: int) -> None:
        """The same for many small ones."""
        first = self.deliveries
        last = first + count
        while first < last:
            self.wait(partial(self._may_send, handle, first))
            room = min(last, self.credit_end[handle], first + self.window_end - self.sent, first + 500) - first
            frames = [
                frame(Transfer(handle, number, number.to_bytes(4, "big"), 0, True), payload)
                for number in range(first, first + room)
            ]
            self.sent += room
            first += room
            self.deliveries = first
            self.socket.sendall(b"".join(frames))

    def _may_send(self, handle: int, number: int) -> bool:
        return number < self.credit_end.get(handle, 0) and self.sent < self.window_end

    def _read(self) -> None:
        decoder = FrameDecoder(0xFFFF_FFFF)
        head = 0
        try:
            while head < 8:
                head += len(self.socket.recv(8 - head))
            while data := self.socket.recv(1 << 18):
                decoder.feed(data)
                with self.changed:
                    for _, _, performative, _ in decoder:
                        self._hear(performative)
                    self.changed.notify_all()
        except OSError:
            pass
        with self.changed:
            self.ended = True
            self.changed.notify_all()

    def _hear(self, performative: object) -> None:
        self.heard[type(performative)] += 1
        if isinstance(performative, Detach | End | Close) and performative.error is not None:
            self.refusal = f"{performative.error.condition}: {performative.error.description}"
        if isinstance(performative, Transfer):
            self.received += not performative.more
            if performative.delivery_id is not None:
                self.last_delivery = performative.delivery_id
        elif isinstance(performative, Flow):
            if performative.next_incoming_id is not None:
                self.window_end = performative.next_incoming_id + performative.incoming_window
            if performative.handle is not None and performative.delivery_count is not None:
                self.credit_end[performative.handle] = performative.delivery_count + (performative.link_credit or 0)


def frame(performative: Performative, payload: bytes = b"", channel: int = 0) -> bytes:
    """The bytes of a frame."""
    return encode_frame(channel, encode_composite(performative) + payload)


def sender(name: str, handle: int, address: str) -> Attach:
    """An attach of a link to send on."""
    modes = SndSettleMode.MIXED, RcvSettleMode.FIRST
    return Attach(name, handle, Role.SENDER, *modes, Source(name), Target(address), initial_delivery_count=0)


def receiver(name: str, handle: int, address: str, selector: str | None = None) -> Attach:
    """An attach of a link to receive on."""
    source = Source(address)
    if selector is not None:
        key = Symbol("apache.org:selector-filter:string")
        source.filter = {key: Described(key, selector)}
    return Attach(name, handle, Role.RECEIVER, SndSettleMode.MIXED, RcvSettleMode.FIRST, source, Target(name))


def credit(handle: int, count: int, peer: Peer) -> Flow:
    """A flow that grants so much."""
    return Flow(0, MANY, peer.sent, MANY, handle, 0, count)


def ready() -> None:
    """What is needed is there: the attack begins."""
    print("ready", flush=True)


def struck() -> None:
    """The broker has done what the attack had it do, once more."""
    print("struck", flush=True)


# -- attacks ---------------------------------------------------------------------------------------------------------


def churn(address: tuple[str, int]) -> None:
    """A link is attached and detached, again and again."""
    peer = Peer(address)
    ready()
    while True:
        detached = peer.heard[Detach]
        peer.say(sender("churn", 0, "attacked"), Detach(0, True), repeat=200)
        peer.wait_for(Detach, detached + 1)  # not all: it shall have something to do meanwhile
        struck()


def empty(address: tuple[str, int]) -> None:
    """A message that goes on and on in transfers without a byte."""
    peer = Peer(address)
    peer.say(sender("empty", 0, "attacked"))
    peer.wait(lambda: bool(peer.credit_end))
    peer.say(Transfer(0, 0, b"t", 0, False, True))
    peer.sent = 1
    ready()
    while True:
        peer.wait(lambda: peer.sent < peer.window_end)
        room = peer.window_end - peer.sent
        peer.sent += room
        peer.say(Transfer(0, more=True), repeat=room)
        struck()


def echo(address: tuple[str, int]) -> None:
    """Flows that ask for an answer."""
    peer = Peer(address)
    peer.say(receiver("echo", 0, "attacked"))
    ready()
    while True:
        answered = peer.heard[Flow]
        peer.say(Flow(0, MANY, 0, MANY, 0, 0, 10, echo=True), repeat=500)
        peer.wait_for(Flow, answered + 1)
        struck()


def _hold(peer: Peer, name: str, count: int) -> None:
    """Have so many messages received, unsettled."""
    peer.say(receiver(name, 1, name))
    before = peer.received
    peer.say(Flow(0, MANY, peer.sent, MANY, 1, 0, count))
    peer.wait(lambda: peer.received >= before + count)


def dispositions(address: tuple[str, int], held: int) -> None:
    """One frame settles all that was received."""
    peer = Peer(address)
    peer.say(sender("s", 0, "dispositions"))
    first = True
    while True:
        peer.fill(0, SMALL_MESSAGE, held)
        _hold(peer, "dispositions", held)
        if first:
            ready()
            first = False
        else:
            struck()
        last = peer.last_delivery
        peer.say(Disposition(Role.RECEIVER, last - held + 1, last, True, Accepted()), Detach(1, True))


def detach(address: tuple[str, int], held: int) -> None:
    """A link is detached over all that it was given."""
    peer = Peer(address)
    peer.say(sender("s", 0, "detached"))
    peer.fill(0, SMALL_MESSAGE, held)
    _hold(peer, "detached", held)
    ready()
    while True:
        peer.say(Detach(1, True))
        _hold(peer, "detached", held)
        struck()


def links(address: tuple[str, int], count: int) -> None:
    """A session with thousands of links is begun and ended."""
    peer = Peer(address)
    burst = b"".join(frame(receiver(f"link-{at}", at, f"links-{at % 100}")) for at in range(count))
    ready()
    while True:
        ended, attached = peer.heard[End], peer.heard[Attach]
        peer.socket.sendall(burst)
        peer.wait_for(Attach, attached + count)
        peer.say(End())
        peer.wait_for(End, ended + 1)
        struck()
        peer.say(Begin(None, 0, MANY, MANY))


def lost(address: tuple[str, int], count: int) -> None:
    """A connection with thousands of links is made and closed."""
    burst = b"".join(frame(receiver(f"link-{at}", at, f"links-{at % 100}")) for at in range(count))
    ready()
    while True:
        peer = Peer(address)
        peer.socket.sendall(burst)
        peer.wait_for(Attach, count)
        peer.say(Close())
        with contextlib.suppress(ConnectionError):
            peer.wait_for(Close, 1)
        peer.socket.close()
        struck()


def connects(address: tuple[str, int], count: int) -> None:
    """Connections that are opened and left."""
    ready()
    hello = AMQP_HEADER + frame(Open("c", None, 65_536, 255, None))
    while True:
        sockets = []
        for _ in range(count):
            try:
                one = socket.create_connection(address)
                one.sendall(hello)
                sockets.append(one)
            except OSError:
                break
            if len(sockets) % min(count, 500) == 0:  # one that has come a while ago has its answer
                earlier = sockets[len(sockets) // 2]
                earlier.settimeout(60)
                if earlier.recv(len(AMQP_HEADER)) == AMQP_HEADER:
                    struck()
        for one in sockets:
            one.close()


def _entries(count: int) -> bytes:
    items = b"".join(b"\xa3\x04" + at.to_bytes(4, "big").translate(_TO_ASCII) + b"\x43" for at in range(count))
    return b"\xd1" + (4 + len(items)).to_bytes(4, "big") + (2 * count).to_bytes(4, "big") + items


_TO_ASCII: Final = bytes(at & 0x7F for at in range(256))


def _post(address: tuple[str, int], payload: bytes) -> None:
    """The same message again and again, also where it is refused."""
    begun = False
    while True:
        peer = Peer(address)
        peer.say(sender("s", 0, "annotated"))
        peer.wait_for(Attach, 1)
        if not begun:
            ready()
            begun = True
        with contextlib.suppress(OSError):
            while True:
                answered = peer.heard[Disposition]
                peer.send(0, payload, settled=False)
                peer.wait_for(Disposition, answered + 1)
                struck()
        if not peer.refusal:
            raise ConnectionError("the broker has closed the connection")
        struck()
        peer.socket.close()


def select(address: tuple[str, int], selector: str) -> Peer:
    """Somebody who asks for messages of the queue that `_post` posts to."""
    peer = Peer(address)
    peer.say(receiver("r", 0, "annotated", selector), Flow(0, MANY, 0, MANY, 0, 0, 1_000, echo=True))
    peer.wait_for(Flow, 1)
    return peer


def annotations(address: tuple[str, int], count: int) -> None:
    """Messages with a million annotations."""
    _post(address, b"\x00\x53\x72" + _entries(count) + SMALL_MESSAGE)


def properties(address: tuple[str, int], count: int) -> None:
    """Messages with a million application properties, and a selector that asks for one more."""
    _reading = select(address, "not_there = 1")
    _post(address, b"\x00\x53\x74" + _entries(count) + SMALL_MESSAGE)


def sections(address: tuple[str, int], count: int) -> None:
    """Messages of a million sections."""
    _post(address, SMALL_MESSAGE * count)


def like(address: tuple[str, int], size: int) -> None:
    """A selector with many patterns full of wildcards, and texts that nearly match."""
    pattern = "%a_" * 40 + "b"
    _reading = select(address, " OR ".join(f"text LIKE '{pattern}{at}'" for at in range(25)))
    text = b"\xa1\x04text\xb1" + size.to_bytes(4, "big") + b"a" * size
    entry = b"\x00\x53\x74\xd1" + (4 + len(text)).to_bytes(4, "big") + (2).to_bytes(4, "big") + text
    _post(address, entry + SMALL_MESSAGE)


def selector(address: tuple[str, int], count: int) -> None:
    """A consumer looks for what is not there in a long queue, and comes again."""
    peer = Peer(address)
    peer.say(sender("s", 0, "selected"))
    peer.fill(0, SMALL_MESSAGE, count)
    ready()
    number = 0
    while True:
        flows = peer.heard[Flow]
        peer.say(
            receiver("r", 1, "selected", f"number = {number}"), Flow(0, MANY, peer.sent, MANY, 1, 0, 9, drain=True)
        )
        peer.wait_for(Flow, flows + 1)
        peer.say(Detach(1, True))
        struck()
        number += 1


ATTACKS: Final[dict[str, tuple[Callable[..., None], tuple[int, ...]]]] = {
    "churn": (churn, ()),
    "empty": (empty, ()),
    "echo": (echo, ()),
    "dispositions": (dispositions, (60_000,)),
    "detach": (detach, (60_000,)),
    "links": (links, (4_000,)),
    "lost": (lost, (4_000,)),
    "connects": (connects, (5_000,)),
    "annotations": (annotations, (1_000_000,)),
    "properties": (properties, (1_000_000,)),
    "sections": (sections, (1_000_000,)),
    "like": (like, (16_000,)),
    "selector": (selector, (100_000,)),
}
"""What each does to the broker, and how big it is."""


# -- the bystander ---------------------------------------------------------------------------------------------------


def bystand(url: str, seconds: float) -> list[float]:
    """Send and receive one message at a time for so long; how long each took, in milliseconds."""
    taken: list[float] = []
    with acquit.connect(url) as connection:
        session = connection.session("individual")
        sender, receiver = session.sender("bystander"), session.receiver("bystander")
        end = time.perf_counter() + seconds
        while (begun := time.perf_counter()) < end or not taken:
            sender.send(acquit.Message(b"x" * 100), delivery_mode=acquit.DeliveryMode.NON_PERSISTENT, timeout=120)
            message = receiver.receive(timeout=120)
            assert message is not None
            message.accept()
            taken.append((time.perf_counter() - begun) * 1_000)
    return taken


def report(name: str, taken: Sequence[float], strokes: int = 0) -> None:
    """Print a row; `strokes` is how often the attack had been through when it was ended."""
    ordered = sorted(taken)
    p99 = ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]
    print(
        f"{name:14}{len(ordered):8}{statistics.median(ordered):11.1f}{p99:11.1f}{ordered[-1]:11.1f}{strokes:9}",
        flush=True,
    )


def run_attack(name: str, arguments: argparse.Namespace, host: str, port: int) -> None:
    """Have a process of its own attack while the bystander counts."""
    command = [sys.executable, __file__, "--attack", name, "--broker", f"{host}:{port}"]
    if arguments.short:
        command.append("--short")
    attacker = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert attacker.stdout is not None
        if attacker.stdout.readline() != "ready\n":
            raise SystemExit(f"the attack {name} did not begin")
        taken = bystand(f"amqp://{host}:{port}", arguments.seconds)
        if attacker.poll() is not None:
            raise SystemExit(f"the attack {name} has ended by itself with {attacker.returncode}")
    finally:
        attacker.send_signal(signal.SIGKILL)
        strokes = attacker.communicate()[0].count("struck")
    if not strokes:
        raise SystemExit(f"the attack {name} did nothing")
    report(name, taken, strokes)


def main() -> int:
    """Start a broker, attack it in each way, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--short", action="store_true", help="small attacks: shows that it runs, not how fast")
    parser.add_argument("--seconds", type=float, default=10.0, help="for each attack")
    parser.add_argument("--only", nargs="+", choices=tuple(ATTACKS), default=tuple(ATTACKS))
    parser.add_argument("--broker", help="host:port of one that runs; it must let everybody in")
    parser.add_argument("--attack", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.short:
        arguments.seconds = min(arguments.seconds, 0.5)
    if arguments.attack:
        host, port = arguments.broker.split(":")
        attack, sizes = ATTACKS[arguments.attack]
        attack((host, int(port)), *(max(10, size // 50) if arguments.short else size for size in sizes))
        return 0
    with contextlib.ExitStack() as stack:
        host, port = (arguments.broker or ":").split(":")
        if not arguments.broker:
            data = stack.enter_context(tempfile.TemporaryDirectory())
            host, port = stack.enter_context(serving(data))
        print(f"{'attack':14}{'messages':>8}{'median ms':>11}{'p99 ms':>11}{'worst ms':>11}{'strokes':>9}")
        report("none", bystand(f"amqp://{host}:{port}", arguments.seconds))
        for name in arguments.only:
            run_attack(name, arguments, host, int(port))
    return 0


@contextlib.contextmanager
def serving(data: str) -> Iterator[tuple[str, str]]:
    """A broker in a process of its own; its address."""
    command = [sys.executable, "-m", "acquit", "serve", "--data", data, "--port", "0"]
    broker = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert broker.stdout is not None
        ready = next((line for line in broker.stdout if " ready: amqp://" in line), None)
        if ready is None:
            raise SystemExit("the broker did not start")
        threading.Thread(target=broker.stdout.read, daemon=True).start()
        host, _, port = ready.split("amqp://")[1].split(",")[0].rpartition(":")
        yield host, port
    finally:
        broker.terminate()
        broker.wait()


if __name__ == "__main__":
    sys.exit(main())
