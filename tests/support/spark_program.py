"""A program of its own that reads a queue into a Parquet folder with a crashing source, until the queue is empty.

    python -m tests.support.spark_program URL ADDRESS FOLDER [MASTER]

On a MASTER that is not local, slow tasks are tried a second time while the first still runs (speculation).
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from acquit.spark.session import start_session
from tests.support.crashing import CrashingSource

SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.minTaskRuntime": "2s",
    "spark.executor.memory": "512m",
    "spark.cores.max": "2",
    "spark.executor.cores": "1",
}


def main(url: str, address: str, root: Path, master: str = "local[2]") -> None:
    os.environ["PYTHONPATH"] = str(Path(__file__).resolve().parents[2])
    settings = {} if master.startswith("local") else SPECULATION
    spark = start_session(master=master, memory_mb=512, log_level="OFF", settings=settings)
    spark.dataSource.register(CrashingSource)
    options = {"url": url, "address": address, "spool": str(root / "spool"), "maxMessagesPerBatch": "20"}
    query = (
        spark.readStream.format("acquit_crashing")
        .options(**options)
        .load()
        .selectExpr("cast(body as string) as text")
        .writeStream.format("parquet")
        .option("path", str(root / "table"))
        .option("checkpointLocation", str(root / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), *sys.argv[4:])
