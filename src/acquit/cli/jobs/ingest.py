"""``acquit pipeline ingest`` for spark-submit."""

from __future__ import annotations

from acquit.cli.jobs import submit

if __name__ == "__main__":
    submit("ingest")
