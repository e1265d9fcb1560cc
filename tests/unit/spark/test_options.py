"""Options: each wrong one is named, with what was given and what is expected; secrets are never repeated. The tables of
the streaming source stand for those of every format."""

from __future__ import annotations

import pickle
import re
from pathlib import Path

import pytest
from pyspark import TaskContext

from acquit.errors import ConfigurationError
from acquit.spark.options import BrokerAccess, default_text, resolve_credential, type_ddl
from acquit.spark.source_options import OPTIONS, SourceOptions
from acquit.spark.spool import Poison
from tests.support.guarded import CA, split

GOOD = {"url": "amqp://localhost:5672", "address": "orders", "spool": "/mnt/spool"}


def test_keys_come_in_any_case() -> None:
    # Spark keeps the case that the user wrote in some places and lowers it in others.
    options = SourceOptions.parse({**GOOD, "MAXMESSAGESPERBATCH": "10", "drainTimeout": "500ms", "poison": "REJECT"})
    assert (options.max_messages_per_batch, options.drain_timeout_ms, options.poison) == (10, 500, Poison.REJECT)


@pytest.mark.parametrize("name", ["url", "address", "spool"])
def test_a_missing_option_is_named_and_explained(name: str) -> None:
    with pytest.raises(ConfigurationError, match=f"option {name} is missing: "):
        SourceOptions.parse({key: value for key, value in GOOD.items() if key != name})
    with pytest.raises(ConfigurationError, match=f"option {name} is missing: "):
        SourceOptions.parse({**GOOD, name: "  "})


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("url", "localhost:5672", "amqp://host:port"),
        ("url", "http://localhost", "amqp://host:port"),
        ("url", "amqp://host:99999", "amqp://host:port"),
        ("url", "amqp://host/queue", "amqp://host:port"),
        ("spool", "spool", "an absolute path"),
        ("spool", "hdfs://bucket/spool", "a local or shared folder"),
        ("spool", "s3://bucket", "s3://bucket/path"),
        ("parts", "0", "a number from 1 to 1000"),
        ("parts", "two", "a number from 1 to 1000"),
        ("parts", "-1", "a number from 1 to 1000"),
        ("maxMessagesPerBatch", "1.5", "a number from 1"),
        ("maxBytesPerBatch", "64 miles", "a size from 1 .* such as 65536, 512k, 64m or 1g"),
        ("maxBytesPerBatch", "0", "a size from 1"),
        ("maxBytesPerBatch", "9" * 5_000, "a size from 1"),
        ("parts", "9" * 5_000, "a number from 1 to 1000"),
        ("drainTimeout", "9" * 5_000 + "s", "a time from 1"),
        ("drainTimeout", "2", "with its unit, such as 500ms, 2s"),
        ("drainTimeout", "2 fortnights", "with its unit"),
        ("drainTimeout", "0s", "a time from 1"),
        ("identityRetention", "1ms", "a time from 1000"),
        ("identityField", "subject", "message-id, correlation-id, application-properties.NAME"),
        ("missingIdentity", "ignore", "one of fail, at-least-once"),
        ("poison", "skip", "one of column, reject, fail"),
        ("rejectIsDeadLetter", "yes", "one of true, false"),
    ],
)
def test_a_wrong_option_says_what_was_given_and_what_is_expected(name: str, value: str, expected: str) -> None:
    with pytest.raises(ConfigurationError, match=f"option {name} = '{value}': expected .*{expected}"):
        SourceOptions.parse({**GOOD, name: value})


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [("500ms", 500), ("2s", 2_000), ("2 seconds", 2_000), ("3m", 180_000), ("3 min", 180_000), ("1 hour", 3_600_000)],
)
def test_times(text: str, milliseconds: int) -> None:
    assert SourceOptions.parse({**GOOD, "drainTimeout": text}).drain_timeout_ms == milliseconds


@pytest.mark.parametrize(("text", "size"), [("100", 100), ("2k", 2048), ("64m", 64 << 20), ("1 GB", 1 << 30)])
def test_sizes(text: str, size: int) -> None:
    assert SourceOptions.parse({**GOOD, "maxBytesPerBatch": text}).max_bytes_per_batch == size


def test_an_unknown_option_gets_a_hint() -> None:
    with pytest.raises(ConfigurationError, match=r"option adress is not known; did you mean address\?"):
        SourceOptions.parse({**GOOD, "adress": "x"})


@pytest.mark.parametrize(
    "wrong",
    [
        {"password": "hunter2"},
        {"user": "u", "credential": "hunter2"},
        {"user": "u", "credential": "hunter2:"},
        {"url": "amqp://user:hunter2@host"},
        {"url": "amqp://user:hunter2@host:99999/x"},
        {"url": "amqp://host?password=hunter2"},
        {"url": "amqp://host#hunter2"},
    ],
)
def test_a_password_in_the_options_is_refused_and_not_repeated(wrong: dict[str, str]) -> None:
    with pytest.raises(ConfigurationError, match="env:NAME, file:PATH or provider:") as caught:
        SourceOptions.parse({**GOOD, **wrong})
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("place", ["s3://key:hunter2@bucket/spool", "s3a://bucket/a@hunter2", "s3://b/p?key=hunter2"])
def test_a_secret_in_the_place_of_a_spool_is_not_repeated(place: str) -> None:
    with pytest.raises(ConfigurationError, match="credentials in the environment") as caught:
        SourceOptions.parse({**GOOD, "spool": place})
    assert "hunter2" not in str(caught.value)


