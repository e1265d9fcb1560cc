from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import acquit
from acquit.broker.options import BrokerOptions, Security, User
from acquit.cli.exits import Exit
from acquit.cli.pipelines.redrive import _line
from acquit.client.tls import make_ssl_context
from acquit.errors import AcquitError
from acquit.spark import redrive as module
from acquit.spark.redrive import Letter, LetterGroup, RedriveOptions, RedriveProgress, RedriveSummary
from acquit.store.options import JournalOptions
from tests.support.guarded import ADA, CA, PASSWORD, guarded_broker
from tests.support.shell import Shell


def summary(**more: Any) -> RedriveSummary:
    known = {"target": "orders", "cause": "rejected", "condition": "shop:closed"}
    return RedriveSummary(
        **{  # type: ignore[arg-type]
            "queue": "DLQ",
            "selected": 1_003,
            "in_table": 2,
            "homeless": 1,
            "moved": 1_000,
            "would_move": 1_000,
            "gone": 0,
            "groups": (
                LetterGroup(**known, in_table=False, count=1_000),
                LetterGroup(**known, in_table=True, count=2),
                LetterGroup(target=None, cause=None, condition=None, in_table=False, count=1),
            ),
            "shown": (
                Letter(**known, sequence=7, message_id="order-7", description="no such\n\tcustomer", in_table=False),
            ),
            "dry_run": False,
            "duration_s": 1.25,
            **more,
        }
    )


def run(shell: Shell, monkeypatch: pytest.MonkeyPatch, found: RedriveSummary, *arguments: object) -> tuple[Any, Any]:
    given: list[RedriveOptions] = []

    def redrive(options: RedriveOptions, *, on_progress: Any, on_stage: Any) -> RedriveSummary:
        given.append(options)
        on_stage("starting Spark")
        on_progress(RedriveProgress(moved=1, of=2))
        return found

    monkeypatch.setattr(module, "redrive", redrive)
    return shell("pipeline", "redrive", *arguments), given[0]


