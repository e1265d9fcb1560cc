"""A program of its own that moves one queue into another through Spark, and may be killed while it does.

    python -m tests.support.sink_program URL FROM TO FOLDER

It ends when TO has what was in FROM at its start. Spool and checkpoint are in FOLDER.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

BATCH = 100


def main(url: str, address: str, to: str, folder: Path) -> None:
    from acquit.spark.session import start_session

    os.environ["PYTHONPATH"] = str(Path(__file__).resolve().parents[2])
    spark = start_session(master="local[2,4]", memory_mb=512, log_level="OFF")
    query = (
        spark.readStream.format("acquit")
        .options(url=url, address=address, spool=str(folder / "spool"), parts="2", maxMessagesPerBatch=str(BATCH))
        .load()
        .writeStream.format("acquit")
        .options(url=url, address=to, checkpointLocation=str(folder / "checkpoint"), maxInFlight="10")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], Path(sys.argv[4]))