def test_a_credential_needs_a_user() -> None:
    with pytest.raises(ConfigurationError, match="without the option user"):
        SourceOptions.parse({**GOOD, "credential": "env:X"})


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"url": "amqp://host", "ca": "/ca.pem"}, "option ca is given, but the URL says amqp://"),
        ({"url": "amqp://host", "cert": "/me.pem"}, "option cert is given, but the URL says amqp://"),
        ({"url": "amqps://host", "key": "/key.pem"}, "option key is given without the option cert"),
        ({"url": "amqps://host", "ca": "ca.pem"}, "option ca: expected the absolute path of a file"),
        ({"url": "amqps://host", "cert": "me", "key": "-----BEGIN hunter2"}, "option cert: expected the absolute path"),
        ({"url": "amqps://host", "cert": "/me", "key": "-----BEGIN hunter2"}, "option key: expected the absolute path"),
    ],
)
def test_files_for_tls_that_cannot_be(wrong: dict[str, str], reason: str) -> None:
    with pytest.raises(ConfigurationError, match=reason) as caught:
        SourceOptions.parse({**GOOD, **wrong})
    assert "hunter2" not in str(caught.value), "it may be the key itself"


def test_files_for_tls_are_read_by_whoever_connects(tmp_path: Path) -> None:
    assert SourceOptions.parse({**GOOD, "url": "amqps://host"}).ssl_context() is None
    cert, key = split(tmp_path)
    given = {**GOOD, "url": "amqps://host", "ca": str(CA), "cert": str(cert), "key": str(key)}
    options = pickle.loads(pickle.dumps(SourceOptions.parse(given)))
    context = options.ssl_context()
    assert [one["serialNumber"] for one in context.get_ca_certs()] and context.check_hostname
    key.unlink()
    with pytest.raises(ConfigurationError, match=f"option key = {key} on the driver: cannot be read .No such file"):
        options.ssl_context()


def test_a_task_says_that_it_is_a_worker_where_something_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TaskContext, "_taskContext", object())
    with pytest.raises(ConfigurationError, match="NOBODY_SET_THIS is not set on this worker .KeyError"):
        resolve_credential("env:NOBODY_SET_THIS")
    ca = tmp_path / "ca.pem"
    options = SourceOptions.parse({**GOOD, "url": "amqps://host", "ca": str(ca)})
    with pytest.raises(ConfigurationError, match=f"option ca = {ca} on this worker: cannot be read"):
        options.ssl_context()


def test_what_is_said_of_access_is_what_every_format_takes() -> None:
    given = {"url": "amqps://h", "user": "u", "credential": "env:X", "ca": "/c", "cert": "/d", "key": "/e"}
    options = SourceOptions.parse({**given, "address": "a", "spool": "/s"})
    assert options.access_options() == given
    assert BrokerAccess(url="amqp://h").access_options() == {"url": "amqp://h"}


def provide() -> str:
    return "from a function"


def provide_nonsense() -> int:
    return 1


def provide_trouble() -> str:
    raise RuntimeError("hunter2 does not open the safe")


def test_credentials_are_found_where_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACQUIT_TEST_PASSWORD", "from the environment")
    (tmp_path / "password").write_text("from a file\n")
    assert resolve_credential("env:ACQUIT_TEST_PASSWORD") == "from the environment"
    assert resolve_credential(f"file:{tmp_path}/password") == "from a file"
    assert resolve_credential("provider:tests.unit.spark.test_options.provide") == "from a function"


@pytest.mark.parametrize(
    ("reference", "reason"),
    [
        ("env:ACQUIT_TEST_UNSET", "is not set on the driver .KeyError"),
        ("file:/nonexistent/password", "cannot be read"),
        ("provider:nonexistent.module.function", "cannot be imported"),
        ("provider:tests.unit.spark.test_options.missing", "cannot be imported or called"),
        ("provider:tests.unit.spark.test_options.provide_nonsense", "must return a string"),
        ("provider:tests.unit.spark.test_options.provide_trouble", "called on the driver .RuntimeError"),
        ("provider:.function", "cannot be imported"),
        ("env:ACQUIT\0TEST", "is not set"),
        ("file:/a\0b", "cannot be read"),
    ],
)
def test_credentials_that_are_not_there(reference: str, reason: str) -> None:
    with pytest.raises(ConfigurationError, match=f"credential {re.escape(reference)}.*{reason}") as caught:
        resolve_credential(reference)
    assert "hunter2" not in str(caught.value)


def test_a_file_that_is_no_text_holds_no_password(tmp_path: Path) -> None:
    (tmp_path / "password").write_bytes(b"\xffhunter2\n")
    with pytest.raises(ConfigurationError, match="cannot be read or is empty on the driver .UnicodeDecodeError"):
        resolve_credential(f"file:{tmp_path}/password")


def test_defaults_are_written_as_options_are() -> None:
    for option in OPTIONS:
        if default := default_text(SourceOptions, option):
            parsed = SourceOptions.parse({**GOOD, option.name: default})
            assert getattr(parsed, option.field) == getattr(SourceOptions.parse(GOOD), option.field), option.name


def test_a_time_is_an_instant_whatever_the_session_takes_timestamps_for() -> None:
    assert type_ddl("MAP<STRING, TIMESTAMP>") == "MAP<STRING, TIMESTAMP_LTZ>"
