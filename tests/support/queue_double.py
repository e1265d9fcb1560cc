"""A queue in memory with the interface of a drain, for tests of the spool that need no schedule."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from uuid import UUID

from acquit.broker.intake.shaping import make_body
from acquit.protocol.message import Message
from acquit.protocol.sections import scan_sections
from acquit.protocol.types import ULong
from acquit.spark.parsing import read_message
from acquit.spark.spool import Numbers, Outcome, Part, Result

BROKER = UUID("6f5c1b1e-6d0e-4f5b-9d43-4b8a55d6a2c1")


def posting(
    sequence: int, body: bytes = b"", *, damaged: bool = False, message_id: str | None = None, **properties: object
) -> bytes:
    """A message as an acquit broker transfers it; `damaged`: its body says that it is longer than it is."""
    payload = Message(
        body or f"m{sequence}".encode(),
        message_id=message_id,
        annotations={"x-opt-acquit-sequence": ULong(sequence)} if sequence else None,
        application_properties=dict(properties) or None,
    ).encode()
    return payload[:-4] + b"\xa0\x77" + payload[-2:] if damaged else payload


def plain(
    sequence: int, body: bytes = b"", *, message_id: str | None = None, posted_ms: int = 1_700_000_000_000
) -> bytes:
    """One as our broker hands out most of them, which is read the short way (`spark.plain`)."""
    message = Message(body or f"m{sequence}".encode(), message_id=message_id or f"id-{sequence}")
    return make_body(scan_sections(message.encode()), sequence, posted_ms)


def part(epoch: int = 1, number: int = 0, **changes: object) -> Part:
    """The work of a task, with limits that do not matter unless given."""
    fields: dict[str, object] = {"epoch": epoch, "part": number, "rows_max": 100, "bytes_max": 1 << 20}
    return Part(**(fields | changes))  # type: ignore[arg-type]


def bodies(result: Result) -> list[bytes]:
    """The bodies of the rows."""
    return [body for batch in result.batches for body in batch.column("body").to_pylist()]


class QueueDouble:
    """Messages by number of delivery; `attach` makes drains on them. `order` is what they are sorted by, as with
    priorities; without it what is given back goes to the front."""

    def __init__(
        self,
        *payloads: bytes,
        broker_id: UUID | None = BROKER,
        order: Callable[[bytes], tuple[int, ...]] | None = None,
    ) -> None:
        self.available: list[bytes] = []
        self.order = order
        self.settled: list[tuple[bytes, Outcome]] = []
        self.broker_id = broker_id
        self.attached = 0
        self.answers = True
        self.post(*payloads)

    def post(self, *payloads: bytes) -> None:
        self.lay([*self.available, *payloads])

    def lay(self, payloads: list[bytes]) -> None:
        """These are available, from now on."""
        self.available = payloads if self.order is None else sorted(payloads, key=self.order)

    def attach(self, until: int | None = None) -> DrainDouble:
        self.attached += 1
        return DrainDouble(self, until)

    def older(self, until: int | None) -> list[bytes]:
        """Of what is available, what has a sequence up to `until`; None for all."""
        return [one for one in self.available if until is None or sequence_of(one) <= until]

    def outcomes(self) -> Mapping[bytes, Outcome]:
        return dict(self.settled)


def sequence_of(payload: bytes) -> int:
    """The broker's; 0 for none."""
    return read_message(payload, BROKER).sequence or 0


class DrainDouble:
    """One link to a `QueueDouble`, which gives at most `chunk` messages at a time, and none beyond `until`."""

    chunk = 3

    def __init__(self, queue: QueueDouble, until: int | None = None) -> None:
        self._queue = queue
        self._until = until
        self._held: list[bytes] = []
        self._given: list[bytes] = []
        self.exhausted = False
        self.broker_id = queue.broker_id

    def receive(self, rows_max: int) -> Sequence[bytes]:
        count = min(rows_max, self.chunk)
        found = self._queue.older(self._until)[:count]
        for payload in found:
            self._queue.available.remove(payload)
        self._held += found
        self._given += found
        self.exhausted = not found
        return found

    def settle(self, outcomes: Mapping[Outcome, Numbers]) -> bool:
        for outcome, numbers in outcomes.items():
            for number in numbers:
                payload = self._given[number]
                self._held.remove(payload)
                self._queue.settled.append((payload, outcome))
        return self._queue.answers

    def detach(self) -> None:
        self._queue.lay(self._held + self._queue.available)
        self._held = []
