from __future__ import annotations

import pytest

from acquit.client.products import UNKNOWN, Product, product_of

BROKER_J = Product(wants_attach_answered=True, repeats_target=True)
RABBITMQ_3 = Product(refuses_second=True, repeats_source=True, repeats_target=True, repeats_filters=True)
RABBITMQ_4_0 = RABBITMQ_3._replace(keeps_first_acquirer=True)
RABBITMQ_4_1 = RABBITMQ_4_0._replace(repeats_filters=False)
RABBITMQ_4_3 = Product(keeps_first_acquirer=True, refuses_second=True)


@pytest.mark.parametrize(
    ("shown", "known"),
    [
        (None, UNKNOWN),
        ({}, UNKNOWN),
        ({"product": "another", "version": "4.3"}, UNKNOWN),
        ({"product": "acquit"}, Product(keeps_first_acquirer=True)),
        ({"product": "acquit", "version": "0.1"}, Product(keeps_first_acquirer=True)),
        ({"product": "Apache Qpid Broker-J Core", "version": "9.2.1"}, BROKER_J),
        ({"product": "apache-activemq-artemis", "version": "2.55.0"}, Product(repeats_target=True)),
        ({"product": "RabbitMQ"}, RABBITMQ_3),
        ({"product": "RabbitMQ", "version": "3.13.7"}, RABBITMQ_3),
        ({"product": "RabbitMQ", "version": "4.0.5"}, RABBITMQ_4_0),
        ({"product": "RabbitMQ", "version": "4.1.0"}, RABBITMQ_4_1),
        ({"product": "RabbitMQ", "version": "4.2.9"}, RABBITMQ_4_1),
        ({"product": "RabbitMQ", "version": "4.3.0-beta.1"}, RABBITMQ_4_3),
        ({"product": "RabbitMQ", "version": "4.3-rc.1"}, RABBITMQ_4_3),
        ({"product": "RabbitMQ", "version": "10.0"}, RABBITMQ_4_3),
        ({"product": "RabbitMQ", "version": "unreleased"}, RABBITMQ_3),
    ],
)
def test_a_product_is_known_by_its_name_and_version(shown: dict[str, object] | None, known: Product) -> None:
    assert product_of(shown) == known
