"""Connections to real brokers that come late, refuse, or are not there."""

from __future__ import annotations

from pathlib import Path

import pytest

import acquit
from acquit.broker.options import BrokerOptions, Security, User
from acquit.errors import AuthenticationFailed, ConnectionFailed
from acquit.spark import connecting
from acquit.spark.connecting import connect_patiently
from acquit.spark.source_options import SourceOptions
from tests.support.guarded import ADA, CA, PASSWORD, guarded_broker, split


def options(url: str, **given: str) -> SourceOptions:
    return SourceOptions.parse({"url": url, "address": "q", "spool": "/nowhere"} | given)


def test_connecting_is_patient_while_a_broker_starts(tmp_path: Path) -> None:
    with acquit.Broker(tmp_path / "data") as broker:
        url, port = broker.url, broker.port
    started: list[acquit.Broker] = []

    def sleep(_: float) -> None:
        if not started:
            started.append(acquit.Broker(tmp_path / "data", port=port))

    connection = connect_patiently(options(url, connectTimeout="60s"), sleep=sleep)
    connection.close()
    started[0].close()


def test_patience_ends_with_the_reason() -> None:
    now = 0.0
    pauses = []

    def sleep(seconds: float) -> None:
        nonlocal now
        pauses.append(seconds)
        now += seconds

    with pytest.raises(ConnectionFailed, match=r"cannot reach the broker at amqp://127.0.0.1:9 within 10 s \(option"):
        connect_patiently(options("amqp://127.0.0.1:9", connectTimeout="10s"), sleep=sleep, clock=lambda: now)
    assert pauses == sorted(pauses) and max(pauses) <= connecting._RETRY_MAX_S and len(pauses) > 3


def test_credentials_are_used_and_a_wrong_password_is_no_reason_for_patience(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ACQUIT_TEST_PASSWORD", "right")
    security = Security(anonymous="never", users={"spark": User(password="right")})
    with acquit.Broker(tmp_path / "data", config=BrokerOptions(security=security)) as broker:
        chosen = options(broker.url, user="spark", credential="env:ACQUIT_TEST_PASSWORD")
        connect_patiently(chosen).close()
        monkeypatch.setenv("ACQUIT_TEST_PASSWORD", "wrong")
        with pytest.raises(AuthenticationFailed) as caught:
            connect_patiently(chosen, sleep=pytest.fail)
    assert "wrong" not in str(caught.value)


def test_over_tls_by_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACQUIT_TEST_PASSWORD", PASSWORD)
    cert, key = split(tmp_path)
    bob = {"user": "bob", "credential": "env:ACQUIT_TEST_PASSWORD"}
    with guarded_broker() as broker:
        for who in (bob, {"cert": str(ADA)}, {"cert": str(cert), "key": str(key)}):
            connect_patiently(options(broker.url, ca=str(CA), **who)).close()
        with pytest.raises(AuthenticationFailed):
            connect_patiently(options(broker.url, ca=str(CA)), sleep=pytest.fail)
        with pytest.raises(ConnectionFailed, match="the option ca says whom to trust"):
            connect_patiently(options(broker.url, **bob), sleep=pytest.fail)
        assert {one.user for one in broker.inspect().connections} <= {"ada", "bob"}
