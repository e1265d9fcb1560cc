"""Imports of Spark's worker processes, spared by Python's garbage collector.

PySpark's worker makes a full collection after each task. It looks at all that the process has ever imported, a hundred
thousand objects, and takes 55 ms, which was a tenth of a worker's time in a stream whose tasks drain 50,000 messages
each. What is alive as the second task of ours begins has outlived one of these collections, and is the imports of the
first: it stays for good, and is taken out of all later ones.
"""

from __future__ import annotations

import gc
import itertools

from pyspark import TaskContext

_tasks = itertools.count(1)


def spare_imports() -> None:
    """Note that a task begins; in the second of this process, take what there is out of all later collections. Outside
    of Spark's tasks nothing is done: the process is somebody's program."""
    if TaskContext.get() is not None and next(_tasks) == 2:
        gc.freeze()
