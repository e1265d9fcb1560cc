"""Renewing the lock of a received message: what is said on the wire, and what can be known of it."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

import acquit
from acquit import aio, errors
from acquit.broker.configuration import parse_options
from acquit.client.aio import KINDS
from acquit.client.driver import Driver
from acquit.client.receipts import ReceiptStatus
from acquit.protocol.constants import ACCEPTED
from acquit.protocol.definitions import Modified, Received
from tests.support.server import Rig, RigDriver

LONG = 30.0


class Stage:
    def __init__(self, mode: str = "individual") -> None:
        self.rig = Rig()
        self.rig.core.kinds = KINDS
        self.session = aio.Session(self.rig.session(mode), cast(Driver, RigDriver(self.rig)))

    async def receive(self) -> aio.ReceivedMessage:
        self.receiver = await self.session.receiver("q")
        self.rig.server.offer("q", b"a")
        self.rig.run()
        message = await self.receiver.receive()
        assert message is not None
        return message

    @property
    def said(self) -> list[tuple[object, bool]]:
        self.rig.run()
        return [(state, settled) for _, state, settled in self.rig.server.outcomes()]


@pytest.mark.parametrize("mode", ["client", "individual", "transacted"])
def test_a_renewal_is_progress_without_an_outcome(mode: str) -> None:
    async def main() -> None:
        stage = Stage(mode)
        message = await stage.receive()
        for _ in range(2):
            receipt = await message.renew_lock()
            assert receipt.status is ReceiptStatus.SENT
        assert stage.said == [(Received(0, 0), False)] * 2
        assert not message.settled

    asyncio.run(main())


def test_without_sync_it_is_said_with_the_next_output() -> None:
    async def main() -> None:
        stage = Stage()
        message = await stage.receive()
        receipt = await message.renew_lock(sync=False)
        assert receipt.status is None
        assert await receipt is ReceiptStatus.SENT

    asyncio.run(main())


def test_what_has_its_outcome_is_not_renewed() -> None:
    async def main() -> None:
        stage = Stage()
        message = await stage.receive()
        await message.accept()
        with pytest.raises(errors.AlreadySettled, match="settled already, as accepted"):
            await message.renew_lock()
        auto = await Stage("auto").receive()
        with pytest.raises(errors.AlreadySettled, match="settled already, as accepted"):
            await auto.renew_lock()
        unreliable = await Stage("no_ack").receive()
        with pytest.raises(errors.Unreliable, match="in mode NO_ACK"):
            await unreliable.renew_lock()

    asyncio.run(main())


def test_in_an_auto_listener_it_can_be_renewed_until_it_returns() -> None:
    async def main() -> None:
        stage = Stage("auto")
        receiver = await stage.session.receiver("q")
        receipts: list[aio.Receipt] = []

        async def handle(message: aio.ReceivedMessage) -> None:
            receipts.append(await message.renew_lock())
            await listener.stop()

        listener = receiver.start_listener(handle)
        stage.rig.server.offer("q", b"a")
        await listener.wait()
        assert [receipt.status for receipt in receipts] == [ReceiptStatus.SENT]
        assert stage.said == [(Received(0, 0), False), (ACCEPTED, True)]

    asyncio.run(main())


def test_a_renewal_that_loses_against_an_outcome_of_ours_is_stale_and_not_said() -> None:
    """Another thread acknowledges between the look and the loop side's turn."""

    async def main() -> None:
        stage = Stage()
        message = await stage.receive()
        settled = stage.session._core.settle_all([message], ACCEPTED)
        stage.session._core.handed_out[message.number] = message  # as it was when it was looked at
        receipt = message.renew()
        stage.rig.run()
        assert (settled.status, receipt.status) == (ReceiptStatus.ANSWERED, ReceiptStatus.STALE)
        assert receipt.reason == "it was accepted meanwhile"
        assert stage.said == [(ACCEPTED, False)]

    asyncio.run(main())


@pytest.mark.parametrize("how", ["taken back", "settled", "lost"])
def test_what_is_not_ours_any_more_is_stale(how: str) -> None:
    async def main() -> None:
        stage = Stage()
        message = await stage.receive()
        (delivery,) = stage.rig.peer.engine.sessions[0].unsettled()
        match how:
            case "taken back":
                delivery.update(Modified(delivery_failed=True))
            case "settled":
                delivery.settle(Modified(delivery_failed=True))
            case _:
                stage.rig.peer.sending.detach()
        stage.rig.run()
        receipt = await message.renew_lock()
        assert receipt.status is ReceiptStatus.STALE
        assert (
            receipt.reason
            == {
                "taken back": "the peer had settled it before, as modified",
                "settled": "the peer had settled it before, as modified",
                "lost": "the receiver from 'q' was detached by the peer",
            }[how]
        )
        assert not any(isinstance(state, Received) for state, _ in stage.said)

    asyncio.run(main())


def test_a_peer_that_says_nothing_of_locks() -> None:
    async def main() -> None:
        stage = Stage()
        await stage.receive()
        assert stage.receiver.lock_duration_ms is None

    asyncio.run(main())


def test_our_broker_keeps_the_message_for_who_renews() -> None:
    options = parse_options('[[address]]\nmatch = "jobs"\nlock_duration_ms = 60_000\n')
    with acquit.Broker(config=options) as broker, acquit.connect(broker.url) as connection:
        session = connection.session("individual")
        session.sender("jobs").send("a job")
        receiver = session.receiver("jobs", prefetch=1)
        assert receiver.lock_duration_ms == 60_000
        message = receiver.receive(LONG)
        assert message is not None
        other = connection.session("individual").receiver("jobs")
        for _ in range(4):  # more than twice as long as a lock lasts
            broker.advance(40_000)
            assert message.renew_lock().status is ReceiptStatus.SENT
            session.sender("else").send("the broker has read what was sent before")
            assert other.drain(LONG)
            assert other.receive(0) is None
        assert message.accept().status is ReceiptStatus.APPLIED


def test_our_broker_s_word_that_the_lock_ran_out_makes_a_renewal_stale() -> None:
    options = parse_options('[[address]]\nmatch = "jobs"\nlock_duration_ms = 50\n')
    with acquit.Broker(config=options) as broker, acquit.connect(broker.url) as connection:
        session = connection.session("individual")
        session.sender("jobs").send("a job")
        message = session.receiver("jobs", prefetch=1).receive(LONG)
        assert message is not None
        again = connection.session("individual").receiver("jobs").receive(LONG)  # its lock ran out
        assert again is not None and again.delivery_count == 1
        receipt = message.renew_lock()
        assert receipt.status is ReceiptStatus.STALE
        assert receipt.reason == "the peer had settled it before, as modified"
