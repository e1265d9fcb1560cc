"""Asking a real broker what became of a transaction."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

import acquit
from acquit import TransactionFate


@pytest.fixture
def broker() -> Iterator[acquit.Broker]:
    with acquit.Broker() as broker:
        yield broker


def begun(connection: acquit.Connection) -> tuple[acquit.Session, bytes]:
    """A transacted session with a message in its transaction."""
    session = connection.session("transacted")
    session.sender("q").send("x")
    assert session._core.transactions is not None
    txn_id = session._core.transactions.current.txn_id
    assert txn_id is not None
    return session, txn_id


@pytest.mark.promise("transactions")
def test_what_was_committed_and_what_was_not(broker: acquit.Broker) -> None:
    with acquit.connect(broker.url) as connection, acquit.connect(broker.url) as asker:
        session, committed = begun(connection)
        session.commit()
        session, rolled_back = begun(connection)
        session.rollback()
        assert asker.transaction_fate(committed) is TransactionFate.COMMITTED
        assert asker.transaction_fate(rolled_back) is TransactionFate.ROLLED_BACK
        assert asker.transaction_fate(bytes(16)) is TransactionFate.UNKNOWN
        assert connection.transaction_fate(committed) is TransactionFate.COMMITTED


@pytest.mark.promise("transactions")
def test_to_ask_about_a_live_one_ends_it(broker: acquit.Broker) -> None:
    with acquit.connect(broker.url) as connection, acquit.connect(broker.url) as asker:
        session, txn_id = begun(connection)
        assert asker.transaction_fate(txn_id) is TransactionFate.ROLLED_BACK
        with pytest.raises((acquit.TransactionRolledBack, acquit.EndpointError)):
            session.commit()
        assert asker.transaction_fate(txn_id) is TransactionFate.ROLLED_BACK


def test_asyncio(broker: acquit.Broker) -> None:
    async def main() -> None:
        async with acquit.aio.connect(broker.url) as connection, connection.session("transacted") as session:
            sender = await session.sender("q")
            await sender.send("x")
            assert session._core.transactions is not None
            txn_id = session._core.transactions.current.txn_id
            assert txn_id is not None
            await session.commit()
            assert await connection.transaction_fate(txn_id) is TransactionFate.COMMITTED

    asyncio.run(main())


def test_what_names_no_transaction(broker: acquit.Broker) -> None:
    with (
        acquit.connect(broker.url) as connection,
        pytest.raises(acquit.ConfigurationError, match="txn_id"),
    ):
        connection.transaction_fate("00")  # type: ignore[arg-type]
