"""The options of a connection, and what they are to our client."""

from __future__ import annotations

import socket
import ssl
from pathlib import Path
from typing import Any

import pytest

from acquit.client.reconnecting import Reconnect
from acquit.compat.qpid.connecting import Settings, read_options, settings
from acquit.compat.qpid.messaging import exceptions
from acquit.compat.qpid.messaging.exceptions import ConnectError, VersionError
from acquit.compat.qpid.util import URL
from acquit.errors import ConnectionFailed

CERTIFICATE = str(Path(__file__).parents[4] / "tests" / "support" / "localhost.pem")


def of(url: str | None = "localhost", timeout: float | None = None, **options: Any) -> Settings:
    return settings(read_options(url, options), timeout)


@pytest.mark.parametrize(
    ("url", "options", "where"),
    [
        ("localhost", {}, "amqp://localhost:5672"),
        ("broker:1234", {"port": 99}, "amqp://broker:1234"),
        ("broker", {"port": 99}, "amqp://broker:99"),
        (None, {"host": "broker"}, "amqp://broker:5672"),
        (None, {}, "amqp://localhost:5672"),
        ("broker", {"transport": "ssl"}, "amqps://broker:5671"),
        ("broker", {"transport": "tcp+tls"}, "amqps://broker:5671"),
        ("amqps://broker", {}, "amqps://broker:5671"),
        ("[::1]:7", {}, "amqp://[::1]:7"),
    ],
)
def test_where(url: str | None, options: dict[str, Any], where: str) -> None:
    assert of(url, **options).where == [where]


def test_who() -> None:
    assert (of().username, of().password) == (None, None)
    given = of("localhost", username="alice", password="secret")
    assert (given.username, given.password) == ("alice", "secret")
    in_url = of("bob/pass@localhost", username="alice", password="secret")
    assert (in_url.username, in_url.password) == ("bob", "pass")
    assert "pass" not in repr(in_url)


def test_a_url_may_be_read_already() -> None:
    found = read_options(URL("amqp://bob/pass@broker:7"), {})
    assert (found["host"], found["port"], found["username"], found["transport"]) == ("broker", 7, "bob", "tcp")


def test_without_reconnect_a_lost_connection_is_lost() -> None:
    assert of().options.reconnect is None
    assert of(reconnect=False, reconnect_urls=["other"]).where == ["amqp://localhost:5672"]


def test_reconnection() -> None:
    found = of(reconnect=True, reconnect_urls=["other:7", "third"])
    assert found.where == ["amqp://localhost:5672", "amqp://other:7", "amqp://third:5672"]
    assert found.options.reconnect == Reconnect(delay_ms=1_000, delay_max_ms=120_000, outage_max_ms=0, rounds_max=0)
    found = of(reconnect=True, reconnect_interval=3, reconnect_limit=5, reconnect_timeout=60, reconnect_urls="other")
    assert found.options.reconnect == Reconnect(delay_ms=3_000, delay_max_ms=3_000, outage_max_ms=60_000, rounds_max=5)
    assert found.where[1:] == ["amqp://other:5672"]
    found = of(reconnect=True, reconnect_interval_min=0.5, reconnect_interval_max=2)
    assert found.options.reconnect is not None and found.options.reconnect.delay_ms == 500


def test_times() -> None:
    assert of().options.idle_timeout_ms == 30_000
    assert of(heartbeat=5).options.idle_timeout_ms == 5_000
    assert of(timeout=2.5).options.connect_timeout_ms == 2_500
    assert of(timeout=60).options.connect_timeout_ms == 60_000


def test_an_attempt_that_others_may_follow_is_short() -> None:
    """`open` waits for minutes: a host that does not answer must not keep it from the next one for so long."""
    assert of(timeout=300, reconnect=True, reconnect_urls="other").options.connect_timeout_ms == 10_000
    assert of(timeout=2.5, reconnect=True).options.connect_timeout_ms == 2_500


class Pause:
    """A pause that waits for nothing, and gives up at the fourth."""

    def __init__(self) -> None:
        self.waits: list[float] = []

    def __call__(self, delay_s: float) -> bool:
        self.waits.append(delay_s)
        return len(self.waits) == 4


@pytest.mark.parametrize(
    ("interval", "delays"), [(0, [0.001, 0.001, 0.001, 0.001]), (0.002, [0.002, 0.002, 0.002, 0.002])]
)
def test_a_first_connection_is_not_tried_again_without_delay(interval: float, delays: list[float]) -> None:
    with socket.socket() as refusing:
        refusing.bind(("127.0.0.1", 0))
        found = of("127.0.0.1", port=refusing.getsockname()[1], reconnect=True, reconnect_interval=interval)
        pause = Pause()
        with pytest.raises(ConnectionFailed):
            found.connect(lambda event: None, None, pause)
    assert pause.waits == delays


def test_the_delay_between_first_connections_grows_from_nothing() -> None:
    with socket.socket() as refusing:
        refusing.bind(("127.0.0.1", 0))
        found = of("127.0.0.1", port=refusing.getsockname()[1], reconnect=True, reconnect_interval_min=0)
        pause = Pause()
        with pytest.raises(ConnectionFailed):
            found.connect(lambda event: None, None, pause)
    assert pause.waits == [0.001, 0.002, 0.004, 0.008]


def test_mechanisms() -> None:
    assert of().options.sasl_mechanisms == ()
    assert of(sasl_mechanisms="ANONYMOUS plain GSSAPI").options.sasl_mechanisms == ("PLAIN", "ANONYMOUS")
    with pytest.raises(ConnectError, match="known here are EXTERNAL"):
        of(sasl_mechanisms="GSSAPI")


def test_tls() -> None:
    assert of().tls is None
    tls = of(transport="ssl", ssl_trustfile=CERTIFICATE).tls
    assert tls is not None and tls.check_hostname and tls.verify_mode is ssl.CERT_REQUIRED
    tls = of(transport="ssl", ssl_trustfile=CERTIFICATE, ssl_certfile=CERTIFICATE, ssl_skip_hostname_check=True).tls
    assert tls is not None and not tls.check_hostname and tls.verify_mode is ssl.CERT_REQUIRED
    with pytest.raises(ConnectError, match="ssl_trustfile='nowhere.pem'"):
        of(transport="ssl", ssl_trustfile="nowhere.pem")
    with pytest.raises(ConnectError, match="only TLS"):
        of(sasl_min_ssf=128)


@pytest.mark.parametrize("value", ["5", [5], float("nan")])
@pytest.mark.parametrize("name", ["heartbeat", "reconnect_interval_min", "reconnect_interval_max", "reconnect_timeout"])
def test_a_time_is_a_number_of_seconds(name: str, value: object) -> None:
    with pytest.raises(exceptions.ConnectionError, match=f"{name} must be a number of seconds, got"):
        of(reconnect=True, **{name: value})


def test_what_is_not_known_is_named() -> None:
    with pytest.raises(
        exceptions.ConnectionError, match="no connection option 'recconect'; expected one of host, port"
    ):
        of(recconect=True)
    with pytest.raises(exceptions.ConnectionError, match="transport must be one of tcp, ssl, tcp.tls, got 'rdma'"):
        of(transport="rdma")
    with pytest.raises(exceptions.ConnectionError, match="transport must be one of"):
        of(transport=["tcp"])
    with pytest.raises(VersionError, match="only AMQP 1.0"):
        of(protocol="amqp0-10")
    assert of(protocol="amqp1.0").where
    with pytest.raises(exceptions.ConnectionError, match="idle_timeout_ms|connect_timeout_ms"):
        of(timeout=0)
