"""Chosen letters moved by a broker, without Spark: answers that are lost, two at once, the rate."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest

import acquit
from acquit.broker.options import BrokerOptions, Role, Security, User
from acquit.cli.exits import Exit, exit_of
from acquit.client.management import Management
from acquit.errors import ConfigurationError, ConnectionLost, PipelineFailed
from acquit.protocol.message import Message
from acquit.spark import redrive as module
from acquit.spark.redrive import RedriveOptions, RedriveProgress
from acquit.store.options import JournalOptions
from tests.support.draining import take_all
from tests.support.qpid import eventually


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
        messages = take_all(session.receiver(queue, browse=True))
        assert len(messages) == count
        return [message.sequence for message in messages if message.sequence is not None]


def bodies(url: str, queue: str) -> list[object]:
    with acquit.connect(url) as connection, connection.session("no-ack") as session:
        return [message.body for message in take_all(session.receiver(queue, browse=True))]


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
    real = Management.request
    asked: list[object] = []

    def lost(node: Management, operation: str, kind: str, **more: Any) -> object:
        answer = real(node, operation, kind, **more)
        asked.append(answer)
        if len(asked) == 2:
            raise ConnectionLost("the connection is gone")
        return answer

    with monkeypatch.context() as patched:
        patched.setattr(Management, "request", lost)
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
    complaint = f"{address} to {address}: .* cannot be moved into itself: .*; 0 of 1"
    with pytest.raises(PipelineFailed, match=complaint) as caught:
        move(options, [Row(sequence, address)])
    assert "\n" not in str(caught.value)
    assert exit_of(caught.value) is Exit.USAGE


def test_letters_to_other_queues_do_not_wait_behind_those_that_the_broker_refuses(
    broker: acquit.Broker, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    targets = [address, f"{address}.good", "$nowhere", f"{address}.good", address, f"{address}.good"]
    rows = [Row(sequence, target) for sequence, target in zip(post(broker.url, address, 6), targets, strict=True)]
    monkeypatch.setattr(module, "_CHUNK", 2)
    with pytest.raises(PipelineFailed, match=f"{address} to {address}: .*; 3 of 6 letters were moved for sure"):
        move(RedriveOptions(url=broker.url, queue=address), rows)
    assert (bodies(broker.url, address), bodies(broker.url, f"{address}.good")) == ([0, 2, 4], [1, 3, 5])


@pytest.mark.parametrize("rate", [math.inf, math.nan, 1e-300, 0.0, -1.0])
def test_a_rate_that_is_none(rate: float) -> None:
    with pytest.raises(ConfigurationError, match="rate: expected messages in a second, above 0, got"):
        RedriveOptions(url="amqp://127.0.0.1:1", rate=rate)


def test_a_table_whose_files_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "gone.parquet").symlink_to(tmp_path / "nowhere")
    with pytest.raises(PipelineFailed, match=r"^table .*gone\.parquet"):
        next(module._known_files(tmp_path))


def test_the_permissions_that_the_page_names_are_enough(tmp_path: Path) -> None:
    roles = {
        "poster": Role(send=("#",), create=("#",), browse=("#",)),
        "mover": Role(browse=("letters",), manage=("letters", "orders")),
    }
    users = {"ada": User(password="x", roles=("poster",)), "eve": User(password="x", roles=("mover",))}
    security = Security(anonymous="never", users=users, roles=roles)
    password = tmp_path / "password"
    password.write_text("x")
    with acquit.Broker(config=BrokerOptions(security=security, journal=JournalOptions.small())) as broker:
        first, second = post(broker.url.replace("://", "://ada:x@"), "letters", 2)
        options = RedriveOptions(url=broker.url, user="eve", credential=f"file:{password}", queue="letters")
        assert move(options, [Row(first, "orders")]) == 1
        with pytest.raises(PipelineFailed, match="letters to others: .*eve.* not manage at others: .*0 of 1") as caught:
            move(options, [Row(second, "others")])
        assert exit_of(caught.value) is Exit.FAILED
        eventually(lambda: not broker.inspect().connections)  # also where it failed
