"""Files for spark-submit: each is one of the pipelines, and takes what ``acquit pipeline NAME`` takes.

::

    spark-submit --master spark://host:7077 "$(acquit pipeline --job ingest)" orders /shared/orders --url amqp://broker

The session is the one that spark-submit makes, so ``--master`` and ``--memory`` are said to it. Exit codes are those of
the command; spark-submit hands them on in client mode.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import NoReturn

__all__ = ["job_file", "submit"]


def submit(pipeline: str) -> NoReturn:
    """Run the pipeline with the arguments of this process, and exit with its code."""
    from acquit.cli.app import run

    sys.exit(run(["pipeline", pipeline, *sys.argv[1:]]))


def job_file(pipeline: str) -> Path:
    """Return the path of a pipeline's installed file."""
    return Path(__file__).with_name(f"{pipeline}.py")
