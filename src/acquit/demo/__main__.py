"""The demo's child processes: ``python -m acquit.demo ROLE``. People use ``acquit demo``."""

from __future__ import annotations

import argparse
from pathlib import Path

from acquit.demo import collector, ingest, producer, worker


def main() -> None:
    """Read the arguments and run one role until its work is done."""
    parser = argparse.ArgumentParser(prog="python -m acquit.demo", description=__doc__)
    roles = parser.add_subparsers(dest="role", required=True)
    for role in ("producer", "worker", "collector", "ingest"):
        options = roles.add_parser(role)
        options.add_argument("--name", required=True, help="the container id, and the name in the logs")
        options.add_argument("--endpoint", type=Path, required=True)
        if role in ("collector", "ingest"):
            options.add_argument("--table", type=Path, required=True)
        else:
            options.add_argument("--manifest", type=Path, required=True)
        if role == "producer":
            options.add_argument("--index", type=int, required=True)
            options.add_argument("--of", type=int, required=True)
            options.add_argument("--rate", type=float, required=True)
        if role == "ingest":
            options.add_argument("--batch", type=int, required=True)
        if role == "worker":
            options.add_argument("--naive", action="store_true")
            options.add_argument("--hold-at", type=int)
    chosen = parser.parse_args()
    if chosen.role == "producer":
        share = {"index": chosen.index, "of": chosen.of, "rate_per_s": chosen.rate}
        producer.run(chosen.manifest, chosen.endpoint, name=chosen.name, **share)
    elif chosen.role == "worker":
        worker.run(chosen.manifest, chosen.endpoint, name=chosen.name, naive=chosen.naive, hold_at=chosen.hold_at)
    elif chosen.role == "ingest":
        ingest.run(chosen.endpoint, chosen.table, batch_messages=chosen.batch)
    else:
        collector.run(chosen.table, chosen.endpoint, name=chosen.name)


if __name__ == "__main__":
    main()
