"""Who gets in, and what does not: users, other pages, other names, sizes, slowness."""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
import ssl
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from urllib.parse import urlsplit

import pytest

import acquit
from acquit.broker.admin.requests import VALUES_MAX
from acquit.broker.options import BrokerOptions, Http, Role, Security, Tls, User
from acquit.http.guard import SIGNS_MAX
from acquit.http.logins import DECIDING_MAX, Logins, NotIn
from acquit.ledger.audit_lines import read_audit
from acquit.store.reading import FolderReader
from tests.support.http import TIMEOUT_S, Answer, ask, basic
from tests.support.served import Served, standing_still

TLS = Path(__file__).parents[2] / "support" / "tls"
QUEUES = "/api/v1/queues"


def options(**given: object) -> BrokerOptions:
    return BrokerOptions(**given).with_small_journal()  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def plain() -> Iterator[acquit.Broker]:
    with acquit.Broker(config=options(http=Http(port=0, body_bytes_max=2_000))) as running:
        yield running


@pytest.fixture(scope="module")
def guarded() -> Iterator[acquit.Broker]:
    security = Security(
        users={
            "root": User(password="toor", roles=("all",)),
            "eve": User(password="é:v", roles=("some",)),
            "mute": User(password="mute", roles=("few",)),
        },
        roles={"all": Role(manage=("#",)), "some": Role(browse=("orders.#",)), "few": Role(send=("#",))},
        refusal_delay_ms=0,
    )
    with acquit.Broker(http_port=0, config=options(security=security)) as running:
        yield running


def raw(broker: acquit.Broker, *sent: bytes) -> bytes:
    """Send this, and read until the end."""
    parts = urlsplit(str(broker.http_url))
    with socket.create_connection((parts.hostname, parts.port), TIMEOUT_S) as made:
        for data in sent:
            made.sendall(data)
        received = b""
        try:
            while data := made.recv(65_536):
                received += data
        except ConnectionResetError:
            pass
        return received


def _unchecked() -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(TLS / "certificate.pem"))
    context.check_hostname = False
    return context


def test_users_and_what_they_may(guarded: acquit.Broker) -> None:
    url = guarded.http_url
    unknown = ask(url, QUEUES)
    assert unknown.status == 401
    assert unknown.headers["www-authenticate"].startswith("Basic ")
    assert ask(url, "/metrics").status == 401
    assert ask(url, "/api/v1/openapi.json").status == 401
    root, eve = basic("root", "toor"), basic("eve", "é:v")
    for name in ("orders.eu", "secret"):
        assert ask(url, f"{QUEUES}/{name}", "PUT", {}, root).status == 201
        assert "may not" in ask(url, f"{QUEUES}/{name}", "PUT", {}, eve).detail
    assert {row["name"] for row in ask(url, QUEUES, headers=root).json["items"]} == {"orders.eu", "secret"}
    assert {row["name"] for row in ask(url, QUEUES, headers=eve).json["items"]} == {"orders.eu"}
    assert ask(url, f"{QUEUES}/secret", headers=eve).status == 403
    assert 'queue="secret"' not in ask(url, "/metrics", headers=eve).text
    assert 'queue="secret"' in ask(url, "/metrics", headers=root).text


@pytest.mark.parametrize(
    "header",
    [
        basic("root", "wrong"),
        basic("nobody", "toor"),
        basic("root", ""),
        {"Authorization": "Basic !!!"},
        {"Authorization": "Bearer abc"},
        {"Authorization": "Basic"},
        basic("ro\0ot", "toor"),
    ],
)
def test_who_is_no_user_is_told_the_same(guarded: acquit.Broker, header: dict[str, str]) -> None:
    answer = ask(guarded.http_url, QUEUES, headers=header)
    assert answer.status == 401
    assert "orders" not in answer.text


def test_health_is_for_everybody(guarded: acquit.Broker) -> None:
    assert ask(guarded.http_url, "/healthz", headers={"Host": "evil.example"}).status == 200
    assert ask(guarded.http_url, "/readyz").json == {"ready": True, "reasons": []}


def test_who_guesses_has_to_wait() -> None:
    security = Security(users={"root": User(password="toor")}, refusal_delay_ms=0)
    with acquit.Broker(http_port=0, config=options(security=security)) as running:
        told = [ask(running.http_url, QUEUES, headers=basic("root", str(n))).status for n in range(9)]
        assert told[:4] == [401] * 4
        assert told[-1] == 429, "it is not even looked at"


