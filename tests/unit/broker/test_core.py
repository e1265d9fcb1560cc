"""The core by example: what clients see, and when."""

from __future__ import annotations

import pytest

from acquit.broker.dispatching.consumers import Interest
from acquit.broker.links.ages import Ages
from acquit.broker.message import Message as QueuedMessage
from acquit.broker.options import AddressRule, BrokerLimits, BrokerOptions, ConnectionLimits
from acquit.broker.outcomes.leaving import GIVEN_BACK_MAX
from acquit.broker.selector import Fields
from acquit.ledger.census import Census
from acquit.protocol.constants import ACCEPTED
from acquit.protocol.definitions import Error, Modified, Rejected, Source, Target
from acquit.protocol.message import Message
from acquit.protocol.types import ULong
from acquit.store.interface import Position
from acquit.testing.simulation.disk import FaultyDisk
from tests.support.broker_world import World, durable, live_of


def rules(**settings: object) -> BrokerOptions:
    return BrokerOptions(address=(AddressRule("#", settings),))


# -- outcomes ---------------------------------------------------------------------------------------------------------


def test_modified_annotations_are_merged_and_the_rest_is_byte_for_byte() -> None:
    world = World()
    client = world.client()
    receiver = client.receiver("q", credit=10)
    original = durable(b"x", annotations={"x-opt-a": 1, "x-opt-b": 2}, application_properties={"k": "v"}, subject="s")
    client.post(client.sender("q"), original)
    world.settle()
    client.received[receiver][0].settle(Modified(False, False, {"x-opt-b": "new", "x-opt-c": 3}))
    world.settle()
    again = Message.decode(client.received[receiver][1].payload)
    assert {key: again.annotations[key] for key in ("x-opt-a", "x-opt-b", "x-opt-c")} == {
        "x-opt-a": 1,
        "x-opt-b": "new",
        "x-opt-c": 3,
    }
    assert again.delivery_count == 0
    bare = again.encode()
    assert bare.endswith(original.encode()[original.encode().index(b"\x00\x53\x73") :])


def test_modified_without_end_does_not_grow_a_message_without_bound() -> None:
    world = World(rules(release_delay_ms_max=0))
    client = world.client()
    receiver = client.receiver("q", credit=1)
    client.post(client.sender("q"), durable(b"x"))
    world.settle()
    for number in range(30):
        client.received[receiver][-1].settle(Modified(False, False, {f"x-opt-{number}": "y" * 8_000}))
        receiver.grant(1)
        world.settle()
    again = Message.decode(client.received[receiver][-1].payload)
    assert [key for key in again.annotations if key[6:].isdigit()] == [f"x-opt-{number}" for number in range(8)]
    assert len(client.received[receiver][-1].payload) < 70_000
    world.check_journal()
    restarted = world.stop()
    client = restarted.client()
    receiver = client.receiver("q", credit=1)
    restarted.settle()
    restored = Message.decode(client.received[receiver][0].payload)
    counts = [message.annotations.pop("x-opt-acquit-acquired-count") for message in (again, restored)]
    assert restored.annotations == again.annotations
    assert counts == [30, 31]


@pytest.mark.parametrize("kind", ["durable", "volatile"])
def test_a_consumer_that_takes_nothing_costs_neither_memory_nor_others(kind: str) -> None:
    """All is larger than two of them take. It is set aside, read back for the one that takes it, and keeps its order,
    however little of it can be produced at once."""
    limits = ConnectionLimits(output_bytes_max=65_536)
    policy = AddressRule("#", {"memory_bytes_max": 65_536 if kind == "durable" else 1 << 24})
    world = World(BrokerOptions(address=(policy,), connection=limits))
    client = world.client()
    sender = client.sender("q")
    client.post_all(
        sender, *(Message(number.to_bytes(4, "big") * 50, durable=kind == "durable") for number in range(3_000))
    )
    queue = world.core.queues.by_name["q"]
    for name in ("one", "two"):
        small = client.begun.attach_receiver(name, source=Source("q"), target=Target("there"), max_message_size=100)
        small.grant(10)
        world.settle()
    assert len(queue.aside) == 3_000
    if kind == "durable":
        assert queue.memory_bytes < 65_536 + 1_000
    receiver = client.receiver("q", credit=2_000)
    world.settle()
    receiver.grant(10_000)
    client.post(sender, durable(bytes(4_000)))
    world.settle()
    numbers = [int.from_bytes(body[:4], "big") for body in client.bodies(receiver)]  # type: ignore[index]
    assert numbers == [*range(3_000), 0]
    receiver.drain_credit()
    world.settle()
    assert receiver.credit == 0
    world.check_journal()


