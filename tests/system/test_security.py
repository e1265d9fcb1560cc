"""Who comes in and what they may do, over real sockets: TLS, SASL, certificates, roles, limits; what is never said."""

from __future__ import annotations

import asyncio
import logging
import os
import select
import socket
import ssl
import stat
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path

import pytest

import acquit
from acquit import errors
from acquit.broker.access import login_throttle
from acquit.broker.access.listeners import make_keys
from acquit.broker.access.users import Users, Verifier
from acquit.broker.access.users_file import editing
from acquit.broker.configuration import load_options
from acquit.broker.options import BrokerLimits, BrokerOptions, ConnectionLimits, Listen, Role, Security, Tls, User
from acquit.broker.server import Server
from acquit.client.options import ConnectOptions
from acquit.client.scram import Scram
from acquit.protocol.composite import encode_composite
from acquit.protocol.constants import AMQP_HEADER, SASL_HEADER, TLS_HEADER
from acquit.protocol.definitions import (
    Close,
    Open,
    SaslChallenge,
    SaslCode,
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
    SaslResponse,
)
from acquit.protocol.frames import SASL_FRAME, FrameDecoder, encode_frame
from acquit.store.options import JournalOptions

FILES = Path(__file__).parents[1] / "support" / "tls"
CERTIFICATE = {"certificate_file": str(FILES / "certificate.pem"), "key_file": str(FILES / "key.pem")}
TIMEOUT_S = 20.0
USERS = {"ada": User(password="s3cret")}
CLOSED = Security(anonymous="never", plain="never", users=USERS, refusal_delay_ms=1)


def options(security: Security = CLOSED, **fields: object) -> BrokerOptions:
    return BrokerOptions(security=security, journal=JournalOptions.small(), **fields)  # type: ignore[arg-type]


def trusting(certificate: str | None = None) -> ssl.SSLContext:
    """A client's context that trusts the broker of these tests, and shows a certificate of a peer."""
    context = ssl.create_default_context(cafile=FILES / "certificate.pem")
    if certificate is not None:
        context.load_cert_chain(FILES / f"{certificate}.pem")
    return context


def send(connection: acquit.Connection, address: str = "q") -> None:
    connection.session().sender(address).send(b"x", timeout=TIMEOUT_S)


def who(broker: acquit.Broker) -> list[str | None]:
    """As whom the broker knows those who are connected."""
    return [known.user for known in broker.inspect().connections]


# -- TLS

IN_BAND = ConnectOptions(in_band_tls=True)


@pytest.mark.parametrize(
    ("mode", "clear", "in_band", "immediate"),
    [
        ("off", True, False, False),
        ("offered", True, True, False),
        ("required", False, True, False),
        ("immediate", False, False, True),
    ],
)
def test_tls_as_the_listener_says(mode: str, clear: bool, in_band: bool, immediate: bool) -> None:
    config = options(tls=Tls(**CERTIFICATE), listen=(Listen(port=0, tls=mode),))  # type: ignore[arg-type]
    with acquit.Broker(config=config) as broker:
        assert broker.url.startswith("amqps:" if immediate else "amqp:")
        where = f"ada:s3cret@127.0.0.1:{broker.port}"
        ways: list[tuple[bool, Callable[[], acquit.Connection]]] = [
            (clear, lambda: acquit.connect(f"amqp://{where}")),
            (in_band, lambda: acquit.connect(f"amqp://{where}", options=IN_BAND, ssl_context=trusting())),
            (immediate, lambda: acquit.connect(f"amqps://{where}", ssl_context=trusting())),
        ]
        for works, way in ways:
            if works:
                with way() as connection:
                    send(connection)
            else:
                with pytest.raises(errors.ConnectionFailed) as caught:
                    way()
                assert not isinstance(caught.value, errors.ConnectTimeout)
                assert "s3cret" not in str(caught.value)


def test_several_listeners() -> None:
    listens = (Listen(port=0), Listen(port=0, tls="immediate"), Listen(port=0, tls="required"))
    with acquit.Broker(config=options(tls=Tls(**CERTIFICATE), listen=listens)) as broker:
        clear, tls, in_band = (url.replace("//", "//ada:s3cret@") for url in broker._server.urls)
        assert broker.port == int(clear.rpartition(":")[2])
        for connect in (
            acquit.connect(clear),
            acquit.connect(tls, ssl_context=trusting()),
            acquit.connect(in_band, ssl_context=trusting(), options=IN_BAND),
        ):
            with connect as connection:
                send(connection)


WEAK = "ECDHE-ECDSA-AES128-SHA256"
"""Encrypts in one step and authenticates in another."""


@pytest.mark.parametrize(("version", "suites", "works"), [("1_1", "", False), ("1_2", WEAK, False), ("1_2", "", True)])
def test_tls_is_1_2_and_of_its_strong_suites_or_later(version: str, suites: str, works: bool) -> None:
    """Of a client that could do less: it does with a broker that allows it."""
    context = trusting()
    context.set_ciphers(f"{suites or 'ALL'}:@SECLEVEL=0")
    with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
        context.minimum_version = context.maximum_version = ssl.TLSVersion[f"TLSv{version}"]
    with acquit.Broker(config=options(tls=Tls(**CERTIFICATE))) as broker:
        url = f"amqps://ada:s3cret@127.0.0.1:{broker.port}"
        if works:
            acquit.connect(url, ssl_context=context).close()
        else:
            with pytest.raises(errors.ConnectionFailed):
                acquit.connect(url, ssl_context=context)
        lax = broker._server._keys.tls
        assert lax is not None
        with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
            lax.minimum_version = ssl.TLSVersion.TLSv1
        lax.set_ciphers("ALL:@SECLEVEL=0")
        acquit.connect(url, ssl_context=context).close()


def test_a_certificate_that_is_not_trusted_is_not_trusted_in_band_either() -> None:
    config = options(tls=Tls(**CERTIFICATE, mode="offered"))
    with (
        acquit.Broker(config=config) as broker,
        pytest.raises(errors.ConnectionFailed, match="not trusted"),
    ):
        acquit.connect(f"amqp://ada:s3cret@127.0.0.1:{broker.port}", options=IN_BAND)


