"""A real `acquit serve` in a process of its own, and the peers."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import acquit
from acquit.cli.app import run as acquit_command
from acquit.cli.connecting import BrokerAt
from acquit.cli.management import management
from acquit.client.management import Management
from acquit.demo.children import Children
from acquit.protocol.extensions import QUEUE
from acquit.testing import Proxy
from tests.interop.all_brokers import BROKERS
from tests.interop.foreign import ForeignBroker
from tests.interop.java import PeerMissing, in_ci
from tests.interop.observations import Observer, Recorder
from tests.interop.peer import PEERS, Peer
from tests.interop.qpid_jms import Jms
from tests.support.chromium import Tab, browsing, find_chromium
from tests.support.endpoint import BrokerProcess

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

[[address]]
match = "mortal.#"
max_delivery_attempts = 2
dead_letter_address = "graves"
expiry_address = "ashes"

[[address]]
match = "later.#"
redelivery_delay_ms = 300

[[address]]
match = "ring.#"
ring_size = 3

[[address]]
match = "last.#"
last_value = true

[[address]]
match = "reject.#"
messages_max = 3
full_policy = "reject"

[[address]]
match = "block.#"
messages_max = 10

[[address]]
match = "exclusive.#"
consumers = "exclusive"

[[address]]
match = "active.#"
consumers = "single-active"

[[address]]
match = "locked.#"
lock_duration_ms = 300

[[address]]
match = "kept.#"
non_destructive = true

[[address]]
match = "routed.#"
unroutable = "release"
"""

SETTLED_S = 10.0
"""How long the broker may take to hear what a peer has sent and not waited for."""

CONFIG_WITH_USERS = """
[security]
anonymous = "never"

[users.ann]
password = "correct horse"
"""

LAST = "test_the_brokers_page.py"

CERTIFICATES = Path(__file__).parents[1] / "support/tls"

CONFIG_WITH_ROLES = f"""
[security]
anonymous = "never"
refusal_delay_ms = 1

[tls]
certificate_file = "{CERTIFICATES / "certificate.pem"}"
key_file = "{CERTIFICATES / "key.pem"}"
client_ca_file = "{CERTIFICATES / "peers-ca.pem"}"
client_certificates = "optional"

[users.ada]
roles = ["writer", "reader"]

[users.walt]
password = "pen"
roles = ["writer"]

[users.rita]
password = "glasses"
roles = ["reader"]

[roles.writer]
send = ["shop.#"]
create = ["shop.#"]

[roles.reader]
consume = ["shop.#"]
browse = ["shop.#"]
create = ["shop.#"]
"""
"""Over TLS alone: Ada shows a certificate, Walt and Rita say passwords."""


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Only `make interop` installs the peers: elsewhere these files cannot even be imported."""
    return True if config.option.markexpr != "interop" else None


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What compares the pages with all that was seen comes after all that looks."""
    items.sort(key=lambda item: item.path.name == LAST)


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
    assert_in_order(folder)


def assert_in_order(folder: Path) -> None:
    """After all that was done to a broker: it complained of nothing, and its books balance."""
    for log in (folder / "logs").iterdir():
        said = log.read_text(encoding="utf-8")
        assert "[error" not in said, said
        assert "Traceback" not in said, said
    for what in (["verify"], ["balance", "--archive"]):
        assert acquit_command(["ledger", *what, "--data", str(folder / "data")]) == 0, "see what it printed"


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A broker for everybody; each test has addresses of its own."""
    yield from serve(tmp_path_factory.mktemp("broker"), CONFIG)


@pytest.fixture(scope="session")
def server_with_users(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A broker that knows one user and lets nobody else in."""
    yield from serve(tmp_path_factory.mktemp("broker-with-users"), CONFIG_WITH_USERS)


