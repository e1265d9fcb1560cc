"""A program of its own that moves one queue into another through Spark, and may be killed while it does.

    python -m tests.support.sink_program FOLDER URL FROM TO [USER WINDOW]

It ends when TO has what was in FROM at its start. Spool, checkpoint and the sink's reports are in FOLDER, beside the
points at which it is killed (`crashing`), and the password of USER in its file ``password``. WINDOW is how many ids TO
remembers, for a broker that goes by these.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tests.support.crashing import PYTHONPATH

BATCH = 60
PARTS = 2


def main(folder: Path, url: str, address: str, to: str, *user_and_window: str) -> None:
    from acquit.spark.session import start_session

    os.environ["PYTHONPATH"] = PYTHONPATH
    given = {"url": url}
    sink = {"report": str(folder / "reports")}
    if user_and_window:
        user, window = user_and_window
        given |= {"user": user, "credential": f"file:{folder / 'password'}"}
        sink |= {"duplicateWindow": window, "writers": str(PARTS)}
    spark = start_session(master="local[2,4]", memory_mb=512, log_level="OFF", settings={"spark.ui.enabled": "false"})
    source = spark.readStream.format("acquit").options(
        **given, address=address, spool=str(folder / "spool"), parts=str(PARTS), maxMessagesPerBatch=str(BATCH)
    )
    query = (
        source.load()
        .writeStream.format("acquit")
        .options(**given, **sink, address=to, checkpointLocation=str(folder / "checkpoint"), maxInFlight="10")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
