"""The audit as a page: one HTML file with its charts in it, that needs no network, no script and no server.

`tables` reads what an audit left, `series` makes intervals of minutes, `charts` draws them and `svg` fits the drawing
into a page; `page` decides what is said, with its `queues` and its `faults`, as values of `said`, and the template says
it. Nothing of it needs Spark.

Names of queues, reasons and the like come from whoever sends messages. The template escapes them all, the pictures
have none of them outside escaped titles, and the page's own policy forbids whatever would be fetched or run.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import jinja2

from acquit.errors import ConfigurationError
from acquit.spark.audit.reconciled import MEANING, read_reconciliations
from acquit.spark.files import write_whole
from acquit.spark.report.choice import Choice
from acquit.spark.report.formats import count_text, name_of, ranges_text, time_text
from acquit.spark.report.page import page_of
from acquit.spark.report.said import Page, mood_of
from acquit.spark.report.tables import ENTERED, RETIRED, AuditTables, read_tables

__all__ = ["AuditTables", "Choice", "check_target", "page_of", "render", "report"]


def report(
    folder: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    title: str | None = None,
    brokers: Sequence[str] = (),
    queues: Sequence[str] = (),
    top: int = 12,
) -> Path:
    """Write the page of the audit in `folder` to the file `out`, and return where it is.

    `title` (default: Audit) heads it. `brokers` (beginnings of uuids) and `queues` (patterns with ``*`` and
    ``?``) narrow it down; by default it is about all. `top`: how many queues have charts; all are in the balance sheet.
    The file is written whole or not at all. Raises ConfigurationError where `folder` is no audit, `top` is negative,
    the choice leaves nothing, or `out` is in no folder; OSError where it cannot be written.
    """
    if top < 0:
        raise ConfigurationError(f"top: expected 0 or more queues, got {top}")
    source, target = Path(folder), Path(out)
    check_target(target)
    choice = Choice(title=title or "Audit", brokers=brokers, queues=queues, top=top)
    text = render(page_of(read_tables(source), choice, read_reconciliations(source)))
    write_whole(target, text.encode(errors="replace"))
    return target


def check_target(out: Path) -> None:
    """Raise ConfigurationError where there is no folder to write the page to: to be told before the work, not after."""
    if not out.parent.is_dir():
        raise ConfigurationError(f"report {out}: there is no folder {out.parent}")


def render(page: Page) -> str:
    """Return the page as HTML."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    texts = {"count": count_text, "time": time_text, "ranges": ranges_text, "name": name_of}
    environment.filters |= texts | {"mood": mood_of}
    return environment.get_template("page.html").render(page=page, meaning=MEANING, entered=ENTERED, retired=RETIRED)
