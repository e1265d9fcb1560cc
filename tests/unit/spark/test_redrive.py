"""Chosen letters moved by a broker, without Spark: answers that are lost, two at once, the rate."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

import pytest

import acquit
from acquit.errors import ConnectionLost, PipelineFailed, Unauthorized
from acquit.protocol.message import Message
from acquit.spark import redrive as module
from acquit.spark.redrive import RedriveOptions, RedriveProgress


@dataclass
class Row:
    sequence: int
    target: str


class Frame:
    """What the driver asks of the chosen letters."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self._rows = rows

    def select(self, *columns: str) -> Frame:
        assert columns == ("sequence", "target")
        return self

    def toLocalIterator(self) -> Iterator[Row]:  # noqa: N802
        return iter(self._rows)


def post(url: str, queue: str, count: int) -> list[int]:
    """Letters; their sequences."""
    with acquit.connect(url) as connection, connection.session("no-ack") as session:
        sender = session.sender(queue)
        for number in range(count):
            sender.send(Message(number), wait=False)
        sender.flush()
        messages = session.receiver(queue, browse=True).receive_many(count, 5)
        return [message.sequence for message in messages if message.sequence is not None]


def bodies(url: str, queue: str) -> list[object]:
    with acquit.connect(url) as connection, connection.session("no-ack") as session:
        receiver = session.receiver(queue, browse=True)
        return [message.body for message in receiver.receive_many(1_000, 0.5)]


def move(
    options: RedriveOptions, rows: Sequence[Row], told: list[RedriveProgress] | None = None, naps: Any = None
) -> int:
    return module._move(
        options,
        cast(Any, Frame(rows)),
        len(rows),
        (told if told is not None else []).append,
        (naps if naps is not None else []).append,
    )


def test_an_answer_that_is_lost_costs_nothing_but_another_run(
    broker: acquit.Broker, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    letters = f"{address}.letters"
    rows = [Row(sequence, f"{address}.{number % 2}") for number, sequence in enumerate(post(broker.url, letters, 6))]
    options = RedriveOptions(url=broker.url, queue=letters)
    real = module._Mover.move
    asked: list[str] = []

    def lost(mover: module._Mover, target: str, sequences: Sequence[int]) -> int:
        moved = real(mover, target, sequences)
        asked.append(target)
        if len(asked) == 2:
            raise ConnectionLost("the connection is gone")
        return moved

    with monkeypatch.context() as patched:
        patched.setattr(module._Mover, "move", lost)
        patched.setattr(module, "_CHUNK", 2)
        with pytest.raises(PipelineFailed, match="is gone; 1 of 6 letters were moved for sure: run it again") as caught:
            move(options, rows)
    assert isinstance(caught.value.__cause__, ConnectionLost)
    assert bodies(broker.url, letters) == [2, 3, 4, 5]
    # The same again, by somebody who has looked before.
    assert move(options, rows) == 4
    assert move(options, rows) == 0
    assert (bodies(broker.url, f"{address}.0"), bodies(broker.url, f"{address}.1")) == ([0, 2, 4], [1, 3, 5])


def test_no_faster_than_asked_for(broker: acquit.Broker, address: str) -> None:
    letters = f"{address}.letters"
    rows = [Row(sequence, address) for sequence in post(broker.url, letters, 3)]
    told: list[RedriveProgress] = []
    naps: list[float] = []
    assert move(RedriveOptions(url=broker.url, queue=letters, rate=0.01), rows, told, naps) == 3
    assert [(step.moved, step.of) for step in told] == [(1, 3), (2, 3), (3, 3)]
    assert [round(nap, -2) for nap in naps] == [100, 200], "nobody slept, so the second is later by both"
    assert move(RedriveOptions(url=broker.url, queue=letters), []) == 0


def test_what_the_broker_refuses_is_one_line(broker: acquit.Broker, address: str) -> None:
    (sequence,) = post(broker.url, address, 1)
    options = RedriveOptions(url=broker.url, queue=address)
    with pytest.raises(PipelineFailed, match=f"{address} to {address}: .* cannot be moved into itself") as caught:
        move(options, [Row(sequence, address)])
    assert "\n" not in str(caught.value)
    assert not isinstance(caught.value.__cause__, Unauthorized)