@pytest.mark.parametrize(
    ("context", "reason", "heard"),
    [
        (
            lambda: trusting("forged"),
            "CERTIFICATE_VERIFY_FAILED: self-signed certificate",
            "was lost: TLSV1_ALERT_UNKNOWN_CA",
        ),
        (trusting, "PEER_DID_NOT_RETURN_A_CERTIFICATE", "was lost: TLSV13_ALERT_CERTIFICATE_REQUIRED"),
        (ssl.create_default_context, "TLSV1_ALERT_UNKNOWN_CA", "is not trusted"),
    ],
    ids=["forged", "none", "distrusts the broker"],
)
def test_both_sides_are_told_why_there_is_no_tls(
    context: Callable[[], ssl.SSLContext], reason: str, heard: str, caplog: pytest.LogCaptureFixture
) -> None:
    tls = Tls(**CERTIFICATE, client_ca_file=str(FILES / "peers-ca.pem"), client_certificates="required")
    said: list[str] = []
    with acquit.Broker(config=options(tls=tls)) as broker:
        with pytest.raises(errors.ConnectionFailed, match=heard):
            acquit.connect(f"amqps://127.0.0.1:{broker.port}", ssl_context=context())
        give_up_at = time.monotonic() + TIMEOUT_S
        while not said and time.monotonic() < give_up_at:  # the client may be done before the broker is
            time.sleep(0.005)
            records = [record for record in caplog.records if record.getMessage() == "no TLS with a peer"]
            said = [vars(record)["reason"] for record in records]
    assert said == [reason]


def test_in_band_tls_with_all_bytes_at_once() -> None:
    """A client need not wait for the server's TLS header before it begins with TLS (5.2.1)."""
    config = options(Security(), tls=Tls(**CERTIFICATE, mode="required"))
    with acquit.Broker(config=config) as broker, dialled(broker) as raw:
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        inside = trusting().wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")
        with pytest.raises(ssl.SSLWantReadError):
            inside.do_handshake()
        raw.sendall(TLS_HEADER + outgoing.read())
        assert exactly(raw, 8) == TLS_HEADER
        while True:
            try:
                inside.do_handshake()
                break
            except ssl.SSLWantReadError:
                incoming.write(raw.recv(65_536))
        inside.write(SASL_HEADER)
        raw.sendall(outgoing.read())
        while True:
            try:
                assert inside.read(8) == SASL_HEADER
                break
            except ssl.SSLWantReadError:
                incoming.write(raw.recv(65_536))


def test_who_must_use_tls_is_told_so() -> None:
    with acquit.Broker(config=options(tls=Tls(**CERTIFICATE, mode="required"))) as broker:
        for header in (AMQP_HEADER, SASL_HEADER, b"HTTP/1.1", b"GE"):
            with dialled(broker) as raw:
                raw.sendall(header)
                assert everything(raw) == TLS_HEADER


# -- certificates

PEERS = {**CERTIFICATE, "client_ca_file": str(FILES / "peers-ca.pem")}


