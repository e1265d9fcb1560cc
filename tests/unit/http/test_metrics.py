"""Figures for Prometheus, read by its own parser: names, sums that hold, and how many series there are at most."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from unittest.mock import AsyncMock

import pytest
from prometheus_client.parser import text_string_to_metric_families

import acquit
from acquit.broker.options import BrokerLimits, BrokerOptions, Http, Role, Security, User
from acquit.broker.snapshots import RETIRED_FIGURES
from acquit.broker.tally import HOLD_ENDS
from acquit.http import metrics
from acquit.http.health import Health
from acquit.http.metrics import SILENT
from tests.support.http import ask, basic
from tests.support.syscalls import require


def scrape(
    broker: acquit.Broker, headers: dict[str, str] | None = None
) -> tuple[str, dict[tuple[str, tuple[tuple[str, str], ...]], float]]:
    answer = ask(broker.http_url, "/metrics", headers=headers)
    assert answer.status == 200, answer
    assert answer.headers["content-type"].startswith("text/plain")
    samples = {}
    for family in text_string_to_metric_families(answer.text):
        for sample in family.samples:
            key = sample.name, tuple(sorted(sample.labels.items()))
            assert key not in samples, "each series once"
            samples[key] = sample.value
    return answer.text, samples


def of(samples: dict[tuple[str, tuple[tuple[str, str], ...]], float], name: str, **labels: str) -> float:
    return samples[name, tuple(sorted(labels.items()))]


def test_what_was_posted_is_what_left_and_what_is_there() -> None:
    with acquit.Broker(http_port=0, config=BrokerOptions.small()) as broker:
        with acquit.connect(broker.url) as connection:
            session = connection.session(mode="individual")
            for n in range(5):
                session.sender("orders").send(str(n))
            receiver = session.receiver("orders", prefetch=0)
            first, second = receiver.receive(timeout=20), receiver.receive(timeout=20)
            assert first is not None
            assert second is not None
            first.accept()
            second.reject()
            receiver.close()
        _, samples = scrape(broker)
    assert of(samples, "acquit_queue_posted_total", queue="orders") == 5
    assert of(samples, "acquit_queue_retired_total", queue="orders", outcome="accepted") == 1
    assert of(samples, "acquit_queue_retired_total", queue="orders", outcome="dead_lettered") == 1
    assert of(samples, "acquit_queue_acquired_total", queue="orders") == 2
    assert of(samples, "acquit_queue_redelivered_total", queue="orders") == 0
    for outcome in HOLD_ENDS:
        expected = outcome in ("accepted", "rejected")
        assert of(samples, "acquit_queue_outcomes_total", queue="orders", outcome=outcome) == expected
    assert of(samples, "acquit_queue_wait_seconds_count", queue="orders") == 2
    assert of(samples, "acquit_queue_held_seconds_count", queue="orders") == 1  # one of two that a link held at once
    assert of(samples, "acquit_posting_durable_seconds_count") == 5
    assert of(samples, "acquit_ready") == 1
    assert sum(value for (name, _), value in samples.items() if name == "acquit_not_ready") == 0
    for queue in ("orders", "DLQ"):
        mine = [(name, value) for (name, labels), value in samples.items() if ("queue", queue) in labels]
        after = sum(value for name, value in mine if name in ("acquit_queue_retired_total", "acquit_queue_messages"))
        assert of(samples, "acquit_queue_posted_total", queue=queue) == after
    assert of(samples, "acquit_accepting") == 1
    assert of(samples, "acquit_journal_sync_seconds_count") >= 5
    assert of(samples, "acquit_loop_lag_seconds_count") >= 1
    assert 0 < of(samples, "acquit_disk_free_bytes") < of(samples, "acquit_disk_bytes")
    assert of(samples, "acquit_connections_limit") > 0
    assert of(samples, "process_resident_memory_bytes") > 0
    names = {name for name, _ in samples}
    for name in names:
        assert re.fullmatch(r"[a-z][a-z0-9_]*", name)
    assert any(name.startswith("python_info") for name in names)
    page = (Path(__file__).parents[3] / "docs" / "monitoring.md").read_text()
    ours = {re.sub("_(bucket|count|sum)$", "", name) for name in names if name.startswith("acquit_")}
    assert {name for name in ours if f"`{name}`" not in page} == set()
    (row,) = (line for line in page.splitlines() if line.startswith("| `acquit_queue_retired_total` |"))
    assert row.split("`outcome`: ")[1].strip(" |").split(", ") == list(RETIRED_FIGURES)


def gone(path: Path) -> None:
    raise FileNotFoundError(str(path))


def test_a_disk_that_does_not_say_how_large_it_is_has_no_series(monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder of a broker was moved away: all other figures are as good as before."""
    with acquit.Broker(http_port=0, config=BrokerOptions.small()) as broker:
        monkeypatch.setattr("shutil.disk_usage", gone)
        names = {name for name, _ in scrape(broker)[1]}
    assert not names & {"acquit_disk_free_bytes", "acquit_disk_bytes"}
    assert "acquit_connections" in names


