"""Duplicate detection against a naive model, over random postings, transactions, syncs, crashes, segments that
leave and policies that change.

The model is a list for each address: (id, body) of what was posted and synced, oldest first, cut to the window. What a
posting must become follows from it; what a crash may forget is what was not answered. After every step the window is
what the model says, and after every sync the journal, read by itself, says the same.
"""

from __future__ import annotations

from random import Random

import pytest

from acquit.broker.options import AddressRule, BrokerOptions
from acquit.ledger.events import EventFlag, EventKind
from acquit.protocol.constants import ACCEPTED
from acquit.protocol.delivery import Delivery
from acquit.protocol.message import Message
from tests.support.broker_world import World, durable
from tests.support.examples import share
from tests.support.transacting import Controller

pytestmark = pytest.mark.promise("duplicates")

ADDRESSES = ("a", "b")


class Model:
    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.limits = dict.fromkeys(ADDRESSES, 20_000)
        self.world = World(self.options())
        self.windows: dict[str, list[tuple[str, str]]] = {address: [] for address in ADDRESSES}
        self.synced: dict[str, list[tuple[str, str]]] = {address: [] for address in ADDRESSES}
        self.told = {"entered b": 0, "suppressed": 0, "flagged": 0}
        """What the journal must count."""
        self.told_synced = dict(self.told)
        self.connect()

    def options(self) -> BrokerOptions:
        return BrokerOptions(
            address=tuple(AddressRule(name, {"duplicate_window": limit}) for name, limit in self.limits.items())
        )

    def connect(self) -> None:
        self.client = self.world.client()
        self.posted: list[Delivery] = []
        self.control = Controller(self.client)
        self.senders = {address: self.client.sender(address, address) for address in ADDRESSES}
        self.receivers = {address: self.client.receiver(address, f"r-{address}", credit=1_000) for address in ADDRESSES}
        self.settle()

    # -- steps --------------------------------------------------------------------------------------------------------

    def post(self) -> None:
        address = self.rng.choice(ADDRESSES)
        identity, body = f"i{self.rng.randrange(40)}", self.rng.choice(("x", "y", "z" * 3_000))
        window = self.windows[address]
        message = durable(body, application_properties={"_AMQ_DUPL_ID": identity})
        (delivery,) = self.client.post(self.senders[address], message)
        self.posted.append(delivery)
        self.world.carry()
        assert self.client.outcome(delivery) is None, "answered before the sync"
        if (identity, body) in window:
            self.told["suppressed"] += 1
        else:
            self.told["flagged"] += any(known == identity for known, _ in window)
            window.append((identity, body))
            del window[: -self.limits[address]]
            self.told["entered b"] += address == "b"

    def transact(self) -> None:
        """Some postings in a transaction, which ends in one way or the other, or not at all."""
        self.settle()
        txn_id = self.control.declare()
        held: dict[str, list[tuple[str, str]]] = {address: [] for address in ADDRESSES}
        suppressed = flagged = entered = 0
        for _ in range(self.rng.randrange(1, 5)):
            address = self.rng.choice(ADDRESSES)
            identity, body = f"i{self.rng.randrange(12)}", self.rng.choice(("x", "y"))
            message = durable(body, application_properties={"_AMQ_DUPL_ID": identity})
            (delivery,) = self.control.post(self.senders[address], txn_id, message)
            self.world.settle()
            assert self.control.provisional(delivery) == ACCEPTED
            known = [*self.windows[address], *held[address]]
            if (identity, body) in known:
                suppressed += 1
            else:
                flagged += any(other == identity for other, _ in known)
                held[address].append((identity, body))
                entered += address == "b"
        self.told["suppressed"] += suppressed
        end = self.rng.random()
        if end < 0.2:
            self.synced = {address: list(window) for address, window in self.windows.items()}
            self.told_synced = dict(self.told)
            self.crash()
        elif end < 0.4:
            self.control.roll_back(txn_id)
        else:
            assert self.control.commit(txn_id) is None
            for address, ids in held.items():
                self.windows[address] = [*self.windows[address], *ids][-self.limits[address] :]
            self.told["flagged"] += flagged
            self.told["entered b"] += entered
        self.settle()

    def settle(self) -> None:
        self.world.settle()
        self.synced = {address: list(window) for address, window in self.windows.items()}
        self.told_synced = dict(self.told)
        assert all(self.client.outcome(one) == ACCEPTED for one in self.posted)

    def consume(self) -> None:
        for link in self.receivers.values():
            link.session.settle_all(self.client.held(link), ACCEPTED)
            link.grant(1_000)
        self.settle()

    def volatile(self) -> None:
        """Traffic without ids changes nothing."""
        self.client.post(self.senders["a"], Message("x"), durable(bytes(8_000)))
        self.settle()

    def crash(self) -> None:
        self.world.options = self.options()
        self.world = self.world.crash()
        self.windows = {address: window[-self.limits[address] :] for address, window in self.synced.items()}
        self.told = dict(self.told_synced)
        self.connect()

    def change(self) -> None:
        """Another window, from the next start on."""
        self.settle()
        self.limits[self.rng.choice(ADDRESSES)] = self.rng.choice((1, 3, 8, 20_000))
        self.crash()

    # -- what holds ---------------------------------------------------------------------------------------------------

    def check(self) -> None:
        windows = self.world.core.scribe.recorder.table.windows
        assert {address: len(window) for address, window in windows.by_address.items() if len(window)} == {
            address: len(window) for address, window in self.windows.items() if window
        }
        for address, window in self.windows.items():
            kept = [entry.identity[1:].decode() for entry in windows.by_address.get(address, ())]
            assert kept == [identity for identity, _ in window]


@pytest.mark.parametrize("seed", range(share(25)))
def test_windows_hold_what_a_list_would(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("acquit.ledger.duplicates.BLOCK_IDS", 4)  # many blocks of few ids
    monkeypatch.setattr("acquit.broker.intake.duplicates.BLOCK_IDS", 4)
    rng = Random(seed)
    model = Model(rng)
    steps = [model.post, model.settle, model.consume, model.volatile, model.transact, model.crash, model.change]
    for step in rng.choices(steps, (30, 6, 4, 4, 5, 1, 0.7), k=250):
        step()
        model.check()
    model.settle()
    queues = model.world.core.queues.by_name
    assert sum(queue.counts[EventKind.DUPLICATE] for queue in queues.values()) == model.told["suppressed"]
    assert queues["b"].entered == model.told["entered b"]
    fold = model.world.fold()
    assert fold.table.windows == model.world.core.scribe.recorder.table.windows
    flagged = sum(bool(message.flags & EventFlag.ID_REUSED) for message in fold.messages.values())
    assert flagged <= model.told["flagged"]
    model.world.check_journal()
