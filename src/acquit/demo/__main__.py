"""The demo's child processes: ``python -m acquit.demo ROLE ARGUMENTS``, these as JSON. People use ``acquit demo``."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable

from acquit.demo import collector, ingest, roles

if __name__ == "__main__":
    roles.obey_parent()
    run: list[Callable[..., None]] = [roles.produce, roles.work, collector.collect, ingest.take]
    {role.__name__: role for role in run}[sys.argv[1]](**json.loads(sys.argv[2]))
    roles.report(finished=True)
