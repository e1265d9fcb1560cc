"""Ending in order, sends, transactions, links: what is under way comes to its end first, within one time-out for all of
it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable

from acquit.client.driver import Driver
from acquit.client.listening import stop_listeners
from acquit.client.receipts import WAITS_FOR_STORE, Milestone, Promise, SendPromise
from acquit.client.receiving import ReceiverCore
from acquit.client.sending import SenderCore
from acquit.client.session import SessionCore
from acquit.client.transacting import BY_US, SessionTransactions, Transaction
from acquit.client.waiting import Deadline, wait
from acquit.errors import AcquitError, ConfigurationError, DeliveryInDoubt, LocalProtocolError, NotSent

logger = logging.getLogger("acquit.client")


async def flush(sender: SenderCore, timeout_s: float | None) -> SendPromise | None:
    """Wait until all sends so far have ended; then return the first failed one whose error nobody has seen, for its
    `value` to raise that where the user hears of it."""
    deadline = Deadline(timeout_s)
    sends = sender.unfinished()
    for promise in sends:
        if not await wait(promise, deadline.left()):
            await asyncio.sleep(0)  # they may only wait for the loop, which is to look at them once
            if left := [promise for promise in sends if not promise.done]:
                raise _still_open(left, len(sends), timeout_s)
            break
    return sender.first_failed()


def _still_open(left: list[SendPromise], count: int, timeout_s: float | None) -> AcquitError:
    """Return the error of a flush that did not see all sends end: how many are under way, and how many still here."""
    waiting = [promise for promise in left if not promise.transferred]
    if len(left) == 1:
        return left[0].open_error(timeout_s)
    within = "" if timeout_s is None else f" within {timeout_s:g} s"
    of = f"{len(left)} of {count} sends have no outcome{within}"
    storing = all(promise.storing for promise in waiting)
    awaited = WAITS_FOR_STORE if storing else "for credit of the peer, or to be connected"
    here = f"{len(waiting)} did not leave, and still wait {awaited}"
    if len(waiting) == len(left):
        return NotSent(f"{of}: {here}")
    doubt = f"{len(left) - len(waiting)} may or may not be taken"
    return DeliveryInDoubt(f"{of}: {doubt}{f', {here}' if waiting else ''}; their receipts tell which")


def _written(sender: SenderCore) -> Milestone | None:
    try:
        return sender.written()
    except ConfigurationError:  # it is closed
        return None
    except Exception:  # of a store of the user's own, which says nothing of the others
        logger.exception("the store of %s failed as the program ends", sender.spec.what)
        return None


async def flush_at_exit(drivers: Iterable[Driver], timeout_s: float) -> None:
    """Wait for the outcomes of what these connections have sent outside of transactions, as the program ends without
    closing them; log what has none when the time is over, and what failed and nobody asked about.

    A connection that is interrupted is not waited for: it may be restored in an hour, or never. What an exactly-once
    link writes to its store is, as the next life of the program sends what is there.
    """
    deadline = Deadline(timeout_s)
    drivers = [driver for driver in drivers if driver.core.failure is None]
    sessions = [session for driver in drivers for session in driver.core.sessions if session.transactions is None]
    senders = [sender for session in sessions for sender in session.senders]
    try:
        for driver in drivers:
            driver.act()
        for written in [_written(sender) for sender in senders]:
            if written is not None:
                await wait(written, deadline.left())
        for sender in senders:
            if not sender.session.core.interrupted:
                for promise in sender.unfinished():
                    await wait(promise, deadline.left())
    finally:
        stored = [promise for sender in senders if sender.lasting for promise in sender.unfinished()]
        if kept := sum(not promise.storing for promise in stored):
            logger.warning(
                "the program ends, and %d exactly-once sends have no outcome: they are in their store, from where the "
                "next sender of the same name goes on with them",
                kept,
            )
        left = [promise for sender in senders if not sender.lasting for promise in sender.unfinished()]
        left += [promise for promise in stored if promise.storing]
        if left:
            here = sum(not promise.transferred for promise in left)
            logger.warning(
                "the program ends, and %d sends have no outcome: %d never left, %d may or may not be taken; to hear "
                "what becomes of each, flush the sender or close the connection before",
                len(left),
                here,
                len(left) - here,
            )
        for sender in senders:
            sender.warn_of_failed()


class TransactionEnd:
    """An end of a transaction that nobody has been told of yet."""

    __slots__ = ("error", "transaction")

    def __init__(self, transaction: Transaction, error: AcquitError | None) -> None:
        self.transaction = transaction
        self.error = error

    def tell(self) -> None:
        """Tell the user: raise the error, if there is one (user side). Where he is interrupted before, the next commit
        tells: between these lines, where nothing is called, Python looks for no signals."""
        error = self.error
        self.transaction.heard = True
        if error is not None:
            raise error


async def end_transaction(driver: Driver, session: SessionCore, timeout_s: float, *, commit: bool) -> TransactionEnd:
    """End the session's transaction. Returns what to `tell`: what `commit` raises; a rollback raises nothing.

    The end goes on by itself if the wait for it is cancelled. The next commit tells what became of a commit before it
    that nobody waited for: where that was not committed, neither is this one. A rollback in between tells nothing, and
    neither does the commit behind that; nor is there anything to tell of a rollback. An end that is cancelled while it
    waits for the one before it rolls back.
    """
    transactions = session.transactions
    if transactions is None:
        verb = "commit" if commit else "rollback"
        raise LocalProtocolError(f"{verb} is for sessions in mode TRANSACTED, this one is in {session.mode.name.name}")
    deadline = Deadline(timeout_s)
    driver.act()
    earlier: AcquitError | None = None
    while (before := transactions.unheard) is not None:
        if not commit:
            transactions.turn(before)
        try:
            await _ended(driver, transactions, before, deadline, timeout_s)
        except asyncio.CancelledError:  # it was not begun, and is no part of whatever comes next
            why = "the commit was cancelled while it waited for the one before it" if commit else BY_US
            transactions.current.roll_back(why)
            raise
        if before.wanted and earlier is None and (earlier := before.error()) is not None and transactions.untouched:
            return TransactionEnd(before, earlier)
        before.heard = True
    if earlier is not None:
        transactions.current.roll_back(f"the transaction was rolled back, for the commit before it failed: {earlier}")
    if commit and transactions.current.fate is None:
        session.check()
    ending = transactions.end(commit=commit)
    await _ended(driver, transactions, ending, deadline, timeout_s)
    error = ending.error() if commit else None
    if error is not None:
        error.__cause__ = earlier
    return TransactionEnd(ending, error)


async def _ended(
    driver: Driver, transactions: SessionTransactions, ending: Transaction, deadline: Deadline, timeout_s: float
) -> None:
    driver.act()
    if not await wait(ending, deadline.left()):
        transactions.give_up(ending, f" within {timeout_s:g} s")
        driver.act()


async def finish(
    driver: Driver,
    timeout_s: float,
    *,
    sessions: Iterable[SessionCore] = (),
    senders: Iterable[SenderCore] = (),
    receivers: Iterable[ReceiverCore] = (),
) -> tuple[list[SenderCore], list[ReceiverCore]]:
    """Bring links, and all those of `sessions`, to the point where they can be detached. Returns them.

    Listeners are stopped first, as their handlers may need all the rest. Then nothing new is taken; what is left with
    receivers gets its outcome; sends wait for their outcomes and acknowledgements for their answers.
    """
    deadline = Deadline(timeout_s)
    sessions = list(sessions)
    receivers = list(receivers)
    await stop_listeners([*receivers, *(receiver for session in sessions for receiver in session.receivers)], deadline)
    senders = [*senders, *(sender for session in sessions for sender in session.senders)]
    receivers += [receiver for session in sessions for receiver in session.receivers]
    driver.act()
    for session in sessions:
        session.closing = True
    for session in sessions:
        if session.transactions is not None:
            await end_transaction(driver, session, max(0.0, deadline.left() or 0.0), commit=False)
    for sender in senders:
        sender.closing = True
    for receiver in receivers:
        whose = receiver.session
        assert isinstance(whose, SessionCore)
        try:
            whose.settle_leftovers(receiver)
        except ConfigurationError as exc:  # a store that is closed: the link is to be closed all the same
            logger.warning("what %s holds stays with it at the broker until it is resumed: %s", receiver.spec.what, exc)
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