def test_a_login_that_fails_is_in_the_audit(tmp_path: Path) -> None:
    security = Security(users={"ada": User(password="right")}, refusal_delay_ms=0)
    with acquit.Broker(tmp_path, http_port=0, config=options(security=security)) as broker:
        for user, status in (("ada", 401), ("secret", 401)):
            assert ask(broker.http_url, QUEUES, headers=basic(user, "wrong")).status == status
        assert ask(broker.http_url, QUEUES, headers=basic("ada", "right")).status == 200
    lines = read_audit(FolderReader(tmp_path))
    assert [(one.action, one.user, one.target, one.result) for one in lines] == [
        ("login", "ada", "HTTP Basic", "refused"),
        ("login", "", "HTTP Basic", "refused"),
    ]


def test_a_password_is_not_remembered_when_users_change(tmp_path: Path) -> None:
    config = tmp_path / "acquit.toml"
    text = '[http]\nport = 0\n[users.root]\npassword = "{}"\n[security]\nrefusal_delay_ms = 0\n'
    config.write_text(text.format("old"))
    with Served(tmp_path, text.format("old")) as served:
        url = served.http_url
        assert ask(url, QUEUES, headers=basic("root", "old")).status == 200
        served.config.write_text(text.format("new"))
        assert ask(url, "/api/v1/reload", "POST", {}, basic("root", "old")).status == 200
        assert ask(url, QUEUES, headers=basic("root", "old")).status == 401
        assert ask(url, QUEUES, headers=basic("root", "new")).status == 200


def test_another_page_changes_nothing(plain: acquit.Broker) -> None:
    url, path = plain.http_url, f"{QUEUES}/csrf"
    assert ask(url, path, "PUT", b"{}", {"Content-Type": "text/plain"}).status == 403
    assert ask(url, f"{path}/purge", "POST").status == 403
    assert ask(url, path, "PUT", {}, {"Origin": "http://evil.example"}).status == 403
    assert ask(url, path, "PUT", {}, {"Origin": "null"}).status == 403
    assert ask(url, path, "PUT", {}, {"Sec-Fetch-Site": "cross-site"}).status == 403
    assert ask(url, path).status == 404
    assert ask(url, path, "PUT", {}, {"Origin": str(url)}).status == 201
    answer = ask(url, path, "OPTIONS", None, {"Origin": "http://evil.example"})
    assert not any(name.startswith("access-control") for name in answer.headers)


@pytest.mark.parametrize(
    "said",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"},
    ],
)
def test_another_page_reads_nothing(guarded: acquit.Broker, said: dict[str, str]) -> None:
    """Reading costs something, and the fate of a transaction is not only read: a live one is ended."""
    for path in (QUEUES, "/metrics", "/api/v1/transactions/0102"):
        assert ask(guarded.http_url, path, headers=basic("root", "toor") | said).status == 403
    leads = said.get("Sec-Fetch-Dest") == "document"
    assert ask(guarded.http_url, "/", headers=basic("root", "toor") | said).status == (200 if leads else 403)


def test_a_proxy_may_take_tls_off(plain: acquit.Broker) -> None:
    host = urlsplit(str(plain.http_url)).netloc
    path = f"{QUEUES}/proxied"
    assert ask(plain.http_url, path, "PUT", {}, {"Origin": f"https://{host}"}).status == 201
    assert ask(plain.http_url, path, "PUT", {}, {"Origin": f"https://{host}0"}).status == 403


def test_nothing_may_be_framed_or_taken_for_a_page(plain: acquit.Broker) -> None:
    for path in ("/", "/console.js", QUEUES, f"{QUEUES}/none", "/healthz", "/nothing", "/metrics"):
        headers = ask(plain.http_url, path).headers
        assert "frame-ancestors 'none'" in headers["content-security-policy"]
        assert "default-src 'none'" in headers["content-security-policy"]
        assert headers["x-frame-options"] == "DENY"
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-store"


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "10.0.0.1", "", "[::2]"])
def test_a_name_that_this_machine_has_not(plain: acquit.Broker, host: str) -> None:
    assert ask(plain.http_url, QUEUES, headers={"Host": host}).status == 421


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:8161", "127.0.0.1", "[::1]:8161"])
def test_a_name_that_it_has(plain: acquit.Broker, host: str) -> None:
    assert ask(plain.http_url, QUEUES, headers={"Host": host}).status == 200


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_a_body_of_too_many_values(guarded: acquit.Broker, encoding: str) -> None:
    """Each costs both threads a microsecond, and a MiB may have half a million of them."""
    path, login = f"{QUEUES}/values/messages", basic("root", "toor")
    ask(guarded.http_url, f"{QUEUES}/values", "PUT", {}, headers=login)

    def post(body: object) -> Answer:
        return ask(
            guarded.http_url,
            path,
            "POST",
            json.dumps({"body": body}, ensure_ascii=False).encode(encoding),
            headers=login,
        )

    assert post([1] * (VALUES_MAX - 20)).status == 200
    for many in ([1] * VALUES_MAX, ["\u2200", *[[]] * 2 * VALUES_MAX]):
        refused = post(many)
        assert refused.status == 400 and "at most 12,000 values" in refused.detail


