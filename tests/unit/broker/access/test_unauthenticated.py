"""Which unauthenticated socket gives way to a newcomer."""

from __future__ import annotations

import pytest

from acquit.broker.access.unauthenticated import Slot, Unauthenticated, peer_network


@pytest.mark.parametrize(
    ("address", "network"),
    [
        (("127.0.0.1", 5), ""),
        (("127.8.9.1", 5), ""),
        (("::1", 5, 0, 0), ""),
        (("::ffff:127.0.0.1", 5, 0, 0), ""),
        (("::ffff:192.0.2.1", 5, 0, 0), "192.0.2.1"),
        (("192.0.2.1", 5), "192.0.2.1"),
        (("2001:db8:1:2:3:4:5:6", 5, 0, 0), "2001:db8:1:2::/64"),
        (("2001:db8:1:2::7", 9, 0, 0), "2001:db8:1:2::/64"),
        (("fe80::1%eth0", 5, 0, 3), "fe80::/64"),
        (("nonsense", 5), "nonsense"),
        ("/run/acquit.sock", ""),
        (None, ""),
    ],
)
def test_by_what_an_address_counts(address: object, network: str) -> None:
    assert peer_network(address) == network


class Rig:
    """A unauthenticated, and who was sent away from it."""

    def __init__(self, size_max: int) -> None:
        self.gone: list[str] = []
        self.evictions = 0
        self.sockets = Unauthenticated(size_max, self.count)

    def count(self) -> None:
        self.evictions += 1

    def come(self, name: str, host: str = "127.0.0.1") -> Slot:
        return self.sockets.enter((host, 1), lambda: self.gone.append(name))


def test_the_oldest_gives_way() -> None:
    rig = Rig(2)
    for name in "abcd":
        rig.come(name)
    assert (rig.gone, len(rig.sockets), rig.evictions) == (["a", "b"], 2, 2)


def test_one_of_the_largest_network_gives_way() -> None:
    rig = Rig(3)
    rig.come("honest", "192.0.2.1")
    for number in range(5):
        rig.come(f"flood {number}", "192.0.2.66")
    rig.come("another", "192.0.2.2")
    assert rig.gone == ["flood 0", "flood 1", "flood 2", "flood 3"]


def test_a_newcomer_is_never_the_one() -> None:
    rig = Rig(2)
    for number in range(6):
        rig.come(str(number), f"192.0.2.{number}")
    assert rig.gone == ["0", "1", "2", "3"]


def test_who_left_is_not_sent_away_and_leaves_once() -> None:
    rig = Rig(2)
    first = rig.come("first")
    first.leave()
    first.leave()
    assert len(rig.sockets) == 0
    rig.come("second")
    rig.come("third")
    assert rig.gone == []


def test_who_has_the_socket_says_how_it_ends() -> None:
    rig = Rig(1)
    place = rig.come("at the door")
    place.turn_away = lambda: rig.gone.append("inside")
    rig.come("next")
    assert rig.gone == ["inside"]


def test_a_smaller_limit_is_that_small_with_the_next_one() -> None:
    rig = Rig(5)
    for name in "abcde":
        rig.come(name)
    rig.sockets.size_max = 2
    rig.come("f")
    assert rig.gone == ["a", "b", "c", "d"]
