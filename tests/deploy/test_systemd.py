"""The unit of systemd: what it says is there, and what it starts starts."""

from __future__ import annotations

import configparser
import os
import re
import signal
import socket
import subprocess
import tempfile
from pathlib import Path

import pytest

from acquit.cli.exits import Exit
from tests.support.deployed import AMQP_PORT, DEPLOY, HTTP_PORT, here, options_in, serve_parameters
from tests.support.syscalls import require

FOLDER = DEPLOY / "systemd"
UNIT = FOLDER / "acquit.service"
CONFIG = "/etc/acquit/acquit.toml"
DATA = "/var/lib/acquit"
EXPOSURE_MAX = 1.5
"""Of 10, in `systemd-analyze security`."""


@pytest.fixture
def service() -> configparser.SectionProxy:
    # Of a key that comes twice the last is read; the unit has one such, and it is not looked at here.
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(UNIT)
    return unit["Service"]


def test_what_it_runs_is_a_command_of_ours(service: configparser.SectionProxy) -> None:
    binary, command, *arguments = service["ExecStart"].split()
    assert (binary, command) == ("/opt/acquit/bin/acquit", "serve")
    parameters = serve_parameters(arguments)
    assert (str(parameters["config"]), str(parameters["data"])) == (CONFIG, DATA)
    assert service["StateDirectory"] == Path(DATA).name
    assert service["User"] in (FOLDER / "acquit.sysusers").read_text().split()


def test_it_rests_after_exit_codes_that_stay(service: configparser.SectionProxy) -> None:
    assert service["RestartPreventExitStatus"].split() == [str(int(code)) for code in (Exit.USAGE, Exit.UNSOUND)]


def test_its_limits_are_those_of_its_configuration(service: configparser.SectionProxy) -> None:
    options = options_in(FOLDER / "acquit.toml")
    limits = options.limits
    assert int(service["LimitNOFILE"]) > 2 * (limits.connections_max + limits.unauthenticated_max)
    assert service["MemoryMax"] == "2G" and 1.5 * limits.memory_bytes_max <= 2 << 30
    assert int(service["TimeoutStopSec"]) * 1000 > 4 * options.stop_timeout_ms


def test_its_configuration_is_for_this_machine_only() -> None:
    options = options_in(FOLDER / "acquit.toml")
    assert [(listen.host, listen.port) for listen in options.listen] == [("127.0.0.1", AMQP_PORT)]
    assert options.http is not None and (options.http.host, options.http.port) == ("127.0.0.1", HTTP_PORT)
    assert set(options.security.roles) == {"program", "operator", "monitor"}
    assert not options.security.users


def test_a_service_manager_sees_it_start_reload_and_stop(service: configparser.SectionProxy, tmp_path: Path) -> None:
    config = (FOLDER / "acquit.toml").read_text()
    (tmp_path / "acquit.toml").write_text(re.sub(r"^port = \d+$", "port = 0", config, flags=re.MULTILINE))
    places = {CONFIG: str(tmp_path / "acquit.toml"), DATA: str(tmp_path / "data")}
    command = here(service["ExecStart"], places)
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(f"{folder}/notify")
        manager.settimeout(60)
        environment = {**os.environ, "NOTIFY_SOCKET": f"{folder}/notify"}
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment) as broker:
            try:
                assert manager.recv(4096).startswith(b"READY=1\n")
                assert service["ExecReload"] == "/bin/kill -HUP $MAINPID"
                broker.send_signal(signal.SIGHUP)
                assert manager.recv(4096).startswith(b"RELOADING=1\n")
                assert manager.recv(4096).startswith(b"READY=1\n")
                broker.terminate()
                assert manager.recv(4096).startswith(b"STOPPING=1\n")
                _, err = broker.communicate(timeout=30)
            finally:
                broker.kill()
    assert broker.returncode == 0, err


def analyze(tmp_path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run systemd-analyze on the unit, with a program that exists in the place of acquit."""
    command = [require("systemd-analyze"), *arguments]
    unit = tmp_path / UNIT.name
    unit.write_text(UNIT.read_text().replace("/opt/acquit/bin/acquit", "/bin/true"))
    return subprocess.run([*command, str(unit)], capture_output=True, text=True, timeout=60, check=False)


def test_systemd_understands_it(tmp_path: Path) -> None:
    done = analyze(tmp_path, "verify")
    ours = [line for line in done.stderr.splitlines() if UNIT.name in line]
    assert (done.returncode, ours) == (0, [])


def test_it_is_shut_in(tmp_path: Path) -> None:
    done = analyze(tmp_path, "security", "--offline=true", "--no-pager")
    if "unrecognized option" in done.stderr:
        pytest.skip("this systemd-analyze looks at running services only")
    found = re.search(r"Overall exposure level for \S+ (\d+\.\d+)", done.stdout)
    assert found, done.stdout + done.stderr
    assert float(found[1]) <= EXPOSURE_MAX
