"""Our TLS as sslyze sees it, a scanner with OpenSSL of its own that still speaks what is refused since long.

It runs as a process, against a broker of each kind of key and each way to ask for TLS; what it reports is held to
`EXPECTED`. Contexts that are weaker in one respect each show that it would see that.
"""

from __future__ import annotations

import datetime
import json
import re
import socketserver
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from socket import MSG_WAITALL, SHUT_WR, create_connection, socket
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID

import acquit
from acquit.broker.access import listeners
from acquit.broker.options import BrokerOptions, Listen, Security, Tls, User
from acquit.protocol.constants import TLS_HEADER
from acquit.store.options import JournalOptions
from tests.support import guarded

pytestmark = pytest.mark.interop

Report = dict[str, Any]
Key = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey
FORWARD_SECRET_AEAD = re.compile(
    r"TLS_ECDHE_(ECDSA|RSA)_WITH_(AES_(128|256)_GCM_SHA(256|384)|CHACHA20_POLY1305_SHA256)"
)
OLD = ("ssl_2_0", "ssl_3_0", "tls_1_0", "tls_1_1")


def suites(version: str) -> Callable[[Report], set[str]]:
    """What of a version the broker takes, by the names of the suites."""
    return lambda report: {
        accepted["cipher_suite"]["name"] for accepted in report[f"{version}_cipher_suites"]["accepted_cipher_suites"]
    }


def weak(report: Report) -> list[str]:
    return sorted(name for name in suites("tls_1_2")(report) if not FORWARD_SECRET_AEAD.fullmatch(name))


def trusted(report: Report) -> bool:
    """Whether the certificates come in order and lead to the authority that the scanner was given."""
    (deployed,) = report["certificate_info"]["certificate_deployments"]
    ours = [one for one in deployed["path_validation_results"] if one["trust_store"]["name"] == "Supplied CA file"]
    return bool(deployed["received_chain_has_valid_order"] and ours[0]["was_validation_successful"])


EXPECTED: dict[str, tuple[Callable[[Report], object], object]] = {
    **{f"{version} is not spoken": (suites(version), set()) for version in OLD},
    "TLS 1.2 is": (lambda report: bool(suites("tls_1_2")(report)), True),
    "TLS 1.3 is": (lambda report: len(suites("tls_1_3")(report)), 3),
    "no weak suites": (weak, []),
    "no compression": (lambda report: report["tls_compression"]["supports_compression"], False),
    "no early data": (lambda report: report["tls_1_3_early_data"]["supports_early_data"], False),
    "no injection": (lambda report: report["openssl_ccs_injection"]["is_vulnerable_to_ccs_injection"], False),
    "no heartbleed": (lambda report: report["heartbleed"]["is_vulnerable_to_heartbleed"], False),
    "no robot": (lambda report: report["robot"]["robot_result"], "NOT_VULNERABLE_RSA_NOT_SUPPORTED"),
    "no downgrade": (lambda report: report["tls_fallback_scsv"]["supports_fallback_scsv"], True),
    "renegotiation is secure": (lambda report: report["session_renegotiation"]["supports_secure_renegotiation"], True),
    "and not for peers": (
        lambda report: report["session_renegotiation"]["is_vulnerable_to_client_renegotiation_dos"],
        False,
    ),
    "extended master secret": (lambda report: report["tls_extended_master_secret"]["supports_ems_extension"], True),
    "a certificate in order": (trusted, True),
}


def faults(report: Report) -> list[str]:
    """What is not as expected, by name; and what was not looked at."""
    unseen = [name for name, done in report.items() if done["status"] == "ERROR"]
    results = {name: done["result"] for name, done in report.items()}
    return unseen or [name for name, (found, expected) in EXPECTED.items() if found(results) != expected]


# -- certificates


@dataclass(frozen=True)
class Files:
    """An authority, and a server's certificate by one below it, in the order in which a server says them."""

    authority: Path
    tls: Tls


def make_key(kind: str) -> Key:
    return ec.generate_private_key(ec.SECP256R1()) if kind == "ECDSA" else rsa.generate_private_key(65537, 2048)


