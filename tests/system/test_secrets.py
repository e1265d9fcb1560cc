"""Passwords and keys are nowhere in what a broker, a program of a user, and each command write, whatever they are told.

Everything is a process of its own, at its most talkative, and each has a secret of its own. A log that shows one of
them, and an object that does, are found.
"""

from __future__ import annotations

import base64
import os
import re
import select
import subprocess
import sys
import termios
import traceback
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

import pytest
from cryptography.hazmat.primitives import serialization

import acquit
from acquit.broker.access.users import Verifier
from acquit.broker.options import BrokerOptions, Security, Tls, User
from acquit.client.tls import make_ssl_context
from acquit.errors import ConfigurationError
from tests.support import guarded
from tests.support.pages import ROOT
from tests.support.served import Served
from tests.support.spilled import found, found_below, key_lines, make_secret

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

CONFIG = """
[users]
operator = {{ password = "{operator}", roles = ["all"] }}
billing = {{ password = "{verifier}", roles = ["clerk"] }}

[roles.all]
send = ["#"]
consume = ["#"]
browse = ["#"]
create = ["#"]
delete = ["#"]
manage = ["#"]

[roles.clerk]
send = ["orders.#"]
create = ["orders.#"]

[journal]
segment_bytes = 65536
batch_bytes_max = 32768
recovery_bytes_max = 262144

[security]
refusal_delay_ms = 1
login_delay_ms_max = 0
"""
TLS = f"""
[tls]
certificate_file = "{guarded.CA}"
key_file = "{guarded.FILES / "key.pem"}"
client_ca_file = "{guarded.FILES / "peers-ca.pem"}"
client_certificates = "optional"
"""
NOBODY = "amqp://127.0.0.1:1"


