"""proton against our TLS, certificates and permissions. (Its SCRAM is Cyrus's, which its wheels come without.)"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import acquit
from acquit.broker.options import BrokerOptions, Role, Security, Tls, User
from acquit.store.options import JournalOptions

pytestmark = pytest.mark.interop

FILES = Path(__file__).parents[1] / "support" / "tls"
TIMEOUT_S = 20


@contextmanager
def connected(url: str, mechanisms: str, certificate: str | None = None, **options: object) -> Iterator[Any]:
    """A BlockingConnection of proton's, that trusts our certificate and may show one of its own."""
    import proton
    from proton.utils import BlockingConnection

    domain = None
    if url.startswith("amqps"):
        domain = proton.SSLDomain(proton.SSLDomain.MODE_CLIENT)
        domain.set_trusted_ca_db(str(FILES / "certificate.pem"))
        domain.set_peer_authentication(proton.SSLDomain.VERIFY_PEER)
        if certificate is not None:
            path = str(FILES / f"{certificate}.pem")
            domain.set_credentials(path, path, None)
    connection = BlockingConnection(
        url, timeout=TIMEOUT_S, ssl_domain=domain, allowed_mechs=mechanisms, allow_insecure_mechs=True, **options
    )
    try:
        yield connection
    finally:
        connection.close()


def options(security: Security, *, tls: bool = False) -> BrokerOptions:
    files = Tls(
        certificate_file=str(FILES / "certificate.pem"),
        key_file=str(FILES / "key.pem"),
        client_certificates="optional",
        client_ca_file=str(FILES / "peers-ca.pem"),
    )
    return BrokerOptions(security=security, tls=files if tls else Tls(), journal=JournalOptions.small())


def test_a_certificate_says_who_it_is() -> None:
    import proton

    security = Security(anonymous="never", users={"ada": User()})
    with acquit.Broker(config=options(security, tls=True)) as broker:
        url = broker.url.replace("127.0.0.1", "localhost")
        with connected(url, "EXTERNAL", "ada") as connection:
            connection.create_sender("q").send(proton.Message("x"), timeout=TIMEOUT_S)
            assert [one.user for one in broker.inspect().connections] == ["ada"]
        with pytest.raises(proton.ConnectionException), connected(url, "EXTERNAL", "stranger"):
            pass


def test_a_password_over_tls() -> None:
    import proton

    security = Security(anonymous="never", users={"bob": User(password="x")}, refusal_delay_ms=1)
    with acquit.Broker(config=options(security, tls=True)) as broker:
        url = broker.url.replace("127.0.0.1", "localhost")
        with connected(url, "PLAIN", user="bob", password="x") as connection:
            connection.create_sender("q").send(proton.Message("x"), timeout=TIMEOUT_S)
        with pytest.raises(proton.ConnectionException), connected(url, "PLAIN", user="bob", password="y"):
            pass


def test_what_is_not_permitted_is_told() -> None:
    import proton
    from proton.utils import LinkDetached

    security = Security(roles={"anonymous": Role(send=("allowed",), create=("allowed",))})
    with acquit.Broker(config=options(security)) as broker, connected(broker.url, "ANONYMOUS") as connection:
        with pytest.raises(LinkDetached, match="amqp:unauthorized-access.*may not consume at allowed"):
            connection.create_receiver("allowed")
        with pytest.raises(LinkDetached, match="amqp:unauthorized-access.*may not send at refused"):
            connection.create_sender("refused")
        connection.create_sender("allowed").send(proton.Message("x"), timeout=TIMEOUT_S)