def certify(
    name: str, key: Key, issuer: x509.Certificate | None, issuer_key: Key, *, authority: bool
) -> x509.Certificate:
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    usage = dict.fromkeys(
        (
            "content_commitment",
            "key_encipherment",
            "data_encipherment",
            "key_agreement",
            "encipher_only",
            "decipher_only",
        ),
        False,
    )
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject if issuer is None else issuer.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=90))
        .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False)
        .add_extension(
            x509.KeyUsage(digital_signature=not authority, key_cert_sign=authority, crl_sign=authority, **usage),
            critical=True,
        )
    )
    if not authority:
        builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        builder = builder.add_extension(
            x509.ExtendedKeyUsage([x509.oid.ExtendedKeyUsageOID.SERVER_AUTH]), critical=False
        )
    return builder.sign(issuer_key, hashes.SHA256())


@pytest.fixture(scope="module", params=["ECDSA", "RSA"])
def files(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Files:
    folder = tmp_path_factory.mktemp("certificates")
    keys = [make_key(request.param) for _ in range(3)]
    root = certify("the root", keys[0], None, keys[0], authority=True)
    below = certify("one below", keys[1], root, keys[0], authority=True)
    leaf = certify("localhost", keys[2], below, keys[1], authority=False)
    pem = serialization.Encoding.PEM
    (folder / "root.pem").write_bytes(root.public_bytes(pem))
    (folder / "server.pem").write_bytes(leaf.public_bytes(pem) + below.public_bytes(pem))
    (folder / "key.pem").write_bytes(
        keys[2].private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    tls = Tls(certificate_file=str(folder / "server.pem"), key_file=str(folder / "key.pem"))
    return Files(folder / "root.pem", tls)


# -- the scan


@contextmanager
def broker_with(tls: Tls, mode: str = "immediate") -> Iterator[acquit.Broker]:
    security = Security(anonymous="never", users={"ada": User(password="x")})
    options = BrokerOptions(
        security=security, tls=tls, journal=JournalOptions.small(), listen=(Listen(port=0, tls=mode),)
    )  # type: ignore[arg-type]
    with acquit.Broker(config=options) as broker:
        yield broker


def scan(port: int, authority: Path) -> tuple[str, Report]:
    """What the broker there wants of a peer's certificate, and what else is found."""
    wanted = [
        "--sni",
        "localhost",
        "--certinfo_ca_file",
        str(authority),
        "--json_out",
        "-",
        "--mozilla_config",
        "disable",
    ]
    commands = (
        "--certinfo --sslv2 --sslv3 --tlsv1 --tlsv1_1 --tlsv1_2 --tlsv1_3 --compression --early_data --openssl_ccs "
        "--heartbleed --robot --fallback --reneg --ems"
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "sslyze", *wanted, *commands.split(), f"127.0.0.1:{port}"],
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert done.stdout.startswith("{"), f"sslyze ended with {done.returncode}: {done.stderr[-2_000:]}"
    (found,) = json.loads(done.stdout)["server_scan_results"]
    assert found["scan_status"] == "COMPLETED", found["connectivity_error_trace"]
    commanded = {name: done for name, done in found["scan_result"].items() if done["status"] != "NOT_SCHEDULED"}
    return found["connectivity_result"]["client_auth_requirement"], commanded


@contextmanager
def clear_to_tls(port: int) -> Iterator[int]:
    """A port where what speaks TLS at once reaches a broker that wants to be asked for it first (section 5.2.1)."""

    class Ask(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with closing(create_connection(("127.0.0.1", port), timeout=20)) as broker:
                broker.sendall(TLS_HEADER)
                assert broker.recv(8, MSG_WAITALL) == TLS_HEADER
                back = threading.Thread(target=carry, args=(broker, self.request))
                back.start()
                carry(self.request, broker)
                back.join()

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Ask) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


def carry(one: socket, other: socket) -> None:
    with suppress(OSError):  # the other direction has ended it
        while data := one.recv(65_536):
            other.sendall(data)
    with suppress(OSError):
        other.shutdown(SHUT_WR)


def weakened(weaken: Callable[[ssl.SSLContext], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """Have brokers speak TLS otherwise than they do."""
    make = listeners.make_tls_context

    def make_weaker(tls: Tls) -> ssl.SSLContext | None:
        context = make(tls)
        assert context is not None
        weaken(context)
        return context

    monkeypatch.setattr(listeners, "make_tls_context", make_weaker)


def test_nothing_is_found(files: Files) -> None:
    with broker_with(files.tls) as broker:
        _, report = scan(broker.port, files.authority)
    assert faults(report) == []


@pytest.mark.parametrize("mode", ["offered", "required"])
def test_nor_where_tls_begins_inside_of_the_connection(mode: str, files: Files) -> None:
    with broker_with(files.tls, mode) as broker, clear_to_tls(broker.port) as port:
        _, report = scan(port, files.authority)
    assert faults(report) == []


@pytest.mark.parametrize("wanted", ["none", "optional", "required"])
def test_certificates_of_peers_are_asked_for_as_configured(
    wanted: str, files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In TLS 1.2: of 1.3 sslyze wants an alert, which asyncio does not send of a handshake that failed. In 1.3 our own
    client looks, in `tests/system/test_security.py`."""
    weakened(no_tls_1_3, monkeypatch)
    tls = replace(
        files.tls, client_certificates=wanted, client_ca_file="" if wanted == "none" else str(files.authority)
    )  # type: ignore[arg-type]
    with broker_with(tls) as broker:
        asked, _ = scan(broker.port, files.authority)
    assert asked == ("DISABLED" if wanted == "none" else wanted.upper())


def tls_1_0(context: ssl.SSLContext) -> None:
    context.set_ciphers("ECDHE+AESGCM:ECDHE+AES:@SECLEVEL=0")
    context.minimum_version = ssl.TLSVersion.TLSv1


def tls_1_1(context: ssl.SSLContext) -> None:
    context.set_ciphers("ECDHE+AESGCM:ECDHE+AES:@SECLEVEL=0")
    context.minimum_version = ssl.TLSVersion.TLSv1_1


def one_weak_suite(context: ssl.SSLContext) -> None:
    context.set_ciphers("ECDHE+AESGCM:ECDHE-ECDSA-AES128-SHA256:ECDHE-RSA-AES128-SHA256")


def no_authentication(context: ssl.SSLContext) -> None:
    context.set_ciphers("ECDHE+AESGCM:AECDH-AES256-SHA:@SECLEVEL=0")


def renegotiation(context: ssl.SSLContext) -> None:
    context.options &= ~ssl.OP_NO_RENEGOTIATION
    context.options |= 0x100  # SSL_OP_ALLOW_CLIENT_RENEGOTIATION, without which OpenSSL 3 refuses it by itself


def no_tls_1_3(context: ssl.SSLContext) -> None:
    context.maximum_version = ssl.TLSVersion.TLSv1_2


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
@pytest.mark.parametrize(
    ("weaken", "found"),
    [
        (tls_1_0, ["tls_1_0 is not spoken", "tls_1_1 is not spoken", "no weak suites"]),
        (tls_1_1, ["tls_1_1 is not spoken", "no weak suites"]),
        (one_weak_suite, ["no weak suites"]),
        (no_authentication, ["no weak suites"]),
        (renegotiation, ["and not for peers"]),
        (no_tls_1_3, ["TLS 1.3 is"]),
    ],
)
def test_what_is_weaker_is_found(
    weaken: Callable[[ssl.SSLContext], None], found: list[str], files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    weakened(weaken, monkeypatch)
    with broker_with(files.tls) as broker:
        _, report = scan(broker.port, files.authority)
    assert faults(report) == found


def test_a_chain_with_a_gap_is_found(files: Files, tmp_path: Path) -> None:
    gap = tmp_path / "server.pem"
    gap.write_text(
        Path(files.tls.certificate_file).read_text().partition("-----END")[0] + "-----END CERTIFICATE-----\n"
    )
    with broker_with(replace(files.tls, certificate_file=str(gap))) as broker:
        _, report = scan(broker.port, files.authority)
    assert faults(report) == ["a certificate in order"]


def test_a_certificate_of_another_authority_is_found(files: Files) -> None:
    with broker_with(files.tls) as broker:
        _, report = scan(broker.port, guarded.FILES / "peers-ca.pem")
    assert faults(report) == ["a certificate in order"]