class Run:
    """Processes that begin in `folder`, with the secrets that they are given, and what they have said."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.secrets: dict[str, str] = {}
        self.said: dict[str, bytes] = {}

    def secret(self, name: str, special: str = "") -> str:
        return self.secrets.setdefault(name, make_secret(special))

    def python(self, name: str, *arguments: str, stdin: str = "", **environment: str) -> int:
        """Run a module of Python, with warnings, and asyncio in its debug mode. Its secrets are not among its
        arguments, which every process of the machine can read."""
        assert not found(self.secrets, " ".join(arguments).encode()), "that is told to everybody"
        done = subprocess.run(
            [sys.executable, "-X", "dev", "-m", *arguments],
            cwd=self.folder,
            input=stdin.encode(),
            env={**os.environ, "PYTHONPATH": f"{self.folder}:{ROOT}", **environment},
            capture_output=True,
            timeout=120,
            check=False,
        )
        self.said[f"{name}: {' '.join(arguments)}"] = done.stdout + done.stderr
        return done.returncode

    def acquit(self, *arguments: str, stdin: str = "", **environment: str) -> int:
        """Run a command."""
        return self.python(str(len(self.said)), "acquit", "--debug", *arguments, stdin=stdin, **environment)

    def found(self, but: Sequence[Path] = ()) -> list[str]:
        """Where a secret is that was said or written."""
        said = [f"{name}: {what}" for name, data in self.said.items() for what in found(self.secrets, data)]
        return said + found_below(self.secrets, self.folder, but)


def verifier_secrets(users: Path) -> dict[str, str]:
    """The keys in verifiers, and what else the users file keeps to itself."""
    words = re.findall(r"[A-Za-z0-9+/]{40,}=*", users.read_text())
    return {f"{users.name}, word {number}": word for number, word in enumerate(words)}


def test_a_secret_is_found_in_whatever_way_it_is_written() -> None:
    secret = make_secret("/ü@")
    login = b"\0user\0" + secret.encode()
    for written in (
        login,
        repr(login).encode(),
        quote(secret).encode(),
        login.hex().encode(),
        *(base64.b64encode(b"user"[:before] + secret.encode() + b"more") for before in range(3)),
        base64.urlsafe_b64encode(login),
        secret.encode("utf-16-le"),
        f"<TimerHandle {secret[:10]}...>".encode(),
    ):
        assert found({"it": secret}, b"before" + written + b"after"), written
    assert not found({"it": make_secret("/ü@")}, login)


def test_no_secret_is_said_or_written(tmp_path: Path) -> None:
    run = Run(tmp_path)
    do_everything(run)
    own = [run.folder / "served" / name for name in ("acquit.toml", "data/users.toml")]
    own += [run.folder / name for name in ("clear/acquit.toml", "clerk.password", "wrong.password")]
    own += [run.folder / name for name in ("bad.toml", "worse.toml", "backup/users.toml")]
    assert all(run_file.is_file() for run_file in own), "these keep them"
    users = own[1]
    run.secrets |= verifier_secrets(users) | key_lines(guarded.FILES / "key.pem") | key_lines(guarded.ADA)
    assert len(run.secrets) > 25
    assert run.found(own) == []
    everything = b"".join(run.said.values()) + (run.folder / "served" / "log").read_bytes()
    for said in (
        b"a login is refused",
        b"Traceback",
        b"refused to authenticate us",
        b"asyncio",
        b"this password cannot be used",
    ):
        assert said in everything, f"{said!r}: the log is not what it was taken for"


def type_in(run: Run, answers: Sequence[str], *arguments: str, **environment: str) -> int:
    """Run a command on a terminal of its own, and type one answer each time that it does not show what is typed."""
    master, slave = os.openpty()
    process = subprocess.Popen(
        ["sh", "-c", 'exec "$@" <"$0" >"$0" 2>&1', os.ttyname(slave), sys.executable, "-m", "acquit", *arguments],
        cwd=run.folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        start_new_session=True,
    )
    said = b""
    for answer in answers:
        while termios.tcgetattr(slave)[3] & termios.ECHO and process.poll() is None:
            if select.select([master], [], [], 0.01)[0]:
                said += os.read(master, 65_536)
        os.write(master, f"{answer}\n".encode())
        while not termios.tcgetattr(slave)[3] & termios.ECHO and process.poll() is None:
            if select.select([master], [], [], 0.01)[0]:
                said += os.read(master, 65_536)
    os.close(slave)
    with suppress(OSError):  # all have closed it
        while more := os.read(master, 65_536):
            said += more
    os.close(master)
    run.said[f"typed: {' '.join(arguments)}"] = said
    return process.wait(60)


def test_what_is_typed_is_not_shown(tmp_path: Path) -> None:
    """A password, and the pass phrase of a key; and a key that has one, where nobody can be asked."""
    run = Run(tmp_path)
    phrase, password = run.secret("a pass phrase"), run.secret("a password")
    key = serialization.load_pem_private_key(guarded.ADA.read_bytes(), None)
    kept = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(phrase.encode()),
    )
    certificate, _ = guarded.split(tmp_path)
    (tmp_path / "kept.pem").write_bytes(kept)
    tls = Tls(
        certificate_file=str(guarded.CA),
        key_file=str(guarded.FILES / "key.pem"),
        client_ca_file=str(guarded.FILES / "peers-ca.pem"),
        client_certificates="optional",
    )
    security = Security(users={"ada": User(), "bob": User(password=password)}, refusal_delay_ms=1)
    with acquit.Broker(config=BrokerOptions(security=security, tls=tls)) as broker:
        send = ("send", "orders", "x", "--url", broker.url, "--ca", str(guarded.CA))
        with_key = (*send, "--cert", str(certificate), "--key", str(tmp_path / "kept.pem"))
        assert type_in(run, [phrase], *with_key) == 0
        assert type_in(run, [password], *send, "--user", "bob") == 0
        assert type_in(run, [password[::-1]], *send, "--user", "bob") == 1
    with pytest.raises(ConfigurationError, match="a key without a passphrase") as caught:
        make_ssl_context(None, certificate, tmp_path / "kept.pem")
    run.said["refused"] = "".join(traceback.format_exception(caught.value)).encode()
    assert b"pass phrase" in run.said[f"typed: {' '.join(with_key)}"]
    run.secrets["a wrong password"] = password[::-1]
    (tmp_path / "key.pem").unlink()  # as it was before it had a pass phrase
    run.secrets |= key_lines(guarded.ADA)
    assert run.found() == []


LOGS_THE_URL = """
import logging
from acquit.client import driver

