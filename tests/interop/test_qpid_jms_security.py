"""Qpid JMS and who may come in: ANONYMOUS, PLAIN, SCRAM-SHA-256, TLS and EXTERNAL; and who may do what."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.interop.conftest import CERTIFICATES, Server
from tests.interop.qpid_jms import Connection, Jms, JmsError, texts

pytestmark = pytest.mark.interop

MECHANISMS = ["PLAIN", "SCRAM-SHA-256"]
PASSWORD = "correct horse"


def only(mechanism: str) -> str:
    return f"amqp.saslMechanisms={mechanism}"


def test_anonymous_without_a_user(jms: Jms, server: Server, address: str) -> None:
    session = jms.connect(server.url, options=only("ANONYMOUS")).session()
    session.send(f"queue:{address}", "a")
    assert texts(session.consumer(f"queue:{address}").take()) == ["a"]


def test_anonymous_where_nobody_may_be(jms: Jms, server_with_users: Server) -> None:
    with pytest.raises(JmsError, match="is JMSSecurityException:"):
        jms.connect(server_with_users.url)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_right_password(jms: Jms, server_with_users: Server, address: str, mechanism: str) -> None:
    connection = jms.connect(server_with_users.url, options=only(mechanism), user="ann", password=PASSWORD)
    session = connection.session()
    session.send(f"queue:{address}", "a")
    assert texts(session.consumer(f"queue:{address}").take()) == ["a"]


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize(("user", "password"), [("ann", "wrong"), ("bob", PASSWORD)])
def test_wrong_user_or_password(jms: Jms, server_with_users: Server, mechanism: str, user: str, password: str) -> None:
    with pytest.raises(JmsError, match="is JMSSecurityException:"):
        jms.connect(server_with_users.url, options=only(mechanism), user=user, password=password)


def test_strongest_mechanism_is_taken(jms: Jms, server_with_users: Server) -> None:
    # Its own order of preference decides; that there is a common one at all is what is shown.
    jms.connect(server_with_users.url, user="ann", password=PASSWORD).session()


def test_mechanism_that_the_broker_does_not_offer(jms: Jms, server_with_users: Server) -> None:
    with pytest.raises(JmsError, match="is JMSSecurityException:"):
        jms.connect(server_with_users.url, options=only("CRAM-MD5"), user="ann", password=PASSWORD)


def test_failover_gives_up_on_a_wrong_password(jms: Jms, server_with_users: Server) -> None:
    url = f"failover:({server_with_users.url})?failover.initialReconnectDelay=0"
    with pytest.raises(JmsError, match="is JMSSecurityException:"):
        jms.connect(url, user="ann", password="wrong")


# ---- over TLS


@dataclass(frozen=True)
class Stores:
    """Java's files of certificates."""

    trust: Path
    ada: Path
    stranger: Path

    @property
    def trusting(self) -> str:
        return f"transport.trustStoreLocation={self.trust}&transport.trustStorePassword=secret"

    def showing(self, key_store: Path) -> str:
        return f"{self.trusting}&transport.keyStoreLocation={key_store}&transport.keyStorePassword=secret"


@pytest.fixture(scope="session")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Stores:
    """Made of the PEM files of the tests, by what the JDK and openssl bring."""
    folder = tmp_path_factory.mktemp("stores")
    made = Stores(folder / "trust.p12", folder / "ada.p12", folder / "stranger.p12")
    trust = f"keytool -importcert -noprompt -alias broker -storetype PKCS12 -storepass secret -keystore {made.trust}"
    _run(*trust.split(), "-file", str(CERTIFICATES / "certificate.pem"))
    for store in (made.ada, made.stranger):
        pem = CERTIFICATES / f"{store.stem}.pem"
        _run(*f"openssl pkcs12 -export -passout pass:secret -in {pem} -out {store}".split())
    return made


def _run(*command: str) -> None:
    finished = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stdout + finished.stderr


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_password_over_tls(jms: Jms, server_with_roles: Server, stores: Stores, address: str, mechanism: str) -> None:
    options = f"{stores.trusting}&{only(mechanism)}"
    session = jms.connect(server_with_roles.url, options=options, user="walt", password="pen").session()
    session.send(f"queue:shop.{address}", "a")


def test_certificate_of_the_broker_that_is_not_trusted(jms: Jms, server_with_roles: Server) -> None:
    with pytest.raises(JmsError, match="(?i)certif|trust|ssl"):
        jms.connect(server_with_roles.url, user="walt", password="pen")


def test_external_by_certificate(jms: Jms, server_with_roles: Server, stores: Stores, address: str) -> None:
    connection = jms.connect(server_with_roles.url, options=f"{stores.showing(stores.ada)}&{only('EXTERNAL')}")
    session = connection.session()
    session.send(f"queue:shop.{address}", "a")
    assert texts(session.consumer(f"queue:shop.{address}").take()) == ["a"]


def test_certificate_of_a_stranger(jms: Jms, server_with_roles: Server, stores: Stores) -> None:
    with pytest.raises(JmsError):
        jms.connect(server_with_roles.url, options=f"{stores.showing(stores.stranger)}&{only('EXTERNAL')}")


# ---- roles


@pytest.fixture
def writer(jms: Jms, server_with_roles: Server, stores: Stores) -> Connection:
    return jms.connect(server_with_roles.url, options=stores.trusting, user="walt", password="pen")


@pytest.fixture
def reader(jms: Jms, server_with_roles: Server, stores: Stores) -> Connection:
    return jms.connect(
        server_with_roles.url, options=stores.trusting, user="rita", password="glasses", client_id="rita"
    )


def test_each_does_what_its_roles_allow(writer: Connection, reader: Connection, address: str) -> None:
    queue = f"queue:shop.{address}"
    writer.session().send(queue, "a")
    session = reader.session()
    assert texts(session.browse(queue)) == ["a"]
    assert texts(session.consumer(queue).take()) == ["a"]


def test_what_no_role_allows_is_a_security_exception(writer: Connection, reader: Connection, address: str) -> None:
    writing, reading = writer.session(), reader.session()
    with pytest.raises(JmsError, match="^JMSSecurityException"):
        writing.consumer(f"queue:shop.{address}")
    with pytest.raises(JmsError, match="^JMSSecurityException"):
        reading.producer(f"queue:shop.{address}")
    with pytest.raises(JmsError, match="^JMSSecurityException"):
        writing.producer(f"queue:elsewhere.{address}")
    with pytest.raises(JmsError, match="^JMSSecurityException"):
        reading.consumer(f"queue:elsewhere.{address}")
    # Only these links failed.
    writing.send(f"queue:shop.{address}", "a")
    assert texts(reading.consumer(f"queue:shop.{address}").take()) == ["a"]


def test_anonymous_producer_is_refused_message_by_message(writer: Connection, address: str) -> None:
    producer = writer.session().producer()
    producer.send("a", to=f"queue:shop.{address}")
    with pytest.raises(JmsError, match="^JMSSecurityException"):
        producer.send("b", to=f"queue:elsewhere.{address}")
    producer.send("c", to=f"queue:shop.{address}")


def test_durable_subscription_of_who_may_consume(writer: Connection, reader: Connection, address: str) -> None:
    session = reader.session()
    session.durable(f"topic:shop.{address}", "sub").close()
    writer.session().send(f"topic:shop.{address}", "a")
    consumer = session.durable(f"topic:shop.{address}", "sub")
    assert texts(consumer.take()) == ["a"]
    consumer.close()
    session.unsubscribe("sub")
    with pytest.raises(JmsError, match="^JMSSecurityException"):
        session.durable(f"topic:elsewhere.{address}", "other")