def external(**fields: object) -> ConnectOptions:
    return ConnectOptions(sasl_mechanisms=("EXTERNAL",), **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize("mode", ["immediate", "offered"])
def test_a_certificate_says_who_it_is(mode: str) -> None:
    tls = Tls(**PEERS, client_certificates="optional", mode=mode)  # type: ignore[arg-type]
    security = Security(anonymous="never", users={"ada": User(), "bob": User(password="x")}, refusal_delay_ms=1)
    in_band = mode == "offered"
    with acquit.Broker(config=options(security, tls=tls)) as broker:
        url = f"{'amqp' if in_band else 'amqps'}://127.0.0.1:{broker.port}"
        with acquit.connect(
            url, ssl_context=trusting("ada"), options=ConnectOptions(in_band_tls=in_band)
        ) as connection:
            send(connection)
            assert who(broker) == ["ada"]
        named = url.replace("//", "//ada@"), url.replace("//", "//bob@")
        with acquit.connect(named[0], ssl_context=trusting("ada"), options=external(in_band_tls=in_band)):
            assert who(broker) == ["ada"]
        with pytest.raises(errors.AuthenticationFailed, match="AUTH"):
            acquit.connect(named[1], ssl_context=trusting("ada"), options=external(in_band_tls=in_band))
        for nobody in (trusting("stranger"), trusting()):
            with pytest.raises(errors.AuthenticationFailed, match="sasl_mechanisms allows only EXTERNAL"):
                acquit.connect(url, ssl_context=nobody, options=external(in_band_tls=in_band))
        with pytest.raises(errors.ConnectionFailed):
            acquit.connect(url, ssl_context=trusting("forged"), options=external(in_band_tls=in_band))
        with acquit.connect(
            url.replace("//", "//bob:x@"), ssl_context=trusting(), options=ConnectOptions(in_band_tls=in_band)
        ):
            assert who(broker) == ["bob"]


def test_a_certificate_that_must_be() -> None:
    tls = Tls(**PEERS, client_certificates="required")
    with acquit.Broker(config=options(tls=tls)) as broker:
        url = broker.url.replace("//", "//ada:s3cret@")
        with pytest.raises(errors.ConnectionFailed):
            acquit.connect(url, ssl_context=trusting())
        with acquit.connect(url, ssl_context=trusting("stranger")) as connection:
            send(connection)
            assert who(broker) == ["ada"], "a password is as good, behind any certificate of the authority"


@pytest.mark.parametrize(
    ("kind", "name"), [("common-name", "ada"), ("email", "ada@example.org"), ("uri", "urn:users:ada"), ("dns", None)]
)
def test_which_part_of_the_certificate_is_the_name(kind: str, name: str | None) -> None:
    tls = Tls(**PEERS, client_certificates="optional", client_name=kind)  # type: ignore[arg-type]
    security = Security(anonymous="never", users={name: User()} if name else {"ada": User()})
    with acquit.Broker(config=options(security, tls=tls)) as broker:
        if name is None:
            with pytest.raises(errors.ConnectionFailed):
                acquit.connect(broker.url, ssl_context=trusting("ada"))
        else:
            with acquit.connect(broker.url, ssl_context=trusting("ada")):
                assert who(broker) == [name]


# -- SASL, by hand


@contextmanager
def dialled(broker: acquit.Broker) -> Iterator[socket.socket]:
    with closing(socket.create_connection(("127.0.0.1", broker.port), timeout=TIMEOUT_S)) as raw:
        yield raw


def exactly(raw: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        more = raw.recv(count - len(data))
        assert more, f"the end after {data!r}"
        data += more
    return data


def everything(raw: socket.socket) -> bytes:
    """All that comes until the end."""
    data = b""
    try:
        while more := raw.recv(65_536):
            data += more
    except ConnectionResetError:
        pass  # it had bytes of ours left to read
    return data


def frame(body: SaslInit | SaslResponse) -> bytes:
    return encode_frame(0, encode_composite(body), SASL_FRAME)


def next_frame(raw: socket.socket) -> object:
    size = exactly(raw, 4)
    decoder = FrameDecoder(512, SASL_FRAME)
    decoder.feed(size + exactly(raw, int.from_bytes(size, "big") - 4))
    (found,) = decoder
    return found.performative


def greeted(raw: socket.socket) -> tuple[str, ...]:
    raw.sendall(SASL_HEADER)
    assert exactly(raw, 8) == SASL_HEADER
    said = next_frame(raw)
    assert isinstance(said, SaslMechanisms)
    return tuple(said.sasl_server_mechanisms)


def test_the_strongest_is_offered_first() -> None:
    with acquit.Broker(config=options(Security(users=USERS))) as broker, dialled(broker) as raw:
        assert greeted(raw) == ("SCRAM-SHA-256", "PLAIN")
    with acquit.Broker(config=options(Security(users=USERS, anonymous="loopback"))) as broker, dialled(broker) as raw:
        assert greeted(raw) == ("SCRAM-SHA-256", "PLAIN", "ANONYMOUS")
    with acquit.Broker(config=options(CLOSED)) as broker, dialled(broker) as raw:
        assert greeted(raw) == ("SCRAM-SHA-256",)


def scram(name: str, end: bytes = b"A" * 43 + b"=") -> Callable[[socket.socket], object]:
    """A whole exchange with a proof that is wrong: what the broker said last."""

    def exchange(raw: socket.socket) -> object:
        raw.sendall(frame(SaslInit("SCRAM-SHA-256", f"n,,n={name},r=abc".encode())))
        said = next_frame(raw)
        if not isinstance(said, SaslChallenge):
            return said
        nonce = said.challenge.split(b",")[0]
        raw.sendall(frame(SaslResponse(b"c=biws," + nonce + b",p=" + end)))
        return next_frame(raw)

    return exchange


def plain(name: str) -> Callable[[socket.socket], object]:

    def exchange(raw: socket.socket) -> object:
        raw.sendall(frame(SaslInit("PLAIN", f"\0{name}\0wrong".encode())))
        return next_frame(raw)

    return exchange


@pytest.mark.parametrize("login", [scram, plain])
def test_unknown_users_and_wrong_passwords_get_the_same_answer_at_the_same_step(
    login: Callable[[str], Callable[[socket.socket], object]],
) -> None:
    with acquit.Broker(config=options(Security(users=USERS, refusal_delay_ms=1))) as broker:
        for name in ("ada", "nobody"):
            with dialled(broker) as raw:
                greeted(raw)
                assert login(name)(raw) == SaslOutcome(SaslCode.AUTH)
                assert everything(raw) == b""


@pytest.mark.parametrize(
    "said",
    [
        [frame(SaslInit("PLAIN", b"\0ada\0s3cret"))],
        [frame(SaslInit("SCRAM-SHA-256", b"nonsense"))],
        [frame(SaslInit("SCRAM-SHA-256", b"n,,n=ada,r=abc\0"))],
        [frame(SaslInit("SCRAM-SHA-256", b"p=tls-unique,,n=ada,r=abc"))],
        [frame(SaslInit("SCRAM-SHA-256-PLUS", b"n,,n=ada,r=abc"))],
        [frame(SaslInit("ANONYMOUS", b""))],
        [frame(SaslInit("EXTERNAL", b""))],
        [frame(SaslInit("", b""))],
    ],
)
def test_a_refusal_is_an_outcome_and_the_end(said: list[bytes]) -> None:
    with acquit.Broker(config=options()) as broker, dialled(broker) as raw:
        assert "PLAIN" not in greeted(raw)
        raw.sendall(b"".join(said) + AMQP_HEADER)
        assert next_frame(raw) == SaslOutcome(SaslCode.AUTH)
        assert everything(raw) == b""


INIT = frame(SaslInit("SCRAM-SHA-256", b"n,,n=ada,r=abc"))


@pytest.mark.parametrize(
    "said",
    [
        frame(SaslResponse(b"c=biws,r=abc,p=AAAA")),
        INIT + INIT,
        INIT + AMQP_HEADER,
        INIT + b"\x00" * 16,
        frame(SaslInit("SCRAM-SHA-256", b"n,,n=" + b"a" * 5_000 + b",r=abc")),
        b"\x00\x00\x10\x01\x02\x01\x00\x00",
        b"\xff\xff\xff\xff",
        encode_frame(0, encode_composite(SaslInit("SCRAM-SHA-256", b"n,,n=ada,r=abc"))),
    ],
    ids=["response-first", "twice", "amqp-meanwhile", "zeros", "too-long", "size-4097", "size-huge", "amqp-frame"],
)
def test_what_may_not_come_now_ends_the_connection_and_no_other(said: bytes) -> None:
    with acquit.Broker(config=options()) as broker:
        with dialled(broker) as raw:
            greeted(raw)
            raw.sendall(said)
            rest = everything(raw)
            assert SaslCode.OK not in outcomes(rest)
        with acquit.connect(f"amqp://ada:s3cret@127.0.0.1:{broker.port}") as connection:
            send(connection)


def outcomes(data: bytes) -> list[SaslCode]:
    decoder = FrameDecoder(512, SASL_FRAME)
    decoder.feed(data)
    return [one.performative.code for one in decoder if isinstance(one.performative, SaslOutcome)]


def test_a_client_that_wants_scram_does_not_step_down() -> None:
    security = Security(anonymous="never", scram="never", users=USERS)
    wanted = ConnectOptions(sasl_mechanisms=("SCRAM-SHA-256",))
    with acquit.Broker(config=options(security)) as broker:
        url = f"amqp://ada:s3cret@127.0.0.1:{broker.port}"
        with pytest.raises(errors.AuthenticationFailed, match="sasl_mechanisms allows only SCRAM-SHA-256$"):
            acquit.connect(url, options=wanted)
        acquit.connect(url).close()


# -- limits


def test_a_refusal_takes_its_time() -> None:
    """The handshake's time is over first here: the socket ends, and no outcome has come."""
    slow = Security(anonymous="never", users=USERS, refusal_delay_ms=10_000)
    limits = ConnectionLimits(handshake_timeout_ms=300)
    with acquit.Broker(config=options(slow, connection=limits)) as broker, dialled(broker) as raw:
        greeted(raw)
        raw.sendall(frame(SaslInit("PLAIN", b"\0ada\0wrong")))
        assert everything(raw) == b""


def test_passwords_that_wait_to_be_verified_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """One too many is told to try again (5.3.3.6), without its password being looked at."""
    look, seen, verify = threading.Event(), list[bytes](), Users.verify_plain

    def slow(users: Users, response: bytes) -> str | None:
        seen.append(response)
        assert look.wait(TIMEOUT_S)
        return verify(users, response)

    monkeypatch.setattr(Users, "verify_plain", slow)
    security = Security(users=USERS, refusal_delay_ms=1, verifications_max=2, login_delay_ms_max=0)
    with acquit.Broker(config=options(security)) as broker, ExitStack() as crowd:
        peers = [crowd.enter_context(dialled(broker)) for _ in range(3)]
        for raw in peers:
            greeted(raw)
            raw.sendall(frame(SaslInit("PLAIN", b"\0ada\0s3cret")))
        (refused,), _, _ = select.select(peers, [], [], TIMEOUT_S)
        assert next_frame(refused) == SaslOutcome(SaslCode.SYS_TEMP)
        look.set()
        for raw in peers:
            if raw is not refused:
                assert next_frame(raw) == SaslOutcome(SaslCode.OK)
        assert len(seen) == 2
        with dialled(broker) as raw:
            greeted(raw)
            raw.sendall(frame(SaslInit("PLAIN", b"\0ada\0s3cret")))
            assert next_frame(raw) == SaslOutcome(SaslCode.OK), "there is room again"


def test_a_stop_waits_for_no_password_in_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each would take a fraction of a second, on the loop's time: for peers that nobody knows."""
    begun, look, seen, verify = threading.Event(), threading.Event(), list[bytes](), Users.verify_plain

    def slow(users: Users, response: bytes) -> str | None:
        seen.append(response)
        begun.set()
        assert look.wait(TIMEOUT_S)
        return verify(users, response)

    monkeypatch.setattr(Users, "verify_plain", slow)
    config = options(Security(users=USERS, login_delay_ms_max=0), stop_timeout_ms=100)
    with acquit.Broker(config=config) as broker, ExitStack() as crowd:
        for _ in range(5):
            raw = crowd.enter_context(dialled(broker))
            greeted(raw)
            raw.sendall(frame(SaslInit("PLAIN", b"\0ada\0s3cret")))
        assert begun.wait(TIMEOUT_S)
        threading.Timer(0.5, look.set).start()
        broker.close()
    assert len(seen) == 1


@pytest.mark.parametrize("mode", ["immediate", "offered"])
def test_who_says_nothing_to_a_tls_port_is_counted_and_has_its_time(mode: str) -> None:
    config = options(
        tls=Tls(**CERTIFICATE, mode=mode),  # type: ignore[arg-type]
        connection=ConnectionLimits(handshake_timeout_ms=1_500),
        limits=BrokerLimits(unauthenticated_max=1),
    )
    with acquit.Broker(config=config) as broker:
        with dialled(broker) as first, dialled(broker) as second:
            assert everything(first) == b"", "it gave way to the second"
            second.settimeout(TIMEOUT_S)
            assert everything(second) == b"", "it had its time"
        in_band = ConnectOptions(in_band_tls=mode == "offered")
        url = broker.url.replace("//", "//ada:s3cret@")
        with acquit.connect(url, ssl_context=trusting(), options=in_band) as connection:
            send(connection)


def test_the_broker_stops_while_somebody_is_at_the_door() -> None:
    with acquit.Broker(config=options(tls=Tls(**CERTIFICATE))) as broker, dialled(broker) as raw:
        raw.sendall(b"\x16\x03\x01")
        deadline = time.monotonic() + TIMEOUT_S
        while not broker._server._listeners.arriving:
            assert time.monotonic() < deadline
        broker.close()
        assert everything(raw) == b""


@pytest.mark.parametrize("mode", ["off", "immediate", "offered"])
def test_who_came_just_before_the_broker_stopped_is_not_left_hanging(mode: str) -> None:
    """Whether it was at the door already is a race, so it is run a few times."""
    for _ in range(5):
        with (
            acquit.Broker(config=options(tls=Tls(**CERTIFICATE, mode=mode))) as broker,  # type: ignore[arg-type]
            dialled(broker) as raw,
        ):
            broker.close()
            assert everything(raw) == b""


# -- roles


@pytest.mark.promise("access")
def test_what_a_role_does_not_give_ends_the_link_and_nothing_else() -> None:
    security = Security(
        anonymous="never",
        users={"ada": User(password="s3cret", roles=("clerk",))},
        roles={"clerk": Role(send=("orders.#", "audit"), create=("orders.*",), browse=("orders.new",))},
    )
    with (
        acquit.Broker(config=options(security)) as broker,
        acquit.connect(f"amqp://ada:s3cret@127.0.0.1:{broker.port}") as connection,
        connection.session() as session,
    ):
        sender = session.sender("orders.new")
        sender.send(b"1", timeout=TIMEOUT_S)
        for attach, complaint in (
            (lambda: session.sender("invoices"), "'ada' may not send at invoices: no role gives the permission"),
            (lambda: session.sender("audit"), "'ada' may not create at audit"),
            (lambda: session.receiver("orders.new"), "'ada' may not consume at orders.new"),
            (lambda: session.receiver("DLQ", browse=True), "'ada' may not browse at DLQ"),
        ):
            with pytest.raises(acquit.Unauthorized, match=complaint) as caught:
                attach()
            assert caught.value.condition == "amqp:unauthorized-access"
        anonymous = session.sender(None)
        anonymous.send(acquit.Message(b"2", to="orders.new"), timeout=TIMEOUT_S)
        with pytest.raises(acquit.MessageRejected, match="may not send at invoices") as rejected:
            anonymous.send(acquit.Message(b"3", to="invoices"), timeout=TIMEOUT_S)
        assert rejected.value.condition == "amqp:unauthorized-access"
        sender.send(b"4", timeout=TIMEOUT_S)
        browser = session.receiver("orders.new", browse=True)
        seen = [browser.receive(timeout=TIMEOUT_S) for _ in range(3)]
        assert [message.body for message in seen if message is not None] == [b"1", b"2", b"4"]
        assert [queue.name for queue in broker.inspect().queues] == ["orders.new"]


# -- other keys


def swap(broker: acquit.Broker, config: BrokerOptions, data: Path) -> int:
    """What a reload does."""
    keys = make_keys(config, data)

    async def replace() -> int:
        return broker._server.replace_keys(keys)

    return broker._submit(replace(), TIMEOUT_S)


@pytest.mark.promise("access")
def test_users_who_are_gone_or_changed_are_put_out_and_nobody_else(tmp_path: Path) -> None:
    roles = {"clerk": Role(send=("#",), create=("#",)), "guest": Role()}
    config = options(Security(anonymous="never", roles=roles, users={"cfg": User(password="x", roles=("clerk",))}))
    verifier = str(Verifier.of("x"))

    def write(**users: User) -> None:
        with editing(tmp_path / "users.toml") as content:
            content.users = users

    member = User(password=verifier, roles=("clerk",))
    write(ada=member, gone=member, changed=member, demoted=member)
    with acquit.Broker(tmp_path, config=config) as broker:
        url = f"amqp://NAME:x@127.0.0.1:{broker.port}"
        there = {
            name: acquit.connect(url.replace("NAME", name)) for name in ("ada", "cfg", "gone", "changed", "demoted")
        }
        for connection in there.values():
            send(connection)
        write(
            ada=member,
            changed=User(password=str(Verifier.of("y")), roles=("clerk",)),
            demoted=User(password=verifier, roles=("guest",)),
            new=member,
        )
        assert swap(broker, config, tmp_path) == 3
        for name in ("ada", "cfg"):
            send(there[name])
        for name in ("gone", "changed", "demoted"):
            with pytest.raises(errors.ConnectionClosed, match="log in again") as caught:
                send(there[name])
            assert caught.value.condition == "amqp:unauthorized-access"
        with acquit.connect(url.replace("NAME", "new")) as connection:
            send(connection)
        with pytest.raises(errors.AuthenticationFailed):
            acquit.connect(url.replace("NAME", "gone"))
        assert swap(broker, config, tmp_path) == 0, "the same again changes nothing"
        for connection in there.values():
            connection.close()


@pytest.mark.promise("access")
def test_users_whose_way_in_is_closed_are_put_out(tmp_path: Path) -> None:
    tls = Tls(**PEERS, client_certificates="optional", mode="offered")
    users = {"ada": User(password="s3cret"), "bob": User(password="x")}
    open_ = options(Security(anonymous="always", users=users), tls=tls)
    with acquit.Broker(tmp_path, config=open_) as broker:
        here = f"127.0.0.1:{broker.port}"
        tried = {
            "EXTERNAL": ("", ConnectOptions(sasl_mechanisms=("EXTERNAL",), in_band_tls=True)),
            "SCRAM-SHA-256": ("bob:x@", ConnectOptions(sasl_mechanisms=("SCRAM-SHA-256",))),
            "PLAIN": ("bob:x@", ConnectOptions(sasl_mechanisms=("PLAIN",))),
            "ANONYMOUS": ("", ConnectOptions()),
        }
        there = {
            how: acquit.connect(
                f"amqp://{name}{here}", ssl_context=trusting("ada") if chosen.in_band_tls else None, options=chosen
            )
            for how, (name, chosen) in tried.items()
        }
        closing_ = (
            ("SCRAM-SHA-256", Security(anonymous="always", scram="never", users=users), tls),
            ("PLAIN", Security(anonymous="always", scram="never", plain="never", users=users), tls),
            ("EXTERNAL", Security(anonymous="always", scram="never", plain="never", users=users), Tls(**CERTIFICATE)),
            ("ANONYMOUS", Security(anonymous="never", scram="never", plain="never", users=users), Tls(**CERTIFICATE)),
        )
        for how, security, other in closing_:
            assert swap(broker, options(security, tls=other), tmp_path) == 1
            with pytest.raises(errors.ConnectionClosed, match="log in again"):
                send(there.pop(how))
            for connection in there.values():
                send(connection)


@pytest.mark.promise("access")
def test_a_peer_that_lingers_in_tls_keeps_nobody_in(tmp_path: Path) -> None:
    """It has closed its connection, and does not answer TLS's farewell, as its transport is looked at a second time."""
    users = {"bob": User(password="x")}
    tls = Tls(**CERTIFICATE, mode="offered")
    with acquit.Broker(tmp_path, config=options(Security(anonymous="always", users=users), tls=tls)) as broker:
        bob = acquit.connect(f"amqp://bob:x@127.0.0.1:{broker.port}")
        send(bob)
        raw = socket.create_connection(("127.0.0.1", broker.port))
        raw.sendall(TLS_HEADER)
        assert exactly(raw, 8) == TLS_HEADER
        with trusting().wrap_socket(raw, server_hostname="localhost", suppress_ragged_eofs=True) as encrypted:
            opens = encode_frame(0, encode_composite(Open(container_id="lingers", idle_time_out=400)))
            encrypted.sendall(AMQP_HEADER + opens + encode_frame(0, encode_composite(Close())))
            time.sleep(0.6)  # its idle time-out has the broker look at it again
            closed = Security(anonymous="always", scram="never", plain="never", users=users)
            swap(broker, options(closed, tls=tls), tmp_path)
            with pytest.raises(errors.ConnectionClosed, match="log in again"):
                send(bob)


def test_who_agrees_upon_tls_while_its_authority_goes_does_not_come_in(tmp_path: Path) -> None:
    """TLS looks at a certificate by the authorities that there were when it began."""
    security = Security(anonymous="never", users={"ada": User()})
    before = options(security, tls=Tls(**PEERS, client_certificates="optional"))
    other = {**PEERS, "client_ca_file": CERTIFICATE["certificate_file"]}
    with acquit.Broker(tmp_path, config=before) as broker, dialled(broker) as raw:
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = trusting("ada").wrap_bio(incoming, outgoing, server_hostname="localhost")
        agreed = False
        while not agreed:
            try:
                tls.do_handshake()
                agreed = True
            except ssl.SSLWantReadError:
                raw.sendall(outgoing.read())
                incoming.write(raw.recv(65_536))
        swap(broker, options(security, tls=Tls(**other, client_certificates="optional")), tmp_path)
        with suppress(ConnectionError):
            raw.sendall(outgoing.read())  # with the certificate
            assert everything(raw) == b""
        with pytest.raises(errors.ConnectionFailed):
            acquit.connect(f"amqps://127.0.0.1:{broker.port}", ssl_context=trusting("ada"))


def test_who_was_about_to_log_in_begins_again(tmp_path: Path) -> None:
    """Or a login that began with the password of yesterday would end well today."""
    config = options()
    with acquit.Broker(tmp_path, config=config) as broker, dialled(broker) as raw:
        greeted(raw)
        raw.sendall(INIT)
        assert isinstance(next_frame(raw), SaslChallenge)
        assert swap(broker, config, tmp_path) == 1
        assert everything(raw) == b""


def test_keys_without_the_certificate_that_a_listener_needs(tmp_path: Path) -> None:
    with acquit.Broker(tmp_path, config=options(tls=Tls(**CERTIFICATE))) as broker:
        with pytest.raises(errors.ConfigurationError, match="tls.certificate_file: expected one"):
            swap(broker, options(), tmp_path)
        with acquit.connect(broker.url.replace("//", "//ada:s3cret@"), ssl_context=trusting()) as connection:
            send(connection)


def test_a_reload_without_that_certificate_changes_nothing_at_all(tmp_path: Path) -> None:
    config = tmp_path / "acquit.toml"
    key_files = "\n".join(f'{key} = "{value}"' for key, value in CERTIFICATE.items())
    config.write_text(f"[security]\nanonymous = 'always'\n[tls]\n{key_files}\n[journal]\nsegment_bytes = 4_194_304\n")

    async def main() -> None:
        server = Server(tmp_path / "data", load_options(config), port=0, config=config)
        await server.start()
        try:
            before = server._options
            config.write_text("[connection]\nlinks_max = 7\n[security]\nanonymous = 'always'\n")
            with pytest.raises(errors.ConfigurationError, match="tls.certificate_file: expected one"):
                await server.reload()
            assert server._options is before
            assert server._core.options is before
        finally:
            await server.stop()

    asyncio.run(main())


def test_a_new_certificate_is_for_new_connections(tmp_path: Path) -> None:
    other = Tls(**CERTIFICATE, client_certificates="required", client_ca_file=str(FILES / "peers-ca.pem"))
    with acquit.Broker(tmp_path, config=options(tls=Tls(**CERTIFICATE))) as broker:
        url = broker.url.replace("//", "//ada:s3cret@")
        with acquit.connect(url, ssl_context=trusting()) as before:
            assert swap(broker, options(tls=other), tmp_path) == 0
            send(before)
            with pytest.raises(errors.ConnectionFailed):
                acquit.connect(url, ssl_context=trusting())
            acquit.connect(url, ssl_context=trusting("ada")).close()


def test_the_clients_hashing_is_not_done_on_its_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[str] = []
    respond = Scram.respond

    def noting(self: Scram, challenge: bytes) -> bytes:
        threads.append(threading.current_thread().name)
        with pytest.raises(RuntimeError):
            asyncio.get_running_loop()
        return respond(self, challenge)

    monkeypatch.setattr(Scram, "respond", noting)
    with acquit.Broker(config=options()) as broker:
        acquit.connect(f"amqp://ada:s3cret@127.0.0.1:{broker.port}").close()
    assert len(threads) == 1


def test_keys_that_cannot_be_change_nothing(tmp_path: Path) -> None:
    for text, complaint in (
        ("", r"users_file: .*users\.toml: expected users, found none: was it cut off"),
        ("# Kept by `acquit user`.\n", r"expected users, found none: was it cut off"),
        ("# Kept by `acquit user`.\ndecoy_key = 'AAAA'\n\n", r"expected users, found none: was it cut off"),
        ("[users.ada]\n", "users.ada: expected in one place, found in the configuration and in the users file"),
        ("[users.bob]\nroles = ['clerk']\n", "users.bob.roles: no role 'clerk'"),
        ("[users.bob]\npassword = 'x'\n", "users.bob.password: not a password verifier"),
    ):
        (tmp_path / "users.toml").write_text(text)
        with pytest.raises(errors.ConfigurationError, match=complaint):
            make_keys(options(), tmp_path)
    named = options(Security(users_file=str(tmp_path / "none.toml")))
    with pytest.raises(errors.ConfigurationError, match=r"users_file: .*none\.toml: there is no such file"):
        make_keys(named, tmp_path)
    locked = options(tls=Tls(certificate_file=CERTIFICATE["certificate_file"], key_file=str(FILES / "peers-ca.pem")))
    with pytest.raises(errors.ConfigurationError, match=r"tls: expected a certificate .*peers-ca\.pem, in PEM"):
        make_keys(locked, tmp_path / "empty")
    keyless = options(tls=Tls(certificate_file=CERTIFICATE["certificate_file"], key_file=str(tmp_path / "no-key.pem")))
    with pytest.raises(errors.ConfigurationError, match=r"tls: .*no-key\.pem: cannot be read"):
        make_keys(keyless, tmp_path / "empty")
    nobody = options(tls=Tls(**CERTIFICATE, client_certificates="optional", client_ca_file=str(tmp_path / "no.pem")))
    with pytest.raises(errors.ConfigurationError, match=r"no\.pem: cannot be read"):
        make_keys(nobody, tmp_path / "empty")


def test_the_first_user_closes_the_door_to_who_does_not_log_in(tmp_path: Path) -> None:
    with acquit.Broker(tmp_path, config=options(Security())) as broker:
        with acquit.connect(broker.url) as connection:
            send(connection)
            with editing(tmp_path / "users.toml") as content:
                content.users["ada"] = User(password=str(Verifier.of("s3cret", iterations=4096)))
            assert swap(broker, options(Security()), tmp_path) == 1
            with pytest.raises(errors.ConnectionClosed, match="log in again"):
                send(connection)
        with pytest.raises(errors.AuthenticationFailed):
            acquit.connect(broker.url)
        with acquit.connect(f"amqp://ada:s3cret@127.0.0.1:{broker.port}") as connection:
            send(connection)
        with dialled(broker) as raw:
            raw.sendall(AMQP_HEADER)
            assert everything(raw) == SASL_HEADER, "without SASL nobody comes in either"


# -- what is never said, and who may read


FINAL = "acquit.broker.access.users.ScramLogin.final"
SCRAM_ONLY = ConnectOptions(sasl_mechanisms=("SCRAM-SHA-256",), reconnect=None)


def test_refused_logins_are_named_and_the_next_ones_wait(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Longer than a login may take here: who comes too soon is told to try again, and his password is not looked at."""
    caplog.set_level(logging.WARNING)
    monkeypatch.setattr(login_throttle, "FIRST_S", 60.0)
    security = Security(
        users={"ada": User(password="x"), "bob": User(password="y")}, refusal_delay_ms=1, login_delay_ms_max=60_000
    )
    with acquit.Broker(config=options(security)) as broker:
        where = f"127.0.0.1:{broker.port}"
        for _ in range(login_throttle.FREE_OF_USER + 1):
            with pytest.raises(errors.AuthenticationFailed):
                acquit.connect(f"amqp://ada:wrong@{where}", options=SCRAM_ONLY)
        for said in (b"\0ada\0wrong", b"\0ada\0x"):
            with dialled(broker) as raw:
                greeted(raw)
                raw.sendall(frame(SaslInit("PLAIN", said)))
                assert next_frame(raw) == SaslOutcome(SaslCode.SYS_TEMP)
        acquit.connect(f"amqp://bob:y@{where}", options=SCRAM_ONLY).close()
        monkeypatch.setattr(login_throttle, "FIRST_S", 0.001)
        acquit.connect(f"amqp://ada:x@{where}", options=SCRAM_ONLY).close()
        monkeypatch.setattr(login_throttle, "FIRST_S", 60.0)
        with pytest.raises(errors.AuthenticationFailed):
            acquit.connect(f"amqp://ada:wrong@{where}", options=SCRAM_ONLY)
        acquit.connect(f"amqp://ada:x@{where}", options=SCRAM_ONLY).close()  # the one that succeeded has cleared it
    (line,) = [vars(record) for record in caplog.records if record.getMessage() == "a login is refused"]
    assert (line["user"], line["mechanism"], line["busy"]) == ("ada", "SCRAM-SHA-256", False)
    assert str(line["peer"]).startswith("127.0.0.1:")


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_a_login_waits_before_it_is_decided(mechanism: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def ask(network: str, user: str, now: float) -> float:
        asked.append(user)
        return 0.001 if len(asked) < 4 else 0.0

    with acquit.Broker(config=options(Security(users=USERS))) as broker:
        monkeypatch.setattr(broker._server.login_throttle, "ask", ask)
        only = ConnectOptions(sasl_mechanisms=(mechanism,), reconnect=None)
        acquit.connect(f"amqp://ada:s3cret@127.0.0.1:{broker.port}", options=only).close()
    assert asked == ["ada"] * 4


def test_who_does_not_wait_for_the_decision_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = threading.Event()

    def ask(network: str, user: str, now: float) -> float:
        asked.set()
        return 5.0

    with acquit.Broker(config=options(Security(users=USERS))) as broker:
        server = broker._server
        monkeypatch.setattr(server.login_throttle, "ask", ask)
        with dialled(broker) as raw:
            greeted(raw)
            raw.sendall(frame(SaslInit("PLAIN", b"\0ada\0s3cret")))
            assert asked.wait(TIMEOUT_S)
            (client,) = server._clients
            waiting = client._waiting
            assert waiting is not None and not waiting.cancelled()

        async def gone() -> None:
            await client.gone

        broker._submit(gone(), TIMEOUT_S)
        assert waiting.cancelled()


@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize(
    ("mechanism", "step"), [("PLAIN", "acquit.broker.access.users.Users.verify_plain"), ("SCRAM-SHA-256", FINAL)]
)
def test_a_login_whose_step_fails_is_not_under_way_for_ever(
    mechanism: str, step: str, waits: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """On its thread or on the loop, at once or after its wait: the peer is told to try again, and the next attempt of
    that user waits for nothing. What is logged of it does not say the password."""

    def fail(*_: object) -> None:
        raise MemoryError("not now")

    with acquit.Broker(config=options(Security(users=USERS, refusal_delay_ms=1))) as broker:
        counts = broker._server.login_throttle
        only = ConnectOptions(sasl_mechanisms=(mechanism,), reconnect=None)
        asked = iter([0.001] if waits else [])
        ask = counts.ask
        monkeypatch.setattr(counts, "ask", lambda *limits: next(asked, None) or ask(*limits))
        with monkeypatch.context() as broken:
            broken.setattr(step, fail)
            with pytest.raises(errors.ConnectionClosed, match="may pass"):
                acquit.connect(f"amqp://ada:s3cret@127.0.0.1:{broker.port}", options=only)
        assert not counts._counts
        acquit.connect(f"amqp://ada:s3cret@127.0.0.1:{broker.port}", options=only).close()
    assert "a step of a login failed" in caplog.text
    assert "MemoryError: not now" in caplog.text
    assert "s3cret" not in caplog.text


def test_no_password_stands_in_what_asyncio_would_say_of_a_login_that_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """It logs the arguments of a call that failed, and, in its debug mode, of one that was slow."""
    asked = threading.Event()

    def ask(network: str, user: str, now: float) -> float:
        asked.set()
        return 5.0

    with acquit.Broker(config=options(Security(users=USERS))) as broker, dialled(broker) as raw:
        monkeypatch.setattr(broker._server.login_throttle, "ask", ask)
        greeted(raw)
        raw.sendall(frame(SaslInit("PLAIN", b"\0ada\0s3cret")))
        assert asked.wait(TIMEOUT_S)
        (client,) = broker._server._clients
        assert "_step" in repr(client._waiting)
        assert "s3cret" not in repr(client._waiting)


# -- what is whose


@pytest.mark.promise("access")
def test_users_of_one_container_and_link_name_have_two_subscriptions() -> None:
    """Each may choose the names that another has: what was stored for one is not the other's to read, or to end."""
    security = Security(users={"ada": User(password="x"), "eve": User(password="y")})
    hers = acquit.Subscription(name="orders")
    with acquit.Broker(config=options(security)) as broker:

        def connected(user: str) -> acquit.Connection:
            return acquit.connect(f"amqp://{user}@127.0.0.1:{broker.port}", container_id="shop")

        with connected("ada:x") as connection:
            connection.session().receiver("news", subscription=hers).close()
            connection.session().sender("news", topic=True).send(acquit.Message("for ada", durable=True))
        with connected("eve:y") as connection:
            session = connection.session()
            receiver = session.receiver("news", subscription=hers)
            session.sender("news", topic=True).send("for both", timeout=TIMEOUT_S)
            seen = receiver.receive(timeout=TIMEOUT_S)
            assert seen is not None and seen.body == "for both"
            assert receiver.receive(timeout=0) is None
            receiver.close()
            session.unsubscribe(hers)
        with connected("ada:x") as connection:
            receiver = connection.session().receiver("news", subscription=hers)
            bodies = [message.body for _ in range(2) if (message := receiver.receive(timeout=TIMEOUT_S)) is not None]
            assert bodies == ["for ada", "for both"]


@pytest.mark.promise("access")
def test_a_message_in_the_name_of_another_user_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    security = Security(users={"ada": User(password="x"), "bridge": User(password="y", any_user_id=True)})
    with acquit.Broker(config=options(security)) as broker:
        for user, user_id, taken in (
            ("ada:x", b"ada", True),
            ("ada:x", None, True),
            ("ada:x", b"bridge", False),
            ("bridge:y", b"ada", True),
        ):
            with acquit.connect(f"amqp://{user}@127.0.0.1:{broker.port}") as connection:
                sender = connection.session().sender("q")
                message = acquit.Message("x", user_id=user_id)
                if taken:
                    sender.send(message, timeout=TIMEOUT_S)
                    continue
                with pytest.raises(errors.MessageRejected) as caught:
                    sender.send(message, timeout=TIMEOUT_S)
                assert caught.value.condition == "amqp:unauthorized-access"
    (line,) = [vars(record) for record in caplog.records if record.getMessage() == "a message is refused"]
    assert (line["user"], line["address"], line["messages"]) == ("ada", "q", 1)
    assert line["condition"] == "amqp:unauthorized-access"


PASSWORD = "hunter2-is-not-shown"


def test_passwords_are_nowhere(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Not in the journal, not in the logs at their most talkative, not in exceptions with all their causes."""
    caplog.set_level(logging.DEBUG)
    security = Security(users={"ada": User(password=PASSWORD)}, refusal_delay_ms=1)
    said = [repr(security), repr(options(security))]
    with acquit.Broker(tmp_path, config=options(security)) as broker:
        where = f"127.0.0.1:{broker.port}"
        for mechanism in ("SCRAM-SHA-256", "PLAIN"):
            only = ConnectOptions(sasl_mechanisms=(mechanism,))
            with acquit.connect(f"amqp://ada:{PASSWORD}@{where}", options=only) as connection:
                connection.session().sender("q").send(acquit.Message(b"x", durable=True), timeout=TIMEOUT_S)
                said.append(repr(connection))
            for url in (
                f"amqp://eve:{PASSWORD}@{where}",
                f"amqp://ada:{PASSWORD}x@{where}",
                f"amqp://{PASSWORD}:x@{where}",
            ):
                with pytest.raises(errors.AuthenticationFailed) as caught:
                    acquit.connect(url, options=only)
                said.append("".join(traceback.format_exception(caught.value)))
        said.append(repr(broker.inspect()))
    records = [str(vars(record)) + record.getMessage() for record in caplog.records]
    assert any("a login is refused" in text for text in records), "the log is what was looked through"
    assert "refused to authenticate us" in "".join(said)
    for text in said + records:
        assert PASSWORD not in text
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert any(b"ada" in path.read_bytes() for path in files), "the journal names the user"
    for path in files:
        assert PASSWORD.encode() not in path.read_bytes(), path


def test_the_data_folder_is_for_its_owner_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        with (
            acquit.Broker(tmp_path / "made" / "data", config=options(Security())) as broker,
            acquit.connect(broker.url) as connection,
        ):
            connection.session().sender("q").send(acquit.Message(b"x", durable=True), timeout=TIMEOUT_S)
            check_modes(tmp_path / "made")
        check_modes(tmp_path / "made")
    finally:
        os.umask(before)


def check_modes(folder: Path) -> None:
    found = [folder, *folder.rglob("*")]
    assert any(path.is_file() for path in found)
    for path in found:
        with suppress(FileNotFoundError):  # the broker renames a segment when it is prewritten
            assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path
