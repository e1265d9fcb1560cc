"""The brokers that the tests of `foreign` run with: one line each."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.interop.artemis import Artemis
from tests.interop.broker_j import BrokerJ
from tests.interop.foreign import ForeignBroker
from tests.interop.ours import Acquit
from tests.interop.rabbitmq import RabbitMQ

BROKERS: dict[str, Callable[[Path], ForeignBroker]] = {kind.name: kind for kind in (Acquit, Artemis, BrokerJ, RabbitMQ)}
