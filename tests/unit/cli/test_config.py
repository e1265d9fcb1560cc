from __future__ import annotations

import signal
from pathlib import Path

import pytest

import acquit
from acquit.cli.exits import Exit
from tests.support.shell import Shell
from tests.unit.cli.test_serve import serving, url_of

TLS = Path(__file__).parents[2] / "support" / "tls"
TEXT = '[[address]]\nmatch = "orders"\nring_size = 5\n'


def test_a_file_is_checked(shell: Shell, tmp_path: Path) -> None:
    path = tmp_path / "acquit.toml"
    path.write_text(TEXT)
    ran = shell("config", "check", path, "--data", tmp_path)
    assert (ran.code, ran.out) == (Exit.OK, f"{path}: valid, 1 address rule, 0 users, 0 roles, without TLS\n")
    assert shell("config", "check", path, "--data", tmp_path, "--json").documents == [
        {
            "file": str(path),
            "address_rules": 1,
            "users": 0,
            "roles": 0,
            "tls": False,
            "listeners": 1,
            "tls_listeners": 0,
        }
    ]
    path.write_text(TEXT.replace("5", '"five"'))
    ran = shell("config", "check", path, "--data", tmp_path)
    assert ran.code == Exit.USAGE
    assert ran.err == f"acquit: {path}: address[0].ring_size: expected a whole number, found 'five'\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "with TLS"),
        ('mode = "offered"\n[[listen]]', "AMQP without TLS: no listener uses the certificate"),
        ('mode = "off"', "AMQP without TLS: no listener uses the certificate"),
        ('[[listen]]\n[[listen]]\nport = 0\ntls = "immediate"', "with TLS on 1 of 2 listeners"),
        ('[[listen]]\ntls = "required"', "with TLS"),
    ],
)
def test_a_certificate_that_no_listener_uses_is_no_tls(shell: Shell, tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "acquit.toml"
    path.write_text(f'[tls]\ncertificate_file = "{TLS / "certificate.pem"}"\nkey_file = "{TLS / "key.pem"}"\n{text}\n')
    ran = shell("config", "check", path, "--data", tmp_path)
    assert (ran.code, ran.out) == (Exit.OK, f"{path}: valid, 0 address rules, 0 users, 0 roles, {said}\n")


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ('[security]\nusers_file = "/etc/\\u0000users"', "security.users_file"),
        ('[tls]\ncertificate_file = "a\\u0000"\nkey_file = "b"', "tls.certificate_file"),
        ('[tls]\ncertificate_file = "a"\nkey_file = "b\\u0000"', "tls.key_file"),
        ('[[listen]]\nport = 0\n[[listen]]\nhost = "a\\u0000"', "listen[1].host"),
        ('[[listen]]\nhost = "a b"', "listen[0].host"),
        ('[[listen]]\nhost = ""', "listen[0].host"),
        ('[security]\nplain = "always"\n[http]\nhost = "a\\u0000"', "http.host"),
    ],
)
@pytest.mark.parametrize("command", [("config", "check"), ("serve", "--config")])
def test_the_name_of_no_file_and_no_host_is_refused_with_its_key(
    shell: Shell, tmp_path: Path, command: tuple[str, str], text: str, key: str
) -> None:
    path = tmp_path / "acquit.toml"
    path.write_text(text)
    ran = shell(*command, path, "--data", tmp_path / "data")
    assert (ran.code, ran.err.count("\n")) == (Exit.USAGE, 1)
    assert f"{key}: expected the name" in ran.err


def test_a_running_broker_reads_its_file_again(shell: Shell, tmp_path: Path) -> None:
    path = tmp_path / "acquit.toml"
    path.write_text(TEXT)
    with serving(tmp_path / "data", "--config", str(path)) as (process, ready):
        url = url_of(ready)
        assert shell("config", "reload", "--url", url).out == "nothing has changed\n"
        path.write_text(TEXT.replace("5", "7"))
        assert shell("config", "reload", "--url", url, "--json").documents == [
            {"key": "address 'orders'.ring_size", "old": "5", "new": "7", "applies": "now"}
        ]
        path.write_text("nonsense")
        ran = shell("config", "reload", "--url", url)
        assert ran.code == Exit.USAGE, "as `config check` says it"
        assert str(path) in ran.err
        process.terminate()
        process.communicate(timeout=30)


def test_a_port_on_the_command_line_is_no_change(shell: Shell, tmp_path: Path) -> None:
    path = tmp_path / "acquit.toml"
    path.write_text(TEXT)
    with serving(tmp_path / "data", "--config", str(path), "--http-port", "0") as (process, ready):
        assert shell("config", "reload", "--url", url_of(ready)).out == "nothing has changed\n"
        process.terminate()
        process.communicate(timeout=30)


def test_a_hangup_is_a_reload(tmp_path: Path) -> None:
    path = tmp_path / "acquit.toml"
    path.write_text(TEXT)
    with serving(tmp_path / "data", "--config", str(path), "--log-format", "json") as (process, ready):
        with acquit.connect(url_of(ready)) as connection, connection.session() as session:
            session.sender("orders").send("one", timeout=20)
        path.write_text(TEXT.replace("5", "7"))
        process.send_signal(signal.SIGHUP)
        assert process.stderr is not None
        lines = []
        while "was read again" not in (line := process.stderr.readline()) and line:
            lines.append(line)
        assert any("ring_size: 5 -> 7" in line for line in lines), lines
        process.terminate()
        process.communicate(timeout=30)
    assert process.returncode == Exit.OK
