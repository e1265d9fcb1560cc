from __future__ import annotations

from pathlib import Path

import pytest

import acquit
from acquit.errors import AcquitError, ConnectionFailed, ConnectionLost, MessageRejected
from tests.support import endpoint as endpoints
from tests.support.endpoint import keep_working, publish_url, withdraw_url


def test_an_address_is_published_whole_and_withdrawn(tmp_path: Path) -> None:
    endpoint = tmp_path / "endpoint"
    publish_url(endpoint, "amqp://127.0.0.1:1")
    publish_url(endpoint, "amqp://127.0.0.1:2")
    assert endpoint.read_text() == "amqp://127.0.0.1:2"
    withdraw_url(endpoint)
    withdraw_url(endpoint)
    assert list(tmp_path.iterdir()) == []


def test_work_is_done_again_over_a_fresh_connection_when_one_was_lost(broker: acquit.Broker, tmp_path: Path) -> None:
    publish_url(tmp_path / "endpoint", broker.url)
    seen: list[acquit.Connection] = []
    lost: list[AcquitError] = []

    def work(connection: acquit.Connection) -> None:
        seen.append(connection)
        if len(seen) < 3:
            raise ConnectionLost("gone")

    keep_working(tmp_path / "endpoint", container_id="worker", work=work, lost=lost.append)
    assert (len(set(map(id, seen))), len(lost)) == (3, 2)
    assert all(connection.closed for connection in seen)


def test_what_trying_again_cannot_mend_is_raised(broker: acquit.Broker, tmp_path: Path) -> None:
    publish_url(tmp_path / "endpoint", broker.url)

    def work(connection: acquit.Connection) -> None:
        raise MessageRejected("no good")

    with pytest.raises(MessageRejected):
        keep_working(tmp_path / "endpoint", container_id="worker", work=work, lost=lambda why: None)


def test_a_broker_that_does_not_come_back_ends_the_waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoints, "DOWN_S_MAX", 0.0)
    with pytest.raises(ConnectionFailed, match="no broker for"):
        keep_working(tmp_path / "endpoint", container_id="worker", work=lambda c: None, lost=lambda why: None)
