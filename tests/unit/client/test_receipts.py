from __future__ import annotations

import pytest

from acquit import errors
from acquit.client.failures import Failure
from acquit.client.receipts import Milestone, Promise, ReceiptStatus, SendPromise, SettlementReceipt
from acquit.protocol.definitions import Accepted, Error, Rejected

LOST = Failure(errors.ConnectionLost, "lost")


class Counter:
    def __init__(self) -> None:
        self.calls = 0

    def __call__(self) -> None:
        self.calls += 1


def test_a_callback_left_before_the_end_is_called_at_it() -> None:
    promise, first, second = Promise(), Counter(), Counter()
    promise.when_done(first)
    promise.when_done(second)
    assert (promise.done, first.calls) == (False, 0)
    promise.end()
    assert (promise.done, first.calls, second.calls) == (True, 1, 1)


def test_a_callback_left_after_the_end_is_called_at_once() -> None:
    promise, late = Promise(), Counter()
    promise.end()
    promise.when_done(late)
    assert late.calls == 1


def test_a_callback_can_be_taken_back() -> None:
    promise, callback = Promise(), Counter()
    promise.forget(callback)
    promise.when_done(callback)
    promise.forget(callback)
    promise.end()
    assert callback.calls == 0


def test_an_end_between_the_two_steps_of_who_waits_is_not_missed() -> None:
    """The loop's thread ends it after the callback was left and before `done` is looked at."""
    promise, callback = Promise(), Counter()

    class EndsWhenAppendedTo(list[object]):
        def append(self, item: object) -> None:
            super().append(item)
            promise.end()

    promise._callbacks = EndsWhenAppendedTo()  # type: ignore[assignment]
    promise.when_done(callback)
    assert callback.calls >= 1


def test_a_milestone_is_reached_once() -> None:
    milestone = Milestone()
    milestone.check()
    milestone.fail(LOST)
    milestone.succeed()
    milestone.fail(Failure(errors.NotFound, "later"))
    with pytest.raises(errors.ConnectionLost, match="lost"):
        milestone.check()
    fine = Milestone()
    fine.succeed()
    fine.fail(LOST)
    fine.check()


@pytest.mark.parametrize(
    ("notes", "status", "reason"),
    [
        ([(ReceiptStatus.APPLIED, 3, None)], ReceiptStatus.APPLIED, None),
        ([(ReceiptStatus.APPLIED, 2, None), (ReceiptStatus.SENT, 1, None)], ReceiptStatus.SENT, None),
        ([(ReceiptStatus.STALE, 1, "late"), (ReceiptStatus.ANSWERED, 2, None)], ReceiptStatus.STALE, "late"),
        (
            [(ReceiptStatus.STALE, 1, "late"), (ReceiptStatus.UNKNOWN, 1, "lost"), (ReceiptStatus.SENT, 1, None)],
            ReceiptStatus.UNKNOWN,
            "lost",
        ),
    ],
)
def test_a_receipt_tells_the_worst_when_all_is_known(
    notes: list[tuple[ReceiptStatus, int, str | None]], status: ReceiptStatus, reason: str | None
) -> None:
    receipt = SettlementReceipt(3)
    for note in notes:
        assert receipt.status is None
        receipt.note(*note)
    assert (receipt.done, receipt.status, receipt.reason) == (True, status, reason)
    receipt.note(ReceiptStatus.UNKNOWN, 1, "too late to matter")
    assert receipt.status is status


def test_a_receipt_over_nothing_claims_little() -> None:
    receipt = SettlementReceipt(0)
    assert (receipt.done, receipt.status, receipt.count) == (True, ReceiptStatus.SENT, 0)


def test_a_receipt_expires_over_what_is_still_awaited() -> None:
    receipt = SettlementReceipt(5)
    receipt.note(ReceiptStatus.APPLIED, 4)
    receipt.expire("no answer")
    assert (receipt.status, receipt.reason) == (ReceiptStatus.UNKNOWN, "no answer")


def test_what_receipts_look_like() -> None:
    receipt = SettlementReceipt(2)
    assert repr(receipt) == "<SettlementReceipt awaited of 2>"
    receipt.note(ReceiptStatus.STALE, 2, "late")
    assert repr(receipt) == "<SettlementReceipt STALE of 2: late>"
    send = SendPromise(b"")
    assert repr(send) == "<SendPromise waits for credit>"
    send.transferred = True
    assert repr(send) == "<SendPromise in flight>"
    send.settle(Accepted())
    assert repr(send) == "<SendPromise accepted>"


def test_each_who_asks_a_failed_send_gets_an_exception_of_his_own() -> None:
    send = SendPromise(b"")
    send.settle(Rejected(Error("amqp:not-allowed")))
    assert send.error() is not send.error()
    assert not send.asked
    with pytest.raises(errors.MessageRejected, match=r"no description \(amqp:not-allowed\)"):
        send.value()
    assert send.asked


def test_a_send_that_has_its_outcome_keeps_it() -> None:
    send = SendPromise(b"")
    send.settle(Accepted())
    send.fail(LOST)
    assert send.value() == Accepted()
