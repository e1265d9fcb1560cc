from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acquit.protocol.credit import receiver_credit, remote_window, sender_credit
from acquit.protocol.definitions import Flow
from acquit.protocol.serial import MASK, add
from tests.support.peer import sending_engine

serials = st.integers(0, MASK)
counts = st.integers(0, 1_000_000)


@pytest.mark.parametrize(
    ("delivery_count_rcv", "link_credit_rcv", "delivery_count_snd", "expected"),
    [
        (0, 10, 0, 10),
        (0, 10, 4, 6),  # four on the way
        (4, 10, 4, 10),
        (MASK, 10, 3, 6),  # wrapped around
        (7, 2, 5, 4),  # a receiver that counts more than we have sent: the formula is the formula
        (0, 2, 5, 0),  # lowered below what is on the way
        (0, MASK, 3, MASK - 3),  # all the credit there is
    ],
)
def test_sender_credit(delivery_count_rcv: int, link_credit_rcv: int, delivery_count_snd: int, expected: int) -> None:
    assert sender_credit(delivery_count_rcv, link_credit_rcv, delivery_count_snd, 0) == expected


def test_the_receivers_credit_may_be_all_there_is() -> None:
    assert receiver_credit(MASK, 0, 1) == MASK - 1
    assert receiver_credit(3, MASK, 1) == 1
    assert receiver_credit(3, 0, 1_000) == 0


def test_a_receiver_that_has_not_seen_our_attach_means_our_initial_count() -> None:
    assert sender_credit(None, 10, 103, initial=100) == 7


@pytest.mark.parametrize(
    ("next_incoming_id", "incoming_window", "next_outgoing_id", "expected"),
    [
        (0, 100, 0, 100),
        (0, 100, 30, 70),
        (0xFFFF_FFFF, 100, 9, 90),
        (0, 100, 100, 0),
        (0, 10, 30, 0),  # the peer has made its window smaller
        (0, MASK, 30, MASK - 30),
        (5, 100, 4, None),  # it counts a frame that we have not sent
        (0, 100, 0xFFFF_FFFF, None),
    ],
)
def test_remote_window(
    next_incoming_id: int, incoming_window: int, next_outgoing_id: int, expected: int | None
) -> None:
    assert remote_window(next_incoming_id, incoming_window, next_outgoing_id, 0) == expected


def test_a_peer_that_has_not_seen_our_begin_means_our_initial_id() -> None:
    assert remote_window(None, 100, 0xFFFF_FFFF + 3 & MASK, initial=0xFFFF_FFFF) == 97


@given(serials, counts, counts)
def test_both_ends_of_a_link_come_to_the_same_limit(start: int, granted: int, sent: int) -> None:
    """2.6.7: what is on the way does not change the delivery-limit, wherever the numbers start."""
    sent = min(sent, granted)
    at_sender = sender_credit(start, granted, add(start, sent), 0)
    at_receiver = receiver_credit(granted, start, add(start, sent))
    assert at_sender == at_receiver == granted - sent


def test_a_receiver_ahead_of_us_cannot_grant_more_than_a_uint() -> None:
    """The credit goes out again in our next flow, where nothing larger can be written."""
    assert sender_credit(5, MASK, 0, 0) == MASK
    peer, link = sending_engine(credit=1)
    peer.say(Flow(0, 100, 0, 100, 0, 0x7FFF_0000, MASK, echo=True))
    assert link.credit == MASK
    assert peer.hear_only(Flow).link_credit == MASK
