from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import acquit
from acquit.broker.options import BrokerOptions, Security, User
from acquit.cli.exits import Exit
from acquit.spark import redrive as module
from acquit.spark.redrive import Letter, LetterGroup, RedriveOptions, RedriveProgress, RedriveSummary
from acquit.store.options import JournalOptions
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
            "gone": 0,
            "groups": (
                LetterGroup(**known, in_table=False, count=1_000),
                LetterGroup(**known, in_table=True, count=2),
                LetterGroup(target=None, cause=None, condition=None, in_table=False, count=1),
            ),
            "shown": (Letter(**known, sequence=7, message_id="order-7", in_table=False),),
            "dry_run": False,
            "duration_s": 1.25,
            **more,
        }
    )


def run(shell: Shell, monkeypatch: pytest.MonkeyPatch, found: RedriveSummary, *arguments: object) -> tuple[Any, Any]:
    given: list[RedriveOptions] = []

    def redrive(options: RedriveOptions, *, on_progress: Any) -> RedriveSummary:
        given.append(options)
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
    ran, options = run(shell, monkeypatch, summary(dry_run=True), "--dry-run")
    assert options.dry_run
    assert ran.out.splitlines()[1].split() == ["7", "order-7", "orders", "rejected", "shop:closed", "to", "orders"]
    assert "1,000 would be moved" in ran.out


def test_those_that_are_gone_are_a_failure(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    ran, _ = run(shell, monkeypatch, summary(moved=990, gone=10), "--json")
    assert ran.code == Exit.FAILED
    document = json.loads(ran.out)
    assert (document["moved"], document["gone"], document["groups"][1]["in_table"]) == (990, 10, True)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--to", "DLQ"], "to: DLQ is where the letters are"),
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


def test_a_wrong_password_is_one_line_before_spark_starts(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("LETTERS_PASSWORD", "s3cret-but-wrong")
    monkeypatch.setattr(module, "start_session", lambda **_: pytest.fail("Spark was started"))
    security = Security(anonymous="never", users={"bob": User(password="s3cret")}, refusal_delay_ms=1)
    options = BrokerOptions(security=security, journal=JournalOptions.small())
    with acquit.Broker(config=options) as broker:
        login = ("--url", broker.url, "--user", "bob", "--credential", "env:LETTERS_PASSWORD")
        ran = shell("pipeline", "redrive", *login)
    assert (ran.code, len(ran.err.splitlines())) == (Exit.FAILED, 1)
    assert "SASL" in ran.err
    assert "s3cret" not in ran.err
