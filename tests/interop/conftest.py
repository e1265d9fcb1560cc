"""A real `acquit serve` in a process of its own, and the two peers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import acquit
from acquit.demo.broker import BrokerProcess
from acquit.demo.children import Children
from tests.interop.peer import PEERS, Peer

CONFIG = """
[connection]
idle_timeout_ms = 2000
message_bytes_max = 4_194_304

[[address]]
match = "closed.#"
create = false

[[address]]
match = "tries.#"
max_delivery_attempts = 3
"""

CONFIG_WITH_USERS = """
[security]
anonymous = "never"

[users.ann]
password = "correct horse"
"""


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Only `make interop` installs the peers: elsewhere these files cannot even be imported."""
    return True if config.option.markexpr != "interop" else None


@dataclass(frozen=True)
class Server:
    """A running broker."""

    url: str

    @property
    def port(self) -> int:
        found = re.search(r":(\d+)$", self.url)
        assert found is not None
        return int(found.group(1))


def serve(folder: Path, config: str) -> Iterator[Server]:
    (folder / "acquit.toml").write_text(config, encoding="utf-8")
    with Children(folder / "logs") as children:
        broker = BrokerProcess(children, folder / "data", folder / "endpoint", config=folder / "acquit.toml")
        broker.start()
        yield Server(broker.url)
        assert broker.stop() == 0, "acquit serve did not end in order"


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A broker for everybody; each test has addresses of its own."""
    yield from serve(tmp_path_factory.mktemp("broker"), CONFIG)


@pytest.fixture(scope="session")
def server_with_users(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A broker that knows one user and lets nobody else in."""
    yield from serve(tmp_path_factory.mktemp("broker-with-users"), CONFIG_WITH_USERS)


@pytest.fixture(params=PEERS)
def peer(request: pytest.FixtureRequest) -> Iterator[Peer]:
    """Each peer in turn."""
    with Peer(request.param) as running:
        yield running


@pytest.fixture
def ours(server: Server) -> Iterator[acquit.Connection]:
    """Our own client on the broker, to look at what the peers did."""
    with acquit.connect(server.url) as connection:
        yield connection