def test_what_was_done(shell: Shell, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    where = ("--where", "cause = 'rejected'", "--limit", 5, "--rate", 2.5, "--table", tmp_path, "--to", "x")
    ran, options = run(shell, monkeypatch, summary(), "letters", *where)
    assert (ran.code, ran.err) == (Exit.OK, "")
    assert ran.out.splitlines() == [
        "    1,000  rejected, shop:closed: to orders",
        "        2  rejected, shop:closed: already in the table, stays",
        "        1  no reason given: nowhere to go, stays",
        "DLQ: 1,003 letters selected, 1,000 moved, 2 already in the table, 1 without a place to go, 1.2 s",
    ]
    assert (options.queue, options.where, options.limit, options.rate) == ("letters", "cause = 'rejected'", 5, 2.5)
    assert (options.table, options.to, options.dry_run) == (tmp_path, "x", False)


def test_a_dry_run_shows_letters(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    ran, options = run(shell, monkeypatch, summary(dry_run=True, moved=0), "--dry-run")
    assert options.dry_run
    heads, letter = ran.out.splitlines()[:2]
    assert heads.split()[-1] == "description"
    said = ["7", "order-7", "orders", "rejected", "shop:closed", "no", "such", "customer", "to", "orders"]
    assert letter.split() == said
    assert "1,000 would be moved" in ran.out


def test_a_description_is_one_short_line() -> None:
    assert [_line(text) for text in (None, "as it is", "x" * 100, "x" * 101)] == [
        "",
        "as it is",
        "x" * 100,
        "x" * 99 + "…",
    ]


def test_those_that_are_gone_are_a_failure(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    ran, _ = run(shell, monkeypatch, summary(moved=990, gone=10), "--json")
    assert ran.code == Exit.FAILED
    document = json.loads(ran.out)
    assert (document["moved"], document["gone"], document["groups"][1]["in_table"]) == (990, 10, True)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--to", "DLQ"], "to: DLQ is where the letters are"),
        (["--to", ""], "to: expected the name of a queue, found nothing"),
        (["--rate", "0"], "--rate"),
        (["--limit", "0"], "--limit"),
        (["--url", "amqp://me:secret@host"], "option url: a user or password"),
        (["--credential", "secret", "--user", "me"], "option credential: expected env:NAME"),
    ],
)
def test_wrong_use_is_named_before_spark_starts(shell: Shell, arguments: list[str], complaint: str) -> None:
    ran = shell("pipeline", "redrive", *arguments)
    assert ran.code == Exit.USAGE
    assert complaint in ran.err
    assert "secret" not in ran.err


def test_a_wrong_table_is_one_line_before_spark_starts(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("acquit.spark.session.start_session", lambda **_: pytest.fail("Spark was started"))
    for name in ("other", "odd"):
        (tmp_path / name).mkdir()
    pq.write_table(pa.table({"number": [1]}), tmp_path / "other" / "part-0.parquet")
    (tmp_path / "odd" / "part-0.parquet").write_text("nothing of the kind")
    for table, said in (
        (tmp_path / "none", "expected a folder with a table, found nothing"),
        (tmp_path / "other", "expected a column sequence or message_id to know messages by, found number"),
        (tmp_path / "odd", "part-0.parquet is no Parquet file"),
    ):
        ran = shell("pipeline", "redrive", "--table", table)
        assert (ran.code, len(ran.err.splitlines())) == (Exit.USAGE, 1)
        assert said in ran.err


def test_a_wrong_password_is_one_line_before_spark_starts(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("LETTERS_PASSWORD", "s3cret-but-wrong")
    monkeypatch.setattr("acquit.spark.session.start_session", lambda **_: pytest.fail("Spark was started"))
    security = Security(anonymous="never", users={"bob": User(password="s3cret")}, refusal_delay_ms=1)
    options = BrokerOptions(security=security, journal=JournalOptions.small())
    with acquit.Broker(config=options) as broker:
        login = ("--url", broker.url, "--user", "bob", "--credential", "env:LETTERS_PASSWORD")
        ran = shell("pipeline", "redrive", *login)
    assert (ran.code, len(ran.err.splitlines())) == (Exit.FAILED, 1)
    assert "SASL" in ran.err
    assert "s3cret" not in ran.err


class Reached(AcquitError):
    """Connected, and about to start Spark."""


@pytest.mark.parametrize(
    ("login", "environment", "credential"),
    [
        (("--cert", ADA), {}, None),
        (("--user", "bob"), {"ACQUIT_PASSWORD": PASSWORD}, "env:ACQUIT_PASSWORD"),
        (("--user", "bob", "--password-file", "secret"), {"ACQUIT_PASSWORD": "wrong"}, "file:{}/secret"),
        (("--user", "bob"), {"ACQUIT_PASSWORD_FILE": "secret"}, "file:{}/secret"),
        (("--user", "bob", "--credential", "env:P"), {"ACQUIT_PASSWORD_FILE": "x", "P": PASSWORD}, "env:P"),
        (("--cert", ADA), {"ACQUIT_PASSWORD_FILE": "secret", "ACQUIT_PASSWORD": "wrong"}, None),
    ],
)
def test_logged_in_as_all_commands_are(
    shell: Shell,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    login: tuple[object, ...],
    environment: dict[str, str],
    credential: str | None,
) -> None:
    """The password's place is handed on, and never the password."""
    monkeypatch.chdir(tmp_path)
    Path("secret").write_text(f"{PASSWORD}\n")
    Path("x").write_text("wrong\n")
    given: list[RedriveOptions] = []
    whole = module.redrive

    def redrive(options: RedriveOptions, **follow: Any) -> RedriveSummary:
        given.append(options)
        return whole(options, **follow)

    def start(**_: object) -> None:
        raise Reached("Spark would be started")

    monkeypatch.setattr(module, "redrive", redrive)
    monkeypatch.setattr("acquit.spark.session.start_session", start)
    with guarded_broker() as broker:
        shown = make_ssl_context(CA, ADA, None)
        with acquit.connect(broker.url, ssl_context=shown) as connection, connection.session() as session:
            session.sender("DLQ").send("a letter")
        for name, value in ({"ACQUIT_URL": broker.url, "ACQUIT_CA": str(CA)} | environment).items():
            monkeypatch.setenv(name, value)
        ran = shell("pipeline", "redrive", *login)
    assert ran.err == "acquit: Spark would be started\n"
    assert given[0].credential == (None if credential is None else credential.format(tmp_path))
    assert PASSWORD not in repr(given)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--user", "bob"), "--user needs a password: --password-file, ACQUIT_PASSWORD, or --credential"),
        (("--user", "ada", "--cert", ADA), "without --user the certificate says who"),
        (("--user", "bob", "--credential", "env:P", "--password-file", ADA), "expected one, both say the password"),
        (("--password-file", ADA), "option credential is given without the option user"),
        (("--ca", CA), "option ca is given, but the URL says amqp://"),
        (("--url", "amqps://h", "--key", ADA), "option key is given without the option cert"),
        (("--url", "amqps://h", "--ca", "nowhere"), "'nowhere' does not exist"),
    ],
)
def test_halves_of_a_login_are_named(shell: Shell, arguments: tuple[object, ...], complaint: str) -> None:
    ran = shell("pipeline", "redrive", *arguments)
    assert ran.code == Exit.USAGE
    assert complaint in ran.err


def test_who_is_not_trusted_is_one_line_at_once(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    attempts: list[object] = []

    def counted(url: str, **options: Any) -> acquit.Connection:
        attempts.append(url)
        return acquit.connect(url, **options)

    monkeypatch.setattr("acquit.spark.connecting.connect", counted)
    with guarded_broker() as broker:
        ran = shell("pipeline", "redrive", "--url", broker.url, "--cert", ADA)
    assert len(attempts) == 1, "it was tried again"
    assert (ran.code, len(ran.err.splitlines())) == (Exit.UNREACHABLE, 1)
    assert "the option ca says whom to trust" in ran.err


def test_a_queue_that_is_not_there_is_no_queue_without_letters(
    at_broker: Shell, address: str, broker: acquit.Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(**_: object) -> None:
        raise Reached("Spark would be started")

    monkeypatch.setattr("acquit.spark.session.start_session", start)
    at_broker("send", f"DLQ.{address}", "one")
    ran = at_broker("pipeline", "redrive", f"DLQ{address}")
    assert (ran.code, len(ran.err.splitlines())) == (Exit.USAGE, 1)
    assert f"there is no queue 'DLQ{address}'" in ran.err
    assert f"'DLQ.{address}'" in ran.err
    assert "--create" not in ran.err


def test_before_the_first_dead_letter_there_is_nothing_to_start_spark_for(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("acquit.spark.session.start_session", lambda **_: pytest.fail("Spark was started"))
    with acquit.Broker(config=BrokerOptions(journal=JournalOptions.small())) as broker:
        told: list[str] = []
        module.redrive(RedriveOptions(url=broker.url), on_stage=told.append)
        assert told == [f"waiting for the broker at {broker.url}"]
        ran = shell("pipeline", "redrive", "--url", broker.url, "--dry-run")
        assert (ran.code, ran.err) == (Exit.OK, "")
        assert ran.out.startswith("DLQ: 0 letters selected, 0 would be moved, ")
        assert shell("queues", "--url", broker.url, "--json").documents == [], "nor is it made"
