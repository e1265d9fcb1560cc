"""A million messages at once: how fast they come and go, what they cost in memory, how long a restart takes.

    python benchmarks/bench_million.py [--short] [--messages N] [--cases NAME ...]

Durable messages of 100 bytes are posted while nobody receives; then the broker is killed with -9 and started again, and
all is consumed. Cases: *plain*, one queue and 10 consumers; *selectors*, one queue and 10 consumers that each want a
tenth; *topic*, a topic with 10 durable subscriptions, so that there are ten times as many messages to consume;
*transactions*, posted and retired a hundred in each; *duplicates*, each with an id that the address remembers.

Rates are those of the first and the last tenth as well: what takes longer the more there is shows there. The clients
are processes of this machine, on the bare protocol engine.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from acquit.protocol.composite import encode_composite
from acquit.protocol.connection import Connection
from acquit.protocol.constants import ACCEPTED
from acquit.protocol.definitions import (
    Accepted,
    Coordinator,
    Declare,
    Declared,
    Discharge,
    Rejected,
    Source,
    Target,
    TerminusDurability,
    TerminusExpiryPolicy,
    TransactionalState,
)
from acquit.protocol.delivery import Delivery, DeliveryState
from acquit.protocol.events import ConnectionEnded, DeliveriesReceived, Event, LinkDetached, StatesReceived
from acquit.protocol.link import ReceivingLink, SendingLink
from acquit.protocol.message import Message
from acquit.protocol.options import ConnectionOptions
from acquit.protocol.types import Described, Symbol
from bench_broker import peak_mib

CONSUMERS = 10
CREDIT = 500
TOGETHER = 100
"""Messages in a transaction."""
OPEN_MAX = 4
"""Transactions that are on their way at once."""
CASES = ("plain", "selectors", "topic", "transactions", "duplicates")
NODE = "million"
CONFIG = """
[limits]
duplicate_ids_max = 2_000_000
memory_bytes_max = 8_589_934_592  # ten subscriptions of a million messages each

[[address]]
match = "#"
duplicate_window = 2_000_000
"""


class Wire:
    """A connection to the broker. Everything that comes over it is put to `told`."""

    def __init__(self, port: int, container: str) -> None:
        self.told: Callable[[Event], None] = lambda event: None
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.engine = Connection(
            ConnectionOptions(container_id=container), server=False, sasl=None, now=time.monotonic()
        )
        self.engine.open()
        self.wait(lambda: self.engine.writable)
        self.session = self.engine.begin()
        self.wait(lambda: self.session.mapped)

    def hear(self) -> None:
        """Send what there is to send, and wait for what comes. Raises SystemExit when the broker ends it."""
        if output := self.engine.data_to_send():
            self.socket.sendall(output)
        if not (data := self.socket.recv(1 << 18)):
            raise SystemExit("the broker closed the connection")
        for event in self.engine.receive_data(data, time.monotonic()):
            match event:
                case LinkDetached() | ConnectionEnded() | StatesReceived(state=Rejected()):
                    raise SystemExit(f"the broker said {event}")
                case _:
                    self.told(event)

    def wait(self, what: Callable[[], bool]) -> None:
        """Until it is so."""
        while not what():
            self.hear()


class Pace:
    """When each tenth was done."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._begun = time.perf_counter()
        self._marks: list[float] = []

    def done(self, count: int) -> None:
        """So many are, in all."""
        while len(self._marks) < 10 and count * 10 >= (len(self._marks) + 1) * self._count:
            self._marks.append(time.perf_counter())

    def rates(self) -> tuple[float, float, float]:
        """Messages a second: in all, of the first tenth, of the last one."""
        tenth = self._count / 10
        first, last = self._marks[0] - self._begun, self._marks[-1] - self._marks[-2]
        return self._count / (self._marks[-1] - self._begun), tenth / first, tenth / last


def payloads(case: str, count: int) -> Iterator[bytes]:
    """Messages of 100 bytes."""
    if case == "duplicates":
        mark = "0" * 12
        message = Message(b"x" * 100, durable=True, application_properties={"_AMQ_DUPL_ID": mark})
        before, after = message.encode().split(mark.encode())
        for number in range(count):
            yield b"%b%012d%b" % (before, number, after)
        return
    kinds = [Message(b"x" * 100, durable=True).encode()]
    if case == "selectors":
        kinds = [
            Message(b"x" * 100, durable=True, application_properties={"n": number}).encode()
            for number in range(CONSUMERS)
        ]
    for number in range(count):
        yield kinds[number % len(kinds)]


