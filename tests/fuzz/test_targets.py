"""The corpus, replayed: every input is taken or refused as it should be, and costs no more than it may."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import time
import tracemalloc
from pathlib import Path

import pytest

from tests.fuzz import corpora
from tests.fuzz.planted import MISTAKES, SOURCES, Mistake
from tests.fuzz.target import SOURCE, Target, TooLaborious, check, measure
from tests.fuzz.targets import TARGETS, values
from tests.fuzz.verdict import slowness, verdict


@pytest.mark.promise("fairness")
@pytest.mark.parametrize("name", TARGETS)
def test_seeds_are_taken_and_the_corpus_breaks_nothing(name: str) -> None:
    target = TARGETS[name]
    if target.warms:
        measure(target, target.seeds[0])
    for data in target.seeds:
        assert check(target, data), corpora.escape(data)
    for data in (*corpora.read(name), *target.long):
        try:
            check(target, data)
        except (Exception, TooLaborious) as error:
            error.add_note(f"{name}: {corpora.escape(data[:2_000])}")
            raise


def test_each_file_of_the_corpus_is_of_a_target() -> None:
    assert {path.stem for path in corpora.CORPUS.iterdir()} <= set(TARGETS)
    assert sum(path.stat().st_size for path in corpora.CORPUS.iterdir()) < 400_000


@pytest.mark.parametrize("data", [b"", b"#a", b"a ", b"\n\r\\x\0\xff\x85", "é".encode(), bytes(range(256))])
def test_a_line_of_the_corpus_is_its_input(data: bytes) -> None:
    line = corpora.escape(data)
    assert corpora.unescape(line) == data
    assert len(line.splitlines()) == bool(data) and not line.startswith("#") and line == line.strip()


@pytest.mark.parametrize("mistake", MISTAKES, ids=[mistake.kind for mistake in MISTAKES])
def test_each_mistake_can_be_planted(mistake: Mistake) -> None:
    """Else nobody would hear, until they are all tried again, that one is not there any more."""
    assert (SOURCES / "acquit" / mistake.module).read_text().count(mistake.right) == 1
    assert mistake.target in TARGETS


BYTES_PER_OCTET_MAX = 200
"""An octet can become an empty list (56 bytes and its place in another); this leaves room for Python's growth."""


@pytest.mark.parametrize("target", values.TARGETS, ids=[target.name for target in values.TARGETS])
def test_what_strangers_send_takes_memory_in_proportion(target: Target) -> None:
    tracemalloc.start()
    try:
        for data in (*target.seeds, *corpora.read(target.name), *target.long):
            tracemalloc.reset_peak()
            before = tracemalloc.get_traced_memory()[0]
            with contextlib.suppress(*target.refuses):
                target.run(data)
            used = tracemalloc.get_traced_memory()[1] - before
            assert used < 150_000 + BYTES_PER_OCTET_MAX * len(data), corpora.escape(data[:2_000])
    finally:
        tracemalloc.stop()


def test_the_page_names_each_target() -> None:
    page = (Path(__file__).parents[2] / "docs" / "how-it-is-tested.md").read_text()
    table = page.partition("| what is read |")[2].partition("\n\n")[0]
    assert set(re.findall(r"`([a-z_]+)`", table)) == set(TARGETS)


# -- the properties that all targets share ----------------------------------------------------------------------------


def of(run: object, **changes: object) -> Target:
    return Target("t", run, (), (ValueError,), (b"x",), **changes)  # type: ignore[arg-type]


def test_what_is_raised_and_is_no_refusal_comes_through() -> None:
    def refuse(data: bytes) -> None:
        raise {b"v": ValueError, b"k": KeyError}[data]

    assert not check(of(refuse), b"v")
    with pytest.raises(KeyError):
        check(of(refuse), b"k")


def test_more_lines_than_the_length_allows_are_too_many() -> None:
    from acquit.protocol.codec import decode, encode

    data = encode([1] * 200)
    _, steps = measure(of(decode), data)
    assert steps > 200
    assert check(of(decode, steps=steps, steps_per_byte=0), data)
    with pytest.raises(TooLaborious):
        check(of(decode, steps=steps - 1, steps_per_byte=0), data)
    with pytest.raises(TooLaborious):
        check(of(decode, steps=0, steps_per_byte=1), data)


