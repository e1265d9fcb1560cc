"""Link credit and session windows as arithmetic (2.6.7, 2.5.6): pure functions of serial numbers.

Both rules have the same shape. The receiver of frames says "I have seen everything before S and will take W more",
which is a *limit*, S + W, that stays true however many frames are on the way. The sender of frames knows how far it has
got and subtracts. What a limit is compared with wraps around, so it is never compared with `<`.
"""

from __future__ import annotations

from acquit.protocol.serial import MASK, distance


def sender_credit(delivery_count_rcv: int | None, link_credit_rcv: int, delivery_count_snd: int, initial: int) -> int:
    """The sender's link-credit after a flow from the receiver (2.6.7).

    link-credit(snd) := delivery-count(rcv) + link-credit(rcv) - delivery-count(snd), and never below 0: the receiver
    may have lowered its limit below what is already on the way. Never above the uint that link-credit is either, which
    a receiver that claims to have seen more than was sent could make it. A receiver that has not seen our attach sends
    no delivery-count, and means `initial`, the one in that attach.
    """
    known = initial if delivery_count_rcv is None else delivery_count_rcv
    return min(max(0, link_credit_rcv - distance(known, delivery_count_snd)), MASK)


def receiver_credit(link_credit_rcv: int, delivery_count_rcv: int, delivery_count_snd: int) -> int:
    """Return the credit that is left at the receiver that granted it, when the sender says how far it has come."""
    return max(0, link_credit_rcv - distance(delivery_count_rcv, delivery_count_snd))


def remote_window(
    next_incoming_id: int | None, incoming_window: int, next_outgoing_id: int, initial: int
) -> int | None:
    """Transfer frames the peer will take, after a flow from it (2.5.6).

    remote-incoming-window := next-incoming-id(flow) + incoming-window(flow) - next-outgoing-id(endpoint), with the
    initial outgoing id for a peer that has not seen our begin. None if the peer claims frames we have not sent.
    """
    known = initial if next_incoming_id is None else next_incoming_id
    on_the_way = distance(known, next_outgoing_id)
    return None if on_the_way < 0 else max(0, incoming_window - on_the_way)


__all__ = ["receiver_credit", "remote_window", "sender_credit"]