@pytest.mark.pure
def test_looking_for_what_was_set_aside_takes_one_look_at_each(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    client = world.client()
    sender = client.sender("q")
    for name in ("one", "two"):
        small = client.begun.attach_receiver(name, source=Source("q"), target=Target("there"), max_message_size=100)
        small.grant(10)
    looks = 0

    accepts = Interest.accepts

    def watched(interest: Interest, message: QueuedMessage, fields: Fields | None) -> bool:
        nonlocal looks
        looks += 1
        return accepts(interest, message, fields)

    monkeypatch.setattr(Interest, "accepts", watched)
    world.carry()
    queue = world.core.queues.by_name["q"]
    for _ in range(20):
        client.post_all(sender, *(Message(bytes(200)) for _ in range(100)))
    assert len(queue.aside) == 2_000
    assert 2_000 <= looks <= 2_000 + 100, "one for each, as both consumers would take the same"


def test_settle_second_is_answered_after_the_sync() -> None:
    world = World()
    client = world.client()
    receiver = client.receiver("q", credit=10, second=True)
    client.post(client.sender("q"), durable(b"x"), Message(b"y"))
    world.settle()
    deliveries = {Message.decode(one.payload).body: one for one in client.received[receiver]}
    deliveries[b"x"].settle(ACCEPTED)
    world.carry()
    assert deliveries[b"x"] not in client.answers
    world.settle()
    assert client.answers[deliveries[b"x"]] == (ACCEPTED, True)
    deliveries[b"y"].settle(ACCEPTED)
    world.carry()
    assert client.answers[deliveries[b"y"]] == (ACCEPTED, True), "no record, nothing to wait for"


# -- links that end ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("orderly_close", ["uncounted", "count"])
def test_closing_links_use_up_no_attempts_of_what_was_sent_ahead(orderly_close: str) -> None:
    world = World(rules(max_delivery_attempts=2, orderly_close=orderly_close))
    client = world.client()
    client.post(client.sender("q"), durable(b"x"))
    for turn in range(5):
        receiver = client.receiver("q", f"r{turn}", credit=1, default_outcome=Modified(delivery_failed=True))
        world.settle()
        message = Message.decode(client.received[receiver][0].payload)
        assert message.delivery_count == (turn if orderly_close == "count" else 0)
        receiver.detach()
        world.settle()
    world = world.stop()
    for failures in range(2):
        assert (live_of(world, "q"), live_of(world, "DLQ")) == (1, 0), f"{failures} failures, of two"
        client = world.client()
        receiver = client.receiver("q", credit=1)
        world.settle()
        client.received[receiver][0].settle(Modified(delivery_failed=True))
        receiver.detach()
        world.settle()
    assert (live_of(world, "q"), live_of(world, "DLQ")) == (0, 1)
    world.check_journal()


def test_a_client_that_comes_back_is_not_kept_out_by_itself() -> None:
    """Its old connection is not known to be lost yet, and the queue takes one consumer."""
    world = World(rules(consumers_max=1))
    first, second, other = world.client("same"), world.client("same"), world.client("other")
    stolen = first.receiver("q", "r", credit=1)
    thief = second.receiver("q", "r", credit=1)
    late = other.receiver("q", "r", credit=1)
    second.post(second.sender("q"), durable(b"x"))
    world.settle()
    assert str(first.detached[stolen].error.condition) == "amqp:link:stolen"  # type: ignore[union-attr]
    assert str(other.detached[late].error.condition) == "amqp:resource-limit-exceeded"  # type: ignore[union-attr]
    assert second.bodies(thief) == [b"x"]


def test_a_connection_has_so_many_links_and_no_more() -> None:
    world = World(BrokerOptions(connection=ConnectionLimits(links_max=3)))
    client, other = world.client(), world.client()
    for number in range(3):
        client.sender("q", f"s{number}")
    world.settle()
    late = client.receiver("q", "r", credit=1)
    world.settle()
    assert str(client.detached[late].error.condition) == "amqp:resource-limit-exceeded"  # type: ignore[union-attr]
    theirs = other.receiver("q", "r", credit=1)
    world.settle()
    assert theirs not in other.detached


# -- acquiring --------------------------------------------------------------------------------------------------------


def test_consumers_share_fairly() -> None:
    world = World()
    client = world.client()
    receivers = [client.receiver("q", f"r{number}", credit=100) for number in range(3)]
    sender = client.sender("q")
    client.post(sender, *(Message(bytes([number])) for number in range(90)))
    world.settle()
    assert [len(client.received[receiver]) for receiver in receivers] == [30, 30, 30]
    for number in range(9):
        client.post(sender, Message(bytes([number])))
        world.settle()
    assert [len(client.received[receiver]) for receiver in receivers] == [33, 33, 33]


def test_a_consumer_that_does_not_read_is_passed_over() -> None:
    world = World()
    slow, quick = world.client("slow"), world.client("quick")
    slow_receiver = slow.receiver("q", credit=1_000)
    quick_receiver = quick.receiver("q", credit=1_000)
    world.settle()
    world.core.writable(slow.peer, False)
    quick.post(quick.sender("q"), *(Message(b"x") for _ in range(20)))
    world.settle()
    assert len(quick.received[quick_receiver]) == 20
    quick_receiver.detach()
    world.core.writable(slow.peer, True)
    world.settle()
    assert len(slow.received[slow_receiver]) == 20


def test_what_is_produced_for_one_peer_is_bounded() -> None:
    from acquit.broker.options import ConnectionLimits

    world = World(BrokerOptions(connection=ConnectionLimits(output_bytes_max=8_192, credit_max=10_000)))
    client = world.client(window=100_000)
    receiver = client.receiver("q", credit=10_000)
    sender = client.sender("q")
    client.reading = False
    client.post(sender, *(Message(bytes(1_000)) for _ in range(500)))
    for _ in range(20):
        world.core.turn(world.now_us)
        if data := client.engine.data_to_send():
            world.core.handle(client.peer, client.server.receive_data(data, world.now_s), world.now_us)
    assert client.server.output_bytes < 8_192 + 64 * 1_100
    client.reading = True
    world.settle()
    assert len(client.received[receiver]) == 500


def test_drain_gives_back_the_credit() -> None:
    world = World()
    client = world.client()
    receiver = client.receiver("q", credit=10)
    client.post(client.sender("q"), Message(b"x"))
    world.settle()
    receiver.drain_credit()
    world.settle()
    assert receiver.credit == 0
    assert client.bodies(receiver) == [b"x"]


def test_available_is_told_with_the_attach() -> None:
    world = World()
    client = world.client()
    client.post(client.sender("q"), *(durable(b"x") for _ in range(7)))
    world.settle()
    receiver = client.receiver("q", "asks", browse=True)
    world.settle()
    assert receiver.available == 7
    assert receiver.remote_attach is not None
    assert receiver.remote_attach.properties == {"acquit:last-sequence": 7}
    client.post(client.sender("q", "second"), durable(b"y"))
    world.settle()
    receiver.grant(0, echo=True)
    world.settle()
    assert receiver.available == 8


# -- browsing ---------------------------------------------------------------------------------------------------------


def test_looking_at_a_queue_does_not_bring_it_into_memory() -> None:
    world = World(rules(memory_bytes_max=65_536))
    client = world.client()
    client.post_all(client.sender("q"), *(durable(bytes([number]) * 4_000) for number in range(100)))
    browsers = [client.receiver("q", name, browse=True, credit=200) for name in ("one", "two")]
    world.settle()
    for browser in browsers:
        assert [body[0] for body in client.bodies(browser)] == list(range(100))  # type: ignore[index]
    assert world.core.queues.by_name["q"].memory_bytes < 65_536 + 5_000


# -- time -------------------------------------------------------------------------------------------------------------


def test_what_expires_while_a_browser_reads_it_expires_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(rules(memory_bytes_max=65_536))
    client = world.client()
    client.post_all(client.sender("q"), *(durable(bytes(4_000), ttl_ms=5_000) for _ in range(50)))
    monkeypatch.setattr(world, "_read_back", lambda: False)
    client.receiver("q", browse=True, credit=200)  # it asks for the first body that is not in memory
    world.advance(6_000)
    monkeypatch.undo()
    world.settle()
    assert (live_of(world, "q"), live_of(world, "ExpiryQueue")) == (0, 50)


def test_a_forwarded_message_carries_what_is_left_of_its_time() -> None:
    world = World()
    client = world.client()
    client.post(client.sender("q"), durable(b"x", ttl_ms=1_000))
    world.settle()
    world.advance(400)
    receiver = client.receiver("q", credit=2)
    world.settle()
    assert Message.decode(client.received[receiver][0].payload).ttl_ms == 600


def test_times_beyond_all_time_are_the_end_of_time() -> None:
    world = World()
    client = world.client()
    sent = client.post(
        client.sender("q"),
        durable(b"1", annotations={"x-opt-delivery-delay": ULong(2**64 - 1)}),
        Message(b"2", annotations={"x-opt-delivery-time": ULong(2**64 - 1)}),
        durable(b"3", absolute_expiry_time=2**63 - 1),
    )
    world.settle()
    assert [client.outcome(one) for one in sent] == [ACCEPTED] * 3
    world.check_journal()
    assert live_of(world.stop(), "q") == 2


# -- what is refused --------------------------------------------------------------------------------------------------


def condition_of(outcome: object) -> str:
    assert isinstance(outcome, Rejected)
    assert outcome.error is not None
    return str(outcome.error.condition)


def test_nonsense_is_rejected_with_a_decode_error() -> None:
    world = World()
    client = world.client()
    (sent,) = client.post(client.sender("q"), b"\xde\xad\xbe\xef")
    world.settle()
    assert condition_of(client.outcome(sent)) == "amqp:decode-error"


def test_nonsense_that_nobody_waits_for_ends_the_link() -> None:
    world = World()
    client = world.client()
    sender = client.sender("q")
    client.post(sender, b"\xde\xad\xbe\xef", settled=True)
    world.settle()
    error = client.detached[sender].error
    assert error is not None
    assert error.condition == "amqp:decode-error"


def test_another_message_format_is_not_taken() -> None:
    world = World()
    client = world.client()
    sender = client.sender("q")
    sent = sender.send(b"t", durable(b"x").encode(), message_format=7)
    world.settle()
    assert condition_of(client.outcome(sent)) == "amqp:not-implemented"


def test_a_full_queue_refuses_and_gives_less_credit_before() -> None:
    world = World(rules(messages_max=20))
    client = world.client()
    sender = client.sender("q")
    assert sender.credit == 20
    client.post(sender, *(durable(b"x") for _ in range(20)))
    world.settle()
    assert sender.credit == 0
    receiver = client.receiver("q", credit=5)
    world.settle()
    for delivery in client.held(receiver):
        delivery.settle(ACCEPTED)
    world.settle()
    assert sender.credit == 5


def test_what_overshoots_is_refused_and_not_lost() -> None:
    world = World(rules(messages_max=20))
    client = world.client()
    one, other = client.sender("q", "one"), client.sender("q", "other")
    sent = client.post(one, *(durable(b"x") for _ in range(one.credit)))
    sent += client.post(other, *(durable(b"x") for _ in range(other.credit)))
    world.settle()
    accepted = [delivery for delivery in sent if client.outcome(delivery) == ACCEPTED]
    refused = [delivery for delivery in sent if client.outcome(delivery) != ACCEPTED]
    assert len(accepted) == live_of(world, "q") == 20
    assert {condition_of(client.outcome(delivery)) for delivery in refused} == {"amqp:resource-limit-exceeded"}


def test_volatile_messages_fill_memory_only_up_to_the_limit() -> None:
    world = World(rules(memory_bytes_max=65_536))
    client = world.client()
    sender = client.sender("q")
    sent = []
    while sender.credit and len(sent) < 10_000:
        sent += client.post(sender, Message(bytes(1_000)))
        world.settle()
    queue = world.core.queues.by_name["q"]
    assert queue.memory_bytes <= 65_536
    assert live_of(world, "q") == sum(client.outcome(delivery) == ACCEPTED for delivery in sent)
    assert len(sent) < 60


# -- paging -----------------------------------------------------------------------------------------------------------


def test_bodies_beyond_the_memory_limit_are_read_back_in_order() -> None:
    world = World(rules(memory_bytes_max=65_536))
    client = world.client()
    client.post_all(client.sender("q"), *(durable(number.to_bytes(4, "big") + bytes(200)) for number in range(3_000)))
    queue = world.core.queues.by_name["q"]
    assert queue.live == 3_000
    assert queue.memory_bytes < 3 * 65_536 + 1_024 * 604
    receiver = client.receiver("q", credit=5_000)
    world.settle()
    numbers = [int.from_bytes(body[:4], "big") for body in client.bodies(receiver)]  # type: ignore[index]
    assert numbers == list(range(3_000))
    for delivery in client.held(receiver):
        delivery.settle(ACCEPTED)
    world.settle()
    assert queue.memory_bytes == 0


def test_a_few_large_messages_are_no_less_paged() -> None:
    world = World(BrokerOptions(limits=BrokerLimits(memory_bytes_max=1 << 20)))
    client = world.client()
    client.post_all(client.sender("q"), *(durable(bytes([number]) * 100_000) for number in range(60)))
    assert world.core.memory.bytes < 1 << 20
    assert live_of(world, "q") == 60
    receiver = client.receiver("q", credit=100)
    world.settle()
    assert [body[0] for body in client.bodies(receiver)] == list(range(60))  # type: ignore[index]
    client.begun.settle_all(client.held(receiver), ACCEPTED)
    world.settle()
    assert world.core.memory.bytes == 0


@pytest.mark.parametrize("mode", ["acquire", "presettled", "browse"])
@pytest.mark.parametrize("kind", ["durable", "volatile"])
def test_messages_larger_than_a_frame_follow_each_other(mode: str, kind: str) -> None:
    """One is written after the other, and nobody says when the last one was: it must go on by itself."""
    world = World()
    client = world.client()
    client.post_all(
        client.sender("q"),
        *(Message(bytes([number]) * 70_000, durable=kind == "durable") for number in range(20)),
    )
    receiver = client.receiver("q", credit=100, presettled=mode == "presettled", browse=mode == "browse")
    world.settle()
    assert [body[0] for body in client.bodies(receiver)] == list(range(20))  # type: ignore[index]


def test_a_dead_letter_is_read_back_and_answered_when_it_is_durable() -> None:
    world = World(rules(memory_bytes_max=65_536))
    client = world.client()
    client.post_all(client.sender("q"), *(durable(bytes(1_000)) for _ in range(200)))
    receiver = client.receiver("q", credit=200, second=True)
    world.settle()
    held = client.held(receiver)
    assert len(held) == 200
    client.begun.settle_all(held, Rejected(Error("app:bad")))
    world.settle()
    assert (live_of(world, "q"), live_of(world, "DLQ")) == (0, 200)
    assert all(client.answers[delivery][1] for delivery in held)
    world.check_journal()


# -- attaching --------------------------------------------------------------------------------------------------------


def test_what_is_not_implemented_says_so() -> None:
    from acquit.protocol.link import Link
    from acquit.protocol.session import Session

    world = World()
    client = world.client()
    session = client.begun
    assert isinstance(session, Session)
    wishes: list[Link] = [
        client.sender(None, "dynamic", target=Target(dynamic=True, dynamic_node_properties={"lifetime-policy": "x"})),
        session.attach_receiver("mode", source=Source("q", distribution_mode="teleport"), target=Target("here")),
    ]
    world.settle()
    for link in wishes:
        error = client.detached[link].error
        assert error is not None
        assert error.condition == "amqp:not-implemented"
        assert error.description


@pytest.mark.parametrize("end", ["expiry", "purge"])
def test_a_queue_whose_last_message_goes_after_its_last_link_is_deleted_as_well(end: str) -> None:
    world = World(rules(auto_delete=True, expiry_address=""))
    client = world.client()
    sender = client.sender("q")
    client.post(sender, durable(b"x", ttl_ms=1_000), Message(b"y", ttl_ms=1_000))
    world.settle()
    sender.detach()
    world.settle()
    assert live_of(world, "q") == 2
    if end == "purge":
        world.purge("q", None)
    world.advance(1_000)
    world.settle()
    assert "q" not in world.core.queues.by_name
    world.check_journal()
    assert "q" not in world.stop().core.queues.by_name


@pytest.mark.parametrize("end", ["crash", "stop"])
def test_a_restart_ends_the_links_of_queues_and_topics_that_are_deleted_without_any(end: str) -> None:
    world = World(rules(auto_delete=True))
    client = world.client()
    client.receiver("empty")
    client.post(client.sender("volatile", "volatile"), Message(b"x"))
    client.post(client.sender("full", "full"), durable(b"x"))
    client.subscriber("kept", "kept", durable=True)
    client.subscriber("news")
    world.settle()
    assert set(world.core.topics.by_address) == {"kept", "news"}
    world = getattr(world, end)()
    world.settle()
    assert set(world.core.queues.by_name) == {"full", "kept::client/kept"}
    assert set(world.core.topics.by_address) == {"kept"}
    world.check_journal()


# -- restart ----------------------------------------------------------------------------------------------------------


def test_after_a_crash_everything_answered_is_there() -> None:
    world = World()
    client = world.client()
    sender = client.sender("q")
    client.post(sender, durable(b"1", ttl_ms=50_000), durable(b"2", priority=7), durable(b"3"), Message(b"volatile"))
    world.settle()
    receiver = client.receiver("q", credit=2)
    world.settle()
    assert client.bodies(receiver) == [b"2", b"1"]
    client.received[receiver][0].settle(ACCEPTED)
    world.settle()
    client.post(sender, durable(b"never answered"))
    world.carry()
    again = world.crash()
    assert again.recovered == 2
    again.check()
    client = again.client()
    receiver = client.receiver("q", credit=10)
    again.settle()
    messages = [Message.decode(delivery.payload) for delivery in client.received[receiver]]
    assert [message.body for message in messages] == [b"1", b"3"]
    assert [message.delivery_count for message in messages] == [1, 0], (
        "the first was acquired, as from a lost connection"
    )
    assert messages[0].first_acquirer is False
    assert messages[0].ttl_ms == 50_000
    assert messages[0].annotations["x-opt-acquit-sequence"] == 1
    again.check_journal()


def test_annotations_and_history_survive_a_restart() -> None:
    world = World()
    client = world.client()
    receiver = client.receiver("q", credit=10)
    client.post(client.sender("q"), durable(b"x"))
    world.settle()
    client.received[receiver][0].settle(Modified(True, False, {"x-opt-note": "kept"}))
    receiver.detach()
    world.settle()
    again = world.crash()
    client = again.client()
    receiver = client.receiver("q", credit=10)
    again.settle()
    message = Message.decode(client.received[receiver][0].payload)
    assert message.annotations["x-opt-note"] == "kept"
    client.received[receiver][0].settle(Rejected())
    letters = client.receiver("DLQ", "letters", credit=1)
    again.settle()
    letter = Message.decode(client.received[letters][0].payload)
    assert len(letter.annotations["x-opt-acquit-attempts"]) >= 2  # type: ignore[arg-type]


def test_who_had_a_message_is_known_until_it_is_recorded_what_becomes_of_it() -> None:
    """Its dead letter takes its body, which is read after the start: a checkpoint, or another crash, may come first."""
    world = World(rules(max_delivery_attempts=1, connection_loss="dead-letter"))
    client = world.client()
    client.receiver("q", credit=1)
    client.post(client.sender("q"), durable(b"x"))
    world.settle()
    world = world.crash()
    assert world.core.holdings.live(1) == world.fold().messages[1]
    world = world.crash()
    world.settle()
    assert (live_of(world, "q"), live_of(world, "DLQ")) == (0, 1)
    world.check_journal()


# -- purging, managing ------------------------------------------------------------------------------------------------


def test_purge_takes_what_nobody_has() -> None:
    world = World()
    client = world.client()
    receiver = client.receiver("q", credit=1)
    client.post(
        client.sender("q"), *(durable(b"x") for _ in range(5)), durable(b"z", annotations={"x-opt-delivery-delay": 9})
    )
    world.settle()
    assert world.purge("q", "somebody") == 5
    world.settle()
    queue = world.core.snapshot().queue("q")
    assert queue is not None
    assert (queue.purged, queue.acquired, queue.depth) == (5, 1, 1)
    client.received[receiver][0].settle(ACCEPTED)
    world.settle()
    world.check_journal()


def test_a_large_purge_takes_turns_and_hands_nothing_out_meanwhile() -> None:
    from acquit.broker.admin.purging import STEP

    world = World()
    client = world.client()
    sender = client.sender("q")
    client.post_all(sender, *[Message(b"")] * (STEP + 500))
    count = live_of(world, "q")
    assert world.purge("q", None) == count
    assert live_of(world, "q") == count - STEP
    client.post(sender, Message(b"later"))
    receiver = client.receiver("q", credit=10)
    world.settle()
    assert client.bodies(receiver) == [b"later"]


def test_the_management_node_answers_on_the_links_of_its_asker() -> None:
    world = World()
    client = world.client()
    client.post(client.sender("q"), durable(b"x"))
    world.settle()
    from acquit.protocol.definitions import Source, Target

    answers = client.begun.attach_receiver("answers", source=Source("$management"), target=Target("me"))
    answers.grant(5)
    ask = client.sender("$management", "ask")
    request = Message(
        None,
        message_id="1",
        reply_to="me",
        application_properties={"operation": "READ", "type": "acquit:queue", "name": "q"},
    )
    sent = client.post(ask, request, Message(None, message_id="2", reply_to="nobody"))
    world.settle()
    (answer,) = client.received[answers]
    message = Message.decode(answer.payload)
    assert message.correlation_id == "1"
    assert message.application_properties["statusCode"] == 200
    assert message.body["depth"] == 1  # type: ignore[index,call-overload]
    assert client.outcome(sent[0]) == ACCEPTED
    assert condition_of(client.outcome(sent[1])) == "amqp:precondition-failed"


# -- the disk ---------------------------------------------------------------------------------------------------------


def test_a_segment_that_would_take_messages_with_it_stays(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody is found in any segment: the broker's own account says otherwise, it says so, and nothing is lost."""
    world = World()
    client = world.client()
    sender, receiver = client.sender("q"), client.receiver("other", credit=1_000)
    other = client.sender("other", "to other")
    client.post_all(sender, *(durable(number) for number in range(10)))
    take = Census.take
    monkeypatch.setattr(Census, "take", lambda census, segment: [])

    def go_on(rounds: int) -> None:
        for _ in range(rounds):
            client.post_all(other, durable(bytes(2_000)))
            for delivery in client.held(receiver):
                delivery.settle(ACCEPTED)
                receiver.grant(1)
            world.settle()

    go_on(120)
    assert world.opened.journal.left_through == 0
    assert any("segment 1 stays in the journal" in warning for warning in world.core.snapshot().warnings)
    said = [record for record in caplog.records if "segment 1 stays in the journal" in record.message]
    assert said and all(record.levelname == "ERROR" for record in said)
    assert live_of(world.crash(), "q") == 10
    monkeypatch.setattr(Census, "take", take)
    go_on(60)
    assert world.opened.journal.left_through > 0
    assert world.core.snapshot().warnings == ()
    assert live_of(world.crash(), "q") == 10


def test_a_full_disk_refuses_postings_serves_outcomes_and_recovers(caplog: pytest.LogCaptureFixture) -> None:
    disk = FaultyDisk()
    world = World(disk=disk)
    client = world.client()
    sender = client.sender("q")
    disk.capacity_bytes = disk.used_bytes + 256 * 1024
    answers: list[object] = []
    while not world.opened.journal.full:
        assert sender.credit, "refused before it is full"
        (sent,) = client.post(sender, durable(bytes(8_000)))
        world.settle()
        answers.append(client.outcome(sent))
    stored = answers.count(ACCEPTED)
    assert live_of(world, "q") == stored > 10
    while sender.credit:  # what it was granted before it may still send: it is refused, not lost
        (sent,) = client.post(sender, durable(b"x"))
        world.settle()
        assert condition_of(client.outcome(sent)) == "amqp:resource-limit-exceeded"
    assert not world.core.snapshot().accepting
    assert world.core.snapshot().warnings == ("the disk is full: postings are refused until there is room",)
    assert [record.message for record in caplog.records] == list(world.core.snapshot().warnings), "it is said once"
    receiver = client.receiver("q", credit=5, second=True)
    world.settle()
    for delivery in client.held(receiver):
        delivery.settle(ACCEPTED)
    world.settle()
    assert live_of(world, "q") == stored - 5
    assert all(client.answers[delivery] == (ACCEPTED, True) for delivery in client.received[receiver])
    disk.capacity_bytes = None
    world.advance(5_000)
    world.chores()
    world.settle()
    assert world.core.snapshot().accepting
    assert world.core.snapshot().warnings == ()
    assert caplog.records[-1].message == "there is room on the disk again: postings are taken"
    assert sender.credit > 0
    (sent,) = client.post(sender, durable(b"again"))
    world.settle()
    assert client.outcome(sent) == ACCEPTED


def test_without_any_room_nothing_is_said_that_is_not_so() -> None:
    """Even the reserve is used up: outcomes wait, unanswered, and are recorded when there is room."""
    disk = FaultyDisk()
    world = World(disk=disk)
    client = world.client()
    client.post_all(client.sender("q"), *(durable(b"x") for _ in range(3_000)))
    receiver = client.receiver("q", credit=10_000, second=True)
    world.settle()
    held = client.held(receiver)
    disk.capacity_bytes = disk.used_bytes + 100 * 1024
    for delivery in held:
        delivery.settle(ACCEPTED)
        world.carry()
        world.sync()
    world.carry()
    unanswered = [one for one in held if one not in client.answers]
    assert 0 < len(unanswered) < len(held), "the reserve served some; what has no record has no answer"
    world.check()
    disk.capacity_bytes = None
    world.advance(5_000)
    world.chores()
    world.settle()
    assert not [one for one in unanswered if one not in client.answers]
    for delivery in client.held(receiver):
        delivery.settle(ACCEPTED)
    world.settle()
    world.check_journal()
    assert live_of(world, "q") == 0


def test_a_rejection_without_room_for_its_dead_letter_is_answered_as_what_it_became() -> None:
    """The message stays and the attempt counts, so that is what the receiver hears, not *rejected*."""
    disk = FaultyDisk()
    world = World(disk=disk)
    client = world.client()
    client.post_all(client.sender("q"), *(durable(bytes(4_000)) for _ in range(300)))
    receiver = client.receiver("q", credit=300, second=True)
    world.settle()
    held = client.held(receiver)
    receiver.grant(0)
    world.settle()
    disk.capacity_bytes = disk.used_bytes + 100 * 1024
    for delivery in held:
        delivery.settle(Rejected(Error("test:bad")))
        world.carry()
        world.sync()
    disk.capacity_bytes = None
    world.advance(5_000)
    world.chores()
    world.settle()
    heard = [client.answers[delivery][0] for delivery in held]
    rejected = sum(isinstance(state, Rejected) for state in heard)
    failed = heard.count(Modified(delivery_failed=True))
    assert rejected > 0
    assert failed > 0
    assert (rejected, failed) == (live_of(world, "DLQ"), live_of(world, "q"))
    world.check_journal()


def test_what_is_still_live_is_carried_out_of_old_segments() -> None:
    """Traffic pushes the oldest segments out of the recovery set; what stands in them moves, with its story."""
    world = World()
    client = world.client()
    keeper = client.receiver("old", "keeper", credit=1)
    client.post(client.sender("old", "old"), durable(b"old" * 1_000, message_id="old", ttl_ms=10_000_000))
    world.settle()
    client.received[keeper][0].settle(Modified(True, False, {"x-opt-note": "kept"}))
    world.settle()
    receiver = client.receiver("q", credit=100_000)
    sender = client.sender("q")
    for _ in range(120):
        client.post(sender, *(durable(bytes(1_000)) for _ in range(10)))
        world.settle()
        client.begun.settle_all(client.held(receiver), ACCEPTED)
        world.settle()
    assert world.opened.journal.segments[0].archived, "nothing left the recovery set"
    position = world.core.life.live[1].position
    assert position > world.opened.journal.segments[2].base
    world.check_journal()
    again = world.crash()
    assert again.opened.report.left_through > 0
    client = again.client()
    receiver = client.receiver("old", credit=1)
    again.settle()
    message = Message.decode(client.received[receiver][0].payload)
    assert (message.body, message.message_id, message.delivery_count) == (b"old" * 1_000, "old", 1)
    assert message.annotations["x-opt-note"] == "kept"
    assert message.annotations["x-opt-acquit-sequence"] == 1
    queue = again.core.snapshot().queue("q")
    assert queue is not None
    assert (queue.entered, queue.accepted, queue.depth) == (1_200, 1_200, 0)


def test_in_the_middle_of_a_checkpoint_copies_and_originals_agree() -> None:
    """Whether a message was acquired is in doubt since a crash, and those that it was not for are gone."""
    world = World()
    client = world.client()
    taker = client.receiver("q", "taker", credit=1)
    client.post_all(client.sender("q"), *(durable(b"x") for _ in range(100)))
    client.received[taker][0].settle(ACCEPTED)
    world = world.crash()
    client = world.client()
    for name in ("second", "first"):
        picky = client.receiver("q", name, credit=50)
        world.settle()
        for delivery in client.held(picky):
            delivery.settle(Modified(True, True))
    world.settle()
    client.lose()
    client = world.client()
    sender, receiver = client.sender("other"), client.receiver("other", credit=1_000)
    looks = 0
    while not world.opened.journal.left_through:
        client.post(sender, durable(bytes(4_000)))
        world.carry()
        while world.sync():
            world.carry()
            if world.checkpointer.active:
                looks += 1
                assert world.fold().anomalies == []
        client.begun.settle_all(client.held(receiver), ACCEPTED)
    assert looks > 1
    world.settle()
    world.check_journal()


def test_a_body_that_moves_while_it_is_read_is_read_again() -> None:
    world = World()
    client = world.client()
    client.post_all(client.sender("q"), *(durable(bytes(1_000)) for _ in range(20)))
    queue = world.core.queues.by_name["q"]
    receiver = client.receiver("q", credit=1)
    world.settle()
    for message in queue.backlog.next_messages():
        world.core.memory.drop(message)
    receiver.grant(9)
    to_server = client.engine.data_to_send()
    world.core.handle(client.peer, client.server.receive_data(to_server, world.now_s), world.now_us)
    world.core.turn(world.now_us)
    reads = world.core.take_reads()
    assert reads
    assert queue.held_up
    for lot in reads:
        world.core.loaded(lot, [None] * len(lot.messages))  # as if its segment had just left
    assert world.core.take_reads() == []
    client.post(client.sender("other", "other"), durable(b"x"))
    world.settle()  # a sync: moved records can be read where they are now
    assert len(client.held(receiver)) == 10


def test_a_body_that_had_moved_when_the_reader_said_so_waits_for_no_other_sync() -> None:
    """The reader looks, the sync of the move is heard, and only then what the reader found."""
    world = World()
    client = world.client()
    client.post_all(client.sender("q"), *(durable(bytes(1_000)) for _ in range(20)))
    queue = world.core.queues.by_name["q"]
    receiver = client.receiver("q", credit=1)
    world.settle()
    for message in queue.backlog.next_messages():
        world.core.memory.drop(message)
    receiver.grant(9)
    to_server = client.engine.data_to_send()
    world.core.handle(client.peer, client.server.receive_data(to_server, world.now_s), world.now_us)
    world.core.turn(world.now_us)
    reads = world.core.take_reads()
    assert reads
    client.post(client.sender("other", "other"), durable(b"x"))
    world.settle()
    assert len(client.held(receiver)) == 1
    for lot in reads:
        world.core.loaded(lot, [None] * len(lot.messages))
    assert not world.core.scribe.pending
    world.settle()
    assert len(client.held(receiver)) == 10


@pytest.mark.pure
def test_a_queue_goes_on_when_what_was_read_for_it_is_gone_for_good(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    client = world.client()
    sender = client.sender("q")
    client.post_all(sender, *(durable(b"old") for _ in range(3)))
    queue = world.core.queues.by_name["q"]
    for message in queue.backlog.next_messages():
        world.core.memory.drop(message)
    receiver = client.receiver("q")
    receiver.grant(9)
    to_server = client.engine.data_to_send()
    world.core.handle(client.peer, client.server.receive_data(to_server, world.now_s), world.now_us)
    world.core.turn(world.now_us)
    assert world.core.memory.wanted
    # Before they are read, they are purged, and as nothing in their segment is live it is deleted.
    while queue.live:
        world.purge("q")
    monkeypatch.setattr(world.opened.journal, "read_payloads", lambda positions, hints: [None] * len(positions))
    client.post_all(sender, durable(b"new"))
    assert client.bodies(receiver) == [b"new"]
    assert world.core.take_reads() == [], "nobody looks for them any more"


def test_ids_and_groups_are_in_the_record() -> None:
    from acquit.ledger.records import Extra, Posting

    world = World()
    client = world.client()
    client.post(
        client.sender("q"),
        durable(b"x", message_id=7, group_id="g", application_properties={"_AMQ_DUPL_ID": "d"}),
        durable(b"another body", message_id=7),
    )
    world.settle()
    assert live_of(world, "q") == 2, "the same id with another body passes"
    record = world.opened.journal.read(Position(world.core.life.live[1].position))
    posting = Posting.decode(record)
    assert posting.message_id == 7
    extras = {tag: value for tag, value in posting.extras if tag != Extra.BODY_FINGERPRINT}
    assert extras == {Extra.GROUP_ID: b"g", Extra.DUPLICATE_ID: b"sd"}


def test_who_leaves_as_the_broker_ends_has_given_back_everything() -> None:
    """More than is given back in one turn, of a consumer that closed in order: none of it counts as an attempt."""
    world = World()
    client = world.client()
    count = 3 * GIVEN_BACK_MAX
    client.post_all(client.sender("q"), *[durable(str(number)) for number in range(count)])
    receiver = client.receiver("q", credit=count)
    world.settle()
    assert len(client.received[receiver]) == count
    client.engine.close()
    events = client.server.receive_data(client.engine.data_to_send(), world.now_s)
    world.core.handle(client.peer, events, world.now_us)
    world.core.close(world.now_us)
    while world.sync():
        pass
    after = world.crash()
    assert {message.attempt for message in after.core.queues.by_name["q"].backlog.next_messages()} == {0}
    late = after.client()
    again = late.receiver("q", credit=count)
    after.settle()
    assert late.bodies(again) == [str(number) for number in range(count)]


# -- time passes ------------------------------------------------------------------------------------------------------


@pytest.mark.pure
def test_a_tick_looks_at_connections_that_had_output_and_at_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten thousand that are there and do nothing cost nothing, and what they hold grows old all the same."""
    world = World()
    for number in range(20):
        world.client(f"idle-{number}")
    poster, client = world.client("poster"), world.client("client")
    sender, receiver = poster.sender("q"), client.receiver("q", credit=10)
    looked: list[object] = []
    look = Ages.look

    def count(self: Ages, *arguments: object) -> None:
        looked.append(self)
        look(self, *arguments)  # type: ignore[arg-type]

    def tick() -> int:
        looked.clear()
        world.core.tick(world.now_us)
        return len(looked)

    monkeypatch.setattr(Ages, "look", count)
    list(world.core.take_touched())
    tick()
    poster.post(sender, Message("one"))
    world.settle()
    list(world.core.take_touched())
    assert tick() == 2
    assert tick() == 0
    (peer,) = (one for one in world.core.connections if one.container == "client")
    assert len(client.bodies(receiver)) == 1
    sessions = peer.engine.sessions
    assert peer.ages.oldest_ms(sessions, world.now_us + 5_000_000) == 5_000
