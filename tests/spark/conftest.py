"""One Spark session for all tests that need one: it costs 5 s to start, and every query 2 to 5 s more.

`local[2,4]` because `local[2]` never tries a task again. Workers can be killed at named points:
see `tests.support.crashing`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    folder = Path(__file__).parent
    for item in items:
        if item.path.parent == folder:
            item.add_marker(pytest.mark.spark)
            # PySpark leaves sockets and threads to the garbage collector.
            item.add_marker(pytest.mark.filterwarnings("default"))


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    from acquit.spark.session import start_session
    from tests.support.crashing import PYTHONPATH

    with pytest.MonkeyPatch.context() as patch:  # its JVM keeps it; whatever else is started here has no part in that
        patch.setenv("PYTHONPATH", PYTHONPATH)
        session = start_session(master="local[2,4]", memory_mb=512, log_level="OFF")
    yield session
    session.stop()
