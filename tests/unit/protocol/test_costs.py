"""Input is taken in turns: each costs so much and no more, what is cut off goes on, and the meaning is the same."""

from __future__ import annotations

import pytest

from acquit.protocol.composite import encode_composite
from acquit.protocol.costs import (
    ACCEPTED_COST,
    DELIVERY_COST,
    FRAME_COSTS,
    PREDICTED_COST,
    RETURN_COST,
    SINGLE_COST,
    UNBOUNDED,
    Turn,
)
from acquit.protocol.definitions import (
    Accepted,
    Begin,
    Close,
    Disposition,
    End,
    Flow,
    Modified,
    Performative,
    Received,
    Rejected,
    Released,
    Role,
    Transfer,
)
from acquit.protocol.delivery import DeliveryState
from acquit.protocol.events import (
    ConnectionEnded,
    DeliveriesReceived,
    Event,
    LinkDetached,
    RunAccepted,
    SessionBegun,
    SessionEnded,
    StatesReceived,
)
from acquit.protocol.frames import encode_frame
from acquit.protocol.link import ReceivingLink, SendingLink
from acquit.protocol.options import ConnectionOptions
from acquit.protocol.sender import Heads
from acquit.protocol.types import Symbol
from tests.support.peer import Peer, attach_to, begun_server, open_server, receiving_attach, sending_attach

COST_MAX = 1_000


def in_turns(**options: int) -> ConnectionOptions:
    return ConnectionOptions(container_id="engine", turn_cost_max=COST_MAX, **options)  # type: ignore[arg-type]


def turns(peer: Peer, data: bytes) -> list[list[Event]]:
    """The events of each turn, until all of `data` is taken."""
    served = [peer.send_bytes(data)]
    while peer.engine.input_waits:
        served.append(peer.send_bytes(b""))
    return served


def test_what_is_overdrawn_is_taken_from_the_turns_that_follow() -> None:
    turn = Turn(100)
    turn.begin()
    turn.left -= 250
    left = []
    for _ in range(3):
        turn.begin()
        left.append(turn.left)
    assert left == [-50, 50, 100]


def test_a_turn_without_limit_does_not_end() -> None:
    turn = Turn(0)
    turn.begin()
    turn.left -= 1 << 40
    assert turn.left == UNBOUNDED - (1 << 40) > 0


def test_every_frame_of_the_protocol_has_its_cost() -> None:
    assert set(FRAME_COSTS) == {type(None), *Performative.__args__}
    assert all(cost > 0 for cost in FRAME_COSTS.values())


def test_a_turn_takes_no_more_frames_than_it_may_cost() -> None:
    peer = open_server(in_turns())
    begins = b"".join(encode_frame(at, encode_composite(Begin(None, 0, 9, 9))) for at in range(60))
    served = turns(peer, begins)
    assert sum(map(len, served)) == 60
    assert {len(events) for events in served[:-1]} <= {6, 7}  # 1,000 / 150, and what was overdrawn
    assert all(isinstance(event, SessionBegun) for events in served for event in events)


def test_without_a_limit_all_is_taken_at_once() -> None:
    peer = open_server()
    begins = b"".join(encode_frame(at, encode_composite(Begin(None, 0, 9, 9))) for at in range(60))
    assert len(peer.send_bytes(begins)) == 60
    assert not peer.engine.input_waits


def transfers(count: int) -> bytes:
    return b"".join(
        encode_frame(0, encode_composite(Transfer(0, 1_000 + at, at.to_bytes(4, "big"), 0)) + b"%d" % at)
        for at in range(count)
    )


@pytest.mark.parametrize("cost", [PREDICTED_COST, SINGLE_COST])
def test_a_run_of_predicted_transfers_is_cut(cost: int) -> None:
    peer = begun_server(in_turns())
    link = attach_to(peer, sending_attach())
    assert isinstance(link, ReceivingLink)
    assert link.predicted_cost == PREDICTED_COST
    link.predicted_cost = cost
    link.grant(2_000)
    served = turns(peer, transfers(1_000))
    counts = [
        sum(len(event.deliveries) for event in events if isinstance(event, DeliveriesReceived)) for events in served
    ]
    assert sum(counts) == 1_000
    assert max(counts) <= COST_MAX // cost + 1
    payloads = [
        delivery.payload
        for events in served
        for event in events
        if isinstance(event, DeliveriesReceived)
        for delivery in event.deliveries
    ]
    assert payloads == [b"%d" % at for at in range(1_000)]


