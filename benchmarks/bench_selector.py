"""What a selector costs: microseconds of processor time to decide about one message, its sections read anew each time.

    python benchmarks/bench_selector.py [--short]

The messages are as they lie in a queue: encoded, with annotations, properties and ten application properties. The last
lines compile. Figures of one machine at one time: compare them only with others of the same run. The best of several
rounds is given, as noise only ever adds.
"""

from __future__ import annotations

import argparse
import time
import timeit

from acquit.broker.intake.shaping import shape_body
from acquit.broker.selector import compile_selector, fields_of_posting
from acquit.protocol.message import Message

SELECTORS = [
    "JMSPriority > 4",
    "JMSType = 'order'",
    "JMSCorrelationID = 'nobody'",
    "colour = 'red'",
    "key9 = 9",
    "absent = 'x'",
    "colour = 'red' AND key5 BETWEEN 4 AND 6",
    "colour IN ('green', 'blue') OR key9 > 8",
    "text LIKE 'the quick%'",
    "text LIKE '%lazy%'",
    "text LIKE '%l_zy%'",
    "(key1 + key2) * 2 = 6 AND NOT (colour = 'blue' OR absent IS NOT NULL)",
]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--short", action="store_true", help="fewer rounds")
    count, rounds = (2_000, 3) if parser.parse_args().short else (50_000, 7)
    properties: dict[str, object] = {"colour": "red"} | {f"key{number}": number for number in range(1, 10)}
    properties["text"] = "the quick brown fox jumps over the lazy dog"
    message = Message(b"x" * 1_000, durable=True, message_id="ID:1", subject="order", correlation_id="somebody")
    message.application_properties = properties
    body = bytes(shape_body(message.encode(), 1, 1_700_000_000_000))

    def look(text: str) -> tuple[float, bool]:
        matches = compile_selector(text).matches

        def once() -> bool:
            return matches(
                fields_of_posting(body, "orders", durable=True, priority=4, expires_at_ms=0, size_bytes=1_000)
            )

        best = min(timeit.repeat(once, number=count, repeat=rounds, timer=time.process_time))
        return best / count, once()

    for text in SELECTORS:
        seconds, matched = look(text)
        verdict = "taken" if matched else "left"
        print(f"{text:75} {seconds * 1e6:6.2f} µs {1 / seconds:11,.0f}/s  {verdict}")
    for text in SELECTORS[3], SELECTORS[-1]:
        best = min(
            timeit.repeat(
                lambda text=text: compile_selector(text),  # type: ignore[misc]
                number=count // 20,
                repeat=rounds,
                timer=time.process_time,
            )
        )
        print(f"compile {text:67} {best / (count // 20) * 1e6:6.2f} µs")


if __name__ == "__main__":
    main()
