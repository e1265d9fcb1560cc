"""Who is offered what."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from acquit.broker.access.listeners import (
    Keys,
    Listeners,
    PeerFacts,
    certified_name,
    is_loopback,
    make_keys,
    make_tls_context,
    mechanisms,
)
from acquit.broker.access.unauthenticated import Unauthenticated
from acquit.broker.notices import Notices
from acquit.broker.options import BrokerOptions, Listen, Role, Security, Tls, User, Where, WhereAnonymous
from acquit.errors import ConfigurationError

TLS_FILES = Path(__file__).parents[3] / "support" / "tls"
REVOCATION_LIST = """
-----BEGIN X509 CRL-----
MIGlME0CAQEwCgYIKoZIzj0EAwIwHDEaMBgGA1UEAwwRYWNxdWl0IHRlc3QgcGVl
cnMXDTI2MDEwMTAwMDAwMFoYDzIxMjUxMjA4MDAwMDAwWjAKBggqhkjOPQQDAgNI
ADBFAiBnFGwDQDiqpnh6J7FWi65nJcdLRlyHKzP9dTz/3Ed24wIhALYv8bqqoqd+
Vba1oo/MU2GAJeFeW5bwod5LmsHn9lLF
-----END X509 CRL-----
"""


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        (("127.0.0.1", 5), True),
        (("127.8.9.1", 5), True),
        (("::1", 5, 0, 0), True),
        (("192.0.2.1", 5), False),
        (("fe80::1%eth0", 5, 0, 3), False),
        (("nonsense", 5), False),
        ("/run/acquit.sock", True),
    ],
)
def test_loopback(address: object, expected: bool) -> None:
    assert is_loopback(address) is expected


@pytest.mark.parametrize(
    ("anonymous", "scram", "plain", "loopback", "encrypted", "users", "offered"),
    [
        ("loopback", "always", "loopback", True, False, False, ("ANONYMOUS",)),
        ("loopback", "always", "loopback", True, False, True, ("SCRAM-SHA-256", "PLAIN", "ANONYMOUS")),
        ("loopback", "always", "loopback", False, False, True, ("SCRAM-SHA-256",)),
        ("loopback", "always", "loopback", False, True, True, ("SCRAM-SHA-256", "PLAIN")),
        ("loopback", "loopback", "loopback", False, False, True, ()),
        ("never", "never", "loopback", True, False, True, ("PLAIN",)),
        ("never", "never", "never", True, False, True, ()),
        ("never", "never", "never", True, True, True, ("PLAIN",)),
        ("always", "always", "always", False, False, True, ("SCRAM-SHA-256", "PLAIN", "ANONYMOUS")),
        ("always", "always", "always", False, True, False, ("ANONYMOUS",)),
    ],
)
def test_mechanisms(
    anonymous: WhereAnonymous,
    scram: Where,
    plain: Where,
    loopback: bool,
    encrypted: bool,
    users: bool,
    offered: tuple[str, ...],
) -> None:
    security = Security(anonymous=anonymous, scram=scram, plain=plain)
    assert mechanisms(security, loopback=loopback, encrypted=encrypted, passwords=users) == offered
    with_certificate = mechanisms(security, loopback=loopback, encrypted=encrypted, passwords=users, certified=True)
    assert with_certificate == ("EXTERNAL", *offered)


@pytest.mark.parametrize(
    ("anonymous", "users", "expected"),
    [
        ("until-users", False, "loopback"),
        ("until-users", True, "never"),
        ("loopback", True, "loopback"),
        ("never", False, "never"),
        ("always", True, "always"),
    ],
)
def test_the_first_user_closes_anonymous_access_unless_told_otherwise(
    anonymous: WhereAnonymous, users: bool, expected: Where
) -> None:
    known = {"ada": User(password="x")} if users else {}
    assert Security(anonymous=anonymous, users=known).lets_in_anonymous == expected
    assert Security().anonymous == "until-users"


def peer_at(host: str, certificate: dict[str, object] | None = None) -> PeerFacts:
    return PeerFacts(is_loopback((host, 5)), certificate is not None, certificate)


HERE, ELSEWHERE = peer_at("127.0.0.1"), peer_at("192.0.2.1")


@pytest.mark.parametrize(
    ("before", "now", "stays"),
    [
        (Security(), Security(users={"ada": User(password="x")}), False),
        # Where there are users, their names are checked: that is another right.
        (Security(), Security(anonymous="loopback", users={"ada": User(password="x")}), False),
        (Security(), Security(anonymous="loopback", users={"ada": User(password="x")}, verify_user_id=False), True),
        (Security(anonymous="always"), Security(anonymous="loopback"), False),
        (Security(anonymous="loopback"), Security(anonymous="always"), True),
    ],
)
def test_who_is_in_anonymously_goes_when_that_is_closed(
    before: Security, now: Security, stays: bool, tmp_path: Path
) -> None:
    first, second = (make_keys(BrokerOptions(security=security), tmp_path) for security in (before, now))
    assert second.still_lets_in(None, "", ELSEWHERE if before.anonymous == "always" else HERE, first) is stays


def subject(*names: str) -> dict[str, object]:
    return {"subject": tuple((("commonName", name),) for name in names), "subjectAltName": (("DNS", "a"), ("DNS", "b"))}


@pytest.mark.parametrize(
    ("certificate", "kind", "name"),
    [
        (subject("ada"), "common-name", "ada"),
        (subject("ada", "bob"), "common-name", None),
        (subject(), "common-name", None),
        (subject("be\all"), "common-name", None),
        (subject("ada"), "dns", None),
        (subject("ada"), "email", None),
        ({"subjectAltName": (("email", "ada@example.org"), ("DNS", "x"))}, "email", "ada@example.org"),
        ({"subjectAltName": (("URI", "urn:ada"),)}, "uri", "urn:ada"),
        ({}, "common-name", None),
        ({}, "dns", None),
        (None, "dns", None),
    ],
)
def test_whom_a_certificate_names(certificate: dict[str, object] | None, kind: str, name: str | None) -> None:
    """Of several names of one kind nobody could say which is meant."""
    assert certified_name(certificate, kind) == name


def keys(folder: Path, password: str = "x", roles: tuple[str, ...] = ("r",), **permissions: tuple[str, ...]) -> Keys:
    security = Security(users={"ada": User(password=password, roles=roles)}, roles={"r": Role(**permissions)})
    return make_keys(BrokerOptions(security=security), folder)


def test_who_may_stay(tmp_path: Path) -> None:
    before = keys(tmp_path, send=("q",))

    def stays(user: str | None, now: Keys, then: Keys = before) -> bool:
        return now.still_lets_in(user, "ANONYMOUS" if user is None else "SCRAM-SHA-256", HERE, then)

    assert stays("ada", keys(tmp_path, send=("q",))), "hashed with another salt, and the same password"
    assert not stays("ada", keys(tmp_path, password="y", send=("q",)))
    assert not stays("ada", keys(tmp_path, roles=(), send=("q",)))
    assert not stays("ada", keys(tmp_path, send=("q", "r")))
    assert not stays(None, keys(tmp_path, send=("q",))), "there is a user"
    nobody = make_keys(BrokerOptions(), tmp_path)
    assert not stays(None, nobody), "without roles: everything"
    assert not stays("ada", nobody, nobody)
    guests = [
        make_keys(BrokerOptions(security=replace(one.security, anonymous="loopback")), tmp_path)
        for one in (before, keys(tmp_path, send=("q", "r")))
    ]
    assert stays(None, guests[1], guests[0]), "who has no role has as little as before"


@pytest.mark.parametrize(
    ("mechanism", "where", "closed", "stays"),
    [
        ("SCRAM-SHA-256", HERE, {"scram": "never"}, False),
        ("SCRAM-SHA-256", HERE, {"scram": "loopback"}, True),
        ("SCRAM-SHA-256", ELSEWHERE, {"scram": "loopback"}, False),
        ("SCRAM-SHA-256", HERE, {"plain": "never"}, True),
        ("PLAIN", HERE, {"plain": "never"}, False),
        ("PLAIN", HERE, {"scram": "never"}, True),
        ("PLAIN", ELSEWHERE, {}, False),  # without TLS, which it was allowed before
        ("PLAIN", peer_at("192.0.2.1", {}), {"plain": "never"}, True),
    ],
)
def test_who_came_by_a_way_that_is_closed_goes(
    mechanism: str, where: PeerFacts, closed: dict[str, Where], stays: bool, tmp_path: Path
) -> None:
    before = make_keys(BrokerOptions(security=Security(users={"ada": User(password="x")}, plain="always")), tmp_path)
    now = make_keys(BrokerOptions(security=Security(users={"ada": User(password="x")}, **closed)), tmp_path)  # type: ignore[arg-type]
    assert now.still_lets_in("ada", mechanism, where, before) is stays


def test_who_came_by_a_certificate_goes_where_it_does_not_name_the_user_any_more(tmp_path: Path) -> None:
    def asking(**tls: str) -> Keys:
        files = {"certificate_file": str(TLS_FILES / "certificate.pem"), "key_file": str(TLS_FILES / "key.pem")}
        security = Security(users={"ada": User(), "a": User()})
        return make_keys(BrokerOptions(security=security, tls=Tls(**files, **tls)), tmp_path)  # type: ignore[arg-type]

    peers = {"client_certificates": "optional", "client_ca_file": str(TLS_FILES / "peers-ca.pem")}
    both = tmp_path / "both.pem"
    both.write_text((TLS_FILES / "peers-ca.pem").read_text() + (TLS_FILES / "certificate.pem").read_text())
    before, more = asking(**peers), asking(**{**peers, "client_ca_file": str(both)})
    ada = peer_at("192.0.2.1", {"subject": ((("commonName", "ada"),),), "subjectAltName": (("DNS", "a"),)})

    def stays(now: Keys, then: Keys = before) -> bool:
        return now.still_lets_in("ada", "EXTERNAL", ada, then)

    assert stays(asking(**{**peers, "client_certificates": "required"}))
    assert not stays(asking()), "none is asked for"
    assert not stays(asking(**peers, client_name="email")), "it names nobody"
    assert not stays(asking(**peers, client_name="dns")), "it names another user"
    assert stays(more)
    assert not stays(before, more), "an authority is gone, which may have been its own"
    both.write_text((TLS_FILES / "peers-ca.pem").read_text() + (TLS_FILES / "ada.pem").read_text())
    assert not stays(before, asking(**{**peers, "client_ca_file": str(both)})), "its own certificate is, which was one"


def test_a_revocation_list_is_refused(tmp_path: Path) -> None:
    """OpenSSL takes it, and lets everybody in whom it names."""
    file = tmp_path / "peers.pem"
    file.write_text((TLS_FILES / "peers-ca.pem").read_text() + REVOCATION_LIST)
    files = {"certificate_file": str(TLS_FILES / "certificate.pem"), "key_file": str(TLS_FILES / "key.pem")}
    with pytest.raises(ConfigurationError, match="client_ca_file: .* expected certificates alone, found a revocation"):
        make_tls_context(Tls(**files, client_certificates="optional", client_ca_file=str(file)))


def test_a_certificate_that_has_expired_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """At the start, and at each reload until there is another."""

    def keys_of(certificate: Path, key: Path) -> Keys:
        return make_keys(BrokerOptions(tls=Tls(certificate_file=str(certificate), key_file=str(key))), tmp_path)

    expired = tmp_path / "chain.pem"
    expired.write_text((TLS_FILES / "expired.pem").read_text() + (TLS_FILES / "chain.pem").read_text())
    old, new = keys_of(expired, expired), keys_of(TLS_FILES / "certificate.pem", TLS_FILES / "key.pem")

    async def serve() -> None:
        notices = Notices(logging.getLogger("acquit.broker"), time.monotonic)
        listeners = Listeners(
            old,
            timeout_s=10,
            unauthenticated=Unauthenticated(1, lambda: None),
            notices=notices,
            enter=lambda caller: pytest.fail(f"{caller} comes in"),
        )
        await listeners.open([Listen(port=0, tls="immediate")])
        try:
            listeners.replace(old)
            listeners.replace(new)
        finally:
            await listeners.close()

    asyncio.run(serve())
    texts = (
        "the certificate of this broker expired on 2021-01-01 00:00 UTC: peers refuse it",
        "the certificate of its authority 'acquit test intermediate' expired on 2022-01-01 00:00 UTC: peers refuse it",
    )
    told = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert [(record.getMessage(), record.__dict__["file"]) for record in told] == [
        (text, str(expired)) for text in texts
    ] * 2


def test_secrets_are_not_shown(tmp_path: Path) -> None:
    assert "hunter22" not in repr(keys(tmp_path, password="hunter22"))


def test_the_users_file_of_the_folder_is_a_file(tmp_path: Path) -> None:
    """A pipe would be waited for, as the broker starts and at each reload. This device shows it without."""
    (tmp_path / "users.toml").symlink_to(os.devnull)
    with pytest.raises(ConfigurationError, match=r"users_file: .*users.toml: expected a file, found something else"):
        make_keys(BrokerOptions(), tmp_path)


def test_a_key_may_come_through_a_pipe_as_a_broker_starts(tmp_path: Path) -> None:
    """It is opened once: whoever opens it to see whether it can be read takes the key from who reads it."""
    key = tmp_path / "key"
    os.mkfifo(key)
    writer = threading.Thread(target=lambda: key.write_bytes((TLS_FILES / "key.pem").read_bytes()))
    writer.start()
    options = BrokerOptions(tls=Tls(certificate_file=str(TLS_FILES / "certificate.pem"), key_file=str(key)))
    assert make_keys(options, tmp_path / "data").tls is not None
    writer.join()
