"""The source's links against a real broker: what is drained, settled, given back, and told."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import acquit
from acquit.broker.options import AddressRule, BrokerOptions, ConnectionLimits
from acquit.client import receiving
from acquit.client.blocking import Receiver
from acquit.errors import ConfigurationError, LinkDetached, NotFound
from acquit.protocol.message import Message
from acquit.spark import link as link_module
from acquit.spark.link import QueueDrain, QueueProbe, check_poison
from acquit.spark.source_options import SourceOptions
from acquit.spark.spool import Numbers, Outcome

MANY = 1 << 20


def options(url: str, address: str, **more: str) -> SourceOptions:
    return SourceOptions.parse({"url": url, "address": address, "spool": "/nowhere", "drainTimeout": "30s"} | more)


def post(url: str, address: str, *bodies: str, size: int = 0, **fields: object) -> None:
    with acquit.connect(url) as connection, connection.session() as session:
        sender = session.sender(address)
        for body in bodies:
            sender.send(Message(body.ljust(size), **fields), wait=False)  # type: ignore[arg-type]
        sender.flush()


def drain_all(drain: QueueDrain, rows_max: int = 100) -> list[bytes]:
    found: list[bytes] = []
    while len(found) < rows_max and (received := drain.receive(rows_max - len(found))):
        found += received
    return found


@pytest.fixture
def probe(broker: acquit.Broker, address: str) -> Iterator[QueueProbe]:
    probe = QueueProbe(options(broker.url, address))
    yield probe
    probe.close()


def test_a_drain_ends_at_the_end_of_the_queue_without_waiting_for_its_time(
    broker: acquit.Broker, address: str, probe: QueueProbe
) -> None:
    post(broker.url, address, *"abcde")
    drain = QueueDrain(options(broker.url, address), address, 100, MANY)
    assert len(drain_all(drain)) == 5 and drain.exhausted
    assert probe.available(address) == 0, "held"
    assert drain.broker_id == probe.broker_id is not None
    drain.detach()
    drain.detach()
    assert probe.available(address) == 5, "and given back"


def test_what_goes_back_is_not_counted_as_an_attempt(broker: acquit.Broker, address: str) -> None:
    post(broker.url, address, "a")
    for _ in range(3):
        drain = QueueDrain(options(broker.url, address), address, 10, MANY)
        drain.receive(10)
        drain.detach()
    with acquit.connect(broker.url) as connection, connection.session() as session:
        message = session.receiver(address).receive(10)
    assert message is not None and message.delivery_count == 0


def test_no_more_than_asked_for_is_acquired(broker: acquit.Broker, address: str, probe: QueueProbe) -> None:
    post(broker.url, address, *"abcde")
    drain = QueueDrain(options(broker.url, address), address, 3, MANY)
    assert len(drain_all(drain, 3)) == 3
    assert probe.available(address) == 2
    drain.detach()


def test_a_broker_that_holds_more_back_than_it_gives_is_not_exhausted(tmp_path: Path, address: str) -> None:
    with acquit.Broker(tmp_path / "data", config=BrokerOptions(connection=ConnectionLimits(unsettled_max=3))) as broker:
        post(broker.url, address, *"abcde")
        first = QueueDrain(options(broker.url, address), address, 100, MANY)
        assert len([one for _ in range(3) for one in first.receive(100)]) == 3
        assert not first.receive(100) and not first.exhausted
        assert first.settle({Outcome.ACCEPTED: range(3)})
        first.detach()
        rest = QueueDrain(options(broker.url, address), address, 100, MANY)
        assert len(drain_all(rest)) == 2 and rest.exhausted
        rest.detach()


def test_any_limit_in_bytes_can_be_asked_for(broker: acquit.Broker, address: str) -> None:
    post(broker.url, address, "a")
    drain = QueueDrain(options(broker.url, address), address, 100, 1_000 << 30)
    assert len(drain_all(drain)) == 1
    drain.detach()


def test_a_limit_in_bytes_does_not_stall_before_it_is_reached(broker: acquit.Broker, address: str) -> None:
    post(broker.url, address, *map(str, range(50)), size=1_000)
    drain = QueueDrain(options(broker.url, address), address, 50, 20_000)
    size = 0
    while size < 20_000:
        received = drain.receive(50)
        assert received, "the client's limit must not be met first"
        size += sum(map(len, received))
    drain.detach()


def test_the_first_message_is_waited_for_when_the_time_is_up(
    broker: acquit.Broker, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A large one takes longer than a short limit: attempt after attempt gave it back half transferred."""
    post(broker.url, address, "a", "b", size=1 << 20)
    now = time.monotonic()
    monkeypatch.setattr(link_module, "time", SimpleNamespace(monotonic=lambda: now))
    drain = QueueDrain(options(broker.url, address, drainTimeout="1ms"), address, 1, MANY)
    now += 1
    assert len(drain.receive(1)) == 1
    assert drain.receive(1) == [] and not drain.exhausted
    drain.detach()