def test_what_comes_the_long_way_costs_no_less() -> None:
    """Where a message costs much, as for many queues, a sender cannot do with less by writing each otherwise."""
    peer = begun_server(in_turns())
    link = attach_to(peer, sending_attach())
    assert isinstance(link, ReceivingLink)
    link.predicted_cost = COST_MAX // 4
    link.grant(100)
    frames = [
        encode_frame(0, encode_composite(Transfer(0, at, bytes(1 + at % 5), 0, settled=True)) + b"%d" % at)
        for at in range(40)
    ]
    counts = [
        sum(len(event.deliveries) for event in events if isinstance(event, DeliveriesReceived))
        for events in turns(peer, b"".join(frames))
    ]
    assert sum(counts) == 40
    assert max(counts) <= 6


def sent(count: int) -> tuple[Peer, SendingLink]:
    peer = begun_server(in_turns(), incoming_window=100_000)
    link = attach_to(peer, receiving_attach())
    assert isinstance(link, SendingLink)
    peer.say(Flow(None, 100_000, 0, 0, 0, None, 100_000))
    for number in range(count):
        link.send(b"%d" % number, b"")
    peer.hear()
    return peer, link


def disposition(first: int, last: int, state: DeliveryState | None = None) -> bytes:
    said = state if state is not None else Released()
    return encode_frame(0, encode_composite(Disposition(Role.RECEIVER, first, last, True, said)))


@pytest.mark.parametrize("last", [999, 0x7FFF_FFFE], ids=["as many", "far more"])
def test_a_disposition_of_many_deliveries_is_cut_and_nothing_overtakes_it(last: int) -> None:
    peer, link = sent(1_000)
    served = turns(peer, disposition(0, last) + encode_frame(0, encode_composite(End())))
    heard = [event for events in served for event in events]
    assert isinstance(heard[-1], SessionEnded)
    states = [len(event.deliveries) for event in heard[:-1] if isinstance(event, StatesReceived)]
    assert len(states) == len(heard) - 1
    assert sum(states) == 1_000
    assert max(states) <= COST_MAX // RETURN_COST + 1
    assert link.session.unsettled() == []


def test_a_predicted_disposition_of_many_deliveries_is_cut() -> None:
    peer, link = sent(1_002)
    wide = (disposition(0x100_0000, 0x100_0001), disposition(0, 1_001))
    served = turns(peer, wide[0] + wide[1])
    assert len(served) >= 10
    assert link.session.unsettled() == []


class Alike:
    """Contexts that are a number: each costs as much as a delivery."""

    def __init__(self, count: int) -> None:
        self.count = count

    @property
    def accepted_cost(self) -> int:
        return DELIVERY_COST * self.count

    def each(self) -> list[None]:
        return [None] * self.count

    def singly(self) -> Alike:
        return self

    def split(self, count: int) -> Alike:
        self.count -= count
        return Alike(count)


def sent_together(single: int, runs: int) -> tuple[Peer, SendingLink]:
    """So many sent by themselves, and behind them so many runs of ten."""
    peer, link = sent(0)
    for number in range(single):
        link.send(b"%04d" % number, b"")
    for number in range(single, single + 10 * runs, 10):
        tags = [b"%04d" % one for one in range(number, number + 10)]
        link.send_together(tags, Heads("", (), 0), [b""] * 10, Alike(10))
    peer.hear()
    return peer, link


def heard_together(event: Event) -> int:
    """How many were accepted together by this event."""
    return event.run.contexts.count if isinstance(event, RunAccepted) and isinstance(event.run.contexts, Alike) else 0


@pytest.mark.parametrize("last", [1_599, 0x7FFF_FFFE], ids=["as many", "far more"])
@pytest.mark.parametrize("single", [1, 101, 600])
def test_a_disposition_of_many_that_were_sent_together_is_cut(single: int, last: int) -> None:
    peer, link = sent_together(single, 100)
    data = disposition(0, last, Accepted()) + encode_frame(0, encode_composite(End()))
    served = turns(peer, data)
    together = [[heard_together(event) for event in events] for events in served]
    alone = sum(len(event.deliveries) for events in served for event in events if isinstance(event, StatesReceived))
    assert (sum(map(sum, together)), alone) == (1_000, single)
    assert max(map(sum, together)) <= COST_MAX // DELIVERY_COST + 10
    assert [event for events in served[:-1] for event in events if isinstance(event, SessionEnded)] == []
    assert isinstance(served[-1][-1], SessionEnded), "it overtook the rest"
    assert link.session.unsettled() == []