@pytest.fixture(scope="session")
def server_with_roles(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A broker with TLS that lets users do what their roles say."""
    yield from serve(tmp_path_factory.mktemp("broker-with-roles"), CONFIG_WITH_ROLES)


@pytest.fixture(params=PEERS)
def peer(request: pytest.FixtureRequest) -> Iterator[Peer]:
    """Each peer in turn."""
    with Peer(request.param) as running:
        yield running


@pytest.fixture(scope="session")
def kept_peers() -> Iterator[Callable[[str, str], Peer]]:
    """Processes that many tests have in turn, by kind and use."""
    running: dict[tuple[str, str], Peer] = {}
    with contextlib.ExitStack() as stack:

        def peer_for(kind: str, use: str) -> Peer:
            if (kind, use) not in running:
                running[kind, use] = stack.enter_context(Peer(kind))
            return running[kind, use]

        yield peer_for


@pytest.fixture(params=PEERS)
def client(request: pytest.FixtureRequest, kept_peers: Callable[[str, str], Peer]) -> Iterator[Peer]:
    """Each peer in turn, in a process that is kept."""
    peer = kept_peers(request.param, "client")
    yield peer
    peer.reset()


@pytest.fixture
def other(client: Peer, kept_peers: Callable[[str, str], Peer]) -> Iterator[Peer]:
    """A second client, with the library that the first one does not use."""
    (kind,) = set(PEERS) - {client.kind}
    peer = kept_peers(kind, "other")
    yield peer
    peer.reset()


@pytest.fixture
def clients(client: Peer, other: Peer, server: Server) -> tuple[Peer, Peer]:
    """One of each library, connected, as containers of no other test."""
    client.connect(server.port)
    other.connect(server.port)
    return client, other


@pytest.fixture
def ours(server: Server) -> Iterator[acquit.Connection]:
    """Our own client on the broker, to look at what the peers did."""
    with acquit.connect(server.url) as connection:
        yield connection


@pytest.fixture(scope="session")
def jms_process() -> Iterator[Jms]:
    """One Java process for all tests."""
    try:
        process = Jms()
    except PeerMissing as missing:
        (pytest.fail if in_ci() else pytest.skip)(str(missing))
    with process as running:
        yield running


@pytest.fixture
def jms(jms_process: Jms) -> Iterator[Jms]:
    """Qpid JMS, without anything that another test left."""
    yield jms_process
    jms_process.reset()


@pytest.fixture
def proxy(server: Server) -> Iterator[Proxy]:
    """A wire to the broker that can be cut."""
    with Proxy(server.url) as running:
        yield running


class Look:
    """Looks into the broker's queues, over its management node."""

    def __init__(self, node: Management) -> None:
        self._node = node

    def __call__(self, queue: str) -> dict[str, object]:
        """Its attributes, `depth` and the totals among them."""
        found = self._node.request("READ", QUEUE, name=queue)
        assert isinstance(found, dict)
        return found

    def names(self) -> set[str]:
        found = self._node.request("QUERY", QUEUE)
        assert isinstance(found, dict)
        at = found["attributeNames"].index("name")
        return {row[at] for row in found["results"]}

    def is_there(self, queue: str) -> bool:
        return queue in self.names()

    def until(self, queue: str, **expected: object) -> dict[str, object]:
        """Look until these attributes have these values: what a peer sent without waiting takes a moment to arrive."""
        return wait_for(lambda: (found := self(queue), found == {**found, **expected}), f"{queue}: {expected}")


def wait_for(look: Callable[[], tuple[dict[str, object], bool]], what: str) -> dict[str, object]:
    """Look until it is so; the last look fails the test after `SETTLED_S`."""
    end = time.monotonic() + SETTLED_S
    while True:
        found, so = look()
        if so:
            return found
        if time.monotonic() > end:
            pytest.fail(f"never came true: {what}; last seen: {found}")
        time.sleep(0.005)


@pytest.fixture
def look(server: Server) -> Iterator[Look]:
    """To see what the broker has."""
    with management(BrokerAt((server.url,)), 10.0) as node:
        yield Look(node)


class MortalServer:
    """A broker of the test's own, that can be killed and comes back on its port."""

    def __init__(self, broker: BrokerProcess) -> None:
        self._broker = broker
        broker.start()
        self.alive = True
        self.url = broker.url
        self._port = Server(broker.url).port

    @property
    def failover_url(self) -> str:
        """As Qpid JMS takes it."""
        return self.failover_url_with("")

    def failover_url_with(self, *options: str) -> str:
        delays = ("failover.initialReconnectDelay=0", "failover.reconnectDelay=20", "failover.maxReconnectDelay=20")
        return f"failover:({self.url})?{'&'.join([*delays, *filter(None, options)])}"

    def kill(self) -> None:
        self._broker.kill()
        self.alive = False

    def restart(self) -> None:
        self._broker.start(self._port)
        self.alive = True

    def stop(self) -> None:
        """In order."""
        assert self._broker.stop() == 0, "acquit serve did not end in order"
        self.alive = False

    def kill_and_restart(self) -> None:
        self.kill()
        self.restart()


@pytest.fixture
def mortal(tmp_path: Path) -> Iterator[MortalServer]:
    """A broker that may be killed with -9."""
    (tmp_path / "acquit.toml").write_text(CONFIG, encoding="utf-8")
    with Children(tmp_path / "logs") as children:
        broker = BrokerProcess(children, tmp_path / "data", tmp_path / "endpoint", config=tmp_path / "acquit.toml")
        running = MortalServer(broker)
        yield running
        assert not running.alive or broker.stop() == 0, "acquit serve did not end in order"
    assert_in_order(tmp_path)


def running(name: str, folder: Path) -> Iterator[ForeignBroker]:
    """A broker on this folder. One that cannot be had here skips the test; in CI that is a failure."""
    with contextlib.ExitStack() as stack:
        try:
            broker = stack.enter_context(BROKERS[name](folder))
            broker.start()
        except PeerMissing as missing:
            (pytest.fail if in_ci() else pytest.skip)(str(missing))
        yield broker


@pytest.fixture(scope="session", params=BROKERS)
def foreign(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForeignBroker]:
    """Each broker that we did not write, and ours, in turn, shared by all tests: with queues of their own."""
    yield from running(request.param, tmp_path_factory.mktemp(request.param))


@pytest.fixture(scope="session", params=BROKERS)
def mortal_process(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForeignBroker]:
    """Each of them in turn, shared by the tests that kill it."""
    with BROKERS[request.param](tmp_path_factory.mktemp(f"mortal-{request.param}")) as broker:
        yield broker


@pytest.fixture
def mortal_foreign(mortal_process: ForeignBroker) -> ForeignBroker:
    """Each of them in turn, running: the test may kill it, and start it again."""
    if not mortal_process.running:
        mortal_process.start()
    return mortal_process


@pytest.fixture(scope="session")
def recorder() -> Iterator[Recorder]:
    """What brokers were seen to do."""
    recorder = Recorder()
    yield recorder
    recorder.write()


@pytest.fixture
def observe(request: pytest.FixtureRequest, recorder: Recorder) -> Observer:
    """To say what the broker of this test was seen to do."""
    names = {"foreign", "mortal_foreign"} & set(request.fixturenames)
    return Observer(recorder, request.getfixturevalue(names.pop()), request.node.nodeid)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    """A tab of a Chromium of its own."""
    found = find_chromium()
    if found is None:
        if in_ci():
            pytest.fail("no Chromium here, and in CI there must be one")
        pytest.skip("no Chromium here")
    with browsing(found, tmp_path_factory.mktemp("profile")) as tab:
        yield tab
