"""The acknowledgement modes, sentence by sentence, as frames: what the client writes is read from the bytes.

The sentences are those that users are promised (docs/client.md); beside each the tests here that hold it. What
the modes mean to a program, apart from frames, is in test_aio.py and test_listening.py.

What is promised                                                            Tests
--------------------------------------------------------------------------  -----------------------------------------
modes have the values of JMS, Artemis and Qpid JMS, and names               a_mode_is_found_by_*
TRANSACTED: credit on hand-over, up to unsettled_max                        credit_comes_back_on_hand_over, up_to_*
TRANSACTED: acknowledged with commit, rollback redelivers                   a_commit_*, a_rollback_*
AUTO: credit on hand-over                                                   credit_comes_back_on_hand_over
AUTO: acknowledged as receive() returns                                     auto_is_accepted_as_receive_returns
AUTO: by a listener after it returned, else modified(delivery-failed)       what_a_listener_does_*
AUTO: an explicit outcome in a listener replaces the automatic one          an_explicit_outcome_*
CLIENT, INDIVIDUAL: credit on acknowledgement, at the limit nothing comes   credit_comes_back_on_acknowledgement
DUPS_OK: credit on hand-over, up to unsettled_max                           credit_comes_back_on_hand_over, up_to_*
DUPS_OK: gathered lazily, bounded in count and time                         dups_ok_*
NO_ACK: none, the link attached pre-settled                                 what_links_ask_for, no_ack_*
PRE_ACK: before the message is handed to the user, as AUTO for receive()    pre_ack_*
acknowledge in CLIENT: all handed out, over all receivers; or up to one     client_acknowledge_*
acknowledge in INDIVIDUAL: that message alone; without one: all             individual_acknowledge_*
acknowledge in the other modes has no effect                                acknowledge_has_no_effect_elsewhere
accept, reject, release, modify mean this one delivery                      an_outcome_is_about_one_delivery
after it is settled: AlreadySettled; on an unreliable link: Unreliable      a_second_outcome_*, no_ack_says_nothing
CLIENT and INDIVIDUAL ask for rcv-settle-mode second                        what_links_ask_for
sync waits for the peer's settled disposition; a flow is no barrier         sync_waits_*
where second was not granted: once the frame is written, *sent*             where_second_was_not_granted_*
sync=False returns a receipt                                                without_sync_*
at the limit receive() raises CreditExhausted at its timeout, and warns     at_the_prefetch_limit_*
prefetch 0: each receive grants one credit and drains at its timeout        prefetch_zero_*
prefetch is limited in messages and bytes                                   prefetch_in_bytes_*
recover: front of the buffer, in order, the local count raised              recover_*
recover: the broker is told the final outcome alone; not in TRANSACTED      recover_*
no await between taking and returning                                       properties/test_client_every_await.py
delivery mode: a producer default, overridden per message                   delivery_mode_*
closing: handed out = modified(delivery-failed), in the buffer = released   what_is_said_at_the_close
first-acquirer and delivery-count say what is redelivered                   test_received.py
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from acquit import aio, errors
from acquit.client.modes import AckMode, find_mode
from acquit.client.options import DeliveryMode
from acquit.client.receipts import ReceiptStatus
from acquit.protocol import events as ev
from acquit.protocol.constants import ACCEPTED
from acquit.protocol.definitions import RcvSettleMode, Released
from acquit.protocol.extensions import DURABLE_SETTLEMENT
from acquit.protocol.message import Message
from tests.support.server import Server
from tests.support.tapped import Tapped, take

LONG = 30.0
ALL = ["transacted", "auto", "client", "dups_ok", "no_ack", "individual", "pre_ack"]
ON_HANDOVER = ["transacted", "auto", "dups_ok", "no_ack", "pre_ack"]
ACKNOWLEDGING = ["client", "individual"]


def run(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(LONG):
            await main()

    asyncio.run(limited())


async def turn() -> None:
    for _ in range(8):
        await asyncio.sleep(0)


def bodies(messages: list[aio.ReceivedMessage]) -> list[object]:
    return [message.body for message in messages]


# -- names and values --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "mode"),
    [
        (0, AckMode.TRANSACTED),
        (1, AckMode.AUTO),
        (2, AckMode.CLIENT),
        (3, AckMode.DUPS_OK),
        (100, AckMode.NO_ACK),
        (101, AckMode.INDIVIDUAL),
        (257, AckMode.NO_ACK),
        (258, AckMode.PRE_ACK),
    ],
)
def test_a_mode_is_found_by_its_value_elsewhere(value: int, mode: AckMode) -> None:
    assert find_mode(value).name is mode
    assert find_mode(mode).name is mode


@pytest.mark.parametrize("name", ALL)
def test_a_mode_is_found_by_its_name(name: str) -> None:
    assert find_mode(name).name.name == name.upper()
    assert find_mode(f" {name.upper().replace('_', '-')} ").name.name == name.upper()


@pytest.mark.parametrize("value", [4, 99, 102, 256, 259, -1, "lazy", ""])
def test_a_mode_that_is_not_there(value: int | str) -> None:
    with pytest.raises(errors.ConfigurationError, match="expected one of TRANSACTED, AUTO, CLIENT"):
        find_mode(value)


# -- what links ask for ------------------------------------------------------------------------------------------------

ASKED = {
    "transacted": "attach receiver unsettled/first",
    "auto": "attach receiver unsettled/first",
    "client": "attach receiver unsettled/second",
    "individual": "attach receiver unsettled/second",
    "dups_ok": "attach receiver unsettled/first",
    "no_ack": "attach receiver settled/first",
    "pre_ack": "attach receiver unsettled/first",
}


@pytest.mark.parametrize("mode", ALL)
def test_what_links_ask_for(mode: str) -> None:
    async def main() -> None:
        stage = Tapped(mode)
        await stage.session.receiver("q", prefetch=7)
        assert stage.lines() == [ASKED[mode], "flow 7"]

    run(main)


# -- when credit comes back, and with how many flows -------------------------------------------------------------------


@pytest.mark.parametrize("mode", ON_HANDOVER)
def test_credit_comes_back_on_hand_over(mode: str) -> None:
    async def main() -> None:
        stage = Tapped(mode)
        receiver = await stage.receiver(30, prefetch=10)
        taken = await take(receiver, 4)
        assert [line for line in stage.lines() if line.startswith("flow")] == []  # less than half is not worth a flow
        taken += await take(receiver, 1)
        assert [line for line in stage.lines() if line.startswith("flow")] == ["flow 5"]
        taken += await take(receiver, 10)
        assert [line for line in stage.lines() if line.startswith("flow")] == ["flow 10"]
        assert bodies(taken) == [chr(97 + number) for number in range(15)]

    run(main)


@pytest.mark.parametrize("mode", ACKNOWLEDGING)
def test_credit_comes_back_on_acknowledgement(mode: str) -> None:
    async def main() -> None:
        stage = Tapped(mode)
        receiver = await stage.receiver(30, prefetch=10)
        taken = await take(receiver, 10)
        assert stage.lines() == []  # to hand out brings nothing
        assert stage.rig.peer.sending.credit == 0
        await stage.session.settle(taken[:4], ACCEPTED)
        assert stage.lines() == ["0-3 accepted", "flow 4"]  # nothing is in the buffer: each is worth a flow
        await stage.session.settle(taken[4:7], ACCEPTED)
        assert stage.lines() == ["4-6 accepted"]  # four wait in the buffer, and three are less than half of ten
        await stage.session.settle(taken[7:9], ACCEPTED)
        assert stage.lines() == ["7-8 accepted", "flow 5"]

    run(main)


@pytest.mark.promise("bounded")
def test_up_to_unsettled_max_credit_comes_back_in_a_transaction() -> None:
    async def main() -> None:
        stage = Tapped("transacted", unsettled_max=8)
        receiver = await stage.receiver(30, prefetch=4)
        await take(receiver, 8)
        assert (receiver._core.link.unsettled_count, stage.rig.peer.sending.credit) == (8, 0)
        with pytest.raises(errors.CreditExhausted, match=r"8 messages in this transaction \(unsettled_max\)"):
            await receiver.receive(0)
        await stage.session.commit()
        assert bodies(await take(receiver, 1)) == ["i"]

    run(main)


def test_up_to_unsettled_max_credit_comes_back_in_dups_ok() -> None:
    async def main() -> None:
        stage = Tapped("dups_ok", unsettled_max=8)
        receiver = await stage.receiver(26, prefetch=8)
        for letter in range(26):
            assert bodies(await take(receiver, 1)) == [chr(97 + letter)]
            assert receiver._core.link.unsettled_count + stage.rig.peer.sending.credit <= 8
        assert not receiver._core.exhausted  # it acknowledges by itself

    run(main)


# -- the prefetch limit ------------------------------------------------------------------------------------------------


@pytest.mark.promise("bounded")
@pytest.mark.parametrize("mode", ACKNOWLEDGING)
def test_at_the_prefetch_limit_receive_raises_at_its_timeout_and_warns(
    mode: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        stage = Tapped(mode)
        receiver = await stage.receiver(6, prefetch=3)
        taken = await take(receiver, 3)
        assert stage.lines() == []
        for timeout in (0, 0.01):
            with pytest.raises(errors.CreditExhausted):
                await receiver.receive(timeout)
        assert [record.levelname for record in caplog.records] == ["WARNING"]
        assert f"has handed out all of its prefetch (3 messages, 16777216 bytes) in mode {mode.upper()}" in caplog.text
        assert stage.lines() == []  # nothing was asked for: nothing could come
        await taken[0].accept()
        assert len(await take(receiver, 1)) == 1

    run(main)


def test_an_empty_queue_is_no_exhaustion() -> None:
    async def main() -> None:
        for mode in ALL:
            stage = Tapped(mode)
            receiver = await stage.receiver(2, prefetch=3)
            await take(receiver, 2)
            assert await receiver.receive(0) is None

    run(main)


# -- AUTO --------------------------------------------------------------------------------------------------------------


def test_auto_is_accepted_as_receive_returns() -> None:
    async def main() -> None:
        stage = Tapped("auto")
        receiver = await stage.receiver(4)
        assert stage.lines() == []  # it is in the buffer, and nobody has it
        await take(receiver, 1)
        assert stage.lines() == ["0 accepted settled"]
        await take(receiver, 3)
        assert stage.lines() == ["1-3 accepted settled"]  # what was taken at once is one frame

    run(main)


HANDLED = {
    "auto": ["0 accepted settled", "1 failed settled", "2 accepted settled"],
    "dups_ok": ["0 accepted settled", "1 failed settled", "2 accepted settled"],
    "pre_ack": ["0-2 accepted settled"],
}


@pytest.mark.parametrize("mode", HANDLED)
def test_what_a_listener_does_is_said_after_it_or_before(mode: str) -> None:
    async def main() -> None:
        stage = Tapped(mode)
        receiver = await stage.receiver(3)

        def handle(message: aio.ReceivedMessage) -> None:
            if message.body == "b":
                raise ValueError("b")

        async with receiver.start_listener(handle):
            await turn()
        lines = stage.lines()
        if mode == "pre_ack":  # one by one, each before its handler
            assert lines == ["0 accepted settled", "1 accepted settled", "2 accepted settled"]
        else:
            assert lines == HANDLED[mode]

    run(main)


@pytest.mark.parametrize("mode", ["client", "individual", "no_ack", "transacted"])
def test_what_a_failing_listener_does_elsewhere_is_nothing(mode: str) -> None:
    """It ends the listening; the message is handed out, and who listens decides."""

    async def main() -> None:
        stage = Tapped(mode)
        receiver = await stage.receiver(3)

        def handle(message: aio.ReceivedMessage) -> None:
            raise ValueError("first of them")

        stage.lines()
        with pytest.raises(ValueError, match="first of them"):
            await receiver.listen(handle)
        assert [line for line in stage.lines() if not line.startswith("transfer control")] == []
        assert len(await take(receiver, 2)) == 2

    run(main)


@pytest.mark.parametrize("mode", ["auto", "dups_ok"])
@pytest.mark.parametrize("fails", [True, False])
def test_an_explicit_outcome_replaces_the_automatic_one(mode: str, fails: bool) -> None:
    async def main() -> None:
        stage = Tapped(mode)
        receiver = await stage.receiver(2)

        async def handle(message: aio.ReceivedMessage) -> None:
            if message.body == "a":
                await message.release()
                if fails:
                    raise ValueError("a")

        async with receiver.start_listener(handle):
            await turn()
        assert stage.lines() == ["0 released settled", "1 accepted settled"]

    run(main)


# -- PRE_ACK -----------------------------------------------------------------------------------------------------------


def test_pre_ack_is_accepted_before_the_handler_is_called_and_once_only() -> None:
    async def main() -> None:
        stage = Tapped("pre_ack")
        receiver = await stage.receiver(2)
        seen: list[list[str]] = []

        def handle(message: aio.ReceivedMessage) -> None:
            seen.append(list(stage.rig.lines))
            raise ValueError("no second chance")

        async with receiver.start_listener(handle):
            await turn()
        assert seen == [["0 accepted settled"], ["0 accepted settled", "1 accepted settled"]]
        assert stage.lines() == ["0 accepted settled", "1 accepted settled"]

    run(main)


def test_pre_ack_is_as_auto_for_receive() -> None:
    async def main() -> None:
        stage = Tapped("pre_ack")
        receiver = await stage.receiver(2)
        assert stage.lines() == []
        (message,) = await take(receiver, 1)
        assert stage.lines() == ["0 accepted settled"]
        with pytest.raises(errors.AlreadySettled, match="as accepted"):
            await message.release()

    run(main)


# -- DUPS_OK -----------------------------------------------------------------------------------------------------------


def test_dups_ok_gathers_up_to_a_hundred_in_one_frame() -> None:
    async def main() -> None:
        stage = Tapped("dups_ok")
        receiver = await stage.receiver(250, prefetch=200)
        await take(receiver, 99)
        assert [line for line in stage.lines() if "accepted" in line] == []
        await take(receiver, 1)
        assert [line for line in stage.lines() if "accepted" in line] == ["0-99 accepted settled"]
        await take(receiver, 150)
        assert [line for line in stage.lines() if "accepted" in line] == ["100-249 accepted settled"]

    run(main)


def test_dups_ok_gathers_for_a_tenth_of_a_second() -> None:
    async def main() -> None:
        stage = Tapped("dups_ok")
        receiver = await stage.receiver(10)
        await take(receiver, 1)
        assert stage.lines() == []
        stage.rig.advance(0.06)
        await take(receiver, 1)  # does not begin the time again
        assert stage.lines() == []
        stage.rig.advance(0.03)
        assert stage.lines() == []
        stage.rig.advance(0.011)
        assert stage.lines() == ["0-1 accepted settled"]
        stage.rig.advance(10)
        assert stage.lines() == []

    run(main)


def test_dups_ok_gathers_no_more_than_half_of_unsettled_max() -> None:
    """Or the receiver would wait for acknowledgements that wait for more messages."""

    async def main() -> None:
        stage = Tapped("dups_ok", unsettled_max=10)
        receiver = await stage.receiver(30, prefetch=10)
        await take(receiver, 5)
        assert stage.lines()[0] == "0-4 accepted settled"

    run(main)


# -- NO_ACK ------------------------------------------------------------------------------------------------------------


def test_no_ack_says_nothing() -> None:
    async def main() -> None:
        stage = Tapped("no_ack")
        receiver = await stage.receiver(3)
        (message, *_) = await take(receiver, 2)
        await message.acknowledge()
        await stage.session.acknowledge()
        for verb in (message.accept, message.reject, message.release, message.modify):
            with pytest.raises(errors.Unreliable, match="in mode NO_ACK: the broker settled the message as it sent it"):
                await verb()
        assert stage.lines() == []
        await receiver.close()
        assert stage.lines() == ["flow 0", "detach closed"]

    run(main)


# -- acknowledge -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("by", ["message", "session"])
def test_client_acknowledge_is_about_all_that_was_handed_out_over_all_receivers(by: str) -> None:
    async def main() -> None:
        stage = Tapped("client")
        one = await stage.receiver(2)
        other = await stage.session.receiver("p")
        stage.rig.server.offer("p", "x", "y")
        stage.lines()
        (first,) = await take(one, 1)
        await take(other, 1)
        await (first.acknowledge() if by == "message" else stage.session.acknowledge())
        assert stage.lines() == ["0 accepted", "2 accepted"]  # 1 and 3 are in the buffers
        await stage.session.acknowledge()
        assert stage.lines() == []

    run(main)


def test_client_acknowledge_with_a_message_is_up_to_and_including_it_in_the_order_of_handing_out() -> None:
    async def main() -> None:
        stage = Tapped("client")
        one = await stage.receiver(3)
        other = await stage.session.receiver("p")
        stage.rig.server.offer("p", "x", "y")
        stage.lines()
        await take(one, 1)
        (_, second) = await take(other, 2)
        await take(one, 2)
        await stage.session.acknowledge(second)
        assert sorted(stage.lines()) == ["0 accepted", "3-4 accepted"]
        await stage.session.acknowledge(second)  # again does nothing
        assert stage.lines() == []
        await stage.session.acknowledge()
        assert stage.lines() == ["1-2 accepted"]

    run(main)


@pytest.mark.parametrize("by", ["message", "session"])
def test_individual_acknowledge_is_about_that_message(by: str) -> None:
    async def main() -> None:
        stage = Tapped("individual")
        receiver = await stage.receiver(4)
        _, second, _, _ = await take(receiver, 4)
        await (second.acknowledge() if by == "message" else stage.session.acknowledge(second))
        assert stage.lines() == ["1 accepted"]
        await second.acknowledge()
        assert stage.lines() == []
        await stage.session.acknowledge()
        assert stage.lines() == ["0 accepted", "2-3 accepted"]

    run(main)


@pytest.mark.parametrize("mode", ["transacted", "auto", "dups_ok", "no_ack", "pre_ack"])
def test_acknowledge_has_no_effect_elsewhere(mode: str) -> None:
    async def main() -> None:
        stage = Tapped(mode)
        receiver = await stage.receiver(2)
        (message,) = await take(receiver, 1)
        stage.lines()
        for receipt in (
            await message.acknowledge(),
            await stage.session.acknowledge(),
            await stage.session.acknowledge(message),
        ):
            assert (receipt.count, receipt.status) == (0, ReceiptStatus.SENT)
        assert stage.lines() == []

    run(main)


# -- outcomes ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ACKNOWLEDGING)
def test_an_outcome_is_about_one_delivery(mode: str) -> None:
    async def main() -> None:
        stage = Tapped(mode)
        receiver = await stage.receiver(5)
        a, b, c, d, _ = await take(receiver, 5)
        await b.accept()
        await d.reject("amqp:decode-error", "unreadable")
        await c.release()
        await a.modify(delivery_failed=True)
        assert stage.lines() == ["1 accepted", "3 rejected", "2 released", "0 failed"]

    run(main)


@pytest.mark.parametrize("mode", ["client", "individual", "auto"])
def test_a_second_outcome_is_not_said(mode: str) -> None:
    async def main() -> None:
        stage = Tapped(mode)
        receiver = await stage.receiver(1)
        (message,) = await take(receiver, 1)
        if mode != "auto":
            await message.accept()
        stage.lines()
        for verb in (message.accept, message.reject, message.release, message.modify):
            with pytest.raises(errors.AlreadySettled, match="settled already, as accepted"):
                await verb()
        assert (await message.acknowledge()).count == 0
        assert stage.lines() == []

    run(main)


# -- sync --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("capabilities", "means"), [((), ReceiptStatus.ANSWERED), ((DURABLE_SETTLEMENT,), ReceiptStatus.APPLIED)]
)
def test_sync_waits_for_the_answer_and_no_flow_is_a_barrier(
    capabilities: tuple[str, ...], means: ReceiptStatus
) -> None:
    async def main() -> None:
        stage = Tapped("individual", server=Server(capabilities=capabilities))
        stage.rig.server.answers = False
        receiver = await stage.receiver(1)
        (message,) = await take(receiver, 1)
        task = asyncio.create_task(message.accept())
        await turn()
        assert stage.lines() == ["0 accepted"]  # and no echo is asked for: nobody need answer that
        assert not task.done()
        (told,) = stage.rig.server.all(ev.StatesReceived)
        told.deliveries[0].settle(ACCEPTED)
        stage.rig.run()
        assert (await task).status is means

    run(main)


def test_where_second_was_not_granted_sync_ends_as_the_frame_is_written() -> None:
    async def main() -> None:
        stage = Tapped("individual")
        grant_first(stage.rig.server)
        receiver = await stage.receiver(2)
        first, second = await take(receiver, 2)
        receipt = await first.accept()
        assert receipt.status is ReceiptStatus.SENT
        assert stage.lines() == ["0 accepted settled"]
        later = await second.accept(sync=False)
        assert later.status is None
        assert await later is ReceiptStatus.SENT

    run(main)


def grant_first(server: Server) -> None:
    """Attaches are answered with rcv-settle-mode first, whatever was asked for."""
    connection = server.connection
    original = connection._attach

    def attach(link: Any) -> None:
        link.remote_attach.rcv_settle_mode = RcvSettleMode.FIRST
        original(link)

    connection._attach = attach  # type: ignore[method-assign]


def test_without_sync_there_is_a_receipt_at_once() -> None:
    async def main() -> None:
        stage = Tapped("client")
        receiver = await stage.receiver(3)
        await take(receiver, 3)
        receipt = await stage.session.acknowledge(sync=False)
        assert (receipt.status, receipt.count, stage.rig.lines) == (None, 3, [])
        assert await receipt is ReceiptStatus.ANSWERED
        assert stage.lines() == ["0-2 accepted"]

    run(main)


def test_many_single_acknowledgements_are_one_frame() -> None:
    async def main() -> None:
        stage = Tapped("individual")
        receiver = await stage.receiver(20, prefetch=20)
        receipts = [await message.accept(sync=False) for message in await take(receiver, 20)]
        assert stage.lines() == ["0-19 accepted", "flow 20"]
        assert {receipt.status for receipt in receipts} == {ReceiptStatus.ANSWERED}

    run(main)


# -- one at a time, and bytes ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ALL)
def test_prefetch_zero_grants_one_credit_for_each_receive_and_drains_at_its_timeout(mode: str) -> None:
    async def main() -> None:
        stage = Tapped(mode)
        receiver = await stage.session.receiver("q", prefetch=0)
        assert not [line for line in stage.lines() if line.startswith("flow")]
        stage.offer(1)
        assert await receiver.receive(LONG) is not None
        assert [line for line in stage.lines() if line.startswith("flow")] == ["flow 1"]
        assert await receiver.receive(0.01) is None
        assert [line for line in stage.lines() if line.startswith("flow")] == ["flow 1", "flow 1 drain"]
        assert stage.rig.peer.sending.credit == 0

    run(main)


def test_prefetch_zero_returns_what_crosses_the_drain() -> None:
    async def main() -> None:
        stage = Tapped("individual")
        receiver = await stage.receiver(prefetch=0)
        task = asyncio.create_task(receiver.receive(0.01))
        await turn()
        stage.rig.server.queues["q"].append(Message("late").encode())  # is there when the drain comes
        message = await task
        assert message is not None and message.body == "late"

    run(main)


@pytest.mark.promise("bounded")
def test_prefetch_in_bytes_takes_credit_back_when_messages_are_larger_than_it_thought() -> None:
    async def main() -> None:
        stage = Tapped("individual")
        receiver = await stage.session.receiver("q", prefetch=100, prefetch_bytes=10_000)
        assert stage.lines() == [ASKED["individual"], "flow 100"]
        stage.rig.server.offer("q", bytes(1_000), bytes(1_000))
        (line,) = stage.lines()
        credit = int(line.removeprefix("flow "))
        assert 6 <= credit <= 8  # about ten of these fit, and two are there
        stage.rig.server.offer("q", *(bytes(1_000) for _ in range(50)))
        stage.lines()
        assert receiver._core.held_bytes <= 11_100
        taken = 0
        while await receiver.receive(0) if not receiver._core.exhausted else None:
            taken += 1
        assert 9 <= taken <= 11

    run(main)


def test_prefetch_in_bytes_lets_a_message_larger_than_all_of_it_come() -> None:
    async def main() -> None:
        stage = Tapped("individual")
        receiver = await stage.session.receiver("q", prefetch=10, prefetch_bytes=1_000)
        stage.rig.server.offer("q", bytes(5_000), bytes(5_000))
        stage.rig.run()
        for _ in range(2):
            message = await receiver.receive(LONG)
            assert message is not None
            await message.accept()

    run(main)


# -- recover -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ACKNOWLEDGING)
def test_recover_hands_out_again_in_order_and_the_broker_hears_the_final_outcome_alone(mode: str) -> None:
    async def main() -> None:
        stage = Tapped(mode)
        receiver = await stage.receiver(4)
        taken = await take(receiver, 3)
        await taken[1].accept()
        stage.lines()
        assert await stage.session.recover() == 2
        assert await stage.session.recover() == 0  # they wait to be handed out
        assert stage.rig.lines == []
        again = await receiver.receive_many(3, 0)  # they are there as recover returns
        assert bodies(again) == ["a", "c", "d"]
        assert [message.delivery_count for message in again] == [1, 1, 0]
        assert await stage.session.recover() == 3
        again = await take(receiver, 3)
        assert [message.delivery_count for message in again] == [2, 2, 1]
        assert stage.lines() == []
        await stage.session.settle(again, Released())
        assert stage.lines() == ["0 released", "2-3 released"]

    run(main)


def test_recover_in_a_transaction_is_refused() -> None:
    async def main() -> None:
        stage = Tapped("transacted")
        await take(await stage.receiver(1), 1)
        stage.lines()
        with pytest.raises(errors.LocalProtocolError, match="not for sessions in mode TRANSACTED: roll back"):
            await stage.session.recover()
        assert stage.lines() == []

    run(main)


@pytest.mark.parametrize("mode", ["auto", "dups_ok", "pre_ack", "no_ack"])
def test_recover_has_nothing_to_do_where_all_is_acknowledged(mode: str) -> None:
    async def main() -> None:
        stage = Tapped(mode)
        receiver = await stage.receiver(2)
        await take(receiver, 2)
        assert await stage.session.recover() == 0
        assert await receiver.receive(0) is None

    run(main)


# -- transactions ------------------------------------------------------------------------------------------------------


def test_a_commit_accepts_what_was_handed_out_just_before_it_discharges() -> None:
    async def main() -> None:
        stage = Tapped("transacted")
        receiver = await stage.receiver(3)
        assert stage.lines() == []  # nothing was done: nothing is declared
        taken = await take(receiver, 3)
        assert stage.lines() == ["transfer control"]  # declare
        await taken[1].reject()
        assert stage.lines() == ["1 rejected in transaction settled"]
        await stage.session.commit()
        assert stage.lines() == [
            "0 accepted in transaction settled",
            "2 accepted in transaction settled",
            "transfer control",
        ]

    run(main)


def test_a_rollback_drains_gives_back_and_discharges() -> None:
    async def main() -> None:
        stage = Tapped("transacted")
        receiver = await stage.receiver(3, prefetch=10)
        await take(receiver, 2)
        assert stage.lines() == ["transfer control"]
        await stage.session.rollback()
        lines = stage.lines()
        assert sorted(lines) == sorted(
            ["flow 7 drain", "0-1 failed settled", "2 released settled", "transfer control", "flow 10"]
        )
        assert lines.index("transfer control") > lines.index("flow 7 drain")  # the credit is back by then
        assert lines[-1] == "flow 10"

    run(main)


# -- delivery mode -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("default", [DeliveryMode.PERSISTENT, DeliveryMode.NON_PERSISTENT])
@pytest.mark.parametrize("wanted", [None, DeliveryMode.PERSISTENT, DeliveryMode.NON_PERSISTENT])
@pytest.mark.parametrize("message", ["text", b"data", Message("a message"), Message("a durable one", durable=True)])
def test_delivery_mode_is_the_sender_s_unless_the_message_or_the_send_says_otherwise(
    default: DeliveryMode, wanted: DeliveryMode | None, message: Message | str | bytes
) -> None:
    async def main() -> None:
        stage = Tapped()
        sender = await stage.session.sender("q", delivery_mode=default)
        stage.lines()
        await sender.send(message, delivery_mode=wanted)
        says_so = isinstance(message, Message) and message.durable
        durable = wanted is DeliveryMode.PERSISTENT if wanted else says_so or default is DeliveryMode.PERSISTENT
        assert stage.lines() == ["transfer durable" if durable else "transfer volatile"]

    run(main)


def test_delivery_mode_has_the_values_of_jms() -> None:
    assert (DeliveryMode.NON_PERSISTENT, DeliveryMode.PERSISTENT) == (1, 2)


# -- closing -----------------------------------------------------------------------------------------------------------

CLOSED = {
    "client": ["0-1 failed", "2-3 released"],
    "individual": ["0-1 failed", "2-3 released"],
    "auto": ["2-3 released settled"],
    "pre_ack": ["2-3 released settled"],
    "dups_ok": ["0-1 accepted settled", "2-3 released settled"],
    "no_ack": [],
}


@pytest.mark.parametrize("mode", CLOSED)
@pytest.mark.parametrize("what", ["receiver", "session"])
def test_what_is_said_at_the_close(mode: str, what: str) -> None:
    async def main() -> None:
        stage = Tapped(mode)
        receiver = await stage.receiver(4)
        await take(receiver, 2)
        if mode != "dups_ok":
            stage.lines()
        await (receiver if what == "receiver" else stage.session).close()
        lines = stage.lines()
        assert sorted(line for line in lines if line[0].isdigit()) == CLOSED[mode]
        ending = ["detach closed"] if what == "receiver" else ["detach closed", "end"]
        assert lines[-len(ending) :] == ending
        assert "flow 0" in lines[: len(lines) - len(ending)]  # nothing more is wanted

    run(main)


@pytest.mark.parametrize("what", ["receiver", "session"])
def test_what_is_said_at_the_close_in_a_transaction(what: str) -> None:
    """A closed receiver leaves what it handed out in the transaction; a closed session rolls it back."""

    async def main() -> None:
        stage = Tapped("transacted")
        receiver = await stage.receiver(3)
        await take(receiver, 2)
        stage.lines()
        await (receiver if what == "receiver" else stage.session).close()
        lines = [line for line in stage.lines() if line[0].isdigit()]
        if what == "receiver":
            assert sorted(lines) == ["0-1 accepted in transaction settled", "2 released settled"]
        else:
            assert sorted(lines) == ["0-1 failed settled", "2 released settled"]

    run(main)