def test_commas_and_brackets_in_texts_are_no_values(guarded: acquit.Broker) -> None:
    path, login = f"{QUEUES}/texts/messages", basic("root", "toor")
    ask(guarded.http_url, f"{QUEUES}/texts", "PUT", {}, headers=login)
    for text in ('[",\\"]' * SIGNS_MAX, "\\" * VALUES_MAX + "," * SIGNS_MAX * 2):
        assert ask(guarded.http_url, path, "POST", {"body": text}, headers=login).status == 200


def test_a_body_that_is_too_large(plain: acquit.Broker) -> None:
    assert ask(plain.http_url, f"{QUEUES}/large", "PUT", b"x" * 2_001).status == 413
    head = b"PUT /api/v1/queues/x HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    chunked = head + b"Transfer-Encoding: chunked\r\n\r\n" + b"400\r\n" + b" " * 1024 + b"\r\n"
    assert b" 413 " in raw(plain, chunked, b"400\r\n" + b" " * 1024 + b"\r\n")
    assert raw(plain, b"GET /api/v1/queues HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 100_000).startswith(
        b"HTTP/1.1 400"
    )


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"GET / HT",
        b"PUT /api/v1/queues/x HTTP/1.1\r\nHost: localhost\r\nX-Requested-With: x\r\nContent-Length: 9\r\n\r\n{",
    ],
)
def test_who_does_not_finish_a_request_is_left(sent: bytes) -> None:
    with acquit.Broker(config=options(http=Http(port=0, request_timeout_ms=100))) as running:
        assert raw(running, sent) == b""


@pytest.mark.parametrize("tls", [False, True])
def test_a_crowd_that_says_nothing_keeps_nobody_out(tmp_path: Path, tls: bool) -> None:
    """Not even one that comes at once, so that none of it is known when the last one comes."""
    config = "[http]\nport = 0\nconnections_max = 4\n"
    if tls:
        config += f'[tls]\ncertificate_file = "{TLS / "certificate.pem"}"\nkey_file = "{TLS / "key.pem"}"\n'
    with Served(tmp_path, config) as served, ExitStack() as sockets:
        parts = urlsplit(str(served.http_url))
        with standing_still(served.process):
            *silent, last = [
                sockets.enter_context(socket.create_connection((parts.hostname, parts.port), TIMEOUT_S))
                for _ in range(11)
            ]
        asking = http.client.HTTPConnection(parts.netloc)
        asking.sock = sockets.enter_context(_unchecked().wrap_socket(last)) if tls else last
        asking.request("GET", "/healthz")
        assert asking.getresponse().status == 200
        for one in silent[:7]:
            with suppress(ConnectionResetError):
                assert one.recv(1) == b""


def test_between_two_requests_a_connection_stays() -> None:
    """Longer than a request may take: scrapers and proxies keep theirs."""
    with acquit.Broker(config=options(http=Http(port=0, request_timeout_ms=2_000))) as running:
        parts = urlsplit(str(running.http_url))
        kept = http.client.HTTPConnection(parts.netloc, timeout=TIMEOUT_S)
        kept.request("GET", "/healthz")
        assert kept.getresponse().read()
        with socket.create_connection((parts.hostname, parts.port), TIMEOUT_S) as silent:
            silent.recv(1)  # it is left after that time, and so would be the other
        first = kept.sock
        kept.request("GET", "/healthz")
        assert kept.getresponse().read()
        assert kept.sock is first
        first.sendall(b"GET /healthz HT")
        assert first.recv(1) == b""
        kept.close()


