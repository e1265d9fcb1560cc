"""The recipe of the image, and the composition around it: each file, path and command in them is there."""

from __future__ import annotations

import http.server
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from acquit.cli.exits import Exit
from tests.support.deployed import AMQP_PORT, DEPLOY, HTTP_PORT, here, options_in, serve_parameters
from tests.support.pages import ROOT
from tests.unit.test_tree import load

RECIPE = DEPLOY / "container" / "Containerfile"
COMPOSE = DEPLOY / "compose"


def instructions() -> list[tuple[str, str]]:
    """Each instruction of the recipe with its argument, continued lines joined."""
    text = re.sub(r"^\s*#.*\n", "", RECIPE.read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    return [(word, rest.strip()) for word, _, rest in (line.partition(" ") for line in text.splitlines() if line)]


def last(instruction: str) -> str:
    """The argument that counts, where a later one replaces an earlier."""
    return [rest for word, rest in instructions() if word == instruction][-1]


def composed() -> dict[str, Any]:
    """The services of the composition by name, and what stands beside them."""
    document: dict[str, Any] = yaml.safe_load((COMPOSE / "compose.yaml").read_text())
    return document


def ignored_but(path: str) -> bool:
    """Whether the builder is sent this, by the rows of .containerignore: all is ignored but what they name."""
    rows = (ROOT / ".containerignore").read_text().splitlines()
    assert "*" in rows
    return any(row.startswith("!") and (path == row[1:] or path.startswith(f"{row[1:]}/")) for row in rows)


def test_what_it_copies_is_there_and_is_sent() -> None:
    copied = [rest.split()[:-1] for word, rest in instructions() if word == "COPY" and not rest.startswith("--from")]
    sources = [source.rstrip("/") for sources in copied for source in sources]
    assert "src" in sources
    for source in sources:
        assert (ROOT / source).exists() and ignored_but(source), source
    assert (ROOT / ".dockerignore").read_text() == (ROOT / ".containerignore").read_text()


def test_the_wheel_can_be_built_of_it() -> None:
    """What pyproject.toml names is in the image that builds."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    packages = project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    for needed in [project["project"]["readme"], *project["project"]["license-files"], *packages]:
        assert ignored_but(needed), needed


def test_its_pins_are_given_out() -> None:
    command = next(rest for word, rest in instructions() if word == "RUN" and "pins.py" in rest)
    found = re.search(r"tools/pins\.py --select (\S+)", command)
    assert found and found[1] == "${EXTRAS}"
    pins = load("pins")
    extras = dict(rest.split("=") for word, rest in instructions() if word == "ARG")["EXTRAS"].split(",")
    names = {pin.name for pin in pins.select(pins.parse(pins.PINS.read_text()), extras)}
    assert {"hatchling", "click", "cattrs"} <= names


def test_nobody_in_it_is_root_and_signals_arrive() -> None:
    user, group = last("USER").split(":")
    assert int(user) > 0 and int(group) > 0
    folder = next(rest for word, rest in instructions() if word == "RUN" and rest.startswith("install -d"))
    assert f"-o {user} -g {group} {last('VOLUME')}" in folder
    assert last("STOPSIGNAL") == signal.SIGTERM.name
    # As JSON: else a shell is PID 1, and keeps the signals.
    assert json.loads(last("ENTRYPOINT")) == ["/opt/acquit/bin/acquit"]
    assert json.loads(last("CMD"))[0] == "serve"
    parameters = serve_parameters(json.loads(last("CMD"))[1:])
    assert str(parameters["data"]) == last("VOLUME")
    assert str(AMQP_PORT) in last("EXPOSE").split() and str(HTTP_PORT) in last("EXPOSE").split()


def test_its_command_starts_and_sigterm_stops_it(tmp_path: Path) -> None:
    text = (DEPLOY / "container" / "acquit.toml").read_text()
    config = re.sub(r"^port = \d+$", "port = 0", text, flags=re.MULTILINE)
    (tmp_path / "acquit.toml").write_text(config.replace("0.0.0.0", "127.0.0.1"))
    command = shlex.join([*json.loads(last("ENTRYPOINT")), *json.loads(last("CMD"))])
    places = {"/etc/acquit/acquit.toml": str(tmp_path / "acquit.toml"), last("VOLUME"): str(tmp_path / "data")}
    with subprocess.Popen(
        here(command, places), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ}
    ) as broker:
        assert broker.stdout is not None
        try:
            assert "ready" in broker.stdout.readline()
            broker.send_signal(signal.Signals[last("STOPSIGNAL")])
            _, err = broker.communicate(timeout=30)
        finally:
            broker.kill()
    assert broker.returncode == Exit.OK, err
    assert "stopped" in err


@contextmanager
def answering(status: int) -> Iterator[int]:
    """A server that answers every GET of /healthz with this status, and others with 404; its port."""

    class Answer(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status if self.path == "/healthz" else 404)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_request(self, code: object = "-", size: object = "-") -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Answer) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize(("status", "code"), [(200, 0), (503, 1)])
def test_its_health_check_sees_what_the_broker_answers(status: int, code: int) -> None:
    _, _, command = last("HEALTHCHECK").partition("CMD ")
    python, *arguments = json.loads(command)
    assert python == "/opt/acquit/bin/python"
    assert f'[http]\nhost = "127.0.0.1"\nport = {HTTP_PORT}\n' in (DEPLOY / "container" / "acquit.toml").read_text()
    with answering(status) as port:
        elsewhere = [argument.replace(f":{HTTP_PORT}/", f":{port}/") for argument in arguments]
        assert elsewhere != arguments
        done = subprocess.run([sys.executable, *elsewhere], capture_output=True, timeout=60, check=False)
    assert done.returncode == code


def test_what_is_composed_is_there() -> None:
    document = composed()
    services = document["services"]
    build = services["acquit"]["build"]
    context = (COMPOSE / build["context"]).resolve()
    assert context == ROOT and context / build["dockerfile"] == RECIPE
    for service in services.values():
        for volume in service["volumes"]:
            source = volume.partition(":")[0]
            assert (COMPOSE / source).exists() if source.startswith(".") else source in document["volumes"], volume
        assert set(service.get("secrets", ())) <= set(document["secrets"])
        assert set(service.get("depends_on", ())) <= set(services)
        assert all(port.startswith("127.0.0.1:") for port in service["ports"])
    ports = {int(port.rpartition(":")[2]) for port in services["acquit"]["ports"]}
    options = options_in(COMPOSE / "acquit.toml")
    assert ports == {listen.port for listen in options.listen} | {HTTP_PORT}


def test_prometheus_and_grafana_find_what_they_ask() -> None:
    services = composed()["services"]
    (job,) = yaml.safe_load((COMPOSE / "prometheus.yml").read_text())["scrape_configs"]
    (target,) = job["static_configs"]
    assert target["targets"] == [f"acquit:{HTTP_PORT}"] and job["metrics_path"] == "/metrics"
    assert Path(job["basic_auth"]["password_file"]).name in services["prometheus"]["secrets"]
    (source,) = yaml.safe_load((COMPOSE / "grafana" / "datasources.yaml").read_text())["datasources"]
    assert source["url"] == "http://prometheus:9090" and "prometheus" in services


def test_no_password_is_in_it() -> None:
    for secret in composed()["secrets"].values():
        assert not (COMPOSE / secret["file"]).exists() or ".gitignore" in os.listdir(COMPOSE / "secrets")
    assert (COMPOSE / "secrets" / ".gitignore").read_text().splitlines()[1:] == ["*", "!.gitignore"]