def test_when_the_time_is_up_the_broker_is_asked_whether_there_was_nothing(
    broker: acquit.Broker, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.monotonic()
    monkeypatch.setattr(link_module, "time", SimpleNamespace(monotonic=lambda: now))
    drain = QueueDrain(options(broker.url, address, drainTimeout="1ms"), address, 1, MANY)
    now += 1
    assert drain.receive(1) == [] and drain.exhausted
    drain.detach()


def test_a_limit_in_time_ends_a_drain_with_messages_left(
    broker: acquit.Broker, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    post(broker.url, address, *"abcde")
    now = time.monotonic()
    monkeypatch.setattr(link_module, "time", SimpleNamespace(monotonic=lambda: now))
    drain = QueueDrain(options(broker.url, address, drainTimeout="3s"), address, 100, MANY)
    found = list(drain.receive(1))
    assert len(found) == 1
    now += 1
    found += drain.receive(1)
    assert len(found) == 2
    now += 2.1
    assert drain.receive(1) == [] and not drain.exhausted, "there is more: the part has not come to the end"
    drain.detach()


def test_outcomes_arrive(broker: acquit.Broker, address: str, probe: QueueProbe) -> None:
    post(broker.url, address, "good", "bad", "good")
    drain = QueueDrain(options(broker.url, address), address, 10, MANY)
    received = []
    while batch := drain.receive(10):
        received += batch
    bad = [number for number, one in enumerate(received) if b"bad" in one]
    good = [number for number in range(3) if number not in bad]
    assert drain.settle({Outcome.ACCEPTED: good, Outcome.REJECTED: bad})
    drain.detach()
    assert probe.available(address) == 0
    with acquit.connect(broker.url) as connection, connection.session() as session:
        # Other tests reject as well: look for ours among theirs.
        dead_letters = session.receiver("DLQ", browse=True, prefetch=1000)
        assert dead_letters.drain(10)
        origins = [dead.annotations["x-opt-ORIG-ADDRESS"] for dead in dead_letters.receive_many(1000, timeout=0)]
    assert origins.count(address) == 1


def test_settling_brings_nothing_more(broker: acquit.Broker, address: str, probe: QueueProbe) -> None:
    """It gives credit back. What came for that would go back with the link, and be told as come before."""
    post(broker.url, address, *(str(number) for number in range(40)))
    drain = QueueDrain(options(broker.url, address), address, 10, MANY)
    assert len(drain.receive(10)) == 10
    assert drain.settle({Outcome.ACCEPTED: range(10)})
    assert probe.available(address) == 30, "none of them is held"
    assert drain.settle({})
    drain.detach()
    with acquit.connect(broker.url) as connection, connection.session("individual") as session:
        receiver = session.receiver(address)
        assert [receiver.receive(10).redelivered for _ in range(30)] == [False] * 30  # type: ignore[union-attr]


def test_the_probe_takes_nothing_and_knows_the_last_sequence(
    broker: acquit.Broker, address: str, probe: QueueProbe
) -> None:
    assert probe.available(address) == 0
    post(broker.url, address, "a", "b")
    assert probe.available(address) == 2
    last = probe.last_sequence()
    post(broker.url, address, "c")
    assert last is not None and probe.last_sequence() == last + 1
    assert probe.available(address) == 3


def test_what_is_behind_newer_messages_is_seen_and_taken(
    broker: acquit.Broker, address: str, probe: QueueProbe
) -> None:
    post(broker.url, address, "a", "b")
    last = probe.last_sequence()
    assert last is not None
    post(broker.url, address, "c", "d", "e", priority=9)
    plain = QueueDrain(options(broker.url, address), address, 2, MANY)
    assert [one[-1:] for one in drain_all(plain, 2)] == [b"c", b"d"]
    plain.detach()
    assert probe.older(address, last) and not probe.older(address, last - 2)
    drain = QueueDrain(options(broker.url, address), address, 100, MANY, only_until=last)
    assert [one[-1:] for one in drain_all(drain)] == [b"a", b"b"] and drain.exhausted
    assert not probe.older(address, last), "held"
    drain.detach()
    assert probe.older(address, last) and probe.available(address) == 5


def test_a_queue_that_has_one_browser_alone_is_asked_what_is_older(address: str) -> None:
    rule = AddressRule(address, {"browsers_max": 1})
    with acquit.Broker(config=BrokerOptions(address=(rule,))) as broker:
        post(broker.url, address, "a")
        probe = QueueProbe(options(broker.url, address))
        last = probe.last_sequence()
        assert last is not None and probe.available(address) == 1
        assert probe.older(address, last) and not probe.older(address, last - 1)
        assert probe.available(address) == 1
        probe.close()
        with acquit.connect(broker.url) as connection, connection.session("no-ack") as session:
            session.receiver(address, browse=True, prefetch=0)
            assert not probe.older(address, last), "what is left is for another run"


def test_a_connection_that_is_lost_while_what_is_older_is_asked_for_is_made_again(
    broker: acquit.Broker, address: str, probe: QueueProbe, monkeypatch: pytest.MonkeyPatch
) -> None:
    post(broker.url, address, "a")
    last = probe.last_sequence()
    assert last is not None
    drain, lost = Receiver.drain, list[int]()

    def cut(self: Receiver, timeout: float | None = None) -> bool:
        if not lost:
            lost.append(1)
            assert probe._connection is not None
            probe._connection.close()
        return drain(self, timeout)

    monkeypatch.setattr(Receiver, "drain", cut)
    assert probe.older(address, last) and lost


def test_a_first_message_is_waited_for_where_the_broker_does_not_say_that_there_is_none(
    broker: acquit.Broker, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link_module, "broker_id", lambda connection: None)
    drain = QueueDrain(options(broker.url, address, drainTimeout="1ms"), address, 1, MANY)

    def silent(self: Receiver, timeout: float | None = None) -> bool:
        post(broker.url, address, "a")
        return False

    monkeypatch.setattr(Receiver, "drain", silent)
    assert len(drain.receive(1)) == 1
    drain.detach()


def test_of_older_messages_those_count_that_the_selector_selects(broker: acquit.Broker, address: str) -> None:
    for number, colour in enumerate(("red", "green", "blue")):
        post(broker.url, address, str(number), application_properties={"colour": colour})
    chosen = options(broker.url, address, selector="colour = 'blue' OR colour = 'green'")
    probe = QueueProbe(chosen)
    last = probe.last_sequence()
    assert last is not None
    assert [probe.older(address, last - back) for back in range(3)] == [True, True, False]
    drain = QueueDrain(chosen, address, 100, MANY, only_until=last - 1)
    assert [one[-1:] for one in drain_all(drain)] == [b"1"]
    drain.detach()
    probe.close()
    assert probe.older(address, last), "it connects again"
    probe.close()


def test_a_broker_that_goes_away_ends_a_drain_and_settles_nothing(tmp_path: Path, address: str) -> None:
    with acquit.Broker(tmp_path / "data") as broker:
        post(broker.url, address, "a", "b")
        drain = QueueDrain(options(broker.url, address), address, 10, MANY)
        received = drain.receive(10)
        assert received
    assert drain_all(drain) == [] and not drain.exhausted
    assert not drain.settle({Outcome.ACCEPTED: range(len(received))})
    drain.detach()


def test_a_link_that_ends_before_the_first_message_says_why(broker: acquit.Broker, address: str) -> None:
    drain = QueueDrain(options(broker.url, address), address, 10, MANY)
    drain.detach()
    with pytest.raises(acquit.AcquitError):
        drain.receive(10)


class Scripted:
    """A receiver that gives lists of messages, one after the other, and then has lost its link."""

    def __init__(self, *given: list[bytes]) -> None:
        self._given = list(given)

    def receive_payloads(self, max_messages: int, timeout: float) -> list[bytes]:
        if not self._given:
            raise LinkDetached("the link is lost")
        assert len(self._given[0]) <= max_messages
        return self._given.pop(0)


def test_a_link_that_is_lost_in_the_middle_of_a_lot_gives_what_came(broker: acquit.Broker, address: str) -> None:
    drain = QueueDrain(options(broker.url, address), address, 10, MANY)
    drain._receiver = Scripted([b"a", b"b"], [b"c"])  # type: ignore[assignment]
    assert drain.receive(10) == [b"a", b"b", b"c"]
    assert drain.receive(7) == [] and not drain.exhausted
    drain.detach()


def test_messages_are_handed_on_when_there_are_enough_for_a_lot(
    broker: acquit.Broker, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link_module, "_LOT_ROWS", 3)
    drain = QueueDrain(options(broker.url, address), address, 100, 1_000)
    drain._receiver = Scripted([b"a", b"b"], [b"c"], [b"d" * 1_000], [b"e"], [], [b"f"])  # type: ignore[assignment]
    lots = [[one[:1] for one in drain.receive(100)] for _ in range(4)]
    assert lots == [[b"a", b"b", b"c"], [b"d"], [b"e"], [b"f"]]
    drain.detach()


def test_rejecting_elsewhere_needs_a_promise(address: str) -> None:
    with pytest.raises(ConfigurationError, match="Say rejectIsDeadLetter = true"):
        check_poison(options("amqp://host", address, poison="reject"), None)
    check_poison(options("amqp://host", address, poison="reject", rejectIsDeadLetter="true"), None)


def test_an_address_that_may_not_be_created_is_named(tmp_path: Path) -> None:
    config = BrokerOptions(address=(AddressRule("#", {"create": False}),))
    with acquit.Broker(tmp_path / "data", config=config) as broker, pytest.raises(NotFound, match="absent"):
        QueueDrain(options(broker.url, "absent"), "absent", 10, MANY)


def test_a_selector_takes_what_it_selects_and_leaves_the_rest(
    broker: acquit.Broker, address: str, probe: QueueProbe
) -> None:
    with acquit.connect(broker.url) as connection, connection.session() as session:
        sender = session.sender(address)
        for number in range(6):
            sender.send(Message(str(number), application_properties={"odd": bool(number % 2)}))
    drain = QueueDrain(options(broker.url, address, selector="odd"), address, 100, MANY)
    received = drain_all(drain)
    assert len(received) == 3 and drain.exhausted
    assert probe.available(address) == 3
    drain.detach()


def test_a_selector_is_refused_where_the_broker_does_not_apply_it(
    broker: acquit.Broker, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As brokers that know none answer: without the filter.
    monkeypatch.setattr(receiving, "not_applied", lambda asked, granted, peer: ["jms-selector"])
    with pytest.raises(ConfigurationError, match=f"option selector: the broker at {broker.url} does not apply"):
        QueueDrain(options(broker.url, address, selector="odd"), address, 100, MANY)


def test_a_selector_that_is_none_is_named_before_there_is_a_message(broker: acquit.Broker, address: str) -> None:
    probe = QueueProbe(options(broker.url, address, selector="odd ="))
    for ask in (lambda: probe.available(address), probe.last_sequence):
        with pytest.raises(ConfigurationError, match="option selector = 'odd =': .*character 6: found the end"):
            ask()
    probe.close()
    good = QueueProbe(options(broker.url, address, selector="odd"))
    assert good.available(address) == 0
    good.close()


def test_a_selector_that_is_none_is_named(broker: acquit.Broker, address: str) -> None:
    with pytest.raises(acquit.AcquitError, match="selector, character 6: found the end"):
        QueueDrain(options(broker.url, address, selector="odd ="), address, 100, MANY)


def test_the_probe_of_several_addresses_tells_them_apart(broker: acquit.Broker, address: str) -> None:
    post(broker.url, f"{address}.b", "x", "y")
    several = {"url": broker.url, "addresses": f"{address}.a,{address}.b", "spool": "/nowhere"}
    probe = QueueProbe(SourceOptions.parse(several))
    assert (probe.available(f"{address}.a"), probe.available(f"{address}.b")) == (0, 2)
    last = probe.last_sequence()
    post(broker.url, f"{address}.a", "z")
    assert (probe.available(f"{address}.a"), probe.available(f"{address}.b")) == (1, 2)
    assert last is not None and probe.last_sequence() == last + 1
    probe.close()


def test_the_probe_asks_for_queues_that_are_not_there_once_and_only_if_told_to(
    broker: acquit.Broker, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asks = QueueProbe(options(broker.url, address, create="false"))
    with pytest.raises(ConfigurationError, match=f"there is no queue '{address}'"):
        asks.last_sequence()
    assert all(queue.name != address for queue in broker.inspect().queues)
    post(broker.url, address, "a")
    assert asks.available(address) == 1
    asks.close()
    other = QueueProbe(options(broker.url, f"{address}.other"))
    assert other.available(f"{address}.other") == 0, "a stream waits for its producers"
    other.close()
    monkeypatch.setattr(link_module, "check_beforehand", pytest.fail)
    assert asks.available(address) == 1, "a queue that goes later, as by auto_delete, ends no stream"
    asks.close()


def test_a_broker_that_does_not_tell_is_asked_for_nothing(
    broker: acquit.Broker, address: str, probe: QueueProbe, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some brokers refuse to be browsed, and none but acquit says how much there is."""
    monkeypatch.setattr(link_module, "broker_id", lambda connection: None)
    monkeypatch.setattr(acquit.client.blocking.Session, "receiver", pytest.fail)
    assert (probe.available(address), probe.last_sequence()) == (None, None)


def body_of(payload: bytes) -> object:
    return Message.decode(payload).body


def test_thousands_are_settled_together_with_others_in_the_middle(
    broker: acquit.Broker, address: str, probe: QueueProbe
) -> None:
    """Rows that are rejected, and rows that are not kept and so go back, cut what came together."""
    post(broker.url, address, *map(str, range(4_000)))
    drain = QueueDrain(options(broker.url, address), address, 4_000, MANY)
    assert [body_of(payload) for payload in drain_all(drain, 4_000)] == [*map(str, range(4_000))]
    rejected = np.array([0, 777, 778, 1_500, 3_000])
    accepted = np.setdiff1d(np.arange(3_500), rejected)
    assert drain.settle({Outcome.ACCEPTED: accepted, Outcome.REJECTED: rejected})
    drain.detach()
    assert probe.available(address) == 500
    rest = QueueDrain(options(broker.url, address), address, 4_000, MANY)
    assert [body_of(payload) for payload in drain_all(rest, 4_000)] == [*map(str, range(3_500, 4_000))]
    rest.detach()
    with acquit.connect(broker.url) as connection, connection.session("individual") as session:
        dead_letters = session.receiver("DLQ", browse=True, prefetch=1_000)
        assert dead_letters.drain(10)
        dead = [one for one in dead_letters.receive_many(1_000, 0) if one.annotations["x-opt-ORIG-ADDRESS"] == address]
    assert sorted(int(str(one.body)) for one in dead) == rejected.tolist()


def test_thousands_whose_broker_goes_away_are_settled_by_nobody(tmp_path: Path, address: str) -> None:
    with acquit.Broker(tmp_path / "data") as broker:
        post(broker.url, address, *map(str, range(2_000)))
        drain = QueueDrain(options(broker.url, address), address, 2_000, MANY)
        assert len(drain_all(drain, 1_500)) == 1_500
        assert drain.settle({Outcome.ACCEPTED: range(500)})
    assert not drain.settle({Outcome.ACCEPTED: range(500, 1_500)})
    assert drain_all(drain, 500) == [] and not drain.exhausted
    drain.detach()
    with acquit.Broker(tmp_path / "data") as broker:
        again = QueueDrain(options(broker.url, address), address, 2_000, MANY)
        assert [body_of(payload) for payload in drain_all(again, 2_000)] == [*map(str, range(500, 2_000))]
        assert again.settle({Outcome.ACCEPTED: range(1_500)})
        again.detach()


@pytest.mark.parametrize(
    ("numbers", "ranges"),
    [
        ([], []),
        (range(5), [(0, 5)]),
        ([7], [(7, 8)]),
        (np.array([0, 1, 3, 4, 5, 9]), [(0, 2), (3, 6), (9, 10)]),
        ([1, 3, 5], [(1, 2), (3, 4), (5, 6)]),
    ],
)
def test_numbers_are_told_as_ranges(numbers: Numbers, ranges: list[tuple[int, int]]) -> None:
    assert link_module._ranges(numbers) == ranges


def test_a_tracer_sees_a_message_in_the_place_of_what_cannot_be_read() -> None:
    assert link_module._traced(b"no message").body is None
