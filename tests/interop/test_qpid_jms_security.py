"""Qpid JMS and who may come in: ANONYMOUS, PLAIN, SCRAM-SHA-256."""

from __future__ import annotations

import pytest

from tests.interop.conftest import Server
from tests.interop.qpid_jms import Jms, JmsError, texts

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
