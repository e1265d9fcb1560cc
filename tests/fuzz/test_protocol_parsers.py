"""Mutated inputs against every parser of the protocol's value layer: each decodes, or is refused as malformed.

Whatever else a parser raises is a fault. Two more things must hold of any bytes: what was decoded can be encoded and
decoded again, and what a parser holds in memory is in proportion to its input.
"""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Callable

import pytest

from acquit.errors import DecodeError, EncodeError, FramingError
from acquit.protocol.codec import decode, encode, skip
from acquit.protocol.composite import decode_composite, encode_composite
from acquit.protocol.frames import AMQP_FRAME, SASL_FRAME, FrameDecoder
from acquit.protocol.message import Message
from acquit.protocol.sections import map_value, scan_sections, splice_annotations
from tests.fuzz.mutate import corpus, mutate

SEEDS = corpus("protocol")
MUTATIONS = 8_000
BYTES_PER_OCTET_MAX = 200
"""An octet can become an empty list (56 bytes and its place in another); this leaves room for Python's growth."""


def value(data: bytes) -> None:
    decoded, end = decode(data)
    assert skip(data, 0, len(data)) == end
    again, _ = decode(encode(decoded))
    assert repr(again) == repr(decoded)


def composite(data: bytes) -> None:
    decoded, end = decode_composite(data)
    again, _ = decode_composite(encode_composite(decoded))
    assert again == decoded or "nan" in repr(decoded)  # by value: string keys that others send become symbols
    assert end <= len(data)


def frames(data: bytes, frame_type: int = AMQP_FRAME) -> None:
    decoder = FrameDecoder(4096, frame_type)
    half = len(data) // 2
    for part in (data[:half], data[half:]):
        decoder.feed(part)
        for frame in decoder:
            assert len(frame.payload) <= 4096
        assert decoder.buffered <= 4096


def sasl_frames(data: bytes) -> None:
    frames(data, SASL_FRAME)


def sections(data: bytes) -> None:
    found = scan_sections(data)
    assert b"".join(found.section(rank) for rank in range(7)) == data
    for read in (
        found.decode_header,
        found.decode_properties,
        lambda: found.property_values(0, 2, 8, 9, 10),
        lambda: map_value(found.message_annotations, "x-opt-b"),
        lambda: splice_annotations(found.message_annotations, {"x-opt-b": 1}, remove=["x-opt-a"]),
    ):
        attempt(read)


def message(data: bytes) -> None:
    decoded = Message.decode(data)
    read = [attempt(lambda name=name: getattr(decoded, name)) for name in PARTS]  # type: ignore[misc]
    if all(read):
        try:
            again = Message.decode(decoded.encode())
        except EncodeError as exc:
            if "simple value" in str(exc):  # a list as application property is read, but not written (3.2.5)
                return
            raise
        assert again == decoded or "nan" in repr(decoded)


PARTS = ("header", "delivery_annotations", "annotations", "properties", "application_properties", "body", "footer")


def attempt(read: Callable[[], object]) -> bool:
    """Did it decode?"""
    try:
        read()
    except DecodeError:
        return False
    return True


TARGETS = {  # and the seeds that each should take, by the begin of their names
    value: "value-",
    composite: "composite-",
    frames: "frames-",
    sasl_frames: "sasl_frames-",
    sections: "message-",
    message: "message-",
}


def run(target: Callable[[bytes], None], rng: random.Random, count: int) -> int:
    """Mutate and parse `count` times; how many inputs decoded."""
    inputs = list(SEEDS.values())
    own = [data for name, data in SEEDS.items() if name.startswith(TARGETS[target])]
    decoded = 0
    for _ in range(count):
        data = mutate(rng, rng.choice(own if rng.random() < 0.9 else inputs), rng.choice(inputs))
        try:
            target(data)
        except (DecodeError, FramingError):
            continue
        except Exception as exc:
            exc.add_note(f"{target.__name__}: {data.hex()}")
            raise
        decoded += 1
    return decoded


@pytest.mark.parametrize("name", SEEDS)
@pytest.mark.parametrize("target", TARGETS)
def test_the_corpus_decodes_or_is_refused(target: Callable[[bytes], None], name: str) -> None:
    try:
        target(SEEDS[name])
    except (DecodeError, FramingError):
        assert not name.startswith(TARGETS[target])


@pytest.mark.parametrize("target", TARGETS)
def test_mutated_inputs_decode_or_are_refused(target: Callable[[bytes], None], rng: random.Random) -> None:
    assert run(target, rng, MUTATIONS) > 0


@pytest.mark.parametrize("target", TARGETS)
def test_memory_is_in_proportion_to_the_input(target: Callable[[bytes], None], rng: random.Random) -> None:
    inputs = list(SEEDS.values())
    own = [data for name, data in SEEDS.items() if name.startswith(TARGETS[target])]
    tracemalloc.start()
    try:
        for _ in range(100):
            data = mutate(rng, rng.choice(own), rng.choice(inputs))
            tracemalloc.reset_peak()
            before = tracemalloc.get_traced_memory()[0]
            attempt_any(target, data)
            used = tracemalloc.get_traced_memory()[1] - before
            assert used < 100_000 + BYTES_PER_OCTET_MAX * len(data), data.hex()
    finally:
        tracemalloc.stop()


def attempt_any(target: Callable[[bytes], None], data: bytes) -> None:
    try:
        target(data)
    except (DecodeError, FramingError):
        pass


@pytest.mark.slow
@pytest.mark.timeout(0)
@pytest.mark.parametrize("target", TARGETS)
def test_many_mutated_inputs(target: Callable[[bytes], None], rng: random.Random, soak_rounds: int) -> None:
    run(target, rng, 10_000 * soak_rounds)
