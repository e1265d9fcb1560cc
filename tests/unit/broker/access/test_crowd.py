"""Who has to leave the crowd in front of the broker for a newcomer."""

from __future__ import annotations

import pytest

from acquit.broker.access.crowd import Crowd, Place, peer_network


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


class Square:
    """A crowd, and who was sent away from it."""

    def __init__(self, size_max: int) -> None:
        self.gone: list[str] = []
        self.evictions = 0
        self.crowd = Crowd(size_max, self.count)

    def count(self) -> None:
        self.evictions += 1

    def come(self, name: str, host: str = "127.0.0.1") -> Place:
        return self.crowd.enter((host, 1), lambda: self.gone.append(name))


def test_the_oldest_gives_way() -> None:
    square = Square(2)
    for name in "abcd":
        square.come(name)
    assert (square.gone, len(square.crowd), square.evictions) == (["a", "b"], 2, 2)


def test_one_of_the_largest_network_gives_way() -> None:
    square = Square(3)
    square.come("honest", "192.0.2.1")
    for number in range(5):
        square.come(f"flood {number}", "192.0.2.66")
    square.come("another", "192.0.2.2")
    assert square.gone == ["flood 0", "flood 1", "flood 2", "flood 3"]


def test_a_newcomer_is_never_the_one() -> None:
    square = Square(2)
    for number in range(6):
        square.come(str(number), f"192.0.2.{number}")
    assert square.gone == ["0", "1", "2", "3"]


def test_who_left_is_not_sent_away_and_leaves_once() -> None:
    square = Square(2)
    first = square.come("first")
    first.leave()
    first.leave()
    assert len(square.crowd) == 0
    square.come("second")
    square.come("third")
    assert square.gone == []


def test_who_has_the_socket_says_how_it_ends() -> None:
    square = Square(1)
    place = square.come("at the door")
    place.turn_away = lambda: square.gone.append("inside")
    square.come("next")
    assert square.gone == ["inside"]


def test_a_smaller_crowd_is_that_small_with_the_next_one() -> None:
    square = Square(5)
    for name in "abcde":
        square.come(name)
    square.crowd.size_max = 2
    square.come("f")
    assert square.gone == ["a", "b", "c", "d"]
