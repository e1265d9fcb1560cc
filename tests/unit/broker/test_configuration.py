"""TOML in, options out, and every mistake named with its key, what was found and what was expected."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from pathlib import Path

import pytest

from acquit.broker import configuration
from acquit.broker.access.users_file import load_users
from acquit.broker.configuration import load_options, parse_options
from acquit.broker.options import BrokerOptions
from acquit.errors import ConfigurationError

WHOLE = """
stop_timeout_ms = 2_000

[connection]
idle_timeout_ms = 60_000

[limits]
memory_bytes_max = 1_073_741_824

[security]
anonymous = "never"

[users.alice]
password = "secret"

[journal]
segment_bytes = 4_194_304

[[address]]
match = "#"
redelivery_multiplier = 2

[[address]]
match = "orders.*"
max_delivery_attempts = 3
dead_letter_address = ""
"""


def test_a_whole_file(tmp_path: Path) -> None:
    path = tmp_path / "acquit.toml"
    path.write_text(WHOLE)
    options = load_options(path)
    assert options.stop_timeout_ms == 2_000
    assert options.connection.idle_timeout_ms == 60_000
    assert options.limits.memory_bytes_max == 1 << 30
    assert options.security.anonymous == "never"
    assert options.security.users["alice"].password == "secret"
    assert options.journal.segment_bytes == 4 << 20
    assert options.address[0].settings == {"redelivery_multiplier": 2.0}
    assert options.address[1].settings == {"max_delivery_attempts": 3, "dead_letter_address": ""}


def test_an_empty_file_is_the_defaults() -> None:
    assert parse_options("") == BrokerOptions()


def test_passwords_are_not_shown() -> None:
    assert "secret" not in repr(parse_options(WHOLE))
    for mistake in ("[users.bob]\npassword = 271828", "[users.bob]\npassword = ['271828']", "[users]\nbob = 271828"):
        with pytest.raises(ConfigurationError) as caught:
            parse_options(mistake)
        assert "271828" not in "".join(traceback.format_exception(caught.value)), mistake


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("x =", "expected TOML"),
        ("\ufeffstop_timeout_ms = 1", "found a byte order mark before it; save it as UTF-8 without one"),
        ("[[listen]]\nhost = '::::'", "listen[0].host: expected the name or the address of a host, found '::::'"),
        ("[[listen]]\nhost = 'a:5672'", "listen[0].host: expected the name or the address of a host, found 'a:5672'"),
        ("[http]\nhost = '[::1]'", "http.host: expected the name or the address of a host, found '[::1]'"),
        (
            "[[listen]]\n[[listen]]\nhost = '127.0.0.1'",
            "listen: expected a port for each, found 5672 of 127.0.0.1 twice",
        ),
        ("[[listen]]\nhost = 'LocalHost'\nport = 1\n[http]\nhost = 'localhost'\nport = 1", "http: expected a port for"),
        (
            "[[listen]]\nhost = '0.0.0.0'\n[[listen]]",
            "listen: expected a port for each, found 5672 of 0.0.0.0 and of 127.0.0.1",
        ),
        (
            "[[listen]]\n[http]\nhost = '0.0.0.0'\nport = 5672\n[security]\nplain = 'always'",
            "http: expected a port for each, found 5672 of 127.0.0.1 and of 0.0.0.0",
        ),
        ("[[listen]]\nhost = '::1'\n[[listen]]\nhost = '::'", "found 5672 of ::1 and of ::"),
        ("[[listen]]\nhost = '::'\n[[listen]]\nhost = '0::0'", "found 5672 of 0::0 twice"),
        ("[[listen]]\nhost = 'localhost'\n[[listen]]", "listen: expected a port for each, found 5672 of"),
        ("[[listen]]\n[[listen]]\nhost = '::'\n[[listen]]\nhost = '0.0.0.0'", "5672 of 127.0.0.1 and of 0.0.0.0"),
        ("[tls]", "tls.certificate_file: expected a file where there is [tls], found none; leave out [tls] for no TLS"),
        ("[tls]\ncertificate_file = ''\nkey_file = ''", "tls.certificate_file: expected a file where there is [tls]"),
        ("[tls]\nmode = 'required'", "tls.certificate_file: expected a file where there is [tls], found none"),
        ("[tls]\ncertificate_file = ''\nkey_file = 'k'", "tls.key_file: expected together with certificate_file"),
        ("[limits]\nmemory_bytes_max = 'x'", "limits.memory_bytes_max: expected a whole number, found 'x'"),
        ("[limits]\nmemory_bytes_max = 1.5", "limits.memory_bytes_max: expected a whole number, found 1.5"),
        ("[limits]\nmemory_bytes_max = true", "limits.memory_bytes_max: expected a whole number, found True"),
        ("[limits]\nmemory_bytes_max = 7", "limits.memory_bytes_max: expected a number from 1048576"),
        ("[limits]\nmemory = 7", "limits.memory: no such key; there are connections_max"),
        ("limits = 3", "limits: expected a table"),
        ("nonsense = 3", "nonsense: no such key"),
        ("[address]\nmatch = 'a'", "address: expected [[address]], found [address]"),
        ("[limits]\nqueue_max = 7", "limits.queue_max: no such key; did you mean queues_max?"),
        ("address = 3", "address: expected a table, or with [[...]] a list of tables"),
        ("address = ['a']", "address[0]: expected a table, found 'a'"),
        ("[[address]]\ncreate = true", "address[0].match: expected, but not there"),
        ("[[address]]\nmatch = 3", "address[0].match: expected a text, found 3"),
        ("[[address]]\nmatch = 'a.b*'", "address[0].match: expected words between dots"),
        ("[[address]]\nmatch = 'a'\n[[address]]\nmatch = 'a'", "address: expected one rule for each pattern"),
        ("[[address]]\nmatch = 'a'\nbogus = 1", "address[0].bogus: no such key; there are create"),
        (
            "[[address]]\nmatch = 'a'\nconnection_loss = 'ignore'",
            "address[0].connection_loss: expected one of 'count', 'dead-letter', found 'ignore'",
        ),
        (
            "[[address]]\nmatch = 'a'\nmax_delivery_attempts = -1",
            "address[0].max_delivery_attempts: expected a number from 0 to 65534, found -1",
        ),
        ("[[address]]\nmatch = 'a'\nredelivery_multiplier = 'x'", "redelivery_multiplier: expected a number"),
        ("[users.bob]\npassword = 1234", "password: expected a text"),
        ("users = 3", "security.users: expected a table"),
        ("[users.a]\n[security.users.b]", "expected [users] or [security.users], found both"),
        ("[roles.a]\n[security.roles.b]", "expected [roles] or [security.roles], found both"),
        ("[security]\nplain = true", "security.plain: expected one of 'never', 'loopback', 'always'"),
        ("a = " + "[" * 2_000, "expected TOML: it is nested too deeply"),
        ("a = " + "1" * 5_000, "expected TOML: Exceeds the limit"),
        ("[journal]\nalignment_bytes = 3", "journal: alignment_bytes is 3; expected a power of two"),
    ],
)
def test_each_mistake_is_named(text: str, complaint: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse_options(text, "acquit.toml")
    assert str(caught.value).startswith("acquit.toml: ")
    assert complaint in str(caught.value)


def test_ports_of_their_own_and_free_ones_are_taken() -> None:
    text = "[[listen]]\nport = 0\n[[listen]]\nport = 0\n[[listen]]\nhost = '::1'\nport = 7\n[http]\nport = 7"
    assert len(parse_options(text).listen) == 3
    text = "[[listen]]\nhost = '0.0.0.0'\n[[listen]]\nhost = '::'\n[[listen]]\nport = 7\n[[listen]]\nport = 0"
    assert len(parse_options(text).listen) == 4


@pytest.mark.parametrize("load", [load_options, load_users])
def test_a_file_is_read_to_a_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, load: Callable[[Path], object]
) -> None:
    """One like /dev/zero has no end."""
    monkeypatch.setattr(configuration, "FILE_BYTES_MAX", 1_000, raising=False)
    path = tmp_path / "file"
    path.write_text("#" * 1_000)
    load(path)
    path.write_text("#" * 1_001)
    with pytest.raises(ConfigurationError, match=f"{path}: expected at most 1,000 bytes, found more"):
        load(path)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot be read: No such file"):
        load_options(tmp_path / "missing.toml")


def test_a_file_that_is_not_text(tmp_path: Path) -> None:
    path = tmp_path / "acquit.toml"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigurationError, match="expected UTF-8, found byte 0xff"):
        load_options(path)
