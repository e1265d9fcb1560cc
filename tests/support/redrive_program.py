"""A program of its own that moves dead letters back to work through Spark, and may be killed while it does.

    python -m tests.support.redrive_program URL

It begins again for as long as its broker is killed, and says so.
"""

from __future__ import annotations

import sys


def main(url: str) -> None:
    from acquit.errors import PipelineFailed
    from acquit.spark.redrive import RedriveOptions, redrive
    from acquit.spark.session import start_session

    settings = {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "1"}
    spark = start_session(master="local[2]", memory_mb=512, log_level="OFF", settings=settings)
    while True:
        try:
            summary = redrive(RedriveOptions(url=url, where="cause = 'rejected'"), spark=spark)
        except PipelineFailed as error:
            sys.stderr.write(f"failed: {error}\n")
        else:
            sys.stderr.write(f"moved {summary.moved} of {summary.selected}\n")
            break
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