def post(port: int, case: str, count: int) -> tuple[float, float, float]:
    """Post all of it; done when the last one is answered."""
    wire = Wire(port, "poster")
    capability = "topic" if case == "topic" else "queue"
    link = wire.session.attach_sender("p", source=Source(), target=Target(NODE, capabilities=(capability,)))
    if case == "transactions":
        return post_in_transactions(wire, link, count)
    return post_all(wire, link, payloads(case, count), count)


def post_all(wire: Wire, link: SendingLink, rest: Iterator[bytes], count: int) -> tuple[float, float, float]:
    """Post so many of these; done when the last one is answered."""
    pace = Pace(count)
    sent = answered = 0

    def told(event: Event) -> None:
        nonlocal answered
        if isinstance(event, StatesReceived):
            answered += len(event.deliveries)

    wire.told = told
    while answered < count:
        while sent < count and link.sendable:
            link.send(sent.to_bytes(4, "big"), next(rest))
            sent += 1
        wire.hear()
        pace.done(answered)
    return pace.rates()


class Controller:
    """Declares transactions and ends them."""

    def __init__(self, wire: Wire) -> None:
        self.wire = wire
        self._link = wire.session.attach_sender("control", source=Source(), target=Coordinator())
        self._tags = 0
        self._unanswered = 0
        self.answers: dict[Delivery, DeliveryState | None] = {}
        wire.told = self.heard

    def heard(self, event: Event) -> None:
        """For every event of the connection."""
        if isinstance(event, StatesReceived) and event.link is self._link:
            self.answers.update(dict.fromkeys(event.deliveries, event.state))
            self._unanswered -= len(event.deliveries)

    def ask(self, request: Declare | Discharge) -> Delivery:
        """Send it."""
        self.wire.wait(lambda: self._link.sendable)
        self._tags += 1
        self._unanswered += 1
        return self._link.send(self._tags.to_bytes(4, "big"), b"\x00\x53\x77" + encode_composite(request))

    def finish(self) -> None:
        """Until everything is answered."""
        self.wire.wait(lambda: not self._unanswered)

    def declared(self, sent: Delivery) -> bytes:
        """The transaction, once it is answered."""
        self.wire.wait(lambda: sent in self.answers)
        declared = self.answers.pop(sent)
        assert isinstance(declared, Declared)
        return declared.txn_id


def post_in_transactions(wire: Wire, link: SendingLink, count: int) -> tuple[float, float, float]:
    """A hundred in each."""
    controller = Controller(wire)
    payload = Message(b"x" * 100, durable=True).encode()
    pace = Pace(count)
    committing: dict[Delivery, int] = {}
    sent = committed = 0
    while committed < count:
        if sent < count and len(committing) < OPEN_MAX:
            state = TransactionalState(controller.declared(controller.ask(Declare())))
            here = min(TOGETHER, count - sent)
            for _ in range(here):
                wire.wait(lambda: link.sendable)
                sent += 1
                link.send(sent.to_bytes(4, "big"), payload, settled=True, state=state)
            committing[controller.ask(Discharge(state.txn_id, False))] = here
        else:
            wire.hear()
        for done in committing.keys() & controller.answers.keys():
            assert controller.answers.pop(done) == Accepted()
            committed += committing.pop(done)
        pace.done(committed)
    return pace.rates()


def consume(port: int, case: str, count: int) -> tuple[float, float, float]:
    """Take all of it."""
    wire = Wire(port, "consumers")
    links = [attach(wire, case, number) for number in range(CONSUMERS)]
    pace = Pace(count)
    controller = Controller(wire) if case == "transactions" else None
    taken = 0
    for link in links:
        wire.wait(lambda link=link: link.remote_attach is not None)  # type: ignore[misc]
    for link in links:
        link.grant(CREDIT)
    gathered: list[Delivery] = []

    def told(event: Event) -> None:
        nonlocal taken
        if controller is not None:
            controller.heard(event)
        if isinstance(event, DeliveriesReceived):
            taken += len(event.deliveries)
            if controller is None:
                wire.session.settle_all(event.deliveries, ACCEPTED)
            else:
                gathered.extend(event.deliveries)
            if event.link.credit < CREDIT // 2:
                event.link.grant(CREDIT)

    wire.told = told
    while taken < count:
        wire.hear()
        if controller is not None and len(gathered) >= TOGETHER:
            together, gathered[:] = gathered[:], []
            retire(controller, together)
        pace.done(taken)
    if controller is not None and gathered:
        retire(controller, gathered)
    if controller is not None:
        controller.finish()
    return pace.rates()


