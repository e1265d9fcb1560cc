"""What the protocol engine costs for each delivery: sent, received, settled, and heard of, in microseconds.

    python benchmarks/bench_engine.py [--short]

Two engines in memory, one link, messages of 100 bytes, in batches as a wake-up of a busy broker has them; in both
receiver settle modes, and once with the fast path switched off, which is what it is there for. Figures of one machine
at one time: compare them only with others of the same run. The best of several rounds is given.
"""

from __future__ import annotations

import argparse
import gc
import time
from dataclasses import dataclass

from acquit.protocol.connection import Connection
from acquit.protocol.constants import ACCEPTED
from acquit.protocol.definitions import RcvSettleMode, Source, Target
from acquit.protocol.events import DeliveriesReceived, Event, LinkRequested, StatesReceived
from acquit.protocol.fastpath import Predictions
from acquit.protocol.link import ReceivingLink, SendingLink
from acquit.protocol.options import ConnectionOptions
from acquit.protocol.session import Session

PAYLOAD = b"\x00\x53\x75\xa0\x5f" + bytes(95)
NOW = 0.0


class NoPredictions(Predictions):
    """Learns nothing, so that every frame goes through the codec."""

    def learn(self, session: Session, said: object, frame: bytes) -> None:
        """Do not."""


@dataclass
class Costs:
    """Microseconds for each delivery."""

    send: float
    receive: float
    settle: float
    hear: float

    def __str__(self) -> str:
        return (
            f"send {self.send:5.2f}   receive {self.receive:5.2f}   settle {self.settle:5.2f}   hear {self.hear:5.2f}"
            f"   |  sending side {self.send + self.hear:5.2f}   receiving side {self.receive + self.settle:5.2f}"
        )


class Pair:
    """A client that sends and a server that receives."""

    def __init__(self, mode: RcvSettleMode, *, fast: bool) -> None:
        self.client = Connection(ConnectionOptions(container_id="client"), server=False, sasl=None, now=NOW)
        self.server = Connection(ConnectionOptions(container_id="server"), server=True, sasl=None, now=NOW)
        if not fast:
            self.server.predictions = NoPredictions()
            self.client.predictions = NoPredictions()
        self.client.open()
        self.carry()
        session = self.client.begin()
        self.carry()
        self.sender: SendingLink = session.attach_sender(
            "link", source=Source("s"), target=Target("t"), rcv_settle_mode=mode
        )
        link = next(event.link for event in self.carry() if isinstance(event, LinkRequested))
        assert isinstance(link, ReceivingLink)
        link.accept_attach()
        self.receiver = link
        self.carry()

    def carry(self) -> list[Event]:
        """Both ways until nothing moves; what the server heard."""
        heard: list[Event] = []
        while self.client.has_output or self.server.has_output:
            heard += self.server.receive_data(self.client.data_to_send(), NOW)
            self.client.receive_data(self.server.data_to_send(), NOW)
        return heard

    def batch(self, tags: list[bytes]) -> tuple[float, float, float, float]:
        """Seconds to send, receive, settle and hear of these deliveries."""
        self.receiver.grant(len(tags))
        self.carry()
        started = time.perf_counter()
        send = self.sender.send
        for tag in tags:
            send(tag, PAYLOAD)
        data = self.client.data_to_send()
        sent = time.perf_counter()
        events = self.server.receive_data(data, NOW)
        received = time.perf_counter()
        for event in events:
            if isinstance(event, DeliveriesReceived):
                event.link.session.settle_all(event.deliveries, ACCEPTED)
        data = self.server.data_to_send()
        settled = time.perf_counter()
        for event in self.client.receive_data(data, NOW):
            if isinstance(event, StatesReceived) and not event.settled:
                event.link.session.settle_all(event.deliveries, ACCEPTED)
        heard = time.perf_counter()
        self.carry()
        assert not self.sender.unsettled_count
        assert not self.receiver.unsettled_count
        return sent - started, received - sent, settled - received, heard - settled


def measure(mode: RcvSettleMode, *, fast: bool, batches: int, size: int) -> Costs:
    """The best of the batches, step by step."""
    pair = Pair(mode, fast=fast)
    best = [float("inf")] * 4
    for number in range(batches):
        tags = [(number * size + index).to_bytes(8, "big") for index in range(size)]
        best = [min(pair_) for pair_ in zip(best, pair.batch(tags), strict=True)]
    return Costs(*(seconds / size * 1e6 for seconds in best))


def main() -> None:
    """Print a line for each case."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--short", action="store_true", help="fewer batches")
    batches = 20 if parser.parse_args().short else 300
    gc.disable()
    for size in (1, 500):
        print(f"\nmicroseconds for each delivery, {size} at a time")
        for mode in RcvSettleMode:
            print(f"  settle {mode.name.lower():7} {measure(mode, fast=True, batches=batches, size=size)}")
    print("\nthe same, 500 at a time, received by the codec")
    print(f"  settle first   {measure(RcvSettleMode.FIRST, fast=False, batches=max(3, batches // 10), size=500)}")


if __name__ == "__main__":
    main()
