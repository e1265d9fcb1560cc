"""Draw docs/pictures/report.png: a day of a shop's queues, audited, and its report as Chromium shows it.

Everything in it is real but the day: an embedded broker takes and hands out each message while its clock is turned
ahead, the audit reads the journal that this leaves, and the picture is of the page that the report writes of it.

    python tools/draw_report.py        needs the extra `spark`, Java, Chromium and Pillow (which matplotlib brings)
"""

from __future__ import annotations

import contextlib
import random
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from PIL import Image

import acquit
from acquit.spark.audit import AuditOptions, audit
from acquit.spark.report import report

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.support.chromium import browsing, find_chromium  # noqa: E402  # which is found from here on

OUT = ROOT / "docs" / "pictures" / "report.png"
MINUTES = 300
STALLED = range(130, 150)
MINUTE_MS = 60_000


@dataclass(frozen=True)
class Load:
    """A queue in a minute: what comes, what its consumer can do, and how quickly."""

    queue: str
    posted: int
    able: int
    wait_ms: tuple[int, int]
    faults: float


LOADS = (
    Load("orders", 24, 60, (20, 900), 0.012),
    Load("payments", 9, 30, (200, 6_000), 0.03),
    Load("mails", 5, 20, (5, 80), 0.0),
)
REASONS = ("orders:not-json", "orders:not-json", "orders:no-such-customer", "payments:card-expired")


def live(folder: Path) -> None:
    """The day. Its journal stays in `folder`."""
    rng = random.Random(4)
    with acquit.Broker(folder) as broker, acquit.connect(broker.url) as connection:
        session = connection.session("individual")
        links = {load.queue: (session.sender(load.queue), session.receiver(load.queue, prefetch=0)) for load in LOADS}
        waiting = dict.fromkeys(links, 0)
        for minute in range(MINUTES):
            left_ms = MINUTE_MS
            for load in LOADS:
                sender, receiver = links[load.queue]
                swing = 1 + 0.6 * ((minute // 45) % 3) / 2
                posted = max(0, round(rng.gauss(load.posted * swing, load.posted / 6)))
                for _ in range(posted):
                    sender.send(f"of minute {minute}", wait=False)
                sender.flush()
                waiting[load.queue] += posted
                pause_ms = rng.randint(*load.wait_ms)
                broker.advance(pause_ms)
                left_ms -= pause_ms
                if minute not in STALLED or load.queue == "mails":
                    waiting[load.queue] -= consume(receiver, load, rng, waiting[load.queue])
            broker.advance(left_ms)


def consume(receiver: acquit.Receiver, load: Load, rng: random.Random, waiting: int) -> int:
    """What a consumer does in its minute: how many messages are gone."""
    gone = 0
    for _ in range(min(load.able, waiting)):
        message = receiver.receive(timeout=5)
        if message is None:
            break
        if rng.random() < load.faults:
            message.modify(delivery_failed=True)
            continue
        gone += 1
        if rng.random() < load.faults:
            message.reject(rng.choice(REASONS), "drawn by lot")
        else:
            message.accept()
    return gone


def main() -> int:
    """Draw it."""
    browser = find_chromium()
    if browser is None:
        print("no Chromium here", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory(prefix="shop-") as temporary, contextlib.chdir(temporary):
        work = Path(temporary)
        live(work / "data")
        audit(AuditOptions(folders=[work / "data"], into=work / "audit", master="local[2]"))
        page = report(work / "audit", work / "report.html", title="Audit of the shop", top=3)
        with browsing(browser, work / "profile") as tab:
            tab.open(page, 1280, 1000)
            wide = Image.open(tab.picture(work / "wide.png")).convert("RGB")
            tab.open(page, 390, 844)
            narrow = Image.open(tab.picture(work / "narrow.png")).convert("RGB")
        height = 1_180
        sheet = Image.new("RGB", (wide.width + narrow.width + 30, height), "#8a9099")
        sheet.paste(wide.crop((0, 0, wide.width, height)), (0, 0))
        sheet.paste(narrow.crop((0, 0, narrow.width, height)), (wide.width + 30, 0))
        sheet = sheet.resize((sheet.width * 7 // 10, height * 7 // 10), Image.Resampling.LANCZOS)
        # With k-means the few saturated colours of signs and lines survive beside all the greys.
        sheet.quantize(256, Image.Quantize.MEDIANCUT, kmeans=3, dither=Image.Dither.NONE).save(OUT, optimize=True)
    print(f"{OUT.relative_to(ROOT)}: {OUT.stat().st_size:,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