def test_a_broker_stops_while_requests_are_open() -> None:
    with acquit.Broker(config=options(http=Http(port=0))) as running:
        parts = urlsplit(str(running.http_url))
        begun = [
            b"",
            b"GET / HT",
            b"PUT /api/v1/queues/x HTTP/1.1\r\nHost: localhost\r\nX-Requested-With: x\r\nContent-Length: 9\r\n\r\n{",
        ]
        made = [socket.create_connection((parts.hostname, parts.port), TIMEOUT_S) for _ in begun]
        for one, data in zip(made, begun, strict=True):
            one.sendall(data)
        assert ask(running.http_url, "/healthz").status == 200
    for one in made:
        try:
            assert one.recv(1) == b""
        except ConnectionResetError:
            pass
        one.close()


def test_few_descriptors_are_shared_with_amqp(tmp_path: Path) -> None:
    patient = "[http]\nport = 0\nconnections_max = 1000\nrequest_timeout_ms = 3_600_000\n"
    with Served(tmp_path, patient, descriptors=160) as served:
        parts = urlsplit(str(served.http_url))
        crowd = []
        for _ in range(150):
            crowd.append(socket.create_connection((parts.hostname, parts.port), TIMEOUT_S))
            crowd[-1].sendall(b"GET /api/v1/queues HT")
        assert ask(served.http_url, "/healthz").status == 200
        with acquit.connect(served.url) as connection:
            connection.session().sender("q").send("x")
        for one in crowd:
            one.close()


def test_guesses_from_one_address_keep_nobody_waiting() -> None:
    async def run() -> None:
        waiting: list[object] = []

        class Busy:
            server = SimpleNamespace(keys=SimpleNamespace())

            async def ask(self, begin: object) -> str:
                waiting.append(begin)
                return await asyncio.get_running_loop().create_future()  # type: ignore[no-any-return]

        logins, keys = Logins(cast("Any", Busy())), cast("Any", object())
        tasks = [
            asyncio.create_task(logins._check(keys, b"\0root\0%d" % number, ("10.0.0.1", 5)))
            for number in range(DECIDING_MAX)
        ]
        for _ in range(5):
            await asyncio.sleep(0)
        assert len(waiting) == DECIDING_MAX
        with pytest.raises(NotIn) as caught:
            await logins._check(keys, b"\0root\0one more", ("10.0.0.1", 6))
        assert caught.value.status == 429
        tasks.append(asyncio.create_task(logins._check(keys, b"\0root\0toor", ("10.9.0.2", 7))))
        for _ in range(5):
            await asyncio.sleep(0)
        assert len(waiting) == DECIDING_MAX + 1
        for task in tasks:
            task.cancel()

    asyncio.run(run())


def test_tls(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    tls = Tls(certificate_file=str(TLS / "certificate.pem"), key_file=str(TLS / "key.pem"))
    with acquit.Broker(http_port=0, config=options(tls=tls)) as running:
        assert str(running.http_url).startswith("https://")
        assert ask(running.http_url, "/healthz", context=_unchecked()).json == {"status": "alive"}
        assert b"200 OK" not in raw(running, b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
    refused = "no TLS with a peer of the HTTP interface"
    assert [vars(record)["reason"] for record in caplog.records if record.getMessage() == refused] == ["HTTP_REQUEST"]


def test_certificates_that_are_required_are_so_for_probes_too(tmp_path: Path) -> None:
    """As docs/http.md says: TLS comes before the request, whatever it asks for."""
    tls = Tls(
        certificate_file=str(TLS / "certificate.pem"),
        key_file=str(TLS / "key.pem"),
        client_certificates="required",
        client_ca_file=str(TLS / "peers-ca.pem"),
    )
    with acquit.Broker(http_port=0, config=options(tls=tls)) as running:
        with pytest.raises(OSError):  # noqa: PT011 - which one depends on how far TLS has come by then
            ask(running.http_url, "/healthz", context=_unchecked())
        showing = _unchecked()
        showing.load_cert_chain(TLS / "stranger.pem")
        assert ask(running.http_url, "/healthz", context=showing).json == {"status": "alive"}


def test_who_may_see_no_queue_is_told_so(guarded: acquit.Broker) -> None:
    """Also where all of them would be looked at: the refusal is written down there."""
    nobody = basic("mute", "mute")
    for path in (QUEUES, f"{QUEUES}?sort=trouble", "/metrics", "/api/v1/links"):
        answer = ask(guarded.http_url, path, headers=nobody)
        assert answer.status == 403
        assert "may not see any queue" in answer.detail