def test_what_is_looked_at_before_the_rest_is_heard_is_heard_singly() -> None:
    peer, link = sent_together(1, 100)
    served = [peer.send_bytes(disposition(0, 1_000, Accepted()))]
    assert len(link.session.unsettled()) > 800
    while peer.engine.input_waits:
        served.append(peer.send_bytes(b""))
    told = [event for events in served for event in events if isinstance(event, StatesReceived)]
    assert sum(len(event.deliveries) for event in told) > 800
    assert link.session.unsettled() == []
    assert peer.engine.unfinished is None


@pytest.mark.parametrize("together", [False, True])
def test_a_session_that_we_have_ended_hears_no_more_of_a_disposition(together: bool) -> None:
    peer, link = sent_together(1, 100) if together else sent(1_000)
    peer.send_bytes(disposition(0, 999, Accepted() if together else None))
    assert peer.engine.input_waits
    link.session.end()
    assert turns(peer, b"") == [[]]
    assert peer.engine.unfinished is None


def test_a_connection_that_ends_has_no_input_left() -> None:
    for end in (lambda peer: peer.engine.close(), lambda peer: peer.engine.receive_eof(peer.now)):
        peer, _ = sent(1_000)
        peer.send_bytes(disposition(0, 999))
        end(peer)
        while peer.engine.input_waits:
            assert peer.send_bytes(b"") == []
        assert peer.engine.unfinished is None


def test_a_close_behind_what_waits_is_heard_in_its_turn() -> None:
    peer, _ = sent(1_000)
    served = turns(peer, disposition(0, 999) + encode_frame(0, encode_composite(Close())))
    assert isinstance(served[-1][-1], ConnectionEnded)
    assert not peer.engine.input_waits


def test_a_frame_cut_in_two_by_the_socket_does_not_keep_the_turn() -> None:
    """A part of a frame, behind a turn that was used up, waits for more bytes and not for another turn."""
    peer = open_server(in_turns())
    begins = b"".join(encode_frame(at, encode_composite(Begin(None, 0, 9, 9))) for at in range(8))
    served = turns(peer, begins[:-3])
    assert len(served) == 2
    assert len(peer.send_bytes(begins[-3:])) == 1


@pytest.mark.parametrize(
    ("state", "cost"),
    [
        (Accepted(), ACCEPTED_COST),
        (Rejected(), RETURN_COST),
        (Released(), RETURN_COST),
        (Modified(), RETURN_COST),
        (None, RETURN_COST),
        (Received(0, 0), DELIVERY_COST),
    ],
)
def test_a_disposition_costs_what_its_deliveries_do(state: DeliveryState | None, cost: int) -> None:
    peer, link = sent(1_000)
    said = (Disposition(Role.RECEIVER, first, first + 49, True, state) for first in range(0, 1_000, 50))
    served = turns(peer, b"".join(encode_frame(0, encode_composite(one)) for one in said))
    states = [sum(len(event.deliveries) for event in events if isinstance(event, StatesReceived)) for events in served]
    assert sum(states) == 1_000
    assert max(states) <= COST_MAX // cost + 1
    assert link.session.unsettled() == []


def test_a_frame_costs_what_its_maps_may_hold() -> None:
    peer = open_server(in_turns())
    begin = Begin(None, 0, 9, 9, properties={Symbol("x" * 60): "y" * 4_000})
    served = turns(peer, b"".join(encode_frame(at, encode_composite(begin)) for at in range(10)))
    assert max(map(len, served)) <= 3 < COST_MAX // FRAME_COSTS[Begin]


def test_a_tag_that_is_not_settled_is_no_other_delivery_s_in_a_run() -> None:
    peer = begun_server(in_turns())
    link = attach_to(peer, sending_attach())
    assert isinstance(link, ReceivingLink)
    link.grant(2_000)
    again = encode_frame(0, encode_composite(Transfer(0, 1_040, (7).to_bytes(4, "big"), 0)) + b"again")
    heard = [event for events in turns(peer, transfers(40) + again) for event in events]
    assert sum(len(event.deliveries) for event in heard if isinstance(event, DeliveriesReceived)) == 40
    (detached,) = [event for event in heard if isinstance(event, LinkDetached)]
    assert detached.error is not None
    assert detached.error.condition == "amqp:not-allowed"