def retire(controller: Controller, deliveries: list[Delivery]) -> None:
    """In one transaction. Its end is asked for; the answer comes some time."""
    txn_id = controller.declared(controller.ask(Declare()))
    controller.wire.session.settle_all(deliveries, TransactionalState(txn_id, Accepted()))
    controller.ask(Discharge(txn_id, False))


def attach(wire: Wire, case: str, number: int) -> ReceivingLink:
    """One of the consumers."""
    source = Source(NODE, capabilities=("queue",))
    if case == "topic":
        source = Source(NODE, TerminusDurability.UNSETTLED_STATE, TerminusExpiryPolicy.NEVER, capabilities=("topic",))
    if case == "selectors":
        source.filter = {"selector": Described(Symbol("apache.org:selector-filter:string"), f"n = {number}")}
    return wire.session.attach_receiver(f"c{number}", source=source, target=Target())


def subscribe(port: int) -> None:
    """Begin the subscriptions of the topic."""
    wire = Wire(port, "consumers")
    for number in range(CONSUMERS):
        link = attach(wire, "topic", number)
        wire.wait(lambda link=link: link.remote_attach is not None)  # type: ignore[misc]


@contextlib.contextmanager
def serving(data: Path, config: Path) -> Iterator[tuple[subprocess.Popen[str], int, float]]:
    """A broker, where it listens, and how long it took to get there."""
    command = [sys.executable, "-m", "acquit", "serve", "--host", "127.0.0.1", "--port", "0", "--data", str(data)]
    begun = time.perf_counter()
    with subprocess.Popen(
        [*command, "--config", str(config)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as broker:
        try:
            assert broker.stdout is not None
            ready = re.search(r"amqp://127\.0\.0\.1:(\d+)", broker.stdout.readline())
            assert ready is not None, "acquit serve did not start"
            yield broker, int(ready[1]), time.perf_counter() - begun
        finally:
            broker.terminate()


def elsewhere(what: Callable[..., tuple[float, float, float]], *arguments: object) -> tuple[float, float, float]:
    """Run it in a process of its own."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(what, *arguments).result()


def shown(rates: tuple[float, float, float]) -> str:
    """As in the table."""
    whole, first, last = rates
    return f"{whole:,.0f} ({first:,.0f}, {last:,.0f})"


def run(case: str, count: int, folder: Path) -> str:
    """A row of the table."""
    data, config = folder / case, folder / "acquit.toml"
    config.write_text(CONFIG)
    with serving(data, config) as (broker, port, _):
        if case == "topic":
            subscribe(port)
        posted = elsewhere(post, port, case, count)
        full = peak_mib(broker.pid)
        broker.send_signal(signal.SIGKILL)
        broker.wait()
    with serving(data, config) as (broker, port, restart_s):
        again = peak_mib(broker.pid)
        consumed = elsewhere(consume, port, case, count * (CONSUMERS if case == "topic" else 1))
        peak = peak_mib(broker.pid)
        broker.terminate()
        assert broker.wait() == 0
    with serving(data, config) as (_, _, empty_s):
        pass
    memory = f"{full:.0f}, {again:.0f}, {peak:.0f}"
    return f"| {case} | {shown(posted)} | {restart_s:.1f} | {shown(consumed)} | {empty_s:.1f} | {memory} |"


def main() -> int:
    """Run the cases and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--short", action="store_true", help="few messages: shows that it runs, not how fast")
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--cases", nargs="*", choices=CASES, default=CASES)
    arguments = parser.parse_args()
    count = 5_000 if arguments.short else arguments.messages
    print(f"{count} messages; rates in messages a second: in all (first tenth, last tenth)")
    print(
        "| case | posted | restart, full (s) | consumed | restart, empty (s) | peak MiB: posting, restart, consuming |"
    )
    print("|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as name:
        for case in arguments.cases:
            print(run(case, count, Path(name)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
