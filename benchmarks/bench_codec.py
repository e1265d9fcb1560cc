"""What the value layer costs: composites, frames, sections and messages, in microseconds of processor time each.

    python benchmarks/bench_codec.py [--short]

These run once a frame or once a message wherever no fast path applies. Figures of one machine at one time: compare them
only with others of the same run. The best of several rounds is given, as noise only ever adds.
"""

from __future__ import annotations

import argparse
import time
import timeit
from collections.abc import Callable

from acquit.protocol.composite import decode_composite, encode_composite
from acquit.protocol.constants import ACCEPTED
from acquit.protocol.definitions import Disposition, Flow, Role, Transfer
from acquit.protocol.frames import FrameDecoder, encode_frame
from acquit.protocol.message import Message
from acquit.protocol.sections import PropertyIndex, encode_header, map_value, scan_sections, splice_annotations

FRAMES = 10


def cases() -> dict[str, tuple[Callable[[], object], int]]:
    """Name -> what to time, and how many of what is counted it does."""
    performatives = {
        "transfer": Transfer(0, 1000, b"\0\0\0\1", 0, False),
        "disposition": Disposition(Role.RECEIVER, 1000, 2000, True, ACCEPTED),
        "flow": Flow(1000, 2000, 3000, 4000, 0, 5, 100),
    }
    found: dict[str, tuple[Callable[[], object], int]] = {}
    for name, performative in performatives.items():
        data = encode_composite(performative)
        found[f"decode {name}"] = (lambda data=data: decode_composite(data)), 1  # type: ignore[misc]
        found[f"encode {name}"] = (lambda value=performative: encode_composite(value)), 1  # type: ignore[misc]

    stream = encode_frame(0, encode_composite(performatives["transfer"]) + b"x" * 100) * FRAMES
    decoder = FrameDecoder(65536)

    def frames() -> None:
        decoder.feed(stream)
        for _ in decoder:
            pass

    found["frame with a transfer of 100 bytes"] = frames, FRAMES

    body = b"x" * 1000
    plain = Message(body, durable=True).encode()
    message = Message(body, durable=True, message_id="id-1", to="queue", subject="hello", creation_time=1700000000000)
    usual = message.encode()
    annotations = splice_annotations(b"", {"x-opt-a": 1, "x-opt-b": "two"})
    whole = scan_sections(encode_header(True) + annotations + scan_sections(usual).unchanging)
    wanted = (PropertyIndex.MESSAGE_ID, PropertyIndex.TO, PropertyIndex.ABSOLUTE_EXPIRY_TIME, PropertyIndex.GROUP_ID)
    found |= {
        "scan header, data": (lambda: scan_sections(plain), 1),
        "scan header, annotations, properties, data": (lambda: scan_sections(whole.payload), 1),
        "message-id only": (lambda: whole.property_values(PropertyIndex.MESSAGE_ID), 1),
        "four properties": (lambda: whole.property_values(*wanted), 1),
        "all properties": (whole.decode_properties, 1),
        "one annotation": (lambda: map_value(annotations, "x-opt-b"), 1),
        "replace one annotation of two": (lambda: splice_annotations(annotations, {"x-opt-b": 3}), 1),
        "make a message": (lambda: Message(body, message_id="id-1", to="queue", durable=True), 1),
        "encode a message with four properties": (message.encode, 1),
        "decode a message, read its body": (lambda: Message.decode(usual).body, 1),
        "decode a message, read body and id": (lambda: _body_and_id(usual), 1),
    }
    return found


def _body_and_id(data: bytes) -> tuple[object, object]:
    message = Message.decode(data)
    return message.body, message.message_id


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--short", action="store_true", help="fewer rounds")
    count, rounds = (2_000, 3) if parser.parse_args().short else (50_000, 7)
    for name, (run, per_run) in cases().items():
        best = min(timeit.repeat(run, number=count, repeat=rounds, timer=time.process_time))
        print(f"{name:45} {best / count / per_run * 1e6:6.2f} µs")


if __name__ == "__main__":
    main()
