"""What TLS decrypts in one go: little at first, more of what is quick, less of what is slow."""

from __future__ import annotations

import pytest

from acquit.transport.portions import FIRST_BYTES, LEAST_BYTES, LITTLE_BYTES, PATIENCE, SLOW_S, Portions

MOST = 256 * 1024


class Peer:
    """One whose bytes take `byte_s` each, and who has always more of them."""

    def __init__(self, byte_s: float) -> None:
        self.byte_s = byte_s
        self.now = 100.0
        self.portions = Portions(MOST, lambda: self.now)

    def fill(self, bytes_max: int = MOST) -> int:
        size = min(self.portions.begin(MOST), bytes_max)
        self.now += size * self.byte_s
        self.portions.end(size)
        return size


def test_what_is_quick_has_ever_larger_portions() -> None:
    peer = Peer(1e-9)
    sizes = [peer.fill() for _ in range(10)]
    assert sizes == [min(FIRST_BYTES << times, MOST) for times in range(10)]


def test_a_portion_that_was_not_needed_is_not_made_larger() -> None:
    peer = Peer(1e-9)
    for _ in range(3):
        peer.fill(FIRST_BYTES - 1)
    assert peer.fill() == FIRST_BYTES


@pytest.mark.parametrize("record_s", [1e-6, 4e-6, 20e-6])
def test_a_record_for_each_byte_takes_no_longer_than_it_may(record_s: float) -> None:
    peer = Peer(record_s)
    assert FIRST_BYTES * record_s < 12 * SLOW_S
    peer.fill()
    for _ in range(1_000):
        before = peer.now
        peer.fill()
        assert peer.now - before < SLOW_S * 1.01


def test_the_least_portion() -> None:
    peer = Peer(1.0)
    peer.fill()
    assert [peer.fill() for _ in range(3)] == 3 * [LEAST_BYTES]


def test_who_was_quick_only_to_be_slow_is_slow_for_a_small_part_of_the_time() -> None:
    """It is quick while its portions are small, and has all of the largest one in small records."""
    peer = Peer(1e-9)
    began, slow_s = peer.now, 0.0
    for _ in range(200_000):
        before, peer.byte_s = peer.now, 4e-6
        if peer.portions.begin(MOST) == MOST:
            peer.fill(11_000)
            slow_s += peer.now - before
        peer.byte_s = 1e-9
        peer.now += 50e-6
        peer.fill()
    assert 3 * 11_000 * 4e-6 < slow_s < 1.5 / PATIENCE * (peer.now - began)


def test_of_little_all_is_taken_at_once() -> None:
    portions = Portions(MOST, lambda: pytest.fail("the clock costs more than it helps here"))
    assert portions.begin(LITTLE_BYTES) == MOST
    assert not portions.end(LITTLE_BYTES)


def test_who_has_the_largest_portion_need_not_wait() -> None:
    portions = Portions(FIRST_BYTES)
    assert portions.begin(LITTLE_BYTES + 1) == FIRST_BYTES
    assert not portions.end(FIRST_BYTES)


@pytest.mark.parametrize(("nbytes", "more"), [(FIRST_BYTES, True), (FIRST_BYTES - 1, False)])
def test_a_full_buffer_means_that_there_is_more(nbytes: int, more: bool) -> None:
    portions = Portions(MOST)
    assert portions.begin(LITTLE_BYTES + 1) == FIRST_BYTES
    assert portions.end(nbytes) is more
