"""The dashboard and the alerts name what /metrics has: metrics, labels, values of labels; each panel shows something.

A busy broker is scraped twice, and promtool evaluates every query of the dashboard over that.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import acquit
from acquit.broker.options import BrokerOptions
from tests.support.deployed import DEPLOY
from tests.support.http import ask
from tests.support.promtool import Samples, run, samples, series

DASHBOARD = DEPLOY / "grafana" / "acquit.json"
COMPOSE = DEPLOY / "compose"
RULES = DEPLOY / "prometheus" / "alerts.yaml"
KNOWN_TO_PROMETHEUS = frozenset({"up", "ALERTS"})
_WORDS = frozenset("sum by min max count on and or unless ignoring without bool offset group topk".split())


def document() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(DASHBOARD.read_text())
    return found


def queries() -> list[str]:
    """Each query of the dashboard, its variables filled in as Grafana does."""
    found = [target["expr"] for panel in document()["panels"] for target in panel.get("targets", ())]
    return [re.sub(r"\$(job|instance|queue)\b", ".*", query).replace("$__rate_interval", "5m") for query in found]


def alerts() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load(RULES.read_text())["groups"]
    found: list[dict[str, Any]] = group["rules"]
    return found


def selectors(query: str) -> Iterator[tuple[str, list[tuple[str, str, str]]]]:
    """The metrics that a query names, each with its matchers."""
    bare = re.sub(r"\b(by|on)\s*\([^)]*\)|\[[^\]]*\]", " ", query)
    for name, matchers in re.findall(r"([a-z_][a-z0-9_]*)\s*(?:\{([^}]*)\})?(?!\s*\()(?![a-z0-9_])", bare):
        if name not in _WORDS:
            yield name, re.findall(r'(\w+)\s*(=~|!=|!~|=)\s*"([^"]*)"', matchers)


@pytest.fixture(scope="module")
def busy() -> list[tuple[Samples, int]]:
    """Two scrapes of a broker that has done some of everything."""
    with acquit.Broker(http_port=0, config=BrokerOptions.small()) as broker, acquit.connect(broker.url) as connection:
        session = connection.session("individual")
        receiver = session.receiver("orders")
        told: list[tuple[Samples, int]] = []
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("acquit.http.metrics.GOOD_S", -1)
            for _ in range(2):
                session.sender("orders").send("x")
                message = receiver.receive(timeout=30)
                assert message is not None
                message.accept().result(30)
                told.append((samples(ask(broker.http_url, "/metrics").text), 10))
    return told


@pytest.mark.parametrize("query", [*queries(), *(alert["expr"] for alert in alerts())])
def test_what_a_query_names_is_told(busy: list[tuple[Samples, int]], query: str) -> None:
    found = busy[-1][0]
    named = list(selectors(query))
    assert named
    for name, matchers in named:
        mine = [dict(labels) for metric, labels in found if metric == name]
        assert mine or name in KNOWN_TO_PROMETHEUS, name
        for label, how, value in matchers:
            assert any(label in labels for labels in mine), (name, label)
            if how == "=":
                assert any(labels.get(label) == value for labels in mine), (name, label, value)


@pytest.mark.parametrize("alert", alerts(), ids=lambda alert: alert["alert"])
def test_what_an_alert_says_of_labels_its_query_has(busy: list[tuple[Samples, int]], alert: dict[str, Any]) -> None:
    query, said = alert["expr"], set(re.findall(r"\$labels\.(\w+)", json.dumps(alert["annotations"])))
    grouped = re.findall(r"\bby\s*\(([^)]*)\)", query)
    if grouped:
        there = set.intersection(*({label.strip() for label in labels.split(",")} for labels in grouped)) - {"le"}
    else:
        first = next(selectors(query))[0]
        there = {label for name, labels in busy[-1][0] if name == first for label, _ in labels}
    assert said and said <= there


def test_each_panel_shows_something(busy: list[tuple[Samples, int]], tmp_path: Path) -> None:
    recorded = [{"record": f"panel:{number}", "expr": query} for number, query in enumerate(queries())]
    rules = tmp_path / "panels.yaml"
    rules.write_text(json.dumps({"groups": [{"name": "panels", "rules": recorded}]}))
    shown = [
        {"expr": f"group({one['record']})", "eval_time": "12m", "exp_samples": [{"labels": "{}", "value": 1}]}
        for one in recorded
    ]
    done = run(tmp_path, rules, [{"interval": "1m", "input_series": series(busy, rules), "promql_expr_test": shown}])
    assert done.returncode == 0, done.stdout + done.stderr


def test_panels_stand_apart_and_say_what_they_are() -> None:
    panels = document()["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        cells = {(place["x"] + right, place["y"] + down) for right in range(place["w"]) for down in range(place["h"])}
        assert not cells & taken and max(x for x, _ in cells) < 24, panel["title"]
        taken |= cells
        if panel["type"] != "row":
            assert panel["title"] and panel["description"] and panel["targets"]
            assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}


def test_variables_are_those_that_queries_use() -> None:
    variables = {one["name"] for one in document()["templating"]["list"]}
    used = set(re.findall(r"\$\{?([a-z]\w*)", DASHBOARD.read_text()))
    assert used == variables


def test_compose_gives_both_out() -> None:
    services = yaml.safe_load((COMPOSE / "compose.yaml").read_text())["services"]
    mounted = {
        name: {target: (COMPOSE / source).resolve() for source, target, *_ in (one.split(":") for one in volumes)}
        for name, volumes in ((name, services[name]["volumes"]) for name in ("prometheus", "grafana"))
    }
    (rules,) = yaml.safe_load((COMPOSE / "prometheus.yml").read_text())["rule_files"]
    assert mounted["prometheus"][rules] == RULES
    (provider,) = yaml.safe_load((COMPOSE / "grafana" / "dashboards.yaml").read_text())["providers"]
    provisioned = "/etc/grafana/provisioning/dashboards/acquit.yaml"
    assert mounted["grafana"][provisioned] == COMPOSE / "grafana" / "dashboards.yaml"
    folder = provider["options"]["path"]
    assert mounted["grafana"][f"{folder}/{DASHBOARD.name}"] == DASHBOARD