def test_what_only_seemed_slow_breaks_nothing() -> None:
    """A machine that stood still for ten seconds made the search call an input slow, and CI refuse what it tried."""
    taken, broken = of(len), of(lambda data: data[9])
    for kind in ("slow-unit-1f", "timeout-1f"):
        assert verdict(taken, b"x", kind) is None
        assert verdict(broken, b"x", kind) == "IndexError in test_targets.py:<lambda>"
    assert verdict(broken, b"x", "crash-1f") == "IndexError in test_targets.py:<lambda>"
    assert verdict(taken, b"x", "crash-1f") == "crash, in the search alone"
    assert verdict(taken, b"x", "oom-1f") == "oom, in the search alone"


def test_what_takes_long_of_a_processor_is_slow() -> None:
    # In one line, which no count of lines sees.
    assert slowness(of(lambda _: sum(range(10**11))), b"x", 1) == "takes more than 1 s"
    assert slowness(of(lambda _: time.sleep(1.5)), b"x", 1) is None


def test_what_waits_or_ends_its_process_is_not_called_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.fuzz.verdict.BLOCKED_FACTOR", 1)
    assert slowness(of(lambda _: time.sleep(60)), b"x", 1) == "waits for something"
    assert slowness(of(lambda _: os.kill(os.getpid(), signal.SIGKILL)), b"x", 1) == "ends its process by SIGKILL"
    assert verdict(of(lambda _: os.kill(os.getpid(), signal.SIGKILL)), b"x", "timeout-1f") is not None


# -- what no target reads ---------------------------------------------------------------------------------------------

READS = re.compile(
    r"\.(iter_)?unpack(_from)?\b|from_bytes\(|json\.loads\(|read_json\(|tomllib\.|fromhex\(|b64decode\(|fromisoformat\("
)
"""How bytes and texts from outside begin to be values."""
ELSEWHERE = {
    "bench.run": "the numbers that it put into its own messages",
    "http.logins": "a name and a password in base64; whatever is wrong with them is a refused login",
    "broker.intake.marks": "values that the broker itself recorded; `records` reads what may stand around them",
    "broker.dispatching.tags": "the tags that the broker itself made",
    "broker.nodes.operator_rules": "settings that the broker itself recorded, checked as those of a configuration are",
    "cli.address": "one value of an argument, which is text where it is no JSON",
    "broker.links.terminus": "values that the broker itself recorded; `records` reads what may stand around them",
    "ledger.duplicates": "through `records`: its state is set by records of one namespace",
    "demo": "what the demo's own processes tell one another",
    "spark.audit.kept": "tables that the audit wrote, held to the SHA-256 in its log",
    "spark.audit.others": "the first lines of a file that a person names, to learn its columns",
    "spark.audit.reconciled": "a file that the audit wrote; what it may raise is what `audit_entry` shows",
    "spark.audit.tables": "tables that the audit wrote, held to the SHA-256 in its log",
    "spark.audit.told": "what tasks of the same run told its driver",
    "spark.ingest_checks": "Spark's schema in a file of the table that the pipeline itself wrote",
    "spark.metrics": "what Spark carries of our own figures",
    "spark.table_source": "options that `ingest` gives its own source",
    "spark.tables": "the list of files that Spark's own sink keeps",
}
"""Modules that read and have no target, each with the reason; of a package, all of it."""


def test_each_module_that_reads_has_a_target_or_a_reason() -> None:
    reading = {
        ".".join(path.relative_to(SOURCE).with_suffix("").parts)
        for path in Path(SOURCE).rglob("*.py")
        if READS.search(path.read_text())
    }
    read = {module for target in TARGETS.values() for module in target.modules}
    left_out = {
        module for module in reading if any(module == name or module.startswith(f"{name}.") for name in ELSEWHERE)
    }
    assert not read & left_out
    assert reading - read == left_out
    assert not [
        name for name in ELSEWHERE if not any(module == name or module.startswith(f"{name}.") for module in left_out)
    ]
    assert not [
        module
        for module in read
        if not (Path(SOURCE) / f"{module.replace('.', '/')}.py").exists()
        and not (Path(SOURCE) / module.replace(".", "/")).is_dir()
    ]
