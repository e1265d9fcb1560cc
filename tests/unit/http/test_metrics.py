"""Figures for Prometheus, read by its own parser: names, sums that hold, and how many series there are at most."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest
from prometheus_client.parser import text_string_to_metric_families

import acquit
from acquit.broker.options import BrokerOptions, Http
from tests.support.http import ask


def scrape(broker: acquit.Broker) -> tuple[str, dict[tuple[str, tuple[tuple[str, str], ...]], float]]:
    answer = ask(broker.http_url, "/metrics")
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
        text, samples = scrape(broker)
    assert of(samples, "acquit_queue_posted_total", queue="orders") == 5
    assert of(samples, "acquit_queue_retired_total", queue="orders", outcome="accepted") == 1
    assert of(samples, "acquit_queue_retired_total", queue="orders", outcome="dead_lettered") == 1
    for queue in ("orders", "DLQ"):
        mine = [(name, value) for (name, labels), value in samples.items() if ("queue", queue) in labels]
        after = sum(value for name, value in mine if name in ("acquit_queue_retired_total", "acquit_queue_messages"))
        assert of(samples, "acquit_queue_posted_total", queue=queue) == after
    assert of(samples, "acquit_accepting") == 1
    assert of(samples, "acquit_journal_sync_seconds_count") >= 5
    assert of(samples, "acquit_loop_lag_seconds_count") >= 1
    assert of(samples, "acquit_disk_free_bytes") > 0
    assert of(samples, "process_resident_memory_bytes") > 0
    names = {name for name, _ in samples}
    for name in names:
        assert re.fullmatch(r"[a-z][a-z0-9_]*", name)
    assert any(name.startswith("python_info") for name in names)
    if promtool := shutil.which("promtool"):
        subprocess.run([promtool, "check", "metrics"], input=text, text=True, check=True)


@pytest.mark.parametrize("queues_max", [0, 2])
def test_beyond_the_limit_queues_are_one(queues_max: int) -> None:
    http = Http(port=0, metrics_queues_max=queues_max)
    with acquit.Broker(config=BrokerOptions(http=http).with_small_journal()) as broker:
        with acquit.connect(broker.url) as connection:
            session = connection.session()
            for count, name in enumerate(("a", "b", "_other", 'evil"\\{}')):
                for _ in range(count + 1):
                    session.sender(name).send("x")
        _, samples = scrape(broker)
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
