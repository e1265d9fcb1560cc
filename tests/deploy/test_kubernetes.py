"""The chart, as it is rendered: valid by the schemas of Kubernetes, and one whole."""

from __future__ import annotations

import re
import shutil
import subprocess
from typing import Any

import kubernetes_validate
import pytest
import yaml

from acquit._version import VERSION
from tests.support.deployed import DEPLOY, HTTP_PORT, options_of, serve_parameters
from tests.unit.test_tree import load

chart = load("render_chart")
VERSIONS = ("1.25", "1.31", "1.34")
DOCUMENTS: list[dict[str, Any]] = list(yaml.safe_load_all(chart.RENDERED.read_text()))


def one(kind: str, name: str = "acquit") -> dict[str, Any]:
    """The object of this kind and name."""
    (found,) = (document for document in DOCUMENTS if (document["kind"], document["metadata"]["name"]) == (kind, name))
    return found


def pod() -> dict[str, Any]:
    spec: dict[str, Any] = one("StatefulSet")["spec"]["template"]["spec"]
    return spec


def test_it_is_rendered_of_this_chart() -> None:
    assert chart.main(["--check"]) == 0


def test_a_chart_that_has_changed_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chart, "chart_hash", lambda: "another")
    assert chart.main(["--check"]) == 1


@pytest.mark.parametrize("version", VERSIONS)
def test_kubernetes_accepts_it(version: str) -> None:
    assert len(DOCUMENTS) == 4
    for document in DOCUMENTS:
        kubernetes_validate.validate(document, version, strict=True)


def test_its_version_is_ours() -> None:
    release = yaml.safe_load((chart.CHART / "Chart.yaml").read_text())
    assert release["version"] == release["appVersion"] == VERSION


def test_its_configuration_is_one_of_ours() -> None:
    options = options_of(one("ConfigMap")["data"]["acquit.toml"], "acquit.toml")
    (container,) = pod()["containers"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert {listen.port: listen.tls for listen in options.listen} == {
        ports["amqp"]: "off",
        ports["amqps"]: "immediate",
    }
    assert ports["https"] == HTTP_PORT
    mounts = {mount["mountPath"] for mount in container["volumeMounts"]}
    for file in (options.tls.certificate_file, options.tls.key_file, options.security.users_file):
        assert file.rpartition("/")[0] in mounts, file
    command, *arguments = container["args"]
    assert command == "serve"
    parameters = serve_parameters(arguments)
    assert str(parameters["config"]) in mounts
    assert str(parameters["data"]).startswith("/var/lib/acquit/") and "/var/lib/acquit" in mounts


def test_its_names_lead_to_each_other() -> None:
    stateful = one("StatefulSet")["spec"]
    labels = stateful["template"]["metadata"]["labels"]
    names = {port["name"] for port in pod()["containers"][0]["ports"]}
    assert stateful["replicas"] == 1
    for service in (one("Service")["spec"], one("Service", stateful["serviceName"])["spec"]):
        assert service["selector"].items() <= labels.items()
        assert {port["targetPort"] for port in service["ports"]} <= names
    assert stateful["selector"]["matchLabels"].items() <= labels.items()
    volumes = {volume["name"] for volume in pod()["volumes"]}
    volumes |= {claim["metadata"]["name"] for claim in stateful["volumeClaimTemplates"]}
    assert {mount["name"] for mount in pod()["containers"][0]["volumeMounts"]} == volumes
    assert {"name": "config", "configMap": {"name": one("ConfigMap")["metadata"]["name"]}} in pod()["volumes"]


def test_it_is_shut_in_and_probed() -> None:
    (container,) = pod()["containers"]
    assert pod()["securityContext"]["runAsNonRoot"] and pod()["automountServiceAccountToken"] is False
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    recipe = (DEPLOY / "container" / "Containerfile").read_text()
    assert f"USER {pod()['securityContext']['runAsUser']}:{pod()['securityContext']['fsGroup']}\n" in recipe
    paths = {"startupProbe": "/healthz", "livenessProbe": "/healthz", "readinessProbe": "/readyz"}
    for probe, path in paths.items():
        assert container[probe]["httpGet"] == {"path": path, "port": "https", "scheme": "HTTPS"}
    # Recovery may take long, and a pod that is killed in it begins again.
    assert container["startupProbe"]["periodSeconds"] * container["startupProbe"]["failureThreshold"] >= 1800


def test_the_chart_refuses_to_go_without_secrets() -> None:
    """Without Helm, which no package index that we use has, the template is read instead."""
    helm = shutil.which("helm")
    template = (chart.CHART / "templates" / "statefulset.yaml").read_text()
    for value in ("tls.secretName", "users.secretName"):
        places = re.findall(rf"{{{{[^}}]*\.Values\.{value}\b[^}}]*}}}}", template)
        assert places and all(f'| required "{value}: ' in place for place in places)
        if helm is None:
            continue
        command = [helm, "template", "acquit", str(chart.CHART), "--kube-version", chart.KUBERNETES]
        done = subprocess.run([*command, "--set", f"{value}="], capture_output=True, text=True, check=False)
        assert done.returncode != 0 and f"{value}: " in done.stderr
