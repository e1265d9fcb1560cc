"""Entries of the log: they say the same after a round trip, and nothing after damage."""

from __future__ import annotations

import json
from dataclasses import replace
from hashlib import sha256

import pytest

from acquit.errors import SpoolDamaged, SpoolVersionUnsupported
from acquit.spark.spool import entries
from acquit.spark.spool.entries import (
    Checkpoint,
    FloorRaised,
    Forgotten,
    LogTotals,
    Publication,
    Run,
    decode_entry,
    decode_run,
    encode_entry,
    encode_run,
)
from acquit.spark.spool.identities import Identities

PUBLICATION = Publication(
    epoch=7,
    part=1,
    nonce="abc",
    data="data/7-1-abc.arrow",
    skipped=((0, 2), (5, 6)),
    totals=LogTotals(rows=3, set_aside=3, corrupt=1, conflicts=1),
    ended=True,
    written_at_ms=1_700_000_000_000,
    identities=Identities.of([b"a"], [b"1"]),
)
CHECKPOINT = Checkpoint(
    nonce="n",
    floor=6,
    runs=(Run(name="40-n-0", count=9, oldest_ms=1, newest_ms=2),),
    decided=(PUBLICATION,),
    totals=LogTotals(rows=10),
    forgotten=Forgotten(count=4, newest_ms=5, by_limit=2),
)


@pytest.mark.parametrize("entry", [PUBLICATION, FloorRaised(floor=3, nonce="n"), CHECKPOINT])
def test_round_trip(entry: Publication | FloorRaised | Checkpoint) -> None:
    again = decode_entry(encode_entry(entry), "log/1")
    assert again == entry
    if isinstance(entry, Publication):
        assert isinstance(again, Publication)
        assert again.identities.encode() == entry.identities.encode()


def test_the_first_line_can_be_read_by_people() -> None:
    line = json.loads(encode_entry(PUBLICATION).partition(b"\n")[0])
    assert (line["acquit"], line["kind"], line["epoch"], line["identities"]) == ("spool", "publication", 7, 1)


def test_every_altered_byte_is_noticed() -> None:
    data = encode_entry(PUBLICATION)
    for at in range(0, len(data), 7):
        with pytest.raises(SpoolDamaged, match="log/1: the checksum does not fit"):
            decode_entry(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :], "log/1")
    for cut in (0, 1, len(data) - 1):
        with pytest.raises(SpoolDamaged, match="log/1"):
            decode_entry(data[:cut], "log/1")


def test_another_format_is_refused_by_its_number() -> None:
    body = encode_entry(FloorRaised(floor=1, nonce="n"))[:-32].replace(b'"format":3', b'"format":4')
    expected = "log/1: spool format 4; this version of acquit reads formats 1 and 2 and 3"
    with pytest.raises(SpoolVersionUnsupported, match=expected):
        decode_entry(body + sha256(body).digest(), "log/1")


def test_runs_are_mapped_not_copied() -> None:
    block = Identities.of([bytes([n]) for n in range(5)], [b""] * 5).sort()
    data = encode_run(block)
    run = Run(name="r", count=5, oldest_ms=0, newest_ms=0)
    assert decode_run(memoryview(data), run, "identities/r").encode() == block.encode()
    with pytest.raises(SpoolDamaged, match=r"identities/r: .* bytes do not hold 5 identities"):
        decode_run(memoryview(data[:-1]), run, "identities/r")


def test_totals_add_up() -> None:
    assert LogTotals(rows=3, set_aside=1) + LogTotals(rows=2) - LogTotals(rows=1) == LogTotals(rows=4, set_aside=1)


def test_what_an_earlier_format_named_is_known_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(name="r", count=1, oldest_ms=0, newest_ms=0, earlier=False)
    checkpoint = replace(CHECKPOINT, runs=(run, replace(run, earlier=True)))
    for log_format in (entries.FIRST_FORMAT, entries.SECOND_FORMAT, entries.FORMAT):
        with monkeypatch.context() as then:
            then.setattr(entries, "FORMAT", log_format)
            data = [encode_entry(PUBLICATION), encode_entry(checkpoint)]
        publication, summed_up = (decode_entry(one, "log/1") for one in data)
        earlier = log_format < entries.FORMAT
        assert isinstance(publication, Publication) and publication.earlier == earlier
        assert isinstance(summed_up, Checkpoint) and [one.earlier for one in summed_up.runs] == [earlier, True]
    # As they were written, which knew nothing of it.
    body = encode_entry(checkpoint)[:-32].replace(b',"earlier":false', b"").replace(b',"earlier":true', b"")
    body = body.replace(b'"format":3', b'"format":2')
    summed_up = decode_entry(body + sha256(body).digest(), "log/1")
    assert isinstance(summed_up, Checkpoint) and all(one.earlier for one in summed_up.runs)
