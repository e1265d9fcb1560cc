"""Closing in order: what is under way comes to its end first, within one time-out for all of it."""

from __future__ import annotations

from collections.abc import Iterable

from acquit.client.core import SessionCore
from acquit.client.driver import Driver
from acquit.client.receipts import Promise
from acquit.client.receiving import ReceiverCore
from acquit.client.sending import SenderCore
from acquit.client.waiting import Deadline, wait
from acquit.errors import DeliveryInDoubt


async def flush(sender: SenderCore, timeout_s: float | None) -> None:
    """Wait until all sends so far have ended; then raise the first error that nobody has seen."""
    deadline = Deadline(timeout_s)
    for promise in sender.unfinished():
        if not await wait(promise, deadline.left()):
            raise still_in_doubt(timeout_s)
    if (failed := sender.first_failed()) is not None:
        failed._value()


def still_in_doubt(timeout_s: float | None) -> DeliveryInDoubt:
    """What a send raises that has no outcome in time."""
    within = "" if timeout_s is None else f" within {timeout_s:g} s"
    return DeliveryInDoubt(f"no outcome{within}: the message may or may not be taken")


async def finish(
    driver: Driver,
    timeout_s: float,
    *,
    sessions: Iterable[SessionCore] = (),
    senders: Iterable[SenderCore] = (),
    receivers: Iterable[ReceiverCore] = (),
) -> tuple[list[SenderCore], list[ReceiverCore]]:
    """Bring links, and all those of `sessions`, to the point where they can be detached. Returns them.

    Nothing new is taken; what is left with receivers gets its outcome; sends wait for their outcomes and
    acknowledgements for their answers.
    """
    deadline = Deadline(timeout_s)
    sessions = list(sessions)
    senders = [*senders, *(sender for session in sessions for sender in session.senders)]
    receivers = [*receivers, *(receiver for session in sessions for receiver in session.receivers)]
    driver.act()
    for session in sessions:
        session.closing = True
    for sender in senders:
        sender.closing = True
    for receiver in receivers:
        receiver.session.settle_leftovers(receiver)
    driver.act()
    under_way: list[Promise] = [promise for sender in senders for promise in sender.unfinished()]
    under_way += [receipt for receiver in receivers for receipt in receiver.open_receipts()]
    for promise in under_way:
        await wait(promise, deadline.left())
    for sender in senders:
        sender.warn_of_failed()
    return senders, receivers


async def close(
    driver: Driver,
    timeout_s: float,
    *,
    sessions: Iterable[SessionCore] = (),
    senders: Iterable[SenderCore] = (),
    receivers: Iterable[ReceiverCore] = (),
) -> None:
    """`finish`, then detach the links and end the sessions."""
    deadline = Deadline(timeout_s)
    sessions = list(sessions)
    links = await finish(driver, timeout_s, sessions=sessions, senders=senders, receivers=receivers)
    over: list[Promise] = []
    for sender in links[0]:
        sender.detach()
        over.append(sender.detached)
    for receiver in links[1]:
        receiver.detach()
        over.append(receiver.detached)
    for session in sessions:
        session.end()
        over.append(session.ended)
    driver.act()
    for promise in over:
        await wait(promise, deadline.left())
