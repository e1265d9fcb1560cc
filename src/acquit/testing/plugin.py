"""Fixtures for pytest: a broker for each test that asks for one, and a bad network before it.

pytest finds this module by acquit's entry point and imports it at every start, whether or not a test wants it: nothing
is loaded here but pytest, and acquit when a fixture is used. ``-p no:acquit`` leaves it out.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from acquit.broker.options import BrokerOptions
    from acquit.embedded import Broker
    from acquit.testing.proxy import Proxy


@pytest.fixture
def acquit_broker_options() -> BrokerOptions | None:
    """Options of `acquit_broker`; None takes the defaults. Override it to choose your own. The journal is a small one
    unless they say what it is to be."""
    return None


@pytest.fixture
def acquit_broker(
    acquit_broker_options: BrokerOptions | None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Broker]:
    """A broker in this process, empty, on a free port of 127.0.0.1, for this test alone.

    Its folder is one of pytest's temporary folders, which are kept for the latest runs: what became of the messages of
    a test that failed can be read with ``acquit ledger``.
    """
    from acquit.broker.options import BrokerOptions
    from acquit.embedded import Broker

    folder = tmp_path_factory.mktemp("acquit-broker")
    with Broker(folder, config=(acquit_broker_options or BrokerOptions()).with_small_journal()) as broker:
        yield broker


@pytest.fixture
def acquit_broker_url(acquit_broker: Broker) -> str:
    """Return the URL of `acquit_broker`."""
    return acquit_broker.url


@pytest.fixture
def acquit_proxy(acquit_broker_url: str) -> Iterator[Proxy]:
    """An `acquit.testing.Proxy` before `acquit_broker`: connect to its `url`, then cut, stall or slow it."""
    from acquit.testing.proxy import Proxy

    with Proxy(acquit_broker_url) as proxy:
        yield proxy
