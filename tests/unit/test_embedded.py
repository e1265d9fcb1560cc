"""A broker inside the process."""

from __future__ import annotations

import threading
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import acquit
from acquit.broker.options import AddressRule, BrokerOptions
from acquit.errors import AcquitError, ConfigurationError, NotFound, StoreLocked
from acquit.store.options import JournalOptions


def threads() -> Counter[str]:
    """The threads there are, by name: other tests share a broker of their own."""
    return Counter(thread.name for thread in threading.enumerate() if thread.name == "acquit-broker")


def test_what_was_sent_is_there_after_a_restart(tmp_path: Path) -> None:
    for expected in ([], [b"one"]):
        with acquit.Broker(tmp_path) as broker, acquit.connect(broker.url) as connection:
            receiver = connection.session().receiver("orders", prefetch=0)
            received = receiver.receive(timeout=5 if expected else 0.01)
            assert [received.body] if received is not None else expected == []
            connection.session().sender("orders").send(b"one", timeout=20)


def test_a_temporary_folder_goes_with_it() -> None:
    with acquit.Broker() as broker, acquit.connect(broker.url) as connection:
        connection.session().sender("orders").send(b"one", timeout=20)
        assert broker.inspect().queue("orders") is not None
        folder = Path(broker._temporary.name)  # type: ignore[union-attr]
        assert folder.is_dir()
    assert not folder.exists()


def test_closing_twice_is_closing_once_and_afterwards_it_says_so() -> None:
    before = threads()
    broker = acquit.Broker()
    broker.close()
    broker.close()
    with pytest.raises(AcquitError, match="closed"):
        broker.inspect()
    assert threads() == before


def test_a_folder_has_one_broker(tmp_path: Path) -> None:
    with acquit.Broker(tmp_path):
        running = threads()
        with pytest.raises(StoreLocked):
            acquit.Broker(tmp_path)
        assert threads() == running


def test_options() -> None:
    options = BrokerOptions(address=(AddressRule("closed.#", {"create": False}),))
    with acquit.Broker(config=options) as broker, acquit.connect(broker.url) as connection:
        session = connection.session()
        with pytest.raises(NotFound):
            session.sender("closed.orders")
        session.sender("open.orders")


def test_time_passes_at_once() -> None:
    """What is to happen later has happened when `advance` returns, and nothing a moment earlier."""
    rule = AddressRule("jobs", {"lock_duration_ms": 3_600_000, "redelivery_delay_ms": 60_000})
    with (
        acquit.Broker(config=BrokerOptions(address=(rule,))) as broker,
        acquit.connect(broker.url) as connection,
        connection.session("individual") as session,
    ):
        sender = session.sender("jobs")

        def depths() -> tuple[int, int]:
            queue, expired = broker.inspect().queue("jobs"), broker.inspect().queue("ExpiryQueue")
            assert queue is not None
            return queue.depth, expired.depth if expired is not None else 0

        sender.send(acquit.Message("an hour at most", ttl_ms=3_600_000), timeout=20)
        assert depths() == (1, 0)
        broker.advance(3_500_000)
        assert depths() == (1, 0)
        broker.advance(200_000)
        assert depths() == (0, 1)

        sender.send(acquit.Message("tomorrow", annotations={"x-opt-delivery-delay": 86_400_000}), timeout=20)
        receiver = session.receiver("jobs")
        assert receiver.receive(0.01) is None
        broker.advance(86_400_000)
        held = receiver.receive(20)
        assert held is not None
        broker.advance(3_600_000)  # its lock is over, and it waits for its redelivery
        assert receiver.receive(0.01) is None
        broker.advance(60_000)
        again = receiver.receive(20)
        assert again is not None
        assert (again.body, again.delivery_count) == ("tomorrow", 1)
        assert held.accept().status is acquit.ReceiptStatus.STALE
        assert again.accept().status is acquit.ReceiptStatus.APPLIED


@pytest.mark.parametrize("by_ms", [-1, 0.5, "1", None, True])
def test_time_that_makes_no_sense(by_ms: int) -> None:
    with acquit.Broker() as broker, pytest.raises(ConfigurationError, match="by_ms must be a whole number"):
        broker.advance(by_ms)


@pytest.mark.parametrize("kind", [str, Path])
def test_options_in_a_file(tmp_path: Path, kind: type[str | Path]) -> None:
    file = tmp_path / "broker.toml"
    file.write_text('[[address]]\nmatch = "closed"\ncreate = false\n')
    with acquit.Broker(config=kind(file)) as broker, acquit.connect(broker.url) as connection:
        session = connection.session()
        with pytest.raises(NotFound):
            session.sender("closed")


def disk_space(folder: Path) -> int:
    found = 0
    for file in folder.rglob("*"):
        with suppress(FileNotFoundError):  # the broker renames a segment when it is prewritten
            found += file.stat().st_blocks * 512
    assert found
    return found


def test_options_that_say_nothing_of_the_journal_leave_it_small_in_a_temporary_folder() -> None:
    options = BrokerOptions(address=(AddressRule("closed.#", {"create": False}),))
    with acquit.Broker(config=options) as broker, acquit.connect(broker.url) as connection:
        connection.session().sender("orders").send(b"one", timeout=20)
        assert disk_space(Path(broker._temporary.name)) < 60_000_000  # type: ignore[union-attr]


def test_options_that_say_something_of_the_journal_are_followed() -> None:
    journal = JournalOptions(spare_segments=2)
    assert BrokerOptions(journal=journal).with_small_journal().journal is journal


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"config": 5}, "config must be BrokerOptions or the path of a TOML file, got 5"),
        ({"config": {"limits": {}}}, "config must be BrokerOptions or the path of a TOML file, got {'limits': {}}"),
        ({"config": "/nowhere/broker.toml"}, "/nowhere/broker.toml: cannot be read: No such file or directory"),
        ({"data": 5}, "data must be the path of a folder or None, got 5"),
        ({"data": ""}, "data must be the path of a folder or None, got ''"),
        ({"host": None}, "host must be a name or an address, got None"),
        ({"port": "5672"}, "port must be a whole number from 0 to 65535, got '5672'"),
        ({"port": 65_536}, "port must be a whole number from 0 to 65535, got 65536"),
    ],
)
def test_arguments_that_make_no_sense_start_no_thread(arguments: dict[str, Any], said: str) -> None:
    before = threads()
    with pytest.raises(ConfigurationError) as caught:
        acquit.Broker(**arguments)
    assert str(caught.value) == said
    assert threads() == before