def test_the_checker_of_prometheus_has_nothing_to_say() -> None:
    with acquit.Broker(http_port=0, config=BrokerOptions.small()) as broker:
        with acquit.connect(broker.url) as connection, connection.session() as session:
            session.sender("orders").send("1")
            assert session.receiver("orders").receive(timeout=20) is not None
        text, _ = scrape(broker)
    command = [require("promtool"), "check", "metrics"]
    done = subprocess.run(command, input=text, text=True, capture_output=True, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


@pytest.mark.parametrize("queues_max", [0, 2])
def test_beyond_the_limit_queues_are_one(queues_max: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "GOOD_S", 0.0)
    http = Http(port=0, metrics_queues_max=queues_max)
    with acquit.Broker(config=BrokerOptions(http=http).with_small_journal()) as broker:
        scrape(broker)  # counters of the others begin with the first scrape
        with acquit.connect(broker.url) as connection:
            session = connection.session(mode="individual")
            for count, name in enumerate(("a", "b", "_other", 'evil"\\{}')):
                for _ in range(count + 1):
                    session.sender(name).send("x")
            for count, name in enumerate(("a", "b", "_other")):
                receiver = session.receiver(name, prefetch=0)
                for _ in range(count + 1):
                    message = receiver.receive(timeout=20)
                    assert message is not None
                    message.accept()
        _, samples = scrape(broker)
    series = {dict(labels)["queue"] for (_, labels) in samples if "queue" in dict(labels)}
    assert series == ({"_other"} if not queues_max else {'evil"\\{}', "_other"})
    waits = [(dict(labels), v) for (name, labels), v in samples.items() if name == "acquit_queue_wait_seconds_bucket"]
    assert sum(value for labels, value in waits if labels["le"] == "+Inf") == 6
    posted = {dict(labels)["queue"]: v for (name, labels), v in samples.items() if name == "acquit_queue_posted_total"}
    assert sum(posted.values()) == 10
    assert posted == ({"_other": 10} if not queues_max else {'evil"\\{}': 4, "_other": 6})


def test_refusals_are_counted_by_condition() -> None:
    with acquit.Broker(http_port=0, config=BrokerOptions.small()) as broker:
        with acquit.connect(broker.url) as connection, pytest.raises(acquit.AcquitError):
            connection.session().sender("a::b::c").send("x")
        _, samples = scrape(broker)
    refused = {labels: v for (name, labels), v in samples.items() if name == "acquit_refused_total"}
    assert sum(refused.values()) == 1
    assert {dict(labels)["what"] for labels in refused} == {"connection", "link", "login", "message"}


def test_connections_and_logins_that_are_refused_are_counted() -> None:
    security = Security(
        users={"monitor": User(password="p", roles=("all",))}, roles={"all": Role(browse=("#",))}, refusal_delay_ms=0
    )
    options = BrokerOptions(security=security, limits=BrokerLimits(connections_max=1)).with_small_journal()
    with acquit.Broker(http_port=0, config=options) as broker:
        with pytest.raises(acquit.AcquitError):
            acquit.connect(broker.url.replace("//", "//monitor:wrong@"))
        assert ask(broker.http_url, "/metrics", headers=basic("nobody", "p")).status == 401
        with (
            acquit.connect(broker.url.replace("//", "//monitor:p@")),
            pytest.raises(acquit.AcquitError),
        ):
            acquit.connect(broker.url.replace("//", "//monitor:p@"))
        _, samples = scrape(broker, basic("monitor", "p"))
    assert of(samples, "acquit_refused_total", what="login", condition="amqp:unauthorized-access") == 2
    assert of(samples, "acquit_refused_total", what="connection", condition="amqp:resource-limit-exceeded") == 1
    assert of(samples, "acquit_connections_limit") == 1


def test_who_may_not_look_everywhere_sees_little_of_the_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    roles = {"few": Role(browse=("mine.#",)), "all": Role(manage=("#",), send=("#",), create=("#",))}
    users = {name: User(password="p", roles=(name,)) for name in roles}
    options = BrokerOptions(security=Security(users=users, roles=roles)).with_small_journal()
    with acquit.Broker(http_port=0, config=options) as broker:
        with acquit.connect(broker.url, username="all", password="p") as connection:
            for name in ("mine.a", "secret"):
                connection.session().sender(name).send("x")
        few, everything = (scrape(broker, basic(name, "p"))[1] for name in ("few", "all"))
        monkeypatch.setattr(Health, "reason", AsyncMock(return_value="stopping"))
        monkeypatch.setattr("acquit.http.metrics.GOOD_S", 0.0)
        silent_few, silent = ({name for name, _ in scrape(broker, basic(user, "p"))[1]} for user in ("few", "all"))
    of_queues = {key for key in few if key[0].startswith("acquit_queue_")}
    assert {dict(labels)["queue"] for _, labels in of_queues} == {"mine.a"}
    ready = {"acquit_ready", "acquit_not_ready"}
    of_all = {name for name, _ in few.keys() - of_queues}
    assert of_all == ready | {"acquit_queues", "acquit_info", "acquit_accepting", "acquit_warnings"}
    assert [dict(labels).keys() for name, labels in few if name == "acquit_info"] == [{"broker_id"}]
    assert of(few, "acquit_queues") == 1
    assert {"acquit_connections", "acquit_disk_bytes", "process_resident_memory_bytes"} < {
        name for name, _ in everything
    }
    assert (silent_few, "process_resident_memory_bytes" in silent) == (ready, True)


def test_the_oldest_message_and_the_oldest_delivery_have_ages() -> None:
    with (
        acquit.Broker(http_port=0, config=BrokerOptions.small()) as broker,
        acquit.connect(broker.url) as connection,
    ):
        session = connection.session(mode="individual")
        for name in ("a", "b"):
            session.sender(name).send("1")
        receiver = session.receiver("b")
        assert receiver.receive(timeout=20) is not None
        broker.advance(3_000)
        broker.advance(60_000)
        _, samples = scrape(broker)
    assert 60 <= of(samples, "acquit_queue_oldest_age_seconds", queue="a") < 120
    assert of(samples, "acquit_queue_oldest_age_seconds", queue="b") == 0
    assert 60 <= of(samples, "acquit_oldest_unsettled_seconds") < 120


@pytest.mark.parametrize("reason", sorted(SILENT))
def test_a_broker_that_cannot_be_surveyed_still_tells_that(monkeypatch: pytest.MonkeyPatch, reason: str) -> None:
    async def reason_of(self: Health) -> str:
        return reason

    monkeypatch.setattr(Health, "reason", reason_of)
    with acquit.Broker(http_port=0, config=BrokerOptions.small()) as broker:
        monkeypatch.setattr(broker._server, "manage", lambda *asked: pytest.fail("it would wait in vain"))
        _, samples = scrape(broker)
    assert of(samples, "acquit_ready") == 0
    assert {labels: v for (name, labels), v in samples.items() if name == "acquit_not_ready" and v} == {
        (("reason", reason),): 1
    }
    assert of(samples, "process_resident_memory_bytes") > 0
    assert not any(name.startswith("acquit_queue") for name, _ in samples)
