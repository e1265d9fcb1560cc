"""The alerts, each shown to fire: a real broker is brought into the state, what /metrics says of it then is given to
Prometheus' own promtool as series, and the rule is evaluated by that, before and after.

What is not shown: that Prometheus scrapes (a broker that does not answer is ``up == 0``, which is Prometheus' own), and
states that are brought about at the broker's counters and not from outside, because nothing else brings them about
within a test: a disk that is slow or nearly full, a loop that is late, accounts that do not add up, a peer that does
not read. `test_restarts` changes a sample of a scrape.
"""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
import yaml

import acquit
from acquit.broker.machine import Machine
from acquit.broker.options import (
    AddressRule,
    BrokerLimits,
    BrokerOptions,
    Http,
    Role,
    Security,
    User,
)
from acquit.broker.server import Server
from acquit.client.blocking import ReceivedMessage
from acquit.client.options import DeliveryMode
from acquit.errors import StoreFailed
from acquit.ledger.events import EventKind
from acquit.store.options import MIB
from acquit.testing.simulation.disk import FaultyDisk
from tests.support.deployed import DEPLOY
from tests.support.http import ask, basic
from tests.support.pages import ROOT
from tests.support.promtool import DOWN, TARGET, Samples, firing, promtool, run, samples, series

RULES = DEPLOY / "prometheus" / "alerts.yaml"
BEFORE_MINUTES = 30
SECURITY = Security(
    users={"ops": User(password="p", roles=("all",))},
    roles={"all": Role(send=("#",), consume=("#",), browse=("#",), manage=("#",), create=("#",))},
    refusal_delay_ms=0,
    login_delay_ms_max=0,
    verifications_max=64,
)


def rules() -> list[dict[str, Any]]:
    """Each rule, as it is written."""
    (group,) = yaml.safe_load(RULES.read_text())["groups"]
    found: list[dict[str, Any]] = group["rules"]
    return found


class Shown(NamedTuple):
    """How an alert was brought about."""

    before: Samples
    after: list[tuple[Samples, int]]
    """Scrapes, each with the minutes for which it is told."""


class DiskOf:
    """The room on the disk of a folder, which a test decides."""

    def __init__(self) -> None:
        self.free = 0.6
        """Of 1."""

    def usage(self, folder: object) -> SimpleNamespace:
        return SimpleNamespace(total=1 << 36, free=int(self.free * (1 << 36)))


DISK = DiskOf()


class BrokerOn(acquit.Broker):
    """A broker on another disk."""

    disk = FaultyDisk()

    async def _start(self, folder: Path, port: int, config: BrokerOptions) -> Server:
        from acquit.http import start_face

        server = Server(folder, config, port=port, machine=Machine(disk=self.disk))
        await server.start()
        assert config.http is not None
        self._face = await start_face(server, config.http)
        return server


def scrape(broker: acquit.Broker) -> Samples:
    """Return what the broker says now."""
    answer = ask(broker.http_url, "/metrics", headers=basic("ops", "p"))
    assert answer.status == 200, answer
    return samples(answer.text)


def on_loop(broker: acquit.Broker, call: Callable[[Server], object]) -> None:
    """Do something to the server of a broker, on its loop."""

    async def do() -> None:
        call(broker._server)

    broker._submit(do(), 60)