def parse_urls(urls, reconnect, parse=driver.parse_urls):
    logging.getLogger("acquit.client").warning("connecting to %s", urls)
    return parse(urls, reconnect)

driver.parse_urls = parse_urls
logging.basicConfig()
"""
SHOWS_THE_TARGET = """
from acquit.client import url

url.ConnectTarget.__repr__ = lambda target: f"Target({target.username}, {target.password})"
"""


@pytest.mark.parametrize("mistake", [LOGS_THE_URL, SHOWS_THE_TARGET])
def test_a_mistake_is_found(mistake: str, tmp_path: Path) -> None:
    """A line of the log with the URL, and an object that shows its password."""
    (tmp_path / "sitecustomize.py").write_text(mistake)
    run = Run(tmp_path)
    password, wrong = run.secret("a password", "/ü@"), run.secret("another")
    if mistake is LOGS_THE_URL:
        run.acquit("send", "orders", "x", ACQUIT_URL=f"amqp://a:{quote(password, safe='')}@127.0.0.1:1")
    else:
        with acquit.Broker(config=BrokerOptions(security=Security(users={"a": User(password=password)}))) as broker:
            url = f"amqp://127.0.0.1:{broker.port}"
            run.python("it", "tests.support.secret_client", URL=url, USER="a", PASSWORD=password, WRONG=wrong)
    assert any("a password as it is" in line for line in run.found())


def do_everything(run: Run) -> None:
    """Let in and refused, over TLS and not, by each way in which a password can be given; and each kind of mistake."""
    folder = run.folder / "served"
    folder.mkdir()
    operator, wrong = run.secret("the operator's password", "-._~"), run.secret("a wrong password", "/ü@%")
    verifier = str(Verifier.of(run.secret("the password of a verifier"), iterations=4096))
    run.secrets["the key of a verifier"] = verifier.rpartition(":")[2]
    config = CONFIG.format(operator=operator, verifier=verifier) + TLS
    talkative: dict[str, list[str]] = {"prefix": ["env", "PYTHONASYNCIODEBUG=1"], "arguments": ["--log-level", "debug"]}
    with Served(folder, config, **talkative) as served:  # type: ignore[arg-type]
        where = f"127.0.0.1:{served.port}"
        tls = {"ACQUIT_CA": str(guarded.CA), "ACQUIT_URL": f"amqps://{where}"}
        as_operator = {**tls, "ACQUIT_USER": "operator", "ACQUIT_PASSWORD": operator}
        users = ("--data", str(served.data))
        clerk = run.secret("the password of the users file", "+= ")
        for name, given in (("clerk", clerk), ("clerk2", run.secret("a password that is changed"))):
            assert (
                run.acquit("user", "add", name, "--role", "clerk", "--password-stdin", *users, stdin=f"{given}\n") == 0
            )
        changed = run.secret("what it is changed to")
        assert run.acquit("user", "passwd", "clerk2", "--password-stdin", *users, stdin=f"{changed}\n") == 0
        unusable = run.secret("a password that cannot be", "\u0007")
        assert run.acquit("user", "add", "clerk3", "--password-stdin", *users, stdin=f"{unusable}\n") == 2
        assert run.acquit("user", "list", "--json", *users) == 0
        assert run.acquit("config", "reload", **as_operator) == 0

        url = f"amqps://clerk:{quote(clerk, safe='')}@{where}"
        assert run.acquit("send", "orders.new", "one", **{**tls, "ACQUIT_URL": url}) == 0
        (run.folder / "clerk.password").write_text(f"{clerk}\n")
        file = ("--user", "clerk", "--password-file", str(run.folder / "clerk.password"))
        assert run.acquit("send", "orders.new", "two", *file, **tls) == 0
        assert run.acquit("receive", "orders.new", *file, **tls) == 1, "not allowed"
        certified = {**tls, "ACQUIT_CERT": str(guarded.ADA)}
        assert run.acquit("send", "orders.new", "three", **certified) in (1, 3), "no such user"
        for command in (
            ("browse", "orders.new", "--json"),
            ("queues", "list", "--json"),
            ("queues", "show", "orders.new"),
            ("move", "orders.new", "elsewhere", "--count", "1"),
            ("scheduled", "list", "orders.new"),
            ("receive", "orders.new", "--count", "1"),
            ("purge", "orders.new", "--yes"),
        ):
            run.acquit(*command, **as_operator)

        (run.folder / "wrong.password").write_text(f"{wrong}\n")
        for refused in (
            {**as_operator, "ACQUIT_PASSWORD": wrong},
            {**tls, "ACQUIT_USER": "operator", "ACQUIT_PASSWORD_FILE": str(run.folder / "wrong.password")},
            {**tls, "ACQUIT_URL": f"amqps://operator:{quote(wrong, safe='')}@{where}"},
            {**tls, "ACQUIT_USER": wrong, "ACQUIT_PASSWORD": "x"},
        ):
            assert run.acquit("send", "orders.new", "x", **refused) in (1, 3)
        unreached = run.secret("a password for nobody")
        assert run.acquit("send", "orders.new", "x", ACQUIT_URL=f"amqp://a:{unreached}@127.0.0.1:1") == 3
        listed = f"failover:(amqp://a:{unreached}@127.0.0.1:1,{NOBODY})?failover.maxReconnectAttempts=1"
        assert run.acquit("send", "orders.new", "x", ACQUIT_URL=listed) == 3
        for mark in "/?#[\u2100,":
            unreadable = f"amqp://a:{run.secret(f'a password in a URL with a bare {mark}', mark)}@127.0.0.1:1"
            assert run.acquit("queues", "list", ACQUIT_URL=unreadable) in (2, 3)
            assert run.acquit("queues", "list", ACQUIT_URL=f"failover:({unreadable},{NOBODY})") in (2, 3)
        assert run.acquit("send", "orders.new", "x", ACQUIT_URL=tls["ACQUIT_URL"], ACQUIT_CA=str(guarded.ADA)) in (2, 3)
        table, mistaken = str(run.folder / "table"), make_secret()
        for pipeline in (("ingest", "orders.new", table), ("redrive",)):
            assert run.acquit("pipeline", *pipeline, **{**tls, "ACQUIT_URL": url}) == 2, "it would be in Spark's plan"
            assert run.acquit("pipeline", *pipeline, "--user", "clerk", "--credential", mistaken, **tls) == 2
        run.secrets["a password where a reference to one is expected"] = mistaken

        with (served.data / "users.toml").open("a") as file_of_users:
            file_of_users.write(
                f'\n[users.bad]\npassword = "{run.secret("a password in a users file that is bad")}"\nx'
            )
        assert run.acquit("config", "reload", **as_operator) != 0
    clear = run.folder / "clear"
    clear.mkdir()
    with Served(clear, CONFIG.format(operator=operator, verifier=verifier), **talkative) as served:
        program = {"URL": served.url, "USER": "operator", "PASSWORD": operator, "WRONG": wrong}
        assert run.python("a program", "tests.support.secret_client", **program) == 1
        assert b"all of it was done" in run.said["a program: tests.support.secret_client"]
    numbers = "271828182845904523"
    run.secrets["a password that is a number"] = numbers
    for name, mistake in (
        ("bad", f"[users.ada]\npassword = {numbers}\n[users.bob]\npassword = ['{wrong}']\n"),
        ("worse", f"[users.ada]\npassword = '{wrong}\n"),
    ):
        path = run.folder / f"{name}.toml"
        path.write_text(mistake)
        assert run.acquit("config", "check", str(path)) == 2
        assert run.acquit("serve", "--config", str(path), "--data", str(run.folder / name), "--port", "0") == 2
    assert run.acquit("ledger", "balance", "--data", str(folder / "data")) == 0
    assert run.acquit("backup", str(folder / "data"), str(run.folder / "backup")) == 0