@pytest.fixture(scope="module")
def fresh() -> Iterator[pytest.MonkeyPatch]:
    """Every scrape is of its moment, not one of the second before; and of `DISK`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("acquit.http.metrics.GOOD_S", -1)
        patch.setattr("acquit.http.health.ASKED_AGAIN_S", -1)
        patch.setattr("acquit.broker.server.shutil.disk_usage", DISK.usage)
        yield patch


@pytest.fixture(scope="module")
def shown(fresh: pytest.MonkeyPatch) -> dict[str, Shown]:
    """Bring a broker into one state after the other; by alert, what it said before and then."""
    options = BrokerOptions(
        http=Http(port=0),
        security=SECURITY,
        limits=BrokerLimits(connections_max=8, memory_bytes_max=4 * MIB),
        address=(AddressRule("small", {"messages_max": 1, "full_policy": "reject"}),),
    ).with_small_journal()
    found: dict[str, Shown] = {}
    with ExitStack() as stack:
        broker = stack.enter_context(acquit.Broker(config=options))
        url = broker.url.replace("//", "//ops:p@")
        connection = stack.enter_context(acquit.connect(url))
        session = connection.session("individual")
        orders = session.receiver("orders")
        last: list[Samples] = [scrape(broker)]

        def told(*alerts: str, minutes: int = 20, steps: int = 1, do: Callable[[], object]) -> None:
            before = last[0]
            after: list[tuple[Samples, int]] = []
            for _ in range(steps):
                do()
                last[0] = scrape(broker)
                after.append((last[0], minutes))
            found.update(dict.fromkeys(alerts, Shown(before, after)))

        def receive() -> ReceivedMessage:
            session.sender("orders").send("x")
            message = orders.receive(timeout=30)
            assert message is not None
            return message

        def refuse(kind: Callable[[], object]) -> None:
            with pytest.raises(acquit.AcquitError):
                kind()

        receive().accept()
        session.sender("small").send("x")
        last[0] = scrape(broker)
        told("AcquitDeadLetters", do=lambda: receive().reject().result(30), minutes=5)
        told("AcquitQueueWithoutConsumer", do=lambda: session.sender("lonely").send("x"), minutes=5, steps=4)
        told("AcquitMessageTooOld", do=lambda: broker.advance(20 * 60_000))
        told("AcquitPostingsRefused", do=lambda: refuse(lambda: session.sender("small").send("y")), minutes=3, steps=4)
        kept = receive()
        broker.advance(2_000)
        told("AcquitHeldTooLong", do=lambda: broker.advance(40 * 60_000))
        kept.accept()

        def log_in_wrongly() -> None:
            for _ in range(25):
                assert ask(broker.http_url, "/metrics", headers=basic("ops", "wrong")).status == 401

        told("AcquitLoginsRefused", do=log_in_wrongly, minutes=4)
        more = [lambda: stack.enter_context(acquit.connect(url))] * 5
        told("AcquitConnectionsNearLimit", do=lambda: [one() for one in more])
        told("AcquitConnectionsRefused", do=lambda: refuse(lambda: acquit.connect(url)), minutes=3)

        def look_away(server: Server) -> None:
            for peer in server._core.connections.all:
                peer.writable = peer.number == 1

        told("AcquitConnectionsBlocked", do=lambda: on_loop(broker, look_away))

        def fill() -> None:
            for _ in range(100):
                try:
                    session.sender("large").send(b"x" * 100_000, delivery_mode=DeliveryMode.NON_PERSISTENT)
                except acquit.AcquitError:
                    return

        told("AcquitMemoryNearLimit", do=fill)
        told("AcquitLoopLag", do=lambda: on_loop(broker, lambda server: server._vitals.late(0.6)), minutes=2, steps=8)
        told("AcquitJournalSlow", do=lambda: on_loop(broker, lambda server: server.syncs.add(0.8)), minutes=2, steps=10)

        def use() -> None:
            DISK.free -= 0.02

        DISK.free = 0.45
        told("AcquitDiskFillsUp", do=use, minutes=20, steps=6)
        DISK.free = 0.6
        scraped = scrape(broker)
        DISK.free = 0.08
        found["AcquitDiskNearlyFull"] = Shown(scraped, [(scrape(broker), 20)])
        DISK.free = 0.6

        def lose(server: Server) -> None:
            server._core.queues.by_name["lonely"].counts[EventKind.POSTED] += 1

        told("AcquitBalanceBroken", do=lambda: on_loop(broker, lose))
        started = "process_start_time_seconds", TARGET
        again: list[tuple[Samples, int]] = [({**last[0], started: last[0][started] + 60 * n}, 5) for n in (1, 2, 3)]
        found["AcquitRestarts"] = Shown(last[0], again)
        before = last[0]
    with pytest.raises(OSError, match="refused"):
        ask(f"http://127.0.0.1:{closed_port()}", "/metrics")
    found["AcquitDown"] = Shown(before, [(DOWN, 5)])
    found.update(shown_on_a_full_disk())
    found.update(shown_by_a_failed_journal())
    return found


def closed_port() -> int:
    """A port where nobody listens."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


def faulty() -> BrokerOn:
    """A broker on a disk in memory."""
    BrokerOn.disk = FaultyDisk()
    return BrokerOn(config=BrokerOptions(http=Http(port=0), security=SECURITY).with_small_journal())


def shown_on_a_full_disk() -> dict[str, Shown]:
    """Fill a disk."""
    with faulty() as broker, acquit.connect(broker.url.replace("//", "//ops:p@")) as connection:
        sender = connection.session().sender("q")
        sender.send("x")
        before = scrape(broker)
        broker.disk.capacity_bytes = 0
        try:
            while True:
                sender.send(b"x" * 100_000)
        except acquit.AcquitError:
            pass
        after = scrape(broker)
    return dict.fromkeys(("AcquitDiskFull", "AcquitNotReady", "AcquitWarnings"), Shown(before, [(after, 20)]))


def shown_by_a_failed_journal() -> dict[str, Shown]:
    """Break a disk."""
    with faulty() as broker:
        before = scrape(broker)
        on_loop(broker, lambda server: server._committer.fail(StoreFailed("the disk is broken")))
        after = scrape(broker)
    return {"AcquitJournalFailed": Shown(before, [(after, 2)])}


def test_every_alert_fires_in_its_state_and_not_before(shown: dict[str, Shown], tmp_path: Path) -> None:
    assert sorted(shown) == sorted(rule["alert"] for rule in rules())
    tests = []
    for alert, (before, after) in shown.items():
        end = BEFORE_MINUTES + sum(minutes for _, minutes in after) - 1
        tests.append(
            {
                "name": alert,
                "interval": "1m",
                "input_series": series([(before, BEFORE_MINUTES), *after], RULES),
                "promql_expr_test": [
                    firing(alert, BEFORE_MINUTES - 1, fires=False),
                    firing(alert, end, fires=True),
                ],
            }
        )
    done = run(tmp_path, RULES, tests)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_broker_that_is_well_has_no_alert(fresh: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with faulty() as broker, acquit.connect(broker.url.replace("//", "//ops:p@")) as connection:
        session = connection.session("individual")
        receiver = session.receiver("orders")
        told: list[tuple[Samples, int]] = []
        for _ in range(3):
            session.sender("orders").send("x")
            message = receiver.receive(timeout=30)
            assert message is not None
            message.accept().result(30)
            told.append((scrape(broker), 20))
    nothing = {"expr": "ALERTS", "eval_time": "59m", "exp_samples": []}
    done = run(
        tmp_path, RULES, [{"interval": "1m", "input_series": series(told, RULES), "promql_expr_test": [nothing]}]
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_promtool_finds_no_fault() -> None:
    done = subprocess.run([promtool(), "check", "rules", str(RULES)], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and f"{len(rules())} rules found" in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule["alert"])
def test_each_rule_says_what_there_is_to_do(rule: dict[str, Any]) -> None:
    assert rule["labels"]["severity"] in ("critical", "warning")
    assert set(rule["annotations"]) == {"summary", "description", "runbook_url"}
    page, _, anchor = rule["annotations"]["runbook_url"].partition("#")
    assert (ROOT / page).is_file() and anchor == rule["alert"].lower()
